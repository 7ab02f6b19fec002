# SPDX-License-Identifier: Apache-2.0
"""CuPy: arrays are computed by CuPy, sent by a kernel, and read as CuPy arrays. Without a GPU the same with NumPy."""

import gda
from gda.run.cuda import why_no_gpu

if why := why_no_gpu():
    import numpy as xp

    print(f"NumPy and the CPU instead: {why}")
else:
    import cupy as xp

ROWS, COLUMNS = 32, 256

KERNEL = r"""
#include <gda/gda.h>
// A thread for each row: put it, then say so behind it, in the row's own word.
GDA_KERNEL(send_rows)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr words, uint64_t row_bytes, gda_status* status) {
    uint64_t row = threadIdx.x;
    gda_put(qp, dst, row * row_bytes, src, row * row_bytes, row_bytes, GDA_UNSIGNALED);
    gda_ticket ticket = gda_put_value(qp, words, 8 * row, row + 1);  // carried out behind the put
    gda_report(status, gda_wait(qp, ticket, GDA_S(5)));
}
"""

with gda.open() as nic:
    values = xp.arange(ROWS * COLUMNS, dtype=xp.float32).reshape(ROWS, COLUMNS)
    values = xp.sqrt(values)
    received, words = xp.zeros_like(values), xp.zeros(ROWS, xp.uint64)
    src, dst, flags = (nic.register(array) for array in (values, received, words))  # where they lie, nothing is copied
    queue, _ = nic.loopback_pair(depth=128)
    # A launch begins when what CuPy was asked to compute before is done.
    gda.Kernel(KERNEL).send_rows[1, ROWS](queue, dst, src, flags, values.nbytes // ROWS)
    assert bool((received == values).all())
    assert bool((words == xp.arange(1, ROWS + 1, dtype=xp.uint64)).all())
    print(f"{ROWS} rows of {COLUMNS} numbers sent from {xp.__name__} to {xp.__name__}")
    print("cupy: ok")
