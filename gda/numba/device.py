# SPDX-License-Identifier: Apache-2.0
"""What kernels call: the device library's operations as Python functions inside `@cuda.jit`.

Document: docs/python_kernels.md. Each function here is a declaration: its parameters' kinds make the declaration of the
C function of the same name in cuda/gda/numba.h, the check of the types it is called with, and the call. Offsets,
lengths and durations are integers of any width; a float is refused, since it is rarely meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.cuda.extending import intrinsic

from gda import formats
from gda.errors import ArgumentError
from gda.numba.library import LIBRARY

MORE = int(formats.GDA_MORE)
"""Flag: another request follows at once on this queue; it, or a wait, rings for this one."""
UNSIGNALED = int(formats.GDA_UNSIGNALED)
"""Flag: no completion of its own; the ticket is complete when a later request's is."""
SIGNAL_ADD = int(formats.GDA_SIGNAL_ADD)
"""A signal that adds to the other side's eight bytes: many may signal."""
SIGNAL_SET = int(formats.GDA_SIGNAL_SET)
"""A signal that sets them: one signals, and no atomic is needed."""
REACHED = int(formats.GDA_REACHED)
"""Wait until a signal is at or above the value: at most 2^63 - 1 behind, as numbers that go round."""
EQUAL = int(formats.GDA_EQUAL)
"""Wait until a signal is the value."""
NOT_EQUAL = int(formats.GDA_NOT_EQUAL)
"""Wait until a signal is another value."""
US = 1_000
"""A microsecond, in nanoseconds: deadlines are 100 * US."""
MS = 1_000_000
"""A millisecond, in nanoseconds."""
S = 1_000_000_000
"""A second, in nanoseconds."""

# Kinds of parameters, by the names of their annotations.
Queue: TypeAlias = Any
Region: TypeAlias = Any
Word: TypeAlias = Any
Flags: TypeAlias = Any
Value: TypeAlias = Any
_REGION_WORDS = 4  # struct gda_mr
_POINTER = ir.PointerType(ir.IntType(64))


def _operation(stub: Callable[..., Any]) -> Any:
    """Make of a declaration what kernels can call."""
    name = stub.__name__
    declared = inspect.signature(stub)
    kinds = {parameter: str(given.annotation) for parameter, given in declared.parameters.items()}

    def definition(_context: Any, *args: Any, **kws: Any) -> Any:
        try:
            given = declared.bind(*args, **kws)
        except TypeError as error:
            raise TypingError(f"gda.numba.{name}: {error}; it takes ({', '.join(kinds)})") from None
        given.apply_defaults()
        passed = [_passed_as(name, parameter, kinds[parameter], kind) for parameter, kind in given.arguments.items()]
        symbol = f"gda_numba_{name}"
        if "Value" in kinds.values():
            symbol += f"_{passed[list(kinds).index('value')]}"
        return types.uint64(*passed), _call(symbol)

    # Numba reads names and defaults from here. The first parameter is its typing context.
    head = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    definition.__signature__ = declared.replace(parameters=[head, *declared.parameters.values()])  # type: ignore[attr-defined]
    definition.__name__, definition.__doc__ = name, stub.__doc__
    made = intrinsic(definition)
    kind = type(made)
    made.__class__ = type("Operation", (kind,), {"__call__": lambda _self, *_args, **_kws: _outside(name)})
    return made


def _passed_as(function: str, name: str, wanted: str, given: Any) -> Any:
    """The type with which an argument is passed. Raises TypingError, which Numba shows with the user's own line."""
    kind = types.int64 if isinstance(given, int) else types.unliteral(given)  # an int: a default
    where = f"gda.numba.{function}: {name} is {kind}"
    if wanted == "Region":
        words = tuple(kind) if isinstance(kind, types.BaseTuple) else ()
        if len(words) != _REGION_WORDS or not all(word == types.uint64 for word in words):
            raise TypingError(f"{where}, not a region: pass a Memory through gda.numba.Kernel, or gda.numba.region")
        return kind
    if wanted == "Queue":
        if kind != types.uint64:
            raise TypingError(f"{where}, not a queue: pass a QueuePair through gda.numba.Kernel, or gda.numba.queue")
        return kind
    if wanted == "Value":
        if isinstance(kind, types.Boolean):
            return types.uint8
        if isinstance(kind, types.Integer):
            return getattr(types, f"uint{kind.bitwidth}")
        if kind in (types.float32, types.float64):
            return kind
        raise TypingError(f"{where}, not an integer, float32 or float64")
    if not isinstance(kind, types.Integer):
        more = " (say i // 2; older Numba makes a float64 of uint64 and int64)" if isinstance(kind, types.Float) else ""
        raise TypingError(f"{where}, not an integer{more}")
    return types.uint32 if wanted == "Flags" else types.uint64


def _call(symbol: str) -> Callable[..., Any]:
    """Code that calls a function of cuda/gda/numba.h: the result's place, then the arguments, regions word by word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words = []
        for kind, value in zip(signature.args, args, strict=True):
            if isinstance(kind, types.BaseTuple):
                words += [builder.extract_value(value, word) for word in range(_REGION_WORDS)]
            else:
                words.append(value)
        wanted = ir.FunctionType(ir.IntType(32), [_POINTER, *(word.type for word in words)])
        function = builder.module.globals.get(symbol) or ir.Function(builder.module, wanted, symbol)
        with builder.goto_entry_block():  # once, not in every round of the kernel's loop
            result = builder.alloca(ir.IntType(64))
        builder.call(function, [result, *words])
        context.active_code_library.add_linking_file(LIBRARY)
        return builder.load(result)

    return codegen


def _outside(name: str) -> NoReturn:
    raise ArgumentError(
        f"gda.numba.{name} was called from Python, but it runs on a GPU",
        "call it in a function under @numba.cuda.jit; on the CPU, QueuePair.post and gda.HostQueuePair post",
    )


# ------------------------------------------------------------------------------------------------------ move bytes
@_operation
def put(qp: Queue, dst: Region, dst_offset: Word, src: Region, src_offset: Word, bytes: Word, flags: Flags = 0) -> Any:
    """Write `bytes` bytes from src + src_offset to dst + dst_offset of the other side; returns the ticket."""


@_operation
def put_imm(
    qp: Queue, dst: Region, dst_offset: Word, src: Region, src_offset: Word, bytes: Word, immediate: Flags,
    flags: Flags = 0,
) -> Any:  # fmt: skip
    """Put, and complete one of the receives posted at the other side with a number of 32 bits."""


@_operation
def put_value(qp: Queue, dst: Region, dst_offset: Word, value: Value, flags: Flags = 0) -> Any:
    """Write one number, of the width that its Numba type has, without any memory here; returns the ticket."""


@_operation
def get(qp: Queue, dst: Region, dst_offset: Word, src: Region, src_offset: Word, bytes: Word, flags: Flags = 0) -> Any:
    """Read `bytes` bytes from the other side's src + src_offset to dst + dst_offset here; returns the ticket."""


# --------------------------------------------------------------------------------------------------------- atomics
@_operation
def fetch_add(
    qp: Queue, old: Region, old_offset: Word, remote: Region, remote_offset: Word, add: Word, flags: Flags = 0
) -> Any:
    """Add to eight bytes of the other side; what was there lands at old + old_offset. Returns the ticket."""


@_operation
def compare_swap(
    qp: Queue, old: Region, old_offset: Word, remote: Region, remote_offset: Word, compare: Word, swap: Word,
    flags: Flags = 0,
) -> Any:  # fmt: skip
    """Store `swap` in eight bytes of the other side if they hold `compare`; what was there lands at old_offset."""


@_operation
def old_value(old: Region, old_offset: Word) -> Any:
    """The eight bytes that an atomic left at old + old_offset, once its ticket is complete; 0 outside the region."""


# --------------------------------------------------------------------------------------------------------- signals
@_operation
def signal(
    qp: Queue, remote: Region, offset: Word, value: Word, operation: Flags = SIGNAL_ADD, flags: Flags = 0
) -> Any:
    """Add `value` to eight bytes of the other side behind all posted before, or SIGNAL_SET them; returns the ticket."""


@_operation
def put_signal(
    qp: Queue, dst: Region, dst_offset: Word, src: Region, src_offset: Word, bytes: Word, signals: Region,
    signal_offset: Word, value: Word, operation: Flags = SIGNAL_ADD, flags: Flags = 0,
) -> Any:  # fmt: skip
    """Put and signal in one submission: whoever sees the signal sees the bytes. Returns the ticket."""


@_operation
def test_signal(signals: Region, offset: Word, comparison: Flags, value: Word) -> Any:
    """Status of a signal here, without waiting: 0 when it compares as asked (REACHED, EQUAL, NOT_EQUAL)."""


@_operation
def wait_signal(signals: Region, offset: Word, comparison: Flags, value: Word, deadline_ns: Word) -> Any:
    """Wait for that at most `deadline_ns` nanoseconds; returns the status. Then the bytes put before are there."""


# ------------------------------------------------------------------------------------------------------ completion
@_operation
def nop(qp: Queue, flags: Flags = 0) -> Any:
    """Move nothing; the ticket is complete when all earlier requests of the queue are."""


@_operation
def test(qp: Queue, ticket: Word) -> Any:
    """Status of a ticket without waiting: 0 complete, GDA_TIMEOUT not yet, else why it failed or was refused."""


@_operation
def wait(qp: Queue, ticket: Word, deadline_ns: Word) -> Any:
    """Wait for a ticket at most `deadline_ns` nanoseconds; returns the status."""


@_operation
def flush(qp: Queue, deadline_ns: Word) -> Any:
    """Wait for everything posted to the queue before, by any thread; returns the status."""


# ------------------------------------------------------------------------------------------- a warp or block together
# All threads of the warp or block call with equal arguments; one operation is posted or awaited, and all get the
# answer. What any of them wrote before is there for the NIC.
@_operation
def put_warp(
    qp: Queue, dst: Region, dst_offset: Word, src: Region, src_offset: Word, bytes: Word, flags: Flags = 0
) -> Any:
    """Put, by all threads of the warp; long ones are split over the lanes of a warp. Returns the ticket."""


@_operation
def put_value_warp(qp: Queue, dst: Region, dst_offset: Word, value: Value, flags: Flags = 0) -> Any:
    """put_value, by all threads of the warp; returns the ticket."""


@_operation
def signal_warp(
    qp: Queue, remote: Region, offset: Word, value: Word, operation: Flags = SIGNAL_ADD, flags: Flags = 0
) -> Any:
    """Signal once for all threads of the warp; returns the ticket."""


@_operation
def wait_warp(qp: Queue, ticket: Word, deadline_ns: Word) -> Any:
    """Wait for a ticket, all threads of the warp: one looks, and all see what it saw. Returns the status."""


@_operation
def flush_warp(qp: Queue, deadline_ns: Word) -> Any:
    """Flush the queue, all threads of the warp; returns the status."""


@_operation
def put_block(
    qp: Queue, dst: Region, dst_offset: Word, src: Region, src_offset: Word, bytes: Word, flags: Flags = 0
) -> Any:
    """Put, by all threads of the block; long ones are split over the lanes of a warp. Returns the ticket."""


@_operation
def put_value_block(qp: Queue, dst: Region, dst_offset: Word, value: Value, flags: Flags = 0) -> Any:
    """put_value, by all threads of the block; returns the ticket."""


@_operation
def signal_block(
    qp: Queue, remote: Region, offset: Word, value: Word, operation: Flags = SIGNAL_ADD, flags: Flags = 0
) -> Any:
    """Signal once for all threads of the block; returns the ticket."""


@_operation
def wait_block(qp: Queue, ticket: Word, deadline_ns: Word) -> Any:
    """Wait for a ticket, all threads of the block: one looks, and all see what it saw. Returns the status."""


@_operation
def flush_block(qp: Queue, deadline_ns: Word) -> Any:
    """Flush the queue, all threads of the block; returns the status."""


@_operation
def report(where: Word, status: Word) -> Any:
    """Keep the first status that is not 0 at `where` (a kernel's last parameter `status`); returns the status."""


@_operation
def now_ns() -> Any:
    """The GPU's clock in nanoseconds: for differences."""


@_operation
def failed(ticket: Word) -> Any:
    """Whether a ticket says that the request was refused (1 or 0); wait and test tell why."""
