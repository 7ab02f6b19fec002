// SPDX-License-Identifier: Apache-2.0
// Every access of the NIC to memory: payload copies, rings and records. Only this file and gpu.cc know that a umem may
// lie on a GPU, and only this file and key.cc that a key may be made of pieces. Called by the requester, the responder,
// completion and doorbell.
#pragma once

#include <string>

#include "sim/engine/key.h"

namespace sim {

// The bytes of a packet's payload: may be GPU memory on the loopback link.
Span payload_span(const DeviceState& s, const iovec& part);

enum class Copied { yes, no_source, no_destination, later };
// Moves bytes; when memory is gone it says so in the report, with `whose` ("QP 0x000041: ...").
Copied copy(DeviceState& s, const Span& destination, uint64_t offset, const Span& source, const char* whose);

// The same, behind *job and perhaps left to the GPU: then *job is the copy. `later`: not now, since *job is on its way
// (or failed), or a GPU has no room.
Copied copy_later(DeviceState& s, const Span& destination, uint64_t offset, const Span& source,
                  gpu::Copier::Order order, gpu::Job* job, const char* whose);

// The parts of bytes [offset, offset + bytes) of a span, added to `list` for a link. False: a key behind it is gone.
// `local`: the link stays within this NIC, so GPU memory may be named as it is; for others it is brought to s.bounce
// from `*bounced` on, which is moved on (false then also: it could not be read, and a sentence was said).
bool list_parts(DeviceState& s, const Span& span, uint64_t offset, uint64_t bytes, bool local, uint64_t* bounced,
                std::vector<iovec>* list, const char* whose);

// Payload of GPU memory, brought to the CPU for a link that leaves this NIC: to s.bounce at `offset`. Null: it could
// not be read (a sentence was said). The buffer holds one packet.
uint8_t* bring_to_host(DeviceState& s, const Span& source, uint64_t offset, const char* whose);

// Rings and records. False: their memory is gone (a sentence was said).
bool read_ring(DeviceState& s, const Region& region, uint64_t offset, void* to, size_t bytes, const char* whose);
bool read_word(DeviceState& s, const Region& region, uint64_t offset, uint32_t* big_endian, const char* whose);
// Both at once, the record first, where both lie on the same GPU.
bool read_word_and_ring(DeviceState& s, const Region& record, uint64_t record_offset, uint32_t* big_endian,
                        const Region& ring, uint64_t ring_offset, void* to, size_t bytes, const char* whose);
// A completion entry; its last dword is what hands it over. Behind *job where that is left to a GPU.
bool publish(DeviceState& s, const Region& region, uint64_t offset, const void* from, size_t bytes, gpu::Job* job,
             const char* whose);

}  // namespace sim
