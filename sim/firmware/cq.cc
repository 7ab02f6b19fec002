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
const uint32_t CQE_SIZE_128 = 1;                   // cqc.cqe_sz
const uint32_t STATUS_OK = 0, STATUS_OVERRUN = 9;  // cqc.status
}  // namespace

Answer create_cq(DeviceState& s, const uint8_t* in, uint8_t* out) {
    const uint8_t* cqc = in + GDA_BYTE_OFFSET(create_cq_in, cq_context);
    auto cq = std::make_unique<Cq>();
    const uint32_t log_entries = static_cast<uint32_t>(GDA_GET(cqc, cqc, log_cq_size));
    if (log_entries > LOG_MAX_CQ_ENTRIES) {
        return {Cause::queue_too_large, text("log_cq_size %u, at most %u", log_entries, LOG_MAX_CQ_ENTRIES)};
    }
    const uint32_t size_code = static_cast<uint32_t>(GDA_GET(cqc, cqc, cqe_sz));
    if (size_code > CQE_SIZE_128) return {Cause::cqe_size, text("cqe_sz %u", size_code)};
    cq->entry_bytes = CQE_BYTES << size_code;
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
    const uint64_t bytes = uint64_t{cq->collapsed ? 1 : cq->entries} * cq->entry_bytes;
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
    if (number >= s.cqs.LIMIT || s.cqs.size() >= MAX_OBJECTS) return {Cause::table_full, "completion queues"};
    cq->number = number;
    std::snprintf(cq->name, sizeof cq->name, "CQ 0x%x", number);
    std::memcpy(cq->context, cqc, sizeof cq->context);
    ++cq->ring.umem->uses;
    if (cq->record.umem) ++cq->record.umem->uses;
    join_page(cq.get());
    s.cqs.put(number, std::move(cq));
    GDA_SET(create_cq_out, out, cqn, number);
    return {};
}

namespace {

// A new ring: what is in the old one stays there, behind it a mark that says: go on in the new one.
Answer resize(DeviceState& s, Cq* cq, const uint8_t* in) {
    const uint8_t* cqc = in + GDA_BYTE_OFFSET(modify_cq_in, cq_context);
    const uint32_t log_entries = static_cast<uint32_t>(GDA_GET(cqc, cqc, log_cq_size));
    if (log_entries > LOG_MAX_CQ_ENTRIES) {
        return {Cause::queue_too_large, text("log_cq_size %u, at most %u", log_entries, LOG_MAX_CQ_ENTRIES)};
    }
    if (cq->collapsed || cq->failed) return {Cause::cq_change, text("%s is collapsed, or failed", cq->name)};
    if (!GDA_GET(modify_cq_in, in, cq_umem_valid)) return {Cause::umem_needed, "cq_umem_valid is 0"};
    const uint32_t entries = 1u << log_entries;
    uint32_t held = 0;
    if (!completions_held(s, cq, &held)) return {Cause::cq_change, text("%s: its record cannot be read", cq->name)};
    if (!cq->ignore_overrun && held + 1 > std::min(entries, cq->entries)) {
        return {Cause::cq_change, text("%s holds %u completions that were not polled: no room for them and the mark in "
                                       "%u entries (now) and %u (then)",
                                       cq->name, held, cq->entries, entries)};
    }
    const uint32_t size_code = static_cast<uint32_t>(GDA_GET(cqc, cqc, cqe_sz));
    if (size_code > CQE_SIZE_128) return {Cause::cqe_size, text("cqe_sz %u", size_code)};
    const uint64_t offset =
        GDA_GET(modify_cq_in, in, cq_umem_offset) + GDA_GET(cqc, cqc, page_offset) * OFFSET_UNIT_BYTES;
    Region ring;
    const uint32_t entry_bytes = CQE_BYTES << size_code;
    const Answer placed = place_in_umem(s, static_cast<uint32_t>(GDA_GET(modify_cq_in, in, cq_umem_id)), offset,
                                        uint64_t{entries} * entry_bytes, CQE_BYTES, "the new ring", &ring);
    if (placed.cause != Cause::none) return placed;
    complete_resize(s, cq);
    --cq->ring.umem->uses;
    ++ring.umem->uses;
    cq->ring = ring;
    cq->entries = entries, cq->log_entries = log_entries, cq->entry_bytes = entry_bytes;
    GDA_SET(cqc, cq->context, log_cq_size, log_entries);
    GDA_SET(cqc, cq->context, cqe_sz, size_code);
    return {};
}

}  // namespace

Answer modify_cq(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    const uint32_t number = static_cast<uint32_t>(GDA_GET(modify_cq_in, in, cqn));
    Cq* cq = s.cqs.find(number);
    if (!cq) return {Cause::no_such_cq, text("CQ 0x%x", number)};
    const uint32_t op_mod = static_cast<uint32_t>(GDA_GET(modify_cq_in, in, op_mod));
    if (op_mod == MLX5_CQ_OPMOD_RESIZE) return resize(s, cq, in);
    const uint8_t* cqc = in + GDA_BYTE_OFFSET(modify_cq_in, cq_context);
    const uint32_t fields = static_cast<uint32_t>(GDA_GET(modify_cq_in, in, modify_field_select_resize_field_select));
    if (op_mod != MODIFY_CQ_FIELDS || fields >= 2 * MLX5_CQ_MODIFY_OVERRUN) {
        return {Cause::cq_change, text("op_mod %u, fields 0x%x", op_mod, fields)};
    }
    // Moderation is kept and told; this NIC fires at once, which moderation allows.
    if (fields & MLX5_CQ_MODIFY_PERIOD) GDA_SET(cqc, cq->context, cq_period, GDA_GET(cqc, cqc, cq_period));
    if (fields & MLX5_CQ_MODIFY_COUNT) GDA_SET(cqc, cq->context, cq_max_count, GDA_GET(cqc, cqc, cq_max_count));
    if (fields & MLX5_CQ_MODIFY_OVERRUN) {
        cq->ignore_overrun = GDA_GET(cqc, cqc, oi) != 0;
        GDA_SET(cqc, cq->context, oi, cq->ignore_overrun);
    }
    return {};
}

Answer destroy_cq(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    const uint32_t number = static_cast<uint32_t>(GDA_GET(destroy_cq_in, in, cqn));
    Cq* cq = s.cqs.find(number);
    if (!cq) return {Cause::no_such_cq, text("CQ 0x%x", number)};
    if (cq->uses) return {Cause::cq_in_use, text("CQ 0x%x: %d uses", number, cq->uses)};
    if (cq->ring.umem->gpu) s.copier.settle();
    --cq->ring.umem->uses;
    if (cq->record.umem) --cq->record.umem->uses;
    leave_page(cq);
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
