// SPDX-License-Identifier: Apache-2.0
// Dynamically connected queue pairs for the test programs of the engine: a target, and two initiators with two targets.
#pragma once

#include "tests/sim/engine_shared.h"

namespace rig {

const uint64_t ACCESS_KEY = 0x1122334455667788;

struct Target {  // a DCT
    Target(Nic& n, Queue& cq, Shared& srq, uint32_t user_index, uint32_t at = 1) : nic(n), port(at) {
        Call c = create(nic, cq.cqn, srq.number, user_index, 3, port);
        CHECK(c.send(nic));
        number = static_cast<uint32_t>(GDA_GET(create_dct_out, c.out.data(), dctn));
    }
    static Call create(Nic& nic, uint32_t cqn, uint32_t srqn, uint32_t user_index, uint32_t mtu = 3,
                       uint32_t port = 1) {
        Call c = CALL(create_dct, MLX5_CMD_OP_CREATE_DCT);
        uint8_t* dctc = c.in.data() + GDA_BYTE_OFFSET(create_dct_in, dct_context_entry);
        GDA_SET(dctc, dctc, pd, nic.pdn);
        GDA_SET(dctc, dctc, cqn, cqn);
        GDA_SET(dctc, dctc, srqn_xrqn, srqn);
        GDA_SET(dctc, dctc, user_index, user_index);
        GDA_SET(dctc, dctc, dc_access_key, ACCESS_KEY);
        GDA_SET(dctc, dctc, mtu, mtu);
        GDA_SET(dctc, dctc, port, port);
        GDA_SET(dctc, dctc, my_addr_index, 1);
        GDA_SET(dctc, dctc, min_rnr_nak, 1);
        GDA_SET(dctc, dctc, rre, 1);
        GDA_SET(dctc, dctc, rwe, 1);
        GDA_SET(dctc, dctc, rae, 1);
        return c;
    }
    ~Target() { CHECK_EQ(command(MLX5_CMD_OP_DESTROY_DCT), MLX5_CMD_STAT_OK); }
    uint32_t command(uint32_t opcode) {
        Call c = CALL(drain_dct, opcode);
        GDA_SET(drain_dct_in, c.in.data(), dctn, number);
        c.send(nic);
        return c.status();
    }
    std::vector<uint8_t> context() {
        Call c = CALL(query_dct, MLX5_CMD_OP_QUERY_DCT);
        GDA_SET(query_dct_in, c.in.data(), dctn, number);
        CHECK(c.send(nic));
        const uint8_t* dctc = c.out.data() + GDA_BYTE_OFFSET(query_dct_out, dct_context_entry);
        return std::vector<uint8_t>(dctc, dctc + GDA_BYTES_OF(dctc));
    }
    Nic& nic;
    const uint32_t port;
    uint32_t number = 0;
};

inline Options initiator(uint32_t retry = 7) {
    Options o;
    o.transport = MLX5_QPC_ST_DCI;
    o.mtu = 3;
    o.retry = retry;
    o.timeout = 8;  // a millisecond
    return o;
}

struct Crowd {
    explicit Crowd(Options o = initiator())
        : shared(nic, 5),
          cq(nic, 7),
          a_cq(nic, 7),
          c_cq(nic, 7),
          a(nic, a_cq, nullptr, o),
          c(nic, c_cq, nullptr, o),
          b(nic, cq, shared, 0xb),
          d(nic, cq, shared, 0xd),
          memory(1 << 20),
          key(nic, memory.address(), 1 << 20) {
        ready(a), ready(c);
        for (size_t i = 0; i < HALF; ++i) memory.p[i] = static_cast<uint8_t>(i * 11 + 3);
    }
    void ready(Pair& qp) {
        uint8_t zero[16] = {};
        CHECK_EQ(qp.to_init(), MLX5_CMD_STAT_OK);
        CHECK_EQ(qp.to_rtr(0, zero), MLX5_CMD_STAT_OK);
        CHECK_EQ(qp.to_rts(), MLX5_CMD_STAT_OK);
    }
    // The head of a WQE for `to`: control and address. Its other segments begin at 4.
    uint32_t begin(Pair& qp, const Target& to, uint32_t opcode, uint32_t ds, uint32_t imm = 0,
                   uint64_t access = ACCESS_KEY, uint32_t opmod = 0) {
        const uint32_t index = qp.producer;
        for (uint32_t n = 0; n < (ds + 3) / 4; ++n) std::memset(qp.block(index + n), 0, 64);
        qp.control(index, opcode, ds, CE_ALWAYS, imm);
        GDA_SET(wqe_ctrl_seg, qp.block(index), opmod, opmod);
        uint8_t av[GDA_BYTES_OF(wqe_av_seg)] = {};
        GDA_SET(wqe_av_seg, av, extended, 1);
        GDA_SET(wqe_av_seg, av, dqp_dct, to.number);
        GDA_SET(wqe_dc_av_seg, av, dc_key, access);
        GDA_SET(wqe_av_seg, av, src_addr_index, 1);
        nic.device.gid(1, av + GDA_BYTE_OFFSET(wqe_av_seg, rgid), to.port);
        for (uint32_t n = 0; n < 3; ++n) std::memcpy(qp.segment(index, 1 + n), av + 16 * n, 16);
        qp.last = index;
        qp.producer += (ds + 3) / 4;
        return index;
    }
    void remote(Pair& qp, uint32_t index, uint64_t address, uint32_t rkey) {
        GDA_SET(wqe_raddr_seg, qp.segment(index, 4), raddr, address);
        GDA_SET(wqe_raddr_seg, qp.segment(index, 4), rkey, rkey);
    }
    uint32_t move(Pair& qp, const Target& to, uint32_t opcode, uint32_t bytes, uint32_t imm = 0, uint32_t rkey = 0) {
        const uint32_t index = begin(qp, to, opcode, bytes ? 6 : 5, imm);
        const bool read = opcode == MLX5_OPCODE_RDMA_READ;
        remote(qp, index, read ? memory.address() : memory.address() + HALF, rkey ? rkey : key.key);
        if (bytes) qp.data(index, 5, read ? memory.address() + HALF : memory.address(), bytes, key.key);
        return index;
    }
    uint32_t send(Pair& qp, const Target& to, uint64_t from, uint32_t bytes, uint32_t opcode = MLX5_OPCODE_SEND,
                  uint32_t imm = 0, uint64_t access = ACCESS_KEY) {
        const uint32_t index = begin(qp, to, opcode, 5, imm, access);
        qp.data(index, 4, from, bytes, key.key);
        return index;
    }
    void done(Queue& queue, uint32_t index) {
        const uint8_t* e = queue.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
        CHECK_EQ(index_of(e), index);
    }
    bool same(uint32_t bytes) { return std::memcmp(memory.p, memory.p + HALF, bytes) == 0; }
    enum : uint32_t { HALF = 1 << 19 };
    Nic nic;
    Shared shared;
    Queue cq, a_cq, c_cq;
    Pair a, c;
    Target b, d;
    Pages memory;
    Memory key;
};

}  // namespace rig
