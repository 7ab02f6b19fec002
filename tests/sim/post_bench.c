// SPDX-License-Identifier: Apache-2.0
// What posting through unmodified ibv_post_send costs on the software NIC: two connected RC queue pairs in one
// process. Prints one JSON object; run by test_uverbs.py and by whoever fills docs/figures.md:
//   python -m gda sim run -- ./post_bench [ITERATIONS]
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(condition)                                                    \
    do {                                                                   \
        if (!(condition)) {                                                \
            fprintf(stderr, "line %d: %s failed\n", __LINE__, #condition); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

enum { DEPTH = 128, LARGE = 1 << 20, LARGE_FLIGHT = 8, SMALL_FLIGHT = 30 };

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void connect_to(struct ibv_qp* qp, uint32_t peer) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_4096;
    a.dest_qp_num = peer;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 12;
    a.ah_attr.is_global = a.ah_attr.port_num = a.ah_attr.grh.sgid_index = 1;
    a.ah_attr.grh.hop_limit = 64;
    MUST(!ibv_query_gid(qp->context, 1, 1, &a.ah_attr.grh.dgid));
    MUST(!ibv_modify_qp(qp, &a,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    MUST(!ibv_modify_qp(
        qp, &a,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_cq* cq;
static struct ibv_qp* qps[2];
static struct ibv_mr *source, *target;

static void post(uint32_t bytes, int slot) {
    struct ibv_sge sge = {(uintptr_t)source->addr + (uint64_t)slot * bytes, bytes, source->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)target->addr + (uint64_t)slot * bytes;
    wr.wr.rdma.rkey = target->rkey;
    MUST(!ibv_post_send(qps[0], &wr, &bad));
}

// Waits for up to `most` completions, at least one; gives up after ten seconds.
static int complete(int most) {
    struct ibv_wc wc[32];
    const double limit = now_us() + 10e6;
    for (;;) {
        const int n = ibv_poll_cq(cq, most < 32 ? most : 32, wc);
        MUST(n >= 0);
        for (int i = 0; i < n; ++i) MUST(wc[i].status == IBV_WC_SUCCESS);
        if (n) return n;
        MUST(now_us() < limit);
    }
}

static int by_value(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static double median_latency_us(int iterations) {
    double* times = malloc(sizeof *times * (size_t)iterations);
    for (int i = 0; i < iterations; ++i) {
        const double start = now_us();
        post(8, 0);
        complete(1);
        times[i] = now_us() - start;
    }
    qsort(times, (size_t)iterations, sizeof *times, by_value);
    const double median = times[iterations / 2];
    free(times);
    return median;
}

static double per_second(uint32_t bytes, int flight, int iterations) {
    const double start = now_us();
    int posted = 0, completed = 0;
    while (completed < iterations) {
        while (posted < iterations && posted - completed < flight) post(bytes, posted++ % flight);
        completed += complete(flight);
    }
    return iterations / (now_us() - start) * 1e6;
}

int main(int count, char** arguments) {
    const int iterations = count > 1 ? atoi(arguments[1]) : 20000;
    struct ibv_device** list = ibv_get_device_list(NULL);
    MUST(list && list[0]);
    struct ibv_context* context = ibv_open_device(list[0]);
    MUST(context);
    struct ibv_pd* pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
    MUST(pd && cq);
    for (int i = 0; i < 2; ++i) {
        struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
        init.cap.max_send_wr = DEPTH;
        init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
        MUST(qps[i] = ibv_create_qp(pd, &init));
    }
    connect_to(qps[0], qps[1]->qp_num);
    connect_to(qps[1], qps[0]->qp_num);
    const size_t bytes = (size_t)LARGE * LARGE_FLIGHT;
    char* memory = aligned_alloc(4096, 2 * bytes);
    MUST(memory);
    for (size_t i = 0; i < bytes; ++i) memory[i] = (char)(i * 7 + 1);
    memset(memory + bytes, 0, bytes);
    source = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
    target = ibv_reg_mr(pd, memory + bytes, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    MUST(source && target);

    median_latency_us(1000);  // warm
    const double latency_us = median_latency_us(iterations);
    // The best of three: other processes of the machine only ever make it slower.
    double messages = 0, large = 0;
    for (int i = 0; i < 3; ++i) {
        const double m = per_second(8, SMALL_FLIGHT, 5 * iterations), l = per_second(LARGE, LARGE_FLIGHT, 500);
        if (m > messages) messages = m;
        if (l > large) large = l;
    }
    MUST(memcmp(memory, memory + bytes, bytes) == 0);
    printf("{\"write_8_bytes_us\": %.2f, \"messages_per_second\": %.0f, \"write_1_mib_gb_per_second\": %.2f}\n",
           latency_us, messages, large * LARGE / 1e9);
    ibv_dereg_mr(source);
    ibv_dereg_mr(target);
    for (int i = 0; i < 2; ++i) ibv_destroy_qp(qps[i]);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    MUST(!ibv_close_device(context));
    ibv_free_device_list(list);
    free(memory);
    return 0;
}
