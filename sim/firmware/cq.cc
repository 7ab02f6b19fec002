// SPDX-License-Identifier: Apache-2.0
// Completion queues. Source: PRM, "CREATE_CQ", "Completion Queue Context".

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/engine/completion.h"
#include "sim/firmware/handlers.h"

namespace sim::firmware {

using namespace gda::prm;

namespace {
const uint32_t OFFSET_UNIT_BYTES = 64;             // of page_offset
const uint32_t STATUS_OK = 0, STATUS_OVERRUN = 9;  // cqc.status
}  // namespace

Answer create_cq(DeviceState& s, const uint8_t* in, uint8_t* out) {
    const uint8_t* cqc = in + GDA_BYTE_OFFSET(create_cq_in, cq_context);
    auto cq = std::make_unique<Cq>();
    const uint32_t log_entries = static_cast<uint32_t>(GDA_GET(cqc, cqc, log_cq_size));
    if (log_entries > LOG_MAX_CQ_ENTRIES) {
        return {Cause::queue_too_large, text("log_cq_size %u, at most %u", log_entries, LOG_MAX_CQ_ENTRIES)};
    }
    if (GDA_GET(cqc, cqc, cqe_sz) != 0) return {Cause::cqe_size, ""};
    if (!GDA_GET(create_cq_in, in, cq_umem_valid)) return {Cause::umem_needed, "cq_umem_valid is 0"};
    cq->log_entries = log_entries;
    cq->entries = 1u << log_entries;
    cq->collapsed = GDA_GET(cqc, cqc, cc) != 0;
    cq->ignore_overrun = GDA_GET(cqc, cqc, oi) != 0;
    const uint32_t page = static_cast<uint32_t>(GDA_GET(cqc, cqc, uar_page));
    cq->page = s.pages.find(page);
    if (!cq->page) return {Cause::no_such_page, text("page %u", page)};
    const uint64_t offset =
        GDA_GET(create_cq_in, in, cq_umem_offset) + GDA_GET(cqc, cqc, page_offset) * OFFSET_UNIT_BYTES;
    const uint64_t bytes = uint64_t{cq->collapsed ? 1 : cq->entries} * CQE_BYTES;
    Answer placed = place_in_umem(s, static_cast<uint32_t>(GDA_GET(create_cq_in, in, cq_umem_id)), offset, bytes,
                                  CQE_BYTES, "the completion queue", &cq->ring);
    if (placed.cause != Cause::none) return placed;
    if (GDA_GET(cqc, cqc, dbr_umem_valid)) {
        placed = place_in_umem(s, static_cast<uint32_t>(GDA_GET(cqc, cqc, dbr_umem_id)), GDA_GET(cqc, cqc, dbr_addr),
                               GDA_BYTES_OF(cq_doorbell_record), GDA_BYTES_OF(cq_doorbell_record),
                               "the doorbell record", &cq->record);
        if (placed.cause != Cause::none) return placed;
    } else if (!cq->ignore_overrun) {
        return {Cause::record_needed, "the consumer index is read from it"};
    }
    const uint32_t number = s.cqs.free_index(FIRST_CQ);
    if (number >= s.cqs.LIMIT) return {Cause::table_full, "completion queues"};
    cq->number = number;
    std::snprintf(cq->name, sizeof cq->name, "CQ 0x%x", number);
    std::memcpy(cq->context, cqc, sizeof cq->context);
    ++cq->ring.umem->uses;
    if (cq->record.umem) ++cq->record.umem->uses;
    cq->page->cqs.push_back(cq.get());
    prepare_arming(s, cq.get());
    s.cqs.put(number, std::move(cq));
    GDA_SET(create_cq_out, out, cqn, number);
    return {};
}

Answer destroy_cq(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    const uint32_t number = static_cast<uint32_t>(GDA_GET(destroy_cq_in, in, cqn));
    Cq* cq = s.cqs.find(number);
    if (!cq) return {Cause::no_such_cq, text("CQ 0x%x", number)};
    if (cq->uses) return {Cause::cq_in_use, text("CQ 0x%x: %d uses", number, cq->uses)};
    --cq->ring.umem->uses;
    if (cq->record.umem) --cq->record.umem->uses;
    auto& list = cq->page->cqs;
    list.erase(std::remove(list.begin(), list.end(), cq), list.end());
    s.cqs.erase(number);
    return {};
}

Answer query_cq(DeviceState& s, const uint8_t* in, uint8_t* out) {
    const uint32_t number = static_cast<uint32_t>(GDA_GET(query_cq_in, in, cqn));
    const Cq* cq = s.cqs.find(number);
    if (!cq) return {Cause::no_such_cq, text("CQ 0x%x", number)};
    uint8_t* cqc = out + GDA_BYTE_OFFSET(query_cq_out, cq_context);
    std::memcpy(cqc, cq->context, sizeof cq->context);
    GDA_SET(cqc, cqc, status, cq->failed ? STATUS_OVERRUN : STATUS_OK);
    GDA_SET(cqc, cqc, producer_counter, cq->producer);
    GDA_SET(cqc, cqc, consumer_counter, cq->consumer);
    GDA_SET(cqc, cqc, last_solicit_index, cq->last_solicited);
    return {};
}

}  // namespace sim::firmware
