// SPDX-License-Identifier: Apache-2.0
// See run.h. Source of the opcodes: InfiniBand Architecture Specification, volume 1, "Transport Layer".

#include "sim/link/run.h"

#include <gda/formats/packet.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sim/link/wire.h"

namespace sim {

using namespace gda::prm;

namespace {

// The opcodes of one kind of message by the place of the packet in it.
struct Family {
    uint8_t first, middle, last, last_immediate, only, only_immediate;
    bool operator()(uint8_t o) const {
        return o == first || o == middle || o == last || o == last_immediate || o == only || o == only_immediate;
    }
};
const Family SENDS = {RC_SEND_FIRST, RC_SEND_MIDDLE,
                      RC_SEND_LAST,  RC_SEND_LAST_WITH_IMMEDIATE,
                      RC_SEND_ONLY,  RC_SEND_ONLY_WITH_IMMEDIATE};
// IETH is as long as an immediate and stands in its place.
static_assert(GDA_BYTES_OF(ieth) == GDA_BYTES_OF(immdt), "one header for another");
const Family INVALIDATING = {RC_SEND_FIRST, RC_SEND_MIDDLE,
                             RC_SEND_LAST,  RC_SEND_LAST_WITH_INVALIDATE,
                             RC_SEND_ONLY,  RC_SEND_ONLY_WITH_INVALIDATE};
const Family WRITES = {RC_RDMA_WRITE_FIRST, RC_RDMA_WRITE_MIDDLE,
                       RC_RDMA_WRITE_LAST,  RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
                       RC_RDMA_WRITE_ONLY,  RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE};
const Family RESPONSES = {RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_MIDDLE, RC_RDMA_READ_RESPONSE_LAST,
                          RC_RDMA_READ_RESPONSE_LAST,  RC_RDMA_READ_RESPONSE_ONLY,   RC_RDMA_READ_RESPONSE_ONLY};

const Family* family_of(uint8_t operation) {
    for (const Family* family : {&SENDS, &WRITES, &RESPONSES, &INVALIDATING}) {
        if ((*family)(operation)) return family;
    }
    return nullptr;
}

struct Part {
    Packet packet;
    std::vector<iovec> pieces;
};

// Bytes [offset, offset + bytes) of the run's payload.
void cut(const Packet& run, size_t offset, size_t bytes, Part* part) {
    part->pieces.clear();
    part->packet.payload_bytes = bytes;
    for (size_t i = 0; i < run.payload_count && bytes; ++i) {
        const iovec& piece = run.payload[i];
        if (offset >= piece.iov_len) {
            offset -= piece.iov_len;
            continue;
        }
        const size_t taken = std::min(bytes, piece.iov_len - offset);
        part->pieces.push_back({static_cast<uint8_t*>(piece.iov_base) + offset, taken});
        bytes -= taken;
        offset = 0;
    }
    part->packet.payload = part->pieces.data();
    part->packet.payload_count = part->pieces.size();
}

}  // namespace

bool for_each_packet(const Packet& run, const std::function<bool(const Packet&)>& use) {
    const uint8_t operation = static_cast<uint8_t>(GDA_GET(bth_parts, run.header, operation));
    const Family* family = run.run_mtu ? family_of(operation) : nullptr;
    if (!family) return use(run);

    const bool begins = operation == family->first || operation == family->only || operation == family->only_immediate;
    const bool ends = operation != family->first && operation != family->middle;
    const bool immediate = family != &RESPONSES && ends && operation != family->last && operation != family->only;
    const uint32_t lead_bytes = meaning_of(static_cast<uint8_t>(GDA_GET(bth, run.header, opcode))).lead_bytes;
    const size_t count = std::max<size_t>(1, (run.payload_bytes + run.run_mtu - 1) / run.run_mtu);
    const uint32_t first_psn = static_cast<uint32_t>(GDA_GET(bth, run.header, psn));
    for (size_t i = 0; i < count; ++i) {
        const bool first = begins && i == 0, last = ends && i + 1 == count;
        Part part = {run, {}};
        Packet& packet = part.packet;
        packet.run_mtu = 0;
        const size_t offset = i * run.run_mtu;
        cut(run, offset, std::min<size_t>(run.run_mtu, run.payload_bytes - offset), &part);

        uint8_t* h = packet.header;
        uint8_t opcode = family->middle;
        if (first) opcode = last ? (immediate ? family->only_immediate : family->only) : family->first;
        if (!first && last) opcode = immediate ? family->last_immediate : family->last;
        GDA_SET(bth_parts, h, operation, opcode);
        GDA_SET(bth, h, psn, first_psn + static_cast<uint32_t>(i));
        GDA_SET(bth, h, pad_count, pad_of(packet.payload_bytes));
        if (i + 1 != count) {
            GDA_SET(bth, h, se, 0);
            GDA_SET(bth, h, ack_req, 0);
        }
        // What follows BTH: RETH at the beginning of a write, immediate at the end, AETH at either end of a response.
        // Before it, what the transport puts into every packet: it is there already.
        const uint8_t* from = run.header + GDA_BYTES_OF(bth) + lead_bytes;
        uint8_t* to = h + GDA_BYTES_OF(bth) + lead_bytes;
        if (family == &RESPONSES && (first || last)) {
            std::memcpy(to, from, GDA_BYTES_OF(aeth));
            to += GDA_BYTES_OF(aeth);
        }
        if (family == &WRITES && first) {
            std::memcpy(to, from, GDA_BYTES_OF(reth));
            to += GDA_BYTES_OF(reth);
        }
        if (immediate && last) {
            std::memcpy(to, run.header + run.header_bytes - GDA_BYTES_OF(immdt), GDA_BYTES_OF(immdt));
            to += GDA_BYTES_OF(immdt);
        }
        packet.header_bytes = static_cast<uint32_t>(to - h);
        const bool go_on = use(packet);
        run.unreadable = run.unreadable || packet.unreadable;
        if (!go_on) return false;
    }
    return true;
}

}  // namespace sim
