# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""libibverbs and libmlx5 for Python: bytes and integers in and out, one checked call each, no policy.

Functions and constants carry the C names (man pages: ibv_alloc_pd(3), mlx5dv_open_device(3), ...). What a C call
creates is an object that holds its parents, has an idempotent close(), and is freed with its last reference at the
latest. Closing a parent before its children raises VerbsError (EBUSY), as the kernel would answer; using an object
after close() raises ClosedError; a C call that fails raises VerbsError with the call, its values and errno.

Called by gda/nic and tests; nothing here knows a queue layout or a format.
Integers are in host byte order on both sides; addresses are plain integers: the caller keeps the memory alive.
Not thread-safe against close() of the same object in another thread.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EBUSY, EINTR, EINVAL, ENODEV, ENOENT, ENOMEM, EOPNOTSUPP, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memset
from posix.unistd cimport getpid

from typing import NamedTuple
from weakref import WeakValueDictionary

from gda.errors import ArgumentError, ClosedError, PostError, VerbsError, WorkRequestError

cdef extern from "<arpa/inet.h>" nogil:
    uint32_t htonl(uint32_t value)
    uint32_t ntohl(uint32_t value)
    uint16_t htons(uint16_t value)
    uint16_t ntohs(uint16_t value)

cdef extern from "<endian.h>" nogil:
    uint64_t be64toh(uint64_t value)

cdef extern from *:
    """
    #include <dlfcn.h>
    /* Where a function of this process lives. The address is taken here, so it is the one this module calls. */
    static const char *gda_library_of(int which)
    {
        Dl_info info;
        void *symbol = which ? (void *)mlx5dv_is_supported : (void *)ibv_open_device;
        return dladdr(symbol, &info) ? info.dli_fname : 0;
    }
    """
    const char *gda_library_of(int which)

cdef extern from *:
    """
    /* Everything stored before, rings and records, is visible to the NIC before the register is; and the register's
       store leaves the CPU before the next one (a write-combining page). A full fence orders both on x86-64. */
    static inline void gda_store_doorbell(uintptr_t address, uint64_t value)
    {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        *(volatile uint64_t *)address = value;
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    """
    void gda_store_doorbell(uintptr_t address, uint64_t value)

cdef extern from *:
    """
    #include <time.h>

    struct gda_word {
        uint64_t word, reg, record;
    };

    static inline uint64_t gda_clock_ns(void)
    {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    }

    /* The value is a doorbell as the NIC takes it: big-endian, the index in bytes 1 and 2. As a dword of the record it
       is that index alone. What the kernel wrote before it stored the value is seen by whoever takes the value. */
    static int gda_take_and_ring(const struct gda_word *w)
    {
        uint64_t value = __atomic_load_n((uint64_t *)(uintptr_t)w->word, __ATOMIC_RELAXED);
        unsigned char *bytes = (unsigned char *)&value;
        unsigned char record[4] = {0, 0, 0, 0};
        uint32_t dword;
        if (value == 0) return 0;
        value = __atomic_exchange_n((uint64_t *)(uintptr_t)w->word, 0, __ATOMIC_ACQ_REL);
        record[2] = bytes[1], record[3] = bytes[2];
        memcpy(&dword, record, 4);
        __atomic_store_n((uint32_t *)(uintptr_t)w->record, dword, __ATOMIC_RELEASE);
        gda_store_doorbell((uintptr_t)w->reg, value);
        return 1;
    }

    static uint64_t gda_ring_for_kernels(const struct gda_word *words, size_t count, const uint64_t *stop,
                                         uint64_t busy_ns, uint64_t longest_sleep_ns)
    {
        uint64_t rung = 0, sleep_ns = 0, quiet_since = gda_clock_ns();
        while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
            uint64_t before = rung;
            for (size_t i = 0; i < count; ++i) rung += (uint64_t)gda_take_and_ring(words + i);
            if (rung != before) {
                quiet_since = gda_clock_ns();
                sleep_ns = 0;
            } else if (gda_clock_ns() - quiet_since >= busy_ns) {
                struct timespec t = {0, 0};
                sleep_ns = sleep_ns ? sleep_ns * 2 : 1000;
                if (sleep_ns > longest_sleep_ns) sleep_ns = longest_sleep_ns;
                t.tv_nsec = (long)sleep_ns;
                nanosleep(&t, 0);
            }
        }
        return rung;
    }
    """
    struct gda_word:
        pass
    uint64_t gda_ring_for_kernels(const gda_word *words, size_t count, const uint64_t *stop, uint64_t busy_ns,
                                  uint64_t longest_sleep_ns) nogil

cdef extern from *:
    cpdef enum:
        IBV_ACCESS_LOCAL_WRITE
        IBV_ACCESS_REMOTE_WRITE
        IBV_ACCESS_REMOTE_READ
        IBV_ACCESS_REMOTE_ATOMIC
        IBV_ACCESS_MW_BIND
        IBV_ACCESS_ZERO_BASED
        IBV_ACCESS_ON_DEMAND
        IBV_ACCESS_HUGETLB
        IBV_ACCESS_RELAXED_ORDERING
        IBV_REREG_MR_CHANGE_TRANSLATION
        IBV_REREG_MR_CHANGE_PD
        IBV_REREG_MR_CHANGE_ACCESS
        IBV_ADVISE_MR_ADVICE_PREFETCH
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT

        IBV_NODE_CA
        IBV_NODE_RNIC
        IBV_TRANSPORT_IB
        IBV_TRANSPORT_IWARP
        IBV_LINK_LAYER_INFINIBAND
        IBV_LINK_LAYER_ETHERNET
        IBV_PORT_NOP
        IBV_PORT_DOWN
        IBV_PORT_INIT
        IBV_PORT_ARMED
        IBV_PORT_ACTIVE
        IBV_PORT_ACTIVE_DEFER
        IBV_GID_TYPE_IB
        IBV_GID_TYPE_ROCE_V1
        IBV_GID_TYPE_ROCE_V2
        IBV_ATOMIC_NONE
        IBV_ATOMIC_HCA
        IBV_ATOMIC_GLOB
        IBV_MTU_256
        IBV_MTU_512
        IBV_MTU_1024
        IBV_MTU_2048
        IBV_MTU_4096
        IBV_FORK_DISABLED
        IBV_FORK_ENABLED
        IBV_FORK_UNNEEDED
        IBV_RATE_MAX
        IBV_RATE_2_5_GBPS
        IBV_RATE_10_GBPS
        IBV_RATE_100_GBPS
        IBV_RATE_200_GBPS
        IBV_RATE_400_GBPS

        IBV_EVENT_CQ_ERR
        IBV_EVENT_QP_FATAL
        IBV_EVENT_QP_REQ_ERR
        IBV_EVENT_QP_ACCESS_ERR
        IBV_EVENT_COMM_EST
        IBV_EVENT_SQ_DRAINED
        IBV_EVENT_PATH_MIG
        IBV_EVENT_PATH_MIG_ERR
        IBV_EVENT_DEVICE_FATAL
        IBV_EVENT_PORT_ACTIVE
        IBV_EVENT_PORT_ERR
        IBV_EVENT_LID_CHANGE
        IBV_EVENT_PKEY_CHANGE
        IBV_EVENT_SM_CHANGE
        IBV_EVENT_SRQ_ERR
        IBV_EVENT_SRQ_LIMIT_REACHED
        IBV_EVENT_QP_LAST_WQE_REACHED
        IBV_EVENT_CLIENT_REREGISTER
        IBV_EVENT_GID_CHANGE
        IBV_EVENT_WQ_FATAL

        IBV_QPT_RC
        IBV_QPT_UC
        IBV_QPT_UD
        IBV_QPT_RAW_PACKET
        IBV_QPT_XRC_SEND
        IBV_QPT_XRC_RECV
        IBV_QPT_DRIVER
        IBV_QPS_RESET
        IBV_QPS_INIT
        IBV_QPS_RTR
        IBV_QPS_RTS
        IBV_QPS_SQD
        IBV_QPS_SQE
        IBV_QPS_ERR
        IBV_QPS_UNKNOWN
        IBV_MIG_MIGRATED
        IBV_MIG_REARM
        IBV_MIG_ARMED
        IBV_QP_STATE
        IBV_QP_CUR_STATE
        IBV_QP_EN_SQD_ASYNC_NOTIFY
        IBV_QP_ACCESS_FLAGS
        IBV_QP_PKEY_INDEX
        IBV_QP_PORT
        IBV_QP_QKEY
        IBV_QP_AV
        IBV_QP_PATH_MTU
        IBV_QP_TIMEOUT
        IBV_QP_RETRY_CNT
        IBV_QP_RNR_RETRY
        IBV_QP_RQ_PSN
        IBV_QP_MAX_QP_RD_ATOMIC
        IBV_QP_ALT_PATH
        IBV_QP_MIN_RNR_TIMER
        IBV_QP_SQ_PSN
        IBV_QP_MAX_DEST_RD_ATOMIC
        IBV_QP_PATH_MIG_STATE
        IBV_QP_CAP
        IBV_QP_DEST_QPN
        IBV_QP_RATE_LIMIT
        IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
        IBV_QP_CREATE_SCATTER_FCS
        IBV_QP_CREATE_CVLAN_STRIPPING
        IBV_QP_CREATE_SOURCE_QPN
        IBV_QP_CREATE_PCI_WRITE_END_PADDING
        IBV_QP_EX_WITH_RDMA_WRITE
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        IBV_QP_EX_WITH_SEND
        IBV_QP_EX_WITH_SEND_WITH_IMM
        IBV_QP_EX_WITH_RDMA_READ
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        IBV_QP_EX_WITH_LOCAL_INV
        IBV_QP_EX_WITH_BIND_MW
        IBV_QP_EX_WITH_SEND_WITH_INV
        IBV_QP_EX_WITH_TSO
        IBV_SRQT_BASIC
        IBV_SRQT_XRC
        IBV_SRQT_TM
        IBV_SRQ_MAX_WR
        IBV_SRQ_LIMIT

        IBV_WR_RDMA_WRITE
        IBV_WR_RDMA_WRITE_WITH_IMM
        IBV_WR_SEND
        IBV_WR_SEND_WITH_IMM
        IBV_WR_RDMA_READ
        IBV_WR_ATOMIC_CMP_AND_SWP
        IBV_WR_ATOMIC_FETCH_AND_ADD
        IBV_WR_LOCAL_INV
        IBV_WR_BIND_MW
        IBV_WR_SEND_WITH_INV
        IBV_WR_TSO
        IBV_SEND_FENCE
        IBV_SEND_SIGNALED
        IBV_SEND_SOLICITED
        IBV_SEND_INLINE
        IBV_SEND_IP_CSUM

        IBV_WC_SUCCESS
        IBV_WC_LOC_LEN_ERR
        IBV_WC_LOC_QP_OP_ERR
        IBV_WC_LOC_EEC_OP_ERR
        IBV_WC_LOC_PROT_ERR
        IBV_WC_WR_FLUSH_ERR
        IBV_WC_MW_BIND_ERR
        IBV_WC_BAD_RESP_ERR
        IBV_WC_LOC_ACCESS_ERR
        IBV_WC_REM_INV_REQ_ERR
        IBV_WC_REM_ACCESS_ERR
        IBV_WC_REM_OP_ERR
        IBV_WC_RETRY_EXC_ERR
        IBV_WC_RNR_RETRY_EXC_ERR
        IBV_WC_LOC_RDD_VIOL_ERR
        IBV_WC_REM_INV_RD_REQ_ERR
        IBV_WC_REM_ABORT_ERR
        IBV_WC_INV_EECN_ERR
        IBV_WC_INV_EEC_STATE_ERR
        IBV_WC_FATAL_ERR
        IBV_WC_RESP_TIMEOUT_ERR
        IBV_WC_GENERAL_ERR
        IBV_WC_SEND
        IBV_WC_RDMA_WRITE
        IBV_WC_RDMA_READ
        IBV_WC_COMP_SWAP
        IBV_WC_FETCH_ADD
        IBV_WC_BIND_MW
        IBV_WC_LOCAL_INV
        IBV_WC_TSO
        IBV_WC_RECV
        IBV_WC_RECV_RDMA_WITH_IMM
        IBV_WC_DRIVER1
        IBV_WC_GRH
        IBV_WC_WITH_IMM
        IBV_WC_IP_CSUM_OK
        IBV_WC_WITH_INV
        IBV_WC_EX_WITH_BYTE_LEN
        IBV_WC_EX_WITH_IMM
        IBV_WC_EX_WITH_QP_NUM
        IBV_WC_EX_WITH_SRC_QP
        IBV_WC_EX_WITH_SLID
        IBV_WC_EX_WITH_SL
        IBV_WC_EX_WITH_DLID_PATH_BITS
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
        IBV_WC_EX_WITH_CVLAN
        IBV_WC_EX_WITH_FLOW_TAG
        IBV_WC_EX_WITH_TM_INFO
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
        IBV_WC_STANDARD_FLAGS
        IBV_CREATE_CQ_ATTR_SINGLE_THREADED
        IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN

        MLX5DV_CONTEXT_FLAGS_DEVX
        MLX5DV_CONTEXT_FLAGS_CQE_V1
        MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE
        MLX5DV_CONTEXT_MASK_DYN_BFREGS
        MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS
        MLX5DV_UMEM_MASK_DMABUF
        MLX5DV_UAR_ALLOC_TYPE_BF
        MLX5DV_UAR_ALLOC_TYPE_NC
        MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE
        MLX5DV_CQ_INIT_ATTR_MASK_FLAGS
        MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE
        MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD
        MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS
        MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS
        MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE
        MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE
        MLX5DV_QP_EX_WITH_RAW_WQE
        MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA

    unsigned int c_VALUES_RAW_CLOCK "IBV_VALUES_MASK_RAW_CLOCK"
    unsigned int c_CQ_INIT_ATTR_FLAGS "IBV_CQ_INIT_ATTR_MASK_FLAGS"
    unsigned int c_CQ_INIT_ATTR_PD "IBV_CQ_INIT_ATTR_MASK_PD"
    unsigned int c_CQ_ATTR_MODERATE "IBV_CQ_ATTR_MODERATE"
    unsigned int c_SRQ_INIT_ATTR_PD "IBV_SRQ_INIT_ATTR_PD"
    unsigned int c_SRQ_INIT_ATTR_TYPE "IBV_SRQ_INIT_ATTR_TYPE"
    unsigned int c_QP_INIT_ATTR_PD "IBV_QP_INIT_ATTR_PD"
    unsigned int c_QP_INIT_ATTR_CREATE_FLAGS "IBV_QP_INIT_ATTR_CREATE_FLAGS"
    unsigned int c_QP_INIT_ATTR_MAX_TSO_HEADER "IBV_QP_INIT_ATTR_MAX_TSO_HEADER"
    unsigned int c_QP_INIT_ATTR_SEND_OPS_FLAGS "IBV_QP_INIT_ATTR_SEND_OPS_FLAGS"
    unsigned int c_MLX5DV_SRQ_MASK_SRQN "MLX5DV_SRQ_MASK_SRQN"
    unsigned int c_DV_QP_UAR "MLX5DV_QP_MASK_UAR_MMAP_OFFSET"
    unsigned int c_DV_QP_RAW "MLX5DV_QP_MASK_RAW_QP_HANDLES"
    # As an enumerator its top bit would make it negative.
    unsigned int c_NC_DEDICATED "MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED"

MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED = c_NC_DEDICATED


class Device(NamedTuple):
    """One entry of ibv_get_device_list: name, GUID, whether libmlx5 drives it, IBV_NODE_*, IBV_TRANSPORT_*.

    device_index is the kernel's, -1 where it has none.
    """

    name: str
    guid: int
    mlx5: bool
    node_type: int
    transport_type: int
    device_index: int


class GidEntry(NamedTuple):
    """struct ibv_gid_entry: 16 bytes, its index and port, gid_type (IBV_GID_TYPE_*), interface index."""

    gid: bytes
    gid_index: int
    port_num: int
    gid_type: int
    ndev_ifindex: int


class WqeAv(NamedTuple):
    """The address vector that the kernel driver resolved for an address handle (struct mlx5_wqe_av)."""

    rmac: bytes
    rgid: bytes
    rlid: int
    tclass: int
    hop_limit: int


class DvQp(NamedTuple):
    """struct mlx5dv_qp: addresses (dbrec, *_buf, bf_reg), ring sizes in units of *_stride bytes, numbers."""

    dbrec: int
    sq_buf: int
    sq_wqe_cnt: int
    sq_stride: int
    rq_buf: int
    rq_wqe_cnt: int
    rq_stride: int
    bf_reg: int
    bf_size: int
    uar_mmap_offset: int
    tirn: int
    tisn: int
    rqn: int
    sqn: int


class DvCq(NamedTuple):
    """struct mlx5dv_cq: addresses of ring, doorbell record and doorbell page; entries, bytes of one, number."""

    buf: int
    dbrec: int
    cqe_cnt: int
    cqe_size: int
    cq_uar: int
    cqn: int


class DvSrq(NamedTuple):
    """struct mlx5dv_srq: addresses of ring and doorbell record; bytes of one entry, first and last free, number."""

    buf: int
    dbrec: int
    stride: int
    head: int
    tail: int
    srqn: int


class DvDm(NamedTuple):
    """struct mlx5dv_dm: where device memory is mapped, its bytes, and its address for other NICs."""

    buf: int
    length: int
    remote_va: int


class ClockInfo(NamedTuple):
    """struct mlx5dv_clock_info: what turns the cycles of a completion timestamp into nanoseconds."""

    nsec: int
    last_cycles: int
    frac: int
    mult: int
    shift: int
    mask: int


class DevxEvent(NamedTuple):
    """What mlx5dv_devx_get_event read: the cookie of the subscription and the event entry (EQE) as bytes."""

    cookie: int
    data: bytes


class DevxAnswer(NamedTuple):
    """What mlx5dv_devx_get_async_cmd_comp read: the wr_id of the query and the command's output."""

    wr_id: int
    output: bytes


class WC(NamedTuple):
    """struct ibv_wc. imm_data is in host byte order."""

    wr_id: int
    status: int
    opcode: int
    vendor_err: int
    byte_len: int
    imm_data: int
    qp_num: int
    src_qp: int
    wc_flags: int
    pkey_index: int
    slid: int
    sl: int
    dlid_path_bits: int


class DevxError(VerbsError):
    """A DEVX command failed. `output` is the command's output: status and syndrome, zero if firmware was not asked."""

    def __init__(self, call, error, advice="", output=b""):
        super().__init__(call, error, advice)
        self.output = output

    def __reduce__(self):
        return type(self), (self.call, self.errno, self.advice, self.output)


# What to try, by call and errno; the key without errno is for any other failure of the call.
_LOCKED = "raise the limit of locked memory (ulimit -l unlimited), or register less"
_UNMAPPED = "the address range is not mapped; GPU memory needs nvidia-peermem, or registration by dma-buf"
_PERMISSION = "the user may not open /dev/infiniband/uverbs*: check its permissions"
_ADVICE = {
    ("ibv_get_device_list", "ENOSYS"):
        "load the kernel's RDMA modules (modprobe ib_uverbs mlx5_ib), or use the software NIC (GDA_NIC=software)",
    ("mlx5dv_open_device", "EACCES"): _PERMISSION,
    ("mlx5dv_open_device", ""):
        "DEVX needs an mlx5 device and a kernel from 5.0 on; without it, queues that a GPU can drive cannot be made",
    ("ibv_open_device", "EACCES"): _PERMISSION,
    ("ibv_reg_mr", "ENOMEM"): _LOCKED,
    ("ibv_reg_mr", "EFAULT"): _UNMAPPED,
    ("ibv_reg_mr", "EINVAL"):
        "remote write and remote atomic access need IBV_ACCESS_LOCAL_WRITE too, and a length of at least 1",
    ("ibv_reg_mr_iova", "EINVAL"): "iova and address must have the same offset within a page",
    ("ibv_reg_mr_iova", "ENOMEM"): _LOCKED,
    ("ibv_reg_mr_iova", "EFAULT"): _UNMAPPED,
    ("ibv_reg_dmabuf_mr", "EINVAL"):
        "iova and offset must have the same offset within a page, and the range must lie in the dma-buf",
    ("ibv_reg_dmabuf_mr", "EOPNOTSUPP"): "dma-buf registration needs kernel 5.12 and a driver that offers it",
    ("ibv_rereg_mr", "EINVAL"): "name at least one IBV_REREG_MR_CHANGE_*, and the arguments that it needs",
    ("ibv_advise_mr", ""): "advice is for regions of on-demand paging; other regions are resident anyway",
    ("ibv_import_device", ""): "cmd_fd must be a (duplicated) cmd_fd of an open context of this or another process",
    ("ibv_import_pd", ""): "the handle must be that of a protection domain of the context whose cmd_fd was imported",
    ("ibv_import_mr", ""): "the handle must be that of a memory region of the context whose cmd_fd was imported",
    ("ibv_alloc_dm", ""): "all programs share the max_dm_size bytes of ibv_query_device_ex (0: the device has none)",
    ("ibv_import_dm", ""): "no such handle in this file, or the device has no memory (max_dm_size is 0)",
    ("ibv_create_cq_ex", ""): "compare cqe with max_cqe, and wc_flags and flags with what the device offers",
    ("ibv_create_srq", "EINVAL"): "compare max_wr and max_sge with max_srq_wr and max_srq_sge of ibv_query_device",
    ("ibv_create_qp_ex", "EOPNOTSUPP"): "a flag of send_ops_flags or create_flags does not fit this type of queue pair",
    ("ibv_create_qp_ex", ""): "compare the capacities with max_qp_wr and max_sge of ibv_query_device",
    ("mlx5dv_create_qp", ""): "a flag does not fit this type of queue pair, or the device does not offer it",
    ("ibv_wr_complete", "ENOMEM"): "the send queue is full: poll completions of signaled requests first",
    ("ibv_post_srq_recv", "ENOMEM"): "the shared receive queue is full: poll completions first",
    ("ibv_create_cq", "EINVAL"): "compare with max_cqe of ibv_query_device and num_comp_vectors of the context",
    ("ibv_create_qp", "EINVAL"): "compare the capacities with max_qp_wr and max_sge of ibv_query_device",
    ("ibv_create_qp", "ENOMEM"):
        "the send queue would be larger than the device allows: fewer requests, entries or inline bytes",
    ("ibv_modify_qp", "EINVAL"): "the transition or its attribute mask is not one that the state of the queue allows",
    ("ibv_modify_qp", "ETIMEDOUT"):
        "the peer's address did not resolve: choose a routable GID (RoCE v2, IPv4) on both sides",
    ("ibv_post_send", "ENOMEM"):
        "the send queue is full, or the request is larger than a slot: poll completions of signaled requests first, "
        "or use fewer pieces or inline bytes",
    ("ibv_post_recv", "ENOMEM"): "the receive queue is full: poll completions first",
    ("mlx5dv_devx_umem_reg", "ENOMEM"): _LOCKED,
    ("mlx5dv_devx_umem_reg", "EFAULT"): _UNMAPPED,
    ("mlx5dv_devx_umem_reg_ex", ""):
        "kernels before 5.19 may refuse dma-buf umems though they take dma-buf regions: register by address",
    ("mlx5dv_devx_alloc_uar", "EOPNOTSUPP"):
        "this libmlx5 or device has no doorbell page of that kind: try another kind",
}


cdef str advice_on(str call, int error):
    import errno as names
    name = call.split("(", 1)[0]
    code = "EOPNOTSUPP" if error == EOPNOTSUPP else names.errorcode.get(error, "")  # Linux: the same as ENOTSUP
    return _ADVICE.get((name, code)) or _ADVICE.get((name, ""), "")


cdef object failure(int error, call):
    """A VerbsError for a C call that set or returned `error`; `call` is its text with values."""
    return VerbsError(call, error, advice_on(call, error))


cdef object busy(call, int children):
    return VerbsError(call, EBUSY, f"close the {children} object(s) made from it first")


cdef object misused(call, advice):
    """A VerbsError for a call out of order, which the C library would not notice."""
    return VerbsError(call, EINVAL, advice)


cdef object unread(call, count, acknowledge):
    return VerbsError(call, EBUSY, f"{acknowledge} its {count} event(s) first; the library would wait for that")


cdef object closed(what):
    return ClosedError(f"{what} has been closed", "make a new one; use it before close() or the end of its with block")


cdef object device_error(call, int error, bytes output):
    return DevxError(call, error, advice_on(call, error), output)


cdef class Object:
    """Base of everything that a C call created; only the calls make them."""

    def __cinit__(self):
        self.process = getpid()  # a forked child must not free, by garbage collection, what its parent uses

    def __init__(self):
        raise TypeError(f"{type(self).__name__} objects come from the calls of this module, such as ibv_alloc_pd")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    @property
    def borrowed(self):
        """True if the C object is somebody else's: close() lets go of it and frees nothing."""
        return self.origin == BORROWED

    def close(self):
        """Free the C object; again is no error."""


# ---------------------------------------------------------------------------------------------- devices and contexts
def library_paths():
    """Paths of the libibverbs and libmlx5 that this process uses, as the dynamic linker found them."""
    cdef const char *verbs = gda_library_of(0)
    cdef const char *mlx5 = gda_library_of(1)
    return ((<bytes>verbs).decode() if verbs != NULL else "", (<bytes>mlx5).decode() if mlx5 != NULL else "")


def ibv_get_device_list():
    """List of Device; empty when there is none. The C list is freed before this returns."""
    cdef int count = 0
    cdef int error
    cdef ibv_device **devices
    with nogil:
        devices = c_ibv_get_device_list(&count)
        error = errno
    if devices == NULL:
        raise failure(error, "ibv_get_device_list()")
    try:
        return [Device((<bytes>c_ibv_get_device_name(devices[i])).decode(),
                       be64toh(c_ibv_get_device_guid(devices[i])),
                       bool(c_mlx5dv_is_supported(devices[i])), devices[i].node_type, devices[i].transport_type,
                       c_ibv_get_device_index(devices[i])) for i in range(count)]
    finally:
        c_ibv_free_device_list(devices)


cdef Context new_context(ibv_context *pointer, Origin origin, owner):
    cdef Context context = Context.__new__(Context)
    context.pointer = pointer
    context.name = (<bytes>c_ibv_get_device_name(pointer.device)).decode()
    context.elements = WeakValueDictionary()
    context.origin = origin
    context.owner = owner
    return context


cdef Context open_by_name(str name, bint devx, uint32_t flags):
    cdef int count = 0
    cdef int error = ENODEV
    cdef int i
    cdef ibv_device **devices
    cdef ibv_context *pointer = NULL
    cdef mlx5dv_context_attr attr
    cdef bytes wanted = name.encode()
    call = f"mlx5dv_open_device({name}, flags=0x{flags:x})" if devx else f"ibv_open_device({name})"
    with nogil:
        devices = c_ibv_get_device_list(&count)
        error = errno
    if devices == NULL:
        raise failure(error, "ibv_get_device_list()")
    try:
        error = ENODEV
        for i in range(count):
            if <bytes>c_ibv_get_device_name(devices[i]) != wanted:
                continue
            memset(&attr, 0, sizeof(attr))
            attr.flags = flags
            with nogil:
                pointer = c_mlx5dv_open_device(devices[i], &attr) if devx else c_ibv_open_device(devices[i])
                error = errno
            break
        if pointer == NULL:
            raise failure(error, call)
        return new_context(pointer, MADE, None)
    finally:
        c_ibv_free_device_list(devices)


def ibv_open_device(str name not None):
    """Open a device by name; ENODEV if ibv_get_device_list has no such name."""
    return open_by_name(name, False, 0)


def mlx5dv_open_device(str name not None, uint32_t flags):
    """Open an mlx5 device by name with MLX5DV_CONTEXT_FLAGS_*."""
    return open_by_name(name, True, flags)


def ibv_import_device(int cmd_fd):
    """Open the device behind the cmd_fd of another open context, sharing its objects; takes the descriptor over.

    Pass os.dup(context.cmd_fd), or one received over a socket: closing the new context closes it.
    """
    cdef ibv_context *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_import_device(cmd_fd)
        error = errno
    if pointer == NULL:
        raise failure(error, f"ibv_import_device(cmd_fd={cmd_fd})")
    return new_context(pointer, MADE, None)


def ibv_fork_init():
    """Make the children of fork() safe from registered memory; before the first registration of the process."""
    cdef int rc
    with nogil:
        rc = c_ibv_fork_init()
    if rc:
        raise failure(errno_of(rc), "ibv_fork_init()")


def ibv_is_fork_initialized():
    """IBV_FORK_*: whether ibv_fork_init was called, or the kernel makes it unnecessary."""
    return c_ibv_is_fork_initialized()


def ibv_node_type_str(int node_type):
    """The library's words for IBV_NODE_*."""
    return (<bytes>c_ibv_node_type_str(node_type)).decode()


def ibv_port_state_str(int port_state):
    """The library's words for IBV_PORT_*."""
    return (<bytes>c_ibv_port_state_str(port_state)).decode()


def ibv_event_type_str(int event):
    """The library's words for IBV_EVENT_*."""
    return (<bytes>c_ibv_event_type_str(event)).decode()


def ibv_rate_to_mult(int rate):
    """IBV_RATE_* as a multiple of 2.5 Gbit/s; -1 if it is none."""
    return c_ibv_rate_to_mult(rate)


def mult_to_ibv_rate(int mult):
    """A multiple of 2.5 Gbit/s as IBV_RATE_*."""
    return c_mult_to_ibv_rate(mult)


def ibv_rate_to_mbps(int rate):
    """IBV_RATE_* in Mbit/s."""
    return c_ibv_rate_to_mbps(rate)


def mbps_to_ibv_rate(int mbps):
    """Mbit/s as IBV_RATE_*."""
    return c_mbps_to_ibv_rate(mbps)


@cython.no_gc
cdef class Context(Object):
    """struct ibv_context: one open device."""

    cdef ibv_context *get(self) except NULL:
        if self.pointer == NULL:
            raise closed(f"context of {self.name}")
        return self.pointer

    @property
    def c_pointer(self):
        """Address of the C struct, for other libraries; it lives as long as this object is open."""
        return <uintptr_t>self.get()

    @property
    def cmd_fd(self):
        return self.get().cmd_fd

    @property
    def async_fd(self):
        return self.get().async_fd

    @property
    def num_comp_vectors(self):
        return self.get().num_comp_vectors

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """ibv_close_device; EBUSY while objects made from it live."""
        cdef ibv_context *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        if self.children:
            raise busy(f"ibv_close_device({self.name})", self.children)
        self.pointer = NULL
        if self.origin == BORROWED:
            self.owner = None
            return
        with nogil:
            rc = c_ibv_close_device(pointer)
        if rc:
            raise failure(errno_of(rc), f"ibv_close_device({self.name})")

    def __dealloc__(self):
        if self.pointer != NULL and self.origin != BORROWED and self.process == getpid():
            c_ibv_close_device(self.pointer)


def wrap_context(uintptr_t c_pointer, owner=None):
    """A Context over another library's struct ibv_context, which `owner` keeps open; close() does not close it."""
    if c_pointer == 0:
        raise ArgumentError("the address of a struct ibv_context is not 0")
    return new_context(<ibv_context *>c_pointer, BORROWED, owner)


cdef int errno_of(int rc) noexcept:
    """errno of a call that answers it, or answers -1 and sets it."""
    return rc if rc > 0 else errno


def ibv_query_device(Context context not None):
    """struct ibv_device_attr as a dict with its field names; GUIDs as integers."""
    cdef ibv_device_attr attr
    cdef ibv_context *pointer = context.get()
    cdef int rc
    memset(&attr, 0, sizeof(attr))
    with nogil:
        rc = c_ibv_query_device(pointer, &attr)
    if rc:
        raise failure(errno_of(rc), f"ibv_query_device({context.name})")
    return device_attributes(&attr)


cdef dict device_attributes(ibv_device_attr *attr):
    return {
        "fw_ver": (<bytes>(<char *>attr.fw_ver)).decode(errors="replace"),
        "node_guid": be64toh(attr.node_guid), "sys_image_guid": be64toh(attr.sys_image_guid),
        "max_mr_size": attr.max_mr_size, "page_size_cap": attr.page_size_cap,
        "vendor_id": attr.vendor_id, "vendor_part_id": attr.vendor_part_id, "hw_ver": attr.hw_ver,
        "max_qp": attr.max_qp, "max_qp_wr": attr.max_qp_wr, "device_cap_flags": attr.device_cap_flags,
        "max_sge": attr.max_sge, "max_sge_rd": attr.max_sge_rd, "max_cq": attr.max_cq, "max_cqe": attr.max_cqe,
        "max_mr": attr.max_mr, "max_pd": attr.max_pd, "max_qp_rd_atom": attr.max_qp_rd_atom,
        "max_res_rd_atom": attr.max_res_rd_atom, "max_qp_init_rd_atom": attr.max_qp_init_rd_atom,
        "atomic_cap": attr.atomic_cap, "max_ah": attr.max_ah, "max_srq": attr.max_srq, "max_srq_wr": attr.max_srq_wr,
        "max_srq_sge": attr.max_srq_sge, "max_pkeys": attr.max_pkeys,
        "local_ca_ack_delay": attr.local_ca_ack_delay, "phys_port_cnt": attr.phys_port_cnt,
    }


def ibv_query_device_ex(Context context not None):
    """struct ibv_device_attr_ex as a dict: orig_attr's fields and those that the extended call adds."""
    cdef ibv_device_attr_ex attr
    cdef ibv_context *pointer = context.get()
    cdef int rc
    memset(&attr, 0, sizeof(attr))
    with nogil:
        rc = c_ibv_query_device_ex(pointer, NULL, &attr)
    if rc:
        raise failure(errno_of(rc), f"ibv_query_device_ex({context.name})")
    return {
        **device_attributes(&attr.orig_attr),
        "completion_timestamp_mask": attr.completion_timestamp_mask, "hca_core_clock": attr.hca_core_clock,
        "device_cap_flags_ex": attr.device_cap_flags_ex, "max_dm_size": attr.max_dm_size,
        "pci_atomic_fetch_add": attr.pci_atomic_caps.fetch_add, "pci_atomic_swap": attr.pci_atomic_caps.swap,
        "pci_atomic_compare_swap": attr.pci_atomic_caps.compare_swap, "phys_port_cnt_ex": attr.phys_port_cnt_ex,
    }


def ibv_query_port(Context context not None, uint8_t port_num):
    """struct ibv_port_attr as a dict with its field names. Ports count from 1."""
    cdef ibv_port_attr attr
    cdef ibv_context *pointer = context.get()
    cdef int rc
    memset(&attr, 0, sizeof(attr))
    with nogil:
        rc = c_ibv_query_port(pointer, port_num, &attr)
    if rc:
        raise failure(errno_of(rc), f"ibv_query_port({context.name}, {port_num})")
    return {
        "state": attr.state, "max_mtu": attr.max_mtu, "active_mtu": attr.active_mtu, "gid_tbl_len": attr.gid_tbl_len,
        "port_cap_flags": attr.port_cap_flags, "max_msg_sz": attr.max_msg_sz, "pkey_tbl_len": attr.pkey_tbl_len,
        "lid": attr.lid, "sm_lid": attr.sm_lid, "lmc": attr.lmc, "max_vl_num": attr.max_vl_num, "sm_sl": attr.sm_sl,
        "active_width": attr.active_width, "active_speed": attr.active_speed, "phys_state": attr.phys_state,
        "link_layer": attr.link_layer, "flags": attr.flags,
    }


def ibv_query_gid(Context context not None, uint8_t port_num, int index):
    """The 16 bytes of a GID table entry; all zero if it is empty."""
    cdef ibv_gid gid
    cdef ibv_context *pointer = context.get()
    cdef int rc
    with nogil:
        rc = c_ibv_query_gid(pointer, port_num, index, &gid)
    if rc:
        raise failure(errno_of(rc), f"ibv_query_gid({context.name}, {port_num}, {index})")
    return PyBytes_FromStringAndSize(<char *>gid.raw, 16)


cdef object gid_entry(ibv_gid_entry *entry):
    return GidEntry(PyBytes_FromStringAndSize(<char *>entry.gid.raw, 16), entry.gid_index, entry.port_num,
                    entry.gid_type, entry.ndev_ifindex)


def ibv_query_gid_ex(Context context not None, uint32_t port_num, uint32_t gid_index, uint32_t flags=0):
    """One GidEntry; ENODATA if the entry is empty."""
    cdef ibv_gid_entry entry
    cdef ibv_context *pointer = context.get()
    cdef int rc
    memset(&entry, 0, sizeof(entry))
    with nogil:
        rc = c_ibv_query_gid_ex(pointer, port_num, gid_index, &entry, flags)
    if rc:
        raise failure(errno_of(rc), f"ibv_query_gid_ex({context.name}, {port_num}, {gid_index})")
    return gid_entry(&entry)


def ibv_query_gid_table(Context context not None, size_t max_entries, uint32_t flags=0):
    """List of the valid GidEntry of all ports."""
    cdef ibv_context *pointer = context.get()
    cdef ibv_gid_entry *entries = <ibv_gid_entry *>calloc(max_entries or 1, sizeof(ibv_gid_entry))
    cdef ssize_t count
    if entries == NULL:
        raise MemoryError(f"GID table of {max_entries} entries")
    try:
        with nogil:
            count = c_ibv_query_gid_table(pointer, entries, max_entries, flags)
        if count < 0:
            raise failure(<int>-count, f"ibv_query_gid_table({context.name}, max_entries={max_entries})")
        return [gid_entry(&entries[i]) for i in range(count)]
    finally:
        free(entries)


def ibv_query_pkey(Context context not None, uint8_t port_num, int index):
    """A partition key, host byte order."""
    cdef uint16_t pkey = 0
    cdef ibv_context *pointer = context.get()
    cdef int rc
    with nogil:
        rc = c_ibv_query_pkey(pointer, port_num, index, &pkey)
    if rc:
        raise failure(errno_of(rc), f"ibv_query_pkey({context.name}, {port_num}, {index})")
    return ntohs(pkey)


def ibv_get_pkey_index(Context context not None, uint8_t port_num, uint16_t pkey):
    """Index of a partition key (host byte order) in the port's table."""
    cdef ibv_context *pointer = context.get()
    cdef int index
    with nogil:
        index = c_ibv_get_pkey_index(pointer, port_num, htons(pkey))
    if index < 0:
        raise failure(ENOENT, f"ibv_get_pkey_index({context.name}, {port_num}, 0x{pkey:x})")
    return index


def ibv_query_rt_values_ex(Context context not None):
    """The device's raw clock now, in cycles of its own; EOPNOTSUPP where its clock page is not offered."""
    cdef ibv_context *pointer = context.get()
    cdef ibv_values_ex values
    cdef int rc
    memset(&values, 0, sizeof(values))
    values.comp_mask = c_VALUES_RAW_CLOCK
    with nogil:
        rc = c_ibv_query_rt_values_ex(pointer, &values)
    if rc:
        raise failure(errno_of(rc), f"ibv_query_rt_values_ex({context.name})")
    return values.raw_clock.tv_sec * 1000000000 + values.raw_clock.tv_nsec


# ------------------------------------------------------------------------------------------------ asynchronous events
def ibv_get_async_event(Context context not None):
    """Wait for an event of the device; EAGAIN at once if async_fd was made non-blocking and there is none.

    Acknowledge it with ibv_ack_async_event (the garbage collector does it at the latest) before closing its element.
    """
    cdef ibv_context *pointer = context.get()
    cdef AsyncEvent event = AsyncEvent.__new__(AsyncEvent)
    cdef int rc
    cdef int error
    while True:
        with nogil:
            rc = c_ibv_get_async_event(pointer, &event.event)
            error = errno
        if rc == 0:
            break
        if error != EINTR:
            raise failure(error, f"ibv_get_async_event({context.name})")
        PyErr_CheckSignals()
    event.acknowledged = False
    event.element = event_element(context, &event.event)
    if isinstance(event.element, Object):
        (<Object>event.element).events += 1
    return event


cdef object event_element(Context context, ibv_async_event *event):
    cdef int kind = event.event_type
    if kind == IBV_EVENT_CQ_ERR:
        known = context.elements.get(<uintptr_t>event.element.cq)
        return known if known is not None else wrap_cq(<uintptr_t>event.element.cq, context)
    if kind in (IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
                IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_QP_LAST_WQE_REACHED):
        known = context.elements.get(<uintptr_t>event.element.qp)
        return known if known is not None else wrap_qp(<uintptr_t>event.element.qp, context)
    if kind in (IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED):
        return context.elements.get(<uintptr_t>event.element.srq)
    if kind == IBV_EVENT_WQ_FATAL:
        return None
    return event.element.port_num


@cython.no_gc
cdef class AsyncEvent:
    """struct ibv_async_event: IBV_EVENT_* and its element: a CQ, QP or SRQ, else the port number."""

    def __cinit__(self):
        self.acknowledged = True  # there is none yet
        self.process = getpid()

    def __init__(self):
        raise TypeError("AsyncEvent objects come from ibv_get_async_event")

    @property
    def event_type(self):
        return self.event.event_type

    def __repr__(self):
        return f"<AsyncEvent {ibv_event_type_str(self.event.event_type)}: {self.element!r}>"

    def __dealloc__(self):
        if not self.acknowledged and self.process == getpid():
            c_ibv_ack_async_event(&self.event)
            if isinstance(self.element, Object):
                (<Object>self.element).events -= 1


def ibv_ack_async_event(AsyncEvent event not None):
    """Acknowledge an event; again is no error."""
    if event.acknowledged:
        return
    event.acknowledged = True
    c_ibv_ack_async_event(&event.event)
    if isinstance(event.element, Object):
        (<Object>event.element).events -= 1


# ------------------------------------------------------------------------------------- protection domains and memory
cdef PD new_pd(Context context, ibv_pd *pointer, int error, call, Origin origin=MADE):
    if pointer == NULL:
        raise failure(error, call)
    cdef PD pd = PD.__new__(PD)
    pd.pointer = pointer
    pd.context = context
    pd.origin = origin
    context.children += 1
    return pd


def ibv_alloc_pd(Context context not None):
    """Allocate a protection domain."""
    cdef ibv_context *parent = context.get()
    cdef ibv_pd *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_alloc_pd(parent)
        error = errno
    return new_pd(context, pointer, error, f"ibv_alloc_pd({context.name})")


def ibv_import_pd(Context context not None, uint32_t handle):
    """The protection domain that an importing context shares with the original one; close() is ibv_unimport_pd."""
    cdef ibv_context *parent = context.get()
    cdef ibv_pd *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_import_pd(parent, handle)
        error = errno
    return new_pd(context, pointer, error, f"ibv_import_pd({context.name}, handle={handle})", IMPORTED)


def wrap_pd(uintptr_t c_pointer, owner=None):
    """A PD over another library's struct ibv_pd, which `owner` keeps open; close() does not free it."""
    if c_pointer == 0:
        raise ArgumentError("the address of a struct ibv_pd is not 0")
    cdef ibv_pd *pointer = <ibv_pd *>c_pointer
    cdef PD pd = new_pd(new_context(pointer.context, BORROWED, owner), pointer, 0, "", BORROWED)
    pd.owner = owner
    return pd


def ibv_alloc_td(Context context not None):
    """Allocate a thread domain: a promise that one thread at a time uses what is made in it."""
    cdef ibv_context *parent = context.get()
    cdef ibv_td_init_attr attr
    cdef ibv_td *pointer
    cdef int error
    memset(&attr, 0, sizeof(attr))
    with nogil:
        pointer = c_ibv_alloc_td(parent, &attr)
        error = errno
    if pointer == NULL:
        raise failure(error, f"ibv_alloc_td({context.name})")
    cdef TD td = TD.__new__(TD)
    td.pointer = pointer
    td.context = context
    context.children += 1
    return td


@cython.no_gc
cdef class TD(Object):
    """struct ibv_td."""

    cdef ibv_td *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("thread domain")
        return self.pointer

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """ibv_dealloc_td; EBUSY while parent domains use it."""
        cdef ibv_td *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        if self.children:
            raise busy("ibv_dealloc_td()", self.children)
        self.pointer = NULL
        with nogil:
            rc = c_ibv_dealloc_td(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_dealloc_td()")
        self.context.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_ibv_dealloc_td(self.pointer)
            self.context.children -= 1


def ibv_alloc_parent_domain(Context context not None, PD pd not None, TD td=None):
    """A protection domain over another one, whose queues belong to the thread domain."""
    cdef ibv_context *parent = context.get()
    cdef ibv_parent_domain_init_attr attr
    cdef ibv_pd *pointer
    cdef int error
    memset(&attr, 0, sizeof(attr))
    attr.pd = pd.get()
    attr.td = td.get() if td is not None else NULL
    with nogil:
        pointer = c_ibv_alloc_parent_domain(parent, &attr)
        error = errno
    cdef PD domain = new_pd(context, pointer, error, f"ibv_alloc_parent_domain({context.name})")
    domain.parent = pd
    domain.td = td
    pd.children += 1
    if td is not None:
        td.children += 1
    return domain


@cython.no_gc
cdef class PD(Object):
    """struct ibv_pd."""

    cdef ibv_pd *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("protection domain")
        return self.pointer

    @property
    def c_pointer(self):
        """Address of the C struct, for other libraries; it lives as long as this object is open."""
        return <uintptr_t>self.get()

    @property
    def handle(self):
        return self.get().handle

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """ibv_dealloc_pd; EBUSY while objects made from it live."""
        cdef ibv_pd *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        if self.children:
            raise busy("ibv_dealloc_pd()", self.children)
        rc = self.release()
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_dealloc_pd()")
        self.forget()

    cdef int release(self) noexcept:
        cdef ibv_pd *pointer = self.pointer
        cdef Origin origin = self.origin
        cdef int rc = 0
        self.pointer = NULL
        with nogil:
            if origin == MADE:
                rc = c_ibv_dealloc_pd(pointer)
            elif origin == IMPORTED:
                c_ibv_unimport_pd(pointer)
        return rc

    cdef void forget(self):
        self.context.children -= 1
        if self.parent is not None:
            self.parent.children -= 1
        if self.td is not None:
            self.td.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            self.release()
            self.forget()


def mlx5dv_init_obj_pd(PD pd not None):
    """The number by which commands name the protection domain (pdn)."""
    cdef mlx5dv_pd out
    cdef ibv_pd *pointer = pd.get()
    cdef int rc
    memset(&out, 0, sizeof(out))
    with nogil:
        rc = c_mlx5dv_init_obj_pd(pointer, &out)
    if rc:
        raise failure(errno_of(rc), "mlx5dv_init_obj(MLX5DV_OBJ_PD)")
    return out.pdn


cdef MR new_mr(PD pd, ibv_mr *pointer, int error, call, Origin origin=MADE):
    if pointer == NULL:
        raise failure(error, call)
    cdef MR mr = MR.__new__(MR)
    mr.pointer = pointer
    mr.pd = pd
    mr.origin = origin
    mr.is_mapped = True
    pd.children += 1
    return mr


cdef MR known_mr(MR mr, uint64_t start, unsigned int access):
    mr.start = start
    mr.access = access
    return mr


def ibv_reg_mr(PD pd not None, uintptr_t addr, size_t length, unsigned int access):
    """Register a range of memory with IBV_ACCESS_*. The caller keeps the memory mapped until close()."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_mr *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_reg_mr(parent, <void *>addr, length, access)
        error = errno
    cdef uint64_t start = 0 if access & IBV_ACCESS_ZERO_BASED else addr
    return known_mr(new_mr(pd, pointer, error, f"ibv_reg_mr(addr=0x{addr:x}, length={length}, access=0x{access:x})"),
                    start, access)


def ibv_reg_mr_iova(PD pd not None, uintptr_t addr, size_t length, uint64_t iova, unsigned int access):
    """Register a range that the NIC names by addresses from iova on."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_mr *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_reg_mr_iova(parent, <void *>addr, length, iova, access)
        error = errno
    cdef MR mr = new_mr(pd, pointer, error,
                        f"ibv_reg_mr_iova(addr=0x{addr:x}, length={length}, iova=0x{iova:x}, access=0x{access:x})")
    return known_mr(mr, iova, access)


def ibv_reg_dmabuf_mr(PD pd not None, uint64_t offset, size_t length, uint64_t iova, int fd, int access):
    """Register `length` bytes from `offset` of a dma-buf. The caller may close the descriptor afterwards."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_mr *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_reg_dmabuf_mr(parent, offset, length, iova, fd, access)
        error = errno
    cdef MR mr = new_mr(pd, pointer, error, f"ibv_reg_dmabuf_mr(offset=0x{offset:x}, length={length}, "
                                            f"iova=0x{iova:x}, fd={fd}, access=0x{access:x})")
    return known_mr(mr, iova, access)


def ibv_import_mr(PD pd not None, uint32_t handle):
    """A memory region of the original context, by its handle: keys only, for the address is not imported.

    close() is ibv_unimport_mr.
    """
    cdef ibv_pd *parent = pd.get()
    cdef ibv_mr *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_import_mr(parent, handle)
        error = errno
    return new_mr(pd, pointer, error, f"ibv_import_mr(handle={handle})", IMPORTED)


def ibv_alloc_null_mr(PD pd not None):
    """A region whose lkey swallows writes and answers zeros; EOPNOTSUPP where the device has none."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_mr *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_alloc_null_mr(parent)
        error = errno
    return new_mr(pd, pointer, error, "ibv_alloc_null_mr()")


def ibv_rereg_mr(MR mr not None, int flags, PD pd=None, uintptr_t addr=0, size_t length=0, int access=0):
    """Change what IBV_REREG_MR_CHANGE_* in flags name: memory (addr, length), protection domain, access.

    The caller keeps new memory mapped until close(). After a failure that the message calls unusable, close the region.
    """
    cdef ibv_mr *pointer = mr.get()
    cdef ibv_pd *other = pd.get() if pd is not None else NULL
    cdef int rc
    cdef int error
    with nogil:
        rc = c_ibv_rereg_mr(pointer, flags, other, <void *>addr, length, access)
        error = errno
    if rc:
        left = "; the region is unusable now" if rc in (-4, -5) else ""  # IBV_REREG_MR_ERR_CMD*
        raise failure(error, f"ibv_rereg_mr(flags=0x{flags:x}, addr=0x{addr:x}, length={length}, "
                             f"access=0x{access:x}){left}")
    if flags & IBV_REREG_MR_CHANGE_PD:
        mr.pd.children -= 1
        mr.pd = pd
        pd.children += 1


def ibv_advise_mr(PD pd not None, int advice, uint32_t flags, sg_list):
    """Advise (IBV_ADVISE_MR_ADVICE_*) about pieces (addr, length, lkey) of on-demand regions."""
    cdef ibv_pd *pointer = pd.get()
    cdef ibv_sge sges[32]
    cdef uint32_t count = fill_pieces(sges, sg_list)
    cdef int rc
    with nogil:
        rc = c_ibv_advise_mr(pointer, advice, flags, sges, count)
    if rc:
        raise failure(errno_of(rc), f"ibv_advise_mr(advice={advice}, flags=0x{flags:x}, num_sge={count})")


@cython.no_gc
cdef class MR(Object):
    """struct ibv_mr: memory that the NIC may reach, named by lkey here and by rkey from the other side.

    `access` is what it was registered with (IBV_ACCESS_*), None where this process did not register it. `is_mapped` is
    for its owner to clear when the CPU cannot read the memory: then it is refused as INLINE data of a batch.
    """

    cdef ibv_mr *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("memory region")
        return self.pointer

    @property
    def addr(self):
        return <uintptr_t>self.get().addr

    @property
    def length(self):
        return self.get().length

    @property
    def lkey(self):
        return self.get().lkey

    @property
    def rkey(self):
        return self.get().rkey

    @property
    def handle(self):
        return self.get().handle

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """ibv_dereg_mr."""
        cdef ibv_mr *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        rc = self.release()
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_dereg_mr()")
        self.pd.children -= 1

    cdef int release(self) noexcept:
        cdef ibv_mr *pointer = self.pointer
        cdef Origin origin = self.origin
        cdef int rc = 0
        self.pointer = NULL
        with nogil:
            if origin == MADE:
                rc = c_ibv_dereg_mr(pointer)
            else:
                c_ibv_unimport_mr(pointer)
        return rc

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            self.release()
            self.pd.children -= 1


# ------------------------------------------------------------------------------------------------------ device memory
cdef DM new_dm(Context context, ibv_dm *pointer, int error, call, Origin origin=MADE):
    if pointer == NULL:
        raise failure(error, call)
    cdef DM dm = DM.__new__(DM)
    dm.pointer = pointer
    dm.context = context
    dm.origin = origin
    context.children += 1
    return dm


def ibv_alloc_dm(Context context not None, size_t length, uint32_t log_align_req=0):
    """Allocate memory on the device."""
    cdef ibv_context *parent = context.get()
    cdef ibv_alloc_dm_attr attr
    cdef ibv_dm *pointer
    cdef int error
    memset(&attr, 0, sizeof(attr))
    attr.length = length
    attr.log_align_req = log_align_req
    with nogil:
        pointer = c_ibv_alloc_dm(parent, &attr)
        error = errno
    return new_dm(context, pointer, error, f"ibv_alloc_dm({context.name}, length={length}, "
                                           f"log_align_req={log_align_req})")


def ibv_import_dm(Context context not None, uint32_t handle):
    """Device memory of the original context, by its handle; close() is ibv_unimport_dm."""
    cdef ibv_context *parent = context.get()
    cdef ibv_dm *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_import_dm(parent, handle)
        error = errno
    return new_dm(context, pointer, error, f"ibv_import_dm({context.name}, handle={handle})", IMPORTED)


def mlx5dv_init_obj_dm(DM dm not None):
    """DvDm: where the device memory is mapped."""
    cdef mlx5dv_dm out
    cdef ibv_dm *pointer = dm.get()
    cdef int rc
    memset(&out, 0, sizeof(out))
    with nogil:
        rc = c_mlx5dv_init_obj_dm(pointer, &out)
    if rc:
        raise failure(errno_of(rc), "mlx5dv_init_obj(MLX5DV_OBJ_DM)")
    return DvDm(<uintptr_t>out.buf, out.length, out.remote_va)


@cython.no_gc
cdef class DM(Object):
    """struct ibv_dm."""

    cdef ibv_dm *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("device memory")
        return self.pointer

    @property
    def handle(self):
        return self.get().handle

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """ibv_free_dm, or ibv_unimport_dm."""
        cdef ibv_dm *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        rc = self.release()
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_free_dm()")
        self.context.children -= 1

    cdef int release(self) noexcept:
        cdef ibv_dm *pointer = self.pointer
        cdef Origin origin = self.origin
        cdef int rc = 0
        self.pointer = NULL
        with nogil:
            if origin == MADE:
                rc = c_ibv_free_dm(pointer)
            else:
                c_ibv_unimport_dm(pointer)
        return rc

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            self.release()
            self.context.children -= 1


# --------------------------------------------------------------------------------------------------- address handles
cdef int fill_address(ibv_ah_attr *attr, int port_num, int dlid, int sl, bint is_global, bytes dgid, int sgid_index,
                      int hop_limit, int traffic_class, unsigned int flow_label) except -1:
    attr.port_num = port_num
    attr.dlid = dlid
    attr.sl = sl
    attr.is_global = is_global
    if dgid is not None:
        if len(dgid) != 16:
            raise ArgumentError(f"dgid has {len(dgid)} bytes, not 16")
        memcpy(attr.grh.dgid.raw, PyBytes_AS_STRING(dgid), 16)
    attr.grh.sgid_index = sgid_index
    attr.grh.hop_limit = hop_limit
    attr.grh.traffic_class = traffic_class
    attr.grh.flow_label = flow_label
    return 0


def ibv_create_ah(PD pd not None, *, int port_num, bytes dgid=None, int sgid_index=0, int hop_limit=64,
                  int traffic_class=0, unsigned int flow_label=0, int dlid=0, int sl=0, bint is_global=True):
    """Create an address handle from the fields of struct ibv_ah_attr and its grh."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_ah_attr attr
    cdef ibv_ah *pointer
    cdef int error
    memset(&attr, 0, sizeof(attr))
    fill_address(&attr, port_num, dlid, sl, is_global, dgid, sgid_index, hop_limit, traffic_class, flow_label)
    with nogil:
        pointer = c_ibv_create_ah(parent, &attr)
        error = errno
    return new_ah(pd, pointer, error,
                  f"ibv_create_ah(port_num={port_num}, dgid={dgid.hex() if dgid is not None else None}, "
                  f"sgid_index={sgid_index}, dlid={dlid})")


cdef AH new_ah(PD pd, ibv_ah *pointer, int error, call):
    if pointer == NULL:
        raise failure(error, call)
    cdef AH ah = AH.__new__(AH)
    ah.pointer = pointer
    ah.pd = pd
    pd.children += 1
    return ah


cdef int fill_completion(ibv_wc *c_wc, wc) except -1:
    memset(c_wc, 0, sizeof(ibv_wc))
    c_wc.wr_id = wc.wr_id
    c_wc.status = wc.status
    c_wc.opcode = wc.opcode
    c_wc.byte_len = wc.byte_len
    c_wc.qp_num = wc.qp_num
    c_wc.src_qp = wc.src_qp
    c_wc.wc_flags = wc.wc_flags
    c_wc.pkey_index = wc.pkey_index
    c_wc.slid = wc.slid
    c_wc.sl = wc.sl
    c_wc.dlid_path_bits = wc.dlid_path_bits
    return 0


cdef int fill_route(ibv_grh *grh, bytes data) except -1:
    if len(data) != sizeof(ibv_grh):
        raise ArgumentError(f"a global routing header has {sizeof(ibv_grh)} bytes, not {len(data)}",
                            "it is the first part of what a UD receive was given")
    memcpy(grh, PyBytes_AS_STRING(data), sizeof(ibv_grh))
    return 0


def ibv_init_ah_from_wc(Context context not None, uint8_t port_num, wc, bytes grh not None):
    """Keyword arguments of ibv_create_ah for an answer to a received datagram: its WC and 40 bytes of header."""
    cdef ibv_context *pointer = context.get()
    cdef ibv_wc c_wc
    cdef ibv_grh route
    cdef ibv_ah_attr attr
    cdef int rc
    fill_completion(&c_wc, wc)
    fill_route(&route, grh)
    memset(&attr, 0, sizeof(attr))
    with nogil:
        rc = c_ibv_init_ah_from_wc(pointer, port_num, &c_wc, &route, &attr)
    if rc:
        raise failure(errno_of(rc), f"ibv_init_ah_from_wc({context.name}, {port_num}, src_qp=0x{wc.src_qp:x})")
    return {"port_num": attr.port_num, "dgid": PyBytes_FromStringAndSize(<char *>attr.grh.dgid.raw, 16),
            "sgid_index": attr.grh.sgid_index, "hop_limit": attr.grh.hop_limit,
            "traffic_class": attr.grh.traffic_class, "flow_label": attr.grh.flow_label, "dlid": attr.dlid,
            "sl": attr.sl, "is_global": bool(attr.is_global)}


def ibv_create_ah_from_wc(PD pd not None, wc, bytes grh not None, uint8_t port_num):
    """Create an address handle for an answer to a received datagram."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_wc c_wc
    cdef ibv_grh route
    cdef ibv_ah *pointer
    cdef int error
    fill_completion(&c_wc, wc)
    fill_route(&route, grh)
    with nogil:
        pointer = c_ibv_create_ah_from_wc(parent, &c_wc, &route, port_num)
        error = errno
    return new_ah(pd, pointer, error, f"ibv_create_ah_from_wc(src_qp=0x{wc.src_qp:x}, port_num={port_num})")


@cython.no_gc
cdef class AH(Object):
    """struct ibv_ah."""

    cdef ibv_ah *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("address handle")
        return self.pointer

    @property
    def c_pointer(self):
        """Address of the C struct."""
        return <uintptr_t>self.get()

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """ibv_destroy_ah."""
        cdef ibv_ah *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        self.pointer = NULL
        with nogil:
            rc = c_ibv_destroy_ah(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_destroy_ah()")
        self.pd.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_ibv_destroy_ah(self.pointer)
            self.pd.children -= 1


def mlx5dv_init_obj_ah(AH ah not None):
    """The address vector (WqeAv) that the driver resolved: the only way to learn the peer's MAC address."""
    cdef mlx5dv_ah out
    cdef ibv_ah *pointer = ah.get()
    cdef int rc
    memset(&out, 0, sizeof(out))
    with nogil:
        rc = c_mlx5dv_init_obj_ah(pointer, &out)
    if rc:
        raise failure(errno_of(rc), "mlx5dv_init_obj(MLX5DV_OBJ_AH)")
    return WqeAv(PyBytes_FromStringAndSize(<char *>out.av.rmac, 6), PyBytes_FromStringAndSize(<char *>out.av.rgid, 16),
                 ntohs(out.av.rlid), out.av.tclass, out.av.hop_limit)


# -------------------------------------------------------------------------------------------------- completion queues
def ibv_create_comp_channel(Context context not None):
    """Create a completion channel: a descriptor that becomes readable when an armed queue completes."""
    cdef ibv_context *parent = context.get()
    cdef ibv_comp_channel *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_create_comp_channel(parent)
        error = errno
    if pointer == NULL:
        raise failure(error, f"ibv_create_comp_channel({context.name})")
    cdef CompChannel channel = CompChannel.__new__(CompChannel)
    channel.pointer = pointer
    channel.context = context
    channel.queues = WeakValueDictionary()
    context.children += 1
    return channel


@cython.no_gc
cdef class CompChannel(Object):
    """struct ibv_comp_channel."""

    cdef ibv_comp_channel *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("completion channel")
        return self.pointer

    @property
    def fd(self):
        return self.get().fd

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """ibv_destroy_comp_channel; EBUSY while completion queues use it."""
        cdef ibv_comp_channel *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        if self.children:
            raise busy("ibv_destroy_comp_channel()", self.children)
        self.pointer = NULL
        with nogil:
            rc = c_ibv_destroy_comp_channel(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_destroy_comp_channel()")
        self.context.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_ibv_destroy_comp_channel(self.pointer)
            self.context.children -= 1


def ibv_create_cq(Context context not None, int cqe, CompChannel channel=None, int comp_vector=0):
    """Create a completion queue of at least `cqe` entries."""
    cdef ibv_context *parent = context.get()
    cdef ibv_comp_channel *events = channel.get() if channel is not None else NULL
    cdef ibv_cq *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_create_cq(parent, cqe, NULL, events, comp_vector)
        error = errno
    if pointer == NULL:
        raise failure(error, f"ibv_create_cq({context.name}, cqe={cqe}, comp_vector={comp_vector})")
    return new_cq(context, pointer, NULL, channel, None)


cdef CQ new_cq(Context context, ibv_cq *pointer, ibv_cq_ex *ex, CompChannel channel, PD parent_domain):
    cdef CQ cq = CQ.__new__(CQ)
    cq.pointer = pointer
    cq.ex = ex
    cq.context = context
    cq.channel = channel
    cq.parent_domain = parent_domain
    cq.senders = {}
    context.children += 1
    context.elements[<uintptr_t>pointer] = cq
    if parent_domain is not None:
        parent_domain.children += 1
    if channel is not None:
        channel.children += 1
        channel.queues[<uintptr_t>pointer] = cq
    return cq


cdef int fill_cq(ibv_cq_init_attr_ex *attr, int cqe, CompChannel channel, int comp_vector, uint64_t wc_flags,
                 uint32_t flags, PD parent_domain) except -1:
    memset(attr, 0, sizeof(ibv_cq_init_attr_ex))
    attr.cqe = cqe
    attr.channel = channel.get() if channel is not None else NULL
    attr.comp_vector = comp_vector
    attr.wc_flags = wc_flags
    attr.flags = flags
    if flags:
        attr.comp_mask |= c_CQ_INIT_ATTR_FLAGS
    if parent_domain is not None:
        attr.comp_mask |= c_CQ_INIT_ATTR_PD
        attr.parent_domain = parent_domain.get()
    return 0


def ibv_create_cq_ex(Context context not None, int cqe, CompChannel channel=None, int comp_vector=0, *,
                     uint64_t wc_flags=0, uint32_t flags=0, PD parent_domain=None):
    """Create a completion queue for ibv_start_poll: IBV_WC_EX_WITH_* of what is to be read, IBV_CREATE_CQ_ATTR_*."""
    cdef ibv_context *parent = context.get()
    cdef ibv_cq_init_attr_ex attr
    cdef ibv_cq_ex *ex
    cdef int error
    fill_cq(&attr, cqe, channel, comp_vector, wc_flags, flags, parent_domain)
    with nogil:
        ex = c_ibv_create_cq_ex(parent, &attr)
        error = errno
    if ex == NULL:
        raise failure(error, f"ibv_create_cq_ex({context.name}, cqe={cqe}, comp_vector={comp_vector}, "
                             f"wc_flags=0x{wc_flags:x}, flags=0x{flags:x})")
    return new_cq(context, c_ibv_cq_ex_to_cq(ex), ex, channel, parent_domain)


def mlx5dv_create_cq(Context context not None, int cqe, CompChannel channel=None, int comp_vector=0, *,
                     uint64_t wc_flags=0, uint32_t flags=0, PD parent_domain=None, uint64_t dv_comp_mask=0,
                     int cqe_comp_res_format=0, uint32_t dv_flags=0, int cqe_size=0):
    """ibv_create_cq_ex with the fields of struct mlx5dv_cq_init_attr that dv_comp_mask names."""
    cdef ibv_context *parent = context.get()
    cdef ibv_cq_init_attr_ex attr
    cdef mlx5dv_cq_init_attr dv
    cdef ibv_cq_ex *ex
    cdef int error
    fill_cq(&attr, cqe, channel, comp_vector, wc_flags, flags, parent_domain)
    memset(&dv, 0, sizeof(dv))
    dv.comp_mask = dv_comp_mask
    dv.cqe_comp_res_format = cqe_comp_res_format
    dv.flags = dv_flags
    dv.cqe_size = cqe_size
    with nogil:
        ex = c_mlx5dv_create_cq(parent, &attr, &dv)
        error = errno
    if ex == NULL:
        raise failure(error, f"mlx5dv_create_cq({context.name}, cqe={cqe}, wc_flags=0x{wc_flags:x}, "
                             f"dv_comp_mask=0x{dv_comp_mask:x}, cqe_size={cqe_size})")
    return new_cq(context, c_ibv_cq_ex_to_cq(ex), ex, channel, parent_domain)


def wrap_cq(uintptr_t c_pointer, owner=None):
    """A CQ over another library's struct ibv_cq, which `owner` keeps open; close() does not destroy it."""
    if c_pointer == 0:
        raise ArgumentError("the address of a struct ibv_cq is not 0")
    cdef ibv_cq *pointer = <ibv_cq *>c_pointer
    cdef Context context = new_context(pointer.context, BORROWED, owner)
    cdef CQ cq = new_cq(context, pointer, NULL, None, None)
    cq.origin = BORROWED
    cq.owner = owner
    return cq


@cython.no_gc
cdef class CQ(Object):
    """struct ibv_cq.

    `bound` is how many completions can wait here unpolled: what the queue pairs that use it may have outstanding. With
    `strict` set, a queue pair that would make them more than there are entries is refused; the C library never does.
    """

    cdef ibv_cq *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("completion queue")
        return self.pointer

    cdef void freed(self, uint32_t qp_num, int status, int opcode):
        # A completion was read. Of an error the opcode is not defined: from there on the library alone knows.
        cdef object found = self.senders.get(qp_num)
        if found is None:
            return
        cdef QP qp = <QP><void *><uintptr_t>found
        if status:
            qp.sq.known = False
        elif opcode < IBV_WC_RECV and qp.sq.first_mark < qp.sq.end_mark:
            qp.sq.free_from = qp.sq.marks[qp.sq.first_mark & qp.sq.mask]
            qp.sq.first_mark += 1

    cdef void freed_at(self):
        # The same for the completion that an extended poll stands at, which tells its queue pair only when asked to.
        cdef ibv_cq_ex *ex = self.ex
        cdef int opcode
        if not self.senders:
            return
        opcode = c_ibv_wc_read_opcode(ex) if ex.status == 0 else 0
        if ex.read_qp_num != NULL:
            self.freed(c_ibv_wc_read_qp_num(ex), ex.status, opcode)
        elif len(self.senders) == 1:
            self.freed(next(iter(self.senders)), ex.status, opcode)
        elif opcode < IBV_WC_RECV:
            for found in self.senders.values():
                (<QP><void *><uintptr_t>found).sq.known = False

    cdef void leave(self):
        if self.polling:
            c_ibv_end_poll(self.ex)
            self.polling = 0

    cdef void settle(self):
        # What the library would wait for in ibv_destroy_cq.
        self.leave()
        if self.unacknowledged:
            c_ibv_ack_cq_events(self.pointer, self.unacknowledged)
            self.unacknowledged = 0

    cdef void forget(self):
        self.context.children -= 1
        if self.channel is not None:
            self.channel.children -= 1
        if self.parent_domain is not None:
            self.parent_domain.children -= 1

    @property
    def c_pointer(self):
        """Address of the C struct, for other libraries; it lives as long as this object is open."""
        self.get()
        self.is_lent = True
        for found in self.senders.values():
            (<QP><void *><uintptr_t>found).sq.known = False
        return <uintptr_t>self.pointer

    @property
    def wr_id(self):
        """wr_id of the completion that ibv_start_poll or ibv_next_poll stands at."""
        return completion_of(self, "ibv_cq_ex.wr_id").wr_id

    @property
    def status(self):
        """IBV_WC_* of the completion that ibv_start_poll or ibv_next_poll stands at."""
        return completion_of(self, "ibv_cq_ex.status").status

    @property
    def cqe(self):
        return self.get().cqe

    @property
    def handle(self):
        return self.get().handle

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """ibv_destroy_cq; EBUSY while queue pairs use it or events wait to be acknowledged."""
        cdef ibv_cq *pointer = self.pointer
        cdef bint mine = self.origin == MADE
        cdef int rc = 0
        if pointer == NULL:
            return
        if self.children:
            raise busy("ibv_destroy_cq()", self.children)
        if self.unacknowledged:
            raise unread("ibv_destroy_cq()", self.unacknowledged, "acknowledge (ibv_ack_cq_events)")
        if self.events:
            raise unread("ibv_destroy_cq()", self.events, "acknowledge (ibv_ack_async_event)")
        self.settle()
        self.pointer = NULL
        if mine:
            with nogil:
                rc = c_ibv_destroy_cq(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_destroy_cq()")
        self.forget()

    def __dealloc__(self):
        cdef ibv_cq *pointer = self.pointer
        if pointer != NULL and self.process == getpid():
            self.settle()
            if self.origin == MADE:
                with nogil:
                    c_ibv_destroy_cq(pointer)
            self.forget()


cdef int not_polled(CQ cq, call) except -1:
    # Between ibv_start_poll and ibv_end_poll the library holds the lock that the call would wait for.
    if cq.polling:
        raise misused(call, "a completion queue is between ibv_start_poll and ibv_end_poll: call ibv_end_poll first")
    return 0


def ibv_resize_cq(CQ cq not None, int cqe):
    """Change the number of entries; completions that wait stay."""
    cdef ibv_cq *pointer = cq.get()
    cdef int rc
    not_polled(cq, f"ibv_resize_cq(cqe={cqe})")
    with nogil:
        rc = c_ibv_resize_cq(pointer, cqe)
    if rc:
        raise failure(errno_of(rc), f"ibv_resize_cq(cqe={cqe})")


def ibv_modify_cq(CQ cq not None, int cq_count, int cq_period):
    """Moderate events: one after cq_count completions or cq_period microseconds."""
    cdef ibv_cq *pointer = cq.get()
    cdef ibv_modify_cq_attr attr
    cdef int rc
    memset(&attr, 0, sizeof(attr))
    attr.attr_mask = c_CQ_ATTR_MODERATE
    attr.moderate.cq_count = cq_count
    attr.moderate.cq_period = cq_period
    with nogil:
        rc = c_ibv_modify_cq(pointer, &attr)
    if rc:
        raise failure(errno_of(rc), f"ibv_modify_cq(cq_count={cq_count}, cq_period={cq_period})")


def mlx5dv_init_obj_cq(CQ cq not None):
    """DvCq: where the ring lies. From then on the caller, not ibv_poll_cq, owns the consumer index."""
    cdef mlx5dv_cq out
    cdef ibv_cq *pointer = cq.get()
    cdef int rc
    memset(&out, 0, sizeof(out))
    with nogil:
        rc = c_mlx5dv_init_obj_cq(pointer, &out)
    if rc:
        raise failure(errno_of(rc), "mlx5dv_init_obj(MLX5DV_OBJ_CQ)")
    return DvCq(<uintptr_t>out.buf, <uintptr_t>out.dbrec, out.cqe_cnt, out.cqe_size, <uintptr_t>out.cq_uar, out.cqn)


def ibv_poll_cq(CQ cq not None, int num_entries):
    """Up to `num_entries` (at most 64 a call) completions as a list of WC. Holds the GIL: it never blocks."""
    cdef ibv_wc wc[64]
    cdef ibv_cq *pointer = cq.get()
    if cq.polling:
        raise misused("ibv_poll_cq()", "the queue is between ibv_start_poll and ibv_end_poll")
    cdef int count = c_ibv_poll_cq(pointer, min(num_entries, 64), wc)
    if count < 0:
        raise failure(EINVAL, f"ibv_poll_cq(num_entries={num_entries})")
    if count and cq.senders:
        for i in range(count):
            cq.freed(wc[i].qp_num, wc[i].status, wc[i].opcode)
    return [WC(wc[i].wr_id, wc[i].status, wc[i].opcode, wc[i].vendor_err, wc[i].byte_len, ntohl(wc[i].imm_data),
               wc[i].qp_num, wc[i].src_qp, wc[i].wc_flags, wc[i].pkey_index, wc[i].slid, wc[i].sl,
               wc[i].dlid_path_bits) for i in range(count)]


def ibv_wc_status_str(int status):
    """The library's words for IBV_WC_*."""
    return (<bytes>c_ibv_wc_status_str(status)).decode()


def ibv_req_notify_cq(CQ cq not None, bint solicited_only=False):
    """Ask for one event on the queue's channel at its next completion."""
    cdef int rc = c_ibv_req_notify_cq(cq.get(), solicited_only)
    if rc:
        raise failure(errno_of(rc), f"ibv_req_notify_cq(solicited_only={int(solicited_only)})")


def ibv_get_cq_event(CompChannel channel not None):
    """Wait for an event; the CQ it is for. Acknowledge it with ibv_ack_cq_events before closing that queue."""
    cdef ibv_comp_channel *pointer = channel.get()
    cdef ibv_cq *cq = NULL
    cdef void *unused = NULL
    cdef int rc
    cdef int error
    while True:
        with nogil:
            rc = c_ibv_get_cq_event(pointer, &cq, &unused)
            error = errno
        if rc == 0:
            found = channel.queues[<uintptr_t>cq]
            (<CQ>found).unacknowledged += 1
            return found
        if error != EINTR:
            raise failure(error, "ibv_get_cq_event()")
        PyErr_CheckSignals()


def ibv_ack_cq_events(CQ cq not None, unsigned int nevents):
    """Acknowledge events got from the channel."""
    cdef ibv_cq *pointer = cq.get()
    if nevents > cq.unacknowledged:
        raise misused(f"ibv_ack_cq_events(nevents={nevents})", f"{cq.unacknowledged} event(s) wait to be acknowledged")
    cq.unacknowledged -= nevents
    c_ibv_ack_cq_events(pointer, nevents)


# ------------------------------------------------------------------------------------------- extended completion queues
cdef ibv_cq_ex *extended(CQ cq, call) except NULL:
    cq.get()
    if cq.ex == NULL:
        raise misused(f"{call}()", "make the completion queue with ibv_create_cq_ex or mlx5dv_create_cq")
    return cq.ex


cdef ibv_cq_ex *completion_of(CQ cq, call) except NULL:
    cdef ibv_cq_ex *ex = extended(cq, call)
    if cq.polling != 2:
        raise misused(f"{call}()", "there is a completion to read after ibv_start_poll or ibv_next_poll answered True")
    return ex


cdef object unasked(call, flag):
    """A VerbsError for a field that the queue was not made to give."""
    return VerbsError(f"{call}()", EOPNOTSUPP, f"make the completion queue with {flag} in wc_flags")


def ibv_start_poll(CQ cq not None):
    """Stand at the next completion and return True, or return False when there is none; then nothing was started.

    Every start that answered True needs an ibv_end_poll, on the same thread.
    """
    cdef ibv_cq_ex *ex = extended(cq, "ibv_start_poll")
    cdef ibv_poll_cq_attr attr
    cdef int rc
    if cq.polling:
        raise misused("ibv_start_poll()", "call ibv_end_poll first")
    attr.comp_mask = 0
    rc = c_ibv_start_poll(ex, &attr)
    if rc == 0:
        cq.polling = 2
        cq.freed_at()
        return True
    if rc == ENOENT:
        return False
    raise failure(rc, "ibv_start_poll()")


def ibv_next_poll(CQ cq not None):
    """Stand at the next completion and return True, or return False when there is none; ibv_end_poll is still due."""
    cdef ibv_cq_ex *ex = extended(cq, "ibv_next_poll")
    cdef int rc
    if not cq.polling:
        raise misused("ibv_next_poll()", "call ibv_start_poll first")
    rc = c_ibv_next_poll(ex)
    cq.polling = 2 if rc == 0 else 1
    if rc and rc != ENOENT:
        raise failure(rc, "ibv_next_poll()")
    if rc == 0:
        cq.freed_at()
    return rc == 0


def ibv_end_poll(CQ cq not None):
    """Give back the completions that were read."""
    cdef ibv_cq_ex *ex = extended(cq, "ibv_end_poll")
    if not cq.polling:
        raise misused("ibv_end_poll()", "call ibv_start_poll first")
    cq.polling = 0
    c_ibv_end_poll(ex)


def ibv_wc_read_opcode(CQ cq not None):
    """IBV_WC_SEND and its like."""
    return c_ibv_wc_read_opcode(completion_of(cq, "ibv_wc_read_opcode"))


def ibv_wc_read_vendor_err(CQ cq not None):
    """The device's own number of an error; of a success it means nothing."""
    return c_ibv_wc_read_vendor_err(completion_of(cq, "ibv_wc_read_vendor_err"))


def ibv_wc_read_wc_flags(CQ cq not None):
    """IBV_WC_GRH, IBV_WC_WITH_IMM, ..."""
    return c_ibv_wc_read_wc_flags(completion_of(cq, "ibv_wc_read_wc_flags"))


def ibv_wc_read_byte_len(CQ cq not None):
    """Bytes received."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_byte_len")
    if ex.read_byte_len == NULL:
        raise unasked("ibv_wc_read_byte_len", "IBV_WC_EX_WITH_BYTE_LEN")
    return c_ibv_wc_read_byte_len(ex)


def ibv_wc_read_imm_data(CQ cq not None):
    """Immediate data, host byte order."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_imm_data")
    if ex.read_imm_data == NULL:
        raise unasked("ibv_wc_read_imm_data", "IBV_WC_EX_WITH_IMM")
    return ntohl(c_ibv_wc_read_imm_data(ex))


def ibv_wc_read_invalidated_rkey(CQ cq not None):
    """The rkey that the sender invalidated."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_invalidated_rkey")
    if ex.read_imm_data == NULL:
        raise unasked("ibv_wc_read_invalidated_rkey", "IBV_WC_EX_WITH_IMM")
    return c_ibv_wc_read_invalidated_rkey(ex)


def ibv_wc_read_qp_num(CQ cq not None):
    """Number of the local queue pair."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_qp_num")
    if ex.read_qp_num == NULL:
        raise unasked("ibv_wc_read_qp_num", "IBV_WC_EX_WITH_QP_NUM")
    return c_ibv_wc_read_qp_num(ex)


def ibv_wc_read_src_qp(CQ cq not None):
    """Number of the sender of a datagram."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_src_qp")
    if ex.read_src_qp == NULL:
        raise unasked("ibv_wc_read_src_qp", "IBV_WC_EX_WITH_SRC_QP")
    return c_ibv_wc_read_src_qp(ex)


def ibv_wc_read_slid(CQ cq not None):
    """Source LID; 0 on Ethernet."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_slid")
    if ex.read_slid == NULL:
        raise unasked("ibv_wc_read_slid", "IBV_WC_EX_WITH_SLID")
    return c_ibv_wc_read_slid(ex)


def ibv_wc_read_sl(CQ cq not None):
    """Service level."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_sl")
    if ex.read_sl == NULL:
        raise unasked("ibv_wc_read_sl", "IBV_WC_EX_WITH_SL")
    return c_ibv_wc_read_sl(ex)


def ibv_wc_read_dlid_path_bits(CQ cq not None):
    """Path bits of the destination LID."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_dlid_path_bits")
    if ex.read_dlid_path_bits == NULL:
        raise unasked("ibv_wc_read_dlid_path_bits", "IBV_WC_EX_WITH_DLID_PATH_BITS")
    return c_ibv_wc_read_dlid_path_bits(ex)


def ibv_wc_read_completion_ts(CQ cq not None):
    """The device's clock at the completion, in its cycles: mlx5dv_ts_to_ns turns them into time."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_completion_ts")
    if ex.read_completion_ts == NULL:
        raise unasked("ibv_wc_read_completion_ts", "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP")
    return c_ibv_wc_read_completion_ts(ex)


def ibv_wc_read_completion_wallclock_ns(CQ cq not None):
    """The time of day of the completion, in nanoseconds since 1970."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_completion_wallclock_ns")
    if ex.read_completion_wallclock_ns == NULL:
        raise unasked("ibv_wc_read_completion_wallclock_ns", "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK")
    return c_ibv_wc_read_completion_wallclock_ns(ex)


def ibv_wc_read_cvlan(CQ cq not None):
    """The VLAN tag that was stripped from a raw packet."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_cvlan")
    if ex.read_cvlan == NULL:
        raise unasked("ibv_wc_read_cvlan", "IBV_WC_EX_WITH_CVLAN")
    return c_ibv_wc_read_cvlan(ex)


def ibv_wc_read_flow_tag(CQ cq not None):
    """The tag of the flow rule that steered a raw packet."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_flow_tag")
    if ex.read_flow_tag == NULL:
        raise unasked("ibv_wc_read_flow_tag", "IBV_WC_EX_WITH_FLOW_TAG")
    return c_ibv_wc_read_flow_tag(ex)


def ibv_wc_read_tm_info(CQ cq not None):
    """(tag, priv) of a matched message."""
    cdef ibv_cq_ex *ex = completion_of(cq, "ibv_wc_read_tm_info")
    cdef ibv_wc_tm_info info
    if ex.read_tm_info == NULL:
        raise unasked("ibv_wc_read_tm_info", "IBV_WC_EX_WITH_TM_INFO")
    memset(&info, 0, sizeof(info))
    c_ibv_wc_read_tm_info(ex, &info)
    return info.tag, info.priv


# ---------------------------------------------------------------------------------------------- shared receive queues
cdef SRQ new_srq(PD pd, ibv_srq *pointer, int error, ibv_srq_attr *attr, call):
    if pointer == NULL:
        raise failure(error, call)
    cdef SRQ srq = SRQ.__new__(SRQ)
    srq.pointer = pointer
    srq.pd = pd
    srq.attr = {"max_wr": attr.max_wr, "max_sge": attr.max_sge}
    pd.children += 1
    pd.context.elements[<uintptr_t>pointer] = srq
    return srq


def ibv_create_srq(PD pd not None, uint32_t max_wr, uint32_t max_sge=1, uint32_t srq_limit=0):
    """Create a shared receive queue. Its `attr` says what the library made of the sizes."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_srq_init_attr attr
    cdef ibv_srq *pointer
    cdef int error
    memset(&attr, 0, sizeof(attr))
    attr.attr.max_wr = max_wr
    attr.attr.max_sge = max_sge
    attr.attr.srq_limit = srq_limit
    with nogil:
        pointer = c_ibv_create_srq(parent, &attr)
        error = errno
    return new_srq(pd, pointer, error, &attr.attr, f"ibv_create_srq(max_wr={max_wr}, max_sge={max_sge})")


def ibv_create_srq_ex(PD pd not None, uint32_t max_wr, uint32_t max_sge=1, uint32_t srq_limit=0, *, int srq_type=0):
    """The extended form, with IBV_SRQT_*; here without an XRC domain or tags: IBV_SRQT_BASIC."""
    cdef ibv_context *context = pd.context.get()
    cdef ibv_srq_init_attr_ex attr
    cdef ibv_srq *pointer
    cdef int error
    memset(&attr, 0, sizeof(attr))
    attr.attr.max_wr = max_wr
    attr.attr.max_sge = max_sge
    attr.attr.srq_limit = srq_limit
    attr.comp_mask = c_SRQ_INIT_ATTR_PD | c_SRQ_INIT_ATTR_TYPE
    attr.pd = pd.get()
    attr.srq_type = srq_type
    with nogil:
        pointer = c_ibv_create_srq_ex(context, &attr)
        error = errno
    return new_srq(pd, pointer, error, &attr.attr,
                   f"ibv_create_srq_ex(max_wr={max_wr}, max_sge={max_sge}, srq_type={srq_type})")


@cython.no_gc
cdef class SRQ(Object):
    """struct ibv_srq."""

    cdef ibv_srq *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("shared receive queue")
        return self.pointer

    @property
    def c_pointer(self):
        """Address of the C struct, for other libraries; it lives as long as this object is open."""
        return <uintptr_t>self.get()

    @property
    def handle(self):
        return self.get().handle

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """ibv_destroy_srq; EBUSY while queue pairs use it or events wait to be acknowledged."""
        cdef ibv_srq *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        if self.children:
            raise busy("ibv_destroy_srq()", self.children)
        if self.events:
            raise unread("ibv_destroy_srq()", self.events, "acknowledge (ibv_ack_async_event)")
        self.pointer = NULL
        with nogil:
            rc = c_ibv_destroy_srq(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_destroy_srq()")
        self.pd.children -= 1

    def __dealloc__(self):
        cdef ibv_srq *pointer = self.pointer
        if pointer != NULL and self.process == getpid():
            with nogil:
                c_ibv_destroy_srq(pointer)
            self.pd.children -= 1


def ibv_modify_srq(SRQ srq not None, int attr_mask, *, uint32_t max_wr=0, uint32_t srq_limit=0):
    """Set what IBV_SRQ_* in attr_mask name; the limit makes one IBV_EVENT_SRQ_LIMIT_REACHED below it."""
    cdef ibv_srq *pointer = srq.get()
    cdef ibv_srq_attr attr
    cdef int rc
    memset(&attr, 0, sizeof(attr))
    attr.max_wr = max_wr
    attr.srq_limit = srq_limit
    with nogil:
        rc = c_ibv_modify_srq(pointer, &attr, attr_mask)
    if rc:
        raise failure(errno_of(rc), f"ibv_modify_srq(attr_mask=0x{attr_mask:x}, max_wr={max_wr}, "
                                    f"srq_limit={srq_limit})")


def ibv_query_srq(SRQ srq not None):
    """struct ibv_srq_attr as a dict with its field names."""
    cdef ibv_srq *pointer = srq.get()
    cdef ibv_srq_attr attr
    cdef int rc
    memset(&attr, 0, sizeof(attr))
    with nogil:
        rc = c_ibv_query_srq(pointer, &attr)
    if rc:
        raise failure(errno_of(rc), "ibv_query_srq()")
    return {"max_wr": attr.max_wr, "max_sge": attr.max_sge, "srq_limit": attr.srq_limit}


def ibv_get_srq_num(SRQ srq not None):
    """The number by which commands name the shared receive queue."""
    cdef ibv_srq *pointer = srq.get()
    cdef uint32_t number = 0
    cdef int rc
    with nogil:
        rc = c_ibv_get_srq_num(pointer, &number)
    if rc:
        raise failure(errno_of(rc), "ibv_get_srq_num()")
    return number


def mlx5dv_init_obj_srq(SRQ srq not None):
    """DvSrq: where the ring of the shared receive queue lies."""
    cdef mlx5dv_srq out
    cdef ibv_srq *pointer = srq.get()
    cdef int rc
    memset(&out, 0, sizeof(out))
    out.comp_mask = c_MLX5DV_SRQ_MASK_SRQN
    with nogil:
        rc = c_mlx5dv_init_obj_srq(pointer, &out)
    if rc:
        raise failure(errno_of(rc), "mlx5dv_init_obj(MLX5DV_OBJ_SRQ)")
    return DvSrq(<uintptr_t>out.buf, <uintptr_t>out.dbrec, out.stride, out.head, out.tail, out.srqn)


# -------------------------------------------------------------------------------------------------------- queue pairs
cdef dict capacity(ibv_qp_cap *cap):
    return {"max_send_wr": cap.max_send_wr, "max_recv_wr": cap.max_recv_wr, "max_send_sge": cap.max_send_sge,
            "max_recv_sge": cap.max_recv_sge, "max_inline_data": cap.max_inline_data}


cdef int fill_qp(ibv_qp_init_attr_ex *attr, PD pd, int qp_type, CQ send_cq, CQ recv_cq, SRQ srq, int max_send_wr,
                 int max_recv_wr, int max_send_sge, int max_recv_sge, int max_inline_data, bint sq_sig_all) except -1:
    memset(attr, 0, sizeof(ibv_qp_init_attr_ex))
    attr.qp_type = qp_type
    attr.send_cq = send_cq.get()
    attr.recv_cq = recv_cq.get()
    attr.srq = srq.get() if srq is not None else NULL
    attr.sq_sig_all = sq_sig_all
    attr.cap.max_send_wr = max_send_wr
    attr.cap.max_recv_wr = max_recv_wr
    attr.cap.max_send_sge = max_send_sge
    attr.cap.max_recv_sge = max_recv_sge
    attr.cap.max_inline_data = max_inline_data
    attr.comp_mask = c_QP_INIT_ATTR_PD
    attr.pd = pd.get()
    return 0


cdef str qp_call(str name, ibv_qp_init_attr_ex *attr):
    return (f"{name}(qp_type={attr.qp_type}, max_send_wr={attr.cap.max_send_wr}, max_recv_wr={attr.cap.max_recv_wr}, "
            f"max_send_sge={attr.cap.max_send_sge}, max_recv_sge={attr.cap.max_recv_sge}, "
            f"max_inline_data={attr.cap.max_inline_data}, create_flags=0x{attr.create_flags:x}, "
            f"send_ops_flags=0x{attr.send_ops_flags:x})")


cdef object overrun(CQ cq):
    if not cq.strict or cq.bound <= <unsigned int>cq.pointer.cqe + 1:
        return None
    return ArgumentError(
        f"the queue pairs of a strict completion queue could overrun it: {cq.bound} > {cq.pointer.cqe + 1}",
        f"create_cq with at least {cq.bound}, more completion queues, or smaller queue pairs; strict = False allows it")


cdef QP bound_qp(QP qp):
    """The queue pair, or the refusal of a strict completion queue; then it is destroyed."""
    refusal = overrun(qp.send_cq) or overrun(qp.recv_cq)
    if refusal is not None:
        qp.close()
        raise refusal
    return qp


cdef QP new_qp(PD pd, ibv_qp *pointer, CQ send_cq, CQ recv_cq, SRQ srq, ibv_qp_cap *cap, bint sq_sig_all=False):
    cdef QP qp = QP.__new__(QP)
    qp.pointer = pointer
    qp.pd = pd
    qp.send_cq = send_cq
    qp.recv_cq = recv_cq
    qp.srq = srq
    qp.cap = capacity(cap)
    qp.number = pointer.qp_num
    qp.max_sge = cap.max_send_sge
    qp.max_inline = cap.max_inline_data
    qp.sq.room = cap.max_send_wr
    qp.sq.all_signaled = sq_sig_all
    qp.sq.mask = 1
    while qp.sq.mask < cap.max_send_wr:
        qp.sq.mask = qp.sq.mask << 1 | 1
    qp.sq.marks = <uint64_t *>malloc((<size_t>qp.sq.mask + 1) * sizeof(uint64_t))
    qp.sq.known = qp.sq.marks != NULL and not send_cq.is_lent
    qp.may_receive = cap.max_recv_wr if srq is None else 0
    send_cq.bound += cap.max_send_wr
    recv_cq.bound += qp.may_receive
    send_cq.senders[pointer.qp_num] = <uintptr_t><void *>qp
    pd.children += 1
    send_cq.children += 1
    recv_cq.children += 1
    if srq is not None:
        srq.children += 1
    pd.context.elements[<uintptr_t>pointer] = qp
    return qp


def ibv_create_qp(PD pd not None, *, int qp_type, CQ send_cq not None, CQ recv_cq not None, SRQ srq=None,
                  int max_send_wr=1, int max_recv_wr=1, int max_send_sge=1, int max_recv_sge=1, int max_inline_data=0,
                  bint sq_sig_all=False):
    """Create a queue pair. Its `cap` says what the library made of the capacities."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_qp_init_attr_ex attr  # struct ibv_qp_init_attr is its beginning
    cdef ibv_qp *pointer
    cdef int error
    fill_qp(&attr, pd, qp_type, send_cq, recv_cq, srq, max_send_wr, max_recv_wr, max_send_sge, max_recv_sge,
            max_inline_data, sq_sig_all)
    with nogil:
        pointer = c_ibv_create_qp(parent, <ibv_qp_init_attr *>&attr)
        error = errno
    if pointer == NULL:
        raise failure(error, qp_call("ibv_create_qp", &attr))
    return bound_qp(new_qp(pd, pointer, send_cq, recv_cq, srq, &attr.cap, sq_sig_all))


def ibv_create_qp_ex(PD pd not None, *, int qp_type, CQ send_cq not None, CQ recv_cq not None, SRQ srq=None,
                     int max_send_wr=1, int max_recv_wr=1, int max_send_sge=1, int max_recv_sge=1,
                     int max_inline_data=0, bint sq_sig_all=False, uint64_t send_ops_flags=0, uint32_t create_flags=0,
                     uint32_t source_qpn=0, uint16_t max_tso_header=0):
    """The extended form: with IBV_QP_EX_WITH_* in send_ops_flags for ibv_wr_start, and IBV_QP_CREATE_*."""
    cdef ibv_context *context = pd.context.get()
    cdef ibv_qp_init_attr_ex attr
    cdef ibv_qp *pointer
    cdef int error
    fill_qp(&attr, pd, qp_type, send_cq, recv_cq, srq, max_send_wr, max_recv_wr, max_send_sge, max_recv_sge,
            max_inline_data, sq_sig_all)
    fill_qp_ex(&attr, send_ops_flags, create_flags, source_qpn, max_tso_header)
    with nogil:
        pointer = c_ibv_create_qp_ex(context, &attr)
        error = errno
    if pointer == NULL:
        raise failure(error, qp_call("ibv_create_qp_ex", &attr))
    cdef QP qp = bound_qp(new_qp(pd, pointer, send_cq, recv_cq, srq, &attr.cap, sq_sig_all))
    qp.ex = c_ibv_qp_to_qp_ex(pointer)
    return qp


cdef void fill_qp_ex(ibv_qp_init_attr_ex *attr, uint64_t send_ops_flags, uint32_t create_flags, uint32_t source_qpn,
                     uint16_t max_tso_header) noexcept:
    attr.send_ops_flags = send_ops_flags
    attr.create_flags = create_flags
    attr.source_qpn = source_qpn
    attr.max_tso_header = max_tso_header
    if send_ops_flags:
        attr.comp_mask |= c_QP_INIT_ATTR_SEND_OPS_FLAGS
    if create_flags:
        attr.comp_mask |= c_QP_INIT_ATTR_CREATE_FLAGS
    if max_tso_header:
        attr.comp_mask |= c_QP_INIT_ATTR_MAX_TSO_HEADER


def mlx5dv_create_qp(PD pd not None, *, int qp_type, CQ send_cq not None, CQ recv_cq not None, SRQ srq=None,
                     int max_send_wr=1, int max_recv_wr=1, int max_send_sge=1, int max_recv_sge=1,
                     int max_inline_data=0, bint sq_sig_all=False, uint64_t send_ops_flags=0, uint32_t create_flags=0,
                     uint32_t source_qpn=0, uint16_t max_tso_header=0, uint64_t dv_comp_mask=0,
                     uint32_t dv_create_flags=0, uint64_t dv_send_ops_flags=0):
    """ibv_create_qp_ex with the fields of struct mlx5dv_qp_init_attr that dv_comp_mask names."""
    cdef ibv_context *context = pd.context.get()
    cdef ibv_qp_init_attr_ex attr
    cdef mlx5dv_qp_init_attr dv
    cdef ibv_qp *pointer
    cdef int error
    fill_qp(&attr, pd, qp_type, send_cq, recv_cq, srq, max_send_wr, max_recv_wr, max_send_sge, max_recv_sge,
            max_inline_data, sq_sig_all)
    fill_qp_ex(&attr, send_ops_flags, create_flags, source_qpn, max_tso_header)
    memset(&dv, 0, sizeof(dv))
    dv.comp_mask = dv_comp_mask
    dv.create_flags = dv_create_flags
    dv.send_ops_flags = dv_send_ops_flags
    with nogil:
        pointer = c_mlx5dv_create_qp(context, &attr, &dv)
        error = errno
    if pointer == NULL:
        raise failure(error, qp_call("mlx5dv_create_qp", &attr))
    cdef QP qp = bound_qp(new_qp(pd, pointer, send_cq, recv_cq, srq, &attr.cap, sq_sig_all))
    if send_ops_flags or dv_send_ops_flags:
        qp.ex = c_ibv_qp_to_qp_ex(pointer)
    return qp


def wrap_qp(uintptr_t c_pointer, owner=None):
    """A QP over another library's struct ibv_qp, which `owner` keeps open; close() does not destroy it.

    Its pd and queues are wrapped too. Its capacities are asked of the device.
    """
    if c_pointer == 0:
        raise ArgumentError("the address of a struct ibv_qp is not 0")
    cdef ibv_qp *pointer = <ibv_qp *>c_pointer
    cdef ibv_qp_attr attr
    cdef ibv_qp_init_attr init
    cdef int rc
    memset(&attr, 0, sizeof(attr))
    memset(&init, 0, sizeof(init))
    with nogil:
        rc = c_ibv_query_qp(pointer, &attr, IBV_QP_CAP, &init)
    if rc:
        raise failure(errno_of(rc), f"ibv_query_qp(qp_num=0x{pointer.qp_num:x}, IBV_QP_CAP)")
    cdef CQ send_cq = wrap_cq(<uintptr_t>pointer.send_cq, owner)
    cdef CQ recv_cq = wrap_cq(<uintptr_t>pointer.recv_cq, owner) if pointer.recv_cq != pointer.send_cq else send_cq
    cdef QP qp = new_qp(wrap_pd(<uintptr_t>pointer.pd, owner), pointer, send_cq, recv_cq, None, &attr.cap)
    qp.origin = BORROWED
    qp.owner = owner
    qp.is_lent = True
    qp.sq.known = False
    return qp


@cython.no_gc
cdef class QP(Object):
    """struct ibv_qp."""

    cdef ibv_qp *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("queue pair")
        return self.pointer

    cdef ibv_qp *idle(self) except NULL:
        # Between ibv_wr_start and its end the library holds the lock that other posts would wait for.
        if self.pointer == NULL:
            raise closed("queue pair")
        if self.building:
            raise misused(f"ibv_post_send(qp_num=0x{self.pointer.qp_num:x})",
                          "call ibv_wr_complete or ibv_wr_abort first")
        return self.pointer

    cdef void unlink(self):
        if self.send_cq.senders.get(self.number) == <uintptr_t><void *>self:
            del self.send_cq.senders[self.number]

    cdef void forget(self):
        self.unlink()
        self.send_cq.bound -= self.sq.room
        self.recv_cq.bound -= self.may_receive
        self.pd.children -= 1
        self.send_cq.children -= 1
        self.recv_cq.children -= 1
        if self.srq is not None:
            self.srq.children -= 1

    @property
    def c_pointer(self):
        """Address of the C struct, for other libraries; it lives as long as this object is open."""
        self.get()
        self.is_lent = True
        self.sq.known = False
        return <uintptr_t>self.pointer

    @property
    def qp_type(self):
        """IBV_QPT_*."""
        return self.get().qp_type

    @property
    def wr_id(self):
        """wr_id of the next request that an ibv_wr_* call begins."""
        return extended_qp(self, "ibv_qp_ex.wr_id").wr_id

    @wr_id.setter
    def wr_id(self, uint64_t value):
        extended_qp(self, "ibv_qp_ex.wr_id").wr_id = value

    @property
    def wr_flags(self):
        """IBV_SEND_* of the next request that an ibv_wr_* call begins."""
        return extended_qp(self, "ibv_qp_ex.wr_flags").wr_flags

    @wr_flags.setter
    def wr_flags(self, unsigned int value):
        extended_qp(self, "ibv_qp_ex.wr_flags").wr_flags = value

    @property
    def qp_num(self):
        return self.get().qp_num

    @property
    def handle(self):
        return self.get().handle

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """ibv_destroy_qp; EBUSY while events wait to be acknowledged."""
        cdef ibv_qp *pointer = self.pointer
        cdef bint mine = self.origin == MADE
        cdef int rc = 0
        if pointer == NULL:
            return
        if self.events:
            raise unread("ibv_destroy_qp()", self.events, "acknowledge (ibv_ack_async_event)")
        not_polled(self.send_cq, "ibv_destroy_qp()")
        not_polled(self.recv_cq, "ibv_destroy_qp()")
        if self.building:
            c_ibv_wr_abort(self.ex)
            self.building = 0
        self.pointer = NULL
        if mine:
            with nogil:
                rc = c_ibv_destroy_qp(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_destroy_qp()")
        self.forget()

    def __dealloc__(self):
        cdef ibv_qp *pointer = self.pointer
        if pointer != NULL and self.process == getpid():
            if self.building:
                c_ibv_wr_abort(self.ex)
            self.send_cq.leave()
            self.recv_cq.leave()
            if self.origin == MADE:
                with nogil:
                    c_ibv_destroy_qp(pointer)
            self.forget()
        elif pointer != NULL:
            self.unlink()
        free(self.sq.marks)


def ibv_modify_qp(QP qp not None, int attr_mask, *, int qp_state=0, int cur_qp_state=0, int path_mtu=0,
                  uint32_t qkey=0, uint32_t rq_psn=0, uint32_t sq_psn=0, uint32_t dest_qp_num=0,
                  unsigned int qp_access_flags=0, int pkey_index=0, int port_num=0, int max_rd_atomic=0,
                  int max_dest_rd_atomic=0, int min_rnr_timer=0, int timeout=0, int retry_cnt=0, int rnr_retry=0,
                  bytes dgid=None, int sgid_index=0, int hop_limit=64, int traffic_class=0,
                  unsigned int flow_label=0, int dlid=0, int sl=0, bint is_global=True, int path_mig_state=0,
                  bint en_sqd_async_notify=False, uint32_t rate_limit=0):
    """Modify a queue pair: the fields of struct ibv_qp_attr that IBV_QP_* in attr_mask name; IBV_QP_AV: dgid to sl.

    Not here: the alternate path of InfiniBand (IBV_QP_ALT_PATH), which Ethernet does not have, and IBV_QP_CAP.
    """
    cdef ibv_qp *pointer = qp.get()
    cdef ibv_qp_attr attr
    cdef int rc
    not_polled(qp.send_cq, f"ibv_modify_qp(qp_num=0x{pointer.qp_num:x})")
    not_polled(qp.recv_cq, f"ibv_modify_qp(qp_num=0x{pointer.qp_num:x})")
    memset(&attr, 0, sizeof(attr))
    attr.qp_state = qp_state
    attr.cur_qp_state = cur_qp_state
    attr.path_mtu = path_mtu
    attr.qkey = qkey
    attr.rq_psn = rq_psn
    attr.sq_psn = sq_psn
    attr.dest_qp_num = dest_qp_num
    attr.qp_access_flags = qp_access_flags
    attr.pkey_index = pkey_index
    attr.port_num = port_num
    attr.max_rd_atomic = max_rd_atomic
    attr.max_dest_rd_atomic = max_dest_rd_atomic
    attr.min_rnr_timer = min_rnr_timer
    attr.timeout = timeout
    attr.retry_cnt = retry_cnt
    attr.rnr_retry = rnr_retry
    attr.path_mig_state = path_mig_state
    attr.en_sqd_async_notify = en_sqd_async_notify
    attr.rate_limit = rate_limit
    fill_address(&attr.ah_attr, port_num, dlid, sl, is_global, dgid, sgid_index, hop_limit, traffic_class, flow_label)
    with nogil:
        rc = c_ibv_modify_qp(pointer, &attr, attr_mask)
    if rc:
        raise failure(errno_of(rc), f"ibv_modify_qp(qp_num=0x{qp.qp_num:x}, attr_mask=0x{attr_mask:x}, "
                                    f"qp_state={qp_state})")
    if attr_mask & IBV_QP_STATE and qp_state == IBV_QPS_RESET:  # the library has emptied its queues, too
        qp.sq.posted = qp.sq.free_from = qp.sq.begun = qp.sq.first_mark = qp.sq.end_mark = 0
        qp.sq.known = qp.sq.marks != NULL and not (qp.is_lent or qp.send_cq.is_lent)


def ibv_query_qp(QP qp not None, int attr_mask):
    """struct ibv_qp_attr as a dict with its field names (the address vector as port_num, dgid, sgid_index, ...)."""
    cdef ibv_qp *pointer = qp.get()
    cdef ibv_qp_attr attr
    cdef ibv_qp_init_attr init
    cdef int rc
    memset(&attr, 0, sizeof(attr))
    memset(&init, 0, sizeof(init))
    with nogil:
        rc = c_ibv_query_qp(pointer, &attr, attr_mask, &init)
    if rc:
        raise failure(errno_of(rc), f"ibv_query_qp(qp_num=0x{qp.qp_num:x}, attr_mask=0x{attr_mask:x})")
    return {
        "qp_state": attr.qp_state, "cur_qp_state": attr.cur_qp_state, "path_mtu": attr.path_mtu, "qkey": attr.qkey,
        "rq_psn": attr.rq_psn, "sq_psn": attr.sq_psn, "dest_qp_num": attr.dest_qp_num,
        "qp_access_flags": attr.qp_access_flags, "pkey_index": attr.pkey_index, "port_num": attr.port_num,
        "max_rd_atomic": attr.max_rd_atomic, "max_dest_rd_atomic": attr.max_dest_rd_atomic,
        "min_rnr_timer": attr.min_rnr_timer, "timeout": attr.timeout, "retry_cnt": attr.retry_cnt,
        "rnr_retry": attr.rnr_retry, "sq_draining": attr.sq_draining,
        "dgid": PyBytes_FromStringAndSize(<char *>attr.ah_attr.grh.dgid.raw, 16),
        "sgid_index": attr.ah_attr.grh.sgid_index, "hop_limit": attr.ah_attr.grh.hop_limit,
        "traffic_class": attr.ah_attr.grh.traffic_class, "dlid": attr.ah_attr.dlid, "cap": capacity(&attr.cap),
        "path_mig_state": attr.path_mig_state, "en_sqd_async_notify": attr.en_sqd_async_notify,
        "rate_limit": attr.rate_limit, "sq_sig_all": init.sq_sig_all,
    }


def ibv_modify_qp_rate_limit(QP qp not None, *, uint32_t rate_limit, uint32_t max_burst_sz=0,
                             uint16_t typical_pkt_sz=0):
    """Pace a queue pair: kbit/s, bytes in a burst, bytes of a typical packet."""
    cdef ibv_qp *pointer = qp.get()
    cdef ibv_qp_rate_limit_attr attr
    cdef int rc
    memset(&attr, 0, sizeof(attr))
    attr.rate_limit = rate_limit
    attr.max_burst_sz = max_burst_sz
    attr.typical_pkt_sz = typical_pkt_sz
    with nogil:
        rc = c_ibv_modify_qp_rate_limit(pointer, &attr)
    if rc:
        raise failure(errno_of(rc), f"ibv_modify_qp_rate_limit(qp_num=0x{pointer.qp_num:x}, rate_limit={rate_limit})")


def ibv_query_qp_data_in_order(QP qp not None, int op, uint32_t flags=0):
    """True if data of IBV_WR_* `op` is promised to arrive in memory in order."""
    cdef ibv_qp *pointer = qp.get()
    cdef int rc
    with nogil:
        rc = c_ibv_query_qp_data_in_order(pointer, op, flags)
    return rc > 0


def ibv_query_ece(QP qp not None):
    """Enhanced connection establishment: (vendor_id, options, comp_mask) to offer the peer."""
    cdef ibv_qp *pointer = qp.get()
    cdef ibv_ece ece
    cdef int rc
    memset(&ece, 0, sizeof(ece))
    with nogil:
        rc = c_ibv_query_ece(pointer, &ece)
    if rc:
        raise failure(errno_of(rc), f"ibv_query_ece(qp_num=0x{pointer.qp_num:x})")
    return ece.vendor_id, ece.options, ece.comp_mask


def ibv_set_ece(QP qp not None, uint32_t vendor_id, uint32_t options, uint32_t comp_mask=0):
    """Ask for the options agreed with the peer, before the transition to RTR."""
    cdef ibv_qp *pointer = qp.get()
    cdef ibv_ece ece
    cdef int rc
    ece.vendor_id = vendor_id
    ece.options = options
    ece.comp_mask = comp_mask
    with nogil:
        rc = c_ibv_set_ece(pointer, &ece)
    if rc:
        raise failure(errno_of(rc), f"ibv_set_ece(qp_num=0x{pointer.qp_num:x}, options=0x{options:x})")


def mlx5dv_init_obj_qp(QP qp not None):
    """DvQp: where the rings of the queue pair lie."""
    cdef mlx5dv_qp out
    cdef ibv_qp *pointer = qp.get()
    cdef int rc
    memset(&out, 0, sizeof(out))
    out.comp_mask = c_DV_QP_UAR | c_DV_QP_RAW
    with nogil:
        rc = c_mlx5dv_init_obj_qp(pointer, &out)
    if rc:
        raise failure(errno_of(rc), "mlx5dv_init_obj(MLX5DV_OBJ_QP)")
    return DvQp(<uintptr_t>out.dbrec, <uintptr_t>out.sq.buf, out.sq.wqe_cnt, out.sq.stride, <uintptr_t>out.rq.buf,
                out.rq.wqe_cnt, out.rq.stride, <uintptr_t>out.bf.reg, out.bf.size, out.uar_mmap_offset,
                out.tirn, out.tisn, out.rqn, out.sqn)


cdef int fill_pieces(ibv_sge *sges, sg_list) except -1:
    cdef int count = 0
    for addr, length, lkey in sg_list:
        if count == 32:
            raise ArgumentError("a work request here has at most 32 pieces of memory", "post several requests")
        sges[count].addr = addr
        sges[count].length = length
        sges[count].lkey = lkey
        count += 1
    return count


cdef int set_pieces(ibv_sge **sges, int *room, sg_list) except -1:
    """Grow the array of a prepared request to hold the pieces; their number."""
    pieces = list(sg_list)
    cdef int count = len(pieces)
    cdef ibv_sge *larger
    if count > room[0]:
        larger = <ibv_sge *>realloc(sges[0], count * sizeof(ibv_sge))
        if larger == NULL:
            raise MemoryError(f"{count} pieces of memory")
        sges[0] = larger
        room[0] = count
    for i, (addr, length, lkey) in enumerate(pieces):
        sges[0][i].addr = addr
        sges[0][i].length = length
        sges[0][i].lkey = lkey
    return count


cdef list pieces_of(ibv_sge *sges, int count):
    return [(sges[i].addr, sges[i].length, sges[i].lkey) for i in range(count)]


cdef object no_piece(int index, int count):
    return ArgumentError(f"piece {index} of a request with {count}", "give sg_list as many pieces first")


# The collector must not clear these: the C struct points at memory of the next request and of the address handle.
@cython.no_gc_clear
cdef class SendWR:
    """struct ibv_send_wr with its pieces (addr, length, lkey): filled once, posted as often as wanted.

    remote_addr and rkey serve RDMA and atomic operations, ah, remote_qpn and remote_qkey datagrams. `next` chains
    requests, which one call posts together; it and the address handle are kept alive.
    """

    def __init__(self, *, int opcode, sg_list=(), uint64_t wr_id=0, unsigned int send_flags=0, uint64_t remote_addr=0,
                 uint32_t rkey=0, uint32_t imm_data=0, uint64_t compare_add=0, uint64_t swap=0, AH ah=None,
                 uint32_t remote_qpn=0, uint32_t remote_qkey=0, uint32_t invalidate_rkey=0, SendWR next=None):
        self.wr.opcode = opcode
        self.wr.wr_id = wr_id
        self.wr.send_flags = send_flags
        if opcode == IBV_WR_SEND_WITH_INV or opcode == IBV_WR_LOCAL_INV:
            self.wr.invalidate_rkey = invalidate_rkey
        else:
            self.wr.imm_data = htonl(imm_data)
        if opcode == IBV_WR_ATOMIC_CMP_AND_SWP or opcode == IBV_WR_ATOMIC_FETCH_AND_ADD:
            self.wr.wr.atomic.remote_addr = remote_addr
            self.wr.wr.atomic.rkey = rkey
            self.wr.wr.atomic.compare_add = compare_add
            self.wr.wr.atomic.swap = swap
        elif ah is not None:
            self.wr.wr.ud.ah = ah.get()
            self.wr.wr.ud.remote_qpn = remote_qpn
            self.wr.wr.ud.remote_qkey = remote_qkey
            self.handle = ah
        else:
            self.wr.wr.rdma.remote_addr = remote_addr
            self.wr.wr.rdma.rkey = rkey
        self.sg_list = sg_list
        self.next = next

    @property
    def wr_id(self):
        return self.wr.wr_id

    @wr_id.setter
    def wr_id(self, uint64_t value):
        self.wr.wr_id = value

    @property
    def opcode(self):
        return self.wr.opcode

    @property
    def send_flags(self):
        return self.wr.send_flags

    @send_flags.setter
    def send_flags(self, unsigned int value):
        self.wr.send_flags = value

    @property
    def imm_data(self):
        """Host byte order."""
        return ntohl(self.wr.imm_data)

    @imm_data.setter
    def imm_data(self, uint32_t value):
        self.wr.imm_data = htonl(value)

    @property
    def remote_addr(self):
        return self.wr.wr.rdma.remote_addr  # the first field of all three kinds

    @remote_addr.setter
    def remote_addr(self, uint64_t value):
        if self.handle is not None:
            raise ArgumentError("a datagram has no remote address")
        self.wr.wr.rdma.remote_addr = value

    @property
    def compare_add(self):
        return self.wr.wr.atomic.compare_add

    @compare_add.setter
    def compare_add(self, uint64_t value):
        if self.wr.opcode != IBV_WR_ATOMIC_CMP_AND_SWP and self.wr.opcode != IBV_WR_ATOMIC_FETCH_AND_ADD:
            raise ArgumentError(f"opcode {self.wr.opcode} is no atomic operation")
        self.wr.wr.atomic.compare_add = value

    @property
    def sg_list(self):
        return pieces_of(self.wr.sg_list, self.wr.num_sge)

    @sg_list.setter
    def sg_list(self, value):
        self.wr.num_sge = set_pieces(&self.wr.sg_list, &self.room, value)

    def set_sge(self, int index, uint64_t addr, uint32_t length, uint32_t lkey):
        """Change one piece: cheaper than a new sg_list."""
        if not 0 <= index < self.wr.num_sge:
            raise no_piece(index, self.wr.num_sge)
        self.wr.sg_list[index].addr = addr
        self.wr.sg_list[index].length = length
        self.wr.sg_list[index].lkey = lkey

    @property
    def ah(self):
        return self.handle

    @property
    def next(self):
        return self.following

    @next.setter
    def next(self, SendWR value):
        cdef SendWR other = value
        while other is not None:
            if other is self:
                raise ArgumentError("a chain of requests would have no end")
            other = other.following
        self.following = value
        self.wr.next = &value.wr if value is not None else NULL

    def __dealloc__(self):
        free(self.wr.sg_list)


@cython.no_gc_clear
cdef class RecvWR:
    """struct ibv_recv_wr with its pieces (addr, length, lkey); see SendWR."""

    def __init__(self, *, sg_list=(), uint64_t wr_id=0, RecvWR next=None):
        self.wr.wr_id = wr_id
        self.sg_list = sg_list
        self.next = next

    @property
    def wr_id(self):
        return self.wr.wr_id

    @wr_id.setter
    def wr_id(self, uint64_t value):
        self.wr.wr_id = value

    @property
    def sg_list(self):
        return pieces_of(self.wr.sg_list, self.wr.num_sge)

    @sg_list.setter
    def sg_list(self, value):
        self.wr.num_sge = set_pieces(&self.wr.sg_list, &self.room, value)

    def set_sge(self, int index, uint64_t addr, uint32_t length, uint32_t lkey):
        """Change one piece: cheaper than a new sg_list."""
        if not 0 <= index < self.wr.num_sge:
            raise no_piece(index, self.wr.num_sge)
        self.wr.sg_list[index].addr = addr
        self.wr.sg_list[index].length = length
        self.wr.sg_list[index].lkey = lkey

    @property
    def next(self):
        return self.following

    @next.setter
    def next(self, RecvWR value):
        cdef RecvWR other = value
        while other is not None:
            if other is self:
                raise ArgumentError("a chain of requests would have no end")
            other = other.following
        self.following = value
        self.wr.next = &value.wr if value is not None else NULL

    def __dealloc__(self):
        free(self.wr.sg_list)


cdef int check_handles(SendWR wr) except -1:
    # The library would follow the pointer of a closed address handle.
    while wr is not None:
        if wr.handle is not None:
            wr.handle.get()
        wr = wr.following
    return 0


cdef inline void count_one(QP qp, unsigned int send_flags) noexcept:
    qp.sq.posted += 1
    if send_flags & IBV_SEND_SIGNALED or qp.sq.all_signaled:
        mark(&qp.sq, qp.sq.posted)


cdef void mark(SendQueue *sq, uint64_t posted) noexcept:
    if sq.end_mark - sq.first_mark > sq.mask:
        sq.known = False  # more outstanding than fit: somebody else polls
    elif sq.marks != NULL:
        sq.marks[sq.end_mark & sq.mask] = posted
        sq.end_mark += 1


cdef void count_chain(QP qp, ibv_send_wr *wr, ibv_send_wr *end) noexcept:
    while wr != NULL and wr != end:
        count_one(qp, wr.send_flags)
        wr = wr.next


cdef void begun(QP qp, ibv_qp_ex *ex) noexcept:
    qp.building = 2
    qp.sq.begun += 1
    if ex.wr_flags & IBV_SEND_SIGNALED or qp.sq.all_signaled:
        mark(&qp.sq, qp.sq.posted + qp.sq.begun)


cdef void drop_begun(QP qp) noexcept:
    qp.sq.begun = 0
    while qp.sq.end_mark > qp.sq.first_mark and qp.sq.marks[(qp.sq.end_mark - 1) & qp.sq.mask] > qp.sq.posted:
        qp.sq.end_mark -= 1


cdef inline uint64_t in_use(QP qp) noexcept:
    return qp.sq.posted - qp.sq.free_from


cdef tuple fullness(QP qp, begin=""):
    """Advice and reason of a full send queue; requests that were posted in error do not change it."""
    cdef uint64_t signaled = qp.sq.end_mark - qp.sq.first_mark
    reason = f"{begin}SQ full: {in_use(qp)} posted, {signaled} signaled"
    if signaled:
        return "poll their completions first: each frees its slot and those before it", reason
    return (f"signal at least one request in {qp.sq.room}, and poll; this queue must be reset",
            reason + "; no completion can ever free a slot")


def ibv_post_send(QP qp not None, SendWR wr not None):
    """Post a prepared request with those chained to it. Holds the GIL: too short to give it up.

    When the library refuses one of a chain, those before it were posted; the message says how many. Raises PostError,
    whose reason names what the library does not: "SQ full: ...", "TooManySge(2>1)", "InlineTooLong(61>60)".
    """
    cdef ibv_send_wr *bad = NULL
    cdef int rc
    if qp.pointer == NULL or qp.building:
        qp.idle()  # says which
    if wr.handle is not None or wr.following is not None:
        check_handles(wr)
    rc = c_ibv_post_send(qp.pointer, &wr.wr, &bad)
    if rc:
        raise send_failure(errno_of(rc), qp, wr, bad)
    if wr.following is None:
        count_one(qp, wr.wr.send_flags)
    else:
        count_chain(qp, &wr.wr, NULL)


cdef object send_failure(int error, QP qp, SendWR first, ibv_send_wr *bad):
    cdef SendWR wr = first
    cdef int posted = 0
    while wr.following is not None and &wr.wr != bad:
        wr = wr.following
        posted += 1
    count_chain(qp, &first.wr, &wr.wr)
    return refused(error, qp, &wr.wr, posted)


cdef object refused(int error, QP qp, ibv_send_wr *wr, int posted):
    """The library refused this request after `posted` others of the call, which are counted already."""
    cdef uint64_t bytes = 0
    call = (f"ibv_post_send(qp_num=0x{qp.pointer.qp_num:x}, opcode={<int>wr.opcode}, wr_id={wr.wr_id}, "
            f"num_sge={wr.num_sge})" + (f" after {posted} posted" if posted else ""))
    advice, reason = advice_on("ibv_post_send", error), ""
    if error == ENOMEM:
        for i in range(wr.num_sge):
            bytes += wr.sg_list[i].length
        if <unsigned int>wr.num_sge > qp.max_sge:
            advice, reason = "post several requests, or ask for a larger max_send_sge", \
                f"TooManySge({wr.num_sge}>{qp.max_sge})"
        elif wr.send_flags & IBV_SEND_INLINE and bytes > qp.max_inline:
            advice, reason = "send it from registered memory, or ask for a larger max_inline_data", \
                f"InlineTooLong({bytes}>{qp.max_inline})"
        elif qp.sq.known and in_use(qp) >= qp.sq.room:
            advice, reason = fullness(qp)
    return PostError(call, error, advice, reason, posted)


def post_send(QP qp not None, unsigned int opcode, uint64_t addr, uint32_t length, uint32_t lkey,
              uint64_t remote_addr=0, uint32_t rkey=0, uint64_t wr_id=0, unsigned int send_flags=0,
              uint32_t imm_data=0, uint64_t compare_add=0, uint64_t swap=0):
    """Build one request with one piece of memory and post it: ibv_post_send without an object. Nothing is checked.

    Arguments by position are cheapest. For IBV_WR_SEND*, RDMA and atomic operations; datagrams need a SendWR.
    """
    cdef ibv_send_wr wr
    cdef ibv_sge sge
    cdef ibv_send_wr *bad = NULL
    cdef WorkRequest row
    cdef int rc
    if qp.pointer == NULL or qp.building:
        qp.idle()
    if opcode > IBV_WR_ATOMIC_FETCH_AND_ADD or qp.pointer.qp_type == IBV_QPT_UD:
        raise ArgumentError(f"post_send(opcode={opcode}) on a queue pair of type {qp.pointer.qp_type}",
                            "opcodes 0 (RDMA WRITE) to 6 (fetch-and-add) of RC and UC; others need a SendWR")
    row = WorkRequest(wr_id, addr, remote_addr, compare_add, swap, length, lkey, rkey, imm_data, opcode, send_flags)
    fill_request(&wr, &sge, &row)
    wr.next = NULL
    rc = c_ibv_post_send(qp.pointer, &wr, &bad)
    if rc:
        raise refused(errno_of(rc), qp, &wr, 0)
    count_one(qp, send_flags)


# ------------------------------------------------------------------------------------------------- batches of requests
cdef tuple work_request_fields():
    cdef WorkRequest row
    cdef char *at = <char *>&row
    return (
        ("wr_id", "u8", <char *>&row.wr_id - at),
        ("local_addr", "u8", <char *>&row.local_addr - at),
        ("remote_addr", "u8", <char *>&row.remote_addr - at),
        ("compare_add", "u8", <char *>&row.compare_add - at),
        ("swap", "u8", <char *>&row.swap - at),
        ("length", "u4", <char *>&row.length - at),
        ("lkey", "u4", <char *>&row.lkey - at),
        ("rkey", "u4", <char *>&row.rkey - at),
        ("imm_data", "u4", <char *>&row.imm_data - at),
        ("opcode", "u4", <char *>&row.opcode - at),
        ("send_flags", "u4", <char *>&row.send_flags - at),
    )


# Fields of a row: name, type (host byte order), offset.
WORK_REQUEST_FIELDS = work_request_fields()
WORK_REQUEST_BYTES = <int>sizeof(WorkRequest)

cdef enum:
    ROWS_PER_CALL = 32  # requests per ibv_post_send, so per doorbell; their structs stay in the first-level cache
    ANY_ACCESS = 0xffffffff
    MOST_BYTES = 1 << 30  # of one message: max_msg_sz of every ConnectX


cdef enum Fault:
    FINE
    OPCODE
    FLAGS
    TOO_LONG
    INLINE_OPCODE
    INLINE_LENGTH
    ATOMIC_LENGTH
    ATOMIC_ADDRESS
    LKEY
    LOCAL_RANGE
    LOCAL_RIGHT
    INLINE_MEMORY
    RKEY
    REMOTE_RANGE
    REMOTE_RIGHT


cdef inline void fill_request(ibv_send_wr *wr, ibv_sge *sge, const WorkRequest *row) noexcept nogil:
    sge.addr = row.local_addr
    sge.length = row.length
    sge.lkey = row.lkey
    wr.wr_id = row.wr_id
    wr.sg_list = sge
    wr.num_sge = 1 if row.length else 0
    wr.opcode = row.opcode
    wr.send_flags = row.send_flags
    wr.imm_data = htonl(row.imm_data)
    if row.opcode == IBV_WR_ATOMIC_CMP_AND_SWP or row.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD:
        wr.wr.atomic.remote_addr = row.remote_addr
        wr.wr.atomic.compare_add = row.compare_add
        wr.wr.atomic.swap = row.swap
        wr.wr.atomic.rkey = row.rkey
    else:
        wr.wr.rdma.remote_addr = row.remote_addr
        wr.wr.rdma.rkey = row.rkey


cdef Region region_of(thing, bint remote) except *:
    cdef Region region
    cdef MR mr
    if isinstance(thing, MR):
        mr = thing
        mr.get()
        if mr.access is None and mr.pointer.addr == NULL:
            raise ArgumentError("a memory region that another process registered has keys, but no address here",
                                "give its address, length and key as numbers")
        region.start = mr.start if mr.access is not None else <uintptr_t>mr.pointer.addr
        region.length = mr.pointer.length
        region.mapped = <uintptr_t>mr.pointer.addr if mr.is_mapped else 0
        region.key = mr.pointer.rkey if remote else mr.pointer.lkey
        region.access = mr.access if mr.access is not None else ANY_ACCESS
        return region
    start, length, key, *more = thing
    region.start, region.length, region.key = start, length, key
    region.mapped = 0 if remote else region.start
    region.access = more[0] if more else ANY_ACCESS
    return region


cdef Region *region_table(things, bint remote) except NULL:
    cdef Region *table = <Region *>malloc((len(things) + 1) * sizeof(Region))
    if table == NULL:
        raise MemoryError(f"{len(things)} regions")
    try:
        for i, thing in enumerate(things):
            table[i] = region_of(thing, remote)
    except BaseException:
        free(table)
        raise
    qsort(table, len(things), sizeof(Region), by_key)
    return table


cdef int by_key(const void *a, const void *b) noexcept nogil:
    cdef uint32_t one = (<const Region *>a).key
    cdef uint32_t other = (<const Region *>b).key
    return (one > other) - (one < other)


cdef class Regions:
    """Memory that requests of batches may use, found by its key: each row is checked against it before any is posted.

    `local` and `remote` hold MRs, or tuples (address, length, key[, access]) of memory that was registered elsewhere.
    Without `remote` (None) remote addresses are left for the other side to judge. MRs are kept alive; a batch is
    refused when one has been closed. INLINE rows read their memory at once, so theirs must be mapped in this process.
    """

    def __init__(self, local=(), remote=None):
        here = tuple(local)
        there = tuple(remote) if remote is not None else ()
        if self.local != NULL:
            raise ArgumentError("a Regions object is made once", "make another")
        self.local = region_table(here, False)
        self.remote = region_table(there, True)
        self.local_count, self.remote_count = len(here), len(there)
        self.remote_checked = remote is not None
        self.kept = here + there

    cdef int check_open(self, QP qp) except -1:
        cdef MR mr
        for i, thing in enumerate(self.kept):
            if isinstance(thing, MR):
                mr = thing
                mr.get()
                if i < self.local_count and mr.pd is not qp.pd and mr.pd.context is qp.pd.context \
                        and mr.pd.parent is None and qp.pd.parent is None:
                    raise ArgumentError(f"lkey 0x{mr.pointer.lkey:x} is of another protection domain than queue pair "
                                        f"0x{qp.pointer.qp_num:x}", "register the memory in the queue pair's own")
        return 0

    def __dealloc__(self):
        free(self.local)
        free(self.remote)


cdef inline const Region *region_with(const Region *table, int count, uint32_t key, const Region *last) noexcept nogil:
    cdef int first = 0
    cdef int middle
    if last != NULL and last.key == key:
        return last
    while first < count:  # the table is sorted
        middle = first + (count - first) // 2
        if table[middle].key == key:
            return &table[middle]
        if table[middle].key < key:
            first = middle + 1
        else:
            count = middle
    return NULL


cdef inline bint covers(const Region *region, uint64_t start, uint64_t addr, uint64_t length) noexcept nogil:
    return addr >= start and length <= region.length and addr - start <= region.length - length


cdef struct Checked:
    Fault fault
    int row
    int signaled


cdef Checked check_rows(const WorkRequest *rows, int count, int qp_type, unsigned int max_inline,
                        const Region *local, int local_count, const Region *remote, int remote_count,
                        bint remote_checked) noexcept nogil:
    """The first row that must not be posted, and why; how many are signaled."""
    cdef Checked out
    cdef const WorkRequest *row
    cdef const Region *here = NULL
    cdef const Region *there = NULL
    cdef uint32_t last_opcode = IBV_WR_ATOMIC_FETCH_AND_ADD if qp_type == IBV_QPT_RC else IBV_WR_SEND_WITH_IMM
    cdef uint32_t flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE
    cdef uint32_t wanted
    cdef bint connected = qp_type == IBV_QPT_RC or qp_type == IBV_QPT_UC  # datagrams need an address handle each
    cdef bint fetches
    cdef Fault fault = FINE
    cdef int i = 0
    out.signaled = 0
    while i < count:
        row = &rows[i]
        fault = FINE
        fetches = row.opcode >= IBV_WR_RDMA_READ
        if row.opcode > last_opcode or not connected:
            fault = OPCODE
        elif row.send_flags & ~flags:
            fault = FLAGS
        elif row.length > <uint32_t>MOST_BYTES:
            fault = TOO_LONG
        elif row.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP and row.length != 8:
            fault = ATOMIC_LENGTH
        elif row.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP and row.remote_addr % 8:
            fault = ATOMIC_ADDRESS
        elif row.send_flags & IBV_SEND_INLINE and fetches:
            fault = INLINE_OPCODE
        elif row.send_flags & IBV_SEND_INLINE and row.length > max_inline:
            fault = INLINE_LENGTH
        elif row.length:
            here = region_with(local, local_count, row.lkey, here)
            if here == NULL:
                fault = LKEY
            elif row.send_flags & IBV_SEND_INLINE:
                if here.mapped == 0:
                    fault = INLINE_MEMORY
                elif not covers(here, here.mapped, row.local_addr, row.length):
                    fault = LOCAL_RANGE
            elif not covers(here, here.start, row.local_addr, row.length):
                fault = LOCAL_RANGE
            elif fetches and not here.access & IBV_ACCESS_LOCAL_WRITE:
                fault = LOCAL_RIGHT
            if fault == FINE and remote_checked and (row.opcode <= IBV_WR_RDMA_WRITE_WITH_IMM or fetches):
                there = region_with(remote, remote_count, row.rkey, there)
                wanted = IBV_ACCESS_REMOTE_ATOMIC
                if row.opcode == IBV_WR_RDMA_READ:
                    wanted = IBV_ACCESS_REMOTE_READ
                elif not fetches:
                    wanted = IBV_ACCESS_REMOTE_WRITE
                if there == NULL:
                    fault = RKEY
                elif not covers(there, there.start, row.remote_addr, row.length):
                    fault = REMOTE_RANGE
                elif not there.access & wanted:
                    fault = REMOTE_RIGHT
        if fault != FINE:
            break
        if row.send_flags & IBV_SEND_SIGNALED:
            out.signaled += 1
        i += 1
    out.fault = fault
    out.row = i
    return out


cdef str opcode_name(uint32_t opcode):
    names = ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP",
             "ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "BIND_MW", "SEND_WITH_INV", "TSO")
    return f"IBV_WR_{names[opcode]}" if opcode < <uint32_t>len(names) else f"opcode {opcode}"


cdef str fault_text(QP qp, Fault fault, const WorkRequest *row, Regions regions):
    cdef const Region *here = region_with(regions.local, regions.local_count, row.lkey, NULL)
    cdef const Region *there = region_with(regions.remote, regions.remote_count, row.rkey, NULL)
    if fault == OPCODE:
        return f"{opcode_name(row.opcode)} cannot be posted in a batch on a queue pair of type {qp.pointer.qp_type}"
    if fault == FLAGS:
        return f"send_flags=0x{row.send_flags:x} has others than FENCE 1, SIGNALED 2, SOLICITED 4 and INLINE 8"
    if fault == TOO_LONG:
        return f"{row.length} bytes are more than a message carries, {<int>MOST_BYTES}"
    if fault == ATOMIC_LENGTH:
        return f"an atomic operation moves 8 bytes, not {row.length}"
    if fault == ATOMIC_ADDRESS:
        return f"an atomic operation needs a multiple of 8, not remote_addr=0x{row.remote_addr:x}"
    if fault == INLINE_OPCODE:
        return f"{opcode_name(row.opcode)} brings data here, so it cannot be INLINE"
    if fault == INLINE_LENGTH:
        return f"InlineTooLong({row.length}>{qp.max_inline})"
    if fault == LKEY:
        return f"lkey=0x{row.lkey:x} is of none of the {regions.local_count} local regions"
    if fault == INLINE_MEMORY:
        return f"INLINE data of lkey=0x{row.lkey:x} is not mapped in this process"
    if fault == LOCAL_RANGE:
        start = here.mapped if row.send_flags & IBV_SEND_INLINE else here.start
        return (f"{row.length} bytes at local_addr=0x{row.local_addr:x} pass the region of lkey=0x{row.lkey:x}, "
                f"{here.length} bytes at 0x{start:x}")
    if fault == LOCAL_RIGHT:
        return f"{opcode_name(row.opcode)} writes here, and lkey=0x{row.lkey:x} has no IBV_ACCESS_LOCAL_WRITE"
    if fault == RKEY:
        return f"rkey=0x{row.rkey:x} is of none of the {regions.remote_count} remote regions"
    if fault == REMOTE_RANGE:
        return (f"{row.length} bytes at remote_addr=0x{row.remote_addr:x} pass the region of rkey=0x{row.rkey:x}, "
                f"{there.length} bytes at 0x{there.start:x}")
    return f"{opcode_name(row.opcode)} is not allowed by rkey=0x{row.rkey:x}, access 0x{there.access:x}"


cdef int check_batch(QP qp, const WorkRequest *rows, int count, Regions regions) except -1:
    """How many rows are signaled; raises for the first that is wrong."""
    cdef Checked found = check_rows(rows, count, qp.pointer.qp_type, qp.max_inline, regions.local, regions.local_count,
                                    regions.remote, regions.remote_count, regions.remote_checked)
    if found.fault == FINE:
        return found.signaled
    cdef const WorkRequest *row = &rows[found.row]
    raise WorkRequestError(
        f"row {found.row} of {count}: {fault_text(qp, found.fault, row, regions)} (wr_id={row.wr_id}, "
        f"{opcode_name(row.opcode)}, length={row.length}); nothing was posted", found.row)


cdef int check_room(QP qp, int count) except -1:
    cdef uint64_t free_slots = qp.sq.room
    if qp.sq.known:
        free_slots = qp.sq.room - in_use(qp) if in_use(qp) < qp.sq.room else 0
    if <uint64_t>count <= free_slots:
        return 0
    call = f"a batch of {count} requests (qp_num=0x{qp.pointer.qp_num:x}), nothing posted,"
    if count > <int>qp.sq.room:
        raise PostError(call, ENOMEM, "split it, or make the queue pair with a larger max_send_wr",
                        f"row {qp.sq.room} is the first of {count} that the send queue of {qp.sq.room} cannot hold")
    raise PostError(call, ENOMEM, *fullness(qp, f"row {free_slots} is the first without a slot; "))


cdef void count_rows(QP qp, const WorkRequest *rows, int count, int signaled) noexcept:
    cdef int i
    if not signaled and not qp.sq.all_signaled:
        qp.sq.posted += count
        return
    for i in range(count):
        count_one(qp, rows[i].send_flags)


cdef const WorkRequest *rows_of(const unsigned char[::1] rows, int *count) except? NULL:
    if len(rows) % sizeof(WorkRequest):
        raise ArgumentError(f"{len(rows)} bytes are no whole number of work requests of {sizeof(WorkRequest)} bytes",
                            "numpy.zeros(count, gda.WORK_REQUEST).view(numpy.uint8)")
    if <size_t>len(rows) > <size_t>0x7fffffff * sizeof(WorkRequest):
        raise ArgumentError(f"{len(rows)} bytes of work requests are more than any send queue holds")
    count[0] = <int>(<size_t>len(rows) // sizeof(WorkRequest))
    return <const WorkRequest *>&rows[0] if count[0] else NULL


def post_rows(QP qp not None, const unsigned char[::1] rows not None, Regions regions not None):
    """Check a batch of requests, an array of WORK_REQUEST_FIELDS as bytes, and post it with few doorbells.

    Nothing is posted unless every row is right and there is a slot for each: WorkRequestError names the first that is
    wrong, PostError (ENOMEM) the first without a slot. If the library refuses one after that, PostError.posted says
    how many before it are on their way. Holds the GIL, about 20 ns a row, so nobody changes the rows meanwhile; the
    rows are free when it returns, except INLINE data none of the memory is read before the NIC does.
    """
    cdef ibv_send_wr requests[ROWS_PER_CALL]
    cdef ibv_sge pieces[ROWS_PER_CALL]
    cdef ibv_send_wr *bad = NULL
    cdef ibv_qp *pointer = qp.idle()
    cdef int count = 0
    cdef const WorkRequest *row = rows_of(rows, &count)
    cdef int signaled, now, i, rc
    cdef int posted = 0
    regions.check_open(qp)
    signaled = check_batch(qp, row, count, regions)
    check_room(qp, count)
    for i in range(ROWS_PER_CALL):
        requests[i].next = &requests[i + 1] if i + 1 < ROWS_PER_CALL else NULL
    while posted < count:
        now = min(count - posted, <int>ROWS_PER_CALL)
        for i in range(now):
            fill_request(&requests[i], &pieces[i], &row[posted + i])
        requests[now - 1].next = NULL
        rc = c_ibv_post_send(pointer, requests, &bad)
        if rc:
            now = <int>(bad - requests)
            count_rows(qp, row, posted + now, signaled)
            raise refused(errno_of(rc), qp, bad, posted + now)
        posted += now
    count_rows(qp, row, count, signaled)


cdef class SendBatch:
    """A batch that was checked for one queue pair and built: posted as often as wanted by post_batch.

    It has its own copy of the rows and keeps the queue pair and the regions alive.
    """

    def __init__(self, QP qp not None, const unsigned char[::1] rows not None, Regions regions not None):
        cdef int count = 0
        cdef const WorkRequest *given = rows_of(rows, &count)
        if self.rows != NULL:
            raise ArgumentError("a SendBatch is made once", "make another")
        qp.get()
        regions.check_open(qp)
        check_batch(qp, given, count, regions)
        self.qp, self.regions, self.count = qp, regions, count
        self.rows = <WorkRequest *>malloc((count + 1) * sizeof(WorkRequest))
        self.requests = <ibv_send_wr *>malloc((count + 1) * sizeof(ibv_send_wr))
        self.pieces = <ibv_sge *>malloc((count + 1) * sizeof(ibv_sge))
        if self.rows == NULL or self.requests == NULL or self.pieces == NULL:
            raise MemoryError(f"{count} requests")
        for i in range(count):
            self.rows[i] = given[i]
            fill_request(&self.requests[i], &self.pieces[i], &given[i])
            self.requests[i].next = &self.requests[i + 1] if i + 1 < count else NULL

    def __len__(self):
        return self.count

    def __dealloc__(self):
        free(self.rows)
        free(self.requests)
        free(self.pieces)


def post_batch(SendBatch batch not None):
    """Post a built batch to its queue pair with one doorbell; all of it or, without slots for all, nothing (PostError).

    Memory of it that was closed meanwhile raises ClosedError. Holds the GIL.
    """
    cdef QP qp = batch.qp
    cdef ibv_send_wr *bad = NULL
    cdef ibv_qp *pointer = qp.idle()
    cdef int rc
    cdef int posted
    if batch.count == 0:
        return
    batch.regions.check_open(qp)
    check_room(qp, batch.count)
    rc = c_ibv_post_send(pointer, batch.requests, &bad)
    if rc:
        posted = <int>(bad - batch.requests)
        count_rows(qp, batch.rows, posted, 1)
        raise refused(errno_of(rc), qp, bad, posted)
    count_rows(qp, batch.rows, batch.count, 1)


cdef object recv_failure(int error, call, RecvWR wr, ibv_recv_wr *bad):
    cdef int posted = 0
    while wr.following is not None and &wr.wr != bad:
        wr = wr.following
        posted += 1
    return failure(error, f"{call}wr_id={wr.wr.wr_id}, num_sge={wr.wr.num_sge})" +
                   (f" after {posted} posted" if posted else ""))


def ibv_post_recv(QP qp not None, RecvWR wr not None):
    """Post a prepared receive with those chained to it."""
    cdef ibv_qp *pointer = qp.get()
    cdef ibv_recv_wr *bad = NULL
    cdef int rc = c_ibv_post_recv(pointer, &wr.wr, &bad)
    if rc:
        raise recv_failure(errno_of(rc), f"ibv_post_recv(qp_num=0x{pointer.qp_num:x}, ", wr, bad)


def ibv_post_srq_recv(SRQ srq not None, RecvWR wr not None):
    """Post a prepared receive with those chained to it to a shared receive queue."""
    cdef ibv_srq *pointer = srq.get()
    cdef ibv_recv_wr *bad = NULL
    cdef int rc = c_ibv_post_srq_recv(pointer, &wr.wr, &bad)
    if rc:
        raise recv_failure(errno_of(rc), "ibv_post_srq_recv(", wr, bad)


# --------------------------------------------------------------------------------------------------- extended posting
cdef ibv_qp_ex *extended_qp(QP qp, call) except NULL:
    qp.get()
    if qp.ex == NULL:
        raise misused(f"{call}()", "make the queue pair with ibv_create_qp_ex or mlx5dv_create_qp and send_ops_flags")
    return qp.ex


cdef ibv_qp_ex *built(QP qp, int least, call) except NULL:
    cdef ibv_qp_ex *ex = extended_qp(qp, call)
    if qp.building < least:
        raise misused(f"{call}()",
                      "call ibv_wr_start first" if least == 1 else "begin a request first: ibv_wr_send, ...")
    return ex


cdef object unoffered(call):
    return VerbsError(f"{call}()", EOPNOTSUPP,
                      "this type of queue pair has no such operation, or it was made without its IBV_QP_EX_WITH_* in "
                      "send_ops_flags")


def ibv_wr_start(QP qp not None):
    """Begin a batch of requests. It ends with ibv_wr_complete or ibv_wr_abort, on the same thread."""
    cdef ibv_qp_ex *ex = extended_qp(qp, "ibv_wr_start")
    if qp.building:
        raise misused("ibv_wr_start()", "call ibv_wr_complete or ibv_wr_abort first")
    c_ibv_wr_start(ex)
    qp.building = 1


def ibv_wr_complete(QP qp not None):
    """Post the batch; after a failure (a request was wrong, or the queue full) none of it was posted."""
    cdef ibv_qp_ex *ex = built(qp, 1, "ibv_wr_complete")
    cdef uint64_t begun_ = qp.sq.begun
    qp.building = 0
    cdef int rc = c_ibv_wr_complete(ex)
    if rc:
        drop_begun(qp)
        if errno_of(rc) == ENOMEM and qp.sq.known and in_use(qp) + begun_ > qp.sq.room:
            raise PostError(f"ibv_wr_complete(qp_num=0x{qp.pointer.qp_num:x})", ENOMEM, *fullness(qp))
        raise failure(errno_of(rc), f"ibv_wr_complete(qp_num=0x{qp.pointer.qp_num:x})")
    qp.sq.posted += begun_
    qp.sq.begun = 0


def ibv_wr_abort(QP qp not None):
    """Drop the batch."""
    cdef ibv_qp_ex *ex = built(qp, 1, "ibv_wr_abort")
    qp.building = 0
    drop_begun(qp)
    c_ibv_wr_abort(ex)


def ibv_wr_send(QP qp not None):
    """Begin a SEND, with the wr_id and wr_flags of the queue pair."""
    cdef ibv_qp_ex *ex = built(qp, 1, "ibv_wr_send")
    if ex.wr_send == NULL:
        raise unoffered("ibv_wr_send")
    c_ibv_wr_send(ex)
    begun(qp, ex)


def ibv_wr_send_imm(QP qp not None, uint32_t imm_data):
    """Begin a SEND with immediate data (host byte order)."""
    cdef ibv_qp_ex *ex = built(qp, 1, "ibv_wr_send_imm")
    if ex.wr_send_imm == NULL:
        raise unoffered("ibv_wr_send_imm")
    c_ibv_wr_send_imm(ex, htonl(imm_data))
    begun(qp, ex)


def ibv_wr_rdma_write(QP qp not None, uint32_t rkey, uint64_t remote_addr):
    """Begin an RDMA WRITE."""
    cdef ibv_qp_ex *ex = built(qp, 1, "ibv_wr_rdma_write")
    if ex.wr_rdma_write == NULL:
        raise unoffered("ibv_wr_rdma_write")
    c_ibv_wr_rdma_write(ex, rkey, remote_addr)
    begun(qp, ex)


def ibv_wr_rdma_write_imm(QP qp not None, uint32_t rkey, uint64_t remote_addr, uint32_t imm_data):
    """Begin an RDMA WRITE with immediate data (host byte order)."""
    cdef ibv_qp_ex *ex = built(qp, 1, "ibv_wr_rdma_write_imm")
    if ex.wr_rdma_write_imm == NULL:
        raise unoffered("ibv_wr_rdma_write_imm")
    c_ibv_wr_rdma_write_imm(ex, rkey, remote_addr, htonl(imm_data))
    begun(qp, ex)


def ibv_wr_rdma_read(QP qp not None, uint32_t rkey, uint64_t remote_addr):
    """Begin an RDMA READ."""
    cdef ibv_qp_ex *ex = built(qp, 1, "ibv_wr_rdma_read")
    if ex.wr_rdma_read == NULL:
        raise unoffered("ibv_wr_rdma_read")
    c_ibv_wr_rdma_read(ex, rkey, remote_addr)
    begun(qp, ex)


def ibv_wr_atomic_cmp_swp(QP qp not None, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap):
    """Begin a compare-and-swap of 8 bytes; the old value comes back in the request's memory, host byte order."""
    cdef ibv_qp_ex *ex = built(qp, 1, "ibv_wr_atomic_cmp_swp")
    if ex.wr_atomic_cmp_swp == NULL:
        raise unoffered("ibv_wr_atomic_cmp_swp")
    c_ibv_wr_atomic_cmp_swp(ex, rkey, remote_addr, compare, swap)
    begun(qp, ex)


def ibv_wr_atomic_fetch_add(QP qp not None, uint32_t rkey, uint64_t remote_addr, uint64_t add):
    """Begin a fetch-and-add of 8 bytes; the old value comes back in the request's memory, host byte order."""
    cdef ibv_qp_ex *ex = built(qp, 1, "ibv_wr_atomic_fetch_add")
    if ex.wr_atomic_fetch_add == NULL:
        raise unoffered("ibv_wr_atomic_fetch_add")
    c_ibv_wr_atomic_fetch_add(ex, rkey, remote_addr, add)
    begun(qp, ex)


def ibv_wr_set_ud_addr(QP qp not None, AH ah not None, uint32_t remote_qpn, uint32_t remote_qkey):
    """Where the datagram that was begun goes. Keep the address handle until the batch is complete."""
    cdef ibv_qp_ex *ex = built(qp, 2, "ibv_wr_set_ud_addr")
    if ex.wr_set_ud_addr == NULL:
        raise unoffered("ibv_wr_set_ud_addr")
    c_ibv_wr_set_ud_addr(ex, ah.get(), remote_qpn, remote_qkey)


def ibv_wr_set_sge(QP qp not None, uint32_t lkey, uint64_t addr, uint32_t length):
    """The memory of the request that was begun: one piece."""
    cdef ibv_qp_ex *ex = built(qp, 2, "ibv_wr_set_sge")
    if ex.wr_set_sge == NULL:
        raise unoffered("ibv_wr_set_sge")
    c_ibv_wr_set_sge(ex, lkey, addr, length)


def ibv_wr_set_sge_list(QP qp not None, sg_list):
    """The memory of the request that was begun: pieces (addr, length, lkey)."""
    cdef ibv_qp_ex *ex = built(qp, 2, "ibv_wr_set_sge_list")
    cdef ibv_sge sges[32]
    cdef int count = fill_pieces(sges, sg_list)
    if ex.wr_set_sge_list == NULL:
        raise unoffered("ibv_wr_set_sge_list")
    c_ibv_wr_set_sge_list(ex, count, sges)


def ibv_wr_set_inline_data(QP qp not None, bytes data not None):
    """The data of the request that was begun, copied into it."""
    cdef ibv_qp_ex *ex = built(qp, 2, "ibv_wr_set_inline_data")
    if ex.wr_set_inline_data == NULL:
        raise unoffered("ibv_wr_set_inline_data")
    c_ibv_wr_set_inline_data(ex, PyBytes_AS_STRING(data), len(data))


def ibv_wr_set_inline_data_list(QP qp not None, buffers):
    """The data of the request that was begun, copied into it from a sequence of at most 32 bytes objects."""
    cdef ibv_qp_ex *ex = built(qp, 2, "ibv_wr_set_inline_data_list")
    cdef ibv_data_buf list_[32]
    cdef list kept = list(buffers)
    cdef bytes data
    if len(kept) > 32:
        raise ArgumentError(f"{len(kept)} pieces of inline data, more than 32", "join them")
    for i in range(len(kept)):
        data = kept[i]
        list_[i].addr = PyBytes_AS_STRING(data)
        list_[i].length = len(data)
    if ex.wr_set_inline_data_list == NULL:
        raise unoffered("ibv_wr_set_inline_data_list")
    c_ibv_wr_set_inline_data_list(ex, len(kept), list_)


def mlx5dv_wr_raw_wqe(QP qp not None, bytes wqe not None):
    """Put a work request in the format of the device into the batch; the library fills its index and number in.

    The queue pair needs MLX5DV_QP_EX_WITH_RAW_WQE in dv_send_ops_flags.
    """
    cdef ibv_qp_ex *ex = built(qp, 1, "mlx5dv_wr_raw_wqe")
    cdef mlx5dv_qp_ex *dv = c_mlx5dv_qp_ex_from_ibv_qp_ex(ex)
    if dv.wr_raw_wqe == NULL:
        raise unoffered("mlx5dv_wr_raw_wqe")
    cdef size_t length = len(wqe)
    # The control segment says how many 16-byte parts the library copies (bits 5:0 of its second word).
    if length < 16 or length < 16 * (<size_t>(<uint8_t>PyBytes_AS_STRING(wqe)[7]) % 64):
        raise ArgumentError(f"a work request of {length} bytes, fewer than its control segment says")
    c_mlx5dv_wr_raw_wqe(dv, PyBytes_AS_STRING(wqe))


# --------------------------------------------------------------------------------------------------------------- DEVX
cdef bytes output_buffer(size_t bytes_):
    cdef bytes out = PyBytes_FromStringAndSize(NULL, bytes_)
    memset(PyBytes_AS_STRING(out), 0, bytes_)  # written in place by the call, before anybody else sees it
    return out


def mlx5dv_devx_general_cmd(Context context not None, bytes command not None, size_t outlen):
    """Run a firmware command that makes no object; its output. DevxError carries the output of a refused one."""
    cdef ibv_context *pointer = context.get()
    cdef bytes out = output_buffer(outlen)
    cdef const char *c_command = PyBytes_AS_STRING(command)
    cdef char *c_out = PyBytes_AS_STRING(out)
    cdef size_t inlen = len(command)
    cdef int rc
    with nogil:
        rc = c_mlx5dv_devx_general_cmd(pointer, c_command, inlen, c_out, outlen)
    if rc:
        raise device_error(f"mlx5dv_devx_general_cmd({context.name}, {inlen} bytes)", errno_of(rc), out)
    return out


def mlx5dv_devx_obj_create(Context context not None, bytes command not None, size_t outlen):
    """Run a firmware command that makes an object; the DevxObj, whose `output` is the command's output."""
    cdef ibv_context *pointer = context.get()
    cdef bytes out = output_buffer(outlen)
    cdef const char *c_command = PyBytes_AS_STRING(command)
    cdef char *c_out = PyBytes_AS_STRING(out)
    cdef size_t inlen = len(command)
    cdef mlx5dv_devx_obj *created
    cdef int error
    with nogil:
        created = c_mlx5dv_devx_obj_create(pointer, c_command, inlen, c_out, outlen)
        error = errno
    if created == NULL:
        raise device_error(f"mlx5dv_devx_obj_create({context.name}, {inlen} bytes)", error, out)
    cdef DevxObj obj = DevxObj.__new__(DevxObj)
    obj.pointer = created
    obj.context = context
    obj.output = out
    context.children += 1
    return obj


@cython.no_gc
cdef class DevxObj(Object):
    """struct mlx5dv_devx_obj: an object of the firmware. The kernel destroys it with the command that fits."""

    cdef mlx5dv_devx_obj *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("DEVX object")
        return self.pointer

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """mlx5dv_devx_obj_destroy; fails while other firmware objects use it."""
        cdef mlx5dv_devx_obj *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        self.pointer = NULL
        with nogil:
            rc = c_mlx5dv_devx_obj_destroy(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "mlx5dv_devx_obj_destroy()")
        self.context.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_mlx5dv_devx_obj_destroy(self.pointer)
            self.context.children -= 1


def mlx5dv_devx_obj_query(DevxObj obj not None, bytes command not None, size_t outlen):
    """Run a query command on an object; its output."""
    cdef mlx5dv_devx_obj *pointer = obj.get()
    cdef bytes out = output_buffer(outlen)
    cdef const char *c_command = PyBytes_AS_STRING(command)
    cdef char *c_out = PyBytes_AS_STRING(out)
    cdef size_t inlen = len(command)
    cdef int rc
    with nogil:
        rc = c_mlx5dv_devx_obj_query(pointer, c_command, inlen, c_out, outlen)
    if rc:
        raise device_error(f"mlx5dv_devx_obj_query({inlen} bytes)", errno_of(rc), out)
    return out


def mlx5dv_devx_obj_modify(DevxObj obj not None, bytes command not None, size_t outlen):
    """Run a command that changes an object; its output."""
    cdef mlx5dv_devx_obj *pointer = obj.get()
    cdef bytes out = output_buffer(outlen)
    cdef const char *c_command = PyBytes_AS_STRING(command)
    cdef char *c_out = PyBytes_AS_STRING(out)
    cdef size_t inlen = len(command)
    cdef int rc
    with nogil:
        rc = c_mlx5dv_devx_obj_modify(pointer, c_command, inlen, c_out, outlen)
    if rc:
        raise device_error(f"mlx5dv_devx_obj_modify({inlen} bytes)", errno_of(rc), out)
    return out


# The same two commands on objects that verbs made; the kernel checks that the command names the object.
cdef enum Verb:
    CQ_QUERY
    CQ_MODIFY
    QP_QUERY
    QP_MODIFY
    SRQ_QUERY
    SRQ_MODIFY


cdef bytes devx_on(Verb verb, void *pointer, call, bytes command, size_t outlen):
    cdef bytes out = output_buffer(outlen)
    cdef const char *c_command = PyBytes_AS_STRING(command)
    cdef char *c_out = PyBytes_AS_STRING(out)
    cdef size_t inlen = len(command)
    cdef int rc
    with nogil:
        if verb == CQ_QUERY:
            rc = c_mlx5dv_devx_cq_query(<ibv_cq *>pointer, c_command, inlen, c_out, outlen)
        elif verb == CQ_MODIFY:
            rc = c_mlx5dv_devx_cq_modify(<ibv_cq *>pointer, c_command, inlen, c_out, outlen)
        elif verb == QP_QUERY:
            rc = c_mlx5dv_devx_qp_query(<ibv_qp *>pointer, c_command, inlen, c_out, outlen)
        elif verb == QP_MODIFY:
            rc = c_mlx5dv_devx_qp_modify(<ibv_qp *>pointer, c_command, inlen, c_out, outlen)
        elif verb == SRQ_QUERY:
            rc = c_mlx5dv_devx_srq_query(<ibv_srq *>pointer, c_command, inlen, c_out, outlen)
        else:
            rc = c_mlx5dv_devx_srq_modify(<ibv_srq *>pointer, c_command, inlen, c_out, outlen)
    if rc:
        raise device_error(f"{call}({inlen} bytes)", errno_of(rc), out)
    return out


def mlx5dv_devx_cq_query(CQ cq not None, bytes command not None, size_t outlen):
    """Run a query command on a completion queue of verbs; its output."""
    return devx_on(CQ_QUERY, cq.get(), "mlx5dv_devx_cq_query", command, outlen)


def mlx5dv_devx_cq_modify(CQ cq not None, bytes command not None, size_t outlen):
    """Run a command that changes a completion queue of verbs; its output."""
    return devx_on(CQ_MODIFY, cq.get(), "mlx5dv_devx_cq_modify", command, outlen)


def mlx5dv_devx_qp_query(QP qp not None, bytes command not None, size_t outlen):
    """Run a query command on a queue pair of verbs; its output."""
    return devx_on(QP_QUERY, qp.get(), "mlx5dv_devx_qp_query", command, outlen)


def mlx5dv_devx_qp_modify(QP qp not None, bytes command not None, size_t outlen):
    """Run a command that changes a queue pair of verbs; its output."""
    return devx_on(QP_MODIFY, qp.get(), "mlx5dv_devx_qp_modify", command, outlen)


def mlx5dv_devx_srq_query(SRQ srq not None, bytes command not None, size_t outlen):
    """Run a query command on a shared receive queue of verbs; its output."""
    return devx_on(SRQ_QUERY, srq.get(), "mlx5dv_devx_srq_query", command, outlen)


def mlx5dv_devx_srq_modify(SRQ srq not None, bytes command not None, size_t outlen):
    """Run a command that changes a shared receive queue of verbs; its output."""
    return devx_on(SRQ_MODIFY, srq.get(), "mlx5dv_devx_srq_modify", command, outlen)


def mlx5dv_devx_create_cmd_comp(Context context not None):
    """Create a channel for the answers of queries that are not waited for."""
    cdef ibv_context *parent = context.get()
    cdef mlx5dv_devx_cmd_comp *pointer
    cdef int error
    with nogil:
        pointer = c_mlx5dv_devx_create_cmd_comp(parent)
        error = errno
    if pointer == NULL:
        raise failure(error, f"mlx5dv_devx_create_cmd_comp({context.name})")
    cdef CmdComp channel = CmdComp.__new__(CmdComp)
    channel.pointer = pointer
    channel.context = context
    context.children += 1
    return channel


@cython.no_gc
cdef class CmdComp(Object):
    """struct mlx5dv_devx_cmd_comp: a descriptor that becomes readable when a query was answered."""

    cdef mlx5dv_devx_cmd_comp *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("channel of command answers")
        return self.pointer

    @property
    def fd(self):
        return self.get().fd

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """mlx5dv_devx_destroy_cmd_comp."""
        cdef mlx5dv_devx_cmd_comp *pointer = self.pointer
        if pointer == NULL:
            return
        self.pointer = NULL
        with nogil:
            c_mlx5dv_devx_destroy_cmd_comp(pointer)
        self.context.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_mlx5dv_devx_destroy_cmd_comp(self.pointer)
            self.context.children -= 1


def mlx5dv_devx_obj_query_async(DevxObj obj not None, bytes command not None, size_t outlen, uint64_t wr_id,
                                CmdComp channel not None):
    """Run a query command on an object without waiting; its answer comes to the channel."""
    cdef mlx5dv_devx_obj *pointer = obj.get()
    cdef mlx5dv_devx_cmd_comp *answers = channel.get()
    cdef const char *c_command = PyBytes_AS_STRING(command)
    cdef size_t inlen = len(command)
    cdef int rc
    with nogil:
        rc = c_mlx5dv_devx_obj_query_async(pointer, c_command, inlen, outlen, wr_id, answers)
    if rc:
        raise failure(errno_of(rc), f"mlx5dv_devx_obj_query_async({inlen} bytes, wr_id={wr_id})")


def mlx5dv_devx_get_async_cmd_comp(CmdComp channel not None, size_t outlen):
    """Wait for an answer: DevxAnswer, with the `outlen` bytes that its query asked for.

    EAGAIN at once if the descriptor was made non-blocking and there is none; ENOSPC if the answer is longer.
    """
    cdef mlx5dv_devx_cmd_comp *pointer = channel.get()
    cdef size_t room = sizeof(mlx5dv_devx_async_cmd_hdr) + outlen
    cdef mlx5dv_devx_async_cmd_hdr *answer = <mlx5dv_devx_async_cmd_hdr *>calloc(1, room)
    cdef int rc
    if answer == NULL:
        raise MemoryError(f"an answer of {room} bytes")
    try:
        while True:
            with nogil:
                rc = c_mlx5dv_devx_get_async_cmd_comp(pointer, answer, room)
            if rc == 0:
                return DevxAnswer(answer.wr_id, PyBytes_FromStringAndSize(
                    <char *>answer + sizeof(mlx5dv_devx_async_cmd_hdr), outlen))
            rc = errno_of(rc)
            if rc != EINTR:
                raise failure(rc, f"mlx5dv_devx_get_async_cmd_comp(outlen={outlen})")
            PyErr_CheckSignals()
    finally:
        free(answer)


def mlx5dv_devx_create_event_channel(Context context not None, int flags=0):
    """Create a channel for events of the device (MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_*)."""
    cdef ibv_context *parent = context.get()
    cdef mlx5dv_devx_event_channel *pointer
    cdef int error
    with nogil:
        pointer = c_mlx5dv_devx_create_event_channel(parent, flags)
        error = errno
    if pointer == NULL:
        raise failure(error, f"mlx5dv_devx_create_event_channel({context.name}, flags=0x{flags:x})")
    cdef EventChannel channel = EventChannel.__new__(EventChannel)
    channel.pointer = pointer
    channel.context = context
    context.children += 1
    return channel


@cython.no_gc
cdef class EventChannel(Object):
    """struct mlx5dv_devx_event_channel: a descriptor that becomes readable when a subscribed event happens."""

    cdef mlx5dv_devx_event_channel *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("event channel")
        return self.pointer

    @property
    def fd(self):
        return self.get().fd

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """mlx5dv_devx_destroy_event_channel."""
        cdef mlx5dv_devx_event_channel *pointer = self.pointer
        if pointer == NULL:
            return
        self.pointer = NULL
        with nogil:
            c_mlx5dv_devx_destroy_event_channel(pointer)
        self.context.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_mlx5dv_devx_destroy_event_channel(self.pointer)
            self.context.children -= 1


def mlx5dv_devx_subscribe_devx_event(EventChannel channel not None, DevxObj obj, events, uint64_t cookie=0):
    """Subscribe to events (numbers of the PRM) of an object, or with None to those of the device as a whole."""
    cdef mlx5dv_devx_event_channel *pointer = channel.get()
    cdef mlx5dv_devx_obj *about = obj.get() if obj is not None else NULL
    cdef uint16_t numbers[32]
    cdef uint16_t count = 0
    cdef int rc
    for number in events:
        if count == 32:
            raise ArgumentError("at most 32 events in one subscription", "subscribe several times")
        numbers[count] = number
        count += 1
    with nogil:
        rc = c_mlx5dv_devx_subscribe_devx_event(pointer, about, count * sizeof(uint16_t), numbers, cookie)
    if rc:
        raise failure(errno_of(rc), f"mlx5dv_devx_subscribe_devx_event({[numbers[i] for i in range(count)]}, "
                                    f"cookie={cookie})")


def mlx5dv_devx_subscribe_devx_event_fd(EventChannel channel not None, int fd, DevxObj obj, uint16_t event_num):
    """Have an event of an object (None: of the device) signal an eventfd, which the caller owns."""
    cdef mlx5dv_devx_event_channel *pointer = channel.get()
    cdef mlx5dv_devx_obj *about = obj.get() if obj is not None else NULL
    cdef int rc
    with nogil:
        rc = c_mlx5dv_devx_subscribe_devx_event_fd(pointer, fd, about, event_num)
    if rc:
        raise failure(errno_of(rc), f"mlx5dv_devx_subscribe_devx_event_fd(fd={fd}, event_num={event_num})")


def mlx5dv_devx_get_event(EventChannel channel not None, size_t max_data=128):
    """Wait for an event: DevxEvent. EAGAIN at once if the descriptor was made non-blocking and there is none."""
    cdef mlx5dv_devx_event_channel *pointer = channel.get()
    cdef size_t room = sizeof(mlx5dv_devx_async_event_hdr) + max_data
    cdef mlx5dv_devx_async_event_hdr *event = <mlx5dv_devx_async_event_hdr *>calloc(1, room)
    cdef ssize_t count
    cdef int error
    if event == NULL:
        raise MemoryError(f"an event of {room} bytes")
    try:
        while True:
            with nogil:
                count = c_mlx5dv_devx_get_event(pointer, event, room)
                error = errno
            if count >= <ssize_t>sizeof(mlx5dv_devx_async_event_hdr):
                return DevxEvent(event.cookie, PyBytes_FromStringAndSize(
                    <char *>event + sizeof(mlx5dv_devx_async_event_hdr),
                    count - <ssize_t>sizeof(mlx5dv_devx_async_event_hdr)))
            if count >= 0 or error != EINTR:
                raise failure(error if count < 0 else EINVAL, f"mlx5dv_devx_get_event(max_data={max_data})")
            PyErr_CheckSignals()
    finally:
        free(event)


cdef Umem new_umem(Context context, mlx5dv_devx_umem *pointer, int error, call):
    if pointer == NULL:
        raise failure(error, call)
    cdef Umem umem = Umem.__new__(Umem)
    umem.pointer = pointer
    umem.context = context
    context.children += 1
    return umem


def mlx5dv_devx_umem_reg(Context context not None, uintptr_t addr, size_t size, uint32_t access):
    """Register memory that commands name by id (rings, records). The caller keeps it mapped until close()."""
    cdef ibv_context *parent = context.get()
    cdef mlx5dv_devx_umem *pointer
    cdef int error
    with nogil:
        pointer = c_mlx5dv_devx_umem_reg(parent, <void *>addr, size, access)
        error = errno
    return new_umem(context, pointer, error, f"mlx5dv_devx_umem_reg(addr=0x{addr:x}, size={size}, access=0x{access:x})")


def mlx5dv_devx_umem_reg_ex(Context context not None, uintptr_t addr, size_t size, uint32_t access, *,
                            uint64_t pgsz_bitmap, uint64_t comp_mask=0, int dmabuf_fd=-1):
    """The extended form: page sizes, and with MLX5DV_UMEM_MASK_DMABUF a dma-buf (addr is then an offset in it)."""
    cdef ibv_context *parent = context.get()
    cdef mlx5dv_devx_umem_in umem_in
    cdef mlx5dv_devx_umem *pointer
    cdef int error
    memset(&umem_in, 0, sizeof(umem_in))
    umem_in.addr = <void *>addr
    umem_in.size = size
    umem_in.access = access
    umem_in.pgsz_bitmap = pgsz_bitmap
    umem_in.comp_mask = comp_mask
    umem_in.dmabuf_fd = dmabuf_fd
    with nogil:
        pointer = c_mlx5dv_devx_umem_reg_ex(parent, &umem_in)
        error = errno
    return new_umem(context, pointer, error,
                    f"mlx5dv_devx_umem_reg_ex(addr=0x{addr:x}, size={size}, access=0x{access:x}, "
                    f"pgsz_bitmap=0x{pgsz_bitmap:x}, comp_mask=0x{comp_mask:x}, dmabuf_fd={dmabuf_fd})")


@cython.no_gc
cdef class Umem(Object):
    """struct mlx5dv_devx_umem."""

    cdef mlx5dv_devx_umem *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("umem")
        return self.pointer

    @property
    def umem_id(self):
        return self.get().umem_id

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """mlx5dv_devx_umem_dereg; EBUSY while firmware objects use it."""
        cdef mlx5dv_devx_umem *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        self.pointer = NULL
        with nogil:
            rc = c_mlx5dv_devx_umem_dereg(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "mlx5dv_devx_umem_dereg()")
        self.context.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_mlx5dv_devx_umem_dereg(self.pointer)
            self.context.children -= 1


def mlx5dv_devx_alloc_uar(Context context not None, unsigned int flags):
    """Allocate a doorbell page (MLX5DV_UAR_ALLOC_TYPE_*)."""
    cdef ibv_context *parent = context.get()
    cdef mlx5dv_devx_uar *pointer
    cdef int error
    with nogil:
        pointer = c_mlx5dv_devx_alloc_uar(parent, flags)
        error = errno
    if pointer == NULL:
        raise failure(error, f"mlx5dv_devx_alloc_uar({context.name}, flags=0x{flags:x})")
    cdef Uar uar = Uar.__new__(Uar)
    uar.pointer = pointer
    uar.context = context
    uar.flags = flags
    context.children += 1
    return uar


@cython.no_gc
cdef class Uar(Object):
    """struct mlx5dv_devx_uar: a doorbell page mapped into this process."""

    cdef mlx5dv_devx_uar *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("doorbell page")
        return self.pointer

    @property
    def page_id(self):
        return self.get().page_id

    @property
    def reg_addr(self):
        return <uintptr_t>self.get().reg_addr

    @property
    def base_addr(self):
        return <uintptr_t>self.get().base_addr

    @property
    def mmap_off(self):
        return self.get().mmap_off

    @property
    def closed(self):
        return self.pointer == NULL

    def close(self):
        """mlx5dv_devx_free_uar. A page of type NC is shared by the context and stays until that closes."""
        cdef mlx5dv_devx_uar *pointer = self.pointer
        if pointer == NULL:
            return
        self.pointer = NULL
        with nogil:
            c_mlx5dv_devx_free_uar(pointer)
        self.context.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_mlx5dv_devx_free_uar(self.pointer)
            self.context.children -= 1


def mlx5dv_devx_query_eqn(Context context not None, uint32_t vector):
    """Number of the event queue behind a completion vector."""
    cdef ibv_context *pointer = context.get()
    cdef uint32_t eqn = 0
    cdef int rc
    with nogil:
        rc = c_mlx5dv_devx_query_eqn(pointer, vector, &eqn)
    if rc:
        raise failure(errno_of(rc), f"mlx5dv_devx_query_eqn({context.name}, {vector})")
    return eqn


def mlx5dv_query_device(Context context not None, uint64_t comp_mask=0):
    """struct mlx5dv_context as a dict of its integer fields; comp_mask asks for the optional ones."""
    cdef ibv_context *pointer = context.get()
    cdef mlx5dv_context attr
    cdef int rc
    memset(&attr, 0, sizeof(attr))
    attr.comp_mask = comp_mask
    with nogil:
        rc = c_mlx5dv_query_device(pointer, &attr)
    if rc:
        raise failure(errno_of(rc), f"mlx5dv_query_device({context.name}, comp_mask=0x{comp_mask:x})")
    return {"version": attr.version, "flags": attr.flags, "comp_mask": attr.comp_mask,
            "max_dynamic_bfregs": attr.max_dynamic_bfregs,
            "max_clock_info_update_nsec": attr.max_clock_info_update_nsec,
            "flow_action_flags": attr.flow_action_flags, "dc_odp_caps": attr.dc_odp_caps,
            "num_lag_ports": attr.num_lag_ports, "max_wr_memcpy_length": attr.max_wr_memcpy_length}


def mlx5dv_get_clock_info(Context context not None):
    """ClockInfo as of now; good for max_clock_info_update_nsec of mlx5dv_query_device."""
    cdef ibv_context *pointer = context.get()
    cdef mlx5dv_clock_info info
    cdef int rc
    memset(&info, 0, sizeof(info))
    with nogil:
        rc = c_mlx5dv_get_clock_info(pointer, &info)
    if rc:
        raise failure(errno_of(rc), f"mlx5dv_get_clock_info({context.name})")
    return ClockInfo(info.nsec, info.last_cycles, info.frac, info.mult, info.shift, info.mask)


def mlx5dv_ts_to_ns(clock_info, uint64_t device_timestamp):
    """The nanoseconds of a completion timestamp."""
    cdef mlx5dv_clock_info info
    info.nsec, info.last_cycles, info.frac, info.mult, info.shift, info.mask = clock_info
    return c_mlx5dv_ts_to_ns(&info, device_timestamp)


def store_doorbell(uintptr_t address, bytes value not None):
    """Store 8 bytes in a doorbell register at once, after everything stored before; for posting by hand."""
    cdef uint64_t word
    if len(value) != 8 or address % 8:
        raise ArgumentError(f"a doorbell is 8 bytes at a multiple of 8, not {len(value)} bytes at 0x{address:x}")
    memcpy(&word, PyBytes_AS_STRING(value), 8)
    gda_store_doorbell(address, word)


def ring_for_kernels(bytes table not None, uintptr_t stop, uint64_t busy_ns, uint64_t longest_sleep_ns):
    """Ring for kernels until the 8 bytes at `stop` are not zero; the number of doorbells rung.

    `table` has three addresses of 8 bytes each for every queue: the word that kernels store a doorbell to, the
    register, and the send_counter dword of the doorbell record. After `busy_ns` without a doorbell it sleeps between
    two looks, ever longer up to `longest_sleep_ns` (below a second).
    """
    if len(table) % sizeof(gda_word) or stop == 0 or stop % 8 or longest_sleep_ns >= 1000000000:
        raise ArgumentError(
            f"ring_for_kernels: a table of {len(table)} bytes, stop at 0x{stop:x}, sleeps of {longest_sleep_ns} ns"
        )
    cdef const gda_word *words = <const gda_word *>PyBytes_AS_STRING(table)
    cdef size_t count = <size_t>len(table) // sizeof(gda_word)
    cdef uint64_t rung
    with nogil:
        rung = gda_ring_for_kernels(words, count, <const uint64_t *>stop, busy_ns, longest_sleep_ns)
    return rung
