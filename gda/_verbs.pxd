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
    static inline struct ibv_device **gda_get_device_list(int *count)
    { return ibv_get_device_list(count); }
    """
    struct ibv_device:
        pass
    struct ibv_context:
        ibv_device *device
        int cmd_fd
        int async_fd
        int num_comp_vectors
    struct ibv_pd:
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
        uint32_t handle
        int cqe
    struct ibv_srq:
        pass
    struct ibv_ah:
        uint32_t handle
    struct ibv_qp:
        uint32_t handle
        uint32_t qp_num
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
    union gda_wr_kind:
        gda_wr_rdma rdma
        gda_wr_atomic atomic
    struct ibv_send_wr:
        uint64_t wr_id
        ibv_send_wr *next
        ibv_sge *sg_list
        int num_sge
        int opcode
        unsigned int send_flags
        uint32_t imm_data
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

    ibv_device **c_ibv_get_device_list "gda_get_device_list"(int *num_devices) nogil
    void c_ibv_free_device_list "ibv_free_device_list"(ibv_device **devices) nogil
    const char *c_ibv_get_device_name "ibv_get_device_name"(ibv_device *device) nogil
    uint64_t c_ibv_get_device_guid "ibv_get_device_guid"(ibv_device *device) nogil
    ibv_context *c_ibv_open_device "ibv_open_device"(ibv_device *device) nogil
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
    ibv_pd *c_ibv_alloc_pd "ibv_alloc_pd"(ibv_context *context) nogil
    int c_ibv_dealloc_pd "ibv_dealloc_pd"(ibv_pd *pd) nogil
    ibv_mr *c_ibv_reg_mr "gda_reg_mr"(ibv_pd *pd, void *addr, size_t length, unsigned int access) nogil
    ibv_mr *c_ibv_reg_mr_iova "gda_reg_mr_iova"(
        ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access) nogil
    ibv_mr *c_ibv_reg_dmabuf_mr "ibv_reg_dmabuf_mr"(
        ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) nogil
    int c_ibv_dereg_mr "ibv_dereg_mr"(ibv_mr *mr) nogil
    ibv_ah *c_ibv_create_ah "ibv_create_ah"(ibv_pd *pd, ibv_ah_attr *attr) nogil
    int c_ibv_destroy_ah "ibv_destroy_ah"(ibv_ah *ah) nogil
    ibv_comp_channel *c_ibv_create_comp_channel "ibv_create_comp_channel"(ibv_context *context) nogil
    int c_ibv_destroy_comp_channel "ibv_destroy_comp_channel"(ibv_comp_channel *channel) nogil
    ibv_cq *c_ibv_create_cq "ibv_create_cq"(
        ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel, int comp_vector) nogil
    int c_ibv_destroy_cq "ibv_destroy_cq"(ibv_cq *cq) nogil
    int c_ibv_poll_cq "ibv_poll_cq"(ibv_cq *cq, int num_entries, ibv_wc *wc) nogil
    int c_ibv_req_notify_cq "ibv_req_notify_cq"(ibv_cq *cq, int solicited_only) nogil
    int c_ibv_get_cq_event "ibv_get_cq_event"(ibv_comp_channel *channel, ibv_cq **cq, void **cq_context) nogil
    void c_ibv_ack_cq_events "ibv_ack_cq_events"(ibv_cq *cq, unsigned int nevents) nogil
    ibv_qp *c_ibv_create_qp "ibv_create_qp"(ibv_pd *pd, ibv_qp_init_attr *attr) nogil
    int c_ibv_modify_qp "ibv_modify_qp"(ibv_qp *qp, ibv_qp_attr *attr, int attr_mask) nogil
    int c_ibv_query_qp "ibv_query_qp"(
        ibv_qp *qp, ibv_qp_attr *attr, int attr_mask, ibv_qp_init_attr *init_attr) nogil
    int c_ibv_destroy_qp "ibv_destroy_qp"(ibv_qp *qp) nogil
    int c_ibv_post_send "ibv_post_send"(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr) nogil
    int c_ibv_post_recv "ibv_post_recv"(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) nogil
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


cdef extern from *:
    """
    /* mlx5dv_init_obj takes a struct of (in, out) pairs; one function each keeps the calls to one line. */
    static inline int gda_init_obj_pd(struct ibv_pd *pd, struct mlx5dv_pd *out)
    { struct mlx5dv_obj obj = {0}; obj.pd.in = pd; obj.pd.out = out; return mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD); }
    static inline int gda_init_obj_ah(struct ibv_ah *ah, struct mlx5dv_ah *out)
    { struct mlx5dv_obj obj = {0}; obj.ah.in = ah; obj.ah.out = out; return mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH); }
    """
    int c_mlx5dv_init_obj_pd "gda_init_obj_pd"(ibv_pd *pd, mlx5dv_pd *out) nogil
    int c_mlx5dv_init_obj_ah "gda_init_obj_ah"(ibv_ah *ah, mlx5dv_ah *out) nogil


# Every object holds its parents strongly, counts its living children, and refuses to close before them (EBUSY).
cdef class Object:
    cdef object __weakref__
    cdef readonly int children
    cdef int process

cdef class Context(Object):
    cdef ibv_context *pointer
    cdef readonly str name
    cdef ibv_context *get(self) except NULL

cdef class PD(Object):
    cdef ibv_pd *pointer
    cdef readonly Context context
    cdef ibv_pd *get(self) except NULL

cdef class MR(Object):
    cdef ibv_mr *pointer
    cdef readonly PD pd
    cdef ibv_mr *get(self) except NULL

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
    cdef readonly Context context
    cdef readonly CompChannel channel
    cdef ibv_cq *get(self) except NULL
    cdef void forget(self)

cdef class QP(Object):
    cdef ibv_qp *pointer
    cdef readonly PD pd
    cdef readonly CQ send_cq
    cdef readonly CQ recv_cq
    cdef readonly dict cap
    cdef ibv_qp *get(self) except NULL
    cdef void forget(self)

cdef class DevxObj(Object):
    cdef mlx5dv_devx_obj *pointer
    cdef readonly Context context
    cdef readonly bytes output
    cdef mlx5dv_devx_obj *get(self) except NULL

cdef class Umem(Object):
    cdef mlx5dv_devx_umem *pointer
    cdef readonly Context context
    cdef mlx5dv_devx_umem *get(self) except NULL

cdef class Uar(Object):
    cdef mlx5dv_devx_uar *pointer
    cdef readonly Context context
    cdef readonly unsigned int flags
    cdef mlx5dv_devx_uar *get(self) except NULL
