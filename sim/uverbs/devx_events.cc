// SPDX-License-Identifier: Apache-2.0
// DEVX channels: events of firmware objects, with or without the event queue entry, and answers of asynchronous
// commands. Source: Linux, drivers/infiniband/hw/mlx5/devx.c, and mlx5dv.h, "mlx5dv_devx_subscribe_devx_event".
#include <errno.h>
#include <fcntl.h>
#include <gda/formats/event.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include "sim/uverbs/context.h"
#include "sim/uverbs/devx.h"
#include "sim/uverbs/dispatch.h"

namespace sim::uverbs::devx {
namespace {

using namespace gda::prm;

constexpr size_t most_events = 100;  // in one subscription

// Whether the NIC has this event for such an object. Events about no object (ports, temperature) it has none.
bool may_happen(events::Subject subject, uint16_t event) {
    switch (event) {
        case MLX5_EVENT_TYPE_COMP:
        case MLX5_EVENT_TYPE_CQ_ERROR:
            return subject == events::Subject::cq;
        case MLX5_EVENT_TYPE_SRQ_CATAS_ERROR:
        case MLX5_EVENT_TYPE_SRQ_RQ_LIMIT:
            return subject == events::Subject::srq;
        case MLX5_EVENT_TYPE_COMM_EST:
        case MLX5_EVENT_TYPE_WQ_CATAS_ERROR:
        case MLX5_EVENT_TYPE_WQ_INVAL_REQ_ERROR:
        case MLX5_EVENT_TYPE_WQ_ACCESS_ERROR:
        case MLX5_EVENT_TYPE_SRQ_LAST_WQE:
            return subject == events::Subject::qp;
        default:
            return false;
    }
}

int make_channel(Request& request, uint16_t handle_id, Channel::Carries what) {
    auto channel = Channel::make(what);
    if (!channel) return errno;
    files::add(channel->reader(), channel);
    request.set_handle(handle_id, static_cast<uint32_t>(channel->reader()));
    return 0;
}

}  // namespace

int command_channel(Context& context, Request& request) {
    if (!context.devx) return EINVAL;
    return make_channel(request, MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, Channel::Carries::commands);
}

int event_channel(Context& context, Request& request) {
    if (!context.devx) return EINVAL;
    const auto flags = request.value<uint32_t>(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS);
    constexpr uint32_t omit = MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA;
    if (flags & ~omit) return EINVAL;
    return make_channel(request, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE,
                        flags & omit ? Channel::Carries::firmware_without_data : Channel::Carries::firmware);
}

int subscribe(Context& context, Request& request) {
    if (!context.devx) return EINVAL;
    const auto channel = files::channel(request.file(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE));
    if (!channel || (channel->carries() != Channel::Carries::firmware &&
                     channel->carries() != Channel::Carries::firmware_without_data))
        return EBADF;
    if (!request.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE)) return EINVAL;
    const auto* object =
        context.objects.find<FirmwareObject>(request.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE));
    if (!object) return ENOENT;
    const auto subject = object->subject();
    const Bytes list = request.in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST);
    const size_t count = list.bytes / sizeof(uint16_t);
    if (!subject || !count || count > most_events) return EINVAL;
    uint16_t wanted[most_events];
    memcpy(wanted, list.data, count * sizeof *wanted);
    for (size_t i = 0; i < count; ++i)
        if (!may_happen(*subject, wanted[i])) return EINVAL;
    for (size_t i = 0; i < count; ++i) {
        events::Subscription subscription;
        subscription.channel = channel;
        subscription.cookie = request.value<uint64_t>(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE);
        if (request.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM)) {
            const auto fd = request.value<int32_t>(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM);
            subscription.eventfd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
            if (subscription.eventfd < 0) return EBADF;
        }
        events::subscribe(*subject, object->number, wanted[i], std::move(subscription));
    }
    return 0;
}

}  // namespace sim::uverbs::devx
