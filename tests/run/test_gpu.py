# SPDX-License-Identifier: Apache-2.0
"""Kernels on a GPU: what the CPU tests cannot show. The tier `gpu`."""

from __future__ import annotations

import ctypes
import struct
import time

import numpy as np
import pytest

from gda.errors import ArgumentError, CompileError, CompletionError, CudaError, DeadlineError
from gda.run import Kernel

pytestmark = pytest.mark.gpu

TEXT = r"""
#include <gda/gda.h>
struct point { int x, y; };
__global__ void add(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] += a[i];
}
template <class T> __global__ void scale(T* v, T by) { v[threadIdx.x] *= by; }
GDA_KERNEL(by_value)(point p, bool flag, double d, int* out) { out[0] = p.x; out[1] = p.y; out[2] = flag; out[3] = d; }
GDA_KERNEL(report)(uint64_t word, gda_status* status) { gda_report(status, word); }
GDA_KERNEL(dynamic)(int n, int* out) {
    extern __shared__ int s[];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) for (int i = 0; i < n; i++) out[0] += s[i];
}
GDA_KERNEL(hold)(const uint64_t* flag) {
    uint64_t start = gda_now_ns();
    while (*(volatile const uint64_t*)flag == 0 && gda_now_ns() - start < GDA_S(8)) { }
}
GDA_KERNEL(converged)(uint32_t* out) {
    gda::target::group g = gda::target::converged_group(out);
    out[threadIdx.x] = g.size * 100 + g.rank;
}
"""


@pytest.fixture(scope="module")
def k() -> Kernel:
    return Kernel(TEXT, target="gpu", names=("scale<float>", "scale<int>"))


def test_arrays(k: Kernel) -> None:
    import cupy

    a, b = cupy.arange(1000, dtype=cupy.float32), cupy.ones(1000, dtype=cupy.float32)
    k.add[8, 128](a, b, 1000)
    assert (b.get() == np.arange(1000) + 1).all()
    k["scale<float>"][1, 32](b, 2.0)
    assert (b.get()[:32] == 2 * (np.arange(32) + 1)).all()
    whole = cupy.arange(32, dtype=cupy.int32)
    k["scale<int>"][1, 32](whole, 3)
    assert (whole.get() == 3 * np.arange(32)).all()
    with pytest.raises(ArgumentError, match="CPU memory"):
        k.add[1, 1](np.zeros(4, np.float32), b, 4)


def test_values_and_their_sizes(k: Kernel) -> None:
    import cupy

    out = cupy.zeros(4, dtype=cupy.int32)
    k.by_value[1, 1](struct.pack("<ii", 3, -4), True, 5.0, out)
    assert out.get().tolist() == [3, -4, 1, 5]
    assert k._module.sizes("by_value") == [8, 1, 8, 8]
    with pytest.raises(ArgumentError, match="a point has 8 bytes, not 4"):
        k.by_value[1, 1](b"1234", True, 5.0, out)


def test_dynamic_shared_memory(k: Kernel) -> None:
    import cupy

    out = cupy.zeros(1, dtype=cupy.int32)
    k.dynamic[1, 256, 1024](256, out)
    assert int(out[0]) == 255 * 128
    k.dynamic[1, 256, 100 * 1024](256, out)
    assert int(out[0]) == 2 * 255 * 128
    with pytest.raises(CudaError):
        k.dynamic[1, 256, 1 << 20](256, out)


def test_status(k: Kernel) -> None:
    k.report[1, 1](0)
    with pytest.raises(CompletionError, match="remote access error"):
        k.report[1, 1](5 << 48 | 0x88 << 40 | 0x13 << 32 | 0x12 << 8 | 1)
    k.report[1, 1](0)


def test_compile_error_in_the_users_line() -> None:
    with pytest.raises(CompileError) as caught:
        Kernel("#include <gda/gda.h>\n\nGDA_KERNEL(k)(int n) {\n    nonsense;\n}\n", target="gpu")
    assert "<kernel>(4)" in caught.value.log


def test_deadline_and_other_kernels_meanwhile(k: Kernel) -> None:
    """A kernel that holds on does not hold up the launch, the end or the status of others."""
    import cupy

    memory = cupy.cuda.alloc_pinned_memory(8)
    flag = ctypes.c_uint64.from_address(memory.ptr)
    flag.value = 0
    launch = k.hold.start[1, 1](ctypes.c_void_p(memory.ptr))
    try:
        assert not launch.done()
        begin = time.monotonic()
        k.report[1, 1](0)
        with pytest.raises(CompletionError):
            k.report[1, 1](1)
        assert time.monotonic() - begin < 2
        with pytest.raises(DeadlineError, match=r"did not end within 0.2 s"):
            launch.wait(0.2)
    finally:
        flag.value = 1
    end = time.monotonic() + 5
    from gda.run import cuda

    while cuda._under_way and time.monotonic() < end:
        k.report[1, 1](0)
    assert not cuda._under_way


def test_what_was_queued_before_comes_first(k: Kernel) -> None:
    """The arrays of a launch are filled on CuPy's stream, which the launch's own does not know by itself."""
    import cupy

    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            a = cupy.zeros(1 << 26, dtype=cupy.float32)
            for _ in range(20):
                a += 1
            b = cupy.zeros(1000, dtype=cupy.float32)
            k.add[8, 128](a[-1000:], b, 1000)
            assert (b.get() == 20).all()


def test_lanes_find_each_other(k: Kernel) -> None:
    import cupy

    out = cupy.zeros(32, dtype=cupy.uint32)
    k.converged[1, 32](out)
    assert out.get().tolist() == [3200 + lane for lane in range(32)]
