// SPDX-License-Identifier: Apache-2.0
// Targets of dynamically connected queue pairs: CREATE_DCT, DRAIN_DCT, DESTROY_DCT, QUERY_DCT. Their numbers are among
// those of queue pairs. To drain one takes no time here: what it is receiving ends in error, and nobody reaches it any
// more. Source: Linux, include/linux/mlx5/mlx5_ifc.h (layout), drivers/infiniband/hw/mlx5/qp.c (what is filled in).

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/engine/dc.h"
#include "sim/engine/packet.h"
#include "sim/engine/requester.h"
#include "sim/firmware/handlers.h"

namespace sim::firmware {

using namespace gda::prm;

namespace {

Answer find(DeviceState& s, uint32_t number, Qp** target) {
    *target = s.qp(number);
    return *target && (*target)->dc_target() ? Answer{} : Answer{Cause::no_such_dct, text("DCT 0x%06x", number)};
}

void drain(DeviceState& s, Qp* target) {
    end_connections(s, target);
    forget(s, target);
    target->dc->drained = true;
    target->failing = false;
    target->state = MLX5_QPC_STATE_ERR;
}

// The path: packets are taken at the address of one entry of the table.
Answer take_path(const DeviceState& s, Qp* target, const uint8_t* dctc) {
    const uint32_t mtu = static_cast<uint32_t>(GDA_GET(dctc, dctc, mtu));
    if (mtu < MLX5_QPC_MTU_256_BYTES || mtu > MLX5_QPC_MTU_4K_BYTES) return {Cause::path_mtu, text("mtu %u", mtu)};
    uint32_t port;
    const Answer answer = port_named(s, GDA_GET(dctc, dctc, port), "", &port);
    if (answer.cause != Cause::none) return answer;
    const uint32_t index = static_cast<uint32_t>(GDA_GET(dctc, dctc, my_addr_index));
    if (!s.has_gid(port, index)) {
        return {Cause::address_index, text("my_addr_index %u of port %u: that entry is empty", index, port)};
    }
    const uint32_t place = s.gid_place(port, index);
    target->port = static_cast<uint8_t>(port);
    target->mtu = 128u << mtu;
    std::memcpy(target->local_gid, s.gids[place], sizeof target->local_gid);
    target->version1 = s.gid_version1[place];
    target->traffic_class = static_cast<uint8_t>(GDA_GET(dctc, dctc, tclass));
    target->hop_limit = static_cast<uint8_t>(GDA_GET(dctc, dctc, hop_limit));
    if (!target->hop_limit) target->hop_limit = DEFAULT_HOP_LIMIT;
    return {};
}

}  // namespace

Answer create_dct(DeviceState& s, const uint8_t* in, uint8_t* out) {
    const uint8_t* dctc = in + GDA_BYTE_OFFSET(create_dct_in, dct_context_entry);
    auto target = std::make_unique<Qp>();
    target->counter_set = &s.unnamed_set;
    target->transport = MLX5_QP_ST_DCT;
    const uint32_t pdn = static_cast<uint32_t>(GDA_GET(dctc, dctc, pd));
    const uint32_t cqn = static_cast<uint32_t>(GDA_GET(dctc, dctc, cqn));
    const uint32_t srqn = static_cast<uint32_t>(GDA_GET(dctc, dctc, srqn_xrqn));
    target->pd = s.pds.find(pdn);
    if (!target->pd) return {Cause::no_such_pd, text("PD %u", pdn)};
    target->receive_cq = s.cqs.find(cqn);
    if (!target->receive_cq) return {Cause::no_such_cq, text("cqn 0x%x", cqn)};
    target->srq = s.srqs.find(srqn);
    if (!target->srq) return {Cause::no_such_rmp, text("RMP 0x%x: a DCT receives from a shared queue", srqn)};
    Answer answer = take_path(s, target.get(), dctc);
    if (answer.cause != Cause::none) return answer;
    const uint32_t index = s.qps.free_index(FIRST_QP);
    if (index >= s.qps.LIMIT || s.qps.size() >= MAX_OBJECTS) return {Cause::table_full, "queue pairs and DCTs"};
    target->number = s.slot * 65536 + index;
    std::snprintf(target->name, sizeof target->name, "DCT 0x%06x", target->number);
    target->user_index = static_cast<uint32_t>(GDA_GET(dctc, dctc, user_index));
    target->min_rnr_nak = static_cast<uint32_t>(GDA_GET(dctc, dctc, min_rnr_nak));
    target->remote_read_allowed = GDA_GET(dctc, dctc, rre) != 0;
    target->remote_write_allowed = GDA_GET(dctc, dctc, rwe) != 0;
    target->remote_atomic_allowed = GDA_GET(dctc, dctc, rae) != 0;
    target->max_message_bytes = uint64_t{1} << LOG_MAX_MESSAGE;
    target->established = true;
    target->dc = std::make_unique<DcTarget>();
    target->dc->access_key = GDA_GET(dctc, dctc, dc_access_key);
    std::memcpy(target->dc->context, dctc, sizeof target->dc->context);
    target->state = MLX5_QPC_STATE_RTR;
    ++target->pd->uses;
    ++target->receive_cq->uses;
    ++target->srq->uses;
    GDA_SET(create_dct_out, out, dctn, target->number);
    s.qps.put(index, std::move(target));
    return {};
}

Answer drain_dct(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Qp* target;
    const Answer answer = find(s, static_cast<uint32_t>(GDA_GET(drain_dct_in, in, dctn)), &target);
    if (answer.cause == Cause::none) drain(s, target);
    return answer;
}

Answer destroy_dct(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    Qp* target;
    const Answer answer = find(s, static_cast<uint32_t>(GDA_GET(destroy_dct_in, in, dctn)), &target);
    if (answer.cause != Cause::none) return answer;
    drain(s, target);
    --target->pd->uses;
    --target->receive_cq->uses;
    --target->srq->uses;
    s.qps.erase(target->number % 65536);
    return {};
}

Answer query_dct(DeviceState& s, const uint8_t* in, uint8_t* out) {
    Qp* target;
    const Answer answer = find(s, static_cast<uint32_t>(GDA_GET(query_dct_in, in, dctn)), &target);
    if (answer.cause != Cause::none) return answer;
    uint8_t* dctc = out + GDA_BYTE_OFFSET(query_dct_out, dct_context_entry);
    std::memcpy(dctc, target->dc->context, sizeof target->dc->context);
    GDA_SET(dctc, dctc, state, target->dc->drained ? MLX5_DCTC_STATE_DRAINED : MLX5_DCTC_STATE_ACTIVE);
    GDA_SET(dctc, dctc, dc_access_key_violation_count, target->dc->violations);
    return {};
}

}  // namespace sim::firmware
