# SPDX-License-Identifier: Apache-2.0
"""A ring of ranks: in each step every rank's kernel passes a row on to the right, and waits for the one from the left.

    python -m gda launch -n 4 examples/12_ranks.py       (mpirun -n 4 python ..., torchrun --nproc-per-node 4 ...)

Started alone it launches four ranks of itself.
"""

import subprocess
import sys

import numpy as np

import gda

KERNEL = r"""
#include <gda/comm.h>
// After size - 1 steps every rank has all rows. Row r comes after r's owner has sent it, by signal: once a step.
GDA_KERNEL(pass_on)(gda_team team, gda_window rows, gda_window arrived, uint64_t bytes, gda_status* status) {
    uint32_t right = (team.rank + 1) % team.size;
    for (uint32_t step = 0; step + 1 < team.size; step++) {
        uint64_t row = (team.rank + team.size - step) % team.size;
        gda_report(status, gda_wait_here(arrived, 0, step, GDA_S(5)));
        gda_ticket ticket = gda_put_signal_to(team, right, rows, row * bytes, rows.mine, row * bytes, bytes,
                                              arrived, 0, 1, GDA_SIGNAL_ADD);
        gda_report(status, gda_wait_for(team, right, ticket, GDA_S(5)));
    }
    gda_report(status, gda_wait_here(arrived, 0, team.size - 1, GDA_S(5)));
}
"""


def main() -> bool:
    """Whether there was anybody to pass a row on to."""
    with gda.init() as team:
        if team.size == 1:
            return False
        rows = np.zeros((team.size, 1000), np.int32)
        rows[team.rank] = 100 + team.rank
        window, arrived = team.window(rows), team.signals(1)
        kernel = gda.Kernel(KERNEL, target="host")  # the rows are NumPy's
        with team.naming():
            kernel.pass_on[1, 1](team, window, arrived, rows[0].nbytes)
        assert (rows == 100 + np.arange(team.size)[:, None]).all()
        if team.rank == 0:
            print(team.report())
        team.barrier()  # nobody leaves while others may still send to it
    return True


if __name__ == "__main__" and not main():
    subprocess.run([sys.executable, "-m", "gda", "launch", "-n", "4", __file__], check=True, timeout=100)
    print("four ranks: ok")
