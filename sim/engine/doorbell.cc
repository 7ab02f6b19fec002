// SPDX-License-Identifier: Apache-2.0
// See doorbell.h.
//
// A page is ordinary memory here, so a register keeps only the last value stored between two looks. With doorbell
// records nothing is lost: after any ring the NIC reads the records of all queue pairs of that page, though not at
// once: the one that the value names and those that rang lately in the same step, the others a slice per step. Without
// records the register is the only source; two such queue pairs on one page can hide each other's rings, which the
// firmware reports when the second is created. Registers: 0x20 arms completion queues, 0x600 rings record-less queue
// pairs, 0x800..0xb00 are the BlueFlame halves: a work request there rings, too. It is carried out from the ring, where
// it must lie as well, and compared.

#include "sim/engine/doorbell.h"

#include <algorithm>

#include "sim/engine/completion.h"
#include "sim/engine/memory.h"
#include "sim/engine/requester.h"
#include "sim/engine/wqe.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint32_t SEND_REGISTERS[] = {UAR_RECORDLESS_DOORBELL, UAR_SEND_DOORBELL, UAR_SEND_DOORBELL_ODD,
                                   UAR_SEND_DOORBELL + 0x200, UAR_SEND_DOORBELL_ODD + 0x200};

const size_t PAGES_PER_STEP = 64;
// Records that are looked at: with the ring itself, and in each later step, one that has work and one that has none.
// The last finds a lost ring among 4,096 queue pairs in eight steps.
const size_t AT_ONCE = 32, SLICE = 16, IDLE_SLICE = 512;

// Takes what was stored to a register. A doorbell is never zero, so zero means that nothing was.
uint64_t take(uint8_t* page, uint32_t offset) {
    uint64_t* word = reinterpret_cast<uint64_t*>(page + offset);
    if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0) return 0;
    return __atomic_exchange_n(word, 0, __ATOMIC_ACQ_REL);
}

// Takes what was stored behind a doorbell: words 1 to 7 of a work request (BlueFlame). False: nothing.
bool take_rest(uint8_t* page, uint32_t offset, uint64_t* words) {
    bool any = false;
    for (uint32_t i = 1; i < WQE_BASIC_BLOCK_BYTES / sizeof *words; ++i) {
        words[i] = take(page, offset + i * static_cast<uint32_t>(sizeof *words));
        any = any || words[i];
    }
    return any;
}

// The work request in the register is that of the slot: a card may carry out either. Asked when the record says that it
// is the last one, so that nobody writes another to this register; words that have not come yet are zero. Only of rings
// in host memory: a look at a GPU's takes as long as the request.
void check_blueflame(DeviceState& s, Qp* qp, uint16_t index, uint32_t segments, const uint64_t* words) {
    if (segments > WQE_BASIC_BLOCK_BYTES / WQE_SEGMENT_BYTES || qp->send_ring.umem->gpu) return;
    uint64_t slot[WQE_BASIC_BLOCK_BYTES / sizeof(uint64_t)];
    const uint64_t at = uint64_t{index & (qp->send_blocks - 1)} * WQE_BASIC_BLOCK_BYTES;
    if (!read_ring(s, qp->send_ring, at, slot, sizeof slot, qp->name)) return;
    for (uint32_t i = 0; i < segments * WQE_SEGMENT_BYTES / sizeof *slot; ++i) {
        if (words[i] == 0 || words[i] == slot[i]) continue;
        s.report.say(
            Kind::blueflame_differs,
            text("%s: WQE %u: bytes %u to %u are 0x%016llx in the BlueFlame register and 0x%016llx in the slot",
                 qp->name, index, i * 8, i * 8 + 7, static_cast<unsigned long long>(gda::swap64(words[i])),
                 static_cast<unsigned long long>(gda::swap64(slot[i]))),
            {{"qp", qp->number}, {"index", index}, {"byte", i * 8}});
        return;
    }
}

void start_sweep(DeviceState& s, UarPage* page) {
    if (page->swept) return;
    page->swept = true;
    s.sweeping.push_back(page);
}

void remember(UarPage* page, Qp* qp) {
    for (const Qp* known : page->recent) {
        if (known == qp) return;
    }
    page->recent[page->recent_next++ % (sizeof page->recent / sizeof *page->recent)] = qp;
}

void look_at_records(DeviceState& s, UarPage* page, size_t budget) {
    const size_t looked = page->records.run(budget, [&](size_t i) { read_send_record(s, page->qps[i]); });
    s.report.count(Counter::records_swept, looked);
}

void ring(DeviceState& s, UarPage* page, uint64_t stored, uint32_t offset) {
    uint64_t words[WQE_BASIC_BLOCK_BYTES / sizeof(uint64_t)] = {stored};
    const bool flame = offset >= UAR_SEND_DOORBELL && take_rest(page->base, offset, words);
    const uint8_t* value = reinterpret_cast<const uint8_t*>(&stored);
    const uint32_t number = static_cast<uint32_t>(GDA_GET(send_doorbell, value, qpn));
    s.report.count(Counter::doorbells);
    ++s.done;
    Qp* named = s.qp(number);
    if (!named || named->page != page) {
        const bool elsewhere = (number >> 16) != s.slot;
        s.report.say(named ? Kind::doorbell_wrong_page : Kind::doorbell_unknown_queue,
                     text("doorbell on page %u (value 0x%016llx) names QP 0x%06x, which %s", page->id,
                          static_cast<unsigned long long>(gda::swap64(stored)), number,
                          named       ? text("rings on page %u", named->page->id).c_str()
                          : elsewhere ? "does not exist: numbers of this NIC's queue pairs begin otherwise; is it "
                                        "another process's or NIC's?"
                                      : "does not exist"),
                     {{"qp", number}, {"page", page->id}, {"doorbell", gda::swap64(stored)}});
        named = nullptr;
    }
    if (named) {
        named->last_doorbell = stored;
        named->rang = true;
        // The first eight bytes of the last WQE, or the producer index with nothing behind it: either way the index
        // plus the basic blocks of that WQE is the producer index.
        const uint32_t segments = static_cast<uint32_t>(GDA_GET(send_doorbell, value, ds));
        const uint32_t per_block = WQE_BASIC_BLOCK_BYTES / WQE_SEGMENT_BYTES;
        const uint16_t implied =
            static_cast<uint16_t>(GDA_GET(send_doorbell, value, wqe_index) + (segments + per_block - 1) / per_block);
        if (named->state == MLX5_QPC_STATE_RST) {
            s.report.say(Kind::doorbell_in_reset,
                         std::string(named->name) + ": its doorbell was rung in state RESET: ignored",
                         {{"qp", number}, {"doorbell", gda::swap64(stored)}});
        } else if (named->recordless) {
            produced(s, named, implied);
        } else {
            const uint16_t before = named->producer;
            read_send_record(s, named);
            if (flame && before == GDA_GET(send_doorbell, value, wqe_index) && named->producer == implied) {
                check_blueflame(s, named, before, segments, words);
            }
            const uint16_t missing = static_cast<uint16_t>(implied - named->producer);
            if (missing &&
                missing <= named->send_blocks) {  // some ring first and write the record after: wait a little
                named->announced = implied;
                if (!named->announced_ns) named->announced_ns = s.now_ns;
                s.look_at(named);
            }
            if (named->producer == 0 && says_wrong_word(s, named)) named->announced_ns = 0;
        }
    }
    size_t looked_at = named ? 1 : 0;
    for (Qp* other : page->recent) {
        if (!other || other == named) continue;
        read_send_record(s, other);
        ++looked_at;
    }
    if (named) remember(page, named);
    if (looked_at == page->qps.size()) return;  // those were all; and records may be far away, on a GPU
    page->records.start();
    look_at_records(s, page, AT_ONCE);
    if (page->records.running()) start_sweep(s, page);
}

void scan_registers(DeviceState& s, UarPage* page) {
    for (uint32_t offset : SEND_REGISTERS) {
        if (uint64_t stored = take(page->base, offset)) ring(s, page, stored, offset);
    }
    if (uint64_t stored = take(page->base, UAR_CQ_DOORBELL)) {
        arm(s, page, reinterpret_cast<const uint8_t*>(&stored));
        start_sweep(s, page);
    }
}

}  // namespace

void read_send_record(DeviceState& s, Qp* qp) {
    if (qp->recordless || !qp->record.umem || qp->send_blocks == 0 || qp->state == MLX5_QPC_STATE_RST) return;
    uint32_t record[2] = {0, 0};
    const uint32_t at = GDA_DWORD_OFFSET(qp_doorbell_record, send_counter);
    const bool both_on_gpu = qp->record.umem->gpu && qp->record.umem->gpu == qp->send_ring.umem->gpu;
    uint16_t blocks = 0;
    if (both_on_gpu) {
        blocks = read_record_and_window(s, qp, at, &record[1]);
        if (!blocks) return;
    } else if (!read_word(s, qp->record, at, &record[1], qp->name)) {
        return;
    } else {
        qp->page->records.seen(qp->place_on_page, record[1]);
    }
    const uint16_t told = static_cast<uint16_t>(GDA_GET(qp_doorbell_record, record, send_counter));
    produced(s, qp, told);
    if (blocks && qp->producer == told) keep_window(s, qp, blocks);
}

bool says_wrong_word(DeviceState& s, const Qp* qp) {
    uint32_t record[2] = {0, 0};
    const uint32_t at = GDA_DWORD_OFFSET(qp_doorbell_record, receive_counter);
    if (!qp->record.umem || qp->has_receives || !read_word(s, qp->record, at, &record[0], qp->name) || !record[0])
        return false;
    const uint32_t receives = static_cast<uint32_t>(GDA_GET(qp_doorbell_record, record, receive_counter));
    s.report.say(
        Kind::record_wrong_word,
        text("%s: rung, send record is %u, receive record changed to %u, QP has no RQ: the send counter is the "
             "second dword of the record",
             qp->name, qp->producer, receives),
        {{"qp", qp->number}, {"index", qp->producer}, {"record", qp->producer}, {"receive_record", receives}});
    return true;
}

void clear_doorbells(UarPage* page) {
    uint64_t words[WQE_BASIC_BLOCK_BYTES / sizeof(uint64_t)];
    for (uint32_t offset : SEND_REGISTERS) {
        take(page->base, offset);
        if (offset >= UAR_SEND_DOORBELL) take_rest(page->base, offset, words);
    }
    take(page->base, UAR_CQ_DOORBELL);
}

void scan_doorbells(DeviceState& s, bool all) {
    const size_t pages = s.page_list.size();
    for (size_t i = all ? pages : std::min<size_t>(pages, PAGES_PER_STEP); i > 0; --i) {
        if (s.page_next >= pages) s.page_next = 0;
        scan_registers(s, s.page_list[s.page_next++]);
    }
}

void expect_ring(DeviceState& s) {
    const size_t pages = std::min<size_t>(s.page_list.size(), PAGES_PER_STEP);
    for (size_t i = 0; i < pages; ++i) {
        for (Qp* known : s.page_list[i]->recent) {
            if (known) read_send_record(s, known);
        }
    }
}

void scan_page(DeviceState& s, UarPage* page) {
    scan_registers(s, page);
    look_at_records(s, page, page->records.size());
}

void sweep_records(DeviceState& s, bool idle) {
    const size_t slice = idle ? IDLE_SLICE : SLICE;
    size_t kept = 0;
    for (UarPage* page : s.sweeping) {
        look_at_records(s, page, slice);
        sweep_arming(s, page, slice);
        page->swept = page->records.running() || page->arm_records.running();
        if (page->swept) s.sweeping[kept++] = page;
    }
    s.sweeping.resize(kept);
}

void join_page(Qp* qp) {
    const uint32_t* record = &NO_RECORD;
    if (qp->record.umem) {
        const uint32_t offset = GDA_DWORD_OFFSET(qp_doorbell_record, send_counter);
        record = qp->record.umem->gpu ? nullptr : reinterpret_cast<const uint32_t*>(qp->record.address() + offset);
    }
    join(qp->page->qps, qp->page->records, qp, record);
}

void leave_page(Qp* qp) {
    leave(qp->page->qps, qp->page->records, qp);
    for (Qp*& known : qp->page->recent) {
        if (known == qp) known = nullptr;
    }
}

}  // namespace sim
