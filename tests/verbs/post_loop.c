// SPDX-License-Identifier: Apache-2.0
// The C program that posting from Python is measured against: ibv_post_send in a loop, a request a call, on a queue
// pair given by its address. Built and called by post_bench.py.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <time.h>

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void fill(struct ibv_send_wr* wr, struct ibv_sge* sge, uint64_t addr, uint32_t lkey, uint64_t remote_addr,
                 uint32_t rkey, int i) {
    *sge = (struct ibv_sge){.addr = addr + 8 * i, .length = 8, .lkey = lkey};
    *wr = (struct ibv_send_wr){.wr_id = i, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    wr->wr.rdma.remote_addr = remote_addr + 8 * i;
    wr->wr.rdma.rkey = rkey;
}

// Nanoseconds per request of `count` posts of one prepared request; negative: refused.
double post_prepared(struct ibv_qp* qp, uint64_t addr, uint32_t lkey, uint64_t remote_addr, uint32_t rkey, int count) {
    struct ibv_send_wr wr, *bad;
    struct ibv_sge sge;
    fill(&wr, &sge, addr, lkey, remote_addr, rkey, 0);
    double start = now_ns();
    for (int i = 0; i < count; i++) {
        if (ibv_post_send(qp, &wr, &bad)) return -1;
    }
    return (now_ns() - start) / count;
}

// The same with each request built before it is posted.
double post_built(struct ibv_qp* qp, uint64_t addr, uint32_t lkey, uint64_t remote_addr, uint32_t rkey, int count) {
    struct ibv_send_wr wr, *bad;
    struct ibv_sge sge;
    double start = now_ns();
    for (int i = 0; i < count; i++) {
        fill(&wr, &sge, addr, lkey, remote_addr, rkey, i);
        if (ibv_post_send(qp, &wr, &bad)) return -1;
    }
    return (now_ns() - start) / count;
}

// Built and chained: 32 requests a call, as post_rows of gda does it.
double post_chained(struct ibv_qp* qp, uint64_t addr, uint32_t lkey, uint64_t remote_addr, uint32_t rkey, int count) {
    enum { CHAIN = 32 };
    struct ibv_send_wr wr[CHAIN], *bad;
    struct ibv_sge sge[CHAIN];
    double start = now_ns();
    for (int i = 0; i < count; i += CHAIN) {
        int now = count - i < CHAIN ? count - i : CHAIN;
        for (int j = 0; j < now; j++) {
            fill(&wr[j], &sge[j], addr, lkey, remote_addr, rkey, i + j);
            wr[j].next = j + 1 < now ? &wr[j + 1] : 0;
        }
        if (ibv_post_send(qp, wr, &bad)) return -1;
    }
    return (now_ns() - start) / count;
}
