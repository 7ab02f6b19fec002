# SPDX-License-Identifier: Apache-2.0
"""What a put costs, counted: barriers, records, doorbells, read-modify-writes."""

from __future__ import annotations

import numpy as np
import pytest

from gda.run import Kernel

from .toy_queue import ToyMemory, ToyQueue

# The target's functions are replaced by counting ones before the library above them is read.
COUNTING = r"""
#include <gda/target.h>
__device__ unsigned counts[8];
namespace gda { namespace target {
#define COUNTED(number, name, params, args) \
    GDA_DEVICE void counted_##name params { atomicAdd(&counts[number], 1u); name args; }
COUNTED(0, wqe_before_doorbell_record, (scope s), (s))
COUNTED(0, own_wqe_before_doorbell_record, (scope s), (s))
COUNTED(1, doorbell_record_before_doorbell, (scope s), (s))
COUNTED(2, store_record, (void* p, uint32_t v), (p, v))
COUNTED(3, store_doorbell, (void* p, uint64_t v), (p, v))
GDA_DEVICE uint64_t counted_add(uint64_t* p, uint64_t n) { atomicAdd(&counts[4], 1u); return add(p, n); }
GDA_DEVICE uint64_t counted_bits(uint64_t* p, uint64_t v) { atomicAdd(&counts[6], 1u); return set_bits(p, v); }
GDA_DEVICE uint64_t counted_exchange(uint64_t* p, uint64_t e, uint64_t v) {
    atomicAdd(&counts[7], 1u);
    return exchange_if(p, e, v);
}
COUNTED(5, store_segment, (void* p, uint64_t a, uint64_t b), (p, a, b))
} }
#define own_wqe_before_doorbell_record counted_own_wqe_before_doorbell_record
#define wqe_before_doorbell_record counted_wqe_before_doorbell_record
#define doorbell_record_before_doorbell counted_doorbell_record_before_doorbell
#define store_record counted_store_record
#define store_doorbell counted_store_doorbell
#define add counted_add
#define set_bits counted_bits
#define exchange_if counted_exchange
#define store_segment counted_store_segment
#include <gda/gda.h>
GDA_KERNEL(count)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t puts, unsigned* out) {
    [[maybe_unused]] uint4 four = {1, 2, 3, 4};
    for (uint32_t i = 0; i < puts; ++i) OPERATION;
    __syncthreads();
    if (threadIdx.x < 8) out[threadIdx.x] = counts[threadIdx.x];
    if (threadIdx.x == 0) for (int i = blockDim.x; i < 8; ++i) out[i] = counts[i];
}
"""
NAMES = ("wqe barrier", "record barrier", "records", "doorbells", "reservations", "segments", "notes", "parkings")


PUT = "gda_put(qp, dst, 0, src, 0, 8)"


def count(queue: ToyQueue, threads: int, puts: int, converged: str = "all", operation: str = PUT) -> dict[str, int]:
    # A kernel of its own each time: the counters are variables of its module.
    kernel = Kernel(f"#define OPERATION {operation}\n{COUNTING}", target="host", converged=converged)
    out = np.zeros(8, np.uint32)
    kernel.count[1, threads](queue, ToyMemory(64), ToyMemory(64), puts, out)
    return dict(zip(NAMES, map(int, out), strict=True))


def test_one_thread_of_a_shared_queue() -> None:
    """One of everything: the floor with a record is two barriers, one record, one doorbell; and the token is parked."""
    assert count(ToyQueue(16), 1, 1) == dict(zip(NAMES, (1, 1, 1, 1, 1, 3, 0, 1), strict=True))


def test_owned_queue_has_no_read_modify_write() -> None:
    assert count(ToyQueue(16, owned=True), 1, 4) == dict(zip(NAMES, (4, 4, 4, 4, 0, 12, 0, 0), strict=True))


@pytest.mark.parametrize("owned", [True, False])
def test_without_record(owned: bool) -> None:
    seen = count(ToyQueue(16, owned=owned, record=False), 1, 1)
    assert (seen["wqe barrier"], seen["record barrier"], seen["records"], seen["doorbells"]) == (1, 0, 0, 1)


def test_a_warp_pays_once() -> None:
    assert count(ToyQueue(64), 32, 1) == dict(zip(NAMES, (1, 1, 1, 1, 1, 96, 0, 1), strict=True))


def test_lanes_alone_pay_each() -> None:
    """The other end of the policy: nobody finds anybody, everybody reserves; doorbells may still merge."""
    seen = count(ToyQueue(64), 32, 1, converged="one")
    assert seen["reservations"] == 32
    assert seen["segments"] == 96
    assert 1 <= seen["doorbells"] <= 32


@pytest.mark.parametrize(
    ("operation", "segments"),
    [
        ("gda_get(qp, dst, 0, src, 0, 8)", 3),
        ("gda_put_imm(qp, dst, 0, src, 0, 8, 7)", 3),
        ("gda_put_value(qp, dst, 0, 7)", 3),
        ("gda_put_value(qp, dst, 0, four)", 4),
        ("gda_fetch_add(qp, dst, 0, src, 0, 1)", 4),
        ("gda_compare_swap(qp, dst, 0, src, 0, 1, 2)", 4),
        ("gda_masked_fetch_add<uint64_t>(qp, dst, 0, src, 0, 1, 2)", 4),
        ("gda_masked_compare_swap<uint32_t>(qp, dst, 0, src, 0, 1, 2, 3, 4)", 4),
        ("gda_masked_compare_swap<uint64_t>(qp, dst, 0, src, 0, 1, 2, 3, 4)", 5),
        ("gda_signal(qp, dst, 0, 1, GDA_SIGNAL_ADD)", 4),
        ("gda_signal(qp, dst, 0, 1, GDA_SIGNAL_SET)", 3),
        ("gda_put_signal(qp, dst, 0, src, 0, 8, dst, 8, 1, GDA_SIGNAL_ADD)", 7),
        ("gda_put_signal(qp, dst, 0, src, 0, 8, dst, 8, 1, GDA_SIGNAL_SET)", 6),
        ("gda_nop(qp)", 1),
    ],
)
def test_every_operation_costs_what_a_put_costs(operation: str, segments: int) -> None:
    expected = dict(zip(NAMES, (1, 1, 1, 1, 1, segments, 0, 1), strict=True))
    assert count(ToyQueue(16), 1, 1, operation=operation) == expected


def test_a_warp_pays_once_for_puts_with_signals() -> None:
    """64 requests in one reservation, one doorbell."""
    operation = "gda_put_signal(qp, dst, 0, src, 0, 8, dst, 8, 1, GDA_SIGNAL_ADD)"
    expected = dict(zip(NAMES, (1, 1, 1, 1, 1, 32 * 7, 0, 1), strict=True))
    assert count(ToyQueue(128), 32, 1, operation=operation) == expected


PUT_SIGNAL = "(qp, dst, 0, src, 0, 8, dst, 8, 1, GDA_SIGNAL_ADD)"


@pytest.mark.parametrize("threads", [7, 32, 96])
@pytest.mark.parametrize(
    ("operation", "segments"), [("gda_put_block(qp, dst, 0, src, 0, 8)", 3), (f"gda_put_signal_block{PUT_SIGNAL}", 7)]
)
def test_a_block_costs_what_a_thread_costs(threads: int, operation: str, segments: int) -> None:
    expected = dict(zip(NAMES, (1, 1, 1, 1, 1, segments, 0, 1), strict=True))
    assert count(ToyQueue(16), threads, 1, operation=operation) == expected


def test_a_warp_in_warp_scope_costs_what_a_thread_costs() -> None:
    expected = dict(zip(NAMES, (1, 1, 1, 1, 1, 7, 0, 1), strict=True))
    assert count(ToyQueue(16), 32, 1, operation=f"gda_put_signal_warp{PUT_SIGNAL}") == expected


@pytest.mark.parametrize(("owner", "threads"), [("gda_owner", 1), ("gda_warp_owner", 32)])
def test_an_owner_pays_for_a_doorbell(owner: str, threads: int) -> None:
    """Two barriers, a record and a doorbell, for one request or for 32; nothing is read, and no read-modify-write."""
    operation = f"{{ {owner} queue(qp); queue.put(dst, 0, src, 0, 8); queue.close(); }}"
    expected = dict(zip(NAMES, (1, 1, 1, 1, 0, 3 * threads, 0, 0), strict=True))
    assert count(ToyQueue(64, owned=True), threads, 1, operation=operation) == expected
