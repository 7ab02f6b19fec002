// SPDX-License-Identifier: Apache-2.0
// Capabilities and addresses: only what this NIC does is announced.
// Source: PRM, "QUERY_HCA_CAP", "HCA Capabilities", "RoCE Capabilities", "QUERY_ROCE_ADDRESS".

#include <cstring>

#include "sim/firmware/handlers.h"

namespace sim::firmware {

using namespace gda::prm;

namespace {

const uint32_t ATOMIC_SIZES = 4 | 8;                  // bytes of atomics, as a mask
const uint32_t ROCE_V1 = 0, ROCE_V2 = 2;              // roce_version of an address
const uint32_t L3_IPV4 = 0, L3_IPV6 = 1;              // roce_l3_type of an address
const uint32_t CAP_V1 = 0x1, CAP_V2 = 0x4;            // bit mask in roce_cap.roce_version
const uint32_t CAP_L3_IPV4 = 0x1, CAP_L3_IPV6 = 0x2;  // bit mask in roce_cap.l3_type
const uint32_t FIRST_UDP_PORT = 0xc000, LAST_UDP_PORT = 0xffff, ROCE_UDP_PORT = 4791;
const uint32_t FREQUENCY_KHZ = 1000000;  // completion timestamps count nanoseconds

void general(const DeviceState& s, uint8_t* cap) {
    GDA_SET(cmd_hca_cap, cap, hca_cap_2, 1);
    GDA_SET(cmd_hca_cap, cap, log_max_qp_sz, LOG_MAX_QUEUE);
    GDA_SET(cmd_hca_cap, cap, event_cap, 1);
    GDA_SET(cmd_hca_cap, cap, log_max_qp, LOG_MAX_OBJECTS);
    GDA_SET(cmd_hca_cap, cap, log_max_srq_sz, LOG_MAX_QUEUE);
    GDA_SET(cmd_hca_cap, cap, log_max_srq, LOG_MAX_OBJECTS);
    GDA_SET(cmd_hca_cap, cap, log_max_ra_req_qp, LOG_MAX_FETCHES);
    GDA_SET(cmd_hca_cap, cap, log_max_ra_res_qp, LOG_MAX_FETCHES);
    GDA_SET(cmd_hca_cap, cap, log_max_cq_sz, LOG_MAX_CQ_ENTRIES);
    GDA_SET(cmd_hca_cap, cap, log_max_cq, LOG_MAX_OBJECTS);
    GDA_SET(cmd_hca_cap, cap, log_max_mkey, LOG_MAX_KEYS);
    GDA_SET(cmd_hca_cap, cap, log_max_mrw_sz, 64);
    GDA_SET(cmd_hca_cap, cap, relaxed_ordering_write, 1);
    GDA_SET(cmd_hca_cap, cap, relaxed_ordering_read, 1);
    GDA_SET(cmd_hca_cap, cap, log_max_pd, LOG_MAX_OBJECTS);
    GDA_SET(cmd_hca_cap, cap, log_max_rq, LOG_MAX_OBJECTS);
    GDA_SET(cmd_hca_cap, cap, log_max_sq, LOG_MAX_OBJECTS);
    GDA_SET(cmd_hca_cap, cap, log_max_rmp, LOG_MAX_OBJECTS);
    GDA_SET(cmd_hca_cap, cap, log_max_umem, LOG_MAX_UMEM);
    GDA_SET(cmd_hca_cap, cap, max_qp_cnt, MAX_COUNTER_SETS);
    GDA_SET(cmd_hca_cap, cap, gid_table_size, 1);  // 16 entries: GID_COUNT
    GDA_SET(cmd_hca_cap, cap, port_type, 1);       // Ethernet
    GDA_SET(cmd_hca_cap, cap, num_ports, s.ports);
    GDA_SET(cmd_hca_cap, cap, native_port_num, 1);
    GDA_SET(cmd_hca_cap, cap, log_max_msg, LOG_MAX_MESSAGE);
    GDA_SET(cmd_hca_cap, cap, cqe_version, 1);
    GDA_SET(cmd_hca_cap, cap, roce, 1);
    GDA_SET(cmd_hca_cap, cap, atomic, 1);
    GDA_SET(cmd_hca_cap, cap, dct, 1);
    GDA_SET(cmd_hca_cap, cap, qpc_extension, 1);
    GDA_SET(cmd_hca_cap, cap, log_max_dci_stream_channels, LOG_MAX_STREAMS);
    GDA_SET(cmd_hca_cap, cap, log_max_dci_errored_streams, LOG_MAX_STREAMS);
    GDA_SET(cmd_hca_cap, cap, log_max_ra_req_dc, LOG_MAX_FETCHES);
    GDA_SET(cmd_hca_cap, cap, log_max_ra_res_dc, LOG_MAX_FETCHES);
    GDA_SET(cmd_hca_cap, cap, max_wqe_sz_sq_dc, MAX_SEND_WQE_BYTES);
    GDA_SET(cmd_hca_cap, cap, xrc, 1);
    GDA_SET(cmd_hca_cap, cap, log_max_xrcd, LOG_MAX_OBJECTS);
    GDA_SET(cmd_hca_cap, cap, rc, 1);
    GDA_SET(cmd_hca_cap, cap, uc, 1);
    GDA_SET(cmd_hca_cap, cap, ud, 1);
    GDA_SET(cmd_hca_cap, cap, cq_oi, 1);
    GDA_SET(cmd_hca_cap, cap, cq_resize, 1);
    GDA_SET(cmd_hca_cap, cap, cq_moderation, 1);
    GDA_SET(cmd_hca_cap, cap, uar_4k, 1);
    GDA_SET(cmd_hca_cap, cap, umem_uid_0, 1);
    GDA_SET(cmd_hca_cap, cap, log_pg_sz, 12);
    GDA_SET(cmd_hca_cap, cap, bf, 1);
    GDA_SET(cmd_hca_cap, cap, log_bf_reg_size, 9);
    GDA_SET(cmd_hca_cap, cap, max_wqe_sz_sq, MAX_SEND_WQE_BYTES);
    GDA_SET(cmd_hca_cap, cap, max_wqe_sz_rq, MAX_RECEIVE_WQE_BYTES);
    GDA_SET(cmd_hca_cap, cap, log_uar_page_sz, 0);  // 4 KiB << 0
    GDA_SET(cmd_hca_cap, cap, num_of_uars_per_page, 1);
    GDA_SET(cmd_hca_cap, cap, device_frequency_mhz, FREQUENCY_KHZ / 1000);
    GDA_SET(cmd_hca_cap, cap, device_frequency_khz, FREQUENCY_KHZ);
}

void roce(uint8_t* cap) {
    GDA_SET(roce_cap, cap, sw_r_roce_src_udp_port, 1);
    GDA_SET(roce_cap, cap, fl_rc_qp_when_roce_enabled, 1);
    GDA_SET(roce_cap, cap, l3_type, CAP_L3_IPV4 | CAP_L3_IPV6);
    GDA_SET(roce_cap, cap, roce_version, CAP_V1 | CAP_V2);
    GDA_SET(roce_cap, cap, r_roce_dest_udp_port, ROCE_UDP_PORT);
    GDA_SET(roce_cap, cap, r_roce_max_src_udp_port, LAST_UDP_PORT);
    GDA_SET(roce_cap, cap, r_roce_min_src_udp_port, FIRST_UDP_PORT);
    GDA_SET(roce_cap, cap, roce_address_table_size, GID_COUNT);
}

// Results of eight bytes come in the byte order of the host: the mode that the kernel's driver sets.
void atomics(uint8_t* cap) {
    GDA_SET(atomic_caps, cap, atomic_req_8B_endianness_mode, 1);
    GDA_SET(atomic_caps, cap, supported_atomic_req_8B_endianness_mode_1, 1);
    GDA_SET(atomic_caps, cap, atomic_operations,
            MLX5_ATOMIC_OPS_CMP_SWAP | MLX5_ATOMIC_OPS_FETCH_ADD | MLX5_ATOMIC_OPS_EXTENDED_CMP_SWAP |
                MLX5_ATOMIC_OPS_EXTENDED_FETCH_ADD);
    GDA_SET(atomic_caps, cap, atomic_size_qp, ATOMIC_SIZES);
    GDA_SET(atomic_caps, cap, atomic_size_dc, ATOMIC_SIZES);
}

// Whole pages, so that programs map theirs and nobody else's.
void device_memory(uint8_t* cap) {
    GDA_SET(device_mem_cap, cap, memic, 1);
    GDA_SET(device_mem_cap, cap, log_min_memic_alloc_size, 6);
    GDA_SET(device_mem_cap, cap, log_max_memic_addr_alignment, 12);
    GDA_SET(device_mem_cap, cap, memic_bar_size, DEVICE_MEMORY_BYTES);
    GDA_SET(device_mem_cap, cap, max_memic_size, DEVICE_MEMORY_BYTES);
}

}  // namespace

Answer query_hca_cap(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)s;
    const uint32_t op_mod = static_cast<uint32_t>(GDA_GET(query_hca_cap_in, in, op_mod));
    uint8_t* cap = out + GDA_BYTE_OFFSET(query_hca_cap_out, capability);
    switch (op_mod / 2) {  // bit 0: maximum or current, the same here
        case HCA_CAP_GENERAL:
            return general(s, cap), Answer{};
        case HCA_CAP_GENERAL_2:
            return GDA_SET(cmd_hca_cap_2, cap, send_dbr_mode_no_dbr_ext, 1), Answer{};
        case HCA_CAP_ROCE:
            return roce(cap), Answer{};
        case HCA_CAP_ATOMIC:
            return atomics(cap), Answer{};
        case HCA_CAP_DEV_MEM:
            return device_memory(cap), Answer{};
        case HCA_CAP_QOS:  // of these the NIC has nothing: all zero
        case HCA_CAP_FLOW_TABLE:
            return {};
    }
    return {Cause::bad_capability, text("op_mod 0x%x", op_mod)};
}

// lag_state 0: the ports do not act as one. UCX asks.
Answer query_lag(DeviceState&, const uint8_t*, uint8_t* out) {
    GDA_SET(query_lag_out, out, ctx.lag_state, 0);
    return {};
}

Answer port_named(const DeviceState& s, uint64_t number, const char* whose, uint32_t* port) {
    *port = number ? static_cast<uint32_t>(number) : 1;
    if (*port <= s.ports) return {};
    return {Cause::port,
            text("%s%sport %u of a NIC that has %u", whose, *whose ? ": " : "", *port, static_cast<unsigned>(s.ports))};
}

Answer query_roce_address(DeviceState& s, const uint8_t* in, uint8_t* out) {
    const uint32_t index = static_cast<uint32_t>(GDA_GET(query_roce_address_in, in, roce_address_index));
    uint32_t port;
    const Answer answer = port_named(s, GDA_GET(query_roce_address_in, in, vhca_port_num), "", &port);
    if (answer.cause != Cause::none) return answer;
    if (index >= GID_COUNT) return {Cause::address_index, text("index %u of %d", index, GID_COUNT)};
    const uint32_t place = s.gid_place(port, index);
    uint8_t* layout = out + GDA_BYTE_OFFSET(query_roce_address_out, roce_address);
    std::memcpy(layout + GDA_BYTE_OFFSET(roce_addr_layout, source_l3_address), s.gids[place], sizeof s.gids[place]);
    uint8_t mac[6];
    mac_of(s.slot, mac, port);
    std::memcpy(layout + GDA_BYTE_OFFSET(roce_addr_layout, source_mac_47_32), mac, sizeof mac);
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const bool ipv4 = std::memcmp(s.gids[place], mapped, sizeof mapped) == 0;
    GDA_SET(roce_addr_layout, layout, roce_l3_type, ipv4 ? L3_IPV4 : L3_IPV6);
    GDA_SET(roce_addr_layout, layout, roce_version, s.gid_version1[place] ? ROCE_V1 : ROCE_V2);
    return {};
}

}  // namespace sim::firmware
