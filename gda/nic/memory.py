# SPDX-License-Identifier: Apache-2.0
"""Registered memory: what a NIC may read and write, by keys. Made by Nic.register and Nic.allocate.

Host memory comes from anything with the buffer protocol (or DLPack on the CPU), GPU memory from anything with
__cuda_array_interface__ or DLPack. The buffer's owner is kept alive until close(). GPU memory is registered by
dma-buf with a real NIC and by address (nvidia-peermem's way) otherwise and with the software NIC.
"""

from __future__ import annotations

import builtins
import ctypes
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gda import _cuda, _verbs, formats, notes
from gda.errors import ArgumentError, GdaError, OutOfBoundsError, UnavailableError
from gda.nic import lint
from gda.nic.gpu import Gpu, register_with_nic
from gda.nic.lifetime import Owner, Resources, working
from gda.nic.placement import HostSlab, check_kind, make_slab, page_range
from gda.nic.remote import RemoteMemory, flags_of, key_in_memory
from gda.nic.shared import Range, allocation_around

if TYPE_CHECKING:
    from gda.nic.device import Nic

__all__ = ["ACCESS", "Memory"]

# Rights by name; local reading is always there.
ACCESS = {
    "local_write": _verbs.IBV_ACCESS_LOCAL_WRITE,
    "remote_write": _verbs.IBV_ACCESS_REMOTE_WRITE,
    "remote_read": _verbs.IBV_ACCESS_REMOTE_READ,
    "remote_atomic": _verbs.IBV_ACCESS_REMOTE_ATOMIC,
    "relaxed_ordering": _verbs.IBV_ACCESS_RELAXED_ORDERING,
}
_WRITES = ("local_write", "remote_write", "remote_atomic")
_KDL_CPU, _KDL_CUDA, _KDL_CUDA_HOST, _KDL_CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType of dlpack.h


class Memory(Owner):
    """A registered memory region, made by Nic.register or Nic.allocate; it ends with close(), or with its Nic.

    `address` and `bytes` say where it lies, `lkey` and `rkey` are its keys (host byte order), `is_gpu` where, `access`
    the names of its rights; `shape` and `strides` (bytes) are those of the array that was registered. Fits as a kernel
    argument `gda_mr`. Rights are "local_write", "remote_write", "remote_read", "remote_atomic" and "relaxed_ordering"
    (no right: what is written may be seen out of order); reading from here is always allowed. For allocated host memory
    `array` shows the bytes. `raw` is the MR of gda._verbs.
    """

    def __init__(
        self, nic: Nic, found: _Found, access: Iterable[str] | None, resources: Resources, whole: Range | None = None
    ) -> None:
        self._own(resources)
        try:
            self.nic = nic
            self.address, self.bytes, self.is_gpu = found.address, found.bytes, found.is_gpu
            self.is_readonly = found.is_readonly
            self.shape, self.strides = found.shape or (found.bytes,), found.strides or (1,)
            limits = lint.limits_of(nic.context)
            self.access = _rights(access, found, limits.has_atomics)
            lint.check(limits, length=found.bytes)
            lint.check_access(limits, "access", sum(ACCESS[name] for name in self.access))
            self._owners = [found.owner]  # keep the memory alive while it is registered
            resources.callback(self._owners.clear)
            self.raw = region = _region(nic, found, sum(ACCESS[name] for name in self.access), whole, resources)
            self.lkey, self.rkey = region.lkey, region.rkey
            notes.note("REGISTER", f"{self.bytes} bytes at 0x{self.address:x}", bytes=self.bytes, index=self.rkey)
        except BaseException:
            resources.close()
            raise

    @classmethod
    def register(cls, nic: Nic, buffer: Any, access: Iterable[str] | None = None, *, shared: bool = False) -> Memory:
        """See Nic.register."""
        nic._resources.check()
        found = _find(buffer)
        if found.bytes == 0:
            raise ArgumentError("an empty buffer cannot be registered", "register at least one byte")
        whole = None
        if shared:
            whole = allocation_around(buffer, found.address, found.bytes, _used_gpu(nic) if found.is_gpu else None)
        return cls(nic, found, access, Resources(f"memory region of {found.bytes} bytes", nic._resources), whole)

    @classmethod
    def allocate(cls, nic: Nic, bytes: int, placement: str = "host", access: Iterable[str] | None = None) -> Memory:
        """See Nic.allocate."""
        nic._resources.check()
        if not isinstance(bytes, int) or bytes <= 0:
            raise ArgumentError(f"cannot allocate {bytes!r} bytes", "a whole number of at least 1")
        check_kind(placement, nic.gpu, nic.no_gpu_reason)
        resources = Resources(f"memory region of {bytes} bytes", nic._resources)
        try:
            slab = make_slab(placement, bytes, nic.gpu)
        except BaseException as error:
            resources.close()
            if isinstance(error, OverflowError | MemoryError | OSError) and not isinstance(error, GdaError):
                raise UnavailableError(
                    f"cannot allocate {bytes} bytes of {placement} memory: {error}", "allocate less"
                ) from error
            raise
        resources.callback(slab.close)
        owner = slab.view if isinstance(slab, HostSlab) else slab
        found = _Found(slab.address, bytes, slab.kind == "gpu", False, owner)
        return cls(nic, found, access, resources)

    def __repr__(self) -> str:
        where = "GPU" if self.is_gpu else "host"
        return f"<Memory {self.bytes} bytes at 0x{self.address:x} in {where} memory, rkey 0x{self.rkey:x}>"

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The bytes as a NumPy array that shares this memory. Host memory only."""
        self._resources.check()
        if self.is_gpu:
            raise ArgumentError("this memory lies on the GPU", "cupy.asarray(memory) shows it as a CuPy array")
        return np.frombuffer(self._owners[0], dtype=np.uint8, count=self.bytes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self.is_gpu:
            raise AttributeError("memory in host memory has no __cuda_array_interface__")
        self._resources.check()
        return {"shape": (self.bytes,), "typestr": "|u1", "data": (self.address, False), "strides": None, "version": 3}

    @property
    def remote(self) -> RemoteMemory:
        """What another process needs to reach this memory."""
        self._resources.check()
        return RemoteMemory(self.address, self.bytes, self.rkey, self.is_gpu, self.is_relaxed)

    @property
    def users(self) -> int:
        """How many memories use its region: 1, or those of one allocation that were registered with shared=True."""
        self._resources.check()
        return self.nic.shared_regions.users(self.raw) or 1

    @property
    def is_relaxed(self) -> bool:
        """Whether what is written here may be seen before earlier writes: no place for signals."""
        return "relaxed_ordering" in self.access

    @working
    def read(self, offset: int, bytes: int) -> builtins.bytes:
        """Copy bytes out, from host or GPU memory. Raises OutOfBoundsError."""
        address = self.range(offset, bytes)
        if not self.is_gpu:
            return ctypes.string_at(address, bytes)
        return _cuda.cuMemcpyDtoH(_used_gpu(self.nic).context, address, bytes)

    @working
    def write(self, offset: int, data: builtins.bytes | bytearray | memoryview) -> None:
        """Copy bytes in, to host or GPU memory. Raises OutOfBoundsError, and ArgumentError for read-only memory."""
        data = builtins.bytes(data)
        address = self.range(offset, len(data))
        if self.is_readonly:
            raise ArgumentError("this memory was registered from a read-only buffer", "register a writable copy")
        if self.is_gpu:
            _cuda.cuMemcpyHtoD(_used_gpu(self.nic).context, address, data)
        else:
            ctypes.memmove(address, data, len(data))

    def range(self, offset: int, bytes: int) -> int:
        """Address of a part. Raises OutOfBoundsError unless offset..offset+bytes lies inside."""
        self._resources.check()
        if offset < 0 or bytes < 0 or offset + bytes > self.bytes:
            raise OutOfBoundsError(
                f"offset {offset} + {bytes} bytes pass the end of a memory region of {self.bytes} bytes",
                advice="register more memory, or move less",
            )
        return self.address + offset

    def __gda_argument__(self, target: str) -> tuple[str, builtins.bytes]:
        """The kernel argument `gda_mr`, by value; the same on every target."""
        self._resources.check()
        layout = formats.layouts["gda_mr"]
        return "gda_mr", layout.pack(
            addr=self.address,
            bytes=self.bytes,
            lkey_be=key_in_memory(self.lkey),
            rkey_be=key_in_memory(self.rkey),
            flags=flags_of(self.is_gpu, self.is_relaxed),
        )


# ------------------------------------------------------------------------------------------------- what a buffer is
@dataclass(frozen=True)
class _Found:
    """A range of memory and the object that keeps it alive."""

    address: int
    bytes: int
    is_gpu: bool
    is_readonly: bool
    owner: Any
    shape: tuple[int, ...] = ()  # none: bytes
    strides: tuple[int, ...] = ()


def _find(buffer: Any) -> _Found:
    interface = getattr(buffer, "__cuda_array_interface__", None)
    if interface is not None:
        return _gpu_array(buffer, interface)
    try:
        view = memoryview(buffer)
    except (TypeError, ValueError) as error:  # ValueError: NumPy's, of dates, for which there is no format
        if hasattr(buffer, "__dlpack__") and isinstance(error, TypeError):
            return _dlpack(buffer)
        raise ArgumentError(
            f"{type(buffer).__name__} cannot be registered" + (f": {error}" if isinstance(error, ValueError) else ""),
            "give something with the buffer protocol (NumPy array, bytearray, mmap) or a GPU array (CuPy, torch)",
        ) from None
    if not view.contiguous:
        raise ArgumentError(
            f"the buffer is not contiguous (shape {view.shape}, strides {view.strides})",
            "register the whole array and name the part by offset, or make a copy with numpy.ascontiguousarray",
        )
    if "O" in view.format:
        raise ArgumentError(
            f"an array of Python objects (format {view.format!r}) holds pointers, which mean nothing to the NIC",
            "convert it to numbers: array.astype(numpy.float64)",
        )
    if view.nbytes == 0:
        return _Found(0, 0, False, view.readonly, view)
    # Fortran order is contiguous too: its transpose lies in memory in reading order.
    flat = np.frombuffer(view, np.uint8) if view.c_contiguous else np.asarray(view).T.reshape(-1).view(np.uint8)
    address = int(flat.__array_interface__["data"][0])
    return _Found(address, view.nbytes, False, view.readonly, flat, view.shape or (), view.strides or ())


def _gpu_array(buffer: Any, interface: dict[str, Any]) -> _Found:
    shape, (address, readonly) = tuple(interface["shape"]), interface["data"]
    item = np.dtype(interface["typestr"]).itemsize
    count = int(np.prod(shape, dtype=np.int64))
    _refuse_strides(shape, interface.get("strides"), item)
    return _Found(int(address or 0), count * item, True, bool(readonly), buffer, shape, _in_rows(shape, item))


def _refuse_strides(shape: tuple[int, ...], strides: tuple[int, ...] | None, item: int) -> None:
    expected = item
    for extent, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if extent > 1 and stride != expected:
            raise ArgumentError(
                f"the GPU array is not contiguous (shape {shape}, strides {strides} bytes)",
                "register the whole array and name the part by offset, or make a contiguous copy",
            )
        expected *= extent


def _in_rows(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Strides in bytes of a contiguous array."""
    return tuple(item * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


class _DlTensor(ctypes.Structure):
    """DLTensor of dlpack.h, the first member of DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


def _dlpack(buffer: Any) -> _Found:
    on_gpu = int(buffer.__dlpack_device__()[0]) in (_KDL_CUDA, _KDL_CUDA_MANAGED)
    # Stream -1: do not synchronize. By default the legacy stream would, which waits for kernels that wait.
    capsule = buffer.__dlpack__(stream=-1) if on_gpu else buffer.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _DlTensor.from_address(pointer(capsule, b"dltensor"))
    if tensor.device_type not in (_KDL_CPU, _KDL_CUDA, _KDL_CUDA_HOST, _KDL_CUDA_MANAGED):
        raise ArgumentError(f"{type(buffer).__name__} lies on a device of DLPack type {tensor.device_type}, not a GPU")
    item = tensor.bits * tensor.lanes // 8
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] * item for i in range(tensor.ndim)) if tensor.strides else None
    _refuse_strides(shape, strides, item)
    count = int(np.prod(shape, dtype=np.int64))
    address = int(tensor.data or 0) + int(tensor.byte_offset)
    is_gpu = tensor.device_type == _KDL_CUDA
    return _Found(address, count * item, is_gpu, False, (buffer, capsule), shape, _in_rows(shape, item))


# ------------------------------------------------------------------------------------------------------ registration
def _rights(access: Iterable[str] | None, found: _Found, has_atomics: bool) -> tuple[str, ...]:
    if access is None:
        if found.is_readonly:
            return ("remote_read",)
        atomics = ("remote_atomic",) if has_atomics else ()
        return ("local_write", "remote_write", "remote_read", *atomics)
    wanted = (access,) if isinstance(access, str) else tuple(access)
    for name in wanted:
        if name not in ACCESS:
            raise ArgumentError(f"unknown access right {name!r}", f"rights: {', '.join(ACCESS)}")
        if found.is_readonly and name in _WRITES:
            raise ArgumentError(
                f"a read-only buffer cannot be registered for {name}",
                "leave access out (it may then be the source of puts), or register a writable copy",
            )
    # The verbs specification: whoever lets others write must let the NIC write.
    implied = ("local_write",) if {"remote_write", "remote_atomic"} & set(wanted) else ()
    return tuple(dict.fromkeys((*implied, *wanted)))


def _region(nic: Nic, found: _Found, flags: int, whole: Range | None, resources: Resources) -> _verbs.MR:
    """A region of its own, or (in `whole`, its allocation) one that others may have made; freed by `resources`."""
    known, shared = nic.known_memory, nic.shared_regions

    def make() -> _verbs.MR:
        start, size = whole or (found.address, found.bytes)
        region = _register(nic, _Found(start, size, found.is_gpu, found.is_readonly, None), flags)
        region.is_mapped = not found.is_gpu
        known.add(region)
        return region

    def end() -> None:
        known.remove(region)
        region.close()

    if whole is None:
        region = make()
        resources.callback(end)
    else:
        lint.check(lint.limits_of(nic.context), length=whole[1])
        region = shared.take(whole, flags, found.is_gpu, make)
        resources.callback(lambda: shared.give(region, end))
    return region


def _register(nic: Nic, found: _Found, flags: int) -> _verbs.MR:
    if not found.is_gpu:
        return _verbs.ibv_reg_mr(nic.pd, found.address, found.bytes, flags)
    gpu = _used_gpu(nic)
    _cuda.cuPointerSetSyncMemops(gpu.context, found.address)
    start, bytes, offset = page_range(found.address, found.bytes)

    def by_address() -> _verbs.MR:
        return _verbs.ibv_reg_mr(nic.pd, found.address, found.bytes, flags)

    def by_dmabuf(fd: int) -> _verbs.MR:
        # iova = address, and offset has the same place within a page: ibv_reg_dmabuf_mr(3) demands it.
        return _verbs.ibv_reg_dmabuf_mr(nic.pd, offset, found.bytes, found.address, fd, flags)

    if nic.is_software:
        return by_address()
    otherwise = "use the open GPU kernel module (dma-buf), or load nvidia-peermem"
    return register_with_nic(gpu, start, bytes, by_dmabuf=by_dmabuf, by_address=by_address, otherwise=otherwise)


def _used_gpu(nic: Nic) -> Gpu:
    if nic.gpu is None:
        raise UnavailableError(f"this is GPU memory, but no GPU is in use here: {nic.no_gpu_reason}")
    return nic.gpu
