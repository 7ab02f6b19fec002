# SPDX-License-Identifier: Apache-2.0
"""Send and receive on the device, against a queue pair in plain memory: bytes, counters, arrivals, refusals."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gda import formats
from gda.run import Kernel

from .toy_queue import QPN, ToyMemory, ToyQueue

FAILED = 1 << 63
LOCAL = ToyMemory(1 << 16, lkey=0x11223344, address=0x0000AABBCCDD0000)
RECEIVED = formats.layouts["gda_received"]

MESSAGES = r"""
#include <gda/gda.h>
#define ME (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x)
GDA_KERNEL(send)(gda_qp* qp, gda_mr src, uint64_t from, uint64_t bytes, gda_ticket* t) {
    t[ME] = gda_send(qp, src, from, bytes);
}
GDA_KERNEL(send_imm)(gda_qp* qp, gda_mr src, uint64_t from, uint64_t bytes, uint32_t imm, gda_ticket* t) {
    t[ME] = gda_send_imm(qp, src, from, bytes, imm);
}
GDA_KERNEL(post)(gda_qp* qp, gda_mr dst, uint64_t at, uint64_t bytes, uint64_t stride, gda_ticket* t) {
    t[ME] = gda_post_receive(qp, dst, at + ME * stride, bytes);
}
GDA_KERNEL(poll)(gda_qp* qp, gda_received* out, gda_status* result) {
    result[ME] = gda_poll_receive(qp, out + ME);
}
GDA_KERNEL(wait)(gda_qp* qp, gda_received* out, uint64_t deadline_ns, gda_status* result) {
    result[ME] = gda_wait_receive(qp, out + ME, deadline_ns);
}
"""
TOGETHER = r"""
GDA_KERNEL(post_SCOPE)(gda_qp* qp, gda_mr dst, uint64_t at, uint64_t bytes, gda_ticket* t) {
    t[ME] = gda_post_receive_SCOPE(qp, dst, at, bytes);
}
GDA_KERNEL(poll_SCOPE)(gda_qp* qp, gda_received* out, gda_status* result) {
    result[ME] = gda_poll_receive_SCOPE(qp, out + ME);
}
GDA_KERNEL(wait_SCOPE)(gda_qp* qp, gda_received* out, uint64_t deadline_ns, gda_status* result) {
    result[ME] = gda_wait_receive_SCOPE(qp, out + ME, deadline_ns);
}
"""
MESSAGES += "".join(TOGETHER.replace("SCOPE", scope) for scope in ("warp", "block"))


@pytest.fixture(scope="module")
def k() -> Kernel:
    return Kernel(MESSAGES, target="host")


@pytest.fixture(params=["owned", "shared"])
def owned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "owned")


def words(count: int = 1) -> np.ndarray:
    return np.zeros(count, np.uint64)


def code(word: int) -> str:
    return str(formats.decode_status(int(word) & ~FAILED)["code_name"])


def post(k: Kernel, queue: ToyQueue, count: int = 1, bytes: int = 0x20, at: int = 0) -> list[int]:
    found = []
    for _ in range(count):
        t = words()
        k.post[1, 1](queue, LOCAL, at, bytes, 0, t)
        found.append(int(t[0]))
    return found


def poll(k: Kernel, queue: ToyQueue, lanes: int = 1) -> list[tuple[int, dict[str, int]]]:
    """Per lane: status word, and what arrived."""
    out, result = np.zeros(lanes * RECEIVED.bytes, np.uint8), words(lanes)
    k.poll[1, lanes](queue, out, result)
    each = out.reshape(lanes, RECEIVED.bytes)
    return [(int(r), RECEIVED.unpack(e.tobytes())) for r, e in zip(result, each, strict=True)]


def test_send(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), words()
    k.send[1, 1](queue, LOCAL, 0x40, 0x20, t)
    assert t[0] == 1
    assert queue.wqe(0)[:32] == bytes.fromhex("0000000a 12345602 00000008 00000000 00000020 11223344 0000aabbccdd0040")
    assert queue.wqe(0)[32:] == b"\xff" * 32
    assert (queue.send_counter, queue.receive_counter) == (1, 0)


def test_send_with_immediate(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), words()
    k.send_imm[1, 1](queue, LOCAL, 0x40, 0x20, 0xCAFEBABE, t)
    assert queue.wqe(0)[:32] == bytes.fromhex("0000000b 12345602 00000008 cafebabe 00000020 11223344 0000aabbccdd0040")


def test_send_of_nothing(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), words()
    k.send_imm[1, 1](queue, LOCAL, 0, 0, 5, t)
    assert queue.wqe(0)[:16] == bytes.fromhex("0000000b 12345601 00000008 00000005")


@pytest.mark.parametrize(("at", "bytes"), [(65536, 1), (0, 65537), (0, 101)])
def test_a_send_is_one_message(k: Kernel, owned: bool, at: int, bytes: int) -> None:
    """It is never split: what is longer than a message, or than the region, is refused."""
    queue, t = ToyQueue(owned=owned, max_message_bytes=100), words()
    k.send[1, 1](queue, LOCAL, at, bytes, t)
    assert t[0] >> 63 and code(t[0]) == "GDA_OUT_OF_BOUNDS"
    assert queue.state["reserved"] == 0


def test_posted_receives(k: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned, receive_depth=8)
    assert post(k, queue, at=0x40) == [0]
    assert queue.receive(0) == bytes.fromhex("00000020 11223344 0000aabbccdd0040")
    assert queue.receive(1) == b"\xff" * 16
    assert queue.record[:8].tobytes() == bytes.fromhex("00000001 00000000"), "the first dword, big-endian"
    assert not queue.page.any(), "a receive rings no doorbell"
    assert post(k, queue, 3) == [1, 2, 3]
    assert queue.receive_counter == 4
    assert queue.state["receive"]["reserved"] == queue.state["receive"]["ready"] == 4


def test_receive_without_memory(k: Kernel, owned: bool) -> None:
    """For puts with immediate: the list of segments ends at once."""
    queue = ToyQueue(owned=owned, receive_depth=4)
    assert post(k, queue, bytes=0) == [0]
    assert formats.wqe_data_seg.unpack(queue.receive(0))["lkey"] == formats.LKEY_END_OF_LIST


def test_as_many_receives_as_the_queue_is_deep(k: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned, receive_depth=4, receive_start=65534)
    assert post(k, queue, 4) == [65534, 65535, 65536, 65537]
    assert queue.receive_counter == 2, "modulo 2^16"
    state, entries, begin = queue.state, queue.rq.copy(), time.monotonic()
    (refused,) = post(k, queue)
    assert refused >> 63 and code(refused) == "GDA_QUEUE_FULL"
    assert time.monotonic() - begin < 5
    assert queue.state == state and (queue.rq == entries).all()
    queue.arrive(65534)
    assert post(k, queue)[0] >> 63, "its completion was not read yet"
    assert poll(k, queue)[0][0] == 0
    assert post(k, queue) == [65538]


def test_refusals(k: Kernel, owned: bool) -> None:
    def outcomes(queue: ToyQueue) -> set[str]:
        return {code(post(k, queue)[0]), code(poll(k, queue)[0][0])}

    assert outcomes(ToyQueue(owned=owned)) == {"GDA_NO_RECEIVE_QUEUE"}
    assert outcomes(ToyQueue(owned=owned, receive_depth=4, version=0x67646101)) == {"GDA_BAD_HANDLE"}
    assert outcomes(ToyQueue(owned=owned, receive_depth=4, connected=False)) == {"GDA_NOT_CONNECTED"}
    queue = ToyQueue(owned=owned, receive_depth=4)
    for at, count in ((65536, 1), (0, 65537), ((1 << 64) - 1, 2)):
        (refused,) = post(k, queue, at=at, bytes=count)
        assert refused >> 63 and code(refused) == "GDA_OUT_OF_BOUNDS"
    assert queue.state["receive"]["reserved"] == 0


def test_arrivals_in_order(k: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned, receive_depth=4)
    for i in range(3):
        post(k, queue, at=0x100 * i)
    assert code(poll(k, queue)[0][0]) == "GDA_TIMEOUT"
    queue.arrive(0, bytes=17)
    queue.arrive(1, bytes=5, immediate=0xDEAD0001, opcode="SEND_IMM")
    queue.arrive(2, bytes=1 << 20, immediate=7, opcode="WR_IMM")
    seen = [poll(k, queue)[0] for _ in range(3)]
    assert [status for status, _ in seen] == [0, 0, 0]
    assert [got["index"] for _, got in seen] == [0, 1, 2]
    assert [got["bytes"] for _, got in seen] == [17, 5, 1 << 20]
    assert [got["immediate"] for _, got in seen] == [0, 0xDEAD0001, 7]
    assert [got["addr"] - LOCAL.address for _, got in seen] == [0, 0x100, 0x200]
    names = [formats.enums["cqe_opcode"](got["opcode"]).name for _, got in seen]
    assert names == ["MLX5_CQE_RESP_SEND", "MLX5_CQE_RESP_SEND_IMM", "MLX5_CQE_RESP_WR_IMM"]
    assert code(poll(k, queue)[0][0]) == "GDA_TIMEOUT"
    assert queue.state["receive"]["received"] == 3


@pytest.mark.parametrize("base", [0, 3, 0xFFFFFFFF])
def test_many_laps(k: Kernel, owned: bool, base: int) -> None:
    """The owner bit turns with the completion ring's laps, which need not start with the receives' (after a reset)."""
    queue = ToyQueue(owned=owned, receive_depth=4, receive_cq_base=base)
    for i in range(19):
        assert post(k, queue, at=i) == [i]
        assert code(poll(k, queue)[0][0]) == "GDA_TIMEOUT"
        queue.arrive(i, bytes=i)
        status, got = poll(k, queue)[0]
        assert (status, got["index"], got["bytes"], got["addr"]) == (0, i, i, LOCAL.address + i)


def test_failed_receive(k: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned, receive_depth=4)
    post(k, queue, 3)
    queue.fail_receive(0, 0x01)
    queue.fail_receive(1, 0x05)
    (status, got), (flushed, _) = poll(k, queue)[0], poll(k, queue)[0]
    said = formats.decode_status(status)
    assert (said["code_name"], said["syndrome"], said["qpn"], got["index"]) == ("GDA_COMPLETION_ERROR", 1, QPN, 0)
    assert formats.decode_status(flushed)["syndrome"] == 5
    assert queue.state["error"] == status, "the first cause stays"
    refused = post(k, queue)[0]
    assert refused >> 63 and code(refused) == "GDA_COMPLETION_ERROR"
    assert code(poll(k, queue)[0][0]) == "GDA_TIMEOUT"


def test_a_flush_is_not_the_cause(k: Kernel, owned: bool) -> None:
    queue = ToyQueue(owned=owned, receive_depth=4)
    post(k, queue)
    queue.fail_receive(0, 0x05)
    assert code(poll(k, queue)[0][0]) == "GDA_COMPLETION_ERROR"
    assert queue.state["error"] == 0


def test_wait(k: Kernel, owned: bool) -> None:
    queue, out, result = ToyQueue(owned=owned, receive_depth=4), np.zeros(RECEIVED.bytes, np.uint8), words()
    post(k, queue, 2)
    begin = time.monotonic()
    k.wait[1, 1](queue, out, 20_000_000, result)
    assert 0.02 <= time.monotonic() - begin < 5
    said = formats.decode_status(int(result[0]))
    assert (said["code_name"], said["qpn"], said["wqe_index"]) == ("GDA_TIMEOUT", QPN, 0)
    launch = k.wait.start[1, 1](queue, out, 10_000_000_000, result)
    assert not launch.done()
    queue.arrive(0, bytes=3)
    launch.wait(10)
    assert result[0] == 0 and RECEIVED.unpack(out.tobytes())["bytes"] == 3
    values = queue.state
    queue.write_handle(**values | {"error": 0x0005001300000001})
    queue.arrive(1, bytes=4)
    k.wait[1, 1](queue, out, 10_000_000_000, result)
    assert result[0] == 0, "what arrived before the failure is delivered"
    k.wait[1, 1](queue, out, 10_000_000_000, result)
    assert result[0] == 0x0005001300000001, "then the failure is told, without waiting"


@pytest.mark.parametrize("converged", ["all", "one", "random"])
def test_lanes_post_and_take_together(converged: str) -> None:
    """64 lanes post 64 receives and take 40 arrivals: each receive once, each arrival once."""
    kernel = Kernel(MESSAGES, target="host", converged=converged, seed=3)
    queue, t = ToyQueue(receive_depth=64), words(64)
    kernel.post[1, 64](queue, LOCAL, 0, 8, 8, t)
    assert sorted(t.tolist()) == list(range(64))
    for lane, index in enumerate(t.tolist()):
        assert formats.wqe_data_seg.unpack(queue.receive(index))["addr"] == LOCAL.address + 8 * lane
    assert queue.receive_counter == 64
    for i in range(40):
        queue.arrive(i, bytes=i)
    taken: list[int] = []
    for _ in range(40):  # a look may find another reader at work
        taken += [got["index"] for status, got in poll(kernel, queue, 64) if status == 0]
    assert sorted(taken) == list(range(40))
    assert queue.state["receive"]["received"] == 40


def test_more_lanes_than_receives(k: Kernel) -> None:
    """Those that find no room are refused, the others are not harmed."""
    queue, t = ToyQueue(receive_depth=4), words(32)
    k.post[1, 32](queue, LOCAL, 0, 8, 8, t)
    posted = [int(x) for x in t if not int(x) >> 63]
    assert sorted(posted) == [0, 1, 2, 3]
    assert {code(x) for x in t if int(x) >> 63} == {"GDA_QUEUE_FULL"}


def test_a_reader_that_was_killed(k: Kernel) -> None:
    """Its claim stays: others time out until the queue is reset, they do not hang."""
    queue, out, result = ToyQueue(receive_depth=4), np.zeros(RECEIVED.bytes, np.uint8), words()
    post(k, queue)
    state = queue.state
    queue.write_handle(**state | {"receive": state["receive"] | {"received": 1 << 63}})
    queue.arrive(0)
    k.wait[1, 1](queue, out, 10_000_000, result)
    assert code(result[0]) == "GDA_TIMEOUT"


@pytest.mark.parametrize(("scope", "threads"), [("warp", 32), ("warp", 7), ("block", 96), ("block", 1)])
def test_a_warp_or_block_posts_and_takes_one(owned: bool, scope: str, threads: int) -> None:
    """One receive, one arrival, for all of them; counted: it costs what one thread pays."""
    kernel = Kernel(MESSAGES, target="host", meter=True)
    queue = ToyQueue(receive_depth=8, owned=owned)
    tickets, results = words(threads), words(threads)
    arrived = np.zeros(threads * RECEIVED.bytes, np.uint8)
    do = {name: getattr(kernel, f"{name}_{scope}")[1, threads] for name in ("post", "poll", "wait")}
    for index in range(3):
        kernel.clear_meters()
        do["post"](queue, LOCAL, 64 * index, 32, tickets)
        seen = {name: n for name, n in kernel.meters().items() if n}
        barrier = "wqe_before_doorbell_record"
        assert seen == {"records": 1, "segments": 1, "payload_bytes": 32, barrier: 1} | ({} if owned else {"swaps": 1})
        assert (tickets == index).all() and queue.receive_counter == index + 1
    do["poll"](queue, arrived, results)
    assert (results == int(formats.constants["GDA_TIMEOUT"])).all() and not arrived.any()
    for index in range(3):
        queue.arrive(index, bytes=20 + index, immediate=7, opcode="SEND_IMM")
        kernel.clear_meters()
        do["wait" if index else "poll"](queue, arrived, *([1_000_000] if index else []), results)
        assert not results.any()
        assert {name: n for name, n in kernel.meters().items() if n} == ({} if owned else {"swaps": 1})
        for thread in range(threads):
            one = RECEIVED.unpack(arrived[thread * RECEIVED.bytes :][: RECEIVED.bytes].tobytes())
            assert (one["index"], one["bytes"], one["immediate"]) == (index, 20 + index, 7)
            assert one["addr"] == LOCAL.address + 64 * index
    assert queue.state["receive"]["received"] == 3
    do["wait"](queue, arrived, 1_000_000, results)
    assert all(code(int(result)) == "GDA_TIMEOUT" for result in results)


@pytest.mark.parametrize("scope", ["warp", "block"])
def test_a_warp_or_block_learns_of_a_failed_receive(owned: bool, scope: str) -> None:
    kernel = Kernel(MESSAGES, target="host")
    queue = ToyQueue(receive_depth=8, owned=owned)
    tickets, results, arrived = words(32), words(32), np.zeros(32 * RECEIVED.bytes, np.uint8)
    getattr(kernel, f"post_{scope}")[1, 32](queue, LOCAL, 0, 32, tickets)
    queue.fail_receive(0, 0x01)
    getattr(kernel, f"wait_{scope}")[1, 32](queue, arrived, 1_000_000, results)
    assert len(set(results.tolist())) == 1 and code(int(results[0])) == "GDA_COMPLETION_ERROR"
    getattr(kernel, f"post_{scope}")[1, 32](queue, LOCAL, 1 << 40, 32, tickets)
    assert all(code(int(ticket)) in ("GDA_OUT_OF_BOUNDS", "GDA_COMPLETION_ERROR") for ticket in tickets)
