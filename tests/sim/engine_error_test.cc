// SPDX-License-Identifier: Apache-2.0
// What queues do when something is wrong: one case per syndrome and per kind of lost memory.

#include <signal.h>
#include <sys/wait.h>

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

void stale_wqe() {
    World w;
    w.write(8);  // slot 1 was never written
    w.a.producer = 2;
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "slot 1: index/opcode/QPN do not match", 1);
}

void stale_wqe_then_flush() {
    World w;
    w.write(8), w.write(8);
    w.a.control(0, MLX5_OPCODE_RDMA_WRITE, 3);
    GDA_SET(wqe_ctrl_seg, w.a.block(0), wqe_index, 64);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "it holds index 64");
    const uint8_t* e = w.a_cq.wait();
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    CHECK_EQ(vendor_of(e), 0xf9);
    CHECK_EQ(index_of(e), 1);
}

void wrong_qpn_or_size() {
    {
        World w;
        w.write(8);
        GDA_SET(wqe_ctrl_seg, w.a.block(0), qp_or_sq, w.b.qpn);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "do not match");
    }
    for (uint32_t ds : {0u, 5u}) {  // none, and beyond the producer index
        World w;
        w.write(8);
        GDA_SET(wqe_ctrl_seg, w.a.block(0), ds, ds);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, ds ? "ds 5 needs 2 blocks" : "half-written");
    }
}

void unsupported_opcode() {
    for (uint32_t opcode : {static_cast<uint32_t>(MLX5_OPCODE_TSO), 0x3fu}) {
        World w;
        w.write(8);
        GDA_SET(wqe_ctrl_seg, w.a.block(0), opcode, opcode);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "is not supported");
    }
}

void bad_segments() {
    World w;
    w.a.control(0, MLX5_OPCODE_RDMA_WRITE, 1);
    w.a.producer = 1;
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "remote address segment");
    World v;
    v.a.control(0, MLX5_OPCODE_RDMA_WRITE, 3);
    v.a.remote(0, v.target.address(), v.dst.key);
    GDA_SET(wqe_inline_seg, v.a.segment(0, 2), is_inline, 1);
    GDA_SET(wqe_inline_seg, v.a.segment(0, 2), byte_count, 13);
    v.a.producer = 1;
    v.a.ring();
    expect_error(v, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "inline bytes");
}

void local_length() {
    Options o;
    o.log_message = 10;
    World w(o);
    w.write(1024);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    w.write(1025);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0, "the largest message is 1024", 1);
    World v;
    v.write(8);
    GDA_SET(wqe_data_seg, v.a.segment(0, 2), byte_count, 0);
    v.a.ring();
    expect_error(v, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0, "2^31");
}

void local_protection() {
    {
        World w;
        w.a.write(w.target.address(), w.dst.key, w.source.address(), 0x1234, 8);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0, "key 0x1234 does not exist");
    }
    {
        World w;  // little-endian in the WQE
        w.a.write(w.target.address(), w.dst.key, w.source.address(), gda::swap32(w.src.key), 8);
        w.a.ring();
        char hint[64];
        std::snprintf(hint, sizeof hint, "0x%08x is 0x%x byte-swapped", gda::swap32(w.src.key), w.src.key);
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0, hint);
    }
    {
        World w;
        w.a.write(w.target.address(), w.dst.key, w.source.address() + w.source.bytes - 7, w.src.key, 8);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0, "is not within key");
    }
    {
        World w;  // another protection domain
        const uint32_t own = w.nic.pdn;
        uint32_t other;
        w.nic.device.allocate_pd(&other);
        w.nic.pdn = other;
        {
            Memory m(w.nic, w.source.address(), 4096);
            w.nic.pdn = own;
            w.a.write(w.target.address(), w.dst.key, w.source.address(), m.key, 8);
            w.a.ring();
            expect_error(w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0, "protection domain");
        }
        CHECK_EQ(w.nic.device.release_pd(other), 0);
    }
}

void remote_access() {
    {
        World w;
        w.a.write(w.target.address(), 0x1234, w.source.address(), w.src.key, 8);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0x88, "key 0x1234 does not exist");
        CHECK_EQ(w.b.state(), MLX5_QPC_STATE_ERR);
        CHECK(!w.nic.asynchronous.empty() && w.nic.asynchronous[0].first == w.b.qpn);
    }
    {
        World w;
        w.a.write(w.target.address(), gda::swap32(w.dst.key), w.source.address(), w.src.key, 8);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0x88, "byte-swapped");
    }
    {
        World w;  // one byte beyond the end
        w.a.write(w.target.address() + w.target.bytes - 7, w.dst.key, w.source.address(), w.src.key, 8);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0x88, "is not within key");
        CHECK_EQ(w.target.p[w.target.bytes - 7], 0);
    }
    {
        World w;
        Pages p(4096);
        Memory local_only(w.nic, p.address(), 4096, false);
        w.a.write(p.address(), local_only.key, w.source.address(), w.src.key, 8);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0x88, "does not allow remote write");
    }
    {
        Options o;
        o.rwe = 0;
        World w(Options(), o);
        w.write(8);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, 0, "(rwe)");
    }
}

void refused_write_with_immediate_ends_the_receive() {
    Options o;
    o.receives = true;
    World w(Options(), o);
    w.b.post_receive(0, 0, 0);
    w.b.post_receive(0, 0, 0);
    w.a.write(w.target.address(), 0x1234, w.source.address(), w.src.key, 8, CE_ALWAYS, MLX5_OPCODE_RDMA_WRITE_IMM, 1);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0x88, "RDMA write");
    const uint8_t* r = w.b_cq.wait();
    CHECK_EQ(opcode_of(r), MLX5_CQE_RESP_ERR);
    CHECK_EQ(syndrome_of(r), MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR);
    CHECK_EQ(index_of(r), 0);
    r = w.b_cq.wait();
    CHECK_EQ(syndrome_of(r), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    CHECK_EQ(index_of(r), 1);
}

void send_longer_than_receive() {
    Options o;
    o.receives = true;
    World w(Options(), o);
    w.b.post_receive(w.target.address(), 10, w.dst.key);
    w.a.send(w.source.address(), w.src.key, 11);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, 0x8a, "longer than receive WQE 0");
    CHECK_EQ(syndrome_of(w.b_cq.wait()), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
    CHECK_EQ(w.target.p[10], 0);
}

void receive_with_bad_key() {
    Options o;
    o.receives = true;
    World w(Options(), o);
    w.b.post_receive(w.target.address(), 64, w.dst.key + 1);
    w.a.send(w.source.address(), w.src.key, 11);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, 0x89, "receive WQE 0: local protection error");
    CHECK_EQ(syndrome_of(w.b_cq.wait()), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
}

void retry_exceeded() {
    Options o;
    o.retry = 2;
    o.timeout = 10;  // 4.2 ms
    Nic nic;
    Queue cq(nic);
    Pages memory(4096);
    Memory m(nic, memory.address(), 4096);
    Pair p(nic, cq, nullptr, o);
    p.connect(p.qpn + 5);
    const uint64_t begin = now_ns();
    for (int i = 0; i < 3; ++i)
        p.write(memory.address(), m.key, memory.address(), m.key, 8, i == 1 ? CE_ON_ERROR : CE_ALWAYS);
    p.ring();
    const uint8_t* e = cq.wait();
    const double ms = static_cast<double>(now_ns() - begin) / 1e6;
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK_EQ(vendor_of(e), 0x81);
    CHECK_EQ(index_of(e), 0);
    CHECK(ms >= 3 * 4.19);  // the first send and two more
    CHECK(nic.said("this NIC has no such queue pair"));
    CHECK_EQ(nic.device.counter("retries"), 2);
    for (uint32_t i = 1; i < 3; ++i) {  // also the one that asked for no completion
        e = cq.wait();
        CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
        CHECK_EQ(index_of(e), i);
    }
}

void no_timeout_waits_for_ever() {
    sim::Device::set_virtual_time(true);
    {
        Options o;
        o.timeout = 0;
        World w(o);
        w.b.move(MLX5_CMD_OP_2RST_QP);
        w.write(8);
        w.a.ring();
        w.nic.settle();  // ends, since nothing will ever happen by itself
        CHECK(!w.a_cq.poll());
        CHECK_EQ(w.a.state(), MLX5_QPC_STATE_RTS);
    }
    sim::Device::set_virtual_time(false);
}

void rnr_retry_exceeded() {
    Options o;
    o.rnr = 2;
    World w(o);  // b has no receive queue at all
    w.a.send(w.source.address(), w.src.key, 8);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, 0x87, "posted no receive");
    CHECK_EQ(w.nic.device.counter("rnr_naks_sent"), 3);
    CHECK_EQ(w.b.state(), MLX5_QPC_STATE_RTS);
}

void earlier_messages_complete_first() {
    Options o;
    o.receives = true;
    World w(Options(), o);
    w.a.send(w.source.address(), w.src.key, 8);                               // waits for a receive
    w.a.write(w.target.address(), w.dst.key, w.source.address(), 0x9999, 8);  // fails at once, but second
    w.a.ring();
    w.nic.settle();
    CHECK(!w.a_cq.poll());
    w.b.post_receive(w.target.address(), 64, w.dst.key);
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    expect_error(w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0, "0x9999", 1);
}

void flush_of_later_posts() {
    Options o;
    o.receives = true;
    World w(o, o);
    w.a.post_receive(w.source.address(), 8, w.src.key);
    CHECK_EQ(w.a.move(MLX5_CMD_OP_2ERR_QP), MLX5_CMD_STAT_OK);
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_RESP_ERR);
    w.write(8, CE_ON_ERROR), w.write(8);
    w.a.ring();
    for (uint32_t i = 0; i < 2; ++i) {
        const uint8_t* e = w.a_cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ_ERR);
        CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
        CHECK_EQ(index_of(e), i);
    }
    w.a.post_receive(w.source.address(), 8, w.src.key);  // there is no doorbell for receives
    const uint8_t* e = w.a_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_ERR);
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    CHECK_EQ(index_of(e), 1);
}

void error_event_when_solicited_only() {
    World w;
    w.a_cq.arm(true);
    w.a.write(w.target.address(), 0x1234, w.source.address(), w.src.key, 8);
    w.a.ring();
    w.nic.settle();
    CHECK_EQ(w.nic.fired.size(), 1);
}

void unmapped_source() {
    World w;
    CHECK_EQ(mprotect(w.source.p + 4096, 4096, PROT_NONE), 0);
    w.a.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 8192);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x52, "no longer mapped");
    CHECK_EQ(w.b.state(), MLX5_QPC_STATE_RTS);
    CHECK_EQ(w.nic.device.counter("copy_faults"), 1);
    CHECK_EQ(mprotect(w.source.p + 4096, 4096, PROT_READ | PROT_WRITE), 0);
}

void unmapped_target() {
    World w;
    CHECK_EQ(mprotect(w.target.p, 4096, PROT_READ), 0);
    w.write(8);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, 0x89, "memory to be written");
    CHECK_EQ(mprotect(w.target.p, 4096, PROT_READ | PROT_WRITE), 0);
}

void unmapped_rings() {
    {
        Options o;
        Pages p(64 * 64 + 64);
        o.at = p.p;
        World w(o);
        w.write(8);
        w.a.ring();
        CHECK_EQ(mprotect(p.p, 4096, PROT_NONE), 0);  // the send queue; the record lies on the next page
        expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0x63, "cannot be read");
    }
    {
        Nic nic;
        Pages p(64 * 64 + 64);
        Queue cq(nic, 6, false, true, p.p);
        Pair a(nic, cq);
        a.connect(a.qpn);
        a.control(0, MLX5_OPCODE_NOP, 1);
        a.producer = 1;
        a.ring();
        CHECK_EQ(mprotect(p.p, 4096, PROT_NONE), 0);
        nic.settle();
        CHECK(nic.said("completion queue memory"));
        CHECK_EQ(mprotect(p.p, 4096, PROT_READ | PROT_WRITE), 0);
    }
}

// Other faults of the process still end it, through the handler that was there before.
void foreign_fault_is_passed_on() {
    Nic nic;
    for (bool sent : {true, false}) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            if (sent) raise(SIGSEGV);
            Pages p(4096);
            mprotect(p.p, 4096, PROT_NONE);
            if (!sent) *static_cast<volatile uint8_t*>(p.p) = 1;
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) == 0));
        CHECK(!(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM));
    }
}

// Random bytes where WQEs, data and doorbells should be: errors, never a crash, and others are not harmed.
void garbage() {
    uint64_t state = 20261130;  // the seed
    auto next = [&state] {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state >> 33);
    };
    for (int round = 0; round < 300 && !failures; ++round) {
        Options o;
        o.receives = round % 2;
        o.timeout = 8, o.retry = 0, o.rnr = 0;
        World w(o, o, 6, false, true, 8192);
        Queue bystander_cq(w.nic);
        Pair bystander(w.nic, bystander_cq);
        bystander.connect(bystander.qpn);
        for (uint32_t i = 0; i < 4096; ++i) w.a.sq[i] = static_cast<uint8_t>(next());
        for (uint32_t i = 0; i < w.b.receive_bytes; ++i) w.b.base[i] = static_cast<uint8_t>(next());
        if (o.receives) w.b.store_record(0, next() % 17);
        for (uint32_t i = 0; i < 64; i += 1 + next() % 8) {  // some of it is nearly right
            uint8_t* c = w.a.block(i);
            const uint32_t opcodes[] = {MLX5_OPCODE_NOP, MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM,
                                        MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM};
            GDA_SET(wqe_ctrl_seg, c, wqe_index, i);
            GDA_SET(wqe_ctrl_seg, c, qp_or_sq, w.a.qpn);
            GDA_SET(wqe_ctrl_seg, c, opcode, opcodes[next() % 5]);
            if (next() % 2) GDA_SET(wqe_raddr_seg, c + 16, rkey, w.dst.key);
            if (next() % 2) GDA_SET(wqe_raddr_seg, c + 16, raddr, w.target.address() + next() % 8200);
            if (next() % 2) w.a.data(i, 2, w.source.address() + next() % 8200, next() % 8200, w.src.key);
        }
        w.a.store_record(1, next() % 70);
        for (int n = 0; n < 3; ++n)
            w.a.store_register(0x800, (uint64_t{next()} << 32 | next()) | 1), w.nic.device.step();
        w.a.last = next() % 64;
        w.a.store_register(0x800, w.a.first_bytes(0));
        for (int n = 0; n < 200; ++n) w.nic.device.step();
        bystander.control(0, MLX5_OPCODE_NOP, 1);
        bystander.producer = 1;
        bystander.ring();
        CHECK_EQ(opcode_of(bystander_cq.wait()), MLX5_CQE_REQ);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const Cases cases = {
        {"garbage", garbage},
        {"stale_wqe", stale_wqe},
        {"stale_wqe_then_flush", stale_wqe_then_flush},
        {"wrong_qpn_or_size", wrong_qpn_or_size},
        {"unsupported_opcode", unsupported_opcode},
        {"bad_segments", bad_segments},
        {"local_length", local_length},
        {"local_protection", local_protection},
        {"remote_access", remote_access},
        {"refused_write_with_immediate_ends_the_receive", refused_write_with_immediate_ends_the_receive},
        {"send_longer_than_receive", send_longer_than_receive},
        {"receive_with_bad_key", receive_with_bad_key},
        {"retry_exceeded", retry_exceeded},
        {"no_timeout_waits_for_ever", no_timeout_waits_for_ever},
        {"rnr_retry_exceeded", rnr_retry_exceeded},
        {"earlier_messages_complete_first", earlier_messages_complete_first},
        {"flush_of_later_posts", flush_of_later_posts},
        {"error_event_when_solicited_only", error_event_when_solicited_only},
        {"unmapped_source", unmapped_source},
        {"unmapped_target", unmapped_target},
        {"unmapped_rings", unmapped_rings},
        {"foreign_fault_is_passed_on", foreign_fault_is_passed_on},
    };
    return run(cases, argc, argv);
}
