// SPDX-License-Identifier: Apache-2.0
// On request: what a request sends must be the same when it completes as when it was fetched. Called by the requester
// for each WQE. Costs a checksum of the payload at both ends, so it is off unless somebody looks for such a mistake.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "sim/engine/wqe.h"

namespace sim {

class Sources {
   public:
    // The WQE in s.wqe and its payload, as they are when the WQE is fetched.
    void fetched(DeviceState& s, const Qp* qp, uint16_t index, const ParsedWqe& wqe);
    // It completes.
    void completes(DeviceState& s, Qp* qp, const Message& m);
    void forget(const Qp* qp);

   private:
    struct Source {
        std::vector<Span> pieces;
        uint64_t payload = 0, request = 0;  // checksums
        uint16_t blocks = 1;
    };
    std::map<std::pair<const Qp*, uint16_t>, Source> sources_;  // by the index of the first block
};

}  // namespace sim
