// SPDX-License-Identifier: Apache-2.0
// A send WQE, fetched from its ring, checked and taken apart. Called by the requester.
// Source: PRM, "Work Queue Entry Format".
#pragma once

#include "sim/engine/atomic.h"
#include "sim/engine/memory.h"

namespace sim {

struct ParsedWqe {
    uint8_t opcode = 0, completion = 0;
    uint16_t blocks = 1;
    bool solicited = false;
    uint32_t immediate = 0;
    uint64_t remote_address = 0;
    uint32_t remote_key = 0;
    size_t pieces = 0;
    Span piece[64];  // local memory or the WQE's own inline bytes, in order
    uint64_t bytes = 0;
    bool fetches = false;  // a read or an atomic: the pieces are written by its response
    bool fenced = false;
    AtomicOperation atomic = {false, 0, 0, 0, 0, 0};  // bytes 0: not one
    // Of a datagram, or of a dynamically connected request.
    uint32_t to_qpn = 0, q_key = 0;
    uint64_t access_key = 0;
    uint16_t stream = 0;
    uint32_t from_gid = 0;
    const uint8_t* to_gid = nullptr;  // in s.wqe
    uint16_t flow_port = 0;           // 0: none given
    uint8_t traffic_class = 0, hop_limit = 0;
    uint32_t xrc_srqn = 0;  // over XRC
    // Not zero: what is wrong, and the sentence was said.
    uint8_t syndrome = 0, vendor = 0;
};

// Copies the WQE at `index` into s.wqe and takes it apart; inline pieces point into s.wqe, until the next call.
void parse_wqe(DeviceState& s, Qp* qp, uint16_t index, ParsedWqe* out);

// The doorbell record of a queue pair whose record and ring lie on one GPU, and with it the WQEs that are next: one
// wait instead of two. How many basic blocks were read, 0: none. keep_window() keeps for parse_wqe() what the record
// says was published, once the producer index is the record's.
uint16_t read_record_and_window(DeviceState& s, Qp* qp, uint64_t record_offset, uint32_t* big_endian);
void keep_window(DeviceState& s, const Qp* qp, uint16_t blocks);

// How many basic blocks the WQE at `index` has, for walking over what is flushed; 1 when it makes no sense.
uint16_t wqe_blocks(DeviceState& s, Qp* qp, uint16_t index, uint8_t* opcode);

bool is_write(uint8_t opcode);
bool is_atomic(uint8_t opcode);
bool has_immediate(uint8_t opcode);

}  // namespace sim
