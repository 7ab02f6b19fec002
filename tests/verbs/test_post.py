# SPDX-License-Identifier: Apache-2.0
"""Prepared requests: every opcode of ibv_post_send, receives, chains, datagrams; and what a wrong one answers."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import numpy as np
import pytest
from connected import QKEY, Pair, make_pair, poll

from gda import _verbs
from gda._verbs import RecvWR, SendWR
from gda.errors import ArgumentError, ClosedError, VerbsError

SIGNALED = _verbs.IBV_SEND_SIGNALED


@pytest.fixture
def rc(context, pd, cqs) -> Iterator[Pair]:
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs)
    yield pair
    pair.close()


def only(pair: Pair, software) -> _verbs.WC:
    (wc,) = poll(pair.a.send_cq, software)
    return wc


def test_one_prepared_write_is_posted_many_times(rc, software):
    wr = SendWR(opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=rc.piece(64), send_flags=SIGNALED, **rc.there())
    for i in range(5):
        wr.wr_id = 100 + i
        wr.remote_addr = rc.target_mr.addr + 64 * i
        wr.set_sge(0, rc.source_mr.addr + 64 * i, 64, rc.source_mr.lkey)
        _verbs.ibv_post_send(rc.a, wr)
        assert (only(rc, software).wr_id, wr.wr_id) == (100 + i, 100 + i)
    assert np.array_equal(rc.target[:320], rc.source[:320]) and not rc.target[320:].any()


def test_pieces_are_gathered_and_scattered(rc, software):
    _verbs.ibv_post_recv(rc.b, RecvWR(sg_list=[*rc.landing(10), *rc.landing(1000, 500)], wr_id=3))
    _verbs.ibv_post_send(
        rc.a,
        SendWR(
            opcode=_verbs.IBV_WR_SEND, sg_list=[*rc.piece(5, 7), *rc.piece(5, 100), *rc.piece(5, 40)],
            send_flags=SIGNALED | _verbs.IBV_SEND_SOLICITED,
        ),
    )  # fmt: skip
    assert only(rc, software).opcode == _verbs.IBV_WC_SEND
    (received,) = poll(rc.b.recv_cq, software)
    assert (received.wr_id, received.byte_len, received.qp_num) == (3, 15, rc.b.qp_num)
    sent = np.concatenate([rc.source[7:12], rc.source[100:105], rc.source[40:45]])
    assert np.array_equal(rc.target[:10], sent[:10]) and np.array_equal(rc.target[500:505], sent[10:])


def test_write_with_immediate_takes_a_receive(rc, software):
    _verbs.ibv_post_recv(rc.b, RecvWR(wr_id=8))
    _verbs.ibv_post_send(
        rc.a,
        SendWR(
            opcode=_verbs.IBV_WR_RDMA_WRITE_WITH_IMM, sg_list=rc.piece(100), send_flags=SIGNALED, imm_data=0xA0B0C0D0,
            **rc.there(32),
        ),
    )  # fmt: skip
    assert only(rc, software).status == _verbs.IBV_WC_SUCCESS
    (received,) = poll(rc.b.recv_cq, software)
    assert (received.wr_id, received.opcode) == (8, _verbs.IBV_WC_RECV_RDMA_WITH_IMM)
    assert received.imm_data == 0xA0B0C0D0 and received.wc_flags & _verbs.IBV_WC_WITH_IMM
    assert np.array_equal(rc.target[32:132], rc.source[:100])


@pytest.mark.parametrize("bytes", [1, 1024, 5000])
def test_read_fetches(rc, software, bytes):
    rc.target[:] = np.arange(rc.target.size, dtype=np.uint8)[::-1]
    _verbs.ibv_post_send(
        rc.a, SendWR(opcode=_verbs.IBV_WR_RDMA_READ, sg_list=rc.piece(bytes), send_flags=SIGNALED, **rc.there())
    )
    wc = only(rc, software)
    assert (wc.status, wc.opcode) == (_verbs.IBV_WC_SUCCESS, _verbs.IBV_WC_RDMA_READ)
    assert np.array_equal(rc.source[:bytes], rc.target[:bytes])


def test_fetch_and_add_and_compare_and_swap(rc, software):
    word, old = rc.target.view(np.uint64), rc.source.view(np.uint64)
    word[0] = 40
    atomic = {"sg_list": rc.piece(8), "send_flags": SIGNALED}
    add = SendWR(opcode=_verbs.IBV_WR_ATOMIC_FETCH_AND_ADD, compare_add=2, **atomic, **rc.there())
    _verbs.ibv_post_send(rc.a, add)
    assert only(rc, software).opcode == _verbs.IBV_WC_FETCH_ADD
    assert (word[0], old[0], add.compare_add) == (42, 40, 2)
    for compare, expect in ((41, 42), (42, 7)):
        _verbs.ibv_post_send(
            rc.a,
            SendWR(opcode=_verbs.IBV_WR_ATOMIC_CMP_AND_SWP, compare_add=compare, swap=7, **atomic, **rc.there()),
        )
        assert only(rc, software).opcode == _verbs.IBV_WC_COMP_SWAP
        assert (word[0], old[0]) == (expect, 42)


def test_a_chain_is_one_call(rc, software):
    requests = None
    for i in reversed(range(4)):
        requests = SendWR(
            opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=rc.piece(16, 16 * i), wr_id=i,
            send_flags=SIGNALED if i == 3 else 0, next=requests, **rc.there(16 * i),
        )  # fmt: skip
    _verbs.ibv_post_send(rc.a, requests)
    assert only(rc, software).wr_id == 3
    assert np.array_equal(rc.target[:64], rc.source[:64])
    receives = RecvWR(wr_id=1, next=RecvWR(wr_id=2))
    _verbs.ibv_post_recv(rc.b, receives)
    assert receives.next.wr_id == 2 and receives.next.next is None


def test_a_chain_without_end_is_refused():
    first, second = SendWR(opcode=0), SendWR(opcode=0)
    first.next = second
    with pytest.raises(ArgumentError, match="no end"):
        second.next = first
    with pytest.raises(ArgumentError, match="no end"):
        first.next = first
    one = RecvWR()
    with pytest.raises(ArgumentError, match="no end"):
        one.next = one


def test_a_refused_request_of_a_chain_is_named(rc):
    many = SendWR(opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=rc.piece(8) * 40, wr_id=77, **rc.there())
    good = SendWR(opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=rc.piece(8), next=many, **rc.there())
    with pytest.raises(VerbsError, match=r"wr_id=77, num_sge=40\) after 1 posted"):
        _verbs.ibv_post_send(rc.a, good)
    wide = RecvWR(sg_list=rc.landing(8) * 40, wr_id=78)
    with pytest.raises(VerbsError, match=r"ibv_post_recv\(.*wr_id=78, num_sge=40\) after 1 posted"):
        _verbs.ibv_post_recv(rc.b, RecvWR(next=wide))


def test_requests_say_what_they_hold(rc):
    wr = SendWR(opcode=_verbs.IBV_WR_SEND_WITH_IMM, sg_list=[(1, 2, 3), (4, 5, 6)], imm_data=9, send_flags=2)
    assert (wr.opcode, wr.sg_list, wr.imm_data, wr.send_flags) == (3, [(1, 2, 3), (4, 5, 6)], 9, 2)
    wr.sg_list = [(7, 8, 9)] * 5
    wr.imm_data, wr.send_flags = 0x01020304, 6
    assert (len(wr.sg_list), wr.imm_data, wr.send_flags, wr.ah, wr.next) == (5, 0x01020304, 6, None, None)
    with pytest.raises(ArgumentError, match="piece 5 of a request with 5"):
        wr.set_sge(5, 0, 0, 0)
    with pytest.raises(ArgumentError, match="no atomic"):
        wr.compare_add = 3
    receive = RecvWR(sg_list=[(1, 2, 3)], wr_id=4)
    receive.set_sge(0, 5, 6, 7)
    receive.wr_id = 5
    assert (receive.sg_list, receive.wr_id) == ([(5, 6, 7)], 5)
    with pytest.raises(ArgumentError, match="piece 1 of a request with 1"):
        receive.set_sge(1, 0, 0, 0)


def test_closed_queue_pair_refuses_to_post(rc):
    wr = SendWR(opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=rc.piece(8), **rc.there())
    rc.a.close()
    with pytest.raises(ClosedError):
        _verbs.ibv_post_send(rc.a, wr)
    with pytest.raises(ClosedError):
        _verbs.ibv_post_recv(rc.a, RecvWR())


# ------------------------------------------------------------------------------------------ unreliable queue pairs
def test_unreliable_write_and_send(context, pd, cqs, software):
    uc = make_pair(context, pd, _verbs.IBV_QPT_UC, cqs)
    assert uc.a.qp_type == _verbs.IBV_QPT_UC
    _verbs.ibv_post_send(
        uc.a, SendWR(opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=uc.piece(3000), send_flags=SIGNALED, **uc.there())
    )
    assert only(uc, software).status == _verbs.IBV_WC_SUCCESS
    _verbs.ibv_post_recv(uc.b, RecvWR(sg_list=uc.landing(4000, 8000)))
    _verbs.ibv_post_send(uc.a, SendWR(opcode=_verbs.IBV_WR_SEND, sg_list=uc.piece(2000), send_flags=SIGNALED))
    assert only(uc, software).status == _verbs.IBV_WC_SUCCESS
    assert poll(uc.b.recv_cq, software)[0].byte_len == 2000
    assert np.array_equal(uc.target[:3000], uc.source[:3000])
    assert np.array_equal(uc.target[8000:10000], uc.source[:2000])


def test_datagram_and_its_answer(context, pd, cqs, software):
    ud = make_pair(context, pd, _verbs.IBV_QPT_UD, cqs)
    _verbs.ibv_post_recv(ud.b, RecvWR(sg_list=ud.landing(40 + 200), wr_id=11))
    with _verbs.ibv_create_ah(pd, port_num=1, dgid=ud.gid, sgid_index=1) as ah:
        wr = SendWR(
            opcode=_verbs.IBV_WR_SEND_WITH_IMM, sg_list=ud.piece(200), send_flags=SIGNALED, imm_data=5,
            ah=ah, remote_qpn=ud.b.qp_num, remote_qkey=QKEY,
        )  # fmt: skip
        assert wr.ah is ah
        with pytest.raises(ArgumentError, match="no remote address"):
            wr.remote_addr = 1
        _verbs.ibv_post_send(ud.a, wr)
        assert only(ud, software).status == _verbs.IBV_WC_SUCCESS
    (received,) = poll(ud.b.recv_cq, software)
    assert (received.wr_id, received.byte_len, received.src_qp) == (11, 240, ud.a.qp_num)
    assert received.imm_data == 5 and received.wc_flags & _verbs.IBV_WC_GRH
    assert np.array_equal(ud.target[40:240], ud.source[:200])
    header = ud.target[:40].tobytes()
    back = _verbs.ibv_init_ah_from_wc(context, 1, received, header)
    assert back["dgid"] == ud.gid and back["is_global"] and back["port_num"] == 1
    with _verbs.ibv_create_ah_from_wc(pd, received, header, 1) as ah, _verbs.ibv_create_ah(pd, **back) as same:
        one, other = _verbs.mlx5dv_init_obj_ah(ah), _verbs.mlx5dv_init_obj_ah(same)
        assert one._replace(rlid=0) == other._replace(rlid=0)  # rlid: a source port, drawn for each handle
    with pytest.raises(ArgumentError, match="40 bytes, not 3"):
        _verbs.ibv_create_ah_from_wc(pd, received, b"abc", 1)
    with pytest.raises(ClosedError, match="address handle"):  # the library would follow a dangling pointer
        _verbs.ibv_post_send(ud.a, wr)


# ---------------------------------------------------------------------------------------------- shared receive queues
def test_two_queue_pairs_share_receives(context, pd, cqs, software):
    srq = _verbs.ibv_create_srq(pd, 30, 2)
    assert srq.attr["max_wr"] >= 30 and _verbs.ibv_get_srq_num(srq) > 0 and srq.handle >= 0
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, srq=srq)
    assert pair.a.srq is srq
    for i in range(2):
        _verbs.ibv_post_srq_recv(srq, RecvWR(sg_list=pair.landing(100, 1000 * i), wr_id=i))
    with pytest.raises(VerbsError, match=r"ibv_destroy_srq\(\) failed: EBUSY"):
        srq.close()
    for sender, receiver in ((pair.a, pair.b), (pair.b, pair.a)):
        _verbs.ibv_post_send(sender, SendWR(opcode=_verbs.IBV_WR_SEND, sg_list=pair.piece(50), send_flags=SIGNALED))
        wcs = {wc.opcode: wc for wc in poll(sender.send_cq, software)}
        assert wcs[_verbs.IBV_WC_SEND].status == _verbs.IBV_WC_SUCCESS
        (received,) = poll(receiver.recv_cq, software)
        assert (received.opcode, received.qp_num, received.byte_len) == (_verbs.IBV_WC_RECV, receiver.qp_num, 50)
    assert np.array_equal(pair.target[1000:1050], pair.source[:50])


def test_shared_receive_queue_is_modified_and_queried(pd):
    with _verbs.ibv_create_srq_ex(pd, 20, srq_type=_verbs.IBV_SRQT_BASIC) as srq:
        assert _verbs.ibv_query_srq(srq)["srq_limit"] == 0
        for _ in range(8):  # fewer than the limit would make the event at once
            _verbs.ibv_post_srq_recv(srq, RecvWR())
        _verbs.ibv_modify_srq(srq, _verbs.IBV_SRQ_LIMIT, srq_limit=4)
        now = _verbs.ibv_query_srq(srq)
        assert now["srq_limit"] == 4 and now["max_wr"] >= srq.attr["max_wr"] >= 20
        ring = _verbs.mlx5dv_init_obj_srq(srq)
        assert ring.buf and ring.dbrec and ring.srqn == _verbs.ibv_get_srq_num(srq) and ring.stride >= 32
        with pytest.raises(VerbsError, match=r"ibv_post_srq_recv\(wr_id=5, num_sge=30\)"):
            _verbs.ibv_post_srq_recv(srq, RecvWR(sg_list=[(0, 1, 0)] * 30, wr_id=5))
    with pytest.raises(ClosedError):
        _verbs.ibv_query_srq(srq)
    with pytest.raises(VerbsError, match=r"ibv_create_srq\(max_wr=1073741824") as caught:
        _verbs.ibv_create_srq(pd, 1 << 30)
    assert caught.value.errno == errno.EINVAL and "max_srq_wr" in caught.value.advice
