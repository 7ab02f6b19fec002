# SPDX-License-Identifier: Apache-2.0
"""Witnesses of packets that know nothing of the software NIC: tshark's dissection, and ICRCs by zlib.

Used by the suite `capture` and by the tests of the link.
"""

from __future__ import annotations

import struct
import subprocess
import zlib
from pathlib import Path

from .results import FailedError
from .runner import need

IPV4, IPV6 = 0x0800, 0x86DD
# What tshark guesses about payloads is not about RoCE: random bytes may look like a broken RPC.
GUESSES = ("smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser", "infiniband.eoib", "infiniband_sdp", "fcoib")


def ether_type(frame: bytes) -> int:
    """IPV4, IPV6, or that of RoCE v1."""
    return int.from_bytes(frame[12:14], "big")


def icrc(frame: bytes) -> bytes:
    """ICRC of a whole frame, by the rule of the InfiniBand specification's annexes A16 and A17."""
    kind, masked = ether_type(frame), bytearray(frame[14:-4])
    if kind == IPV4:
        masked[1] = masked[8] = 0xFF  # type of service, time to live
        masked[10:12] = b"\xff\xff"  # header checksum
        bth = 20
    else:
        masked[0] |= 0x0F  # traffic class, flow label, hop limit
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF
        bth = 40
    if kind in (IPV4, IPV6):
        masked[bth + 6 : bth + 8] = b"\xff\xff"  # UDP checksum
        bth += 8
    masked[bth + 4] = 0xFF  # congestion bits
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))


def guessed(protocols: str, complaint: str) -> bool:
    """Whether tshark complains of its own guess at the payload.

    A payload whose bytes 2 and 3 are zero is taken for an Ethernet type and what belongs to it: no option turns
    that off, so what lies behind the InfiniBand headers and their own complaints are told apart here.
    """
    return not protocols.endswith(("infiniband", ":data")) and "InfiniBand" not in complaint


def dissected(capture: Path, *fields: str) -> list[list[str]]:
    """These fields of each packet, as tshark sees them; FailedError if it calls one malformed."""
    command = [need("tshark", "tshark"), "-n", "-r", str(capture), "-T", "fields"]
    for guess in GUESSES:
        command += ["--disable-protocol", guess]
    for field in ("frame.protocols", "_ws.malformed", "_ws.expert.message", *fields):
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise FailedError(done.stderr)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    for number, (protocols, complaint, expert, *_) in enumerate(rows, 1):
        if complaint and not guessed(protocols, complaint):
            raise FailedError(f"tshark calls packet {number} ({protocols}) malformed: {complaint} {expert}")
    return [row[3:] for row in rows]
