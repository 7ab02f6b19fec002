// SPDX-License-Identifier: Apache-2.0
// What the NIC counts, one cause at a time: each fault raises its own counters and none of the others.

#include <set>

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

const char* const COUNTERS[] = {"ack_timeouts",     "sequence_naks",    "missed_responses",  "rnr_retries",
                                "requester_errors", "responder_errors", "requester_flushes", "responder_flushes",
                                "lengths_exceeded", "accesses_refused", "refused_access",    "refused_request",
                                "duplicates",       "out_of_order",     "rnr_naks_sent"};

// Those of the list that are not 0 must be these.
void expect_raised(const Nic& nic, const std::set<std::string>& wanted) {
    for (const char* name : COUNTERS) {
        const bool raised = nic.device.counter(name) != 0;
        if (raised == (wanted.count(name) != 0)) continue;
        std::printf("  %s is %llu\n", name, static_cast<unsigned long long>(nic.device.counter(name)));
        CHECK(false);
    }
}

Options receiving() {
    Options o;
    o.receives = true;
    return o;
}

void play(World& w, const char* plan) {
    std::string problem;
    CHECK(w.nic.device.set_faults(plan, &problem));
}

void lost_packet() {
    World w;
    play(w, "drop write nth=2");
    for (int i = 0; i < 3; ++i) w.write(8);
    w.a.ring();
    for (int i = 0; i < 3; ++i) CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    expect_raised(w.nic, {"sequence_naks", "out_of_order"});
    CHECK_EQ(w.nic.device.counter("sequence_naks"), 1);
}

void lost_answer() {
    World w;
    play(w, "drop ack first=1");
    w.write(8);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    expect_raised(w.nic, {"ack_timeouts", "duplicates"});
}

void no_receive() {
    World w(receiving(), receiving());
    w.a.send(w.source.address(), w.src.key, 8);
    w.a.ring();
    CHECK(w.nic.until([&] { return w.nic.device.counter("rnr_retries") > 0; }));
    w.b.post_receive(w.target.address(), 64, w.dst.key);
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    expect_raised(w.nic, {"rnr_retries", "rnr_naks_sent"});
}

void refused_by_key() {
    World w;
    w.a.write(w.target.address(), w.dst.key + 0x100000, w.source.address(), w.src.key, 8);
    w.write(8);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    expect_raised(w.nic, {"accesses_refused", "refused_access", "requester_errors", "requester_flushes"});
}

void receive_too_short() {
    World w(receiving(), receiving());
    w.b.post_receive(w.target.address(), 4, w.dst.key);
    w.b.post_receive(w.target.address(), 64, w.dst.key);
    w.a.send(w.source.address(), w.src.key, 8);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    CHECK_EQ(syndrome_of(w.b_cq.wait()), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
    CHECK_EQ(syndrome_of(w.b_cq.wait()), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    expect_raised(w.nic,
                  {"refused_request", "requester_errors", "responder_errors", "lengths_exceeded", "responder_flushes"});
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"lost_packet", lost_packet},
            {"lost_answer", lost_answer},
            {"no_receive", no_receive},
            {"refused_by_key", refused_by_key},
            {"receive_too_short", receive_too_short},
        },
        argc, argv);
}
