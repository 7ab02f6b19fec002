# SPDX-License-Identifier: Apache-2.0
"""Queue pairs that the proxy serves: how one comes to them, what they do and refuse, and the thread behind."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from by_hand import completion, post, write_request

import gda.nic
from gda import _proxy, _verbs, attach, formats
from gda.errors import ArgumentError, ClosedError, FieldError, UnavailableError
from gda.formats.vendor import PROXY
from gda.nic import Memory, Nic, QueuePair, device

FLUSHED = int(formats.MLX5_CQE_SYNDROME_WR_FLUSH_ERR)


@pytest.fixture
def proxied(software: attach.SoftwareNic) -> Iterator[Nic]:
    """A NIC of which nothing is used that only mlx5 has."""
    software.clear_report()
    before = software.objects()
    nic = gda.nic.open(posting="proxy")
    yield nic
    nic.close()
    gc.collect()
    assert software.objects() == before


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gda proxy"]


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.001)


def control(queue: QueuePair, index: int, opcode: int, ds: int, **fields: int) -> bytes:
    given = {"wqe_index": index % 65536, "qp_or_sq": queue.qpn, "ce": formats.CE_ALWAYS} | fields
    return formats.wqe_ctrl_seg.pack(opcode=opcode, ds=ds, **given)


# ------------------------------------------------------------------------------------------------------ who gets it
def test_a_device_that_is_not_mlx5_is_proxied(software: attach.SoftwareNic, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = _verbs.ibv_get_device_list()
    assert listed and all(d.mlx5 for d in listed)
    monkeypatch.setattr(_verbs, "ibv_get_device_list", lambda: [d._replace(mlx5=False) for d in listed])

    def no_firmware(*_: object) -> None:
        raise AssertionError("a firmware command to a device that has none")

    for name in ("mlx5dv_open_device", "mlx5dv_devx_general_cmd", "mlx5dv_devx_obj_create", "mlx5dv_devx_umem_reg",
                 "mlx5dv_devx_alloc_uar", "mlx5dv_init_obj_ah", "mlx5dv_init_obj_pd"):  # fmt: skip
        monkeypatch.setattr(_verbs, name, no_firmware)
    with gda.nic.open() as nic:
        assert nic.posting == "proxy" and "through the proxy" in nic.description
        a, b = nic.loopback_pair(depth=16, receive_depth=16)
        assert (a.posting, a.doorbell, a.where()["doorbell"][0], a.doorbell_page) == ("proxy", "proxy", "host", "")
        source, target = nic.register(bytearray(b"by libibverbs")), nic.allocate(64)
        post(a, 0, write_request(a, 0, source, target, 13))
        completion(a, 0)
        assert target.read(0, 13) == b"by libibverbs"
        with pytest.raises(UnavailableError, match="kernels cannot post to it directly"):
            nic.queue_pair(posting="direct")
        assert b.state == "RTS"
    with pytest.raises(UnavailableError, match="mlx5_0 is no mlx5 device"):
        gda.nic.open("mlx5_0", posting="direct")


def test_mlx5_devices_come_first_and_iwarp_last(monkeypatch: pytest.MonkeyPatch) -> None:
    ca, ib, iwarp = int(_verbs.IBV_NODE_CA), int(_verbs.IBV_TRANSPORT_IB), 1  # IBV_TRANSPORT_IWARP
    assert iwarp == _verbs.IBV_TRANSPORT_IWARP and _verbs.IBV_NODE_RNIC == 4
    soft, siw, card, odd = (
        _verbs.Device("rxe_of_a_long_name", 1, False, ca, ib, 0), _verbs.Device("siw0", 2, False, 4, iwarp, 1),
        _verbs.Device("mlx5_1", 3, True, ca, ib, 2), _verbs.Device("odd0", 4, False, ca, 3, 3),
    )  # fmt: skip
    for devices, posting, chosen in (
        ([soft, siw, card], None, "mlx5_1"), ([siw, soft], None, "rxe_of_a_long_name"), ([odd, siw], None, "siw0"),
        ([soft, siw], "direct", None), ([soft, card], "proxy", "mlx5_1"),
    ):  # fmt: skip
        assert device._pick(devices, None, 1, True, posting) == chosen
    monkeypatch.setattr(device, "_devices", lambda: [odd])
    with pytest.raises(UnavailableError, match=r"odd0 is a device of another kind.*transport 3"):
        Nic("odd0")


def test_the_environment_asks_for_it(software: attach.SoftwareNic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_POSTING", "proxy")
    with gda.nic.open() as nic:
        assert nic.posting == "proxy"
    with gda.nic.open(posting="direct") as nic:
        assert nic.posting == "direct" and nic.queue_pair().doorbell == "record"
    monkeypatch.setenv("GDA_POSTING", "direct")
    with gda.nic.open() as nic:
        assert nic.posting == "direct"
    monkeypatch.delenv("GDA_POSTING")
    with gda.nic.open() as nic:
        assert nic.posting == "direct"
        assert nic.queue_pair(posting="proxy").doorbell == "proxy"
    with pytest.raises(ArgumentError, match="posting='cpu' is not one of direct, proxy"):
        gda.nic.open(posting="cpu")


def test_what_a_proxied_queue_cannot_be_is_said(proxied: Nic) -> None:
    for options in ({"doorbell": "record"}, {"doorbell": "cpu"}, {"record": False}):
        with pytest.raises(UnavailableError, match="kernels of a proxied queue pair tell a host thread"):
            proxied.queue_pair(**options)
    modes = proxied.doorbell_modes()
    assert modes and not any(mode.available for mode in modes)
    assert all("served by the proxy" in mode.reason and 'posting="direct"' in mode.advice for mode in modes)
    placement = {"sq": "gpu", "cq": "host", "receive_cq": "host", "records": "gpu"}
    with pytest.raises(UnavailableError, match="sq, records would lie in GPU memory"):
        gda.nic.doorbell_modes.refuse_placement("proxy", placement)
    with pytest.raises(FieldError, match="is not a power of two"):
        proxied.queue_pair(depth=12)
    assert proxied.mac(0) == bytes(6)


# ------------------------------------------------------------------------------------------------- what it carries
@pytest.mark.parametrize("kinds", [("proxy", "direct"), ("direct", "proxy"), ("proxy", "proxy")])
def test_proxied_and_direct_queue_pairs_talk(nic: Nic, kinds: tuple[str, str]) -> None:
    a, b = (nic.queue_pair(depth=16, posting=kind) for kind in kinds)
    gda.nic.connect(a, b)
    source, target = nic.allocate(70_000), nic.allocate(70_000)
    source.write(0, bytes(range(256)) * 273)
    for index in range(40):
        post(a, index, write_request(a, index, source, target, 69_000 + index))
        assert completion(a, index)["opcode"] == formats.MLX5_CQE_REQ
    assert target.read(0, 69_039) == source.read(0, 69_039)
    if kinds[0] == "proxy":
        assert a.read_record() == 40, "those who look from outside see how far it was rung"


def test_many_laps_of_both_rings(proxied: Nic) -> None:
    """With a ring of completions whose consumer index counts, and requests in groups that straddle the ring's end."""
    a, _ = proxied.loopback_pair(depth=8, completion="ring", ignore_overrun=False)
    source, target = proxied.allocate(8 * 600), proxied.allocate(8 * 600)
    source.write(0, bytes(range(240)) * 20)
    for first in range(0, 600, 3):
        for index in range(first, first + 3):
            where = {"raddr": target.address + 8 * index, "addr": source.address + 8 * index}
            a.write_wqe(index, write_request(a, index, source, target, 8, **where))
        a.ring(formats.send_doorbell.pack(wqe_index=(first + 3) % 65536, qpn=a.qpn))
        for index in range(first, first + 3):
            cqe = completion(a, index)
            assert (cqe["wqe_counter"], cqe["qpn"]) == (index, a.qpn)
        a._rings.write("records", 64, formats.cq_doorbell_record.pack(consumer_index=first + 3)[:4])
    assert target.read(0, 4800) == source.read(0, 4800)


def test_unread_completions_are_not_overwritten(proxied: Nic) -> None:
    a, _ = proxied.loopback_pair(depth=4, completion="ring", ignore_overrun=False)
    source, target = proxied.allocate(64), proxied.allocate(64)
    for index in range(4):
        post(a, index, write_request(a, index, source, target, 8))
        completion(a, index)
    post(a, 4, write_request(a, 4, source, target, 8))  # nobody has read: there is no room
    time.sleep(0.02)
    assert formats.cqe64.unpack(a.read_cqe(0))["wqe_counter"] == 0
    a._rings.write("records", 64, formats.cq_doorbell_record.pack(consumer_index=1)[:4])
    assert completion(a, 4)["wqe_counter"] == 4


def test_unsignaled_requests_and_nops_complete_in_order(proxied: Nic) -> None:
    a, _ = proxied.loopback_pair(depth=16, completion="ring")
    source, target = proxied.allocate(64), proxied.allocate(64)
    source.write(0, b"x" * 64)
    a.write_wqe(0, write_request(a, 0, source, target, 8, ce=formats.CE_ON_ERROR))
    a.write_wqe(1, control(a, 1, formats.MLX5_OPCODE_NOP, 1))
    a.write_wqe(2, control(a, 2, formats.MLX5_OPCODE_NOP, 1, ce=formats.CE_ON_ERROR))
    a.write_wqe(3, write_request(a, 3, source, target, 16))
    a.ring(formats.send_doorbell.pack(wqe_index=4, qpn=a.qpn))
    wait_until(lambda: formats.cqe64.unpack(a.read_cqe(1))["opcode"] == formats.MLX5_CQE_REQ)
    assert [formats.cqe64.unpack(a.read_cqe(slot))["wqe_counter"] for slot in (0, 1)] == [1, 3]
    assert formats.cqe64.unpack(a.read_cqe(2))["opcode"] == formats.MLX5_CQE_INVALID
    assert target.read(0, 16) == b"x" * 16


def test_several_pieces_and_bytes_inline(proxied: Nic) -> None:
    a, _ = proxied.loopback_pair(depth=16)
    source, target = proxied.allocate(64), proxied.allocate(128)
    source.write(0, bytes(range(64)))
    raddr = formats.wqe_raddr_seg.pack(raddr=target.address, rkey=target.rkey)
    pieces = b"".join(
        formats.wqe_data_seg.pack(byte_count=4, lkey=source.lkey, addr=source.address + at) for at in (60, 0, 32)
    )
    post(a, 0, control(a, 0, formats.MLX5_OPCODE_RDMA_WRITE, 5) + raddr + pieces)
    completion(a, 0)
    assert target.read(0, 12) == bytes([60, 61, 62, 63, 0, 1, 2, 3, 32, 33, 34, 35])
    inline = formats.wqe_inline_seg.pack(is_inline=1, byte_count=60) + bytes(range(100, 160))
    a.write_wqe(2, control(a, 2, formats.MLX5_OPCODE_RDMA_WRITE, 6) + raddr + inline)
    a.ring(formats.send_doorbell.pack(wqe_index=4, qpn=a.qpn))
    completion(a, 2)
    assert target.read(0, 60) == bytes(range(100, 160))


# --------------------------------------------------------------------------------------------------- what goes wrong
def raddr_of(memory: Memory) -> bytes:
    return formats.wqe_raddr_seg.pack(raddr=memory.address, rkey=memory.rkey)


def masked(a: QueuePair, m: Memory) -> bytes:
    tail = bytes(16) + formats.wqe_data_seg.pack(byte_count=8, lkey=m.lkey, addr=m.address)
    return control(a, 1, formats.MLX5_OPCODE_ATOMIC_MASKED_FA, 4, opmod=9) + raddr_of(m) + tail


def short(a: QueuePair, m: Memory) -> bytes:
    return control(a, 1, formats.MLX5_OPCODE_RDMA_WRITE, 1)


def many_pieces(a: QueuePair, m: Memory) -> bytes:
    piece = formats.wqe_data_seg.pack(byte_count=8, lkey=m.lkey, addr=m.address)
    return control(a, 1, formats.MLX5_OPCODE_RDMA_WRITE, 7) + raddr_of(m) + 5 * piece


def long_inline(a: QueuePair, m: Memory) -> bytes:
    head = formats.wqe_inline_seg.pack(is_inline=1, byte_count=76)
    return control(a, 1, formats.MLX5_OPCODE_RDMA_WRITE, 7) + raddr_of(m) + head + bytes(76)


def stale(a: QueuePair, m: Memory) -> bytes:
    return control(a, 0, formats.MLX5_OPCODE_RDMA_WRITE, 2) + raddr_of(m)


def of_another(a: QueuePair, m: Memory) -> bytes:
    return control(a, 1, formats.MLX5_OPCODE_RDMA_WRITE, 2, qp_or_sq=5) + raddr_of(m)


def too_long(a: QueuePair, m: Memory) -> bytes:
    return control(a, 1, formats.MLX5_OPCODE_RDMA_WRITE, 63) + raddr_of(m)


@pytest.mark.parametrize(
    ("make", "vendor"),
    [
        (masked, "OPERATION"), (short, "SEGMENTS"), (many_pieces, "PIECES"), (long_inline, "PIECES"),
        (stale, "TORN"), (of_another, "TORN"), (too_long, "TORN"),
    ],
)  # fmt: skip
def test_what_cannot_be_posted_fails_in_its_turn(
    proxied: Nic, make: Callable[[QueuePair, Memory], bytes], vendor: str
) -> None:
    a, b = proxied.loopback_pair(depth=8, completion="ring", receive_depth=4)
    memory = proxied.allocate(64)
    request = make(a, memory)
    blocks = 1 if vendor == "TORN" else -(-len(request) // 64)
    a.write_wqe(0, write_request(a, 0, memory, memory, 8))
    a.write_wqe(1, request)
    a.write_wqe(1 + blocks, write_request(a, 1 + blocks, memory, memory, 8, ce=formats.CE_ON_ERROR))
    a.ring(formats.send_doorbell.pack(wqe_index=2 + blocks, qpn=a.qpn))
    wait_until(lambda: formats.cqe64.unpack(a.read_cqe(2))["opcode"] == formats.MLX5_CQE_REQ_ERR)
    assert formats.cqe64.unpack(a.read_cqe(0))["opcode"] == formats.MLX5_CQE_REQ, "what came before was carried out"
    failed, flushed = (formats.err_cqe.unpack(a.read_cqe(slot)) for slot in (1, 2))
    code = getattr(_proxy, f"REFUSAL_{vendor}")
    expected = (formats.MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, code, 1)
    assert (failed["syndrome"], failed["vendor_error_syndrome"], failed["wqe_counter"]) == expected
    assert (flushed["syndrome"], flushed["wqe_counter"]) == (FLUSHED, 1 + blocks)
    assert PROXY[code] in formats.decode_cqe(a.read_cqe(1))
    wait_until(lambda: a.state == "ERR")
    a.reset(), b.reset()
    gda.nic.connect(a, b)
    post(a, 0, write_request(a, 0, memory, memory, 8))
    completion(a, 3)


def test_every_refusal_has_its_words() -> None:
    codes = {getattr(_proxy, name) for name in dir(_proxy) if name.startswith("REFUSAL_")}
    assert codes == set(PROXY) and len(codes) == 7
    word = formats.structs["status"].pack(
        code=formats.GDA_COMPLETION_ERROR, syndrome=2, vendor_error_syndrome=_proxy.REFUSAL_OPERATION
    )
    said = formats.decode_status(int.from_bytes(word, "big"))
    assert "the proxy did not post it: libibverbs has no such request (masked atomics" in said["meaning"]


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
def test_a_wrong_rkey_is_told_and_the_rest_is_flushed(proxied: Nic) -> None:
    a, _ = proxied.loopback_pair(depth=8, completion="ring")
    memory = proxied.allocate(64)
    a.write_wqe(0, write_request(a, 0, memory, memory, 8, ce=formats.CE_ON_ERROR))
    a.write_wqe(1, write_request(a, 1, memory, memory, 8, rkey=0x12345600))
    a.write_wqe(2, write_request(a, 2, memory, memory, 8))
    a.ring(formats.send_doorbell.pack(wqe_index=3, qpn=a.qpn))
    wait_until(lambda: formats.cqe64.unpack(a.read_cqe(1))["opcode"] == formats.MLX5_CQE_REQ_ERR)
    first, second = (formats.err_cqe.unpack(a.read_cqe(slot)) for slot in (0, 1))
    assert (first["syndrome"], first["wqe_counter"]) == (formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 1)
    assert (second["syndrome"], second["wqe_counter"]) == (FLUSHED, 2)
    post(a, 3, write_request(a, 3, memory, memory, 8))  # too late: never handed to libibverbs
    assert completion(a, 2)["syndrome"] == FLUSHED


@pytest.mark.gda_complaints("receive-not-posted", "retries-exceeded")
def test_a_receiver_that_is_not_there_or_not_ready(proxied: Nic, software: attach.SoftwareNic) -> None:
    memory = proxied.allocate(64)
    data = formats.wqe_data_seg.pack(byte_count=8, lkey=memory.lkey, addr=memory.address)
    with proxied.queue_pair(depth=8, receive_depth=4) as a, proxied.queue_pair(depth=8, receive_depth=4) as b:
        gda.nic.connect(a, b, rnr_retry=1, min_rnr_timer=1)
        post(a, 0, control(a, 0, formats.MLX5_OPCODE_SEND, 2) + data)
        assert completion(a, 0)["syndrome"] == formats.MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR
    with proxied.queue_pair(depth=8) as a, proxied.queue_pair(depth=8) as b:
        gda.nic.connect(a, b, ack_timeout=8, retry_count=1)
        software.set_faults("drop request")
        try:
            post(a, 0, write_request(a, 0, memory, memory, 8))
            assert completion(a, 0)["syndrome"] == formats.MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR
        finally:
            software.set_faults("")


def test_reset_mends_a_queue_pair_without_receives(proxied: Nic) -> None:
    """The half that is not there stayed failed, and all that came after was flushed."""
    a, b = proxied.loopback_pair(depth=8)
    memory = proxied.allocate(64)
    for _ in range(2):
        post(a, 0, write_request(a, 0, memory, memory, 8, qp_or_sq=5))
        assert completion(a, 0)["syndrome"] == formats.MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR
        a.reset(), b.reset()
        gda.nic.connect(a, b)
        for index in range(3):
            post(a, index, write_request(a, index, memory, memory, 8))
            assert completion(a, index)["opcode"] == formats.MLX5_CQE_REQ
        a.reset(), b.reset()
        gda.nic.connect(a, b)


def test_to_error_flushes_sends_and_receives(proxied: Nic) -> None:
    a, _ = proxied.loopback_pair(depth=8, completion="ring", receive_depth=4)
    memory = proxied.allocate(64)
    entry = formats.wqe_data_seg.pack(byte_count=8, lkey=memory.lkey, addr=memory.address)

    def receives(posted: int) -> None:
        a._rings.write("rq", 0, 4 * entry)
        a._rings.write("records", 0, posted.to_bytes(4, "big"))

    def is_flushed(slot: int) -> bool:
        cqe = formats.err_cqe.unpack(a.read_receive_cqe(slot))
        return (cqe["opcode"], cqe["syndrome"]) == (formats.MLX5_CQE_RESP_ERR, FLUSHED)

    receives(2)
    time.sleep(0.01)
    a.to_error()
    post(a, 0, write_request(a, 0, memory, memory, 8))
    assert completion(a, 0)["syndrome"] == FLUSHED and a.state == "ERR"
    receives(3)
    for slot in range(3):
        wait_until(lambda: is_flushed(slot))  # noqa: B023


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
def test_those_who_look_see_the_same(proxied: Nic) -> None:
    """inspect, live and diagnose read rings, records and the context: all are there."""
    a, b = proxied.loopback_pair(depth=8, completion="ring", receive_depth=4)
    memory = proxied.allocate(64)
    post(a, 0, write_request(a, 0, memory, memory, 8))
    completion(a, 0)
    text = str(gda.inspect(a))
    assert f"queue pair 0x{a.qpn:x}: RTS" in text and "doorbell record: send counter 1" in text
    assert (a.path_mtu, a.context()["remote_qpn"], a.context()["retry_count"]) == (5, b.qpn, 7)
    assert a.qpn in {queue.qpn for queue in gda.live(watched_s=0.01).queues}
    assert str(gda.diagnose(b)[0]).startswith("nothing wrong")
    post(a, 1, write_request(a, 1, memory, memory, 8, rkey=0x12345600))
    assert completion(a, 1)["syndrome"] == formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR
    assert "remote access error" in gda.diagnose(a)[0].headline
    assert "through the proxy" in proxied.description


# --------------------------------------------------------------------------------------------------------- the thread
def test_one_thread_for_all_queues_of_a_nic(proxied: Nic) -> None:
    assert not proxied.proxy.is_running and not threads()
    first, second = proxied.queue_pair(), proxied.queue_pair()
    assert len(threads()) == 1
    first.close()
    assert len(threads()) == 1
    second.close()
    assert not proxied.proxy.is_running and not threads()


def test_at_rest_it_costs_little(proxied: Nic) -> None:
    """Also with receives posted that nobody fills, and after something was done."""
    a, _ = proxied.loopback_pair(depth=8, receive_depth=4)
    memory = proxied.allocate(64)
    post(a, 0, write_request(a, 0, memory, memory, 8))
    completion(a, 0)
    a._rings.write("records", 0, (2).to_bytes(4, "big"))
    (thread,) = threads()
    used = Path(f"/proc/self/task/{thread.native_id}/schedstat")
    time.sleep(0.05)
    before = int(used.read_text().split()[0])
    time.sleep(0.3)
    used_ns = int(used.read_text().split()[0]) - before
    assert used_ns < 0.1e9, f"{used_ns / 1e6:.1f} ms of 300"


def test_closing_the_nic_ends_it(software: attach.SoftwareNic) -> None:
    before = software.objects()
    with gda.nic.open(posting="proxy") as nic:
        a, _ = nic.loopback_pair(receive_depth=16)
        assert threads()
    assert not threads() and software.objects() == before
    with pytest.raises(ClosedError):
        a.read_handle()


def test_the_raw_queue_checks_what_it_is_given(proxied: Nic) -> None:
    queue = proxied.queue_pair()
    raw = queue._carrier.qp  # type: ignore[attr-defined]
    good = {"sq": 64, "cq": 64, "word": 64, "send_record": 64, "depth": 4, "cq_entries": 1, "collapsed": True}
    for change, why in (
        ({"depth": 3}, "depth=3 is not a power of two"), ({"sq": 0}, "sq lies at 0x0"),
        ({"receive_depth": 4}, "a receive queue needs"), ({"word": 66}, "word lies at 0x42"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=why):
            _proxy.Queue(raw, **(good | change))
    one = _proxy.Queue(raw, **good)
    with pytest.raises(ArgumentError, match="an address vector has 48 bytes, not 3"):
        one.know(b"abc", raw)
    with pytest.raises(ArgumentError, match="serve: stop at 0x0"):
        _proxy.serve([one], 0, 1, 1, 1)
    assert not one.look()
    one.close(), one.close()
    with pytest.raises(ClosedError):
        one.look()
