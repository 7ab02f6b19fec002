// SPDX-License-Identifier: Apache-2.0
// DEVX: firmware commands straight from the program, and the umems they name. The driver only sorts commands by what
// they do to objects and remembers how to end each object; judging a command is the firmware's business.
// Source: Linux, drivers/infiniband/hw/mlx5/devx.c: a command of the wrong kind is EINVAL; a status other than OK
// comes back in the output together with EREMOTEIO.
#include "sim/uverbs/devx.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <vector>

#include "sim/uverbs/context.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/dmabuf.h"
#include "sim/uverbs/mapping.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/objects.h"
#include "sim/uverbs/qp.h"

namespace sim::uverbs::devx {
namespace {

using namespace gda::prm;

enum class Category { general, create, modify, query, destroy, unknown };

Category category_of(uint64_t opcode) {
    switch (opcode) {
        case MLX5_CMD_OP_QUERY_HCA_CAP:
        case MLX5_CMD_OP_QUERY_ROCE_ADDRESS:
        case MLX5_CMD_OP_QUERY_LAG:
        case MLX5_CMD_OP_QUERY_VPORT_COUNTER:
            return Category::general;
        case MLX5_CMD_OP_CREATE_MKEY:
        case MLX5_CMD_OP_CREATE_CQ:
        case MLX5_CMD_OP_CREATE_QP:
        case MLX5_CMD_OP_CREATE_RMP:
        case MLX5_CMD_OP_ALLOC_Q_COUNTER:
        case MLX5_CMD_OP_CREATE_DCT:
            return Category::create;
        case MLX5_CMD_OP_RST2INIT_QP:
        case MLX5_CMD_OP_INIT2RTR_QP:
        case MLX5_CMD_OP_RTR2RTS_QP:
        case MLX5_CMD_OP_2ERR_QP:
        case MLX5_CMD_OP_2RST_QP:
        case MLX5_CMD_OP_INIT2INIT_QP:
        case MLX5_CMD_OP_RTS2RTS_QP:
        case MLX5_CMD_OP_MODIFY_CQ:
        case MLX5_CMD_OP_MODIFY_RMP:
        case MLX5_CMD_OP_DRAIN_DCT:
            return Category::modify;
        case MLX5_CMD_OP_QUERY_CQ:
        case MLX5_CMD_OP_QUERY_QP:
        case MLX5_CMD_OP_QUERY_RMP:
        case MLX5_CMD_OP_QUERY_Q_COUNTER:
        case MLX5_CMD_OP_QUERY_DCT:
            return Category::query;
        case MLX5_CMD_OP_DESTROY_MKEY:
        case MLX5_CMD_OP_DESTROY_CQ:
        case MLX5_CMD_OP_DESTROY_QP:
        case MLX5_CMD_OP_DESTROY_RMP:
        case MLX5_CMD_OP_DEALLOC_Q_COUNTER:
        case MLX5_CMD_OP_DESTROY_DCT:
            return Category::destroy;
        default:
            return Category::unknown;  // the firmware answers BAD_OP
    }
}

// The object's number lies at the same place in all these commands, in and out.
static_assert(GDA_BIT_OFFSET(destroy_cq_in, cqn) == GDA_BIT_OFFSET(destroy_qp_in, qpn) &&
                  GDA_BIT_OFFSET(destroy_mkey_in, mkey_index) == GDA_BIT_OFFSET(destroy_qp_in, qpn) &&
                  GDA_BIT_OFFSET(create_cq_out, cqn) == GDA_BIT_OFFSET(create_qp_out, qpn) &&
                  GDA_BIT_OFFSET(create_mkey_out, mkey_index) == GDA_BIT_OFFSET(create_qp_out, qpn) &&
                  GDA_BIT_OFFSET(create_rmp_out, rmpn) == GDA_BIT_OFFSET(create_qp_out, qpn) &&
                  GDA_BIT_OFFSET(modify_rmp_in, rmpn) == GDA_BIT_OFFSET(destroy_qp_in, qpn) &&
                  GDA_BIT_OFFSET(modify_cq_in, cqn) == GDA_BIT_OFFSET(destroy_qp_in, qpn) &&
                  GDA_BIT_OFFSET(query_cq_in, cqn) == GDA_BIT_OFFSET(destroy_qp_in, qpn) &&
                  GDA_BIT_OFFSET(create_dct_out, dctn) == GDA_BIT_OFFSET(create_qp_out, qpn) &&
                  GDA_BIT_OFFSET(drain_dct_in, dctn) == GDA_BIT_OFFSET(destroy_qp_in, qpn) &&
                  GDA_BIT_OFFSET(query_dct_in, dctn) == GDA_BIT_OFFSET(destroy_qp_in, qpn) &&
                  GDA_BIT_OFFSET(query_qp_in, qpn) == GDA_BIT_OFFSET(destroy_qp_in, qpn) &&
                  GDA_DWORD_OFFSET(alloc_q_counter_out, counter_set_id) == GDA_DWORD_OFFSET(create_qp_out, qpn) &&
                  GDA_DWORD_OFFSET(dealloc_q_counter_in, counter_set_id) == GDA_DWORD_OFFSET(destroy_qp_in, qpn),
              "one place for the number of an object");
constexpr size_t header_bytes = GDA_BYTES_OF(destroy_qp_in);

const Kind kinds[] = {
    {MLX5_CMD_OP_CREATE_MKEY, MLX5_CMD_OP_DESTROY_MKEY, Object::Type::mr},
    {MLX5_CMD_OP_CREATE_CQ, MLX5_CMD_OP_DESTROY_CQ, Object::Type::cq},
    {MLX5_CMD_OP_CREATE_QP, MLX5_CMD_OP_DESTROY_QP, Object::Type::qp},
    {MLX5_CMD_OP_CREATE_RMP, MLX5_CMD_OP_DESTROY_RMP, Object::Type::srq},
    {MLX5_CMD_OP_ALLOC_Q_COUNTER, MLX5_CMD_OP_DEALLOC_Q_COUNTER, Object::Type::devx},
    {MLX5_CMD_OP_CREATE_DCT, MLX5_CMD_OP_DESTROY_DCT, Object::Type::qp},
};

// What a command that modifies or queries is about.
Object::Type subject_of(uint64_t opcode) {
    switch (opcode) {
        case MLX5_CMD_OP_QUERY_CQ:
        case MLX5_CMD_OP_MODIFY_CQ:
            return Object::Type::cq;
        case MLX5_CMD_OP_QUERY_RMP:
        case MLX5_CMD_OP_MODIFY_RMP:
            return Object::Type::srq;
        case MLX5_CMD_OP_QUERY_Q_COUNTER:
            return Object::Type::devx;
        default:
            return Object::Type::qp;
    }
}

class UserUmem : public Object {
   public:
    static constexpr Type kind = Type::umem;
    UserUmem() : Object(kind) {}
    int destroy() override { return umem.release(); }
    std::unique_ptr<DmaBuf> mapping;  // before the umem, so that it ends after it
    Umem umem;
};

bool run_firmware(const Bytes& in, std::vector<uint8_t>* answer) {
    Nic nic;
    return nic && run_command(nic, in.data, in.bytes, answer->data(), answer->size());
}

// The driver, not the program, says that the umems named in a command are valid, as mlx5_ib does: many programs leave
// these bits alone (UCX does). A number of 0 names none.
void mark_umems(std::vector<uint8_t>* in) {
    uint8_t* p = in->data();
    const size_t bytes = in->size();
    const uint64_t opcode = GDA_GET(destroy_qp_in, p, opcode);
    if (opcode == MLX5_CMD_OP_CREATE_CQ && bytes >= GDA_BYTES_OF(create_cq_in)) {
        if (GDA_GET(create_cq_in, p, cq_umem_id)) GDA_SET(create_cq_in, p, cq_umem_valid, 1);
        if (GDA_GET(create_cq_in, p, cq_context.dbr_umem_id)) GDA_SET(create_cq_in, p, cq_context.dbr_umem_valid, 1);
    } else if (opcode == MLX5_CMD_OP_CREATE_QP && bytes >= GDA_BYTES_OF(create_qp_in)) {
        if (GDA_GET(create_qp_in, p, wq_umem_id)) GDA_SET(create_qp_in, p, wq_umem_valid, 1);
        if (GDA_GET(create_qp_in, p, qpc.dbr_umem_id)) GDA_SET(create_qp_in, p, qpc.dbr_umem_valid, 1);
    } else if (opcode == MLX5_CMD_OP_CREATE_RMP && bytes >= GDA_BYTES_OF(create_rmp_in)) {
        if (GDA_GET(create_rmp_in, p, ctx.wq.wq_umem_id)) GDA_SET(create_rmp_in, p, ctx.wq.wq_umem_valid, 1);
        if (GDA_GET(create_rmp_in, p, ctx.wq.dbr_umem_id)) GDA_SET(create_rmp_in, p, ctx.wq.dbr_umem_valid, 1);
    } else if (opcode == MLX5_CMD_OP_CREATE_MKEY && bytes >= GDA_BYTES_OF(create_mkey_in)) {
        if (GDA_GET(create_mkey_in, p, mkey_umem_id)) GDA_SET(create_mkey_in, p, mkey_umem_valid, 1);
    }
}

// Runs the command between two attributes. 0, EREMOTEIO with the answer in place, or an errno before the firmware.
int run(Request& request, uint16_t in_id, uint16_t out_id, std::vector<uint8_t>* answer) {
    const Bytes in = request.in(in_id);
    const Room out = request.out(out_id);
    if (in.bytes < header_bytes || out.bytes < GDA_BYTES_OF(destroy_qp_out)) return EINVAL;
    answer->assign(out.bytes, 0);
    const auto* bytes = static_cast<const uint8_t*>(in.data);
    std::vector<uint8_t> marked(bytes, bytes + in.bytes);
    mark_umems(&marked);
    const bool ok = run_firmware({marked.data(), marked.size()}, answer);
    put(out, answer->data(), answer->size());
    return ok ? 0 : EREMOTEIO;
}

Category category_of(const Request& request, uint16_t in_id, uint64_t* opcode) {
    const Bytes in = request.in(in_id);
    if (in.bytes < header_bytes) return Category::destroy;  // refused everywhere
    *opcode = GDA_GET(destroy_qp_in, in.data, opcode);
    return category_of(*opcode);
}

// The number of what a command is about. A program that left its end away names none.
uint64_t number_in(uint64_t opcode, const Bytes& in) {
    if (opcode != MLX5_CMD_OP_QUERY_Q_COUNTER) return GDA_GET(destroy_qp_in, in.data, qpn);
    return in.bytes < GDA_BYTES_OF(query_q_counter_in) ? 0 : GDA_GET(query_q_counter_in, in.data, counter_set_id);
}

// Whether a command about an object names the one that the handle stands for. Verbs objects can be meant, too.
bool names(const Object& object, uint64_t opcode, uint64_t number) {
    const Object::Type subject = subject_of(opcode);
    if (object.type == Object::Type::devx) {
        const auto& firmware = static_cast<const FirmwareObject&>(object);
        return firmware.what.stands_for == subject && firmware.number == number;
    }
    if (object.type != subject) return false;
    switch (subject) {
        case Object::Type::qp:
            return static_cast<const Qp&>(object).qpn == number;
        case Object::Type::cq:
            return static_cast<const Cq&>(object).cqn == number;
        case Object::Type::srq:
            return static_cast<const Srq&>(object).srqn == number;
        default:
            return false;
    }
}

// 0 when the command in `in_id` is of that category and about the object of that handle.
int check_subject(Context& context, const Request& request, uint16_t handle_id, uint16_t in_id, Category wanted) {
    uint64_t opcode = 0;
    const Category category = category_of(request, in_id, &opcode);
    if (category != wanted && category != Category::unknown) return EINVAL;
    const Object* object = context.objects.find_any(request.handle(handle_id));
    if (!object) return ENOENT;
    const bool about_it = category == Category::unknown || names(*object, opcode, number_in(opcode, request.in(in_id)));
    return about_it ? 0 : EINVAL;
}

int about_object(Context& context, Request& request, uint16_t handle_id, uint16_t in_id, uint16_t out_id,
                 Category wanted) {
    if (int error = check_subject(context, request, handle_id, in_id, wanted)) return error;
    std::vector<uint8_t> answer;
    return run(request, in_id, out_id, &answer);
}

}  // namespace

int FirmwareObject::destroy() {
    SIM_COMMAND_OF(command, destroy_qp, what.destroy);
    GDA_SET(destroy_qp_in, command.in, qpn, number);
    const int error = execute(command);
    if (error && error != ENODEV) return error;
    if (const auto subject = this->subject()) events::unsubscribe(*subject, number);
    return 0;
}

std::optional<events::Subject> FirmwareObject::subject() const {
    switch (what.stands_for) {
        case Type::cq:
            return events::Subject::cq;
        case Type::qp:
            return events::Subject::qp;
        case Type::srq:
            return events::Subject::srq;
        default:
            return std::nullopt;
    }
}

int other(Context& context, Request& request) {
    if (!context.devx) return EINVAL;
    uint64_t opcode = 0;
    const Category category = category_of(request, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, &opcode);
    if (category != Category::general && category != Category::unknown) return EINVAL;
    std::vector<uint8_t> answer;
    return run(request, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &answer);
}

int query_eqn(Context& context, Request& request) {
    if (!context.devx) return EINVAL;
    const auto vector = request.value<uint32_t>(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC);
    if (vector >= identity::completion_vectors) return EINVAL;
    request.answer(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, vector + 1);  // queue 0 is the driver's own
    return 0;
}

int create(Context& context, Request& request) {
    if (!context.devx) return EINVAL;
    uint64_t opcode = 0;
    const Category category = category_of(request, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, &opcode);
    if (category != Category::create && category != Category::unknown) return EINVAL;
    std::vector<uint8_t> answer;
    if (int error = run(request, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, &answer))
        return error;
    for (const Kind& kind : kinds) {
        if (kind.create != opcode) continue;
        const auto number = static_cast<uint32_t>(GDA_GET(create_qp_out, answer.data(), qpn));
        const uint32_t handle = context.objects.add(std::make_unique<FirmwareObject>(kind, number));
        request.set_handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, handle);
        return 0;
    }
    return EINVAL;
}

int destroy(Context& context, Request& request) {
    auto* object = context.objects.find<FirmwareObject>(request.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE));
    return object ? context.objects.destroy(object) : ENOENT;
}

int modify(Context& context, Request& request) {
    if (!context.devx) return EINVAL;
    return about_object(context, request, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
                        MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, Category::modify);
}

int query(Context& context, Request& request) {
    if (!context.devx) return EINVAL;
    return about_object(context, request, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
                        MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, Category::query);
}

// The answer comes as a record {wr_id, output} through a channel. Commands are quick here: it is there at once.
int query_async(Context& context, Request& request) {
    if (!context.devx) return EINVAL;
    const auto channel = files::channel(request.file(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD));
    if (!channel || channel->carries() != Channel::Carries::commands) return EBADF;
    const auto out_bytes = request.constant(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN);
    constexpr size_t most_out = 16384;  // the largest mailbox chain that a program may ask for
    if (!out_bytes || *out_bytes < GDA_BYTES_OF(destroy_qp_out) || *out_bytes > most_out) return EINVAL;
    if (int error = check_subject(context, request, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE,
                                  MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, Category::query))
        return error;
    std::vector<uint8_t> answer(*out_bytes);
    run_firmware(request.in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN), &answer);
    const auto id = request.value<uint64_t>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID);
    std::vector<uint8_t> record(sizeof id + answer.size());
    memcpy(record.data(), &id, sizeof id);
    memcpy(record.data() + sizeof id, answer.data(), answer.size());
    events::send(*channel, record.data(), record.size());
    return 0;
}

int register_umem(Context& context, Request& request) {
    if (!context.devx) return EINVAL;
    const auto access = request.value<uint32_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS);
    constexpr uint32_t remote_changes = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC;
    if ((access & remote_changes) && !(access & IB_UVERBS_ACCESS_LOCAL_WRITE)) return EINVAL;
    auto address = request.value<uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
    const auto bytes = request.value<uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
    if (!bytes || address + bytes < address) return EINVAL;
    auto umem = std::make_unique<UserUmem>();
    const bool writable = access & IB_UVERBS_ACCESS_LOCAL_WRITE;
    if (request.has(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD)) {  // the address is then a place in the buffer
        const int fd = request.file(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD);
        if (int error = DmaBuf::map(fd, address, bytes, writable, &umem->mapping)) return error;
        address = umem->mapping->address();
    }
    if (int error = check_mapped(address, bytes, writable)) return error;
    if (int error = umem->umem.reserve(address, bytes)) return error;
    request.answer(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, umem->umem.id());
    request.set_handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, context.objects.add(std::move(umem)));
    return 0;
}

int release_umem(Context& context, Request& request) {
    auto* umem = context.objects.find<UserUmem>(request.handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE));
    return umem ? context.objects.destroy(umem) : ENOENT;
}

}  // namespace sim::uverbs::devx
