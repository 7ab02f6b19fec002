// SPDX-License-Identifier: Apache-2.0
// Among the files of the requester: requester.cc sends and completes, retry.cc hears answers and counts time,
// response.cc takes fetched data.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// requester.cc: completes in order what is acknowledged and what needs no answer; ends the oldest message in error.
void retire(DeviceState& s, Qp* qp);
void fail_oldest(DeviceState& s, Qp* qp, uint8_t syndrome, uint8_t vendor);
void flush_oldest(DeviceState& s, Qp* qp);

// retry.cc: all up to `acked` is done; resends from `psn` on; the same when a response was seen to be lost.
void advance(DeviceState& s, Qp* qp, uint32_t acked);
void go_back(Qp* qp, uint32_t psn);
void ask_again(DeviceState& s, Qp* qp, uint32_t psn);

// response.cc: the oldest read or atomic whose response is not complete. Null: none.
Message* oldest_fetch(Qp* qp);

// retry.cc: starts the timer for the next answer; it ran out.
void await(DeviceState& s, Qp* qp);
void no_answer(DeviceState& s, Qp* qp);
inline void check_timers(DeviceState& s, Qp* qp) {
    if (qp->deadline_ns && s.now_ns >= qp->deadline_ns) no_answer(s, qp);
}

}  // namespace sim
