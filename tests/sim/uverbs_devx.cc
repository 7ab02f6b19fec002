// SPDX-License-Identifier: Apache-2.0
// A queue pair made of firmware commands through unmodified libmlx5 (DEVX), connected to itself, that writes eight
// bytes by a WQE laid out by hand; its events by DEVX channels; and the ways in which the driver refuses. Run by
// test_uverbs.py under the preload library. Exit status 0: as expected.
#include <dlfcn.h>
#include <errno.h>
#include <gda/formats/command.h>
#include <gda/formats/cqe.h>
#include <gda/formats/doorbell.h>
#include <gda/formats/event.h>
#include <gda/formats/wqe.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "objects.h"

namespace {

using namespace gda::prm;

constexpr uint32_t log_sq = 4, log_cq = 4;
constexpr size_t sq_bytes = 64u << log_sq, cq_bytes = 64u << log_cq, record_bytes = 8;
// One slab: send ring, completion ring, records, payload.
constexpr size_t cq_offset = sq_bytes, qp_record = cq_offset + cq_bytes, cq_record = qp_record + 64,
                 payload = qp_record + 128, slab_bytes = 4096;

struct Setup {
    ibv_context* context;
    ibv_pd* pd;
    uint32_t pdn;
    mlx5dv_devx_uar* uar;
    uint8_t* slab;
    mlx5dv_devx_umem* umem;
    ibv_mr* mr;
    uint32_t eqn;
};

ibv_context* open_devx() {
    ibv_device** list = ibv_get_device_list(nullptr);
    EXPECT(list && list[0] && mlx5dv_is_supported(list[0]));
    mlx5dv_context_attr attributes = {};
    attributes.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    ibv_context* context = mlx5dv_open_device(list[0], &attributes);
    EXPECT(context);
    ibv_free_device_list(list);
    return context;
}

Setup set_up() {
    Setup s = {};
    s.context = open_devx();
    EXPECT(s.pd = ibv_alloc_pd(s.context));
    mlx5dv_pd driver_pd = {};
    mlx5dv_obj object = {};
    object.pd.in = s.pd;
    object.pd.out = &driver_pd;
    EXPECT(mlx5dv_init_obj(&object, MLX5DV_OBJ_PD) == 0);
    s.pdn = driver_pd.pdn;
    EXPECT(s.uar = mlx5dv_devx_alloc_uar(s.context, MLX5DV_UAR_ALLOC_TYPE_NC));
    EXPECT(s.slab = static_cast<uint8_t*>(aligned_alloc(4096, slab_bytes)));
    memset(s.slab, 0, slab_bytes);
    memset(s.slab + cq_offset, 0xff, cq_bytes);
    EXPECT(s.umem = mlx5dv_devx_umem_reg(s.context, s.slab, slab_bytes, IBV_ACCESS_LOCAL_WRITE));
    EXPECT(s.mr = ibv_reg_mr(s.pd, s.slab + payload, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    EXPECT(mlx5dv_devx_query_eqn(s.context, 0, &s.eqn) == 0);
    EXPECT(mlx5dv_devx_query_eqn(s.context, 1000, &s.eqn) != 0);
    return s;
}

mlx5dv_devx_obj* create_cq(const Setup& s, uint32_t umem, uint32_t* cqn) {
    COMMAND(create_cq, MLX5_CMD_OP_CREATE_CQ);
    GDA_SET(create_cq_in, in, cq_context.log_cq_size, log_cq);
    GDA_SET(create_cq_in, in, cq_context.uar_page, s.uar->page_id);
    GDA_SET(create_cq_in, in, cq_context.c_eqn_or_apu_element, s.eqn);
    GDA_SET(create_cq_in, in, cq_context.dbr_umem_valid, 1);
    GDA_SET(create_cq_in, in, cq_context.dbr_umem_id, umem);
    GDA_SET(create_cq_in, in, cq_context.dbr_addr, cq_record);
    GDA_SET(create_cq_in, in, cq_umem_valid, 1);
    GDA_SET(create_cq_in, in, cq_umem_id, umem);
    GDA_SET(create_cq_in, in, cq_umem_offset, cq_offset);
    errno = 0;
    mlx5dv_devx_obj* cq = mlx5dv_devx_obj_create(s.context, in, sizeof in, out, sizeof out);
    EXPECT((cq != nullptr) == (GDA_GET(create_cq_out, out, status) == MLX5_CMD_STAT_OK));
    if (!cq) EXPECT(errno == EREMOTEIO);
    *cqn = static_cast<uint32_t>(GDA_GET(create_cq_out, out, cqn));
    return cq;
}

mlx5dv_devx_obj* create_qp(const Setup& s, uint32_t cqn, uint32_t* qpn) {
    COMMAND(create_qp, MLX5_CMD_OP_CREATE_QP);
    GDA_SET(create_qp_in, in, qpc.st, MLX5_QPC_ST_RC);
    GDA_SET(create_qp_in, in, qpc.pm_state, MLX5_QPC_PM_STATE_MIGRATED);
    GDA_SET(create_qp_in, in, qpc.pd, s.pdn);
    GDA_SET(create_qp_in, in, qpc.rq_type, RQ_TYPE_ZERO_SIZE);
    GDA_SET(create_qp_in, in, qpc.log_sq_size, log_sq);
    GDA_SET(create_qp_in, in, qpc.uar_page, s.uar->page_id);
    GDA_SET(create_qp_in, in, qpc.user_index, 0xabcdef);
    GDA_SET(create_qp_in, in, qpc.cqn_snd, cqn);
    GDA_SET(create_qp_in, in, qpc.cqn_rcv, cqn);
    GDA_SET(create_qp_in, in, qpc.dbr_umem_valid, 1);
    GDA_SET(create_qp_in, in, qpc.dbr_umem_id, s.umem->umem_id);
    GDA_SET(create_qp_in, in, qpc.dbr_addr, qp_record);
    GDA_SET(create_qp_in, in, wq_umem_valid, 1);
    GDA_SET(create_qp_in, in, wq_umem_id, s.umem->umem_id);
    mlx5dv_devx_obj* qp = mlx5dv_devx_obj_create(s.context, in, sizeof in, out, sizeof out);
    EXPECT(qp && GDA_GET(create_qp_out, out, status) == MLX5_CMD_STAT_OK);
    *qpn = static_cast<uint32_t>(GDA_GET(create_qp_out, out, qpn));
    return qp;
}

void connect_to_itself(const Setup& s, mlx5dv_devx_obj* qp, uint32_t qpn) {
    {
        COMMAND(rst2init_qp, MLX5_CMD_OP_RST2INIT_QP);
        GDA_SET(rst2init_qp_in, in, qpn, qpn);
        GDA_SET(rst2init_qp_in, in, qpc.pm_state, MLX5_QPC_PM_STATE_MIGRATED);
        GDA_SET(rst2init_qp_in, in, qpc.primary_address_path.vhca_port_num, 1);
        GDA_SET(rst2init_qp_in, in, qpc.rwe, 1);
        EXPECT(mlx5dv_devx_obj_modify(qp, in, sizeof in, out, sizeof out) == 0);
    }
    {
        COMMAND(init2rtr_qp, MLX5_CMD_OP_INIT2RTR_QP);
        // Address by an address handle, as programs do that have no neighbour table of their own.
        ibv_ah_attr address = {};
        address.is_global = address.port_num = address.grh.sgid_index = 1;
        EXPECT(ibv_query_gid(s.context, 1, 1, &address.grh.dgid) == 0);
        ibv_ah* ah = ibv_create_ah(s.pd, &address);
        EXPECT(ah);
        mlx5dv_ah driver_ah = {};
        mlx5dv_obj object = {};
        object.ah.in = ah;
        object.ah.out = &driver_ah;
        EXPECT(mlx5dv_init_obj(&object, MLX5DV_OBJ_AH) == 0);
        EXPECT(driver_ah.av->rmac[0] == 0x02);  // locally administered: a software NIC's
        memcpy(in + GDA_BYTE_OFFSET(init2rtr_qp_in, qpc.primary_address_path.rmac_47_32), driver_ah.av->rmac, 6);
        memcpy(in + GDA_BYTE_OFFSET(init2rtr_qp_in, qpc.primary_address_path.rgid_rip), &address.grh.dgid, 16);
        EXPECT(ibv_destroy_ah(ah) == 0);
        GDA_SET(init2rtr_qp_in, in, qpn, qpn);
        GDA_SET(init2rtr_qp_in, in, qpc.mtu, MLX5_QPC_MTU_4K_BYTES);
        GDA_SET(init2rtr_qp_in, in, qpc.log_msg_max, 30);
        GDA_SET(init2rtr_qp_in, in, qpc.remote_qpn, qpn);
        GDA_SET(init2rtr_qp_in, in, qpc.min_rnr_nak, 12);
        GDA_SET(init2rtr_qp_in, in, qpc.rwe, 1);
        GDA_SET(init2rtr_qp_in, in, qpc.primary_address_path.src_addr_index, 1);
        GDA_SET(init2rtr_qp_in, in, qpc.primary_address_path.hop_limit, 64);
        GDA_SET(init2rtr_qp_in, in, qpc.primary_address_path.udp_sport, 0xc000);
        GDA_SET(init2rtr_qp_in, in, qpc.primary_address_path.vhca_port_num, 1);
        EXPECT(mlx5dv_devx_obj_modify(qp, in, sizeof in, out, sizeof out) == 0);
    }
    {
        COMMAND(rtr2rts_qp, MLX5_CMD_OP_RTR2RTS_QP);
        GDA_SET(rtr2rts_qp_in, in, qpn, qpn);
        GDA_SET(rtr2rts_qp_in, in, qpc.retry_count, 7);
        GDA_SET(rtr2rts_qp_in, in, qpc.rnr_retry, 7);
        GDA_SET(rtr2rts_qp_in, in, qpc.primary_address_path.ack_timeout, 14);
        EXPECT(mlx5dv_devx_obj_modify(qp, in, sizeof in, out, sizeof out) == 0);
    }
}

// One RDMA WRITE of the payload's first eight bytes to the next eight; polls its completion for five seconds.
void write_eight(const Setup& s, uint32_t qpn, uint16_t index) {
    uint8_t* wqe = s.slab + (index & ((1u << log_sq) - 1)) * 64;
    memset(wqe, 0, 64);
    GDA_SET(wqe_ctrl_seg, wqe, wqe_index, index);
    GDA_SET(wqe_ctrl_seg, wqe, opcode, ::MLX5_OPCODE_RDMA_WRITE);
    GDA_SET(wqe_ctrl_seg, wqe, qp_or_sq, qpn);
    GDA_SET(wqe_ctrl_seg, wqe, ds, 3);
    GDA_SET(wqe_ctrl_seg, wqe, ce, CE_ALWAYS);
    const uint64_t address = reinterpret_cast<uint64_t>(s.slab + payload);
    GDA_SET(wqe_raddr_seg, wqe + 16, raddr, address + 8);
    GDA_SET(wqe_raddr_seg, wqe + 16, rkey, s.mr->rkey);
    GDA_SET(wqe_data_seg, wqe + 32, byte_count, 8);
    GDA_SET(wqe_data_seg, wqe + 32, lkey, s.mr->lkey);
    GDA_SET(wqe_data_seg, wqe + 32, addr, address);
    uint8_t record[record_bytes] = {};
    GDA_SET(qp_doorbell_record, record, send_counter, index + 1u);
    __atomic_store_n(reinterpret_cast<uint32_t*>(s.slab + qp_record + 4), gda::load32(record + 4), __ATOMIC_RELEASE);
    uint64_t doorbell;
    memcpy(&doorbell, wqe, sizeof doorbell);
    __atomic_store_n(static_cast<uint64_t*>(s.uar->reg_addr), doorbell, __ATOMIC_RELEASE);

    const uint8_t* cqe = s.slab + cq_offset + (index & ((1u << log_cq) - 1)) * 64;
    const unsigned lap = index >> log_cq & 1;
    timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        const uint32_t last = __atomic_load_n(reinterpret_cast<const uint32_t*>(cqe + 60), __ATOMIC_ACQUIRE);
        uint8_t copy[64];
        memcpy(copy, cqe, 60);
        memcpy(copy + 60, &last, 4);
        if (GDA_GET(cqe64, copy, opcode) != ::MLX5_CQE_INVALID && GDA_GET(cqe64, copy, owner) == lap) {
            EXPECT(GDA_GET(cqe64, copy, opcode) == ::MLX5_CQE_REQ && GDA_GET(cqe64, copy, wqe_counter) == index);
            EXPECT(GDA_GET(cqe64, copy, qpn) == qpn && GDA_GET(cqe64, copy, srqn_uidx) == 0xabcdef);
            break;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        EXPECT(now.tv_sec - start.tv_sec < 5);
    }
    uint8_t consumer[record_bytes] = {};
    GDA_SET(cq_doorbell_record, consumer, consumer_index, index + 1u);
    __atomic_store_n(reinterpret_cast<uint32_t*>(s.slab + cq_record), gda::load32(consumer), __ATOMIC_RELEASE);
}

void check_refusals(const Setup& s, mlx5dv_devx_obj* cq, mlx5dv_devx_obj* qp, uint32_t cqn, uint32_t qpn) {
    {  // A command about an object must be asked of that object.
        COMMAND(query_qp, MLX5_CMD_OP_QUERY_QP);
        GDA_SET(query_qp_in, in, qpn, qpn);
        EXPECT(mlx5dv_devx_obj_query(qp, in, sizeof in, out, sizeof out) == 0);
        EXPECT(GDA_GET(query_qp_out, out, qpc.state) == MLX5_QPC_STATE_RTS);
        EXPECT(GDA_GET(query_qp_out, out, qpc.remote_qpn) == qpn);
        errno = 0;
        EXPECT(mlx5dv_devx_obj_query(cq, in, sizeof in, out, sizeof out) != 0 && errno == EINVAL);
        GDA_SET(query_qp_in, in, qpn, qpn + 1);
        errno = 0;
        EXPECT(mlx5dv_devx_obj_query(qp, in, sizeof in, out, sizeof out) != 0 && errno == EINVAL);
    }
    {  // A query is not a modification, and neither is a command without object.
        COMMAND(query_cq, MLX5_CMD_OP_QUERY_CQ);
        GDA_SET(query_cq_in, in, cqn, cqn);
        EXPECT(mlx5dv_devx_obj_query(cq, in, sizeof in, out, sizeof out) == 0);
        errno = 0;
        EXPECT(mlx5dv_devx_obj_modify(cq, in, sizeof in, out, sizeof out) != 0 && errno == EINVAL);
        errno = 0;
        EXPECT(mlx5dv_devx_general_cmd(s.context, in, sizeof in, out, sizeof out) != 0 && errno == EINVAL);
    }
    {  // What the firmware lacks comes back as its status.
        COMMAND(query_qp, 0x7fe);
        errno = 0;
        EXPECT(mlx5dv_devx_general_cmd(s.context, in, sizeof in, out, sizeof out) != 0 && errno == EREMOTEIO);
        EXPECT(GDA_GET(query_qp_out, out, status) == MLX5_CMD_STAT_BAD_OP_ERR);
    }
    uint32_t number;
    EXPECT(create_cq(s, s.umem->umem_id + 1000, &number) == nullptr);  // checks status and EREMOTEIO itself
    errno = 0;
    EXPECT(mlx5dv_devx_umem_reg(s.context, nullptr, 4096, IBV_ACCESS_LOCAL_WRITE) == nullptr && errno == EFAULT);
    EXPECT(mlx5dv_devx_umem_dereg(s.umem) != 0);  // still in use
}

void check_caps(ibv_context* context) {
    COMMAND(query_hca_cap, MLX5_CMD_OP_QUERY_HCA_CAP);
    GDA_SET(query_hca_cap_in, in, op_mod, HCA_CAP_GENERAL * 2 + 1);
    EXPECT(mlx5dv_devx_general_cmd(context, in, sizeof in, out, sizeof out) == 0);
    const uint8_t* cap = out + GDA_BYTE_OFFSET(query_hca_cap_out, capability);
    EXPECT(GDA_GET(cmd_hca_cap, cap, cqe_version) == 1 && GDA_GET(cmd_hca_cap, cap, rc) == 1);
}

void check_verbs_query_by_command(const Setup& s) {
    ibv_cq* cq = ibv_create_cq(s.context, 4, nullptr, nullptr, 0);
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    ibv_qp* qp = ibv_create_qp(s.pd, &init);
    EXPECT(cq && qp);
    COMMAND(query_qp, MLX5_CMD_OP_QUERY_QP);
    GDA_SET(query_qp_in, in, qpn, qp->qp_num);
    EXPECT(mlx5dv_devx_qp_query(qp, in, sizeof in, out, sizeof out) == 0);
    EXPECT(GDA_GET(query_qp_out, out, qpc.state) == MLX5_QPC_STATE_RST);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

// Memory by file descriptor; a memfd plays a dma-buf. The address is a place in it.
void check_umem_of_a_file(const Setup& s) {
    const int fd = memfd_create("buffer", MFD_CLOEXEC);
    EXPECT(fd >= 0 && ftruncate(fd, 16384) == 0);
    mlx5dv_devx_umem_in in = {};
    in.addr = reinterpret_cast<void*>(4096);
    in.size = 8192;
    in.access = IBV_ACCESS_LOCAL_WRITE;
    in.pgsz_bitmap = 4096;
    in.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
    in.dmabuf_fd = fd;
    mlx5dv_devx_umem* umem = mlx5dv_devx_umem_reg_ex(s.context, &in);
    EXPECT(umem && umem->umem_id != s.umem->umem_id);
    EXPECT(mlx5dv_devx_umem_dereg(umem) == 0);
    in.size = 16384;  // past its end
    errno = 0;
    EXPECT(!mlx5dv_devx_umem_reg_ex(s.context, &in) && errno == EINVAL);
    close(fd);
    errno = 0;
    EXPECT(!mlx5dv_devx_umem_reg_ex(s.context, &in) && errno == EBADF);
}

void arm(const Setup& s, uint32_t cqn, uint32_t consumer_index) {
    uint8_t record[record_bytes] = {}, doorbell[8] = {};
    GDA_SET(cq_doorbell_record, record, armed_index, consumer_index);
    __atomic_store_n(reinterpret_cast<uint32_t*>(s.slab + cq_record + 4), gda::load32(record + 4), __ATOMIC_RELEASE);
    GDA_SET(cq_doorbell, doorbell, consumer_index, consumer_index);
    GDA_SET(cq_doorbell, doorbell, cqn, cqn);
    uint64_t value;
    memcpy(&value, doorbell, sizeof value);
    auto* page = static_cast<uint8_t*>(s.uar->base_addr);
    __atomic_store_n(reinterpret_cast<uint64_t*>(page + UAR_CQ_DOORBELL), value, __ATOMIC_RELEASE);
}

bool readable(int fd, int wait_ms) {
    pollfd wanted = {fd, POLLIN, 0};
    return poll(&wanted, 1, wait_ms) == 1;
}

// Three subscriptions to one completion queue: with the event queue entry, without, and by eventfd.
void check_event_channels(const Setup& s, mlx5dv_devx_obj* cq, mlx5dv_devx_obj* qp, uint32_t cqn, uint32_t qpn) {
    const auto with_data = static_cast<mlx5dv_devx_create_event_channel_flags>(0);
    mlx5dv_devx_event_channel* full = mlx5dv_devx_create_event_channel(s.context, with_data);
    mlx5dv_devx_event_channel* bare =
        mlx5dv_devx_create_event_channel(s.context, MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA);
    const int counter = eventfd(0, EFD_CLOEXEC);
    EXPECT(full && bare && counter >= 0);
    uint16_t completion = MLX5_EVENT_TYPE_COMP, of_queue_pairs = MLX5_EVENT_TYPE_COMM_EST, unknown = 0x7f;
    EXPECT(mlx5dv_devx_subscribe_devx_event(full, cq, sizeof completion, &completion, 0x1234567890abcdef) == 0);
    EXPECT(mlx5dv_devx_subscribe_devx_event(bare, cq, sizeof completion, &completion, 77) == 0);
    EXPECT(mlx5dv_devx_subscribe_devx_event_fd(full, counter, cq, completion) == 0);
    EXPECT(mlx5dv_devx_subscribe_devx_event(full, qp, sizeof of_queue_pairs, &of_queue_pairs, 0) == 0);
    EXPECT(mlx5dv_devx_subscribe_devx_event(full, qp, sizeof completion, &completion, 0) == EINVAL);
    EXPECT(mlx5dv_devx_subscribe_devx_event(full, cq, sizeof unknown, &unknown, 0) == EINVAL);
    EXPECT(mlx5dv_devx_subscribe_devx_event(full, nullptr, sizeof completion, &completion, 0) == EINVAL);

    // The header ends in an array without a length: the entry lies behind its eight bytes.
    alignas(8) uint8_t record[sizeof(mlx5dv_devx_async_event_hdr) + GDA_BYTES_OF(eqe)] = {};
    auto* head = reinterpret_cast<mlx5dv_devx_async_event_hdr*>(record);
    const uint8_t* entry = record + sizeof *head;
    for (uint16_t i = 40; i < 43; ++i) {
        arm(s, cqn, i);
        write_eight(s, qpn, i);
        EXPECT(readable(full->fd, 5000));
        EXPECT(mlx5dv_devx_get_event(full, head, sizeof record) == sizeof record);
        EXPECT(head->cookie == 0x1234567890abcdef);
        EXPECT(GDA_GET(eqe, entry, event_type) == MLX5_EVENT_TYPE_COMP);
        const uint8_t* data = entry + GDA_BYTE_OFFSET(eqe, event_data);
        EXPECT(GDA_GET(comp_event, data, cq_number) == cqn);
    }
    write_eight(s, qpn, 43);
    EXPECT(!readable(full->fd, 20));  // not armed
    EXPECT(mlx5dv_devx_get_event(bare, head, sizeof record) == sizeof *head && head->cookie == 77);
    EXPECT(!readable(bare->fd, 0));  // what was not read in between is told once
    uint64_t events = 0;
    EXPECT(read(counter, &events, sizeof events) == sizeof events && events == 3);
    mlx5dv_devx_destroy_event_channel(full);
    arm(s, cqn, 44);
    write_eight(s, qpn, 44);  // one channel is gone, the other hears of it
    EXPECT(readable(bare->fd, 5000));
    mlx5dv_devx_destroy_event_channel(bare);
    close(counter);
}

void check_asynchronous_command(const Setup& s, mlx5dv_devx_obj* qp, uint32_t qpn) {
    mlx5dv_devx_cmd_comp* channel = mlx5dv_devx_create_cmd_comp(s.context);
    EXPECT(channel);
    COMMAND(query_qp, MLX5_CMD_OP_QUERY_QP);
    GDA_SET(query_qp_in, in, qpn, qpn);
    EXPECT(mlx5dv_devx_obj_query_async(qp, in, sizeof in, sizeof out, 0xfeedface12345678, channel) == 0);
    alignas(8) uint8_t record[sizeof(mlx5dv_devx_async_cmd_hdr) + sizeof out] = {};
    auto* head = reinterpret_cast<mlx5dv_devx_async_cmd_hdr*>(record);
    EXPECT(readable(channel->fd, 5000));
    EXPECT(mlx5dv_devx_get_async_cmd_comp(channel, head, sizeof record) == 0);
    EXPECT(head->wr_id == 0xfeedface12345678);
    EXPECT(GDA_GET(query_qp_out, record + sizeof *head, qpc.remote_qpn) == qpn);
    GDA_SET(query_qp_in, in, qpn, qpn + 1);  // of another object
    EXPECT(mlx5dv_devx_obj_query_async(qp, in, sizeof in, sizeof out, 1, channel) == EINVAL);
    EXPECT(!readable(channel->fd, 0));
    mlx5dv_devx_destroy_cmd_comp(channel);
}

}  // namespace

int main() {
    const Setup s = set_up();
    check_caps(s.context);
    uint32_t cqn, qpn;
    mlx5dv_devx_obj* cq = create_cq(s, s.umem->umem_id, &cqn);
    EXPECT(cq);
    mlx5dv_devx_obj* qp = create_qp(s, cqn, &qpn);
    connect_to_itself(s, qp, qpn);
    for (uint16_t i = 0; i < 40; ++i) {  // more than two laps of both rings
        memcpy(s.slab + payload, &i, sizeof i);
        write_eight(s, qpn, i);
        EXPECT(memcmp(s.slab + payload, s.slab + payload + 8, 8) == 0);
    }
    check_refusals(s, cq, qp, cqn, qpn);
    check_verbs_query_by_command(s);
    check_event_channels(s, cq, qp, cqn, qpn);
    check_asynchronous_command(s, qp, qpn);
    check_umem_of_a_file(s);
    EXPECT(mlx5dv_devx_obj_destroy(qp) == 0 && mlx5dv_devx_obj_destroy(cq) == 0);
    EXPECT(mlx5dv_devx_umem_dereg(s.umem) == 0 && ibv_dereg_mr(s.mr) == 0);
    mlx5dv_devx_free_uar(s.uar);
    EXPECT(ibv_dealloc_pd(s.pd) == 0 && ibv_close_device(s.context) == 0);
    EXPECT(objects() == 0);

    // Everything left behind.
    const Setup again = set_up();
    cq = create_cq(again, again.umem->umem_id, &cqn);
    qp = create_qp(again, cqn, &qpn);
    connect_to_itself(again, qp, qpn);
    EXPECT(objects() > 0 && ibv_close_device(again.context) == 0 && objects() == 0);
    return 0;
}
