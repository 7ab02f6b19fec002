# SPDX-License-Identifier: Apache-2.0
"""The faults with queue pairs of libibverbs: what a user of that alone is told, by ibv_poll_cq.

Requests by hand go as direct verbs let one write them: into the ring, the record and the register that
mlx5dv_init_obj names. Everything else is ibv_post_send. No library of this project stands between.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from faults import Fault
from rig import Bench

from gda import _verbs, attach, formats
from gda.nic import ConnectionInfo

sys.path.append(str(Path(__file__).resolve().parents[1] / "verbs"))
from connected import RIGHTS, address_of, to_rts

SGID_INDEX = 3  # RoCE v2 over IPv4, which gda takes as well
PSN = 7
LATER_S = 0.4  # how long a completion may take that comes after the complaint
STATUS = {
    int(getattr(_verbs, name)): name
    for name in dir(_verbs)
    if name.startswith("IBV_WC_") and (name.endswith("_ERR") or name == "IBV_WC_SUCCESS")
}
ACCESS = {
    "local_write": _verbs.IBV_ACCESS_LOCAL_WRITE, "remote_write": _verbs.IBV_ACCESS_REMOTE_WRITE,
    "remote_read": _verbs.IBV_ACCESS_REMOTE_READ, "remote_atomic": _verbs.IBV_ACCESS_REMOTE_ATOMIC,
    "relaxed_ordering": _verbs.IBV_ACCESS_RELAXED_ORDERING,
}  # fmt: skip


class Region:
    """ibv_reg_mr of an array."""

    def __init__(self, pd: _verbs.PD, array: np.ndarray, access: tuple[str, ...] | None = None) -> None:
        self.array = array
        rights = RIGHTS if access is None else sum(ACCESS[name] for name in access)
        self.raw = _verbs.ibv_reg_mr(pd, address_of(array), array.nbytes, rights)
        self.address, self.lkey, self.rkey = self.raw.addr, self.raw.lkey, self.raw.rkey


class Queue:
    """ibv_create_qp and mlx5dv_init_obj."""

    def __init__(self, context: _verbs.Context, pd: _verbs.PD) -> None:
        self.cq = _verbs.ibv_create_cq(context, 15)
        self.raw = _verbs.ibv_create_qp(
            pd, qp_type=_verbs.IBV_QPT_RC, send_cq=self.cq, recv_cq=self.cq, max_send_wr=4, max_recv_wr=0,
            max_send_sge=1, max_recv_sge=0,
        )  # fmt: skip
        self.qpn: int = self.raw.qp_num
        self.gid = _verbs.ibv_query_gid_ex(context, 1, SGID_INDEX).gid
        self.places, self.entries = _verbs.mlx5dv_init_obj_qp(self.raw), _verbs.mlx5dv_init_obj_cq(self.cq)
        self.depth = self.places.sq_wqe_cnt
        assert self.depth == self.entries.cqe_cnt == 16, (self.places, self.entries)  # as the faults take it to be

    @property
    def info(self) -> ConnectionInfo:
        return ConnectionInfo(self.qpn, PSN, self.gid, int(_verbs.IBV_MTU_1024), roce_version=2)

    def connect(self, to: ConnectionInfo) -> None:
        to_rts(self.raw, to.qpn, to.gid, sgid_index=SGID_INDEX, sq_psn=PSN, rq_psn=to.psn)

    def reset(self) -> None:
        _verbs.ibv_modify_qp(self.raw, _verbs.IBV_QP_STATE, qp_state=_verbs.IBV_QPS_RESET)

    def to_error(self) -> None:
        _verbs.ibv_modify_qp(self.raw, _verbs.IBV_QP_STATE, qp_state=_verbs.IBV_QPS_ERR)

    def where(self) -> dict[str, tuple[str, int, int]]:
        return {
            "record": ("host", self.places.dbrec, 8), "cq_record": ("host", self.entries.dbrec, 8),
            "doorbell": ("uar", self.places.bf_reg, 8), "cq": ("host", self.entries.buf, 16 * self.entries.cqe_size),
        }  # fmt: skip

    def write_wqe(self, index: int, wqe: bytes) -> None:
        assert len(wqe) <= 64 or index % self.depth + len(wqe) // 64 < self.depth
        ctypes.memmove(self.places.sq_buf + index % self.depth * 64, wqe, len(wqe))

    def write_record(self, counter: int) -> None:
        record = formats.qp_doorbell_record.pack(send_counter=counter)
        ctypes.memmove(self.places.dbrec + 4, record[4:], 4)

    def ring(self, value: bytes) -> None:
        _verbs.store_doorbell(self.places.bf_reg, value)

    def close(self) -> None:
        self.raw.close()
        self.cq.close()


@dataclass
class Opened:
    """A context and its protection domain."""

    context: _verbs.Context = field(
        default_factory=lambda: _verbs.mlx5dv_open_device(
            _verbs.ibv_get_device_list()[0].name, _verbs.MLX5DV_CONTEXT_FLAGS_DEVX
        )
    )

    def __post_init__(self) -> None:
        self.pd = _verbs.ibv_alloc_pd(self.context)


class Plain(Bench):
    """Two queue pairs of libibverbs, connected to each other."""

    def __init__(self, **options: Any) -> None:
        self.software = attach.software_nic()
        self.software.clear_report()
        self.opened = Opened()
        self.polls = options.get("ignore_overrun", True)  # else nobody reads completions before the end
        self.kept: list[Region] = []
        self.source = self.register(np.arange(512, dtype=np.uint64))
        self.target = self.register(np.zeros(4096, np.uint8))
        self.queues: list[Queue] = []
        self.a, self.b = self.queue(), self.queue()
        self.a.connect(self.b.info)
        self.b.connect(self.a.info)
        self.done: list[_verbs.WC] = []
        self.written = self.cqes()

    def another(self) -> Plain:
        return Plain()

    def register(self, array: np.ndarray, **options: Any) -> Region:
        self.kept.append(Region(self.opened.pd, array, **options))
        return self.kept[-1]

    def queue(self) -> Queue:
        self.queues.append(Queue(self.opened.context, self.opened.pd))
        return self.queues[-1]

    def cqes(self) -> int:
        return int(self.software.counters()["cqes"])

    def poll(self) -> list[_verbs.WC]:
        """All completions so far."""
        self.done += _verbs.ibv_poll_cq(self.a.cq, 32)
        return self.done

    def is_complete(self, index: int) -> bool:
        return len(self.poll()) > index if self.polls else self.cqes() - self.written > index

    def post_send(self, **changes: Any) -> None:
        fields = {
            "opcode": _verbs.IBV_WR_RDMA_WRITE, "sg_list": [(self.source.address, 64, self.source.lkey)],
            "send_flags": _verbs.IBV_SEND_SIGNALED, "remote_addr": self.target.address, "rkey": self.target.rkey,
        } | changes  # fmt: skip
        _verbs.ibv_post_send(self.a.raw, _verbs.SendWR(**fields))

    def put(self, target: Any, at: int, bytes: int, deadline_ms: int) -> None:
        self.post_send(
            sg_list=[(self.source.address, bytes, self.source.lkey)], remote_addr=target.address + at, rkey=target.rkey
        )
        self.until(self.poll, deadline_ms / 1000)

    def put_behind_a_window(self, region: Region, at: int, bytes: int, deadline_ms: int) -> None:
        """Nobody but the sender's program knows of the window."""
        self.put(region, at + bytes, bytes, deadline_ms)

    def signal(self, signals: Any) -> None:
        self.post_send(send_flags=0)
        self.post_send(
            opcode=_verbs.IBV_WR_ATOMIC_FETCH_AND_ADD, sg_list=[(self.source.address, 8, self.source.lkey)],
            remote_addr=signals.address, rkey=signals.rkey, compare_add=1,
        )  # fmt: skip
        self.until(self.poll, 2)

    def close(self) -> None:
        self.calm()
        for queue in self.queues:
            queue.close()
        for region in self.kept:
            region.raw.close()
        self.opened.pd.close()
        self.opened.context.close()


def tells(fault: Fault) -> str:
    """Status and vendor's syndrome of the completion that tells most, as the column of the table has them."""
    rig = Plain(**fault.options)
    rig.software.set_thread("adaptive")
    try:
        fault.make(rig)
        if fault.kind:
            assert rig.until(lambda: any(c.kind == fault.kind for c in rig.software.report()), fault.seconds)
        rig.until(lambda: any(wc.status for wc in rig.poll()) or len(rig.done) > fault.last, LATER_S)
        wrong = [wc for wc in rig.poll() if wc.status]
        first = next((wc for wc in wrong if wc.status != _verbs.IBV_WC_WR_FLUSH_ERR), next(iter(wrong), None))
        if first is not None:
            return f"{STATUS[first.status]}, vendor 0x{first.vendor_err:02x}"
        return "success" if len(rig.done) > fault.last else "nothing: ibv_poll_cq returns 0 for ever"
    finally:
        rig.close()
        rig.software.set_thread("adaptive")
