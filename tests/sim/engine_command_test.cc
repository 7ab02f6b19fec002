// SPDX-License-Identifier: Apache-2.0
// The firmware: capabilities, states, and how it refuses. Each cause has its own syndrome and its words in the report.

#include <errno.h>

#include <random>
#include <set>

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

// A create command that is right in every field, to be spoiled in one.
struct Parts {
    Parts() : memory(1 << 16), cq(nic) { nic.device.register_umem(memory.address(), memory.bytes, &umem); }
    ~Parts() { CHECK_EQ(nic.device.release_umem(umem), 0); }
    Call qp() {
        Call c = CALL(create_qp, MLX5_CMD_OP_CREATE_QP);
        uint8_t* q = c.in.data() + GDA_BYTE_OFFSET(create_qp_in, qpc);
        GDA_SET(create_qp_in, c.in.data(), wq_umem_valid, 1);
        GDA_SET(create_qp_in, c.in.data(), wq_umem_id, umem);
        GDA_SET(qpc, q, pm_state, MLX5_QPC_PM_STATE_MIGRATED);
        GDA_SET(qpc, q, pd, nic.pdn);
        GDA_SET(qpc, q, log_sq_size, 4);
        GDA_SET(qpc, q, rq_type, RQ_TYPE_ZERO_SIZE);
        GDA_SET(qpc, q, uar_page, Nic::PAGE);
        GDA_SET(qpc, q, cqn_snd, cq.cqn);
        GDA_SET(qpc, q, dbr_umem_valid, 1);
        GDA_SET(qpc, q, dbr_umem_id, umem);
        GDA_SET(qpc, q, dbr_addr, 4096);
        return c;
    }
    Call queue() {
        Call c = CALL(create_cq, MLX5_CMD_OP_CREATE_CQ);
        uint8_t* q = c.in.data() + GDA_BYTE_OFFSET(create_cq_in, cq_context);
        GDA_SET(create_cq_in, c.in.data(), cq_umem_valid, 1);
        GDA_SET(create_cq_in, c.in.data(), cq_umem_id, umem);
        GDA_SET(cqc, q, log_cq_size, 4);
        GDA_SET(cqc, q, uar_page, Nic::PAGE);
        GDA_SET(cqc, q, dbr_umem_valid, 1);
        GDA_SET(cqc, q, dbr_umem_id, umem);
        GDA_SET(cqc, q, dbr_addr, 8192);
        return c;
    }
    Call key() {
        Call c = CALL(create_mkey, MLX5_CMD_OP_CREATE_MKEY);
        uint8_t* k = c.in.data() + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
        GDA_SET(create_mkey_in, c.in.data(), mkey_umem_valid, 1);
        GDA_SET(create_mkey_in, c.in.data(), mkey_umem_id, umem);
        GDA_SET(mkc, k, access_mode_1_0, MKC_ACCESS_MODE_MTT);
        GDA_SET(mkc, k, qpn, 0xffffff);
        GDA_SET(mkc, k, start_addr, memory.address());
        GDA_SET(mkc, k, len, 4096);
        GDA_SET(mkc, k, pd, nic.pdn);
        GDA_SET(mkc, k, lr, 1);
        return c;
    }
    void expect(Call c, uint32_t status, const char* words) {
        nic.device.clear_report();
        CHECK(!c.send(nic));
        CHECK_EQ(c.status(), status);
        CHECK(c.syndrome() != 0);
        if (!nic.said(words)) {
            std::printf("  the report does not say: %s\n", words);
            nic.print_report();
            CHECK(false);
        }
        for (const std::string& s : nic.device.report()) syndromes.insert({c.syndrome(), s.substr(0, s.find(':', 8))});
    }
    Nic nic;
    Pages memory;
    Queue cq;
    uint32_t umem = 0;
    std::set<std::pair<uint32_t, std::string>> syndromes;
};

#define SPOIL(CALL, TYPE, CONTEXT, FORMAT, FIELD, VALUE)                             \
    [&] {                                                                            \
        Call c = CALL;                                                               \
        GDA_SET(FORMAT, c.in.data() + GDA_BYTE_OFFSET(TYPE, CONTEXT), FIELD, VALUE); \
        return c;                                                                    \
    }()
#define QP_WITH(FIELD, VALUE) SPOIL(p.qp(), create_qp_in, qpc, qpc, FIELD, VALUE)
#define CQ_WITH(FIELD, VALUE) SPOIL(p.queue(), create_cq_in, cq_context, cqc, FIELD, VALUE)
#define KEY_WITH(FIELD, VALUE) SPOIL(p.key(), create_mkey_in, memory_key_mkey_entry, mkc, FIELD, VALUE)

void refusals_of_creation() {
    Parts p;
    p.expect(QP_WITH(st, MLX5_QPC_ST_REG_UMR), MLX5_CMD_STAT_BAD_PARAM_ERR, "st must be RC");
    Call foreign = QP_WITH(st, MLX5_QPC_ST_XRC);
    GDA_SET(create_qp_in, foreign.in.data(), qpc.xrcd, 9);
    p.expect(foreign, MLX5_CMD_STAT_BAD_RES_ERR, "no such XRC domain");
    p.expect(QP_WITH(pd, 999), MLX5_CMD_STAT_BAD_RES_ERR, "no such protection domain");
    p.expect(QP_WITH(send_dbr_mode, SEND_DBR_MODE_NO_DBR_INT), MLX5_CMD_STAT_BAD_PARAM_ERR, "send_dbr_mode 2");
    p.expect(QP_WITH(uar_page, 8), MLX5_CMD_STAT_BAD_RES_ERR, "no such doorbell page");
    p.expect(QP_WITH(rq_type, RQ_TYPE_SRQ), MLX5_CMD_STAT_BAD_RES_ERR, "no such shared receive queue");
    p.expect(QP_WITH(rq_type, 7), MLX5_CMD_STAT_BAD_PARAM_ERR, "rq_type 7");
    p.expect(QP_WITH(cqn_snd, 999), MLX5_CMD_STAT_BAD_RES_ERR, "no such completion queue");
    p.expect(QP_WITH(dbr_umem_id, 999), MLX5_CMD_STAT_BAD_RES_ERR, "no such umem");
    p.expect(QP_WITH(dbr_umem_valid, 0), MLX5_CMD_STAT_BAD_PARAM_ERR, "doorbell record is needed");
    p.expect(QP_WITH(dbr_addr, 4), MLX5_CMD_STAT_BAD_PARAM_ERR, "not aligned");
    p.expect(QP_WITH(dbr_addr, 65532), MLX5_CMD_STAT_BAD_PARAM_ERR, "does not hold it");
    p.expect(QP_WITH(log_sq_size, 15), MLX5_CMD_STAT_BAD_PARAM_ERR, "does not hold it");
    Call wide = QP_WITH(rq_type, RQ_TYPE_REGULAR);
    GDA_SET(qpc, wide.in.data() + GDA_BYTE_OFFSET(create_qp_in, qpc), log_rq_stride, 6);
    p.expect(wide, MLX5_CMD_STAT_LIM_ERR, "log_rq_stride 6");
    p.expect(CQ_WITH(log_cq_size, 23), MLX5_CMD_STAT_LIM_ERR, "log_cq_size 23");
    p.expect(CQ_WITH(cqe_sz, 2), MLX5_CMD_STAT_BAD_PARAM_ERR, "64 bytes");
    p.expect(CQ_WITH(uar_page, 8), MLX5_CMD_STAT_BAD_RES_ERR, "no such doorbell page");
    p.expect(CQ_WITH(dbr_umem_valid, 0), MLX5_CMD_STAT_BAD_PARAM_ERR, "doorbell record is needed");
    p.expect(KEY_WITH(pd, 999), MLX5_CMD_STAT_BAD_RES_ERR, "no such protection domain");
    p.expect(KEY_WITH(access_mode_4_2, 2), MLX5_CMD_STAT_BAD_PARAM_ERR, "mode 9");
    p.expect(KEY_WITH(len, 1 << 20), MLX5_CMD_STAT_BAD_PARAM_ERR, "is not within its umem");
    p.expect(KEY_WITH(len, 0), MLX5_CMD_STAT_BAD_PARAM_ERR, "empty");
    p.expect(KEY_WITH(rw, 1), MLX5_CMD_STAT_BAD_PARAM_ERR, "need local write");
    Call c = p.queue();
    GDA_SET(create_cq_in, c.in.data(), cq_umem_valid, 0);
    p.expect(c, MLX5_CMD_STAT_BAD_PARAM_ERR, "by umem only");
    c = p.queue();
    GDA_SET(create_cq_in, c.in.data(), cq_umem_offset, 32);
    p.expect(c, MLX5_CMD_STAT_BAD_PARAM_ERR, "not aligned");
    CHECK_EQ(p.nic.device.objects(), 5);  // page, PD, two umems, CQ: nothing was left behind
    std::set<uint32_t> numbers;
    for (const auto& s : p.syndromes) numbers.insert(s.first);
    CHECK(numbers.size() >= 17);
}

void refusals_of_form() {
    Parts p;
    p.expect(Call(16, 16, 0x999), MLX5_CMD_STAT_BAD_OP_ERR, "no such command");
    Call nameless(16, 16, MLX5_CMD_OP_QUERY_QP);
    nameless.in.resize(3);
    p.expect(nameless, MLX5_CMD_STAT_BAD_INP_LEN_ERR, "no opcode");
    p.expect(Call(15, 16, MLX5_CMD_OP_QUERY_QP), MLX5_CMD_STAT_BAD_INP_LEN_ERR, "input is shorter");
    p.expect(Call(16, 64, MLX5_CMD_OP_QUERY_QP), MLX5_CMD_STAT_BAD_OUTP_LEN_ERR, "output is shorter");
    p.expect(Call(16, 16, MLX5_CMD_OP_DESTROY_QP), MLX5_CMD_STAT_BAD_RES_ERR, "no such queue pair");
    p.expect(Call(16, 16, MLX5_CMD_OP_DESTROY_CQ), MLX5_CMD_STAT_BAD_RES_ERR, "no such completion queue");
    p.expect(Call(16, 16, MLX5_CMD_OP_DESTROY_MKEY), MLX5_CMD_STAT_BAD_RES_ERR, "no such memory key");
    uint8_t tiny[8] = {};
    CHECK(!p.nic.device.command(tiny, 2, tiny, 8));
    CHECK(!p.nic.device.command(tiny, 8, tiny, 4));
    CHECK_EQ(p.nic.device.counter("command_errors"), 8);  // all that found room for a status
    // A reserved tail may be missing, as rdma-core's tests send CREATE_QP.
    Call c = p.qp();
    c.in.resize(GDA_BYTES_OF(create_qp_in) - 0);
    CHECK(c.send(p.nic));
    Call d = CALL(destroy_qp, MLX5_CMD_OP_DESTROY_QP);
    GDA_SET(destroy_qp_in, d.in.data(), qpn, GDA_GET(create_qp_out, c.out.data(), qpn));
    CHECK(d.send(p.nic));
}

void states() {
    Nic nic;
    Queue cq(nic);
    uint8_t own[16], zero[16] = {};
    nic.device.gid(1, own);
    {
        Pair p(nic, cq);
        CHECK_EQ(p.state(), MLX5_QPC_STATE_RST);
        CHECK_EQ(p.to_rtr(1, own), MLX5_CMD_STAT_BAD_QP_STATE_ERR);
        CHECK_EQ(p.to_rts(), MLX5_CMD_STAT_BAD_QP_STATE_ERR);
        CHECK_EQ(p.move(MLX5_CMD_OP_2ERR_QP), MLX5_CMD_STAT_BAD_QP_STATE_ERR);
        CHECK_EQ(p.to_init(), MLX5_CMD_STAT_OK);
        CHECK_EQ(p.state(), MLX5_QPC_STATE_INIT);
        CHECK_EQ(p.to_init(), MLX5_CMD_STAT_BAD_QP_STATE_ERR);
        CHECK_EQ(p.to_rtr(1, zero), MLX5_CMD_STAT_BAD_PARAM_ERR);
        for (uint32_t mtu : {0u, 6u}) {
            p.options.mtu = mtu;
            CHECK_EQ(p.to_rtr(1, own), MLX5_CMD_STAT_BAD_PARAM_ERR);
        }
        p.options.mtu = 3;
        p.options.log_message = 31;
        CHECK_EQ(p.to_rtr(1, own), MLX5_CMD_STAT_BAD_PARAM_ERR);
        p.options.log_message = 30;
        CHECK_EQ(p.state(), MLX5_QPC_STATE_INIT);  // a refused move changes nothing
        CHECK_EQ(p.to_rtr(0x123456, own), MLX5_CMD_STAT_OK);
        CHECK_EQ(p.to_rts(), MLX5_CMD_STAT_OK);
        Call c = CALL(query_qp, MLX5_CMD_OP_QUERY_QP);
        GDA_SET(query_qp_in, c.in.data(), qpn, p.qpn);
        CHECK(c.send(nic));
        const uint8_t* q = c.out.data() + GDA_BYTE_OFFSET(query_qp_out, qpc);
        CHECK_EQ(GDA_GET(qpc, q, state), MLX5_QPC_STATE_RTS);
        CHECK_EQ(GDA_GET(qpc, q, mtu), 3);
        CHECK_EQ(GDA_GET(qpc, q, remote_qpn), 0x123456);
        CHECK_EQ(GDA_GET(qpc, q, retry_count), 7);
        CHECK_EQ(GDA_GET(qpc, q, next_send_psn), p.options.psn);
        CHECK_EQ(GDA_GET(qpc, q, pd), nic.pdn);
        CHECK_EQ(GDA_GET(qpc, q, cqn_snd), cq.cqn);
        CHECK_EQ(GDA_GET(qpc, q, user_index), p.options.user_index);
        CHECK(std::memcmp(q + GDA_BYTE_OFFSET(qpc, primary_address_path.rgid_rip), own, 16) == 0);
    }
    Options o;
    o.migrated = false;
    Pair q(nic, cq, nullptr, o);
    CHECK_EQ(q.to_init(), MLX5_CMD_STAT_OK);
    CHECK_EQ(q.to_rtr(1, own), MLX5_CMD_STAT_BAD_PARAM_ERR);
    CHECK(nic.said("refuses to move"));
}

void busy_objects_stay() {
    Nic nic;
    auto cq = std::make_unique<Queue>(nic);
    {
        Pair p(nic, *cq);
        Call c = CALL(destroy_cq, MLX5_CMD_OP_DESTROY_CQ);
        GDA_SET(destroy_cq_in, c.in.data(), cqn, cq->cqn);
        CHECK(!c.send(nic));
        CHECK_EQ(c.status(), MLX5_CMD_STAT_BAD_RES_STATE_ERR);
        CHECK_EQ(nic.device.release_umem(p.umem), -EBUSY);
        CHECK_EQ(nic.device.release_umem(cq->umem), -EBUSY);
        CHECK_EQ(nic.device.release_pd(nic.pdn), -EBUSY);
        CHECK_EQ(nic.device.detach_uar(Nic::PAGE), -EBUSY);
    }
    {
        Pages p(4096);
        Memory m(nic, p.address(), 4096);
        CHECK_EQ(nic.device.release_umem(m.umem), -EBUSY);
    }
    cq.reset();
    CHECK_EQ(nic.device.objects(), 2);
    CHECK_EQ(nic.device.release_umem(12345), -ENOENT);
    CHECK_EQ(nic.device.release_pd(12345), -ENOENT);
    CHECK_EQ(nic.device.detach_uar(12345), -ENOENT);
    CHECK_EQ(nic.device.attach_uar(Nic::PAGE, nic.page_memory->p), -EEXIST);
    uint32_t id;
    CHECK_EQ(nic.device.register_umem(1, 0, &id), -EINVAL);
    CHECK_EQ(nic.device.register_umem(~uint64_t{0}, 2, &id), -EINVAL);
}

void destroyed_with_work_outstanding() {
    World w;
    {
        Queue cq(w.nic);
        Pair p(w.nic, cq);
        p.connect(p.qpn + 9);  // nobody: the write stays unanswered
        p.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 8);
        p.ring();
        w.nic.device.step();
    }
    for (int i = 0; i < 100; ++i) w.nic.device.step();
    w.write(8);
    w.a.ring();
    CHECK(w.a_cq.wait());
}

void stale_keys_are_refused() {
    World w;
    uint32_t old;
    {
        Memory m(w.nic, w.target.address(), 4096);
        old = m.key;
    }
    Memory next(w.nic, w.target.address(), 4096);
    CHECK(next.key != old);
    w.a.write(w.target.address(), old, w.source.address(), w.src.key, 8);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
}

void key_of_all_addresses() {
    World w;
    Call c = CALL(create_mkey, MLX5_CMD_OP_CREATE_MKEY);
    uint8_t* k = c.in.data() + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
    GDA_SET(mkc, k, access_mode_1_0, MKC_ACCESS_MODE_PA);
    GDA_SET(mkc, k, qpn, 0xffffff);
    GDA_SET(mkc, k, length64, 1);
    GDA_SET(mkc, k, pd, w.nic.pdn);
    GDA_SET(mkc, k, lr, 1);
    GDA_SET(mkc, k, lw, 1);
    GDA_SET(mkc, k, mkey_7_0, 0x42);
    CHECK(c.send(w.nic));
    const uint32_t index = static_cast<uint32_t>(GDA_GET(create_mkey_out, c.out.data(), mkey_index));
    uint64_t value = 0x1122334455667788;
    w.a.write(w.target.address(), w.dst.key, reinterpret_cast<uint64_t>(&value), index << 8 | 0x42, 8);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK(std::memcmp(w.target.p, &value, 8) == 0);
    Call d = CALL(destroy_mkey, MLX5_CMD_OP_DESTROY_MKEY);
    GDA_SET(destroy_mkey_in, d.in.data(), mkey_index, index);
    CHECK(d.send(w.nic));
}

void capabilities() {
    Nic nic;
    for (uint32_t op_mod : {0x0u, 0x1u, 0x41u, 0x7u, 0x9u, 0x19u}) {
        Call c = CALL(query_hca_cap, MLX5_CMD_OP_QUERY_HCA_CAP);
        GDA_SET(query_hca_cap_in, c.in.data(), op_mod, op_mod);
        CHECK(c.send(nic));
        const uint8_t* cap = c.out.data() + GDA_BYTE_OFFSET(query_hca_cap_out, capability);
        if (op_mod <= 1) {
            CHECK_EQ(GDA_GET(cmd_hca_cap, cap, hca_cap_2), 1);
            CHECK_EQ(GDA_GET(cmd_hca_cap, cap, port_type), 1);
            CHECK_EQ(GDA_GET(cmd_hca_cap, cap, num_ports), 1);
            CHECK_EQ(GDA_GET(cmd_hca_cap, cap, cqe_version), 1);
            CHECK_EQ(GDA_GET(cmd_hca_cap, cap, log_bf_reg_size), 9);
            CHECK_EQ(GDA_GET(cmd_hca_cap, cap, rc), 1);
            CHECK_EQ(GDA_GET(cmd_hca_cap, cap, roce), 1);
            CHECK_EQ(GDA_GET(cmd_hca_cap, cap, cq_oi), 1);
            CHECK_EQ(GDA_GET(cmd_hca_cap, cap, log_max_msg), 30);
            for (uint64_t now : {GDA_GET(cmd_hca_cap, cap, atomic), GDA_GET(cmd_hca_cap, cap, ud),
                                 GDA_GET(cmd_hca_cap, cap, uc), GDA_GET(cmd_hca_cap, cap, cq_resize),
                                 GDA_GET(cmd_hca_cap, cap, xrc), GDA_GET(cmd_hca_cap, cap, dct)}) {
                CHECK_EQ(now, 1);
            }
        } else if (op_mod == 0x7) {
            CHECK_EQ(GDA_GET(atomic_caps, cap, atomic_operations), 0xf);
            CHECK_EQ(GDA_GET(atomic_caps, cap, atomic_size_qp), 12);
            CHECK_EQ(GDA_GET(atomic_caps, cap, atomic_size_dc), 12);
        } else if (op_mod == 0x41) {
            CHECK_EQ(GDA_GET(cmd_hca_cap_2, cap, send_dbr_mode_no_dbr_ext), 1);
        } else if (op_mod == 0x9) {
            CHECK_EQ(GDA_GET(roce_cap, cap, roce_address_table_size), 16);
        }
    }
    Call c = CALL(query_hca_cap, MLX5_CMD_OP_QUERY_HCA_CAP);
    GDA_SET(query_hca_cap_in, c.in.data(), op_mod, 0x777);
    CHECK(!c.send(nic));
    CHECK_EQ(c.status(), MLX5_CMD_STAT_BAD_PARAM_ERR);
    Call lag = CALL(query_lag, MLX5_CMD_OP_QUERY_LAG);
    CHECK(lag.send(nic));
    CHECK_EQ(GDA_GET(query_lag_out, lag.out.data(), ctx.lag_state), 0);
    for (uint32_t index : {0u, 1u, 2u, 3u, 4u, 16u}) {
        Call r = CALL(query_roce_address, MLX5_CMD_OP_QUERY_ROCE_ADDRESS);
        GDA_SET(query_roce_address_in, r.in.data(), roce_address_index, index);
        CHECK_EQ(r.send(nic), index < 16);
        if (index == 16) break;
        uint8_t gid[16], mac[6];
        nic.device.gid(static_cast<int>(index), gid);
        nic.device.mac(mac);
        const uint8_t* a = r.out.data() + GDA_BYTE_OFFSET(query_roce_address_out, roce_address);
        CHECK(std::memcmp(a, gid, 16) == 0);
        CHECK(std::memcmp(a + GDA_BYTE_OFFSET(roce_addr_layout, source_mac_47_32), mac, 6) == 0);
        if (index == 4) continue;  // empty
        CHECK_EQ(GDA_GET(roce_addr_layout, a, roce_version), index % 2 ? 2 : 0);
        CHECK_EQ(gid[0], index < 2 ? 0xfe : 0);
    }
}

void query_of_a_queue() {
    World w;
    w.write(8), w.write(8);
    w.a.ring();
    w.nic.settle();
    Call c = CALL(query_cq, MLX5_CMD_OP_QUERY_CQ);
    GDA_SET(query_cq_in, c.in.data(), cqn, w.a_cq.cqn);
    CHECK(c.send(w.nic));
    const uint8_t* q = c.out.data() + GDA_BYTE_OFFSET(query_cq_out, cq_context);
    CHECK_EQ(GDA_GET(cqc, q, producer_counter), 2);
    CHECK_EQ(GDA_GET(cqc, q, log_cq_size), 6);
    CHECK_EQ(GDA_GET(cqc, q, status), 0);
}

void many_objects() {
    Nic nic;
    Queue cq(nic);
    std::vector<std::unique_ptr<Pair>> pairs;
    std::set<uint32_t> numbers;
    Options o;
    o.log_sq = 0;
    for (int i = 0; i < 600; ++i) {
        pairs.push_back(std::make_unique<Pair>(nic, cq, nullptr, o));
        numbers.insert(pairs.back()->qpn);
    }
    CHECK_EQ(numbers.size(), 600);
    pairs.clear();
    Pair again(nic, cq, nullptr, o);
    CHECK_EQ(numbers.count(again.qpn), 0);  // a number that was just freed is not given out again at once
}

// Commands of random bytes, half of them with numbers that exist, between doorbells and queue memory of random bytes:
// each gets an answer, and the NIC still works. Under the sanitizers this finds what a program could break.
void random_commands() {
    std::mt19937 random(20261130);
    World& w = *new World;  // never taken down: what the random ones made is in the way
    Pages& memory = *new Pages(1 << 16);
    uint32_t umem;
    CHECK_EQ(w.nic.device.register_umem(memory.address(), 1 << 16, &umem), 0);
    Parts p;  // another NIC: here its valid commands are the seeds
    const uint32_t opcodes[] = {MLX5_CMD_OP_QUERY_HCA_CAP, MLX5_CMD_OP_CREATE_MKEY,  MLX5_CMD_OP_DESTROY_MKEY,
                                MLX5_CMD_OP_CREATE_CQ,     MLX5_CMD_OP_QUERY_CQ,     MLX5_CMD_OP_MODIFY_CQ,
                                MLX5_CMD_OP_CREATE_QP,     MLX5_CMD_OP_RST2INIT_QP,  MLX5_CMD_OP_INIT2RTR_QP,
                                MLX5_CMD_OP_RTR2RTS_QP,    MLX5_CMD_OP_RTS2RTS_QP,   MLX5_CMD_OP_2ERR_QP,
                                MLX5_CMD_OP_2RST_QP,       MLX5_CMD_OP_INIT2INIT_QP, MLX5_CMD_OP_QUERY_QP,
                                MLX5_CMD_OP_CREATE_RMP,    MLX5_CMD_OP_MODIFY_RMP,   MLX5_CMD_OP_QUERY_RMP};
    uint32_t good = 0;
    for (uint32_t i = 0; i < 20000; ++i) {
        Call c(16 + random() % 400, 4112, opcodes[random() % (sizeof opcodes / sizeof opcodes[0])]);
        if (random() % 4 == 0) c = random() % 2 ? p.qp() : p.queue();
        const uint32_t numbers[] = {w.a.qpn, w.a_cq.cqn, umem, 0x10, w.nic.pdn};
        if (random() % 2) GDA_SET(query_qp_in, c.in.data(), qpn, numbers[random() % 5]);
        const uint32_t spoiled = random() % 8;
        for (uint32_t n = 0; n < spoiled; ++n) c.in[8 + random() % (c.in.size() - 8)] = static_cast<uint8_t>(random());
        good += c.send(w.nic);
        if (i % 16) continue;
        for (uint32_t n = 0; n < 64; ++n) memory.p[random() % memory.bytes] = static_cast<uint8_t>(random());
        w.nic.page_memory->p[UAR_SEND_DOORBELL + random() % 8] = static_cast<uint8_t>(random());
        w.nic.device.step();
        w.nic.device.clear_report();
    }
    CHECK(good > 1000 && good < 19000);
    Pair x(w.nic, w.b_cq), y(w.nic, w.b_cq);
    x.connect(y.qpn), y.connect(x.qpn);
    while (w.b_cq.poll()) continue;
    x.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 8);
    x.ring();
    const uint8_t* e = w.b_cq.wait();
    while (e && GDA_GET(cqe64, e, qpn) != x.qpn) e = w.b_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
}

}  // namespace

int main(int argc, char** argv) {
    const Cases cases = {
        {"refusals_of_creation", refusals_of_creation},
        {"refusals_of_form", refusals_of_form},
        {"states", states},
        {"busy_objects_stay", busy_objects_stay},
        {"destroyed_with_work_outstanding", destroyed_with_work_outstanding},
        {"stale_keys_are_refused", stale_keys_are_refused},
        {"key_of_all_addresses", key_of_all_addresses},
        {"capabilities", capabilities},
        {"query_of_a_queue", query_of_a_queue},
        {"many_objects", many_objects},
        {"random_commands", random_commands},
    };
    return run(cases, argc, argv);
}
