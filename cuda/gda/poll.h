// SPDX-License-Identifier: Apache-2.0
// Reading completions: from the NIC's CQEs to the queue's `done`, `error` and `cq_consumed`. Called by ring.h (a full
// ring) and wait.h (wait, test, flush). Document: docs/one_put.md, step 11; ConnectX Programmer's Reference Manual,
// "Completion Queue Entry Format".
//
// Who writes what: the NIC writes CQEs, body first and the last dword last. Any thread of a shared queue may poll.
#pragma once

#include <gda/formats/cqe.h>
#include <gda/formats/doorbell.h>
#include <gda/status.h>
#include <gda/trace.h>

namespace gda {

// The constants of a queue, read once per call so that no barrier makes the compiler read them again.
struct queue_view {
    uint8_t* sq;
    void* doorbell;
    void* record;
    uint8_t* cq_ring;
    void* cq_record;
    uint64_t* window;  // behind the queue pair, see token.h
    uint64_t deadline_ns;
    uint64_t max_message_bytes;
    uint64_t depth;  // basic blocks, a power of two
    uint32_t qpn;
    uint32_t cq_log_size;
    uint32_t flags;
    uint32_t cq_flags;
    target::scope scope;
    bool owned;
};

GDA_DEVICE queue_view view(gda_qp* qp) {
    queue_view q;
    q.window = reinterpret_cast<uint64_t*>(reinterpret_cast<gda_queue*>(qp)->window);
    q.flags = target::load_constant(&qp->flags);
    q.sq = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(target::load_constant(&qp->sq)));
    q.doorbell = reinterpret_cast<void*>(static_cast<uintptr_t>(target::load_constant(&qp->doorbell)));
    q.record = reinterpret_cast<void*>(static_cast<uintptr_t>(target::load_constant(&qp->record)));
    q.cq_ring = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(target::load_constant(&qp->cq.ring)));
    q.cq_record = reinterpret_cast<void*>(static_cast<uintptr_t>(target::load_constant(&qp->cq.record)));
    q.deadline_ns = target::load_constant(&qp->deadline_ns);
    q.max_message_bytes = target::load_constant(&qp->max_message_bytes);
    q.depth = static_cast<uint64_t>(1) << target::load_constant(&qp->log_sq_size);
    q.qpn = target::load_constant(&qp->qpn);
    q.cq_log_size = target::load_constant(&qp->cq.log_size);
    q.cq_flags = target::load_constant(&qp->cq.flags);
    q.scope = (q.flags & GDA_QP_GPU_SCOPE) != 0 ? target::scope_gpu : target::scope_system;
    q.owned = (q.flags & GDA_QP_OWNED) != 0;
    return q;
}

GDA_DEVICE uint64_t load_word(const queue_view& q, const uint64_t* p) {
    return q.owned ? target::load_owned(p) : target::load_shared(p);
}

GDA_DEVICE void store_word(const queue_view& q, uint64_t* p, uint64_t v) {
    if (q.owned) {
        target::store_owned(p, v);
    } else {
        target::store_shared(p, v);
    }
}

// First error wins; later ones (flushed requests, other threads) only repeat it.
GDA_DEVICE void latch(gda_qp* qp, const queue_view& q, gda_status status) {
    if (!q.owned) {
        target::compare_swap(&qp->error, 0, status);
    } else if (target::load_owned(&qp->error) == 0) {
        target::store_owned(&qp->error, status);
    }
}

GDA_DEVICE uint64_t load_done(const gda_qp* qp, const queue_view& q) {
    return q.owned ? target::load_owned(&qp->done) : target::load_shared_acquire(&qp->done);
}

// The 64-bit index after the completed WQE, from the 16 bits that a CQE carries: the next one with these bits at or
// above `done`. At most depth <= 32,768 requests are open, so a larger step means that `done` was read late, after
// others had moved it past this CQE, which then says nothing new.
GDA_DEVICE uint64_t completed_end(const queue_view& q, uint64_t done, uint32_t wqe_counter) {
    uint64_t step = static_cast<uint16_t>(wqe_counter + 1 - static_cast<uint32_t>(done));
    return step <= q.depth ? done + step : done;
}

// What a CQE says, or several.
struct progress {
    uint64_t end;       // all requests below are done
    gda_status status;  // zero, or the error
};

// `last` is the CQE's last dword in host order; `entry` is read again only for an error.
GDA_DEVICE progress read_completion(const queue_view& q, uint64_t done, const uint8_t* entry, uint32_t last) {
    uint32_t opcode = GDA_EXTRACT(cqe64, opcode, last);
    uint32_t counter = GDA_EXTRACT(cqe64, wqe_counter, last);
    progress p = {completed_end(q, done, counter), 0};
    if (opcode != prm::MLX5_CQE_REQ_ERR && opcode != prm::MLX5_CQE_RESP_ERR) return p;
    uint32_t cause = be32(target::load_completion(entry + GDA_DWORD_OFFSET(err_cqe, syndrome), q.scope));
    uint32_t syndrome = GDA_EXTRACT(err_cqe, syndrome, cause);
    p.status = make_status(prm::GDA_COMPLETION_ERROR, q.qpn, counter, syndrome,
                           GDA_EXTRACT(err_cqe, vendor_error_syndrome, cause));
    // A request flushed behind a failed one says nothing of those before it; any other error means that they are done.
    p.end = syndrome != prm::MLX5_CQE_SYNDROME_WR_FLUSH_ERR && p.end > done ? p.end - 1 : done;
    return p;
}

// Tells the other threads. `done` before `error`: a waiter that sees the error must also see what was complete before
// it. Nobody waits for the first. `unnoted`: as of poll().
GDA_DEVICE void take_in(gda_qp* qp, const queue_view& q, uint64_t done, const progress& p, uint64_t* unnoted) {
    if (p.end > done) {
        bool later = target::TRACE_JOINS && unnoted != nullptr;
        if (!later) trace(prm::TRACE_POLL, q.qpn, p.end - 1);
        if (later) *unnoted = p.end;
        if (q.owned) {
            target::store_owned(&qp->done, p.end);
        } else {
            target::raise_release(&qp->done, p.end);
        }
    }
    if (p.status != 0) latch(qp, q, p.status);
}

// One entry for all completions: a single acquire load tells both progress and error. After a failure the NIC goes on
// to overwrite the entry with those of flushed requests, so the first cause can be lost (use a ring for diagnosis).
GDA_DEVICE progress poll_collapsed(gda_qp* qp, const queue_view& q, uint64_t* unnoted) {
    uint64_t done = load_done(qp, q);  // acquired before the CQE, which is then at or above it
    uint32_t last = be32(target::load_completion(q.cq_ring + GDA_DWORD_OFFSET(cqe64, opcode), q.scope));
    progress p = {done, 0};
    if (GDA_EXTRACT(cqe64, opcode, last) == prm::MLX5_CQE_INVALID) return p;  // as filled before use
    p = read_completion(q, done, q.cq_ring, last);
    take_in(qp, q, done, p, unnoted);
    return p;
}

// cq_consumed with this bit: a thread is reading the ring. Others do not wait for it, they look at `done` again. Should
// that thread be killed meanwhile, waits on the queue end at their deadlines until the queue is reset.
static constexpr uint64_t CQ_CLAIMED = static_cast<uint64_t>(1) << 63;

GDA_DEVICE progress poll_ring(gda_qp* qp, const queue_view& q, uint64_t* unnoted) {
    uint64_t done = load_done(qp, q);
    // Acquire: what the last reader saw, so that no entry is seen as it was two laps ago, when its owner bit was the
    // same.
    uint64_t start = q.owned ? target::load_owned(&qp->cq_consumed) : target::load_shared_acquire(&qp->cq_consumed);
    uint64_t entries = static_cast<uint64_t>(1) << q.cq_log_size;
    progress all = {done, 0};
    if ((start & CQ_CLAIMED) != 0) return all;
    // A look before the claim, so that a thread that finds nothing writes nothing.
    for (uint64_t consumed = start, limit = start + entries;; ++consumed) {
        const uint8_t* entry = q.cq_ring + (consumed & (entries - 1)) * prm::CQE_BYTES;
        uint32_t last = be32(target::load_completion(entry + GDA_DWORD_OFFSET(cqe64, opcode), q.scope));
        uint32_t lap = static_cast<uint32_t>(consumed >> q.cq_log_size) & 1;
        // The owner bit alone is not enough: in the first lap it is right in entries never written (opcode 0xf).
        bool there = consumed != limit && GDA_EXTRACT(cqe64, owner, last) == lap &&
                     GDA_EXTRACT(cqe64, opcode, last) != prm::MLX5_CQE_INVALID;
        if (!there && consumed == start) return all;
        if (consumed == start) {
            if (!q.owned && !target::compare_swap_relaxed(&qp->cq_consumed, start, start | CQ_CLAIMED)) return all;
            done = all.end = load_word(q, &qp->done);  // as the last reader left it: read behind the claim
        }
        if (there) {
            progress one = read_completion(q, all.end, entry, last);
            all.end = one.end;
            if (all.status == 0) all.status = one.status;
            continue;
        }
        // The record frees entries for the NIC; every read of them is over (they were acquire loads).
        if ((q.cq_flags & GDA_CQ_IGNORE_OVERRUN) == 0) {
            target::store_record(
                static_cast<uint8_t*>(q.cq_record) + GDA_DWORD_OFFSET(cq_doorbell_record, consumer_index),
                be32(GDA_FIELD(cq_doorbell_record, consumer_index, static_cast<uint32_t>(consumed))));
        }
        // Only now: whoever sees `done` may post again, and the completion of that needs an entry that the record
        // freed.
        take_in(qp, q, done, all, unnoted);
        if (q.owned) {
            target::store_owned(&qp->cq_consumed, consumed);
        } else {
            target::store_shared_release(&qp->cq_consumed, consumed);
        }
        return all;
    }
}

// Takes in what the NIC has completed, and answers it: `end` is at least what others have found. Never waits. Whoever
// ends its wait with what this look finds may pass `unnoted`, zero: up to where a trace has to learn of that.
GDA_DEVICE progress poll(gda_qp* qp, const queue_view& q, uint64_t* unnoted = nullptr) {
    target::meter(GDA_METER_POLLS);
    return (q.cq_flags & GDA_CQ_COLLAPSED) != 0 ? poll_collapsed(qp, q, unnoted) : poll_ring(qp, q, unnoted);
}

}  // namespace gda
