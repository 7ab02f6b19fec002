// SPDX-License-Identifier: Apache-2.0
// See tapped.h.

#include "sim/link/tapped.h"

#include <algorithm>
#include <cstring>

#include "sim/link/run.h"
#include "sim/link/wire.h"

namespace sim {

uint64_t Tap::due_ns() const {
    const uint64_t packet = held.due_ns();
    return packet && room_ns ? std::min(packet, room_ns) : packet + room_ns;
}

uint32_t Tap::port_of(const uint8_t gid[16]) const {
    static const Gid empty = {};
    if (std::memcmp(gid, empty, sizeof empty) == 0) return 0;
    for (size_t i = 0; i < gids.size(); ++i) {
        if (std::memcmp(gids[i].data(), gid, sizeof(Gid)) == 0) return static_cast<uint32_t>(i / GID_COUNT) + 1;
    }
    return 0;
}

bool Tap::uses(const Packet& packet, uint32_t ports) const {
    return ports && ((port_bit(packet.port) | port_bit(port_of(packet.destination))) & ports);
}

bool Tapped::send(const Packet& packet) {
    if (tap_.uses(packet, tap_.down)) return tap_.counters.count(LinkCounter::packets_without_link), true;
    // Most packets are shorter than any headers would let them be; the exact size is asked for only near the limit.
    const size_t payload = packet.run_mtu ? packet.run_mtu : packet.payload_bytes;
    const uint32_t mtu_bytes = tap_.mtu_bytes[packet.port - 1];
    const bool near = payload + sizeof packet.header + MAX_NETWORK_BYTES + ICRC_BYTES + 3 > mtu_bytes;
    if (near && network_packet_bytes(packet) > mtu_bytes) {
        if (packet.run_mtu) return apart(packet);
        tap_.counters.count(LinkCounter::packets_over_link_mtu);
        if (tap_.capture.on()) tap_.capture.sent(packet, tap_.clock.now_ns(), "lost: longer than the netdev's MTU");
        return true;
    }
    return tap_.looks() ? look(packet) : carrier_.send(packet);
}

int Tapped::poll(const Receive& receive, int budget) {
    if (!tap_.down) return carrier_.poll(receive, budget);
    const auto plugged_in = [this, &receive](const Packet& packet) {
        if (!(port_bit(tap_.arrives_at(packet)) & tap_.down)) return receive(packet);
        tap_.counters.count(LinkCounter::packets_without_link);
    };
    return carrier_.poll(plugged_in, budget);
}

// A run with a packet that is too long (the last of them may be short enough), or where each is looked at.
bool Tapped::apart(const Packet& run) {
    return for_each_packet(run, [this](const Packet& packet) { return send(packet); });
}

bool Tapped::look(const Packet& packet) {
    if (packet.run_mtu) return apart(packet);
    const uint64_t now_ns = tap_.clock.now_ns();
    if (tap_.held.full() || tap_.faults.crowded(now_ns)) {
        if (tap_.faults.crowded(now_ns)) tap_.room_ns = tap_.faults.room_ns();
        return false;
    }
    Faults::Verdict verdict;
    const bool down = tap_.uses(packet, tap_.faults.down());
    if (tap_.faults.on()) verdict = tap_.faults.judge(packet, down);
    if (tap_.capture.on()) {
        tap_.capture.sent(packet, now_ns,
                          verdict.why.empty() ? "" : (verdict.drop ? "dropped by fault: " : "fault: ") + verdict.why);
        if (packet.unreadable) return true;
    }
    if (down) return tap_.counters.count(LinkCounter::fault_link_down), true;
    const uint64_t left_ns = tap_.faults.leaves_ns(now_ns, frame_bytes(packet)), due_ns = left_ns + verdict.delay_ns;
    if (due_ns > now_ns) tap_.counters.count(LinkCounter::fault_delayed);
    if (verdict.drop) return tap_.counters.count(LinkCounter::fault_dropped), true;
    if (verdict.corrupt) return corrupt(packet, verdict, now_ns, due_ns);
    pass(packet, verdict, now_ns, due_ns);
    return true;
}

void Tapped::pass(const Packet& packet, const Faults::Verdict& verdict, uint64_t now_ns, uint64_t due_ns) {
    if (verdict.duplicate) tap_.counters.count(LinkCounter::fault_duplicated);
    for (int copies = verdict.duplicate ? 2 : 1; copies; --copies) {
        if (verdict.behind) {
            tap_.counters.count(LinkCounter::fault_reordered);
            if (!tap_.held.keep(carrier_, packet, due_ns + Held::PASSED_BY_NOBODY_NS, verdict.behind)) return;
            continue;
        }
        const bool at_once = due_ns <= now_ns && !tap_.held.waits_for(carrier_, now_ns);
        if (!(at_once && carrier_.send(packet)) && !tap_.held.keep(carrier_, packet, due_ns)) return;
        if (packet.unreadable) return;
    }
    if (!verdict.behind) tap_.held.passed(packet, due_ns);
}

// One bit behind the Ethernet header changes on the way: what a receiver makes of the frame decides.
bool Tapped::corrupt(const Packet& packet, const Faults::Verdict& verdict, uint64_t now_ns, uint64_t due_ns) {
    const uint8_t mac[6] = {};
    std::vector<uint8_t> frame(frame_bytes(packet));
    if (!encode_frame(packet, mac, mac, frame.data())) return true;
    const size_t bit = 8 * ETHERNET_BYTES + verdict.draw % (8 * (frame.size() - ETHERNET_BYTES));
    frame[bit / 8] = static_cast<uint8_t>(frame[bit / 8] ^ (1u << bit % 8));
    tap_.counters.count(LinkCounter::fault_corrupted);
    Decoded decoded;
    if (decode_frame(frame.data(), frame.size(), &decoded) != Refusal::none) {
        tap_.counters.count(LinkCounter::fault_corruption_caught);
        return true;
    }
    decoded.packet.port = packet.port;
    decoded.packet.note_qpn = packet.note_qpn;
    decoded.packet.note_index = packet.note_index;
    decoded.packet.note_again = packet.note_again;
    pass(decoded.packet, verdict, now_ns, due_ns);
    return true;
}

}  // namespace sim
