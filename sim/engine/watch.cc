// SPDX-License-Identifier: Apache-2.0
// See watch.h.

#include "sim/engine/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <gda/formats/doorbell.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "sim/engine/gpu.h"
#include "sim/link/guard.h"

namespace sim {

namespace {

const uint64_t PAGE_BYTES = gda::prm::UAR_PAGE_BYTES;

uffdio_range range_of(const uint8_t* at) { return {reinterpret_cast<uint64_t>(at), PAGE_BYTES}; }

}  // namespace

// Stores by the program itself only: what the kernel stores on its behalf fails instead of waiting. For that no
// privilege is needed.
bool Watch::open() {
    if (tried_) return descriptor_ >= 0;
    tried_ = true;
    const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
    if (fd < 0) {
        refusal_ = std::string("userfaultfd: ") + std::strerror(errno);
        return false;
    }
    uffdio_api api = {};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
    if (ioctl(fd, UFFDIO_API, &api) != 0) {
        refusal_ = std::string("write protection of shared memory by userfaultfd: ") + std::strerror(errno);
        ::close(fd);
        return false;
    }
    descriptor_ = fd;
    return true;
}

void Watch::expect(uint32_t page_id) {
    std::lock_guard<std::mutex> hold(lock_);
    if (pages_.emplace(page_id, Page()).second) ++unmapped_;
}

bool Watch::map(uint32_t page_id, uint8_t* at) {
    std::lock_guard<std::mutex> hold(lock_);
    const auto found = pages_.find(page_id);
    if (found == pages_.end()) return false;
    if (!open()) return true;
    uffdio_register wanted = {};
    wanted.range = range_of(at);
    wanted.mode = UFFDIO_REGISTER_MODE_WP;
    if (ioctl(descriptor_, UFFDIO_REGISTER, &wanted) != 0) {
        refusal_ = std::string("a doorbell page cannot be watched: ") + std::strerror(errno);
        return true;  // stays without a known mapping: nobody sleeps
    }
    if (!found->second.mapped) --unmapped_;
    found->second.mapped = true;
    for (uint8_t* known : found->second.at) {
        if (known == at) return true;  // unmapped and mapped again at the same place
    }
    found->second.at.push_back(at);
    return true;
}

void Watch::forget(uint32_t page_id) {
    std::lock_guard<std::mutex> hold(lock_);
    const auto found = pages_.find(page_id);
    if (found == pages_.end()) return;
    for (uint8_t* at : found->second.at) {
        uffdio_range range = range_of(at);
        ioctl(descriptor_, UFFDIO_UNREGISTER, &range);  // also unprotects; fails when the program has unmapped it
    }
    if (!found->second.mapped) --unmapped_;
    pages_.erase(found);
}

// False: that mapping is no more.
bool Watch::set(uint8_t* at, bool protect) {
    uffdio_writeprotect wanted = {};
    wanted.range = range_of(at);
    wanted.mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0;
    int result;
    do {
        result = ioctl(descriptor_, UFFDIO_WRITEPROTECT, &wanted);
    } while (result != 0 && (errno == EAGAIN || errno == EINTR));  // the address space is changing just now
    return result == 0;
}

bool Watch::protect() {
    std::lock_guard<std::mutex> hold(lock_);
    if (unmapped_ || pages_.empty() || !open()) return false;
    for (const auto& entry : pages_) {
        for (const uint8_t* at : entry.second.at) {
            if (gpu::may_store(at)) return false;  // a GPU's stores do not fault
        }
    }
    protected_ = true;
    for (auto& entry : pages_) {
        std::vector<uint8_t*>& places = entry.second.at;
        for (size_t i = 0; i < places.size();) {
            if (set(places[i], true)) {
                ++i;
            } else if (errno == ENOENT) {  // unmapped by the program, or something else lies there now
                places[i] = places.back();
                places.pop_back();
            } else {
                refusal_ = std::string("a doorbell page cannot be protected: ") + std::strerror(errno);
                release_all();
                return false;
            }
        }
    }
    return true;
}

// A store may have met the protection and not yet be among those that wait: it then looks whether the page can be
// written, which the system does not make it before the next store to it, and waits although nobody protects it any
// more. So the page is stored to here, what it holds, and whoever waits by then is woken once more.
void Watch::release_all() {
    if (!protected_) return;
    protected_ = false;
    for (auto& entry : pages_) {
        for (uint8_t* at : entry.second.at) {
            uint32_t word;
            if (!set(at, false) || !guarded_load32(at, &word)) continue;
            guarded_exchange32(at, word, word);
            uffdio_range range = range_of(at);
            ioctl(descriptor_, UFFDIO_WAKE, &range);
        }
    }
}

void Watch::release() {
    std::lock_guard<std::mutex> hold(lock_);
    release_all();
}

std::string Watch::refusal() {
    std::lock_guard<std::mutex> hold(lock_);
    return refusal_;
}

void Watch::close() {
    std::lock_guard<std::mutex> hold(lock_);
    if (descriptor_ < 0) return;
    release_all();
    // By hand: a forked child may hold another copy of the descriptor, and then closing ours ends nothing.
    for (auto& entry : pages_) {
        for (uint8_t* at : entry.second.at) {
            uffdio_range range = range_of(at);
            ioctl(descriptor_, UFFDIO_UNREGISTER, &range);
        }
    }
    ::close(descriptor_);
    descriptor_ = -1;
    pages_.clear();
    unmapped_ = 0;
}

void Watch::drop() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
    tried_ = true;
}

}  // namespace sim
