// SPDX-License-Identifier: Apache-2.0
// What the driver decides about shared receive queues, unreliable services, resizing and limits: one check per run,
// named by the first argument; run by test_uverbs.py under the preload library. Public verbs, and an ioctl that no
// library would send. Exit status 0: as expected. That data arrives is for the conformance tests to show.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "objects.h"

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_cq* cq;

static void* simulator(const char* name) {
    void* function = dlsym(RTLD_DEFAULT, name);
    EXPECT(function);
    return function;
}

static void set_up(void) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    EXPECT(list && list[0]);
    EXPECT(context = ibv_open_device(list[0]));
    ibv_free_device_list(list);
    EXPECT(pd = ibv_alloc_pd(context));
    EXPECT(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
}

static void tear_down(void) {
    EXPECT(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    EXPECT(objects() == 0);
}

static struct ibv_qp* create(enum ibv_qp_type type, struct ibv_srq* srq) {
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type};
    init.cap.max_send_wr = 8;
    init.cap.max_recv_wr = srq ? 0 : 8;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    return ibv_create_qp(pd, &init);
}

static int move(struct ibv_qp* qp, enum ibv_qp_state state, int mask) {
    struct ibv_qp_attr a = {.qp_state = state, .port_num = 1, .qkey = 0x11111111, .path_mtu = IBV_MTU_1024};
    a.dest_qp_num = qp->qp_num;
    a.timeout = 14, a.retry_cnt = 7, a.rnr_retry = 7, a.min_rnr_timer = 1, a.max_rd_atomic = a.max_dest_rd_atomic = 4;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    a.ah_attr.is_global = a.ah_attr.port_num = a.ah_attr.grh.sgid_index = 1;
    EXPECT(ibv_query_gid(context, 1, 1, &a.ah_attr.grh.dgid) == 0);
    return ibv_modify_qp(qp, &a, mask | IBV_QP_STATE);
}

enum {
    RC_INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    UD_INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
    UC_RTR = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
    RC_RTR = UC_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
    RC_RTS = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
};

static struct ibv_qp_attr ask(struct ibv_qp* qp) {
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr init;
    EXPECT(ibv_query_qp(qp, &a, IBV_QP_STATE | IBV_QP_QKEY, &init) == 0);
    return a;
}

static void shared_receives(void) {
    struct ibv_device_attr device;
    EXPECT(ibv_query_device(context, &device) == 0);
    EXPECT(device.max_srq > 0 && device.max_srq_wr > 0 && device.max_srq_sge > 0);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 10, .max_sge = 3}};
    struct ibv_srq* srq = ibv_create_srq(pd, &init);
    EXPECT(srq && init.attr.max_wr >= 10 && init.attr.max_sge >= 3);
    struct ibv_srq_attr attributes;
    EXPECT(ibv_query_srq(srq, &attributes) == 0);
    EXPECT(attributes.max_wr >= 10 && attributes.max_sge >= 3 && attributes.srq_limit == 0);
    struct ibv_recv_wr receive = {0}, *bad;
    for (int i = 0; i < 5; ++i) EXPECT(ibv_post_srq_recv(srq, &receive, &bad) == 0);
    attributes.srq_limit = 3;
    EXPECT(ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT) == 0);
    memset(&attributes, 0, sizeof attributes);
    EXPECT(ibv_query_srq(srq, &attributes) == 0 && attributes.srq_limit == 3);
    attributes.srq_limit = 1000;
    EXPECT(ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT) == EINVAL);
    EXPECT(ibv_modify_srq(srq, &attributes, IBV_SRQ_MAX_WR) == EINVAL);  // mlx5 resizes none
    // Whoever receives from it keeps it alive.
    EXPECT_ERRNO(!create(IBV_QPT_UC, srq), EINVAL);
    struct ibv_qp* first = create(IBV_QPT_RC, srq);
    struct ibv_qp* second = create(IBV_QPT_UD, srq);
    EXPECT(first && second && ibv_destroy_srq(srq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
    EXPECT(ibv_destroy_qp(first) == 0 && ibv_destroy_qp(second) == 0 && ibv_destroy_srq(srq) == 0);
    struct ibv_srq_init_attr much = {.attr = {.max_wr = (uint32_t)device.max_srq_wr + 1, .max_sge = 1}};
    EXPECT_ERRNO(!ibv_create_srq(pd, &much), EINVAL);
    much.attr.max_wr = 1;
    much.attr.max_sge = (uint32_t)device.max_srq_sge + 10;
    EXPECT_ERRNO(!ibv_create_srq(pd, &much), EINVAL);
}

// The limit event comes once, when a receive is taken below it; one that nobody read does not hold up the end.
static void limit_event(void) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq* srq = ibv_create_srq(pd, &init);
    EXPECT(srq);
    static char buffer[64];
    struct ibv_mr* mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge sge = {(uintptr_t)buffer, 8, mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
    for (int i = 0; i < 4; ++i) EXPECT(ibv_post_srq_recv(srq, &receive, &bad_receive) == 0);
    struct ibv_srq_attr armed = {.srq_limit = 3};
    EXPECT(ibv_modify_srq(srq, &armed, IBV_SRQ_LIMIT) == 0);
    struct ibv_qp* qp = create(IBV_QPT_RC, srq);
    EXPECT(qp && move(qp, IBV_QPS_INIT, RC_INIT) == 0 && move(qp, IBV_QPS_RTR, RC_RTR) == 0 &&
           move(qp, IBV_QPS_RTS, RC_RTS) == 0);
    struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
                       *bad_send;
    struct pollfd ready = {.fd = context->async_fd, .events = POLLIN};
    for (int i = 0; i < 3; ++i) {
        EXPECT(ibv_post_send(qp, &send, &bad_send) == 0);
        struct ibv_wc wc;
        for (int got = 0; got < 2;) got += ibv_poll_cq(cq, 1, &wc);
    }
    EXPECT(poll(&ready, 1, 5000) == 1);
    struct ibv_async_event event;
    EXPECT(ibv_get_async_event(context, &event) == 0);
    EXPECT(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    ibv_ack_async_event(&event);
    EXPECT(poll(&ready, 1, 0) == 0);
    EXPECT(ibv_query_srq(srq, &armed) == 0 && armed.srq_limit == 0);  // disarmed by firing
    armed.srq_limit = 5;
    EXPECT(ibv_modify_srq(srq, &armed, IBV_SRQ_LIMIT) == 0);  // already below: at once, and left unread
    EXPECT(poll(&ready, 1, 5000) == 1);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0 && ibv_dereg_mr(mr) == 0);
    EXPECT(poll(&ready, 1, 0) == 0);
}

static void transitions(void) {
    struct ibv_qp* rc = create(IBV_QPT_RC, NULL);
    struct ibv_qp* uc = create(IBV_QPT_UC, NULL);
    struct ibv_qp* ud = create(IBV_QPT_UD, NULL);
    EXPECT(rc && uc && ud);
    // Each service has attributes of its own.
    EXPECT(move(ud, IBV_QPS_INIT, RC_INIT) == EINVAL && move(rc, IBV_QPS_INIT, UD_INIT) == EINVAL);
    EXPECT(move(ud, IBV_QPS_INIT, UD_INIT) == 0 && move(uc, IBV_QPS_INIT, RC_INIT) == 0);
    EXPECT(move(rc, IBV_QPS_INIT, RC_INIT) == 0 && move(rc, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS) == 0);
    EXPECT(move(uc, IBV_QPS_RTR, RC_RTR) == EINVAL && move(ud, IBV_QPS_RTR, UC_RTR) == EINVAL);
    EXPECT(move(rc, IBV_QPS_RTR, UC_RTR) == EINVAL && move(rc, IBV_QPS_RTS, RC_RTS) == EINVAL);
    EXPECT(move(uc, IBV_QPS_RTR, UC_RTR) == 0 && move(ud, IBV_QPS_RTR, 0) == 0 && move(rc, IBV_QPS_RTR, RC_RTR) == 0);
    EXPECT(move(uc, IBV_QPS_RTS, RC_RTS) == EINVAL && move(ud, IBV_QPS_RTS, 0) == EINVAL);
    EXPECT(move(uc, IBV_QPS_RTS, IBV_QP_SQ_PSN) == 0 && move(ud, IBV_QPS_RTS, IBV_QP_SQ_PSN) == 0);
    EXPECT(move(rc, IBV_QPS_RTS, RC_RTS) == 0);
    // In RTS: what may still change, and what may not.
    EXPECT(move(rc, IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER) == 0);
    EXPECT(move(rc, IBV_QPS_RTS, IBV_QP_SQ_PSN) == EINVAL && move(uc, IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER) == EINVAL);
    struct ibv_qp_attr other_key = {.qp_state = IBV_QPS_RTS, .qkey = 0x12345};
    EXPECT(ibv_modify_qp(ud, &other_key, IBV_QP_STATE | IBV_QP_QKEY) == 0);
    EXPECT(ask(ud).qkey == 0x12345 && ask(ud).qp_state == IBV_QPS_RTS);
    // mlx5 has no command that drains a send queue, so nobody gets into SQD, or out by saying that he was there.
    for (int i = 0; i < 3; ++i) {
        struct ibv_qp* of[] = {rc, uc, ud};
        struct ibv_qp_attr drain = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
        EXPECT(ibv_modify_qp(of[i], &drain, IBV_QP_STATE) == EINVAL);
        EXPECT(ibv_modify_qp(of[i], &drain, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == EINVAL);
        struct ibv_qp_attr resume = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD};
        EXPECT(ibv_modify_qp(of[i], &resume, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
        EXPECT(ask(of[i]).qp_state == IBV_QPS_RTS && !ask(of[i]).sq_draining);
    }
    struct ibv_qp* all[] = {rc, uc, ud};
    for (int i = 0; i < 3; ++i) {
        EXPECT(move(all[i], IBV_QPS_ERR, 0) == 0 && ask(all[i]).qp_state == IBV_QPS_ERR);
        EXPECT(move(all[i], IBV_QPS_RTS, 0) == EINVAL);
        EXPECT(move(all[i], IBV_QPS_RESET, 0) == 0 && ask(all[i]).qp_state == IBV_QPS_RESET);
        EXPECT(ibv_destroy_qp(all[i]) == 0);
    }
}

// What QUERY_QP says follows the traffic: numbers, and the state after an error that nobody caused by a call.
static void live_query(void) {
    static char buffer[4096];
    struct ibv_mr* mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp* qp = create(IBV_QPT_RC, NULL);
    EXPECT(mr && qp && move(qp, IBV_QPS_INIT, RC_INIT) == 0 && move(qp, IBV_QPS_RTR, RC_RTR) == 0 &&
           move(qp, IBV_QPS_RTS, RC_RTS) == 0);
    struct ibv_sge sge = {(uintptr_t)buffer, 1500, mr->lkey};  // two packets
    struct ibv_send_wr send = {.sg_list = &sge,
                               .num_sge = 1,
                               .opcode = IBV_WR_RDMA_WRITE,
                               .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    send.wr.rdma.remote_addr = (uintptr_t)buffer + 2048;
    for (uint32_t i = 0; i < 4; ++i) {
        send.wr.rdma.rkey = i < 3 ? mr->rkey : mr->rkey + 1;
        struct ibv_qp_attr a = ask(qp);
        EXPECT(a.qp_state == IBV_QPS_RTS && a.cur_qp_state == IBV_QPS_RTS && !a.sq_draining);
        EXPECT(a.sq_psn == 2 * i && a.rq_psn == 2 * i);
        EXPECT(a.retry_cnt == 7 && a.rnr_retry == 7 && a.timeout == 14);
        EXPECT(ibv_post_send(qp, &send, &bad) == 0);
        struct ibv_wc wc;
        while (ibv_poll_cq(cq, 1, &wc) == 0) continue;
        EXPECT(wc.status == (i < 3 ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR));
    }
    EXPECT(ask(qp).qp_state == IBV_QPS_ERR && ask(qp).cur_qp_state == IBV_QPS_ERR);
    EXPECT(move(qp, IBV_QPS_RTS, 0) == EINVAL);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
}

static void limits(void) {
    struct ibv_device_attr device;
    EXPECT(ibv_query_device(context, &device) == 0);
    EXPECT_ERRNO(!ibv_create_cq(context, device.max_cqe + 1, NULL, NULL, 0), EINVAL);
    EXPECT_ERRNO(!ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
    EXPECT_ERRNO(!ibv_create_cq(context, 1, NULL, NULL, context->num_comp_vectors), EINVAL);
    EXPECT(ibv_resize_cq(cq, 1000) == 0 && cq->cqe == 1023);
    EXPECT(ibv_resize_cq(cq, 1000) == 0 && cq->cqe == 1023);
    EXPECT(ibv_resize_cq(cq, device.max_cqe + 1) == EINVAL && cq->cqe == 1023);
    EXPECT(ibv_resize_cq(cq, 10) == 0 && cq->cqe == 15);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    init.cap.max_send_wr = (uint32_t)device.max_qp_wr + 1;
    errno = 0;
    EXPECT(!ibv_create_qp(pd, &init) && (errno == EINVAL || errno == ENOMEM));
    init.cap.max_send_wr = 1;
    init.cap.max_send_sge = 1000;
    EXPECT_ERRNO(!ibv_create_qp(pd, &init), EINVAL);
    init.cap.max_send_sge = 1;
    init.qp_type = IBV_QPT_RAW_PACKET;
    EXPECT_ERRNO(!ibv_create_qp(pd, &init), EOPNOTSUPP);
    struct ibv_ah_attr address = {.port_num = 1};
    EXPECT(!ibv_create_ah(pd, &address));  // RoCE addresses are global
    address.is_global = 1;
    address.grh.sgid_index = 99;
    EXPECT(!ibv_create_ah(pd, &address));
}

// Every protection domain that there is, and one more.
static void exhaustion(void) {
    struct ibv_device_attr device;
    EXPECT(ibv_query_device(context, &device) == 0);
    struct ibv_pd** all = calloc((size_t)device.max_pd + 1, sizeof *all);
    int made = 0;
    while (made <= device.max_pd && (all[made] = ibv_alloc_pd(context))) ++made;
    const int error = errno;
    EXPECT(made > device.max_pd / 2 && made <= device.max_pd && error == ENOMEM);
    EXPECT(ibv_dealloc_pd(all[--made]) == 0 && (all[made] = ibv_alloc_pd(context)));  // room again
    for (int i = 0; i <= made; ++i) EXPECT(ibv_dealloc_pd(all[i]) == 0);
    free(all);
}

// Events of the port reach every context, also one that was imported, and name the port.
static void port_events(void) {
    int (*raise)(int, unsigned) = (int (*)(int, unsigned))simulator("gda_sim_raise");
    struct ibv_context* guest = ibv_import_device(dup(context->cmd_fd));
    EXPECT(guest);
    EXPECT(raise(IBV_EVENT_PORT_ERR, 1) == 2 && raise(IBV_EVENT_DEVICE_FATAL, 1) == 2);
    EXPECT(raise(IBV_EVENT_CQ_ERR, 1) == -EINVAL && raise(IBV_EVENT_SRQ_LIMIT_REACHED, 1) == -EINVAL);
    EXPECT(raise(IBV_EVENT_PORT_ERR, 2) == -EINVAL && raise(IBV_EVENT_PORT_ERR, 0) == -EINVAL);
    struct ibv_context* both[] = {context, guest};
    for (int i = 0; i < 2; ++i) {
        struct ibv_async_event event;
        EXPECT(ibv_get_async_event(both[i], &event) == 0);
        EXPECT(event.event_type == IBV_EVENT_PORT_ERR && event.element.port_num == 1);
        ibv_ack_async_event(&event);
        EXPECT(ibv_get_async_event(both[i], &event) == 0 && event.event_type == IBV_EVENT_DEVICE_FATAL);
        ibv_ack_async_event(&event);
    }
    EXPECT(ibv_close_device(guest) == 0);
    EXPECT(raise(IBV_EVENT_GID_CHANGE, 1) == 1);
}

// A memfd plays a dma-buf: the region lies where the buffer lies, not where the program happens to have mapped it.
static void dma_buffers(void) {
    const size_t bytes = 1 << 20, offset = 0x12200, length = 0x8000, page = 4096;
    const int fd = memfd_create("buffer", MFD_CLOEXEC);
    EXPECT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    unsigned char* view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT(view != MAP_FAILED);
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    const uint64_t iova = 0x700000000200;
    struct ibv_mr* target = ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
    EXPECT(target && target->length == length);
    static unsigned char source[0x8000];
    memset(source, 0xa5, sizeof source);
    struct ibv_mr* mr = ibv_reg_mr(pd, source, sizeof source, 0);
    struct ibv_qp* qp = create(IBV_QPT_RC, NULL);
    EXPECT(mr && qp && move(qp, IBV_QPS_INIT, RC_INIT) == 0 && move(qp, IBV_QPS_RTR, RC_RTR) == 0 &&
           move(qp, IBV_QPS_RTS, RC_RTS) == 0);
    struct ibv_sge sge = {(uintptr_t)source, length, mr->lkey};
    struct ibv_send_wr send = {.sg_list = &sge,
                               .num_sge = 1,
                               .opcode = IBV_WR_RDMA_WRITE,
                               .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    send.wr.rdma.remote_addr = iova;
    send.wr.rdma.rkey = target->rkey;
    EXPECT(ibv_post_send(qp, &send, &bad) == 0);
    struct ibv_wc wc;
    int got;
    while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) continue;
    EXPECT(got == 1 && wc.status == IBV_WC_SUCCESS);
    for (size_t i = 0; i < bytes; ++i) EXPECT(view[i] == (i >= offset && i < offset + length ? 0xa5 : 0));
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
    // Refused: another place in the page, past the end, no descriptor, no buffer.
    EXPECT_ERRNO(!ibv_reg_dmabuf_mr(pd, offset, length, 0, fd, access), EINVAL);
    EXPECT_ERRNO(!ibv_reg_dmabuf_mr(pd, 0, bytes + 1, 0, fd, access), EINVAL);
    EXPECT_ERRNO(!ibv_reg_dmabuf_mr(pd, 0, page, 0, -1, access), EBADF);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    EXPECT_ERRNO(!ibv_reg_dmabuf_mr(pd, 0, page, 0, null, access), EINVAL);
    close(null);
    close(fd);
    EXPECT(ibv_dereg_mr(target) == 0);  // the region kept the buffer
    munmap(view, bytes);
}

static unsigned long long file_value(const char* name) {
    char path[256];
    snprintf(path, sizeof path, "/sys/class/infiniband/mlx5_0/ports/1/%s", name);
    FILE* file = fopen(path, "r");
    unsigned long long value = 0;
    EXPECT(file && fscanf(file, "%llu", &value) == 1);
    fclose(file);
    return value;
}

static void counter_files(void) {
    static char buffer[4096];
    struct ibv_mr* mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp* qp = create(IBV_QPT_RC, NULL);
    EXPECT(mr && qp && move(qp, IBV_QPS_INIT, RC_INIT) == 0 && move(qp, IBV_QPS_RTR, RC_RTR) == 0 &&
           move(qp, IBV_QPS_RTS, RC_RTS) == 0);
    const unsigned long long before = file_value("hw_counters/rx_write_requests");
    const unsigned long long words = file_value("counters/port_xmit_data");
    EXPECT(file_value("hw_counters/rx_read_requests") == 0 && file_value("hw_counters/packet_seq_err") == 0);
    struct ibv_sge sge = {(uintptr_t)buffer, 1024, mr->lkey};
    struct ibv_send_wr send = {.sg_list = &sge,
                               .num_sge = 1,
                               .opcode = IBV_WR_RDMA_WRITE,
                               .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    send.wr.rdma.remote_addr = (uintptr_t)buffer + 2048;
    send.wr.rdma.rkey = mr->rkey;
    for (int i = 0; i < 3; ++i) {
        EXPECT(ibv_post_send(qp, &send, &bad) == 0);
        struct ibv_wc wc;
        int got;
        while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) continue;
        EXPECT(got == 1 && wc.status == IBV_WC_SUCCESS);
    }
    EXPECT(file_value("hw_counters/rx_write_requests") == before + 3);
    EXPECT(file_value("counters/port_xmit_data") == words + 3 * 1024 / 4);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
}

// The program says how large entries of the GID table are: memory that no answer needs is not asked for.
static void vast_entries(void) {
    char room[256];
    uint64_t entries = 0;
    struct {
        struct ib_uverbs_ioctl_hdr header;
        struct ib_uverbs_attr a[4];
    } call = {{.length = sizeof call,
               .object_id = UVERBS_OBJECT_DEVICE,
               .method_id = UVERBS_METHOD_QUERY_GID_TABLE,
               .num_attrs = 4},
              {{.attr_id = UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, .len = 8, .data = (uint64_t)1 << 62},
               {.attr_id = UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, .len = 4},
               {.attr_id = UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, .len = sizeof room, .data = (uintptr_t)room},
               {.attr_id = UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, .len = 8, .data = (uintptr_t)&entries}}};
    EXPECT_ERRNO(ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &call) == -1, EINVAL);
    call.a[0].data = 64;
    EXPECT(ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &call) == 0 && entries == 4);
}

int main(int count, char** arguments) {
    static const struct {
        const char* name;
        void (*check)(void);
    } checks[] = {{"shared_receives", shared_receives},
                  {"limit_event", limit_event},
                  {"transitions", transitions},
                  {"live_query", live_query},
                  {"limits", limits},
                  {"exhaustion", exhaustion},
                  {"port_events", port_events},
                  {"counter_files", counter_files},
                  {"dma_buffers", dma_buffers},
                  {"vast_entries", vast_entries}};
    for (size_t i = 0; count == 2 && i < sizeof checks / sizeof *checks; ++i) {
        if (strcmp(checks[i].name, arguments[1]) != 0) continue;
        set_up();
        checks[i].check();
        tear_down();
        return 0;
    }
    fprintf(stderr, "usage: %s CHECK\n", arguments[0]);
    return 2;
}
