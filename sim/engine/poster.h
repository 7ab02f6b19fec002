// SPDX-License-Identifier: Apache-2.0
// Who posted a request, in words for people who read a capture. Called by transmit.cc and reply.cc, only while a
// capture is on: sim/link/capture.h knows packets, not who made them.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// "posted by the CPU in python3 (1234): RDMA_WRITE, 1024 bytes". Valid until the next call.
const char* who_posted(DeviceState& s, const Qp* qp, const Message& m);
// "answered by the NIC of python3 (1234)"
const char* who_answered(DeviceState& s);

}  // namespace sim
