// SPDX-License-Identifier: Apache-2.0
// What the tests of the links share: packets made field by field, and a link that keeps what it is sent.
#pragma once

#include <gda/formats/packet.h>

#include <cstring>
#include <vector>

#include "sim/link/address.h"
#include "sim/link/link.h"
#include "tests/sim/check.h"

namespace rig {

using namespace gda::prm;

// A packet with its own payload, from the NIC in slot 0 to the one in `to_slot`.
struct Made {
    Made(uint32_t opcode, uint32_t psn, size_t bytes, uint32_t to_slot = 0, uint32_t run_mtu = 0, int gid_index = 3)
        : data(bytes) {
        for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 13 + psn);
        piece = {data.data(), data.size()};
        sim::gid_of(0, gid_index, packet.source);
        sim::gid_of(to_slot, gid_index, packet.destination);
        packet.version1 = gid_index % 2 == 0;
        std::memset(packet.header, 0, sizeof packet.header);
        GDA_SET(bth, packet.header, opcode, opcode);
        GDA_SET(bth, packet.header, pkey, 0xffff);
        GDA_SET(bth, packet.header, dest_qp, 0x123456);
        GDA_SET(bth, packet.header, psn, psn);
        GDA_SET(bth, packet.header, pad_count, (4 - bytes % 4) % 4);
        packet.header_bytes = GDA_BYTES_OF(bth);
        packet.payload = &piece;
        packet.payload_count = bytes ? 1 : 0;
        packet.payload_bytes = bytes;
        packet.run_mtu = run_mtu;
        packet.note_qpn = 0x77;
    }
    Made(const Made&) = delete;
    Made& operator=(const Made&) = delete;
    // A header that follows what is there: `bytes` of it, zeroed.
    uint8_t* add(uint32_t bytes) {
        uint8_t* at = packet.header + packet.header_bytes;
        packet.header_bytes += bytes;
        return at;
    }
    Made& write_to(uint64_t va, uint32_t rkey, uint32_t dma_length) {
        uint8_t* at = add(GDA_BYTES_OF(reth));
        GDA_SET(reth, at, va, va);
        GDA_SET(reth, at, rkey, rkey);
        GDA_SET(reth, at, dma_length, dma_length);
        return *this;
    }
    Made& immediate(uint32_t value) {
        GDA_SET(immdt, add(GDA_BYTES_OF(immdt)), imm, value);
        return *this;
    }
    Made& answer(uint32_t syndrome, uint32_t msn) {
        uint8_t* at = add(GDA_BYTES_OF(aeth));
        GDA_SET(aeth, at, syndrome, syndrome);
        GDA_SET(aeth, at, msn, msn);
        return *this;
    }
    std::vector<uint8_t> data;
    iovec piece;
    sim::Packet packet;
};

// What arrived: copies.
struct Arrived {
    uint32_t opcode, psn, pad, ack_req, se;
    uint32_t header_bytes, run_mtu;
    std::vector<uint8_t> header, payload;
};
struct Sink {
    sim::Link::Receive receive = [this](const sim::Packet& p) {
        Arrived a;
        a.opcode = static_cast<uint32_t>(GDA_GET(bth, p.header, opcode));
        a.psn = static_cast<uint32_t>(GDA_GET(bth, p.header, psn));
        a.pad = static_cast<uint32_t>(GDA_GET(bth, p.header, pad_count));
        a.ack_req = static_cast<uint32_t>(GDA_GET(bth, p.header, ack_req));
        a.se = static_cast<uint32_t>(GDA_GET(bth, p.header, se));
        a.header_bytes = p.header_bytes;
        a.run_mtu = p.run_mtu;
        a.header.assign(p.header, p.header + p.header_bytes);
        for (size_t i = 0; i < p.payload_count; ++i) {
            const uint8_t* from = static_cast<const uint8_t*>(p.payload[i].iov_base);
            a.payload.insert(a.payload.end(), from, from + p.payload[i].iov_len);
        }
        CHECK_EQ(a.payload.size(), p.payload_bytes);
        all.push_back(a);
    };
    std::vector<Arrived> all;
};

}  // namespace rig
