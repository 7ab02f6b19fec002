// SPDX-License-Identifier: Apache-2.0
// Keys: which memory an address stands for, and who may use it. Called by whoever has a key: the reader of WQEs, the
// receiver, the responder; and by memory.cc, which moves the bytes that were found.
// Source: PRM, "Memory Key Context", "Memory Translation".
#pragma once

#include <functional>
#include <string>

#include "sim/engine/state.h"

namespace sim {

enum class Access { local_read, local_write, remote_read, remote_write, remote_atomic };

// Whose request it is: keys may belong to one queue pair.
struct Asker {
    Asker(const Qp* qp) : pd(qp->pd), qpn(qp->number) {}         // NOLINT(google-explicit-constructor)
    Asker(const Pd* domain, uint32_t n) : pd(domain), qpn(n) {}  // of a shared receive queue: its own domain
    const Pd* pd;
    uint32_t qpn;
};

// False: the key does not allow it; *why is the sentence's second half, with the values. Every byte is checked here,
// whatever the key is made of.
bool resolve(const DeviceState& s, uint32_t key, uint64_t address, uint64_t bytes, const Asker& asker, Access access,
             Span* span, Why* why);

// The contiguous parts of bytes [offset, offset + bytes) of a span, in order. Stops with false when `visit` answers
// false, or a key that stood behind it is gone. Parts are never scattered themselves.
bool each_part(const DeviceState& s, const Span& span, uint64_t offset, uint64_t bytes,
               const std::function<bool(const Span&)>& visit);

// The key of that index, whatever its lowest byte; null: none. *why as above.
Mkey* find_key(const DeviceState& s, uint32_t key, Why* why);

}  // namespace sim
