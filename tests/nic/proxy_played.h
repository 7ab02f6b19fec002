// SPDX-License-Identifier: Apache-2.0
// A device that is played: queue pairs in loopback that move bytes when they are asked for completions, in the thread
// that asks. Included by proxy_threads.cc, once. Nothing here takes a lock: posting, polling and moving to the error
// state are for one thread at a time, and a thread sanitizer sees whether the proxy keeps to that.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>

#define CHECK(condition)                                                                             \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            std::fprintf(stderr, "%s, line %d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                                            \
        }                                                                                            \
    } while (false)

namespace played {

struct Pair;

struct Cq : ibv_cq {
    Pair* of = nullptr;
    bool receives = false;
};

// One queue pair, its peer in loopback, and what it does wrong.
struct Pair : ibv_qp {
    struct Send {
        ibv_send_wr wr;
        ibv_sge pieces[4];
        uint8_t inline_bytes[64];
    };
    struct Receive {
        uint64_t id;
        ibv_sge piece;
    };

    Pair(ibv_context* device, uint32_t number, unsigned seed) : ibv_qp(), random(seed) {
        context = device;
        qp_num = number;
        qp_type = IBV_QPT_RC;
        for (Cq* cq : {&sends_cq, &receives_cq})
            *static_cast<ibv_cq*>(cq) = ibv_cq(), cq->context = device, cq->of = this;
        receives_cq.receives = true;
        send_cq = &sends_cq;
        recv_cq = &receives_cq;
    }
    bool chance(uint32_t one_in) { return random() % one_in == 0; }
    void as_new() {
        sends.clear();
        receives.clear();
        arrived.clear();
        in_error = false;
        until_failure = ~uint64_t{0};
    }

    Cq sends_cq, receives_cq;
    Pair* peer = this;
    std::mt19937 random;
    std::deque<Send> sends;
    std::deque<Receive> receives;
    std::deque<ibv_wc> arrived;
    bool in_error = false;
    uint64_t until_failure = ~uint64_t{0};  // requests that are carried out before one fails
};

inline Pair* of(ibv_qp* qp) { return static_cast<Pair*>(qp); }

inline int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    Pair& p = *of(qp);
    for (; wr; wr = wr->next) {
        if (!p.sends.empty() && p.chance(20)) {
            *bad = wr;
            return ENOMEM;
        }
        p.sends.emplace_back();
        Pair::Send& s = p.sends.back();
        s.wr = *wr;
        CHECK(wr->num_sge >= 0 && wr->num_sge <= 4);
        std::memcpy(s.pieces, wr->sg_list, static_cast<size_t>(wr->num_sge) * sizeof(ibv_sge));
        if (!(wr->send_flags & IBV_SEND_INLINE) || wr->num_sge == 0) continue;
        std::memcpy(s.inline_bytes, reinterpret_cast<void*>(s.pieces[0].addr), s.pieces[0].length);
        s.pieces[0].addr = reinterpret_cast<uintptr_t>(s.inline_bytes);
    }
    return 0;
}

inline int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    Pair& p = *of(qp);
    if (!p.receives.empty() && p.chance(20)) {
        *bad = wr;
        return ENOMEM;
    }
    CHECK(!wr->next && wr->num_sge <= 1);
    p.receives.push_back({wr->wr_id, wr->num_sge ? *wr->sg_list : ibv_sge{}});
    return 0;
}

// Whether the request could be carried out: a message waits for a receive.
inline bool carry_out(Pair& p, const Pair::Send& s) {
    const ibv_send_wr& wr = s.wr;
    void* own = reinterpret_cast<void*>(s.pieces[0].addr);
    void* remote = reinterpret_cast<void*>(wr.wr.rdma.remote_addr);
    const uint32_t bytes = wr.num_sge ? s.pieces[0].length : 0;
    const bool immediate = wr.opcode == IBV_WR_SEND_WITH_IMM || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {  // kernels look at the word only when all is over
        uint64_t old;
        std::memcpy(&old, reinterpret_cast<void*>(wr.wr.atomic.remote_addr), sizeof old);
        const uint64_t sum = old + wr.wr.atomic.compare_add;
        std::memcpy(reinterpret_cast<void*>(wr.wr.atomic.remote_addr), &sum, sizeof sum);
        std::memcpy(own, &old, sizeof old);
        return true;
    }
    if (wr.opcode == IBV_WR_RDMA_READ) {
        std::memcpy(own, remote, bytes);
        return true;
    }
    if (wr.opcode == IBV_WR_RDMA_WRITE) {
        std::memcpy(remote, own, bytes);
        return true;
    }
    Pair& other = *p.peer;
    if (other.receives.empty()) return false;
    const Pair::Receive r = other.receives.front();
    other.receives.pop_front();
    ibv_wc wc = {};
    wc.wr_id = r.id;
    wc.opcode = wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    wc.byte_len = bytes;
    if (immediate) wc.wc_flags = IBV_WC_WITH_IMM, wc.imm_data = wr.imm_data;
    if (wr.opcode != IBV_WR_RDMA_WRITE_WITH_IMM) CHECK(r.piece.length >= bytes);
    std::memcpy(wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? remote : reinterpret_cast<void*>(r.piece.addr), own, bytes);
    other.arrived.push_back(wc);
    return true;
}

inline int poll_receives(Pair& p, ibv_wc* wc) {
    if (p.arrived.empty() && p.in_error && !p.receives.empty()) {
        *wc = ibv_wc{};
        wc->status = IBV_WC_WR_FLUSH_ERR;
        wc->wr_id = p.receives.front().id;
        p.receives.pop_front();
        return 1;
    }
    if (p.arrived.empty()) return 0;
    *wc = p.arrived.front();
    p.arrived.pop_front();
    return 1;
}

inline int poll_cq(ibv_cq* any, int, ibv_wc* wc) {
    Cq& cq = *static_cast<Cq*>(any);
    Pair& p = *cq.of;
    if (cq.receives) return poll_receives(p, wc);
    if (p.sends.empty() || p.chance(4)) return 0;
    if (p.until_failure == 0) p.in_error = true;
    const bool flushed = p.in_error && p.until_failure != 0;
    if (!p.in_error && !carry_out(p, p.sends.front())) return 0;
    *wc = ibv_wc{};
    wc->wr_id = p.sends.front().wr.wr_id;
    wc->status = !p.in_error ? IBV_WC_SUCCESS : flushed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_REM_ACCESS_ERR;
    --p.until_failure;
    p.sends.pop_front();
    return 1;
}

inline ibv_context device() {
    ibv_context context = {};
    context.ops.post_send = post_send;
    context.ops.post_recv = post_recv;
    context.ops.poll_cq = poll_cq;
    return context;
}

}  // namespace played

// In libibverbs' place.
extern "C" int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int) {
    CHECK(attributes->qp_state == IBV_QPS_ERR);
    played::of(qp)->in_error = true;
    return 0;
}
