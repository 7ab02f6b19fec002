# SPDX-License-Identifier: Apache-2.0
"""Who sends which piece to whom in which step of a reduction. Used by reduce.py.

The same as cuda/gda/collectives/reduce_scatter.h and all_reduce.h, as data.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Step", "doubling", "pieces", "ring", "rounds_of", "share"]


@dataclass(frozen=True)
class Step:
    """What one rank does in one step: it may send a piece to a rank, and may receive one from a rank.

    `takes` says what becomes of what arrives: "result" replaces what was there; of a sum (or other operation) the
    first operand is what arrived ("arrived first") or what was there ("own first").
    """

    to: int | None = None
    sends: int = 0
    source: int | None = None
    receives: int = 0
    takes: str = ""


def pieces(count: int, size: int) -> list[slice]:
    """An array of `count` elements in `size` pieces that differ by one element at most."""
    return [slice(count * i // size, count * (i + 1) // size) for i in range(size)]


def share(piece: slice, channel: int, channels: int) -> slice:
    """What one of several channels carries of a piece."""
    part = pieces(piece.stop - piece.start, channels)[channel]
    return slice(piece.start + part.start, piece.start + part.stop)


def rounds_of(size: int) -> int:
    """Rounds of doubling: log2 of the largest power of two that is no more than size."""
    return size.bit_length() - 1


def ring(rank: int, size: int, *, gather: bool = True) -> list[Step]:
    """The reduce-scatter of a rank, and with `gather` what makes it an all-reduce. Pieces: pieces(count, size)."""
    right, left = (rank + 1) % size, (rank - 1) % size
    steps = [Step(right, (rank - k) % size, left, (rank - k - 1) % size, "arrived first") for k in range(1, size)]
    if gather:
        steps += [Step(right, (rank - k) % size, left, (rank - k - 1) % size, "result") for k in range(size - 1)]
    return steps


def doubling(rank: int, size: int) -> list[Step]:
    """The steps of a rank; there is one piece, the whole array. Ranks beyond a power of two are folded in and out."""
    rounds = rounds_of(size)
    power = 1 << rounds
    surplus = size > power
    fold_in, fold_out = [Step()] * surplus, [Step()] * surplus
    if rank >= power:
        return [Step(to=rank - power), *[Step()] * rounds, Step(source=rank - power, takes="result")]
    if rank + power < size:
        fold_in, fold_out = [Step(source=rank + power, takes="own first")], [Step(to=rank + power)]
    exchange = [rank ^ 1 << k for k in range(rounds)]
    order = ["arrived first" if peer < rank else "own first" for peer in exchange]
    steps = [Step(peer, 0, peer, 0, first) for peer, first in zip(exchange, order, strict=True)]
    return [*fold_in, *steps, *fold_out]
