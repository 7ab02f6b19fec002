// SPDX-License-Identifier: Apache-2.0
// See sources.h.

#include "sim/engine/sources.h"

#include <algorithm>
#include <cinttypes>

#include "sim/link/guard.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint64_t FNV_BASIS = 0xcbf29ce484222325u, FNV_PRIME = 0x100000001b3u;  // FNV-1a, 64 bits

uint64_t add(uint64_t sum, const uint8_t* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) sum = (sum ^ bytes[i]) * FNV_PRIME;
    return sum;
}

// Of memory that may be gone: then what was read so far.
uint64_t checksum(DeviceState& s, const std::vector<Span>& pieces) {
    uint64_t sum = FNV_BASIS;
    uint8_t chunk[4096];
    for (const Span& piece : pieces) {
        each_part(s, piece, 0, piece.bytes, [&](const Span& part) {
            for (uint64_t at = 0; at < part.bytes && !part.gpu;) {
                const size_t bytes = std::min<uint64_t>(sizeof chunk, part.bytes - at);
                if (!guarded_copy(chunk, part.address + at, bytes)) return false;
                sum = add(sum, chunk, bytes);
                at += bytes;
            }
            return true;
        });
    }
    return sum;
}

bool checksum_of_request(const Qp* qp, uint16_t index, uint16_t blocks, uint64_t* sum) {
    *sum = FNV_BASIS;
    for (uint16_t i = 0; i < blocks; ++i) {
        uint8_t block[WQE_BASIC_BLOCK_BYTES];
        const uint32_t slot = static_cast<uint16_t>(index + i) & (qp->send_blocks - 1);
        const uint64_t address = qp->send_ring.address() + uint64_t{slot} * WQE_BASIC_BLOCK_BYTES;
        if (qp->send_ring.umem->gpu) return false;
        if (!guarded_copy(block, reinterpret_cast<const void*>(address), sizeof block)) return false;
        *sum = add(*sum, block, sizeof block);
    }
    return true;
}

}  // namespace

void Sources::fetched(DeviceState& s, const Qp* qp, uint16_t index, const ParsedWqe& wqe) {
    if (wqe.syndrome) return;
    Source& source = sources_[{qp, index}];
    source = {};
    source.blocks = wqe.blocks;
    const uint8_t* own = s.wqe;
    for (size_t i = 0; i < wqe.pieces && !wqe.fetches; ++i) {
        const bool is_inline = wqe.piece[i].address >= own && wqe.piece[i].address < own + sizeof s.wqe;
        if (!is_inline && !wqe.piece[i].scattered) source.pieces.push_back(wqe.piece[i]);
    }
    source.payload = checksum(s, source.pieces);
    checksum_of_request(qp, index, source.blocks, &source.request);
}

void Sources::completes(DeviceState& s, Qp* qp, const Message& m) {
    const auto found = sources_.find({qp, m.index});
    if (found == sources_.end()) return;
    const Source source = std::move(found->second);
    sources_.erase(found);
    if (checksum(s, source.pieces) != source.payload) {
        s.report.say(
            Kind::source_changed,
            text("%s: WQE %u: its %" PRIu64 " bytes of payload changed between its fetch and its completion: the "
                 "peer may have the old ones, the new ones, or a mixture",
                 qp->name, m.index, m.bytes),
            {{"qp", qp->number}, {"index", m.index}, {"bytes", m.bytes}});
    }
    uint64_t request;
    if (checksum_of_request(qp, m.index, source.blocks, &request) && request != source.request) {
        s.report.say(Kind::wqe_overwritten,
                     text("%s: WQE %u: its slot was written between its fetch and its completion", qp->name, m.index),
                     {{"qp", qp->number}, {"index", m.index}});
    }
}

void Sources::forget(const Qp* qp) {
    sources_.erase(sources_.lower_bound({qp, 0}), sources_.upper_bound({qp, 0xffff}));
}

}  // namespace sim
