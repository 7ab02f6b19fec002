# SPDX-License-Identifier: Apache-2.0
"""Operations of a warp, of a block and of a queue's owner on a NIC, with the fixtures of operation_cases.py.

Imported by test_nic_operations.py (on the CPU) and test_gpu_operations.py (on a GPU).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gda

from .operation_cases import LIMIT_S, Allocate, numbers

SCOPE_KERNELS = r"""
#include <gda/kernels/scope.h>
// Every warp (or the block) does one of each; the values that come back go through memory to all threads.
GDA_KERNEL(one_of_each)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr own, uint32_t block, gda_status* status) {
    uint64_t me = gda::warp_of_grid(), at = 8 * me;
    gda_ticket t;
    gda_status s = 0;
#define EITHER(name, ...) (block ? gda_##name##_block(qp, __VA_ARGS__) : gda_##name##_warp(qp, __VA_ARGS__))
    if (block) at = 8 * blockIdx.x;
    uint64_t* mine = reinterpret_cast<uint64_t*>(src.addr + at);
    if (threadIdx.x % 32 == 31) *mine = at + 1;  // the last lane writes what the first one posts
    t = EITHER(put, dst, at, src, at, 8);
    t = EITHER(put_value, dst, 1024 + at, at + 2);
    t = EITHER(fetch_add, own, at, dst, 2048, 1);
    t = EITHER(masked_compare_swap, own, 512 + at, dst, 2056, uint64_t(0), uint64_t(0), uint64_t(7), uint64_t(7));
    t = EITHER(signal, dst, 2064, 1, GDA_SIGNAL_ADD);
    t = EITHER(put_signal, dst, 3072 + at, src, at, 8, dst, 2072, 1, GDA_SIGNAL_ADD);
    t = EITHER(get, own, 1024 + at, dst, at, 8);
    s = EITHER(wait, t, LIMIT);
    if (reinterpret_cast<volatile uint64_t*>(own.addr + 1024 + at)[0] != at + 1) s = GDA_BAD_HANDLE;
    gda_report(status, s);
}
// As owner, one thread or a warp: of everything, many laps of the ring.
template <class Owner>
GDA_DEVICE void all_of_it(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr own, uint32_t rounds, gda_status* status) {
    Owner queue(qp);
    uint64_t at = 8 * threadIdx.x;
    gda_ticket t = 0;
    for (uint32_t i = 0; i < rounds && !gda_failed(t); ++i) {
        t = queue.put(dst, at, src, at, 8, i % 3 == 0 ? GDA_MORE : 0);
        t = queue.fetch_add(own, at, dst, 2048, 1, GDA_UNSIGNALED);
        t = queue.put_signal(dst, 1024 + at, src, at, 8, dst, 2056, 1, GDA_SIGNAL_ADD);
        t = queue.masked_compare_swap(own, 512 + at, dst, 2064, uint64_t(0), uint64_t(0), uint64_t(7), uint64_t(7));
    }
    gda_status s = gda_failed(t) ? queue.test(t) : queue.flush(LIMIT);
    queue.close();
    gda_report(status, s);
}
GDA_KERNEL(owner_thread)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr own, uint32_t rounds, gda_status* status) {
    all_of_it<gda_owner>(qp, dst, src, own, rounds, status);
}
GDA_KERNEL(owner_warp)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr own, uint32_t rounds, gda_status* status) {
    all_of_it<gda_warp_owner>(qp, dst, src, own, rounds, status);
}
"""


@pytest.fixture(scope="module")
def scopes(target: str) -> gda.Kernel:
    kernels = gda.Kernel(SCOPE_KERNELS.replace("LIMIT", f"GDA_S({LIMIT_S[target]})"), target=target)
    kernels.deadline_s = 2 * LIMIT_S[target]
    return kernels


@pytest.fixture(params=["collapsed", "ring"])
def owned_queue(nic: gda.Nic, target: str, request: pytest.FixtureRequest) -> Iterator[gda.QueuePair]:
    a, b = nic.loopback_pair(depth=32, completion=request.param, shared=False, deadline_ms=1000 * LIMIT_S[target])
    with a, b:
        yield a


@pytest.mark.parametrize("name", ["gda_kernel_put_warp", "gda_kernel_put_block"])
@pytest.mark.parametrize("bytes", [8, 5000])
def test_one_put_of_many_threads(
    *, allocate: Allocate, scopes: gda.Kernel, queue: gda.QueuePair, name: str, bytes: int, limit_ns: int
) -> None:
    pieces = 6 if name.endswith("warp") else 2
    src, dst = allocate(pieces * bytes), allocate(pieces * bytes)
    src.write(0, np.random.default_rng(1).bytes(pieces * bytes))
    scopes[name][2, 96](queue, dst, 0, src, 0, bytes, limit_ns)
    assert dst.read(0, pieces * bytes) == src.read(0, pieces * bytes)
    assert queue.read_handle()["done"] == pieces


@pytest.mark.parametrize("name", ["gda_kernel_put_signal_warp", "gda_kernel_put_signal_block"])
def test_long_transfers_are_split_over_lanes(
    *, allocate: Allocate, nic: gda.Nic, scopes: gda.Kernel, name: str, limit_ns: int
) -> None:
    a, _ = nic.loopback_pair(depth=64)
    a._handle._constants["max_message_bytes"] = 100
    a._handle.update()
    src, dst, signal = allocate(2 * 9950), allocate(2 * 9950), allocate(8)
    src.write(0, np.random.default_rng(1).bytes(2 * 9950))
    scopes[name][2, 32](a, dst, 0, src, 0, 9950, signal, 0, 1, 0, limit_ns)
    assert dst.read(0, 2 * 9950) == src.read(0, 2 * 9950)
    assert numbers(signal, 1)[0] == 2
    assert a.read_handle()["done"] == 2 * 101


@pytest.mark.parametrize("block", [0, 1])
def test_one_of_each(allocate: Allocate, scopes: gda.Kernel, queue: gda.QueuePair, block: int) -> None:
    dst, src, own = (allocate(4096) for _ in range(3))
    count = 2 if block else 4
    scopes.one_of_each[2, 64](queue, dst, src, own, block)
    assert numbers(dst, count).tolist() == [8 * i + 1 for i in range(count)]
    assert numbers(dst, count, 1024).tolist() == [8 * i + 2 for i in range(count)]
    assert numbers(dst, 4, 2048).tolist() == [count, 7, count, count]
    assert numbers(dst, count, 3072).tolist() == numbers(dst, count).tolist()
    assert sorted(numbers(own, count).tolist()) == list(range(count))


@pytest.mark.parametrize(("name", "threads"), [("owner_thread", 1), ("owner_warp", 32), ("owner_warp", 7)])
def test_owners(
    *, allocate: Allocate, scopes: gda.Kernel, owned_queue: gda.QueuePair, name: str, threads: int
) -> None:
    """More requests than the ring holds, left to the next kernel in order: it goes on where this one stopped."""
    dst, src, own = (allocate(4096) for _ in range(3))
    src.write(0, np.arange(512, dtype=np.uint64).tobytes())
    for launch in range(1, 4):
        scopes[name][1, threads](owned_queue, dst, src, own, 12)
        total = 12 * threads * launch
        assert numbers(dst, 3, 2048).tolist() == [total, total, 7]
        assert numbers(dst, threads).tolist() == numbers(dst, threads, 1024).tolist() == list(range(threads))
    state = owned_queue.read_handle()
    assert state["reserved"] == state["ready"] == state["rung"] >= 6 * total
    assert state["error"] == 0


def test_a_warp_puts_as_owner(
    allocate: Allocate, scopes: gda.Kernel, owned_queue: gda.QueuePair, limit_ns: int
) -> None:
    src, dst = allocate(32 * 40 * 16), allocate(32 * 40 * 16)
    src.write(0, np.random.default_rng(1).bytes(32 * 40 * 16))
    scopes.gda_kernel_put_owned[1, 32](owned_queue, dst, 0, src, 0, 16, 40, limit_ns)
    assert dst.read(0, 32 * 40 * 16) == src.read(0, 32 * 40 * 16)
