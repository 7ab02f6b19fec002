# SPDX-License-Identifier: Apache-2.0
"""Queue pairs that the CPU posts to: connected among themselves and to those of kernels; batches checked by memory."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref

import numpy as np
import pytest

import gda
from gda import _verbs, formats
from gda.errors import (
    ArgumentError,
    ClosedError,
    CompletionError,
    DeadlineError,
    NotConnectedError,
    OutOfBoundsError,
    PostError,
    WorkRequestError,
)
from gda.nic import HostQueuePair, Memory, Nic, connect


@pytest.fixture
def pair(nic: Nic) -> tuple[HostQueuePair, HostQueuePair]:
    pair = nic.host_queue_pair(depth=64), nic.host_queue_pair()
    connect(*pair)
    return pair


@pytest.fixture
def memory(nic: Nic) -> tuple[Memory, Memory]:
    return nic.register(np.arange(4096, dtype=np.uint16)), nic.allocate(8192)


def writes(source: Memory, target: Memory | gda.RemoteMemory, count: int) -> np.ndarray:
    """8-byte writes from one to the other, the last signaled."""
    rows = np.zeros(count, gda.WORK_REQUEST)
    rows["wr_id"] = np.arange(count)
    rows["local_addr"] = source.address + 8 * np.arange(count)
    rows["remote_addr"] = target.address + 8 * np.arange(count)
    rows["length"], rows["lkey"], rows["rkey"] = 8, source.lkey, target.rkey
    rows["send_flags"][-1] = _verbs.IBV_SEND_SIGNALED
    return rows


def test_put_and_get(pair, memory):
    a, b = pair
    source, target = memory
    a.put(target, 100, source, 50, 4000, wr_id=7)
    assert a.wait()[0].wr_id == 7
    assert target.read(100, 4000) == source.read(50, 4000) and not target.array[:100].any()
    back = a.nic.allocate(64)
    b.get(back, 8, target, 100, 16)
    b.wait()
    assert back.read(8, 16) == source.read(50, 16)
    assert (a.state, a.remote.qpn, a.depth, a.closed) == ("RTS", b.qpn, 64, False) and f"0x{a.qpn:x}" in repr(a)


def test_a_batch_of_rows(pair, memory):
    a, _ = pair
    source, target = memory
    rows = writes(source, target, 64)
    for _ in range(3):
        target.array[:] = 0
        a.post(rows)
        assert [wc.wr_id for wc in a.wait()] == [63]
        assert target.read(0, 512) == source.read(0, 512)
    a.post(rows, remote=[target])
    a.wait()
    a.post(rows, remote=[target.remote])
    a.wait()


def test_a_prepared_batch(pair, memory):
    a, b = pair
    source, target = memory
    batch = a.prepare(writes(source, target, 10), remote=[target.remote])
    assert len(batch) == 10 and batch.queue is a
    others = a.nic.allocate(64)
    others.close()  # memory that it does not name may come and go
    for _ in range(8):
        a.post(batch)
        a.wait()
    assert target.read(0, 80) == source.read(0, 80)
    with pytest.raises(ArgumentError, match="cannot be posted to queue pair"):
        b.post(batch)
    with pytest.raises(ArgumentError, match="remote memory of a prepared batch is fixed"):
        a.post(batch, remote=[])
    source.close()
    with pytest.raises(ClosedError, match="memory region"):
        a.post(batch)


def test_rows_are_checked_by_the_open_memory_of_the_nic(pair, memory):
    a, _ = pair
    source, target = memory
    rows = writes(source, target, 20)
    rows["remote_addr"][7] = target.address + target.bytes - 7
    with pytest.raises(
        WorkRequestError, match=r"row 7 of 20: 8 bytes at remote_addr=0x[0-9a-f]+ pass the region"
    ) as caught:
        a.post(rows, remote=[target])
    assert caught.value.row == 7 and not target.array.any()
    rows = writes(source, target, 20)
    late = a.nic.allocate(64)
    rows["lkey"][3], rows["local_addr"][3] = late.lkey, late.address
    a.post(rows)
    a.wait()
    key = late.lkey
    late.close()
    with pytest.raises(WorkRequestError, match=f"row 3 of 20: lkey=0x{key:x} is of none of the 2 local regions"):
        a.post(rows)
    readonly = a.nic.register(bytes(64))
    rows["lkey"][3], rows["local_addr"][3], rows["opcode"][3] = readonly.lkey, readonly.address, _verbs.IBV_WR_RDMA_READ
    with pytest.raises(WorkRequestError, match=r"row 3 of 20: IBV_WR_RDMA_READ writes here.*no IBV_ACCESS_LOCAL_WRITE"):
        a.post(rows)


def test_many_regions_are_all_found(pair, nic):
    a, _ = pair
    regions = [nic.allocate(64) for _ in range(40)]
    target = nic.allocate(40 * 8)
    rows = writes(regions[0], target, 40)
    for i, region in enumerate(regions):
        region.array[:8] = i + 1
        rows["lkey"][i], rows["local_addr"][i] = region.lkey, region.address
    a.post(rows)
    a.wait()
    assert target.array.reshape(40, 8).tolist() == [[i + 1] * 8 for i in range(40)]


def test_a_full_queue(pair, memory):
    a, _ = pair
    rows = writes(*memory, 64)
    rows["send_flags"] = 0
    a.post(rows)
    with pytest.raises(PostError, match="row 0 is the first without a slot; SQ full: 64 posted, 0 signaled; no compl"):
        a.post(rows[:3])
    with pytest.raises(PostError, match="SQ full: 64 posted, 0 signaled; no completion can ever free a slot"):
        a.put(memory[1], 0, memory[0], 0, 8)


def test_wrong_arguments_are_refused(pair, memory, nic):
    a, _ = pair
    source, target = memory
    with pytest.raises(OutOfBoundsError, match=r"offset 8190 \+ 8 bytes pass the end of a memory region of 8192"):
        a.put(target, 8190, source, 0, 8)
    with pytest.raises(OutOfBoundsError):
        a.put(target, 0, source, -1, 8)
    readonly = nic.register(bytes(64))
    with pytest.raises(ArgumentError, match="no right remote_write"):
        a.put(readonly, 0, source, 0, 8)
    with pytest.raises(ArgumentError, match="no right local_write"):
        a.get(readonly, 0, source, 0, 8)
    for options in ({"depth": 0}, {"depth": 1.5}, {"inline_bytes": -1}, {"psn": 1 << 24}):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            nic.host_queue_pair(**options)
    with pytest.raises(ArgumentError, match="max_send_wr=1048576 is outside"):
        nic.host_queue_pair(depth=1 << 20)
    fresh = nic.host_queue_pair()
    for call in (lambda: fresh.put(target, 0, source, 0, 8), lambda: fresh.post(writes(source, target, 1))):
        with pytest.raises(NotConnectedError, match="is not connected"):
            call()
    for options in ({"path_mtu": 100}, {"ack_timeout": 32}, {"retry_count": 8}):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            fresh.connect(a.info, **options)
    with pytest.raises(ArgumentError, match="connected already"):
        a.connect(fresh.info)
    target.close()
    with pytest.raises(ClosedError):
        a.put(target, 0, source, 0, 8)
    a.close()
    for call in (lambda: a.post(writes(source, source, 1)), a.poll, lambda: a.info):
        with pytest.raises(ClosedError):
            call()


def test_inline_data_is_read_at_once(nic, memory):
    a, b = nic.host_queue_pair(inline_bytes=16), nic.host_queue_pair()
    connect(a, b)
    source, target = memory
    assert a.inline_bytes >= 16
    rows = writes(source, target, 2)
    rows["send_flags"] |= _verbs.IBV_SEND_INLINE
    a.post(rows)
    a.wait()
    assert target.read(0, 16) == source.read(0, 16)
    rows["length"][1] = a.inline_bytes + 1
    with pytest.raises(WorkRequestError, match=rf"row 1 of 2: InlineTooLong\({a.inline_bytes + 1}>{a.inline_bytes}\)"):
        a.post(rows)


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
def test_a_failure_ends_the_wait_and_reset_mends(pair, memory):
    a, b = pair
    source, target = memory
    remote = gda.RemoteMemory(target.address, target.bytes, 0x1234)
    a.put(remote, 0, source, 0, 8, wr_id=99)
    with pytest.raises(
        CompletionError, match=r"wr_id=99 of queue pair 0x[0-9a-f]+ failed: remote access error"
    ) as caught:
        a.wait()
    assert caught.value.qpn == a.qpn and a.state == "ERR"
    assert (caught.value.syndrome, caught.value.status, caught.value.vendor_syndrome) == (0x13, 10, 0x88)
    assert "syndrome 0x13: the remote key does not cover" in str(caught.value) and caught.value.advice
    for queue in pair:
        queue.reset()
    connect(a, b)
    a.put(target, 0, source, 0, 8)
    a.wait()
    with pytest.raises(DeadlineError, match=r"0 of 1 completions of queue pair 0x[0-9a-f]+ after 0\.01 s"):
        a.wait(seconds=0.01)


def test_it_connects_to_a_queue_pair_of_kernels(nic, memory):
    """Both directions of one connection: the CPU posts on one side, by hand or by kernels on the other."""
    host, device = nic.host_queue_pair(), nic.queue_pair()
    connect(host, device)
    source, target = memory
    host.put(target, 0, source, 0, 1000)
    host.wait()
    assert target.read(0, 1000) == source.read(0, 1000)
    assert device.state == "RTS"


def test_threads_share_the_interpreter(pair, memory):
    """wait() lets others run: another thread completes what this one waits for."""
    a, _ = pair
    source, target = memory
    later = threading.Timer(0.05, lambda: a.put(target, 0, source, 0, 8))
    later.start()
    assert len(a.wait(seconds=10)) == 1
    later.join()


def test_the_collector_frees_it(nic, memory):
    a, b = nic.host_queue_pair(), nic.host_queue_pair()
    connect(a, b)
    batch = a.prepare(writes(*memory, 4))
    gone = weakref.ref(a)
    del a
    gc.collect()
    assert gone() is not None  # the batch keeps it
    batch.queue.post(batch)
    batch.queue.wait()
    del batch
    gc.collect()
    assert gone() is None


def test_connect_with_garbage_says_what_it_takes(nic):
    """A number was taken for so many zero bytes of a record."""
    with nic.host_queue_pair() as qp, pytest.raises(ArgumentError, match="connect takes ConnectionInfo or its bytes"):
        qp.connect(5)


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
def test_every_status_of_libmlx5_has_the_syndrome_it_came_from(nic, memory, software):
    """libmlx5 itself is asked: error completions get another syndrome in the ring before it reads them."""
    from gda.nic.host_queue import _SYNDROMES

    source, target = memory
    remote = gda.RemoteMemory(target.address, target.bytes, target.rkey ^ 0x7700)
    found = {}
    for syndrome in _SYNDROMES.values():
        a, b = nic.host_queue_pair(), nic.host_queue_pair()
        connect(a, b)
        a.put(remote, 0, source, 0, 8)
        ring = (ctypes.c_ubyte * 64).from_address(_verbs.mlx5dv_init_obj_cq(a._cq).buf)
        for _ in range(10_000):
            if formats.cqe64.get(bytes(ring), "opcode") == formats.MLX5_CQE_REQ_ERR:
                break
            software.step()
        entry = bytearray(ring)
        formats.err_cqe.set(entry, "syndrome", syndrome)
        ring[:] = entry
        with pytest.raises(CompletionError) as caught:
            a.wait()
        found[caught.value.status] = syndrome
        a.close()
        b.close()
    assert found == _SYNDROMES
