# SPDX-License-Identifier: Apache-2.0
"""Doorbells that a CUDA stream rings: writes of the record and of the register, in order behind a kernel.

Used by triggers.py. The work request lies in the ring already; no thread of the CPU and none of the GPU is needed
between the kernel that decides and the doorbell. Source: CUDA Driver API, "Stream Memory Operations".
"""

from __future__ import annotations

import ctypes
from typing import Any

from gda import formats
from gda.errors import CudaError, UnavailableError
from gda.nic import QueuePair
from gda.nic.rings import SEND_WORD
from gda.run import Kernel
from gda.run.status import status_error

__all__ = ["AT_ONCE", "StreamTriggered"]

AT_ONCE = 64  # rounds that lie in the stream before it may begin


class StreamTriggered:
    """Rings the requests of one queue pair from a stream. Raises UnavailableError where no kernel runs on a GPU."""

    def __init__(self, kernel: Kernel, queue: QueuePair) -> None:
        if kernel.target != "gpu":
            raise UnavailableError("only a GPU has streams that ring", "kernels run on the CPU here")
        import cupy

        self._kernel, self._queue = kernel, queue
        self._library = ctypes.CDLL("libcuda.so.1")
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._status = cupy.zeros(1, cupy.uint64)
        # A word that holds the stream back until all is queued: else Python's launches would be what is measured.
        self._memory = cupy.cuda.alloc_pinned_memory(8)
        self._gate = ctypes.c_uint32.from_address(self._memory.ptr)
        self._gate.value = self._opened = 0

    def _call(self, name: str, *arguments: Any) -> None:
        """Queue a memory operation, whose last argument are flags: zero, so it is ordered behind what came before."""
        code = int(getattr(self._library, name)(ctypes.c_void_p(self._stream.ptr), *arguments, ctypes.c_uint(0)))
        if code:
            raise CudaError(name, code, "CUresult", "this driver may have no stream memory operations")

    def _ring(self, handle: dict[str, Any], end: int) -> None:
        """The record, then the register; each write is behind all before it in the stream."""
        counter = end % 65536
        if self._queue.has_record:
            record = formats.qp_doorbell_record.pack(send_counter=counter)[SEND_WORD : SEND_WORD + 4]
            where = ctypes.c_uint64(int(handle["record"]))
            self._call("cuStreamWriteValue32_v2", where, ctypes.c_uint32(int.from_bytes(record, "little")))
        doorbell = formats.send_doorbell.pack(wqe_index=counter, qpn=self._queue.qpn)
        where = ctypes.c_uint64(int(handle["doorbell"]))
        self._call("cuStreamWriteValue64_v2", where, ctypes.c_uint64(int.from_bytes(doorbell, "little")))

    def run(self, first: int, rounds: int, before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
        """Kernels gda_kernel_moments 0 to `rounds`, between them doorbells for one request more each, from `first` on.

        At most AT_ONCE rounds. `before` and `after` are the kernel's arguments on both sides of its number.
        """
        from gda.run.cuda import NicHelper

        self._queue.__gda_argument__("gpu")  # the handle is where the GPU reads it
        handle = self._queue.read_handle()
        kernel = self._kernel.gda_kernel_moments
        helper = NicHelper(0.0, 1.0)  # the NIC looks for doorbells all the time
        alive: list[object] = []
        self._opened += 1
        helper.begin()
        try:
            gate = ctypes.c_uint64(ctypes.addressof(self._gate))
            self._call("cuStreamWaitValue32_v2", gate, ctypes.c_uint32(self._opened))
            for number in range(rounds + 1):
                if number:
                    self._ring(handle, first + number)
                ticket = first + number if number else 0
                alive.append(
                    kernel.enqueue(self._stream, 1, 1, self._queue, ticket, *before, number, *after, self._status)
                )
        finally:
            self._gate.value = self._opened  # also after a failure: nobody may wait for ever
            self._stream.synchronize()
            helper.end()
        if status := int(self._status.get()[0]):
            raise status_error(status, kernel.name)
