// SPDX-License-Identifier: Apache-2.0
// See dmabuf.h.
#include "sim/uverbs/dmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace sim::uverbs {
namespace {

constexpr uint64_t page_bytes = 4096;
constexpr long dma_buf_magic = 0x444d4142;  // <linux/magic.h>: the file system that all dma-bufs are on

bool is_buffer(int fd) {
    struct statfs system{};
    if (fstatfs(fd, &system) == 0 && system.f_type == dma_buf_magic) return true;
    return fcntl(fd, F_GET_SEALS) >= 0;  // only memfds have seals
}

}  // namespace

int DmaBuf::map(int fd, uint64_t offset, uint64_t bytes, bool writable, std::unique_ptr<DmaBuf>* mapped) {
    if (fd < 0 || fcntl(fd, F_GETFD) < 0) return EBADF;
    if (!is_buffer(fd) || !bytes || offset + bytes < offset) return EINVAL;
    const off_t end = lseek(fd, 0, SEEK_END);  // how a dma-buf tells its size
    if (end < 0 || offset + bytes > static_cast<uint64_t>(end)) return EINVAL;
    const uint64_t inside = offset % page_bytes;
    const size_t length = static_cast<size_t>(bytes + inside);
    void* base = mmap(nullptr, length, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd,
                      static_cast<off_t>(offset - inside));
    if (base == MAP_FAILED) return errno == ENOMEM ? ENOMEM : EOPNOTSUPP;
    mapped->reset(new DmaBuf(base, length, inside));
    return 0;
}

DmaBuf::~DmaBuf() { munmap(base_, bytes_); }

}  // namespace sim::uverbs
