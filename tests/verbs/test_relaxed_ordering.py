# SPDX-License-Identifier: Apache-2.0
"""Signals that are seen before the data, where the software NIC plays it: relaxed ordering, an unordered transport."""

from __future__ import annotations

import numpy as np
import pytest
from connected import RIGHTS, Pair, address_of, make_pair, poll, until

from gda import _verbs, sim

BYTES = 65536


@pytest.fixture
def pair(context, pd):
    cqs = [_verbs.ibv_create_cq(context, 64) for _ in range(2)]
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs)
    yield pair
    pair.close()
    for cq in cqs:
        cq.close()


def seeds_with_missing_bytes(pair: Pair, software, rights: int, seeds: int) -> int:
    """WRITE of 64 KiB, then of 8 bytes, both to regions of `rights`; how often the second is seen first."""
    data, signal = np.zeros(BYTES, np.uint8), np.zeros(8, np.uint8)
    mrs = [_verbs.ibv_reg_mr(pair.pd, address_of(x), x.nbytes, rights) for x in (data, signal)]
    pair.source[:] = 0xA5
    found = 0
    try:
        for seed in range(seeds):
            software.set_relaxed_ordering(True, seed)
            data[:], signal[:] = 0, 0
            for mr, flags in ((mrs[0], 0), (mrs[1], 0)):
                bytes_ = BYTES if mr is mrs[0] else 8
                wr = _verbs.SendWR(
                    opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=pair.piece(bytes_), send_flags=flags,
                    remote_addr=mr.addr, rkey=mr.rkey,
                )  # fmt: skip
                _verbs.ibv_post_send(pair.a, wr)
            until(lambda: bool(signal[0]), software)
            found += not (data == 0xA5).all()
            # A completion shows all that was written before it.
            wr = _verbs.SendWR(
                opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=pair.piece(8), send_flags=_verbs.IBV_SEND_SIGNALED,
                **pair.there(),
            )  # fmt: skip
            _verbs.ibv_post_send(pair.a, wr)
            poll(pair.a.send_cq, software)
            assert (data == 0xA5).all()
    finally:
        software.set_relaxed_ordering(False)
        for mr in mrs:
            mr.close()
    return found


def test_relaxed_signal_is_seen_before_the_data(pair, software):
    software.clear_report()
    assert seeds_with_missing_bytes(pair, software, RIGHTS | _verbs.IBV_ACCESS_RELAXED_ORDERING, 30) > 0
    assert "signal through a key with strict ordering" in " ".join(software.report())
    software.clear_report()


def test_strict_signal_is_not(pair, software):
    assert seeds_with_missing_bytes(pair, software, RIGHTS, 10) == 0


def test_over_an_unordered_transport_it_is(pair, software):
    software.clear_report()
    with sim.faults("unordered,seed=3"):
        assert seeds_with_missing_bytes(pair, software, RIGHTS, 30) > 0
    assert "signal after the data's completion" in " ".join(software.report())
    software.clear_report()


def test_a_counter_in_relaxed_memory_is_no_mistake(pair, software):
    """It looks like a signal, and nobody waits for it: the NIC must not complain where it cannot know."""
    software.clear_report()
    counter = np.zeros(1, np.uint64)
    with _verbs.ibv_reg_mr(pair.pd, address_of(counter), 8, RIGHTS | _verbs.IBV_ACCESS_RELAXED_ORDERING) as mr:
        for opcode, flags in (
            (_verbs.IBV_WR_RDMA_WRITE, _verbs.IBV_SEND_INLINE | _verbs.IBV_SEND_SIGNALED),
            (_verbs.IBV_WR_ATOMIC_FETCH_AND_ADD, _verbs.IBV_SEND_SIGNALED),
        ):
            data = _verbs.SendWR(opcode=_verbs.IBV_WR_RDMA_WRITE, sg_list=pair.piece(BYTES), **pair.there())
            _verbs.ibv_post_send(pair.a, data)
            count = _verbs.SendWR(
                opcode=opcode, sg_list=pair.piece(8), send_flags=flags, compare_add=1, remote_addr=mr.addr, rkey=mr.rkey
            )
            _verbs.ibv_post_send(pair.a, count)
            poll(pair.a.send_cq, software)
    assert counter[0] and not software.report()
