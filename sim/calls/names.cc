// SPDX-License-Identifier: Apache-2.0
// The front end: LD_PRELOAD puts these names before those of libibverbs and libmlx5. Each calls what it stands for and
// watches what comes out.
//
// verbs_set_ops() is how a driver fills a context, libmlx5 as any other: libraries that open libibverbs themselves and
// ask dlsym() for its functions (NCCL) pass here, too. The other names are seen of programs that are linked to them.
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "sim/calls/watch.h"
#include "sim/uverbs/profile.h"

struct verbs_context_ops;

#define SIM_CALL extern "C" __attribute__((visibility("default")))

namespace {

// Not RTLD_NEXT: what a program or a Python module brings along is behind it in another search order.
template <typename Function>
Function* behind(const char* library, const char* name) {
    void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    return handle ? reinterpret_cast<Function*>(dlsym(handle, name)) : nullptr;
}

}  // namespace

#define SIM_BEHIND(LIBRARY, NAME) static auto* const call = behind<decltype(NAME)>(LIBRARY, #NAME)

SIM_CALL void verbs_set_ops(verbs_context* context, const verbs_context_ops* ops) {
    SIM_BEHIND("libibverbs.so.1", verbs_set_ops);
    call(context, ops);
    sim::calls::watch(context);
}

SIM_CALL ibv_context* ibv_open_device(ibv_device* device) {
    SIM_BEHIND("libibverbs.so.1", ibv_open_device);
    return sim::calls::watch(call(device));
}
SIM_CALL ibv_context* ibv_import_device(int fd) {
    SIM_BEHIND("libibverbs.so.1", ibv_import_device);
    return sim::calls::watch(call(fd));
}
SIM_CALL int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) {
    SIM_BEHIND("libibverbs.so.1", ibv_get_cq_event);
    const sim::uverbs::profile::Sleeping sleeping;
    return call(channel, cq, context);
}

SIM_CALL ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attributes) {
    SIM_BEHIND("libmlx5.so.1", mlx5dv_open_device);
    return sim::calls::watch(call(device, attributes));
}
SIM_CALL ibv_cq_ex* mlx5dv_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attributes, mlx5dv_cq_init_attr* more) {
    SIM_BEHIND("libmlx5.so.1", mlx5dv_create_cq);
    return sim::calls::watch(call(context, attributes, more));
}
SIM_CALL ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attributes, mlx5dv_qp_init_attr* more) {
    SIM_BEHIND("libmlx5.so.1", mlx5dv_create_qp);
    ibv_qp* qp = call(context, attributes, more);
    if (attributes->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) sim::calls::watch(reinterpret_cast<ibv_qp_ex*>(qp));
    return qp;
}
