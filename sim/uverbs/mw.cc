// SPDX-License-Identifier: Apache-2.0
// Memory windows: ALLOC_MW and DEALLOC_MW. A window is a key that is free until the program binds it with a work
// request on its own queue (engine/umr.cc).
// Source: Linux, drivers/infiniband/hw/mlx5/mr.c, mlx5_ib_alloc_mw.
#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <atomic>

#include "sim/uverbs/context.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/objects.h"

namespace sim::uverbs::mw {
namespace {

constexpr uint8_t type_1 = 1, type_2 = 2;       // enum ibv_mw_type
constexpr uint32_t translations_at_a_time = 4;  // a UMR carries them in blocks of 64 bytes

class Mw : public Object {
   public:
    static constexpr Type kind = Type::mw;
    Mw() : Object(kind) {}
    int destroy() override {
        SIM_COMMAND_OF(command, destroy_mkey, gda::prm::MLX5_CMD_OP_DESTROY_MKEY);
        GDA_SET(destroy_mkey_in, command.in, mkey_index, index);
        const int error = execute(command);
        return error == ENODEV ? 0 : error;
    }
    uint32_t index = 0;
};

}  // namespace

int allocate(Context& context, const WriteCommand& command) {
    ib_uverbs_alloc_mw request;
    if (!command.read(&request)) return ENOSPC;
    auto* pd = context.objects.find<Pd>(request.pd_handle);
    if (!pd || (request.mw_type != type_1 && request.mw_type != type_2)) return EINVAL;
    const auto driver = command.driver<mlx5_ib_alloc_mw>();
    if (driver.comp_mask || driver.reserved1 || driver.reserved2) return EOPNOTSUPP;
    const uint32_t wanted = std::max<uint32_t>(driver.num_klms, 1);
    const uint32_t room = (wanted + translations_at_a_time - 1) / translations_at_a_time * translations_at_a_time;
    static std::atomic<uint32_t> variant{0};
    const uint32_t low = variant.fetch_add(1) & 0xff;
    SIM_COMMAND_OF(create, create_mkey, gda::prm::MLX5_CMD_OP_CREATE_MKEY);
    uint8_t* mkc = create.in + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
    GDA_SET(mkc, mkc, free, 1);
    GDA_SET(mkc, mkc, umr_en, 1);
    GDA_SET(mkc, mkc, lr, 1);
    GDA_SET(mkc, mkc, access_mode_1_0, gda::prm::MKC_ACCESS_MODE_KLM);
    GDA_SET(mkc, mkc, en_rinval, request.mw_type == type_2);
    GDA_SET(mkc, mkc, qpn, 0xffffff);
    GDA_SET(mkc, mkc, mkey_7_0, low);
    GDA_SET(mkc, mkc, pd, pd->pdn);
    GDA_SET(mkc, mkc, translations_octword_size, room);
    if (int error = execute(create)) return error;
    auto mw = std::make_unique<Mw>();
    mw->index = static_cast<uint32_t>(GDA_GET(create_mkey_out, create.out, mkey_index));
    ib_uverbs_alloc_mw_resp response{};
    response.rkey = mw->index << 8 | low;
    response.mw_handle = context.objects.add(std::move(mw), {pd});
    command.answer(response);
    return 0;
}

int deallocate(Context& context, const WriteCommand& command) {
    ib_uverbs_dealloc_mw request;
    if (!command.read(&request)) return ENOSPC;
    auto* mw = context.objects.find<Mw>(request.mw_handle);
    return mw ? context.objects.destroy(mw) : EINVAL;
}

}  // namespace sim::uverbs::mw
