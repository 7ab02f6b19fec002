// SPDX-License-Identifier: Apache-2.0
// One RDMA_VERBS_IOCTL as its handlers see it: attributes in, attributes out. Handlers answer 0 or an errno.
// Source: the kernel's include/uapi/rdma/rdma_user_ioctl_cmds.h and drivers/infiniband/core/uverbs_ioctl.c (rules:
// inputs of up to eight bytes lie in the attribute itself; outputs are cut to the smaller size and padded with zeros).
// Buffers are the program's own memory: what cannot be read, and answers that find no room, are EFAULT, as from the
// kernel. What was made before an answer found no room lives until the file is closed.
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

namespace sim::uverbs {

class Context;

struct Bytes {
    const void* data = nullptr;
    size_t bytes = 0;
};
struct Room {
    void* data = nullptr;
    size_t bytes = 0;
};

// Copies what fits and zeroes the rest of the room, as the kernel does with answers of other versions' sizes.
void put(Room room, const void* answer, size_t bytes);

class Request {
   public:
    explicit Request(ib_uverbs_ioctl_hdr* header) : header_(header) {}

    uint16_t object() const { return header_->object_id; }
    uint16_t method() const { return header_->method_id; }
    bool has(uint16_t id) const { return find(id) != nullptr; }

    Bytes in(uint16_t id) const;
    Room out(uint16_t id);  // marks the attribute as answered
    // A T, padded with zeros or cut.
    template <typename T>
    T value(uint16_t id) const {
        T result{};
        const Bytes given = in(id);
        if (given.data) memcpy(&result, given.data, std::min(sizeof result, given.bytes));
        return result;
    }
    // An enumeration: eight bits beside the data, or the data itself.
    std::optional<uint64_t> constant(uint16_t id) const;
    uint32_t handle(uint16_t id) const;  // 0 when absent, which is no object's handle
    int file(uint16_t id) const;         // -1 when absent

    template <typename T>
    void answer(uint16_t id, const T& value) {
        if (has(id)) put(out(id), &value, sizeof value);
    }
    void set_handle(uint16_t id, uint32_t handle);

    // Attributes that the kernel's method would refuse because it does not know them: mandatory ones outside the
    // list. Used by methods whose callers probe for newer attributes.
    bool only(std::initializer_list<uint16_t> known) const;

   private:
    ib_uverbs_attr* find(uint16_t id) const;
    ib_uverbs_ioctl_hdr* header_;
};

// A command of the older write interface, carried by INVOKE_WRITE: the core's struct and the driver's, each way.
struct WriteCommand {
    Bytes core_in, driver_in;
    Room core_out, driver_out;

    // The core's request. False when it is shorter than the struct: the handler answers ENOSPC, like the kernel.
    template <typename T>
    bool read(T* request) const {
        if (core_in.bytes < sizeof(T)) return false;
        memcpy(request, core_in.data, sizeof(T));
        return true;
    }
    // The driver's part: missing bytes are zero, as from an older library.
    template <typename T>
    T driver() const {
        T request{};
        if (driver_in.data) memcpy(&request, driver_in.data, std::min(sizeof(T), driver_in.bytes));
        return request;
    }
    template <typename T>
    void answer(const T& response) const {
        put(core_out, &response, sizeof response);
    }
    template <typename T>
    void answer_driver(const T& response) const {
        put(driver_out, &response, sizeof response);
    }
};

// The driver's part of an ioctl method that takes the same structs as the write command.
WriteCommand driver_part(Request& request);

int dispatch(Context& context, void* header);

// Handlers of write commands, by the file they live in.
namespace query {
int get_context(Context&, Request&);
int query_context(Context&, Request&);
int asynchronous_channel(Context&, Request&);
int query_device(Context&, const WriteCommand&);
int query_device_ex(Context&, const WriteCommand&);
int query_port(Context&, const WriteCommand&);
int query_port_ioctl(Context&, Request&);
int driver_query_port(Context&, Request&);
int gid_table(Context&, Request&);
int gid_entry(Context&, Request&);
}  // namespace query
namespace pd {
int allocate(Context&, const WriteCommand&);
int deallocate(Context&, const WriteCommand&);
int query(Context&, Request&);
}  // namespace pd
namespace mr {
int register_(Context&, const WriteCommand&);
int reregister(Context&, const WriteCommand&);
int deregister(Context&, const WriteCommand&);
int register_dmabuf(Context&, Request&);
int register_device_memory(Context&, Request&);
int query(Context&, Request&);
}  // namespace mr
namespace mw {
int allocate(Context&, const WriteCommand&);
int deallocate(Context&, const WriteCommand&);
}  // namespace mw
namespace cq {
int create_channel(Context&, const WriteCommand&);
int create(Context&, Request&);
int resize(Context&, const WriteCommand&);
int destroy(Context&, const WriteCommand&);
}  // namespace cq
namespace qp {
int create(Context&, Request&);
int modify(Context&, const WriteCommand&);
int query(Context&, const WriteCommand&);
int destroy(Context&, const WriteCommand&);
}  // namespace qp
namespace srq {
int create(Context&, Request&);
int modify(Context&, const WriteCommand&);
int query(Context&, const WriteCommand&);
int destroy(Context&, const WriteCommand&);
}  // namespace srq
namespace xrcd {
int open(Context&, const WriteCommand&);
int close(Context&, const WriteCommand&);
int open_qp(Context&, const WriteCommand&);
}  // namespace xrcd
namespace ah {
int create(Context&, const WriteCommand&);
int destroy(Context&, const WriteCommand&);
}  // namespace ah
namespace devx {
int other(Context&, Request&);
int query_eqn(Context&, Request&);
int create(Context&, Request&);
int destroy(Context&, Request&);
int modify(Context&, Request&);
int query(Context&, Request&);
int query_async(Context&, Request&);
int command_channel(Context&, Request&);
int event_channel(Context&, Request&);
int subscribe(Context&, Request&);
int register_umem(Context&, Request&);
int release_umem(Context&, Request&);
}  // namespace devx

}  // namespace sim::uverbs
