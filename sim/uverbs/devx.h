// SPDX-License-Identifier: Apache-2.0
// An object that a program made with a firmware command of its own. Shared by devx.cc and devx_events.cc.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/uverbs/events.h"
#include "sim/uverbs/objects.h"

namespace sim::uverbs::devx {

struct Kind {
    uint32_t create, destroy;
    Object::Type stands_for;  // which commands may name it later: those about such an object of verbs
};

class FirmwareObject : public Object {
   public:
    static constexpr Type kind = Type::devx;
    FirmwareObject(const Kind& what, uint32_t number) : Object(kind), what(what), number(number) {}
    int destroy() override;
    std::optional<events::Subject> subject() const;  // nothing: no event is ever about it
    const Kind& what;
    const uint32_t number;
};

}  // namespace sim::uverbs::devx
