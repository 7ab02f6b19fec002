# SPDX-License-Identifier: Apache-2.0
"""One queue shared by many threads, and a consumer that looks at a slot only when it was rung: case C4."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gda import config, formats
from gda.run import Kernel

from .toy_queue import DOORBELLS, ToyMemory, ToyQueue

SOURCE = Path(__file__).parent / "stress.cu"
MESSAGES = Path(__file__).parent / "message_stress.cu"
FAULTS = ("went_back", "overrun", "stale", "doorbells", "cq_overrun")


def run(kernel: Kernel, queue: ToyQueue, *, blocks: int, threads: int, puts: int, seed: int) -> dict[str, int]:
    producers = blocks * threads
    cells = ToyMemory(producers * puts * 8)
    faults, refused = np.zeros(len(FAULTS), np.uint64), np.zeros(1, np.uint64)
    kernel.deadline_s = 150
    kernel.stress[blocks + 1, threads](queue, cells, ToyMemory(8), puts, faults, seed, refused)
    assert refused[0] == 0
    counts = cells.data.view(np.uint64)
    assert (counts == 1).all(), f"{(counts == 0).sum()} cells never written, {(counts > 1).sum()} more than once"
    seen = dict(zip(FAULTS, map(int, faults), strict=True))
    assert {name: n for name, n in seen.items() if name != "doorbells"} == dict.fromkeys(set(FAULTS) - {"doorbells"}, 0)
    state = queue.state
    assert state["reserved"] == state["ready"] == state["done"] == producers * puts
    assert state["error"] == 0
    return seen


def run_messages(kernel: Kernel, queue: ToyQueue, *, blocks: int, threads: int, messages: int) -> None:
    """Every thread posts and takes receives; each message arrives once and whole."""
    total = blocks * threads * messages
    buffers, seen = ToyMemory(total * 16), np.zeros(total, np.uint32)
    faults, wrong = np.zeros(3, np.uint64), np.zeros(1, np.uint64)
    kernel.deadline_s = 150
    kernel.stress[blocks + 1, threads](queue, buffers, messages, seen, faults, wrong)
    assert (faults.tolist(), int(wrong[0])) == ([0, 0, 0], 0)
    assert (seen == 1).all()
    state = queue.state
    receive = state["receive"]
    assert receive["reserved"] == receive["ready"] == receive["received"] == total
    assert (state["error"], queue.receive_counter) == (0, total % 65536)


@pytest.mark.parametrize("converged", ["all", "one", "random"])
def test_64_producers(converged: str) -> None:
    """Case C4b: 131,072 puts through 128 slots; the record ends at 0 modulo 2^16."""
    kernel = Kernel(SOURCE, target="host", converged=converged, seed=7)
    queue = ToyQueue(128, deadline_ns=60_000_000_000)
    seen = run(kernel, queue, blocks=2, threads=32, puts=2048, seed=11)
    assert queue.send_counter == 0
    if converged == "all":
        assert seen["doorbells"] <= 131072 / 4, "lanes that come together ring together"


@pytest.mark.parametrize("converged", ["all", "one"])
@pytest.mark.parametrize("doorbell", DOORBELLS[1:])
def test_64_producers_with_each_doorbell(doorbell: str, converged: str) -> None:
    """The same, told in each other way; without a record the register's last value is 0 modulo 2^16, too."""
    kernel = Kernel(SOURCE, target="host", converged=converged, seed=7)
    queue = ToyQueue(128, doorbell=doorbell, deadline_ns=60_000_000_000)
    run(kernel, queue, blocks=2, threads=32, puts=2048, seed=11)
    assert queue.send_counter == 0


@pytest.mark.parametrize("doorbell", DOORBELLS)
def test_an_owner_with_each_doorbell(doorbell: str) -> None:
    """Past 2^16, through a ring of 16."""
    kernel = Kernel(SOURCE, target="host")
    queue = ToyQueue(16, owned=True, doorbell=doorbell, deadline_ns=60_000_000_000)
    run(kernel, queue, blocks=1, threads=1, puts=70_000, seed=1)


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize(("depth", "blocks", "threads"), [(4, 2, 32), (64, 4, 33), (1024, 1, 256), (128, 16, 1)])
def test_shapes(record: bool, collapsed: bool, depth: int, blocks: int, threads: int) -> None:
    kernel = Kernel(SOURCE, target="host", converged="random", seed=3)
    queue = ToyQueue(depth, record=record, collapsed=collapsed, ignore_overrun=False, deadline_ns=60_000_000_000)
    run(kernel, queue, blocks=blocks, threads=threads, puts=64, seed=5)


def test_owned_queue() -> None:
    kernel = Kernel(SOURCE, target="host")
    queue = ToyQueue(16, owned=True, collapsed=False, ignore_overrun=False, deadline_ns=60_000_000_000)
    run(kernel, queue, blocks=1, threads=1, puts=70_000, seed=1)


@pytest.mark.parametrize("round_", range(5))
def test_second_writer_is_faster(round_: int) -> None:
    """Case C4a: the record says nothing of slot 1 before slot 0 is written; then it says 2."""
    kernel = Kernel(SOURCE, target="host")
    queue = ToyQueue(8, deadline_ns=10_000_000_000)
    out = np.full(2, 77, np.uint32)
    kernel.second_is_faster[1, 64](queue, ToyMemory(64), ToyMemory(64), out)
    assert out[1] == 2, "both slots were taken while the first was not written"
    assert out[0] == 0, "nothing was announced then"
    assert queue.send_counter == 2
    for index in range(2):
        assert formats.wqe_ctrl_seg.unpack(queue.wqe(index)[:16])["wqe_index"] == index


def test_the_judge_sees_a_slot_rung_before_it_is_written() -> None:
    if "thread" in config.get("GDA_CXXFLAGS"):
        pytest.skip("not run: a race on purpose, under the thread sanitizer")
    kernel = Kernel(SOURCE, target="host")
    faults = np.zeros(len(FAULTS), np.uint64)
    kernel.rings_early[2, 1](ToyQueue(8), ToyMemory(64), ToyMemory(64), faults)
    assert faults[FAULTS.index("stale")] == 1


@pytest.mark.parametrize("converged", ["all", "one", "random"])
def test_64_receivers(converged: str) -> None:
    """65,536 receives through 64 entries: the record ends at 0 modulo 2^16."""
    kernel = Kernel(MESSAGES, target="host", converged=converged, seed=7)
    run_messages(kernel, ToyQueue(receive_depth=64, receive_cq_base=5), blocks=2, threads=32, messages=1024)


@pytest.mark.parametrize(("depth", "blocks", "threads"), [(4, 4, 1), (64, 2, 31), (256, 1, 256), (16, 16, 1)])
def test_receiver_shapes(depth: int, blocks: int, threads: int) -> None:
    kernel = Kernel(MESSAGES, target="host", converged="random", seed=3)
    run_messages(kernel, ToyQueue(receive_depth=depth), blocks=blocks, threads=threads, messages=64)


def test_owned_receive_queue() -> None:
    kernel = Kernel(MESSAGES, target="host")
    run_messages(kernel, ToyQueue(owned=True, receive_depth=4), blocks=1, threads=1, messages=70_000)
