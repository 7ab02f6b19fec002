// SPDX-License-Identifier: Apache-2.0
// See dispatch.h. Two tables: methods of the ioctl interface, and commands of the write interface inside it. What is
// not in them answers as a kernel that lacks it: EPROTONOSUPPORT makes libibverbs try the write command instead.
// What exists in both forms (GET_CONTEXT, creation of queues) is here once, as the method: libibverbs asks for it
// first since version 17, and an imported context for nothing else.
#include "sim/uverbs/dispatch.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <stdio.h>

#include <exception>
#include <vector>

#include "sim/link/guard.h"
#include "sim/uverbs/context.h"
#include "sim/uverbs/device_memory.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/uar.h"

namespace sim::uverbs {

namespace {

thread_local bool room_missing = false;  // an answer of the ioctl at hand found no memory where it should go

// Whether bytes can be read, as copy_from_user() would find out: one of each page is.
bool readable(const void* data, size_t bytes) {
    constexpr size_t page_bytes = 4096;
    const auto* at = static_cast<const char*>(data);
    const auto* const last = at + bytes - 1;
    char byte;
    for (; bytes && at < last; at += std::min<size_t>(page_bytes, static_cast<size_t>(last - at)))
        if (!guarded_copy(&byte, at, 1)) return false;
    return !bytes || guarded_copy(&byte, last, 1);
}

}  // namespace

void put(Room room, const void* answer, size_t bytes) {
    if (!room.data) return;
    std::vector<char> whole(room.bytes);
    memcpy(whole.data(), answer, std::min(room.bytes, bytes));
    if (!guarded_copy(room.data, whole.data(), whole.size())) room_missing = true;
}

ib_uverbs_attr* Request::find(uint16_t id) const {
    for (unsigned i = 0; i < header_->num_attrs; ++i)
        if (header_->attrs[i].attr_id == id) return &header_->attrs[i];
    return nullptr;
}

Bytes Request::in(uint16_t id) const {
    const ib_uverbs_attr* attribute = find(id);
    if (!attribute || !attribute->len) return {};
    if (attribute->len <= sizeof attribute->data) return {&attribute->data, attribute->len};
    return {reinterpret_cast<const void*>(attribute->data), attribute->len};
}

Room Request::out(uint16_t id) {
    ib_uverbs_attr* attribute = find(id);
    if (!attribute || !attribute->len) return {};
    attribute->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
    return {reinterpret_cast<void*>(attribute->data), attribute->len};
}

std::optional<uint64_t> Request::constant(uint16_t id) const {
    const ib_uverbs_attr* attribute = find(id);
    if (!attribute) return std::nullopt;
    if (!attribute->len) return attribute->attr_data.enum_data.elem_id;
    return value<uint64_t>(id);
}

uint32_t Request::handle(uint16_t id) const {
    const ib_uverbs_attr* attribute = find(id);
    return attribute ? static_cast<uint32_t>(attribute->data) : 0;
}

int Request::file(uint16_t id) const {
    const ib_uverbs_attr* attribute = find(id);
    return attribute ? static_cast<int>(attribute->data_s64) : -1;
}

void Request::set_handle(uint16_t id, uint32_t handle) {
    if (ib_uverbs_attr* attribute = find(id)) attribute->data = handle;
}

WriteCommand driver_part(Request& request) {
    WriteCommand part;
    part.driver_in = request.in(UVERBS_ATTR_UHW_IN);
    part.driver_out = request.out(UVERBS_ATTR_UHW_OUT);
    return part;
}

bool Request::only(std::initializer_list<uint16_t> known) const {
    for (unsigned i = 0; i < header_->num_attrs; ++i) {
        const auto& attribute = header_->attrs[i];
        if (!(attribute.flags & UVERBS_ATTR_F_MANDATORY)) continue;
        if (std::find(known.begin(), known.end(), attribute.attr_id) == known.end()) return false;
    }
    return true;
}

namespace {

struct Write {
    uint32_t command;
    const char* name;
    int (*handler)(Context&, const WriteCommand&);
};

constexpr uint32_t extended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
const Write writes[] = {
    {IB_USER_VERBS_CMD_QUERY_DEVICE, "QUERY_DEVICE", query::query_device},
    {extended | IB_USER_VERBS_EX_CMD_QUERY_DEVICE, "EX_QUERY_DEVICE", query::query_device_ex},
    {IB_USER_VERBS_CMD_QUERY_PORT, "QUERY_PORT", query::query_port},
    {IB_USER_VERBS_CMD_ALLOC_PD, "ALLOC_PD", pd::allocate},
    {IB_USER_VERBS_CMD_DEALLOC_PD, "DEALLOC_PD", pd::deallocate},
    {IB_USER_VERBS_CMD_REG_MR, "REG_MR", mr::register_},
    {IB_USER_VERBS_CMD_REREG_MR, "REREG_MR", mr::reregister},
    {IB_USER_VERBS_CMD_DEREG_MR, "DEREG_MR", mr::deregister},
    {IB_USER_VERBS_CMD_ALLOC_MW, "ALLOC_MW", mw::allocate},
    {IB_USER_VERBS_CMD_DEALLOC_MW, "DEALLOC_MW", mw::deallocate},
    {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, "CREATE_COMP_CHANNEL", cq::create_channel},
    {IB_USER_VERBS_CMD_RESIZE_CQ, "RESIZE_CQ", cq::resize},
    {IB_USER_VERBS_CMD_DESTROY_CQ, "DESTROY_CQ", cq::destroy},
    {IB_USER_VERBS_CMD_MODIFY_QP, "MODIFY_QP", qp::modify},
    {extended | IB_USER_VERBS_EX_CMD_MODIFY_QP, "EX_MODIFY_QP", qp::modify},
    {IB_USER_VERBS_CMD_QUERY_QP, "QUERY_QP", qp::query},
    {IB_USER_VERBS_CMD_DESTROY_QP, "DESTROY_QP", qp::destroy},
    {IB_USER_VERBS_CMD_MODIFY_SRQ, "MODIFY_SRQ", srq::modify},
    {IB_USER_VERBS_CMD_QUERY_SRQ, "QUERY_SRQ", srq::query},
    {IB_USER_VERBS_CMD_DESTROY_SRQ, "DESTROY_SRQ", srq::destroy},
    {IB_USER_VERBS_CMD_OPEN_XRCD, "OPEN_XRCD", xrcd::open},
    {IB_USER_VERBS_CMD_CLOSE_XRCD, "CLOSE_XRCD", xrcd::close},
    {IB_USER_VERBS_CMD_OPEN_QP, "OPEN_QP", xrcd::open_qp},
    {IB_USER_VERBS_CMD_CREATE_AH, "CREATE_AH", ah::create},
    {IB_USER_VERBS_CMD_DESTROY_AH, "DESTROY_AH", ah::destroy},
};

// A command of the write interface. A request without the core's struct is how libibverbs asks whether INVOKE_WRITE
// exists at all; ENOSPC says yes.
int invoke_write(Context& context, Request& request) {
    const auto number = request.constant(UVERBS_ATTR_WRITE_CMD);
    if (!number) return EINVAL;
    for (const Write& write : writes) {
        if (write.command != *number) continue;
        WriteCommand command;
        command.core_in = request.in(UVERBS_ATTR_CORE_IN);
        command.driver_in = request.in(UVERBS_ATTR_UHW_IN);
        command.core_out = request.out(UVERBS_ATTR_CORE_OUT);
        command.driver_out = request.out(UVERBS_ATTR_UHW_OUT);
        const int error = write.handler(context, command);
        if (debugging()) fprintf(stderr, "gda-sim: %s: %s\n", write.name, error ? strerror(error) : "ok");
        return error;
    }
    return EOPNOTSUPP;
}

struct Method {
    uint16_t object, method;
    const char* name;
    int (*handler)(Context&, Request&);
};

const Method methods[] = {
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, "INVOKE_WRITE", invoke_write},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, "GET_CONTEXT", query::get_context},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, "QUERY_CONTEXT", query::query_context},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, "QUERY_PORT", query::query_port_ioctl},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, "QUERY_GID_TABLE", query::gid_table},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, "QUERY_GID_ENTRY", query::gid_entry},
    {UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, "MLX5_QUERY_PORT", query::driver_query_port},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, "ASYNC_EVENT", query::asynchronous_channel},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, "CQ_CREATE", cq::create},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, "QP_CREATE", qp::create},
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, "SRQ_CREATE", srq::create},
    {UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, "PD_QUERY", pd::query},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, "REG_DMABUF_MR", mr::register_dmabuf},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, "DM_MR_REG", mr::register_device_memory},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, "QUERY_MR", mr::query},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, "DM_ALLOC", device_memory::allocate},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, "DM_FREE", device_memory::release},
    {UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY, "DM_QUERY", device_memory::query},
    {UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR, "DM_MAP_OP_ADDR", device_memory::map_operation},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, "UAR_ALLOC", uar::allocate},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, "UAR_DESTROY", uar::destroy},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, "DEVX_OTHER", devx::other},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, "DEVX_QUERY_EQN", devx::query_eqn},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, "DEVX_CREATE", devx::create},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, "DEVX_DESTROY", devx::destroy},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, "DEVX_MODIFY", devx::modify},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, "DEVX_QUERY", devx::query},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, "DEVX_ASYNC_QUERY", devx::query_async},
    {MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, "DEVX_CMD_FD", devx::command_channel},
    {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, "DEVX_EVENT_FD",
     devx::event_channel},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, "DEVX_SUBSCRIBE", devx::subscribe},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, "UMEM_REG", devx::register_umem},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, "UMEM_DEREG", devx::release_umem},
};

int run(Context& context, Request& request) {
    for (const Method& method : methods) {
        if (method.object != request.object() || method.method != request.method()) continue;
        const int error = method.handler(context, request);
        if (debugging() && method.handler != invoke_write)
            fprintf(stderr, "gda-sim: %s: %s\n", method.name, error ? strerror(error) : "ok");
        return error;
    }
    if (debugging()) fprintf(stderr, "gda-sim: no method 0x%x of object 0x%x\n", request.method(), request.object());
    return EPROTONOSUPPORT;
}

}  // namespace

int dispatch(Context& context, void* header) {
    auto* ioctl_header = static_cast<ib_uverbs_ioctl_hdr*>(header);
    if (!readable(header, sizeof *ioctl_header)) return EFAULT;
    if (ioctl_header->length != sizeof *ioctl_header + ioctl_header->num_attrs * sizeof(ib_uverbs_attr)) return EINVAL;
    if (ioctl_header->reserved1 || ioctl_header->reserved2) return EPROTONOSUPPORT;
    if (!readable(header, ioctl_header->length)) return EFAULT;
    for (unsigned i = 0; i < ioctl_header->num_attrs; ++i) {
        const ib_uverbs_attr& attribute = ioctl_header->attrs[i];
        if (attribute.len > sizeof attribute.data &&
            !readable(reinterpret_cast<const void*>(attribute.data), attribute.len))
            return EFAULT;
    }
    Request request(ioctl_header);
    room_missing = false;
    try {
        const int error = run(context, request);
        return error || !room_missing ? error : EFAULT;
    } catch (const std::exception&) {  // std::bad_alloc: nothing may be thrown into a C library
        return ENOMEM;
    }
}

}  // namespace sim::uverbs
