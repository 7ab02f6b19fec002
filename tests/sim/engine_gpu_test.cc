// SPDX-License-Identifier: Apache-2.0
// GPU memory as payload and as queues, against the fake driver of fake_libcuda.cc, whose path is GDA_TEST_FAKE_CUDA.

#include "tests/sim/engine_rig.h"
#include "tests/sim/fake_gpu.h"

using namespace rig;

namespace {

FakeGpu gpu;

const uint32_t BYTES = 9 << 20;  // more than twice the staging memory

// Puts between host and GPU memory in every direction; true when every byte came over.
bool moves(World& w, uint64_t to, uint32_t rkey, uint64_t from, uint32_t lkey, uint32_t bytes) {
    w.a.write(to, rkey, from, lkey, bytes);
    w.a.ring();
    const uint8_t* e = w.a_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
    return opcode_of(e) == MLX5_CQE_REQ;
}

void payload(bool staging) {
    World w(Options(), Options(), 6, false, false, BYTES);
    w.nic.device.set_gpu_staging(staging);
    const uint64_t x = gpu.allocate(0), y = gpu.allocate(16 << 20);
    Memory gx(w.nic, x, BYTES), gy(w.nic, y, BYTES);
    std::memset(gpu.view(x), 0, BYTES);
    std::memset(gpu.view(y), 0, BYTES);
    CHECK(gpu.count(FakeGpu::pinned) >= 1);
    const int pinned = gpu.count(FakeGpu::pinned);
    for (uint32_t bytes : {1u, 8u, 4096u, 65537u, BYTES}) {
        for (uint32_t i = 0; i < bytes; ++i) w.source.p[i] = static_cast<uint8_t>(i * 13 + bytes);
        const int before = gpu.count(FakeGpu::within);
        CHECK(moves(w, x, gx.key, w.source.address(), w.src.key, bytes));  // host to GPU
        CHECK(std::memcmp(gpu.view(x), w.source.p, bytes) == 0);
        CHECK(moves(w, y, gy.key, x, gx.key, bytes));  // GPU to GPU
        CHECK(std::memcmp(gpu.view(y), w.source.p, bytes) == 0);
        CHECK(moves(w, w.target.address(), w.dst.key, y, gy.key, bytes));  // GPU to host
        CHECK(w.same(bytes));
        CHECK_EQ(gpu.count(FakeGpu::within) - before, staging || bytes <= 4096 ? 0 : 1);  // small ones: by the kernel
    }
    CHECK_EQ(gpu.count(FakeGpu::pinned), pinned);  // nothing is allocated once a kernel may wait
    CHECK(w.nic.device.report().empty());
}

void payload_by_device_copies() { payload(false); }
void payload_by_staging() { payload(true); }

void inline_and_mixed_segments() {
    World w;
    const uint64_t x = gpu.allocate(0);
    Memory gx(w.nic, x, 4096);
    for (int i = 0; i < 100; ++i) gpu.view(x)[i] = static_cast<uint8_t>(i + 1);
    w.a.control(0, MLX5_OPCODE_RDMA_WRITE, 4);
    w.a.remote(0, x + 1000, gx.key);
    w.a.data(0, 2, x, 100, gx.key);
    w.a.data(0, 3, w.source.address(), 50, w.src.key);
    w.a.producer = 1;
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK(std::memcmp(gpu.view(x) + 1000, gpu.view(x), 100) == 0);
    CHECK(std::memcmp(gpu.view(x) + 1100, w.source.p, 50) == 0);
}

void queues_in_gpu_memory() {
    Nic nic;
    const uint64_t x = gpu.allocate(32 << 20);
    Queue cq(nic, 6, false, false, gpu.view(x), x);
    Options o;
    o.registered = x + 65536;
    o.at = gpu.view(o.registered);
    Pair p(nic, cq, nullptr, o);
    p.connect(p.qpn);
    Pages memory(8192);
    Memory m(nic, memory.address(), 8192);
    for (uint32_t i = 0; i < 300; ++i) {  // round both rings
        memory.p[0] = static_cast<uint8_t>(i);
        for (int n = 0; n < 3; ++n) p.write(memory.address() + 4096 + n, m.key, memory.address(), m.key, 1);
        p.ring();
        for (uint32_t n = 0; n < 3; ++n) {
            const uint8_t* e = cq.wait();
            CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
            CHECK_EQ(index_of(e), (3 * i + n) & 0xffff);
        }
        CHECK_EQ(memory.p[4098], i & 0xff);
        if (failures) return;
    }
    CHECK(nic.device.report().empty());
    p.move(MLX5_CMD_OP_2ERR_QP);
    p.write(memory.address(), m.key, memory.address(), m.key, 1);
    p.ring();
    CHECK_EQ(syndrome_of(cq.wait()), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

void to_another_nic() {
    Nic a, b;
    Queue a_cq(a), b_cq(b);
    Pair p(a, a_cq), q(b, b_cq);
    connect(p, q);
    const uint64_t x = gpu.allocate(0), y = gpu.allocate(16 << 20);
    const uint32_t bytes = 300001;
    Memory gx(a, x, bytes), gy(b, y, bytes);
    for (uint32_t i = 0; i < bytes; ++i) gpu.view(x)[i] = static_cast<uint8_t>(i * 5 + (i >> 9));
    p.write(y, gy.key, x, gx.key, bytes);
    p.ring();
    const uint8_t* e = nullptr;
    CHECK(a.until([&] { return b.device.step(), (e = a_cq.poll()) != nullptr; }));
    CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
    CHECK(std::memcmp(gpu.view(x), gpu.view(y), bytes) == 0);
}

uint32_t fetch(Pair& p, uint32_t opcode, uint64_t from, uint32_t rkey, uint64_t to, uint32_t lkey, uint32_t bytes) {
    const bool atomic = opcode != MLX5_OPCODE_RDMA_READ;
    p.control(p.producer, opcode, atomic ? 4 : 3);
    p.remote(p.producer, from, rkey);
    if (atomic) GDA_SET(wqe_atomic_seg, p.segment(p.producer, 2), swap_add, 5);
    p.data(p.producer, atomic ? 3 : 2, to, bytes, lkey);
    p.last = p.producer++;
    p.ring();
    return p.last;
}

// Reads of and into GPU memory, and atomics on it, on one NIC and from another one.
void fetches_of_gpu_memory() {
    Nic a, b;
    Queue a_cq(a), b_cq(b);
    Pair p(a, a_cq), q(b, b_cq);
    connect(p, q);
    Queue own_cq(b);
    Pair own(b, own_cq);
    own.connect(own.qpn);
    const uint32_t bytes = 200003;
    const uint64_t x = gpu.allocate(0), y = gpu.allocate(16 << 20);
    Memory gx(a, x, bytes), gy(b, y, bytes);
    Pages host(4096);
    Memory h(b, host.address(), 4096);
    for (uint32_t i = 0; i < bytes; ++i) gpu.view(y)[i] = static_cast<uint8_t>(i * 3 + (i >> 8));
    const auto wait = [&](Queue& cq) {
        const uint8_t* e = nullptr;
        CHECK(a.until([&] { return b.device.step(), (e = cq.poll()) != nullptr; }));
        return opcode_of(e);
    };
    fetch(p, MLX5_OPCODE_RDMA_READ, y, gy.key, x, gx.key, bytes);
    CHECK_EQ(wait(a_cq), MLX5_CQE_REQ);
    CHECK(std::memcmp(gpu.view(x), gpu.view(y), bytes) == 0);
    fetch(own, MLX5_OPCODE_RDMA_READ, y + 7, gy.key, host.address(), h.key, 4096);
    CHECK_EQ(wait(own_cq), MLX5_CQE_REQ);
    CHECK(std::memcmp(host.p, gpu.view(y) + 7, 4096) == 0);
    uint64_t value = 100;
    std::memcpy(gpu.view(y), &value, 8);
    fetch(own, MLX5_OPCODE_ATOMIC_FA, y, gy.key, host.address(), h.key, 8);
    fetch(p, MLX5_OPCODE_ATOMIC_FA, y, gy.key, x, gx.key, 8);
    CHECK_EQ(wait(own_cq), MLX5_CQE_REQ);
    CHECK_EQ(wait(a_cq), MLX5_CQE_REQ);
    uint64_t seen[2];
    std::memcpy(&seen[0], host.p, 8);
    std::memcpy(&seen[1], gpu.view(x), 8);
    std::memcpy(&value, gpu.view(y), 8);
    CHECK_EQ(value, 110);
    CHECK_EQ(seen[0] + seen[1], 205);
}

// Kernels that fill the GPU: the copy ends in an error and a sentence that says what to try, and the NIC lives on.
void stuck_device_copy() {
    World w;
    const uint64_t x = gpu.allocate(0);
    Memory gx(w.nic, x, 8192);
    gpu.fill(1);
    w.a.write(x + 4096, gx.key, x, gx.key, 100);
    w.a.ring();
    const uint8_t* e = w.a_cq.wait(10000000000u);
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
    CHECK(w.nic.said("did not finish within 2 s"));
    CHECK(w.nic.said("staging"));
    gpu.fill(0);
}

}  // namespace

int main(int argc, char** argv) {
    if (!gpu.open()) return 2;
    const Cases cases = {
        {"payload_by_device_copies", payload_by_device_copies},
        {"payload_by_staging", payload_by_staging},
        {"inline_and_mixed_segments", inline_and_mixed_segments},
        {"queues_in_gpu_memory", queues_in_gpu_memory},
        {"to_another_nic", to_another_nic},
        {"fetches_of_gpu_memory", fetches_of_gpu_memory},
        {"stuck_device_copy", stuck_device_copy},
    };
    return run(cases, argc, argv);
}
