// SPDX-License-Identifier: Apache-2.0
// Every access of the NIC to memory: keys to addresses, payload copies, rings and records. Only this file and gpu.cc
// know that a umem may lie on a GPU. Called by the requester, the responder, completion and doorbell.
#pragma once

#include <string>

#include "sim/engine/state.h"

namespace sim {

enum class Access { local_read, local_write, remote_read, remote_write, remote_atomic };

// Bytes that were found by a key. Not initialized: a parsed WQE holds 64 of them.
struct Span {
    uint8_t* address;
    uint64_t bytes;
    gpu::Context* gpu;
};

// False: the key does not allow it; *why is the sentence's second half, with the values.
bool resolve(const DeviceState& s, uint32_t key, uint64_t address, uint64_t bytes, const Pd* pd, Access access,
             Span* span, std::string* why);

// The bytes of a packet's payload: may be GPU memory on the loopback link.
Span payload_span(const DeviceState& s, const iovec& part);

enum class Copied { yes, no_source, no_destination };
// Moves bytes; when memory is gone it says so in the report, with `whose` ("QP 0x000041: ...").
Copied copy(DeviceState& s, const Span& destination, uint64_t offset, const Span& source, const char* whose);

// Payload of GPU memory, brought to the CPU for a link that leaves this NIC: to s.bounce at `offset`. Null: it could
// not be read (a sentence was said). The buffer holds one packet.
uint8_t* bring_to_host(DeviceState& s, const Span& source, uint64_t offset, const char* whose);

// Rings and records. False: their memory is gone (a sentence was said).
bool read_ring(DeviceState& s, const Region& region, uint64_t offset, void* to, size_t bytes, const char* whose);
bool read_word(DeviceState& s, const Region& region, uint64_t offset, uint32_t* big_endian, const char* whose);
// A completion entry; its last dword is what hands it over.
bool publish(DeviceState& s, const Region& region, uint64_t offset, const void* from, size_t bytes, const char* whose);

}  // namespace sim
