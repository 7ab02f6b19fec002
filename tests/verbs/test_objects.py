# SPDX-License-Identifier: Apache-2.0
"""Life of the C objects: closing, closing again, use after close, parents before children, garbage collection."""

from __future__ import annotations

import errno
import gc
import mmap
import pickle

import numpy as np
import pytest

from gda import _verbs
from gda.errors import ArgumentError, ClosedError, VerbsError

ALL_RIGHTS = (
    _verbs.IBV_ACCESS_LOCAL_WRITE
    | _verbs.IBV_ACCESS_REMOTE_WRITE
    | _verbs.IBV_ACCESS_REMOTE_READ
    | _verbs.IBV_ACCESS_REMOTE_ATOMIC
)


def address_of(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_only_calls_make_objects():
    for kind in (_verbs.Context, _verbs.PD, _verbs.MR, _verbs.CQ, _verbs.QP, _verbs.DevxObj, _verbs.Umem, _verbs.Uar):
        with pytest.raises(TypeError, match="come from the calls"):
            kind()


def test_pd_number_and_parent_refuses_to_close_first(context):
    pd = _verbs.ibv_alloc_pd(context)
    assert 0 < _verbs.mlx5dv_init_obj_pd(pd) < 1 << 24
    assert context.children == 1 and pd.context is context
    with pytest.raises(VerbsError, match=r"ibv_close_device\(.*EBUSY(.|\n)*close the 1 object") as caught:
        context.close()
    assert caught.value.errno == errno.EBUSY
    assert not context.closed
    pd.close()
    pd.close()
    assert context.children == 0
    with pytest.raises(ClosedError):
        _verbs.mlx5dv_init_obj_pd(pd)


def test_memory_region(pd):
    data = np.zeros(4096, np.uint8)
    with _verbs.ibv_reg_mr(pd, address_of(data), data.nbytes, ALL_RIGHTS) as mr:
        assert (mr.addr, mr.length) == (address_of(data), 4096)
        assert mr.lkey and mr.rkey and mr.pd is pd
        with pytest.raises(VerbsError, match=r"ibv_dealloc_pd\(\) failed: EBUSY"):
            pd.close()
    with pytest.raises(ClosedError):
        mr.rkey


def test_region_with_iova_zero(pd):
    pages = mmap.mmap(-1, 4096)
    address = address_of(np.frombuffer(pages, np.uint8))
    with _verbs.ibv_reg_mr_iova(pd, address, 100, 0, ALL_RIGHTS) as mr:
        assert mr.length == 100
    with pytest.raises(VerbsError, match=r"iova=0x0, access=0xf\) failed: EINVAL(.|\n)*same offset within a page"):
        _verbs.ibv_reg_mr_iova(pd, address + 8, 100, 0, ALL_RIGHTS)


def test_refused_registrations_say_why(pd):
    data = np.zeros(64, np.uint8)
    with pytest.raises(VerbsError, match=r"ibv_reg_mr\(addr=0x[0-9a-f]+, length=64, access=0x2\) failed: EINVAL") as e:
        _verbs.ibv_reg_mr(pd, address_of(data), 64, _verbs.IBV_ACCESS_REMOTE_WRITE)
    assert "LOCAL_WRITE" in e.value.advice
    with pytest.raises(VerbsError, match=r"ibv_reg_dmabuf_mr\(offset=0x0, length=4096, iova=0x0, fd=-1"):
        _verbs.ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, _verbs.IBV_ACCESS_LOCAL_WRITE)


def test_unmapped_memory_is_refused(pd):
    pages = mmap.mmap(-1, 8192)
    address = np.frombuffer(pages, np.uint8).__array_interface__["data"][0]
    gc.collect()
    pages.close()
    with pytest.raises(VerbsError, match="EFAULT"):
        _verbs.ibv_reg_mr(pd, address, 8192, _verbs.IBV_ACCESS_LOCAL_WRITE)


def test_address_handle_resolves_the_mac(context, pd):
    gid = _verbs.ibv_query_gid_ex(context, 1, 1).gid
    with _verbs.ibv_create_ah(pd, port_num=1, dgid=gid, sgid_index=1) as ah:
        vector = _verbs.mlx5dv_init_obj_ah(ah)
    assert len(vector.rmac) == 6 and any(vector.rmac)
    assert vector.rgid == gid
    with pytest.raises(ArgumentError, match="dgid has 3 bytes"):
        _verbs.ibv_create_ah(pd, port_num=1, dgid=b"abc", sgid_index=1)


def test_umem_and_doorbell_pages(context):
    pages = mmap.mmap(-1, 8192)
    view = np.frombuffer(pages, np.uint8)
    with _verbs.mlx5dv_devx_umem_reg(context, address_of(view), 8192, _verbs.IBV_ACCESS_LOCAL_WRITE) as umem:
        assert umem.umem_id >= 0
    with _verbs.mlx5dv_devx_umem_reg_ex(
        context, address_of(view), 4096, _verbs.IBV_ACCESS_LOCAL_WRITE, pgsz_bitmap=4096
    ) as umem:
        assert umem.umem_id >= 0
    for flags in (_verbs.MLX5DV_UAR_ALLOC_TYPE_NC, _verbs.MLX5DV_UAR_ALLOC_TYPE_BF):
        with _verbs.mlx5dv_devx_alloc_uar(context, flags) as uar:
            assert uar.page_id > 0 and uar.flags == flags
            assert uar.base_addr % 4096 == 0 and uar.reg_addr - uar.base_addr in (0x800, 0x900)
            assert uar.mmap_off >= 0


def test_event_queue_number(context):
    assert _verbs.mlx5dv_devx_query_eqn(context, 0) >= 0


def test_garbage_is_freed_children_first(software, context):
    def make() -> None:
        pd = _verbs.ibv_alloc_pd(context)
        data = np.zeros(64, np.uint8)
        mr = _verbs.ibv_reg_mr(pd, address_of(data), 64, _verbs.IBV_ACCESS_LOCAL_WRITE)
        cq = _verbs.ibv_create_cq(context, 10)
        qp = _verbs.ibv_create_qp(pd, qp_type=_verbs.IBV_QPT_RC, send_cq=cq, recv_cq=cq)
        assert software.objects() >= before + 3
        del pd, cq  # the children hold them
        assert mr.pd.context is context and qp.send_cq is not None

    before = software.objects()
    make()
    gc.collect()
    assert context.children == 0
    before = software.objects()  # libmlx5 keeps the doorbell page of its first queue pair until the context closes
    make()
    gc.collect()
    assert software.objects() == before


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(_verbs.DevxError("call(1)", errno.EREMOTEIO, "advice", b"\x03")))
    assert (error.call, error.errno, error.advice, error.output) == ("call(1)", errno.EREMOTEIO, "advice", b"\x03")


def test_doorbell_store_is_checked():
    word = np.zeros(2, np.uint64)
    _verbs.store_doorbell(address_of(word), b"\x01\x02\x03\x04\x05\x06\x07\x08")
    assert word.tobytes()[:8] == b"\x01\x02\x03\x04\x05\x06\x07\x08" and word[1] == 0
    with pytest.raises(ArgumentError, match="8 bytes at a multiple of 8, not 4 bytes"):
        _verbs.store_doorbell(address_of(word), b"1234")
    with pytest.raises(ArgumentError, match="at a multiple of 8"):
        _verbs.store_doorbell(address_of(word) + 4, bytes(8))
