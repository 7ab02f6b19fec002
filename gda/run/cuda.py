# SPDX-License-Identifier: Apache-2.0
"""Device code on a GPU: compiled by CuPy with NVRTC, launched so that a kernel may wait for the NIC.

Called by executor. The rules (docs/streams.md, "What waits for kernels"): every kernel of a module is loaded before the
first one runs, since loading can wait for a kernel that waits; nothing here synchronizes the device, allocates GPU
memory or puts work into the legacy default stream while a kernel runs; each launch has a stream of its own, begins
after what was queued before on the current streams of CuPy and torch (its arguments are ready then), and its end is
seen by polling an event. A launch may also go into a stream that the caller names; if that is being captured, it
becomes part of a graph, whose replays nobody here sees. Source: CUDA C++ Programming Guide, "Lazy Loading", "Implicit
Synchronization".
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from gda.errors import ArgumentError, CompileError, CudaError, UnavailableError
from gda.locks import when_free
from gda.once import once
from gda.run import streams
from gda.run.arguments import Packed
from gda.run.cache import key_of, tree_digest
from gda.run.compile import include_directory
from gda.run.meters import SYMBOL, meter_names, no_meters
from gda.run.nic_helper import NicHelper
from gda.run.status_word import PinnedWords
from gda.run.traces import RING_BYTES, SKIP, used_bytes
from gda.run.traces import SYMBOL as TRACE_SYMBOL

__all__ = ["CudaModule", "CudaRun", "Lane", "NicHelper", "gpu_available", "status_words", "why_no_gpu"]

_POLL_NAP_S = 20e-6  # between looks at the event after the first ones
_EAGER_POLLS = 200
_SHARED_WITHOUT_ASKING = 48 * 1024  # bytes per block; more must be asked for, function by function


@functools.cache
def why_no_gpu() -> str:
    """Why kernels cannot run on a GPU here; empty when they can."""
    try:
        import cupy
    except Exception as error:  # a broken CUDA installation raises all kinds
        return f"CuPy cannot be imported ({error})"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return f"the CUDA driver says: {error}"
    return "" if count else "the CUDA driver sees no device"


def gpu_available() -> bool:
    """Whether kernels can run on a GPU."""
    return not why_no_gpu()


def _cupy() -> Any:
    if why := why_no_gpu():
        raise UnavailableError(f"no GPU to run kernels on: {why}", 'Kernel(..., target="host") runs them on the CPU')
    import cupy

    return cupy


# What a launch needs is made before any kernel runs: making it later can wait for a kernel that waits.
_STREAMS = 8  # launches at once before another stream has to be made


@once
def status_words() -> PinnedWords:
    """For all launches of this process."""
    return PinnedWords(_pin)


def _pin(size: int) -> int:
    with streams.relaxed():
        memory = _cupy().cuda.alloc_pinned_memory(size)
    _for_ever.append(memory)
    return int(memory.ptr)


_for_ever: list[object] = []


@once
def _free_streams(device: int) -> list[Lane]:
    """Streams of a device, each with its events; one launch at a time uses one."""
    return [_lane() for _ in range(_STREAMS)]


@once
def _free_events(device: int) -> list[Any]:
    """Events for launches on streams of the caller's."""
    return [_cupy().cuda.Event(disable_timing=True) for _ in range(_STREAMS)]


class Lane(NamedTuple):
    """Where one launch runs."""

    stream: Any
    before: Any  # event: what the caller had queued is done
    done: Any  # event: the kernel has ended


def _lane() -> Lane:
    cuda = _cupy().cuda
    return Lane(cuda.Stream(non_blocking=True), cuda.Event(disable_timing=True), cuda.Event(disable_timing=True))


class CudaModule:
    """One text of device code, compiled for the current device and loaded.

    `names` are the kernels to launch, `included` is the text of the user's own headers.
    """

    target = "gpu"
    clock = "gpu"  # of a trace

    def __init__(
        self,
        text: str,
        file: str,
        *,
        include: Path | None,
        included: str,
        options: Sequence[str],
        names: Sequence[str],
    ) -> None:
        cupy = _cupy()
        self._device = int(cupy.cuda.Device().id)
        properties = cupy.cuda.runtime.getDeviceProperties(self._device)
        self.where = f"GPU {self._device} ({properties['name'].decode()})"
        self._processors = int(properties["multiProcessorCount"])
        folders = [f"-I{include_directory()}", *([f"-I{include}"] if include else [])]
        # CuPy's cache knows the text and the options, not the headers: their hash makes it compile again.
        headers = key_of(tree_digest(include_directory() / "gda", ("*.h",)), included)
        module = cupy.RawModule(
            code=f'#line 1 "{file}"\n{text}',
            options=("--std=c++17", f"-DGDA_HEADERS_{headers}", *options, *folders),
            backend="nvrtc",
            name_expressions=list(names),
        )
        try:
            module.compile()
        except cupy.cuda.compiler.CompileException as error:
            raise CompileError(f"{file} did not compile for {self.where}", error.get_message()) from None
        self._module, self._file = module, file
        # Loading is lazy in the driver; asking for an attribute makes it load the code now, before any kernel waits.
        self._functions = {name: module.get_function(name) for name in names}
        for function in self._functions.values():
            streams.driver_call("cuFuncLoad", ctypes.c_void_p(function.kernel.ptr))
        status_words()
        _free_streams(self._device)
        _free_events(self._device)
        self._static_shared = {name: int(function.shared_size_bytes) for name, function in self._functions.items()}

    def sizes(self, name: str) -> list[int] | None:
        """Bytes of each parameter, as the driver says; None when it cannot (before CUDA 12.4)."""
        function = ctypes.c_void_p(self._functions[name].kernel.ptr)
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        found: list[int] = []
        while True:
            place = ctypes.c_size_t(len(found))
            code = streams.driver_call("cuFuncGetParamInfo", function, place, ctypes.byref(offset), ctypes.byref(size))
            if code is None:
                return None
            if code:  # behind the last one
                return found
            found.append(size.value)

    def meters(self, *, clear: bool) -> list[int]:
        """The counters, which are then zero if `clear`."""
        cupy = _cupy()
        with cupy.cuda.Device(self._device):
            try:
                where = self._module.get_global(SYMBOL)
            except cupy.cuda.driver.CUDADriverError:
                raise no_meters(self._file) from None
            words = cupy.ndarray((len(meter_names()),), cupy.uint64, where)
            counts = [int(count) for count in words.get()]
            if clear:
                words.fill(0)
                cupy.cuda.Stream.null.synchronize()
        return counts

    def has_trace(self) -> bool:
        """Whether the code was compiled with a ring for events."""
        cupy = _cupy()
        try:
            self._module.get_global(TRACE_SYMBOL)
        except cupy.cuda.driver.CUDADriverError:
            return False
        return True

    def trace(self) -> bytes:
        """What traced kernels have left, also while they run: a copy on a stream of its own."""
        head = self._copy_trace(RING_BYTES)
        return head[:RING_BYTES] + self._copy_trace(used_bytes(head))[RING_BYTES:]

    def _copy_trace(self, bytes: int) -> builtins.bytes:
        cupy = _cupy()
        with cupy.cuda.Device(self._device):
            words = cupy.ndarray((bytes,), cupy.uint8, self._module.get_global(TRACE_SYMBOL))
            copied: builtins.bytes = words.get(stream=cupy.cuda.Stream(non_blocking=True)).tobytes()
        return copied

    def start_trace(self, skip: int) -> tuple[int, int]:
        """Empty the ring; a moment of the GPU's clock and the monotonic one."""
        cupy = _cupy()
        with cupy.cuda.Device(self._device):
            header = bytearray(RING_BYTES)
            header[SKIP : SKIP + 4] = skip.to_bytes(4, "little")
            words = cupy.ndarray((RING_BYTES,), cupy.uint8, self._module.get_global(TRACE_SYMBOL))
            stream = cupy.cuda.Stream(non_blocking=True)
            words.set(numpy.frombuffer(header, numpy.uint8), stream=stream)
            stream.synchronize()
        return self.moment()

    def moment(self) -> tuple[int, int]:
        """The GPU's clock and the monotonic one; zeros when no kernel could be asked in time."""
        from gda.run.clocks import gpu_moment

        with _cupy().cuda.Device(self._device):
            return gpu_moment()

    def enqueue(
        self, name: str, packed: Packed, stream: Any, grid: tuple[int, int, int], block: tuple[int, int, int]
    ) -> None:
        """Launch on a stream of the caller's, who answers for the rest: no shared memory, no end is looked for."""
        cupy = _cupy()
        values = [ctypes.create_string_buffer(value, max(1, len(value))) for value in packed.values]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        where = (self._functions[name].kernel.ptr, *grid, *block, 0, stream.ptr)
        try:
            cupy.cuda.driver.launchKernel(*where, ctypes.addressof(pointers), 0)
        except cupy.cuda.driver.CUDADriverError as error:
            raise CudaError(f"launch of kernel {name}", int(error.status), str(error)) from None

    def start(
        self, name: str, packed: Packed, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int,
        *, stream: int | None = None,
    ) -> CudaRun | CapturedRun:  # fmt: skip
        """Launch on a stream of its own, or on the caller's, and return at once."""
        cupy = _cupy()
        runtime, function = cupy.cuda.runtime, self._functions[name]
        values = [ctypes.create_string_buffer(value, max(1, len(value))) for value in packed.values]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        is_captured = stream is not None and streams.is_captured(stream)
        alive = [packed.alive, self]
        with cupy.cuda.Device(self._device), streams.relaxed():
            runtime.setDevice(self._device)  # gives a new thread the device's context
            if shared_bytes + self._static_shared[name] > _SHARED_WITHOUT_ASKING:
                try:
                    function.max_dynamic_shared_size_bytes = shared_bytes
                except cupy.cuda.driver.CUDADriverError as error:
                    raise CudaError(
                        f"kernel {name} with {shared_bytes} bytes of dynamic shared memory", int(error.status),
                        str(error), "a block has at most about 227 KiB on recent GPUs, static shared memory included",
                    ) from None  # fmt: skip
            share = self._share(function, grid, block, shared_bytes)
            helper = NicHelper(share, 1 - 1 / self._processors, spins=not is_captured)
            before = streams.callers(cupy, self._device) if stream is None else []
            if any(streams.is_captured(caller) for caller in before):
                raise ArgumentError(
                    f"kernel {name}: the current stream is being captured, and this launch would not be in it",
                    f"{name}.on(stream)[grid, block](...) puts it into the graph",
                )
            free: list[Any] = _free_streams(self._device) if stream is None else _free_events(self._device)
            taken: Any = free.pop() if free else _lane() if stream is None else cupy.cuda.Event(disable_timing=True)
            done = taken.done if stream is None else taken
            helper.begin()
            try:
                pointer = taken.stream.ptr if stream is None else stream
                if stream is None:
                    for caller in before:
                        runtime.eventRecord(taken.before.ptr, caller)
                        taken.stream.wait_event(taken.before)
                # The driver copies the arguments before it returns.
                where = (function.kernel.ptr, *grid, *block, shared_bytes, pointer)
                cupy.cuda.driver.launchKernel(*where, ctypes.addressof(pointers), 0)
                if not is_captured:
                    runtime.eventRecord(done.ptr, pointer)
            except (cupy.cuda.driver.CUDADriverError, runtime.CUDARuntimeError) as error:
                helper.end()
                free.append(taken)
                advice = "compare grid, block and shared memory with the device's limits"
                raise CudaError(f"launch of kernel {name}", int(error.status), str(error), advice) from None
        if is_captured:
            free.append(taken)
            return CapturedRun(helper, alive)
        return CudaRun(name, done, helper=helper, back=(free, taken), alive=alive)

    def _share(
        self, function: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int
    ) -> float:
        """What part of the GPU the blocks take: 1 is all of it."""
        threads = block[0] * block[1] * block[2]
        per_processor = _cupy().cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.kernel.ptr, threads, shared_bytes
        )
        return grid[0] * grid[1] * grid[2] / (max(1, int(per_processor)) * self._processors)


class CapturedRun:
    """A kernel in a graph. When it runs is not known here; `alive` is what it uses."""

    error = ""
    is_captured = True

    def __init__(self, helper: NicHelper, alive: list[object]) -> None:
        self._helper, self._alive = helper, alive

    def wait(self, timeout_s: float) -> bool:
        """It ends with each replay, which this object does not see."""
        return False

    def abort(self) -> bool:
        """A GPU kernel cannot be stopped from outside; its own waits have deadlines."""
        return False

    def __del__(self) -> None:
        when_free(self._helper.end)


# Kernels that have not ended, also when nobody holds their Launch any more: their arguments must not be freed.
_under_way: set[CudaRun] = set()


class CudaRun:
    """A kernel under way; `done` is the event at its end. `alive` is what it uses, `back` where goes what it took."""

    is_captured = False

    def __init__(
        self, name: str, done: Any, *, helper: NicHelper, back: tuple[list[Any], Any], alive: list[object]
    ) -> None:
        self._name, self._done, self._helper, self._alive = name, done, helper, alive
        self._back = back
        self.error = ""
        self._ended = False
        for other in list(_under_way):
            with contextlib.suppress(CudaError):  # whoever waits for that one is told
                other.wait(0)
        _under_way.add(self)

    def wait(self, timeout_s: float) -> bool:
        """Poll for the end, at most so long. Raises CudaError when the kernel crashed."""
        if self._ended:
            return True
        end = time.monotonic() + timeout_s
        polls = 0
        with streams.relaxed():
            while not self._query():
                if time.monotonic() >= end:
                    return False
                polls += 1
                if polls > _EAGER_POLLS:
                    time.sleep(_POLL_NAP_S)
        self._end()
        return True

    def _query(self) -> bool:
        try:
            return bool(self._done.done)
        except Exception as error:
            self._end()
            raise CudaError(
                f"kernel {self._name}",
                int(getattr(error, "status", getattr(error, "code", 0))),  # CuPy's, or Numba's
                str(error),
                "an illegal address or a trap ends the CUDA context: start a new process",
            ) from None

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._helper.end()
            self._alive = []
            self._back[0].append(self._back[1])
        _under_way.discard(self)

    def abort(self) -> bool:
        """A GPU kernel cannot be stopped from outside; its own waits have deadlines."""
        return False
