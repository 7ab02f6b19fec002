// SPDX-License-Identifier: Apache-2.0
// See xrc.h.

#include "sim/engine/xrc.h"

#include <errno.h>

#include "sim/engine/receive.h"
#include "sim/engine/responder.h"
#include "sim/engine/vendor.h"

namespace sim {

using namespace gda::prm;

bool take_xrc(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn) {
    const uint32_t number = static_cast<uint32_t>(GDA_GET(xrceth, packet.header + GDA_BYTES_OF(bth), xrcsrq));
    Srq* srq = s.srqs.find(number);
    const bool goes_on = qp->in_send || qp->in_write;  // a message is for one queue
    if (!srq || !qp->xrcd || srq->xrcd != qp->xrcd || (goes_on && srq != qp->srq)) {
        refuse(s, qp, psn, AETH_NAK_INVALID_REQUEST, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
               text("it is for the shared receive queue 0x%06x, which %s", number,
                    !srq                    ? "does not exist"
                    : srq->xrcd != qp->xrcd ? "is not in the XRC domain of this queue pair"
                                            : "is not the one that the message began with"));
        return false;
    }
    if (qp->srq != srq && qp->receive.open) {  // opened for a message that was dropped: it was another queue's
        fail_receive(s, qp, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, VENDOR_FLUSHED);
    }
    qp->srq = srq;
    qp->pd = srq->pd;
    qp->receive_cq = srq->cq;
    qp->user_index = srq->user_index;
    return true;
}

void leave_srq(DeviceState& s, Srq* srq) {
    s.qps.each([&](Qp& qp) {
        if (!qp.over_xrc() || qp.srq != srq) return;
        if (qp.receive.open) fail_receive(s, &qp, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, VENDOR_FLUSHED);
        qp.in_send = qp.in_write = false;
        qp.srq = nullptr;
        qp.receive_cq = nullptr;
        qp.pd = nullptr;
    });
}

namespace {

const uint32_t FIRST_INDEX = 1;  // number 0 in a command stands for none
const uint32_t MAX_DOMAINS = 1u << 15;

}  // namespace

int Device::allocate_xrcd(uint32_t* number) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    Hold hold(s);
    try {
        const uint32_t index = s.xrcds.free_index(FIRST_INDEX);
        if (index >= s.xrcds.LIMIT || s.xrcds.size() >= MAX_DOMAINS) return -ENOMEM;
        auto xrcd = std::make_unique<Xrcd>();
        xrcd->number = index;
        s.xrcds.put(index, std::move(xrcd));
        return *number = index, 0;
    } catch (const std::exception&) {
        return -ENOMEM;
    }
}

int Device::release_xrcd(uint32_t number) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    Hold hold(s);
    const Xrcd* xrcd = s.xrcds.find(number);
    if (!xrcd) return -ENOENT;
    if (xrcd->uses) return -EBUSY;
    s.xrcds.erase(number);
    return 0;
}

int Device::open_srq(uint32_t srqn, uint32_t xrcd, uint32_t cqn, uint32_t user_index) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    Hold hold(s);
    Srq* srq = s.srqs.find(srqn);
    Xrcd* domain = s.xrcds.find(xrcd);
    Cq* cq = s.cqs.find(cqn);
    if (!srq || !domain || !cq) return -ENOENT;
    if (srq->xrcd) return -EBUSY;
    srq->xrcd = domain;
    srq->cq = cq;
    srq->user_index = user_index;
    ++domain->uses;
    ++cq->uses;
    return 0;
}

}  // namespace sim
