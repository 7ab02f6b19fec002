// SPDX-License-Identifier: Apache-2.0
// GPU memory, moved by the CUDA driver that the program itself has loaded (never linked, never loaded by us). Called by
// memory.cc and atomic.cc with the device's lock.
//
// Two ways. Left to the GPU (copy_later, item_later): a number comes back at once, and what depends on it is told when
// that is done. Waited for, with a deadline, on a stream of its own: queues in GPU memory, payload between the host and
// the GPU, and all payload while set_staging(true): a kernel of ours and device-to-device copies run on
// multiprocessors, so they are stuck for as long as spinning kernels fill the GPU; then every byte goes through pinned
// host memory, whose copies use the copy engines. Never here: the legacy stream, allocation during a step, or a
// synchronize of a context; each can wait for a kernel that waits for this NIC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine/gpu_ring.h"

namespace sim::gpu {

struct Context;  // one CUDA context: its streams and pinned memory

// Something that was left to the GPU; done when there is none.
struct Job {
    Context* context = nullptr;
    uint64_t number = 0;
    bool bulk = false;
};
inline bool operator==(const Job& a, const Job& b) {
    return a.context == b.context && a.number == b.number && a.bulk == b.bulk;
}

class Copier {
   public:
    Copier();
    ~Copier();
    Copier(const Copier&) = delete;
    Copier& operator=(const Copier&) = delete;

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
    // An entry whose last four bytes hand it over: they are stored after the rest. Left to the GPU behind *job where
    // that is possible, else waited for.
    bool hand_over(Context* context, uint64_t destination, const void* entry, size_t bytes, Job* job,
                   std::string* problem);
    bool within_gpu(Context* to, uint64_t destination, Context* from, uint64_t source, size_t bytes,
                    std::string* problem);

    // ---- Left to the GPU. *job: what it follows, and then what it is. Whoever sees it sees what it follows.
    enum class Later {
        yes,
        no_source,       // not memory that CUDA knows: *problem
        no_destination,  // likewise
        not_now,         // no room, or what it follows must be done before
        cannot           // it has to be waited for; what it follows is done
    };
    // How a copy stands to what it follows.
    enum class Order { behind, beside, behind_and_fresh };  // beside: may pass it; fresh: the source as that left it
    // Within the GPU, or of a few bytes of the host (`from` null), which are read now.
    Later copy_later(Context* to, uint64_t destination, Context* from, uint64_t source, size_t bytes, Order order,
                     Job* job, std::string* problem);
    // A store or an atomic. `result`: where what was there before goes, or null; until it is done or settled.
    Later item_later(Context* context, const Item& item, uint64_t* result, Job* job, std::string* problem);

    State state_of(const Job& job) const;
    bool is_done(const Job& job) const { return !job.context || state_of(job) == State::done; }
    const std::string& problem_of(const Job& job) const;
    bool busy() const;
    void flush();                        // what was left to it so far is begun: once a round
    int poll(bool ask_at_once = false);  // how much has ended
    void settle();                       // all that was left to it has ended, or failed

    // What was done since the last time.
    struct Counts {
        uint64_t items, launches, copies;
    };
    Counts take_counts();

    // On: all that was left to the GPU ends before, and our kernel leaves it.
    void set_staging(bool on);

   private:
    bool wait(Context* context, const char* what, size_t bytes, std::string* problem);
    bool known(Context* context, uint64_t address, size_t bytes);
    Later enqueue(Context* context, const Item& item, bool ordered, uint64_t* result, Job* job);

    bool staging_ = false;
    Counts told_ = {};
    std::vector<std::unique_ptr<Context>> contexts_;
};

// Whether a GPU may store to this address of the CPU: somebody registered it with CUDA, or a GPU that reaches all of
// the CPU's memory may be in use. False as long as the program has not begun to use CUDA.
bool may_store(const void* address);

}  // namespace sim::gpu
