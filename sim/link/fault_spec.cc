// SPDX-License-Identifier: Apache-2.0
// See fault_spec.h.

#include "sim/link/fault_spec.h"

#include <gda/formats/packet.h>

#include <algorithm>
#include <cstring>

#include "sim/link/address.h"
#include "sim/link/wire.h"

namespace sim {

using namespace gda::prm;

namespace {

typedef std::vector<std::string> Words;

Words split(const std::string& text, const char* separators) {
    Words words;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find_first_of(separators, at), text.size());
        if (end > at) words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

// A word that begins with a number: the number times `scale`, rounded, and what follows it. Not by strtod, which reads
// numbers as the program's locale writes them.
bool number(const std::string& word, double* value, std::string* rest) {
    size_t at = 0;
    double n = 0, unit = 1;
    for (; at < word.size() && word[at] >= '0' && word[at] <= '9'; ++at) n = n * 10 + (word[at] - '0');
    if (at == 0) return false;
    if (at < word.size() && word[at] == '.') {
        for (++at; at < word.size() && word[at] >= '0' && word[at] <= '9'; ++at) n += (word[at] - '0') * (unit /= 10);
    }
    *value = n;
    *rest = word.substr(at);
    return true;
}

struct Unit {
    const char* name;
    double factor;
};
const Unit PARTS[] = {{"%", 0.01}, {"", 1}};
const Unit TIMES[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
const Unit RATES[] = {{"kB", 1e3},   {"MB", 1e6},      {"GB", 1e9},      {"B", 1},
                      {"b", 1 / 8.}, {"kb", 1e3 / 8.}, {"Mb", 1e6 / 8.}, {"Gb", 1e9 / 8.}};

template <size_t N>
bool measure(const std::string& word, const Unit (&units)[N], double* value) {
    double n;
    std::string rest;
    if (!number(word, &n, &rest)) return false;
    for (const Unit& unit : units) {
        if (rest == unit.name) return *value = n * unit.factor, true;
    }
    return false;
}

bool whole(const std::string& word, uint64_t* value) {
    const bool hex = word.compare(0, 2, "0x") == 0;
    const size_t start = hex ? 2 : 0;
    if (word.size() <= start || word.size() > 18) return false;
    *value = 0;
    for (size_t i = start; i < word.size(); ++i) {
        const char* digits = "0123456789abcdef";
        const char* found = std::strchr(digits, word[i]);
        if (!found || !*found || found - digits >= (hex ? 16 : 10)) return false;
        *value = *value * (hex ? 16 : 10) + static_cast<uint64_t>(found - digits);
    }
    return true;
}

// N, N-M, or N- for all from N on.
bool range(const std::string& word, Range* range) {
    const size_t dash = word.find('-');
    if (!whole(word.substr(0, dash), &range->from)) return false;
    if (dash == std::string::npos) return range->to = range->from, true;
    if (dash + 1 == word.size()) return range->to = UINT64_MAX, true;
    return whole(word.substr(dash + 1), &range->to) && range->to >= range->from;
}

bool chance(const std::string& word, uint64_t* value) {
    double part;
    if (!measure(word, PARTS, &part) || part > 1) return false;
    *value = static_cast<uint64_t>(part * static_cast<double>(FaultPlan::CERTAIN));
    return true;
}

bool duration(const std::string& word, uint64_t* ns) {
    double value;
    if (!measure(word, TIMES, &value) || value > 1e15) return false;
    *ns = static_cast<uint64_t>(value + 0.5);
    return true;
}

struct Named {
    const char* name;
    FaultRule::Class value;
};
typedef FaultRule::Class C;
const Named CLASSES[] = {
    {"any", C::any},   {"request", C::request},   {"answer", C::answer},       {"ack", C::ack},     {"nak", C::nak},
    {"rnr", C::rnr},   {"response", C::response}, {"result", C::result},       {"write", C::write}, {"send", C::send},
    {"read", C::read}, {"atomic", C::atomic},     {"immediate", C::immediate}, {"again", C::again},
};

struct NamedOpcode {
    const char* name;
    uint8_t value;
};
#define SIM_OPCODE(name) {#name, name}
const NamedOpcode OPCODES[] = {
    SIM_OPCODE(RC_SEND_FIRST),
    SIM_OPCODE(RC_SEND_MIDDLE),
    SIM_OPCODE(RC_SEND_LAST),
    SIM_OPCODE(RC_SEND_LAST_WITH_IMMEDIATE),
    SIM_OPCODE(RC_SEND_ONLY),
    SIM_OPCODE(RC_SEND_ONLY_WITH_IMMEDIATE),
    SIM_OPCODE(RC_SEND_LAST_WITH_INVALIDATE),
    SIM_OPCODE(RC_SEND_ONLY_WITH_INVALIDATE),
    SIM_OPCODE(RC_RDMA_WRITE_FIRST),
    SIM_OPCODE(RC_RDMA_WRITE_MIDDLE),
    SIM_OPCODE(RC_RDMA_WRITE_LAST),
    SIM_OPCODE(RC_RDMA_WRITE_LAST_WITH_IMMEDIATE),
    SIM_OPCODE(RC_RDMA_WRITE_ONLY),
    SIM_OPCODE(RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE),
    SIM_OPCODE(RC_RDMA_READ_REQUEST),
    SIM_OPCODE(RC_RDMA_READ_RESPONSE_FIRST),
    SIM_OPCODE(RC_RDMA_READ_RESPONSE_MIDDLE),
    SIM_OPCODE(RC_RDMA_READ_RESPONSE_LAST),
    SIM_OPCODE(RC_RDMA_READ_RESPONSE_ONLY),
    SIM_OPCODE(RC_ACKNOWLEDGE),
    SIM_OPCODE(RC_ATOMIC_ACKNOWLEDGE),
    SIM_OPCODE(RC_COMPARE_SWAP),
    SIM_OPCODE(RC_FETCH_ADD),
    SIM_OPCODE(UC_SEND_FIRST),
    SIM_OPCODE(UC_SEND_MIDDLE),
    SIM_OPCODE(UC_SEND_LAST),
    SIM_OPCODE(UC_SEND_LAST_WITH_IMMEDIATE),
    SIM_OPCODE(UC_SEND_ONLY),
    SIM_OPCODE(UC_SEND_ONLY_WITH_IMMEDIATE),
    SIM_OPCODE(UC_RDMA_WRITE_FIRST),
    SIM_OPCODE(UC_RDMA_WRITE_MIDDLE),
    SIM_OPCODE(UC_RDMA_WRITE_LAST),
    SIM_OPCODE(UC_RDMA_WRITE_LAST_WITH_IMMEDIATE),
    SIM_OPCODE(UC_RDMA_WRITE_ONLY),
    SIM_OPCODE(UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE),
    SIM_OPCODE(UD_SEND_ONLY),
    SIM_OPCODE(UD_SEND_ONLY_WITH_IMMEDIATE),
};
#undef SIM_OPCODE

const char UNORDERED[] = "unordered";  // the one setting without a value

const char SETTINGS[] =
    "drop, duplicate, corrupt (a chance: 5% or 0.05), reorder (a chance, :N for behind how many), delay, jitter "
    "(a time: 10us), rate (100Gb, 1GB: per second), seed (a number), link (up or down; down:2 is port 2 alone), "
    "unordered (no value)";
const char CLASS_WORDS[] =
    "any, request, answer, ack, nak, rnr, response, result, write, send, read, atomic, immediate, again, or an opcode "
    "such as RC_SEND_ONLY";
const char CONDITIONS[] =
    "psn=, qpn= (destination), from= (sending queue pair), port= (that sends), wqe=, nth=, first=; by= of a delay";

// up, down, or down:N of one port; several clauses add up.
bool link_state(const std::string& word, uint32_t* down) {
    uint64_t port = 0;
    if (word == "up") return *down = 0, true;
    if (word == "down") return *down = (1u << MAX_PORTS) - 1, true;
    if (word.compare(0, 5, "down:") != 0 || !whole(word.substr(5), &port) || !port || port > MAX_PORTS) return false;
    *down |= 1u << (port - 1);
    return true;
}

bool wrong(std::string* problem, const std::string& word, const std::string& clause, const std::string& may_be) {
    *problem = "faults: '" + word + "' in '" + clause + "' is not understood; may be: " + may_be;
    return false;
}

bool setting(const std::string& clause, const std::string& word, FaultPlan* plan, std::string* problem) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    double rate;
    bool good = true;
    if (name == "drop") {
        good = chance(value, &plan->drop);
    } else if (name == "duplicate") {
        good = chance(value, &plan->duplicate);
    } else if (name == "corrupt") {
        good = chance(value, &plan->corrupt);
    } else if (name == "reorder") {
        const size_t colon = value.find(':');
        uint64_t behind = 1;
        good = chance(value.substr(0, colon), &plan->reorder) &&
               (colon == std::string::npos || whole(value.substr(colon + 1), &behind)) && behind > 0 && behind <= 10000;
        plan->behind = static_cast<uint32_t>(behind);
    } else if (name == "delay") {
        good = duration(value, &plan->delay_ns);
    } else if (name == "jitter") {
        good = duration(value, &plan->jitter_ns);
    } else if (name == "rate") {
        good = measure(value, RATES, &rate) && rate >= 1 && rate <= 1e15;
        if (good) plan->rate = static_cast<uint64_t>(rate);
    } else if (name == "seed") {
        good = whole(value, &plan->seed);
    } else if (word == UNORDERED) {
        plan->unordered = true;
    } else if (name == "link") {
        good = link_state(value, &plan->down);
    } else {
        good = false;
    }
    return good || wrong(problem, word, clause, SETTINGS);
}

bool condition(const std::string& clause, const std::string& word, FaultRule* rule, std::string* problem) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    bool good = false;
    if (name == "psn") good = range(value, &rule->psn);
    if (name == "qpn") good = range(value, &rule->to_qpn);
    if (name == "from") good = range(value, &rule->from_qpn);
    if (name == "port") good = range(value, &rule->port) && rule->port.from >= 1 && rule->port.from <= MAX_PORTS;
    if (name == "wqe") good = rule->wants_wqe = range(value, &rule->wqe);
    if (name == "nth") good = range(value, &rule->nth) && rule->nth.from > 0;
    if (name == "first") good = whole(value, &rule->first) && rule->first > 0;
    if (name == "by" && rule->action == FaultRule::Action::delay) good = duration(value, &rule->by_ns);
    return good || wrong(problem, word, clause, CONDITIONS);
}

bool rule_of(const std::string& clause, FaultPlan* plan, std::string* problem) {
    FaultRule rule;
    const Words words = split(clause, " \t,");
    rule.text = words[0];
    for (size_t i = 1; i < words.size(); ++i) rule.text += " " + words[i];
    typedef FaultRule::Action A;
    if (words[0] == "drop") {
        rule.action = A::drop;
    } else if (words[0] == "duplicate") {
        rule.action = A::duplicate;
    } else if (words[0] == "delay") {
        rule.action = A::delay;
    } else if (words[0] == "corrupt") {
        rule.action = A::corrupt;
    } else {
        return wrong(problem, words[0], clause, "a rule's drop, duplicate, delay or corrupt, or a setting NAME=VALUE");
    }
    bool classified = false;
    for (size_t i = 1; i < words.size(); ++i) {
        if (words[i].find('=') != std::string::npos) {
            if (!condition(clause, words[i], &rule, problem)) return false;
            continue;
        }
        bool known = false;
        for (const Named& c : CLASSES) {
            if (words[i] == c.name) known = true, rule.about = c.value;
        }
        for (const NamedOpcode& o : OPCODES) {
            if (words[i] == o.name) known = true, rule.about = C::opcode, rule.opcode = o.value;
        }
        if (!known || classified) return wrong(problem, words[i], clause, std::string("one of ") + CLASS_WORDS);
        classified = true;
    }
    if (rule.action == A::delay && !rule.by_ns) return wrong(problem, words[0], clause, "delay CLASS by=10us");
    if (rule.nth.from > rule.first) {
        return wrong(problem, "first=" + std::to_string(rule.first), clause, "a number from nth= on, or left out");
    }
    rule.nth.to = std::min(rule.nth.to, rule.first);
    plan->rules.push_back(rule);
    return true;
}

uint32_t syndrome(const Packet& packet) {
    const uint32_t lead_bytes = meaning_of(static_cast<uint8_t>(GDA_GET(bth, packet.header, opcode))).lead_bytes;
    return static_cast<uint32_t>(GDA_GET(aeth, packet.header + GDA_BYTES_OF(bth) + lead_bytes, syndrome));
}

}  // namespace

bool parse_faults(const std::string& text, FaultPlan* plan, std::string* problem) {
    *plan = FaultPlan();
    for (const std::string& clause : split(text, ";\n")) {
        const Words words = split(clause, " \t");
        if (words.empty()) continue;
        if (words[0].find('=') == std::string::npos && split(words[0], ",")[0] != UNORDERED) {
            if (!rule_of(clause, plan, problem)) return false;
            continue;
        }
        for (const std::string& word : split(clause, " \t,")) {
            if (!setting(clause, word, plan, problem)) return false;
        }
    }
    return true;
}

bool FaultRule::matches(const Packet& packet) const {
    const uint8_t opcode_here = static_cast<uint8_t>(GDA_GET(bth, packet.header, opcode));
    const Meaning operation = meaning_of(opcode_here);
    const uint32_t o = operation.code;
    const bool result_here = o == RC_ATOMIC_ACKNOWLEDGE;
    const bool response_here = o >= RC_RDMA_READ_RESPONSE_FIRST && o <= RC_RDMA_READ_RESPONSE_ONLY;
    const bool answer_here = response_here || result_here || o == RC_ACKNOWLEDGE;
    const bool atomic_here = o == RC_COMPARE_SWAP || o == RC_FETCH_ADD;
    const bool immediate_here = o == RC_SEND_LAST_WITH_IMMEDIATE || o == RC_SEND_ONLY_WITH_IMMEDIATE ||
                                o == RC_RDMA_WRITE_LAST_WITH_IMMEDIATE || o == RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE;
    bool right = false;
    switch (about) {
        case Class::any:
            right = true;
            break;
        case Class::request:
            right = !answer_here;
            break;
        case Class::answer:
            right = answer_here;
            break;
        case Class::ack:
            right = o == RC_ACKNOWLEDGE && syndrome(packet) < AETH_RNR_NAK;
            break;
        case Class::nak:
            right = o == RC_ACKNOWLEDGE && syndrome(packet) >= AETH_NAK_PSN_SEQUENCE;
            break;
        case Class::rnr:
            right = o == RC_ACKNOWLEDGE && syndrome(packet) >= AETH_RNR_NAK && syndrome(packet) < AETH_NAK_PSN_SEQUENCE;
            break;
        case Class::response:
            right = response_here;
            break;
        case Class::result:
            right = result_here;
            break;
        case Class::write:
            right = o >= RC_RDMA_WRITE_FIRST && o <= RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE;
            break;
        case Class::send:
            right = o <= RC_SEND_ONLY_WITH_IMMEDIATE || o == RC_SEND_LAST_WITH_INVALIDATE ||
                    o == RC_SEND_ONLY_WITH_INVALIDATE;
            break;
        case Class::read:
            right = o == RC_RDMA_READ_REQUEST;
            break;
        case Class::atomic:
            right = atomic_here;
            break;
        case Class::immediate:
            right = immediate_here;
            break;
        case Class::again:
            right = packet.note_again;
            break;
        case Class::opcode:
            right = opcode_here == opcode;
            break;
    }
    if (operation.transport == BTH_MANUFACTURER && about != Class::any && about != Class::opcode) right = false;
    if (!right || (wants_wqe && packet.note_index < 0)) return false;
    return psn.holds(GDA_GET(bth, packet.header, psn)) && to_qpn.holds(GDA_GET(bth, packet.header, dest_qp)) &&
           from_qpn.holds(packet.note_qpn) && port.holds(packet.port) &&
           (!wants_wqe || wqe.holds(static_cast<uint64_t>(packet.note_index)));
}

}  // namespace sim
