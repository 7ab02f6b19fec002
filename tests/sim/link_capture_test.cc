// SPDX-License-Identifier: Apache-2.0
// The capture: blocks of pcapng, read here by their lengths and types. What Wireshark makes of one is in
// test_link_witness.py; `write FILE` makes a file for it.

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "sim/link/guard.h"
#include "sim/link/port.h"
#include "sim/link/wire.h"
#include "tests/sim/link_rig.h"

using namespace rig;
using namespace sim;

namespace {

const Clock the_clock;

std::string file_name(const char* name) {
    const char* directory = std::getenv("GDA_TEST_FILES");
    return std::string(directory ? directory : "/tmp") + "/" + name;
}

struct Block {
    uint32_t type, interface;
    std::string bytes;
    bool says(const char* words) const { return bytes.find(words) != std::string::npos; }
};

std::vector<Block> blocks_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::vector<Block> blocks;
    for (size_t at = 0; at + 12 <= all.size();) {
        uint32_t head[3], length;
        std::memcpy(head, all.data() + at, sizeof head);
        CHECK(head[1] >= 12 && head[1] % 4 == 0 && at + head[1] <= all.size());
        if (at + head[1] > all.size() || head[1] < 12) break;
        std::memcpy(&length, all.data() + at + head[1] - 4, 4);
        CHECK_EQ(length, head[1]);
        blocks.push_back({head[0], head[2], all.substr(at, head[1])});
        at += head[1];
    }
    return blocks;
}
enum : uint32_t { SECTION = 0x0a0d0d0a, INTERFACE = 1, PACKET = 6 };

struct Captured {
    explicit Captured(const char* name) : path(file_name(name)), port(the_clock, sink.receive) {
        unlink(path.c_str());
        std::string problem;
        CHECK(port.set_capture(path, &problem));
        CHECK(problem.empty());
    }
    ~Captured() { unlink(path.c_str()); }
    bool send(Made& made) { return port.route(made.packet.destination)->send(made.packet); }
    std::string path;
    Sink sink;
    Port port;
};

void what_is_sent_is_written_at_once() {
    Captured c("sent.pcapng");
    std::string problem;
    CHECK(c.port.set_faults("drop write nth=2; delay write nth=3 by=1us", &problem));
    for (uint32_t psn = 0; psn < 3; ++psn) {
        Made made(RC_RDMA_WRITE_ONLY, psn, 100);
        made.write_to(0x1000, 7, 100);
        made.packet.note_index = 5;
        made.packet.note_again = psn == 1;
        CHECK(c.send(made));
    }
    const std::vector<Block> blocks = blocks_of(c.path);
    CHECK_EQ(blocks.size(), 5);
    CHECK_EQ(blocks[0].type, SECTION);
    CHECK_EQ(blocks[1].type, INTERFACE);
    CHECK(blocks[1].says("gda-sim-0"));
    for (size_t i = 2; i < 5; ++i) {
        CHECK_EQ(blocks[i].type, PACKET);
        CHECK_EQ(blocks[i].interface, 0);
        CHECK(blocks[i].says("QP 0x000077, WQE 5"));
    }
    CHECK(!blocks[2].says("fault") && !blocks[2].says("sent again"));
    CHECK(blocks[3].says("WQE 5, sent again; dropped by fault: drop write nth=2"));
    CHECK(blocks[4].says("fault: delay write nth=3 by=1us") && !blocks[4].says("dropped"));
    CHECK_EQ(c.port.capture().packets(), 3);
    CHECK_EQ(c.sink.all.size(), 1);
    CHECK(c.port.set_capture("", &problem));
    CHECK(c.port.set_faults("", &problem));
    Made made(RC_SEND_ONLY, 9, 1);
    CHECK(c.send(made));
    CHECK_EQ(blocks_of(c.path).size(), 5);
}

void what_arrives_is_written_packet_by_packet() {
    Captured c("received.pcapng");
    Sink other_sink;
    Port other(the_clock, other_sink.receive);
    Made run(RC_SEND_ONLY, 3, 2500, c.port.slot(), 1024);
    CHECK(other.route(run.packet.destination)->send(run.packet));  // it has no tap: sends the run
    CHECK_EQ(c.port.poll(c.sink.receive, 10), 1);
    CHECK_EQ(c.sink.all.size(), 1);
    CHECK_EQ(c.sink.all[0].run_mtu, 1024);
    const std::vector<Block> blocks = blocks_of(c.path);
    CHECK_EQ(blocks.size(), 5);
    for (size_t i = 2; i < blocks.size(); ++i) CHECK(blocks[i].says("received"));
}

void what_is_too_long_is_written_as_lost() {
    Captured c("long.pcapng");
    c.port.set_mtu(1500);
    Made made(RC_SEND_ONLY, 3, 2500);
    CHECK(c.send(made));
    CHECK(c.sink.all.empty());
    const std::vector<Block> blocks = blocks_of(c.path);
    CHECK_EQ(blocks.size(), 3);
    CHECK(blocks[2].says("lost: longer than the netdev's MTU"));
}

void several_nics_share_a_file() {
    Captured a("shared.pcapng");
    Sink sink;
    Port b(the_clock, sink.receive);
    std::string problem;
    CHECK(b.set_capture(a.path, &problem));
    Made to_a(RC_SEND_ONLY, 3, 10, 0), to_b(RC_SEND_ONLY, 4, 10, 1);
    CHECK(a.send(to_b));
    CHECK(b.route(to_a.packet.destination)->send(to_a.packet));
    b.poll(sink.receive, 10);
    a.port.poll(a.sink.receive, 10);
    std::vector<uint32_t> types, interfaces;
    for (const Block& block : blocks_of(a.path)) {
        types.push_back(block.type);
        if (block.type == PACKET) interfaces.push_back(block.interface);
    }
    CHECK(types == (std::vector<uint32_t>{SECTION, INTERFACE, INTERFACE, PACKET, PACKET, PACKET, PACKET}));
    CHECK(interfaces == (std::vector<uint32_t>{0, 1, 1, 0}));
}

void a_killed_program_leaves_a_whole_file() {
    const std::string path = file_name("killed.pcapng");
    unlink(path.c_str());
    const pid_t child = fork();
    if (child == 0) {
        Sink sink;
        Port port(the_clock, sink.receive);
        std::string problem;
        if (!port.set_capture(path, &problem)) _exit(1);
        for (uint32_t psn = 0; psn < 10; ++psn) {
            Made made(RC_SEND_ONLY, psn, 1000, port.slot());
            port.route(made.packet.destination)->send(made.packet);
        }
        raise(SIGKILL);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(blocks_of(path).size(), 12);
    unlink(path.c_str());
}

void what_cannot_be_written() {
    Sink sink;
    Port port(the_clock, sink.receive);
    std::string problem;
    CHECK(!port.set_capture("/proc/none/x.pcapng", &problem));
    CHECK(problem.find("/proc/none/x.pcapng") != std::string::npos);
    CHECK(!port.capture().on());
    CHECK(!port.set_capture("/dev/full", &problem));
    CHECK(problem.find("/dev/full") != std::string::npos);
    const std::string path = file_name("letter.txt");
    std::ofstream(path) << "Dear reader, this is no capture.";
    CHECK(!port.set_capture(path, &problem));
    CHECK(problem.find("something else") != std::string::npos);
    CHECK_EQ(std::ifstream(path).seekg(0, std::ios::end).tellg(), 32);
    unlink(path.c_str());
}

void memory_that_is_gone() {
    Captured c("gone.pcapng");
    void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Made made(RC_SEND_ONLY, 1, 100);
    made.piece.iov_base = page;
    CHECK(c.send(made));
    CHECK(made.packet.unreadable);
    CHECK(c.sink.all.empty());
    CHECK_EQ(blocks_of(c.path).size(), 2);
    munmap(page, 4096);
}

void from_the_environment() {
    const std::string path = file_name("ordered.pcapng");
    unlink(path.c_str());
    setenv("GDA_SIM_CAPTURE", path.c_str(), 1);
    Sink sink;
    Port port(the_clock, sink.receive);
    CHECK(port.capture().on());
    CHECK_EQ(blocks_of(path).size(), 2);
    setenv("GDA_SIM_CAPTURE", "/proc/none/x", 1);
    Port wrong(the_clock, sink.receive);
    CHECK(!wrong.capture().on());
    CHECK_EQ(wrong.problems().size(), 1);
    unsetenv("GDA_SIM_CAPTURE");
    unlink(path.c_str());
}

// A write of three packets, its acknowledgement, an atomic and its result, a datagram: some lost.
int write_example(const char* path) {
    Clock::make_virtual();
    Sink sink;
    Port port(the_clock, sink.receive);
    std::string problem;
    if (!port.set_faults("drop RC_RDMA_WRITE_MIDDLE first=1", &problem) || !port.set_capture(path, &problem)) return 1;
    const auto send = [&port](Made& made) {
        Clock::jump(the_clock.now_ns() + 1000);
        port.route(made.packet.destination)->send(made.packet);
    };
    Made run(RC_RDMA_WRITE_ONLY, 0, 2500, 0, 1024), ack(RC_ACKNOWLEDGE, 2, 0), add(RC_FETCH_ADD, 3, 0);
    Made result(RC_ATOMIC_ACKNOWLEDGE, 3, 0), datagram(UD_SEND_ONLY, 9, 33, 0, 0, 1);
    run.packet.note_index = 0;
    send(run.write_to(0x1000, 7, 2500));
    run.packet.note_again = true;
    send(run);
    send(ack.answer(AETH_ACK, 1));
    add.add(GDA_BYTES_OF(atomiceth));
    send(add);
    result.answer(AETH_ACK, 2).add(GDA_BYTES_OF(atomicacketh));
    send(result);
    datagram.add(GDA_BYTES_OF(deth));
    send(datagram);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    install_guard();
    if (argc == 3 && std::string(argv[1]) == "write") return write_example(argv[2]);
    return run(
        {
            {"what_is_sent_is_written_at_once", what_is_sent_is_written_at_once},
            {"what_arrives_is_written_packet_by_packet", what_arrives_is_written_packet_by_packet},
            {"what_is_too_long_is_written_as_lost", what_is_too_long_is_written_as_lost},
            {"several_nics_share_a_file", several_nics_share_a_file},
            {"a_killed_program_leaves_a_whole_file", a_killed_program_leaves_a_whole_file},
            {"what_cannot_be_written", what_cannot_be_written},
            {"memory_that_is_gone", memory_that_is_gone},
            {"from_the_environment", from_the_environment},
        },
        argc, argv);
}
