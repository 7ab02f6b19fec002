// SPDX-License-Identifier: Apache-2.0
// Faults of a network that people reported, with the right outcome of each, and a table of what loss and reorder cost.
// Virtual time and seeded faults: each is the same every time.
//   engine_network_test table     prints the table that tests/sim/fault_matrix.txt keeps

#include "tests/sim/engine_expect.h"

using namespace rig;

namespace {

const double MS = 1e6;

// Two NICs of this process in virtual time, a queue pair each, and memory on both sides.
struct Network {
    explicit Network(Options o = Options())
        : time(),
          a_cq(a, 8),
          b_cq(b, 8),
          x(a, a_cq, &a_cq, o),
          y(b, b_cq, &b_cq, o),
          local(SIZE),
          remote(SIZE),
          l(a, local.address(), SIZE),
          r(b, remote.address(), SIZE) {
        connect(x, y);
    }
    struct Time {
        Time() { sim::Device::set_virtual_time(true); }
        ~Time() { sim::Device::set_virtual_time(false); }
    };
    void faults(Nic& nic, const std::string& plan) {
        std::string problem;
        if (nic.device.set_faults(plan, &problem)) return;
        std::printf("  %s\n", problem.c_str());
        CHECK(false);
    }
    uint64_t* word(Pages& p, uint32_t i = 0) { return reinterpret_cast<uint64_t*>(p.p) + i; }
    void post_atomic(uint32_t opcode, uint64_t operand, uint64_t compare = 0, uint32_t result = 0) {
        x.control(x.producer, opcode, 4);
        x.remote(x.producer, remote.address(), r.key);
        GDA_SET(wqe_atomic_seg, x.segment(x.producer, 2), swap_add, operand);
        GDA_SET(wqe_atomic_seg, x.segment(x.producer, 2), compare, compare);
        x.data(x.producer, 3, local.address() + 8 * result, 8, l.key);
        x.last = x.producer++;
    }
    // Steps until the completion comes or time has nothing left to bring.
    const uint8_t* wait() {
        const uint8_t* e = nullptr;
        while (!(e = a_cq.poll()) && a.device.step()) {
        }
        return e;
    }
    double ms() const { return static_cast<double>(sim::Device::now_ns() - begin) / MS; }
    enum : size_t { SIZE = 4 << 20 };
    Time time;
    uint64_t begin = sim::Device::now_ns();
    Nic a, b;
    Queue a_cq, b_cq;
    Pair x, y;
    Pages local, remote;
    Memory l, r;
};

void lost_answer_of_an_atomic_does_not_repeat_it() {
    Network n;
    *n.word(n.remote) = 100;
    n.faults(n.b, "drop result nth=1");
    n.post_atomic(MLX5_OPCODE_ATOMIC_FA, 5);
    n.x.ring();
    CHECK_EQ(opcode_of(n.wait()), MLX5_CQE_REQ);
    CHECK_EQ(*n.word(n.remote), 105);
    CHECK_EQ(*n.word(n.local), 100);
    CHECK_EQ(n.b.device.counter("atomic_requests"), 1);
    CHECK_EQ(n.b.device.counter("duplicates"), 1);
    CHECK_EQ(n.a.device.counter("packets_resent"), 1);
    *n.word(n.remote) = 100;
    n.faults(n.b, "drop result nth=1");
    n.post_atomic(MLX5_OPCODE_ATOMIC_CS, 7, 100);
    n.x.ring();
    CHECK_EQ(opcode_of(n.wait()), MLX5_CQE_REQ);
    CHECK_EQ(*n.word(n.remote), 7);
    CHECK_EQ(*n.word(n.local), 100);
}

void no_answer_to_an_atomic_leaves_the_result_alone() {
    Network n;
    *n.word(n.remote) = 100;
    *n.word(n.local) = 0x1111;
    n.faults(n.b, "drop answer");
    n.post_atomic(MLX5_OPCODE_ATOMIC_FA, 5);
    n.x.ring();
    const uint8_t* e = n.wait();
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK_EQ(vendor_of(e), 0x81);
    CHECK_EQ(*n.word(n.remote), 105);
    CHECK_EQ(*n.word(n.local), 0x1111);
    CHECK_EQ(n.a.device.counter("packets_sent"), 8);
    CHECK(n.a.said("the operation may have taken effect"));
}

void sixteen_atomics_on_their_way_each_lose_their_answer_once() {
    Options o;
    o.log_requests = o.log_replies = 4;
    Network n(o);
    std::string plan;
    for (int i = 0; i < 16; ++i) plan += "drop result psn=" + std::to_string(0x100 + i) + " first=1;";
    n.faults(n.b, plan);
    for (uint32_t i = 0; i < 16; ++i) n.post_atomic(MLX5_OPCODE_ATOMIC_FA, 5, 0, i);
    n.x.ring();
    for (uint32_t i = 0; i < 16; ++i) {
        CHECK_EQ(opcode_of(n.wait()), MLX5_CQE_REQ);
        CHECK_EQ(*n.word(n.local, i), 5 * i);
    }
    CHECK_EQ(*n.word(n.remote), 80);
    CHECK_EQ(n.b.device.counter("fault_dropped"), 16);
    CHECK_EQ(n.b.device.counter("atomic_requests"), 16);
}

void path_mtu_larger_than_the_link() {
    Options o;
    o.mtu = MLX5_QPC_MTU_4K_BYTES;
    Network n(o);
    for (Nic* nic : {&n.a, &n.b}) CHECK_EQ(nic->device.set_link_mtu(1500), 0);
    const uint32_t ipv6 = 1420;  // 1500 - 40 - 8 - 12 - 16 - 4; over IPv4 twenty more
    n.x.write(n.remote.address(), n.r.key, n.local.address(), n.l.key, ipv6);
    n.x.ring();
    CHECK_EQ(opcode_of(n.wait()), MLX5_CQE_REQ);
    const double begin = n.ms();
    n.x.write(n.remote.address(), n.r.key, n.local.address(), n.l.key, ipv6 + 1);
    n.x.ring();
    const uint8_t* e = n.wait();
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK_EQ(vendor_of(e), 0x81);
    CHECK_EQ(n.x.state(), MLX5_QPC_STATE_ERR);
    CHECK_EQ(n.a.device.counter("packets_over_link_mtu"), 8);
    CHECK(n.ms() - begin > 536.8 && n.ms() - begin < 537.0);
}

struct Row {
    const char *loss, *reorder;
    uint32_t bytes, outstanding;
};

// Writes until 4 MiB or 64 messages are done, so many of them at once.
void row(const Row& r) {
    Network n;
    const std::string plan = std::string("drop=") + r.loss + ",reorder=" + r.reorder + ":3,delay=2us,rate=100Gb,seed=1";
    n.faults(n.a, plan), n.faults(n.b, plan);
    const uint32_t messages = std::max(8u, std::min(64u, static_cast<uint32_t>(Network::SIZE) / r.bytes));
    for (size_t i = 0; i < Network::SIZE; ++i) n.local.p[i] = static_cast<uint8_t>(i * 31 + (i >> 9));
    uint32_t posted = 0, done = 0;
    bool good = true;
    const uint64_t most = Network::SIZE / r.bytes;
    while (done < messages && good) {
        bool ring = false;
        for (; posted < messages && posted - done < r.outstanding; ++posted, ring = true) {
            const uint64_t at = posted % most * r.bytes;
            n.x.write(n.remote.address() + at, n.r.key, n.local.address() + at, n.l.key, r.bytes);
        }
        if (ring) n.x.ring();
        good = opcode_of(n.wait()) == MLX5_CQE_REQ;
        done += good;
    }
    CHECK(good);
    CHECK(std::memcmp(n.remote.p, n.local.p, std::min<uint64_t>(messages, most) * r.bytes) == 0);
    const auto of = [](Nic& nic, const char* name) {
        return static_cast<unsigned long long>(nic.device.counter(name));
    };
    std::printf("%5s %8s %9u %12u %9u %8llu %7llu %6llu %9llu %11llu %10.3f\n", r.loss, r.reorder, r.bytes,
                r.outstanding, done, of(n.a, "packets_sent"), of(n.a, "packets_resent"), of(n.b, "naks_sent"),
                of(n.a, "retries"), of(n.b, "duplicates"), n.ms());
}

void table() {
    std::printf("%5s %8s %9s %12s %9s %8s %7s %6s %9s %11s %10s\n", "loss", "reorder", "bytes", "outstanding",
                "completed", "packets", "resent", "NAKs", "retries", "duplicates", "virtual ms");
    for (const char* loss : {"0%", "1%", "5%"}) {
        for (const char* reorder : {"0%", "5%"}) {
            for (uint32_t bytes : {8u, 4096u, 65536u, 1048576u}) {
                for (uint32_t outstanding : {1u, 16u}) row({loss, reorder, bytes, outstanding});
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && std::string(argv[1]) == "table") return table(), failures != 0;
    const Cases cases = {
        {"lost_answer_of_an_atomic_does_not_repeat_it", lost_answer_of_an_atomic_does_not_repeat_it},
        {"no_answer_to_an_atomic_leaves_the_result_alone", no_answer_to_an_atomic_leaves_the_result_alone},
        {"sixteen_atomics_on_their_way_each_lose_their_answer_once",
         sixteen_atomics_on_their_way_each_lose_their_answer_once},
        {"path_mtu_larger_than_the_link", path_mtu_larger_than_the_link},
    };
    return run(cases, argc, argv);
}
