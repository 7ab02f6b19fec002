# SPDX-License-Identifier: Apache-2.0
"""The exception of a failed request names queue, operation and ranges, read back from its slot."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

import gda
from gda.errors import CompletionError, OrderingError, OutOfBoundsError
from gda.nic import Memory, Nic, QueuePair

KERNELS = r"""
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, uint32_t rkey, gda_status* status) {
    if (rkey) dst.rkey_be = gda::be32(rkey);
    *status = gda_wait(qp, gda_put(qp, dst, 64, src, 32, bytes), GDA_MS(2000));
}
GDA_KERNEL(value)(gda_qp* qp, gda_mr dst, uint32_t rkey, gda_status* status) {
    dst.rkey_be = gda::be32(rkey);
    *status = gda_wait(qp, gda_put_value(qp, dst, 8, uint64_t(7)), GDA_MS(2000));
}
GDA_KERNEL(add)(gda_qp* qp, gda_mr dst, gda_mr old, uint32_t rkey, gda_status* status) {
    dst.rkey_be = gda::be32(rkey);
    *status = gda_wait(qp, gda_fetch_add(qp, old, 0, dst, 16, 5), GDA_MS(2000));
}
GDA_KERNEL(get)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t rkey, gda_status* status) {
    src.rkey_be = gda::be32(rkey);
    *status = gda_wait(qp, gda_get(qp, dst, 0, src, 8, 24), GDA_MS(2000));
}
"""


@pytest.fixture(scope="module")
def kernels() -> gda.Kernel:
    return gda.Kernel(KERNELS)


@pytest.fixture(scope="module")
def nic() -> Iterator[Nic]:
    with gda.open() as nic:
        yield nic


@pytest.fixture
def things(nic: Nic) -> Iterator[tuple[QueuePair, Memory, Memory]]:
    a, b = nic.loopback_pair()
    source, target = nic.allocate(4096), nic.allocate(4096)
    yield a, source, target
    for thing in (a, b, source, target):
        thing.close()


def failed(call, *arguments) -> CompletionError:
    with pytest.raises(CompletionError) as caught:
        call[1, 1](*arguments)
    assert caught.value.rank is None
    return caught.value


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
def test_a_put_with_its_ranges(kernels, things):
    a, source, target = things
    kernels.put[1, 1](a, target, source, 8, 0)  # so that the failed one is not the first
    bad = target.rkey ^ 0x5500
    error = failed(kernels.put, a, target, source, 100, bad)
    assert (error.qpn, error.wqe_index, error.operation) == (a.qpn, 1, "RDMA write")
    assert error.local == (source.address + 32, 100, source.lkey)
    assert error.remote == (target.address + 64, 100, bad)
    for said in (
        f"local 0x{source.address + 32:x} + 100 bytes with lkey 0x{source.lkey:x}",
        f"remote 0x{target.address + 64:x} + 100 bytes with rkey 0x{bad:x}", f"queue pair 0x{a.qpn:x} (RDMA write",
    ):  # fmt: skip
        assert said in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.remote, copy.operation, str(copy)) == (error.remote, error.operation, str(error))


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
def test_other_operations(kernels, nic, things):
    _, source, target = things
    bad = target.rkey ^ 0x5500
    there = target.address
    for name, others, operation, local, remote in (
        ("value", (target,), "RDMA write", (0, 8, 0), (there + 8, 8, bad)),
        ("add", (target, source), "fetch", (source.address, 8, source.lkey), (there + 16, 8, bad)),
        ("get", (source, target), "RDMA read", (source.address, 24, source.lkey), (there + 8, 24, bad)),
    ):  # fmt: skip
        a, b = nic.loopback_pair()
        error = failed(getattr(kernels, name), a, *others, bad)
        assert operation in error.operation and (error.local, error.remote) == (local, remote)
        a.reset()
        assert a.__gda_explain__(a.qpn, 0) is None  # the slot is poisoned: nothing is made up
        a.close()
        b.close()


def test_of_another_queue_pair_nothing_is_said(things):
    a, *_ = things
    assert a.__gda_explain__(a.qpn + 1, 0) is None


def test_a_request_that_was_never_written_has_no_ranges(kernels, things):
    a, source, target = things
    with pytest.raises(OutOfBoundsError) as caught:
        kernels.put[1, 1](a, target, source, 1 << 20, 0)
    assert (caught.value.operation, caught.value.local, caught.value.remote) == ("", None, None)


SIGNALS = r"""
#include <gda/gda.h>
GDA_KERNEL(notify)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr signals, gda_status* status) {
    *status = gda_wait(qp, gda_put_signal(qp, dst, 0, src, 0, 64, signals, 0, 1, GDA_SIGNAL_ADD), GDA_MS(2000));
}
GDA_KERNEL(notify_warp)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr signals, gda_status* status) {
    gda_ticket t = gda_put_signal_warp(qp, dst, 0, src, 0, 64, signals, 0, 1, GDA_SIGNAL_ADD);
    gda_status s = gda_wait(qp, t, GDA_MS(2000));
    if (threadIdx.x == 0) *status = s;
}
"""


def test_a_signal_in_relaxed_memory(nic, things):
    """Data may lie in memory with relaxed ordering, the signal behind it may not."""
    a, source, _ = things
    rights = ("remote_write", "remote_atomic")
    relaxed, strict = nic.allocate(64, access=(*rights, "relaxed_ordering")), nic.allocate(64, access=rights)
    kernels = gda.Kernel(SIGNALS)
    for kernel, threads in ((kernels.notify, 1), (kernels.notify_warp, 32)):
        reserved = a.read_handle()["reserved"]
        with pytest.raises(OrderingError, match="relaxed ordering") as caught:
            kernel[1, threads](a, relaxed, source, relaxed)
        assert caught.value.qpn == a.qpn and "without relaxed_ordering" in caught.value.advice
        assert a.read_handle()["reserved"] == reserved, "something was posted all the same"
        kernel[1, threads](a, relaxed, source, strict)
    assert strict.read(0, 8) == (2).to_bytes(8, "little")
    for memory in (relaxed, strict):
        memory.close()
