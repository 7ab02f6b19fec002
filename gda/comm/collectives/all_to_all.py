# SPDX-License-Identifier: Apache-2.0
"""All-to-all: cuda/gda/collectives/all_to_all.h, and the same steps as data. Made by Team.all_to_all().

Document: docs/programs.md, "Collectives". Pieces of different lengths: all_to_all_v.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gda.comm.arguments import CALL_S
from gda.comm.collectives.collective import Collective, Transfer, refuse_overlap
from gda.errors import ArgumentError

if TYPE_CHECKING:
    from gda.comm.team import Team

__all__ = ["AllToAll", "rotated"]


class AllToAll(Collective):
    """A piece from every rank to every rank. Collective to make: `source` and `target` are what Window takes.

    Each holds N pieces of equal length: `source` one for each rank, `target` one from each. They do not overlap; each
    may be a window of the team already. `target`, `source` (both windows) and `signals` are what kernels that call
    gda_all_to_all() themselves take; `piece_bytes` is from one piece to the next.
    """

    def __init__(
        self, team: Team, source: Any, target: Any, *, channels: int = 1, placement: str = "host", start: int = 0
    ) -> None:
        super().__init__(team, "all-to-all", {}, file="all_to_all", channels=channels, placement=placement, start=start)
        with self._closed_on_failure():
            self.source, self.target = self._window(source, placement), self._window(target, placement)
            self._must_give(self.target, "target", "remote_write")
            self._piece_bytes(self.source)
            self.piece_bytes = self._piece_bytes(self.target)
            if self.source.bytes != self.target.bytes:
                raise ArgumentError(f"a source of {self.source.bytes} bytes, a target of {self.target.bytes}")
            refuse_overlap(self.source.memory, "source", self.target.memory, "target")

    def __call__(self, *, bytes: int | None = None, deadline_s: float = CALL_S) -> None:
        """Return when all pieces for this rank are here and its own have left. All ranks call it with the same.

        `bytes`: only so many of each piece.
        """
        length = self._part_of_piece(bytes, self.piece_bytes)
        self._launch(
            "gda_kernel_all_to_all", self.target, self.source.memory, length, self.piece_bytes, deadline_s=deadline_s
        )


def rotated(size: int, bytes: int, stride: int | None = None) -> list[Transfer]:
    """In step i a rank puts to the i-th at its right."""
    apart = bytes if stride is None else stride
    return [
        Transfer(i, rank, (rank + i) % size, (rank + i) % size * apart, rank * apart, bytes)
        for i in range(size)
        for rank in range(size)
    ]
