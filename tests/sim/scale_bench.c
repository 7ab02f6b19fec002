// SPDX-License-Identifier: Apache-2.0
// What many objects cost, through ordinary verbs: the rate of one busy queue pair among many, memory of the process per
// queue pair and per memory region, and whether traffic makes it grow. Prints one JSON object; run by test_uverbs.py
// and by whoever fills docs/figures.md:
//   python -m gda sim run -- ./scale_bench [QUEUE_PAIRS [REGIONS [MESSAGES]]]
#define _GNU_SOURCE
#include <unistd.h>

#include "verbs_rig.h"

enum { FLIGHT = 30, DEPTH = 64 };

static double resident_bytes(void) {
    long pages = 0, resident = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    EXPECT(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return (double)resident * sysconf(_SC_PAGESIZE);
}

static void move(struct rig* r, struct ibv_qp* qp, struct ibv_mr* mr, long messages) {
    for (long posted = 0, completed = 0; completed < messages;) {
        for (; posted < messages && posted - completed < FLIGHT; ++posted)
            post_write(qp, mr, 8, (uintptr_t)mr->addr + 64, mr->rkey);
        completed += take_completions(r->cq, FLIGHT);
    }
}

int main(int count, char** arguments) {
    const int most = count > 1 ? atoi(arguments[1]) : 4096;
    const int regions = count > 2 ? atoi(arguments[2]) : 65536;
    const long messages = count > 3 ? atol(arguments[3]) : 10000000;
    struct rig r;
    open_rig(&r, 256);
    char* memory = aligned_alloc(4096, 4096);
    memset(memory, 1, 4096);
    struct ibv_mr* mr = ibv_reg_mr(r.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    EXPECT(mr);
    union ibv_gid gid;
    EXPECT(!ibv_query_gid(r.context, 1, 1, &gid));
    struct ibv_qp** qps = calloc((size_t)most, sizeof *qps);
    const int steps[] = {1, 64, 1024, 4096};
    int made = 0;
    double first = 0, begin = 0;
    printf("{\"messages_per_second\": {");
    for (size_t i = 0; i < sizeof steps / sizeof *steps && made < most; ++i) {
        const int goal = steps[i] < most ? steps[i] : most;
        for (; made < goal; ++made) {
            qps[made] = make_qp(&r, DEPTH);
            connect_to(qps[made], qps[made]->qp_num, &gid);  // each to itself
            if (made == 0) {
                move(&r, qps[0], mr, 10000);  // warm
                first = resident_bytes();
                begin = now_us();
            }
        }
        double best = 0;
        for (int again = 0; again < 5; ++again) {  // other processes of the machine only ever make it slower
            const double start = now_us();
            move(&r, qps[0], mr, messages / 50);
            const double rate = messages / 50 / (now_us() - start) * 1e6;
            if (rate > best) best = rate;
        }
        printf("%s\"%d\": %.0f", i ? ", " : "", made, best);
    }
    const double per_qp = made > 1 ? (resident_bytes() - first) / (made - 1) : 0, qps_us = now_us() - begin;

    struct ibv_mr** mrs = calloc((size_t)regions, sizeof *mrs);
    memset(mrs, 0xff, (size_t)regions * sizeof *mrs);  // touched before it is counted; the first is the one above
    const double before_mrs = resident_bytes(), start = now_us();
    for (int i = 1; i < regions; ++i) EXPECT(mrs[i] = ibv_reg_mr(r.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE));
    const double per_mr = (resident_bytes() - before_mrs) / regions, registered = now_us();
    for (int i = 1; i < regions; ++i) EXPECT(!ibv_dereg_mr(mrs[i]));
    const double deregistered = now_us();

    move(&r, qps[made - 1], mr, messages / 10);
    const double before = resident_bytes();
    move(&r, qps[made - 1], mr, messages);
    const double growth = resident_bytes() - before;
    printf(
        "}, \"bytes_per_queue_pair\": %.0f, \"bytes_per_region\": %.0f, \"queue_pairs_s\": %.2f, \"register_s\": %.2f, "
        "\"deregister_s\": %.2f, \"growth_bytes\": %.0f}\n",
        per_qp, per_mr, qps_us / 1e6, (registered - start) / 1e6, (deregistered - registered) / 1e6, growth);
    for (int i = 0; i < made; ++i) EXPECT(!ibv_destroy_qp(qps[i]));
    EXPECT(!ibv_dereg_mr(mr));
    close_rig(&r);
    return 0;
}
