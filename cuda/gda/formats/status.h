// SPDX-License-Identifier: Apache-2.0
// What a device function answers: one 64-bit word, zero for success, that says which queue and request failed and how.
// Ours, not the NIC's: a kernel can return it, store it, or latch it in a queue with one atomic.
#pragma once

#include <gda/formats/bits.h>

namespace gda {
namespace prm {

enum status_code {
    GDA_OK = 0,
    GDA_COMPLETION_ERROR = 1,  // the NIC wrote an error completion; see syndrome
    GDA_TIMEOUT = 2,           // the deadline passed first
    GDA_QUEUE_FULL = 3,        // no slot became free before the deadline
    GDA_OUT_OF_BOUNDS = 4,     // offset + bytes pass the end of a memory region
    GDA_NOT_CONNECTED = 5,     // the queue pair is not ready to send
    GDA_BAD_HANDLE = 6,        // null, or made for another version of the library
    GDA_NO_RECEIVE_QUEUE = 7,  // a receive on a queue pair that was made without a receive queue
    GDA_SIGNAL_TIMEOUT = 8,    // the deadline passed before a signal came; see signal_status
    GDA_RELAXED_SIGNAL = 9,    // a signal in memory whose writes may pass earlier ones (relaxed ordering)
};

// The word is the first dword << 32 | the second, so that `code` is its low byte.
struct status_bits {
    u8 wqe_index[0x10];  // of the failed request, modulo 2^16
    u8 vendor_error_syndrome[0x8];
    u8 syndrome[0x8];  // enum cqe_syndrome
    u8 qpn[0x18];
    u8 code[0x8];  // enum status_code
};

// The word of GDA_SIGNAL_TIMEOUT: no queue is at fault, so it has room for the signal's value.
struct signal_status_bits {
    u8 last_seen_55_24[0x20];  // the value last seen, without its top byte
    u8 last_seen_23_0[0x18];
    u8 code[0x8];  // enum status_code
};

}  // namespace prm
}  // namespace gda
