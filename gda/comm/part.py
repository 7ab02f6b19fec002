# SPDX-License-Identifier: Apache-2.0
"""Which bytes of a window an index means: window[2:5], window[:, 3]. Used by window.py; document: docs/programs.md.

A Part is one piece of memory or several of one length at equal distances, which is what one call of cuda/gda/strided.h
moves.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np

from gda.errors import ArgumentError, OutOfBoundsError

if TYPE_CHECKING:
    from gda.comm.window import Window

__all__ = ["Index", "Part", "pieces", "same_pieces"]

Index = int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]


@dataclass(frozen=True)
class Part:
    """`count` pieces of a window of `piece_bytes` each, the first at `offset`, `stride` bytes from one to the next.

    Made by window[...] and window.part(), which have checked that all of it lies in the window.
    """

    window: Window
    offset: int
    piece_bytes: int
    count: int = 1
    stride: int = 0

    @property
    def bytes(self) -> int:
        """Of all pieces together."""
        return self.piece_bytes * self.count


def pieces(shape: Sequence[int], strides: Sequence[int], item: int, index: Index) -> tuple[int, int, int, int]:
    """Offset, bytes of a piece, count and stride of what NumPy's basic indexing means in an array of that layout.

    In the order in which they lie in memory. Raises OutOfBoundsError for an index behind the end, ArgumentError for
    what is not such pieces.
    """
    steps = index if isinstance(index, tuple) else (index,)
    for one in steps:
        if one is not Ellipsis and not isinstance(one, slice) and (isinstance(one, bool) or not _is_index(one)):
            raise ArgumentError(f"window[...] takes whole numbers and slices, not {one!r}")
        if isinstance(one, slice):
            bounds = (one.start, one.stop, one.step)
            if not all(bound is None or _is_index(bound) for bound in bounds) or one.step == 0:
                raise ArgumentError(f"{one!r} is no slice of whole numbers, with a step from 1 on")
            if one.step is not None and operator.index(one.step) < 0:
                raise ArgumentError(f"a slice with step {one.step} goes backwards", "name pieces in ascending order")
    # An array of that layout without its memory: only where the elements lie is asked of it.
    layout = np.lib.stride_tricks.as_strided(np.empty(1, np.dtype((np.void, item))), shape, strides, writeable=False)
    try:
        part = layout[steps if any(one is Ellipsis for one in steps) else (*steps, ...)]  # never a copy of an element
    except IndexError as error:
        raise OutOfBoundsError(f"an index of a window of shape {tuple(shape)}: {error}") from error
    if part.size == 0:
        return 0, 0, 1, 0
    offset = part.__array_interface__["data"][0] - layout.__array_interface__["data"][0]
    length, outer = item, list[tuple[int, int]]()  # outer: stride and extent of what is not one piece
    for stride, extent in sorted(zip(part.strides, part.shape, strict=True)):
        if extent == 1:
            continue
        if not outer and stride == length:
            length *= extent
        elif outer and stride == math.prod(outer[-1]):
            outer[-1] = outer[-1][0], outer[-1][1] * extent
        else:
            outer.append((stride, extent))
    if len(outer) > 1:
        raise ArgumentError(
            f"that part has pieces at {len(outer)} distances ({', '.join(str(stride) for stride, _ in outer)} bytes)",
            "put its blocks one by one: each may be a slice with a step, or columns of a matrix",
        )
    stride, count = outer[0] if outer else (0, 1)
    return offset, length, count, stride


def same_pieces(there: Part, here: Part) -> tuple[int, int, int, int]:
    """Count, bytes of a piece, stride there and here, for a transfer between the two. Raises ArgumentError."""
    if there.bytes != here.bytes:
        raise ArgumentError(
            f"{here.bytes} bytes here, {there.bytes} bytes there",
            "name parts of one length: window.part(offset, bytes)",
        )
    if there.count == 1:  # one piece can be seen as many
        return here.count, here.piece_bytes, here.piece_bytes, here.stride or here.piece_bytes
    if here.count == 1:
        return there.count, there.piece_bytes, there.stride, there.piece_bytes
    if there.piece_bytes != here.piece_bytes:
        raise ArgumentError(
            f"pieces of {here.piece_bytes} bytes here, of {there.piece_bytes} bytes there",
            "one side must be in one piece, or both have pieces of one length",
        )
    return there.count, there.piece_bytes, there.stride, here.stride


def _is_index(one: object) -> bool:
    try:
        operator.index(one)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True
