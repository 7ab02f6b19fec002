// SPDX-License-Identifier: Apache-2.0
// What the NIC has to say: complaints about what programs did wrong, and counters. Written by every room of the engine
// and by the firmware, read by people and tests. It has its own lock, so that it can be read during a step.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/engine/complaint.h"
#include "sim/link/address.h"

namespace sim {

class Live;

// name, then what it counts
#define SIM_COUNTERS(X)                                                              \
    X(commands)          /* firmware commands */                                     \
    X(command_errors)    /* of them, answered with a status other than OK */         \
    X(doorbells)         /* values taken from send doorbell registers */             \
    X(cq_doorbells)      /* values taken from completion queue registers */          \
    X(wqes)              /* send WQEs executed */                                    \
    X(packets_sent)      /* handed to a link, answers included */                    \
    X(packets_received)  /* taken from a link, answers included */                   \
    X(packets_dropped)   /* for no queue pair, or one that cannot receive */         \
    X(bytes_sent)        /* payload handed to a link */                              \
    X(bytes_received)    /* payload taken from a link */                             \
    X(bytes_written)     /* payload placed in memory by the responder */             \
    X(write_requests)    /* RDMA writes executed for peers */                        \
    X(read_requests)     /* RDMA reads executed for peers */                         \
    X(atomic_requests)   /* atomics executed for peers */                            \
    X(writes_passed)     /* signals seen before earlier writes */                    \
    X(key_changes)       /* UMRs executed: lists, windows bound and invalidated */   \
    X(sends_received)    /* messages placed in receives */                           \
    X(datagrams_dropped) /* of them: no receive, Q_Key, size */                      \
    X(srq_limits)        /* limit events of shared receive queues */                 \
    X(acks_sent)         /* positive answers */                                      \
    X(naks_sent)         /* negative answers */                                      \
    X(rnr_naks_sent)     /* "receiver not ready" answers */                          \
    X(packets_resent)    /* of packets_sent, those that were sent before */          \
    X(retries)           /* rounds of resending after a timeout or sequence error */ \
    X(ack_timeouts)      /* of them, after a timeout */                              \
    X(sequence_naks)     /* of them, after the peer missed a packet */               \
    X(missed_responses)  /* of them, after a gap before a response */                \
    X(rnr_retries)       /* rounds of resending after "receiver not ready" */        \
    X(duplicates)        /* requests received again */                               \
    X(out_of_order)      /* requests received with a gap before them */              \
    X(cqes)              /* completions written */                                   \
    X(error_cqes)        /* of them, errors without flushes */                       \
    X(flush_cqes)        /* of them, flushes */                                      \
    X(requester_errors)  /* of them, of the requester; without flushes */            \
    X(responder_errors)  /* of them, of the responder; without flushes */            \
    X(requester_flushes) /* flushes of the requester */                              \
    X(responder_flushes) /* flushes of the responder */                              \
    X(lengths_exceeded)  /* of responder errors: longer than the receive */          \
    X(accesses_refused)  /* of peers, by key, range or right */                      \
    X(refused_access)    /* by peers: the same, told to the requester */             \
    X(refused_request)   /* by peers: invalid requests */                            \
    X(cq_overruns)       /* completion queues that failed because they were full */  \
    X(completion_events) /* armed completion queues that fired */                    \
    X(records_swept)     /* doorbell records looked at for lost rings */             \
    X(sleeps)            /* of the thread, until somebody wakes it */                \
    X(wakes_by_store)    /* of it, by a store to a doorbell page */                  \
    X(wakes_by_packet)   /* by another process or host */                            \
    X(wakes_by_call)     /* by a command or a step of the program */                 \
    X(wakes_by_timer)    /* by a deadline of its own */                              \
    X(looks_around)      /* by nothing, for long */                                  \
    X(copy_faults)       /* copies stopped by memory that is not there */            \
    X(link_full)         /* packets that had to wait for room */                     \
    X(gpu_items)         /* small things left to the kernel on a GPU */              \
    X(gpu_launches)      /* of it */                                                 \
    X(gpu_copies)        /* large ones left to the CUDA driver */

enum class Counter : int {
#define SIM_NAME(name) name,
    SIM_COUNTERS(SIM_NAME)
#undef SIM_NAME
        count
};

// The same for some queue pairs alone: those that name this set (command ALLOC_Q_COUNTER).
struct CounterSet {
    uint32_t number = 0;
    int uses = 0;  // queue pairs that name it
    uint64_t counted[static_cast<int>(Counter::count)] = {};
    uint64_t operator[](Counter c) const { return counted[static_cast<int>(c)]; }
};

class Report {
   public:
    // While one lives, everything is counted at that port, and in that set, too: work on a queue pair.
    class Counting {
       public:
        Counting(Report& report, CounterSet* set, uint32_t port)
            : report_(report), before_(report.set_), port_before_(report.at_) {
            report.set_ = set;
            report.at_ = report.counters_[port - 1];
        }
        ~Counting() {
            report_.set_ = before_;
            report_.at_ = port_before_;
        }
        Counting(const Counting&) = delete;
        Counting& operator=(const Counting&) = delete;

       private:
        Report& report_;
        CounterSet* const before_;
        std::atomic<uint64_t>* const port_before_;
    };

    enum : size_t { MAX_COMPLAINTS = 200 };

    // Keeps a sentence once, and counts. Beyond the limit the first ones are kept: later faults usually follow from
    // them.
    __attribute__((cold)) void say(Kind kind, const std::string& sentence, const Values& values = {});
    std::vector<Complaint> complaints() const;
    uint64_t not_kept() const;
    void clear();

    // Counted with the device's lock held, read by any. What is about no queue pair counts with port 1.
    void count(Counter c, uint64_t n = 1) {
        std::atomic<uint64_t>& value = at_[static_cast<int>(c)];
        value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
        if (set_) set_->counted[static_cast<int>(c)] += n;
    }
    // By any thread without the lock: what is not the work of a queue pair. A counter is counted in one of the two
    // ways.
    void count_unlocked(Counter c) { counters_[0][static_cast<int>(c)].fetch_add(1, std::memory_order_relaxed); }
    uint64_t counter(const char* name, uint32_t port = 0) const;  // 0: of all ports
    uint64_t counter(Counter c, uint32_t port) const {
        return counters_[port - 1][static_cast<int>(c)].load(std::memory_order_relaxed);
    }
    static std::vector<std::string> names();

    std::mutex& lock() { return lock_; }  // held across fork

    // Each new sentence goes there, too, for those who look from outside.
    void copy_to(Live* live);
    const void* values() const { return counters_; }  // ports x counters

   private:
    mutable std::mutex lock_;
    std::deque<Complaint> kept_;
    std::unordered_map<std::string, size_t> known_;  // sentence: its place in the list
    uint64_t not_kept_ = 0;
    Live* live_ = nullptr;
    CounterSet* set_ = nullptr;                 // with the device's lock held
    std::atomic<uint64_t>* at_ = counters_[0];  // the port's at hand; likewise
    std::atomic<uint64_t> counters_[MAX_PORTS][static_cast<int>(Counter::count)] = {};
};

// The number of the queue that a sentence begins with ("QP 0x000041"), as a value of it.
__attribute__((cold)) Values about(const char* whose, Values more = {});

// printf into a string: sentences are made only when something is wrong, and so the compiler keeps what leads to one
// out of the way of what does not.
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2), cold));

}  // namespace sim
