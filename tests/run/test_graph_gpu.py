# SPDX-License-Identifier: Apache-2.0
"""Kernels in streams and graphs of the caller's, on a GPU: order, replays, what fails in one. The tier `gpu`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gda
from gda.errors import ArgumentError, CompletionError, HandleError
from gda.run import Launch

pytestmark = pytest.mark.gpu

COUNT, REPLAYS = 4096, 10
KERNEL = r"""
#include <gda/gda.h>
// Puts all of src and a count behind it, waits until both are there: each replay goes on where the last one stopped.
GDA_KERNEL(put_and_wait)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr count, uint64_t* rounds, gda_status* status) {
    uint64_t round = rounds[0] + 1;
    gda_ticket ticket = gda_put_signal(qp, dst, 0, src, 0, src.bytes, count, 0, 1, GDA_SIGNAL_ADD);
    gda_report(status, gda_wait(qp, ticket, GDA_S(1)));
    const uint64_t* arrived = reinterpret_cast<const uint64_t*>(count.addr);
    gda_report(status, gda_wait_signal(arrived, GDA_REACHED, round, GDA_S(1), nullptr));
    rounds[0] = round;
}
"""


class Sender:
    """A queue pair to itself, arrays in GPU memory, and the kernel that puts one to the other."""

    def __init__(self, xp: Any) -> None:
        self.nic = gda.open()
        self.queue, self.other = self.nic.loopback_pair(depth=64)
        self.src, self.dst = xp.zeros(COUNT, xp.uint32), xp.zeros(COUNT, xp.uint32)
        self.rounds = xp.zeros(1, xp.uint64)
        self.count = self.nic.allocate(8, "gpu", access=("local_write", "remote_write", "remote_atomic"))
        self.memory = self.nic.register(self.src), self.nic.register(self.dst)
        self.kernel = gda.Kernel(KERNEL, target="gpu")

    def put(self, stream: Any) -> Launch:
        src, dst = self.memory
        return self.kernel.put_and_wait.on(stream)[1, 1](self.queue, dst, src, self.count, self.rounds)


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    import cupy

    monkeypatch.setenv("GDA_TARGET", "gpu")
    one = Sender(cupy)
    yield one
    one.nic.close()


def by_cupy(mode: str) -> Callable[..., Any]:
    """Captures what work(stream) does; answers how to replay it, and what work answered."""

    def capture(stream: Any, work: Callable[[Any], Any]) -> Any:
        import cupy

        stream.begin_capture(getattr(cupy.cuda.runtime, f"streamCaptureMode{mode}"))
        try:
            answer = work(stream)
        finally:
            graph = stream.end_capture()
        return (lambda: graph.launch(stream)), answer

    return capture


def by_torch(stream: Any, work: Callable[[Any], Any]) -> Any:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("not run: torch has no CUDA here")
    graph, answer = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        answer.append(work(torch.cuda.current_stream()))

    def replay() -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
            graph.replay()

    return replay, answer[0]


def nonblocking() -> Any:
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def test_a_stream_orders_it(sender: Sender) -> None:
    """What was asked before in the stream is put, and what comes behind sees what arrived: nobody waits in between."""
    stream = nonblocking()
    with stream:
        seen = [sender.src * 0 for _ in range(REPLAYS)]
        launches = []
        for round in range(REPLAYS):
            sender.src[:] = round + 1
            launches.append(sender.put(stream))
            seen[round][:] = sender.dst
        stream.synchronize()
    for launch in launches:
        launch.wait()
    assert [(int(one.min()), int(one.max())) for one in seen] == [(r + 1, r + 1) for r in range(REPLAYS)]


@pytest.mark.parametrize(
    "capture", [by_cupy("Relaxed"), by_cupy("Global"), by_torch], ids=["cupy", "cupy-global", "torch"]
)
def test_a_captured_put_replays(sender: Sender, capture: Callable[..., Any]) -> None:
    stream = nonblocking()
    sender.put(stream).wait()  # what a kernel takes lies where it stays
    replay, launch = capture(stream, sender.put)
    assert launch.is_captured
    assert int(sender.rounds[0]) == 1, "it has not run yet"
    for round in range(REPLAYS):
        with stream:
            sender.src[:] = 1000 + round
        replay()
        stream.synchronize()
        launch.check()
        assert (int(sender.dst.min()), int(sender.dst.max())) == (1000 + round, 1000 + round)
    assert int.from_bytes(sender.count.read(0, 8), "little") == int(sender.rounds[0]) == 1 + REPLAYS
    for _ in range(REPLAYS):  # one behind the other
        replay()
    stream.synchronize()
    launch.check()
    assert int.from_bytes(sender.count.read(0, 8), "little") == int(sender.rounds[0]) == 1 + 2 * REPLAYS
    sender.put(stream).wait()  # launches and replays take turns
    assert int(sender.rounds[0]) == 2 + 2 * REPLAYS


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
def test_what_fails_in_a_replay_is_told(sender: Sender) -> None:
    stream = nonblocking()
    sender.put(stream).wait()
    replay, launch = by_cupy("Global")(stream, sender.put)
    replay()
    stream.synchronize()
    launch.check()
    sender.memory[1].close()  # the NIC refuses its key from now on
    replay()
    stream.synchronize()
    with pytest.raises(CompletionError, match=r"kernel put_and_wait: (remote access error|flushed)") as caught:
        launch.check()  # the signal, which is waited for, was behind the put that was refused
    assert caught.value.qpn == sender.queue.qpn
    launch.check()  # told once


def test_a_replay_after_the_queue_was_closed(sender: Sender) -> None:
    stream = nonblocking()
    sender.put(stream).wait()
    replay, launch = by_cupy("Global")(stream, sender.put)
    sender.queue.close()
    another, _ = sender.nic.loopback_pair(depth=64)  # takes memory that has become free
    another.__gda_argument__("gpu")
    replay()
    stream.synchronize()
    with pytest.raises(HandleError):
        launch.check()


def test_what_is_refused_while_a_stream_is_captured(sender: Sender) -> None:
    stream = nonblocking()
    sender.put(stream).wait()
    src, dst = sender.memory

    def work(stream: Any) -> Launch:
        launch = sender.put(stream)
        with pytest.raises(ArgumentError, match="was captured"):
            launch.wait()
        with stream, pytest.raises(ArgumentError, match="the current stream is being captured"):
            sender.kernel.put_and_wait[1, 1](sender.queue, dst, src, sender.count, sender.rounds)
        return launch

    replay, launch = by_cupy("Global")(stream, work)
    replay()
    stream.synchronize()
    launch.check()
    assert int(sender.rounds[0]) == 2


def test_a_capture_is_not_spoilt_by_others(sender: Sender) -> None:
    """The NIC copies GPU memory, and a kernel's end is looked for, while a stream is captured in the strictest mode."""
    stream = nonblocking()
    sender.put(stream).wait()
    busy = nonblocking()

    def work(captured: Any) -> Launch:
        launches = [sender.put(busy) for _ in range(3)]
        for launch in launches:
            launch.wait()
        return sender.put(captured)

    replay, launch = by_cupy("Global")(stream, work)
    replay()
    stream.synchronize()
    launch.check()
    assert int(sender.rounds[0]) == 5
