# SPDX-License-Identifier: Apache-2.0
"""The GPU of an open NIC: its context, and pools of its memory and of pinned host memory.

Used by placement.py, memory.py and doorbell.py. The pools take memory from the driver in large pieces and never give it
back: cuMemFree and cuMemHostUnregister wait for running kernels, and a running kernel may be waiting for the NIC. The
first piece of each is there before any kernel runs.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from gda import _cuda, config
from gda.errors import CudaError, GdaError, UnavailableError, VerbsError
from gda.locks import Lock, when_free
from gda.once import once

__all__ = ["CHUNK_BYTES", "Gpu", "PinnedBlock", "anonymous_pages", "register_with_nic", "use_gpu"]

T = TypeVar("T")

CHUNK_BYTES = 2 << 20  # the GPU's large page: allocations below it waste the rest of one


class Pool:
    """Blocks of whole pages out of large pieces that `grow(bytes)` gives as (start, end)."""

    def __init__(self, grow: Callable[[int], tuple[int, int]]) -> None:
        self._grow = grow
        self._lock = Lock()
        self._free: dict[int, list[int]] = {}
        self._next, self._end = grow(CHUNK_BYTES)

    def take(self, bytes: int) -> tuple[int, int]:
        """(address, size) of a block of at least `bytes`, aligned to a page; contents are old."""
        size = max(mmap.PAGESIZE, 1 << (bytes - 1).bit_length())
        if size > CHUNK_BYTES:
            size = -(-bytes // CHUNK_BYTES) * CHUNK_BYTES
        with self._lock:
            if self._free.get(size):
                return self._free[size].pop(), size
            if self._end - self._next < size:
                start, end = self._grow(max(size, CHUNK_BYTES))
                if size >= CHUNK_BYTES:  # a piece of its own: small blocks go on with the old one
                    return start, size
                self._next, self._end = start, end
            address, self._next = self._next, self._next + size
            return address, size

    def give(self, address: int, size: int) -> None:
        """Take a block back for the next taker of its size."""
        with self._lock:
            self._free.setdefault(size, []).append(address)


@dataclass(frozen=True)
class PinnedBlock:
    """Pinned host memory: `gpu_address` is where kernels on the GPU find it.

    `view` shows the bytes; the block goes back to the pool with the last reference to it, that of an array included.
    """

    address: int
    bytes: int
    gpu_address: int
    view: ctypes.Array[ctypes.c_ubyte]


class Gpu:
    """One GPU of this process. There is one object a device; it lives as long as the process."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.context = _cuda.Context(device)
        self.name = _cuda.cuDeviceGetName(device)
        self._allocations: list[_cuda.Allocation] = []
        self._pinned: list[tuple[ctypes.Array[ctypes.c_ubyte], _cuda.HostRegistration]] = []
        self._memory = Pool(self._more_memory)
        self._host = Pool(self._more_pinned)

    def take(self, bytes: int) -> tuple[int, int]:
        """(address, size) of a block of GPU memory."""
        return self._memory.take(bytes)

    def give(self, address: int, size: int) -> None:
        """Take a block of GPU memory back."""
        self._memory.give(address, size)

    def take_pinned(self, bytes: int) -> PinnedBlock:
        """A block of host memory that kernels reach."""
        address, size = self._host.take(bytes)
        for pages, registration in self._pinned:
            offset = address - registration.address
            if 0 <= offset < registration.bytes:
                view = (ctypes.c_ubyte * size).from_buffer(pages, offset)
                weakref.finalize(view, when_free, partial(self._host.give, address, size)).atexit = False
                return PinnedBlock(address, size, registration.device_pointer + offset, view)
        raise AssertionError(f"block 0x{address:x} is in no piece of the pool")

    def pin(self, address: int, bytes: int) -> _cuda.HostRegistration:
        """Pin host memory that is not from the pool. Its close() waits for running kernels: gda.idle."""
        flags = _cuda.CU_MEMHOSTREGISTER_PORTABLE | _cuda.CU_MEMHOSTREGISTER_DEVICEMAP
        return _cuda.cuMemHostRegister(self.context, address, bytes, flags)

    @property
    def writes_ordering(self) -> int:
        """CU_GPU_DIRECT_RDMA_WRITES_ORDERING_*: who sees a NIC's writes in order without a flush."""
        return _cuda.cuDeviceGetAttribute(_cuda.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, self.device)

    def _more_memory(self, bytes: int) -> tuple[int, int]:
        allocation = _cuda.cuMemAlloc(self.context, bytes + mmap.PAGESIZE)
        _cuda.cuPointerSetSyncMemops(self.context, allocation.address)
        self._allocations.append(allocation)
        start = -(-allocation.address // mmap.PAGESIZE) * mmap.PAGESIZE
        return start, start + bytes

    def _more_pinned(self, bytes: int) -> tuple[int, int]:
        view = anonymous_pages(bytes)
        address = ctypes.addressof(view)
        self._pinned.append((view, self.pin(address, bytes)))
        return address, address + bytes


def anonymous_pages(bytes: int) -> ctypes.Array[ctypes.c_ubyte]:
    """Zeroed pages, unmapped with the last reference. Not inherited by forked children.

    A child's copy-on-write would move the parent's pages away from where the NIC writes.
    """
    pages = mmap.mmap(-1, bytes)
    pages.madvise(mmap.MADV_DONTFORK)
    return (ctypes.c_ubyte * bytes).from_buffer(pages)


@once
def _gpu(device: int) -> Gpu:
    return Gpu(device)


def use_gpu(device: int) -> tuple[Gpu | None, str]:
    """The GPU that device code will run on, or None and why: GDA_TARGET decides, "auto" takes one that works.

    Raises UnavailableError when GDA_TARGET=gpu and there is none.
    """
    target = config.get("GDA_TARGET")
    if target == "host":
        return None, "GDA_TARGET=host"
    works, reason = _cuda.available()
    if works:
        try:
            return _gpu(device), ""
        except CudaError as error:
            reason = error.message
    if target == "gpu":
        raise UnavailableError(f"GDA_TARGET=gpu, but {reason}", "unset GDA_TARGET to run device code on the CPU")
    return None, reason


def register_with_nic(
    gpu: Gpu, start: int, bytes: int, *, by_dmabuf: Callable[[int], T], by_address: Callable[[], T], otherwise: str
) -> T:
    """Let a real NIC reach whole pages of GPU memory: by dma-buf, else by address (nvidia-peermem's way).

    `by_dmabuf` gets the descriptor, which is closed when it returns. `otherwise` is what to try where neither works.
    """
    try:
        fd = _cuda.cuMemGetHandleForAddressRange(gpu.context, start, bytes)
        try:
            return by_dmabuf(fd)
        finally:
            os.close(fd)
    except GdaError as error:
        first = error
    try:
        return by_address()
    except VerbsError as second:
        raise UnavailableError(
            f"the NIC cannot reach this GPU memory: by dma-buf: {first.message}; by address: {second.message}",
            otherwise,
        ) from first
