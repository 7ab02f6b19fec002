# SPDX-License-Identifier: Apache-2.0
"""A ring all-gather: by one call of the collective, and by the same function called from a kernel of one's own.

What it teaches: a collective is a header to read (cuda/gda/collectives/all_gather.h) and its steps as data; Python's
call is one launch of it, and a kernel that has more to do calls it between other work.

    python -m gda launch -n 4 examples/14_ring_all_gather.py
    (mpirun -n 4 python ..., torchrun --nproc-per-node 4 ...)

Started alone it launches four ranks of itself.
"""

import subprocess
import sys

import numpy as np

import gda
from gda.comm.collectives.all_gather import ring

COLUMNS = 5000
KERNEL = r"""
#include <gda/collectives/all_gather.h>
// Makes this rank's row, gathers all, sums each: one launch, no CPU in between.
GDA_KERNEL(sums_of_all)(gda_team team, gda_window rows, gda_window signals, uint32_t columns, int64_t* sums,
                        gda_status* status) {
    int32_t* row = reinterpret_cast<int32_t*>(rows.mine.addr);
    int32_t* own = row + uint64_t(team.rank) * columns;
    for (uint32_t i = 0; i < columns; i++) own[i] = team.rank * 1000 + i % 7;
    gda_report(status, gda_all_gather_ring(team, rows, 0, columns * 4, columns * 4, signals, GDA_S(10)));
    for (uint32_t r = 0; r < team.size; r++) {
        sums[r] = 0;
        for (uint32_t i = 0; i < columns; i++) sums[r] += row[uint64_t(r) * columns + i];
    }
}
"""


def main() -> bool:
    """Whether there was anybody to gather from."""
    with gda.init() as team:
        if team.size == 1:
            return False
        rows = np.zeros((team.size, COLUMNS), np.int32)
        gather = team.all_gather(rows, algorithm="ring")
        kernel = gda.Kernel(KERNEL, target="host")  # the rows are NumPy's
        for round in range(3):  # again and again: nothing has to be set back
            rows[team.rank] = 100 * round + team.rank
            gather(deadline_s=30)
            assert (rows == 100 * round + np.arange(team.size)[:, None]).all()
            team.barrier()  # nobody writes its next row before all have looked
        if team.rank == 0:
            for move in ring(team.size, 1):  # with rows of one byte an offset is a row
                if move.sender == 0:
                    print(f"step {move.step}: rank 0 sends row {move.source_offset} to rank {move.receiver}")
        sums = np.zeros(team.size, np.int64)
        with team.naming():
            kernel.sums_of_all[1, 1](team, gather.window, gather.signals, COLUMNS, sums)
        expected = [sum(rank * 1000 + i % 7 for i in range(COLUMNS)) for rank in range(team.size)]
        assert sums.tolist() == expected
        team.barrier()  # nobody leaves while others may still send to it
    return True


if __name__ == "__main__" and not main():
    subprocess.run([sys.executable, "-m", "gda", "launch", "-n", "4", __file__], check=True, timeout=100)
    print("ring all-gather: ok")
