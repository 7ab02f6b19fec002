# SPDX-License-Identifier: Apache-2.0
"""Faults and captures as people order them: from Python, and for any program by `sim run`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PUTS = """
import numpy as np
import gda
import gda.errors
import gda.sim

KERNEL = r'''
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, gda_status* status) {
    gda_ticket ticket = gda_put(qp, dst, 0, src, 0, bytes);
    *status = gda_wait(qp, ticket, GDA_S(30));
}
'''
with gda.open() as nic:
    source = np.random.default_rng(1).integers(0, 256, 300_000, dtype=np.uint8)
    target = np.zeros_like(source)
    src, dst = nic.register(source), nic.register(target)
    a, b = nic.loopback_pair(depth=16)
    put = gda.Kernel(KERNEL).put
    put[1, 1](a, dst, src, 64)
"""
FAULTS = (
    PUTS
    + """
    with gda.sim.virtual_time(), gda.sim.faults("drop=5%,duplicate=5%,reorder=5%:3,corrupt=2%,seed=7") as sim:
        put[1, 1](a, dst, src, source.size)
    assert (source == target).all()
    counters = sim.counters()
    for name in ("fault_dropped", "fault_duplicated", "fault_reordered", "fault_corrupted", "retries"):
        assert counters[name] > 0, (name, counters)
    try:
        sim.set_faults("dorp=5%")
    except gda.errors.ArgumentError as error:
        assert "'dorp=5%'" in str(error)
    else:
        raise AssertionError("a setting that does not exist was taken")
"""
)
CAPTURE = (
    PUTS
    + """
    import sys
    with gda.sim.capture(sys.argv[1]) as sim:
        put[1, 1](a, dst, src, 10_000)
    put[1, 1](a, dst, src, source.size)
    assert (source == target).all()
    try:
        sim.set_capture("/proc/none/x")
    except gda.errors.ArgumentError as error:
        assert "/proc/none/x" in str(error)
    else:
        raise AssertionError("a file that cannot be was taken")
"""
)


def environment(directory: Path) -> dict[str, str]:
    return {
        **os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software", "GDA_TARGET": "host",
        "GDA_SIM_DIRECTORY": str(directory / "nics"),
    }  # fmt: skip


def python(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, timeout=300, cwd=ROOT, env=environment(directory),
    )  # fmt: skip


def test_a_put_arrives_whole_whatever_befalls_it(tmp_path: Path) -> None:
    result = python(tmp_path, "-c", FAULTS)
    assert result.returncode == 0, result.stderr


def packets_of(capture: Path) -> list[bytes]:
    """The packet blocks of a pcapng file, read by their lengths."""
    data, packets = capture.read_bytes(), []
    while data:
        kind, length = (int.from_bytes(data[at : at + 4], sys.byteorder) for at in (0, 4))
        if kind == 6:
            packets.append(data[:length])
        data = data[length:]
    return packets


def test_a_put_is_captured(tmp_path: Path) -> None:
    capture = tmp_path / "put.pcapng"
    capture.write_text("an old file")
    result = python(tmp_path, "-c", CAPTURE, str(capture))
    assert result.returncode == 0, result.stderr
    packets = packets_of(capture)
    opcodes = [packet[28 + 42] for packet in packets]  # a block's own fields, then Ethernet, IPv4 and UDP
    if 6 not in opcodes:
        opcodes = [packet[28 + 62] for packet in packets]  # IPv6
    assert opcodes[:1] == [6] and opcodes.count(6) == opcodes.count(8) == 1 and 17 in opcodes, opcodes
    assert all(b"QP 0x" in packet for packet in packets)
    assert b"WQE 1" in packets[0]


SEEDED = (
    PUTS.replace("with gda.open()", "import sys\nwith gda.sim.virtual_time(), gda.open()").replace(
        "depth=16", "depth=16, psn=0xfffff0"
    )
    + """
    plan = f"drop=5%,duplicate=5%,reorder=5%:3,delay=2us,rate=100Gb,seed={sys.argv[2]}"
    with gda.sim.faults(plan), gda.sim.capture(sys.argv[1]) as sim:
        for _ in range(3):
            put[1, 1](a, dst, src, source.size)
    assert (source == target).all()
"""
)


def test_under_virtual_time_a_run_is_a_function_of_its_seed(tmp_path: Path) -> None:
    """Two processes, the same seed: the same packets at the same nanosecond. Addresses of memory may differ."""
    traces = []
    for run, seed in enumerate((7, 7, 8)):
        capture = tmp_path / f"{run}.pcapng"
        values = environment(tmp_path) | {"GDA_SIM_DIRECTORY": str(tmp_path / f"host-{run}")}
        command = [sys.executable, "-c", SEEDED, str(capture), str(seed)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=values)
        assert result.returncode == 0, result.stderr
        traces.append([trace_of(packet) for packet in packets_of(capture)])
    assert len(traces[0]) > 300
    assert traces[0] == traces[1]
    assert traces[0] != traces[2]


def trace_of(packet: bytes) -> tuple[bytes, int, int, bytes, bytes]:
    """Time, length, opcode, PSN and comment of a packet block, but for the number of the process."""
    length = int.from_bytes(packet[20:24], sys.byteorder)
    bth = 28 + 14 + (40 if packet[28 + 12 : 28 + 14] == b"\x86\xdd" else 20) + 8
    options = packet[28 + (length + 3) // 4 * 4 : -4]
    comment = re.split(rb"; (?:posted|answered) by ", options[options.index(b"QP 0x") :])[0]
    return packet[12:20], length, packet[bth], packet[bth + 9 : bth + 12], comment


def test_a_program_runs_with_faults_and_a_capture(tmp_path: Path) -> None:
    capture = tmp_path / "run.pcapng"
    command = ("-m", "gda", "sim", "run", "--faults", "seed=2;drop again", "--capture", str(capture), "--")
    result = python(tmp_path, *command, "ibv_devinfo")
    assert result.returncode == 0 and "mlx5_0" in result.stdout, result.stderr
    assert capture.read_bytes()[:4] == bytes.fromhex("0a0d0d0a")


def test_mistyped_faults_start_no_program(tmp_path: Path) -> None:
    result = python(tmp_path, "-m", "gda", "sim", "run", "--faults", "drop=5%;lose write", "--", "ibv_devinfo")
    assert result.returncode == 1 and not result.stdout
    assert "'lose'" in result.stderr and "Traceback" not in result.stderr


def test_two_hosts_talk_by_udp(tmp_path: Path) -> None:
    """Two directories stand for two hosts; the loopback addresses are this test's own."""
    pid = os.getpid()
    addresses = [f"127.{100 + n}.{pid // 250 % 250}.{1 + pid % 250}" for n in range(2)]
    port = str(20000 + pid % 10000)
    common = ["ibv_rc_pingpong", "-g", "4", "-n", "50", "-p", port]
    processes = []
    for number, address in enumerate(addresses):
        values = environment(tmp_path) | {"GDA_SIM_DIRECTORY": str(tmp_path / f"host-{number}")}
        command = [sys.executable, "-m", "gda", "sim", "run", "--address", address, "--", *common]
        if number == 1:
            wait_for_listener(int(port))
            command.append("127.0.0.1")
        processes.append(
            subprocess.Popen(command, env=values, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    for process, address in zip(processes, addresses, strict=True):
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        assert f"::ffff:{address}" in output and "50 iters" in output


def wait_for_listener(port: int, limit_s: float = 60) -> None:
    """Until a TCP server of this host listens; looked up, since a connection would be taken for the client's."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
            if any(row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port for row in rows):
                return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens on port {port}")
