// SPDX-License-Identifier: Apache-2.0
// Which target this compiler makes code for. Included by target.h only.
#pragma once

#include <gda/target/types.h>

namespace gda {
namespace target {

enum scope { scope_gpu, scope_system };

// With GDA_UNCHECKED posting leaves out its checks: handle, bounds, earlier errors, room in the ring. It is there to
// measure what they cost; such code overwrites requests that a full ring still holds.
#if defined(GDA_UNCHECKED)
static constexpr bool CHECKED = false;
#else
static constexpr bool CHECKED = true;
#endif

// Lanes of one warp that act as one.
struct group {
    uint32_t mask;    // bit per lane
    uint32_t leader;  // lane number
    uint32_t rank;    // own position among the lanes of mask
    uint32_t size;
};

}  // namespace target
}  // namespace gda

#if defined(GDA_TARGET_HEADER)  // one from outside: tests/device/model/target.h
#include GDA_TARGET_HEADER
#elif defined(__CUDACC__)
#include <gda/target/cuda.h>
#else
#include <gda/target/host.h>
#endif

#include <gda/target/trace.h>
