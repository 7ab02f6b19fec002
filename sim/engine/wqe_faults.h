// SPDX-License-Identifier: Apache-2.0
// What a send WQE that makes no sense was most likely meant to be. Called by wqe.cc once something is wrong, so all of
// it may take its time. Source: PRM, "Work Queue Entry Format".
#pragma once

#include "sim/engine/state.h"

namespace sim {

Why too_long(const Qp* qp, uint64_t bytes);

// A data segment of the WQE in s.wqe that cannot be followed, `left` segments before the end: the reason, and with it
// the mistake that leads there if one can be seen (torn, inline without its flag, a length in the wrong byte order).
Why likely(const DeviceState& s, const Qp* qp, uint16_t index, const uint8_t* segment, uint32_t left, const Why& why);

// Reserved bits that are set: told, and ignored as a card ignores them.
__attribute__((cold)) void say_reserved(DeviceState& s, const Qp* qp, uint16_t index, const char* where,
                                        const uint8_t* segment);

}  // namespace sim
