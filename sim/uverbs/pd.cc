// SPDX-License-Identifier: Apache-2.0
// Protection domains and address handles: write commands ALLOC_PD, DEALLOC_PD, CREATE_AH, DESTROY_AH.
#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "sim/uverbs/context.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/objects.h"
#include "sim/uverbs/path.h"

namespace sim::uverbs {

int Pd::destroy() {
    Nic nic(Nic::Make::no);
    return nic ? -nic->release_pd(pdn) : 0;
}

namespace pd {

int allocate(Context& context, const WriteCommand& command) {
    ib_uverbs_alloc_pd request;
    if (!command.read(&request)) return ENOSPC;
    Nic nic;
    if (!nic) return ENODEV;
    auto pd = std::make_unique<Pd>();
    if (int error = nic->allocate_pd(&pd->pdn)) return -error;
    const mlx5_ib_alloc_pd_resp driver{pd->pdn};
    ib_uverbs_alloc_pd_resp response{};
    response.pd_handle = context.objects.add(std::move(pd));
    command.answer(response);
    command.answer_driver(driver);
    return 0;
}

int deallocate(Context& context, const WriteCommand& command) {
    ib_uverbs_dealloc_pd request;
    if (!command.read(&request)) return ENOSPC;
    auto* pd = context.objects.find<Pd>(request.pd_handle);
    return pd ? context.objects.destroy(pd) : EINVAL;
}

int query(Context& context, Request& request) {
    auto* pd = context.objects.find<Pd>(request.handle(MLX5_IB_ATTR_QUERY_PD_HANDLE));
    if (!pd) return ENOENT;
    request.answer(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, pd->pdn);
    return 0;
}

}  // namespace pd

namespace ah {
namespace {

// The card has no object for it: libmlx5 puts the address into each WQE. The handle only checks and resolves.
class AddressHandle : public Object {
   public:
    static constexpr Type kind = Type::ah;
    AddressHandle() : Object(kind) {}
    int destroy() override { return 0; }
};

}  // namespace

int create(Context& context, const WriteCommand& command) {
    ib_uverbs_create_ah request;
    if (!command.read(&request)) return ENOSPC;
    auto* pd = context.objects.find<Pd>(request.pd_handle);
    if (!pd) return EINVAL;
    const auto& attributes = request.attr;
    // RoCE has no local routes: every address is a GID.
    if (!Nic::has_port(attributes.port_num) || !attributes.is_global) return EINVAL;
    mlx5_ib_create_ah_resp driver{};
    driver.response_length = static_cast<uint32_t>(std::min(sizeof driver, command.driver_out.bytes));
    if (int error = resolve_mac(attributes.port_num, attributes.grh.sgid_index, attributes.grh.dgid, driver.dmac))
        return error;
    ib_uverbs_create_ah_resp response{};
    response.ah_handle = context.objects.add(std::make_unique<AddressHandle>(), {pd});
    command.answer(response);
    command.answer_driver(driver);
    return 0;
}

int destroy(Context& context, const WriteCommand& command) {
    ib_uverbs_destroy_ah request;
    if (!command.read(&request)) return ENOSPC;
    auto* ah = context.objects.find<AddressHandle>(request.ah_handle);
    return ah ? context.objects.destroy(ah) : EINVAL;
}

}  // namespace ah
}  // namespace sim::uverbs
