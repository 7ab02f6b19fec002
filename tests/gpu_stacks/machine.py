# SPDX-License-Identifier: Apache-2.0
"""What this machine has of other people's GPU stacks: GPUs, a CUDA compiler, NVSHMEM and NCCL as Python packages."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


def package(name: str) -> Path | None:
    """Directory of a part of NVIDIA's namespace package, for example nvidia.nccl; None when it is not installed."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def count_gpus() -> int:
    """How many GPUs the driver shows."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=60, check=False)
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


@dataclass(frozen=True)
class Machine:
    """Found once; `missing` says why a stack cannot run here."""

    gpus: int = field(default_factory=count_gpus)
    compiler: str | None = field(default_factory=lambda: shutil.which("nvcc"))
    nvshmem: Path | None = field(default_factory=lambda: package("nvidia.nvshmem"))
    nccl: Path | None = field(default_factory=lambda: package("nvidia.nccl"))
    sharing: str | None = field(default_factory=lambda: shutil.which("nvidia-cuda-mps-control"))
    unshare: str | None = field(default_factory=lambda: shutil.which("unshare"))

    def missing(self, stack: str) -> str:
        """Why the stack ("nvshmem", "nccl") cannot run here; empty when it can."""
        if not self.gpus:
            return "no NVIDIA GPU (nvidia-smi -L lists none)"
        if not self.compiler:
            return "no nvcc on the PATH (CUDA toolkit)"
        home = self.nvshmem if stack == "nvshmem" else self.nccl
        if home is None:
            return f"no Python package nvidia-{stack}-cu13 for this interpreter"
        header = home / "include" / ("nvshmem.h" if stack == "nvshmem" else "nccl_device.h")
        if not header.exists():
            return f"{header} does not exist: this version has no calls for kernels"
        if stack == "nvshmem" and self.gpus == 1 and (not self.unshare or os.geteuid() != 0):
            return "one GPU for two processes: they must be two hosts by name, which needs root and unshare(1)"
        return ""

    @contextmanager
    def shared(self) -> Iterator[dict[str, str]]:
        """Environment of two processes: where they share a GPU, by CUDA's multi-process service, for else they would
        take turns of milliseconds. Without that service they do take turns: slow, but right."""
        if self.gpus > 1 or not self.sharing:
            yield {}
            return
        with tempfile.TemporaryDirectory(prefix="gda-mps-") as directory:
            places = {"CUDA_MPS_PIPE_DIRECTORY": directory, "CUDA_MPS_LOG_DIRECTORY": directory}
            environment = {**os.environ, **places}
            started = subprocess.run([self.sharing, "-d"], env=environment, timeout=60, check=False).returncode == 0
            try:
                yield places if started else {}
            finally:
                if started:
                    subprocess.run([self.sharing], input="quit\n", text=True, env=environment, timeout=60, check=False)
