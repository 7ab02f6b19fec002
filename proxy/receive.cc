// SPDX-License-Identifier: Apache-2.0
// See receive.h.

#include "proxy/receive.h"

#include <gda/formats/doorbell.h>
#include <gda/formats/wqe.h>

#include <cerrno>

#include "proxy/life.h"
#include "proxy/refusal.h"

namespace proxy {

using namespace gda::prm;

void ReceiveQueue::reset() {
    in_error_ = false;  // also where there is no receive queue: both halves fail together
    if (!ring_) return;
    ibv_wc wc[AT_ONCE];
    while (ibv_poll_cq(cq_, AT_ONCE, wc) > 0) {
    }
    ++life_;
    posted_ = next_ = oldest_ = 0;
}

bool ReceiveQueue::pass() {
    if (!ring_) return false;
    const bool posts = post();
    return complete() || posts;
}

bool ReceiveQueue::post() {
    // Acquire: the entries below the counter are written.
    const uint32_t word = __atomic_load_n(record_, __ATOMIC_ACQUIRE);
    const uint32_t counter = GDA_EXTRACT(qp_doorbell_record, receive_counter, gda::be32(word));
    uint16_t more = static_cast<uint16_t>(counter - static_cast<uint32_t>(next_));
    if (more == 0 || next_ + more - oldest_ > depth_) return false;
    const uint64_t before = next_;
    for (; more != 0; --more) {
        if (in_error_) {
            ++next_;
            continue;
        }
        const uint8_t* entry = ring_ + (next_ & (depth_ - 1)) * GDA_BYTES_OF(wqe_data_seg);
        ibv_sge piece = {GDA_GET(wqe_data_seg, entry, addr),
                         static_cast<uint32_t>(GDA_GET(wqe_data_seg, entry, byte_count)),
                         static_cast<uint32_t>(GDA_GET(wqe_data_seg, entry, lkey))};
        ibv_recv_wr wr = {}, *bad = nullptr;
        wr.wr_id = id_of(life_, next_);
        wr.sg_list = &piece;
        wr.num_sge = piece.lkey == LKEY_END_OF_LIST ? 0 : 1;
        const int reason = ibv_post_recv(qp_, &wr, &bad);
        if ((reason < 0 ? errno : reason) == ENOMEM && oldest_ != posted_) break;  // tried again after a completion
        ++next_;
        if (reason == 0) {
            posted_ = next_;
        } else {
            in_error_ = true;
        }
    }
    return next_ != before;
}

bool ReceiveQueue::complete() {
    if (!ring_) return false;
    bool some = false;
    ibv_wc wc;
    while (oldest_ != posted_ && completions_.has_room() && ibv_poll_cq(cq_, 1, &wc) > 0) {
        some = true;
        if (is_of(wc.wr_id, life_)) finish(wc);
    }
    while (in_error_ && oldest_ == posted_ && oldest_ != next_ && completions_.has_room()) {
        wc = ibv_wc{};
        wc.status = IBV_WC_WR_FLUSH_ERR;
        wc.vendor_err = REFUSAL_FLUSHED;
        ++posted_;
        finish(wc);
        some = true;
    }
    return some;
}

void ReceiveQueue::lose() {
    complete();
    ++life_;
    posted_ = oldest_;
    in_error_ = true;
}

// The oldest receive is complete.
void ReceiveQueue::finish(const ibv_wc& wc) {
    Completion c;
    c.index = static_cast<uint16_t>(oldest_);
    if (wc.status != IBV_WC_SUCCESS) {
        in_error_ = true;
        c.opcode = MLX5_CQE_RESP_ERR;
        c.syndrome = syndrome_of(wc.status);
        c.vendor = static_cast<uint8_t>(wc.vendor_err);
    } else {
        const bool immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
        c.opcode = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? MLX5_CQE_RESP_WR_IMM
                   : immediate                            ? MLX5_CQE_RESP_SEND_IMM
                                                          : MLX5_CQE_RESP_SEND;
        c.bytes = wc.byte_len;
        c.immediate_be = immediate ? wc.imm_data : 0;
        c.from = wc.src_qp;
        c.grh = (wc.wc_flags & IBV_WC_GRH) != 0;
    }
    completions_.write(c);
    ++oldest_;
}

}  // namespace proxy
