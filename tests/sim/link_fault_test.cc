// SPDX-License-Identifier: Apache-2.0
// Faults: the language, what each does to packets of a port that sends to itself, and that the same seed does the same.

#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>

#include "sim/link/guard.h"
#include "sim/link/port.h"
#include "tests/sim/link_rig.h"

using namespace rig;
using namespace sim;

namespace {

// A port under virtual time whose packets come back to it.
struct Line {
    explicit Line(const std::string& faults) : port(clock, sink.receive) {
        std::string problem;
        CHECK(port.set_faults(faults, &problem));
        if (!problem.empty()) std::printf("  %s\n", problem.c_str());
    }
    bool send(Made& made) { return port.route(made.packet.destination)->send(made.packet); }
    // `count` writes of consecutive PSNs from `psn` on.
    void writes(uint32_t count, uint32_t psn = 0) {
        for (uint32_t i = 0; i < count; ++i) {
            Made made(RC_RDMA_WRITE_ONLY, psn + i, 64, port.slot());
            made.write_to(0x1000, 7, 64);
            CHECK(send(made));
        }
    }
    int poll() { return port.poll(sink.receive, 1000); }
    // To the end of all that is on its way.
    void drain() {
        do {
            poll();
            if (port.due_ns()) Clock::jump(port.due_ns());
        } while (port.due_ns());
    }
    std::vector<uint32_t> psns() const {
        std::vector<uint32_t> all;
        for (const Arrived& a : sink.all) all.push_back(a.psn);
        return all;
    }
    Clock clock;
    Sink sink;
    Port port;
};

typedef std::vector<uint32_t> Psns;

bool planned(const std::string& text, FaultPlan* plan) {
    std::string problem;
    const bool good = parse_faults(text, plan, &problem);
    if (!good) std::printf("  %s\n", problem.c_str());
    return good;
}

void settings_are_understood() {
    FaultPlan p;
    CHECK(
        planned("drop=5%,duplicate=0.25, reorder=2%:3 corrupt=100%;delay=10us,jitter=1.5ms,rate=100Gb,seed=0x7f", &p));
    CHECK_EQ(p.drop, FaultPlan::CERTAIN / 20);
    CHECK_EQ(p.duplicate, FaultPlan::CERTAIN / 4);
    CHECK_EQ(p.reorder, FaultPlan::CERTAIN / 50);
    CHECK_EQ(p.behind, 3);
    CHECK_EQ(p.corrupt, uint64_t{FaultPlan::CERTAIN});
    CHECK_EQ(p.delay_ns, 10000);
    CHECK_EQ(p.jitter_ns, 1500000);
    CHECK_EQ(p.rate, 12500000000u);
    CHECK_EQ(p.seed, 0x7f);
    CHECK(!p.down);
    CHECK(planned("link=down", &p));
    CHECK(p.down);
    CHECK(planned("rate=2.5MB", &p));
    CHECK_EQ(p.rate, 2500000);
    CHECK(planned("", &p));
    CHECK(planned(" ; ;\n", &p));
    CHECK_EQ(p.seed, 1);
    CHECK(p.rules.empty());
}

void rules_are_understood() {
    FaultPlan p;
    CHECK(
        planned("seed=3; drop answer psn=7 first=1; delay write nth=2-4 by=5us\ncorrupt RC_SEND_ONLY wqe=3- from=0x12 "
                "qpn=1;duplicate",
                &p));
    CHECK_EQ(p.rules.size(), 4);
    CHECK(p.rules[0].text == "drop answer psn=7 first=1");
    CHECK(p.rules[0].about == FaultRule::Class::answer);
    CHECK_EQ(p.rules[0].psn.from, 7);
    CHECK_EQ(p.rules[0].psn.to, 7);
    CHECK_EQ(p.rules[0].nth.to, 1);
    CHECK(p.rules[1].action == FaultRule::Action::delay);
    CHECK_EQ(p.rules[1].by_ns, 5000);
    CHECK_EQ(p.rules[1].nth.from, 2);
    CHECK_EQ(p.rules[1].nth.to, 4);
    CHECK(p.rules[2].about == FaultRule::Class::opcode);
    CHECK_EQ(p.rules[2].opcode, RC_SEND_ONLY);
    CHECK(p.rules[2].wants_wqe);
    CHECK_EQ(p.rules[2].wqe.to, UINT64_MAX);
    CHECK_EQ(p.rules[2].from_qpn.from, 0x12);
    CHECK(p.rules[3].about == FaultRule::Class::any);
}

// Each says which word it does not understand, and leaves what was set before.
void mistakes_are_named() {
    const char* mistakes[][2] = {
        {"dorp=5%", "'dorp=5%'"},
        {"drop=5%,delay=10", "'delay=10'"},
        {"drop=105%", "'drop=105%'"},
        {"drop=", "'drop='"},
        {"drop=-1", "'drop=-1'"},
        {"drop=5%x", "'drop=5%x'"},
        {"drop=5% hello", "'hello'"},
        {"reorder=5%:0", "'reorder=5%:0'"},
        {"rate=fast", "'rate=fast'"},
        {"rate=0Gb", "'rate=0Gb'"},
        {"link=sideways", "'link=sideways'"},
        {"seed=0xzz", "'seed=0xzz'"},
        {"lose write", "'lose'"},
        {"drop writes", "'writes'"},
        {"drop write read", "'read'"},
        {"drop write psn=x", "'psn=x'"},
        {"drop write psn=9-3", "'psn=9-3'"},
        {"drop write nth=0", "'nth=0'"},
        {"drop write nth=3- first=2", "'first=2'"},
        {"drop write by=10us", "'by=10us'"},
        {"delay write", "'delay'"},
        {"drop write colour=red", "'colour=red'"},
        {"drop=1%;drop wriet", "'wriet' in 'drop wriet'"},
    };
    Line line("drop=100%");
    for (const auto& m : mistakes) {
        std::string problem;
        CHECK(!line.port.set_faults(m[0], &problem));
        CHECK(problem.find(m[1]) != std::string::npos);
    }
    line.writes(1);
    CHECK(line.sink.all.empty());
    CHECK_EQ(line.port.counter("fault_dropped"), 1);
}

void without_faults_runs_pass() {
    Line line("");
    Made run(RC_RDMA_WRITE_ONLY, 0, 10000, 0, 1024);
    run.write_to(0x1000, 7, 10000);
    Link* link = line.port.route(run.packet.destination);
    CHECK(link->run_bytes() >= 10000);
    CHECK(line.port.in_place(link));
    std::string problem;
    CHECK(line.port.set_faults("drop=0.001%", &problem));
    CHECK_EQ(link->run_bytes(), 0);
    CHECK(!line.port.in_place(link));
    CHECK(line.send(run));  // one that was under way is taken apart
    CHECK_EQ(line.sink.all.size(), 10);
    CHECK(line.port.set_faults("", &problem));
    CHECK(link->run_bytes() >= 10000);
}

void chance_is_about_right() {
    Line line("drop=10%,seed=3");
    line.writes(5000);
    const uint64_t dropped = line.port.counter("fault_dropped");
    CHECK(dropped > 400 && dropped < 600);
    CHECK_EQ(line.sink.all.size(), 5000 - dropped);
    Line twice("duplicate=100%");
    twice.writes(2);
    CHECK(twice.psns() == (Psns{0, 0, 1, 1}));
    CHECK_EQ(twice.port.counter("fault_duplicated"), 2);
    CHECK(twice.sink.all[1].payload == twice.sink.all[0].payload);
}

void the_same_seed_does_the_same() {
    const std::string mix = "drop=5%,duplicate=5%,reorder=5%:3,corrupt=3%,delay=3us,jitter=20us,rate=10Gb,seed=";
    const auto trace = [&mix](const std::string& seed) {
        Line line(mix + seed);
        for (int i = 0; i < 20; ++i) line.writes(20, static_cast<uint32_t>(20 * i)), line.poll();
        line.drain();
        return line.psns();
    };
    const Psns first = trace("7");
    CHECK(first.size() > 300);
    CHECK(first == trace("7"));
    CHECK(first != trace("8"));
}

// A later setting changes what happens, not to whom: every packet draws the same numbers.
void one_chance_does_not_move_another() {
    const auto dropped = [](const std::string& faults) {
        Line line(faults);
        line.writes(200);
        line.drain();
        Psns all = line.psns();
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
        return all;
    };
    CHECK(dropped("drop=10%") == dropped("drop=10%,duplicate=20%,reorder=10%:2,jitter=5us"));
}

void reordered_packets_let_others_pass() {
    Line line("reorder=0%");
    std::string problem;
    // A chance of 100 % holds every one back: none passes, and time sends them on.
    CHECK(line.port.set_faults("reorder=100%:2", &problem));
    line.writes(1, 10);
    CHECK(line.port.set_faults("drop=0.0001%", &problem));  // what is held goes on being held
    line.writes(1, 11);
    line.poll();
    CHECK(line.psns() == (Psns{11}));
    line.writes(1, 12);
    line.poll();
    CHECK(line.psns() == (Psns{11, 12, 10}));
    CHECK_EQ(line.port.due_ns(), 0);
    CHECK(line.port.set_faults("reorder=100%:2", &problem));
    line.writes(1, 20);
    line.poll();
    CHECK_EQ(line.sink.all.size(), 3);
    CHECK_EQ(line.port.due_ns(), line.clock.now_ns() + Held::PASSED_BY_NOBODY_NS);
    line.drain();
    CHECK_EQ(line.sink.all.size(), 4);
    CHECK_EQ(line.port.counter("fault_reordered"), 2);
}

void other_flows_do_not_count_as_passing() {
    Line line("reorder=100%:1");
    line.writes(1, 10);
    std::string problem;
    CHECK(line.port.set_faults("drop=0.0001%", &problem));
    Made other(RC_RDMA_WRITE_ONLY, 99, 8);
    GDA_SET(bth, other.packet.header, dest_qp, 0x999);
    other.write_to(0, 0, 8);
    CHECK(line.send(other));
    line.poll();
    CHECK(line.psns() == (Psns{99}));
    line.writes(1, 11);
    line.poll();
    CHECK(line.psns() == (Psns{99, 11, 10}));
}

void delay_takes_its_time() {
    Line line("delay=10us");
    const uint64_t start = line.clock.now_ns();
    line.writes(2);
    CHECK(line.sink.all.empty());
    CHECK_EQ(line.poll(), 0);
    CHECK_EQ(line.port.due_ns(), start + 10000);
    Clock::jump(start + 9999);
    CHECK_EQ(line.poll(), 0);
    Clock::jump(start + 10000);
    CHECK_EQ(line.poll(), 2);
    CHECK(line.psns() == (Psns{0, 1}));
    CHECK_EQ(line.port.counter("fault_delayed"), 2);
}

void a_slow_line_sends_the_sender_away() {
    Line line("rate=1GB");  // a byte a nanosecond
    const uint64_t start = line.clock.now_ns();
    Made big(RC_RDMA_WRITE_ONLY, 0, 4096);
    big.write_to(0x1000, 7, 4096);
    const size_t frame = 14 + 20 + 8 + 12 + 16 + 4096 + 4;
    int sent = 0;
    while (sent < 100 && line.send(big)) ++sent;
    CHECK_EQ(sent, 64 * 1024 / frame + 1);
    CHECK(line.port.due_ns() > 0);
    line.drain();
    CHECK_EQ(line.sink.all.size(), sent);
    CHECK_EQ(line.clock.now_ns() - start, sent * frame);
    CHECK(line.send(big));
    // Also when nothing of it arrives: the sender learns when to come again.
    std::string problem;
    line.drain();
    CHECK(line.port.set_faults("rate=1GB,drop=100%", &problem));
    for (sent = 0; sent < 100 && line.send(big);) ++sent;
    CHECK(sent < 100);
    CHECK(line.port.due_ns() > line.clock.now_ns());
    Clock::jump(line.port.due_ns());
    line.poll();
    CHECK_EQ(line.port.due_ns(), 0);
    CHECK(line.send(big));
}

void a_corrupted_bit_is_caught_by_the_icrc() {
    Line line("corrupt=100%,seed=5");
    line.writes(500);
    CHECK_EQ(line.port.counter("fault_corrupted"), 500);
    CHECK_EQ(line.port.counter("fault_corruption_caught") + line.sink.all.size(), 500);
    CHECK(line.sink.all.size() < 25);  // 8 bits of 864 are not covered
    for (const Arrived& a : line.sink.all) {
        CHECK_EQ(a.payload.size(), 64);
        CHECK(a.payload[5] == static_cast<uint8_t>(5 * 13 + a.psn));
    }
}

void rules_hit_what_they_name() {
    Line line("drop write psn=3 first=1; duplicate write nth=2; delay write psn=5 by=1us");
    line.writes(4);     // 3 is dropped, 1 duplicated
    line.writes(1, 3);  // sent again: passes
    line.writes(2, 5);  // 5 is late
    CHECK(line.psns() == (Psns{0, 1, 1, 2, 3, 6}));
    line.drain();
    CHECK_EQ(line.sink.all.back().psn, 5);

    Line answers("drop answer psn=7 first=1; drop nak; drop rnr");
    const auto answer = [&answers](uint32_t psn, uint32_t syndrome) {
        Made made(RC_ACKNOWLEDGE, psn, 0, answers.port.slot());
        made.answer(syndrome, 1);
        answers.send(made);
        answers.poll();
        return answers.sink.all.size();
    };
    CHECK_EQ(answer(7, AETH_ACK), 0);
    CHECK_EQ(answer(7, AETH_ACK), 1);
    CHECK_EQ(answer(8, AETH_NAK_PSN_SEQUENCE), 1);
    CHECK_EQ(answer(8, AETH_RNR_NAK + 12), 1);
    CHECK_EQ(answer(8, AETH_ACK), 2);
    answers.writes(1, 7);
    CHECK_EQ(answers.sink.all.size(), 3);
}

void classes_of_packets() {
    struct {
        const char* name;
        std::vector<uint32_t> opcodes;
    } classes[] = {
        {"write", {RC_RDMA_WRITE_FIRST, RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE}},
        {"send",
         {RC_SEND_FIRST, RC_SEND_ONLY_WITH_IMMEDIATE, UC_SEND_FIRST, UD_SEND_ONLY, UD_SEND_ONLY_WITH_IMMEDIATE}},
        {"read", {RC_RDMA_READ_REQUEST}},
        {"response", {RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_ONLY}},
        {"result", {RC_ATOMIC_ACKNOWLEDGE}},
        {"ack", {RC_ACKNOWLEDGE}},
        {"atomic", {RC_COMPARE_SWAP, RC_FETCH_ADD, OWN_MASKED_COMPARE_SWAP, OWN_MASKED_FETCH_ADD}},
        {"answer", {RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_ONLY, RC_ATOMIC_ACKNOWLEDGE, RC_ACKNOWLEDGE}},
        {"immediate",
         {RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, RC_SEND_ONLY_WITH_IMMEDIATE,
          UD_SEND_ONLY_WITH_IMMEDIATE}},
        {"RC_FETCH_ADD", {RC_FETCH_ADD}},
        {"UC_SEND_FIRST", {UC_SEND_FIRST}},
    };
    std::vector<uint32_t> everything;
    for (const auto& c : classes) everything.insert(everything.end(), c.opcodes.begin(), c.opcodes.end());
    for (const auto& c : classes) {
        FaultPlan plan;
        CHECK(planned(std::string("drop ") + c.name, &plan));
        for (uint32_t opcode : everything) {
            Made made(opcode, 1, 0);
            const bool expected = std::count(c.opcodes.begin(), c.opcodes.end(), opcode) > 0;
            CHECK_EQ(plan.rules[0].matches(made.packet), expected);
        }
    }
    FaultPlan plan;
    CHECK(planned("drop again; drop any from=0x77; drop any from=0x78; drop any wqe=0-9; drop request", &plan));
    Made made(RC_SEND_ONLY, 1, 0);
    const auto matches = [&plan, &made](size_t i) { return plan.rules[i].matches(made.packet); };
    CHECK(!matches(0) && matches(1) && !matches(2) && !matches(3) && matches(4));
    made.packet.note_again = true;
    made.packet.note_index = 9;
    CHECK(matches(0) && matches(3));
}

void a_link_that_is_down() {
    Line line("link=down");
    line.writes(3);
    line.drain();
    CHECK(line.sink.all.empty());
    CHECK(line.port.faults().down());
    CHECK_EQ(line.port.counter("fault_link_down"), 3);
    std::string problem;
    CHECK(line.port.set_faults("link=up", &problem));
    line.writes(1);
    CHECK_EQ(line.sink.all.size(), 1);

    Sink other_sink;
    Port other(line.clock, other_sink.receive);
    Made made(RC_SEND_ONLY, 1, 8, other.slot());
    CHECK(other.set_faults("link=down", &problem));
    CHECK(line.port.route(made.packet.destination)->send(made.packet));
    CHECK_EQ(other.poll(other_sink.receive, 10), 1);
    CHECK(other_sink.all.empty());
    CHECK_EQ(other.counter("fault_link_down"), 1);
}

void a_full_inbox_keeps_the_order() {
    Line line("drop=0.0000001%");
    Sink other_sink;
    Port other(line.clock, other_sink.receive);
    const uint32_t count = 2500;  // of 4 KiB: more than an inbox holds
    for (uint32_t i = 0; i < count; ++i) {
        Made made(RC_SEND_ONLY, i, 4096, other.slot());
        CHECK(line.port.route(made.packet.destination)->send(made.packet));
    }
    CHECK(line.port.due_ns() != 0);
    for (int i = 0; i < 1000 && other_sink.all.size() < count; ++i) {
        other.poll(other_sink.receive, 100);
        line.poll();
    }
    CHECK_EQ(other_sink.all.size(), count);
    for (uint32_t i = 0; i < count && i < other_sink.all.size(); ++i) CHECK_EQ(other_sink.all[i].psn, i);
    CHECK_EQ(line.port.due_ns(), 0);
}

void memory_that_is_gone() {
    Line line("delay=1us");
    void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (const char* faults : {"delay=1us", "corrupt=100%", "reorder=100%", "duplicate=100%,delay=1us"}) {
        std::string problem;
        CHECK(line.port.set_faults(faults, &problem));
        Made made(RC_SEND_ONLY, 1, 100);
        made.piece.iov_base = page;
        CHECK(line.send(made));
        CHECK(made.packet.unreadable);
    }
    line.drain();
    CHECK(line.sink.all.empty());
    munmap(page, 4096);
}

void from_the_environment() {
    setenv("GDA_SIM_FAULTS", "drop=100%", 1);
    Clock clock;
    Sink sink;
    Port port(clock, sink.receive);
    CHECK(port.faults().on());
    CHECK(port.problems().empty());
    setenv("GDA_SIM_FAULTS", "drop=lots", 1);
    Port wrong(clock, sink.receive);
    CHECK(!wrong.faults().on());
    CHECK_EQ(wrong.problems().size(), 1);
    CHECK(wrong.problems()[0].find("GDA_SIM_FAULTS: faults: 'drop=lots'") == 0);
    unsetenv("GDA_SIM_FAULTS");
}

}  // namespace

int main(int argc, char** argv) {
    install_guard();
    Clock::make_virtual();
    return run(
        {
            {"settings_are_understood", settings_are_understood},
            {"rules_are_understood", rules_are_understood},
            {"mistakes_are_named", mistakes_are_named},
            {"without_faults_runs_pass", without_faults_runs_pass},
            {"chance_is_about_right", chance_is_about_right},
            {"the_same_seed_does_the_same", the_same_seed_does_the_same},
            {"one_chance_does_not_move_another", one_chance_does_not_move_another},
            {"reordered_packets_let_others_pass", reordered_packets_let_others_pass},
            {"other_flows_do_not_count_as_passing", other_flows_do_not_count_as_passing},
            {"delay_takes_its_time", delay_takes_its_time},
            {"a_slow_line_sends_the_sender_away", a_slow_line_sends_the_sender_away},
            {"a_corrupted_bit_is_caught_by_the_icrc", a_corrupted_bit_is_caught_by_the_icrc},
            {"rules_hit_what_they_name", rules_hit_what_they_name},
            {"classes_of_packets", classes_of_packets},
            {"a_link_that_is_down", a_link_that_is_down},
            {"a_full_inbox_keeps_the_order", a_full_inbox_keeps_the_order},
            {"memory_that_is_gone", memory_that_is_gone},
            {"from_the_environment", from_the_environment},
        },
        argc, argv);
}
