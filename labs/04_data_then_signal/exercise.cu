// SPDX-License-Identifier: Apache-2.0
// Fill in the gaps, then run grade.py. The README says what belongs there.

#include <gda/gda.h>

// By one thread: `bytes` of `src` from `from` on go to `dst` at `to`; behind them the first word of `signals` grows by
// one. The ticket of both.
GDA_DEVICE gda_ticket send_row(gda_qp* qp, gda_mr dst, uint64_t to, gda_mr src, uint64_t from, uint64_t bytes,
                               gda_mr signals) {
    return 0;  // gap 1
}

// Until row number `row` (from 0) has come, at most `deadline_ns`. Zero, or why not.
GDA_DEVICE gda_status await_row(gda_mr signals, uint64_t row, uint64_t deadline_ns) {
    return 0;  // gap 2
}

// What stands in a row: 1000 * (row + 1) + column, worked out slowly; each thread takes its own time.
GDA_DEVICE uint32_t word_of(uint32_t row, uint32_t column) {
    volatile uint32_t word = 1000 * (row + 1);
    for (uint32_t turn = 0; turn < 1000 * column; ++turn) {
        if (turn % 1000 == 0) word = word + 1;
    }
    return word;
}

// 32 threads make rows, a word each, and send them. `src` has room for two rows: row r is made in place r % 2.
GDA_KERNEL(produce)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr signals, uint32_t rows, gda_status* status) {
    uint64_t bytes = 4 * blockDim.x;
    gda_ticket sent[2] = {0, 0};
    gda_status s = 0;
    for (uint32_t row = 0; row < rows; ++row) {
        uint32_t place = row % 2;
        // gap 3: who may still be reading this place?
        if (__syncthreads_or(s != 0)) break;
        reinterpret_cast<uint32_t*>(src.addr + place * bytes)[threadIdx.x] = word_of(row, threadIdx.x);
        // gap 4: whose words must be there before one thread sends them?
        if (threadIdx.x == 0) sent[place] = send_row(qp, dst, row * bytes, src, place * bytes, bytes, signals);
    }
    // gap 5: what was sent last is still under way, or was refused: `s` must say so
    gda_report(status, s);
}

// 32 threads take rows as they come: `sums` gets a word for each column.
GDA_KERNEL(consume)(gda_mr dst, gda_mr signals, uint32_t rows, uint64_t deadline_ns, uint64_t* sums,
                    gda_status* status) {
    gda_status s = 0;
    for (uint32_t row = 0; row < rows; ++row) {
        s = await_row(signals, row, deadline_ns);
        if (s != 0) break;
        sums[threadIdx.x] += reinterpret_cast<volatile uint32_t*>(dst.addr)[row * blockDim.x + threadIdx.x];
    }
    gda_report(status, s);
}
