// SPDX-License-Identifier: Apache-2.0
// Shared receive queues, which a card calls receive memory pools.
// Source: PRM, "CREATE_RMP", "Receive Memory Pool Context", "Work Queue"; Linux makes an ibv_srq of one.

#include <cstdio>
#include <cstring>

#include "sim/engine/receive.h"
#include "sim/engine/xrc.h"
#include "sim/firmware/handlers.h"

namespace sim::firmware {

using namespace gda::prm;

namespace {

const uint32_t LEAST_STRIDE_BYTES = 32;  // the link to the next one, and one piece of memory
const uint32_t OFFSET_UNIT_BYTES = 64;   // of page_offset

Answer find(DeviceState& s, uint32_t number, Srq** srq) {
    *srq = s.srqs.find(number);
    return *srq ? Answer{} : Answer{Cause::no_such_rmp, text("RMP 0x%x", number)};
}

}  // namespace

Answer create_rmp(DeviceState& s, const uint8_t* in, uint8_t* out) {
    const uint8_t* rmpc = in + GDA_BYTE_OFFSET(create_rmp_in, ctx);
    auto srq = std::make_unique<Srq>();
    const uint32_t type = static_cast<uint32_t>(GDA_GET(rmpc, rmpc, wq.wq_type));
    const uint32_t log_stride = static_cast<uint32_t>(GDA_GET(rmpc, rmpc, wq.log_wq_stride));
    const uint32_t log_entries = static_cast<uint32_t>(GDA_GET(rmpc, rmpc, wq.log_wq_sz));
    srq->stride = 1u << log_stride;
    srq->cyclic = type == MLX5_WQ_TYPE_CYCLIC;
    if ((type != MLX5_WQ_TYPE_LINKED_LIST && !srq->cyclic) || srq->stride < LEAST_STRIDE_BYTES ||
        srq->stride > MAX_RECEIVE_WQE_BYTES) {
        return {Cause::rmp_kind, text("wq_type %u, log_wq_stride %u", type, log_stride)};
    }
    if (log_entries > LOG_MAX_QUEUE) {
        return {Cause::queue_too_large, text("log_wq_sz %u, at most %u", log_entries, LOG_MAX_QUEUE)};
    }
    srq->entries = 1u << log_entries;
    const uint32_t pdn = static_cast<uint32_t>(GDA_GET(rmpc, rmpc, wq.pd));
    srq->pd = s.pds.find(pdn);
    if (!srq->pd) return {Cause::no_such_pd, text("PD %u", pdn)};
    if (!GDA_GET(rmpc, rmpc, wq.wq_umem_valid)) return {Cause::umem_needed, "wq_umem_valid is 0"};
    if (!GDA_GET(rmpc, rmpc, wq.dbr_umem_valid)) return {Cause::record_needed, "the count of receives is read from it"};
    const uint64_t offset =
        GDA_GET(rmpc, rmpc, wq.wq_umem_offset) + GDA_GET(rmpc, rmpc, wq.page_offset) * OFFSET_UNIT_BYTES;
    Answer placed =
        place_in_umem(s, static_cast<uint32_t>(GDA_GET(rmpc, rmpc, wq.wq_umem_id)), offset,
                      uint64_t{srq->entries} * srq->stride, WQE_SEGMENT_BYTES, "the receive queue", &srq->ring);
    if (placed.cause != Cause::none) return placed;
    placed = place_in_umem(s, static_cast<uint32_t>(GDA_GET(rmpc, rmpc, wq.dbr_umem_id)),
                           GDA_GET(rmpc, rmpc, wq.dbr_addr), GDA_BYTES_OF(qp_doorbell_record) / 2,
                           GDA_BYTES_OF(qp_doorbell_record) / 2, "the doorbell record", &srq->record);
    if (placed.cause != Cause::none) return placed;
    const uint32_t number = s.srqs.free_index(FIRST_RMP);
    if (number >= s.srqs.LIMIT || s.srqs.size() >= MAX_OBJECTS) return {Cause::table_full, "shared receive queues"};
    srq->number = number;
    std::snprintf(srq->name, sizeof srq->name, "SRQ 0x%x", number);
    std::memcpy(srq->context, rmpc, sizeof srq->context);
    srq->limit = static_cast<uint32_t>(GDA_GET(rmpc, rmpc, wq.lwm));
    ++srq->pd->uses;
    ++srq->ring.umem->uses;
    ++srq->record.umem->uses;
    s.srqs.put(number, std::move(srq));
    GDA_SET(create_rmp_out, out, rmpn, number);
    return {};
}

Answer modify_rmp(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Srq* srq;
    const Answer answer = find(s, static_cast<uint32_t>(GDA_GET(modify_rmp_in, in, rmpn)), &srq);
    if (answer.cause != Cause::none) return answer;
    if (!GDA_GET(modify_rmp_in, in, bitmask.lwm)) return {};
    srq->limit = static_cast<uint32_t>(GDA_GET(modify_rmp_in, in, ctx.wq.lwm));
    check_limit(s, srq);  // it may be low already
    return {};
}

Answer destroy_rmp(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Srq* srq;
    const Answer answer = find(s, static_cast<uint32_t>(GDA_GET(destroy_rmp_in, in, rmpn)), &srq);
    if (answer.cause != Cause::none) return answer;
    if (srq->uses) return {Cause::rmp_in_use, text("%s: %d queue pairs", srq->name, srq->uses)};
    leave_srq(s, srq);
    if (srq->xrcd) --srq->xrcd->uses, --srq->cq->uses;
    --srq->pd->uses;
    --srq->ring.umem->uses;
    --srq->record.umem->uses;
    s.srqs.erase(srq->number);
    return {};
}

Answer query_rmp(DeviceState& s, const uint8_t* in, uint8_t* out) {
    Srq* srq;
    const Answer answer = find(s, static_cast<uint32_t>(GDA_GET(query_rmp_in, in, rmpn)), &srq);
    if (answer.cause != Cause::none) return answer;
    uint8_t* rmpc = out + GDA_BYTE_OFFSET(query_rmp_out, rmp_context);
    std::memcpy(rmpc, srq->context, sizeof srq->context);
    GDA_SET(rmpc, rmpc, state, srq->failed ? MLX5_RMPC_STATE_ERR : MLX5_RMPC_STATE_RDY);
    GDA_SET(rmpc, rmpc, wq.lwm, srq->limit);
    GDA_SET(rmpc, rmpc, wq.hw_counter, srq->taken);
    GDA_SET(rmpc, rmpc, wq.sw_counter, srq->taken + receives_left(s, srq));
    return {};
}

}  // namespace sim::firmware
