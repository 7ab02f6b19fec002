# SPDX-License-Identifier: Apache-2.0
"""Completions into the queue's state: progress, errors, deadlines, both kinds of completion queue."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gda import formats
from gda.run import Kernel

from .toy_queue import QPN, ToyMemory, ToyQueue

FAILED = 1 << 63
ACCESS, FLUSH, RETRY = 0x13, 0x05, 0x15
MEMORY = ToyMemory(4096)


def post(kernels: Kernel, queue: ToyQueue, count: int) -> None:
    ticket = np.zeros(1, np.uint64)
    for _ in range(count):
        kernels.put[1, 1](queue, MEMORY, 0, MEMORY, 0, 8, 0, ticket)
        assert not int(ticket[0]) & FAILED


def wait(kernels: Kernel, queue: ToyQueue, ticket: int, deadline_ns: int = 5_000_000) -> dict[str, int | str]:
    result = np.zeros(1, np.uint64)
    kernels.wait[1, 1](queue, ticket, deadline_ns, result)
    return dict(formats.decode_status(int(result[0])))


def test(kernels: Kernel, queue: ToyQueue, ticket: int) -> int:
    result = np.zeros(1, np.uint64)
    kernels.test[1, 1](queue, ticket, result)
    return int(result[0])


test.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture(params=["owned", "shared"])
def owned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "owned")


@pytest.fixture(params=["collapsed", "ring"])
def collapsed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "collapsed")


def test_fresh_rings_hold_no_completion(kernels: Kernel, owned: bool, collapsed: bool) -> None:
    """Case C5: in entries never written the owner bit is right and the opcode is not."""
    queue = ToyQueue(8, owned=owned, collapsed=collapsed)
    queue.cq[63::64] = 0xF0
    post(kernels, queue, 8)
    assert test(kernels, queue, 1) == formats.GDA_TIMEOUT
    assert queue.state["done"] == queue.state["cq_consumed"] == 0


def test_three_outcomes(kernels: Kernel, owned: bool, collapsed: bool) -> None:
    queue = ToyQueue(8, owned=owned, collapsed=collapsed)
    post(kernels, queue, 4)
    begin = time.monotonic()
    late = wait(kernels, queue, 1, 20_000_000)
    assert 0.02 <= time.monotonic() - begin < 5
    assert (late["code_name"], late["qpn"], late["wqe_index"]) == ("GDA_TIMEOUT", QPN, 0)
    for i in range(3):
        queue.complete(i, entry=i)
    assert wait(kernels, queue, 1)["ok"]
    assert test(kernels, queue, 3) == 0
    assert test(kernels, queue, 4) == formats.GDA_TIMEOUT, "not yet is the bare code"
    assert queue.state["done"] == 3
    assert queue.state["cq_consumed"] == (0 if collapsed else 3)


@pytest.mark.parametrize("start", [65530, (1 << 32) - 4, (1 << 48) + 65533])
def test_index_of_64_bits_from_16(kernels: Kernel, owned: bool, collapsed: bool, start: int) -> None:
    queue = ToyQueue(8, owned=owned, collapsed=collapsed, start=start)
    for i in range(12):
        post(kernels, queue, 1)
        queue.complete(start + i, entry=i)
        assert wait(kernels, queue, start + i + 1)["ok"]
        assert queue.state["done"] == start + i + 1


def test_deepest_ring(kernels: Kernel, owned: bool) -> None:
    """32,768 outstanding: the distance still fits the 16 bits."""
    start = (1 << 40) + 7
    queue = ToyQueue(32768, owned=owned, start=start)
    state = queue.state | {"reserved": start + 32768, "ready": start + 32768}
    queue.write_handle(**state)
    queue.complete(start)
    assert wait(kernels, queue, start + 1)["ok"]
    assert queue.state["done"] == start + 1
    queue.complete(start + 32767)
    assert wait(kernels, queue, start + 32768)["ok"]


def test_completion_that_is_faster_than_its_publisher(kernels: Kernel, collapsed: bool) -> None:
    """The NIC may complete a request before the thread that rang has moved `ready` past it."""
    queue = ToyQueue(8, collapsed=collapsed)
    queue.write_handle(**queue.state | {"reserved": 5, "ready": 4, "done": 4})
    queue.complete(4)
    assert wait(kernels, queue, 5)["ok"]
    assert queue.state["done"] == 5


def test_owner_bit_flips_with_each_lap(kernels: Kernel, owned: bool) -> None:
    """Case C5: eleven completions in a ring of eight."""
    queue = ToyQueue(16, owned=owned, collapsed=False, cq_depth=8)
    post(kernels, queue, 11)
    for i in range(8):
        queue.complete(i, entry=i)
    assert wait(kernels, queue, 8)["ok"]
    assert test(kernels, queue, 9) == formats.GDA_TIMEOUT, "the old lap's entries are no new completions"
    for i in range(8, 11):
        queue.complete(i, entry=i)
        assert queue.cq[i % 8 * 64 + 63] == 1
    assert wait(kernels, queue, 11)["ok"]
    assert queue.state["cq_consumed"] == 11


@pytest.mark.parametrize("ignore", [False, True])
def test_consumer_record(kernels: Kernel, owned: bool, ignore: bool) -> None:
    queue = ToyQueue(8, owned=owned, collapsed=False, ignore_overrun=ignore)
    post(kernels, queue, 3)
    for i in range(3):
        queue.complete(i, entry=i)
    assert wait(kernels, queue, 3)["ok"]
    assert queue.consumer_index == (0 if ignore else 3)
    assert not queue.record[:4].any(), "the receive word is not ours"


def test_error_ends_waits_and_later_puts(kernels: Kernel, owned: bool, collapsed: bool) -> None:
    """Case C2, with the first cause seen."""
    queue = ToyQueue(8, owned=owned, collapsed=collapsed)
    post(kernels, queue, 4)
    for i in range(2):
        queue.complete(i, entry=i)
    assert wait(kernels, queue, 2)["ok"]
    queue.fail(2, RETRY, 0x81, entry=2)
    failed = wait(kernels, queue, 4)
    assert (failed["code_name"], failed["syndrome"], failed["vendor_error_syndrome"]) == (
        "GDA_COMPLETION_ERROR", RETRY, 0x81,
    )  # fmt: skip
    assert (failed["wqe_index"], failed["qpn"]) == (2, QPN)
    queue.fail(3, FLUSH, entry=3)
    assert wait(kernels, queue, 4)["syndrome"] == RETRY, "the first error stays"
    assert wait(kernels, queue, 2)["ok"], "what was complete before stays so"
    assert queue.state["done"] == 2
    before = queue.state
    ticket = np.zeros(1, np.uint64)
    kernels.put[1, 1](queue, MEMORY, 0, MEMORY, 0, 8, 0, ticket)
    assert int(ticket[0]) & FAILED
    assert wait(kernels, queue, int(ticket[0]))["syndrome"] == RETRY
    assert test(kernels, queue, int(ticket[0])) == before["error"]
    assert queue.state == before


def test_refused_ticket_keeps_a_high_index(kernels: Kernel, owned: bool) -> None:
    """The ticket's mark takes the top bit of the index; the queue still has it."""
    queue = ToyQueue(8, owned=owned, start=0xC000)
    post(kernels, queue, 1)
    queue.fail(0xC000, ACCESS)
    assert wait(kernels, queue, 0xC001)["wqe_index"] == 0xC000
    ticket = np.zeros(1, np.uint64)
    kernels.put[1, 1](queue, MEMORY, 0, MEMORY, 0, 8, 0, ticket)
    assert wait(kernels, queue, int(ticket[0]))["wqe_index"] == 0xC000


def test_error_of_the_first_request_with_good_ones_unseen(kernels: Kernel, owned: bool) -> None:
    """Requests before the failed one have ended well though nobody polled between."""
    queue = ToyQueue(8, owned=owned)
    post(kernels, queue, 4)
    queue.fail(3, ACCESS)
    assert wait(kernels, queue, 3)["ok"]
    assert wait(kernels, queue, 4)["syndrome"] == ACCESS


def test_flush_seen_first_proves_nothing(kernels: Kernel, owned: bool) -> None:
    """Case C2, collapsed: the first cause was overwritten by a flushed request's entry."""
    queue = ToyQueue(8, owned=owned)
    post(kernels, queue, 4)
    queue.complete(1)
    assert wait(kernels, queue, 2)["ok"]
    queue.fail(3, FLUSH)
    assert wait(kernels, queue, 4)["syndrome"] == FLUSH
    assert wait(kernels, queue, 3)["syndrome"] == FLUSH, "request 2 may be the one that failed"
    assert wait(kernels, queue, 2)["ok"]


def test_error_in_a_full_ring_ends_the_put(kernels: Kernel, owned: bool, collapsed: bool) -> None:
    queue = ToyQueue(4, owned=owned, collapsed=collapsed, deadline_ns=10_000_000_000)
    post(kernels, queue, 4)
    queue.fail(0, ACCESS)
    ticket = np.zeros(1, np.uint64)
    begin = time.monotonic()
    kernels.put[1, 1](queue, MEMORY, 0, MEMORY, 0, 8, 0, ticket)
    assert time.monotonic() - begin < 5
    assert formats.decode_status(int(ticket[0]) & ~FAILED)["syndrome"] == ACCESS


def test_flush_waits_for_all(kernels: Kernel, owned: bool, collapsed: bool) -> None:
    queue = ToyQueue(8, owned=owned, collapsed=collapsed)
    result = np.ones(1, np.uint64)
    kernels.flush[1, 1](queue, 1000, result)
    assert result[0] == 0, "nothing posted, nothing to wait for"
    post(kernels, queue, 3)
    queue.complete(0)
    kernels.flush[1, 1](queue, 5_000_000, result)
    assert formats.decode_status(int(result[0]))["code_name"] == "GDA_TIMEOUT"
    for i in range(1, 3):
        queue.complete(i, entry=i)
    kernels.flush[1, 1](queue, 5_000_000, result)
    assert result[0] == 0


def test_many_pollers_of_one_ring(kernels: Kernel) -> None:
    """Pollers do not consume an entry twice, and the consumer record does not go back."""
    queue = ToyQueue(64, collapsed=False, ignore_overrun=False)
    post(kernels, queue, 64)
    result = np.ones(1, np.uint64)
    launch = kernels.wait.start[4, 64](queue, 64, 10_000_000_000, result)
    last = 0
    for i in range(64):
        queue.complete(i, entry=i)
        assert queue.consumer_index >= last
        last = queue.consumer_index
    launch.wait(10)
    assert result[0] == 0
    assert queue.consumer_index == queue.state["cq_consumed"] == 64


ORDER = r"""
#include <gda/target.h>
__device__ int place;
__device__ int* notes;
namespace gda { namespace target {
GDA_DEVICE void note(int what) { if (notes) notes[place++] = what; }
GDA_DEVICE void noted_record(void* p, uint32_t v) { note(1); store_record(p, v); }
GDA_DEVICE void noted_raise(uint64_t* p, uint64_t v) { note(2); raise_release(p, v); }
GDA_DEVICE bool noted_swap(uint64_t* p, uint64_t e, uint64_t v) { note(3); return compare_swap(p, e, v); }
GDA_DEVICE bool noted_claim(uint64_t* p, uint64_t e, uint64_t v) { note(3); return compare_swap_relaxed(p, e, v); }
} }
#define store_record noted_record
#define raise_release noted_raise
#define compare_swap noted_swap
#define compare_swap_relaxed noted_claim
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, int count) {
    for (int i = 0; i < count; ++i) gda_put(qp, dst, 0, src, 0, 8);
}
GDA_KERNEL(poll)(gda_qp* qp, int* out) { notes = out; gda::poll(qp, gda::view(qp)); notes = nullptr; }
"""


def test_entries_are_freed_before_slots_and_progress_told_before_errors() -> None:
    """A thread that saw `done` posted again before the consumer record had freed an entry: the NIC had no room.

    And one that saw `error` before `done` took a completed request for a failed one.
    """
    kernel = Kernel(ORDER, target="host")
    queue = ToyQueue(8, collapsed=False, ignore_overrun=False)
    kernel.put[1, 1](queue, MEMORY, MEMORY, 3)
    queue.complete(0, entry=0)
    queue.complete(1, entry=1)
    queue.fail(2, ACCESS, entry=2)
    notes = np.zeros(8, np.int32)
    kernel.poll[1, 1](queue, notes)
    assert notes.tolist() == [3, 1, 2, 3, 0, 0, 0, 0], "claim, consumer record, done, error"
