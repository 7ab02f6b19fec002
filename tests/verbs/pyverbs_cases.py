# SPDX-License-Identifier: Apache-2.0
"""Run by test_pyverbs.py under the system's Python, which has Debian's pyverbs: `python pyverbs_cases.py CASE`."""

from __future__ import annotations

import json
import mmap
import sys
import time

from gda import _verbs, attach
from gda.errors import ArgumentError, ClosedError

software = attach.software_nic()

from pyverbs.cq import CQ, CQEX, CqInitAttrEx  # noqa: E402
from pyverbs.device import Context  # noqa: E402
from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_QPT_RC  # noqa: E402
from pyverbs.mr import MR  # noqa: E402
from pyverbs.pd import PD  # noqa: E402
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr  # noqa: E402
from pyverbs.wr import SGE, SendWR  # noqa: E402

from gda.nic import interop  # noqa: E402

RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
NAME = _verbs.ibv_get_device_list()[0].name


def refused(call, kind: type[Exception]) -> bool:
    try:
        call()
    except kind:
        return True
    return False


def connect(qp: _verbs.QP, peer: int, gid: bytes) -> None:
    v = _verbs
    v.ibv_modify_qp(
        qp, v.IBV_QP_STATE | v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT | v.IBV_QP_ACCESS_FLAGS,
        qp_state=v.IBV_QPS_INIT, port_num=1, qp_access_flags=RIGHTS,
    )  # fmt: skip
    v.ibv_modify_qp(
        qp,
        v.IBV_QP_STATE | v.IBV_QP_AV | v.IBV_QP_PATH_MTU | v.IBV_QP_DEST_QPN | v.IBV_QP_RQ_PSN
        | v.IBV_QP_MAX_DEST_RD_ATOMIC | v.IBV_QP_MIN_RNR_TIMER,
        qp_state=v.IBV_QPS_RTR, path_mtu=v.IBV_MTU_1024, dest_qp_num=peer, max_dest_rd_atomic=1, min_rnr_timer=12,
        port_num=1, dgid=gid, sgid_index=1,
    )  # fmt: skip
    v.ibv_modify_qp(
        qp,
        v.IBV_QP_STATE | v.IBV_QP_TIMEOUT | v.IBV_QP_RETRY_CNT | v.IBV_QP_RNR_RETRY | v.IBV_QP_SQ_PSN
        | v.IBV_QP_MAX_QP_RD_ATOMIC,
        qp_state=v.IBV_QPS_RTS, timeout=14, retry_cnt=7, rnr_retry=7, max_rd_atomic=1,
    )  # fmt: skip


def wait(cq: _verbs.CQ, count: int = 1) -> list[_verbs.WC]:
    done: list[_verbs.WC] = []
    end = time.monotonic() + 10
    while len(done) < count and time.monotonic() < end:
        done += _verbs.ibv_poll_cq(cq, count - len(done))
        software.step()
    assert len(done) == count and all(wc.status == 0 for wc in done), done
    return done


def theirs_become_ours() -> None:
    """A pyverbs Context, PD and MR: the same keys, and data goes by them."""
    context = Context(name=NAME)
    pd = PD(context)
    mr = MR(pd, 4096, RIGHTS)
    ours = interop.from_pyverbs(context)
    our_pd = interop.from_pyverbs(pd, ours)
    our_mr = interop.from_pyverbs(mr, our_pd)
    assert (our_mr.lkey, our_mr.rkey) == (mr.lkey, mr.rkey)
    assert refused(lambda: interop.from_pyverbs(pd), ArgumentError)
    assert refused(lambda: interop.from_pyverbs(object()), ArgumentError)
    cqs = [_verbs.ibv_create_cq(ours, 8) for _ in range(2)]
    qps = [_verbs.ibv_create_qp(our_pd, qp_type=IBV_QPT_RC, send_cq=cq, recv_cq=cq) for cq in cqs]
    gid = _verbs.ibv_query_gid_ex(ours, 1, 1).gid
    connect(qps[0], qps[1].qp_num, gid)
    connect(qps[1], qps[0].qp_num, gid)
    mr.write("from their memory to their memory", 33)
    _verbs.ibv_post_send(
        qps[0],
        _verbs.SendWR(
            opcode=_verbs.IBV_WR_RDMA_WRITE,
            sg_list=[(mr.buf, 33, our_mr.lkey)],
            send_flags=_verbs.IBV_SEND_SIGNALED,
            remote_addr=mr.buf + 100,
            rkey=our_mr.rkey,
        ),
    )
    wait(cqs[0])
    assert mr.read(33, 100) == b"from their memory to their memory"
    for thing in (*qps, *cqs, our_mr, our_pd, ours):
        thing.close()
    mr.close()
    pd.close()
    context.close()


def ours_become_theirs() -> None:
    """Our Context, PD and MR as pyverbs objects."""
    context = _verbs.mlx5dv_open_device(NAME, _verbs.MLX5DV_CONTEXT_FLAGS_DEVX)
    pd = _verbs.ibv_alloc_pd(context)
    pages = mmap.mmap(-1, 4096)
    import numpy as np

    address = np.frombuffer(pages, np.uint8).__array_interface__["data"][0]
    mr = _verbs.ibv_reg_mr(pd, address, 4096, RIGHTS)
    theirs = interop.to_pyverbs(context)
    their_pd = interop.to_pyverbs(pd, theirs)
    their_mr = interop.to_pyverbs(mr, their_pd)
    assert (their_mr.lkey, their_mr.rkey) == (mr.lkey, mr.rkey)
    assert theirs.query_device().max_qp == _verbs.ibv_query_device(context)["max_qp"]
    assert refused(lambda: interop.to_pyverbs(pd), ArgumentError)
    cq = _verbs.ibv_create_cq(context, 4)
    assert refused(lambda: interop.to_pyverbs(cq), ArgumentError)
    cq.close()
    their_mr.unimport()
    their_pd.unimport()
    theirs.close()
    for thing in (mr, pd, context):
        thing.close()


def their_queues_are_driven_by_us() -> None:
    """pyverbs makes the queues; we connect, post and poll by pointer; closing ours leaves theirs alone."""
    context = Context(name=NAME)
    pd = PD(context)
    cqs = [CQ(context, 10), CQ(context, 20)]
    qps = [QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4))) for cq in cqs]
    mr = MR(pd, 4096, RIGHTS)
    ours = [interop.from_pyverbs(qp) for qp in qps]
    assert [qp.qp_num for qp in ours] == [qp.qp_num for qp in qps] and all(qp.borrowed for qp in ours)
    gid = _verbs.ibv_query_gid_ex(ours[0].pd.context, 1, 1).gid
    connect(ours[0], ours[1].qp_num, gid)
    connect(ours[1], ours[0].qp_num, gid)
    our_cq = interop.from_pyverbs(cqs[0])
    assert our_cq.cqe == cqs[0].cqe
    mr.write("abc", 3)
    _verbs.ibv_post_send(
        ours[0],
        _verbs.SendWR(
            opcode=_verbs.IBV_WR_RDMA_WRITE,
            sg_list=[(mr.buf, 3, mr.lkey)],
            send_flags=_verbs.IBV_SEND_SIGNALED,
            remote_addr=mr.buf + 8,
            rkey=mr.rkey,
        ),
    )
    wait(our_cq)
    assert mr.read(3, 8) == b"abc"
    for thing in (*ours, our_cq):
        thing.close()
    assert refused(lambda: ours[0].qp_num, ClosedError)
    attr, _ = qps[0].query(1)
    assert attr.qp_state == _verbs.IBV_QPS_RTS and isinstance(attr, QPAttr)
    extended = CQEX(context, CqInitAttrEx(cqe=5))
    assert interop.c_pointer(extended) != interop.c_pointer(cqs[0])
    assert refused(lambda: interop.c_pointer(pd), ArgumentError)
    for thing in (extended, *qps, mr, *cqs, pd, context):
        thing.close()


def cost_of_a_post() -> None:
    """Nanoseconds of posting one prepared 8-byte write: pyverbs and ours in turn on one queue pair; the best of rounds.

    Nothing is polled in between and completions are not asked for, except at the end of a round.
    """
    context = Context(name=NAME)
    pd = PD(context)
    cqs = [CQ(context, 600), CQ(context, 10)]
    cap = QPCap(max_send_wr=512)
    qps = [QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=0)) for cq in cqs]
    mr = MR(pd, 4096, RIGHTS)
    ours = [interop.from_pyverbs(qp) for qp in qps]
    gid = _verbs.ibv_query_gid_ex(ours[0].pd.context, 1, 1).gid
    connect(ours[0], ours[1].qp_num, gid)
    connect(ours[1], ours[0].qp_num, gid)
    software.set_thread("off")

    their_wr = SendWR(num_sge=1, sg=[SGE(mr.buf, 8, mr.lkey)], opcode=_verbs.IBV_WR_RDMA_WRITE, send_flags=0)
    their_wr.set_wr_rdma(mr.rkey, mr.buf + 64)
    our_wr = _verbs.SendWR(
        opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=[(mr.buf, 8, mr.lkey)], remote_addr=mr.buf + 64, rkey=mr.rkey
    )
    last = _verbs.SendWR(
        opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=[(mr.buf, 8, mr.lkey)], remote_addr=mr.buf + 64, rkey=mr.rkey,
        send_flags=_verbs.IBV_SEND_SIGNALED,
    )  # fmt: skip
    our_cq, count = ours[0].send_cq, 250
    assert ours[0].cap["max_send_wr"] >= 512, ours[0].cap

    def theirs(qp=qps[0], wr=their_wr) -> float:
        post = qp.post_send
        start = time.perf_counter_ns()
        for _ in range(count):
            post(wr)
        return (time.perf_counter_ns() - start) / count

    def mine(qp=ours[0], wr=our_wr) -> float:
        post = _verbs.ibv_post_send
        start = time.perf_counter_ns()
        for _ in range(count):
            post(qp, wr)
        return (time.perf_counter_ns() - start) / count

    best = {"pyverbs": float("inf"), "gda": float("inf")}
    for _ in range(40):
        for name, call in (("pyverbs", theirs), ("gda", mine)):
            best[name] = min(best[name], call())
            _verbs.ibv_post_send(ours[0], last)
            wait(our_cq)
    print(json.dumps(best))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("done")
