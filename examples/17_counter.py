# SPDX-License-Identifier: Apache-2.0
"""A queue of work that all ranks share: fetch-and-add on one word of rank 0 hands out each job exactly once.

What it teaches: a remote atomic needs nobody's processor on the other side. Fast ranks take more jobs than slow ones,
without a master, a lock or a message.

    python -m gda launch -n 4 examples/17_counter.py       (mpirun -n 4 python ..., torchrun --nproc-per-node 4 ...)

Started alone it launches four ranks of itself.
"""

import subprocess
import sys

import numpy as np

import gda

JOBS = 300
KERNEL = r"""
#include <gda/comm.h>
// One thread a rank. Job n: how many steps the Collatz sequence from n + 1 takes, and as long as 2 us for each would.
GDA_KERNEL(take_jobs)(gda_team team, gda_window counter, gda_window answers, gda_window slot, uint64_t jobs,
                      uint64_t* taken, gda_status* status) {
    gda_qp* home = gda_queue_of(team, 0);
    gda_mr next = gda_memory_of(counter, 0), there = gda_memory_of(answers, 0);
    const uint64_t* number = reinterpret_cast<const uint64_t*>(slot.mine.addr);
    gda_status s = 0;
    while (s == 0) {
        s = gda_wait(home, gda_fetch_add(home, slot.mine, 0, next, 0, 1), GDA_S(10));  // what it held comes back here
        if (s != 0 || *number >= jobs) break;
        uint64_t job = *number, steps = 0;
        for (uint64_t n = job + 1; n != 1; n = n % 2 ? 3 * n + 1 : n / 2) steps++;
        for (uint64_t end = gda_now_ns() + 2000 * steps; gda_now_ns() < end;) continue;
        s = gda_wait(home, gda_put_value(home, there, 8 * job, steps + 1), GDA_S(10));
        taken[0]++;
    }
    gda_report(status, s);
}
"""


def collatz(number: int) -> int:
    """Steps to 1."""
    steps = 0
    while number != 1:
        number, steps = (3 * number + 1 if number % 2 else number // 2), steps + 1
    return steps


def main() -> bool:
    """Whether there was anybody to share with."""
    with gda.init() as team:
        if team.size == 1:
            return False
        answers, taken = np.zeros(JOBS, np.uint64), np.zeros(1, np.uint64)
        window, slot = team.window(answers), team.window(np.zeros(1, np.uint64))
        counter = team.signals(1)  # a 64-bit word on every rank, zero at first; that of rank 0 counts
        kernel = gda.Kernel(KERNEL, target="host")  # the memory is NumPy's
        team.barrier()  # all begin together
        with team.naming(0):
            kernel.take_jobs[1, 1](team, counter, window, slot, JOBS, taken)
        each = [int.from_bytes(one, "little") for one in team.bootstrap.allgather(taken.tobytes())]
        assert sum(each) == JOBS  # and all have their answers in rank 0's memory
        if team.rank == 0:
            assert counter.read(0) == JOBS + team.size, "each rank took one number too many and stopped"
            assert answers.tolist() == [collatz(job + 1) + 1 for job in range(JOBS)]
            print(f"{JOBS} jobs, taken by rank: {', '.join(map(str, each))}")
        team.barrier()
    return True


if __name__ == "__main__" and not main():
    subprocess.run([sys.executable, "-m", "gda", "launch", "-n", "4", __file__], check=True, timeout=100)
    print("shared counter: ok")
