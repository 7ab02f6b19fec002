// SPDX-License-Identifier: Apache-2.0
// What an idle engine costs and how fast it wakes, through ordinary verbs: the CPU time of its thread while nothing
// happens, the time until a doorbell is noticed that nobody helps by polling, and the answer of another process that
// has slept. Prints one JSON object; run by test_uverbs.py and by whoever fills docs/figures.md:
//   python -m gda sim run -- ./idle_bench [ROUNDS [IDLE_MS]]
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs_rig.h"

enum { QUEUE_PAIRS = 8, BYTES = 4096 };

// CPU time of the engine's thread, by its name; of this process so far.
static double engine_cpu_us(void) {
    DIR* tasks = opendir("/proc/self/task");
    EXPECT(tasks);
    double total = -1;
    for (struct dirent* entry; (entry = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE* file = fopen(path, "r");
        if (!file) continue;
        const int known = fscanf(file, "%31s", name) == 1 && !strcmp(name, "gda-sim");
        fclose(file);
        if (!known) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
        EXPECT(file = fopen(path, "r"));
        unsigned long long ns = 0;
        EXPECT(fscanf(file, "%llu", &ns) == 1);
        fclose(file);
        total = ns / 1e3;
    }
    closedir(tasks);
    EXPECT(total >= 0);
    return total;
}

static int by_value(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

// Under what name, median, 90 % and least: other programs of the machine only ever make it longer.
static void print(const char* name, double* values, int count, const char* end) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    printf("\"%s\": %.1f, \"%s_p90\": %.1f, \"%s_least\": %.1f%s", name, values[count / 2], name,
           values[count * 9 / 10], name, values[0], end);
}

static void wait_for(volatile char* at, char value) {
    const double limit = now_us() + 10e6;
    while (*at != value) {
        EXPECT(now_us() < limit);
        sched_yield();  // the thread that was woken may be on this very core
    }
}

// The other process: says who it is, and sleeps; its engine alone answers.
static void be_target(int fd) {
    struct rig r;
    open_rig(&r, 64);
    char* memory = aligned_alloc(4096, BYTES);
    memset(memory, 0, BYTES);
    struct ibv_mr* mr = ibv_reg_mr(r.pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp* qp = make_qp(&r, 16);
    struct address own = {.at = (uintptr_t)memory, .qpn = qp->qp_num, .rkey = mr->rkey}, peer;
    EXPECT(!ibv_query_gid(r.context, 1, 1, &own.gid));
    EXPECT(read(fd, &peer, sizeof peer) == sizeof peer);
    connect_to(qp, peer.qpn, &peer.gid);
    EXPECT(write(fd, &own, sizeof own) == sizeof own);
    char byte;
    (void)!read(fd, &byte, 1);
    _exit(0);
}

int main(int count, char** arguments) {
    const int rounds = count > 1 ? atoi(arguments[1]) : 5, idle_ms = count > 2 ? atoi(arguments[2]) : 1500;
    int pair[2];
    EXPECT(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    const pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        be_target(pair[1]);
    }
    close(pair[1]);

    struct rig r;
    open_rig(&r, 256);
    char* memory = aligned_alloc(4096, 2 * BYTES);
    memset(memory, 0, 2 * BYTES);
    volatile char* target = memory + BYTES;
    struct ibv_mr* mr = ibv_reg_mr(r.pd, memory, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    EXPECT(mr);
    union ibv_gid gid;
    EXPECT(!ibv_query_gid(r.context, 1, 1, &gid));
    struct ibv_qp* qps[QUEUE_PAIRS];
    for (int i = 0; i < QUEUE_PAIRS; ++i) qps[i] = make_qp(&r, 16);
    for (int i = 0; i < QUEUE_PAIRS; ++i) connect_to(qps[i], qps[i ^ 1]->qp_num, &gid);
    struct ibv_qp* away = make_qp(&r, 16);
    struct address own = {.gid = gid, .qpn = away->qp_num}, peer;
    EXPECT(write(pair[0], &own, sizeof own) == sizeof own);
    EXPECT(read(pair[0], &peer, sizeof peer) == sizeof peer);
    connect_to(away, peer.qpn, &peer.gid);

    // Not the slope right after the work, but the state in between.
    rest_ms(100);
    const double cpu = engine_cpu_us(), from = now_us();
    rest_ms(2000);
    const double idle_percent = (engine_cpu_us() - cpu) / (now_us() - from) * 100;

    double* noticed = calloc(3 * (size_t)rounds, sizeof *noticed);
    double *stored = noticed + rounds, *answered = stored + rounds;
    for (int i = 0; i < rounds; ++i) {
        rest_ms(idle_ms);
        memory[0] = (char)(i + 1);
        const double start = now_us();
        post_write(qps[0], mr, 1, (uintptr_t)target, mr->rkey);
        const double posted = now_us();
        wait_for(target, (char)(i + 1));  // nobody steps: the thread alone does it
        const double seen = now_us();
        take_completions(r.cq, 1);
        noticed[i] = seen - start;
        stored[i] = posted - start;
    }
    for (int i = 0; i < rounds; ++i) {
        rest_ms(idle_ms);
        post_write(qps[0], mr, 1, (uintptr_t)target, mr->rkey);  // so that only the other one has slept
        take_completions(r.cq, 1);
        const double start = now_us();
        post_write(away, mr, 1, peer.at, peer.rkey);
        take_completions(r.cq, 1);
        answered[i] = now_us() - start;
    }
    printf("{\"idle_percent\": %.3f, ", idle_percent);
    print("doorbell_noticed_us", noticed, rounds, ", ");
    print("store_waits_us", stored, rounds, ", ");
    print("passive_target_us", answered, rounds, "}\n");
    free(noticed);
    close(pair[0]);
    waitpid(child, NULL, 0);
    for (int i = 0; i < QUEUE_PAIRS; ++i) EXPECT(!ibv_destroy_qp(qps[i]));
    EXPECT(!ibv_destroy_qp(away));
    EXPECT(!ibv_dereg_mr(mr));
    close_rig(&r);
    return 0;
}
