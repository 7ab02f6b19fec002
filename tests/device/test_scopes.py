# SPDX-License-Identifier: Apache-2.0
"""Operations of a warp, of a block and of a queue's owner on a queue in plain memory: what lies in the ring, who gets
which ticket, what is refused.
"""

from __future__ import annotations

import numpy as np
import pytest

from gda import formats
from gda.run import Kernel

from .toy_queue import ToyMemory, ToyQueue

SCOPES = r"""
#include <gda/gda.h>
GDA_KERNEL(put_warp)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, uint32_t flags, gda_ticket* t) {
    t[threadIdx.x] = gda_put_warp(qp, dst, 0, src, 0, bytes, flags);
}
GDA_KERNEL(put_block)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, uint32_t flags, gda_ticket* t) {
    t[threadIdx.x] = gda_put_block(qp, dst, 0, src, 0, bytes, flags);
}
GDA_KERNEL(wait_warp)(gda_qp* qp, gda_ticket ticket, uint64_t deadline_ns, gda_status* result) {
    result[threadIdx.x] = gda_wait_warp(qp, ticket, deadline_ns);
}
GDA_KERNEL(wait_block)(gda_qp* qp, gda_ticket ticket, uint64_t deadline_ns, gda_status* result) {
    result[threadIdx.x] = gda_wait_block(qp, ticket, deadline_ns);
}
GDA_KERNEL(own)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t flags, uint32_t count, gda_ticket* t) {
    gda_owner queue(qp);
    for (uint32_t i = 0; i < count; ++i) t[0] = queue.put(dst, 0, src, 0, 8, flags);
    queue.close();
}
// Lane i puts i * bytes bytes.
GDA_KERNEL(own_warp)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, uint32_t flags, uint32_t count,
                     gda_ticket* t) {
    gda_warp_owner queue(qp);
    for (uint32_t i = 0; i < count; ++i) t[threadIdx.x] = queue.put(dst, 0, src, 0, bytes * threadIdx.x, flags);
    queue.close();
}
GDA_KERNEL(own_wait)(gda_qp* qp, gda_ticket ticket, uint64_t deadline_ns, gda_status* result) {
    gda_warp_owner queue(qp);
    result[threadIdx.x] = queue.wait(ticket + threadIdx.x, deadline_ns);
    queue.close();
}
GDA_KERNEL(own_flush)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t flags, uint64_t deadline_ns, gda_status* result) {
    gda_warp_owner queue(qp);
    queue.put(dst, 0, src, 0, 8, flags);
    result[threadIdx.x] = queue.flush(deadline_ns);
    queue.close();
}
"""
FAILED = 1 << 63
MORE, UNSIGNALED = int(formats.GDA_MORE), int(formats.GDA_UNSIGNALED)
DST, SRC = ToyMemory(4096), ToyMemory(4096)


@pytest.fixture(scope="module")
def k() -> Kernel:
    return Kernel(SCOPES, target="host")


def code(word: int) -> str:
    assert int(word) & FAILED
    return str(formats.decode_status(int(word) & ~FAILED)["code_name"])


def control(queue: ToyQueue, index: int) -> dict[str, int]:
    return dict(formats.wqe_ctrl_seg.unpack(queue.wqe(index)[:16]))


def length(queue: ToyQueue, index: int) -> int:
    return int(formats.wqe_data_seg.unpack(queue.wqe(index)[32:48])["byte_count"])


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("threads", [1, 7, 32])
def test_a_warp_posts_once_and_all_get_the_ticket(k: Kernel, threads: int, owned: bool) -> None:
    queue, t = ToyQueue(16, owned=owned), np.zeros(threads, np.uint64)
    k.put_warp[1, threads](queue, DST, SRC, 8, 0, t)
    assert t.tolist() == [1] * threads
    assert queue.state["reserved"] == queue.state["ready"] == queue.send_counter == 1


def test_warps_of_a_block_post_once_each(k: Kernel) -> None:
    queue, t = ToyQueue(16), np.zeros(80, np.uint64)
    k.put_warp[1, 80](queue, DST, SRC, 8, 0, t)
    parts = t[:32], t[32:64], t[64:]
    assert sorted(int(part[0]) for part in parts) == [1, 2, 3]
    assert all(len(set(part.tolist())) == 1 for part in parts)


@pytest.mark.parametrize("threads", [1, 7, 80, 256])
def test_a_block_posts_once_and_all_get_the_ticket(k: Kernel, threads: int) -> None:
    queue, t = ToyQueue(16), np.zeros(threads, np.uint64)
    k.put_block[1, threads](queue, DST, SRC, 8, 0, t)
    assert t.tolist() == [1] * threads
    assert queue.send_counter == 1


@pytest.mark.parametrize("name", ["put_warp", "put_block"])
@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize(("depth", "threads"), [(64, 32), (8, 32), (64, 5), (64, 1)])
def test_a_long_transfer_is_split_in_order(k: Kernel, name: str, owned: bool, depth: int, threads: int) -> None:
    """Messages lie in order of their bytes, however many lanes write them; the last one completes."""
    queue, t = ToyQueue(depth, owned=owned, max_message_bytes=100), np.zeros(threads, np.uint64)
    count = min(depth, 41)
    k[name][1, threads](queue, DST, SRC, 100 * count - 30, 0, t)
    assert t.tolist() == [count] * threads
    raddrs = [formats.wqe_raddr_seg.unpack(queue.wqe(i)[16:32])["raddr"] for i in range(count)]
    assert raddrs == [DST.address + 100 * i for i in range(count)]
    assert [length(queue, i) for i in range(count)] == [100] * (count - 1) + [70]
    assert control(queue, count - 1)["ce"] == formats.CE_ALWAYS
    assert queue.send_counter == count


@pytest.mark.parametrize("name", ["put_warp", "put_block"])
def test_all_are_refused_together(k: Kernel, name: str) -> None:
    t = np.zeros(32, np.uint64)
    k[name][1, 32](ToyQueue(16), DST, SRC, 4097, 0, t)
    assert {code(x) for x in t} == {"GDA_OUT_OF_BOUNDS"}
    k[name][1, 32](ToyQueue(16, connected=False), DST, SRC, 8, 0, t)
    assert {code(x) for x in t} == {"GDA_NOT_CONNECTED"}
    full = ToyQueue(2, deadline_ns=2_000_000, max_message_bytes=1000)
    k[name][1, 32](full, DST, SRC, 4000, 0, t)
    assert {code(x) for x in t} == {"GDA_QUEUE_FULL"}


@pytest.mark.parametrize("name", ["wait_warp", "wait_block"])
def test_all_get_the_status(k: Kernel, name: str) -> None:
    queue, t, result = ToyQueue(16), np.zeros(32, np.uint64), np.ones(32, np.uint64)
    k.put_warp[1, 32](queue, DST, SRC, 8, 0, t)
    k[name][1, 32](queue, 1, 1_000_000, result)
    assert {formats.decode_status(int(r))["code_name"] for r in result} == {"GDA_TIMEOUT"}
    queue.complete(0)
    k[name][1, 32](queue, 1, 1_000_000, result)
    assert not result.any()


def test_an_owner_gives_its_counters_back(k: Kernel) -> None:
    queue, t = ToyQueue(64, owned=True), np.zeros(1, np.uint64)
    k.own[1, 1](queue, DST, SRC, 0, 3, t)
    assert t[0] == queue.state["reserved"] == queue.state["ready"] == queue.state["rung"] == queue.send_counter == 3
    k.own[1, 1](queue, DST, SRC, 0, 2, t)
    assert t[0] == queue.send_counter == 5
    assert [control(queue, i)["wqe_index"] for i in range(5)] == list(range(5))
    k.put_warp[1, 1](queue, DST, SRC, 8, 0, t)
    assert t[0] == 6, "and the common functions go on behind it"


def test_a_shared_queue_has_no_owner(k: Kernel) -> None:
    queue, t = ToyQueue(16), np.zeros(1, np.uint64)
    k.own[1, 1](queue, DST, SRC, 0, 1, t)
    assert code(t[0]) == "GDA_BAD_HANDLE"
    assert queue.state["reserved"] == 0 and not queue.page.any()


def test_lanes_of_an_owner_have_requests_of_their_own(k: Kernel) -> None:
    queue, t = ToyQueue(64, owned=True), np.zeros(32, np.uint64)
    k.own_warp[1, 32](queue, DST, SRC, 1, 0, 1, t)
    assert t.tolist() == list(range(1, 33))
    assert control(queue, 0)["ds"] == 2, "no bytes, no data segment"
    assert [length(queue, i) for i in range(1, 32)] == list(range(1, 32))
    assert queue.send_counter == 32


def test_a_lane_that_is_refused_leaves_no_hole(k: Kernel) -> None:
    queue, t = ToyQueue(64, owned=True), np.zeros(32, np.uint64)
    k.own_warp[1, 32](queue, DST, SRC, 200, 0, 1, t)  # from lane 21 on beyond 4,096 bytes
    assert t[:21].tolist() == list(range(1, 22))
    assert {code(x) for x in t[21:]} == {"GDA_OUT_OF_BOUNDS"}
    assert queue.state["reserved"] == queue.send_counter == 21


def test_lanes_of_an_owner_split_each_its_own(k: Kernel) -> None:
    """Lane i has i * 10 bytes in messages of 30: the lanes that have one more go on together."""
    queue, t = ToyQueue(128, owned=True, max_message_bytes=30), np.zeros(8, np.uint64)
    k.own_warp[1, 8](queue, DST, SRC, 10, 0, 1, t)
    messages = [max(1, -(-10 * lane // 30)) for lane in range(8)]
    assert queue.state["reserved"] == queue.send_counter == sum(messages)
    assert len({int(x) for x in t}) == 8 and all(0 < int(x) <= sum(messages) for x in t)


@pytest.mark.parametrize("depth", [2, 8, 32])
def test_an_owner_of_a_small_ring(k: Kernel, depth: int) -> None:
    queue, t = ToyQueue(depth, owned=True, deadline_ns=2_000_000), np.zeros(32, np.uint64)
    k.own_warp[1, 32](queue, DST, SRC, 1, 0, 1, t)
    assert [int(x) for x in t if not int(x) & FAILED] == list(range(1, depth + 1))
    assert {code(x) for x in t if int(x) & FAILED} <= {"GDA_QUEUE_FULL"}
    assert queue.state["reserved"] == queue.send_counter == depth


def test_an_owner_leaves_doorbells_and_close_rings(k: Kernel) -> None:
    queue, t = ToyQueue(64, owned=True), np.zeros(1, np.uint64)
    k.own[1, 1](queue, DST, SRC, MORE, 3, t)
    assert queue.send_counter == 3
    assert queue.state["rung"] == 3


def test_lanes_wait_each_for_its_own(k: Kernel) -> None:
    queue, t, result = ToyQueue(64, owned=True), np.zeros(32, np.uint64), np.ones(32, np.uint64)
    k.own_warp[1, 32](queue, DST, SRC, 1, 0, 1, t)
    queue.complete(9)
    k.own_wait[1, 32](queue, 1, 1_000_000, result)
    assert result[:10].tolist() == [0] * 10
    late = [formats.decode_status(int(r)) for r in result[10:]]
    assert [(r["code_name"], r["wqe_index"]) for r in late] == [("GDA_TIMEOUT", i) for i in range(10, 32)]
    queue.fail(20, 0x13)
    k.own_wait[1, 32](queue, 1, 1_000_000, result)
    assert result[:20].tolist() == [0] * 20
    assert {formats.decode_status(int(r))["syndrome"] for r in result[20:]} == {0x13}
    k.own_warp[1, 32](queue, DST, SRC, 1, 0, 1, t)
    assert {code(x) for x in t} == {"GDA_COMPLETION_ERROR"}, "a failed queue takes nothing more"


@pytest.mark.parametrize(("flags", "requests"), [(0, 32), (UNSIGNALED, 33), (UNSIGNALED | MORE, 33)])
def test_an_owner_flushes_what_has_no_completion(k: Kernel, flags: int, requests: int) -> None:
    queue, result = ToyQueue(512, owned=True), np.ones(32, np.uint64)
    launch = k.own_flush.start[1, 32](queue, DST, SRC, flags, 20_000_000_000, result)
    while queue.send_counter != requests:
        assert not launch.done()
    queue.complete(requests - 1)
    launch.wait(20)
    assert not result.any()
