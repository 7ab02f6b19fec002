// SPDX-License-Identifier: Apache-2.0
// See queue.h.

#include "proxy/queue.h"

#include <sched.h>

#include <ctime>

namespace proxy {

namespace {

template <class T>
T* at(uint64_t address) {
    return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

void sleep_ns(uint64_t ns) {
    timespec t = {0, static_cast<long>(ns)};
    nanosleep(&t, nullptr);
}

}  // namespace

Queue::Queue(const Places& p, const Facts& f, ibv_qp* qp)
    : iwarp_(f.iwarp),
      qp_(qp),
      send_({at<uint8_t>(p.sq), f.depth, qp->qp_num, qp->qp_type, f.most_inline, f.most_pieces, f.iwarp},
            at<uint64_t>(p.word), at<uint32_t>(p.send_record), qp, qp->send_cq,
            Completions(at<uint8_t>(p.cq), at<uint32_t>(p.cq_record), f.cq_entries, f.collapsed, qp->qp_num,
                        f.user_index)),
      receive_(at<uint8_t>(p.rq), f.receive_depth, at<uint32_t>(p.receive_record), qp, qp->recv_cq,
               Completions(at<uint8_t>(p.receive_cq), nullptr, f.receive_depth, false, qp->qp_num, f.user_index)) {}

bool Queue::take() { return started_ && send_.take(); }

bool Queue::receive() { return (started_ || iwarp_) && receive_.pass(); }

bool Queue::send() {
    if (!started_) return false;
    const bool sends = send_.pass();
    if (send_.in_error() != receive_.in_error()) {  // both halves fail together
        move_to_error(qp_);
        fail();
    }
    return sends;
}

void Queue::fail() {
    send_.fail();
    receive_.fail();
}

void Queue::lose() {
    send_.lose();
    receive_.lose();
}

void Queue::reset() {
    started_ = false;
    send_.reset();
    receive_.reset();
}

void Queue::know(const uint8_t* address, ibv_ah* handle) {
    AddressBytes bytes;
    std::memcpy(bytes.data(), address, bytes.size());
    send_.addresses[bytes] = handle;
}

bool look(Queue* const* queues, size_t count) {
    bool some = false;
    for (size_t i = 0; i < count; ++i) some |= queues[i]->take();
    for (size_t i = 0; i < count; ++i) some |= queues[i]->receive();
    for (size_t i = 0; i < count; ++i) some |= queues[i]->send();
    return some;
}

uint64_t serve(Queue* const* queues, size_t count, const uint64_t* stop, const Patience& patience) {
    uint64_t found = 0, pause_ns = 0, quiet_since = now_ns();
    while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
        const bool some = look(queues, count);
        bool waits = false;
        for (size_t i = 0; i < count; ++i) waits |= queues[i]->is_waiting();
        if (some) {
            ++found;
            quiet_since = now_ns();
            pause_ns = 0;
        } else if (now_ns() - quiet_since >= patience.busy_ns) {
            const uint64_t most = waits ? patience.open_sleep_ns : patience.longest_sleep_ns;
            pause_ns = pause_ns ? pause_ns * 2 : 1000;
            if (pause_ns > most) pause_ns = most;
            sleep_ns(pause_ns);
        } else {
            // The kernel, and what stands in for a NIC, may wait for this core.
            sched_yield();
        }
    }
    return found;
}

}  // namespace proxy
