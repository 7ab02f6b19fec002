// SPDX-License-Identifier: Apache-2.0
// Doorbell records that promise requests for which nobody rang. Looked at by steps that find nothing else to do
// (device.cc). A card would never look: the requests would wait for ever, and nothing would tell why.
// Source: PRM, "Doorbells".
#pragma once

#include "sim/engine/state.h"

namespace sim {

void look_for_unrung(DeviceState& s);

// When the next look is due because a record was found ahead; 0: none was. Of the system's clock.
uint64_t unrung_due_ns(const DeviceState& s);

}  // namespace sim
