// SPDX-License-Identifier: Apache-2.0
// Packets from a network that promises nothing, delivered to queue pairs of each transport: requests, datagrams, and
// answers to requests that are under way. An input is a list of records:
//   form      0: a packet that has passed decoding. 1: the same as a frame, a few bytes of it changed, decoded.
//             2: a frame as it is. 3: time passes.
//   target    the queue pair, 0..TARGETS-1; others: as BTH says
//   distance  of its PSN from the one that the target expects (signed)
//   mend      bits: which fields are made plausible (see Mend)
//   size      of what follows (16 bits)
//   bytes     BTH and the rest; of a changed frame first {count, count times {position (16 bits), value}}
// Built and run by tests/fuzz/fuzzer.py.
#include <gda/formats/packet.h>

#include "sim/engine/responder.h"
#include "sim/engine/state.h"
#include "sim/engine/thread.h"
#include "sim/link/wire.h"
#include "tests/fuzz/input.h"
#include "tests/sim/engine_rig.h"

namespace {

using namespace rig;
using fuzz::Arena;
using fuzz::Input;
using fuzz::must;

enum Mend : uint8_t {
    MEND_KEY = 1,
    MEND_ADDRESS = 2,
    MEND_PAD = 4,
    MEND_RUN = 8,
    MEND_TRANSPORT = 16,
    MEND_LENGTH = 32
};
enum : size_t { TARGETS = 5, MOST_RECORDS = 64, MEMORY_BYTES = 16384 };
enum : uint32_t { PSN = 0x100, PEER_QPN = 0x123456, BUFFER_BYTES = 2048 };

const uint8_t PEER[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xee};

Options options(uint32_t transport, bool receives) {
    Options o;
    o.transport = transport;
    o.receives = receives;
    o.mtu = 3;  // 1024 bytes
    o.psn = PSN;
    return o;
}

// Queue pairs whose peer is a GID that nobody has, so that what they send is lost: four that receive, and one with a
// write, a read, an atomic and a send under way.
struct Victim {
    Victim(Nic& n, Arena& arena)
        : nic(n),
          cq(nic, 7),
          rc(nic, cq, &cq, options(MLX5_QPC_ST_RC, true)),
          bare(nic, cq, &cq, options(MLX5_QPC_ST_RC, false)),
          uc(nic, cq, &cq, options(MLX5_QPC_ST_UC, true)),
          ud(nic, cq, &cq, options(MLX5_QPC_ST_UD, true)),
          asker(nic, cq, &cq, options(MLX5_QPC_ST_RC, true)),
          memory(nic, arena.address(), arena.bytes),
          all{&rc, &bare, &uc, &ud, &asker},
          address(arena.address()) {
        for (Pair* pair : all) {
            pair->connect(PEER_QPN, PEER);
            for (uint32_t i = 0; pair->options.receives && i < 8; ++i)
                pair->post_receive(arena.address() + i * BUFFER_BYTES, i % 2 ? BUFFER_BYTES : 64, memory.key);
        }
        asker.write(arena.address(), 0x1234, arena.address(), memory.key, 2500);
        asker.write(arena.address(), 0x1234, arena.address() + 4096, memory.key, 9000, CE_ALWAYS,
                    MLX5_OPCODE_RDMA_READ);
        asker.control(asker.producer, MLX5_OPCODE_ATOMIC_FA, 4);
        asker.remote(asker.producer, arena.address(), 0x1234);
        asker.data(asker.producer, 3, arena.address() + 64, 8, memory.key);
        asker.last = asker.producer++;
        asker.send(arena.address(), memory.key, 1500);
        asker.ring();
        nic.device.step();
    }
    Nic& nic;
    Queue cq;
    Pair rc, bare, uc, ud, asker;
    Memory memory;
    Pair* all[TARGETS];
    uint64_t address;
};

sim::DeviceState& state_of(Nic& nic) {
    static sim::DeviceState* found = nullptr;
    sim::each_device([&](sim::DeviceState& s) {
        if (s.device == &nic.device) found = &s;
    });
    return *found;
}

void deliver(sim::DeviceState& s, const sim::Packet& packet) {
    std::lock_guard<std::mutex> hold(s.lock);
    s.now_ns = s.clock.now_ns();
    sim::arrived(s, packet);
}

// A packet of at least the headers that its opcode announces, as decoding would hand it over.
struct Made {
    sim::Packet packet{};
    iovec piece{};
    std::vector<uint8_t> bytes;
};

void make(Victim& w, sim::DeviceState& s, uint8_t target, int8_t distance, uint8_t mend, std::vector<uint8_t> bytes,
          Made* made) {
    Pair* pair = target < TARGETS ? w.all[target] : nullptr;
    bytes.resize(std::max<size_t>(bytes.size(), GDA_BYTES_OF(bth)));
    if (pair && (mend & MEND_TRANSPORT)) {
        const uint32_t transport = pair->options.transport == MLX5_QPC_ST_UD   ? BTH_UD
                                   : pair->options.transport == MLX5_QPC_ST_UC ? BTH_UC
                                                                               : BTH_RC;
        GDA_SET(bth_parts, bytes.data(), transport, transport);
    }
    const uint8_t opcode = static_cast<uint8_t>(GDA_GET(bth, bytes.data(), opcode));
    const uint32_t header_bytes = sim::transport_header_bytes(opcode);
    bytes.resize(std::max<size_t>(bytes.size(), header_bytes));
    sim::Packet& p = made->packet;
    std::memcpy(p.header, bytes.data(), header_bytes);
    p.header_bytes = header_bytes;
    made->bytes.assign(bytes.begin() + header_bytes, bytes.end());
    made->piece = {made->bytes.data(), made->bytes.size()};
    p.payload = &made->piece;
    p.payload_count = 1;
    p.payload_bytes = made->bytes.size();
    std::memcpy(p.source, PEER, 16);
    w.nic.device.gid(1, p.destination);
    if (pair) {
        GDA_SET(bth, p.header, dest_qp, pair->qpn);
        GDA_SET(bth, p.header, pkey, 0xffff);
        GDA_SET(bth, p.header, tver, 0);
        const sim::Qp* qp = s.qp(pair->qpn);
        const bool answer = opcode >= RC_RDMA_READ_RESPONSE_FIRST && opcode <= RC_ATOMIC_ACKNOWLEDGE;
        const uint32_t from = !qp ? 0 : answer ? qp->acked_psn : qp->expected_psn;
        GDA_SET(bth, p.header, psn, (from + static_cast<uint32_t>(distance)) & 0xffffff);
    }
    if (header_bytes >= GDA_BYTES_OF(bth) + GDA_BYTES_OF(reth)) {  // RETH and AtomicETH begin alike
        uint8_t* extended = p.header + GDA_BYTES_OF(bth);
        if (mend & MEND_KEY) GDA_SET(reth, extended, rkey, w.memory.key);
        if (mend & MEND_ADDRESS) {
            const uint64_t at = GDA_GET(reth, extended, va) % (MEMORY_BYTES + 16);
            GDA_SET(reth, extended, va, w.address + at);
        }
        if (mend & MEND_LENGTH) GDA_SET(reth, extended, dma_length, p.payload_bytes);
    } else if (pair == &w.ud && header_bytes > GDA_BYTES_OF(bth) && (mend & MEND_KEY)) {
        GDA_SET(deth, p.header + GDA_BYTES_OF(bth), qkey, pair->options.q_key);
    }
    if (mend & MEND_PAD) GDA_SET(bth, p.header, pad_count, sim::pad_of(p.payload_bytes));
    if (mend & MEND_RUN) p.run_mtu = 1024;
}

// As it would cross a network: what was sent is what is decoded, and whatever a network makes of it is no harm.
void cross(sim::DeviceState& s, Made& made, Input& changes) {
    sim::Packet& p = made.packet;
    p.run_mtu = 0;
    GDA_SET(bth, p.header, pad_count, sim::pad_of(p.payload_bytes));
    const uint8_t mac[6] = {2};
    std::vector<uint8_t> frame(sim::frame_bytes(p));
    if (frame.size() > sim::MAX_IP_BYTES || !sim::encode_frame(p, mac, mac, frame.data())) return;
    sim::Decoded decoded;
    must(sim::decode_frame(frame.data(), frame.size(), &decoded) == sim::Refusal::none, "an encoded packet decodes");
    must(decoded.packet.payload_bytes == p.payload_bytes && decoded.packet.header_bytes == p.header_bytes &&
             !std::memcmp(decoded.packet.header, p.header, p.header_bytes),
         "a packet is decoded as it was encoded");
    const uint8_t count = changes.value<uint8_t>() % 8;
    for (uint8_t i = 0; i < count; ++i) {
        const uint16_t at = changes.value<uint16_t>();
        frame[at % frame.size()] ^= changes.value<uint8_t>();
    }
    if (sim::decode_frame(frame.data(), frame.size(), &decoded) == sim::Refusal::none) deliver(s, decoded.packet);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    static Arena arena(0x510000000000, MEMORY_BYTES);
    static Nic* nic = [] {
        sim::Device::set_virtual_time(true);
        return new Nic;
    }();
    static const size_t objects = nic->device.objects();
    sim::DeviceState& s = state_of(*nic);
    Input input(data, bytes);
    {
        Victim w(*nic, arena);
        for (size_t i = 0; i < MOST_RECORDS && input.left(); ++i) {
            const uint8_t form = input.value<uint8_t>() % 4, target = input.value<uint8_t>();
            const int8_t distance = input.value<int8_t>();
            const uint8_t mend = input.value<uint8_t>();
            const std::vector<uint8_t> record = input.bytes(input.value<uint16_t>());
            if (form == 3) {
                nic->device.step();
            } else if (form == 2) {
                sim::Decoded decoded;
                if (sim::decode_frame(record.data(), record.size(), &decoded) == sim::Refusal::none)
                    deliver(s, decoded.packet);
            } else {
                Input rest(record.data(), record.size());
                const size_t head =
                    form == 1 ? std::min<size_t>(record.size(), 1 + 3 * (record.empty() ? 0 : record[0] % 8)) : 0;
                Made made;
                make(w, s, target, distance, mend, {record.begin() + static_cast<long>(head), record.end()}, &made);
                if (form == 1)
                    cross(s, made, rest);
                else
                    deliver(s, made.packet);
            }
        }
        for (int i = 0; i < 4; ++i) nic->device.step();
        must(!nic->said("no longer mapped"), "the NIC touches registered memory only");
    }
    must(nic->device.objects() == objects, "nothing is left behind");
    must(failures == 0, "the queue pairs were made and ended as they should");
    nic->device.clear_report();
    nic->fired.clear();
    nic->asynchronous.clear();
    return 0;
}
