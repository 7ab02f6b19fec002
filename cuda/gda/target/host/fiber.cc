// SPDX-License-Identifier: Apache-2.0
// The switch between fibers, and the pool of their stacks. See fiber.h.
#include "fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <vector>

#if defined(__x86_64__)
asm(R"(
.text
.globl gda_host_switch
.hidden gda_host_switch
.type gda_host_switch, @function
gda_host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size gda_host_switch, . - gda_host_switch
.hidden gda_host_first
.type gda_host_first, @function
gda_host_first:
    movq %r12, %rdi
    xorl %ebp, %ebp
    callq *%rbx
    ud2
.size gda_host_first, . - gda_host_first
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl gda_host_switch
.hidden gda_host_switch
.type gda_host_switch, %function
gda_host_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size gda_host_switch, . - gda_host_switch
.hidden gda_host_first
.type gda_host_first, %function
gda_host_first:
    mov x0, x20
    mov x29, xzr
    blr x19
    brk #1
.size gda_host_first, . - gda_host_first
)");
#else
#error "device code on the CPU needs x86-64 or aarch64"
#endif

extern "C" __attribute__((visibility("hidden"))) void gda_host_first();

namespace gda {
namespace host {

void prepare(context* c, uint8_t* stack, void (*run)(void*), void* argument) {
#if defined(GDA_HOST_ASAN)
    __asan_unpoison_memory_region(stack, STACK_BYTES);  // a fiber that was given up left its marks there
#endif
    uint64_t* top = reinterpret_cast<uint64_t*>(stack + STACK_BYTES);
#if defined(__x86_64__)
    // As gda_host_switch leaves it: r15 r14 r13 r12 rbx rbp, return address. Behind them rsp is a multiple of 16, as it
    // must be before the call in gda_host_first.
    uint64_t* at = top - 9;
    for (int i = 0; i < 9; ++i) at[i] = 0;
    at[3] = reinterpret_cast<uint64_t>(argument);
    at[4] = reinterpret_cast<uint64_t>(run);
    at[6] = reinterpret_cast<uint64_t>(&gda_host_first);
#else
    uint64_t* at = top - 20;
    for (int i = 0; i < 20; ++i) at[i] = 0;
    at[0] = reinterpret_cast<uint64_t>(run);
    at[1] = reinterpret_cast<uint64_t>(argument);
    at[11] = reinterpret_cast<uint64_t>(&gda_host_first);
#endif
    c->stack_pointer = at;
    c->stack_bottom = stack;
    c->stack_bytes = STACK_BYTES;
    c->fake_stack = nullptr;
}

void adopt_thread(context* c) {
    pthread_attr_t attributes;
    void* bottom = nullptr;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &bottom, &bytes);
        pthread_attr_destroy(&attributes);
    }
    c->stack_bottom = bottom;
    c->stack_bytes = bytes;
    c->fake_stack = nullptr;
#if defined(GDA_HOST_TSAN)
    c->tsan = __tsan_get_current_fiber();
#endif
}

#if defined(GDA_HOST_TSAN)
void make_tsan_fiber(context* c) { c->tsan = __tsan_create_fiber(0); }
void drop_tsan_fiber(context* c) { __tsan_destroy_fiber(c->tsan); }
#else
void make_tsan_fiber(context*) {}
void drop_tsan_fiber(context*) {}
#endif

namespace {
// Each guard page splits a mapping in two, and a process may have 65,530: with more stacks the others have none.
constexpr size_t MOST_GUARDS = 16384;
size_t guards = 0;
std::mutex pool_lock;
std::vector<uint8_t*>& pool() {
    static std::vector<uint8_t*>* stacks = new std::vector<uint8_t*>;  // outlives threads at the end of the process
    return *stacks;
}
}  // namespace

bool take_stacks(uint8_t** stacks, uint32_t count) {
    std::lock_guard<std::mutex> hold(pool_lock);
    std::vector<uint8_t*>& free = pool();
    if (free.size() < count) {
        size_t guard = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        size_t more = count - free.size();
        void* slab = mmap(nullptr, more * (guard + STACK_BYTES), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (slab == MAP_FAILED) return false;
        for (size_t i = 0; i < more; ++i) {
            uint8_t* at = static_cast<uint8_t*>(slab) + i * (guard + STACK_BYTES);
            if (guards < MOST_GUARDS && mprotect(at, guard, PROT_NONE) == 0) ++guards;
            free.push_back(at + guard);
        }
    }
    for (uint32_t i = 0; i < count; ++i) {
        stacks[i] = free.back();
        free.pop_back();
    }
    return true;
}

void give_stacks(uint8_t* const* stacks, uint32_t count) {
    std::lock_guard<std::mutex> hold(pool_lock);
    pool().insert(pool().end(), stacks, stacks + count);
}

}  // namespace host
}  // namespace gda
