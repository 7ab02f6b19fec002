// SPDX-License-Identifier: Apache-2.0
// See shadow.h.

#include "sim/engine/shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "sim/link/guard.h"

namespace sim {

namespace {

uint8_t* new_pages(uint64_t bytes) {
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? nullptr : static_cast<uint8_t*>(pages);
}

bool has_shadow(const Mkey& key) {
    return !key.whole && !key.free && !key.layout && key.bytes && key.bytes <= Shadows::LARGEST_BYTES &&
           !(key.umem && key.umem->gpu);
}

uint64_t address_of(const Mkey& key) { return key.umem ? key.umem->address + key.offset : key.start; }

}  // namespace

Shadows::~Shadows() {
    for (auto& [key, shadow] : shadows_) munmap(shadow.copy, shadow.bytes);
}

void Shadows::refresh(DeviceState& s) {
    for (auto it = shadows_.begin(); it != shadows_.end();) {
        const Mkey* key = s.keys.find(it->first >> 8);
        const bool same = key && key->key == it->first && has_shadow(*key) && key->bytes == it->second.bytes &&
                          address_of(*key) == it->second.address;
        if (!same) munmap(it->second.copy, it->second.bytes);
        it = same ? std::next(it) : shadows_.erase(it);
    }
    s.keys.each([&](const Mkey& key) {
        if (!has_shadow(key)) return;
        Shadow& shadow = shadows_[key.key];
        if (!shadow.copy) shadow = {new_pages(key.bytes), address_of(key), key.bytes};
        const void* memory = reinterpret_cast<const void*>(shadow.address);
        if (!shadow.copy || !guarded_copy(shadow.copy, memory, shadow.bytes)) {
            if (shadow.copy) munmap(shadow.copy, shadow.bytes);
            shadows_.erase(key.key);
        }
    });
}

void Shadows::reached(DeviceState& s, Moment moment) {
    if (moment == Moment::begin) ++running_;
    if (moment == Moment::end && running_) --running_;
    refresh(s);
}

Shadows::Shadow* Shadows::of(uint64_t address, uint64_t bytes) {
    for (auto& [key, shadow] : shadows_) {
        const uint64_t offset = address - shadow.address;
        if (offset < shadow.bytes && bytes <= shadow.bytes - offset) return &shadow;
    }
    return nullptr;
}

void Shadows::wrote(const void* address, uint64_t bytes) {
    const uint64_t first = reinterpret_cast<uint64_t>(address);
    for (auto& [key, shadow] : shadows_) {
        const uint64_t begin = std::max(first, shadow.address);
        const uint64_t end = std::min(first + bytes, shadow.address + shadow.bytes);
        if (begin < end)
            guarded_copy(shadow.copy + (begin - shadow.address), reinterpret_cast<void*>(begin), end - begin);
    }
}

void Shadows::look_through(DeviceState& s, const Qp* qp, int index, std::vector<iovec>* parts) {
    if (!running_) return;
    for (iovec& part : *parts) {
        const uint64_t address = reinterpret_cast<uint64_t>(part.iov_base);
        const Shadow* shadow = of(address, part.iov_len);
        if (!shadow) continue;
        uint8_t* seen = shadow->copy + (address - shadow->address);
        std::vector<uint8_t> held(part.iov_len);
        if (guarded_copy(held.data(), part.iov_base, part.iov_len)) {
            const auto differ = std::mismatch(held.begin(), held.end(), seen);
            if (differ.first != held.end()) {
                const uint64_t at = static_cast<uint64_t>(differ.first - held.begin());
                const std::string what = index < 0 ? "a response" : text("WQE %d", index);
                Values values = {
                    {"qp", qp->number}, {"address", address + at}, {"memory", *differ.first}, {"seen", *differ.second}};
                if (index >= 0) values.insert(values.begin() + 1, {"index", static_cast<uint64_t>(index)});
                s.report.say(
                    Kind::fence_missing,
                    text("%s: %s: no fence of system scope stands between the payload and the doorbell: at 0x%" PRIx64
                         " the NIC still sees 0x%02x where memory holds 0x%02x (__threadfence_system)",
                         qp->name, what.c_str(), address + at, *differ.second, *differ.first),
                    values);
            }
        }
        part.iov_base = seen;
    }
}

}  // namespace sim
