# SPDX-License-Identifier: Apache-2.0
"""Types of gda/_verbs.pyx; its docstrings are there."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self, TypedDict, type_check_only

import numpy as np
import numpy.typing as npt

from gda.errors import VerbsError

WORK_REQUEST_FIELDS: tuple[tuple[str, str, int], ...]
WORK_REQUEST_BYTES: int
IBV_ACCESS_LOCAL_WRITE: int
IBV_ACCESS_REMOTE_WRITE: int
IBV_ACCESS_REMOTE_READ: int
IBV_ACCESS_REMOTE_ATOMIC: int
IBV_ACCESS_MW_BIND: int
IBV_ACCESS_ZERO_BASED: int
IBV_ACCESS_ON_DEMAND: int
IBV_ACCESS_HUGETLB: int
IBV_ACCESS_RELAXED_ORDERING: int
IBV_REREG_MR_CHANGE_TRANSLATION: int
IBV_REREG_MR_CHANGE_PD: int
IBV_REREG_MR_CHANGE_ACCESS: int
IBV_ADVISE_MR_ADVICE_PREFETCH: int
IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE: int
IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: int
IBV_NODE_CA: int
IBV_NODE_RNIC: int
IBV_TRANSPORT_IB: int
IBV_TRANSPORT_IWARP: int
IBV_LINK_LAYER_INFINIBAND: int
IBV_LINK_LAYER_ETHERNET: int
IBV_PORT_NOP: int
IBV_PORT_DOWN: int
IBV_PORT_INIT: int
IBV_PORT_ARMED: int
IBV_PORT_ACTIVE: int
IBV_PORT_ACTIVE_DEFER: int
IBV_GID_TYPE_IB: int
IBV_GID_TYPE_ROCE_V1: int
IBV_GID_TYPE_ROCE_V2: int
IBV_ATOMIC_NONE: int
IBV_ATOMIC_HCA: int
IBV_ATOMIC_GLOB: int
IBV_MTU_256: int
IBV_MTU_512: int
IBV_MTU_1024: int
IBV_MTU_2048: int
IBV_MTU_4096: int
IBV_FORK_DISABLED: int
IBV_FORK_ENABLED: int
IBV_FORK_UNNEEDED: int
IBV_RATE_MAX: int
IBV_RATE_2_5_GBPS: int
IBV_RATE_10_GBPS: int
IBV_RATE_100_GBPS: int
IBV_RATE_200_GBPS: int
IBV_RATE_400_GBPS: int
IBV_EVENT_CQ_ERR: int
IBV_EVENT_QP_FATAL: int
IBV_EVENT_QP_REQ_ERR: int
IBV_EVENT_QP_ACCESS_ERR: int
IBV_EVENT_COMM_EST: int
IBV_EVENT_SQ_DRAINED: int
IBV_EVENT_PATH_MIG: int
IBV_EVENT_PATH_MIG_ERR: int
IBV_EVENT_DEVICE_FATAL: int
IBV_EVENT_PORT_ACTIVE: int
IBV_EVENT_PORT_ERR: int
IBV_EVENT_LID_CHANGE: int
IBV_EVENT_PKEY_CHANGE: int
IBV_EVENT_SM_CHANGE: int
IBV_EVENT_SRQ_ERR: int
IBV_EVENT_SRQ_LIMIT_REACHED: int
IBV_EVENT_QP_LAST_WQE_REACHED: int
IBV_EVENT_CLIENT_REREGISTER: int
IBV_EVENT_GID_CHANGE: int
IBV_EVENT_WQ_FATAL: int
IBV_QPT_RC: int
IBV_QPT_UC: int
IBV_QPT_UD: int
IBV_QPT_RAW_PACKET: int
IBV_QPT_XRC_SEND: int
IBV_QPT_XRC_RECV: int
IBV_QPT_DRIVER: int
IBV_QPS_RESET: int
IBV_QPS_INIT: int
IBV_QPS_RTR: int
IBV_QPS_RTS: int
IBV_QPS_SQD: int
IBV_QPS_SQE: int
IBV_QPS_ERR: int
IBV_QPS_UNKNOWN: int
IBV_MIG_MIGRATED: int
IBV_MIG_REARM: int
IBV_MIG_ARMED: int
IBV_QP_STATE: int
IBV_QP_CUR_STATE: int
IBV_QP_EN_SQD_ASYNC_NOTIFY: int
IBV_QP_ACCESS_FLAGS: int
IBV_QP_PKEY_INDEX: int
IBV_QP_PORT: int
IBV_QP_QKEY: int
IBV_QP_AV: int
IBV_QP_PATH_MTU: int
IBV_QP_TIMEOUT: int
IBV_QP_RETRY_CNT: int
IBV_QP_RNR_RETRY: int
IBV_QP_RQ_PSN: int
IBV_QP_MAX_QP_RD_ATOMIC: int
IBV_QP_ALT_PATH: int
IBV_QP_MIN_RNR_TIMER: int
IBV_QP_SQ_PSN: int
IBV_QP_MAX_DEST_RD_ATOMIC: int
IBV_QP_PATH_MIG_STATE: int
IBV_QP_CAP: int
IBV_QP_DEST_QPN: int
IBV_QP_RATE_LIMIT: int
IBV_QP_CREATE_BLOCK_SELF_MCAST_LB: int
IBV_QP_CREATE_SCATTER_FCS: int
IBV_QP_CREATE_CVLAN_STRIPPING: int
IBV_QP_CREATE_SOURCE_QPN: int
IBV_QP_CREATE_PCI_WRITE_END_PADDING: int
IBV_QP_EX_WITH_RDMA_WRITE: int
IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: int
IBV_QP_EX_WITH_SEND: int
IBV_QP_EX_WITH_SEND_WITH_IMM: int
IBV_QP_EX_WITH_RDMA_READ: int
IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: int
IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: int
IBV_QP_EX_WITH_LOCAL_INV: int
IBV_QP_EX_WITH_BIND_MW: int
IBV_QP_EX_WITH_SEND_WITH_INV: int
IBV_QP_EX_WITH_TSO: int
IBV_SRQT_BASIC: int
IBV_SRQT_XRC: int
IBV_SRQT_TM: int
IBV_SRQ_MAX_WR: int
IBV_SRQ_LIMIT: int
IBV_WR_RDMA_WRITE: int
IBV_WR_RDMA_WRITE_WITH_IMM: int
IBV_WR_SEND: int
IBV_WR_SEND_WITH_IMM: int
IBV_WR_RDMA_READ: int
IBV_WR_ATOMIC_CMP_AND_SWP: int
IBV_WR_ATOMIC_FETCH_AND_ADD: int
IBV_WR_LOCAL_INV: int
IBV_WR_BIND_MW: int
IBV_WR_SEND_WITH_INV: int
IBV_WR_TSO: int
IBV_SEND_FENCE: int
IBV_SEND_SIGNALED: int
IBV_SEND_SOLICITED: int
IBV_SEND_INLINE: int
IBV_SEND_IP_CSUM: int
IBV_WC_SUCCESS: int
IBV_WC_LOC_LEN_ERR: int
IBV_WC_LOC_QP_OP_ERR: int
IBV_WC_LOC_EEC_OP_ERR: int
IBV_WC_LOC_PROT_ERR: int
IBV_WC_WR_FLUSH_ERR: int
IBV_WC_MW_BIND_ERR: int
IBV_WC_BAD_RESP_ERR: int
IBV_WC_LOC_ACCESS_ERR: int
IBV_WC_REM_INV_REQ_ERR: int
IBV_WC_REM_ACCESS_ERR: int
IBV_WC_REM_OP_ERR: int
IBV_WC_RETRY_EXC_ERR: int
IBV_WC_RNR_RETRY_EXC_ERR: int
IBV_WC_LOC_RDD_VIOL_ERR: int
IBV_WC_REM_INV_RD_REQ_ERR: int
IBV_WC_REM_ABORT_ERR: int
IBV_WC_INV_EECN_ERR: int
IBV_WC_INV_EEC_STATE_ERR: int
IBV_WC_FATAL_ERR: int
IBV_WC_RESP_TIMEOUT_ERR: int
IBV_WC_GENERAL_ERR: int
IBV_WC_SEND: int
IBV_WC_RDMA_WRITE: int
IBV_WC_RDMA_READ: int
IBV_WC_COMP_SWAP: int
IBV_WC_FETCH_ADD: int
IBV_WC_BIND_MW: int
IBV_WC_LOCAL_INV: int
IBV_WC_TSO: int
IBV_WC_RECV: int
IBV_WC_RECV_RDMA_WITH_IMM: int
IBV_WC_DRIVER1: int
IBV_WC_GRH: int
IBV_WC_WITH_IMM: int
IBV_WC_IP_CSUM_OK: int
IBV_WC_WITH_INV: int
IBV_WC_EX_WITH_BYTE_LEN: int
IBV_WC_EX_WITH_IMM: int
IBV_WC_EX_WITH_QP_NUM: int
IBV_WC_EX_WITH_SRC_QP: int
IBV_WC_EX_WITH_SLID: int
IBV_WC_EX_WITH_SL: int
IBV_WC_EX_WITH_DLID_PATH_BITS: int
IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: int
IBV_WC_EX_WITH_CVLAN: int
IBV_WC_EX_WITH_FLOW_TAG: int
IBV_WC_EX_WITH_TM_INFO: int
IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: int
IBV_WC_STANDARD_FLAGS: int
IBV_CREATE_CQ_ATTR_SINGLE_THREADED: int
IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: int
MLX5DV_CONTEXT_FLAGS_DEVX: int
MLX5DV_CONTEXT_FLAGS_CQE_V1: int
MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE: int
MLX5DV_CONTEXT_MASK_DYN_BFREGS: int
MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS: int
MLX5DV_UMEM_MASK_DMABUF: int
MLX5DV_UAR_ALLOC_TYPE_BF: int
MLX5DV_UAR_ALLOC_TYPE_NC: int
MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE: int
MLX5DV_CQ_INIT_ATTR_MASK_FLAGS: int
MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE: int
MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD: int
MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS: int
MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS: int
MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE: int
MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE: int
MLX5DV_QP_EX_WITH_RAW_WQE: int
MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA: int
MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED: int

class Device(NamedTuple):
    name: str
    guid: int
    mlx5: bool
    node_type: int
    transport_type: int
    device_index: int

class GidEntry(NamedTuple):
    gid: bytes
    gid_index: int
    port_num: int
    gid_type: int
    ndev_ifindex: int

class WqeAv(NamedTuple):
    rmac: bytes
    rgid: bytes
    rlid: int
    tclass: int
    hop_limit: int

class DvQp(NamedTuple):
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
    buf: int
    dbrec: int
    cqe_cnt: int
    cqe_size: int
    cq_uar: int
    cqn: int

class DvSrq(NamedTuple):
    buf: int
    dbrec: int
    stride: int
    head: int
    tail: int
    srqn: int

class DvDm(NamedTuple):
    buf: int
    length: int
    remote_va: int

class ClockInfo(NamedTuple):
    nsec: int
    last_cycles: int
    frac: int
    mult: int
    shift: int
    mask: int

class DevxEvent(NamedTuple):
    cookie: int
    data: bytes

class DevxAnswer(NamedTuple):
    wr_id: int
    output: bytes

class WC(NamedTuple):
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

@type_check_only
class AhAttr(TypedDict):
    port_num: int
    dgid: bytes
    sgid_index: int
    hop_limit: int
    traffic_class: int
    flow_label: int
    dlid: int
    sl: int
    is_global: bool

class DevxError(VerbsError):
    output: bytes
    def __init__(self, call: str, error: int, advice: str = "", output: bytes = b"") -> None: ...

class Object:
    @property
    def children(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def borrowed(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Context(Object):
    @property
    def c_pointer(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def cmd_fd(self) -> int: ...
    @property
    def async_fd(self) -> int: ...
    @property
    def num_comp_vectors(self) -> int: ...

class TD(Object):
    @property
    def context(self) -> Context: ...

class PD(Object):
    @property
    def parent(self) -> PD | None: ...
    @property
    def td(self) -> TD | None: ...
    @property
    def c_pointer(self) -> int: ...
    @property
    def context(self) -> Context: ...
    @property
    def handle(self) -> int: ...

class MR(Object):
    is_mapped: bool
    @property
    def access(self) -> int | None: ...
    @property
    def pd(self) -> PD: ...
    @property
    def addr(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def lkey(self) -> int: ...
    @property
    def rkey(self) -> int: ...
    @property
    def handle(self) -> int: ...

class DM(Object):
    @property
    def context(self) -> Context: ...
    @property
    def handle(self) -> int: ...

class AH(Object):
    @property
    def pd(self) -> PD: ...

class CompChannel(Object):
    @property
    def context(self) -> Context: ...
    @property
    def fd(self) -> int: ...

class CQ(Object):
    strict: bool
    @property
    def bound(self) -> int: ...
    @property
    def c_pointer(self) -> int: ...
    @property
    def context(self) -> Context: ...
    @property
    def channel(self) -> CompChannel | None: ...
    @property
    def parent_domain(self) -> PD | None: ...
    @property
    def unacknowledged(self) -> int: ...
    @property
    def wr_id(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def cqe(self) -> int: ...
    @property
    def handle(self) -> int: ...

class SRQ(Object):
    @property
    def c_pointer(self) -> int: ...
    @property
    def pd(self) -> PD: ...
    @property
    def attr(self) -> dict[str, int]: ...
    @property
    def handle(self) -> int: ...

class QP(Object):
    @property
    def qp_type(self) -> int: ...
    @property
    def srq(self) -> SRQ | None: ...
    @property
    def wr_id(self) -> int: ...
    @wr_id.setter
    def wr_id(self, value: int) -> None: ...
    @property
    def wr_flags(self) -> int: ...
    @wr_flags.setter
    def wr_flags(self, value: int) -> None: ...
    @property
    def c_pointer(self) -> int: ...
    @property
    def pd(self) -> PD: ...
    @property
    def send_cq(self) -> CQ: ...
    @property
    def recv_cq(self) -> CQ: ...
    @property
    def cap(self) -> dict[str, int]: ...
    @property
    def qp_num(self) -> int: ...
    @property
    def handle(self) -> int: ...

class AsyncEvent:
    @property
    def event_type(self) -> int: ...
    @property
    def element(self) -> CQ | QP | SRQ | int | None: ...

class SendWR:
    wr_id: int
    send_flags: int
    imm_data: int
    remote_addr: int
    compare_add: int
    next: SendWR | None
    def __init__(
        self,
        *,
        opcode: int,
        sg_list: Iterable[tuple[int, int, int]] = (),
        wr_id: int = 0,
        send_flags: int = 0,
        remote_addr: int = 0,
        rkey: int = 0,
        imm_data: int = 0,
        compare_add: int = 0,
        swap: int = 0,
        ah: AH | None = None,
        remote_qpn: int = 0,
        remote_qkey: int = 0,
        invalidate_rkey: int = 0,
        next: SendWR | None = None,
    ) -> None: ...
    @property
    def opcode(self) -> int: ...
    @property
    def ah(self) -> AH | None: ...
    @property
    def sg_list(self) -> list[tuple[int, int, int]]: ...
    @sg_list.setter
    def sg_list(self, value: Iterable[tuple[int, int, int]]) -> None: ...
    def set_sge(self, index: int, addr: int, length: int, lkey: int) -> None: ...

class Regions:
    def __init__(
        self,
        local: Iterable[MR | tuple[int, int, int] | tuple[int, int, int, int]] = (),
        remote: Iterable[MR | tuple[int, int, int] | tuple[int, int, int, int]] | None = None,
    ) -> None: ...
    @property
    def local_count(self) -> int: ...
    @property
    def remote_count(self) -> int: ...
    @property
    def remote_checked(self) -> bool: ...
    @property
    def kept(self) -> tuple[MR | tuple[int, ...], ...]: ...

class SendBatch:
    def __init__(
        self, qp: QP, rows: bytes | bytearray | memoryview | npt.NDArray[np.uint8], regions: Regions
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def qp(self) -> QP: ...
    @property
    def regions(self) -> Regions: ...
    @property
    def count(self) -> int: ...

class RecvWR:
    wr_id: int
    next: RecvWR | None
    def __init__(
        self, *, sg_list: Iterable[tuple[int, int, int]] = (), wr_id: int = 0, next: RecvWR | None = None
    ) -> None: ...
    @property
    def sg_list(self) -> list[tuple[int, int, int]]: ...
    @sg_list.setter
    def sg_list(self, value: Iterable[tuple[int, int, int]]) -> None: ...
    def set_sge(self, index: int, addr: int, length: int, lkey: int) -> None: ...

class CmdComp(Object):
    @property
    def context(self) -> Context: ...
    @property
    def fd(self) -> int: ...

class EventChannel(Object):
    @property
    def context(self) -> Context: ...
    @property
    def fd(self) -> int: ...

class DevxObj(Object):
    @property
    def context(self) -> Context: ...
    @property
    def output(self) -> bytes: ...

class Umem(Object):
    @property
    def context(self) -> Context: ...
    @property
    def umem_id(self) -> int: ...

class Uar(Object):
    @property
    def context(self) -> Context: ...
    @property
    def flags(self) -> int: ...
    @property
    def page_id(self) -> int: ...
    @property
    def reg_addr(self) -> int: ...
    @property
    def base_addr(self) -> int: ...
    @property
    def mmap_off(self) -> int: ...

def library_paths() -> tuple[str, str]: ...
def ibv_get_device_list() -> list[Device]: ...
def ibv_open_device(name: str) -> Context: ...
def mlx5dv_open_device(name: str, flags: int) -> Context: ...
def ibv_import_device(cmd_fd: int) -> Context: ...
def wrap_context(c_pointer: int, owner: object = None) -> Context: ...
def ibv_fork_init() -> None: ...
def ibv_is_fork_initialized() -> int: ...
def ibv_node_type_str(node_type: int) -> str: ...
def ibv_port_state_str(port_state: int) -> str: ...
def ibv_event_type_str(event: int) -> str: ...
def ibv_rate_to_mult(rate: int) -> int: ...
def mult_to_ibv_rate(mult: int) -> int: ...
def ibv_rate_to_mbps(rate: int) -> int: ...
def mbps_to_ibv_rate(mbps: int) -> int: ...
def ibv_query_device(context: Context) -> dict[str, int | str]: ...
def ibv_query_device_ex(context: Context) -> dict[str, int | str]: ...
def ibv_query_port(context: Context, port_num: int) -> dict[str, int]: ...
def ibv_query_gid(context: Context, port_num: int, index: int) -> bytes: ...
def ibv_query_gid_ex(context: Context, port_num: int, gid_index: int, flags: int = 0) -> GidEntry: ...
def ibv_query_gid_table(context: Context, max_entries: int, flags: int = 0) -> list[GidEntry]: ...
def ibv_query_pkey(context: Context, port_num: int, index: int) -> int: ...
def ibv_get_pkey_index(context: Context, port_num: int, pkey: int) -> int: ...
def ibv_query_rt_values_ex(context: Context) -> int: ...
def ibv_get_async_event(context: Context) -> AsyncEvent: ...
def ibv_ack_async_event(event: AsyncEvent) -> None: ...
def ibv_alloc_pd(context: Context) -> PD: ...
def ibv_import_pd(context: Context, handle: int) -> PD: ...
def wrap_pd(c_pointer: int, owner: object = None) -> PD: ...
def ibv_alloc_td(context: Context) -> TD: ...
def ibv_alloc_parent_domain(context: Context, pd: PD, td: TD | None = None) -> PD: ...
def mlx5dv_init_obj_pd(pd: PD) -> int: ...
def ibv_reg_mr(pd: PD, addr: int, length: int, access: int) -> MR: ...
def ibv_reg_mr_iova(pd: PD, addr: int, length: int, iova: int, access: int) -> MR: ...
def ibv_reg_dmabuf_mr(pd: PD, offset: int, length: int, iova: int, fd: int, access: int) -> MR: ...
def ibv_import_mr(pd: PD, handle: int) -> MR: ...
def ibv_alloc_null_mr(pd: PD) -> MR: ...
def ibv_rereg_mr(mr: MR, flags: int, pd: PD | None = None, addr: int = 0, length: int = 0, access: int = 0) -> None: ...
def ibv_advise_mr(pd: PD, advice: int, flags: int, sg_list: Iterable[tuple[int, int, int]]) -> None: ...
def ibv_alloc_dm(context: Context, length: int, log_align_req: int = 0) -> DM: ...
def ibv_import_dm(context: Context, handle: int) -> DM: ...
def mlx5dv_init_obj_dm(dm: DM) -> DvDm: ...
def ibv_init_ah_from_wc(context: Context, port_num: int, wc: WC, grh: bytes) -> AhAttr: ...
def ibv_create_ah_from_wc(pd: PD, wc: WC, grh: bytes, port_num: int) -> AH: ...
def ibv_create_ah(
    pd: PD,
    *,
    port_num: int,
    dgid: bytes | None = None,
    sgid_index: int = 0,
    hop_limit: int = 64,
    traffic_class: int = 0,
    flow_label: int = 0,
    dlid: int = 0,
    sl: int = 0,
    is_global: bool = True,
) -> AH: ...
def mlx5dv_init_obj_ah(ah: AH) -> WqeAv: ...
def ibv_create_comp_channel(context: Context) -> CompChannel: ...
def ibv_create_cq(context: Context, cqe: int, channel: CompChannel | None = None, comp_vector: int = 0) -> CQ: ...
def ibv_create_cq_ex(
    context: Context,
    cqe: int,
    channel: CompChannel | None = None,
    comp_vector: int = 0,
    *,
    wc_flags: int = 0,
    flags: int = 0,
    parent_domain: PD | None = None,
) -> CQ: ...
def mlx5dv_create_cq(
    context: Context,
    cqe: int,
    channel: CompChannel | None = None,
    comp_vector: int = 0,
    *,
    wc_flags: int = 0,
    flags: int = 0,
    parent_domain: PD | None = None,
    dv_comp_mask: int = 0,
    cqe_comp_res_format: int = 0,
    dv_flags: int = 0,
    cqe_size: int = 0,
) -> CQ: ...
def wrap_cq(c_pointer: int, owner: object = None) -> CQ: ...
def ibv_resize_cq(cq: CQ, cqe: int) -> None: ...
def ibv_modify_cq(cq: CQ, cq_count: int, cq_period: int) -> None: ...
def mlx5dv_init_obj_cq(cq: CQ) -> DvCq: ...
def ibv_poll_cq(cq: CQ, num_entries: int) -> list[WC]: ...
def ibv_wc_status_str(status: int) -> str: ...
def ibv_req_notify_cq(cq: CQ, solicited_only: bool = False) -> None: ...
def ibv_get_cq_event(channel: CompChannel) -> CQ: ...
def ibv_ack_cq_events(cq: CQ, nevents: int) -> None: ...
def ibv_start_poll(cq: CQ) -> bool: ...
def ibv_next_poll(cq: CQ) -> bool: ...
def ibv_end_poll(cq: CQ) -> None: ...
def ibv_wc_read_opcode(cq: CQ) -> int: ...
def ibv_wc_read_vendor_err(cq: CQ) -> int: ...
def ibv_wc_read_wc_flags(cq: CQ) -> int: ...
def ibv_wc_read_byte_len(cq: CQ) -> int: ...
def ibv_wc_read_imm_data(cq: CQ) -> int: ...
def ibv_wc_read_invalidated_rkey(cq: CQ) -> int: ...
def ibv_wc_read_qp_num(cq: CQ) -> int: ...
def ibv_wc_read_src_qp(cq: CQ) -> int: ...
def ibv_wc_read_slid(cq: CQ) -> int: ...
def ibv_wc_read_sl(cq: CQ) -> int: ...
def ibv_wc_read_dlid_path_bits(cq: CQ) -> int: ...
def ibv_wc_read_completion_ts(cq: CQ) -> int: ...
def ibv_wc_read_completion_wallclock_ns(cq: CQ) -> int: ...
def ibv_wc_read_cvlan(cq: CQ) -> int: ...
def ibv_wc_read_flow_tag(cq: CQ) -> int: ...
def ibv_wc_read_tm_info(cq: CQ) -> tuple[int, int]: ...
def ibv_create_srq(pd: PD, max_wr: int, max_sge: int = 1, srq_limit: int = 0) -> SRQ: ...
def ibv_create_srq_ex(pd: PD, max_wr: int, max_sge: int = 1, srq_limit: int = 0, *, srq_type: int = 0) -> SRQ: ...
def ibv_modify_srq(srq: SRQ, attr_mask: int, *, max_wr: int = 0, srq_limit: int = 0) -> None: ...
def ibv_query_srq(srq: SRQ) -> dict[str, int]: ...
def ibv_get_srq_num(srq: SRQ) -> int: ...
def mlx5dv_init_obj_srq(srq: SRQ) -> DvSrq: ...
def ibv_create_qp(
    pd: PD,
    *,
    qp_type: int,
    send_cq: CQ,
    recv_cq: CQ,
    srq: SRQ | None = None,
    max_send_wr: int = 1,
    max_recv_wr: int = 1,
    max_send_sge: int = 1,
    max_recv_sge: int = 1,
    max_inline_data: int = 0,
    sq_sig_all: bool = False,
) -> QP: ...
def ibv_create_qp_ex(
    pd: PD,
    *,
    qp_type: int,
    send_cq: CQ,
    recv_cq: CQ,
    srq: SRQ | None = None,
    max_send_wr: int = 1,
    max_recv_wr: int = 1,
    max_send_sge: int = 1,
    max_recv_sge: int = 1,
    max_inline_data: int = 0,
    sq_sig_all: bool = False,
    send_ops_flags: int = 0,
    create_flags: int = 0,
    source_qpn: int = 0,
    max_tso_header: int = 0,
) -> QP: ...
def mlx5dv_create_qp(
    pd: PD,
    *,
    qp_type: int,
    send_cq: CQ,
    recv_cq: CQ,
    srq: SRQ | None = None,
    max_send_wr: int = 1,
    max_recv_wr: int = 1,
    max_send_sge: int = 1,
    max_recv_sge: int = 1,
    max_inline_data: int = 0,
    sq_sig_all: bool = False,
    send_ops_flags: int = 0,
    create_flags: int = 0,
    source_qpn: int = 0,
    max_tso_header: int = 0,
    dv_comp_mask: int = 0,
    dv_create_flags: int = 0,
    dv_send_ops_flags: int = 0,
) -> QP: ...
def wrap_qp(c_pointer: int, owner: object = None) -> QP: ...
def ibv_modify_qp(
    qp: QP,
    attr_mask: int,
    *,
    qp_state: int = 0,
    cur_qp_state: int = 0,
    path_mtu: int = 0,
    qkey: int = 0,
    rq_psn: int = 0,
    sq_psn: int = 0,
    dest_qp_num: int = 0,
    qp_access_flags: int = 0,
    pkey_index: int = 0,
    port_num: int = 0,
    max_rd_atomic: int = 0,
    max_dest_rd_atomic: int = 0,
    min_rnr_timer: int = 0,
    timeout: int = 0,
    retry_cnt: int = 0,
    rnr_retry: int = 0,
    dgid: bytes | None = None,
    sgid_index: int = 0,
    hop_limit: int = 64,
    traffic_class: int = 0,
    flow_label: int = 0,
    dlid: int = 0,
    sl: int = 0,
    is_global: bool = True,
    path_mig_state: int = 0,
    en_sqd_async_notify: bool = False,
    rate_limit: int = 0,
) -> None: ...
def ibv_query_qp(qp: QP, attr_mask: int) -> dict[str, int | bytes | dict[str, int]]: ...
def ibv_modify_qp_rate_limit(qp: QP, *, rate_limit: int, max_burst_sz: int = 0, typical_pkt_sz: int = 0) -> None: ...
def ibv_query_qp_data_in_order(qp: QP, op: int, flags: int = 0) -> bool: ...
def ibv_query_ece(qp: QP) -> tuple[int, int, int]: ...
def ibv_set_ece(qp: QP, vendor_id: int, options: int, comp_mask: int = 0) -> None: ...
def mlx5dv_init_obj_qp(qp: QP) -> DvQp: ...
def ibv_post_send(qp: QP, wr: SendWR) -> None: ...
def post_send(
    qp: QP,
    opcode: int,
    addr: int,
    length: int,
    lkey: int,
    remote_addr: int = 0,
    rkey: int = 0,
    wr_id: int = 0,
    send_flags: int = 0,
    imm_data: int = 0,
    compare_add: int = 0,
    swap: int = 0,
) -> None: ...
def post_rows(qp: QP, rows: bytes | bytearray | memoryview | npt.NDArray[np.uint8], regions: Regions) -> None: ...
def post_batch(batch: SendBatch) -> None: ...
def ibv_post_recv(qp: QP, wr: RecvWR) -> None: ...
def ibv_post_srq_recv(srq: SRQ, wr: RecvWR) -> None: ...
def ibv_wr_start(qp: QP) -> None: ...
def ibv_wr_complete(qp: QP) -> None: ...
def ibv_wr_abort(qp: QP) -> None: ...
def ibv_wr_send(qp: QP) -> None: ...
def ibv_wr_send_imm(qp: QP, imm_data: int) -> None: ...
def ibv_wr_rdma_write(qp: QP, rkey: int, remote_addr: int) -> None: ...
def ibv_wr_rdma_write_imm(qp: QP, rkey: int, remote_addr: int, imm_data: int) -> None: ...
def ibv_wr_rdma_read(qp: QP, rkey: int, remote_addr: int) -> None: ...
def ibv_wr_atomic_cmp_swp(qp: QP, rkey: int, remote_addr: int, compare: int, swap: int) -> None: ...
def ibv_wr_atomic_fetch_add(qp: QP, rkey: int, remote_addr: int, add: int) -> None: ...
def ibv_wr_set_ud_addr(qp: QP, ah: AH, remote_qpn: int, remote_qkey: int) -> None: ...
def ibv_wr_set_sge(qp: QP, lkey: int, addr: int, length: int) -> None: ...
def ibv_wr_set_sge_list(qp: QP, sg_list: Iterable[tuple[int, int, int]]) -> None: ...
def ibv_wr_set_inline_data(qp: QP, data: bytes) -> None: ...
def ibv_wr_set_inline_data_list(qp: QP, buffers: Iterable[bytes]) -> None: ...
def mlx5dv_wr_raw_wqe(qp: QP, wqe: bytes) -> None: ...
def mlx5dv_devx_general_cmd(context: Context, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_obj_create(context: Context, command: bytes, outlen: int) -> DevxObj: ...
def mlx5dv_devx_obj_query(obj: DevxObj, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_obj_modify(obj: DevxObj, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_cq_query(cq: CQ, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_cq_modify(cq: CQ, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_qp_query(qp: QP, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_qp_modify(qp: QP, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_srq_query(srq: SRQ, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_srq_modify(srq: SRQ, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_create_cmd_comp(context: Context) -> CmdComp: ...
def mlx5dv_devx_obj_query_async(obj: DevxObj, command: bytes, outlen: int, wr_id: int, channel: CmdComp) -> None: ...
def mlx5dv_devx_get_async_cmd_comp(channel: CmdComp, outlen: int) -> DevxAnswer: ...
def mlx5dv_devx_create_event_channel(context: Context, flags: int = 0) -> EventChannel: ...
def mlx5dv_devx_subscribe_devx_event(
    channel: EventChannel, obj: DevxObj | None, events: Iterable[int], cookie: int = 0
) -> None: ...
def mlx5dv_devx_subscribe_devx_event_fd(
    channel: EventChannel, fd: int, obj: DevxObj | None, event_num: int
) -> None: ...
def mlx5dv_devx_get_event(channel: EventChannel, max_data: int = 128) -> DevxEvent: ...
def mlx5dv_devx_umem_reg(context: Context, addr: int, size: int, access: int) -> Umem: ...
def mlx5dv_devx_umem_reg_ex(
    context: Context,
    addr: int,
    size: int,
    access: int,
    *,
    pgsz_bitmap: int,
    comp_mask: int = 0,
    dmabuf_fd: int = -1,
) -> Umem: ...
def mlx5dv_devx_alloc_uar(context: Context, flags: int) -> Uar: ...
def mlx5dv_devx_query_eqn(context: Context, vector: int) -> int: ...
def mlx5dv_query_device(context: Context, comp_mask: int = 0) -> dict[str, int]: ...
def mlx5dv_get_clock_info(context: Context) -> ClockInfo: ...
def mlx5dv_ts_to_ns(clock_info: ClockInfo, device_timestamp: int) -> int: ...
def store_doorbell(address: int, value: bytes) -> None: ...
def ring_for_kernels(table: bytes, stop: int, busy_ns: int, longest_sleep_ns: int) -> int: ...
