# SPDX-License-Identifier: Apache-2.0
"""A barrier on the device: cuda/gda/collectives/barrier.h, and the same steps in Python to read and to test against.

Document: docs/programs.md, "Barrier".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gda.comm.arguments import CALL_S, seconds
from gda.comm.collectives.collective import finish, prepare
from gda.comm.kernels import kernels_of
from gda.comm.signal import Signals
from gda.nic.lifetime import working

if TYPE_CHECKING:
    from gda.comm.team import Team

__all__ = ["Barrier", "partners"]


def partners(rank: int, size: int) -> list[tuple[int, int]]:
    """For each round, whom a rank tells that it has come, and whose word it waits for."""
    rounds = (size - 1).bit_length()
    return [((rank + 2**k) % size, (rank - 2**k) % size) for k in range(rounds)]


class Barrier(Signals):
    """A barrier of all ranks of a team. Collective to make; fits as a kernel argument `gda_window` for gda_barrier().

    It is signals: a word a round, and behind them this rank's count of barriers and a word for its end (barrier.h).
    Kernels and Python may take turns.
    """

    _call = "device barrier"

    def __init__(self, team: Team, *, placement: str = "host", start: int = 0) -> None:
        self.partners = partners(team.rank, team.size)
        self._kernels = kernels_of("barrier")  # on all ranks before any can launch it
        team.connect({rank for pair in self.partners for rank in pair})
        super().__init__(team, len(self.partners) + 2, placement=placement, start=start)
        try:
            self.memory.write(8 * (len(self.partners) + 1), bytes(8))
            prepare(self._kernels, team, self)
        except BaseException:
            self._resources.close()
            raise

    def __repr__(self) -> str:
        return f"<Barrier of {self.team.size} ranks in {len(self.partners)} rounds>"

    @working
    def arrive(self, *, deadline_s: float = CALL_S) -> None:
        """Return when all ranks have come, by one launch of gda_barrier(). Collective.

        It says nothing of what kernels of this rank still have under way: they flush first (gda_flush_all).
        """
        limit = seconds("deadline_s", deadline_s, or_zero=False)
        with self.team.naming():
            launch = self._kernels.gda_kernel_barrier.start[1, 1](self.team, self, int(limit * 1e9))
            steps = 2 * len(self.partners)  # each has the deadline
            finish(self.team, launch, limit * (1 + steps) + 1, self, [len(self.partners) + 1])

    def arrive_in_python(self, *, deadline_s: float = CALL_S) -> None:
        """The same, step by step: the reference."""
        now = (self.read(len(self.partners)) + 1) % 2**64
        for round, (right, left) in enumerate(self.partners):
            self.signal(right, round, now, "set", deadline_s=deadline_s)
            self.wait(round, now, peer=left, deadline_s=deadline_s)
        self.memory.write(8 * len(self.partners), now.to_bytes(8, "little"))
