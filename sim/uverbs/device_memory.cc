// SPDX-License-Identifier: Apache-2.0
// See device_memory.h.
#include "sim/uverbs/device_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "sim/uverbs/context.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/nic.h"

namespace sim::uverbs {
namespace {

constexpr uint64_t page_bytes = 4096;
constexpr uint32_t most_pages = 64;  // page indices below 256 lie side by side in the file

// mmap offset: libmlx5 puts the command above the low eight bits of a page index.
off_t offset_of(uint32_t page) { return static_cast<off_t>(MLX5_IB_MMAP_DEVICE_MEM << 8 | page) << 12; }

std::atomic<uint64_t> taken[Nic::MOST];  // pages of each NIC, one bit a page

uint64_t bits(uint32_t page, uint32_t pages) { return (pages < 64 ? (1ull << pages) - 1 : ~0ull) << page; }

// The first of so many free pages in a row; false: there are none.
bool take(int nic, uint32_t pages, uint32_t* page) {
    const uint32_t all = static_cast<uint32_t>(Nic::limits().device_memory / page_bytes);
    uint64_t before = taken[nic].load();
    for (uint32_t at = 0; at + pages <= std::min(all, most_pages);) {
        if (before & bits(at, pages)) {
            ++at;
        } else if (taken[nic].compare_exchange_strong(before, before | bits(at, pages))) {
            *page = at;
            return true;
        }
    }
    return false;
}

}  // namespace

DeviceMemory::DeviceMemory(const Context& context, uint64_t bytes, uint32_t page, uint32_t pages, void* base)
    : Object(kind),
      nic_(context.nic()),
      fd_(context.memory_fd()),
      bytes_(bytes),
      page_(page),
      pages_(pages),
      base_(base) {}

DeviceMemory::~DeviceMemory() {
    munmap(base_, pages_ * page_bytes);
    // What a former owner left is not for the next one to read.
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_of(page_),
              static_cast<off_t>(pages_ * page_bytes));
    taken[nic_] &= ~bits(page_, pages_);
}

int DeviceMemory::make(Context& context, uint64_t bytes, uint32_t log_alignment, std::unique_ptr<DeviceMemory>* made) {
    const Limits& l = Nic::limits();
    if (!l.device_memory) return EOPNOTSUPP;
    if (!bytes || log_alignment > l.log_device_memory_alignment) return EINVAL;
    if (bytes > l.device_memory) return ENOMEM;
    const uint64_t whole = (bytes + l.device_memory_unit - 1) / l.device_memory_unit * l.device_memory_unit;
    const auto pages = static_cast<uint32_t>((whole + page_bytes - 1) / page_bytes);
    uint32_t page = 0;
    if (!take(context.nic(), pages, &page)) return ENOMEM;
    void* base =
        mmap(nullptr, pages * page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, context.memory_fd(), offset_of(page));
    if (base == MAP_FAILED) {
        taken[context.nic()] &= ~bits(page, pages);
        return ENOMEM;
    }
    made->reset(new DeviceMemory(context, bytes, page, pages, base));
    return 0;
}

namespace device_memory {

int allocate(Context& context, Request& request) {
    const auto type = request.constant(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE);
    if (type && *type != MLX5_IB_UAPI_DM_TYPE_MEMIC) return EOPNOTSUPP;  // memory for flow steering
    std::unique_ptr<DeviceMemory> memory;
    if (int error = DeviceMemory::make(context, request.value<uint64_t>(UVERBS_ATTR_ALLOC_DM_LENGTH),
                                       request.value<uint32_t>(UVERBS_ATTR_ALLOC_DM_ALIGNMENT), &memory))
        return error;
    request.answer(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, uint64_t{0});  // every piece begins with its page
    request.answer(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, memory->page());
    request.set_handle(UVERBS_ATTR_ALLOC_DM_HANDLE, context.objects.add(std::move(memory)));
    return 0;
}

int release(Context& context, Request& request) {
    auto* memory = context.objects.find<DeviceMemory>(request.handle(UVERBS_ATTR_FREE_DM_HANDLE));
    return memory ? context.objects.destroy(memory) : ENOENT;
}

// For a program that imports it.
int query(Context& context, Request& request) {
    auto* memory = context.objects.find<DeviceMemory>(request.handle(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE));
    if (!memory) return ENOENT;
    request.answer(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, uint64_t{0});
    request.answer(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, memory->page());
    request.answer(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, memory->bytes());
    return 0;
}

// A mapping where a load or store is an operation (increment, test and set). Not announced: nothing tells the NIC of
// loads and stores in memory of the process, and they must happen at once.
int map_operation(Context& context, Request& request) {
    return context.objects.find<DeviceMemory>(request.handle(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE)) ? EOPNOTSUPP
                                                                                                      : ENOENT;
}

void forget() {
    for (auto& pages : taken) pages = 0;
}

}  // namespace device_memory
}  // namespace sim::uverbs
