# SPDX-License-Identifier: Apache-2.0
"""What libmlx5 knows about the objects of verbs: rings, numbers, firmware commands on them, clock, attributes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from connected import make_pair

from gda import _verbs, formats
from gda.errors import VerbsError


@pytest.fixture
def pair(context, pd):
    cqs = [_verbs.ibv_create_cq(context, 16) for _ in range(2)]
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs)
    yield pair
    pair.close()
    for cq in cqs:
        cq.close()


def test_rings_of_a_queue_pair(pair):
    ring = _verbs.mlx5dv_init_obj_qp(pair.a)
    assert ring.sq_wqe_cnt & (ring.sq_wqe_cnt - 1) == 0 and ring.sq_stride == 64
    assert ring.sq_buf and ring.rq_buf and ring.dbrec and ring.bf_reg
    assert ring.rq_wqe_cnt >= 16 and ring.bf_size in (0, 256)
    cq = _verbs.mlx5dv_init_obj_cq(pair.a.send_cq)
    assert (cq.cqe_cnt, cq.cqe_size) == (16, 64) or cq.cqe_cnt == 32


def test_queries_of_verbs_objects_by_command(context, pd, pair):
    f = formats
    command = f.query_qp_in.pack(opcode=f.MLX5_CMD_OP_QUERY_QP, qpn=pair.a.qp_num)
    answer = f.query_qp_out.unpack(_verbs.mlx5dv_devx_qp_query(pair.a, command, f.query_qp_out.bytes))
    assert answer["status"] == 0 and answer["qpc"]["remote_qpn"] == pair.b.qp_num
    cqn = _verbs.mlx5dv_init_obj_cq(pair.a.send_cq).cqn
    command = f.query_cq_in.pack(opcode=f.MLX5_CMD_OP_QUERY_CQ, cqn=cqn)
    answer = f.query_cq_out.unpack(_verbs.mlx5dv_devx_cq_query(pair.a.send_cq, command, f.query_cq_out.bytes))
    assert answer["status"] == 0


@pytest.mark.gda_complaints("command-refused")
def test_refused_commands_on_verbs_objects(pd, pair):
    """A command that the object cannot be meant by is refused, with the call's name, for each kind of object."""
    srq = _verbs.ibv_create_srq(pd, 4)
    for call, thing in (
        (_verbs.mlx5dv_devx_qp_query, pair.a), (_verbs.mlx5dv_devx_qp_modify, pair.a),
        (_verbs.mlx5dv_devx_cq_query, pair.a.send_cq), (_verbs.mlx5dv_devx_cq_modify, pair.a.send_cq),
        (_verbs.mlx5dv_devx_srq_query, srq), (_verbs.mlx5dv_devx_srq_modify, srq),
    ):  # fmt: skip
        with pytest.raises(_verbs.DevxError, match=rf"{call.__name__}\(16 bytes\)"):
            call(thing, bytes(16), 16)
    srq.close()


def test_device_attributes_and_clock(context):
    attributes = _verbs.mlx5dv_query_device(context, _verbs.MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE)
    assert attributes["flags"] & _verbs.MLX5DV_CONTEXT_FLAGS_CQE_V1
    assert attributes["max_clock_info_update_nsec"] >= 0
    clock = _verbs.mlx5dv_get_clock_info(context)
    assert _verbs.mlx5dv_ts_to_ns(clock, clock.last_cycles) == clock.nsec + (clock.frac >> clock.shift)
    try:
        assert _verbs.ibv_query_rt_values_ex(context) > 0
    except VerbsError as error:  # a device without a clock page
        assert "ibv_query_rt_values_ex" in str(error)


def test_memory_by_descriptor(context, pd):
    """A memfd plays a dma-buf on the software NIC; addr of the umem is then a place in it."""
    fd = os.memfd_create("buffer")
    os.ftruncate(fd, 16384)
    dmabuf = {"pgsz_bitmap": 4096, "comp_mask": _verbs.MLX5DV_UMEM_MASK_DMABUF, "dmabuf_fd": fd}
    umem = _verbs.mlx5dv_devx_umem_reg_ex(context, 4096, 8192, _verbs.IBV_ACCESS_LOCAL_WRITE, **dmabuf)
    mr = _verbs.ibv_reg_dmabuf_mr(pd, 4096, 8192, 0x10000, fd, _verbs.IBV_ACCESS_LOCAL_WRITE)
    assert umem.umem_id >= 0 and mr.lkey and mr.length == 8192
    umem.close()
    mr.close()
    with pytest.raises(VerbsError, match=r"mlx5dv_devx_umem_reg_ex\(.*comp_mask=0x1, dmabuf_fd=\d+\)"):
        _verbs.mlx5dv_devx_umem_reg_ex(context, 4096, 1 << 20, _verbs.IBV_ACCESS_LOCAL_WRITE, **dmabuf)
    os.close(fd)


def test_pacing_order_and_connection_extras(context, pd, pair):
    """Each depends on the device: an answer, or a clear refusal."""
    assert _verbs.ibv_query_qp_data_in_order(pair.a, _verbs.IBV_WR_RDMA_WRITE) in (True, False)
    try:
        _verbs.ibv_modify_qp_rate_limit(pair.a, rate_limit=100000)
    except VerbsError as error:
        assert "ibv_modify_qp_rate_limit(qp_num=" in str(error)
    try:
        vendor, options, mask = _verbs.ibv_query_ece(pair.a)
        assert vendor >= 0 and options >= 0 and mask >= 0
    except VerbsError as error:
        assert "ibv_query_ece(qp_num=" in str(error)
    with pytest.raises(VerbsError, match=r"ibv_set_ece\(qp_num=0x[0-9a-f]+, options=0x1\)"):
        _verbs.ibv_set_ece(pair.a, 1, 1, 1)


def test_draining_is_refused(pair):
    """mlx5 has no way from RTS to SQD; the field of its event is passed on all the same."""
    v = _verbs
    with pytest.raises(VerbsError, match=r"ibv_modify_qp\(.*qp_state=4\) failed: EINVAL"):
        v.ibv_modify_qp(
            pair.a, v.IBV_QP_STATE | v.IBV_QP_EN_SQD_ASYNC_NOTIFY, qp_state=v.IBV_QPS_SQD, en_sqd_async_notify=True
        )
    assert v.ibv_query_qp(pair.a, v.IBV_QP_STATE)["qp_state"] == v.IBV_QPS_RTS


def test_words_and_rates():
    v = _verbs
    assert "adapter" in v.ibv_node_type_str(v.IBV_NODE_CA) and v.ibv_port_state_str(v.IBV_PORT_ACTIVE) == "active"
    assert v.ibv_rate_to_mult(v.IBV_RATE_10_GBPS) == 4 and v.mult_to_ibv_rate(4) == v.IBV_RATE_10_GBPS
    assert v.ibv_rate_to_mbps(v.IBV_RATE_10_GBPS) == 10000
    assert v.mbps_to_ibv_rate(10000) == v.IBV_RATE_10_GBPS


def test_device_entry_and_pkey_index(context):
    device = _verbs.ibv_get_device_list()[0]
    assert (device.node_type, device.transport_type) == (_verbs.IBV_NODE_CA, _verbs.IBV_TRANSPORT_IB)
    assert device.device_index >= -1
    assert _verbs.ibv_get_pkey_index(context, 1, 0xFFFF) == 0
    with pytest.raises(VerbsError, match=r"ibv_get_pkey_index\(\w+, 1, 0x1234\)"):
        _verbs.ibv_get_pkey_index(context, 1, 0x1234)


def test_fork_protection_is_asked_for_first():
    """Of a process of its own: it must come before the first registration."""
    program = (
        "from gda import _verbs as v; before = v.ibv_is_fork_initialized(); v.ibv_fork_init();"
        "after = v.ibv_is_fork_initialized();"
        "assert before in (v.IBV_FORK_DISABLED, v.IBV_FORK_UNNEEDED), before;"
        "assert after in (v.IBV_FORK_ENABLED, v.IBV_FORK_UNNEEDED), after"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
