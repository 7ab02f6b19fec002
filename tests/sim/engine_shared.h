// SPDX-License-Identifier: Apache-2.0
// A shared receive queue for the test programs of the engine.
#pragma once

#include "tests/sim/engine_rig.h"

namespace rig {

// A shared receive queue: a linked list in its ring, posted to as libmlx5 does.
struct Shared {
    Shared(Nic& n, uint32_t log_entries = 3, uint32_t log_stride = 5, uint32_t type = MLX5_WQ_TYPE_LINKED_LIST)
        : nic(n), log(log_entries), stride(1u << log_stride), memory((stride << log) + 64) {
        for (uint32_t i = 0; i < 1u << log; ++i) GDA_SET(wqe_srq_next_seg, slot(i), next_wqe_index, i + 1);
        CHECK_EQ(nic.device.register_umem(memory.address(), (stride << log) + 64, &umem), 0);
        Call c = create(type);
        CHECK(c.send(nic));
        number = static_cast<uint32_t>(GDA_GET(create_rmp_out, c.out.data(), rmpn));
    }
    Call create(uint32_t type) {
        const uint32_t log_stride = static_cast<uint32_t>(__builtin_ctz(stride));
        Call c = CALL(create_rmp, MLX5_CMD_OP_CREATE_RMP);
        uint8_t* rmpc = c.in.data() + GDA_BYTE_OFFSET(create_rmp_in, ctx);
        GDA_SET(rmpc, rmpc, wq.wq_type, type);
        GDA_SET(rmpc, rmpc, wq.pd, nic.pdn);
        GDA_SET(rmpc, rmpc, wq.log_wq_stride, log_stride);
        GDA_SET(rmpc, rmpc, wq.log_wq_sz, log);
        GDA_SET(rmpc, rmpc, wq.wq_umem_valid, 1);
        GDA_SET(rmpc, rmpc, wq.wq_umem_id, umem);
        GDA_SET(rmpc, rmpc, wq.dbr_umem_valid, 1);
        GDA_SET(rmpc, rmpc, wq.dbr_umem_id, umem);
        GDA_SET(rmpc, rmpc, wq.dbr_addr, uint64_t{stride} << log);
        return c;
    }
    ~Shared() {
        CHECK_EQ(destroy(), MLX5_CMD_STAT_OK);
        CHECK_EQ(nic.device.release_umem(umem), 0);
    }
    uint32_t destroy() {
        Call c = CALL(destroy_rmp, MLX5_CMD_OP_DESTROY_RMP);
        GDA_SET(destroy_rmp_in, c.in.data(), rmpn, number);
        c.send(nic);
        return c.status();
    }
    uint8_t* slot(uint32_t i) { return memory.p + stride * i; }
    uint32_t post(uint64_t address, uint32_t bytes, uint32_t key) {
        const uint32_t at = head;
        uint8_t* w = slot(at);
        head = static_cast<uint32_t>(GDA_GET(wqe_srq_next_seg, w, next_wqe_index));
        GDA_SET(wqe_data_seg, w + 16, byte_count, bytes);
        GDA_SET(wqe_data_seg, w + 16, lkey, key);
        GDA_SET(wqe_data_seg, w + 16, addr, address);
        ++posted;
        __atomic_store_n(reinterpret_cast<uint32_t*>(memory.p + (stride << log)), gda::be32(posted & 0xffff),
                         __ATOMIC_RELEASE);
        return at;
    }
    void release(uint32_t at) {  // a slot whose completion was polled: to the end of the list
        GDA_SET(wqe_srq_next_seg, slot(tail), next_wqe_index, at);
        tail = at;
    }
    uint32_t arm(uint32_t limit) {
        Call c = CALL(modify_rmp, MLX5_CMD_OP_MODIFY_RMP);
        GDA_SET(modify_rmp_in, c.in.data(), rmpn, number);
        GDA_SET(modify_rmp_in, c.in.data(), bitmask.lwm, 1);
        GDA_SET(modify_rmp_in, c.in.data(), ctx.wq.lwm, limit);
        c.send(nic);
        return c.status();
    }
    uint32_t limit() {
        Call c = CALL(query_rmp, MLX5_CMD_OP_QUERY_RMP);
        GDA_SET(query_rmp_in, c.in.data(), rmpn, number);
        CHECK(c.send(nic));
        return static_cast<uint32_t>(GDA_GET(query_rmp_out, c.out.data(), rmp_context.wq.lwm));
    }
    Nic& nic;
    uint32_t log, stride;
    Pages memory;
    uint32_t umem = 0, number = 0, head = 0, posted = 0;
    uint32_t tail = (1u << log) - 1;
};

}  // namespace rig
