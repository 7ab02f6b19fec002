// SPDX-License-Identifier: Apache-2.0
// A device, a PD and an MR that reach a second context through a duplicate of the file descriptor, as pyverbs, MPI and
// NVSHMEM share them; the file lives as long as its last descriptor. Run by test_uverbs.py under the preload library.
// Exit status 0: as expected.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "objects.h"

static struct ibv_context* open_first(void) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    EXPECT(list && list[0]);
    struct ibv_context* context = ibv_open_device(list[0]);
    EXPECT(context);
    ibv_free_device_list(list);
    return context;
}

// Queues of an imported context are made by ioctl methods only, and their events go to its own channel.
static void import_and_use(void) {
    struct ibv_context* owner = open_first();
    struct ibv_pd* pd = ibv_alloc_pd(owner);
    static char memory[4096];
    struct ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(pd && mr);

    struct ibv_context* guest = ibv_import_device(fcntl(owner->cmd_fd, F_DUPFD_CLOEXEC, 0));
    EXPECT(guest && guest->async_fd != owner->async_fd && guest->num_comp_vectors == owner->num_comp_vectors);
    struct ibv_pd* guest_pd = ibv_import_pd(guest, pd->handle);
    EXPECT(guest_pd);
    struct ibv_mr* guest_mr = ibv_import_mr(guest_pd, mr->handle);
    EXPECT(guest_mr && guest_mr->lkey == mr->lkey && guest_mr->rkey == mr->rkey && guest_mr->length == mr->length);
    errno = 0;
    EXPECT(!ibv_import_pd(guest, 12345) && errno == ENOENT);
    EXPECT(!ibv_import_mr(guest_pd, pd->handle) && errno == ENOENT);

    struct ibv_comp_channel* channel = ibv_create_comp_channel(guest);
    struct ibv_cq* cq = ibv_create_cq(guest, 10, NULL, channel, 0);
    EXPECT(channel && cq && cq->cqe == 15);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    init.cap.max_send_wr = init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    struct ibv_qp* qp = ibv_create_qp(guest_pd, &init);
    EXPECT(qp);
    struct ibv_qp_attr attributes;
    EXPECT(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init) == 0);
    EXPECT(attributes.qp_state == IBV_QPS_RESET && init.sq_sig_all == 1);
    EXPECT(ibv_dealloc_pd(pd) == EBUSY);

    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
    ibv_unimport_mr(guest_mr);
    ibv_unimport_pd(guest_pd);
    EXPECT(ibv_close_device(guest) == 0);
    EXPECT(objects() != 0);  // the owner's are still there
    EXPECT(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(owner) == 0);
    EXPECT(objects() == 0);
}

// The guest may outlive the owner: doorbell pages are still to be had, objects end with the last descriptor.
static void outlive(void) {
    struct ibv_context* owner = open_first();
    struct ibv_pd* pd = ibv_alloc_pd(owner);
    const uint32_t handle = pd->handle;
    struct ibv_context* guest = ibv_import_device(dup(owner->cmd_fd));
    EXPECT(guest && ibv_close_device(owner) == 0);
    EXPECT(objects() != 0);
    struct ibv_pd* guest_pd = ibv_import_pd(guest, handle);
    EXPECT(guest_pd);
    struct mlx5dv_devx_uar* uar = mlx5dv_devx_alloc_uar(guest, MLX5DV_UAR_ALLOC_TYPE_NC);
    EXPECT(uar);
    *(volatile uint64_t*)uar->reg_addr = 0;
    mlx5dv_devx_free_uar(uar);
    ibv_unimport_pd(guest_pd);
    EXPECT(ibv_close_device(guest) == 0);
    EXPECT(objects() == 0);
}

// What is no device file is no device.
static void strangers(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), memory = memfd_create("other", MFD_CLOEXEC);
    EXPECT(null >= 0 && memory >= 0);
    errno = 0;
    EXPECT(!ibv_import_device(null) && !ibv_import_device(memory) && errno == EINVAL);
    EXPECT(!ibv_import_device(-1));
    // Not opened for verbs yet: nothing to import.
    int raw = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
    EXPECT(raw >= 0 && !ibv_import_device(raw));  // which also closes it
}

int main(void) {
    import_and_use();
    outlive();
    strangers();
    return 0;
}
