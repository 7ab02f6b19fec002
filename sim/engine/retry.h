// SPDX-License-Identifier: Apache-2.0
// Between the two files of the requester: requester.cc sends and completes, retry.cc hears answers and counts time.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// requester.cc: completes in order what is acknowledged and what needs no answer; ends the oldest message in error.
void retire(DeviceState& s, Qp* qp);
void fail_oldest(DeviceState& s, Qp* qp, uint8_t syndrome, uint8_t vendor);

// retry.cc: starts the timer for the next answer; looks whether it ran out.
void await(DeviceState& s, Qp* qp);
void check_timers(DeviceState& s, Qp* qp);

}  // namespace sim
