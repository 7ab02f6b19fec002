// SPDX-License-Identifier: Apache-2.0
// The thread that polls a completion queue and finds nothing steps the engine and looks again: a NIC without a
// processor of its own is then as quick as one call. libibverbs' entries poll_cq (per context) and start_poll (per
// extended queue) are wrapped for that.
#pragma once

#include <cstdint>

namespace sim::uverbs {
class Context;
}

namespace sim::uverbs::poll {

// `cq_pointer` is the user handle of a CREATE_CQ in `context`: with libibverbs, the address of its struct ibv_cq.
// Wraps it and its ibv_context; a number that is none is left alone.
void wrap(uint64_t cq_pointer, const Context& context);

// The program is about to read from a completion channel and perhaps to sleep there: what it posted just now goes out
// first, and an answer that comes at once is not slept for. Steps the engine until a record is there, at most 50 us.
void before_read(int channel_fd);

}  // namespace sim::uverbs::poll
