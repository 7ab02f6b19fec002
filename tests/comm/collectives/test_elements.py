# SPDX-License-Identifier: Apache-2.0
"""What reductions compute with: the device's bits are NumPy's, for every type, operation and kind of value."""

from __future__ import annotations

import numpy as np
import pytest

import gda
from gda.comm.collectives.elements import ELEMENTS, OPERATIONS, combined, element_of
from gda.errors import ArgumentError

KERNEL = r"""
#include <gda/gda.h>
#include <gda/collectives/element.h>
template <class T, class Op> __global__ void combine(const void* a, const void* b, void* out, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        static_cast<T*>(out)[i] = Op::of(static_cast<const T*>(a)[i], static_cast<const T*>(b)[i]);
    }
}
GDA_KERNEL(widen)(uint32_t* halves, uint32_t* bfloats) {
    for (uint32_t i = 0; i < 65536; i++) {
        halves[i] = gda::target::bits_of(gda::target::float_of_half(static_cast<uint16_t>(i)));
        bfloats[i] = gda::target::bits_of(gda::target::float_of_bfloat16(static_cast<uint16_t>(i)));
    }
}
GDA_KERNEL(narrow)(const float* in, uint64_t count, uint16_t* halves, uint16_t* bfloats) {
    for (uint64_t i = 0; i < count; i++) {
        halves[i] = gda::target::half_of_float(in[i]);
        bfloats[i] = gda::target::bfloat16_of_float(in[i]);
    }
}
"""
NAMES = {(dtype, op): f"combine<{of[0]},gda_{op}>" for dtype, of in ELEMENTS.items() for op in OPERATIONS}


@pytest.fixture(scope="module")
def kernel() -> gda.Kernel:
    return gda.Kernel(KERNEL, target="host", names=tuple(NAMES.values()))


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def values(dtype: str, count: int, seed: int) -> np.ndarray:
    """Bits by chance, so NaNs, infinities, subnormal numbers and overflows are among them; then what is near zero."""
    chance = np.random.default_rng(seed)
    of = numpy_type(dtype)
    bits = chance.integers(0, 256, count * of.itemsize, np.uint8).view(of)
    bits[: count // 4] = bits[: count // 4] & 0 if of.kind in "iu" else 0
    return bits


def is_nan(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (array & 0x7FFF) > 0x7F80
    return np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_operations_have_numpys_bits(kernel, dtype: str, op: str) -> None:
    one, other = values(dtype, 4000, 1), values(dtype, 4000, 2)
    other[::7] = one[::7]
    out = np.zeros_like(one)
    kernel[NAMES[dtype, op]][1, 1](one, other, out, len(out))
    expected = combined(one, other, op, dtype)
    nan = is_nan(expected, dtype)
    assert (is_nan(out, dtype) == nan).all()
    if op in ("sum", "prod"):  # which NaN comes out of an addition is the processor's affair
        out, expected = out[~nan], expected[~nan]
    assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float64"])
def test_the_reference_is_numpys_own(dtype: str) -> None:
    one, other = values(dtype, 1000, 3), values(dtype, 1000, 4)
    with np.errstate(all="ignore"):
        for op, function in (("sum", np.add), ("prod", np.multiply), ("min", np.minimum), ("max", np.maximum)):
            ours, floats = combined(one, other, op, dtype), one.dtype.kind == "f"
            assert np.array_equal(ours, function(one, other), equal_nan=floats), op


def test_all_numbers_of_16_bits(kernel) -> None:
    halves, bfloats = np.zeros(65536, np.uint32), np.zeros(65536, np.uint32)
    kernel.widen[1, 1](halves, bfloats)
    bits = np.arange(65536, dtype=np.uint16)
    expected = bits.view(np.float16).astype(np.float32)
    same = np.isnan(expected) | (halves == expected.view(np.uint32))
    assert same.all() and np.isnan(halves.view(np.float32))[np.isnan(expected)].all()
    assert (bfloats >> 16 == bits).all() and not (bfloats & 0xFFFF).any()
    # And back: every one of them, what lies between two neighbours, and a step beside that; and bits by chance.
    near = expected[~np.isnan(expected)].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        middle = ((near[:-1] + near[1:]) / 2).astype(np.float32)
        beside = [np.nextafter(middle, np.float32(to)) for to in (9e9, 0)]
        chance = np.random.default_rng(5).integers(0, 2**32, 100000, np.uint32).view(np.float32)
        limits = np.array([65504, 65519.99, 65520, 1e-8, 2.0**-25, 5.9e-8], np.float32)
        many = np.concatenate([expected, middle, *beside, chance, limits])
        wanted = many.astype(np.float16)
    back, short = np.zeros(len(many), np.uint16), np.zeros(len(many), np.uint16)
    kernel.narrow[1, 1](many, len(many), back, short)
    nan = np.isnan(many)
    assert (back[~nan] == wanted.view(np.uint16)[~nan]).all() and np.isnan(back[nan].view(np.float16)).all()
    # bfloat16: nearest of the two floats whose lower half is zero, to even.
    low = many[~nan].view(np.uint32).astype(np.uint64)
    rounded = (low + 0x7FFF + (low >> 16 & 1)) >> 16
    assert (short[~nan] == rounded).all() and is_nan(short[nan], "bfloat16").all()


def test_what_has_no_type_is_refused() -> None:
    assert element_of(np.zeros(1, np.float16), None) == "float16"
    assert element_of(np.zeros(1, np.uint16), "bfloat16") == "bfloat16"
    for array, dtype in ((np.zeros(1, complex), None), (bytearray(8), None), (np.zeros(1), "int7")):
        with pytest.raises(ArgumentError, match="is not one of int8"):
            element_of(array, dtype)
    with pytest.raises(ArgumentError, match="has elements of 8 bytes, float32 has 4"):
        element_of(np.zeros(1), "float32")


@pytest.mark.parametrize("held, name", [("float32", "int32"), ("int32", "float32"), ("float16", "bfloat16")])
def test_elements_are_not_taken_for_others(held: str, name: str) -> None:
    """The sums had been those of the bits."""
    with pytest.raises(ArgumentError, match=f"an array of {held} would be taken for {name}, bit by bit"):
        element_of(np.zeros(4, held), name)
    assert element_of(np.zeros(4, f"uint{8 * np.dtype(held).itemsize}"), name) == name  # whose bits may be any
    assert element_of(np.zeros(4, np.int32), "uint32") == "uint32"
