# SPDX-License-Identifier: Apache-2.0
"""All-to-all of rows whose counts only the sender knows, and the way back: cuda/gda/collectives/all_to_all_v.h.

Made by Team.all_to_all_v(); the same steps as data stand at the end. Document: docs/programs.md, "Collectives".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from gda.comm.agreement import agree
from gda.comm.arguments import CALL_S, wholes
from gda.comm.collectives.collective import Collective, Transfer, refuse_overlap
from gda.comm.window import Window, in_rows, memory_of
from gda.errors import ArgumentError, OutOfBoundsError
from gda.nic import Memory

if TYPE_CHECKING:
    from gda.comm.team import Team

__all__ = ["AllToAllV", "Rows", "back", "dispatch", "places"]


@dataclass(frozen=True)
class Rows:
    """Rows that came from one rank: how many, the first in `target` here, and the first in that rank's `source`."""

    count: int
    start: int
    origin: int


class AllToAllV(Collective):
    """Rows to ranks, as many as each sender likes (dispatch), and back to their places (combine). Collective to make.

    `source` is this rank's own, of any length: an array whose rows lie along the first axis, a number of bytes, or a
    Memory. `target` is what Window takes, and gets all rows that come. `back` is what Window takes, and gets on the way
    back the rows that were sent, each where it lay in `source`; they are read from `results`, or where there are none,
    from `target`. Rows of `source` and `target` are of one length, those of `results` and `back`, too: that of the
    arrays, or `row_bytes` and `back_row_bytes`. `asked` is the memory where counts and starts lie for kernels.
    """

    def __init__(
        self, team: Team, source: Any, target: Any, back: Any = None, *, results: Any = None, row_bytes: int = 0,
        back_row_bytes: int = 0, channels: int = 1, placement: str = "host", start: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(
            team, "all-to-all-v", {"back": back is not None}, file="all_to_all_v", more_words=6 * team.size,
            channels=channels, placement=placement, start=start,
        )  # fmt: skip
        with self._closed_on_failure():
            self.target = self._window(target, placement)
            self._must_give(self.target, "target", "remote_write")
            self.back = None if back is None else self._window(back, placement)
            if self.back is not None:
                self._must_give(self.back, "window for the way back", "remote_write")
            self.source = self._memory(source, placement)
            self.results = self.target.memory if results is None else self._memory(results, placement)
            self.asked = self._memory(16 * team.size, placement)
            self.row_bytes = _row_bytes(row_bytes, self.source, self.target.memory)
            self.back_row_bytes = self.row_bytes
            if self.back is not None:
                self.back_row_bytes = _row_bytes(back_row_bytes, self.results, self.back.memory)
            refuse_overlap(self.source, "source", self.target.memory, "target")
            if self.back is not None:
                refuse_overlap(self.results, "results", self.back.memory, "the window for the way back")
            agree(team.bootstrap, "all-to-all-v", {"row_bytes": self.row_bytes, "back_row_bytes": self.back_row_bytes})
            if self.back is not None:
                self._check_room(self.back.memory, "back", self.source, "source")
                self._check_room(self.results, "results", self.target.memory, "target")

    def dispatch(
        self, counts: Sequence[int], starts: Sequence[int] | None = None, *, deadline_s: float = CALL_S
    ) -> list[Rows]:
        """Send `counts[rank]` rows from row `starts[rank]` of the source on; what came, by rank. All ranks call it.

        Without `starts` the rows lie in the order of ranks, without gaps. All ranks raise
        OutOfBoundsError with `rank` where one's target has too little room, or one has not the rows that it named; the
        next call is good again.
        """
        self._resources.check()
        counts = wholes("counts", counts)
        starts = [0, *accumulate(counts)][:-1] if starts is None else wholes("starts", starts)
        size = self.team.size
        if len(counts) != size or len(starts) != size or min(*counts, *starts) < 0 or max(*counts, *starts) >> 63:
            raise ArgumentError(f"counts={counts} and starts={starts} are not {size} numbers of rows each")
        self.asked.write(0, struct.pack(f"<{2 * size}Q", *counts, *starts))
        return self.dispatch_asked(deadline_s=deadline_s)

    def dispatch_asked(self, *, deadline_s: float = CALL_S) -> list[Rows]:
        """The same with the counts, and behind them the starts, that lie in `asked` (eight bytes each) already."""
        self._launch(
            "gda_kernel_all_to_all_v", self.target, self.source, self.asked, self.row_bytes, deadline_s=deadline_s
        )
        return self.rows()

    def combine(self, *, deadline_s: float = CALL_S) -> None:
        """Send the rows of the last dispatch back to where they came from. All ranks call it."""
        if self.back is None:
            raise ArgumentError("this all-to-all-v has no window for the way back", "make it with back=...")
        self._launch(
            "gda_kernel_all_to_all_v_back", self.back, self.results, self.back_row_bytes, deadline_s=deadline_s
        )

    def rows(self) -> list[Rows]:
        """What came in the last dispatch, by rank."""
        first = 2 * self.team.size + 2 + 3 * self.team.size
        words = struct.unpack(f"<{3 * self.team.size}Q", self.signals.memory.read(8 * first, 24 * self.team.size))
        return [Rows(*words[i : i + 3]) for i in range(0, len(words), 3)]

    # ---------------------------------------------------------------------------------------------------------- inside
    def _memory(self, data: Any, placement: str) -> Memory:
        """This rank's own memory: one that is there already stays open."""
        if isinstance(data, Window | Memory):
            memory = data.memory if isinstance(data, Window) else data
            self.team.check_memory(memory)
            return memory
        memory = memory_of(self.team.nic, data, placement)
        self._resources.callback(memory._resources.close)
        return memory

    def _check_room(self, memory: Memory, name: str, other: Memory, other_name: str) -> None:
        rows, wanted = memory.bytes // self.back_row_bytes, other.bytes // self.row_bytes
        if rows < wanted:
            raise ArgumentError(
                f"{name} has {rows} rows of {self.back_row_bytes} bytes, {other_name} {wanted} of {self.row_bytes}",
                "give them as many rows",
            )

    def _refused(self, error: OutOfBoundsError) -> OutOfBoundsError | None:
        rank = self._missed()
        if rank is None:
            return None
        told = OutOfBoundsError(
            f"{self.team.ranks[rank]} has no room for all rows that are sent to it, or not the rows that it named "
            f"(a row is {self.row_bytes} bytes; the target here has {self.target.bytes // self.row_bytes} rows)",
            error.status, "give targets room for the rows of all ranks; none of that rank's rows have moved",
        )  # fmt: skip
        told.rank = rank
        for word in self._missed_words:
            self.signals.memory.write(8 * word, bytes(8))
        return told


def _row_bytes(asked: int, *memories: Memory) -> int:
    """Of rows of these memories: as asked, or as their arrays say."""
    for memory in memories:
        if not in_rows(memory):
            raise ArgumentError(
                f"an array of shape {memory.shape} in Fortran order: its rows are not in one piece each",
                "numpy.ascontiguousarray(array) makes a copy whose rows are",
            )
    found = {memory.strides[0] for memory in memories if len(memory.shape) > 1}
    row_bytes = asked or (found.pop() if len(found) == 1 else 0)
    if isinstance(row_bytes, bool) or not isinstance(row_bytes, int) or row_bytes < 1 or found - {row_bytes}:
        raise ArgumentError(
            f"rows of {asked or 'no told number of'} bytes; the arrays' rows have "
            f"{', '.join(str(m.strides[0]) for m in memories if len(m.shape) > 1) or 'none'}",
            "give arrays with rows of one length, or row_bytes=...",
        )
    return row_bytes


# ------------------------------------------------------------------------------------------------- the steps as data
def places(counts: Sequence[Sequence[int]]) -> list[list[int]]:
    """places[receiver][sender]: the first row of a sender in the receiver's target; counts[sender][receiver]."""
    size = len(counts)
    return [[0, *accumulate(counts[sender][rank] for sender in range(size))][:-1] for rank in range(size)]


def dispatch(counts: Sequence[Sequence[int]], starts: Sequence[Sequence[int]], row_bytes: int) -> list[Transfer]:
    """Rows to their places, in rotated order."""
    size, to = len(counts), places(counts)
    return [
        Transfer(
            i, rank, peer, starts[rank][peer] * row_bytes, to[peer][rank] * row_bytes, counts[rank][peer] * row_bytes
        )
        for i in range(size)
        for rank in range(size)
        for peer in [(rank + i) % size]
    ]


def back(counts: Sequence[Sequence[int]], starts: Sequence[Sequence[int]], row_bytes: int) -> list[Transfer]:
    """The same the other way."""
    return [
        Transfer(one.step, one.receiver, one.sender, one.target_offset, one.source_offset, one.bytes)
        for one in dispatch(counts, starts, row_bytes)
    ]
