# SPDX-License-Identifier: Apache-2.0
"""The link of one rank breaks in the middle of the work: the others are told whose, and go on without it.

What it teaches: nothing hangs and nothing is lost in silence. The NIC sends again for a while, then the request fails
with an error that names the rank; what is left makes a new team. Here the fault is the software NIC's (gda.sim.faults,
docs/simulator.md), so this example runs on it wherever it is started.

    python -m gda launch -n 4 examples/16_break_the_link.py

Started alone it launches four ranks of itself.
"""

import subprocess
import sys
import time

import numpy as np

import gda
import gda.sim
from gda.errors import CompletionError

BROKEN, BREAKS_IN_ROUND = 2, 3


def work(team: gda.Team, rounds: int) -> tuple[int, int]:
    """Each tells all others, round by round. In which round it ended, and for whom it failed (-1: for nobody)."""
    rows = np.zeros((team.size, 64), np.int64)
    window, rank = team.window(rows), team.rank
    for round in range(rounds):
        if round == BREAKS_IN_ROUND:
            team.barrier()  # by the bootstrap, which does not need the link: all have come so far
            if (team.size, rank) == (4, BROKEN):
                gda.sim.current().set_faults("link=down")  # as if somebody pulled the cable
            team.barrier()  # and nobody goes on before
        rows[rank] = round
        for peer in range(team.size):
            if peer != rank:
                try:
                    window.put(peer, window[rank], deadline_s=20)
                except CompletionError as error:
                    why = error.message.split(" (")[0]
                    print(f"rank {rank}, round {round}: {why}; that is rank {error.rank}")
                    return round, error.rank
    team.barrier()
    assert (rows == rounds - 1).all()
    return rounds, -1


def main() -> bool:
    """Whether there were four."""
    gda.sim.current().print_complaints(False)  # the software NIC, whatever else is here; exceptions will tell
    with gda.init() as team:
        if team.size == 1:
            return False
        if team.size != 4:
            sys.exit(f"this story has four ranks, not {team.size}")
        begin = time.monotonic()
        _, lost = work(team, 10)
        team.barrier()  # all have noticed
        if team.rank == BROKEN:  # from there everybody else is lost
            assert lost != BROKEN
            return True
        assert lost == BROKEN, lost
        left = team.without([lost])
    with gda.init(left) as smaller:  # the same three, counted anew
        assert work(smaller, 10) == (10, -1)
        print(f"rank {team.rank} is rank {smaller.rank} of {smaller.size} now, {time.monotonic() - begin:.1f} s later")
    return True


if __name__ == "__main__" and not main():
    subprocess.run([sys.executable, "-m", "gda", "launch", "-n", "4", __file__], check=True, timeout=100)
    print("three went on: ok")
