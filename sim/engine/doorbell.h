// SPDX-License-Identifier: Apache-2.0
// Doorbell pages: what was stored to their registers since the last look. Called by device.cc in every step, and by
// the firmware when a queue pair becomes ready to send.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// Looks at every register of every page.
void scan_doorbells(DeviceState& s);

// Before a page is looked at for the first time: whoever had its memory before may have left values in the registers.
void clear_doorbells(UarPage* page);

// Reads the send counter of a queue pair again; nothing for one without a record.
void read_send_record(DeviceState& s, Qp* qp);

}  // namespace sim
