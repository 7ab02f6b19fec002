// SPDX-License-Identifier: Apache-2.0
// Shared receive queues: SRQ_CREATE, MODIFY_SRQ (the limit), QUERY_SRQ, DESTROY_SRQ. To the card one is an RMP, a
// "receive memory pool", as mlx5_ib makes it; the number that libmlx5 calls srqn is the RMP's.
// Source: Linux, drivers/infiniband/hw/mlx5/srq.c (sizes, limits, errors).
#include <errno.h>
#include <gda/formats/wqe.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "sim/uverbs/context.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/events.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/objects.h"

namespace sim::uverbs {

int Srq::destroy() {
    SIM_COMMAND_OF(command, destroy_rmp, gda::prm::MLX5_CMD_OP_DESTROY_RMP);
    GDA_SET(destroy_rmp_in, command.in, rmpn, srqn);
    const int error = execute(command);
    if (error && error != ENODEV) return error;
    asynchronous_reported = events::remove_srq(srqn).asynchronous;
    ring.release();
    record.release();
    return 0;
}

namespace srq {
namespace {

constexpr uint32_t segment_bytes = gda::prm::WQE_SEGMENT_BYTES;
constexpr uint32_t record_bytes = 4;                 // one counter of 16 bits
constexpr uint32_t least_stride_bytes = 32;          // libmlx5 and the driver agree on it
constexpr uint32_t attr_max_wr = 1, attr_limit = 2;  // enum ibv_srq_attr_mask

uint32_t power_above(uint32_t n) {
    uint32_t power = 1;
    while (power < n) power *= 2;
    return power;
}
uint32_t log2(uint32_t power) { return static_cast<uint32_t>(__builtin_ctz(power)); }

int arm(const Srq& srq, uint32_t limit) {
    SIM_COMMAND_OF(command, modify_rmp, gda::prm::MLX5_CMD_OP_MODIFY_RMP);
    GDA_SET(modify_rmp_in, command.in, rmp_state, gda::prm::MLX5_RMPC_STATE_RDY);
    GDA_SET(modify_rmp_in, command.in, rmpn, srq.srqn);
    GDA_SET(modify_rmp_in, command.in, bitmask.lwm, 1);
    GDA_SET(modify_rmp_in, command.in, ctx.state, gda::prm::MLX5_RMPC_STATE_RDY);
    GDA_SET(modify_rmp_in, command.in, ctx.wq.lwm, limit);
    return execute(command);
}

}  // namespace

int create(Context& context, Request& request) {
    const WriteCommand command = driver_part(request);
    const auto driver = command.driver<mlx5_ib_create_srq>();
    const Limits& l = Nic::limits();
    const auto max_wr = request.value<uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_WR);
    const auto max_sge = request.value<uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_SGE);
    const auto limit = request.value<uint32_t>(UVERBS_ATTR_CREATE_SRQ_LIMIT);
    const auto type = request.constant(UVERBS_ATTR_CREATE_SRQ_TYPE);
    if (type != IB_UVERBS_SRQT_BASIC && type != IB_UVERBS_SRQT_XRC) return EOPNOTSUPP;  // no tags
    const bool over_xrc = type == IB_UVERBS_SRQT_XRC;
    if (driver.flags || driver.reserved0 || driver.reserved1) return EINVAL;
    if (max_wr >= 1u << l.log_max_srq_size) return EINVAL;
    // A WQE: the segment that names the next one, then the data segments.
    if (max_sge > l.max_receive_wqe / segment_bytes - 1) return EINVAL;
    const uint32_t stride = power_above(std::max(least_stride_bytes, segment_bytes + max_sge * segment_bytes));
    const uint32_t entries = power_above(max_wr + 1);
    if (limit >= entries) return EINVAL;
    auto* pd = context.objects.find<Pd>(request.handle(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE));
    if (!pd) return ENOENT;
    auto* xrcd = context.objects.find<Xrcd>(request.handle(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE));
    auto* cq = context.objects.find<Cq>(request.handle(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE));
    if (over_xrc && (!xrcd || !cq)) return EINVAL;
    events::Listener listener;
    listener.user_handle = request.value<uint64_t>(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE);
    if (int error = context.event_channel(request, UVERBS_ATTR_CREATE_SRQ_EVENT_FD, &listener.asynchronous))
        return error;

    auto srq = std::make_unique<Srq>();
    srq->entries = entries;
    srq->segments = stride / segment_bytes - 1;
    if (int error = srq->ring.reserve(driver.buf_addr, uint64_t{stride} * entries)) return error;
    if (int error = srq->record.reserve(driver.db_addr, record_bytes)) return error;
    SIM_COMMAND_OF(firmware, create_rmp, gda::prm::MLX5_CMD_OP_CREATE_RMP);
    uint8_t* in = firmware.in;
    GDA_SET(create_rmp_in, in, ctx.state, gda::prm::MLX5_RMPC_STATE_RDY);
    GDA_SET(create_rmp_in, in, ctx.wq.wq_type, gda::prm::MLX5_WQ_TYPE_LINKED_LIST);
    GDA_SET(create_rmp_in, in, ctx.wq.pd, pd->pdn);
    GDA_SET(create_rmp_in, in, ctx.wq.log_wq_stride, log2(stride));
    GDA_SET(create_rmp_in, in, ctx.wq.log_wq_sz, log2(entries));
    GDA_SET(create_rmp_in, in, ctx.wq.dbr_umem_valid, 1);
    GDA_SET(create_rmp_in, in, ctx.wq.dbr_umem_id, srq->record.id());
    GDA_SET(create_rmp_in, in, ctx.wq.wq_umem_valid, 1);
    GDA_SET(create_rmp_in, in, ctx.wq.wq_umem_id, srq->ring.id());
    GDA_SET(create_rmp_in, in, ctx.wq.lwm, limit);
    if (int error = execute(firmware)) return error;
    srq->srqn = static_cast<uint32_t>(GDA_GET(create_rmp_out, firmware.out, rmpn));
    if (over_xrc) {
        Nic nic;
        if (int error = nic ? -nic->open_srq(srq->srqn, xrcd->number(), cq->cqn, driver.uidx) : ENODEV) {
            srq->destroy();
            return error;
        }
    }
    events::add_srq(srq->srqn, std::move(listener));

    const mlx5_ib_create_srq_resp driver_response{srq->srqn, 0};
    command.answer_driver(driver_response);
    request.answer(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, entries - 1);
    request.answer(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, max_sge);
    request.answer(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, srq->srqn);
    const std::initializer_list<Object*> uses = {pd, over_xrc ? xrcd : nullptr, over_xrc ? cq : nullptr};
    request.set_handle(UVERBS_ATTR_CREATE_SRQ_HANDLE, context.objects.add(std::move(srq), uses));
    return 0;
}

int modify(Context& context, const WriteCommand& command) {
    ib_uverbs_modify_srq request;
    if (!command.read(&request)) return ENOSPC;
    auto* srq = context.objects.find<Srq>(request.srq_handle);
    if (!srq || (request.attr_mask & ~(attr_max_wr | attr_limit))) return EINVAL;
    if (request.attr_mask & attr_max_wr) return EINVAL;  // its size is for ever
    if (!(request.attr_mask & attr_limit)) return 0;
    return request.srq_limit >= srq->entries ? EINVAL : arm(*srq, request.srq_limit);
}

int query(Context& context, const WriteCommand& command) {
    ib_uverbs_query_srq request;
    if (!command.read(&request)) return ENOSPC;
    auto* srq = context.objects.find<Srq>(request.srq_handle);
    if (!srq) return EINVAL;
    SIM_COMMAND_OF(firmware, query_rmp, gda::prm::MLX5_CMD_OP_QUERY_RMP);
    GDA_SET(query_rmp_in, firmware.in, rmpn, srq->srqn);
    if (int error = execute(firmware)) return error;
    ib_uverbs_query_srq_resp response{};
    response.max_wr = srq->entries - 1;
    response.max_sge = srq->segments;
    response.srq_limit = static_cast<uint32_t>(GDA_GET(query_rmp_out, firmware.out, rmp_context.wq.lwm));
    command.answer(response);
    return 0;
}

int destroy(Context& context, const WriteCommand& command) {
    ib_uverbs_destroy_srq request;
    if (!command.read(&request)) return ENOSPC;
    auto* srq = context.objects.find<Srq>(request.srq_handle);
    if (!srq) return EINVAL;
    if (srq->users) return EBUSY;
    if (int error = srq->destroy()) return error;
    const ib_uverbs_destroy_srq_resp response{srq->asynchronous_reported};
    context.objects.forget(srq);
    command.answer(response);
    return 0;
}

}  // namespace srq
}  // namespace sim::uverbs
