// SPDX-License-Identifier: Apache-2.0
// Case C6, signal before data: a large write, then a signal; the receiver looks at all bytes when it sees the signal.
// The rule is PCI Express': a relaxed write or relaxed atomic may pass earlier posted writes, a strict one may not.
// Over a transport that keeps no order between messages any signal may, unless it is sent when the data is there.

#include <algorithm>

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

const uint32_t BYTES = 1 << 20, PIECE = 4096, SEEDS = 100;

enum Way { IN_ORDER, UNORDERED, WHEN_DATA_IS_THERE };  // the last over an unordered transport as well

// Two NICs: reads of the sender push no writes of the receiver.
struct Link {
    Link(bool data_relaxed, bool signal_relaxed)
        : data(BYTES),
          signal(4096),
          source(BYTES + 4096),
          a_cq(a, 6),
          b_cq(b, 6),
          from(a, a_cq, &a_cq),
          to(b, b_cq, &b_cq),
          source_key(a, source.address(), BYTES + 4096),
          data_key(b, data.address(), BYTES, true, 0, true, data_relaxed),
          signal_key(b, signal.address(), 4096, true, 0, true, signal_relaxed) {
        connect(from, to);
        std::memset(source.p, 0xa5, BYTES);
    }
    uint64_t seen() const { return __atomic_load_n(reinterpret_cast<uint64_t*>(signal.p), __ATOMIC_ACQUIRE); }
    void completed() {
        const uint8_t* e = nullptr;
        CHECK(until([&] { return (e = a_cq.poll()) != nullptr; }));
        if (e) CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
    }
    bool until(const std::function<bool()>& done) {
        for (const uint64_t end = now_ns() + 20000000000u; !done();) {
            a.device.step();
            b.device.step();
            if (now_ns() > end) return false;
        }
        return true;
    }
    // A read of the data's last bytes.
    void flush() {
        from.write(data.address() + BYTES - 8, data_key.key, source.address() + BYTES, source_key.key, 8, CE_ALWAYS,
                   MLX5_OPCODE_RDMA_READ);
        from.ring();
        completed();
    }
    // How many pieces of the data are missing when the signal is seen.
    uint32_t missing(bool atomic, uint64_t seed, Way way) {
        std::memset(data.p, 0, BYTES);
        std::memset(signal.p, 0, 8);
        b.device.set_relaxed_ordering(true, seed);
        std::string problem;
        const std::string faults = way == IN_ORDER ? "" : "unordered,seed=" + std::to_string(seed);
        CHECK(b.device.set_faults(faults, &problem));
        from.write(data.address(), data_key.key, source.address(), source_key.key, BYTES,
                   way == WHEN_DATA_IS_THERE ? CE_ALWAYS : CE_ON_ERROR);
        if (way == WHEN_DATA_IS_THERE) {
            from.ring();
            completed();
            flush();
        }
        if (atomic) {
            const uint32_t index = from.producer;
            from.control(index, MLX5_OPCODE_ATOMIC_FA, 4);
            from.remote(index, signal.address(), signal_key.key);
            std::memset(from.segment(index, 2), 0, 16);
            GDA_SET(wqe_atomic_seg, from.segment(index, 2), swap_add, 1);
            from.data(index, 3, source.address() + BYTES - 8, 8, source_key.key);
            from.last = from.producer++;
        } else {
            from.write(signal.address(), signal_key.key, source.address(), source_key.key, 8);
        }
        from.ring();
        CHECK(until([&] { return seen() != 0; }));
        uint32_t old = 0;
        for (uint32_t at = 0; at < BYTES; at += PIECE) old += std::memcmp(data.p + at, source.p, PIECE - 8) != 0;
        completed();
        if (way != IN_ORDER) {  // the answer means that what came before it is there, for who looks behind a flush
            flush();
            for (uint32_t at = 0; at < BYTES; at += PIECE) CHECK_EQ(data.p[at], 0xa5);
        }
        b.device.set_relaxed_ordering(false, 0);  // shows the rest
        for (uint32_t at = 0; at < BYTES; at += PIECE) CHECK_EQ(data.p[at], 0xa5);
        return old;
    }
    Nic a, b;
    Pages data, signal, source;
    Queue a_cq, b_cq;
    Pair from, to;
    Memory source_key, data_key, signal_key;
};

// Each of them is a sentence, with what is missing.
uint32_t bad_seeds(bool data_relaxed, bool signal_relaxed, bool atomic, Way way = IN_ORDER) {
    Link link(data_relaxed, signal_relaxed);
    uint32_t bad = 0;
    for (uint32_t seed = 0; seed < SEEDS && !failures; ++seed) {
        link.b.device.clear_report();
        const uint32_t missing = link.missing(atomic, seed, way);
        bad += missing != 0;
        if (!missing) continue;
        char words[200];
        uint32_t told = 0;  // when it became visible; the receiver looks after the step
        for (const std::string& sentence : link.b.device.report()) {
            const size_t at = sentence.find("): ");
            if (sentence.find(": signal at ") == std::string::npos || at == std::string::npos) continue;
            std::snprintf(words, sizeof words, "%%u of %u packets (offset", BYTES / PIECE);
            CHECK_EQ(std::sscanf(sentence.c_str() + at + 3, words, &told), 1);
        }
        CHECK(told >= missing);
        std::snprintf(words, sizeof words, "not visible of an earlier write of %u bytes to 0x%llx (MR key 0x%x)", BYTES,
                      static_cast<unsigned long long>(link.data.address()), link.data_key.key);
        CHECK(link.b.said(words));
        std::snprintf(words, sizeof words, "MR key 0x%x, %s): ", link.signal_key.key,
                      signal_relaxed ? "relaxed" : "strict");
        CHECK(link.b.said(words));
        CHECK(link.b.said(way == IN_ORDER ? "signal through a key with strict ordering"
                                          : "signal after the data's completion, and a read as a flush"));
        if (failures) link.b.print_report();
    }
    CHECK_EQ(link.b.device.counter("writes_passed"), bad);
    return bad;
}

void strict_data_and_signal() { CHECK_EQ(bad_seeds(false, false, false), 0); }
void relaxed_data_and_strict_write() { CHECK_EQ(bad_seeds(true, false, false), 0); }
void relaxed_data_and_strict_atomic() { CHECK_EQ(bad_seeds(true, false, true), 0); }
void relaxed_data_and_relaxed_write() { CHECK(bad_seeds(true, true, false) > 0); }
void relaxed_data_and_relaxed_atomic() { CHECK(bad_seeds(true, true, true) > 0); }

void unordered_transport(bool atomic, Way way, bool missing) {
    for (bool data_relaxed : {false, true}) {
        for (bool signal_relaxed : {false, true}) {
            if (way == WHEN_DATA_IS_THERE && signal_relaxed) continue;
            CHECK_EQ(bad_seeds(data_relaxed, signal_relaxed, atomic, way) > 0, missing);
        }
    }
}
void any_write_over_an_unordered_transport() { unordered_transport(false, UNORDERED, true); }
void any_atomic_over_an_unordered_transport() { unordered_transport(true, UNORDERED, true); }
void strict_write_when_the_data_is_there() { unordered_transport(false, WHEN_DATA_IS_THERE, false); }
void strict_atomic_when_the_data_is_there() { unordered_transport(true, WHEN_DATA_IS_THERE, false); }

// What the seed decides is the same every time: the sentences, but for their times.
void same_seed_same_order() {
    std::vector<uint32_t> missing[2];
    for (std::vector<uint32_t>& found : missing) {
        Link link(false, false);
        for (uint32_t seed = 0; seed < 20; ++seed) found.push_back(link.missing(false, seed, UNORDERED));
    }
    CHECK(missing[0] == missing[1]);
    CHECK(std::count(missing[0].begin(), missing[0].end(), missing[0][0]) < 20);
}

// A receive is a signal, too: it is complete when its own message is there, whatever came before.
void a_receive_completes_before_earlier_writes() {
    Options receives;
    receives.receives = true;
    World w(Options(), receives);
    std::string problem;
    CHECK(w.nic.device.set_faults("unordered,seed=5", &problem));
    w.b.post_receive(w.target.address(), 0, w.dst.key);
    w.a.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 65536, CE_ON_ERROR);
    w.a.write(w.target.address() + 65536, w.dst.key, w.source.address() + 65536, w.src.key, 8192, CE_ALWAYS,
              MLX5_OPCODE_RDMA_WRITE_IMM, 7);
    w.a.ring();
    CHECK_EQ(opcode_of(w.b_cq.wait()), MLX5_CQE_RESP_WR_IMM);
    CHECK(std::memcmp(w.target.p + 65536, w.source.p + 65536, 8192) == 0);
    CHECK(w.nic.said("(completion of a receive): "));
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);  // acknowledged: all of it is there
    CHECK(w.same(65536));
}

// What is late goes to memory before its key ends, and before a completion of the receiver.
void nothing_is_late_after_the_key() {
    Pages target(65536);
    World w;
    {
        Memory relaxed(w.nic, target.address(), 65536, true, 0, true, true);
        w.nic.device.set_relaxed_ordering(true, 1);
        w.a.write(target.address(), relaxed.key, w.source.address(), w.src.key, 65536);
        w.a.ring();
        CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    }
    CHECK(std::memcmp(target.p, w.source.p, 65536) == 0);
}

void all_is_visible_at_once_by_default() {
    World w;
    Pages target(65536);
    Memory relaxed(w.nic, target.address(), 65536, true, 0, true, true);
    w.a.write(target.address(), relaxed.key, w.source.address(), w.src.key, 65536);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK(std::memcmp(target.p, w.source.p, 65536) == 0);
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"strict_data_and_signal", strict_data_and_signal},
            {"relaxed_data_and_strict_write", relaxed_data_and_strict_write},
            {"relaxed_data_and_strict_atomic", relaxed_data_and_strict_atomic},
            {"relaxed_data_and_relaxed_write", relaxed_data_and_relaxed_write},
            {"relaxed_data_and_relaxed_atomic", relaxed_data_and_relaxed_atomic},
            {"any_write_over_an_unordered_transport", any_write_over_an_unordered_transport},
            {"any_atomic_over_an_unordered_transport", any_atomic_over_an_unordered_transport},
            {"strict_write_when_the_data_is_there", strict_write_when_the_data_is_there},
            {"strict_atomic_when_the_data_is_there", strict_atomic_when_the_data_is_there},
            {"same_seed_same_order", same_seed_same_order},
            {"a_receive_completes_before_earlier_writes", a_receive_completes_before_earlier_writes},
            {"nothing_is_late_after_the_key", nothing_is_late_after_the_key},
            {"all_is_visible_at_once_by_default", all_is_visible_at_once_by_default},
        },
        argc, argv);
}
