// SPDX-License-Identifier: Apache-2.0
// See atomic.h.

#include "sim/engine/atomic.h"

#include <cstring>

#include "sim/engine/shadow.h"
#include "sim/link/guard.h"

namespace sim {

namespace {

// Adds, but no carry leaves a bit that `boundary` names.
uint64_t add_in_fields(uint64_t a, uint64_t b, uint64_t boundary) {
    // Below each boundary bit the sum cannot overflow into it unseen: add without the boundary bits, then put them in.
    const uint64_t rest = (a & ~boundary) + (b & ~boundary);
    return rest ^ ((a ^ b) & boundary);
}

// The word in a key of pieces: it must lie in one of them, as on a card, which locks one address.
bool execute_in_part(DeviceState& s, const AtomicOperation& o, const Span& target, uint64_t* was, const char* whose) {
    bool done = false;
    each_part(s, target, 0, o.bytes, [&](const Span& part) {
        if (part.bytes != o.bytes || reinterpret_cast<uint64_t>(part.address) % o.bytes) {
            s.report.say(
                Kind::atomic_misaligned,
                std::string(whose) + text(": the target of an atomic of %u bytes lies in several pieces of key "
                                          "0x%x, or not at a multiple of %u in one",
                                          o.bytes, target.scattered->key, o.bytes),
                about(whose, {{"key", target.scattered->key}, {"bytes", o.bytes}}));
            return false;
        }
        done = execute(s, o, part, was, whose);
        return done;
    });
    return done;
}

}  // namespace

bool apply(const AtomicOperation& o, uint64_t was, uint64_t* value) {
    if (!o.compares) {
        *value = add_in_fields(was, o.swap_add, o.swap_mask);
        return true;
    }
    if ((was ^ o.compare) & o.compare_mask) return false;
    *value = (was & ~o.swap_mask) | (o.swap_add & o.swap_mask);
    return true;
}

Copied execute_later(DeviceState& s, const AtomicOperation& o, const Span& target, gpu::Job* job, uint64_t* was,
                     const char* whose) {
    const gpu::Item item = {
        reinterpret_cast<uint64_t>(target.address),           0, o.bytes, o.compares ? gpu::DO_SWAP : gpu::DO_ADD,
        {o.swap_add, o.compare, o.swap_mask, o.compare_mask}, 0};
    std::string problem;
    switch (s.copier.item_later(target.gpu, item, was, job, &problem)) {
        case gpu::Copier::Later::yes:
            return Copied::yes;
        case gpu::Copier::Later::not_now:
            return Copied::later;
        case gpu::Copier::Later::cannot:
            return execute(s, o, target, was, whose) ? Copied::yes : Copied::no_destination;
        case gpu::Copier::Later::no_source:
        case gpu::Copier::Later::no_destination:
            break;
    }
    s.report.count(Counter::copy_faults);
    s.report.say(Kind::gpu_memory, std::string(whose) + ": " + problem, about(whose));
    return Copied::no_destination;
}

bool execute(DeviceState& s, const AtomicOperation& o, const Span& target, uint64_t* was, const char* whose) {
    uint64_t before = 0, after = 0;
    if (target.scattered) return execute_in_part(s, o, target, was, whose);
    if (target.gpu) {
        if (copy(s, plain_span(&before, o.bytes), 0, target, whose) != Copied::yes) {
            return false;
        }
        *was = before;
        if (!apply(o, before, &after)) return true;
        return copy(s, target, 0, plain_span(&after, o.bytes), whose) == Copied::yes;
    }
    bool there = guarded_load(target.address, o.bytes, &before);
    for (bool done = false; there && !done;) {
        if (!apply(o, before, &after)) break;
        there = guarded_replace(target.address, o.bytes, &before, after, &done);
    }
    *was = before;
    if (there) shadow_wrote(s, target.address, o.bytes);
    if (!there) {
        s.report.count(Counter::copy_faults);
        s.report.say(Kind::memory_gone,
                     std::string(whose) +
                         text(": the target of an atomic at %p is registered but no longer mapped (or not accessible)",
                              static_cast<void*>(target.address)),
                     about(whose, {{"address", reinterpret_cast<uint64_t>(target.address)}}));
    }
    return there;
}

}  // namespace sim
