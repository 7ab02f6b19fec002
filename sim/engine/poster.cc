// SPDX-License-Identifier: Apache-2.0
// See poster.h.

#include "sim/engine/poster.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>

namespace sim {

using namespace gda::prm;

namespace {

// As the system's lists of processes show it; a program may rename itself, so it is read each time.
std::string process() {
    char name[32] = "?";
    if (FILE* f = std::fopen("/proc/self/comm", "re")) {
        if (!std::fgets(name, sizeof name, f)) name[0] = '?';
        std::fclose(f);
    }
    std::string words = name;
    while (!words.empty() && words.back() == '\n') words.pop_back();
    return words + " (" + std::to_string(getpid()) + ")";
}

const char* operation(uint8_t opcode) {
    switch (opcode) {
        case MLX5_OPCODE_RDMA_WRITE:
            return "RDMA_WRITE";
        case MLX5_OPCODE_RDMA_WRITE_IMM:
            return "RDMA_WRITE_IMM";
        case MLX5_OPCODE_SEND:
            return "SEND";
        case MLX5_OPCODE_SEND_IMM:
            return "SEND_IMM";
        case MLX5_OPCODE_SEND_INVAL:
            return "SEND_INVAL";
        case MLX5_OPCODE_RDMA_READ:
            return "RDMA_READ";
        case MLX5_OPCODE_ATOMIC_CS:
            return "ATOMIC_CS";
        case MLX5_OPCODE_ATOMIC_FA:
            return "ATOMIC_FA";
        case MLX5_OPCODE_ATOMIC_MASKED_CS:
            return "ATOMIC_MASKED_CS";
        case MLX5_OPCODE_ATOMIC_MASKED_FA:
            return "ATOMIC_MASKED_FA";
        default:
            return "another operation";
    }
}

}  // namespace

const char* who_posted(DeviceState& s, const Qp* qp, const Message& m) {
    // Queues that a program made by firmware commands are written by kernels, or by whatever it writes itself.
    const char* who = qp->through_libibverbs ? "the CPU (libibverbs)" : "a kernel (queue made by DEVX)";
    s.note = text("posted by %s in %s: %s, %" PRIu64 " bytes", who, process().c_str(), operation(m.opcode), m.bytes);
    return s.note.c_str();
}

const char* who_answered(DeviceState& s) {
    s.note = "answered by the NIC of " + process();
    return s.note.c_str();
}

}  // namespace sim
