# SPDX-License-Identifier: Apache-2.0
"""Frames of the Linux kernel: kernel_frames.txt, one of each opcode, pad count and size class that soft-RoCE sends.

They are witnesses for the ICRC and for every header of the wire. `record` makes them anew from two guests on one
cable; `frames` reads them. The file has one line a frame: what it is, then its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gda import formats

from . import cable, wire
from .guest import Guest
from .remote import PROGRAM, Remote

FILE = Path(__file__).with_name("kernel_frames.txt")
MTU = 256
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LARGEST_BYTES = 30 << 10
SIZES = (0, 1, 2, 3, 4, 257, 258, 259, 516, 772)
HEADER = """\
# Frames that the kernel's soft-RoCE sent ({release}), Ethernet header first: from one guest to another, path MTU 256.
# Of each opcode one per number of pad bytes. Written by tests/conformance/rxe/frames.py; do not edit.
"""


def frames() -> list[tuple[str, bytes]]:
    """Return what each frame is, and its bytes."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return [(line.rsplit(" ", 1)[0], bytes.fromhex(line.rsplit(" ", 1)[1])) for line in lines]


def opcode_name(opcode: int) -> str:
    """Name of a BTH opcode, or its number."""
    named = formats.bth.fields["opcode"].named(opcode)
    return getattr(named, "name", f"opcode_{opcode:#04x}")


@dataclass
class Kept:
    """Frames chosen so far, by what makes them different."""

    chosen: dict[tuple[Any, ...], bytes]

    def passes(self, _: int, frame: bytes) -> bool:
        """Look at a frame of the relay; every one passes."""
        if wire.read_arp(frame) is None and frame[12:14] == b"\x08\0":
            packet = wire.decode(frame)
            syndrome = packet.headers.get("aeth", {}).get("syndrome", 0)
            key = (packet.opcode, syndrome, len(packet.payload) % 4, not packet.payload)
            self.chosen.setdefault(key, frame)
        return True

    def lines(self) -> list[str]:
        """Lines of the file, in the order of the opcodes."""
        out = []
        for (opcode, syndrome, _, _), frame in sorted(self.chosen.items()):
            packet = wire.decode(frame)
            words = [opcode_name(opcode), f"payload={len(packet.payload)}"]
            words += [f"syndrome={syndrome:#04x}"] if "aeth" in packet.headers else []
            out.append(f"{' '.join(words)} {frame.hex()}")
        return out


def record(directory: Path) -> str:
    """Boot two guests, make them send everything, and return the file's new text."""
    kept = Kept({})
    ports = cable.ports(4)
    relay = cable.Relay(((ports[0], ports[1]), (ports[2], ports[3])), kept.passes)
    guests: list[Guest] = []
    try:
        for side, address in enumerate(ADDRESSES):
            share = directory / f"guest-{side}"
            share.mkdir()
            guests.append(
                Guest(
                    share, f"/usr/bin/python3 {PROGRAM} {Guest.SHARE}", port=ports[2 * side + 1],
                    peer_port=ports[2 * side], address=address, mac=f"52:54:00:00:00:0{side + 1}",
                )
            )  # fmt: skip
        near, far = (Remote(guest.share, guest.alive) for guest in guests)
        for remote, address in zip((near, far), ADDRESSES, strict=True):
            remote.hello(addresses=[address])
        _everything(near, far)
        for remote, guest in zip((near, far), guests, strict=True):
            remote.stop()
            assert guest.exit_status() == 0, guest.console()
    finally:
        for guest in guests:
            guest.end()
        relay.close()
    release = guests[0].release
    return HEADER.format(release=release) + "".join(f"{line}\n" for line in kept.lines())


def _everything(near: Remote, far: Remote) -> None:
    for service in ("RC", "UC", "UD"):
        ends = _pair(near, far, service, service)
        verbs = {
            "RC": "SEND SEND_WITH_IMM RDMA_WRITE RDMA_WRITE_WITH_IMM RDMA_READ",
            "UC": "SEND SEND_WITH_IMM RDMA_WRITE RDMA_WRITE_WITH_IMM",
            "UD": "SEND SEND_WITH_IMM",
        }
        for size in SIZES if service != "UD" else SIZES[:5]:
            near.fill(service, offset=0, size=size, seed=size)
            for verb in verbs[service].split():
                if "SEND" in verb or "IMM" in verb:
                    far.receive(service, size=4096)
                near.post(service, opcode=verb, size=size, va=ends[1]["va"], rkey=ends[1]["rkey"], imm=0x01020304)
                (done,) = near.wait(service, count=1, seconds=30)
                assert done["status"] == 0, (service, verb, size, done)
    va, rkey = ends_of(far)
    for verb in ("ATOMIC_FETCH_AND_ADD", "ATOMIC_CMP_AND_SWP"):
        near.post("RC", opcode=verb, size=8, va=va, rkey=rkey, compare_add=0x0102030405060708, swap=0x1112131415161718)
        assert near.wait("RC", count=1, seconds=30)[0]["status"] == 0
    near.post("RC", opcode="SEND", size=1)  # no receive: an RNR NAK, and a second try
    far.wait("RC", count=100, seconds=0.2)
    far.receive("RC", size=4096)
    assert near.wait("RC", count=1, seconds=30)[0]["status"] == 0
    near.post("RC", opcode="RDMA_WRITE", size=1, va=va, rkey=rkey ^ 0xFF00)
    assert near.wait("RC", count=1, seconds=30)[0]["status"] != 0
    for size in (1, 2, 3, 4, 257, 258, 259, 260):  # each ends its queue pair: the kernel invalidates no such key
        name = f"invalidates-{size}"
        _pair(near, far, name, "RC")
        far.receive(name, size=4096)
        near.post(name, opcode="SEND_WITH_INV", size=size, imm=rkey)
        assert near.wait(name, count=1, seconds=30)


def _pair(near: Remote, far: Remote, name: str, service: str) -> list[dict[str, int]]:
    ends = [remote.make(name, service=service) for remote in (near, far)]
    for remote, other, address in ((near, ends[1], ADDRESSES[1]), (far, ends[0], ADDRESSES[0])):
        remote.connect(name, address=address, qpn=other["qpn"], rq_psn=0xFFFFF0, sq_psn=0xFFFFF0, mtu=MTU)
    return ends


def ends_of(remote: Remote) -> tuple[int, int]:
    """Address and key of the region of the pair RC."""
    place = remote.place("RC")
    return place["va"], place["rkey"]


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        text = record(Path(scratch))
    assert len(text) <= LARGEST_BYTES, len(text)
    FILE.write_text(text)
