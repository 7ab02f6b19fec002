# SPDX-License-Identifier: Apache-2.0
"""Registering and allocating memory: what is taken, what is refused, who keeps it alive."""

from __future__ import annotations

import gc
import mmap
import weakref

import numpy as np
import pytest
from arrays import OnlyDlpack
from hypothesis import given
from hypothesis import strategies as st

from gda import formats
from gda.errors import ArgumentError, ClosedError, CudaError, OutOfBoundsError, UnavailableError, VerbsError
from gda.nic import RemoteMemory
from gda.nic.placement import page_range

BUFFERS = {
    "numpy": lambda: np.arange(100, dtype=np.float32),
    "two dimensions": lambda: np.zeros((5, 7), np.int16),
    "fortran order": lambda: np.zeros((5, 7), np.int16, order="F"),
    "structured": lambda: np.zeros(3, dtype=[("a", "u1"), ("b", "f8")]),
    "bytearray": lambda: bytearray(33),
    "memoryview": lambda: memoryview(bytearray(33))[3:20],
    "mmap": lambda: mmap.mmap(-1, 4096),
    "one byte": lambda: bytearray(1),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_writable_buffers(nic, kind):
    buffer = BUFFERS[kind]()
    memory = nic.register(buffer)
    assert memory.bytes == memoryview(buffer).nbytes and not memory.is_gpu
    assert set(memory.access) == {"local_write", "remote_write", "remote_read", "remote_atomic"}
    assert memory.lkey and memory.rkey
    memory.write(memory.bytes - 1, b"\x5a")
    assert memory.read(memory.bytes - 1, 1) == b"\x5a"
    assert memory.array[-1] == 0x5A
    if kind == "numpy":
        assert memory.address == buffer.__array_interface__["data"][0]
    memory.close()


def test_read_only_buffers_may_be_read(nic):
    memory = nic.register(b"constant bytes")
    assert memory.access == ("remote_read",) and memory.is_readonly
    assert memory.read(0, 8) == b"constant"
    with pytest.raises(ArgumentError, match="read-only buffer"):
        memory.write(0, b"x")
    for right in ("local_write", "remote_write", "remote_atomic"):
        with pytest.raises(ArgumentError, match=f"read-only buffer cannot be registered for {right}"):
            nic.register(b"constant", access=(right,))


def test_rights_by_name(nic):
    assert set(nic.register(bytearray(8), access=("remote_write",)).access) == {"local_write", "remote_write"}
    assert nic.register(bytearray(8), access=()).access == ()
    with pytest.raises(ArgumentError, match=r"unknown access right 'write'(.|\n)*local_write"):
        nic.register(bytearray(8), access=("write",))


@pytest.mark.parametrize(
    ("buffer", "said"),
    [
        (bytearray(), "empty buffer"),
        (np.zeros((0, 4)), "empty buffer"),
        (np.zeros((8, 8))[:, ::2], "not contiguous"),
        (np.zeros(8)[::-1], "not contiguous"),
        (np.array([object(), None]), "array of Python objects"),
        (17, "int cannot be registered"),
        (None, "NoneType cannot be registered"),
        ("text", "str cannot be registered"),
        ([1, 2], "list cannot be registered"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_refused_before_anything_happens(nic, software, buffer, said):
    before = software.objects()
    with pytest.raises(ArgumentError, match=said):
        nic.register(buffer)
    assert software.objects() == before


def test_kept_alive_while_registered(nic):
    class Array(np.ndarray):
        pass

    array = np.zeros(64, np.uint8).view(Array)
    gone = weakref.ref(array)
    memory = nic.register(array)
    del array
    gc.collect()
    assert gone() is not None
    memory.close()
    gc.collect()
    assert gone() is None


def test_a_bytearray_cannot_be_resized_while_registered(nic):
    data = bytearray(64)
    memory = nic.register(data)
    with pytest.raises(BufferError):
        data.extend(b"more")
    memory.close()
    data.extend(b"more")


def test_same_buffer_twice(nic):
    data = np.zeros(64, np.uint8)
    first, second = nic.register(data), nic.register(data)
    assert first.rkey != second.rkey
    first.close()
    assert second.read(0, 1) == b"\0"


def test_allocated_memory(nic):
    memory = nic.allocate(5000)
    assert memory.bytes == 5000 and memory.address % mmap.PAGESIZE == 0 and not memory.is_gpu
    assert memory.read(0, 5000) == bytes(5000)
    array = memory.array
    assert array.shape == (5000,) and array.dtype == np.uint8
    array[7] = 3
    assert memory.read(7, 1) == b"\x03"
    memory.close()
    assert array[7] == 3  # the array keeps the pages
    with pytest.raises(ClosedError):
        memory.array


@pytest.mark.parametrize("bytes", [0, -1, 1.5, "8", None])
def test_bad_sizes(nic, bytes):
    with pytest.raises(ArgumentError, match="cannot allocate"):
        nic.allocate(bytes)


def test_bad_placements(nic):
    with pytest.raises(ArgumentError, match="'disk' is not one of host, gpu"):
        nic.allocate(8, "disk")
    if nic.gpu is None:
        with pytest.raises(UnavailableError, match=r"GPU memory: .+"):
            nic.allocate(8, "gpu")


def test_bounds(nic):
    memory = nic.allocate(100)
    assert memory.range(0, 100) == memory.address and memory.range(100, 0) == memory.address + 100
    for offset, bytes in ((0, 101), (100, 1), (-1, 1), (1, -1), (2**64, 1)):
        with pytest.raises(OutOfBoundsError, match="pass the end of a memory region of 100 bytes"):
            memory.range(offset, bytes)
    with pytest.raises(OutOfBoundsError):
        memory.write(99, b"ab")
    with pytest.raises(OutOfBoundsError):
        memory.read(0, 101)


def test_kernel_argument(nic):
    memory = nic.allocate(100)
    name, value = memory.__gda_argument__("host")
    assert name == "gda_mr"
    fields = formats.layouts["gda_mr"].unpack(value)
    assert (fields["addr"], fields["bytes"], fields["flags"]) == (memory.address, 100, 0)
    assert fields["lkey_be"].to_bytes(4, "little") == memory.lkey.to_bytes(4, "big")
    assert fields["rkey_be"].to_bytes(4, "little") == memory.rkey.to_bytes(4, "big")
    memory.close()
    with pytest.raises(ClosedError, match="memory region of 100 bytes has been closed"):
        memory.__gda_argument__("host")


def test_remote_memory_travels(nic):
    memory = nic.allocate(100)
    remote = RemoteMemory.from_bytes(memory.remote.to_bytes())
    assert remote == memory.remote == RemoteMemory(memory.address, 100, memory.rkey)
    fields = formats.layouts["gda_mr"].unpack(remote.__gda_argument__("gpu")[1])
    assert fields["rkey_be"].to_bytes(4, "little") == memory.rkey.to_bytes(4, "big") and fields["lkey_be"] == 0
    data = memory.remote.to_bytes()
    for wrong, said in ((data[:-1], "not 28"), (data + b"x", "not 30"), (b"x" * len(data), "no remote memory region")):
        with pytest.raises(ArgumentError, match=said):
            RemoteMemory.from_bytes(wrong)
    with pytest.raises(ArgumentError, match="changed on the way"):
        RemoteMemory.from_bytes(data[:10] + bytes([data[10] ^ 1]) + data[11:])


def test_relaxed_ordering_travels_with_the_memory(nic):
    rights = ("local_write", "remote_write", "remote_atomic")
    relaxed, strict = nic.allocate(64, access=(*rights, "relaxed_ordering")), nic.allocate(64, access=rights)
    assert relaxed.is_relaxed and not strict.is_relaxed
    for memory, flags in ((relaxed, formats.GDA_MR_RELAXED), (strict, 0)):
        for thing in (memory, memory.remote, RemoteMemory.from_bytes(memory.remote.to_bytes())):
            assert formats.layouts["gda_mr"].unpack(thing.__gda_argument__("host")[1])["flags"] == flags


@given(st.binary(max_size=60))
def test_foreign_bytes_are_no_remote_memory(data):
    with pytest.raises(ArgumentError):
        RemoteMemory.from_bytes(data)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_any_remote_memory_travels(address, bytes, rkey, flags):
    remote = RemoteMemory(address, bytes, rkey, bool(flags & 1), bool(flags & 2))
    assert RemoteMemory.from_bytes(remote.to_bytes()) == remote
    kind, argument = remote.__gda_argument__("host")
    fields = formats.layouts[kind].unpack(argument)
    assert (fields["addr"], fields["bytes"], fields["rkey_be"]) == (
        address, bytes, int.from_bytes(rkey.to_bytes(4, "big"), "little"),
    )  # fmt: skip
    assert fields["flags"] == flags


def test_unmapped_memory_leaves_nothing_behind(nic, software):
    class Lie:
        """Claims GPU memory, as an array whose owner has gone would."""

        __cuda_array_interface__ = {"shape": (4096,), "typestr": "|u1", "data": (0x1000, False), "version": 3}

    before = software.objects()
    with pytest.raises((UnavailableError, VerbsError, CudaError)):
        nic.register(Lie())
    assert software.objects() == before


def test_gpu_arrays_with_gaps_are_refused(nic):
    class Strided:
        __cuda_array_interface__ = {
            "shape": (4, 4), "typestr": "<f4", "data": (0x1000, False), "strides": (32, 4), "version": 3
        }  # fmt: skip

    with pytest.raises(ArgumentError, match=r"GPU array is not contiguous \(shape \(4, 4\), strides \(32, 4\) bytes\)"):
        nic.register(Strided())


def test_dlpack_on_the_cpu(nic):
    array = np.arange(12, dtype=np.float64)
    memory = nic.register(OnlyDlpack(array))
    assert (memory.address, memory.bytes) == (array.__array_interface__["data"][0], 96)
    with pytest.raises(ArgumentError, match="not contiguous"):
        nic.register(OnlyDlpack(np.zeros((4, 4))[:, ::2]))


def test_whole_pages_around_a_range():
    # A tensor at offset 0x12C200 of an allocation, 0x8000 bytes, with 4 KiB and with 64 KiB pages.
    assert page_range(0x12C200, 0x8000, 4096) == (0x12C000, 0x9000, 0x200)
    assert page_range(0x12C200, 0x8000, 65536) == (0x120000, 0x20000, 0xC200)
    assert page_range(0x1000, 0x1000, 4096) == (0x1000, 0x1000, 0)
