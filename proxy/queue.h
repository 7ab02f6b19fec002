// SPDX-License-Identifier: Apache-2.0
// A queue pair whose requests kernels write in mlx5's format and an ordinary queue pair of libibverbs carries out; and
// the loop that serves several. Called by gda/_proxy.pyx; document: docs/proxy.md.
#pragma once

#include "proxy/receive.h"
#include "proxy/send.h"

namespace proxy {

// Where the parts of a queue pair lie in this process, all in memory of the host. Addresses; 0: there is none.
struct Places {
    uint64_t sq, cq, rq, receive_cq;
    uint64_t word;            // where kernels store a doorbell
    uint64_t send_record;     // send_counter dword
    uint64_t receive_record;  // receive_counter dword
    uint64_t cq_record;       // 0: the completion queue ignores overrun
};

// What it is. Sizes are powers of two: basic blocks, entries, receives (0: none).
struct Facts {
    uint32_t depth, cq_entries, receive_depth;
    bool collapsed;
    uint32_t user_index;
    uint32_t most_inline, most_pieces;
    bool iwarp;
};

class Queue {
   public:
    Queue(const Places& places, const Facts& facts, ibv_qp* qp);

    // The three parts of a look, in the thread; whether anything was done.
    bool take();
    bool receive();
    bool send();
    bool is_waiting() const { return send_.is_waiting(); }

    // While no thread serves it.
    void start() { started_ = true; }
    void fail();
    void lose();
    bool in_error() const { return send_.in_error() || receive_.in_error(); }
    void reset();
    void know(const uint8_t* address, ibv_ah* handle);

   private:
    bool started_ = false;  // connected: nothing can be posted before
    bool iwarp_;            // but receives, without which what comes first would end the connection
    ibv_qp* qp_;
    SendQueue send_;
    ReceiveQueue receive_;
};

// How the loop waits.
struct Patience {
    uint64_t busy_ns;           // after it did something: how long to look without a pause
    uint64_t longest_sleep_ns;  // at rest
    uint64_t open_sleep_ns;     // while completions are to come
};

// One look at all of them; whether anything was done. What was rung is taken first, then receives are posted, then
// what was taken: so a receive that a kernel posted before it, or another that it heard of, rang, is there before what
// was rung arrives anywhere.
bool look(Queue* const* queues, size_t count);

// Serves the queues until *stop is not zero; how many of its looks found something.
uint64_t serve(Queue* const* queues, size_t count, const uint64_t* stop, const Patience& patience);

}  // namespace proxy
