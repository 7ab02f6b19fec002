# SPDX-License-Identifier: Apache-2.0
"""Frames and captures of the software NIC before witnesses that know nothing of it.

scapy computes the ICRC again, a few lines over zlib do it for IPv6 and RoCE v1, and tshark dissects every frame. All
frames come from `link_wire_test frames`: each opcode, each kind of address, several sizes.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
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


def ether_type(frame: bytes) -> int:
    return int.from_bytes(frame[12:14], "big")


def icrc(frame: bytes) -> bytes:
    """ICRC of a whole frame, by the rule of the specification's annexes A16 and A17."""
    kind, masked = ether_type(frame), bytearray(frame[14:-4])
    if kind == 0x0800:
        masked[1] = masked[8] = 0xFF  # type of service, time to live
        masked[10:12] = b"\xff\xff"  # header checksum
        udp = 20
    else:
        masked[0] |= 0x0F  # traffic class, flow label, hop limit
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF
        udp = 40
    bth = udp
    if kind != 0x8915:
        masked[udp + 6 : udp + 8] = b"\xff\xff"  # UDP checksum
        bth += 8
    masked[bth + 4] = 0xFF  # congestion bits
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))


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


def dissected(pcap: Path, *fields: str) -> list[list[str]]:
    """tshark's view of each packet: the fields, after its complaints."""
    # What tshark guesses about payloads is not about RoCE: random bytes may look like a broken RPC.
    command = ["tshark", "-n", "-r", str(pcap), "-T", "fields"]
    for guess in ("smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser", "infiniband.eoib", "infiniband_sdp", "fcoib"):
        command += ["--disable-protocol", guess]
    for field in ("_ws.malformed", "_ws.expert.message", *fields):
        command += ["-e", field]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    for row in rows:
        assert row[0] == "", f"tshark calls a packet malformed: {row}"
    return [row[2:] for row in rows]


def test_dissection_by_tshark(frames: list[bytes], tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("not run: tshark is not installed (apt-get install tshark)")
    pcap = tmp_path / "frames.pcap"
    with pcap.open("wb") as file:
        file.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(frames):
            file.write(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)
    rows = dissected(pcap, "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn")
    assert len(rows) == len(frames)
    for row, frame in zip(rows, frames, strict=True):
        bth = {0x0800: 42, 0x86DD: 62, 0x8915: 54}[ether_type(frame)]
        assert [int(value, 0) for value in row] == [frame[bth], 0x123456, 0xABC000 + frame[bth]]


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
