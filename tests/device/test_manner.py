# SPDX-License-Identifier: Apache-2.0
"""How requests are posted: doorbells that are left to later requests, completions that nobody wants, tickets that are
given back, and the way of the token on a shared queue.
"""

from __future__ import annotations

import numpy as np
import pytest

from gda import formats
from gda.nic.handle import window
from gda.run import Kernel

from .toy_queue import ToyMemory, ToyQueue

SOURCE = r"""
#include <gda/gda.h>
GDA_KERNEL(post_many)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t flags, int count, gda_ticket* ticket) {
    for (int i = 0; i < count; ++i) ticket[threadIdx.x] = gda_put(qp, dst, 0, src, 0, 8, flags);
}
GDA_KERNEL(post_pairs)(gda_qp* qp, gda_mr dst, gda_mr src, int count, gda_ticket* ticket) {
    for (int i = 0; i < count; ++i) {
        ticket[threadIdx.x] = gda_put_signal(qp, dst, 0, src, 0, 8, dst, 8, 1, GDA_SIGNAL_SET);
    }
}
GDA_KERNEL(mixed)(gda_qp* qp, gda_mr dst, gda_mr src, gda_ticket* ticket) {
    ticket[threadIdx.x] = gda_put(qp, dst, 0, src, 0, 8, threadIdx.x == 0 ? GDA_MORE : 0);
}
GDA_KERNEL(wait_for)(gda_qp* qp, gda_ticket ticket, uint64_t deadline_ns, gda_status* status) {
    *status = gda_wait(qp, ticket, deadline_ns);
}
"""
MORE, UNSIGNALED = (int(formats.constants[name]) for name in ("GDA_MORE", "GDA_UNSIGNALED"))
DST, SRC = ToyMemory(64), ToyMemory(64)
ALWAYS = 2


@pytest.fixture(scope="module", params=["all", "one", "random"])
def manner(request: pytest.FixtureRequest) -> Kernel:
    return Kernel(SOURCE, target="host", converged=request.param, seed=5)


@pytest.fixture(params=["owned", "shared"])
def owned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "owned")


def puts(kernel: Kernel, queue: ToyQueue, flags: int = 0, count: int = 1, threads: int = 1) -> list[int]:
    ticket = np.zeros(threads, np.uint64)
    kernel.post_many[1, threads](queue, DST, SRC, flags, count, ticket)
    return [int(t) for t in ticket]


def signaled(queue: ToyQueue, index: int) -> bool:
    return bool(formats.wqe_ctrl_seg.unpack(queue.wqe(index)[:16])["ce"] == ALWAYS)


def test_a_doorbell_is_left_to_the_next_request(manner: Kernel, owned: bool) -> None:
    queue = ToyQueue(64, owned=owned)
    assert puts(manner, queue, MORE, 3) == [3]
    assert (queue.send_counter, queue.page.any()) == (0, False)
    assert (queue.state["ready"], queue.state["rung"], queue.state["deferred"]) == (3, 0, 3)
    assert puts(manner, queue) == [4]
    assert (queue.send_counter, queue.state["rung"]) == (4, 4)


FENCE = int(formats.GDA_FENCE)


def test_a_fence_stands_in_the_control_segment(manner: Kernel, owned: bool) -> None:
    queue = ToyQueue(16, owned=owned, max_message_bytes=5)
    puts(manner, queue, FENCE)
    puts(manner, queue)
    control = [formats.wqe_ctrl_seg.unpack(queue.wqe(i)[:16]) for i in range(4)]
    wanted = int(formats.MLX5_FENCE_MODE_SMALL_AND_FENCE)
    assert [(c["fm"], c["ce"]) for c in control] == [(wanted, 0), (wanted, ALWAYS), (0, 0), (0, ALWAYS)]


def test_at_most_a_quarter_of_the_ring_is_left(manner: Kernel, owned: bool) -> None:
    queue = ToyQueue(64, owned=owned)
    puts(manner, queue, MORE, 15)
    assert queue.send_counter == 0
    puts(manner, queue, MORE)
    assert queue.send_counter == 16


def test_a_wait_rings_for_what_was_left(manner: Kernel, owned: bool) -> None:
    """The program forgot the request that would have rung: no wait may end by its deadline for that."""
    queue = ToyQueue(16, owned=owned)
    (ticket,) = puts(manner, queue, MORE)
    status = np.zeros(1, np.uint64)
    launch = manner.wait_for.start[1, 1](queue, ticket, 20_000_000_000, status)
    while queue.send_counter != 2:
        assert not launch.done()
    queue.complete(0)
    launch.wait(20)
    assert status[0] == 0
    assert formats.wqe_ctrl_seg.unpack(queue.wqe(1)[:16])["opcode"] == formats.constants["MLX5_OPCODE_NOP"]


def test_a_lane_that_wants_its_doorbell_is_not_led_by_one_that_defers(manner: Kernel) -> None:
    queue = ToyQueue(64)
    ticket = np.zeros(32, np.uint64)
    manner.mixed[1, 32](queue, DST, SRC, ticket)
    last = max(int(t) for t in ticket[1:])
    assert queue.send_counter >= last


def test_nobody_asked_for_a_completion(manner: Kernel, owned: bool) -> None:
    queue = ToyQueue(16, owned=owned)
    puts(manner, queue, UNSIGNALED, 9)
    assert [i for i in range(9) if signaled(queue, i)] == [3, 7], "each quarter of the ring completes all the same"
    puts(manner, queue)
    assert signaled(queue, 9)


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("start", [0, 31, 2047, (1 << 32) - 5, (1 << 40) + 17])
def test_the_token_passes_words_and_laps_of_the_window(manner: Kernel, start: int, blocks: int) -> None:
    """Thousands of slots in groups of every size, up to 64 slots, which meet three words of the window: more than two
    laps; behind the token nothing is left over.
    """
    queue = ToyQueue(16384, start=start)
    for threads in (1, 7, 32, 64, 5, 33, 256):
        if blocks == 1:
            puts(manner, queue, 0, 12, threads)
        else:
            manner.post_pairs[1, threads](queue, DST, SRC, 12, np.zeros(threads, np.uint64))
    end = start + 12 * 398 * blocks
    assert queue.state["reserved"] == queue.state["ready"] == queue.state["rung"] == end
    assert queue.send_counter == end % 65536
    parked = int.from_bytes(window(end)[end // 32 % 64 * 8 :][:8], "little")
    words = np.frombuffer(queue.state["window"], np.uint64)
    assert int(words[end // 32 % 64]) & ~((1 << end % 32) - 1) == parked, "parked at the end, nothing noted behind it"
    assert not np.delete(words, end // 32 % 64).any()


def test_lanes_that_find_no_room_give_their_tickets_back(manner: Kernel) -> None:
    queue = ToyQueue(64, deadline_ns=30_000_000)
    puts(manner, queue, 0, 60)
    tickets = puts(manner, queue, 0, 1, 256)
    refused = [t for t in tickets if t >> 63]
    assert {formats.decode_status(t & ~(1 << 63))["code_name"] for t in refused} == {"GDA_QUEUE_FULL"}
    taken = 256 - len(refused)
    assert queue.state["reserved"] == queue.state["ready"] == queue.send_counter == 60 + taken
    assert queue.state["error"] == 0
    queue.complete(59 + taken)
    assert puts(manner, queue) == [61 + taken]
