# SPDX-License-Identifier: Apache-2.0
"""Cases for a NIC with two ports. Run by test_ports.py, in a process that has one."""

from __future__ import annotations

import select

import pytest
from connected import QKEY, make_pair, poll

from gda import _verbs
from gda.errors import VerbsError


def event(context: _verbs.Context) -> tuple[int, object]:
    assert select.select([context.async_fd], [], [], 10)[0]
    got = _verbs.ibv_get_async_event(context)
    _verbs.ibv_ack_async_event(got)
    return got.event_type, got.element


def test_queries(context):
    assert _verbs.ibv_query_device(context)["phys_port_cnt"] == 2
    one, two = (_verbs.ibv_query_port(context, port) for port in (1, 2))
    assert one == two and one["gid_tbl_len"] == 16
    for port in (0, 3):
        with pytest.raises(VerbsError, match="EINVAL"):
            _verbs.ibv_query_port(context, port)
        with pytest.raises(VerbsError, match="EINVAL"):
            _verbs.ibv_query_gid_ex(context, port, 1)
    table = _verbs.ibv_query_gid_table(context, 32)
    assert [(e.port_num, e.gid_index) for e in table] == [(port, i) for port in (1, 2) for i in range(4)]
    assert len({e.gid for e in table}) == 4  # each in two versions
    assert [e.gid[14] for e in table if e.gid_index == 3] == [0, 1]  # 127.71.0.x and 127.71.1.x
    assert _verbs.ibv_query_gid(context, 2, 3) == table[7].gid
    assert _verbs.ibv_query_pkey(context, 2, 0) == 0xFFFF


def test_a_network_that_changes_at_one_port(context, software):
    gid = bytes(10) + bytes([255, 255, 10, 0, 0, 2])
    software.set_gid(5, gid, port=2)
    assert event(context) == (_verbs.IBV_EVENT_GID_CHANGE, 2)
    assert [_verbs.ibv_query_gid(context, port, 5) for port in (1, 2)] == [bytes(16), gid]
    software.set_gid(5, None, port=2)
    assert event(context) == (_verbs.IBV_EVENT_GID_CHANGE, 2)
    software.set_link(False, port=2)
    assert event(context) == (_verbs.IBV_EVENT_PORT_ERR, 2)
    assert [_verbs.ibv_query_port(context, port)["state"] for port in (1, 2)] == [4, 1]
    software.set_link(True, port=2)
    assert event(context) == (_verbs.IBV_EVENT_PORT_ACTIVE, 2)
    software.set_mtu(1500, port=2)
    assert [_verbs.ibv_query_port(context, port)["active_mtu"] for port in (1, 2)] == [5, 3]
    software.set_mtu(9000, port=2)


@pytest.mark.parametrize("ports", [(1, 2), (2, 1), (2, 2)])
def test_a_pair_over_ports(context, pd, cqs, software, ports):
    counted = [software.counter("write_requests", port=port) for port in (1, 2)]
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, ports=ports)
    write = _verbs.SendWR(
        opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=pair.piece(9000), send_flags=_verbs.IBV_SEND_SIGNALED, **pair.there()
    )
    _verbs.ibv_post_send(pair.a, write)
    assert [wc.status for wc in poll(cqs[0], software)] == [0]
    assert (pair.target[:9000] == pair.source[:9000]).all()
    attributes = _verbs.ibv_query_qp(pair.a, _verbs.IBV_QP_PORT | _verbs.IBV_QP_AV)
    attributes = attributes[0] if isinstance(attributes, tuple) else attributes
    assert attributes["port_num"] == ports[0]
    pair.close()
    after = [software.counter("write_requests", port=port) for port in (1, 2)]
    assert [y - x for x, y in zip(counted, after, strict=True)] == [int(ports[1] == port) for port in (1, 2)]


def test_datagrams_from_the_port_of_the_queue_pair(context, pd, cqs, software):
    pair = make_pair(context, pd, _verbs.IBV_QPT_UD, cqs, ports=(2, 1))
    with _verbs.ibv_create_ah(pd, port_num=2, dgid=pair.gid, sgid_index=1) as ah:
        _verbs.ibv_post_recv(pair.b, _verbs.RecvWR(sg_list=pair.landing(1024)))
        send = _verbs.SendWR(
            opcode=_verbs.IBV_WR_SEND, sg_list=pair.piece(64), send_flags=_verbs.IBV_SEND_SIGNALED, ah=ah,
            remote_qpn=pair.b.qp_num, remote_qkey=QKEY,
        )  # fmt: skip
        _verbs.ibv_post_send(pair.a, send)
        assert [wc.status for wc in [*poll(cqs[0], software), *poll(cqs[1], software)]] == [0, 0]
    source = bytes(pair.target[8:24])  # of the global header
    assert source == _verbs.ibv_query_gid_ex(context, 2, 1).gid
    pair.close()


def test_address_handles(pd):
    gid = _verbs.ibv_query_gid_ex(pd.context, 2, 1).gid
    for port in (1, 2):
        with _verbs.ibv_create_ah(pd, port_num=port, dgid=gid, sgid_index=1) as ah:
            assert _verbs.mlx5dv_init_obj_ah(ah).rmac[4] == 1  # the MAC of port 2, whoever asks
    for port in (0, 3):
        with pytest.raises(VerbsError, match=rf"ibv_create_ah\(port_num={port}"):  # libmlx5 itself refuses it
            _verbs.ibv_create_ah(pd, port_num=port, dgid=gid, sgid_index=1)


@pytest.mark.gda_complaints("command-refused", may=("retries-exceeded",))
def test_wrong_ports(context, pd, cqs, software):
    software.clear_report()
    gid = _verbs.ibv_query_gid_ex(context, 2, 1).gid
    v = _verbs
    with v.ibv_create_qp(pd, qp_type=v.IBV_QPT_RC, send_cq=cqs[0], recv_cq=cqs[1], max_send_wr=1, max_send_sge=1) as qp:
        init = v.IBV_QP_STATE | v.IBV_QP_PKEY_INDEX | v.IBV_QP_PORT | v.IBV_QP_ACCESS_FLAGS
        for port in (0, 3):
            with pytest.raises(VerbsError, match="EINVAL"):
                v.ibv_modify_qp(qp, init, qp_state=v.IBV_QPS_INIT, port_num=port, qp_access_flags=0)
        assert any("port 3 of a NIC that has 2" in said for said in software.report())
        v.ibv_modify_qp(qp, init, qp_state=v.IBV_QPS_INIT, port_num=1, qp_access_flags=0)
        v.ibv_modify_qp(qp, v.IBV_QP_PORT, port_num=2)
        to_rtr = (
            v.IBV_QP_STATE | v.IBV_QP_AV | v.IBV_QP_PATH_MTU | v.IBV_QP_DEST_QPN | v.IBV_QP_RQ_PSN
            | v.IBV_QP_MAX_DEST_RD_ATOMIC | v.IBV_QP_MIN_RNR_TIMER
        )  # fmt: skip
        path = {
            "qp_state": v.IBV_QPS_RTR, "path_mtu": v.IBV_MTU_1024, "dest_qp_num": qp.qp_num, "rq_psn": 7, "dgid": gid,
            "sgid_index": 1,
        }  # fmt: skip
        with pytest.raises(VerbsError, match="EINVAL"):
            v.ibv_modify_qp(qp, to_rtr, port_num=1, **path)
        assert any("is bound to port 2 since INIT, its path names port 1" in said for said in software.report())
        v.ibv_modify_qp(qp, to_rtr, port_num=2, **path)


@pytest.mark.gda_complaints("retries-exceeded")
def test_a_link_of_one_port_by_faults(context, pd, cqs, software):
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, ports=(2, 2))
    write = _verbs.SendWR(
        opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=pair.piece(8), send_flags=_verbs.IBV_SEND_SIGNALED, **pair.there()
    )
    try:
        software.set_faults("link=down:1")
        _verbs.ibv_post_send(pair.a, write)
        assert [wc.status for wc in poll(cqs[0], software)] == [0]
        software.set_virtual_time(True)
        software.set_faults("link=down:2")
        _verbs.ibv_post_send(pair.a, write)
        assert [wc.status for wc in poll(cqs[0], software)] == [_verbs.IBV_WC_RETRY_EXC_ERR]
    finally:
        software.set_virtual_time(False)
        software.set_faults("")
        pair.close()
