// SPDX-License-Identifier: Apache-2.0
// The port: which link leads where, the MTU of the netdev, and runs taken apart.

#include <sys/mman.h>
#include <unistd.h>

#include "sim/link/port.h"
#include "sim/link/run.h"
#include "sim/link/wire.h"
#include "tests/sim/link_rig.h"

using namespace rig;
using namespace sim;

namespace {

const Clock the_clock;

void own_gid_leads_back() {
    Sink sink;
    Port port(the_clock, sink.receive);
    CHECK(port.problems().empty());
    for (int i = 0; i < DEFAULT_GIDS; ++i) {
        Gid gid;
        gid_of(port.slot(), i, gid);
        CHECK(port.own(gid));
        CHECK(port.in_place(port.route(gid)));
        CHECK(port.peer_lives(gid));
    }
    Made request(RC_RDMA_WRITE_ONLY, 5, 100);
    request.write_to(0x1000, 7, 100);
    CHECK(port.route(request.packet.destination)->send(request.packet));
    CHECK_EQ(sink.all.size(), 1);  // handed over within the call
    CHECK(sink.all[0].payload == request.data);
    Made answer(RC_ACKNOWLEDGE, 5, 0);
    answer.answer(AETH_ACK, 1);
    CHECK(port.route(answer.packet.destination)->send(answer.packet));
    CHECK_EQ(sink.all.size(), 1);  // an answer waits for the next poll
    CHECK_EQ(port.poll(sink.receive, 16), 1);
    CHECK_EQ(sink.all.size(), 2);
    CHECK_EQ(port.due_ns(), 0);
}

void changed_gids_are_the_own_ones() {
    Sink sink;
    Port port(the_clock, sink.receive);
    Gid first, other = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
    gid_of(port.slot(), 3, first);
    CHECK(!port.own(other));
    CHECK(port.route(other) != port.route(first));
    Gid table[2];
    std::memcpy(table[0], first, sizeof first);
    std::memcpy(table[1], other, sizeof other);
    port.set_gids(table, 2);
    CHECK(port.route(other) == port.route(first));
    gid_of(port.slot(), 0, first);
    CHECK(!port.own(first));
}

// One slot and one inbox for all ports: a GID range, a link and an MTU each.
void several_ports() {
    setenv("GDA_SIM_PORTS", "2", 1);
    Sink a_sink, b_sink;
    Port a(the_clock, a_sink.receive), b(the_clock, b_sink.receive);
    unsetenv("GDA_SIM_PORTS");
    CHECK(a.problems().empty() && a.ports() == 2 && b.slot() == 1);
    Gid gid;
    uint8_t mac[6];
    for (uint32_t port = 1; port <= 3; ++port) {
        for (int i = 0; i < DEFAULT_GIDS; ++i) {
            gid_of(b.slot(), i, gid, port);
            CHECK(!a.own(gid) && b.own(gid) == (port < 3));
            CHECK(a.peer_lives(gid) == (port < 3));
            CHECK(a.neighbour(gid, true, mac) == (port < 3));
            if (port < 3) CHECK(mac[4] == port - 1 && mac[5] == 1);
        }
    }
    Made to_second(RC_SEND_ONLY, 1, 64, 1);
    gid_of(b.slot(), 3, to_second.packet.destination, 2);
    const auto send = [&](uint32_t from, size_t arrives) {
        to_second.packet.port = static_cast<uint8_t>(from);
        b_sink.all.clear();
        CHECK(a.route(to_second.packet.destination)->send(to_second.packet));
        b.poll(b_sink.receive, 16);
        CHECK_EQ(b_sink.all.size(), arrives);
    };
    send(1, 1);
    a.set_up(false, 2);
    CHECK(a.up(1) && !a.up(2));
    send(1, 1);
    send(2, 0);
    a.set_up(true, 2);
    b.set_up(false, 1);
    send(2, 1);
    b.set_up(false, 2);
    send(2, 0);
    b.set_up(true, 1);
    b.set_up(true, 2);
    a.set_mtu(352, 2);
    Made longer(RC_SEND_ONLY, 1, 1000, 1);
    for (const uint32_t from : {1, 2}) {
        longer.packet.port = static_cast<uint8_t>(from);
        CHECK(a.route(longer.packet.destination)->send(longer.packet));
    }
    CHECK_EQ(a.counter("packets_over_link_mtu"), 1);
    b.poll(b_sink.receive, 16);

    std::string problem;
    CHECK(a.set_faults("link=down:2", &problem) && a.faults().down() == 2);
    send(1, 1);
    send(2, 0);
    CHECK(a.set_faults("drop any port=1", &problem));
    send(1, 0);
    send(2, 1);
    CHECK(a.set_faults("", &problem) && b.set_faults("link=down:2", &problem));
    send(1, 0);
    CHECK(b.set_faults("link=down:1", &problem));
    send(1, 1);
    CHECK(!a.set_faults("link=down:5", &problem) && !a.set_faults("drop any port=0", &problem));
    Made to_self(RC_SEND_ONLY, 1, 8, 0);  // from port 1 to port 2 of the same NIC: both links count
    gid_of(a.slot(), 3, to_self.packet.destination, 2);
    a_sink.all.clear();
    a.set_up(false, 2);
    CHECK(a.route(to_self.packet.destination)->send(to_self.packet));
    CHECK(a_sink.all.empty());
    a.set_up(true, 2);
    CHECK(a.route(to_self.packet.destination)->send(to_self.packet));
    CHECK_EQ(a_sink.all.size(), 1);
}

void not_a_number_of_ports() {
    for (const char* value : {"0", "5", "two", "11"}) {
        setenv("GDA_SIM_PORTS", value, 1);
        Sink sink;
        Port port(the_clock, sink.receive);
        CHECK_EQ(port.ports(), 1);
        CHECK(port.problems().size() == 1 && port.problems()[0].find(value) != std::string::npos);
    }
    unsetenv("GDA_SIM_PORTS");
}

void another_nic_of_the_host() {
    Sink a_sink, b_sink;
    Port a(the_clock, a_sink.receive), b(the_clock, b_sink.receive);
    CHECK_EQ(a.slot(), 0);
    CHECK_EQ(b.slot(), 1);
    Made request(RC_RDMA_WRITE_ONLY, 9, 10000, 1, 4096);
    request.write_to(0x1000, 7, 10000);
    Link* link = a.route(request.packet.destination);
    CHECK(link == a.route(request.packet.destination));
    CHECK(!a.in_place(link));
    CHECK(link->run_bytes() >= 10000);
    CHECK(!a.behind(request.packet.destination));
    CHECK(link->send(request.packet));
    CHECK(a.behind(request.packet.destination));
    CHECK(a.peer_lives(request.packet.destination));
    CHECK_EQ(b.poll(b_sink.receive, 16), 1);
    CHECK(!a.behind(request.packet.destination));
    CHECK_EQ(b_sink.all.size(), 1);
    CHECK_EQ(b_sink.all[0].run_mtu, 4096);
    CHECK(b_sink.all[0].payload == request.data);
    CHECK(a_sink.all.empty());
    Gid nobody;
    gid_of(7, 3, nobody);  // a slot without a NIC: the packet is lost
    CHECK(!a.peer_lives(nobody));
    CHECK(a.route(nobody)->send(request.packet));
}

void a_stranger_gets_nothing() {
    Sink sink;
    Port port(the_clock, sink.receive);
    Gid stranger = {0x20, 0x01, 0x0d, 0xb8};
    Made request(RC_RDMA_WRITE_ONLY, 9, 64);
    std::memcpy(request.packet.destination, stranger, sizeof stranger);
    Link* link = port.route(stranger);
    CHECK(link != nullptr);
    CHECK(link->send(request.packet));
    CHECK_EQ(port.counter("packets_to_nowhere"), 1);
    CHECK_EQ(port.poll(sink.receive, 16), 0);
    CHECK(sink.all.empty());
    CHECK(!port.peer_lives(stranger));
    CHECK_EQ(port.counter("no such counter"), 0);
}

// 1500 of IPv4: 20 + 8 + BTH 12 + RETH 16 + payload + ICRC 4.
void longer_than_the_netdev_takes() {
    struct {
        int gid_index;
        size_t fits;
    } cases[] = {{3, 1440}, {1, 1420}, {0, 1428}};  // IPv4; IPv6; GRH without UDP
    for (const auto& c : cases) {
        Sink sink;
        Port port(the_clock, sink.receive);
        port.set_mtu(1500);
        for (size_t bytes : {c.fits, c.fits + 1}) {
            Made request(RC_RDMA_WRITE_ONLY, 1, bytes, 0, 0, c.gid_index);
            request.write_to(0x1000, 7, static_cast<uint32_t>(bytes));
            CHECK(port.route(request.packet.destination)->send(request.packet));
        }
        CHECK_EQ(sink.all.size(), 1);
        CHECK_EQ(port.counter("packets_over_link_mtu"), 1);
    }
}

void of_a_run_only_what_is_too_long_is_lost() {
    Sink sink;
    Port port(the_clock, sink.receive);
    port.set_mtu(1500);
    Made run(RC_RDMA_WRITE_ONLY, 0xfffffe, 8193, 0, 4096);
    run.write_to(0x1000, 7, 8193);
    CHECK(port.route(run.packet.destination)->send(run.packet));
    CHECK_EQ(port.counter("packets_over_link_mtu"), 2);
    CHECK_EQ(sink.all.size(), 1);
    CHECK_EQ(sink.all[0].opcode, RC_RDMA_WRITE_LAST);
    CHECK_EQ(sink.all[0].psn, 0);
    CHECK_EQ(sink.all[0].payload.size(), 1);
    CHECK_EQ(sink.all[0].payload[0], run.data[8192]);
    Made small(RC_RDMA_WRITE_ONLY, 3, 8192, 0, 1024);
    small.write_to(0x1000, 7, 8192);
    CHECK(port.route(small.packet.destination)->send(small.packet));
    CHECK_EQ(sink.all.size(), 2);  // every packet of it fits: it goes as it is
    CHECK_EQ(sink.all[1].run_mtu, 1024);
}

std::vector<Arrived> taken_apart(const Packet& run) {
    Sink sink;
    CHECK(for_each_packet(run, [&](const Packet& p) { return sink.receive(p), true; }));
    return sink.all;
}

void a_write_taken_apart() {
    Made run(RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 0xffffff, 2050, 0, 1024);
    GDA_SET(bth, run.packet.header, ack_req, 1);
    GDA_SET(bth, run.packet.header, se, 1);
    run.write_to(0x1122334455667788, 0xabc, 2050).immediate(0x01020304);
    const std::vector<Arrived> parts = taken_apart(run.packet);
    CHECK_EQ(parts.size(), 3);
    const uint32_t opcodes[] = {RC_RDMA_WRITE_FIRST, RC_RDMA_WRITE_MIDDLE, RC_RDMA_WRITE_LAST_WITH_IMMEDIATE};
    const uint32_t psns[] = {0xffffff, 0, 1}, headers[] = {28, 12, 16}, bytes[] = {1024, 1024, 2};
    std::vector<uint8_t> joined;
    for (size_t i = 0; i < parts.size() && i < 3; ++i) {
        CHECK_EQ(parts[i].opcode, opcodes[i]);
        CHECK_EQ(parts[i].psn, psns[i]);
        CHECK_EQ(parts[i].header_bytes, headers[i]);
        CHECK_EQ(parts[i].payload.size(), bytes[i]);
        CHECK_EQ(parts[i].run_mtu, 0);
        CHECK_EQ(parts[i].ack_req, i == 2);
        CHECK_EQ(parts[i].se, i == 2);
        CHECK_EQ(parts[i].pad, i == 2 ? 2 : 0);
        joined.insert(joined.end(), parts[i].payload.begin(), parts[i].payload.end());
    }
    CHECK(joined == run.data);
    CHECK_EQ(GDA_GET(reth, parts[0].header.data() + 12, va), 0x1122334455667788);
    CHECK_EQ(GDA_GET(immdt, parts[2].header.data() + 12, imm), 0x01020304);
}

void other_messages_taken_apart() {
    Made response(RC_RDMA_READ_RESPONSE_ONLY, 7, 3000, 0, 1024);
    response.answer(AETH_ACK, 3);
    std::vector<Arrived> parts = taken_apart(response.packet);
    CHECK_EQ(parts.size(), 3);
    CHECK_EQ(parts[0].opcode, RC_RDMA_READ_RESPONSE_FIRST);
    CHECK_EQ(parts[1].opcode, RC_RDMA_READ_RESPONSE_MIDDLE);
    CHECK_EQ(parts[2].opcode, RC_RDMA_READ_RESPONSE_LAST);
    CHECK_EQ(parts[0].header_bytes, 16);
    CHECK_EQ(parts[1].header_bytes, 12);
    CHECK_EQ(parts[2].header_bytes, 16);
    CHECK_EQ(GDA_GET(aeth, parts[2].header.data() + 12, msn), 3);

    Made part(RC_SEND_FIRST, 7, 2048, 0, 1024);  // the message goes on after it
    GDA_SET(bth_parts, part.packet.header, transport, BTH_UC);
    parts = taken_apart(part.packet);
    CHECK_EQ(parts.size(), 2);
    CHECK_EQ(parts[0].opcode, UC_SEND_FIRST);
    CHECK_EQ(parts[1].opcode, UC_SEND_MIDDLE);

    Made end(RC_SEND_LAST, 7, 1025, 0, 1024);
    parts = taken_apart(end.packet);
    CHECK_EQ(parts.size(), 2);
    CHECK_EQ(parts[0].opcode, RC_SEND_MIDDLE);
    CHECK_EQ(parts[1].opcode, RC_SEND_LAST);

    Made empty(RC_SEND_ONLY_WITH_IMMEDIATE, 7, 0, 0, 1024);
    empty.immediate(5);
    parts = taken_apart(empty.packet);
    CHECK_EQ(parts.size(), 1);
    CHECK_EQ(parts[0].opcode, RC_SEND_ONLY_WITH_IMMEDIATE);
    CHECK_EQ(parts[0].header_bytes, 16);

    Made alone(RC_FETCH_ADD, 7, 0, 0, 1024);  // no message of several packets
    alone.add(GDA_BYTES_OF(atomiceth));
    parts = taken_apart(alone.packet);
    CHECK_EQ(parts.size(), 1);
    CHECK_EQ(parts[0].header_bytes, 40);
}

void without_a_directory() {
    setenv("GDA_SIM_DIRECTORY", "/proc/none", 1);
    Sink sink;
    Port port(the_clock, sink.receive);
    CHECK_EQ(port.problems().size(), 1);
    CHECK(port.problems()[0].find("/proc/none") != std::string::npos);
    Gid gid, other;
    gid_of(0, 3, gid);
    gid_of(1, 3, other);
    CHECK(port.in_place(port.route(gid)));
    Made request(RC_SEND_ONLY, 9, 64, 1);
    CHECK(port.route(other)->send(request.packet));
    CHECK_EQ(port.counter("packets_to_nowhere"), 1);
    CHECK_EQ(port.poll(sink.receive, 16), 0);
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"own_gid_leads_back", own_gid_leads_back},
            {"changed_gids_are_the_own_ones", changed_gids_are_the_own_ones},
            {"several_ports", several_ports},
            {"not_a_number_of_ports", not_a_number_of_ports},
            {"another_nic_of_the_host", another_nic_of_the_host},
            {"a_stranger_gets_nothing", a_stranger_gets_nothing},
            {"longer_than_the_netdev_takes", longer_than_the_netdev_takes},
            {"of_a_run_only_what_is_too_long_is_lost", of_a_run_only_what_is_too_long_is_lost},
            {"a_write_taken_apart", a_write_taken_apart},
            {"other_messages_taken_apart", other_messages_taken_apart},
            {"without_a_directory", without_a_directory},
        },
        argc, argv);
}
