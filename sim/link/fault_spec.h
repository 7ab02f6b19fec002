// SPDX-License-Identifier: Apache-2.0
// Faults of a network as people type them, and what they mean. Parsed for faults.h; the language is described in
// docs/simulator.md, "Faults".
//
//   drop=5%,duplicate=1%,reorder=2%:3,corrupt=0.1%,delay=10us,jitter=2us,rate=100Gb,seed=7; drop answer psn=7 first=1
//
// Clauses are separated by semicolons. One of settings (NAME=VALUE or "unordered", separated by commas) is about every
// packet; any other is a rule: an action, the class of packets it is about, and conditions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/link/link.h"

namespace sim {

// Inclusive bounds.
struct Range {
    uint64_t from = 0, to = UINT64_MAX;
    bool holds(uint64_t value) const { return value >= from && value <= to; }
};

struct FaultRule {
    enum class Action { drop, duplicate, delay, corrupt };
    enum class Class {
        any,
        request,
        answer,    // acknowledgements of any kind, read responses, results of atomics
        ack,       // positive
        nak,       // "receiver not ready" apart
        rnr,       // "receiver not ready"
        response,  // of a read
        result,    // of an atomic
        write,
        send,
        read,       // its request
        atomic,     // its request
        immediate,  // a request that carries immediate data
        again,      // sent before
        opcode,     // one opcode
    };
    std::string text;  // as typed
    Action action = Action::drop;
    Class about = Class::any;
    uint8_t opcode = 0;
    Range psn, to_qpn, from_qpn, wqe;  // numbers on the packet, and its sender's notes
    Range port;                        // that sends it
    bool wants_wqe = false;            // packets of no WQE (answers) do not match
    Range nth{1, UINT64_MAX};          // of those that match all else, counted from 1
    uint64_t first = UINT64_MAX;       // of those, only the first so many
    uint64_t by_ns = 0;                // of a delay

    // All but `nth`.
    bool matches(const Packet& packet) const;
};

struct FaultPlan {
    uint64_t drop = 0, duplicate = 0, reorder = 0, corrupt = 0;  // chances, of CERTAIN
    uint32_t behind = 1;                                         // later packets that pass a reordered one
    uint64_t delay_ns = 0, jitter_ns = 0;
    uint64_t rate = 0;  // bytes per second; 0: no limit
    uint64_t seed = 1;
    uint32_t down = 0;       // ports whose link is down: bit 0 stands for port 1
    bool unordered = false;  // messages of a queue pair that arrive are placed in any order (engine/ordering.h)
    std::vector<FaultRule> rules;

    enum : uint64_t { CERTAIN = uint64_t{1} << 32 };
};

// False: *problem says which word is wrong and what may stand there. The empty text plans nothing.
bool parse_faults(const std::string& text, FaultPlan* plan, std::string* problem);

}  // namespace sim
