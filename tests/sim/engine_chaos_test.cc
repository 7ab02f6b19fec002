// SPDX-License-Identifier: Apache-2.0
// Random work between two NICs over a network that drops, duplicates and reorders: both sides write, send, read and
// count at once. Every byte must be right, every atomic done exactly once, every completion good and in order, and no
// queue pair may get stuck. Virtual time: a seed is one experiment, the same each time.
//   engine_chaos_test seeds FIRST COUNT [FAULTS]     that many experiments
// The cases run a few hundred; the whole proof, 10,000 seeds, is one of the conformance suites.

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <random>

#include "tests/sim/engine_expect.h"

using namespace rig;

namespace {

const uint32_t COUNTERS = 8, RECEIVES = 16, AREA = 65536, MOST = 12000;
const char* const FAULTS = "drop=5%,duplicate=5%,reorder=5%:3";

// One side: what it owns and what its memory must hold in the end.
struct Side {
    explicit Side(Nic& n, const Options& o)
        : nic(n),
          send_cq(n, 8),
          receive_cq(n, 8),
          qp(n, send_cq, &receive_cq, o),
          memory(5 * AREA),
          m(n, memory.address(), memory.bytes) {
        for (uint32_t i = 0; i < AREA; ++i) source()[i] = static_cast<uint8_t>(i * 13 + (i >> 8) * 7 + n.device.slot());
        std::memcpy(fixed(), source(), AREA);
        model.assign(target(), target() + AREA);
        counters.assign(COUNTERS, 0);
    }
    uint8_t* source() { return memory.p; }             // what it writes and sends: never changes
    uint8_t* target() { return memory.p + AREA; }      // what the other writes
    uint8_t* fixed() { return memory.p + 2 * AREA; }   // what the other reads: never changes
    uint8_t* result() { return memory.p + 3 * AREA; }  // what it reads and fetches
    uint8_t* inbox() { return memory.p + 4 * AREA; }   // receives, and after them the counters
    uint64_t* count(uint32_t i) { return reinterpret_cast<uint64_t*>(memory.p + 5 * AREA - 8 * COUNTERS) + i; }
    uint64_t at(const uint8_t* p) { return memory.address() + static_cast<uint64_t>(p - memory.p); }

    struct Expected {
        uint32_t index = 0, opcode = 0;
        uint8_t* where = nullptr;    // of a fetch: its result
        std::vector<uint8_t> bytes;  // and what it must be
    };
    struct Arrival {
        uint8_t opcode;
        uint32_t bytes, immediate, from;  // offset in the sender's source
        bool data;                        // in the receive
    };
    Nic& nic;
    Queue send_cq, receive_cq;
    Pair qp;
    Pages memory;
    Memory m;
    std::vector<uint8_t> model;      // of target()
    std::vector<uint64_t> counters;  // of count()
    std::deque<Expected> outstanding;
    std::deque<Arrival> arrivals;  // of messages to this side, in order
    uint32_t result_at = 0, posted = 0, taken = 0;
    uint32_t receive_bytes = (AREA - 8 * COUNTERS) / RECEIVES / 64 * 64;
};

struct Experiment {
    Experiment(Nic& a, Nic& b, uint32_t seed, const char* faults) : random(seed), x(a, options()), y(b, options()) {
        std::string problem;
        const std::string plan = faults + text_of(seed);
        for (Nic* n : {&a, &b}) {
            if (n->device.set_faults(plan, &problem)) continue;
            std::printf("  %s\n", problem.c_str());
            CHECK(false);
        }
        connect(x.qp, y.qp);
    }
    static std::string text_of(uint32_t seed) { return ",seed=" + std::to_string(seed); }
    uint32_t pick(uint32_t n) { return static_cast<uint32_t>(random() % n); }
    const Options& options() {  // the same for both: drawn once
        if (!drawn) {
            drawn = true;
            drawn_options.receives = true;
            drawn_options.log_sq = 7;
            drawn_options.mtu = 1 + pick(5);
            drawn_options.timeout = 8 + pick(7);
            drawn_options.min_rnr = 1 + pick(20);
            drawn_options.psn = pick(2) ? 0xffffff - pick(40) : pick(0x1000000);
            drawn_options.log_requests = drawn_options.log_replies = pick(4);
        }
        return drawn_options;
    }
    void post_receives(Side& s, uint32_t n) {
        for (; n && s.posted - s.taken < RECEIVES; --n) {
            s.qp.post_receive(s.at(s.inbox() + s.posted % RECEIVES * s.receive_bytes), s.receive_bytes, s.m.key);
            ++s.posted;
        }
    }
    // One work request of `s` on memory of `o`; kept in the books of both.
    void post(Side& s, Side& o) {
        Side::Expected e;
        e.index = s.qp.producer & 0xffff;
        const uint32_t bytes = pick(4) ? pick(600) : pick(MOST), from = pick(AREA - MOST), to = pick(AREA - MOST);
        const uint64_t local = s.at(s.source() + from);
        const bool room_left = s.result_at + MOST + 8 <= AREA;
        const uint32_t kind = pick(room_left ? 7 : 4);
        if (kind == 0 || kind == 1) {
            e.opcode = kind == 0 ? MLX5_OPCODE_RDMA_WRITE : MLX5_OPCODE_RDMA_WRITE_IMM;
            s.qp.write(o.at(o.target() + to), o.m.key, local, s.m.key, bytes, CE_ALWAYS, e.opcode, 1000 + e.index);
            std::memcpy(o.model.data() + to, s.source() + from, bytes);
            if (kind == 1) o.arrivals.push_back({MLX5_CQE_RESP_WR_IMM, bytes, 1000 + e.index, from, false});
        } else if (kind == 2 || kind == 3) {
            const uint32_t length = std::min(bytes, o.receive_bytes);
            e.opcode = kind == 2 ? MLX5_OPCODE_SEND : MLX5_OPCODE_SEND_IMM;
            s.qp.send(local, s.m.key, length, e.opcode, 1000 + e.index);
            const uint8_t opcode = kind == 2 ? MLX5_CQE_RESP_SEND : MLX5_CQE_RESP_SEND_IMM;
            o.arrivals.push_back({opcode, length, kind == 2 ? 0 : 1000 + e.index, from, true});
        } else {
            const uint32_t room = kind == 4 ? std::max(1u, bytes) : 8;
            e.where = s.result() + s.result_at;
            s.result_at = (s.result_at + room + 7) / 8 * 8;
            s.qp.control(s.qp.producer,
                         kind == 4   ? MLX5_OPCODE_RDMA_READ
                         : kind == 5 ? MLX5_OPCODE_ATOMIC_FA
                                     : MLX5_OPCODE_ATOMIC_CS,
                         kind == 4 ? 3 : 4);
            if (kind == 4) {
                e.opcode = MLX5_OPCODE_RDMA_READ;
                s.qp.remote(s.qp.producer, o.at(o.fixed() + to), o.m.key);
                s.qp.data(s.qp.producer, 2, s.at(e.where), room, s.m.key);
                e.bytes.assign(o.fixed() + to, o.fixed() + to + room);
            } else {
                const uint32_t n = pick(COUNTERS);
                const uint64_t before = o.counters[n], operand = 1 + pick(1000),
                               compare = pick(2) ? before : before + 1;
                uint8_t* seg = s.qp.segment(s.qp.producer, 2);
                e.opcode = kind == 5 ? MLX5_OPCODE_ATOMIC_FA : MLX5_OPCODE_ATOMIC_CS;
                s.qp.remote(s.qp.producer, o.at(reinterpret_cast<uint8_t*>(o.count(n))), o.m.key);
                GDA_SET(wqe_atomic_seg, seg, swap_add, operand);
                GDA_SET(wqe_atomic_seg, seg, compare, kind == 5 ? 0 : compare);
                s.qp.data(s.qp.producer, 3, s.at(e.where), 8, s.m.key);
                if (kind == 5) o.counters[n] += operand;
                if (kind == 6 && compare == before) o.counters[n] = operand;
                e.bytes.resize(8);
                std::memcpy(e.bytes.data(), &before, 8);
            }
            s.qp.last = s.qp.producer++;
        }
        s.outstanding.push_back(std::move(e));
    }
    // Takes completions. False: one was wrong.
    bool reap(Side& s, Side& o) {
        while (const uint8_t* entry = s.send_cq.poll()) {
            if (s.outstanding.empty()) return wrong(s, "a completion of nothing");
            const Side::Expected e = std::move(s.outstanding.front());
            s.outstanding.pop_front();
            if (opcode_of(entry) != MLX5_CQE_REQ) return wrong(s, "an error completion");
            if (index_of(entry) != e.index) return wrong(s, "completions out of order");
            if (!e.bytes.empty() && std::memcmp(e.where, e.bytes.data(), e.bytes.size()) != 0) {
                return wrong(s, e.opcode == MLX5_OPCODE_RDMA_READ ? "read data" : "the result of an atomic");
            }
        }
        while (const uint8_t* entry = s.receive_cq.poll()) {
            if (s.arrivals.empty()) return wrong(s, "a receive of nothing");
            const Side::Arrival a = s.arrivals.front();
            s.arrivals.pop_front();
            if (opcode_of(entry) != a.opcode) return wrong(s, "the kind of a receive");
            if (GDA_GET(cqe64, entry, byte_cnt) != a.bytes) return wrong(s, "the length of a receive");
            if (a.immediate && GDA_GET(cqe64, entry, imm_inval_pkey) != a.immediate) return wrong(s, "immediate data");
            const uint8_t* where = s.inbox() + s.taken % RECEIVES * s.receive_bytes;
            if (a.data && std::memcmp(where, o.source() + a.from, a.bytes) != 0) return wrong(s, "received bytes");
            ++s.taken;
        }
        return true;
    }
    bool wrong(Side& s, const char* what) {
        std::printf("  NIC %u: wrong: %s\n", s.nic.device.slot(), what);
        s.nic.print_report();
        return false;
    }
    bool run() {
        for (uint32_t round = 0; round < 3; ++round) {
            const uint32_t work = 1 + pick(20);
            x.result_at = y.result_at = 0;
            for (uint32_t i = 0; i < work; ++i) {
                if (pick(2)) post(x, y);
                if (pick(2)) post(y, x);
            }
            post_receives(x, pick(RECEIVES)), post_receives(y, pick(RECEIVES));
            if (!x.outstanding.empty()) x.qp.ring();
            if (!y.outstanding.empty()) y.qp.ring();
            for (uint32_t steps = 0; !x.outstanding.empty() || !y.outstanding.empty(); ++steps) {
                const int done = x.nic.device.step();
                if (!reap(x, y) || !reap(y, x)) return false;
                if (steps % 50 == 49 || !done) post_receives(x, 1 + pick(3)), post_receives(y, 1 + pick(3));
                if (steps > 200000) return wrong(x.outstanding.empty() ? y : x, "stuck");
            }
        }
        for (Side* s : {&x, &y}) {
            if (std::memcmp(s->target(), s->model.data(), AREA) != 0) return wrong(*s, "written bytes");
            for (uint32_t i = 0; i < COUNTERS; ++i) {
                if (*s->count(i) != s->counters[i]) return wrong(*s, "a counter");
            }
            if (!s->arrivals.empty()) return wrong(*s, "a message that never came");
        }
        return true;
    }
    std::mt19937 random;
    bool drawn = false;
    Options drawn_options;
    Side x, y;
};

// True: all were right. Says which seed was not, so that it can be run alone.
bool seeds(uint32_t first, uint32_t count, const char* faults, bool tested = true) {
    sim::Device::set_virtual_time(true);
    bool right = true;
    uint64_t resent = 0, duplicates = 0;
    {
        Nic a, b;
        for (uint32_t seed = first; right && seed < first + count; ++seed) {
            Experiment e(a, b, seed, faults);
            right = e.run() && !failures;
            if (!right) std::printf("  seed %u\n", seed);
        }
        resent = a.device.counter("packets_resent") + b.device.counter("packets_resent");
        duplicates = a.device.counter("duplicates") + b.device.counter("duplicates");
    }
    std::printf("  %u seeds from %u: %llu packets sent again, %llu requests received again\n", count, first,
                static_cast<unsigned long long>(resent), static_cast<unsigned long long>(duplicates));
    if (tested && (!resent || !duplicates)) right = false;  // nothing was put to the test
    sim::Device::set_virtual_time(false);
    return right;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 3 && std::string(argv[1]) == "seeds") {
        const uint32_t first = static_cast<uint32_t>(std::atoi(argv[2])),
                       count = static_cast<uint32_t>(std::atoi(argv[3]));
        return seeds(first, count, argc > 4 ? argv[4] : FAULTS) ? 0 : 1;
    }
    const char* few = std::getenv("GDA_TEST_ONE_SEED_IN");  // for instrumented builds, which are slow
    static const uint32_t part = few ? static_cast<uint32_t>(std::max(1, std::atoi(few))) : 1;
    const Cases cases = {
        {"right_without_faults", [] { CHECK(seeds(1, 50 / part, "drop=0%", false)); }},
        {"right_under_loss_duplication_and_reorder", [] { CHECK(seeds(1, 300 / part, FAULTS)); }},
        {"right_under_corruption_and_delay", [] { CHECK(seeds(1000, 60 / part, "corrupt=3%,delay=5us,jitter=20us")); }},
    };
    return run(cases, argc, argv);
}
