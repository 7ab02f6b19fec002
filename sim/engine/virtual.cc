// SPDX-License-Identifier: Apache-2.0
// See virtual.h.

#include "sim/engine/virtual.h"

#include <algorithm>

#include "sim/engine/requester.h"
#include "sim/engine/thread.h"

namespace sim {

namespace {

void sooner(uint64_t candidate, uint64_t* due) {
    if (candidate && (!*due || candidate < *due)) *due = candidate;
}

uint64_t next_due(DeviceState& s) {
    std::unique_lock<std::mutex> hold(s.lock, std::try_to_lock);
    uint64_t due = 0;
    if (!hold.owns_lock()) return due;
    sooner(s.port->due_ns(), &due);
    for (const Qp* qp : s.busy) sooner(due_ns(qp), &due);
    return due;
}

}  // namespace

int settle_virtual() {
    int all = 0;
    for (int done = 1; done;) {
        done = 0;
        each_device([&](DeviceState& s) { done += step_one(s, true); });
        all += done;
    }
    return all;
}

int step_virtual() {
    int done = 0;
    uint64_t due = 0;
    const bool mine = each_device([&](DeviceState& s) { done += std::max(step_one(s, true), 0); });
    if (!mine || done) return done;
    each_device([&](DeviceState& s) { sooner(next_due(s), &due); });
    if (!due) return 0;
    Clock::jump(due);
    return 1;
}

}  // namespace sim
