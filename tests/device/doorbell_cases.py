# SPDX-License-Identifier: Apache-2.0
"""Each way to tell a NIC, through Kernel on a NIC: bytes, wraps, full rings, errors, many producers.

Imported by test_nic_operations.py (on the CPU) and test_gpu_operations.py (on a GPU), which say with the fixtures
`target` and `placement` where kernels run and where the bytes lie.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gda
from gda.errors import CompletionError
from gda.nic.doorbell_modes import MODES

LIMIT_S = {"host": 30, "gpu": 4}
TOLD = r"""
#include <gda/gda.h>
#define ME (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x)
// Every thread puts its own 8 bytes, so often; each put's completion is waited for.
GDA_KERNEL(put_and_wait)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t rounds, gda_status* status) {
    for (uint32_t i = 0; i < rounds; ++i) {
        gda_status s = gda_wait(qp, gda_put(qp, dst, 8 * ME, src, 8 * ME, 8), LIMIT);
        if (s != 0) return gda_report(status, s);
    }
}
// Every thread counts up one word, as fast as the ring lets it.
GDA_KERNEL(count_up)(gda_qp* qp, gda_mr counter, gda_mr old, uint32_t rounds, gda_status* status) {
    gda_ticket t = 0;
    for (uint32_t i = 0; i < rounds; ++i) t = gda_fetch_add(qp, old, 8 * ME, counter, 0, 1);
    gda_report(status, gda_wait(qp, t, LIMIT));
}
// By an owner with registers: 1 request, then 2 that share a doorbell, then one of two blocks, over and over.
GDA_KERNEL(by_owner)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t rounds, gda_status* status) {
    gda_owner queue(qp);
    gda_status s = 0;
    for (uint32_t i = 0; i < rounds && s == 0; ++i) {
        queue.put(dst, 0, src, 0, 8);
        queue.put(dst, 8, src, 8, 8, GDA_MORE);
        queue.put(dst, 16, src, 16, 8);
        gda_ticket t = queue.put_signal(dst, 24, src, 24, 8, dst, 32, uint64_t(1), GDA_SIGNAL_ADD);
        s = queue.wait(t, LIMIT);
    }
    queue.close();
    gda_report(status, s);
}
// The second of three fails; the others wait for what became of them.
GDA_KERNEL(fails)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr wrong, gda_status* status) {
    gda_put(qp, dst, 0, src, 0, 8);
    gda_put(qp, wrong, 0, src, 0, 8);
    gda_report(status, gda_wait(qp, gda_put(qp, dst, 8, src, 8, 8), LIMIT));
}
"""


@pytest.fixture(scope="module")
def told(target: str) -> gda.Kernel:
    kernels = gda.Kernel(TOLD.replace("LIMIT", f"GDA_S({LIMIT_S[target]})"), target=target)
    kernels.deadline_s = 2 * LIMIT_S[target]
    return kernels


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bell(nic: gda.Nic, target: str, mode: str) -> Iterator[gda.QueuePair]:
    a, b = nic.loopback_pair(depth=16, doorbell=mode, deadline_ms=1000 * LIMIT_S[target])
    with a, b:
        assert (a.doorbell, a.has_record) == (mode, mode != "no-record")
        yield a


def test_puts_arrive_however_the_nic_is_told(
    nic: gda.Nic, told: gda.Kernel, bell: gda.QueuePair, placement: str
) -> None:
    src, dst = nic.allocate(8 * 64, placement), nic.allocate(8 * 64, placement)
    src.write(0, np.arange(1, 65, dtype=np.uint64).tobytes())
    told.put_and_wait[2, 32](bell, dst, src, 2)
    assert dst.read(0, 512) == src.read(0, 512)
    told.put_and_wait[1, 1](bell, dst, src, 3)  # one at a time
    state = bell.read_handle()
    assert (state["done"], state["error"]) == (131, 0)


def test_a_full_ring_and_two_to_the_sixteen(nic: gda.Nic, told: gda.Kernel, mode: str, target: str) -> None:
    """More requests than the ring holds, from more threads than it has slots; the index comes past 2^16."""
    a, b = nic.loopback_pair(depth=16, doorbell=mode, deadline_ms=1000 * LIMIT_S[target])
    with a, b:
        counter, old = nic.allocate(8), nic.allocate(8 * 64)
        told.count_up[2, 32](a, counter, old, 1040)
        total = 64 * 1040
        assert int.from_bytes(counter.read(0, 8), "little") == total
        state = a.read_handle()
        assert state["reserved"] == state["ready"] == state["done"] == total
        if mode != "no-record":
            assert a.read_record() == total % 65536


def test_an_owner_tells_it_the_same(nic: gda.Nic, told: gda.Kernel, mode: str, target: str) -> None:
    a, b = nic.loopback_pair(depth=16, doorbell=mode, shared=False, deadline_ms=1000 * LIMIT_S[target])
    with a, b:
        src, dst = nic.allocate(64), nic.allocate(64)
        src.write(0, bytes(range(32)))
        told.by_owner[1, 1](a, dst, src, 50)
        assert dst.read(0, 32) == bytes(range(32))
        assert int.from_bytes(dst.read(32, 8), "little") == 50


@pytest.mark.gda_complaints("key-right-missing", "refused-by-peer")
def test_an_error_is_told_however_the_nic_is(nic: gda.Nic, told: gda.Kernel, bell: gda.QueuePair) -> None:
    src, dst, wrong = nic.allocate(64), nic.allocate(64), nic.allocate(64, access=("local_write",))
    with pytest.raises(CompletionError):
        told.fails[1, 1](bell, dst, src, wrong)
    assert bell.read_handle()["error"] != 0
