# SPDX-License-Identifier: Apache-2.0
"""A producer puts rows and signals each; a consumer takes a row the moment its signal says that it is there.

Both run at once, as two blocks of one kernel: no CPU is asked in between. The signal is one submission with its row and
lies behind it on the queue, so whoever sees the count sees the row.
"""

import numpy as np

import gda

ROWS, WORDS = 64, 32

KERNEL = r"""
#include <gda/gda.h>
// One warp each; thread i has column i. `count` counts rows that have arrived.
GDA_KERNEL(stream)(gda_qp* qp, gda_mr src, gda_mr dst, gda_mr count, gda_mr sums, uint32_t rows, gda_status* status) {
    uint32_t row_bytes = 4 * blockDim.x;
    uint64_t sum = 0;
    gda_status s = 0;
    for (uint32_t row = 0; row < rows && s == 0; ++row) {
        uint64_t at = uint64_t(row) * row_bytes;
        if (blockIdx.x == 0) {
            uint32_t* value = reinterpret_cast<uint32_t*>(src.addr + at) + threadIdx.x;
            *value = *value * 3 + 1;
            __syncthreads();  // the row is whole
            if (threadIdx.x == 0) {
                __threadfence_system();
                gda_ticket t = gda_put_signal(qp, dst, at, src, at, row_bytes, count, 0, 1, GDA_SIGNAL_ADD);
                if (gda_failed(t)) s = gda_wait(qp, t, 0);
            }
        } else {
            s = gda_wait_signal(reinterpret_cast<uint64_t*>(count.addr), GDA_REACHED, row + 1, GDA_S(10));
            sum += reinterpret_cast<volatile uint32_t*>(dst.addr + at)[threadIdx.x];
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0 && s == 0) s = gda_flush(qp, GDA_S(10));
    if (blockIdx.x == 1) reinterpret_cast<uint64_t*>(sums.addr)[threadIdx.x] = sum;
    gda_report(status, s);
}
"""

with gda.open() as nic:
    table = np.random.default_rng(1).integers(0, 1 << 20, (ROWS, WORDS), dtype=np.uint32)
    src, dst = nic.allocate(table.nbytes), nic.allocate(table.nbytes)
    count, sums = nic.allocate(8), nic.allocate(8 * WORDS)
    src.write(0, table.tobytes())
    queue, _ = nic.loopback_pair(depth=64)
    gda.Kernel(KERNEL).stream[2, WORDS](queue, src, dst, count, sums, ROWS)
    found = np.frombuffer(sums.read(0, 8 * WORDS), np.uint64)
    assert (found == (table.astype(np.uint64) * 3 + 1).sum(axis=0)).all()
    print(f"{ROWS} rows of {WORDS} numbers, each taken when its signal came")
    print("put with signal: ok")
