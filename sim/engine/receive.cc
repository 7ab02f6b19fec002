// SPDX-License-Identifier: Apache-2.0
// See receive.h. Source: ConnectX manual, "Receive Queue", "Shared Receive Queue"; layout of the linked list:
// gda/formats/wqe.h.

#include "sim/engine/receive.h"

#include <algorithm>
#include <cinttypes>

#include "sim/engine/ordering.h"
#include "sim/engine/vendor.h"

namespace sim {

using namespace gda::prm;

namespace {

uint16_t posted_count(DeviceState& s, const Region& record, uint16_t taken, const char* whose) {
    uint32_t words[2] = {0, 0};
    if (!record.umem) return taken;
    if (!read_word(s, record, GDA_DWORD_OFFSET(qp_doorbell_record, receive_counter), &words[0], whose)) return taken;
    return static_cast<uint16_t>(GDA_GET(qp_doorbell_record, words, receive_counter));
}

uint16_t posted_receives(DeviceState& s, Qp* qp) {
    return qp->has_receives ? posted_count(s, qp->record, qp->receive_next, qp->name) : qp->receive_next;
}

// Reads a scatter list up to its end.
void read_list(const uint8_t* list, uint32_t bytes, Receive* r) {
    r->open = true;
    r->pieces = 0;
    r->filled = 0;
    for (uint32_t at = 0; at < bytes; at += WQE_SEGMENT_BYTES) {
        const uint32_t key = static_cast<uint32_t>(GDA_GET(wqe_data_seg, list + at, lkey));
        const uint32_t size = static_cast<uint32_t>(GDA_GET(wqe_data_seg, list + at, byte_count));
        if (key == LKEY_END_OF_LIST) break;
        if (size) r->piece[r->pieces++] = {key, GDA_GET(wqe_data_seg, list + at, addr), size};
    }
}

void spoil(DeviceState& s, Srq* srq, const Why& why) {
    srq->failed = true;
    Values values = why.values;
    values.insert(values.begin(), {"srq", srq->number});
    s.report.say(why.kind, std::string(srq->name) + ": " + why.words, values);
    s.pending.push_back({false, srq->number, AsyncEvent::srq_error});
}

bool open_shared(DeviceState& s, Qp* qp) {
    Srq* srq = qp->srq;
    const uint32_t left = receives_left(s, srq);
    if (srq->failed || left == 0) return false;
    uint8_t wqe[32 * WQE_SEGMENT_BYTES];
    const uint32_t bytes = std::min<uint32_t>(srq->stride, sizeof wqe);
    if (!read_ring(s, srq->ring, uint64_t{srq->head} * srq->stride, wqe, bytes, srq->name)) return false;
    const uint16_t next = static_cast<uint16_t>(srq->cyclic ? (srq->head + 1) & (srq->entries - 1)
                                                            : GDA_GET(wqe_srq_next_seg, wqe, next_wqe_index));
    if (next >= srq->entries) {
        spoil(s, srq, text("receive WQE %u names %u as the next one, the ring has %u", srq->head, next, srq->entries));
        return false;
    }
    read_list(wqe + WQE_SEGMENT_BYTES, bytes - WQE_SEGMENT_BYTES, &qp->receive);
    qp->receive.index = srq->head;
    srq->head = next;
    ++srq->taken;
    check_limit(s, srq);
    return true;
}

}  // namespace

uint32_t receives_left(DeviceState& s, Srq* srq) {
    const uint16_t posted = posted_count(s, srq->record, srq->taken, srq->name);
    const uint16_t left = static_cast<uint16_t>(posted - srq->taken);
    if (left > srq->entries) {
        s.report.say(Kind::receive_record,
                     text("%s: overrun: its record says %u, taken so far %u, the ring has %u entries", srq->name,
                          posted, srq->taken, srq->entries),
                     {{"srq", srq->number}, {"record", posted}, {"taken", srq->taken}, {"entries", srq->entries}});
        return 0;
    }
    return left;
}

void check_limit(DeviceState& s, Srq* srq) {
    if (!srq->limit || receives_left(s, srq) >= srq->limit) return;
    srq->limit = 0;
    s.report.count(Counter::srq_limits);
    s.pending.push_back({false, srq->number, AsyncEvent::srq_limit});
}

bool open_receive(DeviceState& s, Qp* qp) {
    if (qp->receive.open) {  // begun for a message that was dropped: taken again
        qp->receive.filled = 0;
        return true;
    }
    if (qp->srq) return open_shared(s, qp);
    const uint16_t posted = posted_receives(s, qp);
    if (posted == qp->receive_next) return false;
    if (static_cast<uint16_t>(posted - qp->receive_next) > qp->receive_entries) {
        s.report.say(
            Kind::receive_record,
            text("%s: RQ overrun: the receive record says %u, taken so far %u, the ring has %u entries", qp->name,
                 posted, qp->receive_next, qp->receive_entries),
            {{"qp", qp->number}, {"index", qp->receive_next}, {"record", posted}, {"entries", qp->receive_entries}});
        return false;
    }
    uint8_t list[32 * WQE_SEGMENT_BYTES];
    const uint32_t stride = std::min<uint32_t>(qp->receive_stride, sizeof list);
    const uint32_t slot = qp->receive_next & (qp->receive_entries - 1);
    if (!read_ring(s, qp->receive_ring, uint64_t{slot} * qp->receive_stride, list, stride, qp->name)) return false;
    read_list(list, stride, &qp->receive);
    qp->receive.index = qp->receive_next++;
    return true;
}

Filled fill_receive(DeviceState& s, Qp* qp, const iovec& part, Why* why) {
    Receive& r = qp->receive;
    iovec rest = part;
    while (rest.iov_len) {
        uint64_t begin = 0;
        uint32_t n = 0;
        while (n < r.pieces && r.filled >= begin + r.piece[n].bytes) begin += r.piece[n++].bytes;
        if (n == r.pieces) {
            *why = Why(Kind::receive_too_short,
                       text("the message is longer than receive WQE %u, which has %" PRIu64 " bytes", r.index, begin),
                       {{"index", r.index}, {"bytes", begin}});
            return Filled::too_long;
        }
        const Receive::Piece& piece = r.piece[n];
        const iovec now = {rest.iov_base, std::min<size_t>(rest.iov_len, begin + piece.bytes - r.filled)};
        // What the message needs, not the whole piece: programs post pieces longer than their region (perftest rounds
        // those of a shared receive queue up to the MTU), which neither a NIC nor the kernel's rxe minds.
        Span span = {};
        const Asker asker(qp->srq ? qp->srq->pd : qp->pd, qp->number);
        const uint64_t address = piece.address + (r.filled - begin);
        if (!resolve(s, piece.key, address, now.iov_len, asker, Access::local_write, &span, why)) {
            *why = text("receive WQE %u: local protection error: ", r.index) + *why;
            return Filled::bad_key;
        }
        if (!span.relaxed) make_all_visible(s);
        const Copied copied = copy(s, span, 0, payload_span(s, now), qp->name);
        if (copied == Copied::no_source) return Filled::no_source;
        if (copied == Copied::no_destination) {
            *why = Why(Kind::memory_gone, "its memory cannot be written", {{"index", r.index}});
            return Filled::unmapped;
        }
        s.report.count(Counter::bytes_written, now.iov_len);
        r.filled += now.iov_len;
        rest = {static_cast<uint8_t*>(rest.iov_base) + now.iov_len, rest.iov_len - now.iov_len};
    }
    return Filled::yes;
}

void complete_receive(DeviceState& s, Qp* qp, Completion c) {
    c.index = qp->receive.index;
    qp->receive.open = false;
    complete(s, qp->receive_cq, *qp, c);
}

void fail_receive(DeviceState& s, Qp* qp, cqe_syndrome syndrome, uint8_t vendor) {
    Completion c;
    c.opcode = MLX5_CQE_RESP_ERR;
    c.syndrome = static_cast<uint8_t>(syndrome);
    c.vendor = vendor;
    complete_receive(s, qp, c);
}

void flush_receives(DeviceState& s, Qp* qp) {
    if (qp->receive.open) fail_receive(s, qp, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, VENDOR_FLUSHED);
    if (!qp->has_receives) return;
    const uint16_t posted = posted_receives(s, qp);
    const uint16_t waiting = static_cast<uint16_t>(posted - qp->receive_next);
    if (waiting > qp->receive_entries) return;  // not a count of receives: the record was reset or never written
    while (qp->receive_next != posted) {
        qp->receive.index = qp->receive_next++;
        fail_receive(s, qp, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, VENDOR_FLUSHED);
    }
}

}  // namespace sim
