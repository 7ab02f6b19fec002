# SPDX-License-Identifier: Apache-2.0
"""The programs, in which environments they run, and how two processes of one run on the software NIC."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from gda import sim

from .machine import Machine

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "gpu_stacks"
DEADLINE_S = 120  # of one case

# NVSHMEM over its IBGDA transport, though NVLink may be there; CUDA's modules are loaded before a kernel waits.
NVSHMEM = {
    "NVSHMEM_REMOTE_TRANSPORT": "ibgda",
    "NVSHMEM_IB_ENABLE_IBGDA": "1",
    "NVSHMEM_DISABLE_P2P": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "NVSHMEM_SYMMETRIC_SIZE": str(256 << 20),
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
}
BY_ADDRESS = {"NVSHMEM_IB_DISABLE_DMABUF": "1", "NVSHMEM_DISABLE_CUDA_VMM": "1"}
HOST_QUEUES = {"NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE": "hostmem"}
NCCL = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0", "NCCL_IB_GID_INDEX": "1"}


@dataclass(frozen=True)
class Case:
    """One program in one environment."""

    name: str
    stack: str
    program: str
    environment: dict[str, str]


CASES = [
    Case(
        "NVSHMEM, CPU rings, queues in host memory, regions by address", "nvshmem", "nvshmem_values",
        {**NVSHMEM, **BY_ADDRESS, **HOST_QUEUES, "NVSHMEM_IBGDA_NIC_HANDLER": "cpu_host_memory"},
    ),
    Case(
        "NVSHMEM, GPU rings, queues in host memory", "nvshmem", "nvshmem_values",
        {**NVSHMEM, **HOST_QUEUES, "NVSHMEM_IBGDA_NIC_HANDLER": "gpu"},
    ),
    Case(
        "NVSHMEM, GPU rings, queues in GPU memory, all by address", "nvshmem", "nvshmem_values",
        {**NVSHMEM, **BY_ADDRESS, "NVSHMEM_IBGDA_NIC_HANDLER": "gpu"},
    ),
    Case("NVSHMEM, its own choices (GPU rings, queues in GPU memory, dma-buf)", "nvshmem", "nvshmem_values", NVSHMEM),
    Case("NCCL's GIN, its own choices (the same)", "nccl", "nccl_gin_values", NCCL),
]  # fmt: skip


@dataclass
class Outcome:
    """What two processes of a case said."""

    case: Case
    seconds: float = 0.0
    statuses: list[int] = field(default_factory=list)
    checks: dict[str, int] = field(default_factory=dict)  # wrong values of both processes
    measures: dict[str, tuple[float, str]] = field(default_factory=dict)
    words: str = ""  # the end of what they said otherwise

    @property
    def ok(self) -> bool:
        """Both ended, something was checked, and no value was wrong."""
        return self.statuses == [0, 0] and bool(self.checks) and not any(self.checks.values())

    def read(self, output: str) -> None:
        """Take the lines of JSON that a process printed."""
        for line in output.splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if not isinstance(said, dict):
                continue
            if "check" in said:
                self.checks[said["check"]] = self.checks.get(said["check"], 0) + int(said["wrong"])
            elif "measure" in said:
                self.measures[said["measure"]] = (float(said["value"]), str(said["unit"]))


def build(machine: Machine, program: str) -> Path:
    """Compile a program for the GPUs at hand, unless it is newer than its sources."""
    source, target = HERE / f"{program}.cu", BUILD / program
    changed = max(file.stat().st_mtime for file in (source, HERE / "two_processes.h"))
    if target.exists() and target.stat().st_mtime > changed:
        return target
    BUILD.mkdir(parents=True, exist_ok=True)
    home = machine.nvshmem if program.startswith("nvshmem") else machine.nccl
    assert home is not None and machine.compiler is not None
    extra = ["-rdc=true", "-lnvshmem_device", "-l:libnvshmem_host.so.3"]
    if program.startswith("nccl"):
        extra = ["-l:libnccl.so.2"]
    subprocess.run(
        [machine.compiler, "-std=c++17", "-O2", "-arch=native", f"-I{home / 'include'}", str(source), "-o", str(target),
         f"-L{home / 'lib'}", *extra, "-Xlinker", f"-rpath={home / 'lib'}"],
        check=True,
    )  # fmt: skip
    return target


def run(machine: Machine, case: Case, program: Path, shared: dict[str, str]) -> Outcome:
    """Both processes of a case on the software NIC, to their end or the deadline."""
    outcome = Outcome(case)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gda-gpu-stacks-") as name:
        directory = Path(name)
        processes = []
        for process in range(2):
            environment = {
                **os.environ, **case.environment, **shared, "CUDA_MODULE_LOADING": "EAGER",
                "NCCL_HOSTID": f"host{process}", "GDA_SIM_DIRECTORY": str(directory / "meet"),
            }  # fmt: skip
            # LD_PRELOAD only for the program itself: the tools before it need no NIC.
            command = ["env", f"LD_PRELOAD={':'.join(sim.preload_libraries())}", str(program), str(process),
                       str(directory / "id"), "measure"]  # fmt: skip
            if machine.gpus == 1 and machine.unshare:
                # NVSHMEM takes two processes of one host on one GPU for a mistake; hosts differ by their names.
                command = [machine.unshare, "--uts", "sh", "-c", f'hostname host{process} && exec "$@"', "sh", *command]
            with (directory / f"{process}.out").open("w") as out, (directory / f"{process}.err").open("w") as err:
                processes.append(subprocess.Popen(command, env=environment, stdout=out, stderr=err))
        for process in processes:
            left = max(0.0, begin + DEADLINE_S - time.monotonic())
            try:
                outcome.statuses.append(process.wait(left))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                outcome.statuses.append(-9)
        for process_number in range(2):
            outcome.read((directory / f"{process_number}.out").read_text(errors="replace"))
            outcome.words += (directory / f"{process_number}.err").read_text(errors="replace")[-2000:]
    outcome.seconds = time.monotonic() - begin
    return outcome
