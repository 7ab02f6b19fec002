# SPDX-License-Identifier: Apache-2.0
"""A queue pair of libibverbs from reset to ready-to-send. Used by host_queue.py and proxied.py.

Source: ibv_modify_qp(3); InfiniBand Architecture Specification, volume 1, "Queue Pair States".
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from gda import _verbs
from gda.errors import GdaError, VerbsError
from gda.nic import checked
from gda.nic.addresses import Gid, unreachable
from gda.nic.connection import ConnectionInfo, Options

if TYPE_CHECKING:
    from gda.nic.device import Nic

__all__ = ["SERVICES", "make_ready", "most_reads"]

_V = _verbs
SERVICES = {"RC": int(_V.IBV_QPT_RC), "UC": int(_V.IBV_QPT_UC), "UD": int(_V.IBV_QPT_UD)}


def make_ready(
    nic: Nic,
    queue: _verbs.QP,
    remote: ConnectionInfo,
    *,
    mtu: int,
    psn: int,
    gid: Gid | None,
    options: Options,
    transport: str = "RC",
    q_key: int = 0,
) -> None:
    """Connect it to `remote`; back in reset when that fails. UD has no peer: `remote` then names nobody."""
    try:
        _to_init(nic, queue, options, transport, q_key)
        _to_rtr(nic, queue, remote, mtu=mtu, gid=gid, options=options, transport=transport)
        _to_rts(nic, queue, psn, options, transport)
    except GdaError as error:
        _V.ibv_modify_qp(queue, _V.IBV_QP_STATE, qp_state=_V.IBV_QPS_RESET)
        if isinstance(error, VerbsError) and error.errno == errno.ETIMEDOUT and gid and gid.is_link_local:
            raise unreachable(nic.gids, gid, nic.port_name) from error
        raise


def _to_init(nic: Nic, queue: _verbs.QP, options: Options, transport: str, q_key: int) -> None:
    mask = _V.IBV_QP_STATE | _V.IBV_QP_PKEY_INDEX | _V.IBV_QP_PORT
    fields: dict[str, Any] = {"port_num": nic.port.number, "pkey_index": options.pkey_index}
    if transport == "UD":
        mask |= _V.IBV_QP_QKEY
        fields["qkey"] = q_key
    else:
        mask |= _V.IBV_QP_ACCESS_FLAGS
        rights = _V.IBV_ACCESS_LOCAL_WRITE | _V.IBV_ACCESS_REMOTE_WRITE
        if transport == "RC":
            rights |= _V.IBV_ACCESS_REMOTE_READ
            rights |= _V.IBV_ACCESS_REMOTE_ATOMIC if nic.capabilities.atomic else 0
        fields["qp_access_flags"] = rights
    checked.modify_qp(nic, queue, mask, qp_state=_V.IBV_QPS_INIT, **fields)


def _to_rtr(
    nic: Nic, queue: _verbs.QP, remote: ConnectionInfo, *, mtu: int, gid: Gid | None, options: Options, transport: str
) -> None:
    mask, fields = _V.IBV_QP_STATE, dict[str, Any]()
    if transport != "UD":
        mask |= _V.IBV_QP_AV | _V.IBV_QP_PATH_MTU | _V.IBV_QP_DEST_QPN | _V.IBV_QP_RQ_PSN
        fields = {
            "path_mtu": mtu, "dest_qp_num": remote.qpn, "rq_psn": remote.psn, "port_num": nic.port.number,
            "dlid": remote.lid, "is_global": gid is not None, "dgid": remote.gid,
            "sgid_index": gid.index if gid is not None else 0,
        }  # fmt: skip
    if transport == "RC":
        mask |= _V.IBV_QP_MAX_DEST_RD_ATOMIC | _V.IBV_QP_MIN_RNR_TIMER
        fields |= {"max_dest_rd_atomic": most_reads(nic, options), "min_rnr_timer": options.min_rnr_timer}
    checked.modify_qp(nic, queue, mask, qp_state=_V.IBV_QPS_RTR, **fields)


def _to_rts(nic: Nic, queue: _verbs.QP, psn: int, options: Options, transport: str) -> None:
    mask = _V.IBV_QP_STATE | _V.IBV_QP_SQ_PSN
    fields: dict[str, Any] = {"sq_psn": psn}
    if transport == "RC":
        mask |= _V.IBV_QP_TIMEOUT | _V.IBV_QP_RETRY_CNT | _V.IBV_QP_RNR_RETRY | _V.IBV_QP_MAX_QP_RD_ATOMIC
        fields |= {
            "timeout": options.ack_timeout, "retry_cnt": options.retry_count, "rnr_retry": options.rnr_retry,
            "max_rd_atomic": most_reads(nic, options),
        }  # fmt: skip
    checked.modify_qp(nic, queue, mask, qp_state=_V.IBV_QPS_RTS, **fields)


def most_reads(nic: Nic, options: Options) -> int:
    """How many reads and atomics may be outstanding."""
    if options.max_rd_atomic is not None:
        return options.max_rd_atomic
    device: dict[str, Any] = _verbs.ibv_query_device(nic.context)
    return min(16, int(device["max_qp_rd_atom"]))
