// SPDX-License-Identifier: Apache-2.0
// One work request of a send ring, in mlx5's format, as libibverbs takes it. Called by send.cc.
// Source: ConnectX Programmer's Reference Manual, "Work Queue Entry Format"; ibv_post_send(3).
#pragma once

#include <gda/formats/wqe.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstring>
#include <map>

#include "proxy/refusal.h"

namespace proxy {

enum limits {
    MOST_PIECES = 4,        // of memory in a request: kernels name one
    MOST_INLINE_BYTES = 64  // kernels put 28 at most
};

// Address vectors of a ring's datagrams, and the address handle that each was made with (gda/nic/proxied.py).
using AddressBytes = std::array<uint8_t, GDA_BYTES_OF(wqe_av_seg)>;
using Addresses = std::map<AddressBytes, ibv_ah*>;

// What the ring belongs to.
struct Ring {
    const uint8_t* blocks;
    uint32_t depth;  // basic blocks, a power of two
    uint32_t qpn;
    enum ibv_qp_type type;
    uint32_t most_inline;  // what the queue pair behind takes
    uint32_t most_pieces;
    bool iwarp;  // no immediate data, no atomics, and reads into one piece of memory
};

// A request, and the memory that its ibv_send_wr points to until it is posted.
struct Request {
    uint64_t index = 0;   // of its first basic block
    uint8_t opcode = 0;   // enum wqe_opcode
    uint32_t blocks = 1;  // basic blocks that it takes
    bool signaled = false;
    uint32_t bytes = 0;
    Refusal refusal = REFUSAL_NONE;
    bool is_nop = false;  // nothing to post

    ibv_send_wr wr;
    ibv_sge pieces[MOST_PIECES];
    uint8_t inline_bytes[MOST_INLINE_BYTES];
};

// Reads the request at `index`; `there` blocks from it on are written. Never reads beyond the ring.
void read_request(const Ring& ring, const Addresses& addresses, uint64_t index, uint64_t there, Request* r);

}  // namespace proxy
