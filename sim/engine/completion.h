// SPDX-License-Identifier: Apache-2.0
// Completion queue entries, arming and events. Called by the requester and the responder.
// Source: PRM, "Completion Queue Entry Format", "Completion Queue Doorbells".
#pragma once

#include "sim/engine/state.h"

namespace sim {

struct Completion {
    uint8_t opcode = 0;      // enum cqe_opcode
    uint8_t wqe_opcode = 0;  // enum wqe_opcode
    uint16_t index = 0;      // of the WQE
    uint32_t bytes = 0, immediate = 0;
    uint8_t syndrome = 0, vendor = 0;
    bool solicited = false;
    uint32_t from_qpn = 0;  // of a datagram: who sent it
    uint8_t grh = 0;
    uint8_t network = 0;  // what the GRH is; lies in the field sl
};

// Writes one entry. When the queue is full it fails for good, and with it every queue pair that reports to it.
void complete(DeviceState& s, Cq* cq, const Qp& qp, const Completion& completion);

// How many entries the program has not yet taken, by its record. False: the record cannot be read.
bool completions_held(DeviceState& s, Cq* cq, uint32_t* held);

// The mark in the old ring that says: go on in the new one. It takes an entry.
void complete_resize(DeviceState& s, Cq* cq);

// Takes a value stored to a page's CQ doorbell register; requests that lie in other arm records of that page are found
// by the sweep that this starts, a slice at a time.
void arm(DeviceState& s, UarPage* page, const uint8_t value[8]);
void sweep_arming(DeviceState& s, UarPage* page, size_t slice);

// At creation: marks the arm record as empty (see completion.cc) and puts the queue on its page; and at its end.
void join_page(Cq* cq);
void leave_page(Cq* cq);

}  // namespace sim
