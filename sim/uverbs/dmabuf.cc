// SPDX-License-Identifier: Apache-2.0
// See dmabuf.h.
#include "sim/uverbs/dmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "sim/uverbs/real.h"

namespace sim::uverbs {
namespace {

constexpr uint64_t page_bytes = 4096;
constexpr long dma_buf_magic = 0x444d4142;  // <linux/magic.h>: the file system that all dma-bufs are on

bool is_buffer(int fd) {
    struct statfs system{};
    if (fstatfs(fd, &system) == 0 && system.f_type == dma_buf_magic) return true;
    return fcntl(fd, F_GET_SEALS) >= 0;  // only memfds have seals
}

// GPU memory by the file that stands for it. Inodes of dma-bufs are never used twice, so what is gone does no harm.
struct Exported {
    std::mutex mutex;
    std::map<std::pair<dev_t, ino_t>, std::pair<uint64_t, uint64_t>> ranges;  // address and bytes
};
Exported& exported() {
    static Exported* instance = new Exported;
    return *instance;
}

// Whether the buffer was exported from GPU memory here.
bool find_exported(int fd, uint64_t* address, uint64_t* bytes) {
    struct stat status{};
    if (real::fstat(fd, &status) != 0) return false;
    std::lock_guard<std::mutex> guard(exported().mutex);
    const auto found = exported().ranges.find({status.st_dev, status.st_ino});
    if (found == exported().ranges.end()) return false;
    std::tie(*address, *bytes) = found->second;
    return true;
}

}  // namespace

void DmaBuf::remember(int fd, uint64_t address, uint64_t bytes) {
    struct stat status{};
    if (real::fstat(fd, &status) != 0) return;
    std::lock_guard<std::mutex> guard(exported().mutex);
    exported().ranges[{status.st_dev, status.st_ino}] = {address, bytes};
}

int DmaBuf::map(int fd, uint64_t offset, uint64_t bytes, bool writable, std::unique_ptr<DmaBuf>* mapped) {
    if (fd < 0 || fcntl(fd, F_GETFD) < 0) return EBADF;
    if (!is_buffer(fd) || !bytes || offset + bytes < offset) return EINVAL;
    uint64_t gpu_address, gpu_bytes;
    if (find_exported(fd, &gpu_address, &gpu_bytes)) {
        if (offset + bytes > gpu_bytes) return EINVAL;
        mapped->reset(new DmaBuf(nullptr, 0, gpu_address + offset));
        return 0;
    }
    const off_t end = lseek(fd, 0, SEEK_END);  // how a dma-buf tells its size
    if (end < 0 || offset + bytes > static_cast<uint64_t>(end)) return EINVAL;
    const uint64_t inside = offset % page_bytes;
    const size_t length = static_cast<size_t>(bytes + inside);
    void* base = mmap(nullptr, length, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd,
                      static_cast<off_t>(offset - inside));
    if (base == MAP_FAILED) return errno == ENOMEM ? ENOMEM : EOPNOTSUPP;
    mapped->reset(new DmaBuf(base, length, reinterpret_cast<uint64_t>(base) + inside));
    return 0;
}

DmaBuf::~DmaBuf() {
    if (base_) munmap(base_, bytes_);
}

}  // namespace sim::uverbs
