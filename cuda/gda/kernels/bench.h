// SPDX-License-Identifier: Apache-2.0
// Measuring kernels, launched by gda.tools.bench and the demo. Times are nanoseconds of the target's one
// clock (globaltimer on a GPU, the monotonic clock on a CPU). They stop at the first failure and report it.
#pragma once

#include <gda/gda.h>

// One thread: of each round the time from the first of `burst` puts to the completion of the last; with one put that is
// its latency. `times` is memory that the kernel reaches, a uint64_t for each round.
GDA_KERNEL(gda_kernel_put_times)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, uint32_t rounds, uint32_t burst,
                                 uint64_t deadline_ns, gda_mr times, gda_status* status) {
    uint64_t* times_ns = reinterpret_cast<uint64_t*>(times.addr);
    for (uint32_t round = 0; round < rounds; ++round) {
        uint64_t start = gda::target::clock_ns();
        gda_ticket ticket = 0;
        for (uint32_t i = 0; i < burst; ++i) ticket = gda_put(qp, dst, 0, src, 0, bytes);
        gda_status result = gda_wait(qp, ticket, deadline_ns);
        times_ns[round] = gda::target::clock_ns() - start;
        if (result != 0) {
            gda_report(status, result);
            return;
        }
    }
}

// Posting alone: every thread of the grid posts `iterations` puts, to the queue of its block (own) or all of them to
// the first. Nothing completes: a ring must have room for all. `queues` are addresses of gda_qp; begins[i] and ends[i]
// of thread i are times before its first and after its last put.
namespace gda {

GDA_DEVICE uint64_t posting_thread() { return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

GDA_DEVICE gda_qp* queue_of_block(const uint64_t* queues, uint32_t own) {
    return reinterpret_cast<gda_qp*>(static_cast<uintptr_t>(queues[own != 0 ? blockIdx.x : 0]));
}

// By the owner of a queue, opened and closed again within the time.
template <class Owner>
GDA_DEVICE void post_by_owner(const uint64_t* queues, uint32_t own, const gda_mr& dst, const gda_mr& src,
                              uint64_t bytes, uint32_t iterations, uint64_t* begins, uint64_t* ends,
                              gda_status* status) {
    begins[posting_thread()] = target::clock_ns();
    Owner queue(queue_of_block(queues, own));
    gda_ticket failed = 0;
    for (uint32_t i = 0; i < iterations; ++i) {
        gda_ticket ticket = queue.put(dst, i * bytes, src, i * bytes, bytes);
        failed = gda_failed(ticket) ? ticket : failed;
    }
    queue.close();
    ends[posting_thread()] = target::clock_ns();
    gda_report(status, queue.test(failed));
}

// Thread scope.
GDA_DEVICE void post_by_threads(const uint64_t* queues, uint32_t own, const gda_mr& dst, const gda_mr& src,
                                uint64_t bytes, uint32_t iterations, uint64_t* begins, uint64_t* ends,
                                gda_status* status) {
    gda_qp* qp = queue_of_block(queues, own);
    begins[posting_thread()] = target::clock_ns();
    gda_ticket failed = 0;  // chosen, not branched upon: nobody else in the comparison looks at each ticket
    for (uint32_t i = 0; i < iterations; ++i) {
        gda_ticket ticket = gda_put(qp, dst, i * bytes, src, i * bytes, bytes);
        failed = gda_failed(ticket) ? ticket : failed;
    }
    ends[posting_thread()] = target::clock_ns();
    if (failed != 0) gda_report(status, gda_test(qp, failed));
}

}  // namespace gda

GDA_KERNEL(gda_kernel_post_alone)(const uint64_t* queues, uint32_t own, gda_mr dst, gda_mr src, uint64_t bytes,
                                  uint32_t iterations, uint64_t* begins, uint64_t* ends, gda_status* status) {
    gda::post_by_threads(queues, own, dst, src, bytes, iterations, begins, ends, status);
}

// The same in blocks of at most 128 threads, which may have as many registers as they need.
extern "C" __global__ void __launch_bounds__(128)
    gda_kernel_post_small(const uint64_t* queues, uint32_t own, gda_mr dst, gda_mr src, uint64_t bytes,
                          uint32_t iterations, uint64_t* begins, uint64_t* ends, gda_status* status) {
    gda::post_by_threads(queues, own, dst, src, bytes, iterations, begins, ends, status);
}

// One thread a block, the owner of its queue.
GDA_KERNEL(gda_kernel_post_owner)(const uint64_t* queues, uint32_t own, gda_mr dst, gda_mr src, uint64_t bytes,
                                  uint32_t iterations, uint64_t* begins, uint64_t* ends, gda_status* status) {
    gda::post_by_owner<gda_owner>(queues, own, dst, src, bytes, iterations, begins, ends, status);
}

// One warp a block, the owner of its queue: each lane its own requests.
extern "C" __global__ void __launch_bounds__(32)
    gda_kernel_post_warp_owner(const uint64_t* queues, uint32_t own, gda_mr dst, gda_mr src, uint64_t bytes,
                               uint32_t iterations, uint64_t* begins, uint64_t* ends, gda_status* status) {
    gda::post_by_owner<gda_warp_owner>(queues, own, dst, src, bytes, iterations, begins, ends, status);
}
