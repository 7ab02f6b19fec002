# SPDX-License-Identifier: Apache-2.0
"""Work requests, completions, doorbells and status words in words, for people who debug.

Used by inspect, trace and the demo. Decoders never refuse what a NIC or a mistaken program could have written:
unknown codes and reserved bits are shown as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gda.errors import ArgumentError
from gda.formats.fields import Buffer, Struct
from gda.formats.headers import declarations
from gda.formats.meaning import cqe_opcode_meaning, opcode_meaning, status_meaning, syndrome_meaning

__all__ = ["decode_cqe", "decode_doorbell", "decode_status", "decode_wqe"]

# What follows the control segment, by the name of the opcode; "data*" is the rest: data segments or inline data.
_SEGMENTS = {
    "MLX5_OPCODE_NOP": (),
    "MLX5_OPCODE_SEND_INVAL": ("data*",),
    "MLX5_OPCODE_SEND": ("data*",),
    "MLX5_OPCODE_SEND_IMM": ("data*",),
    "MLX5_OPCODE_RDMA_WRITE": ("wqe_raddr_seg", "data*"),
    "MLX5_OPCODE_RDMA_WRITE_IMM": ("wqe_raddr_seg", "data*"),
    "MLX5_OPCODE_RDMA_READ": ("wqe_raddr_seg", "data*"),
    "MLX5_OPCODE_ATOMIC_CS": ("wqe_raddr_seg", "wqe_atomic_seg", "data*"),
    "MLX5_OPCODE_ATOMIC_FA": ("wqe_raddr_seg", "wqe_atomic_seg", "data*"),
    "MLX5_OPCODE_UMR": ("wqe_umr_ctrl_seg", "mkc", "data*"),
}


def decode_wqe(data: Buffer, *, index: int | None = None) -> str:
    """Text of one send work request: each segment, and in one line what it asks for.

    `data` starts at the control segment and holds at least 16 bytes; `index` is the producer index where it was read,
    to be compared with the one written in it.
    """
    data = bytes(data)
    known = declarations()
    ctrl, unit = known.structs["wqe_ctrl_seg"], known.structs["wqe_ctrl_seg"].bytes
    if len(data) < unit:
        raise ArgumentError(f"a work request has at least {unit} bytes, the buffer {len(data)}")
    fields = ctrl.unpack(data[:unit])
    opcode = opcode_meaning(fields["opcode"])
    lines = [_sentence(data, fields, index), ctrl.dump(data[:unit], 2)]
    end = min(fields["ds"] * unit, len(data))
    if fields["ds"] == 0:
        lines.append("  ds is 0: the NIC refuses a work request without length")
    elif fields["ds"] * unit > len(data):
        lines.append(f"  ds says {fields['ds'] * unit} bytes, only {len(data)} are here")
    at = unit
    for kind in _SEGMENTS.get(opcode.name, ()):
        if kind == "data*":
            for text, size in _data_segments(data[at:end]):
                lines.append(text)
                at += size
        elif at + known.structs[kind].bytes <= end:
            lines.append(known.structs[kind].dump(data[at : at + known.structs[kind].bytes], 2))
            at += known.structs[kind].bytes
        else:
            lines.append(f"  {kind} is missing: ds counts {fields['ds']} segments only")
            break
    if at < end:
        lines.append(f"  {end - at} more bytes: {data[at:end].hex(' ', 4)}")
    return "\n".join(lines)


def _sentence(data: bytes, fields: dict[str, Any], index: int | None) -> str:
    opcode = opcode_meaning(fields["opcode"])
    text = f"work request {fields['wqe_index']} of queue pair {fields['qp_or_sq']:#x}: {opcode.words}"
    if not opcode.name:
        text += f" {opcode.code:#x}"
    raddr = declarations().structs["wqe_raddr_seg"]
    if "wqe_raddr_seg" in _SEGMENTS.get(opcode.name, ()) and len(data) >= 16 + raddr.bytes and fields["ds"] > 1:
        remote = raddr.unpack(data[16 : 16 + raddr.bytes])
        text += f", remote address {remote['raddr']:#x} with rkey {remote['rkey']:#x}"
    text += f", completion {_completion(fields['ce'])}"
    if index is not None:
        modulus = 1 << declarations().structs["wqe_ctrl_seg"].fields["wqe_index"].width_bits
        if index % modulus != fields["wqe_index"]:
            text += f"\n  wqe_index is {fields['wqe_index']} but it was read at {index % modulus}: stale or wrong"
    return text


def _completion(ce: int) -> str:
    return {0: "only on error", 1: "on the first error", 2: "always"}.get(ce, f"mode {int(ce)} (unknown)")


def _data_segments(data: bytes) -> Iterator[tuple[str, int]]:
    # Each piece of local memory, or payload carried in the work request itself, with the bytes that it takes.
    known = declarations().structs
    inline, pointer = known["wqe_inline_seg"], known["wqe_data_seg"]
    at = 0
    while at + pointer.bytes <= len(data):
        header = inline.unpack(data[at : at + inline.bytes])
        if not header["is_inline"]:
            yield pointer.dump(data[at : at + pointer.bytes], 2), pointer.bytes
            at += pointer.bytes
            continue
        count = header["byte_count"]
        payload = data[at + inline.bytes : at + inline.bytes + count]
        size = -(-(inline.bytes + count) // pointer.bytes) * pointer.bytes
        text = inline.dump(data[at : at + inline.bytes], 2) + f"\n    payload: {payload.hex(' ', 4)}"
        if len(payload) < count:
            text += f"\n    {count - len(payload)} bytes of it lie past the end"
            size = len(data) - at
        yield text, size
        at += size


def decode_cqe(data: Buffer) -> str:
    """Text of one 64-byte completion, good or error, with what its syndrome means and usually comes from."""
    data = bytes(data)
    known = declarations().structs
    fields = known["cqe64"].unpack(data)
    kind = cqe_opcode_meaning(fields["opcode"])
    if kind.name == "MLX5_CQE_INVALID":
        return f"completion: empty, {kind.text} (owner bit {fields['owner']})"
    where = f"queue pair {fields['qpn']:#x}, work request {fields['wqe_counter']}, owner bit {fields['owner']}"
    good = known["cqe64"]
    if not kind.name:
        return f"completion {kind.code:#x}: {kind.words}, {where}\n" + _entry(good, data)
    if kind.name not in ("MLX5_CQE_REQ_ERR", "MLX5_CQE_RESP_ERR"):
        text = f"completion: {kind.words}, {where}"
        if kind.name == "MLX5_CQE_REQ":
            text += f", it was: {opcode_meaning(fields['sop_drop_qpn_opcode']).words}"
        return text + f", {fields['byte_cnt']} bytes\n" + _entry(good, data)
    error = known["err_cqe"].unpack(data)
    meaning = syndrome_meaning(error["syndrome"])
    request = opcode_meaning(error["s_wqe_opcode"]).words if kind.name == "MLX5_CQE_REQ_ERR" else "receive"
    return (
        f"completion: {kind.words}: {meaning.words} ({meaning.code:#04x}, vendor "
        f"{error['vendor_error_syndrome']:#04x}) on {request}, {where}\n"
        f"  meaning: {meaning.text}\n  try: {meaning.advice}\n" + _entry(known["err_cqe"], data)
    )


def _entry(layout: Struct, data: bytes) -> str:
    # What is zero says nothing, but for the last dword, which every poller reads.
    return layout.dump(data, 2, zeros=False, keep="wqe_counter")


def decode_doorbell(value_bytes: Buffer) -> str:
    """Text of the eight bytes stored to a send doorbell register."""
    doorbell = declarations().structs["send_doorbell"]
    fields = doorbell.unpack(value_bytes)
    text = f"doorbell of queue pair {fields['qpn']:#x}: "
    if fields["ds"]:  # the start of a work request, as libmlx5 rings
        words = opcode_meaning(fields["opcode"]).words
        text += f"work request {fields['wqe_index']}, {words} of {fields['ds']} segments, is the last one"
    else:
        text += f"work requests below index {fields['wqe_index']} are there"
    return f"{text}\n{doorbell.dump(value_bytes, 2)}"


def decode_status(word: int) -> dict[str, Any]:
    """Fields of a device status word (formats/status.h) and its meaning.

    Keys: ok, code, code_name, qpn, wqe_index, syndrome, syndrome_name, vendor_error_syndrome, words, meaning, advice,
    text (one line of all of it). A signal that did not come belongs to no queue: then last_seen is its value, without
    the top byte, and qpn, wqe_index and the syndromes are zero.
    """
    status: Struct = declarations().structs["status"]
    if not 0 <= word < 1 << status.bits:
        raise ArgumentError(f"a status word has {status.bits} bits, not the value {word:#x}")
    fields = status.unpack(int(word).to_bytes(status.bytes, "big"))
    meaning = status_meaning(fields["code"])
    result = {name: int(value) for name, value in fields.items()}
    if meaning.name == "GDA_SIGNAL_TIMEOUT":
        result = {**dict.fromkeys(result, 0), "code": meaning.code, "last_seen": word >> 8}
    words, text, advice, syndrome = meaning.words, meaning.text, meaning.advice, ""
    if meaning.name == "GDA_COMPLETION_ERROR":
        cause = syndrome_meaning(fields["syndrome"])
        words, text, advice, syndrome = cause.words, cause.text, cause.advice, cause.name
        words += f" ({cause.code:#04x}, vendor {fields['vendor_error_syndrome']:#04x})"
    elif not meaning.name:
        words += f" {meaning.code:#x}"
    where = f" on queue pair {fields['qpn']:#x}, work request {fields['wqe_index']}: {text}" if word else ""
    if "last_seen" in result:
        where = f", last seen {result['last_seen']}: {text}"
    return {
        "ok": word == 0,
        **result,
        "code_name": meaning.name,
        "syndrome_name": syndrome,
        "words": words,
        "meaning": text,
        "advice": advice,
        "text": words + where,
    }
