# SPDX-License-Identifier: Apache-2.0
"""Arguments are refused before anything runs, by kernel, position and parameter."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from gda.errors import ArgumentError, ClosedError
from gda.run import Kernel
from gda.run.arguments import pack
from gda.run.source import read

TEXT = r"""
#include <gda/gda.h>
typedef unsigned long word_t;
using real = double;
enum color { RED, GREEN };
struct point { int x, y; };
GDA_KERNEL(scalars)(bool b, char c, int8_t i8, uint8_t u8, short s, uint16_t u16, int i, uint32_t u32, long long ll,
                    uint64_t u64, float f, double d, word_t w, real r, color e, double* out) {
    double all[] = {double(b), double(c), double(i8), double(u8), double(s), double(u16), double(i), double(u32),
                    double(ll), double(u64), f, d, double(w), r, double(e)};
    for (int n = 0; n < 15; n++) out[n] = all[n];
}
GDA_KERNEL(by_value)(point p, int* out) { out[0] = p.x; out[1] = p.y; }
GDA_KERNEL(floats)(const float* in, float* out, int n) { for (int i = 0; i < n; i++) out[i] = in[i]; }
GDA_KERNEL(anything)(const void* p, uint64_t* out) { out[0] = reinterpret_cast<uint64_t>(p); }
GDA_KERNEL(put_arguments)(gda_qp* qp, gda_mr mr, uint64_t* out) { out[0] = mr.bytes; out[1] = qp != nullptr; }
GDA_KERNEL(one)(uint8_t value, uint64_t* out) { out[0] = value; }
"""


@pytest.fixture(scope="module")
def k() -> Kernel:
    return Kernel(TEXT, target="host")


def test_every_scalar(k: Kernel) -> None:
    values = [True, 65, -128, 255, -32768, 65535, -(1 << 31), (1 << 32) - 1, -(1 << 40), 1 << 50, 0.5, 0.25, 7, 1.75, 1]
    out = np.zeros(15)
    k.scalars[1, 1](*values, out)
    assert list(out) == [float(v) for v in values]
    k.scalars[1, 1](*[np.int64(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values], out)
    assert list(out) == [float(v) for v in values]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (256, "256 is outside 0..255"),
        (-1, "-1 is outside 0..255"),
        (1.0, r"1.0 \(float\) is not an int"),
        ("1", "not an int"),
        (None, "None"),
        (np.float32(1), "not an int"),
        (np.zeros(1), "not an int"),
        (b"1", "not an int"),
    ],
)
def test_scalar_refused(k: Kernel, value: object, why: str) -> None:
    with pytest.raises(ArgumentError, match=rf"kernel one, argument 0 \(uint8_t value\).*{why}"):
        k.one[1, 1](value, np.zeros(1, np.uint64))


def test_float_range(k: Kernel) -> None:
    kernel = read("__global__ void f(float x, bool b) {}").kernels["f"]
    assert pack(kernel, (1, False), "host", {}).values == [struct.pack("<f", 1), b"\0"]
    for values, why in (((1e300, False), "does not fit"), (("x", False), "no number"), ((1.0, 1), "True or False")):
        with pytest.raises(ArgumentError, match=why):
            pack(kernel, values, "host", {})


def test_wrong_number(k: Kernel) -> None:
    with pytest.raises(ArgumentError, match=r"takes 2 arguments \(uint8_t value, uint64_t\* out\), not 1"):
        k.one[1, 1](1)


def test_structure_by_value(k: Kernel) -> None:
    out = np.zeros(2, np.int32)
    k.by_value[1, 1](struct.pack("<ii", 3, -4), out)
    assert list(out) == [3, -4]

    class Point(ctypes.Structure):
        _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_int)]

    k.by_value[1, 1](Point(5, 6), out)
    assert list(out) == [5, 6]
    with pytest.raises(ArgumentError, match="a point has 8 bytes, not 4"):
        k.by_value[1, 1](b"1234", out)
    with pytest.raises(ArgumentError, match="a int cannot be a point"):
        k.by_value[1, 1](5, out)


def test_arrays(k: Kernel) -> None:
    values = np.arange(4, dtype=np.float32)
    out = np.zeros(4, np.float32)
    k.floats[1, 1](values, out, 4)
    assert (out == values).all()
    values.flags.writeable = False
    k.floats[1, 1](values, out, 4)
    with pytest.raises(ArgumentError, match=r"argument 1 \(float\* out\).*read-only"):
        k.floats[1, 1](out, values, 4)
    with pytest.raises(ArgumentError, match=r"elements of float64, the parameter points to float.*\n.*dtype=float32"):
        k.floats[1, 1](np.zeros(4), out, 4)
    with pytest.raises(ArgumentError, match="elements of int32"):
        k.floats[1, 1](np.zeros(4, np.int32), out, 4)
    with pytest.raises(ArgumentError, match="not contiguous"):
        k.floats[1, 1](np.zeros(8, np.float32)[::2], out, 4)
    with pytest.raises(ArgumentError, match="not contiguous"):
        k.floats[1, 1](np.zeros((4, 4), np.float32).T, out, 4)
    for wrong in (5, 1.0, "text", [1.0], object()):
        with pytest.raises(ArgumentError, match="argument 0"):
            k.floats[1, 1](wrong, out, 4)
    with pytest.raises(ArgumentError, match=r"None\n.*c_void_p\(None\)"):
        k.floats[1, 1](None, out, 4)


def test_bytes_and_addresses(k: Kernel) -> None:
    out = np.zeros(1, np.uint64)
    data = bytearray(b"12345678")
    k.anything[1, 1](data, out)
    assert ctypes.string_at(int(out[0]), 8) == b"12345678"
    k.anything[1, 1](b"read only", out)
    k.anything[1, 1](ctypes.c_void_p(0x1000), out)
    assert out[0] == 0x1000
    k.anything[1, 1](ctypes.c_void_p(None), out)
    assert out[0] == 0


class Fake:
    """Something of another layer that can be an argument."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data = name, data

    def __gda_argument__(self, target: str) -> tuple[str, bytes]:
        if target != "host":
            raise ClosedError("not on this target")
        return self.name, self.data


def test_protocol(k: Kernel) -> None:
    region = Fake("gda_mr", struct.pack("<QQIIII", 1, 77, 0, 0, 0, 0))
    queue = Fake("gda_qp*", (0x1000).to_bytes(8, "little"))
    out = np.zeros(2, np.uint64)
    k.put_arguments[1, 1](queue, region, out)
    assert list(out) == [77, 1]
    with pytest.raises(ArgumentError, match=r"a Fake is a gda_mr, the parameter a gda_qp\*"):
        k.put_arguments[1, 1](region, region, out)
    with pytest.raises(ArgumentError, match=r"argument 1 .*a Fake is a gda_qp\*, the parameter a gda_mr"):
        k.put_arguments[1, 1](queue, queue, out)
    with pytest.raises(ArgumentError, match="a ndarray cannot be a gda_mr"):
        k.put_arguments[1, 1](queue, np.zeros(32, np.uint8), out)


def test_protocol_errors_pass_through() -> None:
    kernel = read("__global__ void f(gda_mr m) {}").kernels["f"]
    with pytest.raises(ClosedError, match="not on this target"):
        pack(kernel, (Fake("gda_mr", bytes(32)),), "gpu", {})


class OnGpu:
    def __init__(self, **changes: object) -> None:
        self.__cuda_array_interface__ = {
            "shape": (4,), "typestr": "<f4", "data": (0x7F0000000000, False), "strides": None, "version": 3, **changes,
        }  # fmt: skip


def test_arrays_on_a_gpu() -> None:
    kernel = read("__global__ void f(float* x) {}").kernels["f"]
    assert pack(kernel, (OnGpu(),), "gpu", {}).values == [(0x7F0000000000).to_bytes(8, "little")]
    for value, target, why in (
        (np.zeros(4, np.float32), "gpu", "lies in CPU memory.*\n.*cupy.asarray"),
        (OnGpu(), "host", "lies in GPU memory.*\n.*NumPy"),
        (OnGpu(typestr="<f8"), "gpu", "float64"),
        (OnGpu(data=(1, True)), "gpu", "read-only"),
        (OnGpu(strides=(8,)), "gpu", "not contiguous"),
    ):
        with pytest.raises(ArgumentError, match=why):
            pack(kernel, (value,), target, {})


class OnlyDlpack:
    """As a torch tensor on the CPU; `refusal` is what it says when it is asked for its memory."""

    def __init__(self, array: np.ndarray, refusal: Exception | None = None) -> None:
        self.array, self.refusal = array, refusal

    def __dlpack__(self, **options: object) -> object:
        if self.refusal is not None:
            raise self.refusal
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_arrays_that_offer_only_dlpack() -> None:
    kernel = read("__global__ void f(float* x) {}").kernels["f"]
    array = np.zeros(4, np.float32)
    assert pack(kernel, (OnlyDlpack(array),), "host", {}).values == [array.ctypes.data.to_bytes(8, "little")]
    no_gradient = BufferError("tensors that require gradient cannot be exported\nand more")
    for value, target, why in (
        (OnlyDlpack(array), "gpu", "lies in CPU memory"),
        (OnlyDlpack(np.zeros(4)), "host", "float64"),
        (OnlyDlpack(np.zeros(8, np.float32)[::2]), "host", "not contiguous"),
        (OnlyDlpack(array, no_gradient), "host", r"does not say where it lies: .* exported\n.*tensor\.detach\(\)"),
    ):
        with pytest.raises(ArgumentError, match=why):
            pack(kernel, (value,), target, {})


class Refuses:
    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        raise RuntimeError("requires grad")


def test_an_array_that_does_not_say_where_it_lies() -> None:
    kernel = read("__global__ void f(float* x) {}").kernels["f"]
    with pytest.raises(ArgumentError, match=r"requires grad\n.*detach"):
        pack(kernel, (Refuses(),), "gpu", {})


def test_arguments_live_until_the_end(k: Kernel) -> None:
    """An array made in the call must not be freed while the kernel runs."""
    text = (
        "#include <gda/gda.h>\nGDA_KERNEL(late)(int* go, const int* v, int* out) { while (!*go) ; out[0] = v[99999]; }"
    )
    kernel = Kernel(text, target="host")
    go, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    launch = kernel.late.start[1, 1](go, np.full(100_000, 7, np.int32), out)
    garbage = [np.full(100_000, 9, np.int32) for _ in range(20)]
    go[0] = 1
    launch.wait(10)
    assert out[0] == 7 and garbage
