# SPDX-License-Identifier: Apache-2.0
"""What reductions compute with: cuda/gda/collectives/element.h, and the same in NumPy with the same bits.

Used by reduce.py. NumPy has no bfloat16: its arrays are uint16, named by dtype="bfloat16".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gda.errors import ArgumentError

__all__ = ["ELEMENTS", "OPERATIONS", "Array", "combined", "element_of"]

Array = npt.NDArray[Any]

# Name, its type in C++, bytes.
ELEMENTS = {
    **{f"{sign}int{8 * size}": (f"{sign}int{8 * size}_t", size) for sign in ("", "u") for size in (1, 2, 4, 8)},
    "float16": ("gda_half", 2),
    "bfloat16": ("gda_bfloat16", 2),
    "float32": ("float", 4),
    "float64": ("double", 8),
}
OPERATIONS = ("sum", "prod", "min", "max")


def element_of(array: Any, dtype: str | None) -> str:
    """The name in ELEMENTS: what `dtype` says, else what the array has (NumPy, CuPy, torch). Raises ArgumentError."""
    own = getattr(array, "dtype", None)
    name = str(own).removeprefix("torch.") if dtype is None else str(dtype)
    if name not in ELEMENTS:
        given = f"dtype={dtype!r}" if dtype is not None or own is None else f"the array's dtype, {name},"
        raise ArgumentError(f"{given} is not one of {', '.join(ELEMENTS)}", 'name it: dtype="float32", for example')
    if own is not None and getattr(own, "itemsize", ELEMENTS[name][1]) != ELEMENTS[name][1]:
        raise ArgumentError(f"an array of {own} has elements of {own.itemsize} bytes, {name} has {ELEMENTS[name][1]}")
    held = str(own).removeprefix("torch.")
    if held in ELEMENTS and held != name and not held.startswith("uint") and not (_is_whole(held) and _is_whole(name)):
        raise ArgumentError(
            f"an array of {held} would be taken for {name}, bit by bit",
            "convert it (array.astype); only arrays of unsigned integers may hold the bits of another type",
        )
    return name


def _is_whole(name: str) -> bool:
    return "int" in name


def _widened(values: Array) -> Array:
    return (values.astype(np.uint32) << 16).view(np.float32)


def _narrowed(values: Array) -> Array:
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, rounded).astype(np.uint16)


def combined(first: Array, second: Array, op: str, dtype: str) -> Array:
    """One element of the first and one of the second array, each: the operation of element.h."""
    if dtype == "bfloat16":
        one, other = _widened(first), _widened(second)
        if op in ("min", "max"):
            return np.where(_takes_first(one, other, op), first, second)
        with np.errstate(all="ignore"):
            return _narrowed(one + other if op == "sum" else one * other)
    if op in ("sum", "prod"):
        result: Array
        with np.errstate(all="ignore"):
            result = first + second if op == "sum" else first * second
        return result
    return np.where(_takes_first(first, second, op), first, second)


def _takes_first(first: Array, second: Array, op: str) -> Array:
    before: Array = first < second if op == "min" else second < first
    if first.dtype.kind != "f":
        return before
    return np.logical_or(before, np.isnan(first))  # of NaNs the first one stays
