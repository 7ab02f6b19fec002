# SPDX-License-Identifier: Apache-2.0
"""From a kernel's status word to a typed exception. Called by executor when a launch has ended.

The words and the advice are those of `gda.formats`; here only which exception says them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gda import formats
from gda.errors import (
    CompletionError,
    DeadlineError,
    DeviceStatusError,
    HandleError,
    NotConnectedError,
    OrderingError,
    OutOfBoundsError,
    QueueFullError,
)

__all__ = ["Explainer", "explainers", "status_error"]

# What an argument knows of a failed request, by queue pair and index: `__gda_explain__` (gda.nic.request.explain).
Explainer = Callable[[int, int], Mapping[str, Any] | None]

# Codes whose word names a request that was written. A full queue's is about one that was not.
_OF_A_REQUEST = ("GDA_COMPLETION_ERROR", "GDA_TIMEOUT")

_CLASSES: dict[str, type[DeviceStatusError]] = {
    "GDA_TIMEOUT": DeadlineError,
    "GDA_QUEUE_FULL": QueueFullError,
    "GDA_OUT_OF_BOUNDS": OutOfBoundsError,
    "GDA_NOT_CONNECTED": NotConnectedError,
    "GDA_BAD_HANDLE": HandleError,
    "GDA_NO_RECEIVE_QUEUE": HandleError,
    "GDA_SIGNAL_TIMEOUT": DeadlineError,
    "GDA_RELAXED_SIGNAL": OrderingError,
}


def explainers(arguments: Iterable[object]) -> list[Explainer]:
    """Of the arguments of a kernel, those that can say what a failed request asked for."""
    return [explain for a in arguments if (explain := getattr(a, "__gda_explain__", None)) is not None]


def status_error(status: int, kernel: str, explain: Sequence[Explainer] = ()) -> DeviceStatusError:
    """The exception for a non-zero status word (formats/status.h) that `kernel` reported.

    `explain` are asked in turn what the failed request was.
    """
    said = formats.decode_status(status)
    known: Mapping[str, Any] = {}
    if said["code_name"] in _OF_A_REQUEST:
        known = next((k for e in explain if (k := e(said["qpn"], said["wqe_index"])) is not None), {})
    ends = ""
    if said["code_name"] == "GDA_SIGNAL_TIMEOUT":  # of no queue: all that the kernel got are asked how they are
        told = [known_ends["ends"] for e in explain if (known_ends := e(0, 0)) and known_ends.get("ends")]
        ends = f"; {', '.join(told)}" if told else ""
    error = _typed(status, kernel, said, _request_text(known), ends)
    error.qpn = said["qpn"] if said["code_name"] != "GDA_SIGNAL_TIMEOUT" else 0
    error.operation = known.get("operation", "")
    error.local, error.remote = known.get("local"), known.get("remote")
    return error


def _request_text(known: Mapping[str, Any]) -> str:
    if not known:
        return ""
    text = f" ({known['operation']}"
    for word, range, key in (("local", known["local"], "lkey"), ("remote", known["remote"], "rkey")):
        if range is not None and range[0]:
            text += f", {word} 0x{range[0]:x} + {range[1]} bytes with {key} 0x{range[2]:x}"
        elif range is not None:
            text += f", {range[1]} bytes inline"
    return text + ")"


def _typed(status: int, kernel: str, said: Mapping[str, Any], request: str, ends: str = "") -> DeviceStatusError:
    if said["code_name"] == "GDA_COMPLETION_ERROR":
        syndrome = formats.syndrome_meaning(said["syndrome"])
        return CompletionError(
            f"kernel {kernel}: {syndrome.words} (syndrome 0x{syndrome.code:02x}, vendor "
            f"0x{said['vendor_error_syndrome']:02x}) on work request {said['wqe_index']} of queue pair "
            f"0x{said['qpn']:x}{request}: {said['meaning']}",
            status,
            said["advice"],
            syndrome=syndrome.code,
            vendor_syndrome=said["vendor_error_syndrome"],
            qpn=said["qpn"],
            wqe_index=said["wqe_index"],
        )
    where = ""
    if said["code_name"] in ("GDA_TIMEOUT", "GDA_QUEUE_FULL"):
        where = f" on work request {said['wqe_index']} of queue pair 0x{said['qpn']:x}{request}"
    elif said["code_name"] == "GDA_SIGNAL_TIMEOUT":
        where = f", last seen {said['last_seen']}"
    elif said["qpn"]:
        where = f" on queue pair 0x{said['qpn']:x}"
    message = f"kernel {kernel}: {said['words']}{where}: {said['meaning']}{ends}"
    return _CLASSES.get(said["code_name"], DeviceStatusError)(message, status, said["advice"])
