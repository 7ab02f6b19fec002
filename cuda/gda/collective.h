// SPDX-License-Identifier: Apache-2.0
// The forms of every operation for a warp and for a block: gda_put_warp, gda_put_block, gda_put_signal_warp ... All
// threads of the warp or block call with equal arguments; one operation is posted, and all get its ticket. What any of
// them wrote before the call is there for the NIC. In a block the first warp posts. Long transfers are split over the
// lanes of that warp. Parameters: those of the form without the suffix; operands of masked atomics need their type, as
// uint32_t or uint64_t.
//
// So do the waits: one thread looks, all get its status, and see what it saw.
#pragma once

#include <gda/atomic.h>
#include <gda/datagram.h>
#include <gda/message.h>
#include <gda/put.h>
#include <gda/signal.h>
#include <gda/strided.h>

// Every operation that posts; each is gda::NAME(poster, parameters) of those headers.
#define GDA_OPERATIONS(FORM)  \
    FORM(put)                 \
    FORM(put_imm)             \
    FORM(put_inline)          \
    FORM(put_value)           \
    FORM(put_signal)          \
    FORM(put_strided)         \
    FORM(get)                 \
    FORM(get_strided)         \
    FORM(signal)              \
    FORM(fetch_add)           \
    FORM(compare_swap)        \
    FORM(masked_fetch_add)    \
    FORM(masked_compare_swap) \
    FORM(send)                \
    FORM(send_imm)            \
    FORM(send_to)             \
    FORM(send_imm_to)         \
    FORM(nop)

#define GDA_COLLECTIVE_OPERATION(NAME)                                      \
    template <class... P>                                                   \
    GDA_API gda_ticket gda_##NAME##_warp(gda_qp* qp, const P&... values) {  \
        gda::by_warp p(qp);                                                 \
        return gda::NAME(p, values...);                                     \
    }                                                                       \
    template <class... P>                                                   \
    GDA_API gda_ticket gda_##NAME##_block(gda_qp* qp, const P&... values) { \
        gda::target::sync_block();                                          \
        gda_ticket ticket = 0;                                              \
        if (gda::target::in_first_warp()) {                                 \
            gda::by_warp p(qp);                                             \
            ticket = gda::NAME(p, values...);                               \
        }                                                                   \
        return gda::target::broadcast_block(ticket);                        \
    }
GDA_OPERATIONS(GDA_COLLECTIVE_OPERATION)
#undef GDA_COLLECTIVE_OPERATION

#define GDA_COLLECTIVE_WAIT(NAME)                                                \
    template <class... P>                                                        \
    GDA_API gda_status gda_##NAME##_warp(const P&... values) {                   \
        gda::target::group g = gda::target::warp();                              \
        gda_status status = 0;                                                   \
        if (g.rank == 0) status = gda_##NAME(values...);                         \
        status = gda::target::broadcast(g, status);                              \
        gda::target::sync(g);                                                    \
        return status;                                                           \
    }                                                                            \
    template <class... P>                                                        \
    GDA_API gda_status gda_##NAME##_block(const P&... values) {                  \
        gda_status status = 0;                                                   \
        if (gda::target::thread_of_block() == 0) status = gda_##NAME(values...); \
        return gda::target::broadcast_block(status);                             \
    }
GDA_COLLECTIVE_WAIT(wait)
GDA_COLLECTIVE_WAIT(flush)
GDA_COLLECTIVE_WAIT(wait_signal)
#undef GDA_COLLECTIVE_WAIT

// Receives: one is posted, or taken, for the warp or block, and all get the answer; in `out`, which may be of each
// thread or of all, what has arrived.
namespace gda {

struct lanes_of_warp {
    target::group g = target::warp();
    GDA_MEMBER bool leads() const { return g.rank == 0; }
    GDA_MEMBER uint64_t broadcast(uint64_t v) const { return target::broadcast(g, v); }
    GDA_MEMBER void sync() const { target::sync(g); }
};
struct threads_of_block {
    GDA_MEMBER bool leads() const { return target::thread_of_block() == 0; }
    GDA_MEMBER uint64_t broadcast(uint64_t v) const { return target::broadcast_block(v); }
    GDA_MEMBER void sync() const { target::sync_block(); }
};

template <class Threads>
GDA_DEVICE gda_ticket post_receive_together(const Threads& t, gda_qp* qp, const gda_mr& buffer, uint64_t offset,
                                            uint64_t bytes) {
    gda_ticket ticket = 0;
    t.sync();  // none of them reads any more what was in the memory
    if (t.leads()) ticket = gda_post_receive(qp, buffer, offset, bytes);
    return t.broadcast(ticket);
}

// `r` is the first thread's, filled in where `status` says so. What it saw, all see behind it.
template <class Threads>
GDA_DEVICE gda_status share_arrival(const Threads& t, gda_status status, gda_received r, gda_received* out) {
    status = t.broadcast(status);
    if (gda_code(status) != GDA_OK && gda_code(status) != prm::GDA_COMPLETION_ERROR) return status;
    r.index = t.broadcast(r.index);
    r.addr = t.broadcast(r.addr);
    r.bytes = static_cast<uint32_t>(t.broadcast(r.bytes));
    r.immediate = static_cast<uint32_t>(t.broadcast(r.immediate));
    r.opcode = static_cast<uint32_t>(t.broadcast(r.opcode));
    *out = r;
    t.sync();
    return status;
}

template <class Threads>
GDA_DEVICE gda_status poll_receive_together(const Threads& t, gda_qp* qp, gda_received* out) {
    gda_received r = {};
    return share_arrival(t, t.leads() ? gda_poll_receive(qp, &r) : 0, r, out);
}
template <class Threads>
GDA_DEVICE gda_status wait_receive_together(const Threads& t, gda_qp* qp, gda_received* out, uint64_t deadline_ns) {
    gda_received r = {};
    return share_arrival(t, t.leads() ? gda_wait_receive(qp, &r, deadline_ns) : 0, r, out);
}

}  // namespace gda

GDA_API gda_ticket gda_post_receive_warp(gda_qp* qp, gda_mr buffer, uint64_t offset, uint64_t bytes) {
    return gda::post_receive_together(gda::lanes_of_warp(), qp, buffer, offset, bytes);
}
GDA_API gda_ticket gda_post_receive_block(gda_qp* qp, gda_mr buffer, uint64_t offset, uint64_t bytes) {
    return gda::post_receive_together(gda::threads_of_block(), qp, buffer, offset, bytes);
}
GDA_API gda_status gda_poll_receive_warp(gda_qp* qp, gda_received* out) {
    return gda::poll_receive_together(gda::lanes_of_warp(), qp, out);
}
GDA_API gda_status gda_poll_receive_block(gda_qp* qp, gda_received* out) {
    return gda::poll_receive_together(gda::threads_of_block(), qp, out);
}
GDA_API gda_status gda_wait_receive_warp(gda_qp* qp, gda_received* out, uint64_t deadline_ns) {
    return gda::wait_receive_together(gda::lanes_of_warp(), qp, out, deadline_ns);
}
GDA_API gda_status gda_wait_receive_block(gda_qp* qp, gda_received* out, uint64_t deadline_ns) {
    return gda::wait_receive_together(gda::threads_of_block(), qp, out, deadline_ns);
}
