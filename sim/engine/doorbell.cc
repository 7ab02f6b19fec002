// SPDX-License-Identifier: Apache-2.0
// See doorbell.h.
//
// A page is ordinary memory here, so a register keeps only the last value stored between two looks. With doorbell
// records nothing is lost: any ring makes the NIC read the records of all queue pairs of that page. Without records the
// register is the only source; two such queue pairs on one page can hide each other's rings, which the firmware reports
// when the second is created. Registers: 0x20 arms completion queues, 0x600 rings record-less queue pairs, 0x800..0xb00
// are the BlueFlame halves, of which only the first eight bytes count: the WQE lies in the ring as well.

#include "sim/engine/doorbell.h"

#include "sim/engine/completion.h"
#include "sim/engine/memory.h"
#include "sim/engine/requester.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint32_t SEND_REGISTERS[] = {UAR_RECORDLESS_DOORBELL, UAR_SEND_DOORBELL, UAR_SEND_DOORBELL_ODD,
                                   UAR_SEND_DOORBELL + 0x200, UAR_SEND_DOORBELL_ODD + 0x200};

// Takes what was stored to a register. A doorbell is never zero, so zero means that nothing was.
uint64_t take(uint8_t* page, uint32_t offset) {
    uint64_t* word = reinterpret_cast<uint64_t*>(page + offset);
    if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0) return 0;
    return __atomic_exchange_n(word, 0, __ATOMIC_ACQ_REL);
}

void ring(DeviceState& s, UarPage* page, uint64_t stored) {
    const uint8_t* value = reinterpret_cast<const uint8_t*>(&stored);
    const uint32_t number = static_cast<uint32_t>(GDA_GET(send_doorbell, value, qpn));
    s.report.count(Counter::doorbells);
    ++s.done;
    Qp* named = s.qp(number);
    if (!named || named->page != page) {
        s.report.say(text("doorbell on page %u (value 0x%016llx) names QP 0x%06x, which %s", page->id,
                          static_cast<unsigned long long>(gda::swap64(stored)), number,
                          named ? text("rings on page %u", named->page->id).c_str() : "does not exist"));
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
            s.report.say(std::string(named->name) + ": its doorbell was rung in state RESET: ignored");
        } else if (named->recordless) {
            produced(s, named, implied);
        } else {
            read_send_record(s, named);
            const uint16_t missing = static_cast<uint16_t>(implied - named->producer);
            if (missing &&
                missing <= named->send_blocks) {  // some ring first and write the record after: wait a little
                named->announced = implied;
                if (!named->announced_ns) named->announced_ns = s.now_ns;
                s.look_at(named);
            }
            uint32_t word = 0;
            if (named->producer == 0 && named->record.umem && !named->has_receives &&
                read_word(s, named->record, GDA_DWORD_OFFSET(qp_doorbell_record, receive_counter), &word,
                          named->name) &&
                word) {
                const uint32_t record[2] = {word, 0};
                s.report.say(
                    text("%s: rung, send record is 0, receive record changed to %u, QP has no RQ: the send counter "
                         "is the second dword of the record",
                         named->name, static_cast<uint32_t>(GDA_GET(qp_doorbell_record, record, receive_counter))));
                named->announced_ns = 0;
            }
        }
    }
    for (Qp* other : page->qps) {
        if (other != named) read_send_record(s, other);
    }
}

}  // namespace

void read_send_record(DeviceState& s, Qp* qp) {
    if (qp->recordless || !qp->record.umem || qp->send_blocks == 0 || qp->state == MLX5_QPC_STATE_RST) return;
    uint32_t record[2] = {0, 0};
    if (!read_word(s, qp->record, GDA_DWORD_OFFSET(qp_doorbell_record, send_counter), &record[1], qp->name)) {
        return;
    }
    produced(s, qp, static_cast<uint16_t>(GDA_GET(qp_doorbell_record, record, send_counter)));
}

void clear_doorbells(UarPage* page) {
    for (uint32_t offset : SEND_REGISTERS) take(page->base, offset);
    take(page->base, UAR_CQ_DOORBELL);
}

void scan_doorbells(DeviceState& s) {
    for (UarPage* page : s.page_list) {
        for (uint32_t offset : SEND_REGISTERS) {
            if (uint64_t stored = take(page->base, offset)) ring(s, page, stored);
        }
        if (uint64_t stored = take(page->base, UAR_CQ_DOORBELL)) {
            arm(s, page, reinterpret_cast<const uint8_t*>(&stored));
        }
    }
}

}  // namespace sim
