# SPDX-License-Identifier: Apache-2.0
"""Doorbells that a CUDA stream rings: writes of the record and of the register, in order behind a kernel.

Used by triggers.py. The work request lies in the ring already; no thread of the CPU and none of the GPU is needed
between the kernel that decides and the doorbell. Source: CUDA Driver API, "Stream Memory Operations".
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

from gda import formats
from gda.errors import CudaError, UnavailableError
from gda.nic import QueuePair
from gda.nic.rings import SEND_WORD
from gda.run import Kernel
from gda.run.executor import Function
from gda.run.status import status_error

__all__ = ["AT_ONCE", "CudaStream", "Stream", "StreamTriggered"]

AT_ONCE = 64  # rounds that lie in the stream before it may begin


class Stream(Protocol):
    """Work that is done in order. Addresses are those that kernels use."""

    target: str

    def hold(self) -> None:
        """Nothing that follows may begin before `release`."""
        ...

    def release(self) -> None:
        """Let it begin."""
        ...

    def write32(self, address: int, value: int) -> None:
        """Write four bytes, behind all writes before it."""
        ...

    def write64(self, address: int, value: int) -> None:
        """The same of eight."""
        ...

    def launch(self, kernel: Function, *arguments: Any) -> None:
        """One thread of a kernel, whose last parameter `status` is the stream's."""
        ...

    def finish(self) -> int:
        """Wait for the end of all; what a kernel reported, or zero."""
        ...


class CudaStream:
    """A stream of the current GPU. Until it is finished it keeps what its kernels use."""

    target = "gpu"

    def __init__(self) -> None:
        import cupy

        self._library = ctypes.CDLL("libcuda.so.1")
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._status = cupy.zeros(1, cupy.uint64)
        self._alive: list[object] = []
        self._memory = cupy.cuda.alloc_pinned_memory(8)
        self._gate = ctypes.c_uint32.from_address(self._memory.ptr)
        self._gate.value = self._opened = 0

    def _call(self, name: str, *arguments: Any) -> None:
        """Queue a memory operation, whose last argument are flags: zero, so it is ordered behind what came before."""
        code = int(getattr(self._library, name)(ctypes.c_void_p(self._stream.ptr), *arguments, ctypes.c_uint(0)))
        if code:
            raise CudaError(name, code, "CUresult", "this driver may have no stream memory operations")

    def hold(self) -> None:
        """By a word in host memory that is still too small (flag zero: at least)."""
        self._opened += 1
        gate = ctypes.c_uint64(ctypes.addressof(self._gate))
        self._call("cuStreamWaitValue32_v2", gate, ctypes.c_uint32(self._opened))

    def release(self) -> None:
        """Write it."""
        self._gate.value = self._opened

    def write32(self, address: int, value: int) -> None:
        """Of the record."""
        self._call("cuStreamWriteValue32_v2", ctypes.c_uint64(address), ctypes.c_uint32(value))

    def write64(self, address: int, value: int) -> None:
        """Of the register."""
        self._call("cuStreamWriteValue64_v2", ctypes.c_uint64(address), ctypes.c_uint64(value))

    def launch(self, kernel: Function, *arguments: Any) -> None:
        """In the stream itself, not in one of the package's own."""
        self._alive.append(kernel.enqueue(self._stream, 1, 1, *arguments, self._status))

    def finish(self) -> int:
        """Wait for the stream."""
        self._stream.synchronize()
        self._alive.clear()
        return int(self._status.get()[0])


class StreamTriggered:
    """Rings the requests of one queue pair from a stream. Raises UnavailableError where no kernel runs on a GPU."""

    def __init__(self, kernel: Kernel, queue: QueuePair, stream: Stream | None = None) -> None:
        if stream is None and kernel.target != "gpu":
            raise UnavailableError("only a GPU has streams that ring", "kernels run on the CPU here")
        self._kernel, self._queue = kernel, queue
        self._stream: Stream = stream or CudaStream()

    def _ring(self, handle: dict[str, Any], end: int) -> None:
        """The record, then the register."""
        counter = end % 65536
        if self._queue.has_record:
            record = formats.qp_doorbell_record.pack(send_counter=counter)[SEND_WORD : SEND_WORD + 4]
            self._stream.write32(int(handle["record"]), int.from_bytes(record, "little"))
        doorbell = formats.send_doorbell.pack(wqe_index=counter, qpn=self._queue.qpn)
        self._stream.write64(int(handle["doorbell"]), int.from_bytes(doorbell, "little"))

    def run(self, first: int, rounds: int, before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
        """Kernels gda_kernel_moments 0 to `rounds`, between them doorbells for one request more each, from `first` on.

        At most AT_ONCE rounds. `before` and `after` are the kernel's arguments on both sides of its number.
        """
        from gda.run.cuda import NicHelper

        stream, kernel = self._stream, self._kernel.gda_kernel_moments
        self._queue.__gda_argument__(stream.target)  # from here on the handle lies, and says, what that target needs
        handle = self._queue.read_handle()
        helper = NicHelper(0.0, 1.0)  # the NIC looks for doorbells all the time
        helper.begin()
        status = 0
        try:
            stream.hold()  # until all is queued: else Python's launches would be what is measured
            for number in range(rounds + 1):
                if number:
                    self._ring(handle, first + number)
                ticket = first + number if number else 0
                stream.launch(kernel, self._queue, ticket, *before, number, *after)
        finally:
            stream.release()  # also after a failure: nobody may wait for ever
            status = stream.finish()
            helper.end()
        if status:
            raise status_error(status, kernel.name)
