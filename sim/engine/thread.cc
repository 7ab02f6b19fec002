// SPDX-License-Identifier: Apache-2.0
// See thread.h.

#include "sim/engine/thread.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>

#include "sim/engine/requester.h"
#include "sim/engine/unrung.h"

namespace sim {

using namespace gda::prm;

namespace {

// How the adaptive thread slows down. It spins for a moment after work, since more usually follows; then it naps,
// longer and longer; after some milliseconds it sleeps until somebody wakes it: a store to a doorbell page (watch.h), a
// packet of another process, a command or a step of the program that leaves it something to do, a timer. A nap costs 20
// us of CPU time, whatever its length, on a virtual machine; a store that wakes it waits for tens of them
// (docs/figures.md).
const uint64_t SPIN_NS = microseconds(50);
// Where memory or queues lie on a GPU one message takes several copies of 10 us, here and at the peer: without a longer
// moment both threads would nap between a request and its answer, each for the other.
const uint64_t SPIN_WITH_GPU_NS = microseconds(500);
const uint32_t LOOKS_BEFORE_YIELD = 16;  // a look at doorbells that finds nothing takes 0.1 us
const uint64_t FIRST_NAP_NS = microseconds(10), LONGEST_NAP_NS = microseconds(100);
const uint64_t ASLEEP_AFTER_NS = milliseconds(5);
// Falling asleep and waking take 2 us for each doorbell page: with thousands of them, seldom enough that it is little.
const uint64_t ASLEEP_AFTER_NS_PER_PAGE = microseconds(20);
// Then it looks around: for stores that no mapping tells of, such as those of a forked child.
const uint64_t LONGEST_SLEEP_NS = milliseconds(100);
// Where it cannot be woken (no userfaultfd; a GPU may store to the page), it looks once a millisecond in the end.
const uint64_t FEWER_NAPS_AFTER_NS = seconds(1), FEWER_NAPS_NS = milliseconds(1);
// While the program steps the engine itself without a pause, the thread stays out of the way.
const uint64_t OTHERS_STEP_NS = microseconds(20), DENSE_STEP_NS = microseconds(5);

struct Registry {
    std::mutex lock;
    std::vector<DeviceState*> devices;
};
Registry& registry() {
    static Registry* r = new Registry;  // never destroyed: threads and fork handlers may outlive static objects
    return *r;
}
std::atomic<uint32_t> generation{0};

void before_fork() {
    registry().lock.lock();
    for (DeviceState* s : registry().devices) {
        s->lock.lock();  // in the order in which they nest elsewhere
        s->watch.lock().lock();
        s->report.lock().lock();
    }
}
void after_fork() {
    auto& devices = registry().devices;
    for (size_t i = devices.size(); i-- > 0;) {
        devices[i]->report.lock().unlock();
        devices[i]->watch.lock().unlock();
        devices[i]->lock.unlock();
    }
    registry().lock.unlock();
}
void in_child() {
    generation.fetch_add(1);
    for (DeviceState* s : registry().devices) {
        s->thread_runs = false;  // threads do not survive a fork
        s->watch.drop();
        if (s->thread_wake >= 0) ::close(s->thread_wake);
        s->thread_wake = -1;
        s->port->disown();
    }
    after_fork();
}
void install_fork_handlers() { pthread_atfork(before_fork, after_fork, in_child); }

class Sleeper {
   public:
    explicit Sleeper(DeviceState& s) : state_(s) {}

    enum class Woken { by_time, by_store, by_call, by_packet };
    // For `ns`, or until somebody wakes it.
    Woken wait(uint64_t ns) {
        std::vector<pollfd> watched = {{state_.watch.descriptor(), POLLIN, 0},
                                       {state_.thread_wake, POLLIN, 0},
                                       {state_.port->wake_descriptor(), POLLIN, 0}};
        for (int socket : state_.port->descriptors()) watched.push_back({socket, POLLIN, 0});
        const timespec limit = {static_cast<time_t>(ns / 1000000000u), static_cast<long>(ns % 1000000000u)};
        if (ppoll(watched.data(), watched.size(), &limit, nullptr) <= 0) return Woken::by_time;
        return watched[0].revents ? Woken::by_store : watched[1].revents ? Woken::by_call : Woken::by_packet;
    }

    // Between the polls of a program, or where nothing better is possible.
    void nap(uint64_t ns) {
        state_.port->fall_asleep(Inbox::Asleep::lightly);
        wait(ns);
        wake();
    }

    // Until something happens. `cannot`: somebody could want it unnoticed, so it did not sleep.
    enum class Slept { cannot, undisturbed, woken };
    Slept sleep() {
        if (state_.thread_wake < 0 || !state_.port->fall_asleep(Inbox::Asleep::deeply)) return Slept::cannot;
        const uint64_t now = state_.clock.now_ns(), longest = state_.longest_sleep_ns.load();
        state_.asleep_until_ns.store(now + longest);
        const bool watched = state_.watch.protect();
        Slept slept = watched ? Slept::undisturbed : Slept::cannot;
        // What came before it slept, and nobody therefore told of.
        if (watched && step_now(state_, false) == 0 && state_.due_ns > now + LONGEST_NAP_NS) {
            const uint64_t until = std::min(state_.due_ns, now + longest);
            state_.asleep_until_ns.store(until);
            state_.report.count_unlocked(Counter::sleeps);
            const Woken woken = wait(until - now);
            state_.report.count_unlocked(counter_of(woken, until == state_.due_ns));  // before its effect can be seen
            // First what somebody waits for: the answer to a packet; what a doorbell rings for, long before its store
            // goes on, for which the program's thread has to wake in its turn.
            state_.ring_waits = woken == Woken::by_store;
            if (woken == Woken::by_packet || woken == Woken::by_store) step_now(state_, false);
            state_.ring_waits = false;
            // The system tends to run a thread that a pipe wakes on the core of who wrote to it: the sender could not
            // look for the answer before the release.
            if (woken == Woken::by_packet) sched_yield();
            state_.watch.release();
            if (woken != Woken::by_time) slept = Slept::woken;
        } else {
            state_.watch.release();
        }
        wake();
        return slept;
    }

   private:
    static Counter counter_of(Woken woken, bool in_time) {
        switch (woken) {
            case Woken::by_store:
                return Counter::wakes_by_store;
            case Woken::by_call:
                return Counter::wakes_by_call;
            case Woken::by_packet:
                return Counter::wakes_by_packet;
            case Woken::by_time:
                break;
        }
        return in_time ? Counter::wakes_by_timer : Counter::looks_around;
    }

    void wake() {
        state_.asleep_until_ns.store(0);
        state_.port->wake_up();
        uint64_t count;
        if (state_.thread_wake >= 0) (void)!read(state_.thread_wake, &count, sizeof count);
    }

    DeviceState& state_;
};

void* run(void* argument) {
    DeviceState& s = *static_cast<DeviceState*>(argument);
    prctl(PR_SET_NAME, "gda-sim");
    prctl(PR_SET_TIMERSLACK, 1000UL);  // ns: the default of 50 us would make of a 10 us nap 79
    Sleeper sleeper(s);
    uint64_t last_work = s.clock.now_ns(), length = FIRST_NAP_NS, aside = LONGEST_NAP_NS;
    uint64_t looked_ns = last_work, looked_steps = 0, looked_pages = 0;
    uint32_t looks = 0;
    const auto slept = [&] {
        const Sleeper::Slept how = sleeper.sleep();
        if (how == Sleeper::Slept::cannot) return false;
        length = FIRST_NAP_NS;
        // Awake for a while, even when there is nothing to do yet: the store that woke it may not have been made again.
        if (how == Sleeper::Slept::woken) last_work = s.clock.now_ns();
        return true;
    };
    for (;;) {
        const auto mode = static_cast<Device::Thread>(s.thread_mode.load(std::memory_order_acquire));
        if (mode == Device::Thread::off) return nullptr;
        const auto pages = static_cast<uint64_t>(s.attached.load());
        if (pages == 0) {
            sleeper.nap(LONGEST_SLEEP_NS);
            continue;
        }
        const bool worked = step_now(s, false) > 0;
        if (mode == Device::Thread::busy) {
            // On two cores the program needs this one too. Not after each look: that takes longer than the look.
            if (++looks % LOOKS_BEFORE_YIELD == 0) sched_yield();
            continue;
        }
        const uint64_t now = s.clock.now_ns(), steps = s.outside_steps.load(std::memory_order_relaxed);
        const bool others = now - s.outside_step_ns.load(std::memory_order_relaxed) < OTHERS_STEP_NS;
        const bool dense = others && (steps - looked_steps) * DENSE_STEP_NS > now - looked_ns;
        looked_ns = now;
        looked_steps = steps;
        const uint64_t asleep_after = ASLEEP_AFTER_NS + pages * ASLEEP_AFTER_NS_PER_PAGE;
        // While a program makes queue pairs, too: each new page would wake a sleeping thread, which costs all pages'
        // time.
        const bool grows = pages != looked_pages;
        looked_pages = pages;
        if (worked || others || grows) {
            last_work = now;
            length = FIRST_NAP_NS;
        }
        aside = dense ? std::min(aside * 2, FEWER_NAPS_NS) : LONGEST_NAP_NS;
        if (others) {
            sleeper.nap(aside);
        } else if (now - last_work < (s.gpu_umems.load(std::memory_order_relaxed) ? SPIN_WITH_GPU_NS : SPIN_NS)) {
            sched_yield();
        } else if (now - last_work > asleep_after && s.due_ns > now + LONGEST_NAP_NS && slept()) {
            continue;
        } else if (now - last_work > FEWER_NAPS_AFTER_NS) {
            sleeper.nap(FEWER_NAPS_NS);
        } else {
            sleeper.nap(length);
            length = std::min(length * 2, LONGEST_NAP_NS);
        }
    }
}

}  // namespace

uint32_t process_generation() { return generation.load(std::memory_order_relaxed); }

void enlist(DeviceState* s) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handlers);
    std::lock_guard<std::mutex> hold(registry().lock);
    registry().devices.push_back(s);
}

void delist(DeviceState* s) {
    std::lock_guard<std::mutex> hold(registry().lock);
    auto& devices = registry().devices;
    devices.erase(std::remove(devices.begin(), devices.end(), s), devices.end());
}

bool each_device(const std::function<void(DeviceState&)>& visit) {
    std::unique_lock<std::mutex> hold(registry().lock, std::try_to_lock);
    if (!hold.owns_lock()) return false;
    for (DeviceState* s : registry().devices) visit(*s);
    return true;
}

uint64_t rest_until(const DeviceState& s) {
    if (!s.sweeping.empty() || !s.ordering.late.empty() || s.copier.busy()) return 0;
    const uint64_t held = s.port->due_ns();
    uint64_t until = held ? held : ~uint64_t{0};
    if (const uint64_t look = unrung_due_ns(s)) until = std::min(until, look);
    for (const Qp* qp : s.busy) {
        const bool waits = qp->state == MLX5_QPC_STATE_RTS && qp->replies.empty() && !qp->failing &&
                           (qp->rnr_until_ns || (qp->cursor == qp->sent.size() && qp->next == qp->producer));
        if (!waits && qp->state != MLX5_QPC_STATE_ERR) return 0;
        const uint64_t due = due_ns(qp);
        if (due) until = std::min(until, due);
    }
    return until;
}

void nudge(DeviceState& s) {
    const uint64_t until = s.asleep_until_ns.load();
    if (until && rest_until(s) < until) wake_thread(s);
}

void Device::set_longest_sleep(uint64_t ns) { state_->longest_sleep_ns.store(ns ? ns : LONGEST_SLEEP_NS); }

void prepare_thread(DeviceState& s) {
    s.longest_sleep_ns.store(LONGEST_SLEEP_NS);
    s.thread_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void wake_thread(DeviceState& s) {
    const uint64_t one = 1;
    if (s.thread_wake >= 0) (void)!write(s.thread_wake, &one, sizeof one);
}

void stop_thread(DeviceState& s) {
    std::lock_guard<std::mutex> one_at_a_time(s.thread_control);
    s.thread_mode.store(static_cast<int>(Device::Thread::off), std::memory_order_release);
    if (!s.thread_runs) return;
    wake_thread(s);
    pthread_join(s.thread, nullptr);
    s.thread_runs = false;
}

void start_thread(DeviceState& s) {
    std::lock_guard<std::mutex> one_at_a_time(s.thread_control);
    const bool wanted =
        !Clock::is_virtual() && s.thread_mode.load() != static_cast<int>(Device::Thread::off) && s.attached.load() != 0;
    if (!wanted || s.thread_runs) return;
    // What the last thread was told, or nobody: this one looks at everything before it sleeps.
    uint64_t told;
    if (s.thread_wake >= 0) (void)!read(s.thread_wake, &told, sizeof told);
    // The program's signals are for its own threads; faults of a copy are this thread's.
    sigset_t all, before;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s.thread_runs = pthread_create(&s.thread, nullptr, run, &s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!s.thread_runs)
        s.report.say(Kind::internal, "the software NIC could not start its thread: it moves only when it is stepped");
}

void Device::set_thread(Thread mode) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return;
    if (mode == Thread::off) return stop_thread(s);
    s.thread_mode.store(static_cast<int>(mode), std::memory_order_release);
    start_thread(s);
}

}  // namespace sim
