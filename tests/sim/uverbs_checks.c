// SPDX-License-Identifier: Apache-2.0
// One check per run, named by the first argument; run by test_uverbs.py under the preload library. Only public verbs,
// libibverbs and libmlx5 unmodified; dlsym finds the simulator's own count of objects. Exit status 0: as expected.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <linux/netlink.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "objects.h"

static struct ibv_context* open_first(void) {
    int n = 0;
    struct ibv_device** list = ibv_get_device_list(&n);
    EXPECT(list && n == 1);
    struct ibv_context* context = ibv_open_device(list[0]);
    EXPECT(context);
    ibv_free_device_list(list);
    return context;
}

struct end {
    struct ibv_pd* pd;
    struct ibv_cq* cq;
    struct ibv_qp* qp;
};

static struct ibv_qp* create_qp(struct ibv_pd* pd, struct ibv_cq* cq) {
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
    init.cap.max_send_wr = init.cap.max_recv_wr = 16;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    return ibv_create_qp(pd, &init);
}

static struct end make_end(struct ibv_context* context, struct ibv_comp_channel* channel) {
    struct end end;
    EXPECT(end.pd = ibv_alloc_pd(context));
    EXPECT(end.cq = ibv_create_cq(context, 30, NULL, channel, 0));
    EXPECT(end.qp = create_qp(end.pd, end.cq));
    return end;
}

enum {
    INIT_MASK = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
    RTS_MASK = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
        IBV_QP_MAX_QP_RD_ATOMIC,
};

static struct ibv_qp_attr init_attributes(void) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    return a;
}
static struct ibv_qp_attr rtr_attributes(struct ibv_context* context, uint32_t peer) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_4096,
                            .dest_qp_num = peer,
                            .rq_psn = 0x123456,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 12};
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.sgid_index = 1;
    a.ah_attr.grh.hop_limit = 64;
    EXPECT(ibv_query_gid(context, 1, 1, &a.ah_attr.grh.dgid) == 0);
    return a;
}
static struct ibv_qp_attr rts_attributes(void) {
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 6, .sq_psn = 0x123456, .max_rd_atomic = 1};
    return a;
}
static void connect_to(struct ibv_qp* qp, uint32_t peer) {
    struct ibv_qp_attr a = init_attributes();
    EXPECT(ibv_modify_qp(qp, &a, INIT_MASK) == 0);
    a = rtr_attributes(qp->context, peer);
    EXPECT(ibv_modify_qp(qp, &a, RTR_MASK) == 0);
    a = rts_attributes();
    EXPECT(ibv_modify_qp(qp, &a, RTS_MASK) == 0);
}

static void netlink(void) {
    EXPECT_ERRNO(socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA) < 0, EPROTONOSUPPORT);
    EXPECT_ERRNO(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA) < 0, EPROTONOSUPPORT);
    int other = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT(other >= 0);
    close(other);
}

static void queries(void) {
    struct ibv_context* context = open_first();
    struct ibv_device_attr_ex device;
    EXPECT(ibv_query_device_ex(context, NULL, &device) == 0);
    EXPECT(device.orig_attr.vendor_id == 0x2c9 && device.orig_attr.vendor_part_id == 4129);
    EXPECT(device.hca_core_clock == 1000000);
    struct ibv_port_attr port;
    EXPECT(ibv_query_port(context, 1, &port) == 0);
    EXPECT(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET && port.gid_tbl_len == 16);
    EXPECT(ibv_query_port(context, 2, &port) == EINVAL);
    struct ibv_gid_entry gids[4];
    EXPECT(ibv_query_gid_table(context, gids, 4, 0) == 4);
    EXPECT(ibv_query_gid_table(context, gids, 3, 0) == -EINVAL);
    for (int i = 0; i < 4; ++i) {
        EXPECT(gids[i].gid_index == (uint32_t)i && gids[i].port_num == 1);
        EXPECT(gids[i].gid_type == (i % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1));
        union ibv_gid gid;
        EXPECT(ibv_query_gid(context, 1, i, &gid) == 0 && memcmp(&gid, &gids[i].gid, sizeof gid) == 0);
    }
    EXPECT(gids[1].gid.raw[0] == 0xfe && gids[1].gid.raw[1] == 0x80);
    EXPECT(gids[3].gid.raw[10] == 0xff && gids[3].gid.raw[11] == 0xff && gids[3].gid.raw[12] == 127);
    uint16_t pkey = 0;
    EXPECT(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
    struct mlx5dv_context driver = {.comp_mask = MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE};
    EXPECT(mlx5dv_query_device(context, &driver) == 0);
    struct mlx5dv_clock_info clock;
    EXPECT(mlx5dv_get_clock_info(context, &clock) == 0 &&
           mlx5dv_ts_to_ns(&clock, 12345678901234567) == 12345678901234567);
    EXPECT(ibv_close_device(context) == 0);
    EXPECT(objects() == 0);
}

static void regions(void) {
    struct ibv_context* context = open_first();
    struct ibv_pd* pd = ibv_alloc_pd(context);
    const size_t page = 4096;
    char* memory = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr* mr = ibv_reg_mr(pd, memory + 100, 5000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    EXPECT(mr && mr->lkey == mr->rkey);
    EXPECT(ibv_dealloc_pd(pd) == EBUSY);
    const uint32_t first_key = mr->lkey;
    // The key stays unless the new range has more pages.
    EXPECT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
    EXPECT(mr->lkey == first_key && mr->rkey == first_key);
    struct ibv_pd* second = ibv_alloc_pd(context);
    EXPECT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, second, NULL, 0, 0) == 0 && mr->lkey == first_key);
    EXPECT(ibv_dealloc_pd(second) == EBUSY);
    EXPECT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0) == 0 && ibv_dealloc_pd(second) == 0);
    EXPECT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, page, 0) == 0 && mr->lkey == first_key);
    EXPECT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 4 * page, 0) == 0 && mr->lkey != first_key);
    EXPECT(ibv_dereg_mr(mr) == 0);
    mr = ibv_reg_mr_iova(pd, memory, page, 0, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(mr);
    EXPECT(ibv_dereg_mr(mr) == 0);
    // Refused as by the kernel: rights, empty, wrapped, unmapped, read-only.
    EXPECT_ERRNO(!ibv_reg_mr(pd, memory, page, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    EXPECT_ERRNO(!ibv_reg_mr(pd, memory, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    EXPECT_ERRNO(!ibv_reg_mr(pd, (void*)-4096l, 2 * page, 0), EINVAL);
    EXPECT_ERRNO(!ibv_reg_mr_iova(pd, memory, page, 8, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    munmap(memory + 2 * page, page);
    EXPECT_ERRNO(!ibv_reg_mr(pd, memory, 4 * page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
    mprotect(memory, page, PROT_READ);
    EXPECT_ERRNO(!ibv_reg_mr(pd, memory, page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
    mr = ibv_reg_mr(pd, memory, page, 0);
    EXPECT(mr && ibv_dereg_mr(mr) == 0);
    EXPECT_ERRNO(!ibv_reg_dmabuf_mr(pd, 0, page, 0, -1, IBV_ACCESS_LOCAL_WRITE), EBADF);
    EXPECT(ibv_dealloc_pd(pd) == 0);
    EXPECT(ibv_close_device(context) == 0);
    EXPECT(objects() == 0);
}

static void transitions(void) {
    struct ibv_context* context = open_first();
    struct end end = make_end(context, NULL);
    struct ibv_qp* qp = end.qp;
    struct ibv_qp_attr a = rts_attributes();
    EXPECT(ibv_modify_qp(qp, &a, RTS_MASK) == EINVAL);  // from RESET
    a = init_attributes();
    EXPECT(ibv_modify_qp(qp, &a, INIT_MASK & ~IBV_QP_PORT) == EINVAL);   // missing
    EXPECT(ibv_modify_qp(qp, &a, INIT_MASK | IBV_QP_SQ_PSN) == EINVAL);  // not of this transition
    a.port_num = 2;
    EXPECT(ibv_modify_qp(qp, &a, INIT_MASK) == EINVAL);
    a.port_num = 1;
    a.pkey_index = 7;
    EXPECT(ibv_modify_qp(qp, &a, INIT_MASK) == EINVAL);
    a.pkey_index = 0;
    EXPECT(ibv_modify_qp(qp, &a, INIT_MASK) == 0);
    a = rtr_attributes(context, qp->qp_num);
    EXPECT(ibv_modify_qp(qp, &a, RTR_MASK & ~IBV_QP_DEST_QPN) == EINVAL);
    a.path_mtu = 6;
    EXPECT(ibv_modify_qp(qp, &a, RTR_MASK) == EINVAL);
    a.path_mtu = IBV_MTU_1024;
    a.ah_attr.grh.sgid_index = 4;  // empty
    EXPECT(ibv_modify_qp(qp, &a, RTR_MASK) == ENODATA);
    a.ah_attr.grh.sgid_index = 16;
    EXPECT(ibv_modify_qp(qp, &a, RTR_MASK) == EINVAL);
    a.ah_attr.grh.sgid_index = 1;
    a.ah_attr.is_global = 0;
    EXPECT(ibv_modify_qp(qp, &a, RTR_MASK) == EINVAL);
    a.ah_attr.is_global = 1;
    EXPECT(ibv_modify_qp(qp, &a, RTR_MASK) == 0);
    EXPECT(ibv_modify_qp(qp, &a, RTR_MASK) == EINVAL);  // again
    a = rts_attributes();
    EXPECT(ibv_modify_qp(qp, &a, RTS_MASK & ~IBV_QP_SQ_PSN) == EINVAL);
    EXPECT(ibv_modify_qp(qp, &a, RTS_MASK) == 0);

    struct ibv_qp_init_attr init;
    memset(&a, 0, sizeof a);
    EXPECT(ibv_query_qp(qp, &a, IBV_QP_STATE, &init) == 0);
    EXPECT(a.qp_state == IBV_QPS_RTS && a.path_mtu == IBV_MTU_1024 && a.dest_qp_num == qp->qp_num);
    EXPECT(a.timeout == 14 && a.retry_cnt == 7 && a.rnr_retry == 6 && a.min_rnr_timer == 12 && a.port_num == 1);
    EXPECT(a.ah_attr.grh.sgid_index == 1 && a.ah_attr.grh.hop_limit == 64 && a.ah_attr.is_global == 1);
    EXPECT((a.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) && a.rq_psn == 0x123456);
    EXPECT(a.cap.max_recv_wr == 16 && a.cap.max_recv_sge >= 1);

    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_ERR;
    EXPECT(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT) == EINVAL);
    EXPECT(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0);
    EXPECT(ibv_query_qp(qp, &a, IBV_QP_STATE, &init) == 0 && a.qp_state == IBV_QPS_ERR);
    a = init_attributes();
    EXPECT(ibv_modify_qp(qp, &a, INIT_MASK) == EINVAL);  // from ERR only to RESET
    a.qp_state = IBV_QPS_RESET;
    EXPECT(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0);
    EXPECT(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0);
    connect_to(qp, qp->qp_num);  // a queue pair can be used again
    EXPECT(ibv_destroy_cq(end.cq) == EBUSY);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(end.cq) == 0 && ibv_dealloc_pd(end.pd) == 0);

    EXPECT_ERRNO(!ibv_create_cq(context, 1 << 30, NULL, NULL, 0), EINVAL);
    EXPECT_ERRNO(!ibv_create_cq(context, 10, NULL, NULL, 99), EINVAL);
    EXPECT(ibv_close_device(context) == 0);
    EXPECT(objects() == 0);
}

// An 8-byte write to itself whose completion is waited for on the channel.
static void write_and_wait(struct end* end, struct ibv_mr* mr, struct ibv_comp_channel* channel, int wait_ms) {
    EXPECT(ibv_req_notify_cq(end->cq, 0) == 0);
    struct ibv_sge sge = {(uintptr_t)mr->addr, 8, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 7,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)mr->addr + 8;
    wr.wr.rdma.rkey = mr->rkey;
    EXPECT(ibv_post_send(end->qp, &wr, &bad) == 0);
    struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
    EXPECT(poll(&ready, 1, wait_ms) == 1);
}

static void events(void) {
    struct ibv_context* context = open_first();
    struct ibv_comp_channel* channel = ibv_create_comp_channel(context);
    EXPECT(channel);
    struct end end = make_end(context, channel);
    connect_to(end.qp, end.qp->qp_num);
    char buffer[16] = "12345678";
    struct ibv_mr* mr = ibv_reg_mr(end.pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    EXPECT(mr);
    EXPECT(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    struct ibv_cq* cq;
    void* user;
    EXPECT_ERRNO(ibv_get_cq_event(channel, &cq, &user) != 0, EAGAIN);
    for (int i = 0; i < 3; ++i) {
        write_and_wait(&end, mr, channel, 5000);
        EXPECT(ibv_get_cq_event(channel, &cq, &user) == 0 && cq == end.cq);
        struct ibv_wc wc;
        EXPECT(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == 7);
    }
    EXPECT(memcmp(buffer, buffer + 8, 8) == 0);
    ibv_ack_cq_events(end.cq, 3);
    // An event that nobody reads must not make the destroy wait.
    write_and_wait(&end, mr, channel, 5000);
    EXPECT(ibv_destroy_qp(end.qp) == 0 && ibv_destroy_cq(end.cq) == 0);
    EXPECT_ERRNO(ibv_get_cq_event(channel, &cq, &user) != 0, EAGAIN);
    EXPECT(ibv_destroy_comp_channel(channel) == 0);
    EXPECT(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(end.pd) == 0 && ibv_close_device(context) == 0);
    EXPECT(objects() == 0);
}

// A completion queue that nobody reads overruns: the program hears of it, and may leave the news unread.
static void asynchronous(void) {
    struct ibv_context* context = open_first();
    struct end end = make_end(context, NULL);
    EXPECT(ibv_destroy_qp(end.qp) == 0 && ibv_destroy_cq(end.cq) == 0);
    EXPECT(end.cq = ibv_create_cq(context, 1, NULL, NULL, 0));
    EXPECT(end.cq->cqe < 16);
    EXPECT(end.qp = create_qp(end.pd, end.cq));
    connect_to(end.qp, end.qp->qp_num);
    char buffer[16];
    struct ibv_mr* mr = ibv_reg_mr(end.pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    for (int i = 0; i <= end.cq->cqe + 1; ++i) {
        struct ibv_sge sge = {(uintptr_t)mr->addr, 8, mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED},
                           *bad;
        wr.wr.rdma.remote_addr = (uintptr_t)mr->addr + 8;
        wr.wr.rdma.rkey = mr->rkey;
        EXPECT(ibv_post_send(end.qp, &wr, &bad) == 0);
    }
    struct pollfd ready = {.fd = context->async_fd, .events = POLLIN};
    EXPECT(poll(&ready, 1, 5000) == 1);
    struct ibv_async_event event;
    EXPECT(ibv_get_async_event(context, &event) == 0);
    EXPECT(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == end.cq);
    ibv_ack_async_event(&event);
    EXPECT(ibv_destroy_qp(end.qp) == 0 && ibv_destroy_cq(end.cq) == 0);  // what was not read does not count
    EXPECT(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(end.pd) == 0 && ibv_close_device(context) == 0);
    EXPECT(objects() == 0);
}

static void* poll_for_ever(void* cq) {
    struct ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 0) continue;
    return NULL;
}

// The process ends while its threads are inside the NIC.
static void ending(void) {
    struct ibv_context* context = open_first();
    for (int i = 0; i < 3; ++i) {
        struct end end = make_end(context, NULL);
        connect_to(end.qp, end.qp->qp_num);
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, poll_for_ever, end.cq) == 0);
    }
    usleep(2000);
    exit(0);
}

static void leftovers(void) {
    struct ibv_context* context = open_first();
    for (int i = 0; i < 3; ++i) {
        struct end end = make_end(context, i ? ibv_create_comp_channel(context) : NULL);
        connect_to(end.qp, end.qp->qp_num);
        EXPECT(ibv_reg_mr(end.pd, malloc(100), 100, IBV_ACCESS_LOCAL_WRITE));
    }
    EXPECT(objects() > 0);
    EXPECT(ibv_close_device(context) == 0);
    EXPECT(objects() == 0);
    context = open_first();  // a second life in the same process
    make_end(context, NULL);
    exit(0);  // and an exit with everything open
}

static void* open_and_close(void* argument) {
    for (int i = 0; i < 5; ++i) {
        struct ibv_context* context = open_first();
        make_end(context, NULL);
        EXPECT(ibv_close_device(context) == 0);
    }
    return argument;
}

static void threads(void) {
    pthread_t all[6];
    for (int i = 0; i < 6; ++i) EXPECT(pthread_create(&all[i], NULL, open_and_close, NULL) == 0);
    for (int i = 0; i < 6; ++i) EXPECT(pthread_join(all[i], NULL) == 0);
    EXPECT(objects() == 0);
}

static void children(void) {
    struct ibv_context* context = open_first();
    struct end end = make_end(context, NULL);
    connect_to(end.qp, end.qp->qp_num);
    pid_t child = fork();
    if (child == 0) {
        struct ibv_wc wc;
        EXPECT(ibv_poll_cq(end.cq, 1, &wc) == 0);  // reads memory it has a copy of
        EXPECT(ibv_alloc_pd(context) == NULL);     // the parent's context is not the child's
        struct ibv_context* own = open_first();    // but it may open the device for itself
        EXPECT(ibv_alloc_pd(own) != NULL);
        EXPECT(ibv_close_device(own) == 0 && objects() == 0);
        close(context->cmd_fd);
        exit(0);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(system("true") == 0 && system("exit 3") == 3 << 8);
    child = vfork();
    if (child == 0) {  // shares our memory: what it closes must stay open here
        for (int fd = 3; fd < 100; ++fd) close(fd);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    struct ibv_pd* pd = ibv_alloc_pd(context);
    EXPECT(pd && ibv_dealloc_pd(pd) == 0);
    EXPECT(ibv_close_device(context) == 0);
    EXPECT(objects() == 0);
}

// A descriptor closed behind the back of libibverbs, and its number used again.
static void stolen(void) {
    struct ibv_context* context = open_first();
    make_end(context, NULL);
    int other = open("/dev/null", O_RDWR);
    EXPECT(dup2(other, context->cmd_fd) == context->cmd_fd);
    EXPECT(ibv_alloc_pd(context) == NULL);
    EXPECT(objects() == 0);
    EXPECT(write(context->cmd_fd, "x", 1) == 1);  // it is /dev/null now
}

// Buffers that are not there are EFAULT, as from the kernel: of the header, of an input, of an answer.
static void pointers(void) {
    struct ibv_context* context = open_first();
    void* nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    union {
        struct ib_uverbs_query_port question;
        uint64_t answer[8];
    } room = {.question = {.port_num = 1}};
    struct {
        struct ib_uverbs_ioctl_hdr header;
        struct ib_uverbs_attr attributes[3];
    } call = {.header = {.length = sizeof call,
                         .object_id = UVERBS_OBJECT_DEVICE,
                         .method_id = UVERBS_METHOD_INVOKE_WRITE,
                         .num_attrs = 3}};
    struct ib_uverbs_attr* a = call.attributes;
    a[0] = (struct ib_uverbs_attr){
        .attr_id = UVERBS_ATTR_WRITE_CMD, .len = sizeof(uint64_t), .data = IB_USER_VERBS_CMD_QUERY_PORT};
    a[1] = (struct ib_uverbs_attr){.attr_id = UVERBS_ATTR_CORE_IN, .len = 24, .data = (uintptr_t)&room};
    a[2] = (struct ib_uverbs_attr){.attr_id = UVERBS_ATTR_CORE_OUT, .len = 64, .data = (uintptr_t)&room};
    EXPECT(ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &call) == 0);
    EXPECT_ERRNO(ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, nowhere) == -1, EFAULT);
    memset(&room, 0, sizeof room);
    room.question.port_num = 1;
    a[2].data = (uintptr_t)nowhere;
    EXPECT_ERRNO(ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &call) == -1, EFAULT);
    a[1].data = (uintptr_t)nowhere;
    EXPECT_ERRNO(ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &call) == -1, EFAULT);
    EXPECT(ibv_close_device(context) == 0);
}

int main(int count, char** arguments) {
    static const struct {
        const char* name;
        void (*check)(void);
    } checks[] = {{"netlink", netlink},         {"queries", queries},     {"regions", regions},
                  {"transitions", transitions}, {"events", events},       {"asynchronous", asynchronous},
                  {"ending", ending},           {"leftovers", leftovers}, {"threads", threads},
                  {"children", children},       {"stolen", stolen},       {"pointers", pointers}};
    for (size_t i = 0; count == 2 && i < sizeof checks / sizeof *checks; ++i) {
        if (strcmp(checks[i].name, arguments[1]) != 0) continue;
        checks[i].check();
        return 0;
    }
    fprintf(stderr, "usage: %s CHECK\n", arguments[0]);
    return 2;
}
