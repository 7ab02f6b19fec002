// SPDX-License-Identifier: Apache-2.0
// Doorbell pages: what was stored to their registers since the last look. Called by device.cc in every step, and by
// the firmware when a queue pair becomes ready to send.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// Looks at the registers of the pages; of very many, at some in each step, unless it must be `all`.
void scan_doorbells(DeviceState& s, bool all);

// A program is about to ring on some page: of those that rang lately, the records say already what for.
void expect_ring(DeviceState& s);

// Looks at one page and at all records of it: before a queue pair of it changes its state or ends.
void scan_page(DeviceState& s, UarPage* page);

// A slice of the search for rings that were lost; a larger one when the step has nothing else to do.
void sweep_records(DeviceState& s, bool idle);

// Queue pairs of a page.
void join_page(Qp* qp);
void leave_page(Qp* qp);

// Before a page is looked at for the first time: whoever had its memory before may have left values in the registers.
void clear_doorbells(UarPage* page);

// Reads the send counter of a queue pair again; nothing for one without a record.
void read_send_record(DeviceState& s, Qp* qp);

// Whether the producer index was stored where receives are counted, of a queue pair that has none; then it was said.
bool says_wrong_word(DeviceState& s, const Qp* qp);

}  // namespace sim
