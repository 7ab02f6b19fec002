// SPDX-License-Identifier: Apache-2.0
// RoCE v2 transport headers, as the software NIC puts them on its links.
// Source: InfiniBand Architecture Specification, volume 1, "Transport Layer" (BTH, RETH, AETH, ImmDt).
#pragma once

#include <gda/formats/bits.h>

namespace gda {
namespace prm {

enum bth_opcode {
    RC_SEND_FIRST = 0x00,
    RC_SEND_MIDDLE = 0x01,
    RC_SEND_LAST = 0x02,
    RC_SEND_LAST_WITH_IMMEDIATE = 0x03,
    RC_SEND_ONLY = 0x04,
    RC_SEND_ONLY_WITH_IMMEDIATE = 0x05,
    RC_RDMA_WRITE_FIRST = 0x06,
    RC_RDMA_WRITE_MIDDLE = 0x07,
    RC_RDMA_WRITE_LAST = 0x08,
    RC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09,
    RC_RDMA_WRITE_ONLY = 0x0a,
    RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0b,
    RC_ACKNOWLEDGE = 0x11,
};

struct bth_bits {
    u8 opcode[0x8];  // enum bth_opcode
    u8 se[0x1];
    u8 mig_req[0x1];
    u8 pad_count[0x2];
    u8 tver[0x4];
    u8 pkey[0x10];
    u8 reserved_at_20[0x8];
    u8 dest_qp[0x18];
    u8 ack_req[0x1];
    u8 reserved_at_41[0x7];
    u8 psn[0x18];
};

struct reth_bits {
    u8 va[0x40];
    u8 rkey[0x20];
    u8 dma_length[0x20];
};

struct immdt_bits {
    u8 imm[0x20];
};

// The two high bits of the syndrome tell the kind; the rest is a credit count, a timer or a NAK code.
enum aeth_syndrome {
    AETH_ACK = 0x1f,  // no credit limit
    AETH_RNR_NAK = 0x20,
    AETH_NAK_PSN_SEQUENCE = 0x60,
    AETH_NAK_INVALID_REQUEST = 0x61,
    AETH_NAK_REMOTE_ACCESS = 0x62,
    AETH_NAK_REMOTE_OPERATIONAL = 0x63,
};

struct aeth_bits {
    u8 syndrome[0x8];  // enum aeth_syndrome
    u8 msn[0x18];
};

}  // namespace prm
}  // namespace gda
