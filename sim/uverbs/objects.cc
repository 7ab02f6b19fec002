// SPDX-License-Identifier: Apache-2.0
// See objects.h.
#include "sim/uverbs/objects.h"

#include <errno.h>

#include "sim/uverbs/nic.h"

namespace sim::uverbs {

int Umem::reserve(uint64_t address, uint64_t bytes) {
    Nic nic;
    if (!nic) return ENODEV;
    if (int error = nic->register_umem(address, bytes, &id_)) return -error;
    valid_ = true;
    return 0;
}

int Umem::release() {
    if (!valid_) return 0;
    Nic nic(Nic::Make::no);
    if (nic) {
        if (int error = nic->release_umem(id_)) return -error;
    }
    valid_ = false;
    return 0;
}

uint32_t Objects::add(std::unique_ptr<Object> object, std::initializer_list<Object*> uses) {
    object->handle = next_++;
    for (Object* used : uses) {
        if (!used) continue;
        ++used->users;
        object->uses.push_back(used);
    }
    const uint32_t handle = object->handle;
    objects_[handle] = std::move(object);
    return handle;
}

Object* Objects::find_any(uint32_t handle) const {
    auto found = objects_.find(handle);
    return found != objects_.end() ? found->second.get() : nullptr;
}

void Objects::forget(Object* object) {
    for (Object* used : object->uses) --used->users;
    objects_.erase(object->handle);
}

int Objects::destroy(Object* object) {
    if (object->users) return EBUSY;
    if (int error = object->destroy()) return error;
    forget(object);
    return 0;
}

void Objects::destroy_all() {
    // Newest first ends users before what they use. Firmware objects may also depend on each other in ways only the
    // NIC knows (EBUSY): go round again while anything moves.
    for (bool moved = true; moved;) {
        moved = false;
        std::vector<uint32_t> handles;
        for (const auto& entry : objects_) handles.push_back(entry.first);
        for (auto handle = handles.rbegin(); handle != handles.rend(); ++handle)
            moved = destroy(objects_[*handle].get()) == 0 || moved;
    }
    objects_.clear();
}

}  // namespace sim::uverbs
