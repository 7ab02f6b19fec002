// SPDX-License-Identifier: Apache-2.0
// See unrung.h.
//
// The time is always the system's: a thread between its record and its doorbell runs in real time, whatever the clock
// of the NIC.

#include "sim/engine/unrung.h"

#include <algorithm>

#include "sim/engine/memory.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint64_t EVERY_NS = milliseconds(10);
const uint64_t GRACE_NS = milliseconds(500);  // a thread may lose its core between the two stores
const uint32_t BUDGET = 256, ON_A_GPU = 128;  // records per look, as if each lay in host memory; one of a GPU

bool looked_at(DeviceState& s, Qp* qp, uint64_t now, uint32_t* budget) {
    if (qp->recordless || !qp->record.umem || !qp->send_blocks || qp->state != MLX5_QPC_STATE_RTS) return false;
    const uint32_t price = qp->record.umem->gpu ? ON_A_GPU : 1;
    *budget -= std::min(*budget, price);
    uint32_t record[2] = {0, 0};
    const uint32_t at = GDA_DWORD_OFFSET(qp_doorbell_record, send_counter);
    if (!read_word(s, qp->record, at, &record[1], qp->name)) return false;
    const uint16_t told = static_cast<uint16_t>(GDA_GET(qp_doorbell_record, record, send_counter));
    const uint16_t ahead = static_cast<uint16_t>(told - qp->producer);
    if (ahead == 0 || ahead > qp->send_blocks) {
        qp->unrung_ns = 0;
        return false;
    }
    if (!qp->unrung_ns || qp->unrung != told) {
        qp->unrung = told;
        qp->unrung_ns = now;
        qp->unrung_told = false;
    }
    if (qp->unrung_told) return false;
    if (now - qp->unrung_ns < GRACE_NS) return true;
    qp->unrung_told = true;
    s.report.say(
        Kind::record_without_doorbell,
        text("%s: the doorbell record says %u since %u ms, but nobody rang for more than %u: those requests wait "
             "for ever",
             qp->name, told, static_cast<uint32_t>(GRACE_NS / milliseconds(1)), qp->producer),
        {{"qp", qp->number}, {"index", qp->producer}, {"record", told}, {"rung", qp->producer}});
    return false;
}

}  // namespace

void look_for_unrung(DeviceState& s) {
    const uint64_t now = Clock::is_virtual() ? Clock::real_ns() : s.now_ns;
    if (now < s.unrung_look_ns) return;
    s.unrung_look_ns = now + EVERY_NS;
    uint32_t budget = BUDGET;
    bool waits = false;
    const size_t pages = s.page_list.size();
    for (size_t i = 0; i < pages && budget; ++i) {
        if (s.unrung_page >= pages) s.unrung_page = 0;
        UarPage* page = s.page_list[s.unrung_page];
        for (; s.unrung_qp < page->qps.size() && budget; ++s.unrung_qp)
            waits = looked_at(s, page->qps[s.unrung_qp], now, &budget) || waits;
        if (s.unrung_qp < page->qps.size()) break;
        s.unrung_qp = 0;
        ++s.unrung_page;
    }
    s.unrung_waits = waits || (s.unrung_waits && !budget);
}

uint64_t unrung_due_ns(const DeviceState& s) { return s.unrung_waits ? s.unrung_look_ns : 0; }

}  // namespace sim
