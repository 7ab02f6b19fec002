// SPDX-License-Identifier: Apache-2.0
// Store-buffer mode: while device code runs on the CPU, the NIC reads small memory regions as they were at the last
// fence of system scope, as a card may read them whose GPU still holds the stores back. A missing fence then shows: old
// payload arrives, and the report names it. Used by memory.cc (what the NIC writes) and transmit.cc (what it sends);
// device code calls fence() through steer.h as it calls the idle hook.
// Source: PTX ISA, "Memory Consistency Model", scopes.
#pragma once

#include <sys/uio.h>

#include <map>
#include <memory>
#include <vector>

#include "sim/engine/state.h"

namespace sim {

class Shadows {
   public:
    enum : uint64_t { LARGEST_BYTES = 65536 };  // of a region that has a shadow
    enum class Moment { fence, begin, end };  // of device code: one of its fences, or the beginning or end of a kernel

    ~Shadows();
    // All stores that came before are visible to the NIC.
    void reached(DeviceState& s, Moment moment);
    // The NIC itself wrote to memory.
    void wrote(const void* address, uint64_t bytes);
    // What the NIC is about to read: each part becomes that of the shadow where there is one. Says so when memory holds
    // something newer. `index`: of the WQE; negative: of a response.
    void look_through(DeviceState& s, const Qp* qp, int index, std::vector<iovec>* parts);

   private:
    struct Shadow {
        uint8_t* copy = nullptr;  // a mapping of its own: packets on their way may point into it
        uint64_t address = 0, bytes = 0;
    };
    Shadow* of(uint64_t address, uint64_t bytes);
    void refresh(DeviceState& s);

    std::map<uint32_t, Shadow> shadows_;  // by key
    int running_ = 0;                     // kernels
};

// The same for a device that may have none.
inline void shadow_wrote(DeviceState& s, const void* address, uint64_t bytes) {
    if (__builtin_expect(s.shadows != nullptr, 0)) s.shadows->wrote(address, bytes);
}

}  // namespace sim
