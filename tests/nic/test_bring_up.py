# SPDX-License-Identifier: Apache-2.0
"""What everybody gets wrong when rings are brought up for the first time: case C5, on the software NIC."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from by_hand import completion, post, write_request

from gda import Kernel, _verbs, attach, formats
from gda.errors import ArgumentError

KERNEL = r"""
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, gda_ticket* ticket, gda_status* status) {
    *ticket = gda_put(qp, dst, 24, src, 24, 8);
    *status = gda_wait(qp, *ticket, GDA_MS(5000));
}
"""


@pytest.fixture
def memory(nic):
    return nic.register(np.arange(1, 65, dtype=np.uint8)), nic.register(np.zeros(64, np.uint8))


def test_entries_of_a_new_ring_are_invalid_though_their_owner_bit_is_right(nic):
    """libmlx5 fills all eight with 0xf0: who looks at the owner bit alone sees eight completions."""
    with _verbs.ibv_create_cq(nic.context, 7) as cq:
        ring = _verbs.mlx5dv_init_obj_cq(cq)
        assert (ring.cqe_cnt, ring.cqe_size) == (8, 64)
        entries = [ctypes.string_at(ring.buf + i * ring.cqe_size, ring.cqe_size) for i in range(8)]
        assert [entry[63] for entry in entries] == [0xF0] * 8
        fields = [formats.cqe64.unpack(entry) for entry in entries]
        assert {(f["owner"], f["opcode"]) for f in fields} == {(0, formats.MLX5_CQE_INVALID)}
        assert _verbs.ibv_poll_cq(cq, 8) == []


def test_the_record_word_of_receives_rings_nothing(nic, memory):
    source, target = memory
    a, b = nic.loopback_pair(depth=8)
    a.write_wqe(0, write_request(a, 0, source, target, 8))
    kind, address, _ = a.where()["record"]
    assert kind == "host"
    ctypes.c_uint32.from_address(address).value = int.from_bytes((1).to_bytes(4, "big"), "little")
    a.ring(a.read_wqe(0)[:8])
    software = attach.loaded()
    for _ in range(10):
        software.step()
    assert b.state == "RTS"
    assert any("rung, send record is 0, receive record changed to 1, QP has no RQ" in s for s in software.report())
    assert not target.array.any()
    a.write_record(1)
    a.ring(a.read_wqe(0)[:8])
    assert completion(a, 0)["opcode"] == formats.MLX5_CQE_REQ
    assert target.read(0, 8) == source.read(0, 8)
    software.clear_report()


@pytest.mark.parametrize(
    ("field", "syndrome", "status"), [("lkey", 0x04, 4), ("rkey", 0x13, 10)], ids=["local", "remote"]
)
def test_a_key_stored_in_the_processors_order(nic, memory, field, syndrome, status):
    source, target = memory
    a, _ = nic.loopback_pair(depth=8)
    key = {"lkey": source.lkey, "rkey": target.rkey}[field]
    swapped = int.from_bytes(key.to_bytes(4, "little"), "big")
    post(a, 0, write_request(a, 0, source, target, 8, **{field: swapped}))
    assert completion(a, 0)["syndrome"] == syndrome
    software = attach.loaded()
    assert any(f"0x{swapped:08x} is 0x{key:x} byte-swapped" in sentence for sentence in software.report())
    software.clear_report()


def test_a_consumer_index_that_is_never_stored(nic, memory):
    """Eight completions fit; the ninth breaks the completion queue."""
    source, target = memory
    a, b = nic.loopback_pair(depth=8, completion="ring", ignore_overrun=False)
    for index in range(8):
        post(a, index, write_request(a, index, source, target, 8))
        assert completion(a, index)["opcode"] == formats.MLX5_CQE_REQ
    software = attach.loaded()
    post(a, 8, write_request(a, 8, source, target, 8))
    for _ in range(100):
        software.step()
    assert b.state == "RTS"
    assert any("overrun" in sentence for sentence in software.report())
    assert formats.cqe64.unpack(a.read_cqe(0))["wqe_counter"] == 0, "nothing was overwritten"
    software.clear_report()


@pytest.mark.parametrize("options", [{}, {"completion": "ring"}], ids=["collapsed", "ring"])
def test_a_kernel_goes_on_where_the_cpu_stopped(nic, memory, options):
    """Three writes by hand, then a kernel: its write is the fourth, and completes with counter 3."""
    source, target = memory
    a, _ = nic.loopback_pair(depth=8, **options)
    for index in range(3):
        at = 8 * index
        request = write_request(a, index, source, target, 8, addr=source.address + at, raddr=target.address + at)
        post(a, index, request)
        completion(a, index)
    a.hand_over(3)
    ticket, status = np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    Kernel(KERNEL, target="host").put[1, 1](a, target, source, ticket, status)
    assert (int(ticket[0]), int(status[0])) == (4, 0)
    cqe = formats.cqe64.unpack(a.read_cqe(0 if a.is_collapsed else 3))
    assert (cqe["opcode"], cqe["wqe_counter"]) == (formats.MLX5_CQE_REQ, 3)
    assert target.read(0, 32) == source.read(0, 32)
    with pytest.raises(ArgumentError, match="kernels have posted 4 blocks already"):
        a.hand_over(3)
