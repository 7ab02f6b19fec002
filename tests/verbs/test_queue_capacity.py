# SPDX-License-Identifier: Apache-2.0
"""Full queues: what libmlx5 makes of capacities, and errors that say what its ENOMEM means."""

from __future__ import annotations

import errno
import pickle
import select

import numpy as np
import pytest
from connected import Pair, make_pair, poll, to_rts, until

from gda import _verbs
from gda._verbs import SendWR
from gda.errors import ArgumentError, PostError

SIGNALED, INLINE = _verbs.IBV_SEND_SIGNALED, _verbs.IBV_SEND_INLINE
SMALL = {"max_send_wr": 10, "max_send_sge": 1, "max_inline_data": 0}
FULL = "SQ full: 16 posted, 0 signaled; no completion can ever free a slot"


@pytest.fixture
def rc(context, pd, cqs):
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, **SMALL)
    yield pair
    pair.close()


def write(pair: Pair, i: int = 0, flags: int = 0) -> SendWR:
    return SendWR(
        opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=pair.piece(8, 8 * i), wr_id=i, send_flags=flags, **pair.there(8 * i)
    )


def test_sixteen_unsignaled_writes_and_no_more(rc, software):
    """max_send_wr=10 becomes 16 requests in 64 basic blocks; the 17th can never be posted."""
    assert (rc.a.cap["max_send_wr"], rc.a.cap["max_inline_data"], rc.a.cap["max_send_sge"]) == (16, 60, 1)
    ring = _verbs.mlx5dv_init_obj_qp(rc.a)
    assert (ring.sq_wqe_cnt, ring.sq_stride) == (64, 64)
    for i in range(16):
        _verbs.ibv_post_send(rc.a, write(rc, i))
    until(lambda: np.array_equal(rc.target[:128], rc.source[:128]), software)
    for _ in range(2):  # and the refusal changes nothing
        with pytest.raises(PostError) as caught:
            _verbs.ibv_post_send(rc.a, write(rc, 16))
        assert (caught.value.errno, caught.value.reason, caught.value.posted) == (errno.ENOMEM, FULL, 0)
        assert FULL in str(caught.value) and "wr_id=16" in str(caught.value)
    assert _verbs.ibv_poll_cq(rc.a.send_cq, 64) == [] and not rc.target[128:].any()
    same = pickle.loads(pickle.dumps(caught.value))
    assert (str(same), same.reason, same.posted) == (str(caught.value), FULL, 0)


def test_a_signaled_sixteenth_frees_all_sixteen(rc, software):
    for _ in range(3):
        for i in range(16):
            _verbs.ibv_post_send(rc.a, write(rc, i, SIGNALED if i == 15 else 0))
        with pytest.raises(PostError, match="SQ full: 16 posted, 1 signaled") as caught:
            _verbs.ibv_post_send(rc.a, write(rc, 16))
        assert "never" not in str(caught.value) and "poll" in caught.value.advice
        assert poll(rc.a.send_cq, software)[0].wr_id == 15


def test_a_full_chain_says_how_many_were_posted(rc):
    chain = None
    for i in reversed(range(20)):
        first = write(rc, i)
        first.next, chain = chain, first
    with pytest.raises(PostError, match=r"wr_id=16, num_sge=1\) after 16 posted") as caught:
        _verbs.ibv_post_send(rc.a, chain)
    assert (caught.value.reason, caught.value.posted) == (FULL, 16)


def test_two_pieces_and_61_inline_bytes_are_not_a_full_queue(rc):
    two = SendWR(opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=rc.piece(8) * 2, **rc.there())
    with pytest.raises(PostError, match=r"TooManySge\(2>1\)") as caught:
        _verbs.ibv_post_send(rc.a, two)
    assert caught.value.errno == errno.ENOMEM
    long = SendWR(opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=rc.piece(61), send_flags=INLINE, **rc.there())
    with pytest.raises(PostError, match=r"InlineTooLong\(61>60\)") as caught:
        _verbs.ibv_post_send(rc.a, long)
    assert caught.value.errno == errno.ENOMEM
    _verbs.ibv_post_send(
        rc.a, SendWR(opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=rc.piece(60), send_flags=INLINE, **rc.there())
    )


def test_reset_empties_the_queue(context, pd, cqs):
    qp = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, **SMALL)
    for i in range(16):
        _verbs.ibv_post_send(qp.a, write(qp, i))
    peer = qp.b.qp_num
    _verbs.ibv_modify_qp(qp.a, _verbs.IBV_QP_STATE, qp_state=_verbs.IBV_QPS_RESET)
    to_rts(qp.a, peer, qp.gid)
    for i in range(16):
        _verbs.ibv_post_send(qp.a, write(qp, i))
    with pytest.raises(PostError, match="SQ full: 16 posted, 0 signaled"):
        _verbs.ibv_post_send(qp.a, write(qp, 16))
    qp.close()


@pytest.mark.parametrize("fields", [0, _verbs.IBV_WC_EX_WITH_QP_NUM])
def test_extended_posts_and_polls_are_counted(context, pd, software, fields):
    cqs = [_verbs.ibv_create_cq_ex(context, 64, wc_flags=fields) for _ in range(2)]
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, extended=True, **SMALL)

    def start(count: int, signaled: bool) -> None:
        _verbs.ibv_wr_start(pair.a)
        for i in range(count):
            pair.a.wr_flags = SIGNALED if signaled and i == count - 1 else 0
            _verbs.ibv_wr_rdma_write(pair.a, pair.target_mr.rkey, pair.target_mr.addr)
            _verbs.ibv_wr_set_sge(pair.a, pair.source_mr.lkey, pair.source_mr.addr, 8)

    start(5, True)
    _verbs.ibv_wr_abort(pair.a)
    for _ in range(2):
        start(16, True)
        _verbs.ibv_wr_complete(pair.a)
        start(1, False)
        with pytest.raises(PostError, match="SQ full: 16 posted, 1 signaled"):
            _verbs.ibv_wr_complete(pair.a)
        until(lambda: _verbs.ibv_start_poll(pair.a.send_cq), software)
        _verbs.ibv_end_poll(pair.a.send_cq)
    start(16, False)
    _verbs.ibv_wr_complete(pair.a)
    with pytest.raises(PostError, match="SQ full: 16 posted, 0 signaled; no completion can ever"):
        _verbs.ibv_post_send(pair.a, write(pair))
    pair.close()
    for cq in cqs:
        cq.close()


def test_what_others_may_poll_is_not_claimed(rc):
    """Who has the C pointer may poll: then only the library knows what is free."""
    assert rc.a.send_cq.c_pointer
    for i in range(16):
        _verbs.ibv_post_send(rc.a, write(rc, i))
    with pytest.raises(PostError, match="ENOMEM") as caught:
        _verbs.ibv_post_send(rc.a, write(rc, 16))
    assert caught.value.reason == ""


# ---------------------------------------------------------------------------------------------- completion queues
def nine_pairs(context, pd, cq, other) -> list[Pair]:
    pairs = []
    try:
        for _ in range(9):
            pairs.append(make_pair(context, pd, _verbs.IBV_QPT_RC, [cq, other], **SMALL, max_recv_wr=0))
    except ArgumentError:
        for pair in pairs:
            pair.close()
        raise
    return pairs


def test_a_strict_completion_queue_refuses_the_ninth(context, pd):
    cq, other = (_verbs.ibv_create_cq(context, n) for n in (100, 400))
    assert cq.cqe == 127
    cq.strict = True
    with pytest.raises(ArgumentError, match="144 > 128"):
        nine_pairs(context, pd, cq, other)
    assert cq.bound == 0
    cq.close()
    other.close()


@pytest.mark.gda_complaints("cq-consumer-never-written")
def test_the_129th_completion_overruns(context, pd, software):
    cq, other = (_verbs.ibv_create_cq(context, n) for n in (100, 400))
    pairs = nine_pairs(context, pd, cq, other)
    assert cq.bound == 144
    for k, pair in enumerate(pairs[:8]):
        for i in range(16):
            _verbs.ibv_post_send(pair.a, write(pair, i, SIGNALED))
        until(lambda pair=pair: np.array_equal(pair.target[:128], pair.source[:128]), software)
        assert not select.select([context.async_fd], [], [], 0)[0], k
    software.clear_report()
    _verbs.ibv_post_send(pairs[8].a, write(pairs[8], 0, SIGNALED))  # the 129th
    until(lambda: bool(select.select([context.async_fd], [], [], 0)[0]), software)
    event = _verbs.ibv_get_async_event(context)
    assert (event.event_type, event.element) == (_verbs.IBV_EVENT_CQ_ERR, cq)
    _verbs.ibv_ack_async_event(event)
    for pair in pairs:
        pair.close()
    while select.select([context.async_fd], [], [], 0)[0]:
        _verbs.ibv_ack_async_event(_verbs.ibv_get_async_event(context))
    cq.close()
    other.close()


def test_a_queue_that_ignores_overrun_overwrites(context, pd, software):
    cq = _verbs.ibv_create_cq_ex(context, 100, flags=_verbs.IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)
    other = _verbs.ibv_create_cq(context, 400)
    pairs = nine_pairs(context, pd, cq, other)
    for pair in pairs:
        for i in range(16):
            _verbs.ibv_post_send(pair.a, write(pair, i, SIGNALED))
        until(lambda pair=pair: np.array_equal(pair.target[:128], pair.source[:128]), software)
    assert not select.select([context.async_fd], [], [], 0)[0]
    for pair in pairs:
        pair.close()
    cq.close()
    other.close()
