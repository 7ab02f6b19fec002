// SPDX-License-Identifier: Apache-2.0
// Dynamically connected transport and XRC by commands: targets, initiators that turn between them, connections that are
// refused, lost or idle; shared receive queues that peers name.

#include "tests/sim/engine_dc.h"

#include "sim/clock.h"

using namespace rig;

namespace {

void targets_of_two_ports() {
    setenv("GDA_SIM_PORTS", "2", 1);
    Options o = initiator();
    o.port = 2;
    Crowd w(o);
    unsetenv("GDA_SIM_PORTS");
    Target second(w.nic, w.cq, w.shared, 0xe, 2);
    const auto context = second.context();
    CHECK_EQ(GDA_GET(dctc, context.data(), port), 2);
    for (const Target* to : {&w.b, &second}) {
        std::memset(w.memory.p + Crowd::HALF, 0, Crowd::HALF);
        const uint32_t i = w.move(w.a, *to, MLX5_OPCODE_RDMA_WRITE, 5000);
        w.a.ring();
        w.done(w.a_cq, i);
        CHECK(w.same(5000));
        CHECK_EQ(w.nic.device.counter("bytes_received", to->port), 5000);
    }
    CHECK_EQ(w.nic.device.counter("bytes_sent", 2), 10000);
    Call c = Target::create(w.nic, w.cq.cqn, w.shared.number, 0xf, 3, 3);
    CHECK(!c.send(w.nic));
    CHECK(w.nic.said("port 3 of a NIC that has 2"));
}

void every_operation() {
    Crowd w;
    uint64_t* words = reinterpret_cast<uint64_t*>(w.memory.p + Crowd::HALF);
    for (uint32_t bytes : {0u, 1u, 1024u, 100000u}) {
        std::memset(w.memory.p + Crowd::HALF, 0, Crowd::HALF);
        const uint32_t i = w.move(w.a, w.b, MLX5_OPCODE_RDMA_WRITE, bytes);
        w.a.ring();
        w.done(w.a_cq, i);
        CHECK(w.same(bytes));
        std::memset(w.memory.p + Crowd::HALF, 0, Crowd::HALF);
        if (!bytes) continue;
        const uint32_t j = w.move(w.a, w.b, MLX5_OPCODE_RDMA_READ, bytes);
        w.a.ring();
        w.done(w.a_cq, j);
        CHECK(w.same(bytes));
    }
    // A masked compare-swap of 8 bytes, as IBGDA signals.
    words[0] = 0x1111;
    uint32_t i = w.begin(w.a, w.b, MLX5_OPCODE_ATOMIC_MASKED_CS, 8, 0, ACCESS_KEY, ATOMIC_OPMOD_EXTENDED_8_BYTES);
    w.remote(w.a, i, w.memory.address() + Crowd::HALF, w.key.key);
    GDA_SET(wqe_atomic_seg, w.a.segment(i, 5), swap_add, 0x2200);
    GDA_SET(wqe_atomic_seg, w.a.segment(i, 5), compare, 0);
    GDA_SET(wqe_atomic_mask_seg, w.a.segment(i, 6), swap_mask, 0xff00);
    w.a.data(i, 7, w.memory.address() + 2 * 4096, 8, w.key.key);
    w.a.ring();
    w.done(w.a_cq, i);
    CHECK_EQ(words[0], 0x2211);
    i = w.begin(w.a, w.d, MLX5_OPCODE_ATOMIC_FA, 7);
    w.remote(w.a, i, w.memory.address() + Crowd::HALF, w.key.key);
    GDA_SET(wqe_atomic_seg, w.a.segment(i, 5), swap_add, 5);
    w.a.data(i, 6, w.memory.address() + 2 * 4096, 8, w.key.key);
    w.a.ring();
    w.done(w.a_cq, i);
    CHECK_EQ(words[0], 0x2216);
    uint64_t before;
    std::memcpy(&before, w.memory.p + 2 * 4096, 8);
    CHECK_EQ(before, 0x2211);
    // A send of several packets into the shared queue, and a write that takes a receive for its immediate.
    const uint32_t slot = w.shared.post(w.memory.address() + Crowd::HALF, 5000, w.key.key);
    i = w.send(w.a, w.b, w.memory.address(), 4500, MLX5_OPCODE_SEND_IMM, 0xfeed);
    w.a.ring();
    const uint8_t* e = w.cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND_IMM);
    CHECK_EQ(index_of(e), slot);
    CHECK_EQ(GDA_GET(cqe64, e, srqn_uidx), 0xb);
    CHECK_EQ(GDA_GET(cqe64, e, qpn), w.b.number);
    CHECK_EQ(GDA_GET(cqe64, e, byte_cnt), 4500);
    CHECK_EQ(GDA_GET(cqe64, e, imm_inval_pkey), 0xfeed);
    CHECK(w.same(4500));
    w.done(w.a_cq, i);
    w.shared.post(w.memory.address() + Crowd::HALF, 8, w.key.key);
    i = w.move(w.a, w.d, MLX5_OPCODE_RDMA_WRITE_IMM, 3000, 0xbeef);
    w.a.ring();
    e = w.cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_WR_IMM);
    CHECK_EQ(GDA_GET(cqe64, e, srqn_uidx), 0xd);
    w.done(w.a_cq, i);
}

// Two initiators, each turning between two targets all the time; with and without loss everything arrives once.
void turning(const char* plan) {
    Crowd w;
    std::string problem;
    CHECK(w.nic.device.set_faults(plan, &problem));
    uint64_t* words = reinterpret_cast<uint64_t*>(w.memory.p + Crowd::HALF);
    words[0] = words[1] = 0;
    const uint32_t rounds = 40;
    for (uint32_t round = 0; round < rounds; ++round) {
        for (Pair* qp : {&w.a, &w.c}) {
            uint32_t first = 0;
            for (const Target* to : {&w.b, &w.d}) {
                const uint32_t i = w.begin(*qp, *to, MLX5_OPCODE_ATOMIC_FA, 7);
                w.remote(*qp, i, w.memory.address() + Crowd::HALF + (to == &w.d ? 8 : 0), w.key.key);
                GDA_SET(wqe_atomic_seg, qp->segment(i, 5), swap_add, 1);
                qp->data(i, 6, w.memory.address(), 8, w.key.key);
                if (to == &w.b) first = i;
            }
            qp->ring();
            w.done(qp == &w.a ? w.a_cq : w.c_cq, first);
            w.done(qp == &w.a ? w.a_cq : w.c_cq, first + 2);
        }
    }
    CHECK_EQ(words[0], 2 * rounds);
    CHECK_EQ(words[1], 2 * rounds);
    if (*plan) CHECK(w.nic.device.counter("packets_resent") > 0);
    if (failures) w.nic.print_report();
}
void turning_without_loss() { turning(""); }
void turning_with_loss() { turning("seed=5 drop=0.05 duplicate=0.1 reorder=0.1"); }

// Another access key reaches nothing: nobody answers, and the target counts it.
void wrong_access_key() {
    Crowd w(initiator(1));
    w.shared.post(w.memory.address() + Crowd::HALF, 64, w.key.key);
    w.send(w.a, w.b, w.memory.address(), 8, MLX5_OPCODE_SEND, 0, ACCESS_KEY + 1);
    w.a.ring();
    const uint8_t* e = w.a_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_REQ_ERR);
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK(w.nic.said("this DCT has another one"));
    CHECK_EQ(GDA_GET(dctc, w.b.context().data(), dc_access_key_violation_count), 2);
    CHECK(w.cq.poll() == nullptr);
}

// A refused request ends its initiator and its connection; the target serves others, and the same one after a reset.
void refusal_ends_one_connection() {
    Crowd w;
    w.move(w.a, w.b, MLX5_OPCODE_RDMA_WRITE, 64, 0, 0xdead00);
    w.a.ring();
    const uint8_t* e = w.a_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_REQ_ERR);
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    CHECK_EQ(w.a.state(), MLX5_QPC_STATE_ERR);
    const uint32_t i = w.move(w.c, w.b, MLX5_OPCODE_RDMA_WRITE, 64);
    w.c.ring();
    w.done(w.c_cq, i);
    CHECK(w.nic.asynchronous.empty());
    CHECK_EQ(w.a.move(MLX5_CMD_OP_2RST_QP), MLX5_CMD_STAT_OK);
    w.a.producer = 0;
    w.a.store_record(1, 0);
    w.ready(w.a);
    const uint32_t j = w.move(w.a, w.b, MLX5_OPCODE_RDMA_WRITE, 128);
    w.a.ring();
    w.done(w.a_cq, j);
    CHECK(w.same(128));
}

// Without a receive the initiator waits and sends again.
void no_receive_yet() {
    Crowd w;
    const uint32_t i = w.send(w.a, w.b, w.memory.address(), 16);
    w.a.ring();
    CHECK(w.nic.until([&] { return w.nic.device.counter("rnr_naks_sent") > 0; }));
    w.shared.post(w.memory.address() + Crowd::HALF, 16, w.key.key);
    CHECK_EQ(opcode_of(w.cq.wait()), MLX5_CQE_RESP_SEND);
    w.done(w.a_cq, i);
    CHECK(w.same(16));
}

// After idleness both sides begin again.
void idleness() {
    sim::Device::set_virtual_time(true);
    {
        Crowd w;
        for (uint64_t idle_s : {0u, 2u, 59u, 200u}) {
            sim::Clock::jump(sim::Clock().now_ns() + sim::seconds(idle_s));
            for (Pair* qp : {&w.a, &w.c}) {
                const uint32_t i = w.move(*qp, w.b, MLX5_OPCODE_RDMA_WRITE, 3000);
                qp->ring();
                w.done(qp == &w.a ? w.a_cq : w.c_cq, i);
            }
        }
        CHECK_EQ(w.nic.device.counter("packets_resent"), 0);
    }
    sim::Device::set_virtual_time(false);
}

void drained() {
    Crowd w(initiator(1));
    CHECK_EQ(GDA_GET(dctc, w.b.context().data(), state), MLX5_DCTC_STATE_ACTIVE);
    const uint32_t i = w.move(w.a, w.b, MLX5_OPCODE_RDMA_WRITE, 64);
    w.a.ring();
    w.done(w.a_cq, i);
    CHECK_EQ(w.b.command(MLX5_CMD_OP_DRAIN_DCT), MLX5_CMD_STAT_OK);
    CHECK_EQ(GDA_GET(dctc, w.b.context().data(), state), MLX5_DCTC_STATE_DRAINED);
    w.move(w.a, w.b, MLX5_OPCODE_RDMA_WRITE, 64);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
}

void refusals() {
    Crowd w;
    CHECK(!Target::create(w.nic, 0x9999, w.shared.number, 0).send(w.nic));
    CHECK(!Target::create(w.nic, w.cq.cqn, 0x9999, 0).send(w.nic));
    CHECK(!Target::create(w.nic, w.cq.cqn, w.shared.number, 0, 6).send(w.nic));
    CHECK(w.nic.said("a DCT receives from a shared queue"));
    Call move = CALL(qp_2err, MLX5_CMD_OP_2ERR_QP);  // its number is no queue pair's to the other commands
    GDA_SET(qp_2err_in, move.in.data(), qpn, w.b.number);
    CHECK(!move.send(w.nic));
    CHECK_EQ(move.status(), MLX5_CMD_STAT_BAD_RES_ERR);
    Call query = CALL(query_dct, MLX5_CMD_OP_QUERY_DCT);
    GDA_SET(query_dct_in, query.in.data(), dctn, w.a.qpn);
    CHECK(!query.send(w.nic));
    CHECK(w.nic.said("no such target of dynamically connected queue pairs"));
    CHECK_EQ(w.shared.destroy(), MLX5_CMD_STAT_BAD_RES_STATE_ERR);  // the targets take from it
    // A WQE without an address.
    w.a.control(0, MLX5_OPCODE_SEND, 2);
    w.a.data(0, 1, w.memory.address(), 8, w.key.key);
    w.a.last = 0, w.a.producer = 1;
    w.a.ring();
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    CHECK(w.nic.said("a dynamically connected request needs an address vector"));
}

uint32_t reset_stream(Pair& qp, uint32_t stream, uint64_t mask = MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID) {
    Call c(GDA_BYTES_OF(rts2rts_qp_in) + GDA_BYTES_OF(qpc_ext), GDA_BYTES_OF(rts2rts_qp_out), MLX5_CMD_OP_RTS2RTS_QP);
    GDA_SET(rts2rts_qp_in, c.in.data(), qpn, qp.qpn);
    GDA_SET(rts2rts_qp_in, c.in.data(), qpc_ext, 1);
    GDA_SET(rts2rts_qp_in, c.in.data(), opt_param_mask_95_32, mask);
    GDA_SET(qpc_ext, c.in.data() + GDA_BYTES_OF(rts2rts_qp_in), dci_stream_channel_id, stream);
    c.send(qp.nic);
    return c.status();
}

// A stream in error is flushed and the others go on, whoever found the error; with the second one all ends.
void a_stream_ends_alone() {
    Options o = initiator();
    o.timeout = 18;  // a second: nothing is lost
    o.log_streams = 3, o.log_errored = 1;
    Crowd w(o);
    const auto write = [&](uint32_t stream, uint32_t bytes, uint32_t rkey = 0) {
        const uint32_t i = w.move(w.a, w.b, MLX5_OPCODE_RDMA_WRITE, bytes, 0, rkey);
        GDA_SET(wqe_ctrl_seg, w.a.block(i), dci_stream_channel_id, stream);
        return i;
    };
    const auto ended = [&](uint32_t index, uint32_t syndrome) {
        const uint8_t* e = w.a_cq.wait();
        CHECK_EQ(index_of(e), index);
        CHECK_EQ(opcode_of(e), syndrome ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ);
        if (syndrome) CHECK_EQ(syndrome_of(e), syndrome);
    };
    CHECK_EQ(reset_stream(w.a, 1), MLX5_CMD_STAT_BAD_PARAM_ERR);
    for (bool remote : {false, true}) {
        std::memset(w.memory.p + Crowd::HALF, 0, Crowd::HALF);
        const uint32_t good = write(1, 5000), bad = write(1, 5000, remote ? 0x4242 : 0);
        if (!remote) GDA_SET(wqe_data_seg, w.a.segment(bad, 5), lkey, 0x4242);
        const uint32_t behind = write(1, 100000), other = write(9, 200000), again = write(1, 8), last = write(9, 8);
        w.a.ring();
        ended(good, 0);
        ended(bad, remote ? MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
        ended(behind, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
        ended(other, 0);
        ended(again, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
        ended(last, 0);
        CHECK(w.same(200000));
        CHECK_EQ(w.a.state(), MLX5_QPC_STATE_RTS);
        CHECK_EQ(reset_stream(w.a, 9), MLX5_CMD_STAT_BAD_PARAM_ERR);  // it is not in error
        CHECK_EQ(reset_stream(w.a, 1, 2), MLX5_CMD_STAT_BAD_PARAM_ERR);
        CHECK_EQ(reset_stream(w.a, 1), MLX5_CMD_STAT_OK);
        const uint32_t now = write(1, 8);
        w.a.ring();
        ended(now, 0);
    }
    CHECK(w.nic.said("it is not in error"));
    const uint32_t first = write(2, 8, 0x4242), second = write(3, 8, 0x4242), rest = write(4, 8);
    w.a.ring();
    ended(first, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    ended(second, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    ended(rest, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    CHECK_EQ(w.a.state(), MLX5_QPC_STATE_ERR);
    CHECK(w.nic.said("2 streams are in error, as many as it may have"));
    CHECK_EQ(w.a.move(MLX5_CMD_OP_2RST_QP), MLX5_CMD_STAT_OK);
    w.ready(w.a);
    w.a.producer = 0;
    const uint32_t fresh = write(2, 8);
    w.a.ring();
    ended(fresh, 0);
}

// XRC: one receiving end, two queues that the sender names.
struct Xrc {
    Xrc()
        : cq(nic, 6),
          a_cq(nic, 6),
          first(nic),
          second(nic),
          alien(nic),
          a(nic, a_cq, nullptr, options()),
          memory(65536),
          key(nic, memory.address(), 65536) {
        CHECK_EQ(nic.device.allocate_xrcd(&domain), 0);
        CHECK_EQ(nic.device.open_srq(first.number, domain, cq.cqn, 0x111), 0);
        CHECK_EQ(nic.device.open_srq(second.number, domain, cq.cqn, 0x222), 0);
        CHECK_EQ(nic.device.open_srq(second.number, domain, cq.cqn, 0x222), -EBUSY);
        Call c = CALL(create_qp, MLX5_CMD_OP_CREATE_QP);
        uint8_t* qpc = c.in.data() + GDA_BYTE_OFFSET(create_qp_in, qpc);
        GDA_SET(qpc, qpc, st, MLX5_QPC_ST_XRC);
        GDA_SET(qpc, qpc, pm_state, MLX5_QPC_PM_STATE_MIGRATED);
        GDA_SET(qpc, qpc, xrcd, domain);
        GDA_SET(qpc, qpc, no_sq, 1);
        GDA_SET(qpc, qpc, rq_type, RQ_TYPE_ZERO_SIZE);
        GDA_SET(qpc, qpc, uar_page, 0xffffff);
        CHECK(c.send(nic));
        target = static_cast<uint32_t>(GDA_GET(create_qp_out, c.out.data(), qpn));
        CHECK_EQ(nic.device.release_xrcd(domain), -EBUSY);
        a.connect(target);
        const uint32_t own = a.qpn;  // its moves serve the other end, too
        a.qpn = target;
        a.connect(own);
        a.qpn = own;
    }
    ~Xrc() {
        Call c = CALL(destroy_qp, MLX5_CMD_OP_DESTROY_QP);
        GDA_SET(destroy_qp_in, c.in.data(), qpn, target);
        CHECK(c.send(nic));
    }
    static Options options() {
        Options o;
        o.transport = MLX5_QPC_ST_XRC;
        o.mtu = 3;
        return o;
    }
    uint32_t post(uint32_t srqn, uint32_t opcode, uint32_t bytes, uint32_t imm = 0) {
        const bool send = opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM;
        const uint32_t index = a.producer++;
        a.control(index, opcode, send ? 3 : 4, CE_ALWAYS, imm);
        GDA_SET(wqe_xrc_seg, a.segment(index, 1), xrc_srqn, srqn);
        if (!send) GDA_SET(wqe_raddr_seg, a.segment(index, 2), raddr, memory.address() + 32768);
        if (!send) GDA_SET(wqe_raddr_seg, a.segment(index, 2), rkey, key.key);
        a.data(index, send ? 2 : 3, memory.address(), bytes, key.key);
        a.last = index;
        a.ring();
        return index;
    }
    Nic nic;
    Queue cq, a_cq;
    Shared first, second, alien;
    Pair a;
    Pages memory;
    Memory key;
    uint32_t domain = 0, target = 0;
};

void xrc_names_a_queue() {
    Xrc w;
    std::memset(w.memory.p, 0x5c, 8192);
    const uint32_t slot = w.first.post(w.memory.address() + 32768, 8192, w.key.key);
    w.second.post(w.memory.address() + 49152, 8192, w.key.key);
    w.post(w.second.number, MLX5_OPCODE_SEND_IMM, 5000, 0x77);
    const uint8_t* e = w.cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND_IMM);
    CHECK_EQ(GDA_GET(cqe64, e, srqn_uidx), 0x222);
    CHECK_EQ(GDA_GET(cqe64, e, qpn), w.target);
    CHECK(std::memcmp(w.memory.p, w.memory.p + 49152, 5000) == 0);
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    w.post(w.first.number, MLX5_OPCODE_RDMA_WRITE_IMM, 3000, 0x78);
    e = w.cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_WR_IMM);
    CHECK_EQ(GDA_GET(cqe64, e, srqn_uidx), 0x111);
    CHECK_EQ(index_of(e), slot);
    CHECK(std::memcmp(w.memory.p, w.memory.p + 32768, 3000) == 0);
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    std::memset(w.memory.p, 0, 4096);
    w.post(w.first.number, MLX5_OPCODE_RDMA_READ, 3000);
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK_EQ(w.memory.p[2999], 0x5c);
}

void xrc_foreign_queue() {
    Xrc w;
    w.alien.post(w.memory.address(), 64, w.key.key);  // a queue of no domain
    w.post(w.alien.number, MLX5_OPCODE_SEND, 8);
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    CHECK(w.nic.said("is not in the XRC domain of this queue pair"));
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"every_operation", every_operation},
            {"targets_of_two_ports", targets_of_two_ports},
            {"turning_without_loss", turning_without_loss},
            {"turning_with_loss", turning_with_loss},
            {"wrong_access_key", wrong_access_key},
            {"refusal_ends_one_connection", refusal_ends_one_connection},
            {"no_receive_yet", no_receive_yet},
            {"idleness", idleness},
            {"drained", drained},
            {"refusals", refusals},
            {"a_stream_ends_alone", a_stream_ends_alone},
            {"xrc_names_a_queue", xrc_names_a_queue},
            {"xrc_foreign_queue", xrc_foreign_queue},
        },
        argc, argv);
}
