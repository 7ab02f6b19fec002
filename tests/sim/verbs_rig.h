// SPDX-License-Identifier: Apache-2.0
// What the benchmarks and checks in C share: an opened device, connected RC queue pairs, one write; through
// ordinary verbs. Whatever fails ends the program.
#pragma once

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "expect.h"

struct rig {
    struct ibv_context* context;
    struct ibv_pd* pd;
    struct ibv_cq* cq;
};

struct address {  // what a peer must know
    union ibv_gid gid;
    uint64_t at;
    uint32_t qpn, rkey;
};

static inline double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static inline void rest_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static inline void open_rig(struct rig* r, int entries) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    EXPECT(list && list[0]);
    EXPECT(r->context = ibv_open_device(list[0]));
    ibv_free_device_list(list);
    EXPECT(r->pd = ibv_alloc_pd(r->context));
    EXPECT(r->cq = ibv_create_cq(r->context, entries, NULL, NULL, 0));
}

static inline void close_rig(struct rig* r) {
    EXPECT(!ibv_destroy_cq(r->cq));
    EXPECT(!ibv_dealloc_pd(r->pd));
    EXPECT(!ibv_close_device(r->context));
}

static inline struct ibv_qp* make_qp(struct rig* r, uint32_t depth) {
    struct ibv_qp_init_attr init = {.send_cq = r->cq, .recv_cq = r->cq, .qp_type = IBV_QPT_RC};
    init.cap.max_send_wr = depth;
    init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    struct ibv_qp* qp = ibv_create_qp(r->pd, &init);
    EXPECT(qp);
    return qp;
}

static inline void connect_to(struct ibv_qp* qp, uint32_t peer, const union ibv_gid* gid) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    EXPECT(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_4096;
    a.dest_qp_num = peer;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 12;
    a.ah_attr.is_global = a.ah_attr.port_num = a.ah_attr.grh.sgid_index = 1;
    a.ah_attr.grh.hop_limit = 64;
    a.ah_attr.grh.dgid = *gid;
    EXPECT(!ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    EXPECT(!ibv_modify_qp(
        qp, &a,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void post_write(struct ibv_qp* qp, struct ibv_mr* from, uint32_t bytes, uint64_t to, uint32_t rkey) {
    struct ibv_sge sge = {(uintptr_t)from->addr, bytes, from->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = to;
    wr.wr.rdma.rkey = rkey;
    EXPECT(!ibv_post_send(qp, &wr, &bad));
}

// Waits for up to `most` completions, at least one; gives up after ten seconds.
static inline int take_completions(struct ibv_cq* cq, int most) {
    struct ibv_wc wc[32];
    const double limit = now_us() + 10e6;
    for (;;) {
        const int n = ibv_poll_cq(cq, most < 32 ? most : 32, wc);
        EXPECT(n >= 0);
        for (int i = 0; i < n; ++i) EXPECT(wc[i].status == IBV_WC_SUCCESS);
        if (n) return n;
        EXPECT(now_us() < limit);
    }
}
