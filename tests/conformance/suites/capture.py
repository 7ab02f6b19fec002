# SPDX-License-Identifier: Apache-2.0
"""Captures of other people's programs before tshark, and their ICRCs before a routine of our own.

tshark must call no packet malformed and see the opcodes that the program's work needs. It does not judge ICRCs: a few
lines over zlib do, which tests/sim/test_link_witness.py checks against scapy and frames of the kernel's soft-RoCE.
"""

from __future__ import annotations

import functools
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

from gda import formats

from .. import runner
from ..results import Case, FailedError, Host, Suite
from .perftest import IPV4_V2

Op = formats.bth_opcode
# What tshark guesses about payloads is not about RoCE: random bytes may look like a broken RPC.
GUESSES = ("smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser", "infiniband.eoib", "infiniband_sdp", "fcoib")
ENHANCED_PACKET = 6  # block type of pcapng
WRITES = {Op.RC_RDMA_WRITE_FIRST, Op.RC_RDMA_WRITE_MIDDLE, Op.RC_RDMA_WRITE_LAST}
SENDS = {Op.RC_SEND_FIRST, Op.RC_SEND_MIDDLE, Op.RC_SEND_LAST}
RESPONSES = {Op.RC_RDMA_READ_RESPONSE_FIRST, Op.RC_RDMA_READ_RESPONSE_MIDDLE, Op.RC_RDMA_READ_RESPONSE_LAST}
EXPECTED = {
    "ib_write_bw -n 5 -s 4097 -m 1024": WRITES | {Op.RC_ACKNOWLEDGE},
    "ib_write_lat -n 5 -s 8": {Op.RC_RDMA_WRITE_ONLY, Op.RC_ACKNOWLEDGE},
    "ib_read_bw -n 5 -s 4097 -m 1024": RESPONSES | {Op.RC_RDMA_READ_REQUEST},
    "ib_send_bw -n 5 -s 4097 -m 1024": SENDS | {Op.RC_ACKNOWLEDGE},
    "ib_send_bw -n 5 -s 8 -c UC": {Op.UC_SEND_ONLY},
    "ib_send_bw -n 5 -s 8 -c UD": {Op.UD_SEND_ONLY},
    "ib_atomic_bw -n 5 -A FETCH_AND_ADD": {Op.RC_FETCH_ADD, Op.RC_ATOMIC_ACKNOWLEDGE},
    "ib_atomic_bw -n 5 -A CMP_AND_SWAP": {Op.RC_COMPARE_SWAP, Op.RC_ATOMIC_ACKNOWLEDGE},
}


def frames(capture: bytes) -> Iterator[bytes]:
    """Packets of a little-endian pcapng file."""
    at = 0
    while at < len(capture):
        kind, length = struct.unpack_from("<II", capture, at)
        if length < 12 or at + length > len(capture):
            raise FailedError(f"block at byte {at} of the capture has {length} bytes")
        if kind == ENHANCED_PACKET:
            kept = struct.unpack_from("<I", capture, at + 20)[0]
            yield capture[at + 28 : at + 28 + kept]
        at += length


def icrc(frame: bytes) -> bytes:
    """ICRC of a whole RoCE v2 frame over IPv4 or IPv6 (specification, annex A17)."""
    masked = bytearray(frame[14:-4])
    if frame[12:14] == b"\x08\x00":
        masked[1] = masked[8] = 0xFF  # type of service, time to live
        masked[10:12] = b"\xff\xff"  # header checksum
        udp = 20
    else:
        masked[0] |= 0x0F  # traffic class, flow label, hop limit
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF
        udp = 40
    masked[udp + 6 : udp + 8] = b"\xff\xff"  # UDP checksum
    masked[udp + 8 + 4] = 0xFF  # congestion bits
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))


def dissected(capture: Path) -> list[int]:
    """Opcode of each packet, as tshark sees it."""
    command = [runner.need("tshark", "tshark"), "-n", "-r", str(capture), "-T", "fields"]
    for guess in GUESSES:
        command += ["--disable-protocol", guess]
    command += ["-e", "_ws.malformed", "-e", "infiniband.bth.opcode"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise FailedError(done.stderr)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    for number, row in enumerate(rows, 1):
        if row[0] or not row[1]:
            raise FailedError(f"packet {number}: tshark says {row}")
    return [int(row[1], 0) for row in rows]


def captured(host: Host, words: str) -> None:
    """Run a program of perftest under a capture and look at what was captured."""
    name, *options = words.split()
    command = [runner.need(name, "perftest"), "-F", "-d", "mlx5_0", "-x", str(IPV4_V2), *options]
    file = host.directory / "all.pcapng"
    runner.check_pair(runner.pair(command, {**host.environment, "GDA_SIM_CAPTURE": str(file)}, host.directory))
    seen = dissected(file)
    packets = list(frames(file.read_bytes()))
    if len(packets) != len(seen):
        raise FailedError(f"the capture has {len(packets)} packets, tshark sees {len(seen)}")
    if set(seen) != EXPECTED[words]:
        raise FailedError(f"opcodes {sorted(map(hex, set(seen)))}, expected {sorted(map(hex, EXPECTED[words]))}")
    for number, frame in enumerate(packets, 1):
        have, must = frame[-4:].hex(), icrc(frame).hex()
        if have != must:
            raise FailedError(f"packet {number} has ICRC {have}, must be {must}: {frame.hex()}")


def cases() -> list[Case]:
    """A program each."""
    return [Case(f"capture of {line}", functools.partial(captured, words=line)) for line in EXPECTED]


SUITE = Suite("capture", "packets before tshark, and their ICRCs", cases, 120)
