# SPDX-License-Identifier: Apache-2.0
"""Which doorbell modes there are, what refuses the others, and the host thread that rings for kernels."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from by_hand import completion, write_request

import gda.nic.doorbell
import gda.sim
from gda import _verbs, attach, formats
from gda.errors import ArgumentError, ClosedError, CudaError, UnavailableError
from gda.nic import Nic, doorbell_modes
from gda.nic.ringer import Ringer


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gda doorbells"]


def test_the_report_names_all_modes_and_prints_as_a_table(nic: Nic, software: attach.SoftwareNic) -> None:
    nic.doorbell_modes()  # libmlx5 keeps a page that it shares out
    before = software.objects()
    modes = nic.doorbell_modes()
    assert [mode.name for mode in modes] == ["record", "doorbell-first", "no-record", "blueflame", "cpu"]
    assert all(mode.available and not mode.reason and not mode.advice and mode.costs for mode in modes)
    lines = str(modes).splitlines()
    assert len(lines) == 5 and lines[1].split()[:2] == ["doorbell-first", "yes"]
    assert software.objects() == before, "what was tried was given back"


def test_a_mode_that_the_card_lacks_says_why(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = dict(nic.capabilities.groups)
    groups["general"] = groups["general"] | {"log_bf_reg_size": 0}
    groups["general_2"] = groups["general_2"] | {"send_dbr_mode_no_dbr_ext": 0}
    monkeypatch.setattr(nic, "capabilities", type(nic.capabilities)(groups))
    why = {mode.name: mode for mode in nic.doorbell_modes() if not mode.available}
    assert set(why) == {"no-record", "blueflame"}
    assert "send_dbr_mode_no_dbr_ext" in why["no-record"].reason and 'doorbell="record"' in why["no-record"].advice
    assert "no BlueFlame registers" in why["blueflame"].reason
    assert "no   mlx5_0 has no queue pairs" in str(nic.doorbell_modes())
    for name, mode in why.items():
        with pytest.raises(UnavailableError) as refused:
            nic.queue_pair(doorbell=name)
        assert (refused.value.message, refused.value.advice) == (mode.reason, mode.advice)
    groups["general"]["log_bf_reg_size"] = 8
    with pytest.raises(UnavailableError, match="registers of 256 bytes"):
        nic.queue_pair(doorbell="blueflame")


def test_a_driver_that_maps_no_registers_leaves_the_host_thread(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA error 800, as users without the driver's option get it."""

    def refuses(*_: object) -> None:
        raise CudaError("cuMemHostRegister", 800, "operation not permitted")

    monkeypatch.setattr(gda.nic.doorbell._cuda, "cuMemHostRegister", refuses)
    monkeypatch.setattr(nic.doorbell_pages, "_gpu", SimpleNamespace(context=None))
    modes = {mode.name: mode for mode in nic.doorbell_modes()}
    assert [name for name, mode in modes.items() if mode.available] == ["cpu"]
    assert "operation not permitted" in modes["record"].reason
    assert "PeerMappingOverride=1" in modes["record"].advice and 'doorbell="cpu"' in modes["record"].advice
    with pytest.raises(UnavailableError, match="does not let the GPU write doorbell pages"):
        nic.queue_pair()
    with nic.queue_pair(doorbell="cpu") as queue:
        assert queue.doorbell == "cpu"


def test_wrong_words_are_refused(nic: Nic) -> None:
    with pytest.raises(ArgumentError, match="doorbell='bell' is not one of record, doorbell-first"):
        nic.queue_pair(doorbell="bell")
    with pytest.raises(ArgumentError, match="contradict each other"):
        nic.queue_pair(doorbell="no-record", record=True)
    with pytest.raises(ArgumentError, match="contradict each other"):
        nic.queue_pair(doorbell="cpu", record=False)
    with nic.queue_pair(record=False) as queue:
        assert (queue.doorbell, queue.has_record) == ("no-record", False)
    with nic.queue_pair(doorbell="blueflame", record=True) as queue:
        assert queue.doorbell_page == "BF"
    with pytest.raises(UnavailableError, match="lies in GPU memory"):
        doorbell_modes.refuse(nic, "cpu", {"records": "gpu"})


def test_the_host_thread_rings_and_ends_with_its_last_queue(nic: Nic) -> None:
    source, target = nic.allocate(64), nic.allocate(64)
    source.write(0, bytes(range(64)))
    assert not nic.ringer.is_running and not threads()
    pairs = [nic.loopback_pair(depth=16, doorbell="cpu") for _ in range(2)]
    assert len(threads()) == 1
    for index in range(20):
        for a, _ in pairs:
            a.write_wqe(index, write_request(a, index, source, target, 64))
            ask(a, formats.send_doorbell.pack(wqe_index=(index + 1) % 65536, qpn=a.qpn))
        for a, _ in pairs:
            assert completion(a, index)["opcode"] == formats.MLX5_CQE_REQ
            assert a.read_record() == index + 1, "the thread writes the record"
    assert target.read(0, 64) == bytes(range(64))
    pairs[0][0].close()
    a, b = pairs[1]
    a.write_wqe(20, write_request(a, 20, source, target, 64))
    ask(a, formats.send_doorbell.pack(wqe_index=21, qpn=a.qpn))
    assert completion(a, 20)["opcode"] == formats.MLX5_CQE_REQ
    for queue in (pairs[0][1], a, b):
        queue.close()
    assert not nic.ringer.is_running and not threads()


def ask(queue: gda.nic.QueuePair, value: bytes) -> None:
    """As a kernel does."""
    ctypes.c_uint64.from_address(int(queue.read_handle()["doorbell"])).value = int.from_bytes(value, "little")


def test_at_rest_the_thread_costs_little(nic: Nic) -> None:
    """It sleeps between looks. Time of this thread alone: the NIC has its own."""
    with nic.queue_pair(doorbell="cpu"):
        (thread,) = threads()
        used = Path(f"/proc/self/task/{thread.native_id}/schedstat")
        before = int(used.read_text().split()[0])
        time.sleep(0.3)
        used_ns = int(used.read_text().split()[0]) - before
    assert used_ns < 0.1e9, f"{used_ns / 1e6:.1f} ms of 300"


def test_closing_the_nic_ends_the_thread() -> None:
    with gda.nic.open() as nic:
        queue = nic.queue_pair(doorbell="cpu")
        assert threads()
    assert not threads()
    with pytest.raises(ClosedError):
        queue.read_handle()


def test_words_are_used_again() -> None:
    ringer = Ringer(None)
    words = [ringer.add(0, 0) for _ in range(70)]  # registers that are never rung
    assert len({word.address for word in words}) == 70 and len(threads()) == 1
    for word in words:
        ringer.remove(word)
    again = ringer.add(0, 0)
    assert again.address in {word.address for word in words}
    ringer.remove(again)
    assert not threads()


def test_the_thread_refuses_what_is_no_table() -> None:
    stop = ctypes.c_uint64(1)
    assert _verbs.ring_for_kernels(b"", ctypes.addressof(stop), 0, 1000) == 0
    for table, at, sleep_ns in ((b"x", ctypes.addressof(stop), 1), (b"", 0, 1), (b"", ctypes.addressof(stop), 10**9)):
        with pytest.raises(ArgumentError, match="ring_for_kernels"):
            _verbs.ring_for_kernels(table, at, 0, sleep_ns)


@pytest.mark.parametrize("wrong", [0, 8, 24, 40])
def test_a_work_request_in_the_register_that_is_not_the_slots(
    nic: Nic, software: attach.SoftwareNic, wrong: int
) -> None:
    """As a card takes it: 64 bytes to the halves of the register in turn, after the record."""
    source, target = nic.allocate(64), nic.allocate(64)
    source.write(0, bytes(range(1, 65)))
    a, b = nic.loopback_pair(depth=16, doorbell="blueflame")
    with a, b:
        for index in range(6):
            request = write_request(a, index, source, target, 8, addr=source.address + 8 * index)
            a.write_wqe(index, request)
            a.write_record(index + 1)
            copy = bytearray(request.ljust(64, b"\0"))
            if index == 4 and wrong:
                copy[wrong] ^= 0x55
            at = a.where()["doorbell"][1] + index % 2 * int(formats.UAR_BLUEFLAME_HALF_BYTES)
            ctypes.memmove(at + 8, bytes(copy[8:]), 56)
            _verbs.store_doorbell(at, bytes(copy[:8]))
            assert completion(a, index)["opcode"] == formats.MLX5_CQE_REQ
            assert target.read(0, 8) == source.read(8 * index, 8), "carried out from the ring"
        kinds = [complaint.kind for complaint in gda.sim.report()]
        assert kinds == (["blueflame-differs"] if wrong else [])
        if wrong:
            assert f"WQE 4: bytes {wrong - wrong % 8} to" in str(gda.sim.report()[0])
        software.clear_report()
