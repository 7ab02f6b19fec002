# SPDX-License-Identifier: Apache-2.0
"""Everything that the software NIC's checker finds in what programs write by hand: kind, queue, request, values."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest
from by_hand import completion, post, write_request

from gda import attach, formats
from gda.complaint import Complaint


@pytest.fixture
def memory(nic):
    return nic.register(np.arange(4096, dtype=np.uint16)), nic.register(np.zeros(8192, np.uint8))


def said(kind: str, seconds: float = 10.0) -> Complaint:
    """The one complaint of that kind, once it is there."""
    software = attach.loaded()
    end = time.monotonic() + seconds
    while True:
        found = [c for c in software.report() if c.kind == kind]
        if found:
            assert len(found) == 1, found
            return found[0]
        assert time.monotonic() < end, f"no {kind} in {seconds} s; the NIC says: {software.report()}"
        software.step()


@pytest.mark.gda_complaints("wqe-opcode")
def test_a_complaint_is_its_sentence_and_more(nic, memory):
    source, target = memory
    a, _ = nic.loopback_pair(depth=16)
    post(a, 0, write_request(a, 0, source, target, 8, opcode=0x77))
    completion(a, 0)
    complaint = said("wqe-opcode")
    assert isinstance(complaint, str)
    assert str(complaint).startswith(f"QP 0x{a.qpn:06x}: WQE 0, slot 0: opcode 0x77")
    assert (complaint.qpn, complaint.cqn, complaint.wqe_index, complaint.times) == (a.qpn, None, 0, 1)
    assert complaint.values == {"qp": a.qpn, "index": 0, "opcode": 0x77}
    assert "Architecture Specification" in complaint.source
    words = complaint.explain()
    assert words.startswith("wqe-opcode: QP") and "\n  rule: " in words and words.endswith(f"try: {complaint.advice}")


# What is wrong in a request, the complaint's kind, and the values that it must have.
REQUESTS: dict[str, tuple[dict[str, int], str, dict[str, int]]] = {
    "the index of another slot": ({"wqe_index": 5}, "wqe-stale", {"slot_index": 5}),
    "the number of another queue pair": ({"qp_or_sq": 0x77}, "wqe-stale", {"slot_qp": 0x77}),
    "no size": ({"ds": 0}, "wqe-stale", {"ds": 0}),
    "a size in bytes": ({"ds": 48}, "wqe-size", {"ds": 48, "published": 1}),
    "a size in blocks": ({"ds": 1}, "wqe-size", {"ds": 1}),
    "an opcode that does not exist": ({"opcode": 0x3F}, "wqe-opcode", {"opcode": 0x3F}),
    "a local key that does not exist": ({"lkey": 0xDEAD00, "byte_count": 200}, "key-unknown", {"key": 0xDEAD00}),
    "a length in the wrong byte order": ({"byte_count": 0x00100000}, "length-unit", {"swapped": 4096}),
    "a length in the wrong byte order beyond any message": ({"byte_count": 0x41000000}, "length-unit", {"swapped": 65}),
    "no length, which means 2 GiB": ({"byte_count": 0}, "message-too-long", {"bytes": 1 << 31}),
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=pytest.mark.gda_complaints(kind, may=("doorbell-unknown-queue",)))
        for what, (_, kind, _) in REQUESTS.items()
    ],
)
def test_a_request_that_makes_no_sense(nic, memory, what):
    source, target = memory
    changes, kind, values = REQUESTS[what]
    a, _ = nic.loopback_pair(depth=16)
    post(a, 0, write_request(a, 0, source, target, 64, **changes))
    assert completion(a, 0)["opcode"] == formats.MLX5_CQE_REQ_ERR
    complaint = said(kind)
    assert (complaint.qpn, complaint.wqe_index) == (a.qpn, 0)
    assert values.items() <= complaint.values.items(), complaint.values


@pytest.mark.gda_complaints("wqe-stale")
def test_a_slot_of_an_earlier_lap(nic, memory):
    """The doorbell is rung for a slot that was not written again: request 8 lies where 0 still is."""
    source, target = memory
    a, _ = nic.loopback_pair(depth=8)
    for index in range(8):
        post(a, index, write_request(a, index, source, target, 8))
        completion(a, index)
    a.write_record(9)
    a.ring(formats.wqe_ctrl_seg.pack(wqe_index=8, qp_or_sq=a.qpn, ds=3)[:8])
    assert completion(a, 8)["syndrome"] == formats.MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR
    complaint = said("wqe-stale")
    assert (complaint.wqe_index, complaint.values["slot_index"], complaint.values["slot_qp"]) == (8, 0, a.qpn)


def two_blocks(a, index, source, target, second: bytes) -> bytes:
    """A write whose data segments fill one block and reach into a second, which is as given."""
    first = write_request(a, index, source, target, 64, ds=8)
    more = formats.wqe_data_seg.pack(byte_count=64, lkey=source.lkey, addr=source.address + 64)
    return first + more + second


@pytest.mark.gda_complaints("wqe-torn")
def test_a_request_of_which_only_the_first_block_was_written(nic, memory):
    source, target = memory
    for what, start in (("nothing", 0), ("an earlier lap", 16)):
        attach.loaded().clear_report()
        a, _ = nic.loopback_pair(depth=16)
        for index in range(start):
            post(a, index, write_request(a, index, source, target, 8))
            completion(a, index)
        second = write_request(a, 1, source, target, 8) if start else bytes(64)
        request = two_blocks(a, start, source, target, second)
        a.write_wqe(start, request[:64])
        a.write_wqe(start + 1, request[64:])
        a.write_record(start + 2)
        a.ring(request[:8])
        end = time.monotonic() + 10
        while a.state != "ERR" and time.monotonic() < end:
            attach.loaded().step()
        complaint = said("wqe-torn")
        assert (complaint.qpn, complaint.wqe_index, complaint.values["block"]) == (a.qpn, start, 1), what
        assert what in complaint


@pytest.mark.gda_complaints("wqe-reserved-bits")
@pytest.mark.parametrize("bit", [62, 63, 91, 95], ids=lambda b: f"bit{b}")
def test_reserved_bits_of_the_control_segment_are_told_and_ignored(nic, memory, bit):
    source, target = memory
    a, _ = nic.loopback_pair(depth=16)
    request = bytearray(write_request(a, 0, source, target, 64))
    if bit in (62, 63):  # of the dword with queue pair and size: the two bits before the size
        bit = 56 + (bit - 62)
    request[bit // 8] |= 0x80 >> bit % 8
    post(a, 0, bytes(request))
    assert completion(a, 0)["opcode"] == formats.MLX5_CQE_REQ
    complaint = said("wqe-reserved-bits")
    assert (complaint.qpn, complaint.wqe_index) == (a.qpn, 0)
    assert "control segment" in complaint


@pytest.mark.gda_complaints("wqe-reserved-bits")
def test_reserved_bits_of_the_remote_address(nic, memory):
    source, target = memory
    a, _ = nic.loopback_pair(depth=16)
    request = bytearray(write_request(a, 0, source, target, 64))
    request[31] = 1
    post(a, 0, bytes(request))
    assert completion(a, 0)["opcode"] == formats.MLX5_CQE_REQ
    assert "remote address segment" in said("wqe-reserved-bits")


@pytest.mark.gda_complaints("inline-flag-missing", "key-unknown")
def test_inline_payload_without_its_flag(nic, memory):
    source, target = memory
    a, _ = nic.loopback_pair(depth=16)
    request = write_request(a, 0, source, target, 8)[:32] + (8).to_bytes(4, "big") + b"payload!" + bytes(4)
    post(a, 0, request)
    assert completion(a, 0)["syndrome"] == formats.MLX5_CQE_SYNDROME_LOCAL_PROT_ERR
    complaint = said("inline-flag-missing")
    assert (complaint.qpn, complaint.wqe_index, complaint.values["bytes"]) == (a.qpn, 0, 8)
    # A short request with a wrong key is what it is: its address is one that is registered.
    a, _ = nic.loopback_pair(depth=16)
    post(a, 0, write_request(a, 0, source, target, 8, lkey=0xDEAD00))
    completion(a, 0)
    assert said("key-unknown").qpn == a.qpn


@pytest.mark.gda_complaints("key-other-domain", may=("refused-by-peer",))
@pytest.mark.parametrize("key", ["lkey", "rkey"])
def test_a_key_of_another_protection_domain(nic, memory, key):
    import gda.nic

    source, target = memory
    with gda.nic.open() as other:
        foreign = other.register(np.zeros(64, np.uint8))
        a, b = nic.loopback_pair(depth=16)
        changes = {"lkey": foreign.lkey, "addr": foreign.address} if key == "lkey" else {
            "rkey": foreign.rkey, "raddr": foreign.address}  # fmt: skip
        post(a, 0, write_request(a, 0, source, target, 64, **changes))
        assert completion(a, 0)["opcode"] == formats.MLX5_CQE_REQ_ERR
        complaint = said("key-other-domain")
        assert complaint.qpn == (a.qpn if key == "lkey" else b.qpn)
        assert complaint.values["key"] == (foreign.lkey if key == "lkey" else foreign.rkey)
        assert complaint.values["domain"] != complaint.values["own_domain"]


@pytest.mark.gda_complaints("key-range", "refused-by-peer")
def test_a_range_that_leaves_its_region(nic, memory):
    source, target = memory
    a, b = nic.loopback_pair(depth=16)
    post(a, 0, write_request(a, 0, source, target, 64, raddr=target.address + 8192 - 63))
    assert completion(a, 0)["syndrome"] == formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR
    complaint = said("key-range")
    assert complaint.qpn == b.qpn
    assert complaint.values["address"] - complaint.values["start"] == 8192 - 63
    assert (complaint.values["bytes"], complaint.values["room"]) == (64, 8192)
    at_home = said("refused-by-peer")
    assert (at_home.qpn, at_home.wqe_index, at_home.values["syndrome"]) == (a.qpn, 0, 0x13)


@pytest.mark.gda_complaints("doorbell-without-record")
def test_a_doorbell_without_its_record(nic, memory):
    source, target = memory
    a, _ = nic.loopback_pair(depth=16)
    a.write_wqe(0, write_request(a, 0, source, target, 8))
    a.ring(a.read_wqe(0)[:8])
    complaint = said("doorbell-without-record")
    assert (complaint.qpn, complaint.values["rung"], complaint.values["record"]) == (a.qpn, 1, 0)


@pytest.mark.gda_complaints("record-without-doorbell")
@pytest.mark.parametrize("thread", ["off", "adaptive"])
def test_a_record_without_its_doorbell(nic, memory, thread):
    """Nobody rings: a card would wait for ever. With the thread nobody has to step the NIC either."""
    source, target = memory
    a, _ = nic.loopback_pair(depth=16)
    software = attach.loaded()
    software.set_thread(thread)
    try:
        a.write_wqe(0, write_request(a, 0, source, target, 8))
        a.write_record(1)
        end = time.monotonic() + 20
        while not software.report() and time.monotonic() < end:
            software.step() if thread == "off" else time.sleep(0.02)
        complaint = said("record-without-doorbell")
        assert (complaint.qpn, complaint.wqe_index) == (a.qpn, 0)
        assert (complaint.values["record"], complaint.values["rung"], complaint.times) == (1, 0, 1)
        assert not target.array.any()
        a.ring(a.read_wqe(0)[:8])
        assert completion(a, 0)["opcode"] == formats.MLX5_CQE_REQ
    finally:
        software.set_thread("adaptive")


@pytest.mark.gda_complaints("record-went-back")
def test_a_record_that_goes_back(nic, memory):
    source, target = memory
    a, _ = nic.loopback_pair(depth=16)
    for index in range(2):
        a.write_wqe(index, write_request(a, index, source, target, 8))
    a.write_record(2)
    a.ring(a.read_wqe(1)[:8])
    completion(a, 1)
    a.write_record(1)
    a.ring(a.read_wqe(1)[:8])
    complaint = said("record-went-back")
    assert (complaint.qpn, complaint.values["before"], complaint.values["record"]) == (a.qpn, 2, 1)
    assert "doorbell record went back 2→1" in complaint


@pytest.mark.gda_complaints("record-wrong-word")
@pytest.mark.parametrize("before", [0, 3], ids=["first", "later"])
def test_the_record_of_receives(nic, memory, before):
    """Into the wrong word: of a new queue, and of one that has sent already."""
    source, target = memory
    a, _ = nic.loopback_pair(depth=16)
    for index in range(before):
        post(a, index, write_request(a, index, source, target, 8))
        completion(a, index)
    a.write_wqe(before, write_request(a, before, source, target, 8))
    _, address, _ = a.where()["record"]
    ctypes.c_uint32.from_address(address).value = int.from_bytes((before + 1).to_bytes(4, "big"), "little")
    a.ring(a.read_wqe(before)[:8])
    complaint = said("record-wrong-word")
    assert (complaint.qpn, complaint.wqe_index) == (a.qpn, before)
    assert (complaint.values["record"], complaint.values["receive_record"]) == (before, before + 1)


@pytest.mark.gda_complaints("sq-overrun", may=("wqe-stale",))
def test_more_requests_than_the_queue_holds(nic, memory):
    """Case C3: the producer index runs further ahead of the completions than the ring is long."""
    source, target = memory
    a, _ = nic.loopback_pair(depth=64)
    for index in range(64):
        a.write_wqe(index, write_request(a, index, source, target, 8))
    a.write_wqe(64, write_request(a, 64, source, target, 8))
    a.write_record(65)
    a.ring(a.read_wqe(64)[:8])
    complaint = said("sq-overrun")
    assert "SQ overrun PI-CI=65 > 64" in complaint
    assert complaint.values.items() >= {"qp": a.qpn, "producer": 65, "consumer": 0, "blocks": 64}.items()


def overrun(nic, memory, polled: int) -> Complaint:
    source, target = memory
    a, _ = nic.loopback_pair(depth=8, completion="ring", ignore_overrun=False)
    for index in range(8):
        post(a, index, write_request(a, index, source, target, 8))
        completion(a, index)
    if polled:
        _, address, _ = a.where()["cq_record"]
        ctypes.c_uint32.from_address(address).value = int.from_bytes(polled.to_bytes(4, "big"), "little")
    for index in range(8, 9 + polled):
        post(a, index, write_request(a, index, source, target, 8))
    complaint = said("cq-overrun" if polled else "cq-consumer-never-written")
    assert complaint.qpn == a.qpn and complaint.cqn
    return complaint


@pytest.mark.gda_complaints("cq-overrun", may=("retries-exceeded",))
def test_completions_that_nobody_reads(nic, memory):
    assert overrun(nic, memory, 1).values.items() >= {"entries": 8, "consumer": 1, "producer": 9}.items()


@pytest.mark.gda_complaints("cq-consumer-never-written", may=("retries-exceeded",))
def test_a_consumer_index_that_was_never_stored(nic, memory):
    assert overrun(nic, memory, 0).values.items() >= {"entries": 8, "consumer": 0, "producer": 8, "index": 8}.items()


@pytest.mark.gda_complaints("doorbell-wrong-page")
def test_a_doorbell_on_the_page_of_another_context(nic, memory):
    import gda.nic

    source, target = memory
    with gda.nic.open() as other:
        a, _ = nic.loopback_pair(depth=16)
        b, _ = other.loopback_pair(depth=16)
        a.write_wqe(0, write_request(a, 0, source, target, 8))
        a.write_record(1)
        b.ring(a.read_wqe(0)[:8])
        complaint = said("doorbell-wrong-page")
        assert complaint.qpn == a.qpn
        assert complaint.values["doorbell"] == int.from_bytes(a.read_wqe(0)[:8], "big")


@pytest.mark.gda_complaints("doorbell-unknown-queue")
def test_a_doorbell_for_a_queue_pair_of_another_process(nic, memory):
    a, _ = nic.loopback_pair(depth=16)
    foreign = a.qpn ^ 0x10000
    a.ring(formats.send_doorbell.pack(wqe_index=0, qpn=foreign, ds=3))
    complaint = said("doorbell-unknown-queue")
    assert complaint.qpn == foreign
    assert "another process" in complaint


@pytest.mark.gda_complaints("memory-gone", may=("refused-by-peer", "request-refused",))
@pytest.mark.parametrize("side", ["source", "target"])
def test_memory_that_is_unmapped_while_it_is_registered(nic, memory, side):
    import mmap

    source, target = memory
    page = mmap.mmap(-1, 4096)
    array = np.frombuffer(page, np.uint8)
    region = nic.register(array)
    address = region.address
    a, b = nic.loopback_pair(depth=16)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert libc.mprotect(address, 4096, mmap.PROT_READ if side == "target" else 0) == 0
    try:
        post(a, 0, write_request(a, 0, *((region, target) if side == "source" else (source, region)), 64))
        assert completion(a, 0)["opcode"] == formats.MLX5_CQE_REQ_ERR
        complaints = [c for c in attach.loaded().report() if c.kind == "memory-gone"]
        assert complaints
        assert any(0 <= c.values.get("address", 0) - address < 64 for c in complaints)
        assert any(c.qpn == (a if side == "source" else b).qpn for c in complaints)
    finally:
        libc.mprotect(address, 4096, mmap.PROT_READ | mmap.PROT_WRITE)
        region.close()
