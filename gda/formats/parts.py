# SPDX-License-Identifier: Apache-2.0
"""Takes bytes apart into the formats that they are made of: work requests, commands, handles. Packets: packet.py.

Used by decode.py, which shows the parts in words, and by `inspect`, which also compares two of a kind part by part.
Never refuses what a NIC or a mistaken program could have written; what does not fit is a part with a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gda.errors import ArgumentError
from gda.formats.command_names import command_name
from gda.formats.fields import Buffer, Struct, value_text
from gda.formats.headers import declarations
from gda.formats.layout import Layout

__all__ = ["Part", "command_parts", "handle_parts", "wqe_parts"]


@dataclass(frozen=True)
class Part:
    """A piece of the whole: a format and its bytes, or bytes without format. `note` says what does not fit."""

    name: str
    data: bytes = b""
    format: Struct | Layout | None = None
    note: str = ""
    zeros: bool = True  # show fields that are zero, too

    def text(self, indent: int = 2) -> str:
        """For people: hex, fields, meaning."""
        pad, lines = " " * indent, []
        if isinstance(self.format, Struct):
            lines.append(self.format.dump(self.data, indent, zeros=self.zeros))
        elif isinstance(self.format, Layout):
            lines.append(_layout_text(self.format, self.data, indent, self.zeros))
        elif self.data:
            shown = self.data[:64]
            more = f" … {len(self.data)} bytes" if len(self.data) > len(shown) else ""
            lines.append(f"{pad}{self.name}: {shown.hex(' ', 4)}{more}")
        if self.note:
            lines.append(f"{pad}{self.note}" if not lines else f"{pad}  {self.note}")
        return "\n".join(lines)

    def values(self) -> dict[str, tuple[Any, str, str]]:
        """Every field by dotted path: value, its text, the declaration's comment. For comparing."""
        if isinstance(self.format, Struct):
            return dict(_struct_values(self.format, self.data))
        if isinstance(self.format, Layout):
            return dict(_layout_values(self.format, self.data))
        return {"": (self.data, self.data[:32].hex(" ", 4) + (" …" if len(self.data) > 32 else ""), "")}


# ------------------------------------------------------------------------------------------------------ work requests
_REMOTE = ("wqe_raddr_seg",)
# What follows the control segment, by the name of the opcode; "data*" is the rest: data segments or inline data.
SEGMENTS: dict[str, tuple[str, ...]] = {
    "MLX5_OPCODE_NOP": (),
    "MLX5_OPCODE_SEND_INVAL": ("data*",),
    "MLX5_OPCODE_SEND": ("data*",),
    "MLX5_OPCODE_SEND_IMM": ("data*",),
    "MLX5_OPCODE_RDMA_WRITE": (*_REMOTE, "data*"),
    "MLX5_OPCODE_RDMA_WRITE_IMM": (*_REMOTE, "data*"),
    "MLX5_OPCODE_RDMA_READ": (*_REMOTE, "data*"),
    "MLX5_OPCODE_ATOMIC_CS": (*_REMOTE, "wqe_atomic_seg", "data*"),
    "MLX5_OPCODE_ATOMIC_FA": (*_REMOTE, "wqe_atomic_seg", "data*"),
    "MLX5_OPCODE_UMR": ("wqe_umr_ctrl_seg", "mkc", "data*"),
}
_MASKED = {
    ("MLX5_OPCODE_ATOMIC_MASKED_CS", 8): (*_REMOTE, "wqe_atomic_seg", "wqe_atomic_mask_seg", "data*"),
    ("MLX5_OPCODE_ATOMIC_MASKED_CS", 4): (*_REMOTE, "wqe_atomic32_swap_seg", "data*"),
    ("MLX5_OPCODE_ATOMIC_MASKED_FA", 8): (*_REMOTE, "wqe_atomic64_add_seg", "data*"),
    ("MLX5_OPCODE_ATOMIC_MASKED_FA", 4): (*_REMOTE, "wqe_atomic32_add_seg", "data*"),
}


def wqe_parts(data: Buffer) -> list[Part]:
    """Segments of one send work request; `data` starts at its control segment and holds at least 16 bytes."""
    data = bytes(data)
    known = declarations()
    ctrl = known.structs["wqe_ctrl_seg"]
    unit = ctrl.bytes
    if len(data) < unit:
        raise ArgumentError(f"a work request has at least {unit} bytes, the buffer {len(data)}")
    fields = ctrl.unpack(data[:unit])
    said = int(fields["ds"]) * unit
    end = min(said, len(data))
    note = ""
    if not said:
        note = "ds is 0: the NIC refuses a work request without length"
    elif said > len(data):
        note = f"ds says {said} bytes, only {len(data)} are here"
    parts = [Part("control", data[:unit], ctrl), *([Part("note", note=note)] if note else [])]
    at = unit
    for kind in _kinds(fields, data[unit:end]):
        if kind == "data*":
            for part in _data_parts(data[at:end]):
                parts.append(part)
                at += len(part.data)
        elif at + known.structs[kind].bytes <= end:
            size = known.structs[kind].bytes
            parts.append(Part(kind, data[at : at + size], known.structs[kind]))
            at += size
        else:
            parts.append(Part("note", note=f"{kind} is missing: ds counts {fields['ds']} segments only"))
            break
    if at < end:
        parts.append(Part(f"{end - at} more bytes", data[at:end]))
    return parts


def _kinds(control: dict[str, Any], rest: bytes) -> tuple[str, ...]:
    constants, structs = declarations().constants, declarations().structs
    opcode = getattr(control["opcode"], "name", "")
    if "MASKED" in opcode:
        four = control["opmod"] == constants["ATOMIC_OPMOD_EXTENDED_4_BYTES"]
        return _MASKED.get((opcode, 4 if four else 8), ())
    kinds = SEGMENTS.get(opcode, ())
    address = structs["wqe_av_seg"]
    if kinds and opcode != "MLX5_OPCODE_UMR" and len(rest) >= address.bytes:
        # A datagram's address vector: its mark lies where an address in memory would not have a bit.
        head = address.unpack(rest[: address.bytes])
        if head["extended"] and not rest[8] & 0x7F:
            return ("wqe_av_seg", *kinds)
    return kinds


def _data_parts(data: bytes) -> Iterator[Part]:
    # Each piece of local memory, or payload carried in the work request itself.
    known = declarations().structs
    inline, pointer = known["wqe_inline_seg"], known["wqe_data_seg"]
    at = 0
    while at + pointer.bytes <= len(data):
        header = inline.unpack(data[at : at + inline.bytes])
        if not header["is_inline"]:
            yield Part("data", data[at : at + pointer.bytes], pointer)
            at += pointer.bytes
            continue
        count = int(header["byte_count"])
        size = min(-(-(inline.bytes + count) // pointer.bytes) * pointer.bytes, len(data) - at)
        payload = data[at + inline.bytes : min(at + inline.bytes + count, at + size)]
        yield Part("inline", data[at : at + inline.bytes], inline)
        missing = count - len(payload)
        note = f"{missing} bytes of it lie past the end" if missing else ""
        yield Part("  payload", payload, note=note)
        rest = data[at + inline.bytes + len(payload) : at + size]
        if rest:
            yield Part("  padding", rest)
        at += size


# ----------------------------------------------------------------------------------------------------------- commands
_OTHERWISE = {"2ERR_QP": "qp_2err", "2RST_QP": "qp_2rst"}


def command_parts(data: Buffer) -> list[Part]:
    """A firmware command as it goes in; its opcode says which struct it is."""
    data = bytes(data)
    structs = declarations().structs
    head = structs["query_qp_in"]  # opcode and op_mod lie there in every command
    if len(data) < 8:
        raise ArgumentError(f"a command has at least 8 bytes, the buffer {len(data)}")
    opcode = int(head.fields["opcode"].read(data[:8].ljust(head.bytes, b"\0")))
    name = command_name(opcode)
    struct = structs.get(_OTHERWISE.get(name, name.lower()) + "_in")
    if struct is None:
        what = f"{name} is not declared here" if name else "nobody has declared this opcode"
        return [Part("command", data, note=f"opcode {opcode:#x}: {what}")]
    return sized(struct, data)


def sized(struct: Struct, data: bytes) -> list[Part]:
    """The format and what stands behind it; a shorter command is shown as if zeros followed, and says so."""
    if len(data) >= struct.bytes:
        rest = data[struct.bytes :]
        parts = [Part(struct.name, data[: struct.bytes], struct, zeros=False)]
        return [*parts, Part("behind it", rest)] if rest else parts
    note = f"{struct.name} has {struct.bytes} bytes, only {len(data)} are here: what is missing is shown as zero"
    return [Part(struct.name, data.ljust(struct.bytes, b"\0"), struct, note, zeros=False)]


# ------------------------------------------------------------------------------------------------------------ handles
def handle_parts(data: Buffer) -> list[Part]:
    """A device handle (handle.h): a whole gda_queue, or its gda_qp alone."""
    data = bytes(data)
    layouts = declarations().layouts
    queue, qp = layouts["gda_queue"], layouts["gda_qp"]
    if len(data) < qp.bytes:
        raise ArgumentError(f"a handle has {qp.bytes} bytes (gda_qp) or {queue.bytes} (gda_queue), not {len(data)}")
    parts = [Part("qp", data[: qp.bytes], qp)]
    if len(data) >= queue.bytes:
        window, receive = queue.members["window"], queue.members["receive"]
        parts.append(Part("window", data[window.offset : window.offset + window.bytes]))
        parts.append(
            Part("receive", data[receive.offset : receive.offset + receive.bytes], receive.layout, zeros=False)
        )
        rest = data[queue.bytes :]
    else:
        rest = data[qp.bytes :]
    return [*parts, Part("behind it", rest)] if rest else parts


def _layout_text(layout: Layout, data: bytes, indent: int, zeros: bool) -> str:
    pad = " " * indent
    lines = [f"{pad}{layout.name}, {layout.bytes} bytes"]
    for path, (value, text, comment) in _layout_values(layout, data):
        if value or zeros:
            offset = layout.offset(path)
            words = f"  ({comment})" if comment else ""
            lines.append(f"{pad}  +0x{offset:03x}  {path} = {text}{words}")
    return "\n".join(lines)


def _layout_values(layout: Layout, data: bytes) -> Iterator[tuple[str, tuple[Any, str, str]]]:
    for member in layout.members.values():
        if member.is_padding:
            continue
        part = data[member.offset : member.offset + member.bytes]
        if member.layout is not None:
            for path, value in _layout_values(member.layout, part):
                yield f"{member.name}.{path}", value
            continue
        if member.count:
            yield member.name, (part, part.hex(" ", 4), member.comment)
            continue
        number = int.from_bytes(part, "little")
        text = f"{number:#x}" if member.bytes == 8 or number > 9 else str(number)
        if number > 9 and "index" not in text and member.bytes <= 8:
            text += f" ({number})" if number < 1 << 40 else ""
        if member.enum is not None:
            text = " | ".join(flag.name for flag in member.enum if number & flag) or "0"
            unknown = number & ~sum(set(member.enum))
            text += f" | {unknown:#x} (unknown)" if unknown else ""
        yield member.name, (number, text, member.comment)


def _struct_values(
    struct: Struct, data: bytes, prefix: str = ""
) -> Iterator[tuple[str, tuple[Any, str, str]]]:
    for field in sorted((*struct.fields.values(), *struct.reserved), key=lambda f: f.offset_bits):
        at = field.offset_bits // 8
        if field.struct is not None:
            inner = data[at : at + field.struct.bytes]
            yield from _struct_values(field.struct, inner, f"{prefix}{field.name}.")
        elif field.count_bytes:
            value = bytes(data[at : at + field.count_bytes])
            yield prefix + field.name, (value, value_text(field, value), field.comment)
        elif field.width_bits <= 64:
            number = field.named(field.read(data))
            yield prefix + field.name, (number, value_text(field, number), field.comment)
        else:  # reserved bits, as many as there are
            number = field.read(data)
            yield prefix + field.name, (number, f"{number:#x}", field.comment)
