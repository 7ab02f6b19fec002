// SPDX-License-Identifier: Apache-2.0
// The calls of an initiator that puts from the GPU, in the order in which NVSHMEM's IBGDA transport makes them, without
// NVSHMEM and without a GPU: two of them in one process, connected to each other. The CUDA driver is the one made of
// host memory (tests/nic/host_driver.c), reached as the CUDA runtime reaches it; its "GPU memory" holds the queues,
// the records and the data, and its mapping of the doorbell register is rung. Run by test_uverbs.py under the preload
// library. Exit status 0: as expected.
#include <errno.h>
#include <gda/formats/command.h>
#include <gda/formats/cqe.h>
#include <gda/formats/doorbell.h>
#include <gda/formats/wqe.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

#include "cuda_as_found.h"
#include "expect.h"
#include "uverbs_dc_target.h"

namespace {

using namespace gda::prm;

// ---- one side ----

constexpr uint32_t log_depth = 10, shared_receives = 16384;
constexpr size_t heap_bytes = 1 << 20, result_offset = heap_bytes / 2;

struct Initiator {
    ibv_context* context;
    ibv_pd* pd;
    uint32_t pdn;
    union ibv_gid gid;
    ibv_srq* srq;
    uint32_t srqn;
    ibv_cq* receive_cq;
    uint32_t receive_cqn;
    Target target;
    Memory heap;
    ibv_mr* mr;
    // The queue pair to the other side.
    Memory ring, record, completions, completion_record;
    mlx5dv_devx_uar *uar, *cq_uar;
    Address doorbell;
    mlx5dv_devx_obj *cq, *qp;
    ibv_ah* ah;
    uint32_t cqn, qpn;
    uint16_t next = 0;  // basic blocks posted
};

void register_umem(const Initiator& i, Memory* m, bool by_dmabuf) {
    if (by_dmabuf) {
        const int fd = export_dmabuf(m->at, (m->bytes + host_page - 1) & ~(host_page - 1));
        mlx5dv_devx_umem_in in = {};
        in.size = m->bytes;
        in.access = IBV_ACCESS_LOCAL_WRITE;
        in.pgsz_bitmap = ~uint64_t{0xfff};
        in.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
        in.dmabuf_fd = fd;
        m->umem = mlx5dv_devx_umem_reg_ex(i.context, &in);
        close(fd);
    } else {
        m->umem = mlx5dv_devx_umem_reg(i.context, reinterpret_cast<void*>(m->at), m->bytes, IBV_ACCESS_LOCAL_WRITE);
    }
    EXPECT(m->umem);
}

void release(Memory* m) {
    if (m->umem) EXPECT(mlx5dv_devx_umem_dereg(m->umem) == 0);
    EXPECT(cuda.cuMemFree(m->base) == 0);
}

// The doorbell register, for kernels: registered as I/O memory, which ordinary memory is not.
Address map_doorbell(mlx5dv_devx_uar* uar, size_t bytes) {
    Address mapped = 0;
    EXPECT(cuda.cuMemHostRegister(uar->reg_addr, bytes, portable | device_map | io_memory) == 0);
    EXPECT(cuda.cuMemHostGetDevicePointer(&mapped, uar->reg_addr, 0) == 0);
    return mapped;
}

void capabilities(ibv_context* context, uint32_t type, uint8_t* out, size_t bytes) {
    uint8_t in[GDA_BYTES_OF(query_hca_cap_in)] = {};
    GDA_SET(query_hca_cap_in, in, opcode, MLX5_CMD_OP_QUERY_HCA_CAP);
    GDA_SET(query_hca_cap_in, in, op_mod, type << 1 | 1);
    EXPECT(mlx5dv_devx_general_cmd(context, in, sizeof in, out, bytes) == 0);
}

// What is tried before a device is taken.
Initiator open_device() {
    Initiator i = {};
    EXPECT(access("/sys/module/nvidia_peermem/version", F_OK) == 0);
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    EXPECT(list && count == 1 && strstr(ibv_get_device_name(list[0]), "mlx5"));
    EXPECT(i.context = ibv_open_device(list[0]));
    ibv_free_device_list(list);
    ibv_device_attr attributes;
    EXPECT(ibv_query_device(i.context, &attributes) == 0 && attributes.phys_port_cnt == 1);
    uint8_t out[GDA_BYTES_OF(query_hca_cap_out)] = {};
    capabilities(i.context, HCA_CAP_GENERAL, out, sizeof out);
    const uint8_t* cap = out + GDA_BYTE_OFFSET(query_hca_cap_out, capability);
    EXPECT(GDA_GET(cmd_hca_cap, cap, cqe_version) == 1);
    const size_t register_bytes = size_t{1} << GDA_GET(cmd_hca_cap, cap, log_bf_reg_size);

    // Can a kernel ring? A page that is no doorbell page keeps the driver's answer.
    mlx5dv_devx_uar* uar = mlx5dv_devx_alloc_uar(i.context, MLX5DV_UAR_ALLOC_TYPE_BF);
    EXPECT(uar);
    map_doorbell(uar, register_bytes);
    EXPECT(cuda.cuMemHostUnregister(uar->reg_addr) == 0);
    mlx5dv_devx_free_uar(uar);
    void* ordinary = aligned_alloc(4096, 4096);
    EXPECT(cuda.cuMemHostRegister(ordinary, 4096, portable | device_map | io_memory) != 0);
    free(ordinary);

    // Can queues lie in GPU memory, and in the host's?
    for (const bool by_dmabuf : {true, false}) {
        Memory m = allocate(8);
        register_umem(i, &m, by_dmabuf);
        release(&m);
    }
    void* host = aligned_alloc(gpu_page, gpu_page);
    EXPECT(cuda.cuMemHostRegister(host, 8, portable | device_map) == 0);
    mlx5dv_devx_umem* umem = mlx5dv_devx_umem_reg(i.context, host, 8, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(umem && mlx5dv_devx_umem_dereg(umem) == 0);
    EXPECT(cuda.cuMemHostUnregister(host) == 0);
    free(host);

    capabilities(i.context, HCA_CAP_ATOMIC, out, sizeof out);
    constexpr uint32_t all = MLX5_ATOMIC_OPS_CMP_SWAP | MLX5_ATOMIC_OPS_FETCH_ADD | MLX5_ATOMIC_OPS_EXTENDED_CMP_SWAP |
                             MLX5_ATOMIC_OPS_EXTENDED_FETCH_ADD;
    EXPECT((GDA_GET(atomic_caps, cap, atomic_operations) & all) == all);
    EXPECT((GDA_GET(atomic_caps, cap, atomic_size_qp) & 12) == 12);  // four bytes and eight
    EXPECT((GDA_GET(atomic_caps, cap, atomic_size_dc) & 12) == 12);
    EXPECT(GDA_GET(atomic_caps, cap, supported_atomic_req_8B_endianness_mode_1) == 1);
    EXPECT(GDA_GET(atomic_caps, cap, atomic_req_8B_endianness_mode) == 1);

    ibv_port_attr port;
    EXPECT(ibv_query_port(i.context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE && port.lid == 0);
    EXPECT(ibv_query_gid(i.context, 1, 1, &i.gid) == 0);
    EXPECT(i.pd = ibv_alloc_pd(i.context));
    mlx5dv_pd driver_pd = {};
    mlx5dv_obj object = {};
    object.pd.in = i.pd;
    object.pd.out = &driver_pd;
    EXPECT(mlx5dv_init_obj(&object, MLX5DV_OBJ_PD) == 0);
    i.pdn = driver_pd.pdn;
    return i;
}

// A dma-buf that is none is refused; then the heap, by its dma-buf or by its addresses.
void register_heap(Initiator* i, bool by_dmabuf) {
    constexpr int access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    EXPECT(!ibv_reg_dmabuf_mr(i->pd, 0, 4096, 0, -1, access) && errno == EBADF);
    i->heap = allocate(heap_bytes);
    if (by_dmabuf) {
        const int fd = export_dmabuf(i->heap.at, heap_bytes);
        EXPECT(!ibv_reg_dmabuf_mr(i->pd, 0, heap_bytes + 1, i->heap.at, fd, access) && errno == EINVAL);
        i->mr = ibv_reg_dmabuf_mr(i->pd, 0, heap_bytes, i->heap.at, fd, access);
        close(fd);
    } else {
        i->mr = ibv_reg_mr(i->pd, reinterpret_cast<void*>(i->heap.at), heap_bytes, access);
    }
    EXPECT(i->mr);
}

void create_shared(Initiator* i) {
    ibv_srq_init_attr attributes = {};
    attributes.attr.max_wr = shared_receives;
    attributes.attr.max_sge = 1;
    EXPECT(i->srq = ibv_create_srq(i->pd, &attributes));
    EXPECT(i->receive_cq = ibv_create_cq(i->context, shared_receives, nullptr, nullptr, 0));
    mlx5dv_srq driver_srq = {};
    driver_srq.comp_mask = MLX5DV_SRQ_MASK_SRQN;
    mlx5dv_cq driver_cq = {};
    mlx5dv_obj object = {};
    object.srq.in = i->srq;
    object.srq.out = &driver_srq;
    object.cq.in = i->receive_cq;
    object.cq.out = &driver_cq;
    EXPECT(mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ | MLX5DV_OBJ_CQ) == 0);
    i->srqn = driver_srq.srqn;
    i->receive_cqn = driver_cq.cqn;
    EXPECT(i->srqn && i->receive_cqn);
}

void create_queue_pair(Initiator* i, bool by_dmabuf, qpc_st service) {
    i->completions = allocate(64u << log_depth, 0xff);
    i->completion_record = allocate(8);
    i->ring = allocate(64u << log_depth);
    i->record = allocate(8);
    for (Memory* m : {&i->completions, &i->completion_record, &i->ring, &i->record}) register_umem(*i, m, by_dmabuf);
    uint32_t eqn;
    EXPECT(mlx5dv_devx_query_eqn(i->context, 0, &eqn) == 0);
    EXPECT(i->cq_uar = mlx5dv_devx_alloc_uar(i->context, MLX5DV_UAR_ALLOC_TYPE_NC));
    {
        COMMAND(create_cq, MLX5_CMD_OP_CREATE_CQ);
        GDA_SET(create_cq_in, in, cq_umem_id, i->completions.umem->umem_id);
        GDA_SET(create_cq_in, in, cq_umem_valid, 1);
        GDA_SET(create_cq_in, in, cq_context.dbr_umem_valid, 1);
        GDA_SET(create_cq_in, in, cq_context.dbr_umem_id, i->completion_record.umem->umem_id);
        GDA_SET(create_cq_in, in, cq_context.cc, 1);  // one entry, written again and again
        GDA_SET(create_cq_in, in, cq_context.oi, 1);
        GDA_SET(create_cq_in, in, cq_context.log_cq_size, log_depth);
        GDA_SET(create_cq_in, in, cq_context.uar_page, i->cq_uar->page_id);
        GDA_SET(create_cq_in, in, cq_context.c_eqn_or_apu_element, eqn);
        GDA_SET(create_cq_in, in, cq_context.log_page_size, 4);
        EXPECT(i->cq = mlx5dv_devx_obj_create(i->context, in, sizeof in, out, sizeof out));
        i->cqn = static_cast<uint32_t>(GDA_GET(create_cq_out, out, cqn));
    }
    EXPECT(i->uar = mlx5dv_devx_alloc_uar(i->context, MLX5DV_UAR_ALLOC_TYPE_BF));
    i->doorbell = map_doorbell(i->uar, 8);
    COMMAND(create_qp, MLX5_CMD_OP_CREATE_QP);
    GDA_SET(create_qp_in, in, wq_umem_id, i->ring.umem->umem_id);
    GDA_SET(create_qp_in, in, wq_umem_valid, 1);
    GDA_SET(create_qp_in, in, qpc.st, service);
    GDA_SET(create_qp_in, in, qpc.pm_state, MLX5_QPC_PM_STATE_MIGRATED);
    GDA_SET(create_qp_in, in, qpc.pd, i->pdn);
    GDA_SET(create_qp_in, in, qpc.uar_page, i->uar->page_id);
    GDA_SET(create_qp_in, in, qpc.rq_type, RQ_TYPE_SRQ);
    GDA_SET(create_qp_in, in, qpc.srqn_rmpn_xrqn, i->srqn);
    GDA_SET(create_qp_in, in, qpc.cqn_snd, i->cqn);
    GDA_SET(create_qp_in, in, qpc.cqn_rcv, i->receive_cqn);
    GDA_SET(create_qp_in, in, qpc.log_sq_size, log_depth);
    GDA_SET(create_qp_in, in, qpc.dbr_umem_valid, 1);
    GDA_SET(create_qp_in, in, qpc.dbr_umem_id, i->record.umem->umem_id);
    EXPECT(i->qp = mlx5dv_devx_obj_create(i->context, in, sizeof in, out, sizeof out));
    i->qpn = static_cast<uint32_t>(GDA_GET(create_qp_out, out, qpn));
}

void to_send(Initiator* i) {
    COMMAND(rtr2rts_qp, MLX5_CMD_OP_RTR2RTS_QP);
    GDA_SET(rtr2rts_qp_in, in, qpn, i->qpn);
    GDA_SET(rtr2rts_qp_in, in, qpc.log_sra_max, 4);
    GDA_SET(rtr2rts_qp_in, in, qpc.retry_count, 7);
    GDA_SET(rtr2rts_qp_in, in, qpc.rnr_retry, 7);
    GDA_SET(rtr2rts_qp_in, in, qpc.primary_address_path.ack_timeout, 20);
    EXPECT(mlx5dv_devx_obj_modify(i->qp, in, sizeof in, out, sizeof out) == 0);
}

void connect_to(Initiator* i, const Initiator& peer) {
    {
        COMMAND(rst2init_qp, MLX5_CMD_OP_RST2INIT_QP);
        GDA_SET(rst2init_qp_in, in, qpn, i->qpn);
        GDA_SET(rst2init_qp_in, in, qpc.rwe, 1);
        GDA_SET(rst2init_qp_in, in, qpc.rre, 1);
        GDA_SET(rst2init_qp_in, in, qpc.rae, 1);
        GDA_SET(rst2init_qp_in, in, qpc.atomic_mode, 3);  // up to 64 bits
        GDA_SET(rst2init_qp_in, in, qpc.primary_address_path.vhca_port_num, 1);
        GDA_SET(rst2init_qp_in, in, qpc.pm_state, MLX5_QPC_PM_STATE_MIGRATED);
        EXPECT(mlx5dv_devx_obj_modify(i->qp, in, sizeof in, out, sizeof out) == 0);
    }
    {
        ibv_ah_attr address = {};
        address.is_global = address.port_num = address.grh.sgid_index = 1;
        address.grh.dgid = peer.gid;
        address.dlid = 0xc000;
        EXPECT(i->ah = ibv_create_ah(i->pd, &address));
        mlx5dv_ah driver_ah = {};
        mlx5dv_obj object = {};
        object.ah.in = i->ah;
        object.ah.out = &driver_ah;
        EXPECT(mlx5dv_init_obj(&object, MLX5DV_OBJ_AH) == 0);
        COMMAND(init2rtr_qp, MLX5_CMD_OP_INIT2RTR_QP);
        GDA_SET(init2rtr_qp_in, in, qpn, i->qpn);
        GDA_SET(init2rtr_qp_in, in, qpc.mtu, MLX5_QPC_MTU_4K_BYTES);
        GDA_SET(init2rtr_qp_in, in, qpc.log_msg_max, 30);
        GDA_SET(init2rtr_qp_in, in, qpc.remote_qpn, peer.qpn);
        GDA_SET(init2rtr_qp_in, in, qpc.min_rnr_nak, 12);
        GDA_SET(init2rtr_qp_in, in, qpc.log_rra_max, 4);
        memcpy(in + GDA_BYTE_OFFSET(init2rtr_qp_in, qpc.primary_address_path.rmac_47_32), driver_ah.av->rmac, 6);
        memcpy(in + GDA_BYTE_OFFSET(init2rtr_qp_in, qpc.primary_address_path.rgid_rip), driver_ah.av->rgid, 16);
        GDA_SET(init2rtr_qp_in, in, qpc.primary_address_path.hop_limit, 255);
        GDA_SET(init2rtr_qp_in, in, qpc.primary_address_path.src_addr_index, 1);
        GDA_SET(init2rtr_qp_in, in, qpc.primary_address_path.udp_sport, address.dlid);
        EXPECT(mlx5dv_devx_obj_modify(i->qp, in, sizeof in, out, sizeof out) == 0);
    }
    to_send(i);
}

// A dynamically connected one has no peer of its own.
void ready_for_any(Initiator* i) {
    {
        COMMAND(rst2init_qp, MLX5_CMD_OP_RST2INIT_QP);
        GDA_SET(rst2init_qp_in, in, qpn, i->qpn);
        GDA_SET(rst2init_qp_in, in, qpc.dc_access_key, access_key);
        GDA_SET(rst2init_qp_in, in, qpc.primary_address_path.vhca_port_num, 1);
        GDA_SET(rst2init_qp_in, in, qpc.pm_state, MLX5_QPC_PM_STATE_MIGRATED);
        EXPECT(mlx5dv_devx_obj_modify(i->qp, in, sizeof in, out, sizeof out) == 0);
    }
    {
        COMMAND(init2rtr_qp, MLX5_CMD_OP_INIT2RTR_QP);
        GDA_SET(init2rtr_qp_in, in, qpn, i->qpn);
        GDA_SET(init2rtr_qp_in, in, qpc.mtu, MLX5_QPC_MTU_4K_BYTES);
        GDA_SET(init2rtr_qp_in, in, qpc.log_msg_max, 30);
        EXPECT(mlx5dv_devx_obj_modify(i->qp, in, sizeof in, out, sizeof out) == 0);
    }
    to_send(i);
}

// ---- what a kernel does ----

struct Wqe {
    uint8_t bytes[128] = {};
    uint8_t* segment(int n) { return bytes + 16 * n; }
};

void head(Initiator* i, Wqe* w, uint32_t opcode, uint32_t opmod, uint32_t ds, Address to, uint32_t key) {
    GDA_SET(wqe_ctrl_seg, w->bytes, opmod, opmod);
    GDA_SET(wqe_ctrl_seg, w->bytes, wqe_index, i->next);
    GDA_SET(wqe_ctrl_seg, w->bytes, opcode, opcode);
    GDA_SET(wqe_ctrl_seg, w->bytes, qp_or_sq, i->qpn);
    GDA_SET(wqe_ctrl_seg, w->bytes, ds, ds);
    if (ds > 1) GDA_SET(wqe_raddr_seg, w->segment(1), raddr, to);
    if (ds > 1) GDA_SET(wqe_raddr_seg, w->segment(1), rkey, key);
}

void data(Wqe* w, int n, Address at, uint32_t bytes, uint32_t key) {
    GDA_SET(wqe_data_seg, w->segment(n), byte_count, bytes);
    GDA_SET(wqe_data_seg, w->segment(n), lkey, key);
    GDA_SET(wqe_data_seg, w->segment(n), addr, at);
}

void store(Initiator* i, const Wqe& w, uint16_t blocks) {
    for (uint16_t b = 0; b < blocks; ++b)
        to_gpu(i->ring.at + 64 * ((i->next + b) & ((1u << log_depth) - 1)), w.bytes + 64 * b, 64);
    i->next = static_cast<uint16_t>(i->next + blocks);
}

// Record, doorbell with the producer index, and the collapsed completion's counter. A last request without work, as
// NVSHMEM posts one behind a request of two blocks: the counter names a request's first block.
void ring_and_wait(Initiator* i) {
    Wqe nop;
    head(i, &nop, gda::prm::MLX5_OPCODE_NOP, 0, 1, 0, 0);
    GDA_SET(wqe_ctrl_seg, nop.bytes, ce, CE_ALWAYS);
    const uint16_t last = i->next;
    store(i, nop, 1);
    uint8_t record[8] = {}, doorbell[8] = {};
    GDA_SET(qp_doorbell_record, record, send_counter, i->next);
    to_gpu(i->record.at, record, sizeof record);
    GDA_SET(send_doorbell, doorbell, wqe_index, i->next);
    GDA_SET(send_doorbell, doorbell, qpn, i->qpn);
    uint64_t value;
    memcpy(&value, doorbell, sizeof value);
    // The driver's address of registered memory lies this far from the host's (host_driver.c).
    constexpr Address mapped = 0x200000000000;
    EXPECT(reinterpret_cast<Address>(i->uar->reg_addr) + mapped == i->doorbell);
    __atomic_store_n(reinterpret_cast<uint64_t*>(i->doorbell - mapped), value, __ATOMIC_RELEASE);
    uint8_t entry[64];
    const timespec pause = {0, 1000 * 1000};
    for (int ms = 0; ms < 20000; ++ms) {
        from_gpu(entry, i->completions.at, sizeof entry);
        const uint32_t opcode = static_cast<uint32_t>(GDA_GET(cqe64, entry, opcode));
        EXPECT(opcode == gda::prm::MLX5_CQE_REQ || opcode == gda::prm::MLX5_CQE_INVALID);
        if (opcode == gda::prm::MLX5_CQE_REQ && GDA_GET(cqe64, entry, wqe_counter) == last) return;
        nanosleep(&pause, nullptr);
    }
    EXPECT(!"a completion came");
}

void put(Initiator* i, const Initiator& peer) {
    uint8_t sent[4096];
    for (size_t n = 0; n < sizeof sent; ++n) sent[n] = static_cast<uint8_t>(n * 7 + i->qpn);
    to_gpu(i->heap.at, sent, sizeof sent);
    Wqe w;
    head(i, &w, gda::prm::MLX5_OPCODE_RDMA_WRITE, 0, 3, peer.heap.at + 65536, peer.mr->rkey);
    data(&w, 2, i->heap.at, sizeof sent, i->mr->lkey);
    store(i, w, 1);
    Wqe scalar;  // the value inside the request
    head(i, &scalar, gda::prm::MLX5_OPCODE_RDMA_WRITE, 0, 3, peer.heap.at + 65536 + sizeof sent, peer.mr->rkey);
    GDA_SET(wqe_inline_seg, scalar.segment(2), is_inline, 1);
    GDA_SET(wqe_inline_seg, scalar.segment(2), byte_count, 4);
    memcpy(scalar.segment(2) + 4, "\x11\x22\x33\x44", 4);
    store(i, scalar, 1);
    ring_and_wait(i);
    uint8_t got[sizeof sent + 8];
    from_gpu(got, peer.heap.at + 65536, sizeof got);
    EXPECT(memcmp(got, sent, sizeof sent) == 0 && memcmp(got + sizeof sent, "\x11\x22\x33\x44\0\0\0\0", 8) == 0);
}

// "Set" is a masked swap that compares nothing; results go to the local heap.
void signal(Initiator* i, const Initiator& peer) {
    const Address target = peer.heap.at + 131072, result = i->heap.at + result_offset;
    Wqe set;
    head(i, &set, gda::prm::MLX5_OPCODE_ATOMIC_MASKED_CS, ATOMIC_OPMOD_EXTENDED_8_BYTES, 5, target, peer.mr->rkey);
    GDA_SET(wqe_atomic_seg, set.segment(2), swap_add, 0x1122334455667788);
    GDA_SET(wqe_atomic_mask_seg, set.segment(3), swap_mask, ~uint64_t{0});
    data(&set, 4, result, 8, i->mr->lkey);
    store(i, set, 2);
    Wqe add;
    head(i, &add, gda::prm::MLX5_OPCODE_ATOMIC_FA, 0, 4, target, peer.mr->rkey);
    GDA_SET(wqe_atomic_seg, add.segment(2), swap_add, 8);
    data(&add, 3, result + 8, 8, i->mr->lkey);
    store(i, add, 1);
    Wqe narrow;
    head(i, &narrow, gda::prm::MLX5_OPCODE_ATOMIC_MASKED_FA, ATOMIC_OPMOD_EXTENDED_4_BYTES, 4, target + 4,
         peer.mr->rkey);
    GDA_SET(wqe_atomic32_add_seg, narrow.segment(2), add, 1);
    data(&narrow, 3, result + 16, 4, i->mr->lkey);
    store(i, narrow, 1);
    ring_and_wait(i);
    EXPECT(word_on_gpu(target) == 0x1122334555667790);
    EXPECT(word_on_gpu(result + 8) == 0x1122334455667788);
    EXPECT(static_cast<uint32_t>(word_on_gpu(result + 16)) == gda::swap32(0x11223344));  // four bytes are big-endian
}

// To its own target, with the address vector in the request.
void signal_itself(Initiator* dynamic) {
    const Address at = dynamic->heap.at + 196608;
    Wqe w;
    head(dynamic, &w, gda::prm::MLX5_OPCODE_ATOMIC_MASKED_FA, ATOMIC_OPMOD_EXTENDED_8_BYTES, 7, 0, 0);
    uint8_t* av = w.segment(1);
    memset(av, 0, GDA_BYTES_OF(wqe_av_seg));
    memcpy(av + GDA_BYTE_OFFSET(wqe_av_seg, rgid), &dynamic->gid, sizeof dynamic->gid);
    GDA_SET(wqe_dc_av_seg, av, dc_key, access_key);
    GDA_SET(wqe_av_seg, av, extended, 1);
    GDA_SET(wqe_av_seg, av, dqp_dct, dynamic->target.qp->qp_num);
    GDA_SET(wqe_av_seg, av, rlid_udp_sport, 0xc000);
    GDA_SET(wqe_av_seg, av, hop_limit, 255);
    GDA_SET(wqe_av_seg, av, grh, 1);
    GDA_SET(wqe_av_seg, av, src_addr_index, 1);
    GDA_SET(wqe_raddr_seg, w.segment(4), raddr, at);
    GDA_SET(wqe_raddr_seg, w.segment(4), rkey, dynamic->mr->rkey);
    GDA_SET(wqe_atomic64_add_seg, w.segment(5), add, 5);
    data(&w, 6, dynamic->heap.at + result_offset, 8, dynamic->mr->lkey);
    store(dynamic, w, 2);
    ring_and_wait(dynamic);
    EXPECT(word_on_gpu(at) == 5);
}

void close_queue_pair(Initiator* i) {
    EXPECT(mlx5dv_devx_obj_destroy(i->qp) == 0);
    EXPECT(cuda.cuMemHostUnregister(i->uar->reg_addr) == 0);
    mlx5dv_devx_free_uar(i->uar);
    EXPECT(mlx5dv_devx_obj_destroy(i->cq) == 0);
    mlx5dv_devx_free_uar(i->cq_uar);
    for (Memory* m : {&i->completions, &i->completion_record, &i->ring, &i->record}) release(m);
}

void close_device(Initiator* i) {
    close_queue_pair(i);
    EXPECT(ibv_destroy_ah(i->ah) == 0);
    destroy_target(&i->target);
    EXPECT(ibv_destroy_cq(i->receive_cq) == 0 && ibv_destroy_srq(i->srq) == 0);
    EXPECT(ibv_dereg_mr(i->mr) == 0);
    release(&i->heap);
    EXPECT(ibv_dealloc_pd(i->pd) == 0 && ibv_close_device(i->context) == 0);
}

}  // namespace

int main() {
    load_cuda();
    for (const bool by_dmabuf : {true, false}) {
        Initiator side[2];
        for (Initiator& i : side) {
            i = open_device();
            register_heap(&i, by_dmabuf);
            create_shared(&i);
            create_target(&i.target, i.context, i.pd, i.gid);
            create_queue_pair(&i, by_dmabuf, MLX5_QPC_ST_RC);
        }
        for (int n = 0; n < 2; ++n) connect_to(&side[n], side[1 - n]);
        for (int n = 0; n < 2; ++n) put(&side[n], side[1 - n]);
        for (int n = 0; n < 2; ++n) signal(&side[n], side[1 - n]);
        for (Initiator& i : side) {
            Initiator dynamic = i;
            create_queue_pair(&dynamic, by_dmabuf, MLX5_QPC_ST_DCI);
            ready_for_any(&dynamic);
            dynamic.next = 0;
            signal_itself(&dynamic);
            close_queue_pair(&dynamic);
        }
        for (Initiator& i : side) close_device(&i);
    }
    puts("every put and signal arrived");
    return 0;
}
