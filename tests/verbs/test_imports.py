# SPDX-License-Identifier: Apache-2.0
"""Objects of another context by descriptor and handle, and by pointer; domains, re-registration, device memory."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest
from connected import RIGHTS, Pair, address_of, make_pair, poll

from gda import _verbs
from gda.errors import ArgumentError, ClosedError, VerbsError


def test_context_pd_and_mr_are_shared(context, pd, software):
    data = np.arange(4096, dtype=np.uint8)
    mr = _verbs.ibv_reg_mr(pd, address_of(data), data.nbytes, RIGHTS)
    with _verbs.ibv_import_device(os.dup(context.cmd_fd)) as other:
        assert other.name == context.name and not other.borrowed
        with _verbs.ibv_import_pd(other, pd.handle) as shared:
            assert _verbs.mlx5dv_init_obj_pd(shared) == _verbs.mlx5dv_init_obj_pd(pd)
            with _verbs.ibv_import_mr(shared, mr.handle) as region:
                assert (region.lkey, region.rkey) == (mr.lkey, mr.rkey)
                with pytest.raises(VerbsError, match="EBUSY"):
                    shared.close()
            with pytest.raises(VerbsError, match=r"ibv_import_mr\(handle=999999\)"):
                _verbs.ibv_import_mr(shared, 999999)
        with pytest.raises(VerbsError, match=r"ibv_import_pd\(\w+, handle=999999\)(.|\n)*protection domain of the con"):
            _verbs.ibv_import_pd(other, 999999)
        with pytest.raises(ClosedError):
            shared.handle
    # The originals live on.
    assert _verbs.mlx5dv_init_obj_pd(pd) > 0
    mr.close()


def test_imported_memory_carries_data(context, pd, software):
    data = np.zeros(4096, np.uint8)
    mr = _verbs.ibv_reg_mr(pd, address_of(data), data.nbytes, RIGHTS)
    with (
        _verbs.ibv_import_device(os.dup(context.cmd_fd)) as other,
        _verbs.ibv_import_pd(other, pd.handle) as shared,
        _verbs.ibv_import_mr(shared, mr.handle) as region,
    ):
        cqs = [_verbs.ibv_create_cq(other, 8) for _ in range(2)]
        pair = make_pair(other, shared, _verbs.IBV_QPT_RC, cqs)
        _verbs.ibv_post_send(
            pair.a,
            _verbs.SendWR(
                opcode=_verbs.IBV_WR_RDMA_WRITE,
                sg_list=pair.piece(100),
                send_flags=_verbs.IBV_SEND_SIGNALED,
                remote_addr=address_of(data),
                rkey=region.rkey,
            ),
        )
        assert poll(cqs[0], software)[0].status == _verbs.IBV_WC_SUCCESS
        assert np.array_equal(data[:100], pair.source[:100])
        pair.close()
        for cq in cqs:
            cq.close()
    mr.close()


def test_a_descriptor_that_is_no_device_is_refused():
    reading, writing = os.pipe()
    with pytest.raises(VerbsError, match=rf"ibv_import_device\(cmd_fd={reading}\)"):
        _verbs.ibv_import_device(reading)
    for fd in (reading, writing):
        os.close(fd)


def test_device_memory(context):
    most = _verbs.ibv_query_device_ex(context)["max_dm_size"]
    with _verbs.ibv_alloc_dm(context, most) as dm:
        view = _verbs.mlx5dv_init_obj_dm(dm)
        assert view.length == most
        word = ctypes.c_uint32.from_address(view.buf)
        word.value = 5
        with (
            _verbs.ibv_import_device(os.dup(context.cmd_fd)) as guest,
            _verbs.ibv_import_dm(guest, dm.handle) as same,
        ):
            again = ctypes.c_uint32.from_address(_verbs.mlx5dv_init_obj_dm(same).buf)
            assert again.value == 5
    words = rf"ibv_alloc_dm\(\w+, length={most + 1}, log_align_req=0\)(.|\n)*max_dm_size"
    with pytest.raises(VerbsError, match=words):
        _verbs.ibv_alloc_dm(context, most + 1)
    with pytest.raises(VerbsError, match=r"ibv_import_dm\(\w+, handle=5\)(.|\n)*max_dm_size"):
        _verbs.ibv_import_dm(context, 5)
    with pytest.raises(TypeError):
        _verbs.mlx5dv_init_obj_dm(context)


def test_borrowed_objects_free_nothing(context, pd, software):
    cqs = [_verbs.ibv_create_cq(context, 16) for _ in range(2)]
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs)
    qp = _verbs.wrap_qp(pair.a.c_pointer, pair)
    assert qp.borrowed and qp.qp_num == pair.a.qp_num and qp.cap["max_send_wr"] >= 16
    assert qp.pd.borrowed and qp.pd.handle == pd.handle and qp.pd.context.cmd_fd == context.cmd_fd
    _verbs.ibv_post_send(
        qp,
        _verbs.SendWR(
            opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=pair.piece(10), send_flags=_verbs.IBV_SEND_SIGNALED, **pair.there()
        ),
    )
    assert poll(qp.send_cq, software)[0].status == _verbs.IBV_WC_SUCCESS
    qp.close()
    with pytest.raises(ClosedError):
        qp.qp_num
    with _verbs.wrap_pd(pd.c_pointer) as borrowed, _verbs.wrap_context(context.c_pointer) as device:
        assert borrowed.borrowed and device.name == context.name
    with _verbs.wrap_cq(cqs[0].c_pointer) as cq:
        assert cq.cqe == cqs[0].cqe
    assert pair.a.qp_num and cqs[0].cqe and not context.closed  # all alive
    for wrap in (_verbs.wrap_context, _verbs.wrap_pd, _verbs.wrap_cq, _verbs.wrap_qp):
        with pytest.raises(ArgumentError, match="is not 0"):
            wrap(0)
    pair.close()
    for cq in cqs:
        cq.close()


def test_thread_and_parent_domains(context, pd):
    td = _verbs.ibv_alloc_td(context)
    domain = _verbs.ibv_alloc_parent_domain(context, pd, td)
    assert domain.parent is pd and domain.td is td
    for thing in (td, pd):
        with pytest.raises(VerbsError, match="EBUSY"):
            thing.close()
    cq = _verbs.ibv_create_cq_ex(context, 8, parent_domain=domain)
    qp = _verbs.ibv_create_qp(domain, qp_type=_verbs.IBV_QPT_RC, send_cq=cq, recv_cq=cq)
    with pytest.raises(VerbsError, match="EBUSY"):
        domain.close()
    for thing in (qp, cq, domain, td):
        thing.close()
    assert td.closed and domain.closed


# --------------------------------------------------------------------------------------------------- re-registration
@pytest.fixture
def pair(context, pd):
    cqs = [_verbs.ibv_create_cq(context, 16) for _ in range(2)]
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs)
    yield pair
    pair.close()
    for cq in cqs:
        cq.close()


def write_to(pair: Pair, mr: _verbs.MR, software) -> int:
    _verbs.ibv_post_send(
        pair.a,
        _verbs.SendWR(
            opcode=_verbs.IBV_WR_RDMA_WRITE,
            sg_list=pair.piece(50),
            send_flags=_verbs.IBV_SEND_SIGNALED,
            remote_addr=mr.addr,
            rkey=mr.rkey,
        ),
    )
    return poll(pair.a.send_cq, software)[0].status


@pytest.mark.gda_complaints("key-right-missing", "refused-by-peer")
def test_region_moves_to_other_memory_and_rights(pair, context, pd, software):
    first, second = np.zeros(4096, np.uint8), np.zeros(8192, np.uint8)
    mr = _verbs.ibv_reg_mr(pd, address_of(first), first.nbytes, RIGHTS)
    _verbs.ibv_rereg_mr(mr, _verbs.IBV_REREG_MR_CHANGE_TRANSLATION, addr=address_of(second), length=second.nbytes)
    assert (mr.addr, mr.length) == (address_of(second), 8192)
    assert write_to(pair, mr, software) == _verbs.IBV_WC_SUCCESS
    assert np.array_equal(second[:50], pair.source[:50]) and not first.any()
    with _verbs.ibv_alloc_pd(context) as other:
        _verbs.ibv_rereg_mr(mr, _verbs.IBV_REREG_MR_CHANGE_PD, other)
        assert mr.pd is other and other.children == 1
        _verbs.ibv_rereg_mr(mr, _verbs.IBV_REREG_MR_CHANGE_PD, pd)
        assert mr.pd is pd and other.children == 0
    _verbs.ibv_rereg_mr(mr, _verbs.IBV_REREG_MR_CHANGE_ACCESS, access=_verbs.IBV_ACCESS_LOCAL_WRITE)
    assert write_to(pair, mr, software) == _verbs.IBV_WC_REM_ACCESS_ERR
    mr.close()


def test_wrong_changes_are_refused(pd):
    data = np.zeros(4096, np.uint8)
    with _verbs.ibv_reg_mr(pd, address_of(data), data.nbytes, RIGHTS) as mr:
        with pytest.raises(VerbsError, match=r"ibv_rereg_mr\(flags=0x100"):
            _verbs.ibv_rereg_mr(mr, 0x100)
        assert mr.pd is pd


def test_advice_and_null_regions(pd):
    """Both depend on the device: an answer, or a clear refusal."""
    data = np.zeros(4096, np.uint8)
    mr = _verbs.ibv_reg_mr(pd, address_of(data), data.nbytes, RIGHTS)
    with pytest.raises(VerbsError, match=r"ibv_advise_mr\(advice=0, flags=0x0, num_sge=1\)(.|\n)*on-demand"):
        _verbs.ibv_advise_mr(pd, _verbs.IBV_ADVISE_MR_ADVICE_PREFETCH, 0, [(mr.addr, mr.length, mr.lkey)])
    mr.close()
    try:
        with _verbs.ibv_alloc_null_mr(pd) as null:
            assert null.lkey
    except VerbsError as error:
        assert "ibv_alloc_null_mr() failed: ENOTSUP" in str(error)
