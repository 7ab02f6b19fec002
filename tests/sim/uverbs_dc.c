// SPDX-License-Identifier: Apache-2.0
// Dynamically connected queue pairs and XRC domains by verbs: the calls of an initiator that puts from the GPU, in the
// order in which NVSHMEM's IBGDA transport makes them around its targets, then data between an initiator and a target
// made by mlx5dv_create_qp; how domains are opened by file, and a queue pair of one by its number. Run by
// test_uverbs.py under the preload library. Exit status 0: as expected.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <sys/mman.h>

#include "verbs_rig.h"

enum { SRQ_ENTRIES = 32767, CQ_ENTRIES = 32767, HEAP_BYTES = 1 << 20 };
enum {
    HEAP_RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};
static const uint64_t ACCESS_KEY = 0x1122334455667788;

// op_mod 7 of QUERY_HCA_CAP: current atomic capabilities. Offsets in bytes, from the manual.
static void check_atomics(struct ibv_context* context) {
    for (int op_mod = 1;; op_mod = op_mod == 1 ? 0x41 : 7) {
        uint8_t in[16] = {1, 0, 0, 0, 0, 0, 0, (uint8_t)op_mod}, out[16 + 4096] = {0};
        EXPECT(!mlx5dv_devx_general_cmd(context, in, sizeof in, out, sizeof out));
        const uint8_t* cap = out + 16;
        if (op_mod != 7) continue;
        EXPECT((cap[0x13] & 0xf) == 0xf);  // compare-swap, fetch-add, and both masked
        EXPECT((cap[0x17] & 0xc) == 0xc);  // of 4 and 8 bytes, for queue pairs
        EXPECT((cap[0x1b] & 0xc) == 0xc);  // and for dynamically connected ones
        return;
    }
}

static struct ibv_qp* make_driver_qp(struct rig* r, struct ibv_cq* cq, struct ibv_srq* srq, enum mlx5dv_dc_type type) {
    struct ibv_qp_init_attr_ex init = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_DRIVER, .comp_mask = IBV_QP_INIT_ATTR_PD};
    struct mlx5dv_qp_init_attr own = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC};
    init.pd = r->pd;
    own.dc_init_attr.dc_type = type;
    if (type == MLX5DV_DCTYPE_DCT) {
        own.dc_init_attr.dct_access_key = ACCESS_KEY;
    } else {
        init.cap.max_send_wr = 16, init.cap.max_send_sge = 1;
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND_WITH_IMM |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_RDMA_READ;
    }
    return mlx5dv_create_qp(r->context, &init, &own);
}

static struct ibv_qp_attr attributes_of(struct rig* r, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .path_mtu = IBV_MTU_4096, .min_rnr_timer = 1};
    attr.qp_access_flags = HEAP_RIGHTS;
    attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 64}};
    EXPECT(!ibv_query_gid(r->context, 1, 1, &attr.ah_attr.grh.dgid));
    attr.timeout = 14, attr.retry_cnt = 7, attr.rnr_retry = 7, attr.max_rd_atomic = 1;
    return attr;
}

// The number of a target exists only when it is ready to receive.
static void ready_target(struct rig* r, struct ibv_qp* target) {
    struct ibv_qp_attr attr = attributes_of(r, IBV_QPS_INIT), seen;
    struct ibv_qp_init_attr ignored;
    EXPECT(!ibv_modify_qp(target, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = attributes_of(r, IBV_QPS_RTR);
    EXPECT(ibv_modify_qp(target, &attr, IBV_QP_STATE | IBV_QP_AV) == EINVAL);
    EXPECT(!ibv_modify_qp(target, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER));
    EXPECT(target->qp_num);
    attr = attributes_of(r, IBV_QPS_RTS);
    EXPECT(ibv_modify_qp(target, &attr, IBV_QP_STATE) == EINVAL);  // it never sends
    EXPECT(!ibv_query_qp(target, &seen, IBV_QP_STATE | IBV_QP_PATH_MTU, &ignored));
    EXPECT(seen.qp_state == IBV_QPS_RTR && seen.path_mtu == IBV_MTU_4096 && seen.qp_access_flags);
}

static void ready_initiator(struct rig* r, struct ibv_qp* qp) {
    struct ibv_qp_attr attr = attributes_of(r, IBV_QPS_INIT);
    EXPECT(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT));
    attr = attributes_of(r, IBV_QPS_RTR);
    EXPECT(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV));
    attr = attributes_of(r, IBV_QPS_RTS);
    EXPECT(!ibv_modify_qp(
        qp, &attr,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void wait_for(struct ibv_cq* cq, enum ibv_wc_opcode opcode, uint32_t imm) {
    struct ibv_wc wc = {0};
    const double end = now_us() + 10e6;
    while (!ibv_poll_cq(cq, 1, &wc)) EXPECT(now_us() < end);
    EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode);
    if (imm) EXPECT(wc.imm_data == imm);
}

// One initiator speaks to two targets in turn.
static void exchange(struct rig* r, struct ibv_cq* receive_cq, struct ibv_srq* srq, struct ibv_qp* targets[2],
                     struct ibv_ah* ah, struct ibv_mr* mr) {
    struct ibv_cq* cq = ibv_create_cq(r->context, 64, NULL, NULL, 0);
    struct ibv_qp* initiator = make_driver_qp(r, cq, NULL, MLX5DV_DCTYPE_DCI);
    EXPECT(cq && initiator);
    ready_initiator(r, initiator);
    struct ibv_qp_ex* post = ibv_qp_to_qp_ex(initiator);
    struct mlx5dv_qp_ex* dc = mlx5dv_qp_ex_from_ibv_qp_ex(post);
    uint8_t* heap = mr->addr;
    for (int i = 0; i < 10; ++i) {
        struct ibv_qp* target = targets[i % 2];
        struct ibv_sge sge = {(uintptr_t)heap + 65536, 64, mr->lkey};
        struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad;
        EXPECT(!ibv_post_srq_recv(srq, &receive, &bad));
        memset(heap, i + 1, 4096);
        ibv_wr_start(post);
        post->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(post, mr->rkey, (uintptr_t)heap + 8192);
        mlx5dv_wr_set_dc_addr(dc, ah, target->qp_num, ACCESS_KEY);
        ibv_wr_set_sge(post, mr->lkey, (uintptr_t)heap, 4096);
        ibv_wr_send_imm(post, 1000 + i);
        mlx5dv_wr_set_dc_addr(dc, ah, target->qp_num, ACCESS_KEY);
        ibv_wr_set_sge(post, mr->lkey, (uintptr_t)heap, 8);
        ibv_wr_atomic_fetch_add(post, mr->rkey, (uintptr_t)heap + 16384, 3);
        mlx5dv_wr_set_dc_addr(dc, ah, targets[(i + 1) % 2]->qp_num, ACCESS_KEY);
        ibv_wr_set_sge(post, mr->lkey, (uintptr_t)heap + 32768, 8);
        EXPECT(!ibv_wr_complete(post));
        wait_for(cq, IBV_WC_RDMA_WRITE, 0);
        wait_for(cq, IBV_WC_SEND, 0);
        wait_for(cq, IBV_WC_FETCH_ADD, 0);
        wait_for(receive_cq, IBV_WC_RECV, 1000 + i);
        EXPECT(heap[8192] == i + 1 && heap[8192 + 4095] == i + 1 && heap[65536] == i + 1);
    }
    uint64_t sum;
    memcpy(&sum, heap + 16384, sizeof sum);
    EXPECT(sum == 30);
    EXPECT(!ibv_destroy_qp(initiator) && !ibv_destroy_cq(cq));
}

static void initiator_of_the_gpu(void) {
    struct rig r;
    open_rig(&r, CQ_ENTRIES);
    check_atomics(r.context);
    static uint64_t record;
    struct mlx5dv_devx_umem* umem = mlx5dv_devx_umem_reg(r.context, &record, sizeof record, IBV_ACCESS_LOCAL_WRITE);
    struct mlx5dv_devx_uar* uar = mlx5dv_devx_alloc_uar(r.context, MLX5DV_UAR_ALLOC_TYPE_NC);
    EXPECT(umem && uar);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = SRQ_ENTRIES, .max_sge = 1}};
    struct ibv_srq* srq = ibv_create_srq(r.pd, &shared);
    struct ibv_cq* cq = ibv_create_cq(r.context, CQ_ENTRIES, NULL, NULL, 0);
    EXPECT(srq && cq);
    void* heap = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr* mr = ibv_reg_mr(r.pd, heap, HEAP_BYTES, HEAP_RIGHTS);
    EXPECT(mr);
    errno = 0;
    EXPECT(!ibv_reg_dmabuf_mr(r.pd, 0, 4096, 0, -1, HEAP_RIGHTS) && errno == EBADF);  // a probe for the call
    struct ibv_qp_attr path = attributes_of(&r, IBV_QPS_RTR);
    struct ibv_ah* ah = ibv_create_ah(r.pd, &path.ah_attr);
    EXPECT(ah);
    struct ibv_qp* targets[2];
    for (int i = 0; i < 2; ++i) {
        EXPECT(targets[i] = make_driver_qp(&r, cq, srq, MLX5DV_DCTYPE_DCT));
        ready_target(&r, targets[i]);
    }
    EXPECT(targets[0]->qp_num != targets[1]->qp_num);
    EXPECT(!make_driver_qp(&r, cq, NULL, MLX5DV_DCTYPE_DCT));  // it receives from a shared queue
    exchange(&r, cq, srq, targets, ah, mr);
    EXPECT(ibv_destroy_srq(srq) == EBUSY);
    for (int i = 0; i < 2; ++i) EXPECT(!ibv_destroy_qp(targets[i]));
    EXPECT(!ibv_destroy_ah(ah) && !ibv_dereg_mr(mr) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
    mlx5dv_devx_free_uar(uar);
    EXPECT(!mlx5dv_devx_umem_dereg(umem));
    close_rig(&r);
}

static struct ibv_xrcd* open_domain(struct rig* r, int fd, int oflags) {
    struct ibv_xrcd_init_attr attr = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags};
    errno = 0;
    return ibv_open_xrcd(r->context, &attr);
}

// A domain of a file is one for all who open it; without a file each is its own.
static void domains(void) {
    struct rig r;
    open_rig(&r, 16);
    const int fd = memfd_create("domain", 0);
    EXPECT(!open_domain(&r, fd, 0) && errno == EAGAIN);
    struct ibv_xrcd* first = open_domain(&r, fd, O_CREAT);
    struct ibv_xrcd* same = open_domain(&r, fd, 0);
    struct ibv_xrcd* own = open_domain(&r, -1, O_CREAT);
    EXPECT(first && same && own);
    EXPECT(!open_domain(&r, fd, O_CREAT | O_EXCL) && errno == EINVAL);
    struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 8, .max_sge = 1}, .srq_type = IBV_SRQT_XRC};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.pd = r.pd, attr.cq = r.cq, attr.xrcd = first;
    struct ibv_srq* srq = ibv_create_srq_ex(r.context, &attr);
    uint32_t number = 0;
    EXPECT(srq && !ibv_get_srq_num(srq, &number) && number);
    EXPECT(ibv_close_xrcd(first) == EBUSY);
    EXPECT(ibv_destroy_cq(r.cq) == EBUSY);
    EXPECT(!ibv_destroy_srq(srq));
    EXPECT(!ibv_close_xrcd(first) && !ibv_close_xrcd(same) && !ibv_close_xrcd(own));
    EXPECT(!open_domain(&r, fd, 0) && errno == EAGAIN);  // the last one closed it
    close_rig(&r);
}

static struct ibv_qp* open_by_number(struct rig* r, struct ibv_xrcd* xrcd, uint32_t number, enum ibv_qp_type type) {
    struct ibv_qp_open_attr attr = {.qp_num = number, .xrcd = xrcd, .qp_type = type};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT;
    attr.qp_context = r;
    errno = 0;
    return ibv_open_qp(r->context, &attr);
}

static enum ibv_qp_state state_of(struct ibv_qp* qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr ignored;
    EXPECT(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &ignored));
    return attr.qp_state;
}

static void expect_event(struct rig* r, struct ibv_qp* qp, enum ibv_event_type type) {
    struct ibv_async_event event;
    struct pollfd there = {.fd = r->context->async_fd, .events = POLLIN};
    EXPECT(poll(&there, 1, 10000) == 1 && !ibv_get_async_event(r->context, &event));
    EXPECT(event.element.qp == qp && event.event_type == type);
    ibv_ack_async_event(&event);
}

// The receiving end of XRC is shared by the contexts that share its domain: it has one state, and lives until the last
// of them destroys it or ends; an event goes to each. Who opened one ends with its context: libmlx5's ibv_destroy_qp
// frees the doorbell record of a queue pair that never had one.
static void shared_target(void) {
    struct rig maker, user, last;
    open_rig(&maker, 16);
    open_rig(&user, 16);
    open_rig(&last, 16);
    const int fd = memfd_create("domain", 0);
    struct ibv_xrcd* first = open_domain(&maker, fd, O_CREAT);
    struct ibv_xrcd* second = open_domain(&user, fd, 0);
    struct ibv_xrcd* other = open_domain(&user, -1, O_CREAT);
    struct ibv_xrcd* third = open_domain(&last, fd, 0);
    EXPECT(first && second && other && third);
    struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = first};
    struct ibv_qp* made = ibv_create_qp_ex(maker.context, &init);
    EXPECT(made);
    struct ibv_qp* opened = open_by_number(&user, second, made->qp_num, IBV_QPT_XRC_RECV);
    EXPECT(opened && opened->qp_num == made->qp_num && opened->qp_context == &user);
    EXPECT(!open_by_number(&user, other, made->qp_num, IBV_QPT_XRC_RECV) && errno == EINVAL);
    EXPECT(!open_by_number(&user, second, made->qp_num + 1, IBV_QPT_XRC_RECV) && errno == EINVAL);
    EXPECT(!open_by_number(&user, second, made->qp_num, IBV_QPT_RC) && errno == EINVAL);

    // The one who opened it makes it ready; the one who made it sees it, and leaves.
    struct ibv_qp_init_attr_ex sends = {.qp_type = IBV_QPT_XRC_SEND, .send_cq = user.cq, .pd = user.pd};
    sends.comp_mask = IBV_QP_INIT_ATTR_PD;
    sends.cap.max_send_wr = 4, sends.cap.max_send_sge = 1;
    struct ibv_qp* sender = ibv_create_qp_ex(user.context, &sends);
    EXPECT(sender);
    const union ibv_gid gid = attributes_of(&user, IBV_QPS_RTR).ah_attr.grh.dgid;
    connect_to(sender, opened->qp_num, &gid);
    EXPECT(state_of(made) == IBV_QPS_RESET);
    connect_to(opened, sender->qp_num, &gid);
    EXPECT(state_of(made) == IBV_QPS_RTS && state_of(opened) == IBV_QPS_RTS);
    struct ibv_qp_attr back = {.qp_state = IBV_QPS_RTR};
    EXPECT(ibv_modify_qp(made, &back, IBV_QP_STATE) == EINVAL);  // it is there already

    struct ibv_srq_init_attr_ex shared = {.attr = {.max_wr = 8, .max_sge = 1}, .srq_type = IBV_SRQT_XRC};
    shared.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    shared.pd = user.pd, shared.cq = user.cq, shared.xrcd = second;
    struct ibv_srq* srq = ibv_create_srq_ex(user.context, &shared);
    static uint64_t words[2];
    struct ibv_mr* mr = ibv_reg_mr(user.pd, words, sizeof words, IBV_ACCESS_LOCAL_WRITE);
    uint32_t number;
    EXPECT(srq && mr && !ibv_get_srq_num(srq, &number));
    EXPECT(ibv_close_xrcd(first) == EBUSY);
    EXPECT(!ibv_destroy_qp(made) && !ibv_close_xrcd(first));
    close_rig(&maker);
    struct ibv_sge to = {(uintptr_t)&words[1], 8, mr->lkey}, from = {(uintptr_t)&words[0], 8, mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    send.send_flags = IBV_SEND_SIGNALED, send.qp_type.xrc.remote_srqn = number;
    words[0] = 0x1234;
    EXPECT(!ibv_post_srq_recv(srq, &receive, &bad_receive) && !ibv_post_send(sender, &send, &bad));
    wait_for(user.cq, IBV_WC_RECV, 0);
    wait_for(user.cq, IBV_WC_SEND, 0);
    EXPECT(words[1] == 0x1234);
    EXPECT(!ibv_destroy_srq(srq) && !ibv_destroy_qp(sender) && !ibv_dereg_mr(mr));
    const uint32_t was = opened->qp_num;
    EXPECT(!ibv_close_device(user.context));
    EXPECT(!open_by_number(&last, third, was, IBV_QPT_XRC_RECV) && errno == EINVAL);  // that ended it
    EXPECT(!ibv_close_xrcd(third));
    close_rig(&last);
}

// What goes wrong with it is told to everybody.
static void events_of_a_shared_target(void) {
    struct rig r[2];
    struct ibv_xrcd* xrcd[2];
    struct ibv_qp* target[2];
    const int fd = memfd_create("domain", 0);
    for (int i = 0; i < 2; ++i) {
        open_rig(&r[i], 16);
        EXPECT(xrcd[i] = open_domain(&r[i], fd, O_CREAT));
    }
    struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
    init.xrcd = xrcd[0];
    EXPECT(target[0] = ibv_create_qp_ex(r[0].context, &init));
    EXPECT(target[1] = open_by_number(&r[1], xrcd[1], target[0]->qp_num, IBV_QPT_XRC_RECV));
    struct ibv_qp_init_attr_ex sends = {.qp_type = IBV_QPT_XRC_SEND, .send_cq = r[0].cq, .pd = r[0].pd};
    sends.comp_mask = IBV_QP_INIT_ATTR_PD;
    sends.cap.max_send_wr = 4, sends.cap.max_send_sge = 1;
    struct ibv_qp* sender = ibv_create_qp_ex(r[0].context, &sends);
    EXPECT(sender);
    const union ibv_gid gid = attributes_of(&r[0], IBV_QPS_RTR).ah_attr.grh.dgid;
    connect_to(sender, target[0]->qp_num, &gid);
    connect_to(target[0], sender->qp_num, &gid);
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    send.qp_type.xrc.remote_srqn = 0x123456;  // there is none
    EXPECT(!ibv_post_send(sender, &send, &bad));
    struct ibv_wc wc;
    for (const double end = now_us() + 10e6; !ibv_poll_cq(r[0].cq, 1, &wc);) EXPECT(now_us() < end);
    EXPECT(wc.status == IBV_WC_REM_INV_REQ_ERR);
    for (int i = 0; i < 2; ++i) expect_event(&r[i], target[i], IBV_EVENT_QP_REQ_ERR);
    EXPECT(!ibv_close_device(r[1].context));
    EXPECT(!ibv_destroy_qp(sender) && !ibv_destroy_qp(target[0]) && !ibv_close_xrcd(xrcd[0]));
    close_rig(&r[0]);
}

int main(int argc, char** argv) {
    EXPECT(argc == 2);
    if (!strcmp(argv[1], "domains")) domains();
    if (!strcmp(argv[1], "shared_target")) shared_target();
    if (!strcmp(argv[1], "events_of_a_shared_target")) events_of_a_shared_target();
    if (!strcmp(argv[1], "initiator_of_the_gpu")) initiator_of_the_gpu();
    return 0;
}
