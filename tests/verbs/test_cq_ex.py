# SPDX-License-Identifier: Apache-2.0
"""Extended completion queues: polling in place, every field, timestamps, resizing; and calls out of order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from connected import Pair, make_pair, poll, until

from gda import _verbs
from gda.errors import ClosedError, VerbsError

SIGNALED = _verbs.IBV_SEND_SIGNALED
READERS = {
    _verbs.IBV_WC_EX_WITH_BYTE_LEN: _verbs.ibv_wc_read_byte_len,
    _verbs.IBV_WC_EX_WITH_IMM: _verbs.ibv_wc_read_imm_data,
    _verbs.IBV_WC_EX_WITH_QP_NUM: _verbs.ibv_wc_read_qp_num,
    _verbs.IBV_WC_EX_WITH_SRC_QP: _verbs.ibv_wc_read_src_qp,
    _verbs.IBV_WC_EX_WITH_SLID: _verbs.ibv_wc_read_slid,
    _verbs.IBV_WC_EX_WITH_SL: _verbs.ibv_wc_read_sl,
    _verbs.IBV_WC_EX_WITH_DLID_PATH_BITS: _verbs.ibv_wc_read_dlid_path_bits,
    _verbs.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: _verbs.ibv_wc_read_completion_ts,
    _verbs.IBV_WC_EX_WITH_CVLAN: _verbs.ibv_wc_read_cvlan,
    _verbs.IBV_WC_EX_WITH_FLOW_TAG: _verbs.ibv_wc_read_flow_tag,
    _verbs.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: _verbs.ibv_wc_read_completion_wallclock_ns,
}


@pytest.fixture
def cqs(context):
    flags = _verbs.IBV_WC_STANDARD_FLAGS | _verbs.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    cqs = [_verbs.ibv_create_cq_ex(context, 64, wc_flags=flags) for _ in range(2)]
    yield cqs
    for cq in cqs:
        cq.close()


@pytest.fixture
def rc(context, pd, cqs) -> Iterator[Pair]:
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs)
    yield pair
    pair.close()


def write(pair: Pair, wr_id: int, bytes: int = 8) -> None:
    _verbs.ibv_post_send(
        pair.a,
        _verbs.SendWR(
            opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=pair.piece(bytes), wr_id=wr_id, send_flags=SIGNALED, **pair.there()
        ),
    )


def test_completions_are_read_in_place(rc, software):
    cq = rc.a.send_cq
    assert not _verbs.ibv_start_poll(cq)  # nothing started
    for wr_id in (4, 5, 6):
        write(rc, wr_id)
    until(lambda: _verbs.ibv_start_poll(cq), software)
    seen = [(cq.wr_id, cq.status)]
    assert _verbs.ibv_wc_read_opcode(cq) == _verbs.IBV_WC_RDMA_WRITE
    assert _verbs.ibv_wc_read_vendor_err(cq) < 256  # of a success it means nothing
    assert _verbs.ibv_wc_read_wc_flags(cq) == 0
    assert _verbs.ibv_wc_read_qp_num(cq) == rc.a.qp_num

    def another() -> bool:
        if _verbs.ibv_next_poll(cq):
            seen.append((cq.wr_id, cq.status))
        return len(seen) == 3

    until(another, software)
    assert not _verbs.ibv_next_poll(cq)
    with pytest.raises(VerbsError, match=r"ibv_wc_read_opcode\(\).*EINVAL(.|\n)*answered True"):
        _verbs.ibv_wc_read_opcode(cq)
    _verbs.ibv_end_poll(cq)
    assert seen == [(4, 0), (5, 0), (6, 0)]
    assert not _verbs.ibv_start_poll(cq)


def test_receive_fields(rc, software):
    _verbs.ibv_post_recv(rc.b, _verbs.RecvWR(sg_list=rc.landing(100), wr_id=3))
    _verbs.ibv_post_send(
        rc.a,
        _verbs.SendWR(
            opcode=_verbs.IBV_WR_SEND_WITH_IMM, sg_list=rc.piece(70), send_flags=SIGNALED, imm_data=0x01020304
        ),
    )
    cq = rc.b.recv_cq
    until(lambda: _verbs.ibv_start_poll(cq), software)
    assert (cq.wr_id, cq.status, _verbs.ibv_wc_read_opcode(cq)) == (3, 0, _verbs.IBV_WC_RECV)
    assert _verbs.ibv_wc_read_byte_len(cq) == 70
    assert _verbs.ibv_wc_read_imm_data(cq) == 0x01020304
    assert _verbs.ibv_wc_read_invalidated_rkey(cq) in (0x01020304, 0x04030201)  # the same word, another use
    assert _verbs.ibv_wc_read_wc_flags(cq) & _verbs.IBV_WC_WITH_IMM
    assert _verbs.ibv_wc_read_slid(cq) == 0 and _verbs.ibv_wc_read_sl(cq) == 0
    assert _verbs.ibv_wc_read_dlid_path_bits(cq) == 0
    assert _verbs.ibv_wc_read_src_qp(cq) >= 0
    _verbs.ibv_end_poll(cq)
    poll(rc.a.send_cq, software)


def test_timestamps_are_time(rc, context, software):
    stamps = []
    for _ in range(2):
        write(rc, 0)
        until(lambda: _verbs.ibv_start_poll(rc.a.send_cq), software)
        stamps.append(_verbs.ibv_wc_read_completion_ts(rc.a.send_cq))
        _verbs.ibv_end_poll(rc.a.send_cq)
    clock = _verbs.mlx5dv_get_clock_info(context)
    assert clock.mult > 0 and clock.mask > 0
    first, second = (_verbs.mlx5dv_ts_to_ns(clock, stamp) for stamp in stamps)
    assert 0 < second - first < 60e9


def test_wall_clock(context, pd, software):
    flags = _verbs.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
    rc = make_pair(context, pd, _verbs.IBV_QPT_RC, [_verbs.ibv_create_cq_ex(context, 8, wc_flags=flags)] * 2)
    write(rc, 0)
    until(lambda: _verbs.ibv_start_poll(rc.a.send_cq), software)
    stamp = _verbs.ibv_wc_read_completion_wallclock_ns(rc.a.send_cq)
    assert stamp > 0
    _verbs.ibv_end_poll(rc.a.send_cq)
    write(rc, 1)
    until(lambda: _verbs.ibv_start_poll(rc.a.send_cq), software)
    later = _verbs.ibv_wc_read_completion_wallclock_ns(rc.a.send_cq)
    assert 0 < later - stamp < 60e9
    _verbs.ibv_end_poll(rc.a.send_cq)
    rc.a.close()
    rc.b.close()
    rc.a.send_cq.close()


@pytest.mark.parametrize("flag", READERS)
def test_fields_that_were_not_asked_for_are_refused(context, pd, software, flag):
    with_it = make_pair(context, pd, _verbs.IBV_QPT_RC, [_verbs.ibv_create_cq_ex(context, 8, wc_flags=flag)] * 2)
    without = make_pair(context, pd, _verbs.IBV_QPT_RC, [_verbs.ibv_create_cq_ex(context, 8)] * 2)
    for pair in (with_it, without):
        write(pair, 1)
        until(lambda cq=pair.a.send_cq: _verbs.ibv_start_poll(cq), software)
    assert READERS[flag](with_it.a.send_cq) >= 0
    with pytest.raises(VerbsError, match=r"ENOTSUP(.|\n)*IBV_WC_EX_WITH_"):  # a null pointer in C
        READERS[flag](without.a.send_cq)
    for pair in (with_it, without):
        _verbs.ibv_end_poll(pair.a.send_cq)


def test_tag_matching_info(context, pd, software):
    cq = _verbs.ibv_create_cq_ex(context, 8, wc_flags=_verbs.IBV_WC_EX_WITH_TM_INFO)
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, [cq, cq])
    write(pair, 1)
    until(lambda: _verbs.ibv_start_poll(cq), software)
    tag, priv = _verbs.ibv_wc_read_tm_info(cq)
    assert tag >= 0 and priv >= 0
    _verbs.ibv_end_poll(cq)


def test_calls_out_of_order_are_refused(context, rc, software):
    cq = rc.a.send_cq
    for call in (_verbs.ibv_next_poll, _verbs.ibv_end_poll):
        with pytest.raises(VerbsError, match="call ibv_start_poll first"):
            call(cq)
    with pytest.raises(VerbsError, match="answered True"):
        cq.wr_id
    write(rc, 1)
    until(lambda: _verbs.ibv_start_poll(cq), software)
    with pytest.raises(VerbsError, match="call ibv_end_poll first"):
        _verbs.ibv_start_poll(cq)  # would wait for its own lock
    for call in (
        lambda: _verbs.ibv_poll_cq(cq, 1),
        lambda: _verbs.ibv_resize_cq(cq, 100),
        lambda: _verbs.ibv_modify_qp(rc.a, _verbs.IBV_QP_STATE, qp_state=_verbs.IBV_QPS_RESET),
        rc.a.close,
    ):
        with pytest.raises(VerbsError, match="between ibv_start_poll and ibv_end_poll"):
            call()
    _verbs.ibv_end_poll(cq)
    with _verbs.ibv_create_cq(context, 8) as plain, pytest.raises(VerbsError, match="ibv_create_cq_ex"):
        _verbs.ibv_start_poll(plain)
    with pytest.raises(ClosedError):
        _verbs.ibv_start_poll(plain)


def test_resize_keeps_what_waits(rc, software):
    cq = rc.a.send_cq
    for wr_id in range(3):
        write(rc, wr_id)
    software.step()
    _verbs.ibv_resize_cq(cq, 200)
    assert cq.cqe == 255
    assert [wc.wr_id for wc in poll(cq, software, 3)] == [0, 1, 2]
    write(rc, 9)
    assert poll(cq, software)[0].wr_id == 9
    with pytest.raises(VerbsError, match=r"ibv_resize_cq\(cqe=1073741824\)"):
        _verbs.ibv_resize_cq(cq, 1 << 30)


def test_moderation(context):
    with _verbs.ibv_create_cq(context, 8) as cq:
        try:
            _verbs.ibv_modify_cq(cq, 4, 10)
        except VerbsError as error:  # a device without it
            assert "ibv_modify_cq(cq_count=4, cq_period=10) failed: ENOTSUP" in str(error)


def test_driver_attributes(context):
    v = _verbs
    with v.mlx5dv_create_cq(
        context, 60, wc_flags=v.IBV_WC_EX_WITH_BYTE_LEN, dv_comp_mask=v.MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, cqe_size=128
    ) as cq:
        ring = v.mlx5dv_init_obj_cq(cq)
        assert (ring.cqe_cnt, ring.cqe_size) == (64, 128) and ring.buf and ring.dbrec and ring.cqn and ring.cq_uar
    with pytest.raises(VerbsError, match=r"mlx5dv_create_cq\(.*cqe_size=100"):
        v.mlx5dv_create_cq(context, 60, dv_comp_mask=v.MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, cqe_size=100)
    with v.ibv_create_cq_ex(context, 60, flags=v.IBV_CREATE_CQ_ATTR_SINGLE_THREADED) as cq:
        assert cq.cqe == 63
    with pytest.raises(VerbsError, match=r"ibv_create_cq_ex\(.*flags=0x80000000"):
        v.ibv_create_cq_ex(context, 60, flags=1 << 31)
