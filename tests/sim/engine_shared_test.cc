// SPDX-License-Identifier: Apache-2.0
// Shared receive queues (order, limit event, several takers, errors), and changes of completion queues (resize,
// moderation, entries of 128 bytes), changes of queue pairs without a change of state, and limits of objects.

#include "tests/sim/engine_shared.h"

using namespace rig;

namespace {

// Two senders, two receivers that take from one queue.
struct Crowd {
    explicit Crowd(uint32_t type = MLX5_WQ_TYPE_LINKED_LIST)
        : shared(nic, 3, 5, type),
          send_cq(nic, 6),
          cq(nic, 6),
          a(nic, send_cq),
          c(nic, send_cq),
          b(nic, cq, &cq, options(0xb)),
          d(nic, cq, &cq, options(0xd)),
          memory(65536),
          key(nic, memory.address(), 65536) {
        a.connect(b.qpn), b.connect(a.qpn), c.connect(d.qpn), d.connect(c.qpn);
    }
    Options options(uint32_t user_index) {
        Options o;
        o.rmpn = shared.number;
        o.user_index = user_index;
        return o;
    }
    uint64_t at(uint32_t i) { return memory.address() + 1024 * i; }
    void send(Pair& from, uint8_t value, uint32_t bytes = 8) {
        std::memset(memory.p + 60000, value, bytes);
        from.send(memory.address() + 60000, key.key, bytes);
        from.ring();
        CHECK_EQ(opcode_of(send_cq.wait()), MLX5_CQE_REQ);
    }
    Nic nic;
    Shared shared;
    Queue send_cq, cq;
    Pair a, c, b, d;
    Pages memory;
    Memory key;
};

void two_take_from_one() {
    Crowd w;
    uint32_t slots[5];
    for (uint32_t i = 0; i < 5; ++i) slots[i] = w.shared.post(w.at(i), 1024, w.key.key);
    w.send(w.a, 1), w.send(w.c, 2), w.send(w.c, 3), w.send(w.a, 4);
    for (uint32_t i = 0; i < 4; ++i) {
        const uint8_t* e = w.cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND);
        CHECK_EQ(index_of(e), slots[i]);
        CHECK_EQ(GDA_GET(cqe64, e, srqn_uidx), i == 0 || i == 3 ? 0xb : 0xd);
        CHECK_EQ(w.memory.p[1024 * i], i + 1);
        w.shared.release(slots[i]);
    }
    // Round the ring, in the order in which slots came back.
    for (uint32_t round = 0; round < 30; ++round) {
        const uint32_t slot = w.shared.post(w.at(10), 1024, w.key.key);
        w.send(round % 2 ? w.a : w.c, static_cast<uint8_t>(round));
        const uint8_t* e = w.cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND);
        w.shared.release(index_of(e));
        (void)slot;
    }
}

// Empty: the sender waits (RNR), and goes on when something is posted; with a limit on retries it ends.
void empty_queue() {
    Crowd w;
    w.a.send(w.at(0), w.key.key, 8);
    w.a.ring();
    CHECK(w.nic.until([&] { return w.nic.device.counter("rnr_naks_sent") >= 2; }));
    CHECK(w.send_cq.poll() == nullptr);
    w.shared.post(w.at(1), 1024, w.key.key);
    CHECK_EQ(opcode_of(w.send_cq.wait()), MLX5_CQE_REQ);
    CHECK_EQ(opcode_of(w.cq.wait()), MLX5_CQE_RESP_SEND);

    Options few;
    few.rnr = 1;
    Nic nic;
    Shared shared(nic);
    Queue send_cq(nic), cq(nic);
    Options o;
    o.rmpn = shared.number;
    Pair a(nic, send_cq, nullptr, few), b(nic, cq, &cq, o);
    a.connect(b.qpn), b.connect(a.qpn);
    a.send(0, 0, 0);
    a.ring();
    CHECK_EQ(syndrome_of(send_cq.wait()), MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
}

void limit_event() {
    Crowd w;
    for (uint32_t i = 0; i < 4; ++i) w.shared.post(w.at(i), 1024, w.key.key);
    CHECK_EQ(w.shared.arm(3), MLX5_CMD_STAT_OK);
    CHECK_EQ(w.shared.limit(), 3);
    w.nic.asynchronous.clear();
    w.send(w.a, 1);
    w.nic.settle();
    CHECK_EQ(w.nic.asynchronous.size(), 0);  // three are left: not fewer
    w.send(w.a, 1);
    w.nic.settle();
    CHECK_EQ(w.nic.asynchronous.size(), 1);
    if (!w.nic.asynchronous.empty()) {
        CHECK_EQ(w.nic.asynchronous[0].first, w.shared.number);
        CHECK_EQ(w.nic.asynchronous[0].second, static_cast<int>(sim::AsyncEvent::srq_limit));
    }
    CHECK_EQ(w.shared.limit(), 0);  // once
    w.send(w.a, 1);
    CHECK_EQ(w.nic.asynchronous.size(), 1);
    CHECK_EQ(w.shared.arm(2), MLX5_CMD_STAT_OK);  // one is left: at once
    CHECK_EQ(w.nic.asynchronous.size(), 2);
    CHECK_EQ(w.nic.device.counter("srq_limits"), 2);
}

// In ERR a queue pair flushes what it holds, not what others may still take.
void errors_and_last_wqe() {
    Crowd w;
    for (uint32_t i = 0; i < 3; ++i) w.shared.post(w.at(i), 1024, w.key.key);
    w.nic.asynchronous.clear();
    CHECK_EQ(w.b.move(MLX5_CMD_OP_2ERR_QP), MLX5_CMD_STAT_OK);
    w.nic.settle();
    CHECK(w.cq.poll() == nullptr);
    CHECK_EQ(w.nic.asynchronous.size(), 1);
    if (!w.nic.asynchronous.empty()) {
        CHECK_EQ(w.nic.asynchronous[0].first, w.b.qpn);
        CHECK_EQ(w.nic.asynchronous[0].second, static_cast<int>(sim::AsyncEvent::qp_last_wqe));
    }
    w.send(w.c, 7);
    CHECK_EQ(opcode_of(w.cq.wait()), MLX5_CQE_RESP_SEND);
    CHECK_EQ(w.memory.p[0], 7);
    // Too long for the shared receive: its taker ends, with the slot's index.
    w.c.send(w.at(0), w.key.key, 2000);
    w.c.ring();
    const uint8_t* e = w.cq.wait();
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
    CHECK_EQ(index_of(e), 1);
    CHECK_EQ(syndrome_of(w.send_cq.wait()), MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    CHECK_EQ(w.shared.destroy(), MLX5_CMD_STAT_BAD_RES_STATE_ERR);
}

// Slots are taken in their order, whatever their links say.
void cyclic_takes_slots_in_order() {
    Crowd w(MLX5_WQ_TYPE_CYCLIC);
    for (uint32_t i = 0; i < 8; ++i) GDA_SET(wqe_srq_next_seg, w.shared.slot(i), next_wqe_index, 0xfffe);
    for (uint32_t i = 0; i < 20; ++i) {
        w.shared.head = i % 8;
        w.shared.post(w.at(i), 1024, w.key.key);
        w.send(i % 2 ? w.a : w.c, static_cast<uint8_t>(i + 1));
        const uint8_t* e = w.cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND);
        CHECK_EQ(index_of(e), i % 8);
        CHECK_EQ(w.memory.p[1024 * i], i + 1);
    }
}

void broken_list() {
    Crowd w;
    w.shared.post(w.at(0), 1024, w.key.key);
    GDA_SET(wqe_srq_next_seg, w.shared.slot(0), next_wqe_index, 99);
    w.a.send(w.at(1), w.key.key, 8);
    w.a.ring();
    CHECK(w.nic.until([&] { return w.nic.said("names 99 as the next one"); }));
    bool told = false;
    for (const auto& e : w.nic.asynchronous) told = told || e.second == static_cast<int>(sim::AsyncEvent::srq_error);
    CHECK(told);
    Call bad = w.shared.create(MLX5_WQ_TYPE_CYCLIC + 1);
    CHECK(!bad.send(w.nic));
    CHECK_EQ(bad.status(), MLX5_CMD_STAT_BAD_PARAM_ERR);
}

Call resize(Queue& q, uint32_t log, uint32_t umem, uint32_t valid = 1) {
    Call c = CALL(modify_cq, MLX5_CMD_OP_MODIFY_CQ);
    GDA_SET(modify_cq_in, c.in.data(), cqn, q.cqn);
    GDA_SET(modify_cq_in, c.in.data(), op_mod, MLX5_CQ_OPMOD_RESIZE);
    GDA_SET(modify_cq_in, c.in.data(), cq_umem_valid, valid);
    GDA_SET(modify_cq_in, c.in.data(), cq_umem_id, umem);
    GDA_SET(modify_cq_in, c.in.data(), cq_context.log_cq_size, log);
    return c;
}

// The old ring ends with a mark; what follows lies in the new one at the next index.
void cq_resize() {
    for (uint32_t log : {2u, 6u}) {
        World w(Options(), Options(), 4);
        for (uint32_t i = 0; i < 13; ++i) {
            w.write(8), w.a.ring();
            CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
        }
        w.write(8), w.write(8);
        w.a.ring();
        w.nic.settle();
        Pages fresh(64u << log);
        std::memset(fresh.p, 0xff, 64u << log);
        uint32_t umem;
        CHECK_EQ(w.nic.device.register_umem(fresh.address(), 64u << log, &umem), 0);
        Call c = resize(w.a_cq, log, umem);
        CHECK(c.send(w.nic));
        for (uint32_t i = 0; i < 2; ++i) CHECK_EQ(opcode_of(w.a_cq.poll()), MLX5_CQE_REQ);
        CHECK_EQ(opcode_of(w.a_cq.poll()), MLX5_CQE_RESIZE_CQ);
        uint8_t* old = w.a_cq.base;
        const uint32_t old_log = w.a_cq.log;
        w.a_cq.base = fresh.p;
        w.a_cq.log = log;
        for (uint32_t i = 0; i < 150; ++i) {
            w.write(8), w.a.ring();
            CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
        }
        // Back into the first memory, so that the queue ends as it began.
        std::memset(old, 0xff, 64u << old_log);
        Call back = resize(w.a_cq, old_log, w.a_cq.umem);
        CHECK(back.send(w.nic));
        CHECK_EQ(w.nic.device.release_umem(umem), 0);
        w.a_cq.base = old;
        w.a_cq.log = old_log;
        ++w.a_cq.consumer;
        w.write(8), w.a.ring();
        CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    }
}

void cq_resize_refused() {
    World w(Options(), Options(), 4);
    w.a_cq.store_consumer = true;
    for (uint32_t i = 0; i < 5; ++i) w.write(8);
    w.a.ring();
    w.nic.settle();
    Call small = resize(w.a_cq, 2, w.a_cq.umem);
    CHECK(!small.send(w.nic));
    CHECK(w.nic.said("holds 5 completions"));
    Call none = resize(w.a_cq, 2, w.a_cq.umem, 0);
    CHECK(!none.send(w.nic));
    Call huge = resize(w.a_cq, 23, w.a_cq.umem);
    CHECK(!huge.send(w.nic));
    CHECK_EQ(huge.status(), MLX5_CMD_STAT_LIM_ERR);
}

void cq_moderation() {
    World w;
    Call c = CALL(modify_cq, MLX5_CMD_OP_MODIFY_CQ);
    GDA_SET(modify_cq_in, c.in.data(), cqn, w.a_cq.cqn);
    GDA_SET(modify_cq_in, c.in.data(), modify_field_select_resize_field_select,
            MLX5_CQ_MODIFY_PERIOD | MLX5_CQ_MODIFY_COUNT);
    GDA_SET(modify_cq_in, c.in.data(), cq_context.cq_period, 16);
    GDA_SET(modify_cq_in, c.in.data(), cq_context.cq_max_count, 4);
    CHECK(c.send(w.nic));
    Call q = CALL(query_cq, MLX5_CMD_OP_QUERY_CQ);
    GDA_SET(query_cq_in, q.in.data(), cqn, w.a_cq.cqn);
    CHECK(q.send(w.nic));
    CHECK_EQ(GDA_GET(query_cq_out, q.out.data(), cq_context.cq_period), 16);
    CHECK_EQ(GDA_GET(query_cq_out, q.out.data(), cq_context.cq_max_count), 4);
    GDA_SET(modify_cq_in, c.in.data(), modify_field_select_resize_field_select, 0x40);
    CHECK(!c.send(w.nic));
}

void wide_entries() {
    Nic nic;
    Queue cq(nic, 3, false, false, nullptr, 0, 1);
    Pair a(nic, cq), b(nic, cq);
    a.connect(b.qpn), b.connect(a.qpn);
    Pages memory(4096);
    Memory key(nic, memory.address(), 4096);
    for (uint32_t i = 0; i < 20; ++i) {
        a.write(memory.address(), key.key, memory.address() + 64, key.key, 8);
        a.ring();
        const uint8_t* e = cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
        CHECK_EQ(index_of(e), i);
    }
    CHECK_EQ(cq.base[0], 0xff);  // the first half belongs to the program
}

// Rights change in RTS; the peer notices.
void rights_change() {
    World w;
    Call c = CALL(rts2rts_qp, MLX5_CMD_OP_RTS2RTS_QP);
    GDA_SET(rts2rts_qp_in, c.in.data(), qpn, w.b.qpn);
    GDA_SET(rts2rts_qp_in, c.in.data(), opt_param_mask, MLX5_QP_OPTPAR_RWE);
    w.write(8), w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK(c.send(w.nic));
    w.write(8), w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, 0, "does not allow remote writes", 1);
    Pair p(w.nic, w.a_cq);
    Call i = CALL(init2init_qp, MLX5_CMD_OP_INIT2INIT_QP);
    GDA_SET(init2init_qp_in, i.in.data(), qpn, p.qpn);
    CHECK(!i.send(w.nic));
    CHECK_EQ(i.status(), MLX5_CMD_STAT_BAD_QP_STATE_ERR);
    CHECK_EQ(p.to_init(), MLX5_CMD_STAT_OK);
    GDA_SET(init2init_qp_in, i.in.data(), opt_param_mask, MLX5_QP_OPTPAR_Q_KEY | MLX5_QP_OPTPAR_RRE);
    GDA_SET(init2init_qp_in, i.in.data(), qpc.q_key, 0x77);
    CHECK(i.send(w.nic));
    Call q = CALL(query_qp, MLX5_CMD_OP_QUERY_QP);
    GDA_SET(query_qp_in, q.in.data(), qpn, p.qpn);
    CHECK(q.send(w.nic));
    CHECK_EQ(GDA_GET(query_qp_out, q.out.data(), qpc.q_key), 0x77);
    CHECK_EQ(GDA_GET(query_qp_out, q.out.data(), qpc.rre), 0);
    CHECK_EQ(GDA_GET(query_qp_out, q.out.data(), qpc.rwe), 1);
}

// As many objects as the capabilities say, and one more is refused.
void object_limits() {
    Nic nic;
    Call c = CALL(query_hca_cap, MLX5_CMD_OP_QUERY_HCA_CAP);
    CHECK(c.send(nic));
    const uint8_t* cap = c.out.data() + GDA_BYTE_OFFSET(query_hca_cap_out, capability);
    const uint32_t pds = 1u << GDA_GET(cmd_hca_cap, cap, log_max_pd);
    const uint32_t keys = 1u << GDA_GET(cmd_hca_cap, cap, log_max_mkey);
    std::vector<uint32_t> made;
    uint32_t pdn;
    while (made.size() < pds && nic.device.allocate_pd(&pdn) == 0) made.push_back(pdn);
    CHECK_EQ(made.size(), pds - 1);  // the rig has one
    CHECK(nic.device.allocate_pd(&pdn) < 0);
    for (uint32_t n : made) CHECK_EQ(nic.device.release_pd(n), 0);
    Call k = CALL(create_mkey, MLX5_CMD_OP_CREATE_MKEY);
    uint8_t* m = k.in.data() + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
    GDA_SET(mkc, m, access_mode_1_0, MKC_ACCESS_MODE_PA);
    GDA_SET(mkc, m, qpn, 0xffffff);
    GDA_SET(mkc, m, length64, 1);
    GDA_SET(mkc, m, pd, nic.pdn);
    std::vector<uint32_t> indices;
    while (indices.size() <= keys && k.send(nic)) {
        indices.push_back(static_cast<uint32_t>(GDA_GET(create_mkey_out, k.out.data(), mkey_index)));
    }
    CHECK_EQ(indices.size(), keys);
    CHECK_EQ(k.status(), MLX5_CMD_STAT_LIM_ERR);
    for (uint32_t index : indices) {
        Call d = CALL(destroy_mkey, MLX5_CMD_OP_DESTROY_MKEY);
        GDA_SET(destroy_mkey_in, d.in.data(), mkey_index, index);
        CHECK(d.send(nic));
    }
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"two_take_from_one", two_take_from_one},
            {"empty_queue", empty_queue},
            {"limit_event", limit_event},
            {"errors_and_last_wqe", errors_and_last_wqe},
            {"cyclic_takes_slots_in_order", cyclic_takes_slots_in_order},
            {"broken_list", broken_list},
            {"cq_resize", cq_resize},
            {"cq_resize_refused", cq_resize_refused},
            {"cq_moderation", cq_moderation},
            {"wide_entries", wide_entries},
            {"rights_change", rights_change},
            {"object_limits", object_limits},
        },
        argc, argv);
}
