// SPDX-License-Identifier: Apache-2.0
// Completion queues and completion channels: CREATE_COMP_CHANNEL, CQ_CREATE, RESIZE_CQ, DESTROY_CQ.
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "sim/uverbs/context.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/events.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/objects.h"
#include "sim/uverbs/poll.h"

namespace sim::uverbs {

int Cq::destroy() {
    SIM_COMMAND_OF(command, destroy_cq, gda::prm::MLX5_CMD_OP_DESTROY_CQ);
    GDA_SET(destroy_cq_in, command.in, cqn, cqn);
    const int error = execute(command);
    if (error && error != ENODEV) return error;
    const auto reported = events::remove_cq(cqn);
    completions_reported = reported.completions;
    asynchronous_reported = reported.asynchronous;
    ring.release();
    record.release();
    return 0;
}

namespace cq {
namespace {

// At least one spare entry, then a power of two. 0 when that is more than the card has.
uint32_t log_size_for(uint32_t entries) {
    const uint32_t log_max = Nic::limits().log_max_cq_size;
    if (!entries || entries >= 1u << log_max) return 0;
    uint32_t log_size = 0;
    while (1u << log_size < entries + 1) ++log_size;
    return log_size <= log_max ? log_size : 0;
}

constexpr uint32_t doorbell_record_bytes = GDA_BYTES_OF(cq_doorbell_record);
constexpr uint32_t first_event_queue = 1;

}  // namespace

int create(Context& context, Request& request) {
    const WriteCommand command = driver_part(request);
    const auto driver = command.driver<mlx5_ib_create_cq>();
    const auto user_handle = request.value<uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
    const auto entries = request.value<uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE);
    const auto flags = request.value<uint32_t>(UVERBS_ATTR_CREATE_CQ_FLAGS);
    const auto vector = request.value<uint32_t>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR);
    if (vector >= identity::completion_vectors) return EINVAL;
    const uint32_t log_size = log_size_for(entries);
    if (!log_size) return EINVAL;
    if (driver.cqe_size != 64 && driver.cqe_size != 128) return EINVAL;
    if (driver.cqe_comp_en || (driver.flags & ~MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX)) return EOPNOTSUPP;
    if (!(driver.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX)) return EINVAL;  // there are no static pages
    if (flags & ~uint32_t{IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN})
        return EOPNOTSUPP;

    events::Listener listener;
    listener.user_handle = user_handle;
    if (int error = context.event_channel(request, UVERBS_ATTR_CREATE_CQ_EVENT_FD, &listener.asynchronous))
        return error;
    if (request.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)) {
        listener.completion = files::channel(request.file(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL));
        if (!listener.completion || listener.completion->carries() != Channel::Carries::completions) return EBADF;
    }

    auto cq = std::make_unique<Cq>();
    cq->user_handle = user_handle;
    cq->log_entries = log_size;
    cq->entry_bytes = driver.cqe_size;
    if (int error = cq->ring.reserve(driver.buf_addr, uint64_t{driver.cqe_size} << log_size)) return error;
    if (int error = cq->record.reserve(driver.db_addr, doorbell_record_bytes)) return error;
    SIM_COMMAND_OF(firmware, create_cq, gda::prm::MLX5_CMD_OP_CREATE_CQ);
    uint8_t* in = firmware.in;
    GDA_SET(create_cq_in, in, cq_context.cqe_sz, driver.cqe_size == 128 ? 1 : 0);
    GDA_SET(create_cq_in, in, cq_context.oi, !!(flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN));
    GDA_SET(create_cq_in, in, cq_context.log_cq_size, log_size);
    GDA_SET(create_cq_in, in, cq_context.uar_page, driver.uar_page_index);
    GDA_SET(create_cq_in, in, cq_context.c_eqn_or_apu_element, first_event_queue + vector);
    GDA_SET(create_cq_in, in, cq_context.dbr_umem_valid, 1);
    GDA_SET(create_cq_in, in, cq_context.dbr_umem_id, cq->record.id());
    GDA_SET(create_cq_in, in, cq_context.dbr_addr, 0);
    GDA_SET(create_cq_in, in, cq_umem_valid, 1);
    GDA_SET(create_cq_in, in, cq_umem_id, cq->ring.id());
    GDA_SET(create_cq_in, in, cq_umem_offset, 0);
    if (int error = execute(firmware)) return error;
    cq->cqn = static_cast<uint32_t>(GDA_GET(create_cq_out, firmware.out, cqn));
    events::add_cq(cq->cqn, std::move(listener));

    const mlx5_ib_create_cq_resp driver_response{cq->cqn, 0};
    command.answer_driver(driver_response);
    request.answer(UVERBS_ATTR_CREATE_CQ_RESP_CQE, (1u << log_size) - 1);
    request.set_handle(UVERBS_ATTR_CREATE_CQ_HANDLE, context.objects.add(std::move(cq)));
    poll::wrap(user_handle, context);
    return 0;
}

int create_channel(Context& context, const WriteCommand& command) {
    (void)context;  // a channel is a file of its own: it ends when it is closed
    ib_uverbs_create_comp_channel request;
    if (!command.read(&request)) return ENOSPC;
    auto channel = Channel::make(Channel::Carries::completions);
    if (!channel) return errno;
    ib_uverbs_create_comp_channel_resp response{static_cast<uint32_t>(channel->reader())};
    files::add(channel->reader(), channel);
    command.answer(response);
    return 0;
}

// The card moves to the new ring; libmlx5 then copies what is unread from the old one.
int resize(Context& context, const WriteCommand& command) {
    ib_uverbs_resize_cq request;
    if (!command.read(&request)) return ENOSPC;
    const auto driver = command.driver<mlx5_ib_resize_cq>();
    auto* cq = context.objects.find<Cq>(request.cq_handle);
    const uint32_t log_size = log_size_for(request.cqe);
    if (!cq || !log_size || driver.reserved0 || driver.reserved1) return EINVAL;
    if (driver.cqe_size != 64 && driver.cqe_size != 128) return EINVAL;
    if (log_size != cq->log_entries) {
        Umem ring;
        if (int error = ring.reserve(driver.buf_addr, uint64_t{driver.cqe_size} << log_size)) return error;
        SIM_COMMAND_OF(firmware, modify_cq, gda::prm::MLX5_CMD_OP_MODIFY_CQ);
        GDA_SET(modify_cq_in, firmware.in, op_mod, gda::prm::MLX5_CQ_OPMOD_RESIZE);
        GDA_SET(modify_cq_in, firmware.in, cqn, cq->cqn);
        GDA_SET(modify_cq_in, firmware.in, cq_context.cqe_sz, driver.cqe_size == 128 ? 1 : 0);
        GDA_SET(modify_cq_in, firmware.in, cq_context.log_cq_size, log_size);
        GDA_SET(modify_cq_in, firmware.in, cq_umem_valid, 1);
        GDA_SET(modify_cq_in, firmware.in, cq_umem_id, ring.id());
        GDA_SET(modify_cq_in, firmware.in, cq_umem_offset, 0);
        if (int error = execute(firmware)) return error;
        cq->ring.swap(ring);  // the old one is released here
        cq->log_entries = log_size;
    }
    ib_uverbs_resize_cq_resp response{};
    response.cqe = (1u << log_size) - 1;
    command.answer(response);
    return 0;
}

int destroy(Context& context, const WriteCommand& command) {
    ib_uverbs_destroy_cq request;
    if (!command.read(&request)) return ENOSPC;
    auto* cq = context.objects.find<Cq>(request.cq_handle);
    if (!cq) return EINVAL;
    if (cq->users) return EBUSY;
    if (int error = cq->destroy()) return error;
    const ib_uverbs_destroy_cq_resp response{cq->completions_reported, cq->asynchronous_reported};
    context.objects.forget(cq);
    command.answer(response);
    return 0;
}

}  // namespace cq
}  // namespace sim::uverbs
