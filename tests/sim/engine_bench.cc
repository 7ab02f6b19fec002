// SPDX-License-Identifier: Apache-2.0
// How fast the engine is when the program steps it: one process, two RC queue pairs of one NIC, queues in plain memory.
// Prints post-to-completion of 8 bytes, rate with 30 in flight, and bandwidth of large writes. Run by hand and by
// tests/sim/test_engine.py (which asserts no times, only that it runs).

#include <algorithm>

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

// Two NICs over the shared-memory link, both stepped by this thread: what the link itself costs.
void between_nics() {
    Nic a, b;
    Queue a_cq(a), b_cq(b);
    Pair x(a, a_cq), y(b, b_cq);
    connect(x, y);
    Pages source(1 << 20), target(1 << 20);
    Memory src(a, source.address(), 1 << 20), dst(b, target.address(), 1 << 20);
    for (uint32_t bytes : {8u, 1048576u}) {
        const int count = bytes == 8 ? 100000 : 1000;
        const uint64_t begin = now_ns();
        for (int i = 0; i < count; ++i) {
            x.write(target.address(), dst.key, source.address(), src.key, bytes);
            x.ring();
            while (!a_cq.poll()) {
                a.device.step();
                b.device.step();
            }
        }
        const double each = static_cast<double>(now_ns() - begin) / count;
        std::printf("%7u-byte writes to another NIC of the host: %.0f ns, %.1f GB/s\n", bytes, each, bytes / each);
    }
}

// Reads and fetch-adds of 8 bytes, one after the other.
void fetches(World& w, int rounds) {
    for (uint32_t opcode :
         {static_cast<uint32_t>(MLX5_OPCODE_RDMA_READ), static_cast<uint32_t>(MLX5_OPCODE_ATOMIC_FA)}) {
        const bool atomic = opcode == MLX5_OPCODE_ATOMIC_FA;
        const uint64_t begin = now_ns();
        for (int i = 0; i < rounds; ++i) {
            w.a.control(w.a.producer, opcode, atomic ? 4 : 3);
            w.a.remote(w.a.producer, w.target.address(), w.dst.key);
            w.a.data(w.a.producer, atomic ? 3 : 2, w.source.address(), 8, w.src.key);
            w.a.last = w.a.producer++;
            w.a.ring();
            while (!w.a_cq.poll()) w.nic.device.step();
        }
        std::printf("8-byte %s, post to completion: %.0f ns\n", atomic ? "fetch-adds" : "reads",
                    static_cast<double>(now_ns() - begin) / rounds);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const int scale = argc > 1 ? std::atoi(argv[1]) : 100;  // per cent of the rounds
    Options o;
    o.log_sq = 7;
    World w(o, Options(), 8, false, false, 4 << 20);
    const auto latency = [&](const char* who, int rounds, bool step) {
        rounds = rounds * scale / 100;
        std::vector<uint32_t> times;
        for (int i = 0; i < rounds; ++i) {
            const uint64_t begin = now_ns();
            w.write(8);
            w.a.ring();
            while (!w.a_cq.poll()) {
                if (step) w.nic.device.step();
            }
            times.push_back(static_cast<uint32_t>(now_ns() - begin));
        }
        std::sort(times.begin(), times.end());
        std::printf("8-byte write, post to completion, %s: median %u ns, 99 %% %u ns\n", who, times[times.size() / 2],
                    times[times.size() * 99 / 100]);
    };
    latency("stepped by the poller", 200000, true);
    w.nic.device.set_thread(sim::Device::Thread::adaptive);
    latency("stepped by the poller beside the thread", 100000, true);
    latency("moved by the thread alone", 2000, false);
    w.nic.device.set_thread(sim::Device::Thread::off);

    for (uint32_t flight : {30u}) {
        uint64_t begin = now_ns();
        uint32_t posted = 0, done = 0;
        const uint32_t total = 20000 * static_cast<uint32_t>(scale);
        while (done < total) {
            while (posted < total && posted - done < flight) w.write(8), ++posted;
            w.a.ring();
            w.nic.device.step();
            while (w.a_cq.poll()) ++done;
        }
        std::printf("8-byte writes, %u in flight: %.2f M/s\n", flight,
                    total * 1e3 / static_cast<double>(now_ns() - begin));
    }
    for (uint32_t bytes : {4096u, 65536u, 1048576u, 4194304u}) {
        const int count = static_cast<int>(std::max<uint64_t>(20, (5ull << 20) * static_cast<uint32_t>(scale) / bytes));
        uint64_t begin = now_ns();
        for (int i = 0; i < count; ++i) {
            w.write(bytes);
            w.a.ring();
            while (!w.a_cq.poll()) w.nic.device.step();
        }
        std::printf("%7u-byte writes: %.1f GB/s\n", bytes,
                    static_cast<double>(bytes) * count / static_cast<double>(now_ns() - begin));
    }
    fetches(w, 100000 * scale / 100);
    between_nics();
    return failures ? 1 : 0;
}
