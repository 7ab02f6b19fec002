// SPDX-License-Identifier: Apache-2.0
// The responder's side of reads and atomics. See responder.h.
// Source: InfiniBand Architecture Specification, volume 1, "RDMA READ", "Atomic Operations".

#include <algorithm>
#include <cinttypes>

#include "sim/engine/atomic.h"
#include "sim/engine/ordering.h"
#include "sim/engine/packet.h"
#include "sim/engine/reply.h"
#include "sim/engine/responder.h"
#include "sim/engine/vendor.h"
#include "sim/link/wire.h"

namespace sim {

using namespace gda::prm;

namespace {

// The reply goes out in a later look at the queue pair, so that no answer arrives inside the call that asked for it.
bool take_read(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn, bool again, uint32_t* packets) {
    const uint8_t* reth = operation_headers(packet);
    Reply reply;
    reply.kind = Reply::Kind::read;
    reply.again = again;
    reply.psn = psn;
    reply.address = GDA_GET(reth, reth, va);
    reply.key = static_cast<uint32_t>(GDA_GET(reth, reth, rkey));
    reply.bytes = GDA_GET(reth, reth, dma_length);
    Span span = {};
    Why why;
    if (!qp->remote_read_allowed) return not_allowed(s, qp, psn, "RDMA read: ", "remote reads (rre)");
    if (reply.bytes && !resolve(s, reply.key, reply.address, reply.bytes, qp, Access::remote_read, &span, &why)) {
        refuse(s, qp, psn, AETH_NAK_REMOTE_ACCESS, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
               "RDMA read: " + why);
        return false;
    }
    *packets = packets_for(qp, reply.bytes);
    queue_reply(s, qp, reply);
    s.report.count(Counter::read_requests);
    return true;
}

AtomicOperation operation_of(const Packet& packet, uint32_t operation, bool masked) {
    const uint8_t* at = operation_headers(packet);
    AtomicOperation o;
    o.compares = operation == RC_COMPARE_SWAP;
    o.swap_add = GDA_GET(atomiceth, at, swap_add);
    o.compare = GDA_GET(atomiceth, at, compare);
    o.swap_mask = o.compare_mask = o.compares ? ~uint64_t{0} : 0;
    if (masked) {
        at += GDA_BYTES_OF(atomiceth);
        o.swap_mask = GDA_GET(atomic_mask, at, swap_mask);
        o.compare_mask = GDA_GET(atomic_mask, at, compare_mask);
        o.bytes = GDA_GET(atomic_mask, at, bytes) == 4 ? 4 : 8;
    }
    return o;
}

// Behind what this queue pair wrote to GPU memory; on a GPU by the GPU, where it can.
Copied execute_in_order(DeviceState& s, Qp* qp, const AtomicOperation& o, const Span& target, uint32_t key,
                        uint64_t address, AtomicResult* result) {
    const bool in_order = !s.ordering.on && !s.port->faults().unordered();
    if (in_order && target.gpu && !target.scattered) {
        const Copied later = execute_later(s, o, target, &qp->placed, &result->value, qp->name);
        if (later == Copied::yes) result->job = qp->placed;
        return later;
    }
    if (!s.copier.is_done(qp->placed)) return Copied::later;
    order_atomic(s, qp, target, key, address);
    return execute(s, o, target, &result->value, qp->name) ? Copied::yes : Copied::no_destination;
}

bool take_atomic(DeviceState& s, Qp* qp, const Packet& packet, uint32_t operation, bool masked, uint32_t psn) {
    const uint8_t* at = operation_headers(packet);
    const AtomicOperation o = operation_of(packet, operation, masked);
    const uint64_t address = GDA_GET(atomiceth, at, va);
    const uint32_t key = static_cast<uint32_t>(GDA_GET(atomiceth, at, rkey));
    if (address % o.bytes) {
        refuse(s, qp, psn, AETH_NAK_INVALID_REQUEST, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
               Why(Kind::atomic_misaligned,
                   text("an atomic of %u bytes at 0x%" PRIx64 ", which is not a multiple of %u", o.bytes, address,
                        o.bytes),
                   {{"address", address}, {"bytes", o.bytes}}));
        return false;
    }
    Span span = {};
    Why why;
    if (!qp->remote_atomic_allowed) return not_allowed(s, qp, psn, "atomic: ", "remote atomics (rae)");
    if (!resolve(s, key, address, o.bytes, qp, Access::remote_atomic, &span, &why)) {
        refuse(s, qp, psn, AETH_NAK_REMOTE_ACCESS, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
               "atomic: " + why);
        return false;
    }
    Reply reply;
    reply.kind = Reply::Kind::atomic;
    reply.psn = psn;
    AtomicResult& result = qp->atomic_results[qp->atomics_done % ATOMIC_RESULTS];
    const AtomicResult before = result;
    result = {psn, 0, {}};
    Copied executed = execute_in_order(s, qp, o, span, key, address, &result);
    if (executed == Copied::later && !not_yet(s, qp, packet)) {
        executed = execute_in_order(s, qp, o, span, key, address, &result);
    }
    if (executed != Copied::yes) result = before;
    if (executed == Copied::later) {
        packet.later = true;
        return false;
    }
    if (executed != Copied::yes) {
        refuse(s, qp, psn, AETH_NAK_REMOTE_OPERATIONAL, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, VENDOR_RECEIVE_ABORTED,
               Why(Kind::memory_gone, "the target of an atomic cannot be reached", {{"address", address}}));
        return false;
    }
    ++qp->atomics_done;
    reply.value = result.value;
    reply.job = result.job;
    queue_reply(s, qp, reply);
    s.report.count(Counter::atomic_requests);
    return true;
}

}  // namespace

// One packet, and a reply that takes as many sequence numbers as it has packets.
void take_fetch(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn) {
    const Meaning meaning = meaning_of(static_cast<uint8_t>(GDA_GET(bth, packet.header, opcode)));
    const bool masked = meaning.masked;
    if (qp->fetch_replies >= qp->most_replies) {
        return refuse(
            s, qp, psn, AETH_NAK_INVALID_REQUEST, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, VENDOR_RECEIVE_ABORTED,
            text("more than %u reads and atomics are outstanding (log_rra_max of this queue pair)", qp->most_replies));
    }
    const uint32_t operation = meaning.code;
    uint32_t packets = 1;
    const bool read = operation == RC_RDMA_READ_REQUEST;
    if (!(read ? take_read(s, qp, packet, psn, false, &packets) : take_atomic(s, qp, packet, operation, masked, psn)))
        return;
    qp->expected_psn = psn_add(psn, packets);
    qp->gap_told = false;
    qp->msn = psn_add(qp->msn, 1);
    ++s.done;
    trace_arrival(s, qp, packet, psn);
}

// Reading again does no harm; executing an atomic again would.
void repeat_fetch(DeviceState& s, Qp* qp, const Packet& packet, uint32_t psn) {
    if (qp->again_replies >= qp->most_replies) return;  // it will ask again
    uint32_t packets;
    if (GDA_GET(bth_parts, packet.header, operation) == RC_RDMA_READ_REQUEST) {
        take_read(s, qp, packet, psn, true, &packets);
        return;
    }
    // From the newest: sequence numbers go round, and an older result may bear the same one.
    for (uint32_t age = 1; age <= std::min<uint32_t>(qp->atomics_done, ATOMIC_RESULTS); ++age) {
        const AtomicResult& result = qp->atomic_results[(qp->atomics_done - age) % ATOMIC_RESULTS];
        if (result.psn != psn) continue;
        Reply reply;
        reply.kind = Reply::Kind::atomic;
        reply.again = true;
        reply.psn = psn;
        reply.value = result.value;
        reply.job = result.job;
        return queue_reply(s, qp, reply);
    }
}

}  // namespace sim
