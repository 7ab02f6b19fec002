# SPDX-License-Identifier: Apache-2.0
"""What the NIC's codes mean and what usually causes them: the only such table in Python.

Used by the decoders, by exceptions for completions and commands, and by the tools. Sources: InfiniBand Architecture
Specification, volume 1, "Completion Types" and "Error Handling"; ConnectX Programmer's Reference Manual, "Completion
with Error" and "Command Status".
"""

from __future__ import annotations

from dataclasses import dataclass

from gda.formats.headers import declarations

__all__ = [
    "Meaning",
    "command_status_meaning",
    "cqe_opcode_meaning",
    "opcode_meaning",
    "status_meaning",
    "syndrome_meaning",
]


@dataclass(frozen=True)
class Meaning:
    """One code: its value, constant's name ("" when unknown), short words, what it says, and what to try."""

    code: int
    name: str
    words: str
    text: str
    advice: str = ""


# code: (words, what it says, what usually causes it and what to try)
_SYNDROMES = {
    0x01: (
        "local length error",
        "the message does not fit: the receive buffers posted here are too short, or the length is not allowed",
        "post receives at least as long as the longest send; keep one message within 2^31 bytes",
    ),
    0x02: (
        "local queue pair operation error",
        "the NIC could not make sense of the work request: wrong opcode, ds, index or queue pair number",
        "decode the work request (formats.decode_wqe) and compare qp_or_sq, wqe_index and ds with the queue pair's",
    ),
    0x04: (
        "local protection error",
        "a data segment's local key does not cover its bytes, lacks rights or is of another protection domain",
        "check lkey (big-endian in the WQE), address and length; the target of a read or receive needs local write",
    ),
    0x05: (
        "flushed",
        "the queue pair was already in the error state: this request was not carried out",
        "look for the first error of this queue pair, it is the cause; then reset and connect again",
    ),
    0x06: (
        "memory window bind error",
        "a bind was refused: the window, its memory region or their rights do not fit together",
        "the region needs the memory-window bind right and the same protection domain",
    ),
    0x10: (
        "bad response",
        "the other side answered with something that does not belong to this request",
        "check that both queue pairs are connected to each other and to nobody else",
    ),
    0x11: (
        "local access error",
        "a remote request that arrived here touched memory that it may not touch",
        "check the rights of the region here and the address that the other side used",
    ),
    0x12: (
        "remote invalid request",
        "the other side refused the request: its queue pair does not allow this operation, or the message is too long",
        "the peer's queue pair needs remote write, read or atomic enabled; a send needs a receive that is long enough",
    ),
    0x13: (
        "remote access error",
        "the remote key does not cover the bytes at the remote address, or does not allow this operation",
        "check rkey, remote address and length against the peer's region; register it with the remote right needed",
    ),
    0x14: (
        "remote operation error",
        "the other side could not carry out the request though it was legal",
        "look at the peer: its own completion or event names the cause",
    ),
    0x15: (
        "transport retries exhausted",
        "no acknowledgement came back after all retries",
        "is the peer's queue pair alive and ready to receive? check its number, the GID, the path's MTU and the cable",
    ),
    0x16: (
        "receiver-not-ready retries exhausted",
        "the peer had no receive posted, each time this side asked again",
        "post receives before sending, or raise rnr_retry (7 means for ever)",
    ),
    0x22: (
        "remote aborted",
        "the other side ended the operation before it was done",
        "look at the peer: its queue pair or process went away",
    ),
}

_STATUS = {
    0: ("ok", "the operation is done", ""),
    1: ("completion error", "the NIC answered a work request with an error completion", ""),
    2: (
        "deadline passed",
        "no completion came before the deadline",
        "wait longer, or find out why the NIC does not answer: inspect the queue pair's state and last doorbell",
    ),
    3: (
        "queue full",
        "no slot of the send queue became free before the deadline, or all receives are posted already",
        "make the queue deeper, post less before waiting, or raise the queue pair's deadline",
    ),
    4: (
        "out of bounds",
        "offset and length pass the end of a memory region",
        "compare offset + bytes with the length of the region that was passed to the kernel",
    ),
    5: ("not connected", "the queue pair is not ready to send", "connect it before the launch"),
    6: (
        "bad handle",
        "the handle is null, or made for another version of the device library",
        "pass objects of this package as kernel arguments, and compile kernels with this package's headers",
    ),
    7: (
        "no receive queue",
        "the queue pair was made without a receive queue",
        "make it with receive_depth, for example nic.queue_pair(receive_depth=64)",
    ),
    8: (
        "no signal",
        "the signal had not reached its value when the deadline passed",
        "find out what the peer does: its launch, its queue pair; or compare the value waited for with what it adds",
    ),
    9: (
        "relaxed signal",
        "the signal's memory was registered with relaxed ordering: it could be seen before the data it stands for",
        "register the memory of signals without relaxed_ordering; the data's memory may keep it",
    ),
}

_COMMAND_STATUS = {
    0x0: ("ok", "the command was carried out", ""),
    0x1: ("internal error", "the firmware met an error of its own", "look at the kernel's log; reset the device"),
    0x2: ("bad operation", "opcode or op_mod is not known here", "check the firmware version and the capabilities"),
    0x3: ("bad parameter", "a field has a value that is not allowed", "compare each field with the capabilities"),
    0x4: ("bad system state", "the device's state does not allow this command", "wait for the device, or reset it"),
    0x5: ("bad resource", "a number names no object, or one of another owner", "check the object numbers"),
    0x6: ("resource busy", "the object is still used by another one", "destroy the objects that use it first"),
    0x8: ("limit exceeded", "the request passes a limit of the device", "compare the sizes with the capabilities"),
    0x9: ("bad resource state", "the object is not in a state that allows this", "check the order of the commands"),
    0xA: ("bad index", "an index passes the end of its table", "compare the index with the table's size"),
    0xF: ("no resources", "the device has no more objects of this kind", "close objects that are not needed"),
    0x10: ("bad queue pair state", "the transition does not start from the queue pair's state", "query its state"),
    0x30: ("bad packet", "a management packet is malformed", "check the packet's length and header"),
    0x40: ("bad size", "the new completion queue is too small for the entries in it", "consume completions first"),
    0x50: ("bad input length", "the command is shorter or longer than the firmware expects", "send the format's size"),
    0x51: ("bad output length", "the answer does not fit in the buffer given", "give the format's size"),
}

_OPCODES = {
    0x00: ("nop", "does nothing; completes in order"),
    0x01: ("send with invalidate", "sends to a posted receive and invalidates a key there"),
    0x08: ("RDMA write", "writes local memory to remote memory"),
    0x09: ("RDMA write with immediate", "writes, then consumes a receive there that carries the immediate"),
    0x0A: ("send", "sends to a posted receive"),
    0x0B: ("send with immediate", "sends to a posted receive, with four bytes of immediate data"),
    0x0E: ("TSO", "cuts a large Ethernet packet"),
    0x10: ("RDMA read", "reads remote memory into local memory"),
    0x11: ("compare and swap", "remote atomic on 8 bytes; the old value comes back"),
    0x12: ("fetch and add", "remote atomic on 8 bytes; the old value comes back"),
    0x14: ("masked compare and swap", "remote atomic; the old value comes back"),
    0x15: ("masked fetch and add", "remote atomic; the old value comes back"),
    0x19: ("fast registration", "an older way to change a memory key from the queue"),
    0x1B: ("local invalidate", "ends a memory key; mlx5 does it by UMR"),
    0x1F: ("configuration", "a command of the driver in the queue"),
    0x20: ("set signature value", "sets the value that a signature is computed from"),
    0x25: ("UMR", "changes a memory key from the queue"),
    0x28: ("tag matching", "adds or removes a tagged receive"),
    0x2C: ("flow table access", "changes a flow table from the queue"),
    0x2F: ("memory operation", "a copy, compression or hash by the NIC's own engine"),
}

_CQE_OPCODES = {
    0x0: ("request done", "a request of the send queue was carried out"),
    0x1: ("write with immediate arrived", "a receive was consumed by an RDMA write with immediate"),
    0x2: ("send arrived", "a receive was filled"),
    0x3: ("send with immediate arrived", "a receive was filled, with immediate data"),
    0x4: ("send with invalidate arrived", "a receive was filled and a key invalidated"),
    0x5: ("resized", "the queue goes on in its new ring"),
    0x6: ("no packet", "an entry without a packet"),
    0xC: ("signature error", "a signature check of a memory key failed"),
    0xD: ("request failed", "a request of the send queue failed; its queue pair is in the error state"),
    0xE: ("receive failed", "a receive failed; its queue pair is in the error state"),
    0xF: ("empty", "not written by the NIC yet"),
}


def syndrome_meaning(code: int) -> Meaning:
    """Meaning of an error completion's syndrome. Unknown codes are kept."""
    unknown = ("unknown syndrome", "an error not known here", "look up hw_error_syndrome with the vendor's tools")
    return _meaning("cqe_syndrome", code, _SYNDROMES.get(code, unknown))


def status_meaning(code: int) -> Meaning:
    """Meaning of the code in a device status word (formats/status.h)."""
    unknown = ("unknown status", "not a code of this library", "compile the kernel with this package's headers")
    return _meaning("status_code", code, _STATUS.get(code, unknown))


def command_status_meaning(code: int) -> Meaning:
    """Meaning of the status byte of a firmware command."""
    unknown = ("unknown status", "a status that the tables do not know", "see the kernel's log")
    return _meaning("cmd_status", code, _COMMAND_STATUS.get(code, unknown))


def opcode_meaning(code: int) -> Meaning:
    """Meaning of a work request's opcode."""
    return _meaning("wqe_opcode", code, (*_OPCODES.get(code, ("unknown opcode", "not known here")), ""))


def cqe_opcode_meaning(code: int) -> Meaning:
    """Meaning of a completion's opcode."""
    return _meaning("cqe_opcode", code, (*_CQE_OPCODES.get(code, ("unknown completion", "not known here")), ""))


def _meaning(enum: str, code: int, row: tuple[str, str, str]) -> Meaning:
    try:
        name = declarations().enums[enum](code).name
    except ValueError:
        name = ""
    return Meaning(int(code), name, *row)
