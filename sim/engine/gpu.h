// SPDX-License-Identifier: Apache-2.0
// GPU memory, moved by the CUDA driver that the program itself has loaded (never linked, never loaded by us): copies
// on an own non-blocking stream per context, waited for with a deadline. Called by memory.cc with the device's lock.
//
// Why not simply the device-to-device copy: it runs on multiprocessors, so it is stuck for as long as spinning kernels
// fill the GPU. Then set_staging(true) sends every byte through pinned host memory, whose copies use the copy engines.
// Never here: the legacy stream, allocation during a step, or a synchronize of a context; each can wait for a kernel
// that waits for this NIC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sim::gpu {

struct Context;  // one CUDA context: its stream and pinned staging memory

class Copier {
   public:
    Copier();
    ~Copier();

    // Whether the address is GPU memory that the CPU cannot reach. Null: host memory (also managed and pinned memory).
    // The first address in a context makes its stream and staging memory; on failure null and a sentence in *problem.
    Context* context_of(uint64_t address, std::string* problem);

    // Each false after a sentence in *problem: the driver refused, or it did not finish within 2 s.
    bool to_gpu(Context* context, uint64_t destination, const void* source, size_t bytes, std::string* problem);
    bool from_gpu(Context* context, void* destination, uint64_t source, size_t bytes, std::string* problem);
    // Two small places, read in this order and waited for once: the wait costs more than the copy.
    struct Piece {
        void* destination;
        uint64_t source;
        size_t bytes;
    };
    bool from_gpu(Context* context, const Piece& first, const Piece& second, std::string* problem);
    // An entry whose last four bytes hand it over: they are stored after the rest. Waited for once.
    bool hand_over(Context* context, uint64_t destination, const void* entry, size_t bytes, std::string* problem);
    bool within_gpu(Context* to, uint64_t destination, Context* from, uint64_t source, size_t bytes,
                    std::string* problem);

    void set_staging(bool on) { staging_ = on; }
    uint64_t copies() const { return copies_; }

   private:
    bool wait(Context* context, const char* what, size_t bytes, std::string* problem);

    bool staging_ = false;
    uint64_t copies_ = 0;
    std::vector<std::unique_ptr<Context>> contexts_;
};

// Whether a GPU may store to this address of the CPU: somebody registered it with CUDA, or a GPU that reaches all of
// the CPU's memory may be in use. False as long as the program has not begun to use CUDA.
bool may_store(const void* address);

}  // namespace sim::gpu
