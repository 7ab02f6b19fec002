// SPDX-License-Identifier: Apache-2.0
// The receive queue of one queue pair: from the receive ring and its record, over ibv_post_recv and ibv_poll_cq, to
// completions as kernels poll them. Called by queue.cc, in the proxy's thread.
// Source: ConnectX Programmer's Reference Manual, "Receive Queue".
//
// Who owns what between the indices (64 bits, of receives; entry = index & (depth - 1)):
//   [oldest_, posted_)  libibverbs
//   [posted_, next_)    nobody: told of behind a failure, to be flushed when those before are
#pragma once

#include "proxy/completions.h"

namespace proxy {

class ReceiveQueue {
   public:
    // Entries are data segments; `record` is the receive_counter dword. Without a ring there is no receive queue.
    ReceiveQueue(const uint8_t* ring, uint32_t depth, const uint32_t* record, ibv_qp* qp, ibv_cq* cq,
                 Completions completions)
        : ring_(ring), depth_(depth), record_(record), qp_(qp), cq_(cq), completions_(completions) {}

    // Whether anything was done.
    bool pass();
    void fail() { in_error_ = true; }
    bool in_error() const { return in_error_; }
    // iWARP; see SendQueue.
    void lose();
    // As new; see SendQueue.
    void reset();

   private:
    static const uint32_t AT_ONCE = 32;

    bool post();
    bool complete();
    void finish(const ibv_wc& wc);

    const uint8_t* ring_;
    uint32_t depth_;  // a power of two
    const uint32_t* record_;
    ibv_qp* qp_;
    ibv_cq* cq_;
    Completions completions_;
    uint64_t posted_ = 0, next_ = 0, oldest_ = 0;
    uint64_t life_ = 0;
    bool in_error_ = false;  // the queue pair behind is in the error state
};

}  // namespace proxy
