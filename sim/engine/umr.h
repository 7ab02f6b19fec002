// SPDX-License-Identifier: Apache-2.0
// Work requests that change a key in the order of the send queue (UMR): lists of pieces, patterns that repeat, memory
// windows and their end. They send nothing. Called by the requester; the layouts are also read for CREATE_MKEY.
// Source: PRM, "UMR WQE"; what libmlx5 makes of ibv_bind_mw, IBV_WR_LOCAL_INV and mlx5dv_wr_mr_list.
#pragma once

#include "sim/engine/wqe.h"

namespace sim {

inline bool changes_key(uint8_t opcode) { return opcode == gda::prm::MLX5_OPCODE_UMR; }

// Executes the UMR of message `m`, when all before it is complete: what is sent again needs the keys as they were. A
// fault is left in `m`, and its sentence was said.
void change_key(DeviceState& s, Qp* qp, Message* m);

// Translations (struct wqe_umr_klm_seg) as pieces, all of `each` bytes unless that is 0; one of zero bytes is none.
enum : uint32_t { LOG_MOST_TRANSLATIONS = 12 };  // of a key
void read_pieces(const uint8_t* entries, uint32_t count, uint64_t each, Layout* layout);

// A peer's send ends a key: it is free then, and stands for nothing. False: that key does not allow it, *why.
bool invalidate_for_peer(DeviceState& s, uint32_t key, const Qp* qp, Why* why);

}  // namespace sim
