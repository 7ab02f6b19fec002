# SPDX-License-Identifier: Apache-2.0
"""From a kernel's status word to a typed exception. Called by executor when a launch has ended.

The words and the advice are those of `gda.formats`; here only which exception says them.
"""

from __future__ import annotations

from gda import formats
from gda.errors import (
    CompletionError,
    DeadlineError,
    DeviceStatusError,
    HandleError,
    NotConnectedError,
    OutOfBoundsError,
    QueueFullError,
)

__all__ = ["status_error"]

_CLASSES: dict[str, type[DeviceStatusError]] = {
    "GDA_TIMEOUT": DeadlineError,
    "GDA_QUEUE_FULL": QueueFullError,
    "GDA_OUT_OF_BOUNDS": OutOfBoundsError,
    "GDA_NOT_CONNECTED": NotConnectedError,
    "GDA_BAD_HANDLE": HandleError,
    "GDA_NO_RECEIVE_QUEUE": HandleError,
    "GDA_SIGNAL_TIMEOUT": DeadlineError,
}


def status_error(status: int, kernel: str) -> DeviceStatusError:
    """The exception for a non-zero status word (formats/status.h) that `kernel` reported."""
    said = formats.decode_status(status)
    if said["code_name"] == "GDA_COMPLETION_ERROR":
        syndrome = formats.syndrome_meaning(said["syndrome"])
        return CompletionError(
            f"kernel {kernel}: {syndrome.words} (syndrome 0x{syndrome.code:02x}, vendor "
            f"0x{said['vendor_error_syndrome']:02x}) on work request {said['wqe_index']} of queue pair "
            f"0x{said['qpn']:x}: {said['meaning']}",
            status,
            said["advice"],
            syndrome=syndrome.code,
            vendor_syndrome=said["vendor_error_syndrome"],
            qpn=said["qpn"],
            wqe_index=said["wqe_index"],
        )
    where = ""
    if said["code_name"] in ("GDA_TIMEOUT", "GDA_QUEUE_FULL"):
        where = f" on work request {said['wqe_index']} of queue pair 0x{said['qpn']:x}"
    elif said["code_name"] == "GDA_SIGNAL_TIMEOUT":
        where = f", last seen {said['last_seen']}"
    elif said["qpn"]:
        where = f" on queue pair 0x{said['qpn']:x}"
    message = f"kernel {kernel}: {said['words']}{where}: {said['meaning']}"
    return _CLASSES.get(said["code_name"], DeviceStatusError)(message, status, said["advice"])
