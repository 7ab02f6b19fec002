// SPDX-License-Identifier: Apache-2.0
// What a port counts. Written under the lock of the NIC, read by anybody.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "sim/link/wire.h"

namespace sim {

// name, then what it counts
#define SIM_LINK_COUNTERS(X)                                                     \
    X(packets_over_link_mtu)   /* dropped: longer than the MTU of the netdev */  \
    X(packets_to_nowhere)      /* lost: nobody here has the destination's GID */ \
    X(packets_without_link)    /* lost in either direction: no cable */          \
    X(fault_dropped)           /* by chance or rule */                           \
    X(fault_duplicated)        /* sent twice */                                  \
    X(fault_reordered)         /* held back behind later packets */              \
    X(fault_delayed)           /* by a delay or a rate */                        \
    X(fault_corrupted)         /* one bit changed */                             \
    X(fault_corruption_caught) /* of them, refused: ICRC, checksum or length */  \
    X(wire_sent)               /* packets and frames given to a UDP socket */    \
    X(wire_unsent)             /* of them, lost: refused by the host */          \
    X(wire_received)           /* packets taken from a UDP socket */             \
    X(wire_refused)            /* dropped: malformed, or not for this NIC */     \
    X(wire_bad_icrc)           /* dropped: the ICRC is wrong */                  \
    X(fault_link_down)         /* lost in either direction while it was down */

enum class LinkCounter : int {
#define SIM_NAME(name) name,
    SIM_LINK_COUNTERS(SIM_NAME)
#undef SIM_NAME
        none
};

class LinkCounters {
   public:
    void count(LinkCounter c, uint64_t n = 1) {
        std::atomic<uint64_t>& value = values_[static_cast<int>(c)];
        value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
    // Of what came from a wire; whether it is a packet.
    bool took(Refusal refusal) {
        count(refusal == Refusal::none   ? LinkCounter::wire_received
              : refusal == Refusal::icrc ? LinkCounter::wire_bad_icrc
                                         : LinkCounter::wire_refused);
        return refusal == Refusal::none;
    }
    uint64_t value(LinkCounter c) const { return values_[static_cast<int>(c)].load(std::memory_order_relaxed); }
    const void* values() const { return values_; }
    // 0 for an unknown name.
    uint64_t value(const char* name) const {
        const std::vector<std::string> all = names();
        for (size_t i = 0; i < all.size(); ++i) {
            if (all[i] == name) return values_[i].load(std::memory_order_relaxed);
        }
        return 0;
    }
    static std::vector<std::string> names() {
        return {
#define SIM_NAME(name) #name,
            SIM_LINK_COUNTERS(SIM_NAME)
#undef SIM_NAME
        };
    }

   private:
    std::atomic<uint64_t> values_[static_cast<int>(LinkCounter::none)] = {};
};

}  // namespace sim
