// SPDX-License-Identifier: Apache-2.0
// Packets as bytes: out and in again, every reason to refuse, and bytes of no meaning. `frames` prints frames for
// outside witnesses, `again` reads frames of others and makes them anew (test_link_witness.py).

#include <sys/mman.h>

#include <cstdlib>
#include <iostream>
#include <memory>

#include "sim/link/icrc.h"
#include "sim/link/wire.h"
#include "tests/sim/link_rig.h"

using namespace rig;
using namespace sim;

namespace {

const uint8_t TO[6] = {0x52, 0x54, 0, 0, 0, 2}, FROM[6] = {2, 0x67, 0x64, 0x61, 0, 1};

std::vector<uint8_t> frame_of(const Packet& packet) {
    std::vector<uint8_t> frame(frame_bytes(packet));
    CHECK(encode_frame(packet, TO, FROM, frame.data()));
    return frame;
}

// In a buffer of its exact size, so that a sanitizer sees every byte read beyond it.
Refusal taken(const std::vector<uint8_t>& bytes, Decoded* decoded, size_t count) {
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[count + 1]);  // never of no size
    if (count) std::memcpy(exact.get() + 1, bytes.data(), count);
    const Refusal refusal = decode_frame(exact.get() + 1, count, decoded);
    if (refusal == Refusal::none) {  // what it points to can be read
        Crc32 crc;
        crc.add(decoded->piece.iov_base, decoded->piece.iov_len);
        CHECK(crc.value() || true);
    }
    return refusal;
}
Refusal refusal_of(const std::vector<uint8_t>& bytes) {
    Decoded decoded;
    return taken(bytes, &decoded, bytes.size());
}
#define CHECK_REFUSED(bytes, why) CHECK_EQ(static_cast<int>(refusal_of(bytes)), static_cast<int>(Refusal::why))

// A packet of each opcode with the headers that belong to it, filled with distinct bytes.
std::unique_ptr<Made> of_opcode(uint8_t opcode, size_t bytes, int gid_index) {
    auto made = std::make_unique<Made>(opcode, 0xabc000u + opcode, bytes, 1, 0, gid_index);
    const uint32_t more = transport_header_bytes(opcode) - GDA_BYTES_OF(bth);
    uint8_t* at = made->add(more);
    for (uint32_t i = 0; i < more; ++i) at[i] = static_cast<uint8_t>(0x40 + i);
    GDA_SET(bth, made->packet.header, ack_req, 1);
    made->packet.flow_port = 0xc123;
    made->packet.traffic_class = 0x1a;
    return made;
}

const uint8_t OPCODES[] = {
    RC_SEND_FIRST,
    RC_SEND_MIDDLE,
    RC_SEND_LAST,
    RC_SEND_LAST_WITH_IMMEDIATE,
    RC_SEND_ONLY,
    RC_SEND_ONLY_WITH_IMMEDIATE,
    RC_RDMA_WRITE_FIRST,
    RC_RDMA_WRITE_MIDDLE,
    RC_RDMA_WRITE_LAST,
    RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
    RC_RDMA_WRITE_ONLY,
    RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
    RC_RDMA_READ_REQUEST,
    RC_RDMA_READ_RESPONSE_FIRST,
    RC_RDMA_READ_RESPONSE_MIDDLE,
    RC_RDMA_READ_RESPONSE_LAST,
    RC_RDMA_READ_RESPONSE_ONLY,
    RC_ACKNOWLEDGE,
    RC_ATOMIC_ACKNOWLEDGE,
    RC_COMPARE_SWAP,
    RC_FETCH_ADD,
    UC_SEND_FIRST,
    UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
    UD_SEND_ONLY,
    UD_SEND_ONLY_WITH_IMMEDIATE,
    OWN_MASKED_COMPARE_SWAP,
};

void out_and_in_again() {
    for (uint8_t opcode : OPCODES) {
        for (int gid_index = 0; gid_index < DEFAULT_GIDS; ++gid_index) {
            for (size_t bytes : {0u, 1u, 2u, 3u, 4u, 4096u}) {
                const auto made = of_opcode(opcode, bytes, gid_index);
                const Packet& sent = made->packet;
                const std::vector<uint8_t> frame = frame_of(sent);
                Decoded got;
                CHECK_EQ(static_cast<int>(taken(frame, &got, frame.size())), 0);
                CHECK(std::memcmp(got.packet.source, sent.source, 16) == 0);
                CHECK(std::memcmp(got.packet.destination, sent.destination, 16) == 0);
                CHECK_EQ(got.packet.header_bytes, sent.header_bytes);
                CHECK(std::memcmp(got.packet.header, sent.header, sent.header_bytes) == 0);
                CHECK_EQ(got.packet.payload_bytes, bytes);
                CHECK_EQ(got.packet.version1, sent.version1);
                CHECK_EQ(got.packet.traffic_class, sent.traffic_class);
                CHECK_EQ(got.packet.hop_limit, sent.hop_limit);
                if (!sent.version1) CHECK_EQ(got.packet.flow_port, sent.flow_port);

                std::vector<uint8_t> longer = frame;  // Ethernet fills short frames up
                longer.resize(frame.size() + 7, 0x5a);
                Decoded in_place;
                CHECK_EQ(static_cast<int>(decode_frame(longer.data(), longer.size(), &in_place)), 0);
                const uint8_t* payload = static_cast<const uint8_t*>(in_place.piece.iov_base);
                CHECK_EQ(in_place.packet.payload_bytes, bytes);
                CHECK(!bytes || std::memcmp(payload, made->data.data(), bytes) == 0);
            }
        }
    }
}

// The same bytes through a UDP socket, where the headers before BTH are not seen.
void through_a_socket() {
    for (int gid_index : {1, 3}) {
        const auto made = of_opcode(RC_RDMA_WRITE_ONLY, 101, gid_index);
        const std::vector<uint8_t> frame = frame_of(made->packet);
        std::vector<uint8_t> datagram(datagram_bytes(made->packet));
        CHECK(encode_datagram(made->packet, datagram.data()));
        CHECK(std::vector<uint8_t>(frame.end() - static_cast<std::ptrdiff_t>(datagram.size()), frame.end()) ==
              datagram);
        Decoded got;
        const Packet& p = made->packet;
        const auto decode = [&](uint16_t port) {
            return decode_datagram(datagram.data(), datagram.size(), p.source, p.destination, port, &got);
        };
        CHECK_EQ(static_cast<int>(decode(0xc123)), 0);
        CHECK_EQ(got.packet.payload_bytes, 101);
        CHECK(std::memcmp(got.piece.iov_base, made->data.data(), 101) == 0);
        CHECK_EQ(static_cast<int>(decode(0xc124)), static_cast<int>(Refusal::icrc));  // the ICRC covers the port
        for (size_t bytes = 0; bytes < datagram.size(); ++bytes) {
            const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes + 1]);
            std::memcpy(exact.get() + 1, datagram.data(), bytes);
            CHECK(decode_datagram(exact.get() + 1, bytes, p.source, p.destination, 0xc123, &got) != Refusal::none);
        }
    }
}

// IPv4 is at 14, UDP at 34, BTH at 42 of a frame; the header checksum is made right again unless it is the point.
std::vector<uint8_t> changed(std::vector<uint8_t> frame, size_t at, uint8_t value, bool mend = true) {
    frame[at] = value;
    if (mend) {
        frame[24] = frame[25] = 0;
        const uint16_t sum = complement(internet_sum(frame.data() + 14, 20));
        frame[24] = static_cast<uint8_t>(sum / 256), frame[25] = static_cast<uint8_t>(sum % 256);
    }
    return frame;
}

void every_reason_to_refuse() {
    const auto made = of_opcode(RC_RDMA_WRITE_ONLY, 5, 3);
    const std::vector<uint8_t> frame = frame_of(made->packet);
    CHECK_REFUSED(frame, none);
    CHECK_REFUSED(std::vector<uint8_t>(frame.begin(), frame.begin() + 13), too_short);
    CHECK_REFUSED(std::vector<uint8_t>(frame.begin(), frame.begin() + 33), too_short);
    CHECK_REFUSED(changed(frame, 13, 0x06), ether_type);  // ARP
    CHECK_REFUSED(changed(frame, 14, 0x65), ip_version);
    CHECK_REFUSED(changed(frame, 14, 0x46), ip_options);
    CHECK_REFUSED(changed(frame, 16, 0x40), ip_length);  // longer than the frame
    CHECK_REFUSED(changed(frame, 17, 19), ip_length);    // shorter than itself
    CHECK_REFUSED(changed(frame, 17, 27), ip_length);    // no room for UDP
    CHECK_REFUSED(changed(frame, 20, 0x20), ip_fragment);
    CHECK_REFUSED(changed(frame, 21, 0x01), ip_fragment);
    CHECK_REFUSED(changed(frame, 22, 0x3f, false), ip_checksum);
    CHECK_REFUSED(changed(frame, 23, 6), protocol);
    CHECK_REFUSED(changed(frame, 37, 0xb8), udp_port);
    CHECK_REFUSED(changed(frame, 39, frame[39] - 4), udp_length);
    CHECK_REFUSED(changed(frame, 40, 0x11), udp_checksum);
    CHECK_REFUSED(changed(frame, frame.size() - 9, 0), icrc);  // a byte of the payload
    CHECK_REFUSED(changed(frame, 19, 1), icrc);                // the IP ID is covered
    CHECK_REFUSED(changed(frame, 34, 0xc0), icrc);             // and the source port
    CHECK_REFUSED(changed(frame, 22, 3), none);                // TTL,
    CHECK_REFUSED(changed(frame, 15, 3), none);                // traffic class
    CHECK_REFUSED(changed(frame, 46, 0xc0), none);             // and FECN and BECN are not
    CHECK_REFUSED(changed(frame, 42, RC_ACKNOWLEDGE), icrc);   // 16 bytes more of payload

    const auto cut = [&frame](size_t transport_bytes) {  // IP and UDP tell the truth about it
        std::vector<uint8_t> shorter(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(42 + transport_bytes));
        shorter[17] = static_cast<uint8_t>(28 + transport_bytes);
        return changed(shorter, 39, static_cast<uint8_t>(8 + transport_bytes));
    };
    CHECK_REFUSED(cut(0), header_length);
    CHECK_REFUSED(cut(12), header_length);
    CHECK_REFUSED(cut(28), header_length);  // RETH, but no ICRC
    CHECK_REFUSED(cut(32), pad);            // BTH says 3 bytes of pad
    CHECK_REFUSED(cut(37), pad);            // not whole dwords

    const auto old = of_opcode(RC_RDMA_WRITE_ONLY, 5, 0);
    std::vector<uint8_t> v1 = frame_of(old->packet);
    CHECK_REFUSED(v1, none);
    v1[20] = IP_UDP;
    CHECK_REFUSED(v1, protocol);
    for (int i = 0; i <= static_cast<int>(Refusal::icrc); ++i) {
        CHECK(std::string(name_of(static_cast<Refusal>(i))) != "unknown");
    }
}

void a_right_udp_checksum_is_taken() {
    for (int gid_index : {1, 3}) {
        const auto made = of_opcode(RC_SEND_ONLY, 5, gid_index);
        std::vector<uint8_t> frame = frame_of(made->packet);
        const size_t ip = 14, udp = gid_index == 3 ? 34 : 54, addresses = gid_index == 3 ? 8 : 32;
        const size_t bytes = frame.size() - udp;
        uint32_t sum = internet_sum(frame.data() + udp - addresses, addresses + bytes);
        sum = internet_sum(nullptr, 0, sum + IP_UDP + static_cast<uint32_t>(bytes));
        const uint16_t checksum = complement(sum);
        frame[udp + 6] = static_cast<uint8_t>(checksum / 256), frame[udp + 7] = static_cast<uint8_t>(checksum % 256);
        CHECK(ip < udp);
        CHECK_REFUSED(frame, none);
        frame[udp + 7] ^= 1;
        CHECK_REFUSED(frame, udp_checksum);
    }
}

// Every single bit that the ICRC or a checksum covers is missed by nobody: exactly the masked ones pass.
void one_bit_flipped() {
    const auto made = of_opcode(RC_RDMA_WRITE_ONLY, 9, 3);
    const std::vector<uint8_t> frame = frame_of(made->packet);
    int passed = 0;
    for (size_t bit = 8 * 14; bit < 8 * frame.size(); ++bit) {
        std::vector<uint8_t> damaged = frame;
        damaged[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        passed += refusal_of(damaged) == Refusal::none;
    }
    CHECK_EQ(passed, 8);  // the eight bits of BTH that may change on the way

    const auto six = of_opcode(RC_RDMA_WRITE_ONLY, 9, 1);
    const std::vector<uint8_t> frame6 = frame_of(six->packet);
    passed = 0;
    for (size_t bit = 8 * 14; bit < 8 * frame6.size(); ++bit) {
        std::vector<uint8_t> damaged = frame6;
        damaged[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        passed += refusal_of(damaged) == Refusal::none;
    }
    CHECK_EQ(passed, 8 + 8 + 20 + 8);  // and traffic class, flow label, hop limit
}

void bytes_of_no_meaning() {
    uint64_t state = 20261130;
    const auto random = [&state] {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state >> 33);
    };
    Decoded decoded;
    for (int gid_index = 0; gid_index < DEFAULT_GIDS; ++gid_index) {
        const auto made = of_opcode(RC_SEND_ONLY_WITH_IMMEDIATE, 30, gid_index);
        const std::vector<uint8_t> frame = frame_of(made->packet);
        for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
            CHECK(taken(frame, &decoded, bytes) != Refusal::none);
        }
        for (int i = 0; i < 4000; ++i) {
            std::vector<uint8_t> damaged = frame;
            for (uint32_t n = random() % 6; n; --n) damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
            taken(damaged, &decoded, 1 + random() % damaged.size());
        }
    }
    for (int i = 0; i < 4000; ++i) {
        std::vector<uint8_t> noise(random() % 128);
        for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
        CHECK(taken(noise, &decoded, noise.size()) != Refusal::none);
    }
}

void what_cannot_be_sent() {
    Made big(RC_SEND_ONLY, 1, 66000);
    std::vector<uint8_t> out(70000);
    CHECK(!encode_frame(big.packet, TO, FROM, out.data()));
    CHECK(!big.packet.unreadable);
    Made none(RC_SEND_ONLY, 1, 0);
    none.packet.header_bytes = 8;
    CHECK(!encode_frame(none.packet, TO, FROM, out.data()));
}

void crc_of_known_strings() {
    Crc32 crc;
    crc.add("123456789", 9);
    CHECK_EQ(crc.value(), 0xcbf43926);  // the check value of this CRC
    Crc32 parts;
    const std::string text = "The quick brown fox jumps over the lazy dog";
    for (size_t at = 0, n = 1; at < text.size(); at += n++) parts.add(text.data() + at, std::min(n, text.size() - at));
    CHECK_EQ(parts.value(), 0x414fa339);
}

int print_frames() {
    for (uint8_t opcode : OPCODES) {
        for (int gid_index = 0; gid_index < DEFAULT_GIDS; ++gid_index) {
            for (size_t bytes : {0u, 5u, 1024u}) {
                const bool no_payload = opcode >= RC_ACKNOWLEDGE && opcode <= RC_FETCH_ADD;
                if (bytes && (no_payload || opcode == RC_RDMA_READ_REQUEST)) continue;
                const std::vector<uint8_t> frame = frame_of(of_opcode(opcode, bytes, gid_index)->packet);
                for (uint8_t byte : frame) std::printf("%02x", byte);
                std::printf("\n");
            }
        }
    }
    return 0;
}

// Lines of hexadecimal digits in, decoded, encoded with the same MAC addresses, out; or why one was refused.
int frames_again() {
    for (std::string line; std::getline(std::cin, line);) {
        std::vector<uint8_t> frame(line.size() / 2);
        for (size_t i = 0; i < frame.size(); ++i) {
            frame[i] = static_cast<uint8_t>(std::strtoul(line.substr(2 * i, 2).c_str(), nullptr, 16));
        }
        Decoded decoded;
        const Refusal refusal = decode_frame(frame.data(), frame.size(), &decoded);
        if (refusal != Refusal::none) {
            std::printf("refused: %s\n", name_of(refusal));
            continue;
        }
        std::vector<uint8_t> again(frame_bytes(decoded.packet));
        CHECK(encode_frame(decoded.packet, frame.data(), frame.data() + 6, again.data()));
        for (uint8_t byte : again) std::printf("%02x", byte);
        std::printf("\n");
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::string(argv[1]) == "frames") return print_frames();
    if (argc == 2 && std::string(argv[1]) == "again") return frames_again();
    return run(
        {
            {"out_and_in_again", out_and_in_again},
            {"through_a_socket", through_a_socket},
            {"every_reason_to_refuse", every_reason_to_refuse},
            {"a_right_udp_checksum_is_taken", a_right_udp_checksum_is_taken},
            {"one_bit_flipped", one_bit_flipped},
            {"bytes_of_no_meaning", bytes_of_no_meaning},
            {"what_cannot_be_sent", what_cannot_be_sent},
            {"crc_of_known_strings", crc_of_known_strings},
        },
        argc, argv);
}
