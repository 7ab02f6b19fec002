// SPDX-License-Identifier: Apache-2.0
// Random work over a cable that loses packets in both directions: every operation is executed once and in order, and
// memory ends as a model says. The cable is the shared-memory link; the test takes packets out of the inboxes.

#include <fcntl.h>

#include <random>

#include "sim/link/inbox.h"
#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

const uint32_t WORDS = 64, BIG = 200000;

// The inbox of a NIC, from which packets can be taken before it looks.
struct Thief {
    explicit Thief(Nic& nic) {
        const std::string path =
            std::string(std::getenv("GDA_SIM_DIRECTORY")) + "/nic-" + std::to_string(nic.device.slot());
        const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
        inbox = sim::Inbox::map(fd);
        close(fd);
    }
    ~Thief() { sim::Inbox::unmap(inbox); }
    int steal() {
        return inbox->take([](const sim::Packet&) {}, 1);
    }
    sim::Inbox* inbox;
};

struct Lossy {
    Lossy(uint32_t seed, uint32_t loss, Options o)
        : random(seed),
          per_mille(loss),
          a_cq(a, 8),
          b_cq(b, 8),
          x(a, a_cq, &a_cq, o),
          y(b, b_cq, &b_cq, o),
          local(2 * BIG),
          remote(2 * BIG),
          l(a, local.address(), local.bytes),
          r(b, remote.address(), remote.bytes),
          to_a(a),
          to_b(b) {
        connect(x, y);
    }
    uint32_t pick(uint32_t n) { return static_cast<uint32_t>(random() % n); }
    void move() {
        if (pick(1000) < per_mille) lost += static_cast<uint32_t>(to_b.steal());
        b.device.step();
        if (pick(1000) < per_mille) lost += static_cast<uint32_t>(to_a.steal());
        a.device.step();
    }
    const uint8_t* wait() {
        const uint8_t* e = nullptr;
        const uint64_t end = now_ns() + 20000000000u;
        while (!(e = a_cq.poll()) && now_ns() < end) move();
        return e;
    }
    // A WQE of one or two blocks, not yet rung.
    void post(uint32_t opcode, uint64_t at, uint64_t from, uint32_t bytes, uint64_t operand = 0, uint64_t compare = 0) {
        const bool atomic = opcode == MLX5_OPCODE_ATOMIC_FA || opcode == MLX5_OPCODE_ATOMIC_CS;
        x.control(x.producer, opcode, atomic ? 4 : 3);
        GDA_SET(wqe_ctrl_seg, x.block(x.producer), fm, MLX5_FENCE_MODE_SMALL_AND_FENCE);
        x.remote(x.producer, at, r.key);
        if (atomic) {
            GDA_SET(wqe_atomic_seg, x.segment(x.producer, 2), swap_add, operand);
            GDA_SET(wqe_atomic_seg, x.segment(x.producer, 2), compare, compare);
        }
        x.data(x.producer, atomic ? 3 : 2, from, bytes, l.key);
        x.last = x.producer++;
    }
    std::mt19937 random;
    uint32_t per_mille, lost = 0;
    Nic a, b;
    Queue a_cq, b_cq;
    Pair x, y;
    Pages local, remote;
    Memory l, r;
    Thief to_a, to_b;
};

Options impatient() {
    Options o;
    o.timeout = 8;  // 1 ms
    o.log_sq = 6;
    return o;
}

uint64_t* words(Pages& p) { return reinterpret_cast<uint64_t*>(p.p); }

// Words of both sides follow a model, operation by operation: each is fenced, so the order is the program's.
void random_words(uint32_t seed, uint32_t loss) {
    Lossy w(seed, loss, impatient());
    std::vector<uint64_t> mine(WORDS), theirs(WORDS);
    for (uint32_t i = 0; i < WORDS; ++i) {
        mine[i] = words(w.local)[i] = w.random();
        theirs[i] = words(w.remote)[i] = w.pick(3);
    }
    for (uint32_t round = 0; round < 12; ++round) {
        const uint32_t count = 1 + w.pick(40);
        for (uint32_t n = 0; n < count; ++n) {
            const uint32_t i = w.pick(WORDS), j = w.pick(WORDS);
            const uint64_t from = w.local.address() + 8 * i, at = w.remote.address() + 8 * j;
            switch (w.pick(4)) {
                case 0:
                    w.post(MLX5_OPCODE_RDMA_WRITE, at, from, 8);
                    theirs[j] = mine[i];
                    break;
                case 1:
                    w.post(MLX5_OPCODE_RDMA_READ, at, from, 8);
                    mine[i] = theirs[j];
                    break;
                case 2:
                    w.post(MLX5_OPCODE_ATOMIC_FA, at, from, 8, round + 1);
                    mine[i] = theirs[j];
                    theirs[j] += round + 1;
                    break;
                case 3:
                    w.post(MLX5_OPCODE_ATOMIC_CS, at, from, 8, n, 1);
                    mine[i] = theirs[j];
                    if (theirs[j] == 1) theirs[j] = n;
                    break;
            }
        }
        w.x.ring();
        for (uint32_t n = 0; n < count; ++n) {
            const uint8_t* e = w.wait();
            CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
            if (!e || opcode_of(e) != MLX5_CQE_REQ) {
                w.a.print_report();
                return;
            }
        }
        for (uint32_t i = 0; i < WORDS; ++i) {
            CHECK_EQ(words(w.local)[i], mine[i]);
            CHECK_EQ(words(w.remote)[i], theirs[i]);
        }
        if (failures) return;
    }
    CHECK(loss == 0 || w.lost > 0);
}

void words_without_loss() { random_words(1, 0); }
void words_with_loss() {
    for (uint32_t seed = 1; seed <= 6; ++seed) random_words(seed, 20 * seed);
}

// Without fences: four atomics and reads are on their way at once. Each addition is done once, in order, and answered
// with what it found.
void many_fetches_with_loss() {
    for (uint32_t seed = 1; seed <= 6; ++seed) {
        Lossy w(seed, 30 * seed, impatient());
        for (uint64_t round = 0; round < 8; ++round) {
            for (uint32_t n = 0; n < 30; ++n) {
                w.post(MLX5_OPCODE_ATOMIC_FA, w.remote.address(), w.local.address() + 16 * n, 8, 1);
                GDA_SET(wqe_ctrl_seg, w.x.block(w.x.last), fm, MLX5_FENCE_MODE_NONE);
                w.post(MLX5_OPCODE_RDMA_READ, w.remote.address(), w.local.address() + 16 * n + 8, 8);
                GDA_SET(wqe_ctrl_seg, w.x.block(w.x.last), fm, MLX5_FENCE_MODE_NONE);
            }
            w.x.ring();
            for (uint32_t n = 0; n < 60; ++n) CHECK_EQ(opcode_of(w.wait()), MLX5_CQE_REQ);
            for (uint32_t n = 0; n < 30; ++n) {
                CHECK_EQ(words(w.local)[2 * n], 30 * round + n);
                CHECK(words(w.local)[2 * n + 1] > 30 * round + n);  // at least its own
            }
            CHECK_EQ(words(w.remote)[0], 30 * round + 30);
            if (failures) {
                w.a.print_report();
                w.b.print_report();
                return;
            }
        }
        CHECK(w.lost > 0);
        CHECK(w.b.device.counter("duplicates") > 0);
    }
}

// Messages of many packets, of which some are lost: whole, right, and each receive completed once.
void big_messages_with_loss() {
    for (uint32_t seed = 1; seed <= 3; ++seed) {
        Options o = impatient();
        o.receives = true;
        Lossy w(seed, 200, o);
        for (uint32_t round = 0; round < 15; ++round) {
            for (uint32_t i = 0; i < BIG; ++i) w.local.p[i] = static_cast<uint8_t>(i * 7 + (i >> 8) + round + seed);
            const uint32_t bytes = 1 + w.pick(BIG);
            const uint32_t kind = w.pick(3);
            if (kind == 0) w.post(MLX5_OPCODE_RDMA_WRITE, w.remote.address(), w.local.address(), bytes);
            if (kind == 1) {
                w.y.post_receive(w.remote.address(), BIG, w.r.key);
                w.x.send(w.local.address(), w.l.key, bytes);
            }
            if (kind == 2) {
                std::memcpy(w.remote.p, w.local.p, BIG);
                w.post(MLX5_OPCODE_RDMA_READ, w.remote.address(), w.local.address() + BIG, bytes);
            }
            w.x.ring();
            CHECK_EQ(opcode_of(w.wait()), MLX5_CQE_REQ);
            const uint8_t* there = kind == 2 ? w.local.p + BIG : w.remote.p;
            CHECK(std::memcmp(there, w.local.p, bytes) == 0);
            if (kind == 1) {
                const uint8_t* e = w.b_cq.poll();
                CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND);
                if (e) CHECK_EQ(GDA_GET(cqe64, e, byte_cnt), bytes);
            }
            CHECK(w.b_cq.poll() == nullptr);
            if (failures) {
                w.a.print_report();
                w.b.print_report();
                return;
            }
        }
        CHECK(w.lost > 0);
    }
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"words_without_loss", words_without_loss},
            {"words_with_loss", words_with_loss},
            {"many_fetches_with_loss", many_fetches_with_loss},
            {"big_messages_with_loss", big_messages_with_loss},
        },
        argc, argv);
}
