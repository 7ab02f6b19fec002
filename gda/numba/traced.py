# SPDX-License-Identifier: Apache-2.0
"""Traces of Numba's kernels: which are linked with a ring of events, and how the ring is read.

Called by library (what to link, what was loaded) and kernel. What lies in a ring: cuda/gda/trace_ring.h. Document:
docs/trace.md. By the driver alone, since a program with Numba need not have CuPy.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from numba import cuda

from gda import notes
from gda.errors import CudaError
from gda.run.clocks import ANSWER, DEADLINE_NS, TURNS, WAIT_S, ask, closest
from gda.run.compile import compile_for_gpu
from gda.run.traces import RING_BYTES, SKIP, SYMBOL, used_bytes

__all__ = ["NON_BLOCKING", "Ring", "driver", "linking", "loaded", "rings", "wanted"]

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with the default stream
_NOT_FOUND, _NOT_READY = 500, 600  # CUDA_ERROR_...
_NAP_S = 1e-4

# Of the kernel that is being linked: its name, and whether it is traced; None: as notes says.
_linking: ContextVar[tuple[str, bool | None]] = ContextVar("linking", default=("a kernel of Numba", None))
rings: list[Ring] = []  # of all modules that were loaded with one


def driver(name: str, *arguments: Any) -> Any:
    """A call into the driver that Numba has no words for; returns its result."""
    from cuda.bindings import driver as calls  # of NVIDIA's Python packages, which numba-cuda stands on

    code, *results = getattr(calls, name)(*arguments)
    if int(code):
        raise CudaError(name, int(code), code.name)
    return results[0] if len(results) == 1 else results or None


@contextmanager
def linking(name: str, trace: bool | None) -> Iterator[None]:
    """What is linked and loaded inside is this kernel."""
    token = _linking.set((name, trace))
    try:
        yield
    finally:
        _linking.reset(token)


def wanted() -> bool:
    """Whether what is being linked is to be traced."""
    trace = _linking.get()[1]
    return notes.kernels_are_traced() if trace is None else trace


def loaded(module: Any) -> None:
    """A module with the device library was loaded, and nothing of it runs yet: if it has a ring, it is a trace's.

    Numba calls this once for each function of the library that the kernel calls.
    """
    try:
        address, _ = driver("cuLibraryGetGlobal", module.handle, SYMBOL.encode())
    except CudaError as error:
        if error.code == _NOT_FOUND:
            return
        raise
    name, device = _linking.get()[0], int(cuda.get_current_device().id)
    if rings and rings[-1].is_of(name, int(address), device):
        return
    rings.append(Ring(name, int(address), device))
    notes.add_kernels(rings[-1], name)


class Ring:
    """The ring in a loaded module, which stays loaded as long as its kernel."""

    clock = "gpu"  # of a trace

    def __init__(self, name: str, address: int, device: int) -> None:
        self._name, self._address, self._device = name, address, device

    def is_of(self, name: str, address: int, device: int) -> bool:
        """Whether it is the ring there, of the kernel of that name."""
        return (self._name, self._address, self._device) == (name, address, device)

    def trace(self) -> bytes:
        """What traced kernels have left, also while they run."""
        head = self._copy(RING_BYTES)
        return head + self._copy(used_bytes(head))[RING_BYTES:]

    def start_trace(self, skip: int) -> tuple[int, int]:
        """Empty the ring; a moment of the GPU's clock and the monotonic one."""
        header = ctypes.create_string_buffer(RING_BYTES)
        ctypes.c_uint32.from_buffer(header, SKIP).value = skip
        with cuda.gpus[self._device], _stream() as stream:
            driver("cuMemcpyHtoDAsync", self._address, ctypes.addressof(header), RING_BYTES, stream)
            driver("cuStreamSynchronize", stream)
        return self.moment()

    def moment(self) -> tuple[int, int]:
        """The GPU's clock and the monotonic one; zeros when no kernel could be asked in time."""
        with cuda.gpus[self._device], _stream() as stream:
            return _moment(stream, _clock_kernel(self._device))

    def _copy(self, size: int) -> bytes:
        copied = ctypes.create_string_buffer(size)
        with cuda.gpus[self._device], _stream() as stream:
            driver("cuMemcpyDtoHAsync", ctypes.addressof(copied), self._address, size, stream)
            driver("cuStreamSynchronize", stream)
        return copied.raw


@contextmanager
def _stream() -> Iterator[Any]:
    """A stream of its own: kernels may run, and wait, in others."""
    stream = driver("cuStreamCreate", NON_BLOCKING)
    try:
        yield stream
    finally:
        driver("cuStreamDestroy", stream)


@functools.cache
def _clock_kernel(device: int) -> Any:
    """The kernel that answers with the GPU's clock, loaded while none of the traced ones runs."""
    major, minor = cuda.gpus[device].compute_capability
    code = compile_for_gpu(ANSWER, arch=f"sm_{major}{minor}", names=("gda_kernel_clock",))
    return driver("cuModuleGetFunction", driver("cuModuleLoadData", code), b"gda_kernel_clock")


def _moment(stream: Any, kernel: Any) -> tuple[int, int]:
    """As gda.run.clocks.gpu_moment."""
    address = int(driver("cuMemHostAlloc", 24, 0))
    words = (ctypes.c_uint64 * 3).from_address(address)
    words[0] = words[1] = words[2] = 0
    arguments = ((address, TURNS, DEADLINE_NS), (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64))
    driver("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0)
    pair = closest(ask(words))
    give_up_at = time.monotonic() + WAIT_S
    while not _ended(stream):
        if time.monotonic() >= give_up_at:  # kernels that wait fill the GPU: it runs after them, and needs the words
            return pair or (0, 0)
        time.sleep(_NAP_S)
    driver("cuMemFreeHost", address)
    return pair or (0, 0)


def _ended(stream: Any) -> bool:
    try:
        driver("cuStreamQuery", stream)
    except CudaError as error:
        if error.code == _NOT_READY:
            return False
        raise
    return True
