# SPDX-License-Identifier: Apache-2.0
"""Two connected queue pairs of one process and the memory between which they move: what the tests of posting share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gda import _verbs, attach

RIGHTS = (
    _verbs.IBV_ACCESS_LOCAL_WRITE
    | _verbs.IBV_ACCESS_REMOTE_WRITE
    | _verbs.IBV_ACCESS_REMOTE_READ
    | _verbs.IBV_ACCESS_REMOTE_ATOMIC
)
QKEY = 0x11111111
ALL_SEND_OPS = {
    _verbs.IBV_QPT_RC: _verbs.IBV_QP_EX_WITH_RDMA_WRITE
    | _verbs.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | _verbs.IBV_QP_EX_WITH_SEND
    | _verbs.IBV_QP_EX_WITH_SEND_WITH_IMM
    | _verbs.IBV_QP_EX_WITH_RDMA_READ
    | _verbs.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | _verbs.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    _verbs.IBV_QPT_UC: _verbs.IBV_QP_EX_WITH_RDMA_WRITE | _verbs.IBV_QP_EX_WITH_SEND,
    _verbs.IBV_QPT_UD: _verbs.IBV_QP_EX_WITH_SEND | _verbs.IBV_QP_EX_WITH_SEND_WITH_IMM,
}


def address_of(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def to_rts(
    qp: _verbs.QP, peer: int, gid: bytes, port: int = 1, *, sgid_index: int = 1, sq_psn: int = 7, rq_psn: int = 7
) -> None:
    """Connect to the queue pair number `peer` behind `gid`, whatever the type, from that port."""
    v = _verbs
    kind = qp.qp_type
    if kind == v.IBV_QPT_UD:
        v.ibv_modify_qp(
            qp, v.IBV_QP_STATE | v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT | v.IBV_QP_QKEY,
            qp_state=v.IBV_QPS_INIT, port_num=port, qkey=QKEY,
        )  # fmt: skip
        v.ibv_modify_qp(qp, v.IBV_QP_STATE, qp_state=v.IBV_QPS_RTR)
        v.ibv_modify_qp(qp, v.IBV_QP_STATE | v.IBV_QP_SQ_PSN, qp_state=v.IBV_QPS_RTS, sq_psn=7)
        return
    v.ibv_modify_qp(
        qp, v.IBV_QP_STATE | v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT | v.IBV_QP_ACCESS_FLAGS,
        qp_state=v.IBV_QPS_INIT, port_num=port,
        qp_access_flags=RIGHTS if kind == v.IBV_QPT_RC else v.IBV_ACCESS_REMOTE_WRITE,
    )  # fmt: skip
    to_rtr = v.IBV_QP_STATE | v.IBV_QP_AV | v.IBV_QP_PATH_MTU | v.IBV_QP_DEST_QPN | v.IBV_QP_RQ_PSN
    to_rts = v.IBV_QP_STATE | v.IBV_QP_SQ_PSN
    if kind == v.IBV_QPT_RC:
        to_rtr |= v.IBV_QP_MAX_DEST_RD_ATOMIC | v.IBV_QP_MIN_RNR_TIMER
        to_rts |= v.IBV_QP_TIMEOUT | v.IBV_QP_RETRY_CNT | v.IBV_QP_RNR_RETRY | v.IBV_QP_MAX_QP_RD_ATOMIC
    v.ibv_modify_qp(
        qp, to_rtr, qp_state=v.IBV_QPS_RTR, path_mtu=v.IBV_MTU_1024, dest_qp_num=peer, rq_psn=rq_psn,
        max_dest_rd_atomic=1, min_rnr_timer=12, port_num=port, dgid=gid, sgid_index=sgid_index,
    )  # fmt: skip
    v.ibv_modify_qp(
        qp, to_rts, qp_state=v.IBV_QPS_RTS, timeout=14, retry_cnt=7, rnr_retry=7, sq_psn=sq_psn, max_rd_atomic=1
    )


def until(condition: Callable[[], bool], software: attach.SoftwareNic, seconds: float = 10.0) -> None:
    """Step the software NIC until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not after {seconds} s: {software.report()}"
        software.step()


def poll(cq: _verbs.CQ, software: attach.SoftwareNic, count: int = 1) -> list[_verbs.WC]:
    """Exactly `count` completions."""
    done: list[_verbs.WC] = []

    def enough() -> bool:
        done.extend(_verbs.ibv_poll_cq(cq, count - len(done)))
        return len(done) == count

    until(enough, software)
    return done


@dataclass
class Pair:
    """a and b are connected; source and target lie in memory that both may use in every way."""

    context: _verbs.Context
    pd: _verbs.PD
    a: _verbs.QP
    b: _verbs.QP
    gid: bytes
    source: np.ndarray
    target: np.ndarray
    source_mr: _verbs.MR
    target_mr: _verbs.MR

    def piece(self, bytes: int, offset: int = 0) -> list[tuple[int, int, int]]:
        return [(self.source_mr.addr + offset, bytes, self.source_mr.lkey)]

    def landing(self, bytes: int, offset: int = 0) -> list[tuple[int, int, int]]:
        return [(self.target_mr.addr + offset, bytes, self.target_mr.lkey)]

    def close(self) -> None:
        """Close what make_pair made."""
        for thing in (self.a, self.b, self.source_mr, self.target_mr):
            thing.close()

    def there(self, offset: int = 0) -> dict[str, int]:
        return {"remote_addr": self.target_mr.addr + offset, "rkey": self.target_mr.rkey}


def make_pair(
    context: _verbs.Context, pd: _verbs.PD, kind: int, cqs: list[_verbs.CQ], *, extended: bool = False,
    srq: _verbs.SRQ | None = None, ports: tuple[int, int] = (1, 1), **capacities: int,
) -> Pair:  # fmt: skip
    """A connected pair of that type over the two completion queues; capacities such as max_send_wr=10.

    `gid` of the result is that of b's port.
    """
    create = _verbs.ibv_create_qp_ex if extended else _verbs.ibv_create_qp
    more = {"send_ops_flags": ALL_SEND_OPS[kind]} if extended else {}
    asked = {"max_send_wr": 16, "max_recv_wr": 16, "max_send_sge": 3, "max_recv_sge": 2, "max_inline_data": 64}
    a, b = (create(pd, qp_type=kind, send_cq=cq, recv_cq=cq, srq=srq, **asked | capacities, **more) for cq in cqs)
    gids = [_verbs.ibv_query_gid_ex(context, port, 1).gid for port in ports]
    to_rts(a, b.qp_num, gids[1], ports[0])
    to_rts(b, a.qp_num, gids[0], ports[1])
    source, target = np.arange(65536, dtype=np.uint8), np.zeros(65536, np.uint8)
    mrs = [_verbs.ibv_reg_mr(pd, address_of(x), x.nbytes, RIGHTS) for x in (source, target)]
    return Pair(context, pd, a, b, gids[1], source, target, *mrs)
