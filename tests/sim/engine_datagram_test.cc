// SPDX-License-Identifier: Apache-2.0
// Unreliable queue pairs: UD (addresses, Q_Key, GRH, sizes) and UC (messages that are dropped whole), on one NIC and
// between two.

#include <gda/formats/packet.h>

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

const uint32_t GRH_BYTES = GDA_BYTES_OF(grh);

Options of(uint32_t transport) {
    Options o;
    o.transport = transport;
    o.receives = true;
    return o;
}

// UD queue pairs have no peer: the moves name none.
void open_datagrams(Pair& p) {
    static const uint8_t none[16] = {};
    CHECK_EQ(p.to_init(), MLX5_CMD_STAT_OK);
    CHECK_EQ(p.to_rtr(0, none), MLX5_CMD_STAT_OK);
    CHECK_EQ(p.to_rts(), MLX5_CMD_STAT_OK);
}

struct Message {
    uint32_t qpn;
    uint8_t gid[16];
    uint32_t q_key = 0x1234, from_gid = 1, opcode = MLX5_OPCODE_SEND, immediate = 0;
    bool solicited = false;
};

uint32_t send(Pair& p, const Message& m, uint64_t from, uint32_t lkey, uint32_t bytes) {
    const uint32_t i = p.producer;
    std::memset(p.block(i + 1), 0, 64);
    p.control(i, m.opcode, bytes ? 5 : 4, CE_ALWAYS, m.immediate, m.solicited);
    uint8_t av[GDA_BYTES_OF(wqe_av_seg)] = {};
    GDA_SET(wqe_av_seg, av, qkey, m.q_key);
    GDA_SET(wqe_av_seg, av, extended, 1);
    GDA_SET(wqe_av_seg, av, dqp_dct, m.qpn);
    GDA_SET(wqe_av_seg, av, grh, 1);
    GDA_SET(wqe_av_seg, av, src_addr_index, m.from_gid);
    std::memcpy(av + GDA_BYTE_OFFSET(wqe_av_seg, rgid), m.gid, 16);
    for (uint32_t n = 0; n < 3; ++n) std::memcpy(p.segment(i, 1 + n), av + 16 * n, 16);
    if (bytes) p.data(i, 4, from, bytes, lkey);
    p.last = i;
    p.producer += bytes ? 2 : 1;
    p.ring();
    return i;
}

struct Datagrams {
    Datagrams()
        : a_cq(nic, 6),
          b_cq(nic, 6),
          a(nic, a_cq, &a_cq, of(MLX5_QPC_ST_UD)),
          b(nic, b_cq, &b_cq, of(MLX5_QPC_ST_UD)),
          source(16384),
          target(16384),
          src(nic, source.address(), 16384),
          dst(nic, target.address(), 16384) {
        open_datagrams(a);
        open_datagrams(b);
        to.qpn = b.qpn;
        nic.device.gid(1, to.gid);
        for (uint32_t i = 0; i < 16384; ++i) source.p[i] = static_cast<uint8_t>(i * 7 + 1);
    }
    uint32_t send(uint32_t bytes) { return ::send(a, to, source.address(), src.key, bytes); }
    Nic nic;
    Queue a_cq, b_cq;
    Pair a, b;
    Pages source, target;
    Memory src, dst;
    Message to = {};
};

void datagram() {
    Datagrams d;
    for (uint32_t n = 0; n < 100; ++n) {  // of one block and of two: address vectors and pieces wrap at the ring's end
        const uint32_t bytes = std::vector<uint32_t>{0, 1, 100, 4096}[n % 4];
        std::memset(d.target.p, 0xee, 16384);
        d.b.post_receive(d.target.address(), 8192, d.dst.key);
        const uint32_t i = d.send(bytes);
        const uint8_t* e = d.a_cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
        CHECK_EQ(index_of(e), i & 0xffff);
        e = d.b_cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND);
        CHECK_EQ(GDA_GET(cqe64, e, byte_cnt), GRH_BYTES + bytes);
        CHECK_EQ(GDA_GET(cqe64, e, rqpn), d.a.qpn);
        CHECK(GDA_GET(cqe64, e, grh) != 0);
        CHECK(std::memcmp(d.target.p + GRH_BYTES, d.source.p, bytes) == 0);
        CHECK_EQ(d.target.p[GRH_BYTES + bytes], 0xee);
        CHECK_EQ(GDA_GET(grh, d.target.p, ip_version), 6);
        CHECK_EQ(GDA_GET(grh, d.target.p, next_header), 17);
        CHECK(std::memcmp(d.target.p + GDA_BYTE_OFFSET(grh, sgid), d.to.gid, 16) == 0);
        CHECK(std::memcmp(d.target.p + GDA_BYTE_OFFSET(grh, dgid), d.to.gid, 16) == 0);
    }
}

void datagram_with_immediate_over_ipv4() {
    Datagrams d;
    d.nic.device.gid(3, d.to.gid);
    d.to.from_gid = 3;
    d.to.opcode = MLX5_OPCODE_SEND_IMM;
    d.to.immediate = 0xcafe0001;
    d.to.solicited = true;
    d.b.post_receive(d.target.address(), 8192, d.dst.key);
    d.b_cq.arm(true);
    d.send(64);
    CHECK_EQ(opcode_of(d.a_cq.wait()), MLX5_CQE_REQ);
    const uint8_t* e = d.b_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND_IMM);
    CHECK_EQ(GDA_GET(cqe64, e, imm_inval_pkey), 0xcafe0001);
    CHECK_EQ(GDA_GET(cqe64, e, se), 1);
    CHECK_EQ(d.nic.fired.size(), 1);
    CHECK_EQ(GDA_GET(grh_ipv4, d.target.p, version), 4);
    CHECK(std::memcmp(d.target.p + GDA_BYTE_OFFSET(grh_ipv4, source), d.to.gid + 12, 4) == 0);
    uint32_t sum = 0;  // the header with its checksum adds up to all ones
    for (uint32_t i = 20; i < 40; i += 2) sum += d.target.p[i] * 256u + d.target.p[i + 1];
    CHECK_EQ(sum % 0x10000 + sum / 0x10000, 0xffff);
}

// Silent for the sender; the receive waits for the next one.
void dropped_datagrams() {
    Datagrams d;
    const auto dropped = [&](const char* counter, uint32_t n) {
        d.send(8);
        CHECK_EQ(opcode_of(d.a_cq.wait()), MLX5_CQE_REQ);
        d.nic.settle();
        CHECK_EQ(d.nic.device.counter(counter), n);
    };
    dropped("datagrams_dropped", 1);  // no receive
    d.b.post_receive(d.target.address(), 8192, d.dst.key);
    d.to.q_key = 0x9999;
    dropped("datagrams_dropped", 2);
    CHECK(d.nic.said("Q_Key 0x9999"));
    d.to.q_key = 0x80000000;  // the queue pair's own, which is right
    d.send(8);
    CHECK_EQ(opcode_of(d.b_cq.wait()), MLX5_CQE_RESP_SEND);
    d.a_cq.wait();
    d.to.q_key = 0x1234;
    d.b.post_receive(d.target.address(), 8192, d.dst.key);
    d.to.qpn ^= 0x80;
    dropped("packets_dropped", 1);
    d.to.qpn ^= 0x80;
    d.to.gid[15] ^= 0x40;  // nobody there
    dropped("packets_dropped", 1);
    d.to.gid[15] ^= 0x40;
    CHECK(d.b_cq.poll() == nullptr);
    d.send(8);
    CHECK_EQ(opcode_of(d.b_cq.wait()), MLX5_CQE_RESP_SEND);
}

void datagram_faults() {
    {
        Datagrams d;  // longer than the path takes
        d.send(4097);
        CHECK_EQ(syndrome_of(d.a_cq.wait()), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
        CHECK_EQ(d.a.state(), MLX5_QPC_STATE_ERR);
    }
    {
        Datagrams d;  // longer than the receive: 40 bytes are the GRH's
        d.b.post_receive(d.target.address(), 100, d.dst.key);
        d.send(61);
        CHECK_EQ(opcode_of(d.a_cq.wait()), MLX5_CQE_REQ);
        const uint8_t* e = d.b_cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_ERR);
        CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
        CHECK_EQ(d.a.state(), MLX5_QPC_STATE_RTS);
        CHECK(d.nic.said("40 of them are for the GRH"));
    }
    {
        Datagrams d;  // no address vector
        d.a.send(d.source.address(), d.src.key, 8);
        d.a.ring();
        CHECK_EQ(syndrome_of(d.a_cq.wait()), MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
        CHECK(d.nic.said("address vector"));
    }
    {
        Datagrams d;  // an operation that datagrams do not have
        d.a.write(d.target.address(), d.dst.key, d.source.address(), d.src.key, 8);
        d.a.ring();
        CHECK_EQ(syndrome_of(d.a_cq.wait()), MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
        CHECK(d.nic.said("not supported by this queue pair"));
    }
}

// A piece of a receive may be longer than its region: only what a message fills must be there.
void receive_beyond_its_region() {
    Datagrams d;
    const uint64_t at = 16384 - GRH_BYTES - 64;
    d.b.post_receive(d.target.address() + at, 8192, d.dst.key);
    d.send(64);
    const uint8_t* e = d.b_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND);
    CHECK_EQ(GDA_GET(cqe64, e, byte_cnt), GRH_BYTES + 64);
    CHECK(std::memcmp(d.target.p + at + GRH_BYTES, d.source.p, 64) == 0);
    d.b.post_receive(d.target.address() + at, 8192, d.dst.key);
    d.send(65);
    e = d.b_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_ERR);
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    CHECK(d.nic.said("is not within key"));
}

void datagrams_between_two_nics() {
    Datagrams d;
    Nic other;
    Queue cq(other, 6);
    Pair p(other, cq, &cq, of(MLX5_QPC_ST_UD));
    open_datagrams(p);
    Pages memory(65536);
    Memory key(other, memory.address(), 65536);
    d.to.qpn = p.qpn;
    other.device.gid(1, d.to.gid);
    for (uint32_t i = 0; i < 10; ++i) p.post_receive(memory.address() + 6000 * i, 6000, key.key);
    for (uint32_t i = 0; i < 10; ++i) {
        d.send(1000 + i);
        CHECK_EQ(opcode_of(d.a_cq.wait()), MLX5_CQE_REQ);
    }
    for (uint32_t i = 0; i < 10; ++i) {
        const uint8_t* e = cq.wait();
        CHECK_EQ(GDA_GET(cqe64, e, byte_cnt), 1040 + i);
        CHECK_EQ(GDA_GET(cqe64, e, rqpn), d.a.qpn);
        CHECK(std::memcmp(memory.p + 6000 * i + 40, d.source.p, 1000 + i) == 0);
    }
}

struct Unreliable : World {
    explicit Unreliable(Options b = of(MLX5_QPC_ST_UC)) : World(of(MLX5_QPC_ST_UC), b) {}
};

void uc_messages() {
    Unreliable w;
    w.write(100000);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK(w.same(100000));
    w.b.post_receive(w.target.address(), 4096, w.dst.key);
    w.a.send(w.source.address() + 8, w.src.key, 777, MLX5_OPCODE_SEND_IMM, 0x55);
    w.b.post_receive(0, 0, 0);
    w.a.write(w.target.address() + 8192, w.dst.key, w.source.address(), w.src.key, 100, CE_ALWAYS,
              MLX5_OPCODE_RDMA_WRITE_IMM, 0x66);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    const uint8_t* e = w.b_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND_IMM);
    CHECK_EQ(GDA_GET(cqe64, e, imm_inval_pkey), 0x55);
    CHECK_EQ(GDA_GET(cqe64, e, byte_cnt), 777);
    e = w.b_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_WR_IMM);
    CHECK_EQ(GDA_GET(cqe64, e, imm_inval_pkey), 0x66);
    CHECK(std::memcmp(w.target.p, w.source.p + 8, 777) == 0);
}

// No receive, no right, a bad key: the sender does not learn of it, and what comes after arrives.
void uc_drops() {
    Options no_writes = of(MLX5_QPC_ST_UC);
    no_writes.rwe = 0;
    Unreliable w(no_writes);
    w.a.send(w.source.address(), w.src.key, 8);  // nothing is posted
    w.write(8);
    w.a.write(w.target.address(), w.dst.key + 1, w.source.address(), w.src.key, 8);
    w.a.ring();
    for (int i = 0; i < 3; ++i) CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK_EQ(w.nic.device.counter("packets_dropped"), 3);
    CHECK_EQ(w.target.p[0], 0);
    CHECK_EQ(w.b.state(), MLX5_QPC_STATE_RTS);
    w.b.post_receive(w.target.address(), 64, w.dst.key);
    w.a.send(w.source.address(), w.src.key, 8);
    w.a.ring();
    CHECK_EQ(opcode_of(w.b_cq.wait()), MLX5_CQE_RESP_SEND);
    CHECK(w.same(8));
    w.b.post_receive(w.target.address(), 4, w.dst.key);  // too short: the receiver's own fault
    w.a.send(w.source.address(), w.src.key, 8);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.b_cq.wait()), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
    w.nic.settle();
    CHECK_EQ(w.b.state(), MLX5_QPC_STATE_ERR);
    CHECK_EQ(w.a.state(), MLX5_QPC_STATE_RTS);
}

void uc_has_no_reads() {
    Unreliable w;
    w.a.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 8, CE_ALWAYS, MLX5_OPCODE_RDMA_READ);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "not supported by this queue pair");
}

// Messages of many packets to another NIC, of which some find its inbox overwritten by nobody: whole or not at all.
void uc_between_two_nics() {
    Nic a, b;
    Queue a_cq(a, 6), b_cq(b, 6);
    Pair x(a, a_cq, &a_cq, of(MLX5_QPC_ST_UC)), y(b, b_cq, &b_cq, of(MLX5_QPC_ST_UC));
    connect(x, y);
    const uint32_t bytes = 500000;
    Pages local(bytes), remote(bytes);
    Memory l(a, local.address(), bytes), r(b, remote.address(), bytes);
    for (uint32_t i = 0; i < bytes; ++i) local.p[i] = static_cast<uint8_t>(i * 5 + (i >> 10));
    x.send(local.address(), l.key, bytes);  // no receive: all its packets are dropped
    x.ring();
    CHECK_EQ(opcode_of(a_cq.wait()), MLX5_CQE_REQ);
    b.settle();
    CHECK_EQ(b.device.counter("packets_dropped"), 8);
    y.post_receive(remote.address(), bytes, r.key);
    x.send(local.address(), l.key, bytes);
    x.ring();
    CHECK_EQ(opcode_of(a_cq.wait()), MLX5_CQE_REQ);
    const uint8_t* e = b_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND);
    CHECK_EQ(GDA_GET(cqe64, e, byte_cnt), bytes);
    CHECK(std::memcmp(local.p, remote.p, bytes) == 0);
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"datagram", datagram},
            {"datagram_with_immediate_over_ipv4", datagram_with_immediate_over_ipv4},
            {"dropped_datagrams", dropped_datagrams},
            {"datagram_faults", datagram_faults},
            {"receive_beyond_its_region", receive_beyond_its_region},
            {"datagrams_between_two_nics", datagrams_between_two_nics},
            {"uc_messages", uc_messages},
            {"uc_drops", uc_drops},
            {"uc_has_no_reads", uc_has_no_reads},
            {"uc_between_two_nics", uc_between_two_nics},
        },
        argc, argv);
}
