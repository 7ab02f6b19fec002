// SPDX-License-Identifier: Apache-2.0
// Counters by command: sets of them, each for the queue pairs that name it, and the ports'. Only what the engine counts
// is here; the other fields stay 0. A port's octets are payload: headers are not counted.
// Source: PRM, "ALLOC_Q_COUNTER", "QUERY_Q_COUNTER", "QUERY_VPORT_COUNTER"; what they mean: the kernel's names of them
// in sysfs (uverbs/counters.cc).

#include <cstring>

#include "sim/firmware/handlers.h"

namespace sim::firmware {

using namespace gda::prm;

namespace {

// Number 0 always exists: queue pairs that name no set count there.
CounterSet* find_set(DeviceState& s, uint32_t number) { return number ? s.counter_sets.find(number) : &s.unnamed_set; }

}  // namespace

Answer count_in(DeviceState& s, Qp* qp, uint32_t number) {
    CounterSet* set = find_set(s, number);
    if (!set) return {Cause::no_such_counter, text("%s names set %u", qp->name, number)};
    if (qp->counter_set) --qp->counter_set->uses;
    ++set->uses;
    qp->counter_set = set;
    return {};
}

Answer allocate_q_counter(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)in;
    const uint32_t number = s.counter_sets.free_index(FIRST_COUNTER_SET);
    if (number >= s.counter_sets.LIMIT || s.counter_sets.size() >= MAX_COUNTER_SETS)
        return {Cause::table_full, "sets of counters"};
    auto set = std::make_unique<CounterSet>();
    set->number = number;
    s.counter_sets.put(number, std::move(set));
    GDA_SET(alloc_q_counter_out, out, counter_set_id, number);
    return {};
}

Answer release_q_counter(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    const uint32_t number = static_cast<uint32_t>(GDA_GET(dealloc_q_counter_in, in, counter_set_id));
    const CounterSet* set = number ? s.counter_sets.find(number) : nullptr;
    if (!set) return {Cause::no_such_counter, text("set %u", number)};
    if (set->uses) return {Cause::counter_in_use, text("set %u, %d queue pairs", number, set->uses)};
    s.counter_sets.erase(number);
    return {};
}

Answer query_q_counter(DeviceState& s, const uint8_t* in, uint8_t* out) {
    const uint32_t number = static_cast<uint32_t>(GDA_GET(query_q_counter_in, in, counter_set_id));
    CounterSet* set = find_set(s, number);
    if (!set) return {Cause::no_such_counter, text("set %u", number)};
#define SIM_TELL(FIELD, COUNTER) \
    GDA_SET(query_q_counter_out, out, FIELD, static_cast<uint32_t>((*set)[Counter::COUNTER]))
    SIM_TELL(rx_write_requests, write_requests);
    SIM_TELL(rx_read_requests, read_requests);
    SIM_TELL(rx_atomic_requests, atomic_requests);
    SIM_TELL(out_of_buffer, rnr_naks_sent);
    SIM_TELL(out_of_sequence, out_of_order);
    SIM_TELL(duplicate_request, duplicates);
    SIM_TELL(rnr_nak_retry_err, rnr_retries);
    SIM_TELL(packet_seq_err, sequence_naks);
    SIM_TELL(implied_nak_seq_err, missed_responses);
    SIM_TELL(local_ack_timeout_err, ack_timeouts);
    SIM_TELL(resp_local_length_error, lengths_exceeded);
    SIM_TELL(resp_cqe_error, responder_errors);
    SIM_TELL(req_cqe_error, requester_errors);
    SIM_TELL(req_remote_invalid_request, refused_request);
    SIM_TELL(req_remote_access_errors, refused_access);
    SIM_TELL(resp_remote_access_errors, accesses_refused);
    SIM_TELL(cq_overflow, cq_overruns);
    SIM_TELL(resp_cqe_flush_error, responder_flushes);
    SIM_TELL(req_cqe_flush_error, requester_flushes);
    if (GDA_GET(query_q_counter_in, in, clear)) std::memset(set->counted, 0, sizeof set->counted);
    return {};
}

Answer query_vport_counter(DeviceState& s, const uint8_t* in, uint8_t* out) {
    uint32_t port;
    const Answer answer = port_named(s, GDA_GET(query_vport_counter_in, in, port_num), "", &port);
    if (answer.cause != Cause::none) return answer;
    if (GDA_GET(query_vport_counter_in, in, other_vport))
        return {Cause::port, text("other_vport: there is no vport %u",
                                  static_cast<uint32_t>(GDA_GET(query_vport_counter_in, in, vport_number)))};
    const bool clear = GDA_GET(query_vport_counter_in, in, clear) != 0;
    const auto since = [&](Counter c) {  // the port's own counters only grow: sysfs shows them, too
        uint64_t& start = s.cleared[port - 1].counted[static_cast<int>(c)];
        const uint64_t value = s.report.counter(c, port) - start;
        if (clear) start += value;
        return value;
    };
    GDA_SET(query_vport_counter_out, out, received_ib_unicast.packets, since(Counter::packets_received));
    GDA_SET(query_vport_counter_out, out, received_ib_unicast.octets, since(Counter::bytes_received));
    GDA_SET(query_vport_counter_out, out, transmitted_ib_unicast.packets, since(Counter::packets_sent));
    GDA_SET(query_vport_counter_out, out, transmitted_ib_unicast.octets, since(Counter::bytes_sent));
    return {};
}

}  // namespace sim::firmware
