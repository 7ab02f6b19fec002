# SPDX-License-Identifier: Apache-2.0
"""ibv_wr_*: requests written straight into the ring; every operation, and what calls out of order answer."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import numpy as np
import pytest
from connected import QKEY, Pair, make_pair, poll, to_rts

from gda import _verbs, formats
from gda.errors import ArgumentError, ClosedError, VerbsError

SIGNALED = _verbs.IBV_SEND_SIGNALED


@pytest.fixture
def rc(context, pd, cqs) -> Iterator[Pair]:
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, extended=True)
    yield pair
    pair.close()


def begin(qp: _verbs.QP, wr_id: int = 0, flags: int = SIGNALED) -> None:
    _verbs.ibv_wr_start(qp)
    qp.wr_id, qp.wr_flags = wr_id, flags


def finish(pair: Pair, software) -> _verbs.WC:
    _verbs.ibv_wr_complete(pair.a)
    (wc,) = poll(pair.a.send_cq, software)
    assert wc.status == _verbs.IBV_WC_SUCCESS, _verbs.ibv_wc_status_str(wc.status)
    return wc


def test_write(rc, software):
    begin(rc.a, 5)
    assert (rc.a.wr_id, rc.a.wr_flags) == (5, SIGNALED)
    _verbs.ibv_wr_rdma_write(rc.a, rc.target_mr.rkey, rc.target_mr.addr)
    _verbs.ibv_wr_set_sge(rc.a, rc.source_mr.lkey, rc.source_mr.addr, 3000)
    assert finish(rc, software).wr_id == 5
    assert np.array_equal(rc.target[:3000], rc.source[:3000])


def test_gathered_and_inline_writes_in_one_batch(rc, software):
    begin(rc.a, 1, 0)
    _verbs.ibv_wr_rdma_write(rc.a, rc.target_mr.rkey, rc.target_mr.addr)
    _verbs.ibv_wr_set_sge_list(rc.a, [*rc.piece(10, 50), *rc.piece(20, 200)])
    _verbs.ibv_wr_rdma_write(rc.a, rc.target_mr.rkey, rc.target_mr.addr + 100)
    _verbs.ibv_wr_set_inline_data(rc.a, b"hello")
    rc.a.wr_id, rc.a.wr_flags = 2, SIGNALED
    _verbs.ibv_wr_rdma_write(rc.a, rc.target_mr.rkey, rc.target_mr.addr + 200)
    _verbs.ibv_wr_set_inline_data_list(rc.a, [b"one", b"", b"two"])
    assert finish(rc, software).wr_id == 2
    assert np.array_equal(rc.target[:30], np.concatenate([rc.source[50:60], rc.source[200:220]]))
    assert rc.target[100:106].tobytes() == b"hello\0" and rc.target[200:207].tobytes() == b"onetwo\0"
    with pytest.raises(ArgumentError, match="33 pieces of inline data"):
        begin(rc.a)
        _verbs.ibv_wr_send(rc.a)
        _verbs.ibv_wr_set_inline_data_list(rc.a, [b"x"] * 33)
    _verbs.ibv_wr_abort(rc.a)


def test_sends_and_write_with_immediate(rc, software):
    for i in range(3):
        _verbs.ibv_post_recv(rc.b, _verbs.RecvWR(sg_list=rc.landing(100, 100 * i), wr_id=i))
    begin(rc.a)
    _verbs.ibv_wr_send(rc.a)
    _verbs.ibv_wr_set_sge(rc.a, rc.source_mr.lkey, rc.source_mr.addr, 10)
    finish(rc, software)
    begin(rc.a)
    _verbs.ibv_wr_send_imm(rc.a, 0x0A0B0C0D)
    _verbs.ibv_wr_set_inline_data(rc.a, b"abc")
    finish(rc, software)
    begin(rc.a)
    _verbs.ibv_wr_rdma_write_imm(rc.a, rc.target_mr.rkey, rc.target_mr.addr + 1000, 77)
    _verbs.ibv_wr_set_sge(rc.a, rc.source_mr.lkey, rc.source_mr.addr, 8)
    finish(rc, software)
    first, second, third = poll(rc.b.recv_cq, software, 3)
    assert (first.byte_len, first.wc_flags & _verbs.IBV_WC_WITH_IMM) == (10, 0)
    assert (second.byte_len, second.imm_data) == (3, 0x0A0B0C0D)
    assert (third.opcode, third.imm_data) == (_verbs.IBV_WC_RECV_RDMA_WITH_IMM, 77)
    assert rc.target[100:103].tobytes() == b"abc" and np.array_equal(rc.target[1000:1008], rc.source[:8])


def test_read_and_atomics(rc, software):
    word, old = rc.target.view(np.uint64), rc.source.view(np.uint64)
    word[0] = 1000
    begin(rc.a)
    _verbs.ibv_wr_rdma_read(rc.a, rc.target_mr.rkey, rc.target_mr.addr)
    _verbs.ibv_wr_set_sge(rc.a, rc.source_mr.lkey, rc.source_mr.addr + 8, 8)
    assert finish(rc, software).opcode == _verbs.IBV_WC_RDMA_READ and old[1] == 1000
    begin(rc.a)
    _verbs.ibv_wr_atomic_fetch_add(rc.a, rc.target_mr.rkey, rc.target_mr.addr, 23)
    _verbs.ibv_wr_set_sge(rc.a, rc.source_mr.lkey, rc.source_mr.addr, 8)
    finish(rc, software)
    assert (word[0], old[0]) == (1023, 1000)
    begin(rc.a)
    _verbs.ibv_wr_atomic_cmp_swp(rc.a, rc.target_mr.rkey, rc.target_mr.addr, 1023, 9)
    _verbs.ibv_wr_set_sge(rc.a, rc.source_mr.lkey, rc.source_mr.addr, 8)
    finish(rc, software)
    assert (word[0], old[0]) == (9, 1023)


def test_datagram(context, pd, cqs, software):
    ud = make_pair(context, pd, _verbs.IBV_QPT_UD, cqs, extended=True)
    _verbs.ibv_post_recv(ud.b, _verbs.RecvWR(sg_list=ud.landing(100)))
    with _verbs.ibv_create_ah(pd, port_num=1, dgid=ud.gid, sgid_index=1) as ah:
        begin(ud.a)
        _verbs.ibv_wr_send(ud.a)
        _verbs.ibv_wr_set_ud_addr(ud.a, ah, ud.b.qp_num, QKEY)
        _verbs.ibv_wr_set_sge(ud.a, ud.source_mr.lkey, ud.source_mr.addr, 20)
        finish(ud, software)
        assert poll(ud.b.recv_cq, software)[0].byte_len == 60
        assert np.array_equal(ud.target[40:60], ud.source[:20])
        begin(ud.a)
        with pytest.raises(VerbsError, match=r"ibv_wr_rdma_write\(\) failed: ENOTSUP"):  # a null pointer in C
            _verbs.ibv_wr_rdma_write(ud.a, 0, 0)
        _verbs.ibv_wr_abort(ud.a)


def test_an_aborted_batch_leaves_nothing(rc, software):
    begin(rc.a, 1)
    _verbs.ibv_wr_rdma_write(rc.a, rc.target_mr.rkey, rc.target_mr.addr)
    _verbs.ibv_wr_set_sge(rc.a, rc.source_mr.lkey, rc.source_mr.addr, 100)
    _verbs.ibv_wr_abort(rc.a)
    begin(rc.a, 2)
    _verbs.ibv_wr_rdma_write(rc.a, rc.target_mr.rkey, rc.target_mr.addr + 200)
    _verbs.ibv_wr_set_sge(rc.a, rc.source_mr.lkey, rc.source_mr.addr, 1)
    assert finish(rc, software).wr_id == 2
    assert not rc.target[:200].any()


def test_a_batch_larger_than_the_queue_is_refused_as_a_whole(rc):
    begin(rc.a)
    for _ in range(1000):
        _verbs.ibv_wr_rdma_write(rc.a, rc.target_mr.rkey, rc.target_mr.addr)
        _verbs.ibv_wr_set_sge(rc.a, rc.source_mr.lkey, rc.source_mr.addr, 100)
    with pytest.raises(VerbsError, match=r"ibv_wr_complete\(qp_num=0x[0-9a-f]+\)") as caught:
        _verbs.ibv_wr_complete(rc.a)
    assert caught.value.errno == errno.ENOMEM
    assert not rc.target.any()


def test_calls_out_of_order_are_refused(rc):
    for call, arguments in (
        (_verbs.ibv_wr_send, ()), (_verbs.ibv_wr_send_imm, (1,)), (_verbs.ibv_wr_rdma_write, (1, 2)),
        (_verbs.ibv_wr_rdma_write_imm, (1, 2, 3)), (_verbs.ibv_wr_rdma_read, (1, 2)),
        (_verbs.ibv_wr_atomic_cmp_swp, (1, 2, 3, 4)), (_verbs.ibv_wr_atomic_fetch_add, (1, 2, 3)),
        (_verbs.ibv_wr_complete, ()), (_verbs.ibv_wr_abort, ()), (_verbs.mlx5dv_wr_raw_wqe, (bytes(16),)),
    ):  # fmt: skip
        with pytest.raises(VerbsError, match="ibv_wr_start first"):
            call(rc.a, *arguments)
    begin(rc.a)
    for call, arguments in (
        (_verbs.ibv_wr_set_sge, (0, 0, 0)), (_verbs.ibv_wr_set_sge_list, ([],)),
        (_verbs.ibv_wr_set_inline_data, (b"",)), (_verbs.ibv_wr_set_inline_data_list, ([],)),
    ):  # fmt: skip
        with pytest.raises(VerbsError, match="begin a request first"):
            call(rc.a, *arguments)
    with pytest.raises(VerbsError, match="complete or ibv_wr_abort first"):
        _verbs.ibv_wr_start(rc.a)  # would wait for its own lock
    with pytest.raises(VerbsError, match="complete or ibv_wr_abort first"):
        _verbs.ibv_post_send(rc.a, _verbs.SendWR(opcode=_verbs.IBV_WR_SEND))
    rc.a.close()  # aborts
    with pytest.raises(ClosedError):
        _verbs.ibv_wr_start(rc.a)


def test_ordinary_queue_pair_has_no_builder(context, pd, cqs):
    with _verbs.ibv_create_qp(pd, qp_type=_verbs.IBV_QPT_RC, send_cq=cqs[0], recv_cq=cqs[0]) as qp:
        with pytest.raises(VerbsError, match="make the queue pair with ibv_create_qp_ex"):
            _verbs.ibv_wr_start(qp)
        with pytest.raises(VerbsError, match="ibv_create_qp_ex"):
            qp.wr_id = 1


def test_refused_flags_are_named(pd, cqs):
    with pytest.raises(VerbsError, match=r"ibv_create_qp_ex\(qp_type=4, .*send_ops_flags=0x10\) failed: ENOTSUP"):
        _verbs.ibv_create_qp_ex(
            pd, qp_type=_verbs.IBV_QPT_UD, send_cq=cqs[0], recv_cq=cqs[0],
            send_ops_flags=_verbs.IBV_QP_EX_WITH_RDMA_READ,
        )  # fmt: skip


def test_raw_work_request(context, pd, cqs, software):
    v = _verbs
    with pytest.raises(VerbsError, match="mlx5dv_create_qp"):
        v.mlx5dv_create_qp(pd, qp_type=v.IBV_QPT_RC, send_cq=cqs[0], recv_cq=cqs[0], dv_comp_mask=1 << 40)
    ends = [
        v.mlx5dv_create_qp(
            pd, qp_type=v.IBV_QPT_RC, send_cq=cq, recv_cq=cq, max_send_wr=8, send_ops_flags=v.IBV_QP_EX_WITH_RDMA_WRITE,
            dv_comp_mask=v.MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | v.MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
            dv_send_ops_flags=v.MLX5DV_QP_EX_WITH_RAW_WQE,
            dv_create_flags=v.MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
        )
        for cq in cqs
    ]  # fmt: skip
    gid = v.ibv_query_gid_ex(context, 1, 1).gid
    for qp, peer in (ends, reversed(ends)):
        to_rts(qp, peer.qp_num, gid)
    a = ends[0]
    control = formats.wqe_ctrl_seg.pack(opcode=formats.MLX5_OPCODE_NOP, ds=1, qp_or_sq=a.qp_num, ce=formats.CE_ALWAYS)
    begin(a, 9)
    v.mlx5dv_wr_raw_wqe(a, control)
    v.ibv_wr_complete(a)
    assert poll(cqs[0], software)[0].wr_id == 9
    begin(a)
    with pytest.raises(ArgumentError, match="fewer than its control segment says"):
        v.mlx5dv_wr_raw_wqe(a, control[:7] + b"\x05" + control[8:])
    v.ibv_wr_abort(a)
