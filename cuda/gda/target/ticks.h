// SPDX-License-Identifier: Apache-2.0
// The processor's time stamp counter: a third of the price of the system's clock, which is why trace events carry it.
// It runs at one speed on all processors of a machine (x86-64: constant_tsc); where it lies on the system's clock is
// learned from pairs read together. Used by target/trace.h and the software NIC (sim/engine/trace.h), never on a GPU.
#pragma once

#include <gda/target/types.h>

namespace gda {

GDA_INLINE uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t v;
    asm volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
#endif
}

}  // namespace gda
