// SPDX-License-Identifier: Apache-2.0
// The transport seen from the cable, under virtual time: the peer is the test itself, which reads each packet that the
// NIC sends and answers with packets of its own making. Sequence numbers, timers, retries, acknowledgements, and what
// is answered to packets that should not be.

#include <gda/formats/packet.h>

#include "sim/engine/packet.h"
#include "sim/link/directory.h"
#include "tests/sim/engine_expect.h"

using namespace rig;

namespace {

const uint64_t ACK_TIMEOUT_NS = uint64_t{4096} << 14;

// What came over the cable, with its payload.
struct Seen {
    explicit Seen(const sim::Packet& p) : packet(p) {
        for (size_t i = 0; i < p.payload_count; ++i) {
            const uint8_t* from = static_cast<const uint8_t*>(p.payload[i].iov_base);
            bytes.insert(bytes.end(), from, from + p.payload[i].iov_len);
        }
    }
    uint32_t opcode() const { return static_cast<uint32_t>(GDA_GET(bth, packet.header, opcode)); }
    uint32_t psn() const { return static_cast<uint32_t>(GDA_GET(bth, packet.header, psn)); }
    bool asks() const { return GDA_GET(bth, packet.header, ack_req) != 0; }
    const uint8_t* behind() const { return packet.header + GDA_BYTES_OF(bth); }
    uint32_t syndrome() const { return static_cast<uint32_t>(GDA_GET(aeth, behind(), syndrome)); }
    sim::Packet packet;
    std::vector<uint8_t> bytes;
};

// A NIC in virtual time, a queue pair connected to the test, and the test's own inbox.
struct Script {
    explicit Script(Options o = Options())
        : options(o), cq(nic), qp(nic, cq, &cq, o), memory(1 << 20), m(nic, memory.address(), 1 << 20) {
        sim::gid_of(directory.slot(), 1, gid);
        nic.device.gid(1, nic_gid);
        inbox = directory.open_peer(nic.device.slot());
        CHECK(inbox != nullptr);
        qp.connect(PEER_QPN, gid);
    }
    ~Script() { sim::Inbox::unmap(inbox); }
    struct Time {
        Time() { sim::Device::set_virtual_time(true); }
        ~Time() { sim::Device::set_virtual_time(false); }
    };
    // What arrived since the last look. Does not let the NIC work.
    std::vector<Seen> look() {
        std::vector<Seen> seen;
        directory.inbox()->take([&](const sim::Packet& p) { seen.emplace_back(p); }, 100000);
        return seen;
    }
    // Lets it work until something is on the cable, or nothing will ever be.
    std::vector<Seen> next() {
        for (;;) {
            std::vector<Seen> seen = look();
            if (!seen.empty() || !nic.device.step()) return seen;
        }
    }
    // Lets it do what it can before time must move.
    std::vector<Seen> now() {
        sim::Device::settle();
        return look();
    }
    sim::Packet packet(uint32_t opcode, uint32_t psn, bool ask = true) {
        sim::Packet p;
        std::memcpy(p.source, gid, 16);
        std::memcpy(p.destination, nic_gid, 16);
        std::memset(p.header, 0, sizeof p.header);
        GDA_SET(bth, p.header, opcode, opcode);
        GDA_SET(bth, p.header, pkey, sim::DEFAULT_PKEY);
        GDA_SET(bth, p.header, dest_qp, qp.qpn);
        GDA_SET(bth, p.header, psn, psn);
        GDA_SET(bth, p.header, ack_req, ask);
        p.header_bytes = GDA_BYTES_OF(bth);
        return p;
    }
    void put(sim::Packet p, size_t payload = 0) {
        static uint8_t zeros[70000];
        const iovec part = {zeros, payload};
        p.payload = &part;
        p.payload_count = payload ? 1 : 0;
        p.payload_bytes = payload;
        CHECK(inbox->put(p));
    }
    void answer(uint32_t psn, uint32_t syndrome) {
        sim::Packet p = packet(RC_ACKNOWLEDGE, psn, false);
        GDA_SET(aeth, p.header + p.header_bytes, syndrome, syndrome);
        p.header_bytes += GDA_BYTES_OF(aeth);
        put(p);
    }
    // A write of `length` bytes by its RETH, with `payload` bytes in this packet.
    void write(uint32_t opcode, uint32_t psn, uint64_t at, uint32_t key, uint32_t length, size_t payload,
               bool ask = true) {
        sim::Packet p = packet(opcode, psn, ask);
        if (opcode == RC_RDMA_WRITE_FIRST || opcode == RC_RDMA_WRITE_ONLY || opcode == RC_RDMA_READ_REQUEST) {
            uint8_t* r = p.header + p.header_bytes;
            GDA_SET(reth, r, va, at);
            GDA_SET(reth, r, rkey, key);
            GDA_SET(reth, r, dma_length, length);
            p.header_bytes += GDA_BYTES_OF(reth);
        }
        put(p, payload);
    }
    void fetch_add(uint32_t psn, uint64_t at, uint32_t key, uint64_t add) {
        sim::Packet p = packet(RC_FETCH_ADD, psn);
        uint8_t* a = p.header + p.header_bytes;
        GDA_SET(atomiceth, a, va, at);
        GDA_SET(atomiceth, a, rkey, key);
        GDA_SET(atomiceth, a, swap_add, add);
        p.header_bytes += GDA_BYTES_OF(atomiceth);
        put(p);
    }
    void post_write(uint32_t bytes) { qp.write(0x1000, 0x5005, memory.address(), m.key, bytes), qp.ring(); }

    enum : uint32_t { PEER_QPN = 0x123456 };
    Time time;
    Options options;
    sim::Directory directory;
    Nic nic;
    Queue cq;
    Pair qp;
    Pages memory;
    Memory m;
    sim::Gid gid, nic_gid;
    sim::Inbox* inbox = nullptr;
};

Options at_mtu(uint32_t code, uint32_t psn = 0x100) {
    Options o;
    o.mtu = code;
    o.psn = psn;
    return o;
}

void sequence_numbers_count_packets_at_the_path_mtu() {
    Script t(at_mtu(3, 0xfffffc));  // 1024 bytes; the numbers go round
    t.qp.write(0x1000, 0x5005, t.memory.address(), t.m.key, 10000);
    t.qp.write(0x1000, 0x5005, t.memory.address(), t.m.key, 8);
    t.qp.write(0x1000, 0x5005, t.memory.address(), t.m.key, 0);
    t.qp.control(t.qp.producer, MLX5_OPCODE_RDMA_READ, 3);
    t.qp.remote(t.qp.producer, 0x1000, 0x5005);
    t.qp.data(t.qp.producer, 2, t.memory.address(), 2049, t.m.key);
    t.qp.last = t.qp.producer++;
    t.qp.write(0x1000, 0x5005, t.memory.address(), t.m.key, 8);
    t.qp.ring();
    const std::vector<Seen> seen = t.now();
    CHECK_EQ(seen.size(), 5);
    if (seen.size() != 5) return;
    const uint32_t psn[5] = {0xfffffc, 0x000006, 0x000007, 0x000008, 0x00000b};
    const uint32_t opcode[5] = {RC_RDMA_WRITE_ONLY, RC_RDMA_WRITE_ONLY, RC_RDMA_WRITE_ONLY, RC_RDMA_READ_REQUEST,
                                RC_RDMA_WRITE_ONLY};
    for (int i = 0; i < 5; ++i) {
        CHECK_EQ(seen[i].psn(), psn[i]);
        CHECK_EQ(seen[i].opcode(), opcode[i]);
        CHECK(seen[i].asks());
    }
    CHECK_EQ(seen[0].packet.run_mtu, 1024);
    CHECK_EQ(seen[0].bytes.size(), 10000);
    CHECK_EQ(seen[1].packet.run_mtu, 0);
    // One acknowledgement inside the first message, then one for all before the read.
    t.answer(0x000001, AETH_ACK);
    t.now();
    CHECK(!t.cq.poll());
    t.answer(0x000007, 0x05);  // credits, which other NICs count
    t.now();
    for (int i = 0; i < 3; ++i) CHECK_EQ(opcode_of(t.cq.poll()), MLX5_CQE_REQ);
    CHECK(!t.cq.poll());
}

void timeouts_follow_the_clock() {
    Options o;
    o.retry = 7;
    Script t(o);
    const uint64_t begin = sim::Device::now_ns();
    t.post_write(64);
    for (uint64_t i = 0; i < 8; ++i) {
        const std::vector<Seen> seen = t.next();
        CHECK_EQ(seen.size(), 1);
        if (seen.empty()) return;
        CHECK_EQ(seen[0].psn(), 0x100);
        CHECK_EQ(sim::Device::now_ns() - begin, i * ACK_TIMEOUT_NS);
    }
    CHECK(t.next().empty());
    const uint8_t* e = t.cq.poll();
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK_EQ(sim::Device::now_ns() - begin, 8 * ACK_TIMEOUT_NS);
    CHECK_EQ(t.qp.state(), MLX5_QPC_STATE_ERR);
    CHECK(t.nic.said("after 8 sends in 536 ms"));
}

// Milliseconds by timer code. Source: InfiniBand Architecture Specification, volume 1, "Encoding for RNR NAK Timer
// Field".
void receiver_not_ready_waits_as_the_table_says() {
    const double table[32] = {655.36, 0.01,  0.02,  0.03,  0.04,  0.06,   0.08,   0.12,   0.16,   0.24,  0.32,
                              0.48,   0.64,  0.96,  1.28,  1.92,  2.56,   3.84,   5.12,   7.68,   10.24, 15.36,
                              20.48,  30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52};
    Script t;
    t.qp.send(t.memory.address(), t.m.key, 8);
    t.qp.ring();
    for (uint32_t code = 0; code < 32; ++code) {
        std::vector<Seen> seen = t.next();
        CHECK_EQ(seen.size(), 1);
        if (seen.empty()) return;
        t.answer(seen[0].psn(), AETH_RNR_NAK + code);
        CHECK(t.now().empty());
        const uint64_t begin = sim::Device::now_ns();
        while (t.nic.device.step() && sim::Device::now_ns() == begin) {
        }
        CHECK_EQ(sim::Device::now_ns() - begin, static_cast<uint64_t>(table[code] * 1e6 + 0.5));
    }
    CHECK_EQ(t.nic.device.counter("rnr_retries"), 32);
    t.answer(t.next().at(0).psn(), AETH_ACK);
    CHECK_EQ(opcode_of(t.cq.wait()), MLX5_CQE_REQ);
}

void sequence_error_resends_from_there() {
    Script t(at_mtu(1));
    for (int i = 0; i < 6; ++i) t.qp.write(0x1000, 0x5005, t.memory.address(), t.m.key, 512);
    t.qp.ring();
    CHECK_EQ(t.now().size(), 6);
    t.answer(0x105, AETH_NAK_PSN_SEQUENCE);  // the second packet of the third message
    std::vector<Seen> seen = t.now();
    for (int i = 0; i < 2; ++i) CHECK_EQ(opcode_of(t.cq.poll()), MLX5_CQE_REQ);  // all before it is acknowledged
    CHECK(!t.cq.poll());
    CHECK_EQ(seen.size(), 4);
    if (seen.size() != 4) return;
    CHECK_EQ(seen[0].psn(), 0x105);
    CHECK_EQ(seen[0].opcode(), RC_RDMA_WRITE_LAST);
    CHECK_EQ(seen[0].bytes.size(), 256);
    CHECK_EQ(seen[1].psn(), 0x106);
    CHECK_EQ(t.nic.device.counter("packets_resent"), 4);
    // The same again brings nothing new: it counts as a retry, and they are finite.
    for (int i = 0; i < 7; ++i) {
        t.answer(0x105, AETH_NAK_PSN_SEQUENCE);
        CHECK_EQ(t.now().size(), 4);
    }
    t.answer(0x105, AETH_NAK_PSN_SEQUENCE);
    t.now();
    CHECK_EQ(syndrome_of(t.cq.poll()), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
}

void answers_to_what_was_never_sent_are_ignored() {
    Script t;
    t.post_write(8);
    CHECK_EQ(t.now().size(), 1);
    for (uint32_t psn : {0x101u, 0x0ffu, 0x500000u, 0x900100u}) {
        t.answer(psn, AETH_ACK);
        CHECK(t.now().empty());
        CHECK(!t.cq.poll());
    }
    t.answer(0x101, AETH_NAK_REMOTE_ACCESS);
    t.now();
    CHECK_EQ(t.qp.state(), MLX5_QPC_STATE_RTS);
    t.answer(0x100, AETH_ACK);
    CHECK_EQ(opcode_of(t.cq.wait()), MLX5_CQE_REQ);
}

void one_acknowledgement_speaks_for_many() {
    Script t(at_mtu(3));
    for (uint32_t i = 0; i < 20; ++i) t.write(RC_RDMA_WRITE_ONLY, 0x100 + i, t.memory.address(), t.m.key, 8, 8);
    const std::vector<Seen> seen = t.now();
    CHECK_EQ(seen.size(), 1);
    if (seen.empty()) return;
    CHECK_EQ(seen[0].opcode(), RC_ACKNOWLEDGE);
    CHECK_EQ(seen[0].psn(), 0x113);
    CHECK_EQ(seen[0].syndrome(), AETH_ACK);
    CHECK_EQ(GDA_GET(aeth, seen[0].behind(), msn), 20);
}

void acknowledges_only_when_asked() {
    Script t(at_mtu(3));
    t.write(RC_RDMA_WRITE_FIRST, 0x100, t.memory.address(), t.m.key, 3000, 1024, false);
    t.write(RC_RDMA_WRITE_MIDDLE, 0x101, 0, 0, 0, 1024, true);  // in the middle of a message
    std::vector<Seen> seen = t.now();
    CHECK_EQ(seen.size(), 1);
    if (!seen.empty()) CHECK_EQ(seen[0].psn(), 0x101);
    t.write(RC_RDMA_WRITE_LAST, 0x102, 0, 0, 0, 952, false);
    CHECK(t.now().empty());
    CHECK_EQ(t.nic.device.counter("write_requests"), 1);
}

void gap_is_told_once() {
    Script t;
    t.write(RC_RDMA_WRITE_ONLY, 0x102, t.memory.address(), t.m.key, 8, 8);
    t.write(RC_RDMA_WRITE_ONLY, 0x103, t.memory.address(), t.m.key, 8, 8);
    std::vector<Seen> seen = t.now();
    CHECK_EQ(seen.size(), 1);
    if (seen.empty()) return;
    CHECK_EQ(seen[0].syndrome(), AETH_NAK_PSN_SEQUENCE);
    CHECK_EQ(seen[0].psn(), 0x100);
    t.write(RC_RDMA_WRITE_ONLY, 0x100, t.memory.address(), t.m.key, 8, 8);
    seen = t.now();
    CHECK(!seen.empty() && seen[0].syndrome() == AETH_ACK && seen[0].psn() == 0x100);
    t.write(RC_RDMA_WRITE_ONLY, 0x105, t.memory.address(), t.m.key, 8, 8);
    seen = t.now();
    CHECK(!seen.empty() && seen[0].syndrome() == AETH_NAK_PSN_SEQUENCE && seen[0].psn() == 0x101);
}

void repeated_requests_are_answered_again_not_done_again() {
    Script t;
    uint64_t* word = reinterpret_cast<uint64_t*>(t.memory.p);
    *word = 100;
    t.fetch_add(0x100, t.memory.address(), t.m.key, 5);
    std::vector<Seen> first = t.now();
    t.fetch_add(0x100, t.memory.address(), t.m.key, 5);
    std::vector<Seen> second = t.now();
    CHECK_EQ(*word, 105);
    CHECK_EQ(first.size(), 1);
    CHECK_EQ(second.size(), 1);
    if (first.empty() || second.empty()) return;
    for (const Seen& s : {first[0], second[0]}) {
        CHECK_EQ(s.opcode(), RC_ATOMIC_ACKNOWLEDGE);
        CHECK_EQ(s.psn(), 0x100);
        CHECK_EQ(GDA_GET(atomicacketh, s.behind() + GDA_BYTES_OF(aeth), original), 100);
    }
    t.write(RC_RDMA_WRITE_ONLY, 0x101, t.memory.address(), t.m.key, 8, 8);
    t.now();
    *word = 7;  // a repeated write is only acknowledged
    t.write(RC_RDMA_WRITE_ONLY, 0x101, t.memory.address(), t.m.key, 8, 8);
    second = t.now();
    CHECK_EQ(*word, 7);
    CHECK(!second.empty() && second[0].opcode() == RC_ACKNOWLEDGE && second[0].psn() == 0x101);
    t.write(RC_RDMA_READ_REQUEST, 0x102, t.memory.address(), t.m.key, 8, 0);
    t.now();
    t.write(RC_RDMA_READ_REQUEST, 0x102, t.memory.address(), t.m.key, 8, 0);
    second = t.now();
    CHECK(!second.empty() && second[0].opcode() == RC_RDMA_READ_RESPONSE_ONLY && second[0].psn() == 0x102);
    CHECK_EQ(t.nic.device.counter("duplicates"), 3);
}

void half_new_run_is_asked_for_from_its_new_part() {
    Script t(at_mtu(3));
    t.write(RC_RDMA_WRITE_FIRST, 0x100, t.memory.address(), t.m.key, 4096, 1024);
    t.now();
    sim::Packet p = t.packet(RC_RDMA_WRITE_ONLY, 0x100);
    uint8_t* r = p.header + p.header_bytes;
    GDA_SET(reth, r, va, t.memory.address());
    GDA_SET(reth, r, rkey, t.m.key);
    GDA_SET(reth, r, dma_length, 4096);
    p.header_bytes += GDA_BYTES_OF(reth);
    p.run_mtu = 1024;
    t.put(p, 4096);
    const std::vector<Seen> seen = t.now();
    CHECK_EQ(seen.size(), 1);
    if (seen.empty()) return;
    CHECK_EQ(seen[0].syndrome(), AETH_NAK_PSN_SEQUENCE);
    CHECK_EQ(seen[0].psn(), 0x101);
}

// A packet that does not fit its place: refused as invalid, and the queue pair ends.
void wrong_lengths_are_invalid_requests() {
    const auto refused = [](const char* what, void (*send)(Script&)) {
        Script t(at_mtu(3));
        send(t);
        const std::vector<Seen> seen = t.now();
        const bool right = !seen.empty() && seen.back().syndrome() == AETH_NAK_INVALID_REQUEST;
        if (!right) std::printf("  %s: %zu answers\n", what, seen.size());
        CHECK(right);
        CHECK_EQ(t.qp.state(), MLX5_QPC_STATE_ERR);
    };
    refused("longer than the path MTU",
            [](Script& t) { t.write(RC_RDMA_WRITE_ONLY, 0x100, t.memory.address(), t.m.key, 1025, 1025); });
    refused("first shorter than the path MTU",
            [](Script& t) { t.write(RC_RDMA_WRITE_FIRST, 0x100, t.memory.address(), t.m.key, 2000, 1000); });
    refused("length that RETH does not announce",
            [](Script& t) { t.write(RC_RDMA_WRITE_ONLY, 0x100, t.memory.address(), t.m.key, 100, 8); });
    refused("middle without a first", [](Script& t) { t.write(RC_RDMA_WRITE_MIDDLE, 0x100, 0, 0, 0, 1024); });
    refused("misaligned atomic", [](Script& t) { t.fetch_add(0x100, t.memory.address() + 4, t.m.key, 1); });
    refused("run cut at another path MTU", [](Script& t) {
        sim::Packet p = t.packet(RC_SEND_FIRST, 0x100);
        p.run_mtu = 2048;
        t.put(p, 4096);
    });
}

void foreign_packets_are_dropped_silently() {
    Script t;
    const auto dropped = [&t](const char* what, const std::function<void(sim::Packet&)>& spoil) {
        const uint64_t before = t.nic.device.counter("packets_dropped");
        sim::Packet p = t.packet(RC_RDMA_WRITE_ONLY, 0x100);
        uint8_t* r = p.header + p.header_bytes;
        GDA_SET(reth, r, va, t.memory.address());
        GDA_SET(reth, r, rkey, t.m.key);
        p.header_bytes += GDA_BYTES_OF(reth);
        spoil(p);
        t.put(p);
        const bool silent = t.now().empty() && t.nic.device.counter("packets_dropped") == before + 1;
        if (!silent) std::printf("  %s\n", what);
        CHECK(silent);
    };
    dropped("P_Key", [](sim::Packet& p) { GDA_SET(bth, p.header, pkey, 0x1234); });
    dropped("version", [](sim::Packet& p) { GDA_SET(bth, p.header, tver, 1); });
    dropped("queue pair", [](sim::Packet& p) { GDA_SET(bth, p.header, dest_qp, 0x77); });
    dropped("opcode", [](sim::Packet& p) { GDA_SET(bth, p.header, opcode, 0x1b); });
    dropped("transport", [](sim::Packet& p) { GDA_SET(bth, p.header, opcode, UC_RDMA_WRITE_ONLY); });
    dropped("source", [](sim::Packet& p) { p.source[15] ^= 1; });
    CHECK_EQ(t.qp.state(), MLX5_QPC_STATE_RTS);
    t.write(RC_RDMA_WRITE_ONLY, 0x100, t.memory.address(), t.m.key, 8, 8);
    CHECK_EQ(t.now().size(), 1);
    CHECK(t.nic.said("P_Key 0x1234"));
}

void no_answer_to_an_atomic_says_that_it_may_have_been_done() {
    Options o;
    o.retry = 1;
    Script t(o);
    t.qp.control(0, MLX5_OPCODE_ATOMIC_FA, 4);
    t.qp.remote(0, 0x1000, 0x5005);
    t.qp.data(0, 3, t.memory.address(), 8, t.m.key);
    t.qp.producer = 1;
    t.qp.ring();
    CHECK_EQ(syndrome_of(t.cq.wait()), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK(t.nic.said("the operation may have taken effect"));
}

// What QUERY_QP says while packets go and come, and while they do not.
void query_follows_the_traffic() {
    Options o = at_mtu(3, 0xfffffe);
    o.retry = 3, o.rnr = 2;
    Script t(o);
    const auto shows = [&t](uint32_t next, uint32_t acked, uint32_t retries, uint32_t rnr, uint32_t done) {
        Call c = CALL(query_qp, MLX5_CMD_OP_QUERY_QP);
        GDA_SET(query_qp_in, c.in.data(), qpn, t.qp.qpn);
        CHECK(c.send(t.nic));
        const uint8_t* q = c.out.data() + GDA_BYTE_OFFSET(query_qp_out, qpc);
        CHECK_EQ(GDA_GET(qpc, q, next_send_psn), next);
        CHECK_EQ(GDA_GET(qpc, q, last_acked_psn), acked);
        CHECK_EQ(GDA_GET(qpc, q, cur_retry_count), retries);
        CHECK_EQ(GDA_GET(qpc, q, cur_rnr_retry), rnr);
        CHECK_EQ(GDA_GET(qpc, q, sw_sq_wqebb_counter), done);
        CHECK_EQ(GDA_GET(qpc, q, hw_sq_wqebb_counter), done);
        CHECK_EQ(GDA_GET(qpc, q, retry_count), 3);  // what was set stays
        CHECK_EQ(GDA_GET(qpc, q, rnr_retry), 2);
        return std::make_pair(GDA_GET(qpc, q, next_rcv_psn), GDA_GET(qpc, q, rmsn));
    };
    shows(0xfffffe, 0xfffffd, 3, 2, 0);
    t.post_write(3000);  // three packets, round the end of the numbers
    CHECK_EQ(t.now().size(), 1);
    shows(0x000001, 0xfffffd, 3, 2, 1);
    t.answer(0xfffffe, AETH_ACK);
    t.now();
    shows(0x000001, 0xfffffe, 3, 2, 1);
    for (uint32_t left : {2u, 1u}) {  // nobody answers
        CHECK_EQ(t.next().size(), 1);
        shows(0x000001, 0xfffffe, left, 2, 1);
    }
    t.answer(0xffffff, AETH_RNR_NAK + 1);
    t.now();
    shows(0x000001, 0xfffffe, 3, 1, 1);
    CHECK_EQ(t.next().size(), 1);
    t.answer(0x000000, AETH_ACK);
    t.now();
    CHECK_EQ(opcode_of(t.cq.poll()), MLX5_CQE_REQ);
    CHECK(shows(0x000001, 0x000000, 3, 2, 1) == std::make_pair(uint64_t{0xfffffe}, uint64_t{0}));
    t.write(RC_RDMA_WRITE_ONLY, 0xfffffe, t.memory.address(), t.m.key, 8, 8);
    t.now();
    CHECK(shows(0x000001, 0x000000, 3, 2, 1) == std::make_pair(uint64_t{0xffffff}, uint64_t{1}));
    t.post_write(8);
    for (int i = 0; i < 4; ++i) {  // asked for it again and again
        CHECK_EQ(t.now().size(), 1);
        CHECK_EQ(t.qp.state(), MLX5_QPC_STATE_RTS);
        t.answer(0x000001, AETH_NAK_PSN_SEQUENCE);
    }
    CHECK(t.now().empty());
    CHECK_EQ(t.qp.state(), MLX5_QPC_STATE_ERR);
    shows(0x000002, 0x000000, 0, 2, 2);
}

}  // namespace

int main(int argc, char** argv) {
    const Cases cases = {
        {"sequence_numbers_count_packets_at_the_path_mtu", sequence_numbers_count_packets_at_the_path_mtu},
        {"timeouts_follow_the_clock", timeouts_follow_the_clock},
        {"receiver_not_ready_waits_as_the_table_says", receiver_not_ready_waits_as_the_table_says},
        {"sequence_error_resends_from_there", sequence_error_resends_from_there},
        {"answers_to_what_was_never_sent_are_ignored", answers_to_what_was_never_sent_are_ignored},
        {"one_acknowledgement_speaks_for_many", one_acknowledgement_speaks_for_many},
        {"acknowledges_only_when_asked", acknowledges_only_when_asked},
        {"gap_is_told_once", gap_is_told_once},
        {"repeated_requests_are_answered_again_not_done_again", repeated_requests_are_answered_again_not_done_again},
        {"half_new_run_is_asked_for_from_its_new_part", half_new_run_is_asked_for_from_its_new_part},
        {"wrong_lengths_are_invalid_requests", wrong_lengths_are_invalid_requests},
        {"foreign_packets_are_dropped_silently", foreign_packets_are_dropped_silently},
        {"query_follows_the_traffic", query_follows_the_traffic},
        {"no_answer_to_an_atomic_says_that_it_may_have_been_done",
         no_answer_to_an_atomic_says_that_it_may_have_been_done},
    };
    return rig::run(cases, argc, argv);
}
