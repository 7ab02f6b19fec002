# SPDX-License-Identifier: Apache-2.0
"""Types of gda/_verbs.pyx; its docstrings are there."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self

from gda.errors import VerbsError

IBV_ACCESS_LOCAL_WRITE: int
IBV_ACCESS_REMOTE_WRITE: int
IBV_ACCESS_REMOTE_READ: int
IBV_ACCESS_REMOTE_ATOMIC: int
IBV_ACCESS_RELAXED_ORDERING: int
IBV_NODE_CA: int
IBV_LINK_LAYER_INFINIBAND: int
IBV_LINK_LAYER_ETHERNET: int
IBV_PORT_DOWN: int
IBV_PORT_ACTIVE: int
IBV_GID_TYPE_IB: int
IBV_GID_TYPE_ROCE_V1: int
IBV_GID_TYPE_ROCE_V2: int
IBV_MTU_256: int
IBV_MTU_512: int
IBV_MTU_1024: int
IBV_MTU_2048: int
IBV_MTU_4096: int
IBV_QPT_RC: int
IBV_QPT_UC: int
IBV_QPT_UD: int
IBV_QPS_RESET: int
IBV_QPS_INIT: int
IBV_QPS_RTR: int
IBV_QPS_RTS: int
IBV_QPS_SQD: int
IBV_QPS_SQE: int
IBV_QPS_ERR: int
IBV_QP_STATE: int
IBV_QP_CUR_STATE: int
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
IBV_QP_MIN_RNR_TIMER: int
IBV_QP_SQ_PSN: int
IBV_QP_MAX_DEST_RD_ATOMIC: int
IBV_QP_CAP: int
IBV_QP_DEST_QPN: int
IBV_WR_RDMA_WRITE: int
IBV_WR_RDMA_WRITE_WITH_IMM: int
IBV_WR_SEND: int
IBV_WR_SEND_WITH_IMM: int
IBV_WR_RDMA_READ: int
IBV_WR_ATOMIC_CMP_AND_SWP: int
IBV_WR_ATOMIC_FETCH_AND_ADD: int
IBV_SEND_FENCE: int
IBV_SEND_SIGNALED: int
IBV_SEND_SOLICITED: int
IBV_SEND_INLINE: int
IBV_WC_SUCCESS: int
IBV_WC_LOC_LEN_ERR: int
IBV_WC_LOC_QP_OP_ERR: int
IBV_WC_LOC_PROT_ERR: int
IBV_WC_WR_FLUSH_ERR: int
IBV_WC_REM_INV_REQ_ERR: int
IBV_WC_REM_ACCESS_ERR: int
IBV_WC_REM_OP_ERR: int
IBV_WC_RETRY_EXC_ERR: int
IBV_WC_RNR_RETRY_EXC_ERR: int
IBV_WC_SEND: int
IBV_WC_RDMA_WRITE: int
IBV_WC_RDMA_READ: int
IBV_WC_RECV: int
IBV_WC_RECV_RDMA_WITH_IMM: int
IBV_WC_WITH_IMM: int
MLX5DV_CONTEXT_FLAGS_DEVX: int
MLX5DV_UMEM_MASK_DMABUF: int
MLX5DV_UAR_ALLOC_TYPE_BF: int
MLX5DV_UAR_ALLOC_TYPE_NC: int
MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED: int

class Device(NamedTuple):
    name: str
    guid: int
    mlx5: bool

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

class DevxError(VerbsError):
    output: bytes
    def __init__(self, call: str, error: int, advice: str = "", output: bytes = b"") -> None: ...

class Object:
    @property
    def children(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Context(Object):
    @property
    def name(self) -> str: ...
    @property
    def cmd_fd(self) -> int: ...
    @property
    def async_fd(self) -> int: ...
    @property
    def num_comp_vectors(self) -> int: ...

class PD(Object):
    @property
    def context(self) -> Context: ...
    @property
    def handle(self) -> int: ...

class MR(Object):
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

class AH(Object):
    @property
    def pd(self) -> PD: ...

class CompChannel(Object):
    @property
    def context(self) -> Context: ...
    @property
    def fd(self) -> int: ...

class CQ(Object):
    @property
    def context(self) -> Context: ...
    @property
    def channel(self) -> CompChannel | None: ...
    @property
    def cqe(self) -> int: ...
    @property
    def handle(self) -> int: ...

class QP(Object):
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
def ibv_query_device(context: Context) -> dict[str, int | str]: ...
def ibv_query_device_ex(context: Context) -> dict[str, int | str]: ...
def ibv_query_port(context: Context, port_num: int) -> dict[str, int]: ...
def ibv_query_gid(context: Context, port_num: int, index: int) -> bytes: ...
def ibv_query_gid_ex(context: Context, port_num: int, gid_index: int, flags: int = 0) -> GidEntry: ...
def ibv_query_gid_table(context: Context, max_entries: int, flags: int = 0) -> list[GidEntry]: ...
def ibv_query_pkey(context: Context, port_num: int, index: int) -> int: ...
def ibv_alloc_pd(context: Context) -> PD: ...
def mlx5dv_init_obj_pd(pd: PD) -> int: ...
def ibv_reg_mr(pd: PD, addr: int, length: int, access: int) -> MR: ...
def ibv_reg_mr_iova(pd: PD, addr: int, length: int, iova: int, access: int) -> MR: ...
def ibv_reg_dmabuf_mr(pd: PD, offset: int, length: int, iova: int, fd: int, access: int) -> MR: ...
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
def ibv_poll_cq(cq: CQ, num_entries: int) -> list[WC]: ...
def ibv_wc_status_str(status: int) -> str: ...
def ibv_req_notify_cq(cq: CQ, solicited_only: bool = False) -> None: ...
def ibv_get_cq_event(channel: CompChannel) -> CQ: ...
def ibv_ack_cq_events(cq: CQ, nevents: int) -> None: ...
def ibv_create_qp(
    pd: PD,
    *,
    qp_type: int,
    send_cq: CQ,
    recv_cq: CQ,
    max_send_wr: int = 1,
    max_recv_wr: int = 1,
    max_send_sge: int = 1,
    max_recv_sge: int = 1,
    max_inline_data: int = 0,
    sq_sig_all: bool = False,
) -> QP: ...
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
) -> None: ...
def ibv_query_qp(qp: QP, attr_mask: int) -> dict[str, int | bytes | dict[str, int]]: ...
def ibv_post_send(
    qp: QP,
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
) -> None: ...
def ibv_post_recv(qp: QP, *, sg_list: Iterable[tuple[int, int, int]] = (), wr_id: int = 0) -> None: ...
def mlx5dv_devx_general_cmd(context: Context, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_obj_create(context: Context, command: bytes, outlen: int) -> DevxObj: ...
def mlx5dv_devx_obj_query(obj: DevxObj, command: bytes, outlen: int) -> bytes: ...
def mlx5dv_devx_obj_modify(obj: DevxObj, command: bytes, outlen: int) -> bytes: ...
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
def store_doorbell(address: int, value: bytes) -> None: ...
