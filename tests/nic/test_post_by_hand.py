# SPDX-License-Identifier: Apache-2.0
"""One work request, written field by field from Python, and its completion: every kind of queue."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import completion, post, write_request

from gda import formats

KINDS = pytest.mark.parametrize(
    ("options"),
    [
        {"completion": "collapsed", "record": True},
        {"completion": "collapsed", "record": False},
        {"completion": "ring", "record": True},
        {"completion": "ring", "record": False},
    ],
    ids=lambda o: f"{o['completion']}-{'record' if o['record'] else 'recordless'}",
)


@pytest.fixture
def memory(nic):
    data = np.random.default_rng(7).integers(0, 256, 8192, dtype=np.uint8)
    return nic.register(data), nic.register(np.zeros(8192, np.uint8)), data


@KINDS
@pytest.mark.parametrize("bytes", [1, 64, 4096, 8192])
def test_write_arrives_and_completes(nic, memory, options, bytes):
    source, target, data = memory
    a, _ = nic.loopback_pair(depth=16, **options)
    post(a, 0, write_request(a, 0, source, target, bytes))
    cqe = completion(a, 0)
    assert cqe["opcode"] == formats.MLX5_CQE_REQ
    assert (cqe["qpn"], cqe["wqe_counter"], cqe["srqn_uidx"]) == (a.qpn, 0, a.user_index)
    assert target.read(0, 8192) == data[:bytes].tobytes() + b"\0" * (8192 - bytes)


@KINDS
def test_three_laps_of_the_ring(nic, memory, options):
    source, target, data = memory
    a, _ = nic.loopback_pair(depth=8, **options)
    for index in range(24):
        request = write_request(
            a, index, source, target, 8, addr=source.address + 8 * index, raddr=target.address + 8 * index
        )
        post(a, index, request)
        cqe = completion(a, index)
        assert (cqe["opcode"], cqe["wqe_counter"]) == (formats.MLX5_CQE_REQ, index)
    assert target.read(0, 192) == data[:192].tobytes()


def test_several_requests_with_one_doorbell(nic, memory):
    source, target, data = memory
    a, _ = nic.loopback_pair(depth=16)
    for index in range(5):
        a.write_wqe(
            index,
            write_request(
                a, index, source, target, 100, addr=source.address + 100 * index, raddr=target.address + 100 * index,
                ce=formats.CE_ALWAYS if index == 4 else formats.CE_ON_ERROR,
            ),
        )  # fmt: skip
    a.write_record(5)
    a.ring(a.read_wqe(4)[:8])
    assert completion(a, 4)["opcode"] == formats.MLX5_CQE_REQ
    assert target.read(0, 500) == data[:500].tobytes()
    assert a.read_record() == 5


def test_recordless_doorbell_with_the_last_request_itself(nic, memory):
    """The other form of that doorbell, libmlx5's: the first eight bytes of the last work request."""
    source, target, data = memory
    a, _ = nic.loopback_pair(depth=16, record=False)
    for index in range(3):
        a.write_wqe(index, write_request(a, index, source, target, 10 * (index + 1)))
    a.ring(a.read_wqe(2)[:8])
    assert completion(a, 2)["opcode"] == formats.MLX5_CQE_REQ
    assert target.read(0, 30) == data[:30].tobytes()


def test_recordless_queues_have_a_register_each(nic, memory):
    source, target, data = memory
    pairs = [nic.loopback_pair(depth=16, record=False) for _ in range(4)]
    registers = [queue.where()["doorbell"][1] for pair in pairs for queue in pair]
    assert len(set(registers)) == 8
    for number, (a, _) in enumerate(pairs):  # rung close together: none may be lost
        at = {"addr": source.address + 8 * number, "raddr": target.address + 8 * number}
        post(a, 0, write_request(a, 0, source, target, 8, **at))
    for a, _ in pairs:
        assert completion(a, 0)["opcode"] == formats.MLX5_CQE_REQ
    assert target.read(0, 32) == data[:32].tobytes()
    with_record, _ = nic.loopback_pair(depth=16)
    post(with_record, 0, write_request(with_record, 0, source, target, 64))
    assert completion(with_record, 0)["opcode"] == formats.MLX5_CQE_REQ


def test_both_directions(nic, memory):
    source, target, data = memory
    a, b = nic.loopback_pair()
    post(a, 0, write_request(a, 0, source, target, 10))
    post(b, 0, write_request(b, 0, source, target, 20, addr=source.address + 10, raddr=target.address + 10))
    assert completion(a, 0)["opcode"] == completion(b, 0)["opcode"] == formats.MLX5_CQE_REQ
    assert target.read(0, 30) == data[:30].tobytes()


def test_a_queue_pair_connected_to_itself(nic, memory):
    source, target, data = memory
    with nic.queue_pair() as a:
        a.connect(a.info)
        post(a, 0, write_request(a, 0, source, target, 77))
        assert completion(a, 0)["opcode"] == formats.MLX5_CQE_REQ
        assert target.read(0, 77) == data[:77].tobytes()


ERRORS = {
    "unknown rkey": ({"rkey": 0xDEAD00}, formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR),
    "unknown lkey": ({"lkey": 0xDEAD00}, formats.MLX5_CQE_SYNDROME_LOCAL_PROT_ERR),
    "wrong queue pair number": ({"qp_or_sq": 0x1}, formats.MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR),
    "unknown opcode": ({"opcode": 0x77}, formats.MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR),
}


@pytest.mark.gda_complaints(
    may=("key-unknown", "refused-by-peer", "wqe-opcode", "wqe-stale", "doorbell-unknown-queue")
)
@KINDS
@pytest.mark.parametrize("what", ERRORS)
def test_errors_have_the_right_syndrome(nic, software, memory, options, what):
    source, target, _ = memory
    changes, syndrome = ERRORS[what]
    a, _ = nic.loopback_pair(depth=16, **options)
    post(a, 0, write_request(a, 0, source, target, 64, **changes))
    cqe = completion(a, 0)
    assert (cqe["opcode"], cqe["syndrome"]) == (formats.MLX5_CQE_REQ_ERR, syndrome), software.report()
    assert cqe["qpn"] == a.qpn
    assert a.state == "ERR"
    assert software.report(), "the software NIC says what was wrong"
    assert target.read(0, 64) == bytes(64)


@pytest.mark.gda_complaints("key-range", "refused-by-peer")
def test_out_of_bounds_on_either_side(nic, memory):
    source, target, _ = memory
    for changes, syndrome in (
        ({"raddr": target.address + 8192 - 32}, formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR),
        ({"raddr": target.address - 1}, formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR),
        ({"addr": source.address + 8192 - 32}, formats.MLX5_CQE_SYNDROME_LOCAL_PROT_ERR),
    ):
        a, b = nic.loopback_pair()
        post(a, 0, write_request(a, 0, source, target, 64, **changes))
        assert completion(a, 0)["syndrome"] == syndrome
        a.close()
        b.close()
    assert target.read(0, 8192) == bytes(8192)


@pytest.mark.gda_complaints("key-right-missing", "refused-by-peer")
def test_rights_are_kept(nic, memory):
    source, _, _ = memory
    readable = nic.register(np.zeros(64, np.uint8), access=("local_write", "remote_read"))
    a, _ = nic.loopback_pair()
    post(a, 0, write_request(a, 0, source, readable, 64))
    assert completion(a, 0)["syndrome"] == formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
def test_after_an_error_everything_is_flushed_and_reset_helps(nic, memory):
    source, target, data = memory
    a, b = nic.loopback_pair(depth=16, completion="ring")
    post(a, 0, write_request(a, 0, source, target, 8, rkey=1))
    assert completion(a, 0)["syndrome"] == formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR
    post(a, 1, write_request(a, 1, source, target, 8))
    assert completion(a, 1)["syndrome"] == formats.MLX5_CQE_SYNDROME_WR_FLUSH_ERR
    for queue in (a, b):
        queue.reset()
    a.connect(b.info)
    b.connect(a.info)
    consumed = a.read_handle()["cq_consumed"]  # the completion queue went on: two entries were written
    post(a, 0, write_request(a, 0, source, target, 8))
    cqe = completion(a, consumed)
    assert (cqe["opcode"], cqe["wqe_counter"]) == (formats.MLX5_CQE_REQ, 0)
    assert target.read(0, 8) == data[:8].tobytes()


def test_outstanding_work_is_flushed_by_to_error(nic, memory):
    source, target, _ = memory
    a, _ = nic.loopback_pair(completion="ring")
    a.to_error()
    assert a.state == "ERR"
    post(a, 0, write_request(a, 0, source, target, 8))
    assert completion(a, 0)["syndrome"] == formats.MLX5_CQE_SYNDROME_WR_FLUSH_ERR


def test_helpers_for_posting_refuse_nonsense(nic):
    from gda.errors import ArgumentError

    a, _ = nic.loopback_pair(depth=4, record=False)
    with pytest.raises(ArgumentError, match="no doorbell record"):
        a.write_record(1)
    assert a.read_record() is None
    for wrong in (b"", bytes(15), bytes(4 * 64 + 16)):
        with pytest.raises(ArgumentError, match="16-byte segments"):
            a.write_wqe(0, wrong)
    with pytest.raises(ArgumentError, match="8 bytes"):
        a.ring(bytes(4))
    with pytest.raises(ArgumentError, match=r"slot 1 is outside 0\.\.0"):
        a.read_cqe(1)


def test_a_request_wraps_around_the_end_of_the_ring(nic):
    a, _ = nic.loopback_pair(depth=4)
    request = bytes(range(128))
    a.write_wqe(7, request)  # slot 3, then slot 0
    assert a.read_wqe(3) == request[:64] and a.read_wqe(4) == request[64:]
