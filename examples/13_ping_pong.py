# SPDX-License-Identifier: Apache-2.0
"""Ping-pong: a ball goes from kernel to kernel and back, and the time of one way is printed.

What it teaches: a put with a signal behind it is a message; whoever sees the signal sees the bytes, so waiting for the
signal is receiving. Nobody on the CPU takes part, and the kernel itself measures.

    python -m gda launch -n 2 examples/13_ping_pong.py       (mpirun -n 2 python ..., torchrun --nproc-per-node 2 ...)

Started alone it launches two ranks of itself.
"""

import subprocess
import sys

import numpy as np

import gda

ROUNDS, WARM_UP = 200, 20
KERNEL = r"""
#include <gda/comm.h>
// Rank 0 serves. Each adds one to the ball's first word before it passes it on.
GDA_KERNEL(play)(gda_team team, gda_window ball, gda_window arrived, uint32_t rounds, uint64_t* ns,
                 gda_status* status) {
    uint32_t other = 1 - team.rank;
    uint64_t* hits = reinterpret_cast<uint64_t*>(ball.mine.addr);
    gda_status s = 0;
    for (uint32_t round = 0; round < rounds && s == 0; round++) {
        uint64_t begin = gda_now_ns();
        if (team.rank == 1) s = gda_wait_here(arrived, 0, round + 1, GDA_S(5));
        if (s != 0) break;
        hits[0] += 1;
        gda_ticket ticket = gda_put_signal_to(team, other, ball, 0, ball.mine, 0, ball.mine.bytes,
                                              arrived, 0, 1, GDA_SIGNAL_ADD);
        if (team.rank == 0) s = gda_wait_here(arrived, 0, round + 1, GDA_S(5));
        ns[round] = gda_now_ns() - begin;
        if (s == 0) s = gda_wait_for(team, other, ticket, GDA_S(5));  // behind the answer: it costs nothing more
    }
    gda_report(status, s);
}
"""


def main() -> bool:
    """Whether there was anybody to play with."""
    with gda.init() as team:
        if team.size == 1:
            return False
        if team.size != 2:
            sys.exit(f"ping-pong is for two ranks, not {team.size}")
        kernel = gda.Kernel(KERNEL, target="host")  # the memory is NumPy's
        for bytes in (8, 4096):
            ball, ns = np.zeros(bytes // 8, np.uint64), np.zeros(WARM_UP + ROUNDS, np.uint64)
            window, arrived = team.window(ball), team.signals(1)
            with team.naming(1 - team.rank):
                kernel.play[1, 1](team, window, arrived, ns.size, ns)
            team.barrier()  # the last ball has come
            assert ball[0] == 2 * ns.size, ball[0]
            if team.rank == 0:
                ways = np.sort(ns[WARM_UP:]) / 2e3  # there and back, in microseconds
                print(f"{bytes:5} bytes: one way {ways[ROUNDS // 2]:.1f} us in the middle, {ways[0]:.1f} us at best")
    return True


if __name__ == "__main__" and not main():
    subprocess.run([sys.executable, "-m", "gda", "launch", "-n", "2", __file__], check=True, timeout=100)
    print("ping-pong: ok")
