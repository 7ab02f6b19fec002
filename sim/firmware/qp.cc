// SPDX-License-Identifier: Apache-2.0
// Queue pairs: creation and query. The moves between states are in qp_states.cc.
// Source: PRM, "CREATE_QP", "Queue Pair Context".

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/engine/doorbell.h"
#include "sim/engine/requester.h"
#include "sim/firmware/handlers.h"

namespace sim::firmware {

using namespace gda::prm;

namespace {

const uint32_t OFFSET_UNIT_BYTES = 64;  // of page_offset

Answer place_rings(DeviceState& s, Qp* qp, const uint8_t* in, const uint8_t* qpc) {
    const bool rings = qp->send_blocks || qp->receive_entries;
    if (rings && !GDA_GET(create_qp_in, in, wq_umem_valid)) return {Cause::umem_needed, "wq_umem_valid is 0"};
    const uint64_t receive_bytes = uint64_t{qp->receive_entries} * qp->receive_stride;
    const uint64_t send_bytes = uint64_t{qp->send_blocks} * WQE_BASIC_BLOCK_BYTES;
    const uint64_t offset =
        GDA_GET(create_qp_in, in, wq_umem_offset) + GDA_GET(qpc, qpc, page_offset) * OFFSET_UNIT_BYTES;
    // Receive queue first, then the send queue.
    if (rings) {
        Region whole;
        Answer placed = place_in_umem(s, static_cast<uint32_t>(GDA_GET(create_qp_in, in, wq_umem_id)), offset,
                                      receive_bytes + send_bytes, WQE_BASIC_BLOCK_BYTES, "the work queues", &whole);
        if (placed.cause != Cause::none) return placed;
        qp->receive_ring = whole;
        qp->send_ring = {whole.umem, whole.offset + receive_bytes};
    }
    if (GDA_GET(qpc, qpc, dbr_umem_valid)) {
        return place_in_umem(s, static_cast<uint32_t>(GDA_GET(qpc, qpc, dbr_umem_id)), GDA_GET(qpc, qpc, dbr_addr),
                             GDA_BYTES_OF(qp_doorbell_record), GDA_BYTES_OF(qp_doorbell_record), "the doorbell record",
                             &qp->record);
    }
    if (qp->has_receives || (qp->send_blocks && !qp->recordless)) {
        return {Cause::record_needed, "the producer index is read from it"};
    }
    return {};
}

Answer find_queues(DeviceState& s, Qp* qp, const uint8_t* qpc) {
    const uint32_t send = static_cast<uint32_t>(GDA_GET(qpc, qpc, cqn_snd));
    const uint32_t receive = static_cast<uint32_t>(GDA_GET(qpc, qpc, cqn_rcv));
    qp->send_cq = s.cqs.find(send);
    qp->receive_cq = s.cqs.find(receive);
    if (qp->send_blocks && !qp->send_cq) return {Cause::no_such_cq, text("cqn_snd 0x%x", send)};
    if (GDA_GET(qpc, qpc, rq_type) == RQ_TYPE_SRQ && !qp->xrcd) {
        const uint32_t shared = static_cast<uint32_t>(GDA_GET(qpc, qpc, srqn_rmpn_xrqn));
        qp->srq = s.srqs.find(shared);
        if (!qp->srq) return {Cause::no_such_rmp, text("RMP 0x%x", shared)};
    }
    const bool receives = qp->has_receives || qp->srq;
    if (receives && !qp->receive_cq) return {Cause::no_such_cq, text("cqn_rcv 0x%x", receive)};
    if (!receives) qp->receive_cq = nullptr;
    if (!qp->send_blocks) qp->send_cq = nullptr;
    return {};
}

Answer size_rings(Qp* qp, const uint8_t* qpc) {
    const uint32_t type = static_cast<uint32_t>(GDA_GET(qpc, qpc, rq_type));
    if (type != RQ_TYPE_REGULAR && type != RQ_TYPE_SRQ && type != RQ_TYPE_ZERO_SIZE)
        return {Cause::receive_type, text("rq_type %u", type)};
    const uint32_t log_send = static_cast<uint32_t>(GDA_GET(qpc, qpc, log_sq_size));
    const uint32_t log_receive = static_cast<uint32_t>(GDA_GET(qpc, qpc, log_rq_size));
    const uint32_t log_stride = static_cast<uint32_t>(GDA_GET(qpc, qpc, log_rq_stride));
    qp->receive_stride = static_cast<uint32_t>(WQE_SEGMENT_BYTES) << log_stride;
    if (type == RQ_TYPE_REGULAR && qp->receive_stride > MAX_RECEIVE_WQE_BYTES) {
        return {Cause::queue_too_large, text("log_rq_stride %u: a receive WQE has at most %u bytes", log_stride,
                                             static_cast<uint32_t>(MAX_RECEIVE_WQE_BYTES))};
    }
    qp->has_receives = type == RQ_TYPE_REGULAR;
    qp->send_blocks = GDA_GET(qpc, qpc, no_sq) ? 0 : 1u << log_send;
    qp->receive_entries = qp->has_receives ? 1u << log_receive : 0;
    return {};
}

}  // namespace

Answer create_qp(DeviceState& s, const uint8_t* in, uint8_t* out) {
    const uint8_t* qpc = in + GDA_BYTE_OFFSET(create_qp_in, qpc);
    auto qp = std::make_unique<Qp>();
    const uint32_t transport = static_cast<uint32_t>(GDA_GET(qpc, qpc, st));
    if (transport != MLX5_QPC_ST_RC && transport != MLX5_QPC_ST_UC && transport != MLX5_QPC_ST_UD &&
        transport != MLX5_QPC_ST_XRC && transport != MLX5_QPC_ST_DCI) {
        return {Cause::transport, text("st %u", transport)};
    }
    qp->transport = transport;
    const uint32_t log_streams = static_cast<uint32_t>(GDA_GET(qpc, qpc, log_num_dci_stream_channels));
    const uint32_t log_errored = static_cast<uint32_t>(GDA_GET(qpc, qpc, log_num_dci_errored_streams));
    if (qp->dc_initiator() && (log_streams || log_errored)) {
        if (log_streams > LOG_MAX_STREAMS || log_errored > LOG_MAX_STREAMS) {
            return {Cause::dci_streams,
                    text("log_num_dci_stream_channels %u, log_num_dci_errored_streams %u, at most %u", log_streams,
                         log_errored, static_cast<uint32_t>(LOG_MAX_STREAMS))};
        }
        qp->streams = std::make_unique<DcStreams>();
        qp->streams->most_errored = 1u << log_errored;
    }
    qp->q_key = static_cast<uint32_t>(GDA_GET(qpc, qpc, q_key));
    const uint32_t pdn = static_cast<uint32_t>(GDA_GET(qpc, qpc, pd));
    const uint32_t xrcd = static_cast<uint32_t>(GDA_GET(qpc, qpc, xrcd));
    qp->xrcd = qp->over_xrc() ? s.xrcds.find(xrcd) : nullptr;
    if (qp->over_xrc() && xrcd && !qp->xrcd) return {Cause::no_such_xrcd, text("XRC domain %u", xrcd)};
    qp->pd = s.pds.find(pdn);
    // The receiving end of XRC has none: each request brings its own.
    if (!qp->pd && !qp->xrcd) return {Cause::no_such_pd, text("PD %u", pdn)};
    const uint32_t mode = static_cast<uint32_t>(GDA_GET(qpc, qpc, send_dbr_mode));
    if (mode != SEND_DBR_MODE_VALID && mode != SEND_DBR_MODE_NO_DBR_EXT) {
        return {Cause::doorbell_mode, text("send_dbr_mode %u", mode)};
    }
    qp->recordless = mode == SEND_DBR_MODE_NO_DBR_EXT;
    qp->migrated = GDA_GET(qpc, qpc, pm_state) == MLX5_QPC_PM_STATE_MIGRATED;
    qp->user_index = static_cast<uint32_t>(GDA_GET(qpc, qpc, user_index));
    const uint32_t page = static_cast<uint32_t>(GDA_GET(qpc, qpc, uar_page));
    qp->page = s.pages.find(page);
    if (!qp->page && !qp->xrcd) return {Cause::no_such_page, text("page %u", page)};
    Answer answer = size_rings(qp.get(), qpc);
    if (answer.cause == Cause::none) answer = find_queues(s, qp.get(), qpc);
    if (answer.cause == Cause::none) answer = place_rings(s, qp.get(), in, qpc);
    if (answer.cause != Cause::none) return answer;
    const uint32_t index = s.qps.free_index(FIRST_QP);
    if (index >= s.qps.LIMIT || s.qps.size() >= MAX_OBJECTS) return {Cause::table_full, "queue pairs"};
    qp->number = s.slot * 65536 + index;  // the NIC in the highest byte: numbers are unique on this host
    std::snprintf(qp->name, sizeof qp->name, "QP 0x%06x", qp->number);
    std::memcpy(qp->context, qpc, sizeof qp->context);
    for (size_t i = 0; qp->recordless && qp->page && i < qp->page->qps.size(); ++i) {
        const Qp* other = qp->page->qps[i];
        if (!other->recordless) continue;
        s.report.say(Kind::doorbell_page_shared,
                     text("%s and %s have no doorbell record and share doorbell page %u: rings that follow each other "
                          "closely can be lost; give each its own page",
                          other->name, qp->name, page),
                     {{"qp", qp->number}, {"other", other->number}, {"page", page}});
        break;
    }
    // Of the receiving end of XRC, what it has of a receive queue it has from the request at hand.
    if (qp->xrcd) qp->pd = nullptr, qp->srq = nullptr, qp->receive_cq = nullptr;
    if (qp->pd) ++qp->pd->uses;
    if (qp->xrcd) ++qp->xrcd->uses;
    count_in(s, qp.get(), 0);
    if (qp->send_ring.umem) ++qp->send_ring.umem->uses;
    if (qp->srq) ++qp->srq->uses;
    if (qp->record.umem) ++qp->record.umem->uses;
    if (qp->send_cq) ++qp->send_cq->uses;
    if (qp->receive_cq) ++qp->receive_cq->uses;
    if (qp->page) join_page(qp.get());
    GDA_SET(create_qp_out, out, qpn, qp->number);
    s.qps.put(index, std::move(qp));
    return {};
}

Answer destroy_qp(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    const uint32_t number = static_cast<uint32_t>(GDA_GET(destroy_qp_in, in, qpn));
    Qp* qp = s.qp(number);
    if (!qp || qp->dc_target()) return {Cause::no_such_qp, text("QP 0x%06x", number)};
    if (qp->page)
        scan_page(s, qp->page);  // a ring that was not looked at yet would later name a queue pair that does not exist
    forget(s, qp);
    if (qp->pd && !qp->xrcd) --qp->pd->uses;
    if (qp->xrcd) --qp->xrcd->uses;
    --qp->counter_set->uses;
    if (qp->send_ring.umem) --qp->send_ring.umem->uses;
    if (qp->srq && !qp->xrcd) --qp->srq->uses;
    if (qp->record.umem) --qp->record.umem->uses;
    if (qp->send_cq) --qp->send_cq->uses;
    if (qp->receive_cq && !qp->xrcd) --qp->receive_cq->uses;
    if (qp->page) leave_page(qp);
    s.qps.erase(number % 65536);
    return {};
}

Answer query_qp(DeviceState& s, const uint8_t* in, uint8_t* out) {
    const uint32_t number = static_cast<uint32_t>(GDA_GET(query_qp_in, in, qpn));
    const Qp* qp = s.qp(number);
    if (!qp || qp->dc_target()) return {Cause::no_such_qp, text("QP 0x%06x", number)};
    uint8_t* qpc = out + GDA_BYTE_OFFSET(query_qp_out, qpc);
    std::memcpy(qpc, qp->context, sizeof qp->context);
    GDA_SET(qpc, qpc, state, qp->state);
    GDA_SET(qpc, qpc, next_send_psn, qp->next_psn);
    GDA_SET(qpc, qpc, last_acked_psn, qp->acked_psn);
    GDA_SET(qpc, qpc, next_rcv_psn, qp->expected_psn);
    GDA_SET(qpc, qpc, rmsn, qp->msn);
    GDA_SET(qpc, qpc, hw_sq_wqebb_counter, qp->next);
    GDA_SET(qpc, qpc, sw_sq_wqebb_counter, qp->producer);
    GDA_SET(qpc, qpc, hw_rq_counter, qp->receive_next);
    GDA_SET(qpc, qpc, cur_retry_count, qp->retries_left);
    GDA_SET(qpc, qpc, cur_rnr_retry, qp->rnr_left);
    return {};
}

}  // namespace sim::firmware
