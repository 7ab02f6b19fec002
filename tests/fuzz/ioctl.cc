// SPDX-License-Identifier: Apache-2.0
// The ioctl dispatcher: RDMA_VERBS_IOCTL as the kernel's ABI has it, with attributes whose buffers end at a page that
// nobody may touch. An input is a list of records:
//   method    0..: one of the list below; others: {object (16 bits), method (16 bits)} follow
//   write     of INVOKE_WRITE: one of the list below; others: {command (32 bits)} follows
//   count     of attributes, each {id (8 bits: position in the method's list, others: 16 bits follow),
//             form (8 bits: inline or buffer, its flags), size (8 bits, in units of 4 bytes), bytes}
// Every input has a device file of its own. Built and run by tests/fuzz/fuzzer.py.
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <unistd.h>

#include <memory>

#include "sim/uverbs/context.h"
#include "sim/uverbs/nic.h"
#include "tests/fuzz/input.h"

namespace {

using fuzz::Arena;
using fuzz::Input;
using fuzz::must;
using sim::uverbs::Context;
using sim::uverbs::Nic;
namespace files = sim::uverbs::files;

enum : size_t { MOST_RECORDS = 32, MOST_ATTRIBUTES = 16, ATTRIBUTE_BYTES = 1024, MEMORY_BYTES = 65536 };

struct Method {
    uint16_t object, method;
    std::vector<uint16_t> attributes;
};
const std::vector<uint16_t> WRITE_ATTRIBUTES = {UVERBS_ATTR_WRITE_CMD, UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT,
                                                UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT};
const Method METHODS[] = {
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, WRITE_ATTRIBUTES},
    {UVERBS_OBJECT_DEVICE,
     UVERBS_METHOD_GET_CONTEXT,
     {UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, UVERBS_ATTR_UHW_IN,
      UVERBS_ATTR_UHW_OUT}},
    {UVERBS_OBJECT_DEVICE,
     UVERBS_METHOD_QUERY_CONTEXT,
     {UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT}},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, {UVERBS_ATTR_QUERY_PORT_PORT_NUM, UVERBS_ATTR_QUERY_PORT_RESP}},
    {UVERBS_OBJECT_DEVICE,
     UVERBS_METHOD_QUERY_GID_TABLE,
     {UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS,
      UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES}},
    {UVERBS_OBJECT_DEVICE,
     UVERBS_METHOD_QUERY_GID_ENTRY,
     {UVERBS_ATTR_QUERY_GID_ENTRY_PORT, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS,
      UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY}},
    {UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, {MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, MLX5_IB_ATTR_QUERY_PORT}},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, {UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE}},
    {UVERBS_OBJECT_CQ,
     UVERBS_METHOD_CQ_CREATE,
     {UVERBS_ATTR_CREATE_CQ_HANDLE, UVERBS_ATTR_CREATE_CQ_CQE, UVERBS_ATTR_CREATE_CQ_USER_HANDLE,
      UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, UVERBS_ATTR_CREATE_CQ_FLAGS,
      UVERBS_ATTR_CREATE_CQ_RESP_CQE, UVERBS_ATTR_CREATE_CQ_EVENT_FD, UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT}},
    {UVERBS_OBJECT_QP,
     UVERBS_METHOD_QP_CREATE,
     {UVERBS_ATTR_CREATE_QP_HANDLE, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, UVERBS_ATTR_CREATE_QP_PD_HANDLE,
      UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE,
      UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, UVERBS_ATTR_CREATE_QP_USER_HANDLE, UVERBS_ATTR_CREATE_QP_CAP,
      UVERBS_ATTR_CREATE_QP_TYPE, UVERBS_ATTR_CREATE_QP_FLAGS, UVERBS_ATTR_CREATE_QP_SOURCE_QPN,
      UVERBS_ATTR_CREATE_QP_EVENT_FD, UVERBS_ATTR_CREATE_QP_RESP_CAP, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM,
      UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT}},
    {UVERBS_OBJECT_SRQ,
     UVERBS_METHOD_SRQ_CREATE,
     {UVERBS_ATTR_CREATE_SRQ_HANDLE, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE,
      UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, UVERBS_ATTR_CREATE_SRQ_MAX_WR,
      UVERBS_ATTR_CREATE_SRQ_MAX_SGE, UVERBS_ATTR_CREATE_SRQ_LIMIT, UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS,
      UVERBS_ATTR_CREATE_SRQ_TYPE, UVERBS_ATTR_CREATE_SRQ_EVENT_FD, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR,
      UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, UVERBS_ATTR_UHW_IN,
      UVERBS_ATTR_UHW_OUT}},
    {UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, {MLX5_IB_ATTR_QUERY_PD_HANDLE, MLX5_IB_ATTR_QUERY_PD_RESP_PDN}},
    {UVERBS_OBJECT_MR,
     UVERBS_METHOD_REG_DMABUF_MR,
     {UVERBS_ATTR_REG_DMABUF_MR_HANDLE, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, UVERBS_ATTR_REG_DMABUF_MR_OFFSET,
      UVERBS_ATTR_REG_DMABUF_MR_LENGTH, UVERBS_ATTR_REG_DMABUF_MR_IOVA, UVERBS_ATTR_REG_DMABUF_MR_FD,
      UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY,
      UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY}},
    {UVERBS_OBJECT_MR,
     UVERBS_METHOD_QUERY_MR,
     {UVERBS_ATTR_QUERY_MR_HANDLE, UVERBS_ATTR_QUERY_MR_RESP_LKEY, UVERBS_ATTR_QUERY_MR_RESP_RKEY,
      UVERBS_ATTR_QUERY_MR_RESP_LENGTH, UVERBS_ATTR_QUERY_MR_RESP_IOVA}},
    {MLX5_IB_OBJECT_UAR,
     MLX5_IB_METHOD_UAR_OBJ_ALLOC,
     {MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET,
      MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID}},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, {MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE}},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, {MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT}},
    {MLX5_IB_OBJECT_DEVX,
     MLX5_IB_METHOD_DEVX_QUERY_EQN,
     {MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN}},
    {MLX5_IB_OBJECT_DEVX_OBJ,
     MLX5_IB_METHOD_DEVX_OBJ_CREATE,
     {MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT}},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, {MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE}},
    {MLX5_IB_OBJECT_DEVX_OBJ,
     MLX5_IB_METHOD_DEVX_OBJ_MODIFY,
     {MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT}},
    {MLX5_IB_OBJECT_DEVX_OBJ,
     MLX5_IB_METHOD_DEVX_OBJ_QUERY,
     {MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT}},
    {MLX5_IB_OBJECT_DEVX_OBJ,
     MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY,
     {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN,
      MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID,
      MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN}},
    {MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD,
     MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC,
     {MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE}},
    {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD,
     MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
     {MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS}},
    {MLX5_IB_OBJECT_DEVX,
     MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT,
     {MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE,
      MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM,
      MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE}},
    {MLX5_IB_OBJECT_DEVX_UMEM,
     MLX5_IB_METHOD_DEVX_UMEM_REG,
     {MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, MLX5_IB_ATTR_DEVX_UMEM_REG_LEN,
      MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID}},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, {MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE}},
    {UVERBS_OBJECT_DM,
     UVERBS_METHOD_DM_ALLOC,
     {UVERBS_ATTR_ALLOC_DM_HANDLE, UVERBS_ATTR_ALLOC_DM_LENGTH, UVERBS_ATTR_ALLOC_DM_ALIGNMENT,
      MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE}},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, {UVERBS_ATTR_FREE_DM_HANDLE}},
    {UVERBS_OBJECT_DM,
     MLX5_IB_METHOD_DM_QUERY,
     {MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX,
      MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH}},
    {UVERBS_OBJECT_MR,
     UVERBS_METHOD_DM_MR_REG,
     {UVERBS_ATTR_REG_DM_MR_HANDLE, UVERBS_ATTR_REG_DM_MR_OFFSET, UVERBS_ATTR_REG_DM_MR_LENGTH,
      UVERBS_ATTR_REG_DM_MR_PD_HANDLE, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, UVERBS_ATTR_REG_DM_MR_DM_HANDLE,
      UVERBS_ATTR_REG_DM_MR_RESP_LKEY, UVERBS_ATTR_REG_DM_MR_RESP_RKEY}},
};
enum : uint32_t { EXTENDED = IB_USER_VERBS_CMD_FLAG_EXTENDED };
const uint32_t WRITES[] = {
    IB_USER_VERBS_CMD_QUERY_DEVICE,
    EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
    IB_USER_VERBS_CMD_QUERY_PORT,
    IB_USER_VERBS_CMD_ALLOC_PD,
    IB_USER_VERBS_CMD_DEALLOC_PD,
    IB_USER_VERBS_CMD_REG_MR,
    IB_USER_VERBS_CMD_REREG_MR,
    IB_USER_VERBS_CMD_DEREG_MR,
    IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
    IB_USER_VERBS_CMD_RESIZE_CQ,
    IB_USER_VERBS_CMD_DESTROY_CQ,
    IB_USER_VERBS_CMD_MODIFY_QP,
    EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_QP,
    IB_USER_VERBS_CMD_QUERY_QP,
    IB_USER_VERBS_CMD_DESTROY_QP,
    IB_USER_VERBS_CMD_MODIFY_SRQ,
    IB_USER_VERBS_CMD_QUERY_SRQ,
    IB_USER_VERBS_CMD_DESTROY_SRQ,
    IB_USER_VERBS_CMD_CREATE_AH,
    IB_USER_VERBS_CMD_DESTROY_AH,
    IB_USER_VERBS_CMD_ALLOC_MW,
    IB_USER_VERBS_CMD_DEALLOC_MW,
    IB_USER_VERBS_CMD_OPEN_XRCD,
    IB_USER_VERBS_CMD_CLOSE_XRCD,
    IB_USER_VERBS_CMD_CREATE_XSRQ,
    IB_USER_VERBS_CMD_OPEN_QP,
};

// Where the buffers of attributes lie, each ending at a page of its own that nobody may touch.
struct Buffers {
    Buffers() {
        for (size_t i = 0; i < MOST_ATTRIBUTES; ++i)
            pages.push_back(std::make_unique<Arena>(0x540000000000 + i * 0x100000, 4096));
    }
    uint8_t* end(size_t i) { return pages[i]->p + pages[i]->bytes; }
    std::vector<std::unique_ptr<Arena>> pages;
};

enum Form : uint8_t { FORM_BUFFER = 1, FORM_OUTPUT_ONLY = 2, FORM_MANDATORY = 4, FORM_ENUM = 8 };

// One ioctl of an input. Its header ends where its last attribute does: whoever reads further is seen.
void call(Context& context, Input& input, Buffers& buffers) {
    const uint8_t which = input.value<uint8_t>(), write = input.value<uint8_t>();
    const size_t known = sizeof METHODS / sizeof METHODS[0], writes = sizeof WRITES / sizeof WRITES[0];
    const Method* method = which < known ? &METHODS[which] : nullptr;
    const uint16_t object = method ? method->object : input.value<uint16_t>();
    const uint16_t number = method ? method->method : input.value<uint16_t>();
    const uint32_t command = write < writes ? WRITES[write] : input.value<uint32_t>();
    const bool invoke = object == UVERBS_OBJECT_DEVICE && number == UVERBS_METHOD_INVOKE_WRITE;
    const size_t count = input.value<uint8_t>() % MOST_ATTRIBUTES;
    std::vector<uint8_t> memory(sizeof(ib_uverbs_ioctl_hdr) + (count + invoke) * sizeof(ib_uverbs_attr));
    auto* header = reinterpret_cast<ib_uverbs_ioctl_hdr*>(memory.data());
    header->length = static_cast<uint16_t>(memory.size());
    header->object_id = object;
    header->method_id = number;
    header->num_attrs = static_cast<uint16_t>(count + invoke);
    for (size_t i = 0; i < count; ++i) {
        ib_uverbs_attr& attribute = header->attrs[i];
        const uint8_t id = input.value<uint8_t>(), form = input.value<uint8_t>();
        const size_t size = std::min<size_t>(input.value<uint8_t>() * size_t{4}, ATTRIBUTE_BYTES);
        attribute.attr_id = method && id < method->attributes.size() ? method->attributes[id] : input.value<uint16_t>();
        attribute.flags = form & FORM_MANDATORY ? UVERBS_ATTR_F_MANDATORY : 0;
        attribute.len = static_cast<uint16_t>(size);
        if (form & FORM_ENUM) attribute.attr_data.enum_data.elem_id = input.value<uint8_t>();
        uint8_t* const buffer = buffers.end(i) - size;
        std::memset(buffers.end(i) - 4096, 0xa5, 4096);
        const std::vector<uint8_t> content = form & FORM_OUTPUT_ONLY ? std::vector<uint8_t>() : input.bytes(size);
        if (!content.empty()) std::memcpy(buffer, content.data(), content.size());
        if ((form & FORM_BUFFER) || size > 8)
            attribute.data = reinterpret_cast<uint64_t>(buffer);
        else if (!content.empty())
            std::memcpy(&attribute.data, content.data(), content.size());
        if (!size && !(form & FORM_OUTPUT_ONLY)) attribute.data = input.value<uint32_t>();  // a handle or a file
    }
    if (invoke) {
        ib_uverbs_attr& attribute = header->attrs[count];
        attribute.attr_id = UVERBS_ATTR_WRITE_CMD;
        attribute.len = sizeof attribute.data;
        attribute.data = command;
    }
    context.ioctl(header);
    for (size_t i = 0; i < count; ++i)
        for (const uint8_t* p = buffers.end(i) - 4096; p < buffers.end(i) - ATTRIBUTE_BYTES; ++p)
            must(*p == 0xa5, "answers stay in the room that the program gave");
}

// Channels that the input opened are files of this process.
void close_channels(int from) {
    for (int fd = from; fd < 256; ++fd)
        if (files::channel(fd)) files::close(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    static Buffers& buffers = *new Buffers;
    static Arena& memory = *new Arena(0x530000000000, MEMORY_BYTES);
    static Nic& nic = *new Nic;
    static const size_t objects = [] {
        sim::Device::set_virtual_time(true);
        return nic->objects();
    }();
    memory.clear();
    Input input(data, bytes);
    const int fd = Context::open(0, O_CLOEXEC);
    must(fd >= 0, "the device opens");
    {
        const std::shared_ptr<Context> context = files::context(fd);
        for (size_t i = 0; i < MOST_RECORDS && input.left(); ++i) call(*context, input, buffers);
        for (int i = 0; i < 2; ++i) nic->step();
        for (const std::string& sentence : nic->report())
            must(sentence.find("no longer mapped") == std::string::npos, "the NIC touches registered memory only");
    }
    files::close(fd);
    close_channels(3);
    must(nic->objects() == objects, "a closed file leaves nothing behind");
    nic->clear_report();
    return 0;
}
