// SPDX-License-Identifier: Apache-2.0
// Who triggers a put: the measuring kernels of `python -m gda bench latency`, launched by gda/tools/bench/triggers.py
// and streams.py. Each answers how long it took from the moment at which a kernel knows what to send to the moment at
// which a kernel knows that it is there, by one clock: nanoseconds of the target's own (globaltimer on a GPU). They
// stop at the first failure and report it.
#pragma once

#include <gda/gda.h>

namespace gda {

// What a kernel decides, as data would: which of the pieces of the regions is sent.
GDA_DEVICE uint64_t decision(uint32_t round, uint32_t number, uint64_t pieces) {
    uint32_t mixed = (round * 2654435761u) ^ (number * 40503u + 1);
    mixed ^= mixed >> 15;
    mixed *= 2246822519u;
    mixed ^= mixed >> 13;
    return mixed % pieces;
}

// Words in host memory through which a kernel and a thread of the CPU speak; each half in a line of its own. A signal
// is waited for with gda_wait_signal.
static constexpr uint32_t PROXY_ASKED = 0;     // rounds asked for, written by the kernel
static constexpr uint32_t PROXY_ANSWERED = 8;  // rounds that are complete, written by the CPU
static constexpr uint32_t PROXY_OFFSETS = 16;  // of the puts of this round, written by the kernel

// After everything that this thread has seen or written: for whoever waits for the word, on the other side of the bus.
GDA_DEVICE void tell(uint64_t* word, uint64_t value) {
    __threadfence_system();
    *const_cast<volatile uint64_t*>(word) = value;
}

GDA_DEVICE uint64_t* words_of(const gda_mr& memory) { return reinterpret_cast<uint64_t*>(memory.addr); }

}  // namespace gda

// Kernel-initiated: the threads of one block post `burst` puts to a queue that all may share, and wait for them.
// ns[round] is from before the first post to the last thread's end of waiting.
GDA_KERNEL(gda_kernel_initiate)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, uint32_t rounds, uint32_t burst,
                                uint64_t deadline_ns, gda_mr times, gda_status* status) {
    uint64_t* ns = gda::words_of(times);
    for (uint32_t round = 0; round < rounds; ++round) {
        __syncthreads();
        uint64_t start = gda::target::clock_ns();
        gda_ticket ticket = 0;
        for (uint32_t i = threadIdx.x; i < burst; i += blockDim.x) {
            uint64_t offset = gda::decision(round, i, src.bytes / bytes) * bytes;
            ticket = gda_put(qp, dst, offset, src, offset, bytes);
        }
        gda_status result = ticket != 0 ? gda_wait(qp, ticket, deadline_ns) : 0;
        bool failed = __syncthreads_or(result != 0) != 0;
        if (threadIdx.x == 0) ns[round] = gda::target::clock_ns() - start;
        if (failed) {
            gda_report(status, result);
            return;
        }
    }
}

// The same by one thread that owns the queue, with one doorbell for all puts of a round.
GDA_KERNEL(gda_kernel_initiate_owner)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, uint32_t rounds,
                                      uint32_t burst, uint64_t deadline_ns, gda_mr times, gda_status* status) {
    uint64_t* ns = gda::words_of(times);
    gda_owner queue(qp);
    gda_status result = 0;
    for (uint32_t round = 0; round < rounds && result == 0; ++round) {
        uint64_t start = gda::target::clock_ns();
        gda_ticket ticket = 0;
        for (uint32_t i = 0; i < burst; ++i) {
            uint64_t offset = gda::decision(round, i, src.bytes / bytes) * bytes;
            ticket = queue.put(dst, offset, src, offset, bytes, i + 1 < burst ? GDA_MORE : 0);
        }
        result = queue.wait(ticket, deadline_ns);
        ns[round] = gda::target::clock_ns() - start;
    }
    queue.close();
    gda_report(status, result);
}

// Kernel-triggered: the CPU has written the work requests from index `first` on, one for each round; the kernel rings
// and waits. What the kernel wrote into the payload is ordered before the doorbell.
GDA_KERNEL(gda_kernel_trigger)(gda_qp* qp, uint64_t first, uint32_t rounds, uint64_t deadline_ns, gda_mr times,
                               gda_status* status) {
    uint64_t* ns = gda::words_of(times);
    gda::queue_view q = gda::view(qp);
    for (uint32_t round = 0; round < rounds; ++round) {
        uint64_t start = gda::target::clock_ns();
        gda::target::own_wqe_before_doorbell_record(q.scope);
        gda::ring_doorbell(qp, q, first + round + 1);
        gda_status result = gda_wait(qp, first + round + 1, deadline_ns);
        ns[round] = gda::target::clock_ns() - start;
        if (result != 0) {
            gda_report(status, result);
            return;
        }
    }
}

// All of `count` prepared requests by one doorbell: how fast the NIC is when nobody has to post. ns[0].
GDA_KERNEL(gda_kernel_trigger_all)(gda_qp* qp, uint64_t first, uint32_t count, uint64_t deadline_ns, gda_mr times,
                                   gda_status* status) {
    gda::queue_view q = gda::view(qp);
    uint64_t start = gda::target::clock_ns();
    gda::target::own_wqe_before_doorbell_record(q.scope);
    gda::ring_doorbell(qp, q, first + count);
    gda_report(status, gda_wait(qp, first + count, deadline_ns));
    gda::words_of(times)[0] = gda::target::clock_ns() - start;
}

// A kernel that begins when something has happened and ends when something may: moments[2 * number] is after the wait
// for `ticket` (unless zero), moments[2 * number + 1] the last it does. Between the end of one such kernel and the
// begin of the next one the CPU posts, or the stream rings. Offsets of the next `burst` puts are left in `words`.
GDA_KERNEL(gda_kernel_moments)(gda_qp* qp, gda_ticket ticket, uint64_t deadline_ns, gda_mr moments, uint32_t number,
                               gda_mr words, uint64_t bytes, uint64_t pieces, uint32_t burst, gda_status* status) {
    gda_status result = ticket != 0 ? gda_wait(qp, ticket, deadline_ns) : 0;
    uint64_t* ns = gda::words_of(moments) + 2 * number;
    ns[0] = gda::target::clock_ns();
    if (result != 0) gda_report(status, result);
    for (uint32_t i = 0; i < burst; ++i) {
        gda::words_of(words)[gda::PROXY_OFFSETS + i] = gda::decision(number, i, pieces) * bytes;
    }
    ns[1] = gda::target::clock_ns();
}

// CPU proxy: one thread of the kernel asks through words in host memory and waits for the answer.
GDA_KERNEL(gda_kernel_ask)(gda_mr words, uint64_t bytes, uint64_t pieces, uint32_t rounds, uint32_t burst,
                           uint64_t deadline_ns, gda_mr times, gda_status* status) {
    uint64_t* ns = gda::words_of(times);
    uint64_t* w = gda::words_of(words);
    for (uint32_t round = 0; round < rounds; ++round) {
        __syncthreads();
        uint64_t start = gda::target::clock_ns();
        for (uint32_t i = threadIdx.x; i < burst; i += blockDim.x) {
            w[gda::PROXY_OFFSETS + i] = gda::decision(round, i, pieces) * bytes;
        }
        __syncthreads();
        gda_status result = 0;
        if (threadIdx.x == 0) {
            gda::tell(w + gda::PROXY_ASKED, round + 1);
            result = gda_wait_signal(w + gda::PROXY_ANSWERED, GDA_REACHED, round + 1, deadline_ns);
            ns[round] = gda::target::clock_ns() - start;
        }
        if (__syncthreads_or(result != 0) != 0) {
            gda_report(status, result);
            return;
        }
    }
}

// Its other half, for a thread of the CPU (a kernel with target="host"): posts what is asked for, and answers.
GDA_KERNEL(gda_kernel_serve)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, gda_mr words, uint32_t rounds,
                             uint32_t burst, uint64_t deadline_ns, gda_status* status) {
    uint64_t* w = gda::words_of(words);
    gda_owner queue(qp);
    gda_status result = 0;
    for (uint32_t round = 0; round < rounds && result == 0; ++round) {
        result = gda_wait_signal(w + gda::PROXY_ASKED, GDA_REACHED, round + 1, deadline_ns);
        gda_ticket ticket = 0;
        for (uint32_t i = 0; i < burst && result == 0; ++i) {
            uint64_t offset = w[gda::PROXY_OFFSETS + i];
            ticket = queue.put(dst, offset, src, offset, bytes, i + 1 < burst ? GDA_MORE : 0);
        }
        if (result == 0) result = queue.wait(ticket, deadline_ns);
        if (result == 0) gda::tell(w + gda::PROXY_ANSWERED, round + 1);
    }
    queue.close();
    gda_report(status, result);
}
