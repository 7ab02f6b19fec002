// SPDX-License-Identifier: Apache-2.0
// Firmware commands and contexts: what DEVX carries to the NIC. Called command.h because each struct is the body of
// one command; _in goes down, _out comes back. Used by gda/nic/command.py and by the software NIC's firmware.
// Source: ConnectX Programmer's Reference Manual, "Command Reference"; every field is compared by machine with
// Linux's include/linux/mlx5/mlx5_ifc.h, and the fields newer than that header (the *_umem_* and send_dbr_mode
// fields) with the structs that rdma-core's own tests declare.
#pragma once

#include <gda/formats/doorbell.h>

namespace gda {
namespace prm {

enum cmd_opcode {
    MLX5_CMD_OP_QUERY_HCA_CAP = 0x100,
    MLX5_CMD_OP_CREATE_MKEY = 0x200,
    MLX5_CMD_OP_DESTROY_MKEY = 0x202,
    MLX5_CMD_OP_CREATE_CQ = 0x400,
    MLX5_CMD_OP_DESTROY_CQ = 0x401,
    MLX5_CMD_OP_QUERY_CQ = 0x402,
    MLX5_CMD_OP_MODIFY_CQ = 0x403,
    MLX5_CMD_OP_CREATE_QP = 0x500,
    MLX5_CMD_OP_DESTROY_QP = 0x501,
    MLX5_CMD_OP_RST2INIT_QP = 0x502,
    MLX5_CMD_OP_INIT2RTR_QP = 0x503,
    MLX5_CMD_OP_RTR2RTS_QP = 0x504,
    MLX5_CMD_OP_RTS2RTS_QP = 0x505,
    MLX5_CMD_OP_2ERR_QP = 0x507,
    MLX5_CMD_OP_2RST_QP = 0x50a,
    MLX5_CMD_OP_QUERY_QP = 0x50b,
    MLX5_CMD_OP_INIT2INIT_QP = 0x50e,
    MLX5_CMD_OP_CREATE_DCT = 0x710,  // the target of dynamically connected queue pairs
    MLX5_CMD_OP_DESTROY_DCT = 0x711,
    MLX5_CMD_OP_DRAIN_DCT = 0x712,
    MLX5_CMD_OP_QUERY_DCT = 0x713,
    MLX5_CMD_OP_QUERY_ROCE_ADDRESS = 0x760,
    MLX5_CMD_OP_QUERY_VPORT_COUNTER = 0x770,
    MLX5_CMD_OP_ALLOC_Q_COUNTER = 0x771,
    MLX5_CMD_OP_DEALLOC_Q_COUNTER = 0x772,
    MLX5_CMD_OP_QUERY_Q_COUNTER = 0x773,
    MLX5_CMD_OP_QUERY_LAG = 0x842,
    MLX5_CMD_OP_CREATE_RMP = 0x90c,  // a shared receive queue: "receive memory pool"
    MLX5_CMD_OP_MODIFY_RMP = 0x90d,
    MLX5_CMD_OP_DESTROY_RMP = 0x90e,
    MLX5_CMD_OP_QUERY_RMP = 0x90f,
};

enum cmd_status {
    MLX5_CMD_STAT_OK = 0x0,
    MLX5_CMD_STAT_INT_ERR = 0x1,
    MLX5_CMD_STAT_BAD_OP_ERR = 0x2,
    MLX5_CMD_STAT_BAD_PARAM_ERR = 0x3,
    MLX5_CMD_STAT_BAD_SYS_STATE_ERR = 0x4,
    MLX5_CMD_STAT_BAD_RES_ERR = 0x5,
    MLX5_CMD_STAT_RES_BUSY = 0x6,
    MLX5_CMD_STAT_LIM_ERR = 0x8,
    MLX5_CMD_STAT_BAD_RES_STATE_ERR = 0x9,
    MLX5_CMD_STAT_IX_ERR = 0xa,
    MLX5_CMD_STAT_NO_RES_ERR = 0xf,
    MLX5_CMD_STAT_BAD_QP_STATE_ERR = 0x10,
    MLX5_CMD_STAT_BAD_PKT_ERR = 0x30,
    MLX5_CMD_STAT_BAD_SIZE_OUTS_CQES_ERR = 0x40,
    MLX5_CMD_STAT_BAD_INP_LEN_ERR = 0x50,
    MLX5_CMD_STAT_BAD_OUTP_LEN_ERR = 0x51,
};

// op_mod of QUERY_HCA_CAP: (type << 1) | 1 asks for the current values, | 0 for the maximum.
enum hca_cap_type {
    HCA_CAP_GENERAL = 0x0,
    HCA_CAP_ATOMIC = 0x3,
    HCA_CAP_ROCE = 0x4,
    HCA_CAP_FLOW_TABLE = 0x7,
    HCA_CAP_QOS = 0xc,
    HCA_CAP_DEV_MEM = 0xf,
    HCA_CAP_GENERAL_2 = 0x20,
};

enum qpc_state {
    MLX5_QPC_STATE_RST = 0x0,
    MLX5_QPC_STATE_INIT = 0x1,
    MLX5_QPC_STATE_RTR = 0x2,
    MLX5_QPC_STATE_RTS = 0x3,
    MLX5_QPC_STATE_SQER = 0x4,
    MLX5_QPC_STATE_ERR = 0x6,
    MLX5_QPC_STATE_SQD = 0x7,
    MLX5_QPC_STATE_SUSPENDED = 0x9,
};

enum qpc_st {
    MLX5_QPC_ST_RC = 0x0,
    MLX5_QPC_ST_UC = 0x1,
    MLX5_QPC_ST_UD = 0x2,
    MLX5_QPC_ST_XRC = 0x3,
    MLX5_QPC_ST_DCI = 0x5,
    MLX5_QP_ST_DCT = 0x6,  // made by a command of its own
    MLX5_QPC_ST_REG_UMR = 0xc,
};

enum qpc_pm_state {
    MLX5_QPC_PM_STATE_ARMED = 0x0,
    MLX5_QPC_PM_STATE_REARM = 0x1,
    MLX5_QPC_PM_STATE_MIGRATED = 0x3,
};

enum qpc_mtu {
    MLX5_QPC_MTU_256_BYTES = 0x1,
    MLX5_QPC_MTU_512_BYTES = 0x2,
    MLX5_QPC_MTU_1K_BYTES = 0x3,
    MLX5_QPC_MTU_2K_BYTES = 0x4,
    MLX5_QPC_MTU_4K_BYTES = 0x5,
};

enum qpc_atomic_mode {
    MLX5_QPC_ATOMIC_MODE_IB_SPEC = 0x1,
    MLX5_QPC_ATOMIC_MODE_ONLY_8B = 0x2,
    MLX5_QPC_ATOMIC_MODE_UP_TO_8B = 0x3,
};

enum qpc_rq_type {
    RQ_TYPE_REGULAR = 0x0,
    RQ_TYPE_SRQ = 0x1,
    RQ_TYPE_ZERO_SIZE = 0x3,
};

// opt_param_mask_95_32 of RTS2RTS_QP: which fields of its qpc_ext count.
enum qpc_opt_mask_32 {
    MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID = 0x1,
};

// opt_param_mask of the transitions: which optional fields of the context the command changes.
enum qp_opt_param {
    MLX5_QP_OPTPAR_RRE = 0x2,
    MLX5_QP_OPTPAR_RAE = 0x4,
    MLX5_QP_OPTPAR_RWE = 0x8,
    MLX5_QP_OPTPAR_PKEY_INDEX = 0x10,
    MLX5_QP_OPTPAR_Q_KEY = 0x20,
    MLX5_QP_OPTPAR_RNR_TIMEOUT = 0x40,
    MLX5_QP_OPTPAR_SRA_MAX = 0x100,
    MLX5_QP_OPTPAR_RRA_MAX = 0x200,
    MLX5_QP_OPTPAR_PRI_PORT = 0x10000,
    MLX5_QP_OPTPAR_COUNTER_SET_ID = 0x2000000,
};

enum mkc_access_mode {
    MKC_ACCESS_MODE_PA = 0x0,     // the whole address space of the process
    MKC_ACCESS_MODE_MTT = 0x1,    // one contiguous range of registered memory
    MKC_ACCESS_MODE_KLM = 0x2,    // a list of pieces of other keys' memory
    MKC_ACCESS_MODE_KSM = 0x3,    // the same, all pieces of 2^log_page_size bytes
    MKC_ACCESS_MODE_MEMIC = 0x5,  // device memory; the third bit is access_mode_4_2's
};

// atomic_caps.atomic_operations.
enum atomic_operation {
    MLX5_ATOMIC_OPS_CMP_SWAP = 0x1,
    MLX5_ATOMIC_OPS_FETCH_ADD = 0x2,
    MLX5_ATOMIC_OPS_EXTENDED_CMP_SWAP = 0x4,  // masked, of several sizes
    MLX5_ATOMIC_OPS_EXTENDED_FETCH_ADD = 0x8,
};

enum wq_type {
    MLX5_WQ_TYPE_LINKED_LIST = 0x0,  // each WQE names the next one: shared receive queues
    MLX5_WQ_TYPE_CYCLIC = 0x1,       // in the order of the ring
};

enum rmpc_state {
    MLX5_RMPC_STATE_RDY = 0x1,
    MLX5_RMPC_STATE_ERR = 0x3,
};

enum dctc_state {
    MLX5_DCTC_STATE_ACTIVE = 0x0,
    MLX5_DCTC_STATE_DRAINING = 0x1,
    MLX5_DCTC_STATE_DRAINED = 0x2,
};

// MODIFY_CQ with op_mod 0: which fields of the context it changes. With op_mod 1 (resize): a new ring.
enum modify_cq_field {
    MLX5_CQ_MODIFY_PERIOD = 0x1,
    MLX5_CQ_MODIFY_COUNT = 0x2,
    MLX5_CQ_MODIFY_OVERRUN = 0x4,
};
enum modify_cq_op_mod {
    MODIFY_CQ_FIELDS = 0x0,
    MLX5_CQ_OPMOD_RESIZE = 0x1,
};

struct cmd_hca_cap_bits {
    u8 reserved_at_0[0x20];
    u8 hca_cap_2[0x1];
    u8 reserved_at_21[0xf];
    u8 vhca_id[0x10];
    u8 reserved_at_40[0x40];
    u8 log_max_srq_sz[0x8];
    u8 log_max_qp_sz[0x8];
    u8 event_cap[0x1];
    u8 reserved_at_91[0xa];
    u8 log_max_qp[0x5];
    u8 reserved_at_a0[0xb];
    u8 log_max_srq[0x5];
    u8 reserved_at_b0[0x18];
    u8 log_max_cq_sz[0x8];
    u8 reserved_at_d0[0xb];
    u8 log_max_cq[0x5];
    u8 log_max_eq_sz[0x8];
    u8 relaxed_ordering_write[0x1];
    u8 relaxed_ordering_read_pci_enabled[0x1];  // may be asked for where PCI allows it; older name: ..._read
    u8 log_max_mkey[0x6];
    u8 reserved_at_f0[0xc];
    u8 log_max_eq[0x4];
    u8 reserved_at_100[0x9];
    u8 log_max_mrw_sz[0x7];
    u8 reserved_at_110[0x9];
    u8 null_mkey[0x1];
    u8 reserved_at_11a[0x8];
    u8 qpc_extension[0x1];  // RTS2RTS_QP may have a qpc_ext behind it
    u8 reserved_at_123[0x7];
    u8 log_max_ra_req_dc[0x6];
    u8 reserved_at_130[0xa];
    u8 log_max_ra_res_dc[0x6];
    u8 reserved_at_140[0x9];
    u8 roce_accl[0x1];
    u8 log_max_ra_req_qp[0x6];
    u8 reserved_at_150[0xa];
    u8 log_max_ra_res_qp[0x6];
    u8 reserved_at_160[0x4];
    u8 cache_line_128byte[0x1];
    u8 reserved_at_165[0xb];
    u8 gid_table_size[0x10];
    u8 out_of_seq_cnt[0x1];
    u8 vport_counters[0x1];
    u8 reserved_at_182[0x4];
    u8 max_qp_cnt[0xa];
    u8 pkey_table_size[0x10];
    u8 reserved_at_1a0[0xb];
    u8 local_ca_ack_delay[0x5];
    u8 reserved_at_1b0[0x6];
    u8 port_type[0x2];
    u8 num_ports[0x8];
    u8 reserved_at_1c0[0x3];
    u8 log_max_msg[0x5];
    u8 reserved_at_1c8[0x4];
    u8 max_tc[0x4];
    u8 reserved_at_1d0[0x10];
    u8 stat_rate_support[0x10];
    u8 reserved_at_1f0[0xc];
    u8 cqe_version[0x4];
    u8 compact_address_vector[0x1];
    u8 reserved_at_201[0x13];
    u8 wq_signature[0x1];
    u8 sctr_data_cqe[0x1];
    u8 reserved_at_216[0x4];
    u8 dct[0x1];
    u8 qos[0x1];
    u8 reserved_at_21c[0x1];
    u8 roce[0x1];
    u8 atomic[0x1];
    u8 reserved_at_21f[0x1];
    u8 cq_oi[0x1];
    u8 cq_resize[0x1];
    u8 cq_moderation[0x1];
    u8 reserved_at_223[0x5];
    u8 block_lb_mc[0x1];
    u8 reserved_at_229[0x3];
    u8 cd[0x1];
    u8 reserved_at_22d[0x1];
    u8 apm[0x1];
    u8 reserved_at_22f[0x7];
    u8 qkv[0x1];
    u8 pkv[0x1];
    u8 reserved_at_238[0x4];
    u8 xrc[0x1];
    u8 ud[0x1];
    u8 uc[0x1];
    u8 rc[0x1];
    u8 uar_4k[0x1];
    u8 reserved_at_241[0x11];
    u8 umem_uid_0[0x1];
    u8 reserved_at_253[0x5];
    u8 log_pg_sz[0x8];
    u8 bf[0x1];
    u8 driver_version[0x1];
    u8 reserved_at_262[0x9];
    u8 log_bf_reg_size[0x5];
    u8 reserved_at_270[0x20];
    u8 max_wqe_sz_sq[0x10];
    u8 reserved_at_2a0[0x10];
    u8 max_wqe_sz_rq[0x10];
    u8 reserved_at_2c0[0x10];
    u8 max_wqe_sz_sq_dc[0x10];
    u8 reserved_at_2e0[0x38];
    u8 log_max_mcg[0x8];
    u8 reserved_at_320[0xa];
    u8 relaxed_ordering_read[0x1];
    u8 log_max_pd[0x5];
    u8 reserved_at_330[0xb];
    u8 log_max_xrcd[0x5];
    u8 reserved_at_340[0x23];
    u8 log_max_rq[0x5];
    u8 reserved_at_368[0x3];
    u8 log_max_sq[0x5];
    u8 reserved_at_370[0x13];
    u8 log_max_rmp[0x5];
    u8 reserved_at_388[0x78];
    u8 general_obj_types[0x40];
    u8 sq_ts_format[0x2];
    u8 rq_ts_format[0x2];
    u8 reserved_at_444[0x27];
    u8 log_max_umem[0x5];
    u8 max_num_eqs[0x10];
    u8 reserved_at_480[0x10];
    u8 log_uar_page_sz[0x10];
    u8 reserved_at_4a0[0x20];
    u8 device_frequency_mhz[0x20];
    u8 device_frequency_khz[0x20];
    u8 reserved_at_500[0x20];
    u8 num_of_uars_per_page[0x20];
    u8 reserved_at_540[0x4b];
    u8 log_max_dci_stream_channels[0x5];
    u8 reserved_at_590[0x3];
    u8 log_max_dci_errored_streams[0x5];
    u8 reserved_at_598[0x27];
    u8 cqe_compression[0x1];
    u8 reserved_at_5c0[0x48];
    u8 native_port_num[0x8];
    u8 num_vhca_ports[0x8];
    u8 reserved_at_618[0x1e8];
};

struct cmd_hca_cap_2_bits {
    u8 reserved_at_0[0x2e0];
    u8 send_dbr_mode_no_dbr_int[0x1];
    u8 send_dbr_mode_no_dbr_ext[0x1];
    u8 reserved_at_2e2[0x51e];
};

struct atomic_caps_bits {
    u8 reserved_at_0[0x40];
    u8 atomic_req_8B_endianness_mode[0x2];
    u8 reserved_at_42[0x4];
    u8 supported_atomic_req_8B_endianness_mode_1[0x1];
    u8 reserved_at_47[0x49];
    u8 atomic_operations[0x10];
    u8 reserved_at_a0[0x10];
    u8 atomic_size_qp[0x10];
    u8 reserved_at_c0[0x10];
    u8 atomic_size_dc[0x10];
    u8 reserved_at_e0[0x720];
};

struct roce_cap_bits {
    u8 roce_apm[0x1];
    u8 reserved_at_1[0x3];
    u8 sw_r_roce_src_udp_port[0x1];
    u8 fl_rc_qp_when_roce_disabled[0x1];
    u8 fl_rc_qp_when_roce_enabled[0x1];
    u8 reserved_at_7[0x17];
    u8 qp_ts_format[0x2];
    u8 reserved_at_20[0x6c];
    u8 l3_type[0x4];
    u8 reserved_at_90[0x8];
    u8 roce_version[0x8];
    u8 reserved_at_a0[0x10];
    u8 r_roce_dest_udp_port[0x10];
    u8 r_roce_max_src_udp_port[0x10];
    u8 r_roce_min_src_udp_port[0x10];
    u8 reserved_at_e0[0x10];
    u8 roce_address_table_size[0x10];
    u8 reserved_at_100[0x700];
};

// Memory of the card's own that programs map and peers reach ("MEMIC").
struct device_mem_cap_bits {
    u8 memic[0x1];
    u8 reserved_at_1[0x1f];
    u8 reserved_at_20[0xb];
    u8 log_min_memic_alloc_size[0x5];
    u8 reserved_at_30[0x8];
    u8 log_max_memic_addr_alignment[0x8];
    u8 memic_bar_start_addr[0x40];
    u8 memic_bar_size[0x20];
    u8 max_memic_size[0x20];  // bytes
    u8 steering_sw_icm_start_address[0x40];
    u8 reserved_at_100[0x8];
    u8 log_header_modify_sw_icm_size[0x8];
    u8 reserved_at_110[0x2];
    u8 log_sw_icm_alloc_granularity[0x6];
    u8 log_steering_sw_icm_size[0x8];
    u8 reserved_at_120[0x20];
    u8 header_modify_sw_icm_start_address[0x40];
    u8 reserved_at_180[0x80];
    u8 memic_operations[0x20];  // a bit for each operation that a mapping can stand for
    u8 reserved_at_220[0x5e0];
};

struct query_hca_cap_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 reserved_at_10[0x20];
    u8 op_mod[0x10];
    u8 other_function[0x1];
    u8 reserved_at_41[0xf];
    u8 function_id[0x10];
    u8 reserved_at_60[0x20];
};

struct query_hca_cap_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
    u8 capability[0x1000][0x8];
};

struct ads_bits {
    u8 fl[0x1];
    u8 free_ar[0x1];
    u8 reserved_at_2[0xe];
    u8 pkey_index[0x10];
    u8 reserved_at_20[0x8];
    u8 grh[0x1];
    u8 mlid[0x7];
    u8 rlid[0x10];
    u8 ack_timeout[0x5];  // 4.096 us * 2^this
    u8 reserved_at_45[0x3];
    u8 src_addr_index[0x8];
    u8 reserved_at_50[0x4];
    u8 stat_rate[0x4];
    u8 hop_limit[0x8];
    u8 reserved_at_60[0x4];
    u8 tclass[0x8];
    u8 flow_label[0x14];
    u8 rgid_rip[0x10][0x8];
    u8 reserved_at_100[0x4];
    u8 f_dscp[0x1];
    u8 f_ecn[0x1];
    u8 reserved_at_106[0x1];
    u8 f_eth_prio[0x1];
    u8 ecn[0x2];
    u8 dscp[0x6];
    u8 udp_sport[0x10];
    u8 dei_cfi[0x1];
    u8 eth_prio[0x3];
    u8 sl[0x4];
    u8 vhca_port_num[0x8];
    u8 rmac_47_32[0x10];
    u8 rmac_31_0[0x20];
};

struct qpc_bits {
    u8 state[0x4];  // enum qpc_state
    u8 lag_tx_port_affinity[0x4];
    u8 st[0x8];  // enum qpc_st
    u8 reserved_at_10[0x2];
    u8 isolate_vl_tc[0x1];
    u8 pm_state[0x2];  // enum qpc_pm_state
    u8 reserved_at_15[0x1];
    u8 req_e2e_credit_mode[0x2];
    u8 offload_type[0x4];
    u8 end_padding_mode[0x2];
    u8 reserved_at_1e[0x2];
    u8 wq_signature[0x1];
    u8 block_lb_mc[0x1];
    u8 atomic_like_write_en[0x1];
    u8 latency_sensitive[0x1];
    u8 reserved_at_24[0x1];
    u8 drain_sigerr[0x1];
    u8 reserved_at_26[0x2];
    u8 pd[0x18];
    u8 mtu[0x3];  // enum qpc_mtu
    u8 log_msg_max[0x5];
    u8 reserved_at_48[0x1];
    u8 log_rq_size[0x4];    // in receive WQEs
    u8 log_rq_stride[0x3];  // bytes of a receive WQE = 16 << this
    u8 no_sq[0x1];
    u8 log_sq_size[0x4];  // in WQE basic blocks
    u8 reserved_at_55[0x3];
    u8 ts_format[0x2];
    u8 reserved_at_5a[0x1];
    u8 rlky[0x1];
    u8 ulp_stateless_offload_mode[0x4];
    u8 counter_set_id[0x8];
    u8 uar_page[0x18];
    u8 send_dbr_mode[0x2];  // enum send_dbr_mode
    u8 reserved_at_82[0x6];
    u8 user_index[0x18];  // comes back in the CQE as srqn_uidx
    u8 reserved_at_a0[0x3];
    u8 log_page_size[0x5];
    u8 remote_qpn[0x18];
    struct ads_bits primary_address_path;
    struct ads_bits secondary_address_path;
    u8 log_ack_req_freq[0x4];
    u8 reserved_at_384[0x4];
    u8 log_sra_max[0x3];
    u8 reserved_at_38b[0x2];
    u8 retry_count[0x3];
    u8 rnr_retry[0x3];
    u8 reserved_at_393[0x1];
    u8 fre[0x1];
    u8 cur_rnr_retry[0x3];
    u8 cur_retry_count[0x3];
    u8 reserved_at_39b[0x2d];
    u8 next_send_psn[0x18];
    u8 reserved_at_3e0[0x3];
    u8 log_num_dci_stream_channels[0x5];
    u8 cqn_snd[0x18];
    u8 reserved_at_400[0x3];
    u8 log_num_dci_errored_streams[0x5];
    u8 deth_sqpn[0x18];
    u8 reserved_at_420[0x28];
    u8 last_acked_psn[0x18];
    u8 reserved_at_460[0x8];
    u8 ssn[0x18];
    u8 reserved_at_480[0x8];
    u8 log_rra_max[0x3];
    u8 reserved_at_48b[0x1];
    u8 atomic_mode[0x4];  // enum qpc_atomic_mode
    u8 rre[0x1];
    u8 rwe[0x1];
    u8 rae[0x1];
    u8 reserved_at_493[0x1];
    u8 page_offset[0x6];
    u8 reserved_at_49a[0x3];
    u8 cd_slave_receive[0x1];
    u8 cd_slave_send[0x1];
    u8 cd_master[0x1];
    u8 reserved_at_4a0[0x3];
    u8 min_rnr_nak[0x5];
    u8 next_rcv_psn[0x18];
    u8 reserved_at_4c0[0x8];
    u8 xrcd[0x18];
    u8 reserved_at_4e0[0x8];
    u8 cqn_rcv[0x18];
    u8 dbr_addr[0x40];  // a byte offset when dbr_umem_valid
    u8 q_key[0x20];
    u8 reserved_at_560[0x5];
    u8 rq_type[0x3];  // enum qpc_rq_type
    u8 srqn_rmpn_xrqn[0x18];
    u8 reserved_at_580[0x8];
    u8 rmsn[0x18];
    u8 hw_sq_wqebb_counter[0x10];
    u8 sw_sq_wqebb_counter[0x10];
    u8 hw_rq_counter[0x20];
    u8 sw_rq_counter[0x20];
    u8 reserved_at_600[0x2f];
    u8 cgs[0x1];
    u8 cs_req[0x8];
    u8 cs_res[0x8];
    u8 dc_access_key[0x40];
    u8 reserved_at_680[0x3];
    u8 dbr_umem_valid[0x1];
    u8 reserved_at_684[0x9c];
    u8 dbr_umem_id[0x20];
};

struct cqc_bits {
    u8 status[0x4];
    u8 reserved_at_4[0x2];
    u8 dbr_umem_valid[0x1];
    u8 apu_cq[0x1];
    u8 cqe_sz[0x3];
    u8 cc[0x1];  // collapsed: every completion goes to entry 0
    u8 reserved_at_c[0x1];
    u8 scqe_break_moderation_en[0x1];
    u8 oi[0x1];  // overrun ignored: the consumer index is not read
    u8 cq_period_mode[0x2];
    u8 cqe_comp_en[0x1];
    u8 mini_cqe_res_format[0x2];
    u8 st[0x4];
    u8 reserved_at_18[0x6];
    u8 cqe_compression_layout[0x2];
    u8 dbr_umem_id[0x20];
    u8 reserved_at_40[0x14];
    u8 page_offset[0x6];
    u8 reserved_at_5a[0x9];
    u8 log_cq_size[0x5];
    u8 uar_page[0x18];
    u8 reserved_at_80[0x4];
    u8 cq_period[0xc];
    u8 cq_max_count[0x10];
    u8 c_eqn_or_apu_element[0x20];
    u8 reserved_at_c0[0x3];
    u8 log_page_size[0x5];
    u8 reserved_at_c8[0x40];
    u8 last_notified_index[0x18];
    u8 reserved_at_120[0x8];
    u8 last_solicit_index[0x18];
    u8 reserved_at_140[0x8];
    u8 consumer_counter[0x18];
    u8 reserved_at_160[0x8];
    u8 producer_counter[0x18];
    u8 reserved_at_180[0x40];
    u8 dbr_addr[0x40];  // a byte offset when dbr_umem_valid
};

// A work queue by itself, here of a shared receive queue.
struct wq_bits {
    u8 wq_type[0x4];  // enum wq_type
    u8 wq_signature[0x1];
    u8 end_padding_mode[0x2];
    u8 cd_slave[0x1];
    u8 reserved_at_8[0x18];
    u8 hds_skip_first_sge[0x1];
    u8 log2_hds_buf_size[0x3];
    u8 reserved_at_24[0x7];
    u8 page_offset[0x5];
    u8 lwm[0x10];  // limit: an event when fewer WQEs than this are left; 0: not armed
    u8 reserved_at_40[0x8];
    u8 pd[0x18];
    u8 reserved_at_60[0x8];
    u8 uar_page[0x18];
    u8 dbr_addr[0x40];  // a byte offset when dbr_umem_valid
    u8 hw_counter[0x20];
    u8 sw_counter[0x20];
    u8 reserved_at_100[0xc];
    u8 log_wq_stride[0x4];  // bytes of a WQE = 1 << this
    u8 reserved_at_110[0x3];
    u8 log_wq_pg_sz[0x5];
    u8 reserved_at_118[0x3];
    u8 log_wq_sz[0x5];  // in WQEs
    u8 dbr_umem_valid[0x1];
    u8 wq_umem_valid[0x1];
    u8 reserved_at_122[0x1e];
    u8 dbr_umem_id[0x20];
    u8 wq_umem_id[0x20];
    u8 wq_umem_offset[0x40];
    u8 reserved_at_1c0[0x440];
};

struct rmpc_bits {
    u8 reserved_at_0[0x8];
    u8 state[0x4];  // enum rmpc_state
    u8 reserved_at_c[0x14];
    u8 basic_cyclic_rcv_wqe[0x1];
    u8 reserved_at_21[0x15f];
    struct wq_bits wq;
};

struct rmp_bitmask_bits {
    u8 reserved_at_0[0x3f];
    u8 lwm[0x1];
};

struct mkc_bits {
    u8 reserved_at_0[0x1];
    u8 free[0x1];
    u8 reserved_at_2[0x1];
    u8 access_mode_4_2[0x3];
    u8 reserved_at_6[0x7];
    u8 relaxed_ordering_write[0x1];
    u8 reserved_at_e[0x1];
    u8 small_fence_on_rdma_read_response[0x1];
    u8 umr_en[0x1];
    u8 a[0x1];                // remote atomics
    u8 rw[0x1];               // remote write
    u8 rr[0x1];               // remote read
    u8 lw[0x1];               // local write
    u8 lr[0x1];               // local read
    u8 access_mode_1_0[0x2];  // enum mkc_access_mode
    u8 reserved_at_18[0x2];
    u8 ma_translation_mode[0x2];
    u8 reserved_at_1c[0x4];
    u8 qpn[0x18];
    u8 mkey_7_0[0x8];
    u8 reserved_at_40[0x20];
    u8 length64[0x1];
    u8 bsf_en[0x1];
    u8 sync_umr[0x1];
    u8 reserved_at_63[0x2];
    u8 expected_sigerr_count[0x1];
    u8 reserved_at_66[0x1];
    u8 en_rinval[0x1];
    u8 pd[0x18];
    u8 start_addr[0x40];
    u8 len[0x40];
    u8 bsf_octword_size[0x20];
    u8 reserved_at_120[0x80];
    u8 translations_octword_size[0x20];
    u8 reserved_at_1c0[0x19];
    u8 relaxed_ordering_read[0x1];
    u8 reserved_at_1da[0x1];
    u8 log_page_size[0x5];
    u8 reserved_at_1e0[0x20];
};

struct roce_addr_layout_bits {
    u8 source_l3_address[0x10][0x8];
    u8 reserved_at_80[0x3];
    u8 vlan_valid[0x1];
    u8 vlan_id[0xc];
    u8 source_mac_47_32[0x10];
    u8 source_mac_31_0[0x20];
    u8 reserved_at_c0[0x14];
    u8 roce_l3_type[0x4];
    u8 roce_version[0x8];
    u8 reserved_at_e0[0x20];
};

struct create_mkey_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x20];
    u8 pg_access[0x1];
    u8 mkey_umem_valid[0x1];
    u8 reserved_at_62[0x1e];
    struct mkc_bits memory_key_mkey_entry;
    u8 reserved_at_280[0x80];
    u8 translations_octword_actual_size[0x20];
    u8 mkey_umem_id[0x20];
    u8 mkey_umem_offset[0x40];
    u8 reserved_at_380[0x500];
};

struct create_mkey_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x8];
    u8 mkey_index[0x18];
    u8 reserved_at_60[0x20];
};

struct destroy_mkey_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 mkey_index[0x18];
    u8 reserved_at_60[0x20];
};

struct destroy_mkey_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct create_cq_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x40];
    struct cqc_bits cq_context;
    u8 cq_umem_offset[0x40];
    u8 cq_umem_id[0x20];
    u8 cq_umem_valid[0x1];
    u8 reserved_at_2e1[0x59f];
};

struct create_cq_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x8];
    u8 cqn[0x18];
    u8 reserved_at_60[0x20];
};

struct destroy_cq_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 cqn[0x18];
    u8 reserved_at_60[0x20];
};

struct destroy_cq_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct create_qp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 input_qpn[0x18];
    u8 reserved_at_60[0x20];
    u8 opt_param_mask[0x20];
    u8 ece[0x20];
    struct qpc_bits qpc;
    u8 wq_umem_offset[0x40];
    u8 wq_umem_id[0x20];
    u8 wq_umem_valid[0x1];
    u8 reserved_at_861[0x1f];
};

struct create_qp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x8];
    u8 qpn[0x18];
    u8 ece[0x20];
};

struct destroy_qp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 qpn[0x18];
    u8 reserved_at_60[0x20];
};

struct destroy_qp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct rst2init_qp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 qpn[0x18];
    u8 reserved_at_60[0x20];
    u8 opt_param_mask[0x20];
    u8 ece[0x20];
    struct qpc_bits qpc;
    u8 reserved_at_800[0x80];
};

struct rst2init_qp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x20];
    u8 ece[0x20];
};

struct init2rtr_qp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 qpn[0x18];
    u8 reserved_at_60[0x20];
    u8 opt_param_mask[0x20];
    u8 ece[0x20];
    struct qpc_bits qpc;
    u8 reserved_at_800[0x80];
};

struct init2rtr_qp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x20];
    u8 ece[0x20];
};

struct rtr2rts_qp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 qpn[0x18];
    u8 reserved_at_60[0x20];
    u8 opt_param_mask[0x20];
    u8 ece[0x20];
    struct qpc_bits qpc;
    u8 reserved_at_800[0x80];
};

struct rtr2rts_qp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x20];
    u8 ece[0x20];
};

struct qp_2err_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 qpn[0x18];
    u8 reserved_at_60[0x20];
};

struct qp_2err_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct qp_2rst_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 qpn[0x18];
    u8 reserved_at_60[0x20];
};

struct qp_2rst_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct query_qp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 reserved_at_10[0x20];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 qpn[0x18];
    u8 reserved_at_60[0x20];
};

struct query_qp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
    u8 opt_param_mask[0x20];
    u8 ece[0x20];
    struct qpc_bits qpc;
    u8 reserved_at_800[0x80];
};

struct init2init_qp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 qpn[0x18];
    u8 reserved_at_60[0x20];
    u8 opt_param_mask[0x20];
    u8 ece[0x20];
    struct qpc_bits qpc;
    u8 reserved_at_800[0x80];
};

struct init2init_qp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x20];
    u8 ece[0x20];
};

// What may follow RTS2RTS_QP.
struct qpc_ext_bits {
    u8 reserved_at_0[0x10];
    u8 dci_stream_channel_id[0x10];
    u8 reserved_at_20[0x5e0];
};

struct rts2rts_qp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 qpc_ext[0x1];  // a qpc_ext follows
    u8 reserved_at_41[0x7];
    u8 qpn[0x18];
    u8 reserved_at_60[0x20];
    u8 opt_param_mask[0x20];
    u8 ece[0x20];
    struct qpc_bits qpc;
    u8 reserved_at_800[0x40];
    u8 opt_param_mask_95_32[0x40];  // enum qpc_opt_mask_32
};

struct rts2rts_qp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x20];
    u8 ece[0x20];
};

struct modify_cq_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 cqn[0x18];
    u8 modify_field_select_resize_field_select[0x20];  // enum modify_cq_field
    struct cqc_bits cq_context;
    u8 cq_umem_offset[0x40];
    u8 cq_umem_id[0x20];
    u8 cq_umem_valid[0x1];
    u8 reserved_at_2e1[0x59f];
};

struct modify_cq_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct create_rmp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0xc0];
    struct rmpc_bits ctx;
};

struct create_rmp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x8];
    u8 rmpn[0x18];
    u8 reserved_at_60[0x20];
};

// With bitmask.lwm: arms the limit event.
struct modify_rmp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 rmp_state[0x4];
    u8 reserved_at_44[0x4];
    u8 rmpn[0x18];
    u8 reserved_at_60[0x20];
    struct rmp_bitmask_bits bitmask;
    u8 reserved_at_c0[0x40];
    struct rmpc_bits ctx;
};

struct modify_rmp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct destroy_rmp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 rmpn[0x18];
    u8 reserved_at_60[0x20];
};

struct destroy_rmp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct query_rmp_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 reserved_at_10[0x20];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 rmpn[0x18];
    u8 reserved_at_60[0x20];
};

struct query_rmp_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0xc0];
    struct rmpc_bits rmp_context;
};

// A target of dynamically connected queue pairs: who knows its number and its access key reaches it.
struct dctc_bits {
    u8 reserved_at_0[0x4];
    u8 state[0x4];  // enum dctc_state
    u8 reserved_at_8[0x20];
    u8 user_index[0x18];
    u8 reserved_at_40[0x8];
    u8 cqn[0x18];
    u8 counter_set_id[0x8];
    u8 atomic_mode[0x4];  // enum qpc_atomic_mode
    u8 rre[0x1];
    u8 rwe[0x1];
    u8 rae[0x1];
    u8 atomic_like_write_en[0x1];
    u8 latency_sensitive[0x1];
    u8 rlky[0x1];
    u8 free_ar[0x1];
    u8 reserved_at_73[0x15];
    u8 cs_res[0x8];
    u8 reserved_at_90[0x3];
    u8 min_rnr_nak[0x5];
    u8 reserved_at_98[0x10];
    u8 srqn_xrqn[0x18];
    u8 reserved_at_c0[0x8];
    u8 pd[0x18];
    u8 tclass[0x8];
    u8 reserved_at_e8[0x4];
    u8 flow_label[0x14];
    u8 dc_access_key[0x40];
    u8 reserved_at_140[0x5];
    u8 mtu[0x3];  // enum qpc_mtu
    u8 port[0x8];
    u8 pkey_index[0x10];
    u8 reserved_at_160[0x8];
    u8 my_addr_index[0x8];
    u8 reserved_at_170[0x8];
    u8 hop_limit[0x8];
    u8 dc_access_key_violation_count[0x20];
    u8 reserved_at_1a0[0x14];
    u8 dei_cfi[0x1];
    u8 eth_prio[0x3];
    u8 ecn[0x2];
    u8 dscp[0x6];
    u8 reserved_at_1c0[0x20];
    u8 ece[0x20];
};

struct create_dct_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x40];
    struct dctc_bits dct_context_entry;
    u8 reserved_at_280[0x180];
};

struct create_dct_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x8];
    u8 dctn[0x18];
    u8 ece[0x20];
};

struct drain_dct_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 dctn[0x18];
    u8 reserved_at_60[0x20];
};

struct drain_dct_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct destroy_dct_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 dctn[0x18];
    u8 reserved_at_60[0x20];
};

struct destroy_dct_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct query_dct_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 reserved_at_10[0x20];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 dctn[0x18];
    u8 reserved_at_60[0x20];
};

struct query_dct_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
    struct dctc_bits dct_context_entry;
    u8 reserved_at_280[0x180];
};

struct query_roce_address_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 reserved_at_10[0x20];
    u8 op_mod[0x10];
    u8 roce_address_index[0x10];
    u8 reserved_at_50[0xc];
    u8 vhca_port_num[0x4];
    u8 reserved_at_60[0x20];
};

struct query_roce_address_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
    struct roce_addr_layout_bits roce_address;
};

// Whether the ports of a card act as one (link aggregation).
struct lagc_bits {
    u8 fdb_selection_mode[0x1];
    u8 reserved_at_1[0x14];
    u8 port_select_mode[0x3];
    u8 reserved_at_18[0x5];
    u8 lag_state[0x3];  // 0: no aggregation
    u8 reserved_at_20[0xc];
    u8 active_port[0x4];
    u8 reserved_at_30[0x4];
    u8 tx_remap_affinity_2[0x4];
    u8 reserved_at_38[0x4];
    u8 tx_remap_affinity_1[0x4];
};

struct query_lag_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 reserved_at_10[0x20];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x40];
};

struct query_lag_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    struct lagc_bits ctx;
};

struct query_cq_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 reserved_at_10[0x20];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x8];
    u8 cqn[0x18];
    u8 reserved_at_60[0x20];
};

struct query_cq_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
    struct cqc_bits cq_context;
    u8 reserved_at_280[0x600];
};

// Counters of the queue pairs that name the set (qpc.counter_set_id), and of the port.
struct traffic_counter_bits {
    u8 packets[0x40];
    u8 octets[0x40];
};

struct alloc_q_counter_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 uid[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x40];
};

struct alloc_q_counter_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x18];
    u8 counter_set_id[0x8];
    u8 reserved_at_60[0x20];
};

struct dealloc_q_counter_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 reserved_at_10[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x18];
    u8 counter_set_id[0x8];
    u8 reserved_at_60[0x20];
};

struct dealloc_q_counter_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
};

struct query_q_counter_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 reserved_at_10[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 reserved_at_40[0x80];
    u8 clear[0x1];
    u8 reserved_at_c1[0x1f];
    u8 reserved_at_e0[0x18];
    u8 counter_set_id[0x8];
};

struct query_q_counter_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
    u8 rx_write_requests[0x20];
    u8 reserved_at_a0[0x20];
    u8 rx_read_requests[0x20];
    u8 reserved_at_e0[0x20];
    u8 rx_atomic_requests[0x20];
    u8 reserved_at_120[0x20];
    u8 rx_dct_connect[0x20];
    u8 reserved_at_160[0x20];
    u8 out_of_buffer[0x20];
    u8 reserved_at_1a0[0x20];
    u8 out_of_sequence[0x20];
    u8 reserved_at_1e0[0x20];
    u8 duplicate_request[0x20];
    u8 reserved_at_220[0x20];
    u8 rnr_nak_retry_err[0x20];
    u8 reserved_at_260[0x20];
    u8 packet_seq_err[0x20];
    u8 reserved_at_2a0[0x20];
    u8 implied_nak_seq_err[0x20];
    u8 reserved_at_2e0[0x20];
    u8 local_ack_timeout_err[0x20];
    u8 reserved_at_320[0xa0];
    u8 resp_local_length_error[0x20];
    u8 req_local_length_error[0x20];
    u8 resp_local_qp_error[0x20];
    u8 local_operation_error[0x20];
    u8 resp_local_protection[0x20];
    u8 req_local_protection[0x20];
    u8 resp_cqe_error[0x20];
    u8 req_cqe_error[0x20];
    u8 req_mw_binding[0x20];
    u8 req_bad_response[0x20];
    u8 req_remote_invalid_request[0x20];
    u8 resp_remote_invalid_request[0x20];
    u8 req_remote_access_errors[0x20];
    u8 resp_remote_access_errors[0x20];
    u8 req_remote_operation_errors[0x20];
    u8 req_transport_retries_exceeded[0x20];
    u8 cq_overflow[0x20];
    u8 resp_cqe_flush_error[0x20];
    u8 req_cqe_flush_error[0x20];
    u8 reserved_at_620[0x20];
    u8 roce_adp_retrans[0x20];
    u8 roce_adp_retrans_to[0x20];
    u8 roce_slow_restart[0x20];
    u8 roce_slow_restart_cnps[0x20];
    u8 roce_slow_restart_trans[0x20];
    u8 reserved_at_6e0[0x120];
};

struct query_vport_counter_in_bits {
    u8 opcode[0x10];  // enum cmd_opcode
    u8 reserved_at_10[0x10];
    u8 reserved_at_20[0x10];
    u8 op_mod[0x10];
    u8 other_vport[0x1];
    u8 reserved_at_41[0xb];
    u8 port_num[0x4];
    u8 vport_number[0x10];
    u8 reserved_at_60[0x60];
    u8 clear[0x1];
    u8 reserved_at_c1[0x1f];
    u8 reserved_at_e0[0x20];
};

struct query_vport_counter_out_bits {
    u8 status[0x8];  // enum cmd_status
    u8 reserved_at_8[0x18];
    u8 syndrome[0x20];
    u8 reserved_at_40[0x40];
    struct traffic_counter_bits received_errors;
    struct traffic_counter_bits transmit_errors;
    struct traffic_counter_bits received_ib_unicast;
    struct traffic_counter_bits transmitted_ib_unicast;
    struct traffic_counter_bits received_ib_multicast;
    struct traffic_counter_bits transmitted_ib_multicast;
    struct traffic_counter_bits received_eth_broadcast;
    struct traffic_counter_bits transmitted_eth_broadcast;
    struct traffic_counter_bits received_eth_unicast;
    struct traffic_counter_bits transmitted_eth_unicast;
    struct traffic_counter_bits received_eth_multicast;
    struct traffic_counter_bits transmitted_eth_multicast;
    u8 reserved_at_680[0xa00];
};

}  // namespace prm
}  // namespace gda
