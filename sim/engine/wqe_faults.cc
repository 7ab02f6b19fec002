// SPDX-License-Identifier: Apache-2.0
// See wqe_faults.h.

#include "sim/engine/wqe_faults.h"

#include <cinttypes>
#include <cstring>

#include "sim/engine/key.h"

namespace sim {

using namespace gda::prm;

namespace {

// What stands where a data segment should be. Asked only when that segment is no good.
bool is_control_segment(const Qp* qp, const uint8_t* block, uint16_t index) {
    const uint16_t behind = static_cast<uint16_t>(index - GDA_GET(wqe_ctrl_seg, block, wqe_index));
    return GDA_GET(wqe_ctrl_seg, block, qp_or_sq) == qp->number && behind && behind % qp->send_blocks == 0;
}
bool is_empty(const uint8_t* segment) {
    static const uint8_t zero[WQE_SEGMENT_BYTES] = {};
    return std::memcmp(segment, zero, sizeof zero) == 0;
}
bool in_any_key(const DeviceState& s, uint64_t address) {
    bool found = false;
    s.keys.each([&](const Mkey& key) { found = found || (!key.whole && address - key.start < key.bytes); });
    return found;
}

}  // namespace

Why too_long(const Qp* qp, uint64_t bytes) {
    return Why(Kind::message_too_long,
               text("local length error: %" PRIu64 " bytes, the largest message is %" PRIu64
                    " (a data segment with byte_count 0 means 2^31 bytes)",
                    bytes, qp->max_message_bytes),
               {{"bytes", bytes}, {"most", qp->max_message_bytes}});
}

void say_reserved(DeviceState& s, const Qp* qp, uint16_t index, const char* where, const uint8_t* segment) {
    uint32_t dwords[WQE_SEGMENT_BYTES / 4];
    for (uint32_t i = 0; i < WQE_SEGMENT_BYTES / 4; ++i) dwords[i] = gda::load32(segment + 4 * i);
    for (uint32_t& dword : dwords) dword = gda::swap32(dword);
    s.report.say(
        Kind::wqe_reserved_bits,
        text("%s: WQE %u, slot %u: reserved bits of its %s are not zero (0x%08x %08x %08x %08x); executed all the "
             "same, a later NIC may not",
             qp->name, index, index & (qp->send_blocks - 1), where, dwords[0], dwords[1], dwords[2], dwords[3]),
        {{"qp", qp->number}, {"index", index}});
}

Why likely(const DeviceState& s, const Qp* qp, uint16_t index, const uint8_t* segment, uint32_t left, const Why& why) {
    const size_t at = static_cast<size_t>(segment - s.wqe) / WQE_BASIC_BLOCK_BYTES;
    const uint8_t* block = s.wqe + at * WQE_BASIC_BLOCK_BYTES;
    if (at && (is_empty(segment) || is_control_segment(qp, block, static_cast<uint16_t>(index + at)))) {
        Why torn = why.of(Kind::wqe_torn)
                       .before(text(" (block %zu of the request holds %s: it was published before it was whole)", at,
                                    is_empty(segment) ? "nothing" : "a request of an earlier lap"));
        torn.values.push_back({"block", at});
        return torn;
    }
    const uint32_t bytes = static_cast<uint32_t>(GDA_GET(wqe_data_seg, segment, byte_count));
    const uint64_t address = GDA_GET(wqe_data_seg, segment, addr);
    const uint32_t whole = (GDA_BYTES_OF(wqe_inline_seg) + bytes + WQE_SEGMENT_BYTES - 1) / WQE_SEGMENT_BYTES;
    if (why.kind == Kind::key_unknown && bytes && whole == left && !in_any_key(s, address)) {
        Why missing = why.of(Kind::inline_flag_missing)
                          .before(text(" (hint: %u bytes are what the rest of the request has room for: if they are "
                                       "payload, bit 31 of the dword before them is missing)",
                                       bytes));
        missing.values.push_back({"bytes", bytes});
        return missing;
    }
    const uint32_t swapped = gda::swap32(bytes);
    const uint32_t key = static_cast<uint32_t>(GDA_GET(wqe_data_seg, segment, lkey));
    Span unused;
    Why fits;
    const bool range = why.kind == Kind::key_range || why.kind == Kind::message_too_long;
    if (range && swapped && swapped < bytes &&
        resolve(s, key, address, swapped, qp, Access::local_read, &unused, &fits)) {
        Why length = why.of(Kind::length_unit)
                         .before(text(" (hint: %u is %u byte-swapped, and so many bytes are there)", bytes, swapped));
        length.values.push_back({"byte_count", bytes});
        length.values.push_back({"swapped", swapped});
        return length;
    }
    return why;
}

}  // namespace sim
