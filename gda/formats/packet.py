# SPDX-License-Identifier: Apache-2.0
"""RoCE packets in words: Ethernet, IP and UDP if they are there, BTH and what follows it, payload, ICRC.

Used by `inspect`. Source of the headers and of the ICRC's rule: formats/packet.h, sim/link/icrc.h.
"""

from __future__ import annotations

import zlib
from typing import Any

from gda.errors import ArgumentError
from gda.formats.fields import Buffer
from gda.formats.headers import declarations
from gda.formats.parts import Part

__all__ = ["aeth_words", "decode_packet", "packet_parts"]

_ICRC_BYTES = 4
_VLAN_TYPE = 0x8100  # four bytes more, then the type proper (IEEE 802.1Q)
# Of "receiver not ready", in units of 10 us. Source: IBA volume 1, table "Encoding for RNR NAK Timer Field".
_RNR_TIMER = (
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
)  # fmt: skip
_NAKS = {
    0: "a packet is missing: send again from this sequence number",
    1: "the peer refused: invalid request (not allowed by its queue pair, or a length or order that does not fit)",
    2: "the peer refused: remote access error (rkey, range or right)",
    3: "the peer failed while it carried the request out",
    4: "the peer refused: invalid request of a reliable datagram",
}


def aeth_words(syndrome: int) -> str:
    """What an answer's syndrome says, every one of the 256."""
    parts = declarations().structs["aeth_parts"]
    fields = parts.unpack(bytes([syndrome]).ljust(parts.bytes, b"\0"))
    value = int(fields["value"])
    kind = getattr(fields["kind"], "name", "")
    if kind == "AETH_KIND_ACK":
        return "acknowledged" + ("" if value == 0x1F else f", credit code {value}")
    if kind == "AETH_KIND_RNR_NAK":
        return f"the peer had no receive posted: wait {_RNR_TIMER[value] / 100:g} ms and send again"
    if kind == "AETH_KIND_NAK":
        return _NAKS.get(value, f"refused with code {value}, which is reserved")
    return f"reserved code {syndrome:#04x}"


def packet_parts(data: Buffer) -> list[Part]:
    """Headers in their order, payload and ICRC. From an Ethernet frame, an IP packet, or from BTH on."""
    data = bytes(data)
    parts: list[Part] = []
    inner, is_v1 = _network(data, parts)
    bth = declarations().structs["bth"]
    if inner is None:
        return parts
    if len(inner) < bth.bytes:
        raise ArgumentError(f"a RoCE packet's BTH has {bth.bytes} bytes, here are {len(inner)}")
    _transport(inner, parts)
    whole = is_v1 or any(part.name in ("ipv4", "grh") for part in parts)
    rest = inner[sum(len(p.data) for p in parts if p.name in _TRANSPORT) :]
    if len(rest) < _ICRC_BYTES:
        return [*parts, Part("note", note=f"{len(rest)} bytes behind the headers: the ICRC is missing")]
    fields = bth.unpack(inner[: bth.bytes])
    pad = int(fields["pad_count"])
    payload, icrc = rest[:-_ICRC_BYTES], rest[-_ICRC_BYTES:]
    if pad > len(payload):
        parts.append(Part("note", note=f"pad_count is {pad}, but only {len(payload)} bytes are there"))
        pad = 0
    if payload[: len(payload) - pad]:
        parts.append(Part("payload", payload[: len(payload) - pad]))
    if pad:
        parts.append(Part("padding", payload[-pad:]))
    note = ""
    if whole:
        right = _icrc(data, parts)
        note = "as computed" if right == icrc else f"WRONG: {right.hex()} as computed; changed on the way, or cut off"
    return [*parts, Part("ICRC", icrc, note=note)]


def decode_packet(data: Buffer) -> str:
    """One sentence, then every part."""
    parts = packet_parts(data)
    return "\n".join([_sentence(parts), *(part.text() for part in parts)])


# -------------------------------------------------------------------------------------------------------------- inside
_TRANSPORT = {"bth", "xrceth", "dceth", "deth", "reth", "aeth", "atomiceth", "atomic_mask", "atomicacketh", "immdt",
              "ieth"}  # fmt: skip


def _network(data: bytes, parts: list[Part]) -> tuple[bytes | None, bool]:
    """Headers below BTH, appended to `parts`; what is behind them (None: not RoCE), and whether it is RoCE v1."""
    known = declarations()
    structs, constants = known.structs, known.constants
    at = 0
    kind = None
    if _is_ethernet(data):
        ethernet = structs["ethernet"]
        shift = ethernet.bytes - 14  # two bytes that no frame has, for alignment
        head = bytes(shift) + data[:14]
        parts.append(Part("ethernet", head, ethernet))
        kind, at = int(ethernet.fields["type"].read(head)), 14
        if kind == _VLAN_TYPE:
            parts.append(Part("VLAN tag and type", data[14:18]))
            kind, at = int.from_bytes(data[16:18], "big"), 18
        if kind not in (constants["ETHER_IPV4"], constants["ETHER_IPV6"], constants["ETHER_ROCE_V1"]):
            parts.append(Part("not RoCE", data[at:], note=f"Ethernet type {kind:#06x}"))
            return None, False
    version = data[at] >> 4 if len(data) > at else 0
    if kind == constants["ETHER_ROCE_V1"]:
        return _take(data, at, "grh", parts), True
    if kind == constants["ETHER_IPV4"] or (kind is None and _is_ip(data, 4)):
        ipv4 = structs["ipv4"]
        rest = _take(data, at, "ipv4", parts)
        fields = ipv4.unpack(parts[-1].data)
        more = int(fields["ihl"]) * 4 - ipv4.bytes
        if more > 0:
            parts.append(Part("IP options", rest[:more]))
            rest = rest[more:]
        end = int(fields["total_length"]) - int(fields["ihl"]) * 4
        rest = rest[:end] if 0 < end <= len(rest) else rest  # what is behind it pads a short frame
        return _udp(rest, int(fields["protocol"]), parts), False
    if kind == constants["ETHER_IPV6"] or (kind is None and version == 6 and _is_ip(data, 6)):
        rest = _take(data, at, "grh", parts)
        fields = structs["grh"].unpack(parts[-1].data)
        end = int(fields["payload_length"])
        rest = rest[:end] if 0 < end <= len(rest) else rest
        if int(fields["next_header"]) == constants["IP_IBA"]:
            return rest, True
        return _udp(rest, int(fields["next_header"]), parts), False
    return data, False


def _is_ethernet(data: bytes) -> bool:
    constants = declarations().constants
    types = {int(constants[n]) for n in ("ETHER_IPV4", "ETHER_IPV6", "ETHER_ROCE_V1", "ETHER_ARP")} | {_VLAN_TYPE}
    return len(data) >= 14 and int.from_bytes(data[12:14], "big") in types


def _is_ip(data: bytes, version: int) -> bool:
    # What a BTH could also begin with: so the protocol must fit.
    known = declarations()
    udp = int(known.constants["IP_UDP"])
    if version == 4:
        ipv4 = known.structs["ipv4"]
        fields = ipv4.unpack(data[: ipv4.bytes]) if len(data) >= ipv4.bytes else {}
        return bool(fields) and fields["version"] == 4 and fields["ihl"] >= 5 and fields["protocol"] == udp
    grh = known.structs["grh"]
    fields = grh.unpack(data[: grh.bytes]) if len(data) >= grh.bytes else {}
    return bool(fields) and fields["next_header"] in (udp, int(known.constants["IP_IBA"]))


def _take(data: bytes, at: int, name: str, parts: list[Part]) -> bytes:
    struct = declarations().structs[name]
    if len(data) - at < struct.bytes:
        raise ArgumentError(f"the {name} header has {struct.bytes} bytes, from offset {at} on are {len(data) - at}")
    parts.append(Part(name, data[at : at + struct.bytes], struct))
    return data[at + struct.bytes :]


def _udp(data: bytes, protocol: int, parts: list[Part]) -> bytes | None:
    if protocol != declarations().constants["IP_UDP"]:
        parts.append(Part("not RoCE", data, note=f"IP protocol {protocol}"))
        return None
    rest = _take(data, 0, "udp", parts)
    port = declarations().structs["udp"].unpack(parts[-1].data)["destination_port"]
    if port != declarations().constants["UDP_ROCE_V2"]:
        parts.append(Part("not RoCE", rest, note=f"UDP port {int(port)}"))
        return None
    return rest


def _transport(data: bytes, parts: list[Part]) -> None:
    known = declarations()
    at = 0
    for name in ("bth", *_behind_bth(data)):
        struct = known.structs[name]
        if at + struct.bytes > len(data):
            parts.append(Part("note", note=f"{name} is missing: {len(data) - at} bytes are left"))
            return
        parts.append(Part(name, data[at : at + struct.bytes], struct))
        at += struct.bytes


def _operation(data: bytes) -> tuple[str, str]:
    """Transport and operation by name, of a packet's first byte."""
    known = declarations()
    opcode = data[0]
    own = {int(c): c.name for c in known.enums["bth_manufacturer_opcode"]}
    if opcode in own:
        transport, _, operation = own[opcode].partition("_")
        return {"OWN": "RC"}.get(transport, transport), operation
    struct = known.structs["bth_parts"]
    fields = struct.unpack(data[: struct.bytes].ljust(struct.bytes, b"\0"))
    transport = getattr(fields["transport"], "name", f"transport {int(fields['transport'])}").removeprefix("BTH_")
    number = int(fields["operation"])
    try:
        operation = known.enums["bth_opcode"](number).name.removeprefix("RC_")  # the same in all transports
    except ValueError:
        operation = f"operation {number:#x}"
    return transport, operation


def _behind_bth(data: bytes) -> list[str]:
    transport, operation = _operation(data)
    found = {"XRC": ["xrceth"], "DC": ["dceth"], "UD": ["deth"]}.get(transport, [])
    if transport == "XRC" and ("ACKNOWLEDGE" in operation or "RESPONSE" in operation):
        found = []
    if transport.startswith("MANUFACTURER") or operation.startswith("operation"):
        return found
    if operation in ("RDMA_WRITE_FIRST", "RDMA_WRITE_ONLY", "RDMA_WRITE_ONLY_WITH_IMMEDIATE", "RDMA_READ_REQUEST"):
        found = [*found, "reth"]
    elif operation in ("COMPARE_SWAP", "FETCH_ADD"):
        found = [*found, "atomiceth"]
    elif operation.startswith("MASKED"):
        found = [*found, "atomiceth", "atomic_mask"]
    elif operation == "ATOMIC_ACKNOWLEDGE":
        found = [*found, "aeth", "atomicacketh"]
    elif operation == "ACKNOWLEDGE" or (operation.startswith("RDMA_READ_RESPONSE") and "MIDDLE" not in operation):
        found = [*found, "aeth"]
    if operation.endswith("WITH_IMMEDIATE"):
        found = [*found, "immdt"]
    if operation.endswith("WITH_INVALIDATE"):
        found = [*found, "ieth"]
    return found


def _sentence(parts: list[Part]) -> str:
    by_name = {part.name: part for part in parts}
    fields: dict[str, dict[str, Any]] = {
        name: part.format.unpack(part.data)  # type: ignore[union-attr]
        for name, part in by_name.items()
        if part.format is not None
    }
    if "bth" not in fields:
        return "packet: not RoCE"
    bth = fields["bth"]
    transport, operation = _operation(by_name["bth"].data)
    words = operation.lower().replace("_", " ").replace("rdma", "RDMA")
    version = "RoCE v2 packet" if "udp" in fields else "RoCE v1 packet" if "grh" in fields else "packet"
    text = f"{version}: {transport} {words} to queue pair {int(bth['dest_qp']):#x}, PSN {int(bth['psn'])}"
    if bth["ack_req"]:
        text += ", asks for an answer"
    if "reth" in fields:
        reth = fields["reth"]
        text += f", {int(reth['dma_length'])} bytes at {int(reth['va']):#x} with rkey {int(reth['rkey']):#x}"
    if "atomiceth" in fields:
        atomic = fields["atomiceth"]
        text += f", 8 bytes at {int(atomic['va']):#x} with rkey {int(atomic['rkey']):#x}"
    if "aeth" in fields:
        text += f": {aeth_words(int(fields['aeth']['syndrome']))}"
    return text


def _icrc(data: bytes, parts: list[Part]) -> bytes:
    # Fields that routers change count as ones; 64 bits of ones stand for the local route header of RoCE v2.
    known = declarations()
    covered = bytearray()
    for part in parts:
        if part.name in ("ethernet", "VLAN tag and type", "note"):
            continue
        piece = bytearray(part.data)
        struct = known.structs.get(part.name)
        if part.name in ("ipv4", "grh", "udp", "bth"):
            ones = {
                "ipv4": ("tos", "ttl", "checksum"),
                "grh": ("tclass", "flow_label", "hop_limit"),
                "udp": ("checksum",),
                "bth": (),
            }[part.name]
            assert struct is not None
            struct.update(piece, {name: (1 << struct.fields[name].width_bits) - 1 for name in ones})
        if part.name == "bth":
            piece[4] = 0xFF  # the reserved byte before dest_qp, where congestion is marked
        covered += piece
    return zlib.crc32(b"\xff" * 8 + bytes(covered)).to_bytes(_ICRC_BYTES, "little")
