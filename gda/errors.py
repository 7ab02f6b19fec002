# SPDX-License-Identifier: Apache-2.0
"""Every exception of the package: what failed with its values, what that means, what to try.

Raised by all layers; imports nothing but the standard library, so any layer may use it.
"""

from __future__ import annotations

import errno as _errno
from typing import Any

__all__ = [
    "ArgumentError",
    "BootstrapError",
    "CheckError",
    "ClosedError",
    "CommandError",
    "CompileError",
    "CompletionError",
    "CudaError",
    "DeadlineError",
    "DeviceStatusError",
    "FieldError",
    "GdaError",
    "GidError",
    "HandleError",
    "NotConnectedError",
    "OrderingError",
    "OutOfBoundsError",
    "PathMtuError",
    "PeerLostError",
    "PostError",
    "QueueFullError",
    "UnavailableError",
    "VerbsError",
    "WorkRequestError",
]


class GdaError(Exception):
    """Base of all errors of this package.

    `advice` is the sentence that says what to try; it is part of str(error) when not empty.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.advice}" if self.advice else self.message


class VerbsError(GdaError, OSError):
    """A call into libibverbs or libmlx5 failed. Has `call` (as written in C) and `errno`."""

    def __init__(self, call: str, errno: int, advice: str = "") -> None:
        name = _errno.errorcode.get(errno, str(errno))
        GdaError.__init__(self, f"{call} failed: {name} ({errno})", advice)
        self.call = call
        self.errno = errno

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.call, int(self.errno or 0), self.advice)


class PostError(VerbsError):
    """A work request was not posted. Has `reason` and `posted`, how many of the same call were posted before it.

    `reason` says what the C library's ENOMEM means, where that is known: "SQ full: 16 posted, 0 signaled; ...",
    "TooManySge(2>1)", "InlineTooLong(61>60)"; else it is empty.
    """

    def __init__(self, call: str, errno: int, advice: str = "", reason: str = "", posted: int = 0) -> None:
        super().__init__(call, errno, advice)
        self.reason = reason
        self.posted = posted
        if reason:
            self.message = f"{self.message}: {reason}"

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.call, int(self.errno or 0), self.advice, self.reason, self.posted)


class BootstrapError(GdaError):
    """Ranks could not exchange what they must know of each other. Has `rank` (None: of no single one) and `phase`."""

    def __init__(self, message: str, rank: int | None = None, phase: int = 0, advice: str = "") -> None:
        super().__init__(message, advice)
        self.rank = rank
        self.phase = phase

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.message, self.rank, self.phase, self.advice)


class PeerLostError(GdaError):
    """A rank of the team has ended or does not answer. Has `rank`, `host` and `pid`."""

    def __init__(self, message: str, rank: int, host: str, pid: int, advice: str = "") -> None:
        super().__init__(message, advice)
        self.rank = rank
        self.host = host
        self.pid = pid

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.message, self.rank, self.host, self.pid, self.advice)


class CommandError(GdaError):
    """The NIC's firmware refused a command. Has `command`, `status` and `syndrome`."""

    def __init__(self, command: str, status: int, syndrome: int, meaning: str, advice: str = "") -> None:
        super().__init__(f"command {command} refused: {meaning} (status 0x{status:x}, syndrome 0x{syndrome:x})", advice)
        self.command = command
        self.status = status
        self.syndrome = syndrome
        self.meaning = meaning

    def __reduce__(self) -> tuple[type, tuple[str, int, int, str, str]]:
        return type(self), (self.command, self.status, self.syndrome, self.meaning, self.advice)


class CudaError(GdaError):
    """A call into the CUDA driver failed. Has `call` and `code` (CUresult)."""

    def __init__(self, call: str, code: int, name: str, advice: str = "") -> None:
        super().__init__(f"{call} failed: {name} ({code})", advice)
        self.call = call
        self.code = code
        self.name = name

    def __reduce__(self) -> tuple[type, tuple[str, int, str, str]]:
        return type(self), (self.call, self.code, self.name, self.advice)


class UnavailableError(GdaError):
    """Something this machine lacks: a library, a device, a compiler, a placement."""


class ArgumentError(GdaError, ValueError):
    """An argument was refused before anything happened."""


class WorkRequestError(ArgumentError):
    """A batch has a work request that must not be posted; nothing of it was. Has `row`, the first such."""

    def __init__(self, message: str, row: int = 0, advice: str = "") -> None:
        super().__init__(message, advice)
        self.row = row

    def __reduce__(self) -> tuple[type, tuple[str, int, str]]:
        return type(self), (self.message, self.row, self.advice)


class FieldError(ArgumentError):
    """A field of a command or call has a value that it must not have. Has `field`, `value` and `bounds`.

    `bounds` are the least and the most that the value may be, or None where it is not a matter of bounds.
    """

    def __init__(
        self, message: str, field: str, value: Any, bounds: tuple[int, int] | None = None, advice: str = ""
    ) -> None:
        super().__init__(message, advice)
        self.field, self.value, self.bounds = field, value, bounds

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.message, self.field, self.value, self.bounds, self.advice)


class GidError(ArgumentError):
    """A GID index is of no use: empty, or its address cannot reach the other side. Has `index` and `candidates`.

    `candidates` are the indices that would do: those where the same address is now, or of addresses that are routed.
    """

    def __init__(self, message: str, index: int, candidates: tuple[int, ...] = (), advice: str = "") -> None:
        super().__init__(message, advice)
        self.index = index
        self.candidates = candidates

    def __reduce__(self) -> tuple[type, tuple[str, int, tuple[int, ...], str]]:
        return type(self), (self.message, self.index, self.candidates, self.advice)


class PathMtuError(ArgumentError):
    """A path MTU that the link does not carry. Has `requested` and `active`, both in bytes."""

    def __init__(self, message: str, requested: int, active: int, advice: str = "") -> None:
        super().__init__(message, advice)
        self.requested = requested
        self.active = active

    def __reduce__(self) -> tuple[type, tuple[str, int, int, str]]:
        return type(self), (self.message, self.requested, self.active, self.advice)


class CheckError(GdaError):
    """The software NIC complained under gda.sim.strict(). Has `complaints`, all of them, oldest first.

    Each is its sentence and has `kind`, `values` and more (gda/complaint.py).
    """

    def __init__(self, complaints: tuple[str, ...]) -> None:
        lines = "".join(f"\n  {getattr(one, 'kind', 'complaint')}: {one}" for one in complaints)
        advice = str(getattr(complaints[0], "advice", "")) if complaints else ""
        super().__init__(f"the software NIC complained: {len(complaints)}{lines}", advice)
        self.complaints = complaints

    def __reduce__(self) -> tuple[type, tuple[tuple[str, ...]]]:
        return type(self), (self.complaints,)


class ClosedError(GdaError):
    """The object, or one it stands on, has been closed."""


class CompileError(GdaError):
    """Device code did not compile. `log` holds the compiler's words, with the user's own line numbers."""

    def __init__(self, message: str, log: str = "", advice: str = "") -> None:
        super().__init__(f"{message}\n{log}" if log else message, advice)
        self.log = log


class DeviceStatusError(GdaError):
    """A kernel reported a failure (formats/status.h). Has `status`, the 64-bit word, and what is known of the request.

    `qpn` is the queue pair's number, 0 where no queue is at fault; `operation` the request in words, `local` and
    `remote` its ranges as (address, bytes, key), all empty where the request cannot be read back; `rank` the process
    at the other end, None where queue pairs have none.
    """

    def __init__(self, message: str, status: int = 0, advice: str = "") -> None:
        super().__init__(message, advice)
        self.status = status
        self.qpn = 0
        self.operation = ""
        self.local: tuple[int, int, int] | None = None
        self.remote: tuple[int, int, int] | None = None
        self.rank: int | None = None


class CompletionError(DeviceStatusError):
    """The NIC answered a work request with an error completion.

    Has `syndrome`, `vendor_syndrome`, `qpn` and `wqe_index` (modulo 2^16). Of a request that the CPU posted, `status`
    is the ibv_wc_status, and wqe_index is not known.
    """

    def __init__(
        self, message: str, status: int = 0, advice: str = "", *, syndrome: int = 0, vendor_syndrome: int = 0,
        qpn: int = 0, wqe_index: int = 0,
    ) -> None:
        super().__init__(message, status, advice)
        self.syndrome = syndrome
        self.vendor_syndrome = vendor_syndrome
        self.qpn = qpn
        self.wqe_index = wqe_index


class DeadlineError(DeviceStatusError, TimeoutError):
    """A wait ended at its deadline."""


class QueueFullError(DeviceStatusError):
    """No slot of the queue became free before the deadline."""


class OutOfBoundsError(DeviceStatusError, IndexError):
    """Offset and length pass the end of a memory region."""


class NotConnectedError(DeviceStatusError):
    """The queue pair is not connected, so it cannot send."""


class OrderingError(DeviceStatusError):
    """A signal would lie in memory whose writes may be seen before earlier ones (relaxed ordering)."""


class HandleError(DeviceStatusError):
    """A kernel was given a handle that is null or made for another version of the library."""
