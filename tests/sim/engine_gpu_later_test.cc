// SPDX-License-Identifier: Apache-2.0
// What the engine leaves to the GPU, against the fake driver of fake_libcuda.cc, which works when the test lets it:
// nothing completes before its copy is done, order of a queue pair, overlap, failures, the way round a full GPU.

#include "tests/sim/engine_rig.h"
#include "tests/sim/fake_gpu.h"

using namespace rig;

namespace {

FakeGpu gpu;

const uint32_t MIB = 1 << 20;

void fill(uint64_t at, uint32_t bytes, uint32_t seed) {
    for (uint32_t i = 0; i < bytes; ++i) gpu.view(at)[i] = static_cast<uint8_t>(i * 7 + seed * 13 + (i >> 8));
}

// A NIC with a connected pair, and two halves of GPU memory under one key.
struct Gpu : World {
    explicit Gpu(Options a = Options(), Options b = Options())
        : World(a, b, 8), x(gpu.allocate(0)), y(gpu.allocate(16 * MIB)), gx(nic, x, 16 * MIB), gy(nic, y, 16 * MIB) {
        std::memset(gpu.view(x), 0, 32 * MIB);
        while (gpu.run(200) > 0) {  // the first launch of the kernel ends
        }
    }
    // The engine does what it can before the GPU does anything. It asks the GPU now and then, by the clock: that moves
    // nothing here, so it is no matter how long this takes.
    void settle_steps(int n = 20) {
        gpu.hold(1);
        for (int i = 0; i < n; ++i) nic.device.step();
        gpu.hold(0);
    }
    const uint8_t* wait(Queue& cq) {
        const uint8_t* e = nullptr;
        CHECK(nic.until([&] { return gpu.run(3), (e = cq.poll()) != nullptr; }));
        return e;
    }
    uint64_t x, y;
    Memory gx, gy;
};

// Large puts are all on their way before the first is done, and none completes before it is.
void large_puts_overlap() {
    Gpu w;
    fill(w.x, 8 * MIB, 1);
    const int copies = gpu.count(FakeGpu::within);
    for (uint32_t i = 0; i < 8; ++i) w.a.write(w.y + i * MIB, w.gy.key, w.x + i * MIB, w.gx.key, MIB);
    w.a.ring();
    w.settle_steps();
    CHECK_EQ(gpu.count(FakeGpu::within) - copies, 8);
    CHECK(!w.a_cq.poll());
    for (uint32_t i = 0; i < 8; ++i) {
        CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
        CHECK(std::memcmp(gpu.view(w.x + i * MIB), gpu.view(w.y + i * MIB), MIB) == 0);
    }
    CHECK_EQ(w.nic.device.counter("gpu_copies"), 8);
    CHECK(w.nic.device.report().empty());
}

// Many small ones are one launch.
void small_puts_share_a_launch() {
    Gpu w;
    fill(w.x, 4096, 2);
    const int launches = gpu.count(FakeGpu::launches);
    for (uint32_t i = 0; i < 60; ++i) w.a.write(w.y + 64 * i, w.gy.key, w.x + 64 * i, w.gx.key, i % 3 ? 8 : 33);
    w.a.ring();
    w.settle_steps();
    CHECK(!w.a_cq.poll());
    for (uint32_t i = 0; i < 60; ++i) {
        CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
        CHECK(std::memcmp(gpu.view(w.x + 64 * i), gpu.view(w.y + 64 * i), i % 3 ? 8 : 33) == 0);
    }
    CHECK_EQ(gpu.count(FakeGpu::launches) - launches, 1);
    CHECK_EQ(w.nic.device.counter("gpu_items"), 60);
}

// A signal in host memory waits for payload in GPU memory; who has nothing to wait for goes on meanwhile.
void others_go_on() {
    Gpu w;
    Queue cq(w.nic);
    Pair other(w.nic, cq);
    other.connect(other.qpn);
    fill(w.x, 4096, 3);
    w.target.p[0] = w.target.p[4096] = 0;
    w.a.write(w.y, w.gy.key, w.x, w.gx.key, 4096);
    w.a.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 1);
    w.a.ring();
    other.write(w.target.address() + 4096, w.dst.key, w.source.address(), w.src.key, 1);
    other.ring();
    w.settle_steps();
    CHECK_EQ(opcode_of(cq.poll()), MLX5_CQE_REQ);
    CHECK_EQ(w.target.p[4096], w.source.p[0]);
    CHECK_EQ(w.target.p[0], 0);
    while (!w.target.p[0]) {
        w.nic.device.step();
        if (w.target.p[0]) CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.y), 4096) == 0);
        gpu.run(1);
    }
    CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
    CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
}

struct Random {
    uint64_t state;
    uint32_t operator()(uint32_t below) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return static_cast<uint32_t>(state >> 33) % below;
    }
};

// Payload and a signal behind it, again and again, of every kind and size: who sees the signal sees the payload, after
// each step of the GPU and of the engine. Values that atomics brought back are right.
void payload_before_signal(uint64_t seed) {
    Gpu w;
    gpu.seed(seed);
    Random random{seed * 0x9e3779b97f4a7c15u + 1};
    const uint32_t ROUNDS = 40, AREA = 160 * 1024, sizes[] = {4, 8, 24, 100, 4096, 70000, AREA};
    const uint64_t gpu_word = w.y + 12 * MIB, signals = w.x + 15 * MIB, results = w.x + 15 * MIB + 4096;
    uint64_t* host_word = reinterpret_cast<uint64_t*>(w.target.p);
    fill(w.x, AREA, static_cast<uint32_t>(seed));
    uint32_t bytes[ROUNDS], posted = 0, completed = 0, adds = 0;
    struct Fetched {
        uint64_t at, value;
    };
    std::vector<Fetched> fetched;
    const auto look = [&] {
        uint64_t seen = 0;
        std::memcpy(&seen, gpu.view(gpu_word), 8);
        seen = std::max(seen, __atomic_load_n(host_word, __ATOMIC_ACQUIRE));
        CHECK(seen <= posted);
        for (uint64_t i = 0; i < seen; ++i) {
            CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.y + i % 64 * AREA), bytes[i]) == 0);
        }
    };
    *host_word = 0;
    while (completed < 2 * ROUNDS && !failures) {
        if (posted < ROUNDS && random(3) == 0 && posted - completed / 2 < 20) {
            bytes[posted] = sizes[random(7)];
            w.a.write(w.y + posted % 64 * AREA, w.gy.key, w.x, w.gx.key, bytes[posted]);
            const uint64_t value = ++posted;
            std::memcpy(w.source.p + 8 * posted, &value, 8);
            std::memcpy(gpu.view(signals + 8 * posted), &value, 8);
            const bool on_gpu = random(2) != 0;
            const uint64_t to = on_gpu ? gpu_word : w.target.address();
            const uint32_t key = on_gpu ? w.gy.key : w.dst.key, kind = random(3);
            if (kind == 0) {  // from host memory, or from GPU memory
                w.a.write(to, key, w.source.address() + 8 * posted, w.src.key, 8);
            } else if (kind == 1) {
                w.a.write(to, key, signals + 8 * posted, w.gx.key, 8);
            } else {  // an atomic of its own word; then it is no signal
                const uint64_t at = results + 8 * posted, word = on_gpu ? gpu_word + 64 : w.target.address() + 64;
                w.a.control(w.a.producer, MLX5_OPCODE_ATOMIC_FA, 4);
                w.a.remote(w.a.producer, word, key);
                GDA_SET(wqe_atomic_seg, w.a.segment(w.a.producer, 2), swap_add, on_gpu ? 3 : 0);
                w.a.data(w.a.producer, 3, at, 8, w.gx.key);
                w.a.last = w.a.producer++;
                fetched.push_back({at, on_gpu ? 3 * uint64_t{adds} : 0});
                adds += on_gpu;
            }
            w.a.ring();
        }
        if (random(2)) w.nic.device.step();
        look();
        if (random(2)) gpu.run(1 + static_cast<int>(random(4)));
        look();
        if (const uint8_t* e = w.a_cq.poll()) {
            CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
            const uint32_t round = completed++ / 2;
            CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.y + round % 64 * AREA), bytes[round]) == 0);
        }
    }
    for (const Fetched& f : fetched) {
        uint64_t value;
        std::memcpy(&value, gpu.view(f.at), 8);
        CHECK_EQ(value, f.value);
    }
    CHECK(w.nic.device.report().empty());
    CHECK_EQ(gpu.count(FakeGpu::bad_accesses), 0);
}

void order_of_a_queue_pair() {
    for (uint64_t seed = 1; seed <= 150 && !failures; ++seed) {
        payload_before_signal(seed);
        if (failures) std::printf("  seed %llu\n", static_cast<unsigned long long>(seed));
    }
}

// Of puts to one place the last one stays; those beside it may be there at once.
void same_place() {
    Gpu w;
    Random random{3};
    for (uint64_t seed = 1; seed <= 100 && !failures; ++seed) {
        gpu.seed(seed);
        uint64_t expected[8] = {};
        std::memset(gpu.view(w.y), 0, 64);
        for (uint32_t i = 0; i < 20; ++i) {
            const uint64_t value = seed * 100 + i, place = random(8);
            std::memcpy(gpu.view(w.x + 8 * i), &value, 8);
            w.a.write(w.y + 8 * place, w.gy.key, w.x + 8 * i, w.gx.key, 8);
            expected[place] = value;
        }
        w.a.ring();
        for (uint32_t i = 0; i < 20; ++i) CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
        CHECK(std::memcmp(gpu.view(w.y), expected, 64) == 0);
    }
}

uint32_t get(Pair& p, uint64_t from, uint32_t rkey, uint64_t to, uint32_t lkey, uint32_t bytes) {
    p.control(p.producer, MLX5_OPCODE_RDMA_READ, 3);
    p.remote(p.producer, from, rkey);
    p.data(p.producer, 2, to, bytes, lkey);
    p.last = p.producer++;
    return p.last;
}

// A get sees what was put before it, and completes when its data is there; another one overlaps with it.
void gets() {
    Gpu w;
    for (uint64_t seed = 1; seed <= 40 && !failures; ++seed) {
        gpu.seed(seed);
        for (uint32_t bytes : {8u, 200u, 5000u, 300000u}) {
            std::memset(gpu.view(w.y), 0, 2 * MIB);
            fill(w.x, bytes, bytes + static_cast<uint32_t>(seed));
            w.a.write(w.y, w.gy.key, w.x, w.gx.key, bytes);
            get(w.a, w.y, w.gy.key, w.x + 4 * MIB, w.gx.key, bytes);
            get(w.a, w.y, w.gy.key, w.x + 6 * MIB, w.gx.key, bytes);
            w.a.ring();
            w.settle_steps();
            CHECK(!w.a_cq.poll());
            CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
            CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.y), bytes) == 0);
            CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
            CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.x + 4 * MIB), bytes) == 0);
            CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
            CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.x + 6 * MIB), bytes) == 0);
        }
    }
}

// A receiver is told when what was sent, or written with immediate data, is there.
void receives() {
    Options b;
    b.receives = true;
    Gpu w(Options(), b);
    fill(w.x, 4096, 9);
    w.b.post_receive(w.y, 4096, w.gy.key);
    w.b.post_receive(w.y + 8192, 0, w.gy.key);
    w.a.write(w.y + 65536, w.gy.key, w.x, w.gx.key, 2000);
    w.a.send(w.x, w.gx.key, 4096);
    w.a.write(w.y + 8192, w.gy.key, w.x, w.gx.key, 4096, CE_ALWAYS, MLX5_OPCODE_RDMA_WRITE_IMM, 77);
    w.a.ring();
    CHECK_EQ(opcode_of(w.wait(w.b_cq)), MLX5_CQE_RESP_SEND);
    CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.y), 4096) == 0);
    CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.y + 65536), 2000) == 0);
    CHECK_EQ(opcode_of(w.wait(w.b_cq)), MLX5_CQE_RESP_WR_IMM);
    CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.y + 8192), 4096) == 0);
    CHECK(w.nic.device.report().empty());
}

// Masked and plain atomics on a GPU, of 8 and 4 bytes, as apply() of engine/atomic.cc has them on the host.
void atomics() {
    Gpu w;
    Random random{5};
    for (int i = 0; i < 200 && !failures; ++i) {
        const uint64_t was = random(2) ? random(4) : 0xffffffff00000000u | random(1000), operand = random(100) - 50u;
        const uint64_t compare = random(2) ? was : was + 1;
        std::memcpy(gpu.view(w.y), &was, 8);
        std::memcpy(w.target.p, &was, 8);
        const uint32_t opcode = random(2) ? MLX5_OPCODE_ATOMIC_CS : MLX5_OPCODE_ATOMIC_FA;
        for (int place = 0; place < 2; ++place) {
            w.a.control(w.a.producer, opcode, 4);
            w.a.remote(w.a.producer, place ? w.target.address() : w.y, place ? w.dst.key : w.gy.key);
            GDA_SET(wqe_atomic_seg, w.a.segment(w.a.producer, 2), swap_add, operand);
            GDA_SET(wqe_atomic_seg, w.a.segment(w.a.producer, 2), compare, compare);
            w.a.data(w.a.producer, 3, w.source.address() + 8 * place, 8, w.src.key);
            w.a.last = w.a.producer++;
        }
        w.a.ring();
        CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
        CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
        CHECK(std::memcmp(w.source.p, w.source.p + 8, 8) == 0);
        CHECK(std::memcmp(gpu.view(w.y), w.target.p, 8) == 0);
    }
}

// Kernels fill the GPU, and the NIC was told: what was on its way ends first, then all goes by pinned memory.
void full_gpu_that_is_told() {
    Gpu w;
    fill(w.x, 2 * MIB, 4);
    w.a.write(w.y, w.gy.key, w.x, w.gx.key, 8);
    w.a.write(w.y + MIB, w.gy.key, w.x + MIB, w.gx.key, MIB);
    w.a.ring();
    w.settle_steps(3);
    w.nic.device.set_gpu_staging(true);
    CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.y), 8) == 0);
    const int launches = gpu.count(FakeGpu::launches), copies = gpu.count(FakeGpu::within);
    gpu.fill(1);
    for (uint32_t bytes : {8u, 4096u, MIB}) w.a.write(w.y + 2 * MIB, w.gy.key, w.x, w.gx.key, bytes);
    w.a.ring();
    for (int i = 0; i < 5; ++i) CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
    CHECK(std::memcmp(gpu.view(w.x), gpu.view(w.y + 2 * MIB), MIB) == 0);
    CHECK_EQ(gpu.count(FakeGpu::launches), launches);
    CHECK_EQ(gpu.count(FakeGpu::within), copies);
    gpu.fill(0);
    w.nic.device.set_gpu_staging(false);
    w.a.write(w.y + 4 * MIB, w.gy.key, w.x, w.gx.key, 8);
    w.a.ring();
    CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
    CHECK_EQ(gpu.count(FakeGpu::launches), launches + 1);
    CHECK(w.nic.device.report().empty());
}

// Not told: an error that says what to do. A signal behind it is not stored.
void full_gpu_that_is_not_told() {
    Gpu w;
    w.target.p[0] = 0;
    gpu.fill(1);
    w.a.write(w.y, w.gy.key, w.x, w.gx.key, 8);
    w.a.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 1);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.a_cq.wait(10000000000u)), MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
    CHECK_EQ(syndrome_of(w.wait(w.a_cq)), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    CHECK(w.nic.said("did not finish within 2 s") && w.nic.said("staging"));
    CHECK_EQ(w.target.p[0], 0);
    gpu.fill(0);
}

// Memory that CUDA does not know any more is never touched by the kernel.
void freed_memory() {
    Gpu w;
    gpu.free(w.y, 4096);
    w.a.write(w.y + 8, w.gy.key, w.x, w.gx.key, 8);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.wait(w.a_cq)), MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
    CHECK(w.nic.said("CUDA knows no memory there"));
    Gpu other;
    gpu.free(other.x + 4096, 4096);
    other.a.write(other.y, other.gy.key, other.x + 4000, other.gx.key, 200);
    other.a.ring();
    CHECK_EQ(syndrome_of(other.wait(other.a_cq)), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    gpu.free(0, 0);
    CHECK_EQ(gpu.count(FakeGpu::bad_accesses), 0);
}

// The driver refuses a large copy, or a launch; another time the whole context is gone.
void refused_and_broken() {
    {
        Gpu w;
        gpu.refuse(0, 1);
        w.a.write(w.y, w.gy.key, w.x, w.gx.key, MIB);
        w.a.ring();
        CHECK_EQ(syndrome_of(w.wait(w.a_cq)), MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
        CHECK(w.nic.said("cuMemcpyDtoDAsync answered CUDA error 1"));
    }
    {
        Gpu w;
        gpu.refuse(1, 0);
        w.a.write(w.y, w.gy.key, w.x, w.gx.key, 8);
        w.a.ring();
        CHECK_EQ(syndrome_of(w.wait(w.a_cq)), MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
        CHECK(w.nic.said("cuLaunchKernel answered CUDA error 1"));
    }
    Gpu w;
    for (uint32_t bytes : {8u, MIB}) {
        Pair p(w.nic, w.a_cq);
        p.connect(p.qpn);
        p.write(w.y, w.gy.key, w.x, w.gx.key, bytes);
        p.ring();
        w.settle_steps(3);
        gpu.break_context(700);
        CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
        CHECK(w.nic.said("CUDA error 700"));
        gpu.break_context(0);
    }
}

// Once a key or a queue pair is gone, nobody writes its memory.
void destroyed_meanwhile() {
    Gpu w;
    {
        Memory own(w.nic, w.y + 8 * MIB, 4 * MIB);
        Pair p(w.nic, w.a_cq);
        p.connect(p.qpn);
        fill(w.x, 2 * MIB, 6);
        for (uint32_t i = 0; i < 8; ++i) p.write(w.y + 8 * MIB + 8 * i, own.key, w.x, w.gx.key, 8);
        p.write(w.y + 10 * MIB, own.key, w.x, w.gx.key, MIB);
        p.ring();
        w.settle_steps(3);
    }
    std::memset(gpu.view(w.y + 8 * MIB), 0, 4 * MIB);
    gpu.run(1000);
    for (uint32_t i = 0; i < 4 * MIB; ++i) CHECK_EQ(gpu.view(w.y + 8 * MIB)[i], 0);
}

// More than the ring holds, and more large copies than are let on their way.
void more_than_there_is_room_for() {
    Options o;
    o.log_sq = 13;
    Gpu w(o);
    w.a_cq.store_consumer = true;
    for (uint32_t i = 0; i < 8000; ++i) {
        const uint32_t bytes = i < 7000 ? 8 : 70000;
        w.a.write(w.y + i * 64, w.gy.key, w.x + i * 64, w.gx.key, bytes, i % 250 == 249 ? CE_ALWAYS : 0);
    }
    w.a.ring();
    for (uint32_t i = 0; i < 32; ++i) CHECK_EQ(opcode_of(w.wait(w.a_cq)), MLX5_CQE_REQ);
    CHECK_EQ(w.nic.device.counter("gpu_items"), 7000);
    CHECK(w.nic.device.report().empty());
}

}  // namespace

int main(int argc, char** argv) {
    if (!gpu.open()) return 2;
    const Cases cases = {
        {"large_puts_overlap", large_puts_overlap},
        {"small_puts_share_a_launch", small_puts_share_a_launch},
        {"others_go_on", others_go_on},
        {"order_of_a_queue_pair", order_of_a_queue_pair},
        {"same_place", same_place},
        {"gets", gets},
        {"receives", receives},
        {"atomics", atomics},
        {"full_gpu_that_is_told", full_gpu_that_is_told},
        {"full_gpu_that_is_not_told", full_gpu_that_is_not_told},
        {"freed_memory", freed_memory},
        {"refused_and_broken", refused_and_broken},
        {"destroyed_meanwhile", destroyed_meanwhile},
        {"more_than_there_is_room_for", more_than_there_is_room_for},
    };
    return run(cases, argc, argv);
}
