// SPDX-License-Identifier: Apache-2.0
// What a responder sends back: acknowledgements, refusals, read data, results of atomics; in the order of the requests.
// Called by responder.cc when a request is done and by serve() for what could not go at once.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// An acknowledgement or refusal. It goes out when this round comes to the queue pair, so that one acknowledgement
// speaks for all requests that arrived together.
void send_answer(DeviceState& s, Qp* qp, uint8_t syndrome, uint32_t psn);

// Queues data to be fetched. They go out by serve_replies(), never inside the call that brought the request.
void queue_reply(DeviceState& s, Qp* qp, const Reply& reply);

// Sends what is queued, until the link is full or the queue pair has had its turn.
void serve_replies(DeviceState& s, Qp* qp);

}  // namespace sim
