// SPDX-License-Identifier: Apache-2.0
// Work queue entries: what a kernel writes into the send queue and the NIC fetches from it.
// A WQE is a run of 16-byte segments in units of 64 bytes (WQE basic blocks): control, then by opcode.
// Source: ConnectX Programmer's Reference Manual, "Work Queue Entry Format"; checked against infiniband/mlx5dv.h.
#pragma once

#include <gda/formats/bits.h>

namespace gda {
namespace prm {

enum wqe_sizes {
    WQE_BASIC_BLOCK_BYTES = 64,
    WQE_SEGMENT_BYTES = 16,
    WQE_MAX_SEGMENTS = 63,  // the six bits of ds
};

enum wqe_opcode {
    MLX5_OPCODE_NOP = 0x00,
    MLX5_OPCODE_SEND_INVAL = 0x01,
    MLX5_OPCODE_RDMA_WRITE = 0x08,
    MLX5_OPCODE_RDMA_WRITE_IMM = 0x09,
    MLX5_OPCODE_SEND = 0x0a,
    MLX5_OPCODE_SEND_IMM = 0x0b,
    MLX5_OPCODE_TSO = 0x0e,
    MLX5_OPCODE_RDMA_READ = 0x10,
    MLX5_OPCODE_ATOMIC_CS = 0x11,
    MLX5_OPCODE_ATOMIC_FA = 0x12,
    MLX5_OPCODE_ATOMIC_MASKED_CS = 0x14,
    MLX5_OPCODE_ATOMIC_MASKED_FA = 0x15,
    MLX5_OPCODE_FMR = 0x19,
    MLX5_OPCODE_LOCAL_INVAL = 0x1b,
    MLX5_OPCODE_CONFIG_CMD = 0x1f,
    MLX5_OPCODE_SET_PSV = 0x20,
    MLX5_OPCODE_UMR = 0x25,
    MLX5_OPCODE_TAG_MATCHING = 0x28,
    MLX5_OPCODE_FLOW_TBL_ACCESS = 0x2c,
    MLX5_OPCODE_MMO = 0x2f,
};

// When the NIC writes a completion for this WQE.
enum wqe_completion {
    CE_ON_ERROR = 0x0,
    CE_FIRST_ERROR = 0x1,
    CE_ALWAYS = 0x2,
};

enum wqe_fence {
    MLX5_FENCE_MODE_NONE = 0x0,
    MLX5_FENCE_MODE_INITIATOR_SMALL = 0x1,
    MLX5_FENCE_MODE_FENCE = 0x2,
    MLX5_FENCE_MODE_STRONG_ORDERING = 0x3,
    MLX5_FENCE_MODE_SMALL_AND_FENCE = 0x4,  // wait for earlier reads and atomics: IBV_SEND_FENCE
};

struct wqe_ctrl_seg_bits {
    u8 opmod[0x8];
    u8 wqe_index[0x10];  // producer index of this WQE's first basic block, modulo 2^16
    u8 opcode[0x8];      // enum wqe_opcode

    u8 qp_or_sq[0x18];  // the queue pair's number
    u8 reserved_at_38[0x2];
    u8 ds[0x6];  // length of the whole WQE in 16-byte segments

    u8 signature[0x8];
    u8 dci_stream_channel_id[0x10];
    u8 fm[0x3];  // enum wqe_fence
    u8 reserved_at_5b[0x1];
    u8 ce[0x2];  // enum wqe_completion
    u8 se[0x1];  // solicited event at the receiver
    u8 reserved_at_5f[0x1];

    u8 imm[0x20];  // immediate, invalidated key or UMR key, by opcode
};

// Where an RDMA write, read or atomic goes on the other side.
struct wqe_raddr_seg_bits {
    u8 raddr[0x40];
    u8 rkey[0x20];
    u8 reserved_at_60[0x20];
};

// One piece of local memory. A byte_count of zero means 2^31 bytes: an empty message has no data segment at all.
struct wqe_data_seg_bits {
    u8 reserved_at_0[0x1];  // is_inline of the inline form
    u8 byte_count[0x1f];
    u8 lkey[0x20];
    u8 addr[0x40];
};

// Payload inside the WQE: this dword, then byte_count bytes, padded to 16.
struct wqe_inline_seg_bits {
    u8 is_inline[0x1];
    u8 reserved_at_1[0x15];
    u8 byte_count[0xa];
};

enum wqe_keys {
    LKEY_END_OF_LIST = 0x100,  // ends the scatter list of a receive WQE
};

// How wide a masked atomic is: opmod of its control segment.
enum wqe_atomic_opmod {
    ATOMIC_OPMOD_EXTENDED_4_BYTES = 0x8,
    ATOMIC_OPMOD_EXTENDED_8_BYTES = 0x9,
};

// Compare-swap, fetch-add, and the first half of a masked compare-swap of 8 bytes.
struct wqe_atomic_seg_bits {
    u8 swap_add[0x40];
    u8 compare[0x40];
};

// The second half: bits of the target that are replaced, bits that are compared.
struct wqe_atomic_mask_seg_bits {
    u8 swap_mask[0x40];
    u8 compare_mask[0x40];
};

// A masked compare-swap of 4 bytes is one segment.
struct wqe_atomic32_swap_seg_bits {
    u8 swap[0x20];
    u8 compare[0x20];
    u8 swap_mask[0x20];
    u8 compare_mask[0x20];
};

// Masked fetch-add: a bit in field_boundary lets no carry out of it.
struct wqe_atomic64_add_seg_bits {
    u8 add[0x40];
    u8 field_boundary[0x40];
};
struct wqe_atomic32_add_seg_bits {
    u8 add[0x20];
    u8 field_boundary[0x20];
    u8 reserved_at_40[0x40];
};

// UMR: changes an existing key in the order of the send queue. Control (imm: the key), this, the new key context
// (struct mkc_bits), then its translations: pieces of other keys, or one block of pieces that repeat. The mask names
// the fields of the context that count.
struct wqe_umr_ctrl_seg_bits {
    u8 is_inline[0x1];  // the translations stand in the WQE
    u8 reserved_at_1[0x1];
    u8 check_free[0x1];  // an error unless the key is free
    u8 translation_offset_en[0x1];
    u8 check_qpn[0x1];  // an error unless the key belongs to this queue pair or to all
    u8 reserved_at_5[0x1b];
    u8 klm_octowords[0x10];  // of the translations
    u8 bsf_octowords[0x10];  // or translation_offset
    u8 reserved_at_40[0x22];
    u8 mask_free[0x1];
    u8 reserved_at_63[0x7];
    u8 mask_a[0x1];
    u8 mask_rw[0x1];
    u8 mask_rr[0x1];
    u8 mask_lw[0x1];
    u8 reserved_at_6e[0x3];
    u8 mask_qpn[0x1];
    u8 mask_mkey[0x1];  // the key's lowest eight bits
    u8 mask_bsf_en[0x1];
    u8 reserved_at_74[0x2];
    u8 mask_sigerr_count[0x1];
    u8 reserved_at_77[0x2];
    u8 mask_start_addr[0x1];
    u8 reserved_at_7a[0x5];
    u8 mask_len[0x1];
    u8 reserved_at_80[0x100];
};

// One translation of a key of pieces, also in CREATE_MKEY.
struct wqe_umr_klm_seg_bits {
    u8 byte_count[0x20];
    u8 mkey[0x20];
    u8 address[0x40];
};

// Pieces that repeat: this, then num_ent entries. Each round takes byte_count bytes of every entry and moves its
// address on by its stride.
struct wqe_umr_repeat_block_seg_bits {
    u8 byte_count[0x20];  // of one round
    u8 op[0x20];          // enum wqe_umr_op
    u8 repeat_count[0x20];
    u8 reserved_at_60[0x10];
    u8 num_ent[0x10];
};
struct wqe_umr_repeat_ent_seg_bits {
    u8 stride[0x10];
    u8 byte_count[0x10];
    u8 memkey[0x20];
    u8 va[0x40];
};

enum wqe_umr_op {
    UMR_OP_REPEAT = 0x400,  // where a piece of a list has its key: no key is as low
};

// Address vector of a datagram: follows the control segment.
struct wqe_av_seg_bits {
    u8 qkey[0x20];
    u8 reserved_at_20[0x20];
    u8 extended[0x1];  // 48 bytes, as here, and not the short form of 16
    u8 reserved_at_41[0x7];
    u8 dqp_dct[0x18];
    u8 stat_rate[0x4];
    u8 sl[0x4];
    u8 fl[0x1];
    u8 mlid[0x7];
    u8 rlid_udp_sport[0x10];  // UDP source port of RoCE v2
    u8 reserved_at_80[0x20];
    u8 rmac_47_16[0x20];
    u8 rmac_15_0[0x10];
    u8 tclass[0x8];
    u8 hop_limit[0x8];
    u8 reserved_at_e0[0x1];
    u8 grh[0x1];
    u8 reserved_at_e2[0x2];
    u8 src_addr_index[0x8];  // own GID
    u8 flow_label[0x14];
    u8 rgid[0x10][0x8];
};

// The same of a dynamically connected request: the target's access key stands in the place of the Q_Key.
struct wqe_dc_av_seg_bits {
    u8 dc_key[0x40];
    u8 reserved_at_40[0x140];
};

// Follows the control segment of a request over XRC: the peer's shared receive queue.
struct wqe_xrc_seg_bits {
    u8 xrc_srqn[0x20];
    u8 reserved_at_20[0x60];
};

// Links the entries of a shared receive queue.
struct wqe_srq_next_seg_bits {
    u8 reserved_at_0[0x10];
    u8 next_wqe_index[0x10];
    u8 signature[0x8];
    u8 reserved_at_28[0x58];
};

}  // namespace prm
}  // namespace gda
