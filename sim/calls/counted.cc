// SPDX-License-Identifier: Apache-2.0
// See counted.h.
#include "sim/calls/counted.h"

#include <gda/formats/wqe.h>
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <new>
#include <string>
#include <utility>

#include "sim/engine/profile.h"
#include "sim/uverbs/profile.h"

namespace sim {

const char* const uverbs::profile::variable = "GDA_PROFILE";

namespace calls {
namespace {

using namespace gda::prm;

struct All {
    ProfileOf<std::atomic<uint64_t>> requests;
    std::atomic<uint64_t> doorbells{0}, receives{0}, missed{0};
};
All all;
std::atomic<bool> anything{false};

// enum ibv_wr_opcode -> what libmlx5 makes of it (its table mlx5_ib_opcode).
const uint8_t opcodes[] = {
    MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_SEND,      MLX5_OPCODE_SEND_IMM,
    MLX5_OPCODE_RDMA_READ,  MLX5_OPCODE_ATOMIC_CS,      MLX5_OPCODE_ATOMIC_FA, MLX5_OPCODE_UMR,
    MLX5_OPCODE_UMR,        MLX5_OPCODE_SEND_INVAL,     MLX5_OPCODE_TSO,       MLX5_OPCODE_UMR,
};

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

// What the parent did is the parent's to tell.
void begin_anew() {
    new (&all) All;
    anything = false;
}

__attribute__((constructor)) void begin() { pthread_atfork(nullptr, nullptr, begin_anew); }

__attribute__((destructor)) void end() {
    if (!anything) return;
    std::string lines = all.requests.lines(0);
    const std::pair<const char*, uint64_t> counters[] = {
        {"doorbells", all.doorbells}, {"receives", all.receives}, {"not_watched", all.missed}};
    for (const auto& [name, value] : counters)
        if (value) lines += std::string("counter ") + name + " " + std::to_string(value) + "\n";
    uverbs::profile::write({lines});
}

}  // namespace

void watched() { anything = true; }
void missed() { ++all.missed; }
void request(uint32_t opcode, uint64_t bytes) {
    if (opcode < sizeof opcodes) all.requests.count(opcodes[opcode], bytes, now_ns());
}
void doorbell() { ++all.doorbells; }
void receives(uint64_t number) { all.receives += number; }

}  // namespace calls
}  // namespace sim
