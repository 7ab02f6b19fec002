# SPDX-License-Identifier: Apache-2.0
"""libibverbs' calls that make and move queues, with every attribute checked before the NIC hears of it.

Used by host_queue.py, and by whoever wants gda._verbs with the sentences of lint.py: the same keywords, the NIC first.
Man pages: ibv_create_cq(3), ibv_create_qp(3), ibv_modify_qp(3), ibv_reg_mr(3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gda import _verbs
from gda.nic import lint

if TYPE_CHECKING:
    from gda.nic.device import Nic

__all__ = ["create_cq", "create_qp", "modify_qp", "reg_mr"]

_V = _verbs
# Which attributes a bit of ibv_modify_qp's mask makes count.
_OF_MASK: dict[int, tuple[str, ...]] = {
    _V.IBV_QP_ACCESS_FLAGS: ("qp_access_flags",),
    _V.IBV_QP_PKEY_INDEX: ("pkey_index",),
    _V.IBV_QP_PORT: ("port_num",),
    _V.IBV_QP_AV: ("sgid_index", "hop_limit", "traffic_class", "flow_label", "sl"),
    _V.IBV_QP_PATH_MTU: ("path_mtu",),
    _V.IBV_QP_TIMEOUT: ("timeout",),
    _V.IBV_QP_RETRY_CNT: ("retry_cnt",),
    _V.IBV_QP_RNR_RETRY: ("rnr_retry",),
    _V.IBV_QP_RQ_PSN: ("rq_psn",),
    _V.IBV_QP_MAX_QP_RD_ATOMIC: ("max_rd_atomic",),
    _V.IBV_QP_MIN_RNR_TIMER: ("min_rnr_timer",),
    _V.IBV_QP_SQ_PSN: ("sq_psn",),
    _V.IBV_QP_MAX_DEST_RD_ATOMIC: ("max_dest_rd_atomic",),
    _V.IBV_QP_DEST_QPN: ("dest_qp_num",),
}


def create_cq(nic: Nic, cqe: int, **options: Any) -> _verbs.CQ:
    """ibv_create_cq, strict: queue pairs that could overrun it are refused."""
    lint.check(lint.limits_of(nic.context), cqe=cqe)
    queue = _V.ibv_create_cq(nic.context, cqe, **options)
    queue.strict = True
    return queue


def create_qp(nic: Nic, *, qp_type: int, send_cq: _verbs.CQ, recv_cq: _verbs.CQ, **attributes: Any) -> _verbs.QP:
    """ibv_create_qp on the NIC's protection domain."""
    limits = lint.limits_of(nic.context)
    lint.check(limits, **attributes)
    sends, receives = attributes.get("max_send_wr", 1), attributes.get("max_recv_wr", 1)
    added = {send_cq: sends, recv_cq: receives} if send_cq is not recv_cq else {send_cq: sends + receives}
    for queue, more in added.items():
        entries = queue.cqe + 1
        if queue.strict and queue.bound + more > entries:
            name = "send_cq" if queue is send_cq else "recv_cq"
            lint.refuse(
                name, entries, f"{name} has {entries} entries, but its queue pairs could have {queue.bound + more} "
                f"completions outstanding: {queue.bound} of those that it has, {more} of this one",
                f"create_cq(nic, {queue.bound + more}), more completion queues, or smaller queue pairs",
            )  # fmt: skip
    return _V.ibv_create_qp(nic.pd, qp_type=qp_type, send_cq=send_cq, recv_cq=recv_cq, **attributes)


def modify_qp(nic: Nic, queue: _verbs.QP, mask: int, **attributes: Any) -> None:
    """ibv_modify_qp; only attributes that the mask names are checked, as only those count."""
    limits = lint.limits_of(nic.context)
    counted = {
        name: attributes[name] for bit, names in _OF_MASK.items() if mask & bit for name in names if name in attributes
    }
    if not mask & _V.IBV_QP_AV or not attributes.get("is_global", True):
        counted.pop("sgid_index", None)
    lint.check(limits, **counted)
    if "qp_access_flags" in counted:
        lint.check_access(limits, "qp_access_flags", counted["qp_access_flags"])
    lint.check_tables(
        limits, port=attributes.get("port_num") or None, pkey_index=counted.get("pkey_index"),
        gid_index=counted.get("sgid_index"),
    )  # fmt: skip
    if mask & _V.IBV_QP_AV and limits.is_ethernet:
        if not attributes.get("is_global", True):
            lint.refuse(
                "is_global", False, f"is_global=False: {limits.what} is on Ethernet, where every packet has a global "
                "route header (GRH)", "is_global=True, with dgid and sgid_index",
            )  # fmt: skip
        lint.check_remote_gid(limits, "dgid", attributes.get("dgid"))
    _V.ibv_modify_qp(queue, mask, **attributes)


def reg_mr(nic: Nic, addr: int, length: int, access: int) -> _verbs.MR:
    """ibv_reg_mr on the NIC's protection domain."""
    limits = lint.limits_of(nic.context)
    lint.check(limits, length=length)
    lint.check_access(limits, "access", access)
    return _V.ibv_reg_mr(nic.pd, addr, length, access)
