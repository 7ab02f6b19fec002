# SPDX-License-Identifier: Apache-2.0
# Declarations of infiniband/verbs.h and infiniband/mlx5dv.h, and the objects of gda/_verbs.pyx for other extension
# modules (cimport them to reach the C pointers). C functions carry the prefix c_: the plain name is the Python one.
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from posix.types cimport off_t


cdef extern from *:
    """
    #include <infiniband/verbs.h>
    #include <infiniband/mlx5dv.h>
    #ifndef MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED /* rdma-core 45 and newer; older libraries refuse the flag */
    #define MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED (1U << 31)
    #endif
    /* verbs.h makes these four macros, and the access argument has two types. */
    static inline struct ibv_mr *gda_reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned int access)
    { return ibv_reg_mr(pd, addr, length, access); }
    static inline struct ibv_mr *gda_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                                 unsigned int access)
    { return ibv_reg_mr_iova(pd, addr, length, iova, access); }
    static inline int gda_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
    { return ibv_query_port(context, port, attr); }
    static inline int gda_advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *sges, uint32_t n)
    { return ibv_advise_mr(pd, (enum ib_uverbs_advise_mr_advice)advice, flags, sges, n); }
    static inline struct ibv_device **gda_get_device_list(int *count)
    { return ibv_get_device_list(count); }
    """
    struct ibv_device:
        int node_type
        int transport_type
    struct ibv_context:
        ibv_device *device
        int cmd_fd
        int async_fd
        int num_comp_vectors
    struct ibv_pd:
        ibv_context *context
        uint32_t handle
    struct ibv_td:
        ibv_context *context
    struct ibv_td_init_attr:
        uint32_t comp_mask
    struct ibv_parent_domain_init_attr:
        ibv_pd *pd
        ibv_td *td
        uint32_t comp_mask
    struct ibv_alloc_dm_attr:
        size_t length
        uint32_t log_align_req
        uint32_t comp_mask
    struct ibv_dm:
        uint32_t handle
    struct ibv_mr:
        void *addr
        size_t length
        uint32_t handle
        uint32_t lkey
        uint32_t rkey
    struct ibv_comp_channel:
        int fd
    struct ibv_cq:
        ibv_context *context
        uint32_t handle
        int cqe
    struct ibv_poll_cq_attr:
        uint32_t comp_mask
    struct ibv_wc_tm_info:
        uint64_t tag
        uint32_t priv
    # The calls below go through these pointers; one that is NULL was not asked for, or is not offered.
    struct ibv_cq_ex:
        int status
        uint64_t wr_id
        void *read_opcode
        void *read_vendor_err
        void *read_byte_len
        void *read_imm_data
        void *read_qp_num
        void *read_src_qp
        void *read_wc_flags
        void *read_slid
        void *read_sl
        void *read_dlid_path_bits
        void *read_completion_ts
        void *read_cvlan
        void *read_flow_tag
        void *read_tm_info
        void *read_completion_wallclock_ns
    struct ibv_cq_init_attr_ex:
        uint32_t cqe
        void *cq_context
        ibv_comp_channel *channel
        uint32_t comp_vector
        uint64_t wc_flags
        uint32_t comp_mask
        uint32_t flags
        ibv_pd *parent_domain
    struct ibv_moderate_cq:
        uint16_t cq_count
        uint16_t cq_period
    struct ibv_modify_cq_attr:
        uint32_t attr_mask
        ibv_moderate_cq moderate
    struct ibv_srq:
        ibv_context *context
        ibv_pd *pd
        uint32_t handle
    struct ibv_srq_attr:
        uint32_t max_wr
        uint32_t max_sge
        uint32_t srq_limit
    struct ibv_srq_init_attr:
        void *srq_context
        ibv_srq_attr attr
    struct ibv_srq_init_attr_ex:
        void *srq_context
        ibv_srq_attr attr
        uint32_t comp_mask
        int srq_type
        ibv_pd *pd
        ibv_cq *cq
    struct ibv_ah:
        uint32_t handle
    struct ibv_qp:
        ibv_context *context
        ibv_pd *pd
        ibv_cq *send_cq
        ibv_cq *recv_cq
        ibv_srq *srq
        uint32_t handle
        uint32_t qp_num
        int qp_type
    struct ibv_data_buf:
        void *addr
        size_t length
    struct ibv_qp_ex:
        uint64_t wr_id
        unsigned int wr_flags
        void *wr_atomic_cmp_swp
        void *wr_atomic_fetch_add
        void *wr_rdma_read
        void *wr_rdma_write
        void *wr_rdma_write_imm
        void *wr_send
        void *wr_send_imm
        void *wr_set_ud_addr
        void *wr_set_inline_data
        void *wr_set_inline_data_list
        void *wr_set_sge
        void *wr_set_sge_list
    struct ibv_qp_rate_limit_attr:
        uint32_t rate_limit
        uint32_t max_burst_sz
        uint16_t typical_pkt_sz
        uint32_t comp_mask
    struct ibv_ece:
        uint32_t vendor_id
        uint32_t options
        uint32_t comp_mask
    struct ibv_grh:
        uint32_t version_tclass_flow
    union gda_async_element:
        ibv_cq *cq
        ibv_qp *qp
        ibv_srq *srq
        int port_num
    struct ibv_async_event:
        gda_async_element element
        int event_type
    struct timespec:
        long tv_sec
        long tv_nsec
    struct ibv_values_ex:
        uint32_t comp_mask
        timespec raw_clock
    union ibv_gid:
        uint8_t raw[16]
    struct ibv_gid_entry:
        ibv_gid gid
        uint32_t gid_index
        uint32_t port_num
        uint32_t gid_type
        uint32_t ndev_ifindex
    struct ibv_device_attr:
        char fw_ver[64]
        uint64_t node_guid
        uint64_t sys_image_guid
        uint64_t max_mr_size
        uint64_t page_size_cap
        uint32_t vendor_id
        uint32_t vendor_part_id
        uint32_t hw_ver
        int max_qp
        int max_qp_wr
        unsigned int device_cap_flags
        int max_sge
        int max_sge_rd
        int max_cq
        int max_cqe
        int max_mr
        int max_pd
        int max_qp_rd_atom
        int max_res_rd_atom
        int max_qp_init_rd_atom
        int atomic_cap
        int max_ah
        int max_srq
        int max_srq_wr
        int max_srq_sge
        uint16_t max_pkeys
        uint8_t local_ca_ack_delay
        uint8_t phys_port_cnt
    struct ibv_pci_atomic_caps:
        uint16_t fetch_add
        uint16_t swap
        uint16_t compare_swap
    struct ibv_device_attr_ex:
        ibv_device_attr orig_attr
        uint64_t completion_timestamp_mask
        uint64_t hca_core_clock
        uint64_t device_cap_flags_ex
        uint64_t max_dm_size
        ibv_pci_atomic_caps pci_atomic_caps
        uint32_t phys_port_cnt_ex
    struct ibv_query_device_ex_input:
        uint32_t comp_mask
    struct ibv_port_attr:
        int state
        int max_mtu
        int active_mtu
        int gid_tbl_len
        uint32_t port_cap_flags
        uint32_t max_msg_sz
        uint16_t pkey_tbl_len
        uint16_t lid
        uint16_t sm_lid
        uint8_t lmc
        uint8_t max_vl_num
        uint8_t sm_sl
        uint8_t active_width
        uint8_t active_speed
        uint8_t phys_state
        uint8_t link_layer
        uint8_t flags
    struct ibv_global_route:
        ibv_gid dgid
        uint32_t flow_label
        uint8_t sgid_index
        uint8_t hop_limit
        uint8_t traffic_class
    struct ibv_ah_attr:
        ibv_global_route grh
        uint16_t dlid
        uint8_t sl
        uint8_t src_path_bits
        uint8_t static_rate
        uint8_t is_global
        uint8_t port_num
    struct ibv_qp_cap:
        uint32_t max_send_wr
        uint32_t max_recv_wr
        uint32_t max_send_sge
        uint32_t max_recv_sge
        uint32_t max_inline_data
    struct ibv_qp_init_attr:
        void *qp_context
        ibv_cq *send_cq
        ibv_cq *recv_cq
        ibv_srq *srq
        ibv_qp_cap cap
        int qp_type
        int sq_sig_all
    struct ibv_qp_init_attr_ex:
        void *qp_context
        ibv_cq *send_cq
        ibv_cq *recv_cq
        ibv_srq *srq
        ibv_qp_cap cap
        int qp_type
        int sq_sig_all
        uint32_t comp_mask
        ibv_pd *pd
        uint32_t create_flags
        uint16_t max_tso_header
        uint32_t source_qpn
        uint64_t send_ops_flags
    struct ibv_qp_attr:
        int qp_state
        int cur_qp_state
        int path_mtu
        int path_mig_state
        uint32_t qkey
        uint32_t rq_psn
        uint32_t sq_psn
        uint32_t dest_qp_num
        unsigned int qp_access_flags
        ibv_qp_cap cap
        ibv_ah_attr ah_attr
        uint16_t pkey_index
        uint8_t en_sqd_async_notify
        uint8_t sq_draining
        uint8_t max_rd_atomic
        uint8_t max_dest_rd_atomic
        uint8_t min_rnr_timer
        uint8_t port_num
        uint8_t timeout
        uint8_t retry_cnt
        uint8_t rnr_retry
        uint32_t rate_limit
    struct ibv_sge:
        uint64_t addr
        uint32_t length
        uint32_t lkey
    struct gda_wr_rdma:
        uint64_t remote_addr
        uint32_t rkey
    struct gda_wr_atomic:
        uint64_t remote_addr
        uint64_t compare_add
        uint64_t swap
        uint32_t rkey
    struct gda_wr_ud:
        ibv_ah *ah
        uint32_t remote_qpn
        uint32_t remote_qkey
    union gda_wr_kind:
        gda_wr_rdma rdma
        gda_wr_atomic atomic
        gda_wr_ud ud
    struct ibv_send_wr:
        uint64_t wr_id
        ibv_send_wr *next
        ibv_sge *sg_list
        int num_sge
        int opcode
        unsigned int send_flags
        uint32_t imm_data
        uint32_t invalidate_rkey
        gda_wr_kind wr
    struct ibv_recv_wr:
        uint64_t wr_id
        ibv_recv_wr *next
        ibv_sge *sg_list
        int num_sge
    struct ibv_wc:
        uint64_t wr_id
        int status
        int opcode
        uint32_t vendor_err
        uint32_t byte_len
        uint32_t imm_data
        uint32_t qp_num
        uint32_t src_qp
        unsigned int wc_flags
        uint16_t pkey_index
        uint16_t slid
        uint8_t sl
        uint8_t dlid_path_bits

    ibv_device **c_ibv_get_device_list "gda_get_device_list"(int *num_devices) nogil
    void c_ibv_free_device_list "ibv_free_device_list"(ibv_device **devices) nogil
    const char *c_ibv_get_device_name "ibv_get_device_name"(ibv_device *device) nogil
    uint64_t c_ibv_get_device_guid "ibv_get_device_guid"(ibv_device *device) nogil
    int c_ibv_get_device_index "ibv_get_device_index"(ibv_device *device) nogil
    const char *c_ibv_node_type_str "ibv_node_type_str"(int node_type) nogil
    const char *c_ibv_port_state_str "ibv_port_state_str"(int port_state) nogil
    const char *c_ibv_event_type_str "ibv_event_type_str"(int event) nogil
    int c_ibv_rate_to_mult "ibv_rate_to_mult"(int rate) nogil
    int c_mult_to_ibv_rate "mult_to_ibv_rate"(int mult) nogil
    int c_ibv_rate_to_mbps "ibv_rate_to_mbps"(int rate) nogil
    int c_mbps_to_ibv_rate "mbps_to_ibv_rate"(int mbps) nogil
    int c_ibv_fork_init "ibv_fork_init"() nogil
    int c_ibv_is_fork_initialized "ibv_is_fork_initialized"() nogil
    ibv_context *c_ibv_open_device "ibv_open_device"(ibv_device *device) nogil
    ibv_context *c_ibv_import_device "ibv_import_device"(int cmd_fd) nogil
    int c_ibv_get_async_event "ibv_get_async_event"(ibv_context *context, ibv_async_event *event) nogil
    void c_ibv_ack_async_event "ibv_ack_async_event"(ibv_async_event *event) nogil
    int c_ibv_query_rt_values_ex "ibv_query_rt_values_ex"(ibv_context *context, ibv_values_ex *values) nogil
    int c_ibv_close_device "ibv_close_device"(ibv_context *context) nogil
    int c_ibv_query_device "ibv_query_device"(ibv_context *context, ibv_device_attr *attr) nogil
    int c_ibv_query_device_ex "ibv_query_device_ex"(
        ibv_context *context, const ibv_query_device_ex_input *input, ibv_device_attr_ex *attr) nogil
    int c_ibv_query_port "gda_query_port"(ibv_context *context, uint8_t port, ibv_port_attr *attr) nogil
    int c_ibv_query_gid "ibv_query_gid"(ibv_context *context, uint8_t port, int index, ibv_gid *gid) nogil
    int c_ibv_query_gid_ex "ibv_query_gid_ex"(
        ibv_context *context, uint32_t port, uint32_t index, ibv_gid_entry *entry, uint32_t flags) nogil
    ssize_t c_ibv_query_gid_table "ibv_query_gid_table"(
        ibv_context *context, ibv_gid_entry *entries, size_t max_entries, uint32_t flags) nogil
    int c_ibv_query_pkey "ibv_query_pkey"(ibv_context *context, uint8_t port, int index, uint16_t *pkey) nogil
    int c_ibv_get_pkey_index "ibv_get_pkey_index"(ibv_context *context, uint8_t port, uint16_t pkey) nogil
    ibv_pd *c_ibv_alloc_pd "ibv_alloc_pd"(ibv_context *context) nogil
    ibv_pd *c_ibv_import_pd "ibv_import_pd"(ibv_context *context, uint32_t handle) nogil
    void c_ibv_unimport_pd "ibv_unimport_pd"(ibv_pd *pd) nogil
    int c_ibv_dealloc_pd "ibv_dealloc_pd"(ibv_pd *pd) nogil
    ibv_td *c_ibv_alloc_td "ibv_alloc_td"(ibv_context *context, ibv_td_init_attr *attr) nogil
    int c_ibv_dealloc_td "ibv_dealloc_td"(ibv_td *td) nogil
    ibv_pd *c_ibv_alloc_parent_domain "ibv_alloc_parent_domain"(
        ibv_context *context, ibv_parent_domain_init_attr *attr) nogil
    ibv_dm *c_ibv_alloc_dm "ibv_alloc_dm"(ibv_context *context, ibv_alloc_dm_attr *attr) nogil
    int c_ibv_free_dm "ibv_free_dm"(ibv_dm *dm) nogil
    ibv_dm *c_ibv_import_dm "ibv_import_dm"(ibv_context *context, uint32_t handle) nogil
    void c_ibv_unimport_dm "ibv_unimport_dm"(ibv_dm *dm) nogil
    ibv_mr *c_ibv_reg_mr "gda_reg_mr"(ibv_pd *pd, void *addr, size_t length, unsigned int access) nogil
    ibv_mr *c_ibv_reg_mr_iova "gda_reg_mr_iova"(
        ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access) nogil
    ibv_mr *c_ibv_reg_dmabuf_mr "ibv_reg_dmabuf_mr"(
        ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) nogil
    ibv_mr *c_ibv_import_mr "ibv_import_mr"(ibv_pd *pd, uint32_t handle) nogil
    void c_ibv_unimport_mr "ibv_unimport_mr"(ibv_mr *mr) nogil
    ibv_mr *c_ibv_alloc_null_mr "ibv_alloc_null_mr"(ibv_pd *pd) nogil
    int c_ibv_rereg_mr "ibv_rereg_mr"(
        ibv_mr *mr, int flags, ibv_pd *pd, void *addr, size_t length, int access) nogil
    int c_ibv_advise_mr "gda_advise_mr"(
        ibv_pd *pd, int advice, uint32_t flags, ibv_sge *sg_list, uint32_t num_sge) nogil
    int c_ibv_dereg_mr "ibv_dereg_mr"(ibv_mr *mr) nogil
    ibv_ah *c_ibv_create_ah "ibv_create_ah"(ibv_pd *pd, ibv_ah_attr *attr) nogil
    int c_ibv_init_ah_from_wc "ibv_init_ah_from_wc"(
        ibv_context *context, uint8_t port, ibv_wc *wc, ibv_grh *grh, ibv_ah_attr *attr) nogil
    ibv_ah *c_ibv_create_ah_from_wc "ibv_create_ah_from_wc"(
        ibv_pd *pd, ibv_wc *wc, ibv_grh *grh, uint8_t port) nogil
    int c_ibv_destroy_ah "ibv_destroy_ah"(ibv_ah *ah) nogil
    ibv_comp_channel *c_ibv_create_comp_channel "ibv_create_comp_channel"(ibv_context *context) nogil
    int c_ibv_destroy_comp_channel "ibv_destroy_comp_channel"(ibv_comp_channel *channel) nogil
    ibv_cq *c_ibv_create_cq "ibv_create_cq"(
        ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel, int comp_vector) nogil
    ibv_cq_ex *c_ibv_create_cq_ex "ibv_create_cq_ex"(ibv_context *context, ibv_cq_init_attr_ex *attr) nogil
    ibv_cq *c_ibv_cq_ex_to_cq "ibv_cq_ex_to_cq"(ibv_cq_ex *cq) nogil
    int c_ibv_start_poll "ibv_start_poll"(ibv_cq_ex *cq, ibv_poll_cq_attr *attr) nogil
    int c_ibv_next_poll "ibv_next_poll"(ibv_cq_ex *cq) nogil
    void c_ibv_end_poll "ibv_end_poll"(ibv_cq_ex *cq) nogil
    int c_ibv_wc_read_opcode "ibv_wc_read_opcode"(ibv_cq_ex *cq) nogil
    uint32_t c_ibv_wc_read_vendor_err "ibv_wc_read_vendor_err"(ibv_cq_ex *cq) nogil
    uint32_t c_ibv_wc_read_byte_len "ibv_wc_read_byte_len"(ibv_cq_ex *cq) nogil
    uint32_t c_ibv_wc_read_imm_data "ibv_wc_read_imm_data"(ibv_cq_ex *cq) nogil
    uint32_t c_ibv_wc_read_invalidated_rkey "ibv_wc_read_invalidated_rkey"(ibv_cq_ex *cq) nogil
    uint32_t c_ibv_wc_read_qp_num "ibv_wc_read_qp_num"(ibv_cq_ex *cq) nogil
    uint32_t c_ibv_wc_read_src_qp "ibv_wc_read_src_qp"(ibv_cq_ex *cq) nogil
    unsigned int c_ibv_wc_read_wc_flags "ibv_wc_read_wc_flags"(ibv_cq_ex *cq) nogil
    uint32_t c_ibv_wc_read_slid "ibv_wc_read_slid"(ibv_cq_ex *cq) nogil
    uint8_t c_ibv_wc_read_sl "ibv_wc_read_sl"(ibv_cq_ex *cq) nogil
    uint8_t c_ibv_wc_read_dlid_path_bits "ibv_wc_read_dlid_path_bits"(ibv_cq_ex *cq) nogil
    uint64_t c_ibv_wc_read_completion_ts "ibv_wc_read_completion_ts"(ibv_cq_ex *cq) nogil
    uint64_t c_ibv_wc_read_completion_wallclock_ns "ibv_wc_read_completion_wallclock_ns"(ibv_cq_ex *cq) nogil
    uint16_t c_ibv_wc_read_cvlan "ibv_wc_read_cvlan"(ibv_cq_ex *cq) nogil
    uint32_t c_ibv_wc_read_flow_tag "ibv_wc_read_flow_tag"(ibv_cq_ex *cq) nogil
    void c_ibv_wc_read_tm_info "ibv_wc_read_tm_info"(ibv_cq_ex *cq, ibv_wc_tm_info *info) nogil
    int c_ibv_resize_cq "ibv_resize_cq"(ibv_cq *cq, int cqe) nogil
    int c_ibv_modify_cq "ibv_modify_cq"(ibv_cq *cq, ibv_modify_cq_attr *attr) nogil
    int c_ibv_destroy_cq "ibv_destroy_cq"(ibv_cq *cq) nogil
    ibv_srq *c_ibv_create_srq "ibv_create_srq"(ibv_pd *pd, ibv_srq_init_attr *attr) nogil
    ibv_srq *c_ibv_create_srq_ex "ibv_create_srq_ex"(ibv_context *context, ibv_srq_init_attr_ex *attr) nogil
    int c_ibv_modify_srq "ibv_modify_srq"(ibv_srq *srq, ibv_srq_attr *attr, int attr_mask) nogil
    int c_ibv_query_srq "ibv_query_srq"(ibv_srq *srq, ibv_srq_attr *attr) nogil
    int c_ibv_get_srq_num "ibv_get_srq_num"(ibv_srq *srq, uint32_t *srq_num) nogil
    int c_ibv_destroy_srq "ibv_destroy_srq"(ibv_srq *srq) nogil
    int c_ibv_post_srq_recv "ibv_post_srq_recv"(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) nogil
    int c_ibv_poll_cq "ibv_poll_cq"(ibv_cq *cq, int num_entries, ibv_wc *wc) nogil
    int c_ibv_req_notify_cq "ibv_req_notify_cq"(ibv_cq *cq, int solicited_only) nogil
    int c_ibv_get_cq_event "ibv_get_cq_event"(ibv_comp_channel *channel, ibv_cq **cq, void **cq_context) nogil
    void c_ibv_ack_cq_events "ibv_ack_cq_events"(ibv_cq *cq, unsigned int nevents) nogil
    ibv_qp *c_ibv_create_qp "ibv_create_qp"(ibv_pd *pd, ibv_qp_init_attr *attr) nogil
    ibv_qp *c_ibv_create_qp_ex "ibv_create_qp_ex"(ibv_context *context, ibv_qp_init_attr_ex *attr) nogil
    ibv_qp_ex *c_ibv_qp_to_qp_ex "ibv_qp_to_qp_ex"(ibv_qp *qp) nogil
    int c_ibv_modify_qp_rate_limit "ibv_modify_qp_rate_limit"(ibv_qp *qp, ibv_qp_rate_limit_attr *attr) nogil
    int c_ibv_query_qp_data_in_order "ibv_query_qp_data_in_order"(ibv_qp *qp, int op, uint32_t flags) nogil
    int c_ibv_query_ece "ibv_query_ece"(ibv_qp *qp, ibv_ece *ece) nogil
    int c_ibv_set_ece "ibv_set_ece"(ibv_qp *qp, ibv_ece *ece) nogil
    int c_ibv_modify_qp "ibv_modify_qp"(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask) nogil
    int c_ibv_query_qp "ibv_query_qp"(
        ibv_qp *qp, ibv_qp_attr *attr, int attr_mask, ibv_qp_init_attr *init_attr) nogil
    int c_ibv_destroy_qp "ibv_destroy_qp"(ibv_qp *qp) nogil
    int c_ibv_post_send "ibv_post_send"(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr) nogil
    int c_ibv_post_recv "ibv_post_recv"(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) nogil
    void c_ibv_wr_start "ibv_wr_start"(ibv_qp_ex *qp) nogil
    int c_ibv_wr_complete "ibv_wr_complete"(ibv_qp_ex *qp) nogil
    void c_ibv_wr_abort "ibv_wr_abort"(ibv_qp_ex *qp) nogil
    void c_ibv_wr_atomic_cmp_swp "ibv_wr_atomic_cmp_swp"(
        ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap) nogil
    void c_ibv_wr_atomic_fetch_add "ibv_wr_atomic_fetch_add"(
        ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, uint64_t add) nogil
    void c_ibv_wr_rdma_read "ibv_wr_rdma_read"(ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr) nogil
    void c_ibv_wr_rdma_write "ibv_wr_rdma_write"(ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr) nogil
    void c_ibv_wr_rdma_write_imm "ibv_wr_rdma_write_imm"(
        ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, uint32_t imm_data) nogil
    void c_ibv_wr_send "ibv_wr_send"(ibv_qp_ex *qp) nogil
    void c_ibv_wr_send_imm "ibv_wr_send_imm"(ibv_qp_ex *qp, uint32_t imm_data) nogil
    void c_ibv_wr_set_ud_addr "ibv_wr_set_ud_addr"(
        ibv_qp_ex *qp, ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey) nogil
    void c_ibv_wr_set_inline_data "ibv_wr_set_inline_data"(ibv_qp_ex *qp, void *addr, size_t length) nogil
    void c_ibv_wr_set_inline_data_list "ibv_wr_set_inline_data_list"(
        ibv_qp_ex *qp, size_t num_buf, const ibv_data_buf *buf_list) nogil
    void c_ibv_wr_set_sge "ibv_wr_set_sge"(ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length) nogil
    void c_ibv_wr_set_sge_list "ibv_wr_set_sge_list"(ibv_qp_ex *qp, size_t num_sge, const ibv_sge *sg_list) nogil
    const char *c_ibv_wc_status_str "ibv_wc_status_str"(int status) nogil

    struct mlx5dv_context_attr:
        uint32_t flags
        uint64_t comp_mask
    struct mlx5dv_devx_obj:
        pass
    struct mlx5dv_devx_umem:
        uint32_t umem_id
    struct mlx5dv_devx_umem_in:
        void *addr
        size_t size
        uint32_t access
        uint64_t pgsz_bitmap
        uint64_t comp_mask
        int dmabuf_fd
    struct mlx5dv_devx_uar:
        void *reg_addr
        void *base_addr
        uint32_t page_id
        off_t mmap_off
        uint64_t comp_mask
    struct mlx5dv_context:
        uint8_t version
        uint64_t flags
        uint64_t comp_mask
        uint32_t max_dynamic_bfregs
        uint64_t max_clock_info_update_nsec
        uint32_t flow_action_flags
        uint32_t dc_odp_caps
        uint8_t num_lag_ports
        size_t max_wr_memcpy_length
    struct mlx5dv_clock_info:
        uint64_t nsec
        uint64_t last_cycles
        uint64_t frac
        uint32_t mult
        uint32_t shift
        uint64_t mask
    struct mlx5dv_cq_init_attr:
        uint64_t comp_mask
        uint8_t cqe_comp_res_format
        uint32_t flags
        uint16_t cqe_size
    struct mlx5dv_qp_init_attr:
        uint64_t comp_mask
        uint32_t create_flags
        uint64_t send_ops_flags
    struct mlx5dv_qp_ex:
        void *wr_raw_wqe
    struct gda_dv_ring:
        void *buf
        uint32_t wqe_cnt
        uint32_t stride
    struct gda_dv_register:
        void *reg
        uint32_t size
    struct mlx5dv_qp:
        uint32_t *dbrec
        gda_dv_ring sq
        gda_dv_ring rq
        gda_dv_register bf
        uint64_t comp_mask
        off_t uar_mmap_offset
        uint32_t tirn
        uint32_t tisn
        uint32_t rqn
        uint32_t sqn
    struct mlx5dv_cq:
        void *buf
        uint32_t *dbrec
        uint32_t cqe_cnt
        uint32_t cqe_size
        void *cq_uar
        uint32_t cqn
    struct mlx5dv_srq:
        void *buf
        uint32_t *dbrec
        uint32_t stride
        uint32_t head
        uint32_t tail
        uint64_t comp_mask
        uint32_t srqn
    struct mlx5dv_dm:
        void *buf
        uint64_t length
        uint64_t comp_mask
        uint64_t remote_va
    struct mlx5dv_devx_cmd_comp:
        int fd
    struct mlx5dv_devx_async_cmd_hdr:
        uint64_t wr_id
    struct mlx5dv_devx_event_channel:
        int fd
    struct mlx5dv_devx_async_event_hdr:
        uint64_t cookie
        uint8_t *out_data
    struct mlx5dv_pd:
        uint32_t pdn
        uint64_t comp_mask
    struct mlx5_wqe_av:
        uint8_t stat_rate_sl
        uint8_t fl_mlid
        uint16_t rlid
        uint8_t rmac[6]
        uint8_t tclass
        uint8_t hop_limit
        uint32_t grh_gid_fl
        uint8_t rgid[16]
    struct mlx5dv_ah:
        mlx5_wqe_av *av
        uint64_t comp_mask

    bint c_mlx5dv_is_supported "mlx5dv_is_supported"(ibv_device *device) nogil
    ibv_context *c_mlx5dv_open_device "mlx5dv_open_device"(ibv_device *device, mlx5dv_context_attr *attr) nogil
    int c_mlx5dv_devx_general_cmd "mlx5dv_devx_general_cmd"(
        ibv_context *context, const void *command, size_t inlen, void *out, size_t outlen) nogil
    mlx5dv_devx_obj *c_mlx5dv_devx_obj_create "mlx5dv_devx_obj_create"(
        ibv_context *context, const void *command, size_t inlen, void *out, size_t outlen) nogil
    int c_mlx5dv_devx_obj_query "mlx5dv_devx_obj_query"(
        mlx5dv_devx_obj *obj, const void *command, size_t inlen, void *out, size_t outlen) nogil
    int c_mlx5dv_devx_obj_modify "mlx5dv_devx_obj_modify"(
        mlx5dv_devx_obj *obj, const void *command, size_t inlen, void *out, size_t outlen) nogil
    int c_mlx5dv_devx_obj_destroy "mlx5dv_devx_obj_destroy"(mlx5dv_devx_obj *obj) nogil
    mlx5dv_devx_umem *c_mlx5dv_devx_umem_reg "mlx5dv_devx_umem_reg"(
        ibv_context *context, void *addr, size_t size, uint32_t access) nogil
    mlx5dv_devx_umem *c_mlx5dv_devx_umem_reg_ex "mlx5dv_devx_umem_reg_ex"(
        ibv_context *context, mlx5dv_devx_umem_in *umem_in) nogil
    int c_mlx5dv_devx_umem_dereg "mlx5dv_devx_umem_dereg"(mlx5dv_devx_umem *umem) nogil
    mlx5dv_devx_uar *c_mlx5dv_devx_alloc_uar "mlx5dv_devx_alloc_uar"(ibv_context *context, uint32_t flags) nogil
    void c_mlx5dv_devx_free_uar "mlx5dv_devx_free_uar"(mlx5dv_devx_uar *uar) nogil
    int c_mlx5dv_devx_query_eqn "mlx5dv_devx_query_eqn"(ibv_context *context, uint32_t vector, uint32_t *eqn) nogil
    int c_mlx5dv_query_device "mlx5dv_query_device"(ibv_context *context, mlx5dv_context *attr) nogil
    int c_mlx5dv_get_clock_info "mlx5dv_get_clock_info"(ibv_context *context, mlx5dv_clock_info *info) nogil
    uint64_t c_mlx5dv_ts_to_ns "mlx5dv_ts_to_ns"(mlx5dv_clock_info *info, uint64_t device_timestamp) nogil
    ibv_cq_ex *c_mlx5dv_create_cq "mlx5dv_create_cq"(
        ibv_context *context, ibv_cq_init_attr_ex *attr, mlx5dv_cq_init_attr *mlx5_attr) nogil
    ibv_qp *c_mlx5dv_create_qp "mlx5dv_create_qp"(
        ibv_context *context, ibv_qp_init_attr_ex *attr, mlx5dv_qp_init_attr *mlx5_attr) nogil
    mlx5dv_qp_ex *c_mlx5dv_qp_ex_from_ibv_qp_ex "mlx5dv_qp_ex_from_ibv_qp_ex"(ibv_qp_ex *qp) nogil
    void c_mlx5dv_wr_raw_wqe "mlx5dv_wr_raw_wqe"(mlx5dv_qp_ex *qp, const void *wqe) nogil
    int c_mlx5dv_devx_cq_query "mlx5dv_devx_cq_query"(
        ibv_cq *cq, const void *command, size_t inlen, void *out, size_t outlen) nogil
    int c_mlx5dv_devx_cq_modify "mlx5dv_devx_cq_modify"(
        ibv_cq *cq, const void *command, size_t inlen, void *out, size_t outlen) nogil
    int c_mlx5dv_devx_qp_query "mlx5dv_devx_qp_query"(
        ibv_qp *qp, const void *command, size_t inlen, void *out, size_t outlen) nogil
    int c_mlx5dv_devx_qp_modify "mlx5dv_devx_qp_modify"(
        ibv_qp *qp, const void *command, size_t inlen, void *out, size_t outlen) nogil
    int c_mlx5dv_devx_srq_query "mlx5dv_devx_srq_query"(
        ibv_srq *srq, const void *command, size_t inlen, void *out, size_t outlen) nogil
    int c_mlx5dv_devx_srq_modify "mlx5dv_devx_srq_modify"(
        ibv_srq *srq, const void *command, size_t inlen, void *out, size_t outlen) nogil
    mlx5dv_devx_cmd_comp *c_mlx5dv_devx_create_cmd_comp "mlx5dv_devx_create_cmd_comp"(ibv_context *context) nogil
    void c_mlx5dv_devx_destroy_cmd_comp "mlx5dv_devx_destroy_cmd_comp"(mlx5dv_devx_cmd_comp *channel) nogil
    int c_mlx5dv_devx_obj_query_async "mlx5dv_devx_obj_query_async"(
        mlx5dv_devx_obj *obj, const void *command, size_t inlen, size_t outlen, uint64_t wr_id,
        mlx5dv_devx_cmd_comp *channel) nogil
    int c_mlx5dv_devx_get_async_cmd_comp "mlx5dv_devx_get_async_cmd_comp"(
        mlx5dv_devx_cmd_comp *channel, mlx5dv_devx_async_cmd_hdr *answer, size_t length) nogil
    mlx5dv_devx_event_channel *c_mlx5dv_devx_create_event_channel "mlx5dv_devx_create_event_channel"(
        ibv_context *context, int flags) nogil
    void c_mlx5dv_devx_destroy_event_channel "mlx5dv_devx_destroy_event_channel"(
        mlx5dv_devx_event_channel *channel) nogil
    int c_mlx5dv_devx_subscribe_devx_event "mlx5dv_devx_subscribe_devx_event"(
        mlx5dv_devx_event_channel *channel, mlx5dv_devx_obj *obj, uint16_t events_sz, uint16_t *events_num,
        uint64_t cookie) nogil
    int c_mlx5dv_devx_subscribe_devx_event_fd "mlx5dv_devx_subscribe_devx_event_fd"(
        mlx5dv_devx_event_channel *channel, int fd, mlx5dv_devx_obj *obj, uint16_t event_num) nogil
    ssize_t c_mlx5dv_devx_get_event "mlx5dv_devx_get_event"(
        mlx5dv_devx_event_channel *channel, mlx5dv_devx_async_event_hdr *data, size_t length) nogil


cdef extern from *:
    """
    /* mlx5dv_init_obj takes a struct of (in, out) pairs; one function each keeps the calls to one line. */
    static inline int gda_init_obj_pd(struct ibv_pd *pd, struct mlx5dv_pd *out)
    { struct mlx5dv_obj obj = {0}; obj.pd.in = pd; obj.pd.out = out; return mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD); }
    static inline int gda_init_obj_ah(struct ibv_ah *ah, struct mlx5dv_ah *out)
    { struct mlx5dv_obj obj = {0}; obj.ah.in = ah; obj.ah.out = out; return mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH); }
    static inline int gda_init_obj_cq(struct ibv_cq *cq, struct mlx5dv_cq *out)
    { struct mlx5dv_obj obj = {0}; obj.cq.in = cq; obj.cq.out = out; return mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ); }
    static inline int gda_init_obj_qp(struct ibv_qp *qp, struct mlx5dv_qp *out)
    { struct mlx5dv_obj obj = {0}; obj.qp.in = qp; obj.qp.out = out; return mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP); }
    static inline int gda_init_obj_srq(struct ibv_srq *srq, struct mlx5dv_srq *out)
    { struct mlx5dv_obj obj = {0}; obj.srq.in = srq; obj.srq.out = out; return mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ); }
    static inline int gda_init_obj_dm(struct ibv_dm *dm, struct mlx5dv_dm *out)
    { struct mlx5dv_obj obj = {0}; obj.dm.in = dm; obj.dm.out = out; return mlx5dv_init_obj(&obj, MLX5DV_OBJ_DM); }
    """
    int c_mlx5dv_init_obj_cq "gda_init_obj_cq"(ibv_cq *cq, mlx5dv_cq *out) nogil
    int c_mlx5dv_init_obj_qp "gda_init_obj_qp"(ibv_qp *qp, mlx5dv_qp *out) nogil
    int c_mlx5dv_init_obj_srq "gda_init_obj_srq"(ibv_srq *srq, mlx5dv_srq *out) nogil
    int c_mlx5dv_init_obj_dm "gda_init_obj_dm"(ibv_dm *dm, mlx5dv_dm *out) nogil
    int c_mlx5dv_init_obj_pd "gda_init_obj_pd"(ibv_pd *pd, mlx5dv_pd *out) nogil
    int c_mlx5dv_init_obj_ah "gda_init_obj_ah"(ibv_ah *ah, mlx5dv_ah *out) nogil


# Where the C object of a Python object comes from, and so what close() does with it.
cdef enum Origin:
    MADE      # by a call of this module: close() frees it
    IMPORTED  # by handle from another process or library: close() forgets it there, the original lives on
    BORROWED  # by pointer from its owner, which is kept alive: close() only lets go


# Every object holds its parents strongly, counts its living children, and refuses to close before them (EBUSY).
cdef class Object:
    cdef object __weakref__
    cdef readonly int children
    cdef int process
    cdef Origin origin
    cdef object owner  # of a borrowed C object
    cdef readonly unsigned int events  # asynchronous ones that wait for ibv_ack_async_event

cdef class Context(Object):
    cdef ibv_context *pointer
    cdef readonly str name
    cdef object elements  # pointer -> CQ, QP, SRQ: what asynchronous events are about
    cdef ibv_context *get(self) except NULL

cdef class TD(Object):
    cdef ibv_td *pointer
    cdef readonly Context context
    cdef ibv_td *get(self) except NULL

cdef class PD(Object):
    cdef ibv_pd *pointer
    cdef readonly Context context
    cdef readonly PD parent  # of a parent domain
    cdef readonly TD td
    cdef ibv_pd *get(self) except NULL
    cdef int release(self) noexcept
    cdef void forget(self)

cdef class MR(Object):
    cdef ibv_mr *pointer
    cdef readonly object access
    cdef public bint is_mapped
    cdef uint64_t start  # the address by which the NIC names the first byte
    cdef readonly PD pd
    cdef ibv_mr *get(self) except NULL
    cdef int release(self) noexcept

cdef class DM(Object):
    cdef ibv_dm *pointer
    cdef readonly Context context
    cdef ibv_dm *get(self) except NULL
    cdef int release(self) noexcept

cdef class AH(Object):
    cdef ibv_ah *pointer
    cdef readonly PD pd
    cdef ibv_ah *get(self) except NULL

cdef class CompChannel(Object):
    cdef ibv_comp_channel *pointer
    cdef readonly Context context
    cdef object queues
    cdef ibv_comp_channel *get(self) except NULL

cdef class CQ(Object):
    cdef ibv_cq *pointer
    cdef ibv_cq_ex *ex  # the same queue, when it was made by ibv_create_cq_ex or mlx5dv_create_cq
    cdef readonly Context context
    cdef readonly CompChannel channel
    cdef readonly PD parent_domain
    cdef readonly unsigned int unacknowledged
    cdef int polling  # 0: no; 1: between ibv_start_poll and ibv_end_poll; 2: and at a completion
    cdef public bint strict
    cdef readonly unsigned int bound
    cdef dict senders  # qp_num -> address of the QP whose requests complete here; it takes itself out
    cdef bint is_lent  # others have its pointer and may poll
    cdef void freed(self, uint32_t qp_num, int status, int opcode)
    cdef void freed_at(self)
    cdef ibv_cq *get(self) except NULL
    cdef void leave(self)
    cdef void settle(self)
    cdef void forget(self)

cdef class SRQ(Object):
    cdef ibv_srq *pointer
    cdef readonly PD pd
    cdef readonly dict attr
    cdef ibv_srq *get(self) except NULL

# What this module knows of a send queue: libmlx5 keeps it to itself, and errors are to say it. Requests posted and
# completions polled past this module (by C code that was given the pointer) are not seen.
cdef struct SendQueue:
    uint64_t posted     # requests since reset
    uint64_t begun      # of an ibv_wr_start that has not ended
    uint64_t free_from  # of `posted`, those whose slots are free again
    uint64_t *marks     # ring: the value of `posted` after each signaled request
    uint64_t first_mark
    uint64_t end_mark
    uint32_t mask       # of that ring
    uint32_t room       # cap.max_send_wr
    bint all_signaled
    bint known          # False: after an error completion, or driven from elsewhere, too

cdef class QP(Object):
    cdef ibv_qp *pointer
    cdef ibv_qp_ex *ex  # the same queue pair, when it was made with send_ops_flags
    cdef readonly PD pd
    cdef readonly CQ send_cq
    cdef readonly CQ recv_cq
    cdef readonly SRQ srq
    cdef readonly dict cap
    cdef int building  # 0: no; 1: between ibv_wr_start and its end; 2: and a request has been begun
    cdef SendQueue sq
    cdef bint is_lent  # others have its pointer and may post
    cdef void unlink(self)
    cdef uint32_t number  # qp_num, also when the C struct is gone
    cdef unsigned int max_sge
    cdef unsigned int max_inline
    cdef unsigned int may_receive  # completions that its receives may cause
    cdef ibv_qp *get(self) except NULL
    cdef ibv_qp *idle(self) except NULL
    cdef void forget(self)

cdef class AsyncEvent:
    cdef ibv_async_event event
    cdef readonly object element
    cdef bint acknowledged
    cdef int process

# Requests that are filled once and posted many times; `next` chains them.
cdef class SendWR:
    cdef ibv_send_wr wr
    cdef int room
    cdef SendWR following
    cdef AH handle

# One row of a batch: gda/nic/batch.py shows it as a NumPy dtype. 64 bytes, host byte order.
cdef packed struct WorkRequest:
    uint64_t wr_id
    uint64_t local_addr
    uint64_t remote_addr
    uint64_t compare_add
    uint64_t swap
    uint32_t length
    uint32_t lkey
    uint32_t rkey
    uint32_t imm_data
    uint32_t opcode
    uint32_t send_flags

cdef struct Region:
    uint64_t start
    uint64_t length
    uint64_t mapped  # where this process sees the first byte; 0: nowhere
    uint32_t key
    uint32_t access

cdef class Regions:
    cdef Region *local
    cdef Region *remote
    cdef readonly int local_count
    cdef readonly int remote_count
    cdef readonly bint remote_checked
    cdef readonly tuple kept
    cdef int check_open(self, QP qp) except -1

cdef class SendBatch:
    cdef WorkRequest *rows
    cdef ibv_send_wr *requests
    cdef ibv_sge *pieces
    cdef readonly Regions regions
    cdef readonly int count
    cdef readonly QP qp

cdef class RecvWR:
    cdef ibv_recv_wr wr
    cdef int room
    cdef RecvWR following

cdef class DevxObj(Object):
    cdef mlx5dv_devx_obj *pointer
    cdef readonly Context context
    cdef readonly bytes output
    cdef mlx5dv_devx_obj *get(self) except NULL

cdef class CmdComp(Object):
    cdef mlx5dv_devx_cmd_comp *pointer
    cdef readonly Context context
    cdef mlx5dv_devx_cmd_comp *get(self) except NULL

cdef class EventChannel(Object):
    cdef mlx5dv_devx_event_channel *pointer
    cdef readonly Context context
    cdef mlx5dv_devx_event_channel *get(self) except NULL

cdef class Umem(Object):
    cdef mlx5dv_devx_umem *pointer
    cdef readonly Context context
    cdef mlx5dv_devx_umem *get(self) except NULL

cdef class Uar(Object):
    cdef mlx5dv_devx_uar *pointer
    cdef readonly Context context
    cdef readonly unsigned int flags
    cdef mlx5dv_devx_uar *get(self) except NULL
