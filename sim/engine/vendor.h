// SPDX-License-Identifier: Apache-2.0
// vendor_error_syndrome by cause. The first group is what ConnectX cards are seen to answer in public reports; the
// second is this model's choice, one value per cause, so that a number found in a log names the place.
#pragma once

#include <cstdint>

namespace sim {

enum VendorSyndrome : uint8_t {
    VENDOR_LOCAL_QP_OPERATION = 0x68,
    VENDOR_RETRY_EXCEEDED = 0x81,
    VENDOR_RNR_RETRY_EXCEEDED = 0x87,
    VENDOR_REMOTE_ACCESS = 0x88,
    VENDOR_REMOTE_OPERATION = 0x89,
    VENDOR_REMOTE_INVALID_REQUEST = 0x8a,
    VENDOR_FLUSHED = 0xf9,

    VENDOR_STALE_WQE = 0x60,       // index, QPN or size of the WQE do not match
    VENDOR_UNSUPPORTED = 0x61,     // opcode unknown or not for this queue pair
    VENDOR_BAD_SEGMENTS = 0x62,    // segments do not fit the opcode
    VENDOR_QUEUE_GONE = 0x63,      // the ring itself cannot be read
    VENDOR_LOCAL_LENGTH = 0x69,    // longer than the largest message
    VENDOR_LOCAL_KEY = 0x51,       // lkey, bounds, domain or rights
    VENDOR_LOCAL_UNMAPPED = 0x52,  // the key is good, the pages are gone
    VENDOR_KEY_CHANGE = 0x53,      // a bind, an invalidation or another change of a key was refused
    VENDOR_BAD_RESPONSE = 0x6b,    // read data of another length than was asked for
    VENDOR_RECEIVE_LENGTH = 0x6a,  // the message is longer than the receive
    VENDOR_RECEIVE_KEY = 0x54,     // a receive's lkey
    VENDOR_RECEIVE_UNMAPPED = 0x55,
    VENDOR_RECEIVE_ABORTED = 0x56,  // the peer's request was refused while a receive was open
};

}  // namespace sim
