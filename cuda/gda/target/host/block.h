// SPDX-License-Identifier: Apache-2.0
// One block of a kernel: its threads as fibers, and who of them waits for what. Used by launch.cc, one per OS thread.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "fiber.h"
#include "runtime.h"

namespace gda {
namespace host {

constexpr uint32_t WARP = 32;
constexpr uint32_t MAX_THREADS = 1024;  // per block, as on a GPU

enum fiber_state : uint8_t { runnable, at_barrier, at_warp_operation, ended };
enum warp_operation : uint8_t { op_syncwarp, op_shuffle, op_ballot, op_match_any, op_match_all };

struct fiber {
    gda_host_thread self;
    context where;
    uint32_t number;  // in the block
    fiber_state state;
};

// What the lanes of a warp have brought to the operation that they wait at. A lane's answer is made by the last lane
// that arrives, and stays until its own next operation: a faster lane cannot overwrite it.
struct warp {
    uint32_t alive;      // lanes that have not ended
    uint32_t waiting;    // at an operation
    uint32_t gathering;  // in converged(): until the first of them runs again
    warp_operation operation[WARP];
    uint32_t mask[WARP];
    uint32_t source[WARP];
    uint64_t value[WARP];
    uint64_t answer[WARP];
    const void* key[WARP];
};

// What all blocks of a launch share.
struct shared_state {
    gda_host_request request;
    std::atomic<bool> aborted;
};

class block {
   public:
    explicit block(shared_state& shared);
    ~block();
    block(const block&) = delete;
    block& operator=(const block&) = delete;

    // False when there was no memory for stacks.
    bool prepare_stacks();
    // Runs one block to its end, or until the launch is aborted. Empty, or what went wrong.
    std::string run(gda_host_dim index, uint32_t number);

    // By the running fiber:
    int sync_threads(int reduction, int predicate);
    uint64_t warp_arrive(warp_operation operation, uint32_t mask, uint64_t value, uint32_t source);
    uint32_t converged(const void* key);
    void idle();
    void turn();
    [[noreturn]] void fail(const std::string& what);

   private:
    static void enter(void* argument);
    void make_runnable(fiber& f);
    void suspend(bool ends = false);
    void resume_from(context* from, bool ends);
    bool complete(warp& w, uint32_t lane);
    void complete_waiting(warp& w);
    void release_barrier();
    void rest();
    void end_fiber();
    std::string deadlock() const;
    std::string name(uint32_t thread) const;
    warp& warp_of(const fiber& f) { return warps_[f.number / WARP]; }

    shared_state& shared_;
    const uint32_t threads_;
    gda_host_block here_;
    std::vector<fiber> fibers_;
    std::vector<warp> warps_;
    std::vector<uint8_t*> stacks_;
    std::vector<uint8_t> dynamic_shared_;
    context scheduler_;
    fiber* running_ = nullptr;

    // Fibers that may run, each once, oldest first.
    std::vector<uint32_t> queue_;
    uint32_t head_ = 0, queued_ = 0;
    // How many in a row only waited: when it covers the queue, nobody here can go on without the NIC or another block.
    uint32_t idlers_ = 0;
    bool all_idle_called_ = false;  // some of them by idle(), not by turns of a loop
    uint32_t budget_;               // edges until the next turn
    uint32_t rests_ = 0;
    bool turned_ = false;      // some fiber runs a loop of its own, which may compute
    uint32_t vain_rests_ = 0;  // in a row, in which all waited by idle() and nothing happened

    uint32_t live_ = 0, arrived_ = 0;
    int reduced_count_ = 0;
    int barrier_answer_[4] = {0, 0, 0, 0};
    uint32_t random_ = 0;
    std::string failure_;
};

}  // namespace host
}  // namespace gda
