# SPDX-License-Identifier: Apache-2.0
"""What a put costs, counted by the library's own meters: barriers, records, doorbells, read-modify-writes, bytes."""

from __future__ import annotations

import functools

import pytest

from gda.errors import ArgumentError
from gda.run import Kernel
from gda.run.meters import meter_names

from .toy_queue import DOORBELLS, ToyMemory, ToyQueue

PUT = "gda_put(qp, dst, 0, src, 0, 8)"
MORE = "gda_put(qp, dst, 0, src, 0, 8, GDA_MORE)"
PUT_SIGNAL = "gda_put_signal(qp, dst, 0, src, 0, 8, dst, 8, 1, GDA_SIGNAL_ADD)"
TWO_BLOCKS = "gda_masked_compare_swap<uint64_t>(qp, dst, 0, src, 0, 1, 2, 3, 4)"
NOP = "gda_nop(qp)"
# With its requests, 16-byte segments and bytes.
LIKE_A_PUT = {
    "gda_get(qp, dst, 0, src, 0, 8)": (1, 3, 8),
    "gda_put(qp, dst, 0, src, 0, 48)": (1, 3, 48),
    "gda_put_imm(qp, dst, 0, src, 0, 8, 7)": (1, 3, 8),
    "gda_put_value(qp, dst, 0, 7)": (1, 3, 4),
    "gda_put_value(qp, dst, 0, four)": (1, 4, 16),
    "gda_fetch_add(qp, dst, 0, src, 0, 1)": (1, 4, 8),
    "gda_compare_swap(qp, dst, 0, src, 0, 1, 2)": (1, 4, 8),
    "gda_masked_fetch_add<uint64_t>(qp, dst, 0, src, 0, 1, 2)": (1, 4, 8),
    "gda_masked_compare_swap<uint32_t>(qp, dst, 0, src, 0, 1, 2, 3, 4)": (1, 4, 4),
    "gda_signal(qp, dst, 0, 1, GDA_SIGNAL_ADD)": (1, 4, 8),
    "gda_signal(qp, dst, 0, 1, GDA_SIGNAL_SET)": (1, 3, 8),
    "gda_put_signal(qp, dst, 0, src, 0, 8, dst, 8, 1, GDA_SIGNAL_ADD)": (2, 7, 16),
    "gda_put_signal(qp, dst, 0, src, 0, 8, dst, 8, 1, GDA_SIGNAL_SET)": (2, 6, 16),
}
OF_SIGNAL = "(qp, dst, 0, src, 0, 8, dst, 8, 1, GDA_SIGNAL_ADD)"
IN_WARP = f"gda_put_signal_warp{OF_SIGNAL}"
IN_BLOCK = {"gda_put_block(qp, dst, 0, src, 0, 8)": (1, 3, 8), f"gda_put_signal_block{OF_SIGNAL}": (2, 7, 16)}
PIECES = {
    "gda_put_strided(qp, dst, 0, 16, src, 0, 8, 4, 8)": (1, 4),
    "gda_put_strided_warp(qp, dst, 0, 2, src, 0, 1, 32, 1)": (32, 2),  # the last one by itself
    "gda_put_strided(qp, dst, 0, 8, src, 0, 8, 4, 8)": (1, 1),  # they touch: one piece
}
OWNERS = {
    "{ gda_owner queue(qp); queue.put(dst, 0, src, 0, 8); queue.close(); }": 1,
    "{ gda_warp_owner queue(qp); queue.put(dst, 0, src, 0, 8); queue.close(); }": 32,
}
COUNTED = list(
    dict.fromkeys([PUT, MORE, PUT_SIGNAL, TWO_BLOCKS, NOP, *LIKE_A_PUT, IN_WARP, *IN_BLOCK, *PIECES, *OWNERS])
)
TEXT = (
    "#include <gda/gda.h>\n"
    + "".join(
        f"""
GDA_KERNEL(count_{number})(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t times) {{
    [[maybe_unused]] uint4 four = {{1, 2, 3, 4}};
    for (uint32_t i = 0; i < times; ++i) {operation};
}}"""
        for number, operation in enumerate(COUNTED)
    )
    + """
GDA_KERNEL(wait_for_nothing)(gda_qp* qp) { gda_wait(qp, 1, GDA_MS(2)); }
"""
)

# The floor of a shared queue with a record: of everything one, two barriers; and the token is parked.
FLOOR = {
    "additions": 1,
    "parkings": 1,
    "wqe_before_doorbell_record": 1,
    "doorbell_record_before_doorbell": 1,
    "doorbells": 1,
    "records": 1,
    "requests": 1,
    "segments": 3,
    "payload_bytes": 8,
}


@functools.cache
def kernel_of(converged: str) -> Kernel:
    return Kernel(TEXT, target="host", converged=converged, meter=True)


def run(kernel: Kernel, queue: ToyQueue, threads: int, times: int, operation: str = PUT) -> None:
    kernel[f"count_{COUNTED.index(operation)}"][1, threads](queue, ToyMemory(64), ToyMemory(64), times)


def not_zero(kernel: Kernel) -> dict[str, int]:
    return {name: n for name, n in kernel.meters().items() if n}


def count(queue: ToyQueue, threads: int, times: int, converged: str = "all", operation: str = PUT) -> dict[str, int]:
    kernel = kernel_of(converged)
    kernel.clear_meters()
    run(kernel, queue, threads, times, operation)
    return not_zero(kernel)


def test_one_thread_of_a_shared_queue() -> None:
    assert count(ToyQueue(16), 1, 1) == FLOOR


def test_owned_queue_has_no_read_modify_write() -> None:
    shared = ("additions", "parkings", "wqe_before_doorbell_record")
    each = {name: n for name, n in FLOOR.items() if name not in shared} | {"own_wqe_before_doorbell_record": 1}
    assert count(ToyQueue(16, owned=True), 1, 4) == {name: 4 * n for name, n in each.items()}


@pytest.mark.parametrize("owned", [True, False])
def test_without_record(owned: bool) -> None:
    """On a GPU wqe_before_doorbell is nothing more; on a shared queue the register comes before the parking."""
    shared = {"additions": 1, "parkings": 1, "wqe_before_doorbell_record": 1, "doorbell_before_ready": 1}
    assert count(ToyQueue(16, owned=owned, record=False), 1, 1) == {
        "wqe_before_doorbell": 1,
        "doorbells": 1,
        "requests": 1,
        "segments": 3,
        "payload_bytes": 8,
        **({"own_wqe_before_doorbell_record": 1} if owned else shared),
    }


# What one put costs beside its request, by how the NIC is told and whether the queue is owned.
TOLD = {
    "record": {"records": 1, "doorbells": 1, "doorbell_record_before_doorbell": 1},
    "no-record": {"doorbells": 1, "wqe_before_doorbell": 1},
    "doorbell-first": {
        "records": 1, "doorbells": 2, "wqe_before_doorbell": 1, "doorbell_record_before_doorbell": 1
    },
    "blueflame": {"records": 1, "blueflames": 1, "doorbell_record_before_doorbell": 1},
    "cpu": {"asked": 1},
}  # fmt: skip
TOLD_IN_ORDER = ("no-record", "blueflame", "cpu")


@pytest.mark.parametrize("owned", [True, False])
@pytest.mark.parametrize("doorbell", DOORBELLS)
def test_each_way_to_tell_the_nic(doorbell: str, owned: bool) -> None:
    shared = {"additions": 1, "parkings": 1, "wqe_before_doorbell_record": 1}
    if doorbell in TOLD_IN_ORDER:
        shared["doorbell_before_ready"] = 1
    expected = {"requests": 1, "segments": 3, "payload_bytes": 8, **TOLD[doorbell]}
    expected |= {"own_wqe_before_doorbell_record": 1} if owned else shared
    assert count(ToyQueue(16, owned=owned, doorbell=doorbell), 1, 1) == expected


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("doorbell", DOORBELLS)
def test_an_owner_tells_the_nic_the_same_way(doorbell: str, owner: str) -> None:
    """A warp's 32 requests are too much for BlueFlame: a plain doorbell."""
    threads = OWNERS[owner]
    told = TOLD["record"] if doorbell == "blueflame" and threads > 1 else TOLD[doorbell]
    assert count(ToyQueue(64, owned=True, doorbell=doorbell), threads, 1, operation=owner) == {
        "own_wqe_before_doorbell_record": 1,
        "requests": threads,
        "segments": 3 * threads,
        "payload_bytes": 8 * threads,
        **told,
    }


@pytest.mark.parametrize("operation", [PUT_SIGNAL, TWO_BLOCKS])
def test_more_than_64_bytes_are_told_by_a_plain_doorbell(operation: str) -> None:
    seen = count(ToyQueue(16, doorbell="blueflame"), 1, 3, operation=operation)
    assert (seen["doorbells"], seen["records"], "blueflames" in seen) == (3, 3, False)


def test_blueflame_waits_until_what_was_deferred_is_told() -> None:
    """A doorbell was left to a later request: then that one is not the NIC's next."""
    queue = ToyQueue(16, doorbell="blueflame")
    assert "blueflames" not in count(queue, 1, 1, operation=MORE)
    assert count(queue, 1, 1)["doorbells"] == 1
    assert count(queue, 1, 1)["blueflames"] == 1


def test_more_leaves_record_and_doorbell() -> None:
    left = ("doorbells", "records", "doorbell_record_before_doorbell")
    assert count(ToyQueue(16), 1, 1, operation=MORE) == {n: v for n, v in FLOOR.items() if n not in left}


def test_a_warp_pays_once() -> None:
    """32 lanes putting to one queue: 1 reservation, 1 MMIO."""
    expected = FLOOR | {"requests": 32, "segments": 32 * 3, "payload_bytes": 32 * 8}
    assert count(ToyQueue(64), 32, 1) == expected


def test_lanes_alone_pay_each() -> None:
    """The other end of the policy: nobody finds anybody, everybody reserves; doorbells may still merge."""
    seen = count(ToyQueue(64), 32, 1, converged="one")
    assert seen["additions"] == seen["requests"] == seen["wqe_before_doorbell_record"] == 32
    assert seen["segments"] == 96
    assert 1 <= seen["doorbells"] == seen["records"] <= 32


@pytest.mark.parametrize("operation", LIKE_A_PUT)
def test_every_operation_costs_what_a_put_costs(operation: str) -> None:
    requests, segments, payload = LIKE_A_PUT[operation]
    expected = FLOOR | {"requests": requests, "segments": segments, "payload_bytes": payload}
    assert count(ToyQueue(16), 1, 1, operation=operation) == expected


def test_a_request_of_two_blocks_leaves_a_note_for_flush() -> None:
    assert count(ToyQueue(16), 1, 1, operation=TWO_BLOCKS) == FLOOR | {"segments": 5, "raises": 1}


def test_nop_carries_nothing() -> None:
    expected = {name: n for name, n in FLOOR.items() if name != "payload_bytes"} | {"segments": 1}
    assert count(ToyQueue(16), 1, 1, operation=NOP) == expected


def test_a_warp_pays_once_for_puts_with_signals() -> None:
    """64 requests in one reservation, one doorbell."""
    expected = FLOOR | {"requests": 64, "segments": 32 * 7, "payload_bytes": 32 * 16}
    assert count(ToyQueue(128), 32, 1, operation=PUT_SIGNAL) == expected


@pytest.mark.parametrize("threads", [7, 32, 96])
@pytest.mark.parametrize("operation", IN_BLOCK)
def test_a_block_costs_what_a_thread_costs(threads: int, operation: str) -> None:
    requests, segments, payload = IN_BLOCK[operation]
    expected = FLOOR | {"requests": requests, "segments": segments, "payload_bytes": payload}
    assert count(ToyQueue(16), threads, 1, operation=operation) == expected


@pytest.mark.parametrize("operation", PIECES)
def test_pieces_pay_for_one_doorbell(operation: str) -> None:
    threads, reservations = PIECES[operation]
    seen = count(ToyQueue(256), threads, 1, operation=operation)
    assert (seen["doorbells"], seen["records"], seen["additions"]) == (1, 1, reservations)
    assert seen["payload_bytes"] == 32


def test_a_warp_in_warp_scope_costs_what_a_thread_costs() -> None:
    expected = FLOOR | {"requests": 2, "segments": 7, "payload_bytes": 16}
    assert count(ToyQueue(16), 32, 1, operation=IN_WARP) == expected


@pytest.mark.parametrize("operation", OWNERS)
def test_an_owner_pays_for_a_doorbell(operation: str) -> None:
    """Two barriers, a record and a doorbell, for one request or for 32; nothing is read, and no read-modify-write."""
    threads = OWNERS[operation]
    assert count(ToyQueue(64, owned=True), threads, 1, operation=operation) == {
        "own_wqe_before_doorbell_record": 1,
        "doorbell_record_before_doorbell": 1,
        "doorbells": 1,
        "records": 1,
        "requests": threads,
        "segments": 3 * threads,
        "payload_bytes": 8 * threads,
    }


def test_a_wait_counts_its_polls_and_turns() -> None:
    kernel = kernel_of("all")
    kernel.clear_meters()
    kernel.wait_for_nothing[1, 1](ToyQueue(16))
    seen = not_zero(kernel)
    assert set(seen) == {"polls", "spins"}
    assert seen["polls"] == seen["spins"] + 1 > 1


def test_meters_add_up_until_they_are_cleared() -> None:
    kernel = kernel_of("all")
    kernel.clear_meters()
    for _ in range(2):
        run(kernel, ToyQueue(16), 1, 1)
    assert kernel.meters()["doorbells"] == 2
    kernel.clear_meters()
    assert kernel.meters() == dict.fromkeys(meter_names(), 0)
    run(kernel, ToyQueue(16), 1, 3)
    assert kernel.meters()["requests"] == 3


def test_kernels_count_apart() -> None:
    one, other = (Kernel(TEXT, target="host", meter=True) for _ in range(2))
    run(one, ToyQueue(16), 1, 1)
    assert (one.meters()["requests"], other.meters()["requests"]) == (1, 0)


def test_without_meters_there_is_nothing_to_read() -> None:
    kernel = Kernel('extern "C" __global__ void k() {}', target="host")
    with pytest.raises(ArgumentError, match="compiled without meters"):
        kernel.meters()
    empty = Kernel('extern "C" __global__ void k() {}', target="host", meter=True)
    with pytest.raises(ArgumentError, match="nothing to count"):
        empty.meters()


def test_names_are_those_of_the_header() -> None:
    names = meter_names()
    assert len(names) == len(set(names)) == 20
    assert (names[0], names[-1]) == ("additions", "spins")
