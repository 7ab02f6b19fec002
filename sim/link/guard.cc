// SPDX-License-Identifier: Apache-2.0
// See guard.h.

#include "sim/link/guard.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <csetjmp>
#include <cstring>

#define SIM_UNWATCHED __attribute__((noinline, no_sanitize("address", "thread", "undefined")))

namespace sim {

namespace {

struct Guard {
    sigjmp_buf back;
    uintptr_t address = 0;  // of the fault
};
// Where the thread's own block has it from the start: each copy looks it up, and so does the signal handler, which
// must not find a block that is not there yet.
__attribute__((tls_model("initial-exec"))) thread_local Guard* volatile armed_guard = nullptr;

struct sigaction previous_segv, previous_bus;

void pass_on(int signal, siginfo_t* info, void* context) {
    const struct sigaction& before = signal == SIGSEGV ? previous_segv : previous_bus;
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    } else {
        sigaction(signal, &before, nullptr);    // the access is repeated and the process ends as it would without us
        if (info->si_code <= 0) raise(signal);  // sent by somebody: there is no access to repeat
    }
}

void on_fault(int signal, siginfo_t* info, void* context) {
    Guard* guard = armed_guard;
    if (!guard || info->si_code <= 0) return pass_on(signal, info, context);
    guard->address = reinterpret_cast<uintptr_t>(info->si_addr);
    // The jump leaves the handler for good: what it blocks must not stay blocked.
    pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(guard->back, 1);
}

void install() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous_segv);
    sigaction(SIGBUS, &action, &previous_bus);
}

typedef uint64_t Word __attribute__((aligned(1), may_alias));
typedef long long Vector __attribute__((vector_size(16), aligned(1), may_alias));

// The empty asm keeps the compiler from turning the loops into a call of memcpy, which sanitizers watch; and the pieces
// in the order of their addresses, as PCI Express shows one write: some programs take the last bytes of a line for the
// sign that all of it is there (docs/protocols.md).
SIM_UNWATCHED void raw_copy(uint8_t* to, const uint8_t* from, size_t bytes) {
    while (bytes >= 64) {
        const Vector* s = reinterpret_cast<const Vector*>(from);
        Vector* d = reinterpret_cast<Vector*>(to);
        Vector a = s[0], b = s[1], c = s[2], e = s[3];
        d[0] = a;
        asm volatile("" ::: "memory");
        d[1] = b;
        asm volatile("" ::: "memory");
        d[2] = c;
        asm volatile("" ::: "memory");
        d[3] = e;
        asm volatile("" ::: "memory");
        to += 64, from += 64, bytes -= 64;
    }
    while (bytes >= 8) {
        *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(from);
        asm volatile("" ::: "memory");
        to += 8, from += 8, bytes -= 8;
    }
    while (bytes--) {
        *to++ = *from++;
        asm volatile("");
    }
}

// Body is a small function object without anything to destroy: a fault leaves it by a jump. By reference: a copy would
// be read in larger pieces than it was just written in, and wait for them.
template <typename Body>
SIM_UNWATCHED bool guarded(const Body& body, uintptr_t* fault) {
    Guard guard;
    Guard* outer = armed_guard;
    if (sigsetjmp(guard.back, 0)) {
        armed_guard = outer;
        if (fault) *fault = guard.address;
        return false;
    }
    armed_guard = &guard;
    asm volatile("" ::: "memory");
    body();
    asm volatile("" ::: "memory");
    armed_guard = outer;
    return true;
}

}  // namespace

void install_guard() {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

bool guarded_copy(void* destination, const void* source, size_t bytes, uintptr_t* fault) {
    uint8_t* to = static_cast<uint8_t*>(destination);
    const uint8_t* from = static_cast<const uint8_t*>(source);
    return guarded([=] { raw_copy(to, from, bytes); }, fault);
}

bool guarded_load32(const void* source, uint32_t* value) {
    const uint32_t* from = static_cast<const uint32_t*>(source);
    return guarded([=] { *value = __atomic_load_n(from, __ATOMIC_ACQUIRE); }, nullptr);
}

bool guarded_store32(void* destination, uint32_t value) {
    uint32_t* to = static_cast<uint32_t*>(destination);
    return guarded([=] { __atomic_store_n(to, value, __ATOMIC_RELEASE); }, nullptr);
}

bool guarded_publish(void* destination, const void* source, size_t bytes) {
    uint8_t* to = static_cast<uint8_t*>(destination);
    const uint8_t* from = static_cast<const uint8_t*>(source);
    uint32_t last;
    std::memcpy(&last, from + bytes - 4, sizeof last);
    return guarded(
        [=] {
            uint32_t* at = reinterpret_cast<uint32_t*>(to);
            uint32_t* const end = at + bytes / 4 - 1;
            for (const uint8_t* next = from; at != end; next += sizeof *at) {
                uint32_t word;
                __builtin_memcpy(&word, next, sizeof word);
                __atomic_store_n(at++, word, __ATOMIC_RELAXED);
            }
            __atomic_store_n(end, last, __ATOMIC_RELEASE);
        },
        nullptr);
}

bool guarded_load(const void* source, size_t bytes, uint64_t* value) {
    return guarded(
        [=] {
            *value = bytes == 4 ? __atomic_load_n(static_cast<const uint32_t*>(source), __ATOMIC_ACQUIRE)
                                : __atomic_load_n(static_cast<const uint64_t*>(source), __ATOMIC_ACQUIRE);
        },
        nullptr);
}

bool guarded_replace(void* destination, size_t bytes, uint64_t* expected, uint64_t value, bool* replaced) {
    return guarded(
        [=] {
            if (bytes == 4) {
                uint32_t was = static_cast<uint32_t>(*expected);
                *replaced =
                    __atomic_compare_exchange_n(static_cast<uint32_t*>(destination), &was, static_cast<uint32_t>(value),
                                                false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
                *expected = was;
            } else {
                *replaced = __atomic_compare_exchange_n(static_cast<uint64_t*>(destination), expected, value, false,
                                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
            }
        },
        nullptr);
}

size_t guarded_first_change(WatchedWord* words, size_t count) {
    volatile size_t at = 0;  // also where a fault was
    volatile size_t* place = &at;
    guarded(
        [=] {
            const size_t all = count;
            size_t i = 0;
            for (WatchedWord* word = words; i < all && word->at; ++word, *place = ++i) {
                const uint32_t now = __atomic_load_n(word->at, __ATOMIC_RELAXED);
                if (now == word->seen) continue;
                word->seen = now;
                break;
            }
        },
        nullptr);
    return at;
}

bool guarded_exchange32(void* destination, uint32_t expected, uint32_t value) {
    uint32_t* to = static_cast<uint32_t*>(destination);
    bool done = false;
    bool* result = &done;
    bool reached = guarded(
        [=] {
            uint32_t was = expected;
            *result = __atomic_compare_exchange_n(to, &was, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        },
        nullptr);
    return reached && done;
}

}  // namespace sim
