# SPDX-License-Identifier: Apache-2.0
"""Batches of work requests from NumPy arrays: all of a good one is posted, nothing of a bad one."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest
from connected import RIGHTS, Pair, address_of, make_pair, poll, until

from gda import _verbs
from gda.errors import ArgumentError, ClosedError, PostError, VerbsError, WorkRequestError
from gda.nic.batch import WORK_REQUEST, as_bytes

SIGNALED, INLINE = _verbs.IBV_SEND_SIGNALED, _verbs.IBV_SEND_INLINE
WRITE, READ, ADD = _verbs.IBV_WR_RDMA_WRITE, _verbs.IBV_WR_RDMA_READ, _verbs.IBV_WR_ATOMIC_FETCH_AND_ADD


@pytest.fixture
def cqs(context):
    cqs = [_verbs.ibv_create_cq(context, 300) for _ in range(2)]
    yield cqs
    for cq in cqs:
        cq.close()


@pytest.fixture
def rc(context, pd, cqs):
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, max_send_wr=128, max_send_sge=1, max_inline_data=0)
    yield pair
    pair.close()


def writes(pair: Pair, count: int, signaled: bool = True) -> np.ndarray:
    """8-byte writes from source to target, the last signaled."""
    rows = np.zeros(count, WORK_REQUEST)
    rows["wr_id"] = np.arange(count)
    rows["local_addr"] = pair.source_mr.addr + 8 * np.arange(count)
    rows["remote_addr"] = pair.target_mr.addr + 8 * np.arange(count)
    rows["length"], rows["lkey"], rows["rkey"] = 8, pair.source_mr.lkey, pair.target_mr.rkey
    if signaled and count:
        rows["send_flags"][-1] = SIGNALED
    return rows


def regions(pair: Pair) -> _verbs.Regions:
    return _verbs.Regions([pair.source_mr], [pair.target_mr])


def post(pair: Pair, rows: np.ndarray, memory: _verbs.Regions | None = None) -> None:
    _verbs.post_rows(pair.a, as_bytes(rows), memory or regions(pair))


def test_the_dtype_is_the_struct():
    assert (
        WORK_REQUEST.itemsize
        == _verbs.WORK_REQUEST_BYTES
        == 64
        == sum(WORK_REQUEST[n].itemsize for n in WORK_REQUEST.names)
    )
    starts = [WORK_REQUEST.fields[n][1] for n in WORK_REQUEST.names]
    assert starts == sorted(set(starts))


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 100, 128])
def test_every_row_arrives(rc, software, count):
    for turn in range(3):  # and around the ring
        rc.target[:] = 0
        post(rc, writes(rc, count))
        if count:
            assert poll(rc.a.send_cq, software)[0].wr_id == count - 1
        assert np.array_equal(rc.target[: 8 * count], rc.source[: 8 * count]), turn
        assert not rc.target[8 * count :].any()


def test_every_field_reaches_the_wire(rc, software):
    rows = writes(rc, 6)
    old = rc.source.view(np.uint64)
    word = rc.target.view(np.uint64)
    rc.source[:8] = 7
    word[100] = 40
    rows["opcode"] = [
        WRITE, _verbs.IBV_WR_RDMA_WRITE_WITH_IMM, _verbs.IBV_WR_SEND_WITH_IMM, READ, ADD,
        _verbs.IBV_WR_ATOMIC_CMP_AND_SWP,
    ]  # fmt: skip
    rows["send_flags"] = SIGNALED
    rows["send_flags"][0] |= INLINE
    rows["imm_data"] = [0, 0xA0B0C0D0, 0x01020304, 0, 0, 0]
    rows["remote_addr"][4:] = rc.target_mr.addr + 800
    rows["compare_add"], rows["swap"] = [0, 0, 0, 0, 2, 42], [0, 0, 0, 0, 0, 9]
    for wr_id in range(2):
        _verbs.ibv_post_recv(rc.b, _verbs.RecvWR(sg_list=rc.landing(8, 4096), wr_id=wr_id))
    sent = rc.source[:64].copy()
    post(rc, rows)
    done = poll(rc.a.send_cq, software, 6)
    assert [wc.wr_id for wc in done] == list(range(6)) and all(wc.status == 0 for wc in done)
    assert np.array_equal(rc.target[:16], sent[:16]) and np.array_equal(rc.target[4096:4104], sent[16:24])
    assert [wc.imm_data for wc in poll(rc.b.recv_cq, software, 2)] == [0xA0B0C0D0, 0x01020304]
    assert (old[3], old[4], old[5], word[100]) == (word[3], 40, 42, 9)


BAD = {
    "opcode": (("opcode", _verbs.IBV_WR_BIND_MW), "IBV_WR_BIND_MW cannot be posted in a batch"),
    "unknown opcode": (("opcode", 77), "opcode 77 cannot be posted"),
    "flags": (("send_flags", 0x12), "send_flags=0x12 has others"),
    "longer than a message": (("length", (1 << 30) + 1), "1073741825 bytes are more than a message"),
    "atomic length": (("opcode", ADD, "length", 4), "an atomic operation moves 8 bytes, not 4"),
    "atomic address": (("opcode", ADD, "remote_addr", 0x1001), "multiple of 8, not remote_addr=0x1001"),
    "inline read": (("opcode", READ, "send_flags", INLINE), "IBV_WR_RDMA_READ brings data here"),
    "inline length": (("send_flags", INLINE, "length", 61), r"InlineTooLong\(61>60\)"),
    "lkey": (("lkey", 0x1234), "lkey=0x1234 is of none of the 1 local regions"),
    "rkey": (("rkey", 0x1234), "rkey=0x1234 is of none of the 1 remote regions"),
    "local address": (
        ("local_addr", 0x10),
        "8 bytes at local_addr=0x10 pass the region of lkey=0x[0-9a-f]+, 65536 bytes",
    ),
    "local end": (("length", 65537), "65537 bytes at local_addr=0x[0-9a-f]+ pass the region of lkey"),
    "remote address": (("remote_addr", 2**64 - 4), "8 bytes at remote_addr=0xfffffffffffffffc pass the region of rkey"),
}


@pytest.mark.parametrize("case", BAD)
def test_nothing_of_a_bad_batch_is_posted(rc, software, case):
    changes, text = BAD[case]
    rows = writes(rc, 100)
    for row in (57, 80):  # the first is named
        for name, value in zip(changes[::2], changes[1::2], strict=True):
            rows[name][row] = value
    with pytest.raises(WorkRequestError, match=rf"row 57 of 100: .*{text}(.|\n)*nothing was posted") as caught:
        post(rc, rows)
    assert caught.value.row == 57 and "(wr_id=57, " in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).row == 57
    software.step()
    assert _verbs.ibv_poll_cq(rc.a.send_cq, 8) == [] and not rc.target.any()
    post(rc, writes(rc, 128))  # all slots are still free
    poll(rc.a.send_cq, software)


def test_the_last_byte_of_a_region_is_inside(rc, software):
    rows = writes(rc, 1)
    rows["local_addr"] += 65536 - 8
    rows["remote_addr"] += 65536 - 8
    post(rc, rows)
    poll(rc.a.send_cq, software)
    assert np.array_equal(rc.target[-8:], rc.source[-8:]) and not rc.target[:-8].any()
    for name in ("local_addr", "remote_addr"):
        outside = rows.copy()
        outside[name] += 1
        with pytest.raises(WorkRequestError, match=f"{name}.* pass the region"):
            post(rc, outside)


def test_rights_are_checked(rc, pd):
    """A region knows what it was registered for."""
    memory = np.zeros(64, np.uint8)
    with _verbs.ibv_reg_mr(pd, address_of(memory), 64, 0) as readable:
        assert readable.access == 0 and rc.source_mr.access == RIGHTS
        only = _verbs.Regions([readable, rc.source_mr], [readable, rc.target_mr])
        rows = writes(rc, 3)
        rows["opcode"][1], rows["lkey"][1], rows["local_addr"][1] = READ, readable.lkey, readable.addr
        with pytest.raises(WorkRequestError, match=r"row 1 .*IBV_WR_RDMA_READ writes here.*no IBV_ACCESS_LOCAL_WRITE"):
            post(rc, rows, only)
        for opcode in (WRITE, READ, ADD):
            rows = writes(rc, 3)
            rows["opcode"][2], rows["rkey"][2], rows["remote_addr"][2] = opcode, readable.rkey, readable.addr
            with pytest.raises(WorkRequestError, match=r"row 2 .* is not allowed by rkey=0x[0-9a-f]+, access 0x0"):
                post(rc, rows, only)


def test_a_batch_without_slots_names_the_first_row_that_has_none(rc, software):
    post(rc, writes(rc, 100, signaled=False))
    with pytest.raises(PostError, match="row 28 is the first without a slot; SQ full: 100 posted, 0 signaled; no comp"):
        post(rc, writes(rc, 29))
    post(rc, writes(rc, 28))
    with pytest.raises(PostError, match="row 0 is the first without a slot; SQ full: 128 posted, 1 signaled") as caught:
        post(rc, writes(rc, 1))
    assert caught.value.posted == 0
    assert poll(rc.a.send_cq, software)[0].wr_id == 27
    with pytest.raises(PostError, match="row 128 is the first of 129 that the send queue of 128 cannot hold"):
        post(rc, writes(rc, 129))
    post(rc, writes(rc, 128))
    poll(rc.a.send_cq, software)


def test_what_the_library_refuses_midway_is_counted(rc, software):
    """When slots were taken without this module's knowledge, the library is the judge; what it took is said."""
    assert rc.a.c_pointer
    batch = _verbs.SendBatch(rc.a, as_bytes(writes(rc, 100)), regions(rc))
    post(rc, writes(rc, 90, signaled=False))
    with pytest.raises(PostError, match=r"wr_id=38, num_sge=1\) after 38 posted failed: ENOMEM") as caught:
        post(rc, writes(rc, 100))
    assert caught.value.posted == 38
    until(lambda: np.array_equal(rc.target[:720], rc.source[:720]), software)
    assert not rc.target[720:].any()
    with pytest.raises(PostError, match=r"wr_id=0, num_sge=1\) failed: ENOMEM"):
        _verbs.post_batch(batch)


def test_a_built_batch_is_posted_again_and_again(rc, software):
    rows = writes(rc, 40)
    batch = _verbs.SendBatch(rc.a, as_bytes(rows), regions(rc))
    assert len(batch) == batch.count == 40 and batch.qp is rc.a and batch.regions.local_count == 1
    rows["length"] = 0  # it has a copy
    for _ in range(7):
        rc.target[:] = 0
        _verbs.post_batch(batch)
        assert poll(rc.a.send_cq, software)[0].wr_id == 39
        assert np.array_equal(rc.target[:320], rc.source[:320])
    _verbs.post_batch(_verbs.SendBatch(rc.a, as_bytes(rows[:0]), regions(rc)))
    with pytest.raises(WorkRequestError, match="row 0 of 40"):
        rows["opcode"] = 99
        _verbs.SendBatch(rc.a, as_bytes(rows), regions(rc))


def test_a_batch_keeps_what_it_needs_and_refuses_what_was_closed(context, pd, cqs):
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs)
    memory = np.zeros(64, np.uint8)
    mr = _verbs.ibv_reg_mr(pd, address_of(memory), 64, RIGHTS)
    alive = weakref.ref(mr)
    rows = writes(pair, 2)
    rows["lkey"], rows["local_addr"] = mr.lkey, mr.addr
    batch = _verbs.SendBatch(pair.a, as_bytes(rows), _verbs.Regions([mr], [pair.target_mr]))
    del mr
    gc.collect()
    assert alive() is not None
    alive().close()
    with pytest.raises(ClosedError, match="memory region"):
        _verbs.post_batch(batch)
    with pytest.raises(ClosedError, match="memory region"):
        _verbs.post_rows(pair.a, as_bytes(rows), batch.regions)
    good = _verbs.SendBatch(pair.a, as_bytes(writes(pair, 2)), regions(pair))
    pair.close()
    with pytest.raises(ClosedError):
        _verbs.post_batch(good)
    del batch, good
    gc.collect()
    assert alive() is None


def test_memory_of_another_protection_domain_is_refused(rc, context):
    with _verbs.ibv_alloc_pd(context) as other:
        memory = np.zeros(64, np.uint8)
        mr = _verbs.ibv_reg_mr(other, address_of(memory), 64, RIGHTS)
        with mr, pytest.raises(ArgumentError, match="another protection domain"):
            post(rc, writes(rc, 1), _verbs.Regions([mr]))


def test_memory_by_numbers_and_remote_memory_unknown(rc, software):
    a, b = rc.source_mr, rc.target_mr
    rows = writes(rc, 5)
    post(rc, rows, _verbs.Regions([(a.addr, a.length, a.lkey)]))
    poll(rc.a.send_cq, software)
    assert np.array_equal(rc.target[:40], rc.source[:40])
    with pytest.raises(WorkRequestError, match="not allowed by rkey"):
        post(rc, rows, _verbs.Regions([a], [(b.addr, b.length, b.rkey, _verbs.IBV_ACCESS_REMOTE_READ)]))
    with _verbs.ibv_reg_mr_iova(rc.pd, a.addr, 4096, 0x7000_0000 + a.addr % 4096, RIGHTS) as moved:
        rows["lkey"], rows["local_addr"] = moved.lkey, 0x7000_0000 + a.addr % 4096
        post(rc, rows, _verbs.Regions([moved], [b]))
        poll(rc.a.send_cq, software)
        rows["send_flags"] |= INLINE  # read by this process, by its own addresses
        with pytest.raises(WorkRequestError, match="pass the region"):
            post(rc, rows, _verbs.Regions([moved], [b]))


def test_rows_of_another_kind_are_refused(rc):
    for wrong in (np.zeros(64, np.uint8), [1, 2], np.zeros((2, 2), WORK_REQUEST)):
        with pytest.raises(ArgumentError, match=r"one-dimensional NumPy array of gda\.WORK_REQUEST"):
            as_bytes(wrong)
    with pytest.raises(ArgumentError, match="65 bytes are no whole number"):
        _verbs.post_rows(rc.a, bytes(65), regions(rc))
    every_second = writes(rc, 10)[::2]
    assert np.array_equal(as_bytes(every_second).view(WORK_REQUEST), every_second)


def test_unreliable_queue_pairs(context, pd, cqs, software):
    uc = make_pair(context, pd, _verbs.IBV_QPT_UC, cqs)
    post(uc, writes(uc, 16))
    poll(uc.a.send_cq, software)
    rows = writes(uc, 2)
    rows["opcode"][1] = READ
    with pytest.raises(WorkRequestError, match=f"IBV_WR_RDMA_READ cannot .* of type {_verbs.IBV_QPT_UC}"):
        post(uc, rows)
    uc.close()
    ud = make_pair(context, pd, _verbs.IBV_QPT_UD, cqs)
    with pytest.raises(WorkRequestError, match="IBV_WR_RDMA_WRITE cannot"):
        post(ud, writes(ud, 1))
    ud.close()


def test_one_request_without_an_object(rc, software):
    here, there = rc.source_mr, rc.target_mr
    _verbs.post_send(rc.a, WRITE, here.addr, 24, here.lkey, there.addr + 8, there.rkey, 5, SIGNALED)
    wc = poll(rc.a.send_cq, software)[0]
    assert (wc.wr_id, wc.status) == (5, 0) and np.array_equal(rc.target[8:32], rc.source[:24])
    rc.target.view(np.uint64)[0] = 40
    _verbs.post_send(rc.a, ADD, here.addr, 8, here.lkey, there.addr, there.rkey, send_flags=SIGNALED, compare_add=2)
    poll(rc.a.send_cq, software)
    assert (rc.target.view(np.uint64)[0], rc.source.view(np.uint64)[0]) == (42, 40)
    with pytest.raises(ArgumentError, match=r"post_send\(opcode=8\)"):
        _verbs.post_send(rc.a, _verbs.IBV_WR_BIND_MW, 0, 0, 0)
    with pytest.raises(VerbsError, match=r"InlineTooLong\(61>60\)"):
        _verbs.post_send(rc.a, WRITE, here.addr, 61, here.lkey, there.addr, there.rkey, 0, INLINE)
