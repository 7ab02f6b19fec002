// SPDX-License-Identifier: Apache-2.0
// The moves of a queue pair between its states. Each keeps what it takes in the context, for QUERY_QP.
// Source: PRM, "RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP", "INIT2INIT_QP", "RTS2RTS_QP", "2ERR_QP", "2RST_QP";
// InfiniBand Architecture Specification, volume 1, "QP State Diagram". Leniency (pm_state at CREATE_QP or at RST2INIT,
// port 0 for 1) follows what rdma-core's own DEVX tests and the GPU stacks send.

#include <algorithm>
#include <cstring>

#include "sim/engine/doorbell.h"
#include "sim/engine/packet.h"
#include "sim/engine/requester.h"
#include "sim/engine/transmit.h"
#include "sim/firmware/handlers.h"

namespace sim::firmware {

using namespace gda::prm;

namespace {

const char* const STATES[] = {"RESET", "INIT", "RTR", "RTS", "SQER", "?", "ERR", "SQD"};

// Struct layouts of all moves agree: asserted below.
Answer find(DeviceState& s, const uint8_t* in, int from, Qp** qp) {
    static_assert(GDA_BIT_OFFSET(rst2init_qp_in, qpn) == GDA_BIT_OFFSET(init2rtr_qp_in, qpn) &&
                      GDA_BIT_OFFSET(rst2init_qp_in, qpn) == GDA_BIT_OFFSET(rtr2rts_qp_in, qpn) &&
                      GDA_BIT_OFFSET(rst2init_qp_in, qpn) == GDA_BIT_OFFSET(init2init_qp_in, qpn) &&
                      GDA_BIT_OFFSET(rst2init_qp_in, qpn) == GDA_BIT_OFFSET(rts2rts_qp_in, qpn) &&
                      GDA_BIT_OFFSET(rst2init_qp_in, qpn) == GDA_BIT_OFFSET(qp_2err_in, qpn) &&
                      GDA_BIT_OFFSET(rst2init_qp_in, qpn) == GDA_BIT_OFFSET(qp_2rst_in, qpn) &&
                      GDA_BIT_OFFSET(rst2init_qp_in, qpc) == GDA_BIT_OFFSET(init2rtr_qp_in, qpc) &&
                      GDA_BIT_OFFSET(rst2init_qp_in, qpc) == GDA_BIT_OFFSET(init2init_qp_in, qpc) &&
                      GDA_BIT_OFFSET(rst2init_qp_in, qpc) == GDA_BIT_OFFSET(rts2rts_qp_in, qpc) &&
                      GDA_BIT_OFFSET(rst2init_qp_in, qpc) == GDA_BIT_OFFSET(rtr2rts_qp_in, qpc),
                  "moves share their layout");
    const uint32_t number = static_cast<uint32_t>(GDA_GET(rst2init_qp_in, in, qpn));
    *qp = s.qp(number);
    if (!*qp || (*qp)->dc_target()) return {Cause::no_such_qp, text("QP 0x%06x", number)};
    if (from >= 0 && (*qp)->state != from) {
        return {Cause::wrong_state,
                text("%s is in %s, the move starts from %s", (*qp)->name, STATES[(*qp)->state & 7], STATES[from])};
    }
    return {};
}

const uint8_t* context_of(const uint8_t* in) { return in + GDA_BYTE_OFFSET(rst2init_qp_in, qpc); }

#define SIM_KEEP(FIELD) GDA_SET(qpc, qp->context, FIELD, GDA_GET(qpc, qpc, FIELD))

void take_rights(Qp* qp, const uint8_t* qpc, uint32_t optional) {
    if (optional & MLX5_QP_OPTPAR_RRE) SIM_KEEP(rre);
    if (optional & MLX5_QP_OPTPAR_RAE) SIM_KEEP(rae);
    if (optional & MLX5_QP_OPTPAR_RWE) SIM_KEEP(rwe);
    if (optional & MLX5_QP_OPTPAR_RAE) SIM_KEEP(atomic_mode);
    qp->remote_write_allowed = GDA_GET(qpc, qp->context, rwe) != 0;
    qp->remote_read_allowed = GDA_GET(qpc, qp->context, rre) != 0;
    qp->remote_atomic_allowed = GDA_GET(qpc, qp->context, rae) != 0;
}

void take_q_key(Qp* qp, const uint8_t* qpc) {
    SIM_KEEP(q_key);
    qp->q_key = static_cast<uint32_t>(GDA_GET(qpc, qpc, q_key));
}

// How many reads and atomics may be outstanding: 2^log, as requester and as responder.
void take_depths(Qp* qp) {
    const uint32_t requests = static_cast<uint32_t>(GDA_GET(qpc, qp->context, log_sra_max));
    const uint32_t replies = static_cast<uint32_t>(GDA_GET(qpc, qp->context, log_rra_max));
    qp->most_fetches = 1u << std::min<uint32_t>(requests, LOG_MAX_FETCHES);
    qp->most_replies = 1u << std::min<uint32_t>(replies, LOG_MAX_FETCHES);
}

// What a move without a change of state may change. Refused, it has changed nothing.
Answer take_optional(DeviceState& s, Qp* qp, const uint8_t* qpc, uint32_t optional) {
    if (optional & MLX5_QP_OPTPAR_COUNTER_SET_ID) {
        const Answer answer = count_in(s, qp, static_cast<uint32_t>(GDA_GET(qpc, qpc, counter_set_id)));
        if (answer.cause != Cause::none) return answer;
        SIM_KEEP(counter_set_id);
    }
    take_rights(qp, qpc, optional);
    if (optional & MLX5_QP_OPTPAR_PKEY_INDEX) SIM_KEEP(primary_address_path.pkey_index);
    if (optional & MLX5_QP_OPTPAR_Q_KEY) take_q_key(qp, qpc);
    if (optional & MLX5_QP_OPTPAR_RNR_TIMEOUT) {
        SIM_KEEP(min_rnr_nak);
        qp->min_rnr_nak = static_cast<uint32_t>(GDA_GET(qpc, qpc, min_rnr_nak));
    }
    return {};
}

// The port is the one of INIT: a path may name it again, and no other.
Answer same_port(const Qp* qp, const uint8_t* qpc) {
    const uint32_t port = static_cast<uint32_t>(GDA_GET(qpc, qpc, primary_address_path.vhca_port_num));
    if (!port || port == qp->port) return {};
    return {Cause::port, text("%s is bound to port %u since INIT, its path names port %u", qp->name, qp->port, port)};
}

}  // namespace

Answer rst2init(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Qp* qp;
    Answer answer = find(s, in, MLX5_QPC_STATE_RST, &qp);
    if (answer.cause != Cause::none) return answer;
    const uint8_t* qpc = context_of(in);
    uint32_t port;
    answer = port_named(s, GDA_GET(qpc, qpc, primary_address_path.vhca_port_num), qp->name, &port);
    if (answer.cause == Cause::none) answer = count_in(s, qp, static_cast<uint32_t>(GDA_GET(qpc, qpc, counter_set_id)));
    if (answer.cause != Cause::none) return answer;
    if (GDA_GET(qpc, qpc, pm_state) == MLX5_QPC_PM_STATE_MIGRATED) {
        qp->migrated = true;
        SIM_KEEP(pm_state);
    }
    qp->port = static_cast<uint8_t>(port);
    SIM_KEEP(primary_address_path.vhca_port_num);
    SIM_KEEP(primary_address_path.pkey_index);
    SIM_KEEP(counter_set_id);
    take_q_key(qp, qpc);
    take_rights(qp, qpc, MLX5_QP_OPTPAR_RRE | MLX5_QP_OPTPAR_RAE | MLX5_QP_OPTPAR_RWE);
    qp->state = MLX5_QPC_STATE_INIT;
    return {};
}

namespace {

// No peer, no path: each datagram brings its own.
Answer to_receive_datagrams(DeviceState& s, Qp* qp, const uint8_t* qpc, uint32_t optional) {
    const Answer answer = take_optional(s, qp, qpc, optional);
    if (answer.cause != Cause::none) return answer;
    GDA_SET(qpc, qp->context, mtu, MLX5_QPC_MTU_4K_BYTES);
    GDA_SET(qpc, qp->context, log_msg_max, LOG_MAX_DATAGRAM);
    qp->max_message_bytes = uint64_t{1} << LOG_MAX_DATAGRAM;
    qp->link = nullptr;
    qp->state = MLX5_QPC_STATE_RTR;
    return {};
}

}  // namespace

namespace {

// No peer and no path yet: every WQE brings its own.
Answer to_connect(DeviceState& s, Qp* qp, const uint8_t* qpc, uint32_t optional) {
    const uint32_t mtu = static_cast<uint32_t>(GDA_GET(qpc, qpc, mtu));
    if (mtu < MLX5_QPC_MTU_256_BYTES || mtu > MLX5_QPC_MTU_4K_BYTES) return {Cause::path_mtu, text("mtu %u", mtu)};
    const uint32_t log_message = static_cast<uint32_t>(GDA_GET(qpc, qpc, log_msg_max));
    if (log_message > LOG_MAX_MESSAGE) return {Cause::message_size, text("log_msg_max %u", log_message)};
    const Answer answer = take_optional(s, qp, qpc, optional);
    if (answer.cause != Cause::none) return answer;
    SIM_KEEP(mtu);
    SIM_KEEP(log_msg_max);
    qp->mtu = 128u << mtu;
    qp->max_message_bytes = uint64_t{1} << (log_message ? log_message : static_cast<uint32_t>(LOG_MAX_MESSAGE));
    qp->state = MLX5_QPC_STATE_RTR;
    return {};
}

}  // namespace

Answer init2rtr(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Qp* qp;
    Answer answer = find(s, in, MLX5_QPC_STATE_INIT, &qp);
    if (answer.cause != Cause::none) return answer;
    const uint8_t* qpc = context_of(in);
    answer = same_port(qp, qpc);
    if (answer.cause != Cause::none) return answer;
    if (!qp->migrated) return {Cause::migration, qp->name};
    if (qp->datagrams())
        return to_receive_datagrams(s, qp, qpc, static_cast<uint32_t>(GDA_GET(init2rtr_qp_in, in, opt_param_mask)));
    if (qp->dc_initiator())
        return to_connect(s, qp, qpc, static_cast<uint32_t>(GDA_GET(init2rtr_qp_in, in, opt_param_mask)));
    const uint32_t mtu = static_cast<uint32_t>(GDA_GET(qpc, qpc, mtu));
    if (mtu < MLX5_QPC_MTU_256_BYTES || mtu > MLX5_QPC_MTU_4K_BYTES) return {Cause::path_mtu, text("mtu %u", mtu)};
    const uint32_t log_message = static_cast<uint32_t>(GDA_GET(qpc, qpc, log_msg_max));
    if (log_message > LOG_MAX_MESSAGE) return {Cause::message_size, text("log_msg_max %u", log_message)};
    const uint32_t index = static_cast<uint32_t>(GDA_GET(qpc, qpc, primary_address_path.src_addr_index));
    if (index >= GID_COUNT) return {Cause::address_index, text("src_addr_index %u of %d", index, GID_COUNT)};
    const uint32_t gid_at = GDA_BYTE_OFFSET(qpc, primary_address_path.rgid_rip);
    static const Gid none = {};
    if (!s.has_gid(qp->port, index)) {
        return {Cause::address_index, text("src_addr_index %u of port %u: that entry is empty", index, qp->port)};
    }
    const uint32_t place = s.gid_place(qp->port, index);
    if (std::memcmp(qpc + gid_at, none, sizeof none) == 0) return {Cause::no_remote_gid, qp->name};

    std::memcpy(qp->context + GDA_BYTE_OFFSET(qpc, primary_address_path),
                qpc + GDA_BYTE_OFFSET(qpc, primary_address_path), GDA_BYTES_OF(ads));
    GDA_SET(qpc, qp->context, primary_address_path.vhca_port_num, qp->port);
    SIM_KEEP(mtu);
    SIM_KEEP(log_msg_max);
    SIM_KEEP(remote_qpn);
    SIM_KEEP(next_rcv_psn);
    SIM_KEEP(min_rnr_nak);
    SIM_KEEP(log_rra_max);
    SIM_KEEP(atomic_mode);
    take_rights(qp, qpc, static_cast<uint32_t>(GDA_GET(init2rtr_qp_in, in, opt_param_mask)));

    std::memcpy(qp->remote_gid, qpc + gid_at, sizeof qp->remote_gid);
    std::memcpy(qp->local_gid, s.gids[place], sizeof qp->local_gid);
    qp->version1 = s.gid_version1[place];
    qp->remote_qpn = static_cast<uint32_t>(GDA_GET(qpc, qpc, remote_qpn));
    qp->expected_psn = static_cast<uint32_t>(GDA_GET(qpc, qpc, next_rcv_psn));
    qp->min_rnr_nak = static_cast<uint32_t>(GDA_GET(qpc, qpc, min_rnr_nak));
    qp->max_message_bytes = uint64_t{1} << (log_message ? log_message : static_cast<uint32_t>(LOG_MAX_MESSAGE));
    qp->mtu = 128u << mtu;
    qp->traffic_class = static_cast<uint8_t>(GDA_GET(qpc, qpc, primary_address_path.tclass));
    qp->hop_limit = static_cast<uint8_t>(GDA_GET(qpc, qpc, primary_address_path.hop_limit));
    qp->flow_port = static_cast<uint16_t>(GDA_GET(qpc, qpc, primary_address_path.udp_sport));
    if (!qp->flow_port) qp->flow_port = flow_port_of(qp->number, qp->remote_qpn);
    if (!qp->hop_limit) qp->hop_limit = DEFAULT_HOP_LIMIT;
    qp->link = s.port->route(qp->remote_gid);
    take_depths(qp);
    qp->state = MLX5_QPC_STATE_RTR;
    return {};
}

Answer rtr2rts(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Qp* qp;
    Answer answer = find(s, in, MLX5_QPC_STATE_RTR, &qp);
    if (answer.cause != Cause::none) return answer;
    const uint8_t* qpc = context_of(in);
    const uint32_t optional = static_cast<uint32_t>(GDA_GET(rtr2rts_qp_in, in, opt_param_mask));
    answer = take_optional(s, qp, qpc, optional);
    if (answer.cause != Cause::none) return answer;
    SIM_KEEP(retry_count);
    SIM_KEEP(rnr_retry);
    SIM_KEEP(next_send_psn);
    SIM_KEEP(log_sra_max);
    SIM_KEEP(log_ack_req_freq);
    SIM_KEEP(primary_address_path.ack_timeout);
    take_depths(qp);
    qp->retry_count = qp->retries_left = static_cast<uint32_t>(GDA_GET(qpc, qpc, retry_count));
    qp->rnr_retry = qp->rnr_left = static_cast<uint32_t>(GDA_GET(qpc, qpc, rnr_retry));
    qp->ack_timeout = static_cast<uint32_t>(GDA_GET(qpc, qpc, primary_address_path.ack_timeout));
    qp->next_psn = qp->fresh_psn = static_cast<uint32_t>(GDA_GET(qpc, qpc, next_send_psn));
    qp->acked_psn = psn_add(qp->next_psn, 0xffffff);
    qp->state = MLX5_QPC_STATE_RTS;
    read_send_record(s, qp);  // what was posted before it was allowed is sent now
    s.look_at(qp);
    return {};
}

Answer init2init(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Qp* qp;
    Answer answer = find(s, in, MLX5_QPC_STATE_INIT, &qp);
    if (answer.cause != Cause::none) return answer;
    const uint8_t* qpc = context_of(in);
    const uint32_t optional = static_cast<uint32_t>(GDA_GET(init2init_qp_in, in, opt_param_mask));
    uint32_t port = qp->port;
    if (optional & MLX5_QP_OPTPAR_PRI_PORT)
        answer = port_named(s, GDA_GET(qpc, qpc, primary_address_path.vhca_port_num), qp->name, &port);
    if (answer.cause == Cause::none) answer = take_optional(s, qp, qpc, optional);
    if (answer.cause != Cause::none) return answer;
    qp->port = static_cast<uint8_t>(port);
    if (optional & MLX5_QP_OPTPAR_PRI_PORT) GDA_SET(qpc, qp->context, primary_address_path.vhca_port_num, port);
    return {};
}

namespace {

// What follows the command: the stream of an initiator that was in error and may work again.
Answer take_extension(DeviceState& s, Qp* qp, const uint8_t* in) {
    const size_t bytes = GDA_BYTES_OF(rts2rts_qp_in) + GDA_BYTE_OFFSET(qpc_ext, dci_stream_channel_id) + 2;
    if (s.command_bytes < bytes) return {Cause::short_input, text("%zu bytes, at least %zu", s.command_bytes, bytes)};
    const uint64_t mask = GDA_GET(rts2rts_qp_in, in, opt_param_mask_95_32);
    const uint8_t* extension = in + GDA_BYTES_OF(rts2rts_qp_in);
    const uint16_t stream = static_cast<uint16_t>(GDA_GET(qpc_ext, extension, dci_stream_channel_id));
    if (mask != MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID || !qp->streams || !qp->streams->errored.erase(stream)) {
        return {Cause::no_such_stream,
                text("%s, stream %u, opt_param_mask_95_32 0x%llx: %s", qp->name, stream,
                     static_cast<unsigned long long>(mask), qp->streams ? "it is not in error" : "it has no streams")};
    }
    return {};
}

}  // namespace

Answer rts2rts(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Qp* qp;
    Answer answer = find(s, in, MLX5_QPC_STATE_RTS, &qp);
    if (answer.cause != Cause::none) return answer;
    if (GDA_GET(rts2rts_qp_in, in, qpc_ext)) {
        answer = take_extension(s, qp, in);
        if (answer.cause != Cause::none) return answer;
    }
    return take_optional(s, qp, context_of(in), static_cast<uint32_t>(GDA_GET(rts2rts_qp_in, in, opt_param_mask)));
}

Answer to_error(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Qp* qp;
    Answer answer = find(s, in, -1, &qp);
    if (answer.cause != Cause::none) return answer;
    if (qp->state == MLX5_QPC_STATE_RST) return {Cause::wrong_state, text("%s is in RESET", qp->name)};
    if (qp->page) scan_page(s, qp->page);
    read_send_record(s, qp);
    enter_error(s, qp);
    return {};
}

Answer to_reset(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Qp* qp;
    Answer answer = find(s, in, -1, &qp);
    if (answer.cause != Cause::none) return answer;
    if (qp->page)
        scan_page(s, qp->page);  // what was rung before belongs to this life of the queue pair, not to its next
    forget(s, qp);
    // As created: what names its memory, its queues and its page stays; all that a connection and traffic made goes.
    Qp fresh;
    fresh.number = qp->number;
    std::memcpy(fresh.name, qp->name, sizeof fresh.name);
    std::memcpy(fresh.context, qp->context, sizeof fresh.context);
    fresh.counter_set = qp->counter_set;
    fresh.pd = qp->pd, fresh.page = qp->page, fresh.place_on_page = qp->place_on_page;
    fresh.send_cq = qp->send_cq, fresh.xrcd = qp->xrcd;
    if (!qp->xrcd) fresh.receive_cq = qp->receive_cq, fresh.srq = qp->srq;
    if (qp->xrcd) fresh.pd = nullptr;
    fresh.transport = qp->transport, fresh.q_key = qp->q_key;
    fresh.user_index = qp->user_index;
    fresh.recordless = qp->recordless, fresh.has_receives = qp->has_receives, fresh.migrated = qp->migrated;
    fresh.send_ring = qp->send_ring, fresh.receive_ring = qp->receive_ring, fresh.record = qp->record;
    fresh.send_blocks = qp->send_blocks;
    fresh.receive_entries = qp->receive_entries, fresh.receive_stride = qp->receive_stride;
    if (qp->streams) {
        fresh.streams = std::make_unique<DcStreams>();
        fresh.streams->most_errored = qp->streams->most_errored;
    }
    *qp = std::move(fresh);
    return {};
}

}  // namespace sim::firmware
