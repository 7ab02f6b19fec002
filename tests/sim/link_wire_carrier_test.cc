// SPDX-License-Identifier: Apache-2.0
// The carriers that leave the host: two ports that know each other by configured addresses only, over UDP sockets and
// as two Ethernet stations; and a stranger that sends nonsense. `talk OWN PEER` is one of two programs that exchange
// messages (test_link_wire_carrier.py puts them into network namespaces).

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "sim/link/guard.h"
#include "sim/link/port.h"
#include "sim/link/wire.h"
#include "tests/sim/link_rig.h"

using namespace rig;
using namespace sim;

namespace {

const Clock the_clock;

// Addresses of this host that no other run of this test has: every process may take some of 127.0.0.0/8.
std::string local_address(int which) {
    const int pid = getpid();
    return "127." + std::to_string(80 + which) + "." + std::to_string(pid / 250 % 250) + "." +
           std::to_string(1 + pid % 250);
}

struct Side {
    Side(const std::string& addresses, const std::string& station = "") {
        setenv("GDA_SIM_ADDRESS", addresses.c_str(), 1);
        setenv("GDA_SIM_ETHERNET", station.c_str(), 1);
        port = std::make_unique<Port>(the_clock, sink.receive);
        unsetenv("GDA_SIM_ADDRESS");
        unsetenv("GDA_SIM_ETHERNET");
        for (const std::string& problem : port->problems()) std::printf("  %s\n", problem.c_str());
    }
    const Address& address(size_t i = 0) const { return port->addresses()[i]; }
    // From one of its addresses to one of the other's.
    bool send(const Side& to, Made& made, size_t i = 0) {
        std::memcpy(made.packet.source, address(i).data(), 16);
        std::memcpy(made.packet.destination, to.address(i).data(), 16);
        made.packet.version1 = false;
        return port->route(made.packet.destination)->send(made.packet);
    }
    Sink sink;
    std::unique_ptr<Port> port;
};

// Polls both until `side` has got so many packets, for at most five seconds.
bool arrived(Side& side, Side& other, size_t count) {
    const uint64_t end = the_clock.now_ns() + seconds(5);
    while (side.sink.all.size() < count && the_clock.now_ns() < end) {
        side.port->poll(side.sink.receive, 64);
        other.port->poll(other.sink.receive, 64);
    }
    return side.sink.all.size() == count;
}

void back_and_forth(Side& a, Side& b, size_t which) {
    a.sink.all.clear(), b.sink.all.clear();
    for (uint32_t psn = 0; psn < 40; ++psn) {
        Made made(RC_SEND_ONLY, psn, 1000 + psn);
        CHECK(a.send(b, made, which));
    }
    CHECK(arrived(b, a, 40));
    for (uint32_t psn = 0; psn < b.sink.all.size(); ++psn) {
        const Made made(RC_SEND_ONLY, psn, 1000 + psn);
        CHECK_EQ(b.sink.all[psn].psn, psn);
        CHECK(b.sink.all[psn].payload == made.data);
    }
    Made answer(RC_ACKNOWLEDGE, 39, 0);
    answer.answer(AETH_ACK, 40);
    CHECK(b.send(a, answer, which));
    CHECK(arrived(a, b, 1));
    CHECK_EQ(a.sink.all[0].opcode, RC_ACKNOWLEDGE);
}

void by_udp() {
    Side a(local_address(0)), b(local_address(1));
    CHECK_EQ(a.port->addresses().size(), 1);
    CHECK_EQ(a.port->descriptors().size(), 1);
    CHECK(a.port->own(a.address().data()));
    Gid elsewhere;
    gid_of(99, 1, elsewhere);
    Link* link = a.port->route(b.address().data());
    CHECK_EQ(link->run_bytes(), 0);
    CHECK(!a.port->in_place(link));
    back_and_forth(a, b, 0);
    CHECK_EQ(a.port->counter("wire_sent"), 40);
    CHECK_EQ(b.port->counter("wire_received"), 40);
    CHECK_EQ(b.port->counter("wire_bad_icrc") + b.port->counter("wire_refused"), 0);

    // What the thread that sleeps sees.
    pollfd waits = {b.port->descriptors()[0], POLLIN, 0};
    CHECK_EQ(poll(&waits, 1, 0), 0);
    Made made(RC_SEND_ONLY, 1, 10);
    CHECK(a.send(b, made));
    CHECK_EQ(poll(&waits, 1, 5000), 1);
}

void udp_takes_no_foreign_source() {
    Side a(local_address(0)), b(local_address(1));
    Made made(RC_SEND_ONLY, 1, 10);  // from an address of the directory: the ICRC would be wrong there
    std::memcpy(made.packet.destination, b.address().data(), 16);
    CHECK(a.port->route(made.packet.destination)->send(made.packet));
    CHECK_EQ(a.port->counter("packets_to_nowhere"), 1);
    CHECK_EQ(a.port->counter("wire_sent"), 0);
}

int udp_socket(uint16_t* port) {
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof own;
    CHECK_EQ(bind(fd, reinterpret_cast<sockaddr*>(&own), bytes), 0);
    getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes);
    *port = ntohs(own.sin_port);
    return fd;
}

void throw_at(int fd, const Address& address, uint16_t port, const std::vector<uint8_t>& bytes) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    std::memcpy(&to.sin_addr, address.data() + 12, 4);
    CHECK(sendto(fd, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to) >= 0);
}

void udp_refuses_nonsense() {
    Side a(local_address(0));
    uint16_t port;
    const int fd = udp_socket(&port);
    throw_at(fd, a.address(), 4791, {});
    throw_at(fd, a.address(), 4791, {1, 2, 3});
    throw_at(fd, a.address(), 4791, std::vector<uint8_t>(60));  // a header of zeroes, a wrong ICRC
    throw_at(fd, a.address(), 4791, std::vector<uint8_t>(30000, 0xff));
    const uint64_t end = the_clock.now_ns() + seconds(5);
    const auto refused = [&a] { return a.port->counter("wire_refused") + a.port->counter("wire_bad_icrc"); };
    while (refused() < 4 && the_clock.now_ns() < end) a.port->poll(a.sink.receive, 10);
    CHECK_EQ(refused(), 4);
    CHECK(a.port->counter("wire_bad_icrc") >= 1);
    CHECK(a.sink.all.empty());
    close(fd);
}

void what_cannot_be_opened() {
    const auto problem_of = [](const char* address, const char* station) -> std::string {
        setenv("GDA_SIM_ADDRESS", address, 1);
        setenv("GDA_SIM_ETHERNET", station, 1);
        Sink sink;
        Port port(the_clock, sink.receive);
        CHECK(port.addresses().empty());
        CHECK(port.descriptors().empty());
        CHECK_EQ(port.problems().size(), 1);
        unsetenv("GDA_SIM_ADDRESS");
        unsetenv("GDA_SIM_ETHERNET");
        return port.problems().empty() ? "" : port.problems()[0];
    };
    Side taken(local_address(0));
    CHECK(problem_of(local_address(0).c_str(), "").find("another NIC has it") != std::string::npos);
    CHECK(problem_of("192.0.2.1", "").find("no such address") != std::string::npos);
    CHECK(problem_of("10.0.0", "").find("'10.0.0' is not an IPv4 or IPv6 address") != std::string::npos);
    CHECK(problem_of("", "7001:7002").find("GDA_SIM_ADDRESS") != std::string::npos);
    CHECK(problem_of("10.0.0.1", "7001").find("LOCALPORT:REMOTEPORT") != std::string::npos);
    CHECK(problem_of("10.0.0.1", "0:70000").find("LOCALPORT:REMOTEPORT") != std::string::npos);
}

// Two ports that nobody had a moment ago.
std::pair<uint16_t, uint16_t> free_ports() {
    uint16_t a, b;
    const int first = udp_socket(&a), second = udp_socket(&b);
    close(first), close(second);
    return {a, b};
}

struct Stations {
    Stations()
        : ports(free_ports()),
          a("10.77.0.1,fd00:77::1", std::to_string(ports.first) + ":" + std::to_string(ports.second)),
          b("10.77.0.2,fd00:77::2", std::to_string(ports.second) + ":" + std::to_string(ports.first)) {}
    std::pair<uint16_t, uint16_t> ports;
    Side a, b;
};

// Each learns the other's MAC by asking: ARP for IPv4, neighbour discovery for IPv6.
void by_ethernet() {
    Stations s;
    CHECK_EQ(s.a.port->descriptors().size(), 1);
    back_and_forth(s.a, s.b, 0);
    back_and_forth(s.a, s.b, 1);
    CHECK_EQ(s.a.port->counter("wire_bad_icrc") + s.a.port->counter("wire_refused"), 0);
}

void a_station_that_nobody_answers() {
    Side a("10.77.0.1", std::to_string(free_ports().first) + ":9");
    Address nobody = a.address();
    nobody[15] = 77;
    Made made(RC_SEND_ONLY, 1, 10);
    std::memcpy(made.packet.source, a.address().data(), 16);
    std::memcpy(made.packet.destination, nobody.data(), 16);
    for (int i = 0; i < 200; ++i) CHECK(a.port->route(nobody.data())->send(made.packet));
    CHECK(a.port->counter("wire_unsent") >= 200 - 64);
    a.port->poll(a.sink.receive, 10);
    CHECK(a.sink.all.empty());
}

void ethernet_refuses_nonsense() {
    uint16_t remote;
    const int fd = udp_socket(&remote);
    const uint16_t local = free_ports().first;
    Side a("10.77.0.1,fd00:77::1", std::to_string(local) + ":" + std::to_string(remote));
    Address localhost = {};
    const uint8_t loopback[4] = {127, 0, 0, 1};
    std::memcpy(localhost.data() + 12, loopback, 4);
    uint8_t mac[6];
    mac_of(a.port->slot(), mac);
    const uint8_t from[6] = {0x52, 0x54, 0, 0, 0, 9};
    Made made(RC_SEND_ONLY, 1, 40);
    std::memcpy(made.packet.destination, a.address().data(), 16);
    std::vector<uint8_t> frame(frame_bytes(made.packet));
    CHECK(encode_frame(made.packet, mac, from, frame.data()));
    throw_at(fd, localhost, local, frame);
    const uint64_t end = the_clock.now_ns() + seconds(5);
    while (a.sink.all.empty() && the_clock.now_ns() < end) a.port->poll(a.sink.receive, 10);
    CHECK_EQ(a.sink.all.size(), 1);

    uint64_t state = 7;
    const uint8_t types[][2] = {{0x08, 0x00}, {0x08, 0x06}, {0x86, 0xdd}, {0x89, 0x15}, {0x12, 0x34}};
    for (int i = 0; i < 3000; ++i) {
        std::vector<uint8_t> noise = frame;
        state = state * 6364136223846793005u + 1442695040888963407u;
        noise.resize((state >> 33) % (frame.size() + 20), 0x3a);
        if (noise.size() >= 14) std::memcpy(noise.data() + 12, types[i % 5], 2);
        for (int n = 0; n < 3 && noise.size() > 14; ++n) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            noise[14 + (state >> 33) % (noise.size() - 14)] = static_cast<uint8_t>(state >> 20);
        }
        throw_at(fd, localhost, local, noise);
        a.port->poll(a.sink.receive, 10);
    }
    a.port->poll(a.sink.receive, 1000);
    CHECK(a.port->counter("wire_refused") + a.port->counter("wire_bad_icrc") > 0);
    close(fd);
}

// One of two programs: sends a hundred packets, takes the other's hundred, and says so.
int talk(const char* own, const char* peer) {
    Side side(own);
    std::vector<Address> to;
    std::string problem;
    if (side.port->addresses().empty() || !parse_addresses(peer, &to, &problem)) return 1;
    const uint64_t end = the_clock.now_ns() + seconds(20);
    uint32_t sent = 0, more = 150;
    while (the_clock.now_ns() < end && more) {
        // Again and again: the other may not be there yet. Its packets show that it is, and then it gets some more.
        if (side.sink.all.size() >= 100) --more;
        Made made(RC_SEND_ONLY, sent % 100, 1000 + sent % 100);
        std::memcpy(made.packet.source, side.address().data(), 16);
        std::memcpy(made.packet.destination, to[0].data(), 16);
        made.packet.version1 = false;
        sent += side.port->route(to[0].data())->send(made.packet);
        side.port->poll(side.sink.receive, 64);
        usleep(1000);
    }
    for (const Arrived& a : side.sink.all) {
        const Made made(RC_SEND_ONLY, a.psn, 1000 + a.psn);
        if (a.payload != made.data) return 2;
    }
    std::printf("%zu\n", side.sink.all.size());
    return side.sink.all.size() >= 100 ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
    install_guard();
    if (argc == 4 && std::string(argv[1]) == "talk") return talk(argv[2], argv[3]);
    return run(
        {
            {"by_udp", by_udp},
            {"udp_takes_no_foreign_source", udp_takes_no_foreign_source},
            {"udp_refuses_nonsense", udp_refuses_nonsense},
            {"what_cannot_be_opened", what_cannot_be_opened},
            {"by_ethernet", by_ethernet},
            {"a_station_that_nobody_answers", a_station_that_nobody_answers},
            {"ethernet_refuses_nonsense", ethernet_refuses_nonsense},
        },
        argc, argv);
}
