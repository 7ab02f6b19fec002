// SPDX-License-Identifier: Apache-2.0
// Signal before data: a large write, then a signal; the receiver looks at all bytes when it sees the signal. The rule
// is PCI Express': a relaxed write or relaxed atomic may pass earlier posted writes, a strict one may not.

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

const uint32_t BYTES = 1 << 20, PIECE = 4096, SEEDS = 100;

// Two NICs: reads of the sender push no writes of the receiver.
struct Link {
    Link(bool data_relaxed, bool signal_relaxed)
        : data(BYTES),
          signal(4096),
          source(BYTES),
          a_cq(a, 6),
          b_cq(b, 6),
          from(a, a_cq, &a_cq),
          to(b, b_cq, &b_cq),
          source_key(a, source.address(), BYTES),
          data_key(b, data.address(), BYTES, true, 0, true, data_relaxed),
          signal_key(b, signal.address(), 4096, true, 0, true, signal_relaxed) {
        uint8_t gid[16];
        b.device.gid(1, gid);
        from.connect(to.qpn, gid);
        a.device.gid(1, gid);
        to.connect(from.qpn, gid);
        std::memset(source.p, 0xa5, BYTES);
    }
    uint64_t seen() const { return __atomic_load_n(reinterpret_cast<uint64_t*>(signal.p), __ATOMIC_ACQUIRE); }
    // How many pieces of the data are missing when the signal is seen.
    uint32_t missing(bool atomic, uint64_t seed) {
        std::memset(data.p, 0, BYTES);
        std::memset(signal.p, 0, 8);
        b.device.set_relaxed_ordering(true, seed);
        from.write(data.address(), data_key.key, source.address(), source_key.key, BYTES, CE_ON_ERROR);
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
        const uint64_t end = now_ns() + 20000000000u;
        while (!seen() && now_ns() < end) {
            a.device.step();
            b.device.step();
        }
        CHECK(seen() != 0);
        uint32_t old = 0;
        for (uint32_t at = 0; at < BYTES; at += PIECE) old += std::memcmp(data.p + at, source.p, PIECE - 8) != 0;
        const uint8_t* e = nullptr;
        while (!(e = a_cq.poll()) && now_ns() < end) {
            a.device.step();
            b.device.step();
        }
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
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

uint32_t bad_seeds(bool data_relaxed, bool signal_relaxed, bool atomic) {
    Link link(data_relaxed, signal_relaxed);
    uint32_t bad = 0;
    for (uint32_t seed = 0; seed < SEEDS && !failures; ++seed) bad += link.missing(atomic, seed) != 0;
    if (bad) {
        CHECK(link.b.said("became visible before"));
        CHECK(link.b.device.counter("writes_passed") > 0);
    }
    return bad;
}

void strict_data_and_signal() { CHECK_EQ(bad_seeds(false, false, false), 0); }
void relaxed_data_and_strict_write() { CHECK_EQ(bad_seeds(true, false, false), 0); }
void relaxed_data_and_strict_atomic() { CHECK_EQ(bad_seeds(true, false, true), 0); }
void relaxed_data_and_relaxed_write() { CHECK(bad_seeds(true, true, false) > 0); }
void relaxed_data_and_relaxed_atomic() { CHECK(bad_seeds(true, true, true) > 0); }

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
            {"nothing_is_late_after_the_key", nothing_is_late_after_the_key},
            {"all_is_visible_at_once_by_default", all_is_visible_at_once_by_default},
        },
        argc, argv);
}
