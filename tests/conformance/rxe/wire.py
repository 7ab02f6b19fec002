# SPDX-License-Identifier: Apache-2.0
"""RoCE v2 over IPv4 packets, made and read by hand: Ethernet, IPv4, UDP, transport headers, ICRC. And ARP.

The judge's own encoder: nothing of the software NIC is in it, so that both can be compared with frames of the Linux
kernel. Transport headers come from cuda/gda/formats/packet.h. Sources: RFC 826, 791, 768; InfiniBand Architecture
Specification, volume 1, annex A17 (RoCE v2), "ICRC".
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

from gda import formats

ROCE_PORT = 4791
TYPE_IPV4, TYPE_ARP = 0x0800, 0x0806
PROTOCOL_UDP = 17
ICRC_BYTES = 4
BROADCAST = b"\xff" * 6
# Headers between BTH and payload, by operation (the low five bits of the opcode).
_BY_OPERATION = {
    **dict.fromkeys((0x00, 0x01, 0x02, 0x04, 0x07, 0x08, 0x0E), ()),
    **dict.fromkeys((0x03, 0x05, 0x09), ("immdt",)),
    **dict.fromkeys((0x16, 0x17), ("ieth",)),
    **dict.fromkeys((0x06, 0x0A, 0x0C), ("reth",)),
    0x0B: ("reth", "immdt"),
    **dict.fromkeys((0x16, 0x17), ("ieth",)),
    **dict.fromkeys((0x0D, 0x0F, 0x10, 0x11), ("aeth",)),
    0x12: ("aeth", "atomicacketh"),
    **dict.fromkeys((0x13, 0x14), ("atomiceth",)),
}


def _resv8a() -> int:
    """Where BTH has a reserved byte, with FECN and BECN: right before the queue pair's number."""
    return formats.bth.offset("dest_qp") // 8 - 1


def headers_of(opcode: int) -> tuple[str, ...]:
    """Names of the formats that follow BTH; none for an opcode that the specification does not define."""
    parts = formats.bth_parts.unpack(bytes([opcode]) + bytes(formats.bth.bytes - 1))
    known = _BY_OPERATION.get(parts["operation"], ())
    return ("deth", *known) if parts["transport"] == formats.BTH_UD else known


@dataclass(frozen=True)
class Ends:
    """Who sends a frame to whom."""

    source_mac: bytes
    destination_mac: bytes
    source: str
    destination: str
    port: int = 0xC000


@dataclass(frozen=True)
class Packet:
    """One packet. `headers` maps names of formats to their fields; `bth` holds BTH's.

    What a correct sender derives is derived unless set: pad count, IP and UDP lengths, checksums, ICRC.
    """

    bth: dict[str, int]
    headers: dict[str, dict[str, int]] = field(default_factory=dict)
    payload: bytes = b""
    ends: Ends | None = None
    resv8a: int = 0  # the reserved byte with FECN and BECN, which the ICRC does not cover
    tos: int = 0
    ttl: int = 64
    identification: int = 0
    flags_fragment: int = 0x4000  # don't fragment
    udp_checksum: int | None = 0  # 0: none
    icrc_xor: int = 0
    trailing: bytes = b""  # of the frame, behind the IP packet: Ethernet's own padding
    pad_bytes: bytes = b"\0\0\0"

    @property
    def opcode(self) -> int:
        """BTH's opcode."""
        return self.bth["opcode"]

    @property
    def psn(self) -> int:
        """Packet sequence number."""
        return self.bth["psn"]

    def transport(self) -> bytes:
        """UDP payload without the ICRC: BTH, headers, payload, pad bytes."""
        pad = -len(self.payload) % 4
        values = {"pad_count": pad, "pkey": 0xFFFF, **self.bth}
        head = bytearray(formats.bth.pack(**values))
        head[_resv8a()] = self.resv8a
        for name, values in self.headers.items():
            head += formats.structs[name].pack(**values)
        return bytes(head) + self.payload + self.pad_bytes[:pad]

    def frame(self, ends: Ends | None = None) -> bytes:
        """The whole Ethernet frame, without its checksum."""
        e = self.ends or ends
        assert e is not None
        body = self.transport()
        udp_bytes = 8 + len(body) + ICRC_BYTES
        addresses = IPv4Address(e.source).packed + IPv4Address(e.destination).packed
        ip = struct.pack(
            ">BBHHHBBH8s", 0x45, self.tos, 20 + udp_bytes, self.identification, self.flags_fragment, self.ttl,
            PROTOCOL_UDP, 0, addresses,
        )  # fmt: skip
        ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
        udp = struct.pack(">HHHH", e.port, ROCE_PORT, udp_bytes, 0)
        code = icrc(ip, udp, body) ^ self.icrc_xor
        tail = body + struct.pack("<I", code)
        if self.udp_checksum is None:  # a right one
            pseudo = addresses + struct.pack(">BBH", 0, PROTOCOL_UDP, udp_bytes)
            udp = udp[:6] + struct.pack(">H", checksum(pseudo + udp + tail) or 0xFFFF)
        else:
            udp = udp[:6] + struct.pack(">H", self.udp_checksum)
        ethernet = e.destination_mac + e.source_mac + struct.pack(">H", TYPE_IPV4)
        return ethernet + ip + udp + tail + self.trailing


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def icrc(ip: bytes, udp: bytes, body: bytes) -> int:
    """CRC-32 with what a router may change set to ones: TOS, TTL and checksums; and BTH's byte 4."""
    masked_ip = ip[:1] + b"\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:]
    masked = bytearray(body)
    masked[_resv8a()] = 0xFF
    # Eight bytes of ones stand where InfiniBand has its local route header.
    return zlib.crc32(b"\xff" * 8 + masked_ip + udp[:6] + b"\xff\xff" + bytes(masked))


class MalformedError(ValueError):
    """A frame that is not a RoCE v2 packet over IPv4; the text says why."""


def decode(frame: bytes) -> Packet:
    """Read a frame; every length, checksum and the ICRC are checked."""
    if len(frame) < 14 + 20 + 8 or frame[12:14] != struct.pack(">H", TYPE_IPV4) or frame[14] != 0x45:
        raise MalformedError("not IPv4 without options")
    ip = frame[14:34]
    _, tos, total, identification, flags, ttl, protocol, _ = struct.unpack(">BBHHHBBH", ip[:12])
    if protocol != PROTOCOL_UDP or total > len(frame) - 14 or checksum(ip):
        raise MalformedError(f"protocol {protocol}, length {total} of {len(frame) - 14}, checksum {checksum(ip):#x}")
    udp, rest = frame[34:42], frame[42 : 14 + total]
    source_port, port, udp_bytes, udp_checksum = struct.unpack(">HHHH", udp)
    if port != ROCE_PORT or udp_bytes != 8 + len(rest) or len(rest) < formats.bth.bytes + ICRC_BYTES or len(rest) % 4:
        raise MalformedError(f"port {port}, UDP length {udp_bytes} of {8 + len(rest)}")
    body, code = rest[:-ICRC_BYTES], struct.unpack("<I", rest[-ICRC_BYTES:])[0]
    if code != icrc(ip, udp, body):
        raise MalformedError(f"ICRC {code:#010x} is not {icrc(ip, udp, body):#010x}")
    ends = Ends(frame[6:12], frame[:6], str(IPv4Address(ip[12:16])), str(IPv4Address(ip[16:20])), source_port)
    bth = formats.bth.unpack(body[: formats.bth.bytes])
    at, headers = formats.bth.bytes, {}
    for name in headers_of(bth["opcode"]):
        form = formats.structs[name]
        if len(body) < at + form.bytes:
            raise MalformedError(f"{len(body)} bytes end inside {name}")
        headers[name] = form.unpack(body[at : at + form.bytes])
        at += form.bytes
    end = len(body) - bth["pad_count"]
    if end < at:
        raise MalformedError("more pad bytes than payload")
    return Packet(
        bth, headers, body[at:end], ends, body[_resv8a()], tos, ttl, identification,
        flags, udp_checksum, 0, frame[14 + total :], body[end:],
    )  # fmt: skip


def arp(operation: int, sender_mac: bytes, sender: str, target_mac: bytes, target: str) -> bytes:
    """Frame of an ARP request (1), to everybody, or of a reply (2)."""
    to = BROADCAST if operation == 1 else target_mac
    body = struct.pack(
        ">HHBBH6s4s6s4s", 1, TYPE_IPV4, 6, 4, operation, sender_mac, IPv4Address(sender).packed, target_mac,
        IPv4Address(target).packed,
    )  # fmt: skip
    return to + sender_mac + struct.pack(">H", TYPE_ARP) + body


def read_arp(frame: bytes) -> tuple[int, bytes, str, str] | None:
    """Operation, the sender's two addresses and the target's IPv4 address; None for any other frame."""
    if len(frame) < 42 or frame[12:14] != struct.pack(">H", TYPE_ARP) or frame[14:20] != b"\0\1\x08\0\6\4":
        return None
    operation, mac, sender, target = struct.unpack(">H6s4s6x4s", frame[20:42])
    return operation, mac, str(IPv4Address(sender)), str(IPv4Address(target))


def moved(packet: Packet, **changes: int) -> Packet:
    """Return the same packet with some fields of BTH changed."""
    return replace(packet, bth={**packet.bth, **changes})
