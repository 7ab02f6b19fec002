# SPDX-License-Identifier: Apache-2.0
"""The same faults through plain verbs calls, as a user of libibverbs makes them: what ibv_poll_cq tells.

Uses the connected pair of tests/verbs. For faults that the library itself would not let through, such as a request
written by hand, there is nothing to compare.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gda import _verbs, attach

sys.path.append(str(Path(__file__).resolve().parents[1] / "verbs"))
from connected import RIGHTS, Pair, address_of, make_pair, poll

STATUS = {
    int(getattr(_verbs, name)): name
    for name in dir(_verbs)
    if name.startswith("IBV_WC_") and (name.endswith("_ERR") or name == "IBV_WC_SUCCESS")
}


def _write(pair: Pair, **changes: Any) -> None:
    fields = {
        "opcode": _verbs.IBV_WR_RDMA_WRITE, "sg_list": pair.piece(64), "send_flags": _verbs.IBV_SEND_SIGNALED,
        **pair.there(),
    } | changes  # fmt: skip
    _verbs.ibv_post_send(pair.a, _verbs.SendWR(**fields))


def _lkey(pair: Pair) -> None:
    _write(pair, sg_list=[(pair.source_mr.addr, 64, 0xDEAD00)])


def _rkey(pair: Pair) -> None:
    _write(pair, rkey=0xDEAD00)


def _domain(pair: Pair) -> None:
    array = np.zeros(64, np.uint8)
    with _verbs.ibv_alloc_pd(pair.context) as other, _verbs.ibv_reg_mr(other, address_of(array), 64, RIGHTS) as mr:
        _write(pair, sg_list=[(mr.addr, 64, mr.lkey)])
        attach.software_nic().step()


def _right(pair: Pair) -> None:
    array = np.zeros(64, np.uint8)
    with _verbs.ibv_reg_mr(pair.pd, address_of(array), 64, _verbs.IBV_ACCESS_REMOTE_READ) as mr:
        _write(pair, remote_addr=mr.addr, rkey=mr.rkey)
        for _ in range(5):
            attach.software_nic().step()


def _range(pair: Pair) -> None:
    _write(pair, **pair.there(65536 - 63))


def _atomic(pair: Pair) -> None:
    _write(
        pair, opcode=_verbs.IBV_WR_ATOMIC_FETCH_AND_ADD, sg_list=pair.piece(8), compare_add=1, **pair.there(4)
    )


def _reset(pair: Pair) -> None:
    _verbs.ibv_modify_qp(pair.b, _verbs.IBV_QP_STATE, qp_state=_verbs.IBV_QPS_RESET)
    _write(pair)


FAULTS: dict[str, Callable[[Pair], None]] = {
    "lkey": _lkey, "rkey": _rkey, "domain": _domain, "right": _right, "range": _range, "atomic": _atomic,
    "reset": _reset,
}  # fmt: skip


def tells(name: str) -> str:
    """Status and vendor's syndrome of the completion, as the column of the table has them."""
    software = attach.software_nic()
    context = _verbs.mlx5dv_open_device(_verbs.ibv_get_device_list()[0].name, _verbs.MLX5DV_CONTEXT_FLAGS_DEVX)
    with context, _verbs.ibv_alloc_pd(context) as pd:
        cqs = [_verbs.ibv_create_cq(context, 64) for _ in range(2)]
        pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs)
        try:
            FAULTS[name](pair)
            (done,) = poll(pair.a.send_cq, software)
            return f"{STATUS[done.status]}, vendor 0x{done.vendor_err:02x}"
        finally:
            pair.close()
            for cq in cqs:
                cq.close()
