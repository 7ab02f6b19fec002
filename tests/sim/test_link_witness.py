# SPDX-License-Identifier: Apache-2.0
"""Frames and captures of the software NIC before witnesses that know nothing of it.

scapy computes the ICRC again, a few lines over zlib do it for IPv6 and RoCE v1, and tshark dissects every frame. All
frames come from `link_wire_test frames`: each opcode, each kind of address, several sizes.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from conformance.results import FailedError
from conformance.witness import IPV4, dissected, ether_type, icrc
from test_link import Build, build, environment, run  # noqa: F401

KERNEL_FRAMES = Path(__file__).parents[1] / "conformance/rxe/kernel_frames.txt"
DEBIAN_PYTHON = "/usr/bin/python3"
SCAPY = """
import sys
from scapy.layers.l2 import Ether
from scapy.contrib.roce import BTH
for line in sys.stdin:
    frame = bytes.fromhex(line)
    parsed = Ether(frame)
    parsed[BTH].icrc = None
    print(bytes(parsed).hex())
"""


@pytest.fixture(scope="module")
def frames(build: Build) -> list[bytes]:  # noqa: F811
    result = run([str(build("link_wire_test", "plain")), "frames"])
    assert result.returncode == 0, result.stderr
    return [bytes.fromhex(line) for line in result.stdout.splitlines()]


def test_icrc_by_zlib(frames: list[bytes]) -> None:
    assert {ether_type(frame) for frame in frames} == {0x0800, 0x86DD, 0x8915}
    for frame in frames:
        assert frame[-4:] == icrc(frame), frame.hex()


def test_icrc_by_scapy(frames: list[bytes]) -> None:
    probe = subprocess.run([DEBIAN_PYTHON, "-c", "import scapy.contrib.roce"], capture_output=True)
    if probe.returncode:
        pytest.skip("not run: scapy is not installed (apt-get install python3-scapy)")
    ours = [frame.hex() for frame in frames if ether_type(frame) == 0x0800]
    again = subprocess.run(
        [DEBIAN_PYTHON, "-c", SCAPY], input="\n".join(ours), capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout.split() == ours


def test_frames_of_the_kernel_are_read_and_made_again(build: Build) -> None:  # noqa: F811
    """Bit for bit, but for the identification of the IP packet, which the software NIC leaves 0, and its checksums."""
    lines = [line for line in KERNEL_FRAMES.read_text().splitlines() if not line.startswith("#")]
    theirs = [bytes.fromhex(line.split()[-1]) for line in lines]
    assert len(theirs) > 100
    expected = []
    for frame in theirs:
        assert frame[-4:] == icrc(frame), "the judge's own ICRC"
        changed = bytearray(frame)
        changed[18:20] = changed[24:26] = b"\0\0"
        total = sum(struct.unpack(">10H", changed[14:34]))
        total = (total & 0xFFFF) + (total >> 16)
        changed[24:26] = (~((total & 0xFFFF) + (total >> 16)) & 0xFFFF).to_bytes(2, "big")
        changed[-4:] = icrc(bytes(changed))
        expected.append(changed.hex())
    program = str(build("link_wire_test", "plain"))
    again = run([program, "again"], input="".join(f"{frame.hex()}\n" for frame in theirs))
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.split("\n")[:-1] == expected


def written(frames: Iterable[bytes], directory: Path) -> Path:
    """A file of them that tshark reads."""
    pcap = directory / "frames.pcap"
    with pcap.open("wb") as file:
        file.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(frames):
            file.write(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)
    return pcap


def test_dissection_by_tshark(frames: list[bytes], tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("not run: tshark is not installed (apt-get install tshark)")
    rows = dissected(written(frames, tmp_path), "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn")
    assert len(rows) == len(frames)
    for row, frame in zip(rows, frames, strict=True):
        bth = {0x0800: 42, 0x86DD: 62, 0x8915: 54}[ether_type(frame)]
        assert [int(value, 0) for value in row] == [frame[bth], 0x123456, 0xABC000 + frame[bth]]


def with_payload(frame: bytes, payload: bytes) -> bytes:
    """The same IPv4 frame with these first bytes of payload behind its BTH (tshark does not judge the ICRC)."""
    return frame[:54] + payload + frame[54 + len(payload) :]


def test_a_payload_that_looks_like_a_broken_vlan_is_no_malformed_packet(frames: list[bytes], tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("not run: tshark is not installed (apt-get install tshark)")
    send_middle = 1
    frame = next(f for f in frames if ether_type(f) == IPV4 and f[42] == send_middle and len(f) > 64)
    random = with_payload(frame, bytes.fromhex("81000000"))[:58] + frame[-4:]
    short = bytearray(random)
    short[16:18] = (len(short) - 14).to_bytes(2, "big")
    short[38:40] = (len(short) - 34).to_bytes(2, "big")
    assert dissected(written([bytes(short)], tmp_path), "infiniband.bth.opcode") == [[str(send_middle)]]


def test_a_packet_cut_in_its_headers_is_malformed(frames: list[bytes], tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("not run: tshark is not installed (apt-get install tshark)")
    fetch_add = 20
    frame = bytearray(next(f for f in frames if ether_type(f) == IPV4 and f[42] == fetch_add)[:60])
    frame[16:18] = (len(frame) - 14).to_bytes(2, "big")
    frame[38:40] = (len(frame) - 34).to_bytes(2, "big")
    with pytest.raises(FailedError, match="malformed"):
        dissected(written([bytes(frame)], tmp_path), "infiniband.bth.opcode")


def test_capture_by_tshark(build: Build, tmp_path: Path) -> None:  # noqa: F811
    if shutil.which("tshark") is None:
        pytest.skip("not run: tshark is not installed (apt-get install tshark)")
    capture = tmp_path / "example.pcapng"
    made = run([str(build("link_capture_test", "plain")), "write", str(capture)], env=environment(tmp_path))
    assert made.returncode == 0, made.stderr
    fields = ("infiniband.bth.opcode", "infiniband.bth.psn", "frame.time_epoch", "frame.interface_name")
    rows = dissected(capture, *fields, "frame.packet_flags", "frame.comment")
    again = "QP 0x000077, WQE 0, sent again"
    lost = "; dropped by fault: drop RC_RDMA_WRITE_MIDDLE first=1"
    expected = [
        (6, 0, 1000, "QP 0x000077, WQE 0"),
        (7, 1, 1000, "QP 0x000077, WQE 0" + lost),
        (8, 2, 1000, "QP 0x000077, WQE 0"),
        (6, 0, 2000, again),
        (7, 1, 2000, again),
        (8, 2, 2000, again),
        (17, 2, 3000, "QP 0x000077"),
        (20, 3, 4000, "QP 0x000077"),
        (18, 3, 5000, "QP 0x000077"),
        (100, 9, 6000, "QP 0x000077"),
    ]
    assert rows == [
        [str(opcode), str(psn), f"1.{at:09}", "gda-sim-0", "0x00000002", comment]
        for opcode, psn, at, comment in expected
    ]
