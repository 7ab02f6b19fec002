// SPDX-License-Identifier: Apache-2.0
// Memory of the card's own: what programs copy there and peers write, read and add to; what is refused; that all of it
// can be taken, given back and taken again. Run by test_uverbs.py under the preload library. Exit status 0: as
// expected.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "verbs_rig.h"

enum { PAGE = 4096, BYTES = PAGE + 192, OFFSET = 72 };
enum {
    ALL_RIGHTS = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_REMOTE_ATOMIC
};

static struct ibv_dm* allocate(struct ibv_context* context, size_t bytes, uint32_t log_alignment) {
    struct ibv_alloc_dm_attr wanted = {.length = bytes, .log_align_req = log_alignment};
    errno = 0;
    return ibv_alloc_dm(context, &wanted);
}

static void do_work(struct rig* r, struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_sge sge) {
    struct ibv_send_wr* bad;
    wr->sg_list = &sge;
    wr->num_sge = 1;
    wr->send_flags = IBV_SEND_SIGNALED;
    EXPECT(!ibv_post_send(qp, wr, &bad));
    EXPECT(take_completions(r->cq, 1) == 1);
}

// A write into it, an atomic there, and a write out of it; addresses count from where the region begins.
static void peers_reach_it(struct rig* r) {
    struct ibv_dm* dm = allocate(r->context, BYTES, 0);
    EXPECT(dm);
    static uint32_t host[64], back[64];
    struct ibv_mr* mr = ibv_reg_mr(r->pd, host, sizeof host, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_mr* inside = ibv_reg_dm_mr(r->pd, dm, OFFSET, BYTES - OFFSET, ALL_RIGHTS);
    EXPECT(mr && inside);
    struct ibv_qp* qp = make_qp(r, 8);
    union ibv_gid gid;
    EXPECT(!ibv_query_gid(r->context, 1, 1, &gid));
    struct ibv_qp_attr more = {.qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_WRITE};
    connect_to(qp, qp->qp_num, &gid);
    EXPECT(!ibv_modify_qp(qp, &more, IBV_QP_ACCESS_FLAGS));

    for (int i = 0; i < 64; ++i) host[i] = 1000 + i;
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {.remote_addr = 4, .rkey = inside->rkey}};
    do_work(r, qp, &wr, (struct ibv_sge){(uintptr_t)host, sizeof host, mr->lkey});
    EXPECT(!ibv_memcpy_from_dm(back, dm, OFFSET + 4, sizeof back));
    EXPECT(!memcmp(back, host, sizeof host));

    uint64_t value = 40;
    EXPECT(!ibv_memcpy_to_dm(dm, OFFSET + 1024, &value, sizeof value));
    struct ibv_send_wr add = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
    add.wr.atomic.remote_addr = 1024;
    add.wr.atomic.compare_add = 2;
    add.wr.atomic.rkey = inside->rkey;
    do_work(r, qp, &add, (struct ibv_sge){(uintptr_t)host, 8, mr->lkey});
    EXPECT(!ibv_memcpy_from_dm(&value, dm, OFFSET + 1024, sizeof value));
    EXPECT(value == 42);
    memcpy(&value, host, sizeof value);
    EXPECT(value == 40);

    struct ibv_send_wr out = {.opcode = IBV_WR_RDMA_WRITE,
                              .wr.rdma = {.remote_addr = (uintptr_t)host, .rkey = mr->rkey}};
    do_work(r, qp, &out, (struct ibv_sge){4, sizeof host, inside->lkey});
    EXPECT(!memcmp(back, host, sizeof host));

    // In use it cannot be freed, and a region of it cannot become one of something else.
    EXPECT(ibv_free_dm(dm) == EBUSY);
    EXPECT(ibv_rereg_mr(inside, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_RIGHTS) != 0);
    EXPECT(!ibv_destroy_qp(qp) && !ibv_dereg_mr(inside) && !ibv_dereg_mr(mr) && !ibv_free_dm(dm));
}

static void what_is_refused(struct rig* r) {
    EXPECT(!allocate(r->context, PAGE, 13) && errno == EINVAL);
    EXPECT(!allocate(r->context, 0, 0) && errno == EINVAL);
    struct ibv_dm* dm = allocate(r->context, PAGE, 12);
    EXPECT(dm);
    const struct {
        size_t offset, bytes;
        int access;
    } wrong[] = {{0, PAGE, ALL_RIGHTS & ~IBV_ACCESS_ZERO_BASED},
                 {0, PAGE + 1, ALL_RIGHTS},
                 {1, PAGE, ALL_RIGHTS},
                 {~(size_t)0, 2, ALL_RIGHTS},
                 {0, PAGE, ALL_RIGHTS & ~IBV_ACCESS_LOCAL_WRITE},
                 {0, PAGE, ALL_RIGHTS | IBV_ACCESS_MW_BIND}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        errno = 0;
        EXPECT(!ibv_reg_dm_mr(r->pd, dm, wrong[i].offset, wrong[i].bytes, wrong[i].access));
        EXPECT(errno == EINVAL);
    }
    struct ibv_mr* empty = ibv_reg_dm_mr(r->pd, dm, PAGE, 0, ALL_RIGHTS);  // as the kernel: there is nothing to reach
    EXPECT(empty && !ibv_dereg_mr(empty));
    EXPECT(!ibv_free_dm(dm));
}

// All contexts of a NIC share what there is; what one freed is empty for the next.
static void all_of_it(struct rig* r) {
    struct ibv_device_attr_ex attributes;
    EXPECT(!ibv_query_device_ex(r->context, NULL, &attributes));
    enum { PIECES = 32 };
    EXPECT(attributes.max_dm_size == PIECES * PAGE);
    struct ibv_context* other = ibv_open_device(r->context->device);
    EXPECT(other);
    for (int round = 0; round < 2; ++round) {
        struct ibv_dm* piece[PIECES];
        for (int i = 0; i < PIECES; ++i) {
            uint32_t word = 1;
            EXPECT(piece[i] = allocate(i % 2 ? other : r->context, 64, 0));
            EXPECT(!ibv_memcpy_from_dm(&word, piece[i], 60, 4) && word == 0);
            word = 7;
            EXPECT(!ibv_memcpy_to_dm(piece[i], 60, &word, 4));
        }
        EXPECT(!allocate(other, 4, 0) && errno == ENOMEM);
        EXPECT(!ibv_free_dm(piece[5]) && !ibv_free_dm(piece[7]));
        EXPECT(!allocate(other, 2 * PAGE, 0) && errno == ENOMEM);  // two pages, but not side by side
        EXPECT(piece[5] = allocate(r->context, 4, 0));
        EXPECT(piece[7] = allocate(r->context, 4, 0));
        for (int i = 0; i < PIECES; ++i) EXPECT(!ibv_free_dm(piece[i]));
    }
    EXPECT(allocate(other, PIECES * PAGE, 0));
    EXPECT(!ibv_close_device(other));  // gives back what was not freed
    struct ibv_dm* whole = allocate(r->context, PIECES * PAGE, 0);
    EXPECT(whole && !ibv_free_dm(whole));
}

static void imported(struct rig* r) {
    struct ibv_dm* dm = allocate(r->context, BYTES, 0);
    struct ibv_context* guest = ibv_import_device(fcntl(r->context->cmd_fd, F_DUPFD_CLOEXEC, 0));
    EXPECT(dm && guest);
    struct ibv_dm* same = ibv_import_dm(guest, dm->handle);
    EXPECT(same);
    uint64_t word = 0x1234567890abcdef, seen = 0;
    EXPECT(!ibv_memcpy_to_dm(dm, PAGE + 8, &word, sizeof word));
    EXPECT(!ibv_memcpy_from_dm(&seen, same, PAGE + 8, sizeof seen) && seen == word);
    EXPECT(!ibv_import_dm(guest, 12345));
    ibv_unimport_dm(same);
    EXPECT(!ibv_free_dm(dm) && !ibv_close_device(guest));
}

int main(void) {
    struct rig r;
    open_rig(&r, 64);
    peers_reach_it(&r);
    what_is_refused(&r);
    all_of_it(&r);
    imported(&r);
    close_rig(&r);
    return 0;
}
