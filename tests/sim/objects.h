// SPDX-License-Identifier: Apache-2.0
// How many objects the driver holds: the simulator's own count, found in the preload library. Used by uverbs_*.
#pragma once

#include <dlfcn.h>
#include <stdint.h>

#include "expect.h"

static inline uint64_t objects(void) {
    uint64_t (*count)(void) = (uint64_t (*)(void))dlsym(RTLD_DEFAULT, "gda_sim_objects");
    EXPECT(count);
    return count();
}
