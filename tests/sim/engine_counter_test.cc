// SPDX-License-Identifier: Apache-2.0
// What the NIC counts, one cause at a time: each fault raises its own counters and none of the others.

#include <set>
#include <thread>

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

// Each queue pair counts in the set that it names; the port counts all.
uint32_t allocate_set(Nic& nic) {
    Call c = CALL(alloc_q_counter, MLX5_CMD_OP_ALLOC_Q_COUNTER);
    CHECK(c.send(nic));
    return static_cast<uint32_t>(GDA_GET(alloc_q_counter_out, c.out.data(), counter_set_id));
}

Call query_set(Nic& nic, uint32_t set, bool clear = false) {
    Call c = CALL(query_q_counter, MLX5_CMD_OP_QUERY_Q_COUNTER);
    GDA_SET(query_q_counter_in, c.in.data(), counter_set_id, set);
    GDA_SET(query_q_counter_in, c.in.data(), clear, clear);
    CHECK(c.send(nic));
    return c;
}
#define SET_VALUE(NIC, SET, FIELD) GDA_GET(query_q_counter_out, query_set(NIC, SET).out.data(), FIELD)

bool name_set(Nic& nic, const Pair& qp, uint32_t set) {
    Call c = CALL(rts2rts_qp, MLX5_CMD_OP_RTS2RTS_QP);
    GDA_SET(rts2rts_qp_in, c.in.data(), qpn, qp.qpn);
    GDA_SET(rts2rts_qp_in, c.in.data(), opt_param_mask, MLX5_QP_OPTPAR_COUNTER_SET_ID);
    GDA_SET(rts2rts_qp_in, c.in.data(), qpc.counter_set_id, set);
    return c.send(nic);
}

bool release_set(Nic& nic, uint32_t set) {
    Call c = CALL(dealloc_q_counter, MLX5_CMD_OP_DEALLOC_Q_COUNTER);
    GDA_SET(dealloc_q_counter_in, c.in.data(), counter_set_id, set);
    return c.send(nic);
}

Call query_port(Nic& nic, bool clear) {
    Call c = CALL(query_vport_counter, MLX5_CMD_OP_QUERY_VPORT_COUNTER);
    GDA_SET(query_vport_counter_in, c.in.data(), clear, clear);
    CHECK(c.send(nic));
    return c;
}

void sets() {
    World w;
    Nic& nic = w.nic;
    const uint32_t first = allocate_set(nic), second = allocate_set(nic);
    CHECK(first != 0 && second != 0 && first != second);
    w.write(8);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK_EQ(SET_VALUE(nic, 0, rx_write_requests), 1);  // they named none so far
    CHECK(name_set(nic, w.a, first) && name_set(nic, w.b, second));
    CHECK(!name_set(nic, w.a, second + 1));
    CHECK(nic.said("no such set of counters"));
    CHECK(!release_set(nic, first) && nic.said("still count in this set"));

    play(w, "drop write nth=2");
    for (int i = 0; i < 3; ++i) w.write(8);
    w.a.ring();
    for (int i = 0; i < 3; ++i) CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK_EQ(SET_VALUE(nic, first, rx_write_requests), 0);
    CHECK_EQ(SET_VALUE(nic, first, packet_seq_err), 1);
    CHECK_EQ(SET_VALUE(nic, second, rx_write_requests), 3);
    CHECK_EQ(SET_VALUE(nic, second, out_of_sequence), 1);
    CHECK_EQ(SET_VALUE(nic, second, packet_seq_err), 0);
    CHECK_EQ(SET_VALUE(nic, 0, rx_write_requests), 1);
    CHECK_EQ(GDA_GET(query_q_counter_out, query_set(nic, second, true).out.data(), rx_write_requests), 3);
    CHECK_EQ(SET_VALUE(nic, second, rx_write_requests), 0);
    CHECK_EQ(nic.device.counter("write_requests"), 4);

    w.a.write(w.target.address(), w.dst.key + 0x100000, w.source.address(), w.src.key, 8);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    CHECK_EQ(SET_VALUE(nic, first, req_remote_access_errors), 1);
    CHECK_EQ(SET_VALUE(nic, first, req_cqe_error), 1);
    CHECK_EQ(SET_VALUE(nic, second, resp_remote_access_errors), 1);

    const Call port = query_port(nic, true);
    CHECK_EQ(GDA_GET(query_vport_counter_out, port.out.data(), transmitted_ib_unicast.packets),
             nic.device.counter("packets_sent"));
    CHECK_EQ(GDA_GET(query_vport_counter_out, port.out.data(), received_ib_unicast.octets),
             nic.device.counter("bytes_received"));
    CHECK(nic.device.counter("bytes_received") >= 4 * 8);
    CHECK_EQ(GDA_GET(query_vport_counter_out, query_port(nic, false).out.data(), received_ib_unicast.octets), 0);
    CHECK(!release_set(nic, 0) && !release_set(nic, 200));
}

void all_sets() {
    World w;
    for (int round = 0; round < 2; ++round) {
        std::set<uint32_t> numbers;
        for (int i = 0; i < 255; ++i) numbers.insert(allocate_set(w.nic));
        CHECK_EQ(numbers.size(), 255);
        Call more = CALL(alloc_q_counter, MLX5_CMD_OP_ALLOC_Q_COUNTER);
        CHECK(!more.send(w.nic));
        CHECK_EQ(more.status(), MLX5_CMD_STAT_LIM_ERR);
        for (const uint32_t set : numbers) CHECK(release_set(w.nic, set));
    }
}

// Commands are counted beside the device's lock: none may be lost, none belongs to the queue pair at work.
void commands_while_a_queue_pair_works() {
    World w;
    const uint32_t set = allocate_set(w.nic);
    CHECK(name_set(w.nic, w.a, set));
    const uint64_t before = w.nic.device.counter("commands");
    const int threads = 3, calls = 2000;
    std::vector<std::thread> programs;
    for (int t = 0; t < threads; ++t) {
        programs.emplace_back([&] {
            for (int i = 0; i < calls; ++i) query_set(w.nic, set);
        });
    }
    for (int i = 0; i < 300; ++i) {
        w.write(8);
        w.a.ring();
        CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    }
    for (std::thread& program : programs) program.join();
    CHECK_EQ(w.nic.device.counter("commands") - before, threads * calls);
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
            {"sets", sets},
            {"all_sets", all_sets},
            {"commands_while_a_queue_pair_works", commands_while_a_queue_pair_works},
        },
        argc, argv);
}
