// SPDX-License-Identifier: Apache-2.0
// Memory given by file descriptor: a dma-buf, as exporters of the kernel make them. A process reaches it only where
// its exporter lets it be mapped (udmabuf and system heaps do, a GPU's does not); a memfd may stand for one in tests.
// A GPU's is reached by the addresses that it was exported from, where this process did that and we saw it (cuda.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sim::uverbs {

class DmaBuf {
   public:
    // The program has exported GPU memory as this buffer.
    static void remember(int fd, uint64_t address, uint64_t bytes);

    // Maps bytes [offset, offset + bytes) of the buffer. 0; EBADF for no descriptor, EINVAL for one that is no buffer
    // or is too short, EOPNOTSUPP when the exporter allows no mapping.
    static int map(int fd, uint64_t offset, uint64_t bytes, bool writable, std::unique_ptr<DmaBuf>* mapped);
    ~DmaBuf();
    DmaBuf(const DmaBuf&) = delete;
    DmaBuf& operator=(const DmaBuf&) = delete;
    uint64_t address() const { return address_; }  // of the byte at `offset`

   private:
    DmaBuf(void* base, size_t bytes, uint64_t address) : base_(base), bytes_(bytes), address_(address) {}
    void* const base_;  // null: GPU memory, which is not mapped
    const size_t bytes_;
    const uint64_t address_;
};

}  // namespace sim::uverbs
