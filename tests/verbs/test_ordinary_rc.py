# SPDX-License-Identifier: Apache-2.0
"""Ordinary reliable queue pairs: libmlx5's own WQE writer and CQE reader against the software NIC, in one process."""

from __future__ import annotations

import errno
import select
import time
from dataclasses import dataclass

import numpy as np
import pytest

from gda import _verbs
from gda.errors import VerbsError

RIGHTS = _verbs.IBV_ACCESS_LOCAL_WRITE | _verbs.IBV_ACCESS_REMOTE_WRITE | _verbs.IBV_ACCESS_REMOTE_READ
INIT = _verbs.IBV_QP_STATE | _verbs.IBV_QP_PKEY_INDEX | _verbs.IBV_QP_PORT | _verbs.IBV_QP_ACCESS_FLAGS
RTR = (
    _verbs.IBV_QP_STATE
    | _verbs.IBV_QP_AV
    | _verbs.IBV_QP_PATH_MTU
    | _verbs.IBV_QP_DEST_QPN
    | _verbs.IBV_QP_RQ_PSN
    | _verbs.IBV_QP_MAX_DEST_RD_ATOMIC
    | _verbs.IBV_QP_MIN_RNR_TIMER
)
RTS = (
    _verbs.IBV_QP_STATE
    | _verbs.IBV_QP_TIMEOUT
    | _verbs.IBV_QP_RETRY_CNT
    | _verbs.IBV_QP_RNR_RETRY
    | _verbs.IBV_QP_SQ_PSN
    | _verbs.IBV_QP_MAX_QP_RD_ATOMIC
)


@dataclass
class Pair:
    a: _verbs.QP
    b: _verbs.QP
    source: np.ndarray
    target: np.ndarray
    source_mr: _verbs.MR
    target_mr: _verbs.MR

    def piece(self, bytes: int, offset: int = 0) -> list[tuple[int, int, int]]:
        return [(self.source_mr.addr + offset, bytes, self.source_mr.lkey)]


def connect(qp: _verbs.QP, peer: _verbs.QP, gid: bytes) -> None:
    _verbs.ibv_modify_qp(qp, INIT, qp_state=_verbs.IBV_QPS_INIT, port_num=1, qp_access_flags=RIGHTS)
    _verbs.ibv_modify_qp(
        qp, RTR, qp_state=_verbs.IBV_QPS_RTR, path_mtu=_verbs.IBV_MTU_4096, dest_qp_num=peer.qp_num, rq_psn=7,
        max_dest_rd_atomic=1, min_rnr_timer=12, port_num=1, dgid=gid, sgid_index=1,
    )  # fmt: skip
    _verbs.ibv_modify_qp(
        qp, RTS, qp_state=_verbs.IBV_QPS_RTS, timeout=14, retry_cnt=7, rnr_retry=7, sq_psn=7, max_rd_atomic=1
    )


def poll(cq: _verbs.CQ, software, count: int = 1, seconds: float = 10.0) -> list[_verbs.WC]:
    done: list[_verbs.WC] = []
    end = time.monotonic() + seconds
    while len(done) < count and time.monotonic() < end:
        done += _verbs.ibv_poll_cq(cq, count - len(done))
        software.step()
    assert len(done) == count, f"{len(done)} of {count} completions in {seconds} s: {software.report()}"
    return done


@pytest.fixture
def pair(context, pd):
    channel = _verbs.ibv_create_comp_channel(context)
    cqs = [_verbs.ibv_create_cq(context, 64, channel) for _ in range(2)]
    a, b = (
        _verbs.ibv_create_qp(
            pd, qp_type=_verbs.IBV_QPT_RC, send_cq=cq, recv_cq=cq, max_send_wr=16, max_recv_wr=16, max_inline_data=32
        )
        for cq in cqs
    )
    gid = _verbs.ibv_query_gid_ex(context, 1, 1).gid
    connect(a, b, gid)
    connect(b, a, gid)
    source, target = np.arange(65536, dtype=np.uint8), np.zeros(65536, np.uint8)
    mrs = [_verbs.ibv_reg_mr(pd, x.__array_interface__["data"][0], x.nbytes, RIGHTS) for x in (source, target)]
    yield Pair(a, b, source, target, *mrs)
    for thing in (a, b, *cqs, channel, *mrs):
        thing.close()


def test_capacities_are_libmlx5s(pair):
    assert pair.a.cap["max_send_wr"] >= 16 and pair.a.cap["max_inline_data"] >= 32


def test_query_follows_modify(pair):
    mask = _verbs.IBV_QP_STATE | _verbs.IBV_QP_DEST_QPN | _verbs.IBV_QP_PATH_MTU | _verbs.IBV_QP_CAP
    state = _verbs.ibv_query_qp(pair.a, mask)
    assert state["qp_state"] == _verbs.IBV_QPS_RTS
    assert state["dest_qp_num"] == pair.b.qp_num
    assert state["path_mtu"] == _verbs.IBV_MTU_4096


@pytest.mark.parametrize("bytes", [1, 8, 4096, 4097, 65536])
def test_write_arrives(pair, software, bytes):
    _verbs.ibv_post_send(
        pair.a,
        _verbs.SendWR(
            opcode=_verbs.IBV_WR_RDMA_WRITE,
            sg_list=pair.piece(bytes),
            wr_id=99,
            send_flags=_verbs.IBV_SEND_SIGNALED,
            remote_addr=pair.target_mr.addr,
            rkey=pair.target_mr.rkey,
        ),
    )
    (wc,) = poll(pair.a.send_cq, software)
    assert (wc.wr_id, wc.status, wc.qp_num) == (99, _verbs.IBV_WC_SUCCESS, pair.a.qp_num)
    assert wc.opcode == _verbs.IBV_WC_RDMA_WRITE
    assert np.array_equal(pair.target[:bytes], pair.source[:bytes])
    assert not pair.target[bytes:].any()


def test_inline_and_gathered_writes(pair, software):
    small = np.full(24, 0x5A, np.uint8)
    _verbs.ibv_post_send(
        pair.a,
        _verbs.SendWR(
            opcode=_verbs.IBV_WR_RDMA_WRITE,
            sg_list=[(small.__array_interface__["data"][0], 24, 0)],
            send_flags=_verbs.IBV_SEND_SIGNALED | _verbs.IBV_SEND_INLINE,
            remote_addr=pair.target_mr.addr + 100,
            rkey=pair.target_mr.rkey,
        ),
    )
    small[:] = 0  # inline: the bytes were taken when it was posted
    assert poll(pair.a.send_cq, software)[0].status == _verbs.IBV_WC_SUCCESS
    assert (pair.target[100:124] == 0x5A).all() and pair.target[99] == 0 and pair.target[124] == 0


def test_send_meets_receive(pair, software):
    _verbs.ibv_post_recv(pair.b, _verbs.RecvWR(sg_list=[(pair.target_mr.addr, 4096, pair.target_mr.lkey)], wr_id=5))
    _verbs.ibv_post_send(
        pair.a,
        _verbs.SendWR(
            opcode=_verbs.IBV_WR_SEND_WITH_IMM,
            sg_list=pair.piece(1000),
            send_flags=_verbs.IBV_SEND_SIGNALED,
            imm_data=0x01020304,
        ),
    )
    (sent,) = poll(pair.a.send_cq, software)
    (received,) = poll(pair.b.recv_cq, software)
    assert sent.status == received.status == _verbs.IBV_WC_SUCCESS
    assert (received.wr_id, received.opcode, received.byte_len) == (5, _verbs.IBV_WC_RECV, 1000)
    assert received.imm_data == 0x01020304 and received.wc_flags & _verbs.IBV_WC_WITH_IMM
    assert np.array_equal(pair.target[:1000], pair.source[:1000])


def test_completion_channel(pair, software):
    channel = pair.a.send_cq.channel
    _verbs.ibv_req_notify_cq(pair.a.send_cq)
    _verbs.ibv_post_send(
        pair.a,
        _verbs.SendWR(
            opcode=_verbs.IBV_WR_RDMA_WRITE,
            sg_list=pair.piece(64),
            send_flags=_verbs.IBV_SEND_SIGNALED,
            remote_addr=pair.target_mr.addr,
            rkey=pair.target_mr.rkey,
        ),
    )
    readable, _, _ = select.select([channel.fd], [], [], 10)
    assert readable, software.report()
    assert _verbs.ibv_get_cq_event(channel) is pair.a.send_cq
    _verbs.ibv_ack_cq_events(pair.a.send_cq, 1)
    assert poll(pair.a.send_cq, software)[0].status == _verbs.IBV_WC_SUCCESS


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
def test_wrong_rkey_is_a_remote_access_error_then_flushes(pair, software):
    for wr_id in (1, 2):
        _verbs.ibv_post_send(
            pair.a,
            _verbs.SendWR(
                opcode=_verbs.IBV_WR_RDMA_WRITE,
                sg_list=pair.piece(64),
                wr_id=wr_id,
                send_flags=_verbs.IBV_SEND_SIGNALED,
                remote_addr=pair.target_mr.addr,
                rkey=pair.target_mr.rkey ^ 0x5500,
            ),
        )
    first, second = poll(pair.a.send_cq, software, 2)
    assert (first.wr_id, first.status) == (1, _verbs.IBV_WC_REM_ACCESS_ERR)
    assert (second.wr_id, second.status) == (2, _verbs.IBV_WC_WR_FLUSH_ERR)
    assert "remote access" in _verbs.ibv_wc_status_str(first.status)
    assert not pair.target.any()
    assert _verbs.ibv_query_qp(pair.a, _verbs.IBV_QP_STATE)["qp_state"] == _verbs.IBV_QPS_ERR


def test_full_send_queue_is_refused_with_advice(pair):
    with pytest.raises(VerbsError, match=r"ibv_post_send\(qp_num=0x[0-9a-f]+, opcode=0, wr_id=\d+, num_sge=1\)") as e:
        for wr_id in range(100000):
            _verbs.ibv_post_send(
                pair.a,
                _verbs.SendWR(
                    opcode=_verbs.IBV_WR_RDMA_WRITE,
                    sg_list=pair.piece(8),
                    wr_id=wr_id,
                    remote_addr=pair.target_mr.addr,
                    rkey=pair.target_mr.rkey,
                ),
            )
    assert e.value.errno == errno.ENOMEM and "signal at least one request" in e.value.advice


def test_bad_transition_is_refused(pair):
    with pytest.raises(VerbsError, match="ibv_modify_qp"):
        _verbs.ibv_modify_qp(pair.a, RTR, qp_state=_verbs.IBV_QPS_RTR)


def test_cq_sizes(context):
    with _verbs.ibv_create_cq(context, 100) as cq:
        assert cq.cqe == 127
    with pytest.raises(VerbsError, match=r"ibv_create_cq\(.*cqe=1073741824"):
        _verbs.ibv_create_cq(context, 1 << 30)
