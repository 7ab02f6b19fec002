// SPDX-License-Identifier: Apache-2.0
// The order in which RDMA writes become visible in memory. By default all are at once. Two things change that:
//
// - PCI Express: a relaxed write or relaxed atomic may pass earlier posted writes; a strict one may not. With
//   Device::set_relaxed_ordering, writes through keys with relaxed ordering become visible late and in random order,
//   at latest with the next strict write of the NIC, which is also what a completion entry is.
// - A transport that keeps no order between the messages of a queue pair (the fault "unordered"): what arrived is
//   still on its way for a random time, packets of one message in their order. It is acknowledged when it is there.
//
// Something of a signal's size, an atomic, or a receiver's completion that is seen before an earlier write is a
// sentence in the report. Called by the responder.
// Source: PCI Express Base Specification, "Transaction Ordering"; docs/simulator.md, "Order of writes".
#pragma once

#include "sim/engine/memory.h"

namespace sim {

// Payload of the RDMA write at hand, at `offset` of the memory of its packet. As copy_later(), with qp->placed.
Copied write_in_order(DeviceState& s, Qp* qp, const Span& destination, uint64_t offset, const Span& source);

// An atomic on `target` (of that key and address) is about to be executed.
void order_atomic(DeviceState& s, const Qp* qp, const Span& target, uint32_t key, uint64_t address);

// The receiver is about to be told of the message at hand: its own packets are placed first.
void order_completion(DeviceState& s, const Qp* qp);

// Whether a write of this queue pair up to that sequence number is still on its way: then it must not be acknowledged.
bool on_its_way(const DeviceState& s, const Qp* qp, uint32_t psn);

// A strict write or a read: what memory does not show yet becomes visible first.
void show_all(DeviceState& s);
inline void make_all_visible(DeviceState& s) {
    if (!s.ordering.late.empty()) show_all(s);
}

// The end of a key or of a queue pair: also what is on its way.
void place_all(DeviceState& s);

// Once a step: some of what is late arrives or becomes visible.
void make_some_visible(DeviceState& s);

}  // namespace sim
