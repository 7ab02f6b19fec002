// SPDX-License-Identifier: Apache-2.0
// See completion.h.
//
// The CQ doorbell register is one word for all queues of a page, and this NIC looks at it now and then: two programs
// that arm two queues between two looks would overwrite each other. So the arm record serves as a mailbox. When the NIC
// has taken a request it sets the record's highest bit, which no program uses; a record without it is a request. Not
// for records in GPU memory, nor for collapsed queues that ignore overrun: those are polled; the doorbell's value
// counts.

#include "sim/engine/completion.h"

#include "sim/engine/ordering.h"
#include "sim/engine/requester.h"
#include "sim/link/guard.h"

namespace sim {

using namespace gda::prm;

namespace {

const size_t AT_ONCE = 32;       // arm records that are looked at with the doorbell itself
const uint32_t TAKEN_BE = 0x80;  // bit 31 of the big-endian arm record

uint32_t* arm_record(const Cq* cq) {
    return reinterpret_cast<uint32_t*>(cq->record.address() + GDA_DWORD_OFFSET(cq_doorbell_record, armed_index));
}

void fire(DeviceState& s, Cq* cq) {
    cq->armed = false;
    cq->announced = cq->producer;
    s.report.count(Counter::completion_events);
    s.pending.push_back({true, cq->number, AsyncEvent::cq_error});
}

// Indices have 24 bits and go round.
bool beyond(uint32_t producer, uint32_t consumer) {
    const uint32_t ahead = (producer - consumer) & 0xffffff;
    return ahead != 0 && ahead < 0x800000;
}

// An event at once for entries that the program has neither read nor been told of: they came before it armed. What
// the last event told of does not count, though it may be unread: programs arm first and read then, as the manual of
// ibv_req_notify_cq shows it, and perftest's latency test takes each event for exactly one new completion.
void request(DeviceState& s, Cq* cq, uint32_t consumer, bool solicited_only) {
    cq->armed = true;
    cq->armed_solicited = solicited_only;
    const uint32_t last = solicited_only ? cq->last_solicited : cq->producer;
    if (beyond(last, consumer) && beyond(last, cq->announced)) fire(s, cq);
}

// The mailbox.
void take_request(DeviceState& s, Cq* cq) {
    uint32_t word;
    if (!cq->arm_mailbox || !guarded_load32(arm_record(cq), &word) || (word & TAKEN_BE)) return;
    const bool taken = guarded_exchange32(arm_record(cq), word, word | TAKEN_BE);
    cq->page->arm_records.seen(cq->place_on_page, word | TAKEN_BE);
    if (!taken) return cq->page->arm_records.start();  // armed again just now: the next round finds it
    uint8_t record[GDA_BYTES_OF(cq_doorbell_record)] = {};
    gda::store32(record + GDA_DWORD_OFFSET(cq_doorbell_record, armed_index), word);
    request(s, cq, static_cast<uint32_t>(GDA_GET(cq_doorbell_record, record, armed_index)),
            GDA_GET(cq_doorbell_record, record, solicited_only) != 0);
}

void fail(DeviceState& s, Cq* cq, const Qp& qp, const Completion& c) {
    cq->failed = true;
    s.report.count(Counter::cq_overruns);
    const bool never = cq->consumer == 0 && cq->producer == cq->entries;
    s.report.say(
        never ? Kind::cq_consumer_never_written : Kind::cq_overrun,
        text("CQ 0x%x: overrun, a completion found all %u entries unread (consumer index %u, producer index %u); "
             "poll it more often, store the consumer index into its record%s, or create it with ignore-overrun",
             cq->number, cq->entries, cq->consumer, cq->producer & 0xffffff,
             never ? " (it was never stored: it is still 0)" : ""),
        {{"cq", cq->number},
         {"qp", qp.number},
         {"index", c.index},
         {"entries", cq->entries},
         {"consumer", cq->consumer},
         {"producer", cq->producer & 0xffffff}});
    s.pending.push_back({false, cq->number, AsyncEvent::cq_error});
    s.qps.each([&](Qp& user) {
        if (user.send_cq == cq || user.receive_cq == cq) {
            user.failing = true;
            s.look_at(&user);
            s.pending.push_back({false, user.number, AsyncEvent::qp_fatal});
        }
    });
}

bool has_room(DeviceState& s, Cq* cq) {
    if (cq->ignore_overrun) return true;
    if (((cq->producer - cq->consumer) & 0xffffff) < cq->entries) return true;
    uint32_t word = 0;
    if (!cq->record.umem || !read_word(s, cq->record, 0, &word, cq->name)) return false;
    cq->consumer = static_cast<uint32_t>(GDA_GET(cq_doorbell_record, &word, consumer_index));
    return ((cq->producer - cq->consumer) & 0xffffff) < cq->entries;
}

// Hands an entry over at the producer index.
void put(DeviceState& s, Cq* cq, uint8_t entry[CQE_BYTES]) {
    const uint32_t slot = cq->collapsed ? 0 : cq->producer & (cq->entries - 1);
    const uint32_t lap = cq->collapsed ? 0 : (cq->producer >> cq->log_entries) & 1;
    GDA_SET(cqe64, entry, owner, lap);
    const uint64_t at = uint64_t{slot} * cq->entry_bytes + cq->entry_bytes - CQE_BYTES;
    make_all_visible(s);  // an entry is a strict write
    publish(s, cq->ring, at, entry, CQE_BYTES, &cq->published, cq->name);
    ++cq->producer;
    ++s.done;
}

}  // namespace

bool completions_held(DeviceState& s, Cq* cq, uint32_t* held) {
    uint32_t word = 0;
    if (cq->record.umem) {
        if (!read_word(s, cq->record, 0, &word, cq->name)) return false;
        cq->consumer = static_cast<uint32_t>(GDA_GET(cq_doorbell_record, &word, consumer_index));
    }
    *held = (cq->producer - cq->consumer) & 0xffffff;
    return true;
}

void complete_resize(DeviceState& s, Cq* cq) {
    alignas(8) uint8_t entry[CQE_BYTES] = {};
    GDA_SET(cqe64, entry, opcode, MLX5_CQE_RESIZE_CQ);
    put(s, cq, entry);
}

namespace {

// What a card's counters tell apart.
void count_error(DeviceState& s, const Completion& c) {
    const bool requester = c.opcode == MLX5_CQE_REQ_ERR;
    if (c.syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR) {
        s.report.count(Counter::flush_cqes);
        return s.report.count(requester ? Counter::requester_flushes : Counter::responder_flushes);
    }
    s.report.count(Counter::error_cqes);
    s.report.count(requester ? Counter::requester_errors : Counter::responder_errors);
    if (c.syndrome == MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR) s.report.count(Counter::refused_access);
    if (c.syndrome == MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR) s.report.count(Counter::refused_request);
    if (!requester && c.syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR) s.report.count(Counter::lengths_exceeded);
}

}  // namespace

void complete(DeviceState& s, Cq* cq, const Qp& qp, const Completion& c) {
    if (!cq || cq->failed) return;
    if (!has_room(s, cq)) return fail(s, cq, qp, c);
    alignas(8) uint8_t entry[CQE_BYTES] = {};
    // The fields that both layouts share lie at the same places: asserted below.
    static_assert(GDA_BIT_OFFSET(cqe64, qpn) == GDA_BIT_OFFSET(err_cqe, qpn) &&
                      GDA_BIT_OFFSET(cqe64, wqe_counter) == GDA_BIT_OFFSET(err_cqe, wqe_counter) &&
                      GDA_BIT_OFFSET(cqe64, srqn_uidx) == GDA_BIT_OFFSET(err_cqe, srqn_uidx),
                  "good and error completions share their last words");
    const bool error = c.opcode == MLX5_CQE_REQ_ERR || c.opcode == MLX5_CQE_RESP_ERR;
    GDA_SET(cqe64, entry, srqn_uidx, qp.user_index);
    GDA_SET(cqe64, entry, sop_drop_qpn_opcode, c.wqe_opcode);
    GDA_SET(cqe64, entry, qpn, qp.number);
    GDA_SET(cqe64, entry, wqe_counter, c.index);
    GDA_SET(cqe64, entry, opcode, c.opcode);
    GDA_SET(cqe64, entry, se, c.solicited);
    if (error) {
        GDA_SET(err_cqe, entry, vendor_error_syndrome, c.vendor);
        GDA_SET(err_cqe, entry, syndrome, c.syndrome);
        count_error(s, c);
    } else {
        GDA_SET(cqe64, entry, rqpn, c.grh ? c.from_qpn : qp.remote_qpn);
        GDA_SET(cqe64, entry, grh, c.grh);
        GDA_SET(cqe64, entry, sl, c.network);
        GDA_SET(cqe64, entry, imm_inval_pkey, c.immediate);
        GDA_SET(cqe64, entry, byte_cnt, c.bytes);
        GDA_SET(cqe64, entry, timestamp, s.now_ns);
    }
    const uint64_t written = s.trace.latest();  // before: a kernel may have read the entry when it is noted
    put(s, cq, entry);
    s.trace.note(TRACE_CQE, qp.number, c.index, c.bytes, error ? c.syndrome : 0, qp.remote_qpn, c.opcode, 0, written);
    if (error || c.solicited) cq->last_solicited = cq->producer;
    s.report.count(Counter::cqes);
    if (cq->armed && (!cq->armed_solicited || error || c.solicited)) fire(s, cq);
}

void arm(DeviceState& s, UarPage* page, const uint8_t value[8]) {
    const uint32_t number = static_cast<uint32_t>(GDA_GET(cq_doorbell, value, cqn));
    s.report.count(Counter::cq_doorbells);
    Cq* named = s.cqs.find(number);
    if (!named || named->page != page) {
        s.report.say(Kind::cq_doorbell_unknown,
                     text("CQ doorbell on page %u names CQ 0x%x, which %s", page->id, number,
                          named ? "belongs to another page" : "does not exist"),
                     {{"cq", number}, {"page", page->id}});
        named = nullptr;
    }
    if (named && !named->arm_mailbox) {
        request(s, named, static_cast<uint32_t>(GDA_GET(cq_doorbell, value, consumer_index)),
                GDA_GET(cq_doorbell, value, solicited_only) != 0);
    }
    if (named) take_request(s, named);
    page->arm_records.start();
    sweep_arming(s, page, AT_ONCE);
}

void sweep_arming(DeviceState& s, UarPage* page, size_t slice) {
    page->arm_records.run(slice, [&](size_t i) { take_request(s, page->cqs[i]); });
}

void join_page(Cq* cq) {
    const bool mailbox = cq->record.umem && !cq->record.umem->gpu && !(cq->collapsed && cq->ignore_overrun);
    cq->arm_mailbox = mailbox && guarded_store32(arm_record(cq), TAKEN_BE);
    join(cq->page->cqs, cq->page->arm_records, cq, cq->arm_mailbox ? arm_record(cq) : &NO_RECORD);
    if (cq->arm_mailbox) cq->page->arm_records.seen(cq->place_on_page, TAKEN_BE);
}

void leave_page(Cq* cq) { leave(cq->page->cqs, cq->page->arm_records, cq); }

}  // namespace sim
