// SPDX-License-Identifier: Apache-2.0
// Questions about the device, its ports and their address tables, and what opens a context for use: GET_CONTEXT, or
// QUERY_CONTEXT for one that came from elsewhere, and ASYNC_EVENT_ALLOC.
// Answers are what mlx5_ib derives from the card's capabilities. Not announced, because the NIC does not do it: CQE
// compression, multi-packet WQEs, on-demand paging, TSO, raw packets, tag matching.
#include <errno.h>
#include <gda/formats/wqe.h>
#include <net/if.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <vector>

#include "sim/uverbs/context.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/port.h"

namespace sim::uverbs::query {
namespace {

constexpr uint32_t segment_bytes = gda::prm::WQE_SEGMENT_BYTES;

// Values of enum ib_device_cap_flags, ib_atomic_cap and the port's fields: IBTA names, not in the ABI headers.
constexpr uint32_t cap_rc_rnr_nak = 1u << 12, cap_sys_image_guid = 1u << 11, cap_port_active_event = 1u << 10,
                   cap_change_phy_port = 1u << 5, cap_bad_pkey_counter = 1u << 1, cap_mem_window = 1u << 17,
                   cap_mem_management = 1u << 21, cap_mem_window_type_2b = 1u << 24, cap_xrc = 1u << 20;
constexpr uint32_t atomic_hca = 1;
constexpr uint8_t mtu_4096 = 5, ethernet = 2, width_4x = 2, speed_ndr = 128;

ib_uverbs_query_device_resp device_attributes() {
    const Limits& l = Nic::limits();
    ib_uverbs_query_device_resp r{};
    r.fw_ver =
        uint64_t{identity::firmware_major} << 32 | uint64_t{identity::firmware_minor} << 16 | identity::firmware_sub;
    r.node_guid = r.sys_image_guid = __builtin_bswap64(identity::node_guid(Nic::current()));
    r.max_mr_size = ~0ull;
    r.page_size_cap = ~0xfffull;  // 4 KiB and everything above
    r.vendor_id = identity::vendor_oui;
    r.vendor_part_id = 4129;  // 0x1021: ConnectX-7
    r.max_qp = 1u << l.log_max_qp;
    r.max_qp_wr = 1u << l.log_max_qp_size;
    r.device_cap_flags = cap_bad_pkey_counter | cap_change_phy_port | cap_port_active_event | cap_sys_image_guid |
                         cap_rc_rnr_nak | cap_xrc | cap_mem_window | cap_mem_management | cap_mem_window_type_2b;
    // A send WQE of at most 512 bytes: control, remote address, then data segments. One number serves both queues.
    const uint32_t send_segments = std::min(l.max_send_wqe, 512u) / segment_bytes - 2;
    r.max_sge = std::min(send_segments, l.max_receive_wqe / segment_bytes);
    r.max_sge_rd = std::min(r.max_sge, 30u);
    r.max_cq = 1u << l.log_max_cq;
    r.max_cqe = (1u << l.log_max_cq_size) - 1;
    r.max_mr = r.max_mw = 1u << l.log_max_mkey;
    r.max_pd = 1u << l.log_max_pd;
    if (l.log_max_srq) {
        r.max_srq = 1u << l.log_max_srq;
        r.max_srq_wr = (1u << l.log_max_srq_size) - 1;
        r.max_srq_sge = l.max_receive_wqe / segment_bytes - 1;
    }
    r.max_qp_rd_atom = 1u << l.log_max_requests;
    r.max_qp_init_rd_atom = 1u << l.log_max_responses;
    r.max_res_rd_atom = r.max_qp_rd_atom * r.max_qp;
    r.atomic_cap = l.atomic ? atomic_hca : 0;
    r.max_ah = INT32_MAX;
    r.max_pkeys = static_cast<uint16_t>(l.pkey_entries);
    r.local_ca_ack_delay = static_cast<uint8_t>(l.ack_delay);
    r.phys_port_cnt = static_cast<uint8_t>(l.ports);
    return r;
}

ib_uverbs_query_port_resp port_attributes(const Nic& nic, uint32_t port) {
    const Limits& l = Nic::limits();
    ib_uverbs_query_port_resp r{};
    r.port_cap_flags = IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS;
    r.max_msg_sz = 1u << l.log_max_message;
    r.gid_tbl_len = l.gid_entries;
    r.pkey_tbl_len = static_cast<uint16_t>(l.pkey_entries);
    const PortState state = port_state(nic, port);
    r.state = state.state;
    r.max_mtu = mtu_4096;
    r.active_mtu = state.active_mtu;
    r.max_vl_num = 1;
    r.active_width = width_4x;
    r.active_speed = speed_ndr;
    r.phys_state = state.physical;
    r.link_layer = ethernet;
    r.flags = IB_UVERBS_QPF_GRH_REQUIRED;
    return r;
}

// False: the entry is empty. Only of others the network device is looked up: that asks Linux for all addresses.
bool gid_at(const Nic& nic, uint32_t port, uint32_t index, ib_uverbs_gid_entry* entry) {
    static const uint8_t empty[16] = {};
    *entry = {};
    uint8_t gid[16];
    nic->gid(static_cast<int>(index), gid, port);
    if (memcmp(gid, empty, sizeof gid) == 0) return false;
    memcpy(entry->gid, gid, sizeof gid);
    entry->gid_index = index;
    entry->port_num = port;
    entry->gid_type =
        nic->gid_is_version1(static_cast<int>(index), port) ? IB_UVERBS_GID_TYPE_ROCE_V1 : IB_UVERBS_GID_TYPE_ROCE_V2;
    entry->netdev_ifindex = if_nametoindex(netdev_of(gid).c_str());
    return true;
}

// Flags outside this range that a newer program passes are refused; inside they may be ignored.
constexpr uint64_t core_support = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;

mlx5_ib_alloc_ucontext_resp context_attributes(uint8_t max_cqe_version, size_t room_bytes) {
    const Limits& l = Nic::limits();
    mlx5_ib_alloc_ucontext_resp out{};
    out.qp_tab_size = 1u << l.log_max_qp;
    out.bf_reg_size = 1u << l.log_bf_register;
    out.tot_bfregs = 0;  // no static doorbell pages: libmlx5 asks for each
    out.cache_line_size = 64;
    out.max_sq_desc_sz = static_cast<uint16_t>(l.max_send_wqe);
    out.max_rq_desc_sz = static_cast<uint16_t>(l.max_receive_wqe);
    out.max_send_wqebb = 1u << l.log_max_qp_size;
    out.max_recv_wr = 1u << l.log_max_qp_size;
    out.max_srq_recv_wr = 1u << l.log_max_srq_size;
    out.num_ports = static_cast<uint16_t>(l.ports);
    out.response_length = static_cast<uint32_t>(std::min(sizeof out, room_bytes));
    out.cqe_version = std::min<uint8_t>(max_cqe_version, 1);
    out.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
    out.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
    out.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1;
    out.log_uar_size = 12;
    out.num_uars_per_page = 1;
    return out;
}

}  // namespace

int get_context(Context& context, Request& request) {
    if (context.opened) return EINVAL;  // once per file
    const WriteCommand command = driver_part(request);
    const auto driver = command.driver<mlx5_ib_alloc_ucontext_req_v2>();
    if (!(driver.lib_caps & MLX5_LIB_CAP_DYN_UAR)) return EOPNOTSUPP;  // libmlx5 before 25: static doorbell pages
    context.opened = true;
    context.devx = driver.flags & MLX5_IB_ALLOC_UCTX_DEVX;
    request.answer(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, identity::completion_vectors);
    request.answer(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, core_support);
    command.answer_driver(context_attributes(driver.max_cqe_version, command.driver_out.bytes));
    return 0;
}

// For a program that got the file from elsewhere (ibv_import_device).
int query_context(Context& context, Request& request) {
    if (!context.opened) return EINVAL;
    request.answer(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, identity::completion_vectors);
    request.answer(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, core_support);
    const Room room = request.out(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX);
    const auto attributes = context_attributes(1, room.bytes);
    put(room, &attributes, sizeof attributes);
    return 0;
}

// The first one also hears of objects that name no channel.
int asynchronous_channel(Context& context, Request& request) {
    auto channel = Channel::make(Channel::Carries::asynchronous);
    if (!channel) return errno;
    files::add(channel->reader(), channel);
    events::listen(channel);
    if (!context.asynchronous) context.asynchronous = channel;
    request.set_handle(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, static_cast<uint32_t>(channel->reader()));
    return 0;
}

int query_device(Context&, const WriteCommand& command) {
    ib_uverbs_query_device request;
    if (!command.read(&request)) return ENOSPC;
    command.answer(device_attributes());
    return 0;
}

int query_device_ex(Context&, const WriteCommand& command) {
    ib_uverbs_ex_query_device request;
    if (!command.read(&request)) return ENOSPC;
    if (request.comp_mask || request.reserved) return EINVAL;
    ib_uverbs_ex_query_device_resp response{};
    response.base = device_attributes();
    response.response_length = static_cast<uint32_t>(std::min(sizeof response, command.core_out.bytes));
    response.timestamp_mask = ~0ull;
    response.hca_core_clock = Nic::limits().frequency_khz;
    response.device_cap_flags_ex = response.base.device_cap_flags;
    response.max_dm_size = Nic::limits().device_memory;
    command.answer(response);
    mlx5_ib_query_device_resp driver{};
    driver.response_length = static_cast<uint32_t>(std::min(sizeof driver, command.driver_out.bytes));
    driver.dci_streams_caps.max_log_num_concurent = static_cast<uint8_t>(Nic::limits().log_max_streams);
    driver.dci_streams_caps.max_log_num_errored = static_cast<uint8_t>(Nic::limits().log_max_errored_streams);
    command.answer_driver(driver);
    return 0;
}

int query_port(Context&, const WriteCommand& command) {
    ib_uverbs_query_port request;
    if (!command.read(&request)) return ENOSPC;
    if (!Nic::has_port(request.port_num)) return EINVAL;
    Nic nic;
    if (!nic) return ENODEV;
    command.answer(port_attributes(nic, request.port_num));
    return 0;
}

int query_port_ioctl(Context&, Request& request) {
    const auto port = request.constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM);
    if (!port || !Nic::has_port(*port)) return EINVAL;
    Nic nic;
    if (!nic) return ENODEV;
    ib_uverbs_query_port_resp_ex response{};
    response.legacy_resp = port_attributes(nic, static_cast<uint32_t>(*port));
    request.answer(UVERBS_ATTR_QUERY_PORT_RESP, response);
    return 0;
}

int driver_query_port(Context&, Request& request) {
    if (!Nic::has_port(request.value<uint32_t>(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM))) return EINVAL;
    mlx5_ib_uapi_query_port response{};
    response.flags = MLX5_IB_UAPI_QUERY_PORT_VPORT | MLX5_IB_UAPI_QUERY_PORT_VPORT_VHCA_ID;
    response.vport_vhca_id = static_cast<uint16_t>(Nic::limits().vhca_id);
    request.answer(MLX5_IB_ATTR_QUERY_PORT, response);
    return 0;
}

int gid_table(Context&, Request& request) {
    const auto entry_bytes = request.constant(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE);
    if (!entry_bytes || *entry_bytes < sizeof(ib_uverbs_gid_entry)) return EINVAL;
    if (request.value<uint32_t>(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS)) return EINVAL;
    const Room room = request.out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
    Nic nic;
    if (!nic) return ENODEV;
    std::vector<char> table;
    uint64_t entries = 0;  // those that are not empty
    for (uint32_t i = 0; i < Nic::limits().ports * Nic::limits().gid_entries; ++i) {
        ib_uverbs_gid_entry entry;
        if (!gid_at(nic, i / Nic::limits().gid_entries + 1, i % Nic::limits().gid_entries, &entry)) continue;
        // Before any memory is taken: the size of an entry is the program's, and may be anything.
        if (++entries > room.bytes / *entry_bytes) return EINVAL;
        table.resize(entries * *entry_bytes);
        memcpy(table.data() + (entries - 1) * *entry_bytes, &entry, sizeof entry);
    }
    put(room, table.data(), table.size());
    request.answer(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, entries);
    return 0;
}

int gid_entry(Context&, Request& request) {
    if (request.value<uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS)) return EINVAL;
    const auto port = request.value<uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_PORT);
    if (!Nic::has_port(port)) return EINVAL;
    const auto index = request.value<uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX);
    if (index >= Nic::limits().gid_entries) return EINVAL;
    Nic nic;
    if (!nic) return ENODEV;
    ib_uverbs_gid_entry entry;
    if (!gid_at(nic, port, index, &entry)) return ENODATA;
    request.answer(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry);
    return 0;
}

}  // namespace sim::uverbs::query
