// SPDX-License-Identifier: Apache-2.0
// See complaint.h.

#include "sim/engine/complaint.h"

#include <algorithm>

namespace sim {

const KindWords& words_of(Kind kind) {
    static const std::vector<KindWords>* const all = [] {  // never destroyed: the last words are said at exit
        auto* list = new std::vector<KindWords>{
#define SIM_NAME(name, rule, source, advice) {#name, rule, source, advice},
            SIM_COMPLAINTS(SIM_NAME)
#undef SIM_NAME
        };
        for (KindWords& words : *list) std::replace(words.name.begin(), words.name.end(), '_', '-');
        return list;
    }();
    return (*all)[static_cast<size_t>(kind)];
}

}  // namespace sim
