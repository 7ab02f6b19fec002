# SPDX-License-Identifier: Apache-2.0
"""All-gather: cuda/gda/collectives/all_gather.h, and the same steps as data. Made by Team.all_gather().

Document: docs/programs.md, "Collectives".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gda.comm.arguments import CALL_S, one_of
from gda.comm.collectives.collective import Collective, Transfer, neighbours

if TYPE_CHECKING:
    from gda.comm.team import Team

__all__ = ["AllGather", "direct", "is_direct", "ring"]

DIRECT_BYTES = 32 << 10
_KERNELS = {
    "auto": "gda_kernel_all_gather", "ring": "gda_kernel_all_gather_ring", "direct": "gda_kernel_all_gather_direct",
}  # fmt: skip


class AllGather(Collective):
    """Every rank's piece to all ranks. Collective to make: `data` is what Window takes, or a window of the team.

    It holds N pieces of equal length in the order of ranks, a rank's own at its place before a call, all of them behind
    it. `algorithm` is "ring", "direct", or "auto": by size. `window` and `signals` are what kernels that call
    gda_all_gather() themselves take; `piece_bytes` is from one piece to the next.
    """

    def __init__(
        self, team: Team, data: Any, *, algorithm: str = "auto", channels: int = 1, placement: str = "host",
        start: int = 0,
    ) -> None:  # fmt: skip
        self.algorithm = algorithm
        super().__init__(
            team, "all-gather", {"algorithm": algorithm}, file="all_gather",
            peers=neighbours(team, algorithm == "ring"), channels=channels, placement=placement, start=start,
        )  # fmt: skip
        with self._closed_on_failure():
            one_of("algorithm", algorithm, _KERNELS)
            self.window = self._window(data, placement)
            self._must_give(self.window, "array", "remote_write")
            self.piece_bytes = self._piece_bytes(self.window)

    def __call__(self, *, bytes: int | None = None, deadline_s: float = CALL_S) -> None:
        """Return when this rank has all pieces and its own has left. All ranks call it with the same.

        `bytes`: only so many of each piece.
        """
        length = self._part_of_piece(bytes, self.piece_bytes)
        self._launch(_KERNELS[self.algorithm], self.window, length, self.piece_bytes, deadline_s=deadline_s)


def is_direct(bytes: int) -> bool:
    """Whether "auto" puts pieces of so many bytes (of one channel) to all others at once."""
    return bytes <= DIRECT_BYTES


def ring(size: int, bytes: int, stride: int | None = None) -> list[Transfer]:
    """In step s a rank sends on what it got in step s - 1."""
    steps = []
    for step in range(size - 1):
        for rank in range(size):
            at = (rank - step) % size * (bytes if stride is None else stride)
            steps.append(Transfer(step, rank, (rank + 1) % size, at, at, bytes))
    return steps


def direct(size: int, bytes: int, stride: int | None = None) -> list[Transfer]:
    """One step: each rank's piece to all others."""
    steps = []
    for rank in range(size):
        at = rank * (bytes if stride is None else stride)
        steps += [Transfer(0, rank, (rank + i) % size, at, at, bytes) for i in range(1, size)]
    return steps
