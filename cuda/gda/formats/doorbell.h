// SPDX-License-Identifier: Apache-2.0
// Doorbells: the registers of a UAR page, the value stored there, and the records in memory behind them.
// Source: ConnectX Programmer's Reference Manual, "Doorbells" and "User Access Region"; checked against
// infiniband/mlx5dv.h (enum values MLX5_RCV_DBR, MLX5_SND_DBR) and the behaviour of libmlx5.
#pragma once

#include <gda/formats/bits.h>

namespace gda {
namespace prm {

// Byte offsets in a 4 KiB UAR page. A BlueFlame register is two halves of 256 bytes used in turn.
enum uar_offset {
    UAR_CQ_DOORBELL = 0x20,            // arm a completion queue
    UAR_RECORDLESS_DOORBELL = 0x600,   // send doorbell of a queue pair that has no record
    UAR_SEND_DOORBELL = 0x800,         // send doorbell, first BlueFlame half
    UAR_SEND_DOORBELL_ODD = 0x900,     // second half
    UAR_BLUEFLAME_HALF_BYTES = 0x100,  // from one half to the other
    UAR_PAGE_BYTES = 0x1000,
};

// Eight bytes stored to the page at once. With a record they are the first eight bytes of the last WQE, or the
// producer index in wqe_index; the NIC takes the index from the record. Without one the register is the only source.
struct send_doorbell_bits {
    u8 opmod[0x8];
    u8 wqe_index[0x10];  // of the last WQE, or the producer index after it
    u8 opcode[0x8];      // enum wqe_opcode
    u8 qpn[0x18];
    u8 ds[0x8];
};

struct cq_doorbell_bits {
    u8 reserved_at_0[0x2];
    u8 cmd_sn[0x2];
    u8 reserved_at_4[0x3];
    u8 solicited_only[0x1];
    u8 consumer_index[0x18];
    u8 reserved_at_20[0x8];
    u8 cqn[0x18];
};

// Two dwords in memory, read by the NIC after a doorbell.
struct qp_doorbell_record_bits {
    u8 reserved_at_0[0x10];
    u8 receive_counter[0x10];
    u8 reserved_at_20[0x10];
    u8 send_counter[0x10];
};

struct cq_doorbell_record_bits {
    u8 reserved_at_0[0x8];
    u8 consumer_index[0x18];
    u8 reserved_at_20[0x2];
    u8 cmd_sn[0x2];
    u8 reserved_at_24[0x3];
    u8 solicited_only[0x1];
    u8 armed_index[0x18];
};

enum send_dbr_mode {
    SEND_DBR_MODE_VALID = 0x0,       // doorbell record and doorbell
    SEND_DBR_MODE_NO_DBR_EXT = 0x1,  // doorbell only, kept by the NIC
    SEND_DBR_MODE_NO_DBR_INT = 0x2,
};

}  // namespace prm
}  // namespace gda
