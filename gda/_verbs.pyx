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
from libc.errno cimport EBUSY, EINTR, EINVAL, ENODEV, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.unistd cimport getpid

from typing import NamedTuple
from weakref import WeakValueDictionary

from gda.errors import ArgumentError, ClosedError, VerbsError

cdef extern from "<arpa/inet.h>" nogil:
    uint32_t htonl(uint32_t value)
    uint32_t ntohl(uint32_t value)
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
    cpdef enum:
        IBV_ACCESS_LOCAL_WRITE
        IBV_ACCESS_REMOTE_WRITE
        IBV_ACCESS_REMOTE_READ
        IBV_ACCESS_REMOTE_ATOMIC
        IBV_ACCESS_RELAXED_ORDERING

        IBV_NODE_CA
        IBV_LINK_LAYER_INFINIBAND
        IBV_LINK_LAYER_ETHERNET
        IBV_PORT_DOWN
        IBV_PORT_ACTIVE
        IBV_GID_TYPE_IB
        IBV_GID_TYPE_ROCE_V1
        IBV_GID_TYPE_ROCE_V2

        IBV_MTU_256
        IBV_MTU_512
        IBV_MTU_1024
        IBV_MTU_2048
        IBV_MTU_4096

        IBV_QPT_RC
        IBV_QPT_UC
        IBV_QPT_UD
        IBV_QPS_RESET
        IBV_QPS_INIT
        IBV_QPS_RTR
        IBV_QPS_RTS
        IBV_QPS_SQD
        IBV_QPS_SQE
        IBV_QPS_ERR

        IBV_QP_STATE
        IBV_QP_CUR_STATE
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
        IBV_QP_MIN_RNR_TIMER
        IBV_QP_SQ_PSN
        IBV_QP_MAX_DEST_RD_ATOMIC
        IBV_QP_CAP
        IBV_QP_DEST_QPN

        IBV_WR_RDMA_WRITE
        IBV_WR_RDMA_WRITE_WITH_IMM
        IBV_WR_SEND
        IBV_WR_SEND_WITH_IMM
        IBV_WR_RDMA_READ
        IBV_WR_ATOMIC_CMP_AND_SWP
        IBV_WR_ATOMIC_FETCH_AND_ADD
        IBV_SEND_FENCE
        IBV_SEND_SIGNALED
        IBV_SEND_SOLICITED
        IBV_SEND_INLINE

        IBV_WC_SUCCESS
        IBV_WC_LOC_LEN_ERR
        IBV_WC_LOC_QP_OP_ERR
        IBV_WC_LOC_PROT_ERR
        IBV_WC_WR_FLUSH_ERR
        IBV_WC_REM_INV_REQ_ERR
        IBV_WC_REM_ACCESS_ERR
        IBV_WC_REM_OP_ERR
        IBV_WC_RETRY_EXC_ERR
        IBV_WC_RNR_RETRY_EXC_ERR
        IBV_WC_SEND
        IBV_WC_RDMA_WRITE
        IBV_WC_RDMA_READ
        IBV_WC_RECV
        IBV_WC_RECV_RDMA_WITH_IMM
        IBV_WC_WITH_IMM

        MLX5DV_CONTEXT_FLAGS_DEVX
        MLX5DV_UMEM_MASK_DMABUF
        MLX5DV_UAR_ALLOC_TYPE_BF
        MLX5DV_UAR_ALLOC_TYPE_NC

    # As an enumerator its top bit would make it negative.
    unsigned int c_NC_DEDICATED "MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED"

MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED = c_NC_DEDICATED


class Device(NamedTuple):
    """One entry of ibv_get_device_list: name, GUID, and whether libmlx5 drives it."""

    name: str
    guid: int
    mlx5: bool


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
    return _ADVICE.get((name, names.errorcode.get(error, ""))) or _ADVICE.get((name, ""), "")


cdef object failure(int error, call):
    """A VerbsError for a C call that set or returned `error`; `call` is its text with values."""
    return VerbsError(call, error, advice_on(call, error))


cdef object busy(call, int children):
    return VerbsError(call, EBUSY, f"close the {children} object(s) made from it first")


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
                       bool(c_mlx5dv_is_supported(devices[i]))) for i in range(count)]
    finally:
        c_ibv_free_device_list(devices)


cdef Context open_by_name(str name, bint devx, uint32_t flags):
    cdef int count = 0
    cdef int error = ENODEV
    cdef int i
    cdef ibv_device **devices
    cdef ibv_context *pointer = NULL
    cdef mlx5dv_context_attr attr
    cdef bytes wanted = name.encode()
    cdef Context context
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
        context = Context.__new__(Context)
        context.pointer = pointer
        context.name = name
        return context
    finally:
        c_ibv_free_device_list(devices)


def ibv_open_device(str name not None):
    """Open a device by name; ENODEV if ibv_get_device_list has no such name."""
    return open_by_name(name, False, 0)


def mlx5dv_open_device(str name not None, uint32_t flags):
    """Open an mlx5 device by name with MLX5DV_CONTEXT_FLAGS_*."""
    return open_by_name(name, True, flags)


@cython.no_gc
cdef class Context(Object):
    """struct ibv_context: one open device."""

    cdef ibv_context *get(self) except NULL:
        if self.pointer == NULL:
            raise closed(f"context of {self.name}")
        return self.pointer

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
        with nogil:
            rc = c_ibv_close_device(pointer)
        if rc:
            raise failure(errno_of(rc), f"ibv_close_device({self.name})")

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_ibv_close_device(self.pointer)


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


# ------------------------------------------------------------------------------------- protection domains and memory
def ibv_alloc_pd(Context context not None):
    """Allocate a protection domain."""
    cdef ibv_context *parent = context.get()
    cdef ibv_pd *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_alloc_pd(parent)
        error = errno
    if pointer == NULL:
        raise failure(error, f"ibv_alloc_pd({context.name})")
    cdef PD pd = PD.__new__(PD)
    pd.pointer = pointer
    pd.context = context
    context.children += 1
    return pd


@cython.no_gc
cdef class PD(Object):
    """struct ibv_pd."""

    cdef ibv_pd *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("protection domain")
        return self.pointer

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
        self.pointer = NULL
        with nogil:
            rc = c_ibv_dealloc_pd(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_dealloc_pd()")
        self.context.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_ibv_dealloc_pd(self.pointer)
            self.context.children -= 1


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


cdef MR new_mr(PD pd, ibv_mr *pointer, int error, call):
    if pointer == NULL:
        raise failure(error, call)
    cdef MR mr = MR.__new__(MR)
    mr.pointer = pointer
    mr.pd = pd
    pd.children += 1
    return mr


def ibv_reg_mr(PD pd not None, uintptr_t addr, size_t length, unsigned int access):
    """Register a range of memory with IBV_ACCESS_*. The caller keeps the memory mapped until close()."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_mr *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_reg_mr(parent, <void *>addr, length, access)
        error = errno
    return new_mr(pd, pointer, error, f"ibv_reg_mr(addr=0x{addr:x}, length={length}, access=0x{access:x})")


def ibv_reg_mr_iova(PD pd not None, uintptr_t addr, size_t length, uint64_t iova, unsigned int access):
    """Register a range that the NIC names by addresses from iova on."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_mr *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_reg_mr_iova(parent, <void *>addr, length, iova, access)
        error = errno
    return new_mr(pd, pointer, error,
                  f"ibv_reg_mr_iova(addr=0x{addr:x}, length={length}, iova=0x{iova:x}, access=0x{access:x})")


def ibv_reg_dmabuf_mr(PD pd not None, uint64_t offset, size_t length, uint64_t iova, int fd, int access):
    """Register `length` bytes from `offset` of a dma-buf. The caller may close the descriptor afterwards."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_mr *pointer
    cdef int error
    with nogil:
        pointer = c_ibv_reg_dmabuf_mr(parent, offset, length, iova, fd, access)
        error = errno
    return new_mr(pd, pointer, error, f"ibv_reg_dmabuf_mr(offset=0x{offset:x}, length={length}, iova=0x{iova:x}, "
                                      f"fd={fd}, access=0x{access:x})")


@cython.no_gc
cdef class MR(Object):
    """struct ibv_mr: memory that the NIC may reach, named by lkey here and by rkey from the other side."""

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
        self.pointer = NULL
        with nogil:
            rc = c_ibv_dereg_mr(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_dereg_mr()")
        self.pd.children -= 1

    def __dealloc__(self):
        if self.pointer != NULL and self.process == getpid():
            c_ibv_dereg_mr(self.pointer)
            self.pd.children -= 1


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
    if pointer == NULL:
        raise failure(error, f"ibv_create_ah(port_num={port_num}, dgid={dgid.hex() if dgid is not None else None}, "
                             f"sgid_index={sgid_index}, dlid={dlid})")
    cdef AH ah = AH.__new__(AH)
    ah.pointer = pointer
    ah.pd = pd
    pd.children += 1
    return ah


@cython.no_gc
cdef class AH(Object):
    """struct ibv_ah."""

    cdef ibv_ah *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("address handle")
        return self.pointer

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
    cdef CQ cq = CQ.__new__(CQ)
    cq.pointer = pointer
    cq.context = context
    cq.channel = channel
    context.children += 1
    if channel is not None:
        channel.children += 1
        channel.queues[<uintptr_t>pointer] = cq
    return cq


@cython.no_gc
cdef class CQ(Object):
    """struct ibv_cq."""

    cdef ibv_cq *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("completion queue")
        return self.pointer

    cdef void forget(self):
        self.context.children -= 1
        if self.channel is not None:
            self.channel.children -= 1

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
        """ibv_destroy_cq; EBUSY while queue pairs use it; waits until its events are acknowledged."""
        cdef ibv_cq *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        if self.children:
            raise busy("ibv_destroy_cq()", self.children)
        self.pointer = NULL
        with nogil:
            rc = c_ibv_destroy_cq(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_destroy_cq()")
        self.forget()

    def __dealloc__(self):
        cdef ibv_cq *pointer = self.pointer
        if pointer != NULL and self.process == getpid():
            with nogil:
                c_ibv_destroy_cq(pointer)
            self.forget()


def ibv_poll_cq(CQ cq not None, int num_entries):
    """Up to `num_entries` (at most 64 a call) completions as a list of WC. Holds the GIL: it never blocks."""
    cdef ibv_wc wc[64]
    cdef int count = c_ibv_poll_cq(cq.get(), min(num_entries, 64), wc)
    if count < 0:
        raise failure(EINVAL, f"ibv_poll_cq(num_entries={num_entries})")
    return [WC(wc[i].wr_id, wc[i].status, wc[i].opcode, wc[i].vendor_err, wc[i].byte_len, ntohl(wc[i].imm_data),
               wc[i].qp_num, wc[i].src_qp, wc[i].wc_flags) for i in range(count)]


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
            return channel.queues[<uintptr_t>cq]
        if error != EINTR:
            raise failure(error, "ibv_get_cq_event()")
        PyErr_CheckSignals()


def ibv_ack_cq_events(CQ cq not None, unsigned int nevents):
    """Acknowledge events got from the channel."""
    c_ibv_ack_cq_events(cq.get(), nevents)


# -------------------------------------------------------------------------------------------------------- queue pairs
cdef dict capacity(ibv_qp_cap *cap):
    return {"max_send_wr": cap.max_send_wr, "max_recv_wr": cap.max_recv_wr, "max_send_sge": cap.max_send_sge,
            "max_recv_sge": cap.max_recv_sge, "max_inline_data": cap.max_inline_data}


def ibv_create_qp(PD pd not None, *, int qp_type, CQ send_cq not None, CQ recv_cq not None, int max_send_wr=1,
                  int max_recv_wr=1, int max_send_sge=1, int max_recv_sge=1, int max_inline_data=0,
                  bint sq_sig_all=False):
    """Create a queue pair. Its `cap` says what the library made of the capacities."""
    cdef ibv_pd *parent = pd.get()
    cdef ibv_qp_init_attr attr
    cdef ibv_qp *pointer
    cdef int error
    memset(&attr, 0, sizeof(attr))
    attr.qp_type = qp_type
    attr.send_cq = send_cq.get()
    attr.recv_cq = recv_cq.get()
    attr.sq_sig_all = sq_sig_all
    attr.cap.max_send_wr = max_send_wr
    attr.cap.max_recv_wr = max_recv_wr
    attr.cap.max_send_sge = max_send_sge
    attr.cap.max_recv_sge = max_recv_sge
    attr.cap.max_inline_data = max_inline_data
    with nogil:
        pointer = c_ibv_create_qp(parent, &attr)
        error = errno
    if pointer == NULL:
        raise failure(error, f"ibv_create_qp(qp_type={qp_type}, max_send_wr={max_send_wr}, max_recv_wr={max_recv_wr}, "
                             f"max_send_sge={max_send_sge}, max_recv_sge={max_recv_sge}, "
                             f"max_inline_data={max_inline_data})")
    cdef QP qp = QP.__new__(QP)
    qp.pointer = pointer
    qp.pd = pd
    qp.send_cq = send_cq
    qp.recv_cq = recv_cq
    qp.cap = capacity(&attr.cap)
    pd.children += 1
    send_cq.children += 1
    recv_cq.children += 1
    return qp


@cython.no_gc
cdef class QP(Object):
    """struct ibv_qp."""

    cdef ibv_qp *get(self) except NULL:
        if self.pointer == NULL:
            raise closed("queue pair")
        return self.pointer

    cdef void forget(self):
        self.pd.children -= 1
        self.send_cq.children -= 1
        self.recv_cq.children -= 1

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
        """ibv_destroy_qp."""
        cdef ibv_qp *pointer = self.pointer
        cdef int rc
        if pointer == NULL:
            return
        self.pointer = NULL
        with nogil:
            rc = c_ibv_destroy_qp(pointer)
        if rc:
            self.pointer = pointer
            raise failure(errno_of(rc), "ibv_destroy_qp()")
        self.forget()

    def __dealloc__(self):
        cdef ibv_qp *pointer = self.pointer
        if pointer != NULL and self.process == getpid():
            with nogil:
                c_ibv_destroy_qp(pointer)
            self.forget()


def ibv_modify_qp(QP qp not None, int attr_mask, *, int qp_state=0, int cur_qp_state=0, int path_mtu=0,
                  uint32_t qkey=0, uint32_t rq_psn=0, uint32_t sq_psn=0, uint32_t dest_qp_num=0,
                  unsigned int qp_access_flags=0, int pkey_index=0, int port_num=0, int max_rd_atomic=0,
                  int max_dest_rd_atomic=0, int min_rnr_timer=0, int timeout=0, int retry_cnt=0, int rnr_retry=0,
                  bytes dgid=None, int sgid_index=0, int hop_limit=64, int traffic_class=0,
                  unsigned int flow_label=0, int dlid=0, int sl=0, bint is_global=True):
    """Modify a queue pair: the fields of struct ibv_qp_attr that IBV_QP_* in attr_mask name; IBV_QP_AV: dgid to sl."""
    cdef ibv_qp *pointer = qp.get()
    cdef ibv_qp_attr attr
    cdef int rc
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
    fill_address(&attr.ah_attr, port_num, dlid, sl, is_global, dgid, sgid_index, hop_limit, traffic_class, flow_label)
    with nogil:
        rc = c_ibv_modify_qp(pointer, &attr, attr_mask)
    if rc:
        raise failure(errno_of(rc), f"ibv_modify_qp(qp_num=0x{qp.qp_num:x}, attr_mask=0x{attr_mask:x}, "
                                    f"qp_state={qp_state})")


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
    }


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


def ibv_post_send(QP qp not None, *, int opcode, sg_list=(), uint64_t wr_id=0, unsigned int send_flags=0,
                  uint64_t remote_addr=0, uint32_t rkey=0, uint32_t imm_data=0, uint64_t compare_add=0,
                  uint64_t swap=0):
    """Post one work request (IBV_WR_*, IBV_SEND_*); sg_list holds (addr, length, lkey). Holds the GIL: too short."""
    cdef ibv_qp *pointer = qp.get()
    cdef ibv_sge sges[32]
    cdef ibv_send_wr wr
    cdef ibv_send_wr *bad = NULL
    memset(&wr, 0, sizeof(wr))
    wr.num_sge = fill_pieces(sges, sg_list)
    wr.sg_list = sges
    wr.wr_id = wr_id
    wr.opcode = opcode
    wr.send_flags = send_flags
    wr.imm_data = htonl(imm_data)
    if opcode == IBV_WR_ATOMIC_CMP_AND_SWP or opcode == IBV_WR_ATOMIC_FETCH_AND_ADD:
        wr.wr.atomic.remote_addr = remote_addr
        wr.wr.atomic.rkey = rkey
        wr.wr.atomic.compare_add = compare_add
        wr.wr.atomic.swap = swap
    else:
        wr.wr.rdma.remote_addr = remote_addr
        wr.wr.rdma.rkey = rkey
    cdef int rc = c_ibv_post_send(pointer, &wr, &bad)
    if rc:
        raise failure(errno_of(rc), f"ibv_post_send(qp_num=0x{qp.qp_num:x}, opcode={opcode}, wr_id={wr_id}, "
                                    f"num_sge={wr.num_sge})")


def ibv_post_recv(QP qp not None, *, sg_list=(), uint64_t wr_id=0):
    """Post one receive; sg_list holds (addr, length, lkey)."""
    cdef ibv_qp *pointer = qp.get()
    cdef ibv_sge sges[32]
    cdef ibv_recv_wr wr
    cdef ibv_recv_wr *bad = NULL
    memset(&wr, 0, sizeof(wr))
    wr.num_sge = fill_pieces(sges, sg_list)
    wr.sg_list = sges
    wr.wr_id = wr_id
    cdef int rc = c_ibv_post_recv(pointer, &wr, &bad)
    if rc:
        raise failure(errno_of(rc), f"ibv_post_recv(qp_num=0x{qp.qp_num:x}, wr_id={wr_id}, num_sge={wr.num_sge})")


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


def store_doorbell(uintptr_t address, bytes value not None):
    """Store 8 bytes in a doorbell register at once, after everything stored before; for posting by hand."""
    cdef uint64_t word
    if len(value) != 8 or address % 8:
        raise ArgumentError(f"a doorbell is 8 bytes at a multiple of 8, not {len(value)} bytes at 0x{address:x}")
    memcpy(&word, PyBytes_AS_STRING(value), 8)
    gda_store_doorbell(address, word)
