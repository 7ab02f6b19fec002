// SPDX-License-Identifier: Apache-2.0
// The background thread of a device and what happens to devices in a fork. Called by device.cc.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// One step; BUSY when another thread is in it. `outside`: by a thread of the program.
enum : int { BUSY = -1 };
int step_now(DeviceState& s, bool outside);
int step_one(DeviceState& s, bool outside);  // the same without a look at what time it is
// With the device's lock: when something will want the engine though nothing comes from outside; 0: at once.
uint64_t rest_until(const DeviceState& s);
// With the device's lock, after whatever may have given the thread something to do later: wakes it when it sleeps for
// longer than that.
void nudge(DeviceState& s);
// Tells the driver what a command brought about.
void deliver_pending(DeviceState& s);

// Starts it when the mode asks for it and there is a doorbell page; it then sleeps whenever there is none.
void start_thread(DeviceState& s);
void prepare_thread(DeviceState& s);  // once, when the device is made
void wake_thread(DeviceState& s);
void stop_thread(DeviceState& s);

// Devices of this process, so that a fork finds their locks free.
void enlist(DeviceState* s);
void delist(DeviceState* s);
// In the order in which they were made. False: another thread is in it, nothing was visited.
bool each_device(const std::function<void(DeviceState&)>& visit);

}  // namespace sim
