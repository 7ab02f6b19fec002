// SPDX-License-Identifier: Apache-2.0
// A wr_id: the index of a request, and which life of the queue pair (between two resets) it belongs to. Used by send.cc
// and receive.cc: a completion queue may keep what came before a reset.
#pragma once

#include <cstdint>

namespace proxy {

static const unsigned INDEX_BITS = 48;
static const uint64_t INDEX_MASK = (uint64_t{1} << INDEX_BITS) - 1;

inline uint64_t id_of(uint64_t life, uint64_t index) { return life << INDEX_BITS | (index & INDEX_MASK); }
inline uint64_t index_of(uint64_t id) { return id & INDEX_MASK; }
inline bool is_of(uint64_t id, uint64_t life) { return id >> INDEX_BITS == life << INDEX_BITS >> INDEX_BITS; }

}  // namespace proxy
