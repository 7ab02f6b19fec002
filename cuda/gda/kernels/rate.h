// SPDX-License-Identifier: Apache-2.0
// Puts a second by many threads to several queues: launched by gda/tools/bench/sweep.py. Times are nanoseconds of the
// target's one clock (globaltimer on a GPU, the monotonic clock on a CPU).
#pragma once

#include <gda/gda.h>

// Every thread of the grid posts `puts` puts to its own piece of the regions (thread i at i * bytes), of each `batch`
// the last one rings; warps take the `count` queues (addresses of gda_qp) in turn. A thread keeps at most `in_flight`
// puts open, a multiple of two batches. begins[i] and ends[i] of thread i: before its first put, after its last wait.
GDA_KERNEL(gda_kernel_put_many)(const uint64_t* queues, uint32_t count, gda_mr dst, gda_mr src, uint64_t bytes,
                                uint32_t puts, uint32_t batch, uint32_t in_flight, uint64_t deadline_ns,
                                uint64_t* begins, uint64_t* ends, gda_status* status) {
    uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    uint64_t warp = static_cast<uint64_t>(blockIdx.x) * ((blockDim.x + 31) / 32) + threadIdx.x / 32;
    gda_qp* qp = reinterpret_cast<gda_qp*>(static_cast<uintptr_t>(queues[warp % count]));
    uint64_t offset = thread * bytes;
    // Tickets are remembered once per half window: before the next half is posted, the one before the last has ended.
    uint32_t half = in_flight < 2 ? 1 : in_flight / 2;
    gda_ticket newest = 0, previous = 0;
    gda_status result = 0;
    begins[thread] = gda::target::clock_ns();
    for (uint32_t i = 1; i <= puts && result == 0; ++i) {
        newest = gda_put(qp, dst, offset, src, offset, bytes, i % batch != 0 && i != puts ? GDA_MORE : 0);
        if (gda_failed(newest)) {
            result = gda_test(qp, newest);
        } else if (i % half == 0) {
            result = gda_wait(qp, in_flight < 2 ? newest : previous, deadline_ns);
            previous = newest;
        }
    }
    if (result == 0) result = gda_wait(qp, newest, deadline_ns);
    ends[thread] = gda::target::clock_ns();
    gda_report(status, result);
}
