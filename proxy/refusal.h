// SPDX-License-Identifier: Apache-2.0
// What the proxy itself answers for a request that it does not hand to libibverbs: the vendor's byte of an error
// completion, one value a cause. gda/formats/vendor.py has the words; document: docs/proxy.md.
#pragma once

#include <cstdint>

namespace proxy {

enum Refusal : uint8_t {
    REFUSAL_NONE = 0,
    REFUSAL_TORN = 0xe1,        // index, queue pair number or size of the WQE do not match
    REFUSAL_OPERATION = 0xe2,   // libibverbs has no such request: masked atomics, UMR and what else only mlx5 has; or
                                // not on this transport
    REFUSAL_SEGMENTS = 0xe3,    // the segments do not fit the opcode
    REFUSAL_PIECES = 0xe4,      // more pieces of memory, or more inline bytes, than the queue pair behind takes
    REFUSAL_ADDRESS = 0xe5,     // a datagram to an address that this queue pair's peer() did not make
    REFUSAL_NOT_POSTED = 0xe6,  // ibv_post_send or ibv_post_recv said no
    REFUSAL_LOST = 0xe7,        // iWARP: the connection ended before the other side had confirmed it
    REFUSAL_FLUSHED = 0xf9,     // behind an error; the value that cards answer
};

}  // namespace proxy
