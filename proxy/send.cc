// SPDX-License-Identifier: Apache-2.0
// See send.h.

#include "proxy/send.h"

#include <gda/formats/doorbell.h>

#include <cerrno>

#include "proxy/life.h"

namespace proxy {

using namespace gda::prm;

void SendQueue::reset() {
    ibv_wc wc[AT_ONCE];
    while (ibv_poll_cq(cq_, AT_ONCE, wc) > 0) {
    }
    ++life_;
    told_ = next_ = oldest_ = confirmed_ = 0;
    failed_ = in_error_ = lost_ = false;
    __atomic_store_n(word_, 0, __ATOMIC_RELAXED);
    __atomic_store_n(record_, 0, __ATOMIC_RELAXED);
}

bool SendQueue::pass() {
    const bool posts = post();
    return complete() || posts;
}

// What a kernel wrote before it stored the value is seen by whoever takes the value. The record is told for those who
// look at the queue from outside: here nobody else reads it.
bool SendQueue::take() {
    if (__atomic_load_n(word_, __ATOMIC_RELAXED) == 0) return false;
    const uint64_t value = __atomic_exchange_n(word_, 0, __ATOMIC_ACQ_REL);
    uint32_t counter = static_cast<uint32_t>(GDA_GET(send_doorbell, &value, wqe_index));
    // Kernels store the index behind all requests. People who post by hand may store the last request's first bytes.
    const uint32_t segments = static_cast<uint32_t>(GDA_GET(send_doorbell, &value, ds));
    const uint32_t in_block = WQE_BASIC_BLOCK_BYTES / WQE_SEGMENT_BYTES;
    counter += (segments + in_block - 1) / in_block;
    const uint16_t more = static_cast<uint16_t>(counter - static_cast<uint32_t>(told_));
    // An index behind, or so far ahead that it cannot be: nothing new.
    if (more == 0 || told_ + more - oldest_ > ring_.depth) return false;
    told_ += more;
    __atomic_store_n(record_, gda::be32(GDA_FIELD(qp_doorbell_record, send_counter, static_cast<uint16_t>(counter))),
                     __ATOMIC_RELEASE);
    return true;
}

bool SendQueue::post() {
    const uint64_t before = next_;
    while (next_ != told_) {
        if (failed_) {
            flush_next();
            continue;
        }
        const size_t count = gather();
        int reason = 0;
        const size_t posted = count != 0 ? hand_over(count, &reason) : 0;
        if (posted == count) continue;
        if (ring_.iwarp) {
            move_to_error(qp_);
            lose();
            continue;
        }
        const uint64_t index = batch_[posted].index;
        failed_ = false;
        next_ = index;
        // No room: something must complete first, and will.
        if (reason == ENOMEM && oldest_ != index) break;
        at(index).posted = false;
        at(index).refusal = REFUSAL_NOT_POSTED;
        next_ += at(index).blocks;
        failed_ = true;
    }
    return next_ != before;
}

// Behind a failure nothing is carried out. What lies there is read only to know how many requests it is.
void SendQueue::flush_next() {
    Request& r = batch_[0];
    read_request(ring_, addresses, next_, told_ - next_, &r);
    const Refusal refusal = lost_ ? REFUSAL_LOST : REFUSAL_FLUSHED;
    lost_ = false;
    at(next_) = {r.opcode, r.blocks, r.signaled, false, refusal, r.bytes, 0};
    next_ += r.blocks;
}

// The next requests that can be posted together, linked. One that cannot be posted at all ends them: it waits in its
// place for those before it, and fails the queue.
size_t SendQueue::gather() {
    size_t count = 0;
    while (next_ != told_ && count != AT_ONCE && !failed_) {
        Request& r = batch_[count];
        r.index = next_;
        read_request(ring_, addresses, next_, told_ - next_, &r);
        const bool posts = !r.is_nop && r.refusal == REFUSAL_NONE;
        at(next_) = {r.opcode, r.blocks, r.signaled, posts, r.refusal, r.bytes, 0};
        next_ += r.blocks;
        failed_ = r.refusal != REFUSAL_NONE;
        if (!posts) continue;
        r.wr.wr_id = id_of(life_, r.index);
        if (count != 0) batch_[count - 1].wr.next = &r.wr;
        ++count;
    }
    return ring_.iwarp ? confirm(count) : count;
}

// A batch that does not end with a read gets one of no bytes, under the index of its last request.
size_t SendQueue::confirm(size_t count) {
    if (count == 0 || batch_[count - 1].wr.opcode == IBV_WR_RDMA_READ) return count;
    const Request& last = batch_[count - 1];
    Request& r = batch_[count];
    r.index = last.index;
    r.pieces[0] = ibv_sge{};
    r.wr = ibv_send_wr{};
    r.wr.wr_id = last.wr.wr_id;
    r.wr.sg_list = r.pieces;
    r.wr.num_sge = 1;
    r.wr.opcode = IBV_WR_RDMA_READ;
    r.wr.send_flags = IBV_SEND_SIGNALED;
    batch_[count - 1].wr.next = &r.wr;
    return count + 1;
}

// How many of the gathered requests libibverbs took, and why not all.
size_t SendQueue::hand_over(size_t count, int* reason) {
    ibv_send_wr* bad = nullptr;
    *reason = ibv_post_send(qp_, &batch_[0].wr, &bad);
    if (*reason == 0) return count;
    if (*reason < 0) *reason = errno;
    size_t posted = 0;
    while (posted + 1 != count && &batch_[posted].wr != bad) ++posted;
    return posted;
}

// Every request is signaled, so libibverbs tells of all that were posted, in their order.
bool SendQueue::complete() {
    bool some = finish_own();
    ibv_wc wc;
    while (oldest_ != next_ && completions_.has_room() && ibv_poll_cq(cq_, 1, &wc) > 0) {
        some = true;
        if (!is_of(wc.wr_id, life_)) continue;
        if (ring_.iwarp) {
            told_by_iwarp(wc);
            finish_own();
            continue;
        }
        if (wc.status != IBV_WC_SUCCESS) fail();
        finish(wc.status == IBV_WC_SUCCESS ? 0 : syndrome_of(wc.status), wc.vendor_err);
        finish_own();
    }
    return some;
}

// An answered read confirms all up to itself; success of anything else says nothing.
void SendQueue::told_by_iwarp(const ibv_wc& wc) {
    const uint64_t index = index_of(wc.wr_id);
    if (wc.status != IBV_WC_SUCCESS) {
        const bool is_flushed = wc.status == IBV_WC_WR_FLUSH_ERR;  // and nothing before it failed: the other side ended
        move_to_error(qp_);
        end(index, is_flushed ? uint8_t{0} : syndrome_of(wc.status), static_cast<uint8_t>(wc.vendor_err));
    } else if (wc.opcode == IBV_WC_RDMA_READ && index >= oldest_) {
        confirmed_ = index + at(index).blocks;
    }
}

void SendQueue::lose() {
    complete();
    lost_ = !in_error_ && oldest_ == next_;
    end(next_, 0, 0);
}

// Nothing is to come any more. The request at `culprit` has a syndrome of its own, if any; the first of those that
// nothing confirmed tells that the connection is lost. Completions that still come are of an earlier life.
void SendQueue::end(uint64_t culprit, uint8_t syndrome, uint8_t vendor) {
    bool told = in_error_;
    ++life_;
    for (uint64_t i = oldest_ < confirmed_ ? confirmed_ : oldest_; i != next_; i += at(i).blocks) {
        Asked& asked = at(i);
        if (!asked.posted) continue;
        asked.posted = false;
        asked.refusal = told ? REFUSAL_FLUSHED : REFUSAL_LOST;
        if (i == culprit && syndrome != 0) {
            asked.refusal = vendor;
            asked.syndrome = syndrome;
        }
        told = true;
    }
    fail();
}

// What nobody else completes, and what iWARP confirmed, once its turn has come.
bool SendQueue::finish_own() {
    const uint64_t before = oldest_;
    while (oldest_ != next_ && (!at(oldest_).posted || oldest_ < confirmed_) && completions_.has_room()) {
        const uint8_t refusal = at(oldest_).refusal;
        if (oldest_ < confirmed_) {
            finish(0, 0);
        } else if (at(oldest_).syndrome != 0) {
            finish(at(oldest_).syndrome, refusal);
        } else if (refusal == REFUSAL_LOST) {
            finish(MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR, refusal);
        } else if (refusal == REFUSAL_FLUSHED || (refusal == REFUSAL_NONE && in_error_)) {
            finish(MLX5_CQE_SYNDROME_WR_FLUSH_ERR, REFUSAL_FLUSHED);
        } else if (refusal == REFUSAL_NONE) {
            finish(0, 0);
        } else {
            if (!in_error_) move_to_error(qp_);
            fail();
            finish(MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, refusal);
        }
    }
    return oldest_ != before;
}

// The oldest request is complete; an error always has a completion.
void SendQueue::finish(uint32_t syndrome, uint32_t vendor) {
    const Asked& asked = at(oldest_);
    if (syndrome != 0 || asked.signaled) {
        Completion c;
        c.opcode = syndrome != 0 ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ;
        c.index = static_cast<uint16_t>(oldest_);
        c.wqe_opcode = asked.opcode;
        c.bytes = asked.bytes;
        c.syndrome = static_cast<uint8_t>(syndrome);
        c.vendor = static_cast<uint8_t>(vendor);
        completions_.write(c);
    }
    oldest_ += asked.blocks;
}

}  // namespace proxy
