# SPDX-License-Identifier: Apache-2.0
"""Captures of other people's programs before tshark, and their ICRCs before a routine of our own.

tshark must call no packet malformed and see the opcodes that the program's work needs. It does not judge ICRCs: a few
lines over zlib do, which tests/sim/test_link_witness.py checks against scapy and frames of the kernel's soft-RoCE.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator

from gda import formats

from .. import runner
from ..results import Case, FailedError, Host, Suite
from ..witness import dissected, icrc
from .perftest import IPV4_V2

Op = formats.bth_opcode
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


def captured(host: Host, words: str) -> None:
    """Run a program of perftest under a capture and look at what was captured."""
    name, *options = words.split()
    command = [runner.need(name, "perftest"), "-F", "-d", "mlx5_0", "-x", str(IPV4_V2), *options]
    file = host.directory / "all.pcapng"
    runner.check_pair(runner.pair(command, {**host.environment, "GDA_SIM_CAPTURE": str(file)}, host.directory))
    seen = [int(row[0] or "0", 0) for row in dissected(file, "infiniband.bth.opcode")]
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
