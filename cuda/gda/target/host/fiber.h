// SPDX-License-Identifier: Apache-2.0
// A fiber: a stack and the registers that a called function must keep. Switching costs about 10 ns (swapcontext: 165).
// Used by block.cc; the sanitizers are told of every switch. Sources: System V ABI for x86-64, section 3.2; Procedure
// Call Standard for the Arm 64-bit Architecture, section 6 (aarch64 is written, not tested).
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define GDA_HOST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GDA_HOST_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define GDA_HOST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GDA_HOST_TSAN 1
#endif
#endif

#if defined(GDA_HOST_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(GDA_HOST_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace gda {
namespace host {

constexpr size_t STACK_BYTES = 64 * 1024;

// Stacks from a pool of the process; below each lies a page that faults (below the first 16,384). False when memory is
// short.
bool take_stacks(uint8_t** stacks, uint32_t count);
void give_stacks(uint8_t* const* stacks, uint32_t count);

struct context {
    void* stack_pointer;
    const void* stack_bottom;  // of what runs here, for the address sanitizer
    size_t stack_bytes;
    void* fake_stack;  // address sanitizer's
    void* tsan;        // thread sanitizer's name for the fiber
};

// Saves what the caller must keep on its stack, stores the stack pointer to *from and continues at `to`.
extern "C" void gda_host_switch(void** from, void* to);

// So that the first switch to it calls run(argument) on the stack; run must never return.
void prepare(context* c, uint8_t* stack, void (*run)(void*), void* argument);

#if defined(GDA_HOST_ASAN)
inline void switch_context(context* from, context* to, bool from_ends) {
    __sanitizer_start_switch_fiber(from_ends ? nullptr : &from->fake_stack, to->stack_bottom, to->stack_bytes);
    gda_host_switch(&from->stack_pointer, to->stack_pointer);
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
}
inline void context_entered() { __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr); }
#elif defined(GDA_HOST_TSAN)
inline void switch_context(context* from, context* to, bool) {
    __tsan_switch_to_fiber(to->tsan, 0);
    gda_host_switch(&from->stack_pointer, to->stack_pointer);
}
inline void context_entered() {}
#else
inline void switch_context(context* from, context* to, bool) {
    gda_host_switch(&from->stack_pointer, to->stack_pointer);
}
inline void context_entered() {}
#endif

// The thread's own stack as a context, and the names that a thread sanitizer wants.
void adopt_thread(context* c);
void make_tsan_fiber(context* c);
void drop_tsan_fiber(context* c);

}  // namespace host
}  // namespace gda
