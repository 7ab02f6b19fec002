# SPDX-License-Identifier: Apache-2.0
"""Captures in words: `python -m gda pcap FILE.pcapng`. Of the software NIC (sim run --pcap), or of any other RoCE.

Each packet with what it says, the comments that it has, and what only a look at the packets before it tells: sent
again, which packet it answers and after how long, a gap in the sequence numbers. Source of the file format: "PCAP Next
Generation (pcapng) Capture File Format", IETF draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gda import formats
from gda.errors import ArgumentError, GdaError

__all__ = ["Packet", "annotate", "read", "show"]

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_MAGIC = 0x1A2B3C4D
_COMMENT, _IF_NAME, _FLAGS, _RESOLUTION = 1, 2, 2, 9
_PACKET_HEAD = 28  # type, length, interface, two halves of the time, two lengths


@dataclass
class Packet:
    """One packet of a capture."""

    number: int
    time_ns: int
    interface: str
    outbound: bool | None  # as the interface saw it; None: the file does not say
    data: bytes
    comments: list[str]
    words: str = ""  # what it says
    remarks: list[str] = field(default_factory=list)  # what those before it tell

    @property
    def fields(self) -> dict[str, int]:
        """Of its base header, with `source` and `destination`; empty when it is not RoCE."""
        return _fields(self.data)


@dataclass
class _Block:
    type: int
    data: bytes  # whole, with its lengths
    order: str  # "<" or ">"


def _blocks(path: Path) -> Iterator[_Block]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArgumentError(f"the capture {path} cannot be read: {error.strerror}") from None
    if len(data) < 12 or data[:4] != struct.pack("<I", _SECTION):
        raise ArgumentError(
            f"{path} is no pcapng file", "editcap -F pcapng OLD NEW makes one of a pcap file; sim run --pcap writes one"
        )
    order, at = "<", 0
    while at + 12 <= len(data):
        kind = struct.unpack_from(order + "I", data, at)[0]
        if kind == _SECTION:
            order = "<" if struct.unpack_from("<I", data, at + 8)[0] == _MAGIC else ">"
        length = struct.unpack_from(order + "I", data, at + 4)[0]
        if length < 12 or length % 4 or at + length > len(data):
            return  # cut off: what is whole counts
        yield _Block(kind, data[at : at + length], order)
        at += length


def _options(block: _Block, at: int) -> Iterator[tuple[int, bytes]]:
    while at + 4 <= len(block.data) - 4:
        code, length = struct.unpack_from(block.order + "HH", block.data, at)
        if code == 0:
            return
        yield code, block.data[at + 4 : at + 4 + length]
        at += 4 + (length + 3) // 4 * 4


def _padded(bytes: int) -> int:
    return (bytes + 3) // 4 * 4


def read(path: str | Path) -> list[Packet]:
    """All packets of a file, with their words and remarks. Raises ArgumentError when it is no pcapng file."""
    interfaces: list[tuple[str, int]] = []  # name, and units of time in a second
    packets: list[Packet] = []
    for block in _blocks(Path(path)):
        if block.type == _SECTION:
            interfaces = []
        elif block.type == _INTERFACE:
            name, units = f"interface {len(interfaces)}", 10**6
            for code, value in _options(block, 16):
                if code == _IF_NAME:
                    name = value.decode(errors="replace")
                elif code == _RESOLUTION and value:
                    units = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
            interfaces.append((name, units))
        elif block.type == _PACKET:
            number, high, low, captured, _ = struct.unpack_from(block.order + "5I", block.data, 8)
            name, units = interfaces[number] if number < len(interfaces) else (f"interface {number}", 10**6)
            options = list(_options(block, _PACKET_HEAD + _padded(captured)))
            flags = next((struct.unpack(block.order + "I", v)[0] & 3 for c, v in options if c == _FLAGS), 0)
            packets.append(
                Packet(
                    len(packets) + 1, (high << 32 | low) * 10**9 // units, name, {1: False, 2: True}.get(flags),
                    block.data[_PACKET_HEAD : _PACKET_HEAD + captured],
                    [v.decode(errors="replace") for c, v in options if c == _COMMENT],
                )
            )  # fmt: skip
    _explain(packets)
    return packets


def _fields(data: bytes) -> dict[str, int]:
    try:
        parts = {part.name: part for part in formats.packet_parts(data)}
    except GdaError:
        return {}
    if "bth" not in parts:
        return {}
    found = {name: int(value) for name, value in formats.bth.unpack(parts["bth"].data).items()}
    network = parts.get("ipv4") or parts.get("grh") or parts.get("ipv6")
    half = 4 if network is not None and network.name == "ipv4" else 16
    ends = network.data[-2 * half :] if network is not None else bytes(2 * half)
    found["source"], found["destination"] = (int.from_bytes(e, "big") for e in (ends[:half], ends[half:]))
    return found


def _explain(packets: list[Packet]) -> None:
    """Words of each packet, and remarks out of those before it."""
    sent: dict[tuple[str, int, int, int], Packet] = {}  # interface, destination, queue pair, PSN
    next_psn: dict[tuple[str, int, int], int] = {}
    asked: dict[tuple[int, int, int], Packet] = {}  # source, destination, PSN of requests
    answers = {int(formats.RC_ACKNOWLEDGE), int(formats.RC_ATOMIC_ACKNOWLEDGE)}
    answers |= {int(c) for c in formats.enums["bth_opcode"] if "RDMA_READ_RESPONSE" in c.name}
    for packet in packets:
        try:
            packet.words = formats.decode_packet(packet.data).splitlines()[0].partition(": ")[2]
        except GdaError as error:
            packet.words = f"cannot be read: {error}"
        f = packet.fields
        if not f:
            continue
        stream = (packet.interface, f["destination"], f["dest_qp"])
        place = (f["source"], f["destination"])
        if f["opcode"] & 0x1F in answers:
            request = asked.get((place[1], place[0], f["psn"]))
            if request is not None:
                packet.remarks.append(f"answers {request.number} after {_us(packet.time_ns - request.time_ns)}")
            continue
        asked[*place, f["psn"]] = packet
        if packet.outbound is False:
            expected = next_psn.get(stream, f["psn"])
            ahead = (f["psn"] - expected) & 0xFFFFFF
            if 0 < ahead < 1 << 23:
                packet.remarks.append(f"{ahead} packet{'s' * (ahead != 1)} before it missing")
            if ahead < 1 << 23:
                next_psn[stream] = (f["psn"] + 1) & 0xFFFFFF
            continue
        before = sent.setdefault((*stream, f["psn"]), packet)
        if before is not packet:
            packet.remarks.append(f"{before.number} again, after {_us(packet.time_ns - before.time_ns)}")


def _us(ns: int) -> str:
    return f"{ns / 1e6:.3g} ms" if abs(ns) >= 10**6 else f"{ns / 1e3:.3g} us"


def show(packets: list[Packet], console: Console | None = None) -> None:
    """Print the packets as a table, then how many of which kind there were."""
    console = console or Console()
    table = Table(show_lines=False)
    for name, justify in (("#", "right"), ("time", "right"), ("where", "left"), ("bytes", "right"), ("packet", "left"),
                          ("comments", "left")):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=name in ("#", "time"))  # type: ignore[arg-type]
    begin = packets[0].time_ns if packets else 0
    for p in packets:
        arrow = {True: " sends", False: " receives", None: ""}[p.outbound]
        comments = "; ".join([*p.comments, *p.remarks])
        lost = any(word in comments for word in ("dropped", "lost", "again", "missing"))
        words = (str(p.number), _us(p.time_ns - begin), p.interface + arrow, str(len(p.data)), p.words, comments)
        table.add_row(*words, style="yellow" if lost else "")
    console.print(table)
    console.print(f"{len(packets)} packets, {sum(len(p.data) for p in packets)} bytes")


def annotate(source: str | Path, target: str | Path) -> int:
    """Copy a capture with words and remarks as comments of its packets, for Wireshark and tshark; how many packets.

    Comments that are there stay.
    """
    packets, out, number = read(source), bytearray(), 0
    for block in _blocks(Path(source)):
        if block.type != _PACKET:
            out += block.data
            continue
        packet = packets[number]
        number += 1
        captured = struct.unpack_from(block.order + "I", block.data, 20)[0]
        options = list(_options(block, _PACKET_HEAD + _padded(captured)))
        options.append((_COMMENT, "; ".join([packet.words, *packet.remarks]).encode()))
        body = bytearray(block.data[8 : _PACKET_HEAD + _padded(captured)])
        for code, value in options:
            body += struct.pack(block.order + "HH", code, len(value)) + value + bytes(-len(value) % 4)
        body += bytes(4)
        length = struct.pack(block.order + "I", len(body) + 12)
        out += struct.pack(block.order + "I", _PACKET) + length + body + length
    try:
        Path(target).write_bytes(out)
    except OSError as error:
        raise ArgumentError(f"{target} cannot be written: {error.strerror}") from None
    return number
