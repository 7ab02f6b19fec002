// SPDX-License-Identifier: Apache-2.0
// Completion queue entries: what the NIC writes and a kernel polls. 64 bytes; the last one hands the entry over.
// Source: ConnectX Programmer's Reference Manual, "Completion Queue Entry Format"; checked against
// infiniband/mlx5dv.h (struct mlx5_cqe64, struct mlx5_err_cqe).
#pragma once

#include <gda/formats/bits.h>

namespace gda {
namespace prm {

enum cqe_sizes { CQE_BYTES = 64 };

enum cqe_opcode {
    MLX5_CQE_REQ = 0x0,
    MLX5_CQE_RESP_WR_IMM = 0x1,
    MLX5_CQE_RESP_SEND = 0x2,
    MLX5_CQE_RESP_SEND_IMM = 0x3,
    MLX5_CQE_RESP_SEND_INV = 0x4,
    MLX5_CQE_RESIZE_CQ = 0x5,
    MLX5_CQE_NO_PACKET = 0x6,
    MLX5_CQE_SIG_ERR = 0xc,
    MLX5_CQE_REQ_ERR = 0xd,
    MLX5_CQE_RESP_ERR = 0xe,
    MLX5_CQE_INVALID = 0xf,  // never written by the NIC: the ring is filled with it before use
};

// Where a short received payload is: in memory, or in the entry itself (scatter to CQE).
enum cqe_format {
    CQE_FORMAT_PLAIN = 0x0,
    CQE_FORMAT_INLINE_32 = 0x1,  // in the first 32 bytes
    CQE_FORMAT_INLINE_64 = 0x2,  // in the 64 bytes before
    CQE_FORMAT_COMPRESSED = 0x3,
};

enum cqe_syndrome {
    MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR = 0x01,
    MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR = 0x02,
    MLX5_CQE_SYNDROME_LOCAL_PROT_ERR = 0x04,
    MLX5_CQE_SYNDROME_WR_FLUSH_ERR = 0x05,
    MLX5_CQE_SYNDROME_MW_BIND_ERR = 0x06,
    MLX5_CQE_SYNDROME_BAD_RESP_ERR = 0x10,
    MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR = 0x11,
    MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR = 0x12,
    MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR = 0x13,
    MLX5_CQE_SYNDROME_REMOTE_OP_ERR = 0x14,
    MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR = 0x15,
    MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR = 0x16,
    MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR = 0x22,
};

// A good completion.
struct cqe64_bits {
    u8 reserved_at_0[0x10];
    u8 wqe_id[0x10];
    u8 reserved_at_20[0x68];
    u8 ml_path[0x8];
    u8 reserved_at_90[0x20];
    u8 slid[0x10];
    u8 reserved_at_c0[0x2];
    u8 grh[0x2];  // not zero: a GRH, or an IP header in its place, precedes the payload (UD)
    u8 sl[0x4];
    u8 rqpn[0x18];
    u8 hds_ip_ext[0x8];
    u8 l4_hdr_type_etc[0x8];
    u8 vlan_info[0x10];
    u8 srqn_uidx[0x20];       // user_index of the queue pair (cqe_version 1)
    u8 imm_inval_pkey[0x20];  // immediate data of a receive
    u8 app[0x8];
    u8 app_op[0x8];
    u8 app_info[0x10];
    u8 byte_cnt[0x20];
    u8 timestamp[0x40];
    u8 sop_drop_qpn_opcode[0x8];  // enum wqe_opcode: what the completed WQE was
    u8 qpn[0x18];
    u8 wqe_counter[0x10];  // producer index of the completed WQE, modulo 2^16
    u8 signature[0x8];
    u8 opcode[0x4];      // enum cqe_opcode
    u8 cqe_format[0x2];  // enum cqe_format
    u8 se[0x1];          // the sender asked for an event
    u8 owner[0x1];       // flips with every lap of the ring
};

// An error completion: same size, same last dword.
struct err_cqe_bits {
    u8 reserved_at_0[0x100];
    u8 srqn_uidx[0x20];
    u8 reserved_at_120[0x80];
    u8 hw_error_syndrome[0x8];
    u8 hw_syndrome_type[0x4];
    u8 reserved_at_1ac[0x4];
    u8 vendor_error_syndrome[0x8];
    u8 syndrome[0x8];      // enum cqe_syndrome
    u8 s_wqe_opcode[0x8];  // enum wqe_opcode
    u8 qpn[0x18];
    u8 wqe_counter[0x10];
    u8 signature[0x8];
    u8 opcode[0x4];  // enum cqe_opcode
    u8 cqe_format[0x2];
    u8 se[0x1];
    u8 owner[0x1];
};

}  // namespace prm
}  // namespace gda
