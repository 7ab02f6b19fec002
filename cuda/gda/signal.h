// SPDX-License-Identifier: Apache-2.0
// Signals: eight bytes of the other side's memory that say how far this side is, and waiting for one. Called by
// kernels. Refusals and tickets: put.h; order: docs/ordering.md.
//
//   gda_put_signal(qp, dst, 0, src, 0, bytes, signals, 0, 1, GDA_SIGNAL_ADD);          // here
//   gda_status s = gda_wait_signal(signal, GDA_REACHED, round, GDA_MS(100), nullptr);  // there: the bytes have come
//
// A signal in memory registered with relaxed ordering is refused (GDA_RELAXED_SIGNAL): it could be seen before the
// data. A signal lies behind all that was posted to the same queue before it: the requests of a queue are carried out
// in order. (A get posted before it may still be under way.) Signals that add must lie at a multiple of eight; several
// queues may add to one. The kernel that waits owns no part of the queue: any memory that a peer writes will do.
#pragma once

#include <gda/atomic.h>

namespace gda {

// The old value of one that adds lands in the queue's scratch; nobody reads it.
GDA_DEVICE atomic_request adding_signal(gda_qp* qp, const gda_mr& remote, uint64_t offset, uint64_t value) {
    atomic_request r = fetch_add_of(value);
    r.raddr = remote.addr + offset;
    r.rkey_be = remote.rkey_be;
    r.addr = target::load_constant(&qp->scratch);
    r.lkey_be = target::load_constant(&qp->scratch_lkey_be);
    return r;
}

GDA_DEVICE inline_write setting_signal(const gda_mr& remote, uint64_t offset, uint64_t value) {
    return inline_of(remote, offset, &value, sizeof(value));
}

GDA_DEVICE bool compares(uint32_t comparison, uint64_t seen, uint64_t value) {
    if (comparison == GDA_EQUAL) return seen == value;
    if (comparison == GDA_NOT_EQUAL) return seen != value;
    return static_cast<int64_t>(seen - value) >= 0;
}

GDA_DEVICE gda_status signal_timeout(uint64_t seen) {
    return join(GDA_FIELD(signal_status, last_seen_55_24, static_cast<uint32_t>(seen >> 24)),
                GDA_FIELD(signal_status, last_seen_23_0, static_cast<uint32_t>(seen)) |
                    GDA_FIELD(signal_status, code, prm::GDA_SIGNAL_TIMEOUT));
}

// Why a signal may not lie there; 0 if it may.
GDA_DEVICE gda_status no_signal_there(const queue_view& q, const gda_mr& signals, uint64_t offset) {
    if (!within(signals, offset, sizeof(uint64_t))) return out_of_bounds(q);
    bool relaxed = target::CHECKED && (signals.flags & GDA_MR_RELAXED) != 0;
    return relaxed ? make_status(prm::GDA_RELAXED_SIGNAL, q.qpn, 0) : 0;
}

template <class Poster>
GDA_DEVICE gda_ticket signal(Poster& p, const gda_mr& remote, uint64_t offset, uint64_t value,
                             gda_signal_operation operation, uint32_t flags = 0) {
    if (p.status != 0) return GDA_TICKET_FAILED | p.status;
    gda_status refused = no_signal_there(p.q, remote, offset);
    manner m = manner_of(flags, true);
    if (operation == GDA_SIGNAL_SET) return p.submit(setting_signal(remote, offset, value), m, refused);
    return p.submit(adding_signal(p.qp, remote, offset, value), m, refused);
}

template <class Poster>
GDA_DEVICE gda_ticket put_signal(Poster& p, const gda_mr& dst, uint64_t dst_offset, const gda_mr& src,
                                 uint64_t src_offset, uint64_t bytes, const gda_mr& signals, uint64_t signal_offset,
                                 uint64_t value, gda_signal_operation operation, uint32_t flags = 0) {
    if (p.status != 0) return GDA_TICKET_FAILED | p.status;
    constexpr uint32_t WRITE = prm::MLX5_OPCODE_RDMA_WRITE;
    gda_status refused = no_signal_there(p.q, signals, signal_offset);
    if (!within(dst, dst_offset, bytes) || !within(src, src_offset, bytes)) refused = out_of_bounds(p.q);
    transfer_plan t = plan_of(p.q, dst, dst_offset, src, src_offset);
    uint64_t last = 0;
    if (__builtin_expect(p.any(bytes > t.most), 0)) last = post_first_pieces(p, t, WRITE, bytes, flags, &refused);
    rdma_request data = piece_of(t, WRITE, last, bytes - last);
    manner m = manner_of(flags, true);
    if (operation == GDA_SIGNAL_SET) {
        pair_request<rdma_request, inline_write> both = {data, setting_signal(signals, signal_offset, value)};
        return p.submit(both, m, refused);
    }
    pair_request<rdma_request, atomic_request> both = {data, adding_signal(p.qp, signals, signal_offset, value)};
    return p.submit(both, m, refused);
}

}  // namespace gda

// Adds `value` to the eight bytes at remote + offset, or sets them to it.
GDA_API gda_ticket gda_signal(gda_qp* qp, gda_mr remote, uint64_t offset, uint64_t value,
                              gda_signal_operation operation, uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::signal(p, remote, offset, value, operation, flags);
}

// A put and a signal behind it, as one submission with one ticket: whoever sees the signal sees the bytes.
GDA_API gda_ticket gda_put_signal(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset,
                                  uint64_t bytes, gda_mr signals, uint64_t signal_offset, uint64_t value,
                                  gda_signal_operation operation, uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::put_signal(p, dst, dst_offset, src, src_offset, bytes, signals, signal_offset, value, operation, flags);
}

// Whether the eight bytes here compare as asked with `value`: GDA_OK, else GDA_TIMEOUT (the bare code). Never waits.
// After GDA_OK everything that the signalling side posted before is seen.
GDA_API gda_status gda_test_signal(const uint64_t* signal, gda_comparison comparison, uint64_t value) {
    return gda::compares(comparison, gda::target::load_signal(signal), value) ? GDA_OK : GDA_TIMEOUT;
}

// Waits for that at most `deadline_ns` nanoseconds: GDA_OK, or GDA_SIGNAL_TIMEOUT with the value last seen in the word
// (all but its top byte). `seen`, unless null, gets the whole of it.
GDA_API gda_status gda_wait_signal(const uint64_t* signal, gda_comparison comparison, uint64_t value,
                                   uint64_t deadline_ns, uint64_t* seen = nullptr) {
    uint64_t give_up_at = 0;
    for (;;) {
        uint64_t now = gda::target::load_signal(signal);
        bool there = gda::compares(comparison, now, value);
        if (seen != nullptr) *seen = now;
        if (there) return GDA_OK;
        if (give_up_at == 0) {
            give_up_at = gda::moment_after(deadline_ns);
        } else if (gda::target::clock_ns() >= give_up_at) {
            return gda::signal_timeout(now);
        }
        gda::target::idle();
    }
}
