// SPDX-License-Identifier: Apache-2.0
// See faults.h.

#include "sim/link/faults.h"

namespace sim {

namespace {

const uint64_t BACKLOG_BYTES = 64 * 1024;  // what a port buffers before a line that is slower than it

uint64_t rotated(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

void add(std::string* why, const std::string& what) { *why += (why->empty() ? "" : ", ") + what; }

}  // namespace

bool Faults::set(const std::string& text, std::string* problem) {
    FaultPlan plan;
    if (!parse_faults(text, &plan, problem)) return false;
    plan_ = plan;
    matched_.assign(plan_.rules.size(), 0);
    on_ = plan_.drop || plan_.duplicate || plan_.reorder || plan_.corrupt || plan_.delay_ns || plan_.jitter_ns ||
          plan_.rate || plan_.down || plan_.unordered || !plan_.rules.empty();
    free_ns_ = 0;
    backlog_ns_ = plan_.rate ? BACKLOG_BYTES * 1000000000u / plan_.rate : 0;
    seed();
    return true;
}

// splitmix64 fills the state of xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number generators").
void Faults::seed() {
    order_ = plan_.seed + 0x9e3779b97f4a7c15u * (uint64_t{stream_} + 1);
    for (uint64_t& word : state_) word = draw_order();
}

uint64_t Faults::draw_order() {
    uint64_t z = order_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t Faults::random() {
    uint64_t* s = state_;
    const uint64_t result = rotated(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotated(s[3], 45);
    return result;
}

Faults::Verdict Faults::judge(const Packet& packet, bool down) {
    const auto happens = [this](uint64_t chance) { return (random() >> 32) < chance; };
    Verdict v;
    v.drop = happens(plan_.drop);
    v.duplicate = happens(plan_.duplicate);
    v.corrupt = happens(plan_.corrupt);
    v.behind = happens(plan_.reorder) ? plan_.behind : 0;
    v.draw = random();
    const uint64_t jitter = random();
    v.delay_ns = plan_.delay_ns + (plan_.jitter_ns ? jitter % (plan_.jitter_ns + 1) : 0);
    if (v.drop) add(&v.why, "drop by chance");
    if (v.duplicate) add(&v.why, "duplicate by chance");
    if (v.corrupt) add(&v.why, "corrupt by chance");
    if (v.behind) add(&v.why, "reorder by chance");
    for (size_t i = 0; i < plan_.rules.size(); ++i) {
        const FaultRule& rule = plan_.rules[i];
        if (!rule.matches(packet) || !rule.nth.holds(++matched_[i])) continue;
        v.drop = v.drop || rule.action == FaultRule::Action::drop;
        v.duplicate = v.duplicate || rule.action == FaultRule::Action::duplicate;
        v.corrupt = v.corrupt || rule.action == FaultRule::Action::corrupt;
        if (rule.action == FaultRule::Action::delay) v.delay_ns += rule.by_ns;
        add(&v.why, rule.text);
    }
    if (down) {
        v.drop = true;
        add(&v.why, "link is down");
    }
    return v;
}

uint64_t Faults::leaves_ns(uint64_t now_ns, size_t bytes) {
    if (!plan_.rate) return now_ns;
    if (free_ns_ < now_ns) free_ns_ = now_ns;
    // 128 bits are not needed: packets are below 64 KiB, so the product is below 2^46.
    free_ns_ += bytes * 1000000000u / plan_.rate;
    return free_ns_;
}

}  // namespace sim
