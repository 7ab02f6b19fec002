# SPDX-License-Identifier: Apache-2.0
"""Who triggers a put, and how long it takes by one clock: from "a kernel decides" to "a kernel knows".

Used by `python -m gda bench latency`. The ways differ in who builds the work request, who rings and who polls:

  CPU              the kernel ends; Python sees that, posts, polls, and launches the next kernel
  CPU proxy        the kernel asks through a word in host memory; a thread of compiled code posts, polls and answers
  stream           the CPU has written the request; after the kernel the stream rings (streams.py), the next one waits
  kernel, prepared the CPU has written the request; the kernel rings and waits
  kernel           the kernel builds, rings and waits

A burst is several puts at once to addresses that the kernel has just computed; what was prepared cannot do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gda import formats
from gda.errors import CompileError, UnavailableError
from gda.nic import Memory, Nic, QueuePair
from gda.nic.queue import connect
from gda.run import Kernel
from gda.tools.bench.load import load_of
from gda.tools.bench.sides import DEADLINE_NS, Rounds, Side, summary
from gda.tools.bench.streams import AT_ONCE, Stream, StreamTriggered

__all__ = ["BURST", "Prepared", "Proxy", "Streamed", "Turn", "measure_triggers"]

KERNELS = "#include <gda/kernels/trigger.h>\n"
BURST = 64  # puts
BINS = 12  # of a histogram
_PIECES = 64  # of the regions, among which a kernel decides
_DEPTH = 1024
_MOST_ROUNDS = 512
_WARM_ROUNDS = 20
_OFFSETS = 16  # PROXY_OFFSETS of kernels/trigger.h, words
_WARP = 32


@dataclass(frozen=True)
class Turn(Rounds):
    """Of one way, by the kernels' clock.

    `counts` and `edges_ns`: a histogram whose bins have one ratio.
    """

    counts: list[int]
    edges_ns: list[float]


def _turn(who: str, beside: str, size: int, burst: int, ns: np.ndarray) -> Turn:
    low, high = float(max(1, ns.min())), float(max(2, ns.max()))
    edges = np.geomspace(low, max(high, low * 1.01), BINS + 1)
    edges[0], edges[-1] = low, max(high, edges[-1])  # rounding must leave none outside
    counts, _ = np.histogram(np.maximum(ns, 1), edges)
    return Turn(who, beside, size, burst, *summary(ns), counts.tolist(), edges.tolist())


class _Way(Side):
    """One way to trigger. It has memory of 64 pieces, words in host memory, and a kernel's times."""

    who = ""
    most_rounds = _MOST_ROUNDS
    bursts = False  # whether it can send to addresses that the kernel has just computed

    def __init__(self, nic: Nic, size: int, placement: str, kernel: Kernel) -> None:
        super().__init__(nic, size, placement, _PIECES)
        self.nic, self.kernel = nic, kernel
        self.blocks = 1 if kernel.target == "gpu" else 0
        self.times: Memory = self._keep(nic.allocate(16 * (_MOST_ROUNDS + 1)))
        self.words: Memory = self._keep(nic.allocate(8 * (_OFFSETS + BURST)))

    def pair(self, **options: Any) -> QueuePair:
        """A queue pair of its own, connected to another one of this NIC."""
        first, second = self.nic.loopback_pair(depth=_DEPTH, **options)
        self._keep(second)
        queue: QueuePair = self._keep(first)
        return queue

    def read_times(self, count: int) -> np.ndarray:
        """Nanoseconds that a kernel has left."""
        return np.frombuffer(self.times.read(0, 8 * count), dtype=np.int64).copy()

    def read_gaps(self, count: int) -> np.ndarray:
        """Nanoseconds from the end of each of `count` kernels to the begin of the next one."""
        moments = self.read_times(2 * (count + 1))
        gaps: np.ndarray = moments[2::2] - moments[1:-2:2]
        return gaps


class Initiated(_Way):
    """The kernel does it all; a burst is posted by a warp, or by the queue's owner with one doorbell."""

    bursts = True

    def __init__(self, nic: Nic, size: int, placement: str, kernel: Kernel, queues: str, *, owned: bool) -> None:
        super().__init__(nic, size, placement, kernel)
        self.who = "kernel, own queue" if owned else "kernel"
        self.queue = self.pair(placement=queues, shared=not owned)
        self._owned = owned

    def rounds(self, size: int, rounds: int, burst: int) -> np.ndarray:
        """By a kernel that stays."""
        run = self.kernel.gda_kernel_initiate_owner if self._owned else self.kernel.gda_kernel_initiate
        lanes = 1 if self._owned else min(burst, _WARP)
        run[1, lanes](self.queue, self.target, self.source, size, rounds, burst, DEADLINE_NS, self.times)
        return self.read_times(rounds)


class Prepared(_Way):
    """The CPU writes work requests into the ring and rings no doorbell; somebody else does."""

    who = "kernel, prepared"

    def __init__(self, nic: Nic, size: int, placement: str, kernel: Kernel, queues: str) -> None:
        super().__init__(nic, size, placement, kernel)
        self.queue = self.pair(placement=queues)
        self._next = 0

    def prepare(self, size: int, count: int, *, signal_last_only: bool = False) -> int:
        """Write `count` RDMA writes; the index of the first."""
        first = self._next
        raddr = formats.wqe_raddr_seg.pack(raddr=self.target.address, rkey=self.target.rkey)
        data = formats.wqe_data_seg.pack(byte_count=size, lkey=self.source.lkey, addr=self.source.address)
        for index in range(first, first + count):
            silent = signal_last_only and index + 1 < first + count
            control = formats.wqe_ctrl_seg.pack(
                opcode=formats.MLX5_OPCODE_RDMA_WRITE, wqe_index=index % 65536, qp_or_sq=self.queue.qpn, ds=3,
                ce=formats.CE_ON_ERROR if silent else formats.CE_ALWAYS,
            )  # fmt: skip
            self.queue.write_wqe(index, control + raddr + data)
        self._next += count
        return first

    def rounds(self, size: int, rounds: int, burst: int) -> np.ndarray:
        """By a kernel that stays and only rings."""
        first = self.prepare(size, rounds)
        self.kernel.gda_kernel_trigger[1, 1](self.queue, first, rounds, DEADLINE_NS, self.times)
        return self.read_times(rounds)

    def all_at_once(self, size: int, count: int) -> float:
        """Nanoseconds of `count` prepared requests that one doorbell starts: the NIC alone."""
        first = self.prepare(size, count, signal_last_only=True)
        self.kernel.gda_kernel_trigger_all[1, 1](self.queue, first, count, DEADLINE_NS, self.times)
        return float(self.read_times(1)[0])


class Proxy(_Way):
    """A kernel that stays asks; a thread of the CPU, the same library compiled for it, posts and answers."""

    who = "CPU proxy"
    bursts = True

    def __init__(self, nic: Nic, size: int, placement: str, kernel: Kernel) -> None:
        super().__init__(nic, size, placement, kernel)
        self._cpu = Kernel(KERNELS, target="host")
        self._queue = self.pair(placement="host", shared=False)

    def rounds(self, size: int, rounds: int, burst: int) -> np.ndarray:
        """Both kernels at once, one of them on the CPU."""
        self.words.write(0, bytes(8 * _OFFSETS))
        serving = self._cpu.gda_kernel_serve.start[1, 1](
            self._queue, self.target, self.source, size, self.words, rounds, burst, DEADLINE_NS
        )
        try:
            self.kernel.gda_kernel_ask[1, min(burst, _WARP)](
                self.words, size, _PIECES, rounds, burst, DEADLINE_NS, self.times
            )
        finally:
            serving.wait()
        return self.read_times(rounds)


class AfterKernel(_Way):
    """A kernel ends, Python posts and polls, the next kernel begins."""

    def __init__(self, nic: Nic, size: int, placement: str, kernel: Kernel, *, prepared: bool) -> None:
        super().__init__(nic, size, placement, kernel)
        self.who = "CPU, prepared" if prepared else "CPU, built"
        self.bursts = not prepared
        self._queue = self._keep(nic.host_queue_pair(depth=_DEPTH))
        connect(self._queue, self._keep(nic.host_queue_pair(depth=64)))
        self._any = self.pair()  # the kernel's parameter; nothing is posted to it
        self._post: Callable[[int, int], None] = self._prepared(size) if prepared else self._built

    def _prepared(self, size: int) -> Callable[[int, int], None]:
        batch = self._queue.prepare(self.requests(size, 1))
        return lambda size, burst: self._queue.post(batch)

    def _built(self, size: int, burst: int) -> None:
        """At the offsets that the kernel has left."""
        if burst == 1:
            offset = int.from_bytes(self.words.read(8 * _OFFSETS, 8), "little")
            self._queue.put(self.target, offset, self.source, offset, size)
            return
        offsets = np.frombuffer(self.words.read(8 * _OFFSETS, 8 * burst), np.uint64)
        rows = self.requests(size, burst)
        rows["local_addr"] += offsets
        rows["remote_addr"] += offsets
        self._queue.post(rows)

    def rounds(self, size: int, rounds: int, burst: int) -> np.ndarray:
        """From the end of one kernel to the begin of the next one."""
        for number in range(rounds + 1):
            self.kernel.gda_kernel_moments[1, 1](
                self._any, 0, DEADLINE_NS, self.times, number, self.words, size, _PIECES, burst
            )
            if number < rounds:
                self._post(size, burst)
                self._queue.wait(1, seconds=DEADLINE_NS / 1e9)
        return self.read_gaps(rounds)


class Streamed(Prepared):
    """The stream rings what the CPU has written."""

    who = "stream, prepared"

    def __init__(
        self, nic: Nic, size: int, placement: str, kernel: Kernel, queues: str, *, stream: Stream | None = None
    ) -> None:
        super().__init__(nic, size, placement, kernel, queues)
        try:
            self._stream = StreamTriggered(kernel, self.queue, stream)
        except BaseException:
            self.close()
            raise

    def rounds(self, size: int, rounds: int, burst: int) -> np.ndarray:
        """From the end of one kernel of the stream to the moment at which the next one has seen the completion."""
        times = []
        for start in range(0, rounds, AT_ONCE):
            count = min(AT_ONCE, rounds - start)
            first = self.prepare(size, count)
            self._stream.run(first, count, (DEADLINE_NS, self.times), (self.words, size, _PIECES, 0))
            times.append(self.read_gaps(count))
        return np.concatenate(times)


@contextmanager
def _ways(nic: Nic, size: int, placement: str, queues: str) -> Iterator[tuple[list[_Way], list[str]]]:
    """All ways that this machine has, and why it has not the others."""
    kernel = Kernel(KERNELS)
    makers: list[tuple[str, Callable[[], _Way]]] = [
        ("CPU, built", lambda: AfterKernel(nic, size, placement, kernel, prepared=False)),
        ("CPU, prepared", lambda: AfterKernel(nic, size, placement, kernel, prepared=True)),
        ("CPU proxy", lambda: Proxy(nic, size, placement, kernel)),
        ("stream, prepared", lambda: Streamed(nic, size, placement, kernel, queues)),
        ("kernel, prepared", lambda: Prepared(nic, size, placement, kernel, queues)),
        ("kernel", lambda: Initiated(nic, size, placement, kernel, queues, owned=False)),
        ("kernel, own queue", lambda: Initiated(nic, size, placement, kernel, queues, owned=True)),
    ]
    ways: list[_Way] = []
    missing: list[str] = []
    try:
        for who, make in makers:
            try:
                ways.append(make())
            except (UnavailableError, CompileError) as error:
                missing.append(f"{who}: {error}")
        yield ways, missing
    finally:
        for way in ways:
            way.close()


def _measure(way: _Way, size: int, burst: int, seconds: float, beside: str) -> Turn:
    warm = float(np.median(way.rounds(size, _WARM_ROUNDS, burst)))
    rounds = max(_WARM_ROUNDS, min(_MOST_ROUNDS, int(seconds * 1e9 / max(1.0, warm))))
    times, took = [way.rounds(size, rounds, burst)], 0.0
    while (took := took + float(times[-1].sum())) < seconds * 1e9 and len(times) < 1000:
        times.append(way.rounds(size, rounds, burst))
    return _turn(way.who, beside, size, burst, np.concatenate(times))


def measure_triggers(
    nic: Nic, size: int = 8, *, placement: str = "host", queues: str = "host", seconds: float = 0.2, beside: bool = True
) -> tuple[list[Turn], list[str]]:
    """One put of `size` bytes by every way, and bursts by those that can; alone, and beside a matrix product.

    Also answers which ways this machine has not, and why.
    """
    with _ways(nic, size, placement, queues) as (ways, missing):
        wanted = [(way, 1) for way in ways] + [(way, BURST) for way in ways if way.bursts]
        turns = [_measure(way, size, burst, seconds, "") for way, burst in wanted]
        if beside:
            with load_of(nic) as load:
                turns += [_measure(way, size, burst, seconds, load.what) for way, burst in wanted]
    return turns, missing
