// SPDX-License-Identifier: Apache-2.0
// Memory regions: REG_MR, REREG_MR, DEREG_MR, QUERY_MR, REG_DMABUF_MR and DM_MR_REG. A region is a umem and a key over
// it, as the real driver would make by CREATE_MKEY over pinned pages.
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "sim/uverbs/context.h"
#include "sim/uverbs/device_memory.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/dmabuf.h"
#include "sim/uverbs/mapping.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/objects.h"

namespace sim::uverbs::mr {
namespace {

constexpr uint32_t page_mask = 0xfff;
// On-demand paging is not announced.
constexpr uint32_t supported_access = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE |
                                      IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_REMOTE_ATOMIC |
                                      IB_UVERBS_ACCESS_MW_BIND | IB_UVERBS_ACCESS_ZERO_BASED |
                                      IB_UVERBS_ACCESS_HUGETLB | IB_UVERBS_ACCESS_OPTIONAL_RANGE;

// IBV_REREG_MR_CHANGE_*: the flags of REREG_MR.
constexpr uint32_t change_translation = 1, change_pd = 2, change_access = 4, change_all = 7;

int check_access(uint32_t access) {
    if (access & ~supported_access) return access & IB_UVERBS_ACCESS_ON_DEMAND ? EOPNOTSUPP : EINVAL;
    if ((access & (IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC)) &&
        !(access & IB_UVERBS_ACCESS_LOCAL_WRITE))
        return EINVAL;
    return 0;
}

struct Range {
    uint64_t start = 0, bytes = 0, iova = 0;
};
// Memory of the host the card maps by pages; its own it reaches by byte, and an empty region of it is one.
enum class Place { host, card };

// Of 4 KiB: 32 bits are enough for all the memory there is.
uint32_t pages(const Range& range) {
    return static_cast<uint32_t>(((range.start & page_mask) + range.bytes + page_mask) / (page_mask + 1));
}

// The key of a region over its umem.
class Key {
   public:
    ~Key() { release(); }

    int make(const Range& range, uint32_t pdn, uint32_t access, Place place = Place::host) {
        // The low eight bits of a key belong to the driver: another value for each region catches stale keys.
        static std::atomic<uint32_t> variant{0};
        const uint32_t low = variant.fetch_add(1) & 0xff;
        if (int error = reserve(range, access, place, &umem_)) return error;
        SIM_COMMAND_OF(command, create_mkey, gda::prm::MLX5_CMD_OP_CREATE_MKEY);
        fill(range, pdn, access, place, umem_.id(), low, command.in);
        if (int error = execute(command)) return error;
        key_ = static_cast<uint32_t>(GDA_GET(create_mkey_out, command.out, mkey_index)) << 8 | low;
        room_pages_ = pages(range);
        return 0;
    }

    // The same key for another range, PD or access: the driver's work request on its own queue (UMR). A translation
    // table is as long as the key was made with: a longer range needs another key (ENOSPC, nothing changed).
    int change(const Range& range, uint32_t pdn, uint32_t access, bool other_range) {
        if (other_range && pages(range) > room_pages_) return ENOSPC;
        Umem umem;
        if (other_range)
            if (int error = reserve(range, access, Place::host, &umem)) return error;
        SIM_COMMAND(create_mkey) command;
        fill(range, pdn, access, Place::host, (umem.valid() ? umem : umem_).id(), key_ & 0xff, command.in);
        {
            Nic nic;
            if (!nic) return ENODEV;
            if (int error = nic->rewrite_key(index(), command.in)) return -error;
        }
        if (umem.valid()) umem.swap(umem_);  // the old one is released here
        return 0;
    }

    int release() {
        if (key_) {
            SIM_COMMAND_OF(command, destroy_mkey, gda::prm::MLX5_CMD_OP_DESTROY_MKEY);
            GDA_SET(destroy_mkey_in, command.in, mkey_index, index());
            const int error = execute(command);
            if (error && error != ENODEV) return error;
            key_ = 0;
        }
        return umem_.release();
    }
    void swap(Key& other) {
        umem_.swap(other.umem_);
        std::swap(key_, other.key_);
        std::swap(room_pages_, other.room_pages_);
    }
    uint32_t key() const { return key_; }

   private:
    uint32_t index() const { return key_ >> 8; }
    static int reserve(const Range& range, uint32_t access, Place place, Umem* umem) {
        if (range.start + range.bytes < range.start) return EINVAL;
        if (place == Place::card) return umem->reserve(range.start, std::max<uint64_t>(range.bytes, 1));
        if (!range.bytes || (range.start & page_mask) != (range.iova & page_mask)) return EINVAL;
        if (int error = check_mapped(range.start, range.bytes, access & IB_UVERBS_ACCESS_LOCAL_WRITE)) return error;
        return umem->reserve(range.start, range.bytes);
    }
    static void fill(const Range& range, uint32_t pdn, uint32_t access, Place place, uint32_t umem, uint32_t low,
                     uint8_t* in) {
        const uint32_t mode = place == Place::host ? gda::prm::MKC_ACCESS_MODE_MTT : gda::prm::MKC_ACCESS_MODE_MEMIC;
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.access_mode_1_0, mode % 4);
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.access_mode_4_2, mode / 4);
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.a, !!(access & IB_UVERBS_ACCESS_REMOTE_ATOMIC));
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.rw, !!(access & IB_UVERBS_ACCESS_REMOTE_WRITE));
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.rr, !!(access & IB_UVERBS_ACCESS_REMOTE_READ));
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.lw, !!(access & IB_UVERBS_ACCESS_LOCAL_WRITE));
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.lr, 1);
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.qpn, 0xffffff);  // any queue pair
        const bool relaxed = access & IB_UVERBS_ACCESS_RELAXED_ORDERING;
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.relaxed_ordering_write, relaxed);
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.relaxed_ordering_read, relaxed);
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.mkey_7_0, low);
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.pd, pdn);
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.start_addr, range.iova);
        GDA_SET(create_mkey_in, in, memory_key_mkey_entry.len, range.bytes);
        GDA_SET(create_mkey_in, in, mkey_umem_valid, 1);
        GDA_SET(create_mkey_in, in, mkey_umem_id, umem);
        GDA_SET(create_mkey_in, in, mkey_umem_offset, 0);
    }

    Umem umem_;
    uint32_t key_ = 0;         // 0: none
    uint32_t room_pages_ = 0;  // what the translation table was made for
};

class Mr : public Object {
   public:
    static constexpr Type kind = Type::mr;
    Mr() : Object(kind) {}
    int destroy() override { return key.release(); }
    uint32_t access = 0;
    std::unique_ptr<DmaBuf> mapping;  // before the key, so that it ends after it
    Range range;
    Key key;
};

class DeviceMemoryMr : public Mr {
   public:
    Object** more_bases() override { return bases_.data(); }

   private:
    std::array<Object*, MORE_BASES> bases_ = {};
};

}  // namespace

int register_(Context& context, const WriteCommand& command) {
    ib_uverbs_reg_mr request;
    if (!command.read(&request)) return ENOSPC;
    auto* pd = context.objects.find<Pd>(request.pd_handle);
    if (!pd) return EINVAL;
    if (int error = check_access(request.access_flags)) return error;
    auto mr = std::make_unique<Mr>();
    mr->range = {request.start, request.length, request.hca_va};
    mr->access = request.access_flags;
    if (int error = mr->key.make(mr->range, pd->pdn, mr->access)) return error;
    ib_uverbs_reg_mr_resp response{};
    response.lkey = response.rkey = mr->key.key();
    response.mr_handle = context.objects.add(std::move(mr), {pd});
    command.answer(response);
    return 0;
}

// As the kernel does it: the key stays where the card can be told of the change, that is for another PD, other access
// and a range of no more pages; otherwise a new key takes its place, and the old one ends only when that exists.
int reregister(Context& context, const WriteCommand& command) {
    ib_uverbs_rereg_mr request;
    if (!command.read(&request)) return ENOSPC;
    auto* mr = context.objects.find<Mr>(request.mr_handle);
    if (!mr || !request.flags || (request.flags & ~change_all) || mr->more_bases()) return EINVAL;
    const uint32_t access = request.flags & change_access ? request.access_flags : mr->access;
    if (int error = check_access(access)) return error;
    auto* pd = request.flags & change_pd ? context.objects.find<Pd>(request.pd_handle) : static_cast<Pd*>(mr->base);
    if (!pd) return EINVAL;
    const Range range =
        request.flags & change_translation ? Range{request.start, request.length, request.hca_va} : mr->range;
    const bool gains_write = access & ~mr->access & IB_UVERBS_ACCESS_LOCAL_WRITE;  // pages pinned for reading only
    const bool other_range = (request.flags & change_translation) || gains_write;
    int error = mr->key.change(range, pd->pdn, access, other_range);
    if (error == ENOSPC) {
        Key key;
        if (error = key.make(range, pd->pdn, access); error) return error;
        if (error = mr->key.release(); error) return error;
        mr->key.swap(key);
    }
    if (error) return error;
    mr->range = range;
    mr->access = access;
    --mr->base->users;
    mr->base = pd;
    ++pd->users;
    ib_uverbs_rereg_mr_resp response{};
    response.lkey = response.rkey = mr->key.key();
    command.answer(response);
    return 0;
}

int deregister(Context& context, const WriteCommand& command) {
    ib_uverbs_dereg_mr request;
    if (!command.read(&request)) return ENOSPC;
    auto* mr = context.objects.find<Mr>(request.mr_handle);
    return mr ? context.objects.destroy(mr) : EINVAL;
}

int register_dmabuf(Context& context, Request& request) {
    auto* pd = context.objects.find<Pd>(request.handle(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE));
    if (!pd) return ENOENT;
    const auto offset = request.value<uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_OFFSET);
    const auto iova = request.value<uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_IOVA);
    const auto bytes = request.value<uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_LENGTH);
    const auto access = request.value<uint32_t>(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS);
    if ((offset & page_mask) != (iova & page_mask)) return EINVAL;
    if (int error = check_access(access)) return error;
    auto mr = std::make_unique<Mr>();
    if (int error = DmaBuf::map(request.value<int32_t>(UVERBS_ATTR_REG_DMABUF_MR_FD), offset, bytes,
                                access & IB_UVERBS_ACCESS_LOCAL_WRITE, &mr->mapping))
        return error;
    mr->range = {mr->mapping->address(), bytes, iova};
    mr->access = access;
    if (int error = mr->key.make(mr->range, pd->pdn, access)) return error;
    request.answer(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, mr->key.key());
    request.answer(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, mr->key.key());
    request.set_handle(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, context.objects.add(std::move(mr), {pd}));
    return 0;
}

// Addresses of such a region count from its beginning: where the program has mapped it is nobody else's business.
int register_device_memory(Context& context, Request& request) {
    auto* pd = context.objects.find<Pd>(request.handle(UVERBS_ATTR_REG_DM_MR_PD_HANDLE));
    auto* memory = context.objects.find<DeviceMemory>(request.handle(UVERBS_ATTR_REG_DM_MR_DM_HANDLE));
    if (!pd || !memory) return ENOENT;
    const auto offset = request.value<uint64_t>(UVERBS_ATTR_REG_DM_MR_OFFSET);
    const auto bytes = request.value<uint64_t>(UVERBS_ATTR_REG_DM_MR_LENGTH);
    const auto access = request.value<uint32_t>(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS);
    if (!(access & IB_UVERBS_ACCESS_ZERO_BASED)) return EINVAL;
    if (access & (IB_UVERBS_ACCESS_MW_BIND | IB_UVERBS_ACCESS_HUGETLB)) return EINVAL;
    if (int error = check_access(access)) return error;
    if (bytes > memory->bytes() || offset > memory->bytes() - bytes) return EINVAL;
    auto mr = std::make_unique<DeviceMemoryMr>();
    mr->range = {memory->address() + offset, bytes, 0};
    mr->access = access;
    if (int error = mr->key.make(mr->range, pd->pdn, access, Place::card)) return error;
    request.answer(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, mr->key.key());
    request.answer(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, mr->key.key());
    request.set_handle(UVERBS_ATTR_REG_DM_MR_HANDLE, context.objects.add(std::move(mr), {pd, memory}));
    return 0;
}

int query(Context& context, Request& request) {
    auto* mr = context.objects.find<Mr>(request.handle(UVERBS_ATTR_QUERY_MR_HANDLE));
    if (!mr) return ENOENT;
    request.answer(UVERBS_ATTR_QUERY_MR_RESP_LKEY, mr->key.key());
    request.answer(UVERBS_ATTR_QUERY_MR_RESP_RKEY, mr->key.key());
    request.answer(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, mr->range.bytes);
    request.answer(UVERBS_ATTR_QUERY_MR_RESP_IOVA, mr->range.iova);
    return 0;
}

}  // namespace sim::uverbs::mr
