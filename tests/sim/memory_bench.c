// SPDX-License-Identifier: Apache-2.0
// How much memory the software NIC takes for a memory region and for an idle queue pair, beside what libibverbs and
// libmlx5 take for the same. It stands between the program and the allocator and counts apart what those two libraries
// ask for; the rest of the heap's growth is the NIC's. Prints one JSON object; run by test_uverbs.py and by whoever
// fills docs/figures.md:
//   cc -O2 tests/sim/memory_bench.c -libverbs; python -m gda sim run -- ./a.out [QUEUE_PAIRS [REGIONS]]
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <malloc.h>

#include "verbs_rig.h"

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

enum { HEADER = 8 };  // bytes that the allocator keeps beside each block

static struct {
    uintptr_t begin, end;
} ranges[64];
static int range_count;
static long theirs;

static int add_range(struct dl_phdr_info* info, size_t size, void* unused) {
    (void)size, (void)unused;
    if (!strstr(info->dlpi_name, "libibverbs") && !strstr(info->dlpi_name, "libmlx5")) return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)* part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        EXPECT(range_count < 64);
        ranges[range_count].begin = info->dlpi_addr + part->p_vaddr;
        ranges[range_count++].end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
    return 0;
}

static void count(void* block, const void* caller, int sign) {
    if (!block) return;
    for (int i = 0; i < range_count; ++i) {
        if ((uintptr_t)caller < ranges[i].begin || (uintptr_t)caller >= ranges[i].end) continue;
        __atomic_fetch_add(&theirs, sign * (long)(malloc_usable_size(block) + HEADER), __ATOMIC_RELAXED);
    }
}

#define CALLER __builtin_return_address(0)
void* malloc(size_t bytes) {
    void* block = __libc_malloc(bytes);
    count(block, CALLER, 1);
    return block;
}
void* calloc(size_t n, size_t bytes) {
    void* block = __libc_calloc(n, bytes);
    count(block, CALLER, 1);
    return block;
}
void* realloc(void* old, size_t bytes) {
    count(old, CALLER, -1);
    void* block = __libc_realloc(old, bytes);
    count(block, CALLER, 1);
    return block;
}
int posix_memalign(void** block, size_t alignment, size_t bytes) {
    *block = __libc_memalign(alignment, bytes);
    count(*block, CALLER, 1);
    return *block ? 0 : ENOMEM;
}
void free(void* block) {
    count(block, CALLER, -1);
    __libc_free(block);
}

static long heap(void) {
    const struct mallinfo2 all = mallinfo2();
    return (long)(all.uordblks + all.hblkhd);
}

int main(int arguments_count, char** arguments) {
    const int queue_pairs = arguments_count > 1 ? atoi(arguments[1]) : 4096;
    const int regions = arguments_count > 2 ? atoi(arguments[2]) : 65536;
    struct rig r;
    open_rig(&r, 256);
    dl_iterate_phdr(add_range, NULL);
    EXPECT(range_count >= 2);
    char* memory = aligned_alloc(4096, 4096);
    union ibv_gid gid;
    EXPECT(!ibv_query_gid(r.context, 1, 1, &gid));
    struct ibv_qp** qps = calloc((size_t)queue_pairs, sizeof *qps);
    struct ibv_mr** mrs = calloc((size_t)regions, sizeof *mrs);  // of them `mr` is the first
    struct ibv_qp* first = make_qp(&r, 64);  // what the first one of each brings about is not counted
    struct ibv_mr* mr = ibv_reg_mr(r.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
    connect_to(first, first->qp_num, &gid);

    long before = heap(), before_theirs = theirs;
    for (int i = 1; i < regions; ++i) EXPECT(mrs[i] = ibv_reg_mr(r.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE));
    const double mr_all = (double)(heap() - before) / regions, mr_theirs = (double)(theirs - before_theirs) / regions;
    for (int i = 1; i < regions; ++i) EXPECT(!ibv_dereg_mr(mrs[i]));

    before = heap(), before_theirs = theirs;
    for (int i = 0; i < queue_pairs; ++i) {
        qps[i] = make_qp(&r, 64);
        connect_to(qps[i], qps[i]->qp_num, &gid);
    }
    const double qp_all = (double)(heap() - before) / queue_pairs;
    const double qp_theirs = (double)(theirs - before_theirs) / queue_pairs;
    for (int i = 0; i < queue_pairs; ++i) EXPECT(!ibv_destroy_qp(qps[i]));
    printf("{\"region_bytes\": %.1f, \"region_library_bytes\": %.1f, ", mr_all - mr_theirs, mr_theirs);
    printf("\"queue_pair_bytes\": %.1f, \"queue_pair_library_bytes\": %.1f}\n", qp_all - qp_theirs, qp_theirs);
    EXPECT(!ibv_destroy_qp(first));
    EXPECT(!ibv_dereg_mr(mr));
    close_rig(&r);
    return 0;
}
