// SPDX-License-Identifier: Apache-2.0
// Send and receive: messages whose place the receiver chooses, and the arrival of puts with immediate. Called by
// kernels; forms of a warp and a block: collective.h. Refusals and tickets of sends: put.h. Source: ConnectX
// Programmer's Reference Manual, "Receive Queue".
//
//   gda_post_receive(qp, buffer, 0, 4096);                       // before the other side sends
//   gda_received r;
//   gda_status s = gda_wait_receive(qp, &r, GDA_MS(100));        // r.bytes bytes lie at r.addr
//
// Who owns what between the counters (64-bit indices of receives; entry = index & (depth - 1)):
//   [received, ready)  the NIC: posted, perhaps filled
//   [ready, reserved)  threads that write receive entries
//   Receives are posted by telling the record; there is no doorbell. An entry is free again when its completion has
//   been read, so the completion ring, of the same size, cannot overrun. Any thread of a shared queue may post and
//   take; each arrival goes to one of them.
#pragma once

#include <gda/put.h>

namespace gda {

// The constants of a receive queue, read once per call.
struct receive_view {
    gda_receive_queue* rq;
    uint8_t* ring;
    void* record;
    uint8_t* cq_ring;
    uint64_t cq_base;
    uint64_t depth;
    uint32_t log_size;
};

// Behind the queue pair: kernels get the first member of a gda_queue.
GDA_DEVICE gda_receive_queue* receive_queue(gda_qp* qp) { return &reinterpret_cast<gda_queue*>(qp)->receive; }

GDA_DEVICE receive_view receives(gda_qp* qp) {
    gda_receive_queue* rq = receive_queue(qp);
    receive_view v;
    v.rq = rq;
    v.ring = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(target::load_constant(&rq->ring)));
    v.record = reinterpret_cast<void*>(static_cast<uintptr_t>(target::load_constant(&rq->record)));
    v.cq_ring = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(target::load_constant(&rq->cq.ring)));
    v.cq_base = target::load_constant(&rq->cq_base);
    v.log_size = target::load_constant(&rq->log_size);
    v.depth = static_cast<uint64_t>(1) << v.log_size;
    return v;
}

GDA_DEVICE gda_status check_receives(gda_qp* qp) {
    gda_status status = check_queue(qp);
    if (status == 0 && target::load_constant(&receive_queue(qp)->ring) == 0) {
        status = make_status(prm::GDA_NO_RECEIVE_QUEUE, target::load_constant(&qp->qpn), 0);
    }
    return status;
}

// `received` with this bit: a thread is reading completions. Others do not wait for it; should it be killed meanwhile,
// waits end at their deadlines until the queue is reset.
static constexpr uint64_t RECEIVE_CLAIMED = static_cast<uint64_t>(1) << 63;

// Hands out 1 to `wanted` receives, or none when all are posted.
GDA_DEVICE claim reserve_receives(gda_qp* qp, const queue_view& q, const receive_view& v, uint64_t wanted) {
    for (;;) {  // a turn more only when another thread got ahead: at most `depth` times before the queue is full
        claim c;
        c.base = load_word(q, &v.rq->reserved);
        c.ready = load_word(q, &v.rq->ready);
        c.status = load_word(q, &qp->error);
        // Acquire: whoever read the completions below `received` has done with their entries.
        uint64_t received =
            q.owned ? target::load_owned(&v.rq->received) : target::load_shared_acquire(&v.rq->received);
        received &= ~RECEIVE_CLAIMED;
        if (c.status != 0) return refused(c.status);
        if (received > c.base) continue;  // others posted and took between the two reads; look again
        uint64_t room = v.depth - (c.base - received);
        if (room == 0) return refused(make_status(prm::GDA_QUEUE_FULL, q.qpn, c.base));
        c.count = wanted < room ? wanted : room;
        if (q.owned) {
            target::store_owned(&v.rq->reserved, c.base + c.count);
            return c;
        }
        if (target::compare_swap_relaxed(&v.rq->reserved, c.base, c.base + c.count)) return c;
    }
}

// One data segment. Without bytes the list of them is empty: a byte_count of zero would mean 2^31.
GDA_DEVICE void store_receive(const receive_view& v, uint64_t index, uint64_t addr, uint32_t lkey_be, uint32_t bytes) {
    uint8_t* entry = v.ring + (index & (v.depth - 1)) * prm::WQE_SEGMENT_BYTES;
    store_data(entry, addr, bytes != 0 ? lkey_be : be32(prm::LKEY_END_OF_LIST), bytes);
}

// How long a thread waits for an earlier one. That one has its entries and needs nothing but to run, so when this has
// passed it is gone (its kernel was killed) and the queue cannot go on.
static constexpr uint64_t PREDECESSOR_LIMIT_NS = GDA_S(10);

// Until `ready` reaches `base`: then the entries from `base` on are the caller's to publish. False: an earlier thread
// is gone, and the queue has failed.
GDA_DEVICE bool await_turn(gda_qp* qp, const queue_view& q, const uint64_t* ready, uint64_t base) {
    uint64_t give_up_at = 0;
    while (target::load_shared(ready) != base) {
        target::idle();
        if (give_up_at == 0) {
            give_up_at = moment_after(PREDECESSOR_LIMIT_NS);
        } else if (target::clock_ns() >= give_up_at) {
            latch(qp, q, make_status(prm::GDA_TIMEOUT, q.qpn, base));
            return false;
        }
    }
    return true;
}

GDA_DEVICE void publish_receives(gda_qp* qp, const queue_view& q, const receive_view& v, const claim& c) {
    uint64_t end = c.base + c.count;
    if (!q.owned && c.ready != c.base && !await_turn(qp, q, &v.rq->ready, c.base)) return;
    // The entries, own and (through `ready`) earlier ones, are there before the record says so.
    target::wqe_before_doorbell_record(q.scope);
    uint32_t counter = static_cast<uint16_t>(end);
    target::store_record(v.record, be32(GDA_FIELD(qp_doorbell_record, receive_counter, counter)));
    if (q.owned) {
        target::store_owned(&v.rq->ready, end);
    } else {
        target::store_shared_release(&v.rq->ready, end);  // the next thread's record comes after this one
    }
}

// A completion of the ring, if the NIC has written it: its last dword in host order.
struct arrival {
    const uint8_t* entry;
    uint32_t last;
    bool there;
};

GDA_DEVICE arrival look_at(const queue_view& q, const receive_view& v, uint64_t index) {
    uint64_t at = v.cq_base + index;
    arrival a;
    a.entry = v.cq_ring + (at & (v.depth - 1)) * prm::CQE_BYTES;
    a.last = be32(target::load_completion(a.entry + GDA_DWORD_OFFSET(cqe64, opcode), q.scope));
    uint32_t lap = static_cast<uint32_t>(at >> v.log_size) & 1;
    a.there = GDA_EXTRACT(cqe64, owner, a.last) == lap && GDA_EXTRACT(cqe64, opcode, a.last) != prm::MLX5_CQE_INVALID;
    return a;
}

// Reads the completion of receive `index`. The thread has claimed it, so neither it nor its entry changes meanwhile.
GDA_DEVICE gda_status read_arrival(gda_qp* qp, const queue_view& q, const receive_view& v, uint64_t index,
                                   gda_received* out) {
    arrival a = look_at(q, v, index);
    const uint8_t* entry = v.ring + (index & (v.depth - 1)) * prm::WQE_SEGMENT_BYTES;
    const uint64_t* addr = reinterpret_cast<const uint64_t*>(entry + GDA_DWORD_OFFSET(wqe_data_seg, addr));
    out->index = index;
    out->addr = be64(target::load_owned(addr));  // this library wrote it; the NIC only reads it
    out->opcode = GDA_EXTRACT(cqe64, opcode, a.last);
    out->bytes = be32(target::load_completion(a.entry + GDA_DWORD_OFFSET(cqe64, byte_cnt), q.scope));
    out->immediate = be32(target::load_completion(a.entry + GDA_DWORD_OFFSET(cqe64, imm_inval_pkey), q.scope));
    out->reserved = 0;
    if (out->opcode != prm::MLX5_CQE_RESP_ERR && out->opcode != prm::MLX5_CQE_REQ_ERR) return GDA_OK;
    out->bytes = out->immediate = 0;
    uint32_t cause = be32(target::load_completion(a.entry + GDA_DWORD_OFFSET(err_cqe, syndrome), q.scope));
    uint32_t syndrome = GDA_EXTRACT(err_cqe, syndrome, cause);
    gda_status status = make_status(prm::GDA_COMPLETION_ERROR, q.qpn, index, syndrome,
                                    GDA_EXTRACT(err_cqe, vendor_error_syndrome, cause));
    // A flushed receive tells of a failure, it is not the cause of it.
    if (syndrome != prm::MLX5_CQE_SYNDROME_WR_FLUSH_ERR) latch(qp, q, status);
    return status;
}

// The oldest arrival that no thread has taken yet. Lanes of one warp that come together take as many as there are, one
// each. GDA_TIMEOUT (the bare code): nothing here for this thread.
GDA_DEVICE gda_status take_arrival(gda_qp* qp, const queue_view& q, const receive_view& v, gda_received* out) {
    if (q.owned) {
        uint64_t index = target::load_owned(&v.rq->received);
        if (!look_at(q, v, index).there) return GDA_TIMEOUT;
        gda_status status = read_arrival(qp, q, v, index, out);
        target::store_owned(&v.rq->received, index + 1);
        return status;
    }
    target::group g = target::converged_group(&v.rq->received);
    uint64_t start = 0, count = 0;
    if (g.rank == 0) {
        // Acquire: what the last reader left, so that this one sees no older lap of the ring.
        start = target::load_shared_acquire(&v.rq->received);
        if ((start & RECEIVE_CLAIMED) == 0) {
            while (count < g.size && count < v.depth && look_at(q, v, start + count).there) ++count;
            if (count != 0 && !target::compare_swap(&v.rq->received, start, start | RECEIVE_CLAIMED)) count = 0;
        }
    }
    start = target::broadcast(g, start);
    count = target::broadcast(g, count);
    if (count == 0) return GDA_TIMEOUT;
    bool mine = g.rank < count;
    gda_status status = GDA_TIMEOUT;
    if (mine) status = read_arrival(qp, q, v, start + g.rank, out);
    target::sync(g);  // all lanes have read before the entries are given back
    if (g.rank == 0) target::store_shared_release(&v.rq->received, start + count);
    return status;
}

template <class Poster>
GDA_DEVICE gda_ticket send_message(Poster& p, uint32_t opcode, const gda_mr& src, uint64_t offset, uint64_t bytes,
                                   uint32_t immediate, uint32_t flags) {
    if (p.status != 0) return GDA_TICKET_FAILED | p.status;
    bool fits = within(src, offset, bytes) && bytes <= largest_message(p.q);
    send_request r;
    r.opcode = opcode;
    r.immediate_be = be32(immediate);
    r.addr = src.addr + offset;
    r.lkey_be = src.lkey_be;
    r.bytes = static_cast<uint32_t>(bytes);
    return p.submit(r, manner_of(flags, true), fits ? 0 : out_of_bounds(p.q));
}

template <class Poster>
GDA_DEVICE gda_ticket send(Poster& p, const gda_mr& src, uint64_t offset, uint64_t bytes, uint32_t flags = 0) {
    return send_message(p, prm::MLX5_OPCODE_SEND, src, offset, bytes, 0, flags);
}

template <class Poster>
GDA_DEVICE gda_ticket send_imm(Poster& p, const gda_mr& src, uint64_t offset, uint64_t bytes, uint32_t immediate,
                               uint32_t flags = 0) {
    return send_message(p, prm::MLX5_OPCODE_SEND_IMM, src, offset, bytes, immediate, flags);
}

}  // namespace gda

// Sends `bytes` bytes from src + src_offset, as one message: at most the queue's max_message_bytes. It goes where the
// other side's oldest posted receive says, and fails there when that is shorter.
GDA_API gda_ticket gda_send(gda_qp* qp, gda_mr src, uint64_t src_offset, uint64_t bytes, uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::send(p, src, src_offset, bytes, flags);
}

// The same with four bytes for the receiver's completion.
GDA_API gda_ticket gda_send_imm(gda_qp* qp, gda_mr src, uint64_t src_offset, uint64_t bytes, uint32_t immediate,
                                uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::send_imm(p, src, src_offset, bytes, immediate, flags);
}

// Posts `bytes` bytes from buffer + offset (a region with local write) for one message, or no bytes for a put with
// immediate. Answers the receive's index; or a refusal, with gda_failed: GDA_NO_RECEIVE_QUEUE, GDA_QUEUE_FULL at once
// when as many as the queue is deep are posted, and as for puts. The memory is the NIC's until the receive arrives.
GDA_API gda_ticket gda_post_receive(gda_qp* qp, gda_mr buffer, uint64_t offset, uint64_t bytes) {
    gda_status status = gda::check_receives(qp);
    if (status != 0) return GDA_TICKET_FAILED | status;
    gda::queue_view q = gda::view(qp);
    gda::receive_view v = gda::receives(qp);
    if (!gda::within(buffer, offset, bytes) || bytes > gda::LARGEST_MESSAGE_BYTES) {
        return GDA_TICKET_FAILED | gda::out_of_bounds(q);
    }
    uint64_t addr = buffer.addr + offset;
    for (;;) {  // a turn more for lanes that found no room: they are refused then
        gda::target::group g = {1, 0, 0, 1};
        if (!q.owned) g = gda::target::converged_group(&v.rq->reserved);
        gda::claim c = gda::refused(0);
        if (g.rank == 0) c = gda::reserve_receives(qp, q, v, g.size);
        if (!q.owned) {
            c.status = gda::target::broadcast(g, c.status);
            c.base = gda::target::broadcast(g, c.base);
            c.count = gda::target::broadcast(g, c.count);
        }
        if (c.status != 0) return GDA_TICKET_FAILED | c.status;
        bool mine = g.rank < c.count;
        if (mine) gda::store_receive(v, c.base + g.rank, addr, buffer.lkey_be, static_cast<uint32_t>(bytes));
        if (!q.owned) gda::target::sync(g);  // all lanes' entries are written before the leader tells the record
        if (g.rank == 0) gda::publish_receives(qp, q, v, c);
        if (!q.owned) gda::target::sync(g);
        if (mine) return c.base + g.rank;
    }
}

// Takes the oldest arrival, if there is one. GDA_OK: *out says what. GDA_TIMEOUT (the bare code): nothing yet. Anything
// else: a receive failed (out->index says which), or why the queue cannot be used. Never waits.
GDA_API gda_status gda_poll_receive(gda_qp* qp, gda_received* out) {
    gda_status status = gda::check_receives(qp);
    if (status != 0) return status;
    return gda::take_arrival(qp, gda::view(qp), gda::receives(qp), out);
}

// Waits at most `deadline_ns` nanoseconds for an arrival: as gda_poll_receive, the queue's first error, or GDA_TIMEOUT
// with queue and receive in the word. What arrived before the queue failed is still delivered.
GDA_API gda_status gda_wait_receive(gda_qp* qp, gda_received* out, uint64_t deadline_ns) {
    gda_status status = gda::check_receives(qp);
    if (status != 0) return status;
    gda::queue_view q = gda::view(qp);
    gda::receive_view v = gda::receives(qp);
    uint64_t give_up_at = 0;
    for (;;) {
        gda_status error = gda::load_word(q, &qp->error);  // before the look: an arrival goes first
        status = gda::take_arrival(qp, q, v, out);
        if (gda_code(status) != GDA_TIMEOUT) return status;
        if (error != 0) return error;
        if (give_up_at == 0) {
            give_up_at = gda::moment_after(deadline_ns);
        } else if (gda::target::clock_ns() >= give_up_at) {
            uint64_t next = gda::load_word(q, &v.rq->received) & ~gda::RECEIVE_CLAIMED;
            return gda::make_status(GDA_TIMEOUT, q.qpn, next);
        }
        gda::target::idle();
    }
}
