# SPDX-License-Identifier: Apache-2.0
"""Case C7: an atomic whose answer is lost is answered again, not done again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gda.sim
from gda import attach, formats

FETCH_ADD, COMPARE_SWAP = formats.MLX5_OPCODE_ATOMIC_FA, formats.MLX5_OPCODE_ATOMIC_CS


@pytest.fixture
def things(nic) -> Iterator[tuple]:
    results, word = nic.register(np.full(32, 0x77, np.uint64)), nic.register(np.full(1, 100, np.uint64))
    a, _ = nic.loopback_pair(depth=64, completion="ring")
    with gda.sim.virtual_time() as software:
        yield a, results, word, software, software.counters()
        software.set_faults("")


def atomic(queue, index, results, word, opcode=FETCH_ADD, **operands) -> bytes:
    request = (
        formats.wqe_ctrl_seg.pack(opcode=opcode, wqe_index=index, qp_or_sq=queue.qpn, ds=4, ce=formats.CE_ALWAYS)
        + formats.wqe_raddr_seg.pack(raddr=word.address, rkey=word.rkey)
        + formats.wqe_atomic_seg.pack(**operands)
        + formats.wqe_data_seg.pack(byte_count=8, lkey=results.lkey, addr=results.address + 8 * index)
    )
    queue.write_wqe(index, request)
    return request


def ring(queue, count: int, last: bytes) -> None:
    queue.write_record(count)
    queue.ring(last[:8])


def completed(queue, index: int, software) -> dict:
    for _ in range(100_000):
        raw = queue.read_cqe(index)
        cqe = formats.cqe64.unpack(raw)
        if cqe["opcode"] != formats.MLX5_CQE_INVALID:
            return formats.err_cqe.unpack(raw) if cqe["opcode"] == formats.MLX5_CQE_REQ_ERR else cqe
        software.step()
    raise AssertionError(software.report())


def since(software, before: dict[str, int], *names: str) -> tuple[int, ...]:
    return tuple(software.counter(name) - before[name] for name in names)


def value(word) -> int:
    return int.from_bytes(word.read(0, 8), "little")


def fetched(results, index: int) -> int:
    return int.from_bytes(results.read(8 * index, 8), "little")


def test_the_first_answer_is_lost(things):
    a, results, word, software, before = things
    software.set_faults("drop answer first=1")
    ring(a, 1, atomic(a, 0, results, word, swap_add=5))
    assert completed(a, 0, software)["opcode"] == formats.MLX5_CQE_REQ
    assert (value(word), fetched(results, 0)) == (105, 100)
    assert since(software, before, "atomic_requests", "duplicates", "packets_resent") == (1, 1, 1)


@pytest.mark.gda_complaints("retries-exceeded")
def test_all_answers_are_lost(things):
    a, results, word, software, before = things
    software.set_faults("drop answer")
    ring(a, 1, atomic(a, 0, results, word, swap_add=5))
    assert completed(a, 0, software)["syndrome"] == formats.MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR
    assert (value(word), fetched(results, 0)) == (105, 0x77), "done once, and no result"
    assert since(software, before, "atomic_requests", "packets_resent") == (1, 7)  # 8 sends
    assert "the operation may have taken effect" in attach.software_nic().report()[0]


def test_a_compare_and_swap_whose_answer_is_lost(things):
    a, results, word, software, before = things
    software.set_faults("drop answer first=1")
    ring(a, 1, atomic(a, 0, results, word, COMPARE_SWAP, compare=100, swap_add=7))
    assert completed(a, 0, software)["opcode"] == formats.MLX5_CQE_REQ
    assert (value(word), fetched(results, 0)) == (7, 100)
    assert since(software, before, "atomic_requests") == (1,)


def test_sixteen_at_once_and_every_answer_is_lost_once(things):
    a, results, word, software, before = things
    first = a.info.psn
    software.set_faults("; ".join(f"drop answer psn={(first + i) % (1 << 24)} first=1" for i in range(16)))
    requests = [atomic(a, index, results, word, swap_add=5) for index in range(16)]
    ring(a, 16, requests[-1])
    for index in range(16):
        assert completed(a, index, software)["opcode"] == formats.MLX5_CQE_REQ
    assert value(word) == 180
    assert sorted(fetched(results, index) for index in range(16)) == [100 + 5 * i for i in range(16)]
    assert since(software, before, "atomic_requests", "fault_dropped") == (16, 16)
