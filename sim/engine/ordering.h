// SPDX-License-Identifier: Apache-2.0
// The order in which writes become visible in memory. PCI Express: a relaxed write or relaxed atomic may pass earlier
// posted writes; a strict one may not. Off by default: then all are visible at once. On, writes through keys with
// relaxed ordering become visible late and in random order, at latest with the next strict write of the NIC, which is
// also what a completion entry is. Called by the responder; switched by Device::set_relaxed_ordering.
// Source: PCI Express Base Specification, "Transaction Ordering".
#pragma once

#include "sim/engine/memory.h"

namespace sim {

// Payload that the responder writes: `piece_bytes` at a time when it is late. As copy().
Copied write_in_order(DeviceState& s, const Span& destination, uint64_t offset, const Span& source,
                      uint64_t piece_bytes, const char* whose);

// An atomic on `target` is about to be executed.
void order_atomic(DeviceState& s, const Span& target, const char* whose);

// A strict write, a read, or the end of a key: all that is late becomes visible first.
void make_all_visible(DeviceState& s);

// Once a step: some of what is late becomes visible.
void make_some_visible(DeviceState& s);

}  // namespace sim
