// SPDX-License-Identifier: Apache-2.0
// RDMA reads and atomics: data, order, limits, rights, and every fault with its syndrome; on one NIC and between two.

#include <fcntl.h>

#include "sim/link/inbox.h"
#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

// A WQE that fetches: control, remote address, `operands` segments that the caller fills, pieces of memory.
uint32_t fetch(Pair& a, uint32_t opcode, uint64_t from, uint32_t rkey, uint32_t operands,
               const std::vector<std::pair<uint64_t, uint32_t>>& pieces, uint32_t lkey, uint32_t opmod = 0,
               uint32_t fence = 0) {
    const uint32_t index = a.producer, ds = 2 + operands + static_cast<uint32_t>(pieces.size());
    for (uint32_t i = 1; i < (ds + 3) / 4; ++i) std::memset(a.block(index + i), 0, 64);
    a.control(index, opcode, ds);
    GDA_SET(wqe_ctrl_seg, a.block(index), opmod, opmod);
    GDA_SET(wqe_ctrl_seg, a.block(index), fm, fence);
    a.remote(index, from, rkey);
    for (uint32_t i = 0; i < pieces.size(); ++i) {
        a.data(index, 2 + operands + i, pieces[i].first, pieces[i].second, lkey);
    }
    a.last = index;
    a.producer += (ds + 3) / 4;
    return index;
}

uint32_t read(World& w, uint64_t to, uint64_t from, uint32_t bytes, uint32_t fence = 0) {
    return fetch(w.a, MLX5_OPCODE_RDMA_READ, from, w.dst.key, 0, {{to, bytes}}, w.src.key, 0, fence);
}

uint32_t atomic(World& w, uint32_t opcode, uint64_t to, uint64_t at, uint64_t swap_add, uint64_t compare = 0) {
    const uint32_t index = fetch(w.a, opcode, at, w.dst.key, 1, {{to, 8}}, w.src.key);
    GDA_SET(wqe_atomic_seg, w.a.segment(index, 2), swap_add, swap_add);
    GDA_SET(wqe_atomic_seg, w.a.segment(index, 2), compare, compare);
    return index;
}

uint64_t& word(Pages& pages, uint32_t i) { return reinterpret_cast<uint64_t*>(pages.p)[i]; }

void fill(Pages& pages) {
    for (size_t i = 0; i < pages.bytes; ++i) pages.p[i] = static_cast<uint8_t>(i * 13 + (i >> 9) + 3);
}

void reads_of_all_sizes() {
    World w;
    fill(w.target);
    for (uint32_t bytes : {1u, 8u, 63u, 4096u, 65536u, 65537u, 1048576u}) {
        std::memset(w.source.p, 0, w.source.bytes);
        const uint32_t index = read(w, w.source.address(), w.target.address(), bytes);
        w.a.ring();
        const uint8_t* e = w.a_cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
        CHECK_EQ(index_of(e), index);
        CHECK_EQ(GDA_GET(cqe64, e, sop_drop_qpn_opcode), MLX5_OPCODE_RDMA_READ);
        CHECK_EQ(GDA_GET(cqe64, e, byte_cnt), bytes);
        CHECK(w.same(bytes));
        if (bytes < w.source.bytes) CHECK_EQ(w.source.p[bytes], 0);
    }
    fetch(w.a, MLX5_OPCODE_RDMA_READ, w.target.address(), w.dst.key, 0, {}, w.src.key);  // of nothing
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK_EQ(w.nic.device.counter("read_requests"), 8);
}

void read_to_several_pieces() {
    World w;
    fill(w.target);
    std::memset(w.source.p, 0, w.source.bytes);
    const uint64_t s = w.source.address();
    fetch(w.a, MLX5_OPCODE_RDMA_READ, w.target.address(), w.dst.key, 0,
          {{s + 100, 7}, {s + 5000, 1}, {s + 9000, 50000}, {s + 70000, 3}}, w.src.key);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK(std::memcmp(w.source.p + 100, w.target.p, 7) == 0);
    CHECK(std::memcmp(w.source.p + 5000, w.target.p + 7, 1) == 0);
    CHECK(std::memcmp(w.source.p + 9000, w.target.p + 8, 50000) == 0);
    CHECK(std::memcmp(w.source.p + 70000, w.target.p + 50008, 3) == 0);
    CHECK_EQ(w.source.p[107], 0);
}

// A read sees the writes before it, and a write with a fence does not overtake it.
void order_of_writes_and_reads() {
    World w;
    const uint64_t s = w.source.address(), t = w.target.address();
    word(w.source, 0) = 0x1111;
    w.write(8);
    read(w, s + 64, t, 8);
    word(w.source, 1) = 0x2222;
    const uint32_t last = w.a.write(t, w.dst.key, s + 8, w.src.key, 8);
    GDA_SET(wqe_ctrl_seg, w.a.block(last), fm, MLX5_FENCE_MODE_FENCE);
    w.a.ring();
    for (uint32_t i = 0; i < 3; ++i) CHECK_EQ(index_of(w.a_cq.wait()), i);
    CHECK_EQ(word(w.source, 8), 0x1111);
    CHECK_EQ(word(w.target, 0), 0x2222);
}

void fetch_add_and_compare_swap() {
    World w;
    const uint64_t s = w.source.address(), t = w.target.address();
    word(w.target, 0) = 40;
    atomic(w, MLX5_OPCODE_ATOMIC_FA, s, t, 2);
    atomic(w, MLX5_OPCODE_ATOMIC_CS, s + 8, t, 1000, 42);
    atomic(w, MLX5_OPCODE_ATOMIC_CS, s + 16, t, 7, 41);  // does not match
    atomic(w, MLX5_OPCODE_ATOMIC_FA, s + 24, t, ~uint64_t{0});
    w.a.ring();
    for (uint32_t i = 0; i < 4; ++i) {
        const uint8_t* e = w.a_cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
        CHECK_EQ(GDA_GET(cqe64, e, byte_cnt), 8);
    }
    CHECK_EQ(word(w.source, 0), 40);  // host byte order
    CHECK_EQ(word(w.source, 1), 42);
    CHECK_EQ(word(w.source, 2), 1000);
    CHECK_EQ(word(w.source, 3), 1000);
    CHECK_EQ(word(w.target, 0), 999);
    CHECK_EQ(w.nic.device.counter("atomic_requests"), 4);
}

void masked_atomics() {
    World w;
    const uint64_t s = w.source.address(), t = w.target.address();
    word(w.target, 0) = 0xaaaabbbbccccdddd;
    // Swap only the second quarter, if the last one is as expected.
    uint32_t i =
        fetch(w.a, MLX5_OPCODE_ATOMIC_MASKED_CS, t, w.dst.key, 2, {{s, 8}}, w.src.key, ATOMIC_OPMOD_EXTENDED_8_BYTES);
    GDA_SET(wqe_atomic_seg, w.a.segment(i, 2), swap_add, 0x1111222233334444);
    GDA_SET(wqe_atomic_seg, w.a.segment(i, 2), compare, 0x000000000000dddd);
    GDA_SET(wqe_atomic_mask_seg, w.a.segment(i, 3), swap_mask, 0x0000ffff00000000);
    GDA_SET(wqe_atomic_mask_seg, w.a.segment(i, 3), compare_mask, 0xffff);
    w.a.ring();
    const uint8_t* e = w.a_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
    CHECK_EQ(word(w.source, 0), 0xaaaabbbbccccdddd);
    CHECK_EQ(word(w.target, 0), 0xaaaa2222ccccdddd);
    // A plain set, as a signal: every bit is swapped, none is compared. Four bytes; the neighbours stay.
    i = fetch(w.a, MLX5_OPCODE_ATOMIC_MASKED_CS, t + 4, w.dst.key, 1, {{s + 8, 4}}, w.src.key,
              ATOMIC_OPMOD_EXTENDED_4_BYTES);
    GDA_SET(wqe_atomic32_swap_seg, w.a.segment(i, 2), swap, 0x12345678);
    GDA_SET(wqe_atomic32_swap_seg, w.a.segment(i, 2), swap_mask, 0xffffffff);
    w.a.ring();
    CHECK_EQ(GDA_GET(cqe64, w.a_cq.wait(), byte_cnt), 4);
    CHECK_EQ(word(w.target, 0), 0x12345678ccccdddd);
    CHECK_EQ(gda::swap32(static_cast<uint32_t>(word(w.source, 1))), 0xaaaa2222);
    // Additions: without a boundary a carry passes, with one it does not.
    word(w.target, 1) = 0x00000000ffffffff;
    for (uint64_t boundary : {uint64_t{0}, uint64_t{0x8000000080000000}}) {
        i = fetch(w.a, MLX5_OPCODE_ATOMIC_MASKED_FA, t + 8, w.dst.key, 1, {{s, 8}}, w.src.key,
                  ATOMIC_OPMOD_EXTENDED_8_BYTES);
        GDA_SET(wqe_atomic64_add_seg, w.a.segment(i, 2), add, boundary ? 0x00000001ffffffff : 1);
        GDA_SET(wqe_atomic64_add_seg, w.a.segment(i, 2), field_boundary, boundary);
        w.a.ring();
        CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
        CHECK_EQ(word(w.target, 1), boundary ? 0x00000002ffffffff : 0x0000000100000000);
    }
    i = fetch(w.a, MLX5_OPCODE_ATOMIC_MASKED_FA, t + 8, w.dst.key, 1, {{s, 4}}, w.src.key,
              ATOMIC_OPMOD_EXTENDED_4_BYTES);
    GDA_SET(wqe_atomic32_add_seg, w.a.segment(i, 2), add, 2);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK_EQ(word(w.target, 1), 0x0000000200000001);
}

// More than the queue pair may have outstanding wait for their turn, and all are done once.
void outstanding_limit() {
    for (uint32_t log : {0u, 1u, 4u}) {
        Options o;
        o.log_requests = o.log_replies = log;
        World w(o, o);
        for (uint32_t i = 0; i < 40; ++i)
            atomic(w, MLX5_OPCODE_ATOMIC_FA, w.source.address() + 8 * i, w.target.address(), 1);
        w.a.producer &= 0xffff;
        CHECK(w.a.producer > 64 || w.a.producer == 40);
        w.a.ring();
        for (uint32_t i = 0; i < 40; ++i) CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
        CHECK_EQ(word(w.target, 0), 40);
        for (uint32_t i = 0; i < 40; ++i) CHECK_EQ(word(w.source, i), i);
    }
    // The responder allows fewer than the requester sends: told, not lost.
    Options o;
    o.log_requests = 3;
    Options few;
    few.log_replies = 0;
    World w(o, few);
    for (uint32_t i = 0; i < 8; ++i) read(w, w.source.address(), w.target.address(), 8);
    w.a.ring();
    const uint8_t* e = w.a_cq.wait();
    while (opcode_of(e) == MLX5_CQE_REQ) e = w.a_cq.wait();
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    CHECK(w.nic.said("log_rra_max"));
}

// With a fence what follows waits for the data, also when the peer is in another NIC that answers late.
void fences() {
    Nic a, b;
    Queue a_cq(a, 6), b_cq(b);
    Pair x(a, a_cq), y(b, b_cq);
    connect(x, y);
    Pages local(4096), remote(4096);
    Memory l(a, local.address(), 4096), r(b, remote.address(), 4096);
    word(remote, 0) = 77;
    for (uint32_t fence : {0u, static_cast<uint32_t>(MLX5_FENCE_MODE_SMALL_AND_FENCE)}) {
        const uint32_t before = static_cast<uint32_t>(a.device.counter("packets_sent"));
        fetch(x, MLX5_OPCODE_RDMA_READ, remote.address(), r.key, 0, {{local.address(), 8}}, l.key);
        const uint32_t i = x.write(remote.address() + 8, r.key, local.address(), l.key, 8);
        GDA_SET(wqe_ctrl_seg, x.block(i), fm, fence);
        x.ring();
        for (int n = 0; n < 20; ++n) a.device.step();  // the peer does not move
        CHECK_EQ(a.device.counter("packets_sent") - before, fence ? 1 : 2);
        for (int n = 0; n < 2; ++n) {
            const uint8_t* e = nullptr;
            CHECK(a.until([&] { return b.device.step(), (e = a_cq.poll()) != nullptr; }));
            CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
        }
        if (fence) CHECK_EQ(word(remote, 1), 77);
    }
}

void between_two_nics() {
    Nic a, b;
    Queue a_cq(a, 6), b_cq(b);
    Pair x(a, a_cq), y(b, b_cq);
    uint8_t a_gid[16], b_gid[16];
    a.device.gid(3, a_gid);
    b.device.gid(1, b_gid);
    CHECK_EQ(x.to_init(), MLX5_CMD_STAT_OK);
    a.device.gid(1, a_gid);
    CHECK_EQ(x.to_rtr(y.qpn, b_gid), MLX5_CMD_STAT_OK);
    CHECK_EQ(x.to_rts(), MLX5_CMD_STAT_OK);
    y.connect(x.qpn, a_gid);
    const size_t bytes = (3 << 20) + 5;
    Pages local(bytes), remote(bytes);
    Memory l(a, local.address(), bytes), r(b, remote.address(), bytes);
    fill(remote);
    const auto wait = [&] {
        const uint8_t* e = nullptr;
        a.until([&] { return b.device.step(), (e = a_cq.poll()) != nullptr; });
        return e;
    };
    fetch(x, MLX5_OPCODE_RDMA_READ, remote.address(), r.key, 0,
          {{local.address(), 100000}, {local.address() + 100000, static_cast<uint32_t>(bytes - 100000)}}, l.key);
    x.ring();
    CHECK_EQ(opcode_of(wait()), MLX5_CQE_REQ);
    CHECK(std::memcmp(local.p, remote.p, bytes) == 0);
    // Mixed: reads, writes and atomics, many in flight, in order.
    word(remote, 0) = 0;
    for (uint32_t round = 0; round < 10; ++round) {
        for (uint32_t i = 0; i < 6; ++i) {
            const uint32_t at =
                fetch(x, MLX5_OPCODE_ATOMIC_FA, remote.address(), r.key, 1, {{local.address(), 8}}, l.key);
            GDA_SET(wqe_atomic_seg, x.segment(at, 2), swap_add, 1);
            fetch(x, MLX5_OPCODE_RDMA_READ, remote.address(), r.key, 0, {{local.address() + 8, 200000}}, l.key);
            x.write(remote.address() + 4096, r.key, local.address(), l.key, 100000);
        }
        x.ring();
        for (uint32_t i = 0; i < 18; ++i) CHECK_EQ(opcode_of(wait()), MLX5_CQE_REQ);
        CHECK_EQ(word(local, 0), round * 6 + 5);
        CHECK_EQ(word(local, 1), round * 6 + 6);
    }
    CHECK_EQ(b.device.counter("duplicates"), 0);
}

// Takes what lies in the inbox of a NIC, which does not see it any more.
int lose(Nic& nic) {
    const std::string path =
        std::string(std::getenv("GDA_SIM_DIRECTORY")) + "/nic-" + std::to_string(nic.device.slot());
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    sim::Inbox* inbox = sim::Inbox::map(fd);
    close(fd);
    CHECK(inbox != nullptr);
    const int lost = inbox ? inbox->take([](const sim::Packet&) {}, 1000) : 0;
    if (inbox) sim::Inbox::unmap(inbox);
    return lost;
}

// A lost answer: the requester asks again, the read is repeated, the atomic is not.
void exactly_once() {
    Nic a;
    Nic b;
    Queue a_cq(a, 6), b_cq(b);
    Options o;
    o.timeout = 12;  // 17 ms
    Pair x(a, a_cq, nullptr, o), y(b, b_cq);
    connect(x, y);
    Pages local(4096), remote(4096);
    Memory l(a, local.address(), 4096), r(b, remote.address(), 4096);
    const uint32_t at = fetch(x, MLX5_OPCODE_ATOMIC_FA, remote.address(), r.key, 1, {{local.address(), 8}}, l.key);
    GDA_SET(wqe_atomic_seg, x.segment(at, 2), swap_add, 1);
    fetch(x, MLX5_OPCODE_RDMA_READ, remote.address(), r.key, 0, {{local.address() + 8, 8}}, l.key);
    x.ring();
    a.device.step();
    while (b.device.counter("atomic_requests") < 1 || b.device.counter("read_requests") < 1) b.device.step();
    b.settle();
    CHECK_EQ(lose(a), 2);
    const uint8_t* e = nullptr;
    for (int n = 0; n < 2; ++n) {
        CHECK(a.until([&] { return b.device.step(), (e = a_cq.poll()) != nullptr; }));
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
    }
    b.settle();
    a.settle();
    CHECK(b.device.counter("duplicates") >= 1);
    CHECK_EQ(word(remote, 0), 1);
    CHECK_EQ(word(local, 0), 0);
    CHECK_EQ(word(local, 1), 1);
    CHECK(a_cq.poll() == nullptr);
}

void expect_refusal(World& w, uint32_t syndrome, const char* words) {
    w.a.ring();
    expect_error(w, syndrome, 0, words);
    CHECK_EQ(w.b.state(), MLX5_QPC_STATE_ERR);
}

void refused_rights() {
    {
        Options b;
        b.rre = 0;
        World w(Options(), b);
        read(w, w.source.address(), w.target.address(), 8);
        expect_refusal(w, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, "does not allow remote reads (rre)");
    }
    {
        Options b;
        b.rae = 0;
        World w(Options(), b);
        atomic(w, MLX5_OPCODE_ATOMIC_FA, w.source.address(), w.target.address(), 1);
        expect_refusal(w, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, "does not allow remote atomics (rae)");
        CHECK_EQ(word(w.target, 0), 0);
    }
    {
        World w;
        Memory shut(w.nic, w.target.address(), 4096, false);
        fetch(w.a, MLX5_OPCODE_RDMA_READ, w.target.address(), shut.key, 0, {{w.source.address(), 8}}, w.src.key);
        expect_refusal(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, "does not allow remote read");
    }
    {
        World w;
        read(w, w.source.address(), w.target.address() + w.target.bytes - 7, 8);
        expect_refusal(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, "is not within key");
    }
}

void misaligned_atomic() {
    for (uint32_t off : {1u, 4u}) {
        World w;
        atomic(w, MLX5_OPCODE_ATOMIC_FA, w.source.address(), w.target.address() + off, 1);
        expect_refusal(w, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, "not a multiple of 8");
        CHECK_EQ(word(w.target, 0), 0);
    }
}

void bad_fetch_wqes() {
    {
        World w;
        const uint32_t i = atomic(w, MLX5_OPCODE_ATOMIC_FA, w.source.address(), w.target.address(), 1);
        GDA_SET(wqe_data_seg, w.a.segment(i, 3), byte_count, 16);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0, "an atomic of 8 bytes");
    }
    {
        World w;
        fetch(w.a, MLX5_OPCODE_ATOMIC_CS, w.target.address(), w.dst.key, 0, {{w.source.address(), 8}}, w.src.key);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "segments of operands");
    }
    {
        World w;
        fetch(w.a, MLX5_OPCODE_ATOMIC_MASKED_CS, w.target.address(), w.dst.key, 2, {{w.source.address(), 8}}, w.src.key,
              7);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "opmod 0x7");
    }
    {
        World w;
        read(w, w.source.address(), w.target.address(), 8);
        GDA_SET(wqe_data_seg, w.a.segment(0, 2), byte_count, 0);
        GDA_SET(wqe_inline_seg, w.a.segment(0, 2), is_inline, 1);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "inline data in a WQE that fetches");
    }
    {
        World w;  // a key that may not be written
        const uint64_t at = w.source.address();
        Call c = CALL(create_mkey, MLX5_CMD_OP_CREATE_MKEY);
        uint8_t* k = c.in.data() + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
        GDA_SET(mkc, k, access_mode_1_0, MKC_ACCESS_MODE_PA);
        GDA_SET(mkc, k, qpn, 0xffffff);
        GDA_SET(mkc, k, length64, 1);
        GDA_SET(mkc, k, pd, w.nic.pdn);
        GDA_SET(mkc, k, lr, 1);
        CHECK(c.send(w.nic));
        const uint32_t index = static_cast<uint32_t>(GDA_GET(create_mkey_out, c.out.data(), mkey_index));
        fetch(w.a, MLX5_OPCODE_RDMA_READ, w.target.address(), w.dst.key, 0, {{at, 8}}, index << 8);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0, "does not allow local write");
        Call d = CALL(destroy_mkey, MLX5_CMD_OP_DESTROY_MKEY);
        GDA_SET(destroy_mkey_in, d.in.data(), mkey_index, index);
        CHECK(d.send(w.nic));
    }
}

// Pages that are gone: of the peer's memory, of the own, under an atomic.
void unmapped_memory() {
    {
        World w;
        mprotect(w.target.p, w.target.bytes, PROT_NONE);
        read(w, w.source.address(), w.target.address(), 64);
        expect_refusal(w, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, "no longer mapped");
        mprotect(w.target.p, w.target.bytes, PROT_READ | PROT_WRITE);
    }
    {
        World w;
        mprotect(w.source.p, w.source.bytes, PROT_READ);
        read(w, w.source.address(), w.target.address(), 64);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0, "no longer mapped");
        mprotect(w.source.p, w.source.bytes, PROT_READ | PROT_WRITE);
    }
    {
        World w;
        mprotect(w.target.p, w.target.bytes, PROT_NONE);
        atomic(w, MLX5_OPCODE_ATOMIC_FA, w.source.address(), w.target.address(), 1);
        expect_refusal(w, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, "the target of an atomic");
        mprotect(w.target.p, w.target.bytes, PROT_READ | PROT_WRITE);
    }
}

// A read fails while writes before it are good: they complete first, what follows is flushed.
void error_in_order() {
    World w;
    w.write(8);
    read(w, w.source.address(), w.target.address() + (uint64_t{1} << 40), 8);
    w.write(8);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    const uint8_t* e = w.a_cq.wait();
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    CHECK_EQ(index_of(e), 1);
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

// To itself: requester and responder are one queue pair.
void to_itself() {
    Nic nic;
    Queue cq(nic, 6);
    Pair x(nic, cq);
    x.connect(x.qpn);
    Pages memory(1 << 20);
    Memory key(nic, memory.address(), memory.bytes);
    fill(memory);
    for (uint32_t i = 0; i < 20; ++i) {
        fetch(x, MLX5_OPCODE_RDMA_READ, memory.address(), key.key, 0, {{memory.address() + 500000, 400000}}, key.key);
        x.write(memory.address() + 950000, key.key, memory.address() + 500000, key.key, 1000);
        x.ring();
        for (int n = 0; n < 2; ++n) CHECK_EQ(opcode_of(cq.wait()), MLX5_CQE_REQ);
    }
    CHECK(std::memcmp(memory.p, memory.p + 500000, 400000) == 0);
    fetch(x, MLX5_OPCODE_RDMA_READ, memory.address(), key.key + 1, 0, {{memory.address() + 500000, 8}}, key.key);
    x.ring();
    CHECK_EQ(syndrome_of(cq.wait()), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"reads_of_all_sizes", reads_of_all_sizes},
            {"read_to_several_pieces", read_to_several_pieces},
            {"order_of_writes_and_reads", order_of_writes_and_reads},
            {"fetch_add_and_compare_swap", fetch_add_and_compare_swap},
            {"masked_atomics", masked_atomics},
            {"outstanding_limit", outstanding_limit},
            {"fences", fences},
            {"between_two_nics", between_two_nics},
            {"exactly_once", exactly_once},
            {"refused_rights", refused_rights},
            {"misaligned_atomic", misaligned_atomic},
            {"bad_fetch_wqes", bad_fetch_wqes},
            {"unmapped_memory", unmapped_memory},
            {"error_in_order", error_in_order},
            {"to_itself", to_itself},
        },
        argc, argv);
}
