// SPDX-License-Identifier: Apache-2.0
// The send queue of one queue pair: from the word that kernels store a doorbell to, over ibv_post_send and ibv_poll_cq,
// to completions as kernels poll them. Called by queue.cc, in the proxy's thread.
//
// Who owns what between the indices (64 bits, of basic blocks; slot = index & (depth - 1)):
//   [oldest_, next_)  handed over: posted and not complete, or waiting in order to be completed by the proxy itself
//   [next_, told_)    rung, not looked at yet
//
// iWARP tells that a write or a send is complete when its bytes are on their way, and says nothing of errors at the
// other end but that the connection ends. Kernels are promised more. So there each batch ends with a read, of no bytes
// if the kernel asked for none: it is answered when all before it is in place (RFC 5040, 5.5), and only what an
// answered read confirms is complete. Whatever goes wrong ends the connection and all that is not confirmed.
#pragma once

#include <vector>

#include "proxy/completions.h"
#include "proxy/request.h"

namespace proxy {

class SendQueue {
   public:
    // `word` and `record` (the send_counter dword) lie beside the ring.
    SendQueue(const Ring& ring, uint64_t* word, uint32_t* record, ibv_qp* qp, ibv_cq* cq, Completions completions)
        : ring_(ring), word_(word), record_(record), qp_(qp), cq_(cq), completions_(completions), asked_(ring.depth) {}

    Addresses addresses;

    // What was rung meanwhile is taken; whether there was any.
    bool take();
    // It is posted, and completions are read; whether anything was done.
    bool pass();
    // Whether completions are to come.
    bool is_waiting() const { return oldest_ != next_; }
    // The queue pair behind is in the error state: nothing more is posted, what comes is flushed.
    void fail() { failed_ = in_error_ = true; }
    bool in_error() const { return in_error_; }
    // iWARP: the connection has ended. What was complete stays so, all else fails.
    void lose();
    // As new. The queue pair behind is in reset; what its completion queue still holds is forgotten.
    void reset();

   private:
    // What was asked for in a slot, until it is complete.
    struct Asked {
        uint8_t opcode;
        uint32_t blocks;
        bool signaled;
        bool posted;      // libibverbs will tell; otherwise it is complete, or refused, when its turn comes
        uint8_t refusal;  // enum Refusal, or the vendor's byte of `syndrome`
        uint32_t bytes;
        uint8_t syndrome;  // of a device that told of it out of its turn; else 0
    };

    static const size_t AT_ONCE = 32;

    bool post();
    void flush_next();
    size_t gather();
    size_t confirm(size_t count);
    size_t hand_over(size_t count, int* reason);
    bool complete();
    void told_by_iwarp(const ibv_wc& wc);
    void end(uint64_t culprit, uint8_t syndrome, uint8_t vendor);
    bool finish_own();
    void finish(uint32_t syndrome, uint32_t vendor);
    Asked& at(uint64_t index) { return asked_[index & (ring_.depth - 1)]; }

    Ring ring_;
    uint64_t* word_;
    uint32_t* record_;
    ibv_qp* qp_;
    ibv_cq* cq_;
    Completions completions_;
    std::vector<Asked> asked_;
    uint64_t told_ = 0, next_ = 0, oldest_ = 0;
    uint64_t life_ = 0;       // counts resets, so that a completion from before is known
    bool failed_ = false;     // nothing more is posted
    bool in_error_ = false;   // the queue pair behind is in the error state, too
    uint64_t confirmed_ = 0;  // iWARP: all below is complete
    bool lost_ = false;       // iWARP: the connection has ended, and nobody has been told yet
    Request batch_[AT_ONCE + 1];
};

}  // namespace proxy
