// SPDX-License-Identifier: Apache-2.0
// Keys made of pieces of other keys (CREATE_MKEY with a list, UMR): data in both directions, rights, ranges, and every
// refusal.

#include "tests/sim/engine_pieces.h"

using namespace rig;

namespace {

void write_from_and_to_pieces() {
    World w;
    const uint64_t s = w.source.address(), t = w.target.address();
    Pieces from(w.nic, {{s + 100, 7, w.src.key}, {s + 5000, 70000, w.src.key}, {s + 3, 1, w.src.key}});
    Pieces to(w.nic, {{t + 9, 30000, w.dst.key}, {t + 100000, 1, w.dst.key}, {t + 200000, 40007, w.dst.key}});
    CHECK(from.made && to.made);
    std::vector<uint8_t> sent;
    for (auto [at, n] : {std::pair<int, int>{100, 7}, {5000, 70000}, {3, 1}}) {
        sent.insert(sent.end(), w.source.p + at, w.source.p + at + n);
    }
    w.a.write(0, to.key, 0, from.key, 70008);
    w.a.ring();
    CHECK(done(w.a_cq));
    std::vector<uint8_t> got;
    for (auto [at, n] : {std::pair<int, int>{9, 30000}, {100000, 1}, {200000, 40007}}) {
        got.insert(got.end(), w.target.p + at, w.target.p + at + n);
    }
    CHECK(got == sent);
    size_t others = 0;
    for (size_t i = 0; i < w.target.bytes; ++i) {
        const bool inside = (i >= 9 && i < 30009) || i == 100000 || (i >= 200000 && i < 240007);
        others += !inside && w.target.p[i];
    }
    CHECK_EQ(others, 0);
    // From the middle, over an edge between pieces.
    w.a.write(29998, to.key, s, w.src.key, 8);
    w.a.ring();
    CHECK(done(w.a_cq));
    CHECK(std::memcmp(w.target.p + 9 + 29998, w.source.p, 2) == 0 && w.target.p[100000] == w.source.p[2]);
    CHECK(std::memcmp(w.target.p + 200000, w.source.p + 3, 5) == 0);
}

void read_and_send_through_pieces() {
    World w(Options(), with_receives());
    const uint64_t s = w.source.address(), t = w.target.address();
    for (size_t i = 0; i < w.target.bytes; ++i) w.target.p[i] = static_cast<uint8_t>(i * 5 + 2);
    Pieces here(w.nic, {{s + 64, 5000, w.src.key}, {s + 20000, 3000, w.src.key}});
    Pieces there(w.nic, {{t + 1, 1000, w.dst.key}, {t + 50000, 7000, w.dst.key}});
    w.a.control(w.a.producer, MLX5_OPCODE_RDMA_READ, 3);
    w.a.remote(w.a.producer, 0, there.key);
    w.a.data(w.a.producer, 2, 0, 8000, here.key);
    w.a.last = w.a.producer++;
    w.a.ring();
    CHECK(done(w.a_cq));
    CHECK(std::memcmp(w.source.p + 64, w.target.p + 1, 1000) == 0);
    CHECK(std::memcmp(w.source.p + 1064, w.target.p + 50000, 4000) == 0);
    CHECK(std::memcmp(w.source.p + 20000, w.target.p + 54000, 3000) == 0);
    w.b.post_receive(0, 8000, there.key);
    w.a.send(0, here.key, 8000);
    std::memset(w.target.p, 0, w.target.bytes);
    w.a.ring();
    CHECK(done(w.a_cq));
    CHECK_EQ(opcode_of(w.b_cq.wait()), MLX5_CQE_RESP_SEND);
    CHECK(std::memcmp(w.source.p + 64, w.target.p + 1, 1000) == 0);
    CHECK(std::memcmp(w.source.p + 20000, w.target.p + 54000, 3000) == 0);
}

void pieces_of_one_size_and_of_pieces() {
    World w;
    const uint64_t s = w.source.address(), t = w.target.address();
    Pieces same(w.nic, {{t + 8192, 4096, w.dst.key}, {t, 4096, w.dst.key}}, 4, MKC_ACCESS_MODE_KSM, 12);
    CHECK(same.made);
    Pieces outer(w.nic, {{4000, 200, same.key}, {t + 100000, 50, w.dst.key}});
    w.a.write(0, outer.key, s, w.src.key, 250);
    w.a.ring();
    CHECK(done(w.a_cq));
    CHECK(std::memcmp(w.target.p + 8192 + 4000, w.source.p, 96) == 0);
    CHECK(std::memcmp(w.target.p, w.source.p + 96, 104) == 0);
    CHECK(std::memcmp(w.target.p + 100000, w.source.p + 200, 50) == 0);
    Pieces third(w.nic, {{0, 250, outer.key}});
    Pieces fourth(w.nic, {{0, 250, third.key}});
    w.a.write(0, fourth.key, s, w.src.key, 250);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0, "deeper than 3", w.a.last);
}

// A piece that is not what the key of pieces grants: found when it is used.
void rights_and_ranges_of_pieces() {
    struct Fault {
        std::function<Piece(World&, Memory&)> piece;
        uint64_t at;
        uint32_t bytes;
        const char* words;
    };
    const Fault faults[] = {
        {[](World& w, Memory&) { return Piece{w.target.address() + w.target.bytes - 10, 100, w.dst.key}; }, 0, 100,
         "a piece of key"},
        {[](World& w, Memory&) { return Piece{w.target.address(), 100, 0x123456}; }, 0, 100, "does not exist"},
        {[](World& w, Memory&) { return Piece{w.target.address(), 100, w.dst.key}; }, 40, 61, "is not within key"},
        {[](World&, Memory& readable) { return Piece{readable.nic.page_memory->address(), 100, readable.key}; }, 0, 100,
         "does not allow local write"},
    };
    for (const Fault& fault : faults) {
        World w;
        Memory readable(w.nic, w.nic.page_memory->address(), 4096, false, 0, false);
        Pieces pieces(w.nic, {fault.piece(w, readable)});
        w.a.write(fault.at, pieces.key, w.source.address(), w.src.key, fault.bytes);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0, fault.words);
    }
}

void atomics_stay_within_a_piece() {
    World w;
    const uint64_t t = w.target.address();
    Pieces pieces(w.nic, {{t + 64, 8, w.dst.key}, {t + 132, 8, w.dst.key}});
    const auto add = [&](uint64_t at) {
        w.a.control(w.a.producer, MLX5_OPCODE_ATOMIC_FA, 4);
        w.a.remote(w.a.producer, at, pieces.key);
        std::memset(w.a.segment(w.a.producer, 2), 0, 16);
        GDA_SET(wqe_atomic_seg, w.a.segment(w.a.producer, 2), swap_add, 7);
        w.a.data(w.a.producer, 3, w.source.address(), 8, w.src.key);
        w.a.last = w.a.producer++;
        w.a.ring();
    };
    add(0);
    CHECK(done(w.a_cq));
    CHECK_EQ(w.target.p[64], 7);
    add(8);  // aligned in the key, not in memory
    expect_error(w, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, 0, "several pieces of key", 1);
}

void creation_is_judged() {
    World w;
    Pieces many(w.nic, {}, 5000);
    CHECK(!many.made && w.nic.said("room for 5000 (at most 4096)"));
    Call c = CALL(create_mkey, MLX5_CMD_OP_CREATE_MKEY);  // a list that was not sent
    uint8_t* k = c.in.data() + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
    GDA_SET(create_mkey_in, c.in.data(), translations_octword_actual_size, 2);
    GDA_SET(mkc, k, access_mode_1_0, MKC_ACCESS_MODE_KLM);
    GDA_SET(mkc, k, pd, w.nic.pdn);
    CHECK(!c.send(w.nic));
    CHECK(w.nic.said("2 pieces, room for 0 (at most 4096), 0 bytes of list"));
    GDA_SET(create_mkey_in, c.in.data(), translations_octword_actual_size, 0);
    GDA_SET(mkc, k, bsf_en, 1);
    CHECK(!c.send(w.nic));
    CHECK(w.nic.said("bsf_en"));
}

void list_by_work_request() {
    World w;
    const uint64_t t = w.target.address(), s = w.source.address();
    Pieces key(w.nic, {}, 8);
    w.a.write(0, key.key, s, w.src.key, 8);
    for (int twice = 0; twice < 2; ++twice) {
        Umr u(w.b, key.key, 3);
        GDA_SET(mkc, u.mkc(), len, 24);
        for (uint32_t i = 0; i < 3; ++i) u.piece(i, {t + 1000 * i + static_cast<uint32_t>(twice), 8, w.dst.key});
        w.b.ring();
        const uint8_t* e = w.b_cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
        CHECK_EQ(GDA_GET(cqe64, e, sop_drop_qpn_opcode), MLX5_OPCODE_UMR);
    }
    w.a.write(0, key.key, s, w.src.key, 24);
    w.a.ring();
    CHECK(done(w.a_cq) && done(w.a_cq));
    for (uint32_t i = 0; i < 3; ++i) CHECK(std::memcmp(w.target.p + 1000 * i + 1, w.source.p + 8 * i, 8) == 0);
    CHECK_EQ(w.target.p[0], 0);
    CHECK_EQ(w.nic.device.counter("key_changes"), 2);
}

void repeated_pieces() {
    World w;
    const uint64_t t = w.target.address(), s = w.source.address();
    Pieces key(w.nic, {}, 8);
    Umr u(w.b, key.key, 3);
    GDA_SET(mkc, u.mkc(), len, 5 * 24);
    uint8_t* block = w.b.segment(u.index, 8);
    GDA_SET(wqe_umr_repeat_block_seg, block, byte_count, 24);
    GDA_SET(wqe_umr_repeat_block_seg, block, op, UMR_OP_REPEAT);
    GDA_SET(wqe_umr_repeat_block_seg, block, repeat_count, 5);
    GDA_SET(wqe_umr_repeat_block_seg, block, num_ent, 2);
    for (uint32_t i = 0; i < 2; ++i) {
        uint8_t* e = w.b.segment(u.index, 9 + i);
        GDA_SET(wqe_umr_repeat_ent_seg, e, stride, i ? 100 : 64);
        GDA_SET(wqe_umr_repeat_ent_seg, e, byte_count, i ? 8 : 16);
        GDA_SET(wqe_umr_repeat_ent_seg, e, memkey, w.dst.key);
        GDA_SET(wqe_umr_repeat_ent_seg, e, va, t + 10000 * i);
    }
    w.b.ring();
    CHECK(done(w.b_cq));
    w.a.write(0, key.key, s, w.src.key, 120);
    w.a.ring();
    CHECK(done(w.a_cq));
    for (uint32_t round = 0; round < 5; ++round) {
        CHECK(std::memcmp(w.target.p + 64 * round, w.source.p + 24 * round, 16) == 0);
        CHECK(std::memcmp(w.target.p + 10000 + 100 * round, w.source.p + 24 * round + 16, 8) == 0);
        CHECK_EQ(w.target.p[64 * round + 16], 0);
    }
    w.a.write(100, key.key, s, w.src.key, 21);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0, "is not within key", w.a.last);
}

void translations_by_pointer() {
    World w;
    const uint64_t t = w.target.address(), s = w.source.address();
    Pieces key(w.nic, {}, 64);
    for (uint32_t i = 0; i < 64; ++i) {
        uint8_t* e = w.target.p + 500000 + 16 * i;
        GDA_SET(wqe_umr_klm_seg, e, byte_count, 4);
        GDA_SET(wqe_umr_klm_seg, e, mkey, w.dst.key);
        GDA_SET(wqe_umr_klm_seg, e, address, t + 16 * (63 - i));
    }
    Umr u(w.b, key.key, 1);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), is_inline, 0);
    GDA_SET(wqe_umr_ctrl_seg, u.control(), klm_octowords, 64);
    GDA_SET(mkc, u.mkc(), len, 256);
    w.b.data(u.index, 8, t + 500000, 1024, w.dst.key);
    w.b.ring();
    CHECK(done(w.b_cq));
    w.a.write(0, key.key, s, w.src.key, 256);
    w.a.ring();
    CHECK(done(w.a_cq));
    for (uint32_t i = 0; i < 64; ++i) CHECK(std::memcmp(w.target.p + 16 * (63 - i), w.source.p + 4 * i, 4) == 0);
}

void changes_that_are_refused() {
    struct Fault {
        std::function<void(World&, Pieces&, Umr&)> spoil;
        const char* words;
    };
    const Fault faults[] = {
        {[](World&, Pieces&, Umr& u) { GDA_SET(wqe_ctrl_seg, u.p.block(u.index), imm, 0x777700); }, "does not exist"},
        {[](World& w, Pieces&, Umr& u) { GDA_SET(wqe_ctrl_seg, u.p.block(u.index), imm, w.dst.key); },
         "not made to be changed"},
        {[](World&, Pieces&, Umr& u) { GDA_SET(wqe_umr_ctrl_seg, u.control(), klm_octowords, 12); },
         "12 translations for key"},
        {[](World&, Pieces&, Umr& u) { GDA_SET(wqe_umr_ctrl_seg, u.control(), klm_octowords, 8); },
         "8 translations inline, the WQE has room for 4"},
        {[](World&, Pieces&, Umr& u) { GDA_SET(wqe_ctrl_seg, u.p.block(u.index), ds, 7); }, "ds 7"},
        {[](World&, Pieces&, Umr& u) { GDA_SET(wqe_umr_klm_seg, u.p.segment(u.index, 8), byte_count, 1 << 21); },
         "is not within key"},
        {[](World&, Pieces&, Umr& u) {
             uint8_t* block = u.p.segment(u.index, 8);
             GDA_SET(wqe_umr_repeat_block_seg, block, op, UMR_OP_REPEAT);
             GDA_SET(wqe_umr_repeat_block_seg, block, num_ent, 9);
         },
         "a repeated block of 9 pieces in 4 octowords"},
    };
    for (const Fault& fault : faults) {
        World w;
        Pieces key(w.nic, {}, 8);
        Umr u(w.a, key.key, 1);
        GDA_SET(mkc, u.mkc(), len, 8);
        u.piece(0, {w.target.address(), 8, w.dst.key});
        fault.spoil(w, key, u);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_MW_BIND_ERR, 0x53, fault.words);
    }
}

// A change waits for what was posted before it, and what is posted after it sees it.
void changes_keep_the_order() {
    World w;
    const uint64_t t = w.target.address(), s = w.source.address();
    Pieces key(w.nic, {}, 4);
    for (uint32_t i = 0; i < 4; ++i) {
        Umr u(w.a, key.key, 1);
        GDA_SET(mkc, u.mkc(), len, 8);
        u.piece(0, {s + 8 * i, 8, w.src.key});
        w.a.write(t + 8 * i, w.dst.key, 0, key.key, 8);
    }
    end(w.a, key.key);
    for (int i = 0; i < 9; ++i) CHECK(done(w.a_cq));
    CHECK(w.same(32));
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"write_from_and_to_pieces", write_from_and_to_pieces},
            {"read_and_send_through_pieces", read_and_send_through_pieces},
            {"pieces_of_one_size_and_of_pieces", pieces_of_one_size_and_of_pieces},
            {"rights_and_ranges_of_pieces", rights_and_ranges_of_pieces},
            {"atomics_stay_within_a_piece", atomics_stay_within_a_piece},
            {"creation_is_judged", creation_is_judged},
            {"list_by_work_request", list_by_work_request},
            {"repeated_pieces", repeated_pieces},
            {"translations_by_pointer", translations_by_pointer},
            {"changes_that_are_refused", changes_that_are_refused},
            {"changes_keep_the_order", changes_keep_the_order},
        },
        argc, argv);
}
