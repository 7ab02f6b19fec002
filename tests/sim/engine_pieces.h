// SPDX-License-Identifier: Apache-2.0
// Keys of pieces and the work requests that change them, for the tests of both.
#pragma once

#include "tests/sim/engine_rig.h"

namespace rig {

struct Piece {
    uint64_t address;
    uint32_t bytes, key;
};

// A key of pieces. With none given it is free, with room for `room` of them.
struct Pieces {
    Pieces(Nic& n, const std::vector<Piece>& list, uint32_t room = 4, uint32_t mode = MKC_ACCESS_MODE_KLM,
           uint32_t log_each = 0, bool changeable = true, bool ended_by_peers = false)
        : nic(n) {
        Call c = CALL(create_mkey, MLX5_CMD_OP_CREATE_MKEY);
        const size_t head = c.in.size();
        c.in.resize(head + list.size() * 16);
        uint8_t* in = c.in.data();
        uint8_t* k = in + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
        GDA_SET(create_mkey_in, in, translations_octword_actual_size, list.size());
        GDA_SET(mkc, k, access_mode_1_0, mode);
        GDA_SET(mkc, k, free, list.empty());
        GDA_SET(mkc, k, umr_en, changeable);
        GDA_SET(mkc, k, en_rinval, ended_by_peers);
        GDA_SET(mkc, k, qpn, 0xffffff);
        GDA_SET(mkc, k, pd, nic.pdn);
        GDA_SET(mkc, k, lr, 1);
        GDA_SET(mkc, k, lw, 1);
        GDA_SET(mkc, k, rr, 1);
        GDA_SET(mkc, k, rw, 1);
        GDA_SET(mkc, k, a, 1);
        GDA_SET(mkc, k, log_page_size, log_each);
        GDA_SET(mkc, k, translations_octword_size, room);
        uint64_t bytes = 0;
        for (size_t i = 0; i < list.size(); ++i) {
            uint8_t* e = in + head + 16 * i;
            GDA_SET(wqe_umr_klm_seg, e, byte_count, log_each ? 0 : list[i].bytes);
            GDA_SET(wqe_umr_klm_seg, e, mkey, list[i].key);
            GDA_SET(wqe_umr_klm_seg, e, address, list[i].address);
            bytes += list[i].bytes;
        }
        GDA_SET(mkc, k, len, bytes);
        made = c.send(nic);
        index = static_cast<uint32_t>(GDA_GET(create_mkey_out, c.out.data(), mkey_index));
        key = index << 8;
    }
    ~Pieces() {
        if (!made) return;
        Call c = CALL(destroy_mkey, MLX5_CMD_OP_DESTROY_MKEY);
        GDA_SET(destroy_mkey_in, c.in.data(), mkey_index, index);
        CHECK(c.send(nic));
    }
    Nic& nic;
    bool made = false;
    uint32_t index = 0, key = 0;
};

// A UMR under construction: fields are set by the cases, then it is posted. Its segments begin at 1, 4 and 8.
struct Umr {
    Umr(Pair& pair, uint32_t key, uint32_t translations) : p(pair), index(pair.producer) {
        const uint32_t blocks = 2 + (translations + 3) / 4;
        for (uint32_t i = 0; i < blocks; ++i) std::memset(p.block(index + i), 0, 64);
        p.control(index, MLX5_OPCODE_UMR, 4 * blocks, CE_ALWAYS, key);
        uint8_t* control = p.segment(index, 1);
        GDA_SET(wqe_umr_ctrl_seg, control, is_inline, 1);
        GDA_SET(wqe_umr_ctrl_seg, control, klm_octowords, (translations + 3) / 4 * 4);
        GDA_SET(wqe_umr_ctrl_seg, control, mask_free, 1);
        GDA_SET(wqe_umr_ctrl_seg, control, mask_mkey, 1);
        GDA_SET(wqe_umr_ctrl_seg, control, mask_len, 1);
        p.last = index;
        p.producer += blocks;
    }
    uint8_t* control() { return p.segment(index, 1); }
    uint8_t* mkc() { return p.segment(index, 4); }
    void piece(uint32_t n, const Piece& piece) {
        uint8_t* e = p.segment(index, 8 + n);
        GDA_SET(wqe_umr_klm_seg, e, byte_count, piece.bytes);
        GDA_SET(wqe_umr_klm_seg, e, mkey, piece.key);
        GDA_SET(wqe_umr_klm_seg, e, address, piece.address);
    }
    Pair& p;
    uint32_t index;
};

// As libmlx5 binds a window of type 2 (belongs to its queue pair) and ends it.
inline void bind(Pair& p, uint32_t key, uint8_t low, uint64_t start, const Piece& piece, bool rw = true,
                 bool rr = true) {
    Umr u(p, key, 1);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), check_free, 1);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), mask_qpn, 1);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), mask_start_addr, 1);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), mask_lw, 1);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), mask_rw, 1);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), mask_rr, 1);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), mask_a, 1);
    GDA_SET(mkc, u.mkc(), qpn, p.qpn);
    GDA_SET(mkc, u.mkc(), mkey_7_0, low);
    GDA_SET(mkc, u.mkc(), rw, rw);
    GDA_SET(mkc, u.mkc(), rr, rr);
    GDA_SET(mkc, u.mkc(), start_addr, start);
    GDA_SET(mkc, u.mkc(), len, piece.bytes);
    u.piece(0, piece);
    p.ring();
}

inline void end(Pair& p, uint32_t key) {
    Umr u(p, key, 0);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), check_qpn, 1);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), mask_qpn, 1);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), mask_len, 0);
    GDA_SET(mkc, u.mkc(), qpn, 0xffffff);
    GDA_SET(mkc, u.mkc(), free, 1);
    p.ring();
}

inline bool done(Queue& cq) { return opcode_of(cq.wait()) == MLX5_CQE_REQ; }

inline Options with_receives() {
    Options o;
    o.receives = true;
    return o;
}

}  // namespace rig
