// SPDX-License-Identifier: Apache-2.0
// See objects.h.
#include "sim/uverbs/objects.h"

#include <errno.h>

#include "sim/uverbs/nic.h"

namespace sim::uverbs {

namespace {

// Null ends what comes of the bases.
template <typename Visit>
void each_base(Object* object, Visit visit) {
    if (object->base) visit(object->base);
    Object** more = object->more_bases();
    for (int i = 0; more && i < Object::MORE_BASES && more[i]; ++i) visit(more[i]);
}

}  // namespace

int Umem::reserve(uint64_t address, uint64_t bytes) {
    Nic nic;
    if (!nic) return ENODEV;
    if (int error = nic->register_umem(address, bytes, &id_)) return -error;
    return 0;
}

int Umem::release() {
    if (!valid()) return 0;
    Nic nic(Nic::Make::no);
    if (nic) {
        if (int error = nic->release_umem(id_)) return -error;
    }
    id_ = 0;
    return 0;
}

uint32_t Objects::free_handle() {
    const size_t room = blocks_.size() * BLOCK;
    if (size_ + 1 > room - room / 8) {
        blocks_.push_back(std::make_unique<Block>());
        next_ = static_cast<uint32_t>(room);
    }
    do {
        if (++next_ >= blocks_.size() * BLOCK) next_ = 1;  // 0 names nothing
    } while (find_any(next_));
    return next_;
}

uint32_t Objects::add(std::unique_ptr<Object> object, std::initializer_list<Object*> bases) {
    Object** place = &object->base;
    for (Object* base : bases) {
        if (!base) continue;
        ++base->users;
        *place = base;
        place = place == &object->base ? object->more_bases() : place + 1;
    }
    const uint32_t handle = object->handle = free_handle();
    ++size_;
    (*blocks_[handle / BLOCK])[handle % BLOCK] = std::move(object);
    return handle;
}

void Objects::forget(Object* object) {
    each_base(object, [](Object* base) { --base->users; });
    --size_;
    const uint32_t handle = object->handle;
    (*blocks_[handle / BLOCK])[handle % BLOCK].reset();
}

int Objects::destroy(Object* object) {
    if (object->users) return EBUSY;
    if (int error = object->destroy()) return error;
    forget(object);
    return 0;
}

void Objects::destroy_all() {
    // Newest first ends users before what they use. Handles go round, and firmware objects may depend on each other in
    // ways only the NIC knows (EBUSY): again while anything moves.
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t handle = static_cast<uint32_t>(blocks_.size() * BLOCK); handle-- > 0;) {
            Object* object = find_any(handle);
            if (object) moved = destroy(object) == 0 || moved;
        }
    }
    blocks_.clear();
    size_ = 0;
}

}  // namespace sim::uverbs
