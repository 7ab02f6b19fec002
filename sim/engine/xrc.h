// SPDX-License-Identifier: Apache-2.0
// XRC: every request names the shared receive queue that it is for; that queue decides whose keys count, where the
// request reports and as what. Called by the responder and, at the end of such a queue, by device.cc.
// Source: InfiniBand Architecture Specification, volume 1, annex A14 (Extended Reliable Connected Transport Service).
#pragma once

#include "sim/engine/state.h"

namespace sim {

// Takes the receive queue of a request for the queue pair. False: there is none of that number in its domain, and the
// peer was refused.
bool take_xrc(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn);

// Before the queue ends: no queue pair holds one of its receives any more, nor looks at it.
void leave_srq(DeviceState& s, Srq* srq);

}  // namespace sim
