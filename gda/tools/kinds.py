# SPDX-License-Identifier: Apache-2.0
"""What bytes can be, and a guess what they are: for `inspect`.

A guess goes by length and by what cannot be otherwise (reserved bits, known codes, a magic number). It says why, and
what else the bytes could be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gda import formats
from gda.errors import ArgumentError
from gda.formats import Layout, Part, Struct

__all__ = ["KINDS", "Guess", "decode_as", "guess", "parts_as"]

_BLOCK = int(formats.WQE_BASIC_BLOCK_BYTES)
_CQE = int(formats.CQE_BYTES)


@dataclass(frozen=True)
class Guess:
    """A kind, why it is taken for that, and others that the bytes could be."""

    kind: str
    why: str
    also: tuple[str, ...] = ()


def decode_as(kind: str, data: bytes, command: str = "") -> str:
    """Text of bytes that are of this kind. Raises ArgumentError when they are too short or the kind is not known."""
    if kind in KINDS:
        return KINDS[kind][0](data, command)
    return "\n".join(part.text() for part in parts_as(kind, data, command))


def parts_as(kind: str, data: bytes, command: str = "") -> list[Part]:
    """The same bytes as their formats, for comparing."""
    if kind in KINDS:
        return KINDS[kind][1](data, command)
    declared: Struct | Layout | None = formats.structs.get(kind) or formats.layouts.get(kind)
    if declared is None:
        raise ArgumentError(
            f"no kind and no format is called {kind!r}", f"one of {', '.join(KINDS)}, or a format such as qpc, gda_mr"
        )
    if isinstance(declared, Layout):
        _need(kind, data, declared.bytes)
        return [Part(kind, data[: declared.bytes], declared)]
    return formats.sized(declared, data)


def guess(data: bytes) -> Guess:
    """What the bytes most likely are. Raises ArgumentError for a length that nothing has, or bytes that are nothing."""
    size = len(data)
    found = [Guess(kind, why) for kind, test in _TESTS if (why := test(data))]
    if not found:
        raise ArgumentError(
            f"{size} bytes that look like nothing known: {data[:16].hex(' ', 4)}{' ...' if size > 16 else ''}",
            f"say what they are: --as {'|'.join(KINDS)}. Lengths: doorbell and record 8, an entry of a completion "
            f"queue {_CQE}, a work request {_BLOCK} or its segments, a handle 256 or 960",
        )
    return Guess(found[0].kind, found[0].why, tuple(g.kind for g in found[1:]))


# ------------------------------------------------------------------------------------------------------------ decoding
def _need(kind: str, data: bytes, size: int) -> None:
    if len(data) < size:
        raise ArgumentError(f"{kind} has {size} bytes, here are {len(data)}: {size - len(data)} are missing")


def _wqes(data: bytes, command: str) -> str:
    # A piece of a ring: each request says how long it is, and the next starts at the next block.
    pieces = _requests(data)
    return "\n".join(formats.decode_wqe(piece) for piece in pieces)


def _wqe_parts(data: bytes, command: str) -> list[Part]:
    pieces = _requests(data)
    if len(pieces) == 1:
        return formats.wqe_parts(pieces[0])
    return [
        Part(f"request {n} {p.name}", p.data, p.format, p.note)
        for n, piece in enumerate(pieces)
        for p in formats.wqe_parts(piece)
    ]


def _requests(data: bytes) -> list[bytes]:
    unit, ctrl = int(formats.WQE_SEGMENT_BYTES), formats.wqe_ctrl_seg
    _need("a work request", data, unit)
    pieces, at = [], 0
    while at + unit <= len(data):
        length = max(1, int(ctrl.unpack(data[at : at + unit])["ds"])) * unit
        blocks = -(-length // _BLOCK) * _BLOCK
        pieces.append(data[at : at + blocks])
        at += blocks
    return pieces


def _cqes(data: bytes, command: str) -> str:
    _need("a completion", data, _CQE)
    if len(data) % _CQE:
        raise ArgumentError(f"completions have {_CQE} bytes each, {len(data)} is no multiple of that")
    return "\n".join(formats.decode_cqe(data[at : at + _CQE]) for at in range(0, len(data), _CQE))


def _cqe_parts(data: bytes, command: str) -> list[Part]:
    _cqes(data, command)
    parts = []
    for at in range(0, len(data), _CQE):
        entry = data[at : at + _CQE]
        failed = formats.cqe64.get(entry, "opcode") in (formats.MLX5_CQE_REQ_ERR, formats.MLX5_CQE_RESP_ERR)
        parts.append(Part("err_cqe" if failed else "cqe64", entry, formats.err_cqe if failed else formats.cqe64))
    return parts


def _one(struct: str, decode: Callable[[bytes], str]) -> _Kind:
    def text(data: bytes, command: str) -> str:
        _exactly(struct, data)
        return decode(data)

    def parts(data: bytes, command: str) -> list[Part]:
        _exactly(struct, data)
        return [Part(struct, data, formats.structs[struct])]

    return text, parts


def _exactly(struct: str, data: bytes) -> None:
    _need(struct, data, formats.structs[struct].bytes)
    if len(data) > formats.structs[struct].bytes:
        raise ArgumentError(f"{struct} has {formats.structs[struct].bytes} bytes, here are {len(data)}")


def _answer_parts(data: bytes, command: str) -> list[Part]:
    name = f"{command.removeprefix('MLX5_CMD_OP_').lower()}_out"
    return formats.sized(formats.structs.get(name) or formats.destroy_qp_out, data)


def _status(data: bytes) -> str:
    status = formats.decode_status(int.from_bytes(data, "big"))
    return f"status word: {status['text']}\n{formats.status.dump(data, 2)}"


_Kind = tuple[Callable[[bytes, str], str], Callable[[bytes, str], list[Part]]]
KINDS: dict[str, _Kind] = {
    "wqe": (_wqes, _wqe_parts),
    "cqe": (_cqes, _cqe_parts),
    "record": _one("qp_doorbell_record", formats.decode_record),
    "cq-record": _one("cq_doorbell_record", lambda data: formats.decode_record(data, of="cq")),
    "doorbell": _one("send_doorbell", formats.decode_doorbell),
    "cq-doorbell": _one("cq_doorbell", lambda data: f"doorbell that arms a queue\n{formats.cq_doorbell.dump(data, 2)}"),
    "command": (lambda data, _: formats.decode_command(data), lambda data, _: formats.command_parts(data)),
    "answer": (formats.decode_answer, _answer_parts),
    "packet": (lambda data, _: formats.decode_packet(data), lambda data, _: formats.packet_parts(data)),
    "handle": (lambda data, _: formats.decode_handle(data), lambda data, _: formats.handle_parts(data)),
    "status": _one("status", _status),
    "event": _one("eqe", lambda data: "event\n" + formats.eqe.dump(data, zeros=False)),
}


# ------------------------------------------------------------------------------------------------------------ guessing
def _like_handle(data: bytes) -> str:
    magic = int(formats.GDA_HANDLE_VERSION).to_bytes(4, "little")
    return "it begins with the version of a device handle" if data[:4] == magic and len(data) >= 256 else ""


def _like_packet(data: bytes) -> str:
    if len(data) < 32:
        return ""
    try:
        parts = formats.packet_parts(data)
    except ArgumentError:
        return ""
    names = [part.name for part in parts]
    if "bth" not in names or not {"ipv4", "grh"} & set(names):
        return ""
    return f"headers of a RoCE packet: {', '.join(n for n in names if n not in ('payload', 'padding', 'note'))}"


def _like_cqe(data: bytes) -> str:
    if not data or len(data) % _CQE:
        return ""
    reasons = [_entry(data[at : at + _CQE]) for at in range(0, len(data), _CQE)]
    return reasons[0] if all(reasons) else ""


def _entry(data: bytes) -> str:
    good, opcode = formats.cqe64, formats.cqe64.get(data, "opcode")
    if opcode == formats.MLX5_CQE_INVALID:
        poisoned = data[:4] in (bytes(4), b"\xff" * 4)
        return "its last byte is that of an entry that no NIC has written" if poisoned else ""
    if opcode in (formats.MLX5_CQE_REQ_ERR, formats.MLX5_CQE_RESP_ERR):
        error = formats.err_cqe.unpack(data)
        known = error["syndrome"] in list(formats.enums["cqe_syndrome"])
        return "opcode of a failed request, and a known syndrome" if known and not any(data[:4]) else ""
    if opcode not in list(formats.enums["cqe_opcode"]) or any(data[:2]) or any(data[4:16]):
        return ""
    if not good.get(data, "qpn") or good.get(data, "cqe_format"):
        return ""
    return "opcode of a completion, with a queue pair's number before it"


def _like_wqe(data: bytes) -> str:
    unit = int(formats.WQE_SEGMENT_BYTES)
    if len(data) < unit or len(data) % unit:
        return ""
    fields = formats.wqe_ctrl_seg.unpack(data[:unit])
    if fields["opcode"] not in list(formats.enums["wqe_opcode"]) or not fields["ds"] or not fields["qp_or_sq"]:
        return ""
    if any(field.read(data) for field in formats.wqe_ctrl_seg.reserved) or fields["ce"] == 3:
        return ""
    return f"a control segment: opcode {fields['opcode'].name}, {fields['ds']} segments"


def _like_command(data: bytes) -> str:
    if len(data) < 16 or len(data) % 4:
        return ""
    name = formats.command_name(int.from_bytes(data[:2], "big"))
    if not name or any(data[4:6]):
        return ""
    parts = formats.command_parts(data)
    if parts[0].format is not None and len(data) != len(parts[0].data):
        return ""
    return f"it begins with the opcode of {name}" + (", and has its length" if parts[0].format is not None else "")


def _like_answer(data: bytes) -> str:
    if len(data) < 8 or len(data) % 8 or any(data[1:4]) or len(data) == 8:
        return ""
    if data[0] not in [int(s) for s in formats.enums["cmd_status"]] or (data[0] == 0 and any(data[4:8])):
        return ""
    sizes = {s.bytes for n, s in formats.structs.items() if n.endswith("_out")}
    return "it begins with a status and has the length of an answer" if len(data) in sizes else ""


def _like_doorbell(data: bytes) -> str:
    if len(data) != formats.send_doorbell.bytes:
        return ""
    fields = formats.send_doorbell.unpack(data)
    if not fields["qpn"] or fields["opmod"] or fields["opcode"] not in list(formats.enums["wqe_opcode"]):
        return ""
    # The start of a work request, or an index alone: a record's counters would look otherwise.
    plain = fields["opcode"] == formats.MLX5_OPCODE_NOP
    if fields["ds"] > formats.WQE_MAX_SEGMENTS or (plain and (fields["ds"] > 1 or not fields["wqe_index"])):
        return ""
    if not plain and not fields["ds"]:
        return ""
    return f"eight bytes with a queue pair's number and opcode {fields['opcode'].name}"


def _like_record(data: bytes) -> str:
    if len(data) != formats.qp_doorbell_record.bytes or any(data[0:2]) or any(data[4:6]):
        return ""
    return "two counters of 16 bits"


_TESTS: tuple[tuple[str, Callable[[bytes], str]], ...] = (
    ("handle", _like_handle),
    ("packet", _like_packet),
    ("cqe", _like_cqe),
    ("command", _like_command),
    ("wqe", _like_wqe),
    ("answer", _like_answer),
    ("doorbell", _like_doorbell),
    ("record", _like_record),
)
