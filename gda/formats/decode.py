# SPDX-License-Identifier: Apache-2.0
"""Work requests, completions, doorbells, commands, handles and status words in words, for people who debug.

Used by inspect, trace and the demo. Decoders never refuse what a NIC or a mistaken program could have written:
unknown codes and reserved bits are shown as they are.
"""

from __future__ import annotations

from typing import Any

from gda.errors import ArgumentError
from gda.formats.command_names import command_name
from gda.formats.fields import Buffer, Struct
from gda.formats.headers import declarations
from gda.formats.meaning import (
    Meaning,
    command_status_meaning,
    cqe_opcode_meaning,
    opcode_meaning,
    status_meaning,
    syndrome_meaning,
)
from gda.formats.parts import SEGMENTS, command_parts, handle_parts, sized, wqe_parts
from gda.formats.vendor import PROXY, PROXY_ADVICE, vendor_words

__all__ = [
    "decode_answer",
    "decode_command",
    "decode_cqe",
    "decode_doorbell",
    "decode_handle",
    "decode_record",
    "decode_status",
    "decode_wqe",
]

_PEER_REFUSED = (0x12, 0x13, 0x14, 0x22)  # enum cqe_syndrome: the remote errors
_NO_ANSWER = (0x15, 0x16)  # retries exhausted


def decode_wqe(data: Buffer, *, index: int | None = None) -> str:
    """Text of one send work request: each segment, and in one line what it asks for.

    `data` starts at the control segment and holds at least 16 bytes; `index` is the producer index where it was read,
    to be compared with the one written in it.
    """
    data = bytes(data)
    parts = wqe_parts(data)
    fields = declarations().structs["wqe_ctrl_seg"].unpack(parts[0].data)
    return "\n".join(filter(None, [_sentence(data, fields, index), *(part.text() for part in parts)]))


def _sentence(data: bytes, fields: dict[str, Any], index: int | None) -> str:
    opcode = opcode_meaning(fields["opcode"])
    text = f"work request {fields['wqe_index']} of queue pair {fields['qp_or_sq']:#x}: {opcode.words}"
    if not opcode.name:
        text += f" {opcode.code:#x}"
    raddr = declarations().structs["wqe_raddr_seg"]
    if "wqe_raddr_seg" in SEGMENTS.get(opcode.name, ()) and len(data) >= 16 + raddr.bytes and fields["ds"] > 1:
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
    vendor = vendor_words(int(error["vendor_error_syndrome"]))
    return (
        f"completion: {kind.words}: {meaning.words} ({meaning.code:#04x}, vendor "
        f"{error['vendor_error_syndrome']:#04x}) on {request}, {where}\n"
        f"  what happened: {_happened(meaning, request)}\n"
        f"  meaning: {meaning.text}\n"
        + (f"  vendor's syndrome: {vendor}\n" if vendor else "")
        + f"  try: {meaning.advice}\n"
        + _entry(known["err_cqe"], data)
    )


def _happened(meaning: Meaning, request: str) -> str:
    if meaning.code in _PEER_REFUSED:
        return f"the peer refused the {request}: {meaning.words}"
    if meaning.code in _NO_ANSWER:
        return f"the peer did not answer the {request}, or was never ready for it"
    if meaning.name == "MLX5_CQE_SYNDROME_WR_FLUSH_ERR":
        return f"nothing was done for the {request}: the queue pair had failed before it"
    if not meaning.name:
        return f"the {request} failed, for a reason that is not known here"
    return f"this side's NIC refused the {request}: {meaning.words}"


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


def decode_record(data: Buffer, *, of: str = "qp") -> str:
    """Text of a doorbell record: the eight bytes of a queue pair's (`of` "qp") or a completion queue's ("cq")."""
    structs = declarations().structs
    struct = structs["qp_doorbell_record" if of == "qp" else "cq_doorbell_record"]
    fields = struct.unpack(data)
    if of == "qp":
        text = (
            f"doorbell record of a queue pair: send requests below index {fields['send_counter']} may be fetched, "
            f"receives below {fields['receive_counter']} (modulo 65536)"
        )
        if fields["receive_counter"] and not fields["send_counter"]:
            text += "\n  without a receive queue this is the send counter in the wrong word: it belongs into the second"
    else:
        text = (
            f"doorbell record of a completion queue: entries below index {fields['consumer_index']} are read, "
            f"armed at {fields['armed_index']}{' for solicited ones' if fields['solicited_only'] else ''}"
        )
    return f"{text}\n{struct.dump(data, 2)}"


def decode_command(data: Buffer) -> str:
    """Text of a firmware command as it goes in."""
    data = bytes(data)
    parts = command_parts(data)
    opcode = int(declarations().structs["query_qp_in"].fields["opcode"].read(data[:8]))
    name = command_name(opcode)
    first = f"command {name or 'without a name'} ({opcode:#x}), {len(data)} bytes"
    return "\n".join([first, *(part.text() for part in parts)])


def decode_answer(data: Buffer, command: str = "") -> str:
    """Text of a firmware command's answer. Which command it answers does not stand in it: "QUERY_QP", for example."""
    data = bytes(data)
    known = declarations().structs
    struct = known["destroy_qp_out"]
    if len(data) < struct.bytes // 2:
        raise ArgumentError(f"an answer has at least {struct.bytes // 2} bytes, the buffer {len(data)}")
    if command:
        name = command.removeprefix("MLX5_CMD_OP_")
        wanted = f"{name.lower()}_out"
        if wanted not in known:
            raise ArgumentError(
                f"no answer of a command {name} is declared", "for example QUERY_QP; or leave it out: status alone"
            )
        struct = known[wanted]
    head = known["destroy_qp_out"].unpack(data[:16].ljust(16, b"\0"))
    status = command_status_meaning(int(head["status"]))
    first = f"answer{' of ' + command if command else ''}: {status.words} (status {status.code:#x})"
    if status.code:
        first += f", the firmware's syndrome {int(head['syndrome']):#x}: the firmware refused: {status.text}"
        first += f"\n  try: {status.advice}" if status.advice else ""
    if not command and len(data) > struct.bytes:
        struct = known["destroy_qp_out"]
    return "\n".join([first, *(part.text() for part in sized(struct, data))])


def decode_handle(data: Buffer) -> str:
    """Text of a device handle: gda_qp, or the whole gda_queue."""
    data = bytes(data)
    parts = handle_parts(data)
    known = declarations()
    qp = known.layouts["gda_qp"].unpack(parts[0].data)
    wanted = int(known.constants["GDA_HANDLE_VERSION"])
    text = (
        f"handle of queue pair {qp['qpn']:#x}: {1 << min(qp['log_sq_size'], 31)} basic blocks, reserved "
        f"{qp['reserved']}, ready {qp['ready']}, rung {qp['rung']}, done {qp['done']}"
    )
    if qp["version"] != wanted:
        text += f"\n  version {qp['version']:#x} is not {wanted:#x}: no handle, a closed one, or of another library"
    if qp["error"]:
        text += f"\n  first error: {decode_status(qp['error'])['text']}"
    return "\n".join([text, *(part.text() for part in parts)])


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
        vendor = int(fields["vendor_error_syndrome"])
        words += f" ({cause.code:#04x}, vendor {vendor:#04x})"
        if vendor in PROXY:  # no NIC has seen the request
            text, advice = f"the proxy did not post it: {PROXY[vendor]}", PROXY_ADVICE
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
