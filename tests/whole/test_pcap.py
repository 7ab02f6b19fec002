# SPDX-License-Identifier: Apache-2.0
"""Comments in captures, as tshark reads them, and `python -m gda pcap`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gda.errors import ArgumentError
from gda.tools import pcap

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = r"""
import sys
import numpy as np
import gda
from gda import sim

with gda.open() as nic, gda.HostQueuePair(nic) as c, gda.HostQueuePair(nic) as d:
    source, target = nic.allocate(8192), nic.allocate(8192)
    a, b = nic.loopback_pair()
    gda.nic.connect(c, d)
    put = gda.Kernel("#include <gda/kernels/put.h>\n", target="host").gda_kernel_put
    with sim.virtual_time(), sim.capture(sys.argv[1]), sim.faults("drop request first=1"):
        put[1, 1](a, target, 0, source, 0, 6000, 10**10)
        c.put(target, 0, source, 0, 100)
        c.wait()
    print(a.qpn, b.qpn, c.qpn, d.qpn)
"""


def run(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software", "GDA_SIM_DIRECTORY": str(directory / "nics"),
        "COLUMNS": "250",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=150, cwd=ROOT, env=environment
    )


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A capture of a put by a kernel whose first packet is lost, and one by the CPU; the queue pairs' numbers."""
    directory = tmp_path_factory.mktemp("pcap")
    path = directory / "put.pcapng"
    done = run("-c", PROGRAM, str(path), directory=directory)
    assert done.returncode == 0, done.stderr
    return path, [int(n) for n in done.stdout.split()]


def comments_by_tshark(path: Path) -> list[str]:
    if shutil.which("tshark") is None:
        pytest.skip("not run: apt-get install tshark")
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-e", "frame.comment"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_comments_tell_who_posted_what(capture: tuple[Path, list[int]]) -> None:
    path, (a, b, c, _) = capture
    comments = comments_by_tshark(path)
    kernel = [line for line in comments if line.startswith(f"QP 0x{a:06x}, WQE 0")]
    assert len(kernel) >= 2
    poster = r"posted by a kernel \(queue made by DEVX\) in python\S* \(\d+\): RDMA_WRITE, 6000 bytes"
    for line in kernel:
        assert re.search(poster, line)
    assert any("sent again" in line for line in kernel)
    assert any("dropped by fault" in line for line in kernel)
    (cpu, *_) = [line for line in comments if line.startswith(f"QP 0x{c:06x}, WQE")]
    assert re.search(r"posted by the CPU \(libibverbs\) in python\S* \(\d+\): RDMA_WRITE, 100 bytes", cpu)
    answer = next(line for line in comments if line.startswith(f"QP 0x{b:06x}"))
    assert re.search(r"answered by the NIC of python\S* \(\d+\)", answer)


def test_packets_in_words(capture: tuple[Path, list[int]]) -> None:
    path, (a, b, *_) = capture
    packets = pcap.read(path)
    first = packets[0]
    assert first.words.startswith(f"RC RDMA write first to queue pair {b:#x}")
    assert "6000 bytes at 0x" in first.words
    assert first.outbound
    assert first.interface.startswith("gda-sim-")
    again = next(p for p in packets if any("1 again, after" in r for r in p.remarks))
    assert again.fields["psn"] == first.fields["psn"]
    acknowledged = [p for p in packets if p.fields["dest_qp"] == a]
    assert any(re.match(r"answers \d+ after ", r) for p in acknowledged for r in p.remarks)


def test_the_command_shows_and_annotates(capture: tuple[Path, list[int]], tmp_path: Path) -> None:
    path, _ = capture
    copy = tmp_path / "copy.pcapng"
    done = run("-m", "gda", "pcap", str(path), "--out", str(copy), directory=tmp_path)
    assert done.returncode == 0, done.stderr
    packets = pcap.read(path)
    assert f"{len(packets)} packets" in done.stdout
    assert "posted by" in done.stdout
    comments = comments_by_tshark(copy)
    assert len(comments) == len(packets)
    for packet, line in zip(packets, comments, strict=True):
        assert packet.words in line.replace("\\,", ",")
        assert packet.comments[0] in line.replace("\\,", ",")
    assert [p.data for p in pcap.read(copy)] == [p.data for p in packets]


def test_a_program_that_nobody_changed(tmp_path: Path) -> None:
    if shutil.which("ibv_rc_pingpong") is None:
        pytest.skip("not run: apt-get install ibverbs-utils")
    path = tmp_path / "pingpong.pcapng"
    both = "ibv_rc_pingpong -g 1 -n 3 -p 18622 & sleep 1; ibv_rc_pingpong -g 1 -n 3 -p 18622 localhost; wait"
    done = run("-m", "gda", "sim", "run", "--pcap", str(path), "--", "sh", "-c", both, directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    packets = pcap.read(path)
    assert len({p.interface for p in packets}) == 2
    posted = [c for p in packets for c in p.comments if "posted by the CPU (libibverbs) in ibv_rc_pingpong" in c]
    assert len(posted) >= 6
    assert all(": SEND, 4096 bytes" in c for c in posted)


def test_a_cut_file_and_other_files(capture: tuple[Path, list[int]], tmp_path: Path) -> None:
    path, _ = capture
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(path.read_bytes()[:-30])
    assert len(pcap.read(cut)) == len(pcap.read(path)) - 1
    other = tmp_path / "other.pcap"
    other.write_bytes(bytes.fromhex("d4c3b2a1") + bytes(40))
    for wrong in (other, tmp_path / "none.pcapng"):
        with pytest.raises(ArgumentError):
            pcap.read(wrong)
    noise = tmp_path / "noise.pcapng"
    noise.write_bytes(path.read_bytes()[:200] + b"\xff" * 400)
    pcap.read(noise)


def test_a_hostile_packet_is_shown_as_what_it_is(tmp_path: Path, capture: tuple[Path, list[int]]) -> None:
    """Every byte of the first packet changed in turn: words, never a crash."""
    data = bytearray(capture[0].read_bytes())
    at = 0
    while int.from_bytes(data[at : at + 4], sys.byteorder) != 6:
        at += int.from_bytes(data[at + 4 : at + 8], sys.byteorder)
    length = int.from_bytes(data[at + 4 : at + 8], sys.byteorder)
    one = bytearray(data[: at + length])
    changed = tmp_path / "changed.pcapng"
    for byte in range(at + 28, min(at + 28 + 90, at + length)):
        one[byte] ^= 0xFF
        changed.write_bytes(one)
        (packet,) = pcap.read(changed)
        assert packet.words
        one[byte] ^= 0xFF
