# SPDX-License-Identifier: Apache-2.0
"""Where the parts of a queue lie, and how CPU, GPU and NIC each reach them.

Used by memory.py, rings.py and handle.py. Parts: "sq" (send queue, and the receive queue before it), "cq" (completion
queue), "receive_cq" (of receives), "records" (doorbell records), "handle" (what kernels take). Each lies in "host" or
"gpu" memory. Host memory is whole pages and, where a GPU is in use, pinned and mapped for it.
"""

from __future__ import annotations

import builtins
import ctypes
import mmap
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial

from gda import _cuda, _verbs, idle
from gda.errors import ArgumentError, UnavailableError
from gda.nic.gpu import CHUNK_BYTES, Gpu, anonymous_pages, register_with_nic

__all__ = [
    "PARTS",
    "Gpu",
    "GpuSlab",
    "HostSlab",
    "Slab",
    "choose",
    "left_to_graphs",
    "make_slab",
    "page_range",
    "register_umem",
]

PARTS = ("sq", "cq", "records", "handle")
_OWN_WORD = ("receive_cq",)  # parts that follow another ("cq") unless a dict names them
KINDS = ("host", "gpu")


def choose(placement: str | Mapping[str, str] | None, default: str, gpu: Gpu | None, reason: str) -> dict[str, str]:
    """Kind of each part. A word places the rings and records; the handle follows the target unless a dict names it.

    Raises ArgumentError for unknown words, UnavailableError for "gpu" where there is none (`reason` says why).
    """
    target = "gpu" if gpu is not None else "host"
    if placement is None or isinstance(placement, str):
        wanted = dict.fromkeys(PARTS[:3], placement or default)
    elif isinstance(placement, Mapping):
        wanted = dict.fromkeys(PARTS[:3], default) | dict(placement)
    else:
        raise ArgumentError(f"placement is a word or a dict, not {placement!r}", 'placement="host", or {"cq": "gpu"}')
    for part, kind in wanted.items():
        if part not in PARTS + _OWN_WORD:
            raise ArgumentError(f"placement names an unknown part {part!r}", f"parts: {', '.join(PARTS + _OWN_WORD)}")
        check_kind(kind, gpu, reason, f"placement of {part}")
    return wanted | {"handle": wanted.get("handle", target)}


def check_kind(kind: str, gpu: Gpu | None, reason: str, what: str = "placement") -> None:
    """Refuse a kind that does not exist, or "gpu" without a GPU."""
    if kind not in KINDS:
        raise ArgumentError(f"{what}: {kind!r} is not one of {', '.join(KINDS)}")
    if kind == "gpu" and gpu is None:
        raise UnavailableError(f"{what} in GPU memory: {reason}", 'use placement="host"')


def page_range(address: int, bytes: int, page: int = mmap.PAGESIZE) -> tuple[int, int, int]:
    """Whole pages around a range: (start, bytes, offset of the range in them)."""
    start = address - address % page
    end = -(-(address + bytes) // page) * page
    return start, end - start, address - start


# --------------------------------------------------------------------------------------------------------------- slabs
class Slab(ABC):
    """A piece of memory of whole pages. `address` is what the NIC and, in the same process, the owner use."""

    kind: str
    address: int
    gpu_address: int  # as kernels on the GPU reach it; 0 if they cannot
    bytes: int

    @abstractmethod
    def read(self, offset: int, bytes: int) -> builtins.bytes:
        """Copy bytes out."""

    @abstractmethod
    def write(self, offset: int, data: builtins.bytes) -> None:
        """Copy bytes in."""

    @abstractmethod
    def fill(self, offset: int, bytes: int, value: int) -> None:
        """Set bytes."""

    @abstractmethod
    def close(self) -> None:
        """Give it back; again is no error."""


class HostSlab(Slab):
    """Zeroed pages; where a GPU is in use, pinned and mapped for it (from its pool, up to a large page)."""

    kind = "host"

    def __init__(self, bytes: int, gpu: Gpu | None) -> None:
        _, self.bytes, _ = page_range(0, bytes)
        self._pin: _cuda.HostRegistration | None = None
        self.view: ctypes.Array[ctypes.c_ubyte] | None
        if gpu is not None and self.bytes <= CHUNK_BYTES:
            block = gpu.take_pinned(self.bytes)
            self.view, self.address, self.gpu_address = block.view, block.address, block.gpu_address
            self.fill(0, self.bytes, 0)
            return
        self.view = anonymous_pages(self.bytes)
        self.address, self.gpu_address = ctypes.addressof(self.view), 0
        if gpu is not None:
            self._pin = gpu.pin(self.address, self.bytes)
            self.gpu_address = self._pin.device_pointer

    def read(self, offset: int, bytes: int) -> builtins.bytes:
        """Copy bytes out."""
        return ctypes.string_at(self.address + offset, bytes)

    def write(self, offset: int, data: builtins.bytes) -> None:
        """Copy bytes in."""
        ctypes.memmove(self.address + offset, data, len(data))

    def fill(self, offset: int, bytes: int, value: int) -> None:
        """Set bytes."""
        ctypes.memset(self.address + offset, value, bytes)

    def close(self) -> None:
        """Give the pages back, unless an array still shows them: then they go with the last array.

        What was pinned stays so, and stays there, as long as a kernel runs.
        """
        pin, view, self._pin, self.view = self._pin, self.view, None, None
        if pin is not None:
            idle.when_idle(partial(_unpin, pin, view))


def _unpin(pin: _cuda.HostRegistration, pages: object) -> None:
    pin.close()  # before the pages go


class GpuSlab(Slab):
    """A block of the GPU's pool."""

    kind = "gpu"

    def __init__(self, bytes: int, gpu: Gpu) -> None:
        self.gpu = gpu
        self.address, self.bytes = gpu.take(bytes)
        self.gpu_address = self.address
        self.fill(0, self.bytes, 0)

    def read(self, offset: int, bytes: int) -> builtins.bytes:
        """Copy bytes out."""
        return _cuda.cuMemcpyDtoH(self.gpu.context, self.address + offset, bytes)

    def write(self, offset: int, data: builtins.bytes) -> None:
        """Copy bytes in."""
        _cuda.cuMemcpyHtoD(self.gpu.context, self.address + offset, data)

    def fill(self, offset: int, bytes: int, value: int) -> None:
        """Set bytes. Copied, not set by a kernel: waiting kernels may fill the GPU."""
        self.write(offset, value.to_bytes(1, "little") * bytes)

    def close(self) -> None:
        """Give the block back to the pool."""
        if self.address:
            self.gpu.give(self.address, self.bytes)
            self.address = self.gpu_address = 0


# Memory of objects that were closed, whose addresses are in CUDA graphs: nothing else may lie there.
left_to_graphs: list[Slab] = []


def make_slab(kind: str, bytes: int, gpu: Gpu | None) -> Slab:
    """A zeroed slab of a kind that `choose` allowed."""
    return GpuSlab(bytes, gpu) if kind == "gpu" and gpu is not None else HostSlab(bytes, gpu)


def register_umem(context: _verbs.Context, slab: Slab, is_software: bool) -> _verbs.Umem:
    """Name a slab for firmware commands. GPU memory goes by dma-buf to a real NIC, else by address (peermem)."""
    access = _verbs.IBV_ACCESS_LOCAL_WRITE

    def by_address() -> _verbs.Umem:
        return _verbs.mlx5dv_devx_umem_reg(context, slab.address, slab.bytes, access)

    def by_dmabuf(fd: int) -> _verbs.Umem:
        return _verbs.mlx5dv_devx_umem_reg_ex(
            context, 0, slab.bytes, access,
            pgsz_bitmap=mmap.PAGESIZE, comp_mask=_verbs.MLX5DV_UMEM_MASK_DMABUF, dmabuf_fd=fd,
        )  # fmt: skip

    if is_software or not isinstance(slab, GpuSlab):
        return by_address()
    otherwise = 'place the queue in host memory (placement="host"), or load nvidia-peermem'
    return register_with_nic(
        slab.gpu, slab.address, slab.bytes, by_dmabuf=by_dmabuf, by_address=by_address, otherwise=otherwise
    )
