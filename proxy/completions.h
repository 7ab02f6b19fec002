// SPDX-License-Identifier: Apache-2.0
// A completion queue as kernels poll it: entries in mlx5's format, written by the proxy's thread where a card would.
// Called by send.cc and receive.cc. Source: ConnectX Programmer's Reference Manual, "Completion Queue Entry Format".
#pragma once

#include <gda/formats/cqe.h>
#include <infiniband/verbs.h>

namespace proxy {

// One completion, before it has a place. Numbers in the processor's order, the immediate as the wire has it.
struct Completion {
    uint32_t opcode = gda::prm::MLX5_CQE_REQ;  // enum cqe_opcode
    uint32_t index = 0;                        // of the WQE's first block, or of the receive
    uint32_t wqe_opcode = 0;
    uint32_t bytes = 0;
    uint32_t immediate_be = 0;
    uint32_t from = 0;     // the sender's queue pair (UD)
    uint32_t grh = 0;      // not zero: 40 bytes with addresses stand before the payload (UD)
    uint8_t syndrome = 0;  // enum cqe_syndrome, of errors
    uint8_t vendor = 0;
};

class Completions {
   public:
    // `record` holds the consumer index; null: it is not looked at, and unread entries are overwritten, as a queue that
    // ignores overrun does. A collapsed queue has one entry.
    Completions(uint8_t* ring, const uint32_t* record, uint32_t entries, bool collapsed, uint32_t qpn,
                uint32_t user_index)
        : ring_(ring), record_(record), entries_(entries), collapsed_(collapsed), qpn_(qpn), user_index_(user_index) {}

    // Whether an entry can be written over nothing unread.
    bool has_room() const;
    void write(const Completion& c);

   private:
    uint8_t* ring_;
    const uint32_t* record_;
    uint32_t entries_;  // a power of two
    bool collapsed_;
    uint32_t qpn_, user_index_;
    uint32_t producer_ = 0;  // entries written, ever
};

// The syndrome of a card for a status of libibverbs (not IBV_WC_SUCCESS).
uint8_t syndrome_of(enum ibv_wc_status status);

// As a card does when a request fails; in that state already: no matter.
void move_to_error(ibv_qp* qp);

}  // namespace proxy
