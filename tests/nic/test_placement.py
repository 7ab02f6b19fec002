# SPDX-License-Identifier: Apache-2.0
"""Placement without a GPU: words, defaults, slabs; and the pool of GPU memory with a stand-in for the driver."""

from __future__ import annotations

import ctypes
import errno
import itertools
import mmap
import os
from types import SimpleNamespace

import pytest

from gda import _cuda
from gda.errors import ArgumentError, UnavailableError, VerbsError
from gda.nic import placement
from gda.nic.gpu import Gpu, register_with_nic, use_gpu
from gda.nic.placement import HostSlab, choose

GPU = SimpleNamespace(device=0)


def test_words():
    assert choose(None, "host", None, "") == {"sq": "host", "cq": "host", "records": "host", "handle": "host"}
    assert choose("host", "gpu", GPU, "") == {"sq": "host", "cq": "host", "records": "host", "handle": "gpu"}
    assert choose("gpu", "host", GPU, "") == dict.fromkeys(placement.PARTS, "gpu")
    assert choose({"cq": "gpu"}, "host", GPU, "")["sq"] == "host"
    assert choose({"handle": "host"}, "gpu", GPU, "") == {"sq": "gpu", "cq": "gpu", "records": "gpu", "handle": "host"}
    with pytest.raises(UnavailableError, match="placement of sq in GPU memory: because of the test"):
        choose("gpu", "host", None, "because of the test")


def test_host_slab():
    slab = HostSlab(100, None)
    assert slab.bytes == mmap.PAGESIZE and slab.address % mmap.PAGESIZE == 0
    slab.write(10, b"abc")
    slab.fill(20, 2, 0xEE)
    assert slab.read(9, 5) == b"\0abc\0" and slab.read(19, 4) == b"\0\xee\xee\0"
    assert ctypes.string_at(slab.address + 10, 3) == b"abc"
    slab.close()
    slab.close()


def test_target_decides(monkeypatch):
    monkeypatch.setattr(_cuda, "available", lambda: (False, "no driver in this test"))
    assert use_gpu(0) == (None, "no driver in this test")
    monkeypatch.setenv("GDA_TARGET", "host")
    assert use_gpu(0) == (None, "GDA_TARGET=host")
    monkeypatch.setenv("GDA_TARGET", "gpu")
    with pytest.raises(UnavailableError, match="GDA_TARGET=gpu, but no driver in this test"):
        use_gpu(0)


def test_pool_gives_aligned_blocks_and_never_frees(monkeypatch):
    allocated = []

    def allocate(context, bytes):
        start = 0x7F00_0000_0100 + sum(allocated)
        allocated.append(bytes)
        return SimpleNamespace(address=start, bytes=bytes)

    monkeypatch.setattr(_cuda, "Context", lambda device: SimpleNamespace())
    monkeypatch.setattr(_cuda, "cuDeviceGetName", lambda device: "test")
    monkeypatch.setattr(_cuda, "cuMemAlloc", allocate)
    monkeypatch.setattr(_cuda, "cuPointerSetSyncMemops", lambda context, pointer: None)
    monkeypatch.setattr(_cuda, "cuMemHostRegister", lambda context, address, bytes, flags: None)
    gpu = Gpu(0)
    assert len(allocated) == 1, "the first chunk is there before any kernel waits"
    blocks = [gpu.take(bytes) for bytes in (1, 4096, 4097, 8192, 100_000)]
    assert [size for _, size in blocks] == [4096, 4096, 8192, 8192, 131072]
    assert all(address % 4096 == 0 for address, _ in blocks)
    spans = sorted((address, address + size) for address, size in blocks)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert len(allocated) == 1
    gpu.give(*blocks[2])
    assert gpu.take(5000) == blocks[2]
    large, size = gpu.take(5 << 20)
    assert size == 6 << 20 and large % 4096 == 0 and len(allocated) == 2


@pytest.mark.skipif(_cuda.available()[0], reason="not run: there is a GPU")
def test_without_driver_the_reason_is_said():
    works, reason = _cuda.available()
    assert not works and reason
    for call in (_cuda.cuDeviceGetCount, lambda: _cuda.Context(0), lambda: _cuda.cuPointerGetAttribute(2, 1)):
        with pytest.raises(UnavailableError, match="no usable GPU"):
            call()


def test_driver_objects_come_from_calls_only():
    for kind in (_cuda.HostRegistration, _cuda.Allocation):
        with pytest.raises(TypeError, match="come from"):
            kind()


def test_unknown_kind():
    with pytest.raises(ArgumentError, match="'tape' is not one of host, gpu"):
        placement.check_kind("tape", None, "")


@pytest.mark.parametrize("dmabuf_works", [True, False])
@pytest.mark.parametrize("address_works", [True, False])
def test_gpu_memory_is_registered_by_dmabuf_then_by_address(monkeypatch, dmabuf_works, address_works):
    exported = os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(_cuda, "cuMemGetHandleForAddressRange", lambda context, start, bytes: exported)

    def register(works: bool, call: str) -> str:
        if not works:
            raise VerbsError(call, errno.EFAULT)
        return call

    def attempt() -> str:
        return register_with_nic(
            SimpleNamespace(context=None), 4096, 8192, otherwise="try this",
            by_dmabuf=lambda fd: register(dmabuf_works and fd == exported, "by_dmabuf()"),
            by_address=lambda: register(address_works, "by_address()"),
        )  # fmt: skip

    if dmabuf_works or address_works:
        assert attempt() == ("by_dmabuf()" if dmabuf_works else "by_address()")
    else:
        with pytest.raises(UnavailableError, match=r"dma-buf: by_dmabuf\(\) fail.*address: by_address\(\) fail") as e:
            attempt()
        assert e.value.advice == "try this"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(exported)  # closed, whatever came of it
