// SPDX-License-Identifier: Apache-2.0
// See poll.h. The only file that knows libibverbs' own structs (public ABI in <infiniband/verbs.h>); nothing is linked.
#include "sim/uverbs/poll.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>

#include <array>
#include <atomic>
#include <utility>

#include "sim/link/guard.h"
#include "sim/uverbs/context.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/profile.h"

namespace sim::uverbs::poll {
namespace {

// Reads the program's memory without trusting the address: a user handle may be any number.
template <typename T>
bool peek(const void* address, T* value) {
    return guarded_copy(value, address, sizeof(T));
}

// After an empty poll: whether it is worth looking again. A program that spins in vain gives its core away now and
// then, for the peer it waits for may need one too; a hundred polls are some 10 us.
bool stepped() {
    constexpr unsigned spins = 100;
    static thread_local unsigned idle = 0;
    if (Nic::step() != 0) {
        idle = 0;
        return true;
    }
    if (++idle % spins == 0) sched_yield();
    return false;
}

// ---- ibv_poll_cq: one entry per context ----

using PollFunction = int (*)(ibv_cq*, int, ibv_wc*);

// libmlx5's own function: the same for all contexts of one library.
std::atomic<PollFunction> original_poll{nullptr};

int poll_and_step(ibv_cq* cq, int entries, ibv_wc* completions) {
    const PollFunction poll = original_poll.load(std::memory_order_relaxed);
    const int found = poll(cq, entries, completions);
    if (found != 0) return profile::found(profile::Wait::poll), found;
    const uint64_t since_ns = profile::begin();
    const int later = stepped() ? poll(cq, entries, completions) : 0;
    profile::end(profile::Wait::poll, since_ns, later == 0);
    return later;
}

void wrap_poll(ibv_context* context) {
    PollFunction poll = nullptr;
    if (!peek(&context->ops.poll_cq, &poll) || !poll || poll == PollFunction{poll_and_step}) return;
    PollFunction none = nullptr;
    if (!original_poll.compare_exchange_strong(none, poll) && none != poll) return;  // a second provider library
    __atomic_store_n(&context->ops.poll_cq, PollFunction{poll_and_step}, __ATOMIC_RELEASE);
}

// ---- extended queues: one entry per queue, and libmlx5 has a function for each kind of queue ----

using StartFunction = int (*)(ibv_cq_ex*, ibv_poll_cq_attr*);

constexpr size_t most_kinds = 32;
std::array<std::atomic<StartFunction>, most_kinds> original_starts{};

template <size_t KIND>
int start_and_step(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
    const StartFunction start = original_starts[KIND].load(std::memory_order_relaxed);
    const int answer = start(cq, attributes);
    if (answer != ENOENT) return profile::found(profile::Wait::poll), answer;
    const uint64_t since_ns = profile::begin();
    const int later = stepped() ? start(cq, attributes) : answer;
    profile::end(profile::Wait::poll, since_ns, later == ENOENT);
    return later;
}

template <size_t... KINDS>
constexpr std::array<StartFunction, most_kinds> make_wrappers(std::index_sequence<KINDS...>) {
    return {start_and_step<KINDS>...};
}
constexpr auto start_wrappers = make_wrappers(std::make_index_sequence<most_kinds>());

void wrap_start(ibv_cq_ex* cq) {
    StartFunction start = nullptr;  // stays null for an ordinary queue: libmlx5 allocates both with zeros
    if (!peek(&cq->start_poll, &start) || !start) return;
    for (const StartFunction wrapper : start_wrappers)
        if (start == wrapper) return;
    for (size_t kind = 0; kind < most_kinds; ++kind) {
        StartFunction none = nullptr;
        if (!original_starts[kind].compare_exchange_strong(none, start) && none != start) continue;
        __atomic_store_n(&cq->start_poll, start_wrappers[kind], __ATOMIC_RELEASE);
        return;
    }
}

}  // namespace

void before_read(int channel_fd) {
    constexpr uint64_t patience_ns = 50000;
    const auto now_ns = [] {
        timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
    };
    const bool sleeps = !(fcntl(channel_fd, F_GETFL) & O_NONBLOCK);
    const uint64_t deadline_ns = now_ns() + (sleeps ? patience_ns : 0);
    do {
        char byte;
        if (recv(channel_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) return;
        if (Nic::step() == 0) sched_yield();
    } while (now_ns() < deadline_ns);
}

void wrap(uint64_t cq_pointer, const Context& owner) {
    auto* cq = reinterpret_cast<ibv_cq*>(cq_pointer);
    ibv_context* context = nullptr;
    int command_fd = -1;
    if (!cq || !peek(&cq->context, &context) || !context) return;
    if (!peek(&context->cmd_fd, &command_fd) || files::context(command_fd).get() != &owner) return;
    wrap_poll(context);
    wrap_start(reinterpret_cast<ibv_cq_ex*>(cq));
}

}  // namespace sim::uverbs::poll
