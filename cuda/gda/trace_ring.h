// SPDX-License-Identifier: Apache-2.0
// Trace events, 32 bytes each, and the ring in memory that keeps the newest. Written by cuda/gda/trace.h (device code)
// and sim/engine/trace.h, read by gda/tools/trace: plain structs in the machine's byte order. Their values are named in
// formats/trace.h. Document: docs/trace.md.
#pragma once

#include <gda/formats/trace.h>

struct gda_trace_event {
    uint64_t time;  // ticks of the ring's clock
    uint32_t qpn;
    uint32_t index;
    uint32_t bytes;
    uint32_t aux;
    uint32_t lane;
    uint8_t kind;    // enum trace_kind
    uint8_t opcode;  // of the request, unless the kind says otherwise
    uint16_t flags;  // enum trace_flags
};

// Before the events. Two moments at which both clocks were read: where a ring's times lie on the monotonic clock.
struct gda_trace_ring {
    uint64_t magic;  // TRACE_MAGIC, once all else is filled in
    uint64_t next;   // places ever taken; the next one is this modulo 2^log_events
    uint32_t log_events;
    uint32_t skip;  // of a mask: requests with a bit of it in their index are left out
    uint32_t pid;
    uint32_t slot;        // of the NIC on its host, or number of the kernel's module in its process
    uint64_t first_time;  // of the ring's clock
    uint64_t first_ns;    // of the monotonic clock
    uint64_t last_time;
    uint64_t last_ns;
    uint32_t clock;  // enum trace_clock
    // So many places after each other are one writer's, its events in the order of time. What it has not filled is
    // older than the first of them. 0: each place by itself.
    uint32_t group;
    uint8_t reserved[56];
};

static_assert(sizeof(gda_trace_event) == gda::prm::TRACE_EVENT_BYTES, "read by offset");
static_assert(sizeof(gda_trace_ring) == gda::prm::TRACE_RING_BYTES, "read by offset");
