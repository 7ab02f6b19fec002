// SPDX-License-Identifier: Apache-2.0
// One launch of a kernel on the CPU: worker threads that take blocks until none is left. See runtime.h.
#include <errno.h>
#include <stdio.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "block.h"

namespace gda {
namespace host {
namespace {

constexpr uint32_t MOST_BLOCKS = 64;
#if defined(GDA_HOST_TSAN)
constexpr uint32_t MOST_FIBERS = 512;  // the thread sanitizer dies at 8,128, and is slow long before
#else
constexpr uint32_t MOST_FIBERS = 16384;  // two mappings each; the kernel allows 65,530 per process
#endif

// Zero: so many threads cannot run.
uint32_t blocks_at_once(uint32_t threads_per_block) {
    if (threads_per_block == 0 || threads_per_block > MAX_THREADS) return 0;
    uint32_t blocks = MOST_FIBERS / threads_per_block;
    return blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}

}  // namespace

// Owned by the caller and by every worker.
struct launch_state : shared_state {
    uint64_t total = 0;
    std::atomic<uint64_t> next{0};
    std::mutex lock;
    std::condition_variable changed;
    uint32_t workers = 0;
    std::string error;
};

namespace {

void tell(const gda_host_request& request, int event) {
    if (request.fence_hook) request.fence_hook(event);
}

void work(std::shared_ptr<launch_state> launch) {
    std::string failure;
    {
        block own(*launch);
        if (!own.prepare_stacks()) {
            failure = "no memory for the stacks of a block's threads (64 KiB each)";
        }
        const gda_host_dim& grid = launch->request.blocks;
        while (failure.empty() && !launch->aborted.load(std::memory_order_relaxed)) {
            uint64_t number = launch->next.fetch_add(1, std::memory_order_relaxed);
            if (number >= launch->total) break;
            gda_host_dim index = {static_cast<uint32_t>(number % grid.x),
                                  static_cast<uint32_t>(number / grid.x % grid.y),
                                  static_cast<uint32_t>(number / grid.x / grid.y)};
            failure = own.run(index, static_cast<uint32_t>(number));
        }
    }
    std::lock_guard<std::mutex> hold(launch->lock);
    if (!failure.empty()) {
        if (launch->error.empty()) launch->error = failure;
        launch->aborted.store(true, std::memory_order_relaxed);
    }
    if (--launch->workers != 0) return;
    tell(launch->request, GDA_HOST_END);
    launch->changed.notify_all();
}

}  // namespace
}  // namespace host
}  // namespace gda

// Threads are joined when all have ended, which also tells a thread sanitizer that their memory is free.
struct gda_host_launch {
    std::shared_ptr<gda::host::launch_state> state;
    std::vector<std::thread> threads;
    std::string error;
};

gda_host_launch* gda_host_start(const gda_host_request* request, char* reason, size_t reason_bytes) {
    const gda_host_dim& grid = request->blocks;
    const gda_host_dim& size = request->threads;
    uint32_t at_once = gda::host::blocks_at_once(size.x * size.y * size.z);
    if (at_once == 0) {
        snprintf(reason, reason_bytes, "%u threads per block; at most %u can run here", size.x * size.y * size.z,
                 gda::host::MOST_FIBERS < gda::host::MAX_THREADS ? gda::host::MOST_FIBERS : gda::host::MAX_THREADS);
        return nullptr;
    }
    auto state = std::make_shared<gda::host::launch_state>();
    state->request = *request;
    state->aborted = false;
    state->total = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    uint32_t workers = state->total < at_once ? static_cast<uint32_t>(state->total) : at_once;
    state->workers = workers;
    gda::host::tell(*request, GDA_HOST_BEGIN);
    std::vector<std::thread> threads;
    try {
        while (threads.size() < workers) threads.emplace_back(gda::host::work, state);
    } catch (const std::system_error& e) {
        snprintf(reason, reason_bytes, "thread %zu of %u could not be started: %s", threads.size(), workers, e.what());
        state->aborted = true;
        for (std::thread& thread : threads) thread.join();
        if (threads.size() < workers) gda::host::tell(*request, GDA_HOST_END);
        return nullptr;
    }
    return new gda_host_launch{state, std::move(threads), {}};
}

int gda_host_wait(gda_host_launch* launch, uint64_t timeout_ns) {
    gda::host::launch_state& state = *launch->state;
    std::unique_lock<std::mutex> hold(state.lock);
    auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
    return state.changed.wait_until(hold, deadline, [&] { return state.workers == 0; });
}

void gda_host_abort(gda_host_launch* launch) { launch->state->aborted.store(true, std::memory_order_relaxed); }

const char* gda_host_error(gda_host_launch* launch) {
    std::lock_guard<std::mutex> hold(launch->state->lock);
    launch->error = launch->state->error;
    return launch->error.c_str();
}

void gda_host_free(gda_host_launch* launch) {
    for (std::thread& thread : launch->threads) thread.join();
    delete launch;
}
