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

// Every operation that posts; each is gda::NAME(poster, parameters) of those headers.
#define GDA_OPERATIONS(FORM)  \
    FORM(put)                 \
    FORM(put_imm)             \
    FORM(put_inline)          \
    FORM(put_value)           \
    FORM(put_signal)          \
    FORM(get)                 \
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
