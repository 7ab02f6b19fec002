// SPDX-License-Identifier: Apache-2.0
// See thread.h.

#include "sim/engine/thread.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>

namespace sim {

namespace {

// How the adaptive thread slows down. It spins for a moment after work, since more usually follows; then it naps,
// longer and longer; when nothing has happened for a second it looks once a millisecond (1 % of a core; at 100 us it is
// 11 % on a virtual machine). While another thread steps (a program that polls), it stays out of the way.
const uint64_t SPIN_NS = microseconds(50);
const uint64_t FIRST_NAP_NS = microseconds(10), LONGEST_NAP_NS = microseconds(100);
const uint64_t ASLEEP_AFTER_NS = seconds(1), ASLEEP_NAP_NS = milliseconds(1);
const uint64_t OTHERS_STEP_NS = microseconds(20);

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
        s->thread_lock.lock();
        s->report.lock().lock();
    }
}
void after_fork() {
    auto& devices = registry().devices;
    for (size_t i = devices.size(); i-- > 0;) {
        devices[i]->report.lock().unlock();
        devices[i]->thread_lock.unlock();
        devices[i]->lock.unlock();
    }
    registry().lock.unlock();
}
void in_child() {
    generation.fetch_add(1);
    for (DeviceState* s : registry().devices) {
        s->thread_runs = false;  // threads do not survive a fork
        s->port->disown();
    }
    after_fork();
}
void install_fork_handlers() { pthread_atfork(before_fork, after_fork, in_child); }

void nap(uint64_t ns) {
    timespec t = {0, static_cast<long>(ns)};
    nanosleep(&t, nullptr);
}

void* run(void* argument) {
    DeviceState& s = *static_cast<DeviceState*>(argument);
    prctl(PR_SET_NAME, "gda-sim");
    prctl(PR_SET_TIMERSLACK, 1000UL);  // ns: the default of 50 us would make of a 10 us nap 79
    uint64_t last_work = s.clock.now_ns(), length = FIRST_NAP_NS;
    for (;;) {
        const auto mode = static_cast<Device::Thread>(s.thread_mode.load(std::memory_order_acquire));
        if (mode == Device::Thread::off) return nullptr;
        if (s.attached.load() == 0) {
            std::unique_lock<std::mutex> hold(s.thread_lock);
            s.thread_wake.wait(hold, [&s] {
                return s.attached.load() != 0 || s.thread_mode.load() == static_cast<int>(Device::Thread::off);
            });
            continue;
        }
        const bool worked = step_now(s, false) != 0;
        if (mode == Device::Thread::busy) {
            sched_yield();  // on two cores the program needs this one too
            continue;
        }
        const uint64_t now = s.clock.now_ns();
        const bool others = now - s.outside_step_ns.load(std::memory_order_relaxed) < OTHERS_STEP_NS;
        if (worked) {
            last_work = now;
            length = FIRST_NAP_NS;
        }
        if (others) {
            nap(LONGEST_NAP_NS);
        } else if (now - last_work < SPIN_NS) {
            sched_yield();  // on two cores the program needs this one too
        } else if (now - last_work > ASLEEP_AFTER_NS) {
            nap(ASLEEP_NAP_NS);
        } else {
            nap(length);
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

void wake_thread(DeviceState& s) {
    {
        std::lock_guard<std::mutex> hold(s.thread_lock);
    }
    s.thread_wake.notify_all();
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
    // The program's signals are for its own threads; faults of a copy are this thread's.
    sigset_t all, before;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s.thread_runs = pthread_create(&s.thread, nullptr, run, &s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!s.thread_runs) s.report.say("the software NIC could not start its thread: it moves only when it is stepped");
}

void Device::set_thread(Thread mode) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return;
    if (mode == Thread::off) return stop_thread(s);
    s.thread_mode.store(static_cast<int>(mode), std::memory_order_release);
    start_thread(s);
}

}  // namespace sim
