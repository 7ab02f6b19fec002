// SPDX-License-Identifier: Apache-2.0
// See uar.h.
#include "sim/uverbs/uar.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/mman.h>

#include <bitset>
#include <mutex>

#include "sim/uverbs/context.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/nic.h"

namespace sim::uverbs::uar {
namespace {

// Page ids are the NIC's, so they are unique in the process. Id 0 stays unused, as on cards (the driver's own page).
struct Ids {
    std::mutex mutex;
    std::bitset<max_pages> taken;
    uint32_t next = 1;
};
Ids& ids() {
    static Ids* instance = new Ids;
    return *instance;
}

uint32_t take_id() {
    std::lock_guard<std::mutex> guard(ids().mutex);
    auto& [mutex, taken, next] = ids();
    for (uint32_t tried = 1; tried < max_pages; ++tried) {
        const uint32_t id = next;
        next = next + 1 < max_pages ? next + 1 : 1;
        if (!taken[id]) {
            taken[id] = true;
            return id;
        }
    }
    return 0;
}
void give_id(uint32_t id) {
    std::lock_guard<std::mutex> guard(ids().mutex);
    ids().taken[id] = false;
}

off_t offset_of(uint32_t id) { return (first_page + id) << 12; }

class Uar : public Object {
   public:
    static constexpr Type kind = Type::uar;
    Uar(int fd, uint32_t id, uint8_t* page) : Object(kind), fd_(fd), id_(id), page_(page) {}
    int destroy() override {
        {
            Nic nic(Nic::Make::no);
            if (nic) {
                if (int error = nic->detach_uar(id_)) return -error;
            }
        }
        munmap(page_, gda::prm::UAR_PAGE_BYTES);
        // What a former owner left in the registers must not ring for the next one.
        fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_of(id_), gda::prm::UAR_PAGE_BYTES);
        give_id(id_);
        return 0;
    }

   private:
    int fd_;
    uint32_t id_;
    uint8_t* page_;
};

}  // namespace

int allocate(Context& context, Request& request) {
    const auto type = request.constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
    if (!type) return EINVAL;
    if (*type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && *type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC) return EOPNOTSUPP;
    const uint32_t id = take_id();
    if (!id) return ENOSPC;
    void* page =
        mmap(nullptr, gda::prm::UAR_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, context.memory_fd(), offset_of(id));
    if (page == MAP_FAILED) {
        give_id(id);
        return ENOMEM;
    }
    Nic nic;
    const int error = nic ? -nic->attach_uar(id, static_cast<uint8_t*>(page)) : ENODEV;
    if (error) {
        munmap(page, gda::prm::UAR_PAGE_BYTES);
        give_id(id);
        return error;
    }
    const uint32_t handle =
        context.objects.add(std::make_unique<Uar>(context.memory_fd(), id, static_cast<uint8_t*>(page)));
    request.set_handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, handle);
    request.answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, static_cast<uint64_t>(offset_of(id)));
    request.answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, static_cast<uint32_t>(gda::prm::UAR_PAGE_BYTES));
    request.answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, id);
    return 0;
}

int destroy(Context& context, Request& request) {
    auto* uar = context.objects.find<Uar>(request.handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE));
    return uar ? context.objects.destroy(uar) : ENOENT;
}

void mapped(off_t offset, size_t bytes, void* address) {
    Nic nic(Nic::Make::no);
    const size_t page_bytes = gda::prm::UAR_PAGE_BYTES;
    for (size_t at = 0; nic && at < bytes; at += page_bytes, offset += static_cast<off_t>(page_bytes)) {
        if (offset < offset_of(0) || offset >= file_bytes) continue;
        nic->map_uar(static_cast<uint32_t>((offset >> 12) - first_page), static_cast<uint8_t*>(address) + at);
    }
}

}  // namespace sim::uverbs::uar
