# SPDX-License-Identifier: Apache-2.0
"""Puts a second, one thing changed at a time: blocks, threads, queues, size, puts a doorbell, puts in flight.

Used by `python -m gda bench rate` (rate.py). Every launch is timed from its first thread's first put to its last
thread's last completion, by the kernels' clock. Ceilings: the NIC on prepared requests, of which one doorbell tells
(nobody has to post), and a CPU proxy that a kernel asks for bursts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from gda import _cuda
from gda.errors import CompileError, UnavailableError
from gda.nic import Memory, Nic
from gda.run import Kernel
from gda.tools.bench.load import load_of
from gda.tools.bench.sides import DEADLINE_NS, CpuSide
from gda.tools.bench.triggers import BURST, Prepared, Proxy
from gda.tools.bench.triggers import KERNELS as TRIGGERS

__all__ = ["SWEEPS", "Ceilings", "Point", "RateCost", "measure_ceilings", "measure_sweeps", "points"]

KERNELS = "#include <gda/kernels/rate.h>\n"
SWEEPS = {
    "blocks": "blocks, one queue",
    "threads": "threads of one block, one queue",
    "queues": "queues",
    "bytes": "bytes a put",
    "batch": "puts a doorbell, one thread",
    "in flight": "puts in flight, one thread",
}
SMALL = 8  # bytes
_DEPTH = 4096  # blocks of each queue
_OPEN = 32  # puts that a thread keeps open, if its queue has room
_WARM, _WARM_ALL = 64, 16384  # puts of each thread in the first launch, and of all
_MOST_BYTES = 1 << 28  # of a launch: keeps it far from the kernel's deadline
_PREPARED = 512  # requests, of half a ring
_TRIES = 10


@dataclass(frozen=True)
class Point:
    """One measurement of a sweep; `value` is what the sweep changes."""

    sweep: str
    value: int
    blocks: int = 1
    threads: int = 1
    queues: int = 1
    bytes: int = SMALL
    batch: int = 1
    in_flight: int = 2  # of each thread

    @property
    def all_threads(self) -> int:
        """Of the grid."""
        return self.blocks * self.threads


@dataclass(frozen=True)
class RateCost:
    """Puts a second at one point; the CPU's have no blocks and threads."""

    sweep: str
    value: int
    who: str
    beside: str
    blocks: int
    threads: int
    queues: int
    bytes: int
    batch: int
    in_flight: int
    puts: int
    per_second: float
    fastest_per_second: float

    @property
    def bytes_per_second(self) -> float:
        """Payload."""
        return self.per_second * self.bytes


@dataclass(frozen=True)
class Ceilings:
    """Puts a second that nobody's posting can pass: by size of the NIC alone; of a CPU proxy (None: there is none)."""

    nic: dict[int, float]
    proxy: float | None


def _open_puts(threads: int, queues: int, batch: int = 1) -> int:
    """How many puts each thread keeps open: all of a queue's threads together fill at most half of its ring."""
    most = max(1, _DEPTH // 2 * queues // threads)
    return max(2 * batch, min(_OPEN, most))


def points(processors: int) -> list[Point]:
    """All sweeps. `processors`: multiprocessors of the GPU; 0: kernels are played by the CPU, so few threads."""
    gpu = processors > 0
    warp = 32 if gpu else 1
    found: list[Point] = []

    def add(sweep: str, value: int, **shape: int) -> None:
        one = Point(sweep, value, **shape)
        if "in_flight" not in shape:
            shape["in_flight"] = _open_puts(one.all_threads, one.queues, one.batch)
        found.append(Point(sweep, value, **shape))

    for blocks in (1, 8, 32, processors) if gpu else (1, 2, 4):
        add("blocks", blocks, blocks=blocks, threads=warp)
    for threads in (1, 32, 256, 1024) if gpu else (1, 8, 32):
        add("threads", threads, threads=threads)
    for queues in (1, 2, 4, 8, 16) if gpu else (1, 2, 4):
        add("queues", queues, queues=queues, blocks=32 if gpu else 4, threads=warp)
    for size in (8, 64, 512, 4096, 65536):
        add("bytes", size, bytes=size, blocks=8 if gpu else 1, threads=warp)
    for batch in (1, 4, 16, 64):
        add("batch", batch, batch=batch, in_flight=128)
    for in_flight in (1, 8, 32, 128):
        add("in flight", in_flight, in_flight=in_flight)
    return found


class _Many:
    """Kernels of many threads, and as many queues as any point wants."""

    def __init__(self, nic: Nic, wanted: list[Point], placement: str, queues: str) -> None:
        self._open = ExitStack()
        self.kernel = Kernel(KERNELS)
        most = max(point.all_threads * point.bytes for point in wanted)
        self.source: Memory = self._open.enter_context(nic.allocate(most, placement=placement))
        self.target: Memory = self._open.enter_context(nic.allocate(most, placement=placement))
        addresses = []
        for _ in range(max(point.queues for point in wanted)):
            pair = nic.loopback_pair(placement=queues, depth=_DEPTH)
            for queue in pair:
                self._open.enter_context(queue)
            addresses.append(int.from_bytes(pair[0].__gda_argument__(self.kernel.target)[1], "little"))
        threads = max(point.all_threads for point in wanted)
        arrays = np.array(addresses, np.uint64), np.zeros(threads, np.uint64), np.zeros(threads, np.uint64)
        if self.kernel.target == "gpu":
            import cupy

            arrays = tuple(cupy.asarray(array) for array in arrays)
        self.arrays: Any = arrays

    def launch(self, point: Point, puts: int) -> float:
        """Nanoseconds of one launch of `puts` puts of each thread."""
        addresses, begins, ends = self.arrays
        self.kernel.gda_kernel_put_many[point.blocks, point.threads](
            addresses, point.queues, self.target, self.source, point.bytes, puts, point.batch, point.in_flight,
            DEADLINE_NS, begins, ends,
        )  # fmt: skip
        first, last = (a if isinstance(a, np.ndarray) else a.get() for a in (begins, ends))
        return float(last[: point.all_threads].max() - first[: point.all_threads].min())

    def measure(self, point: Point, seconds: float, beside: str) -> RateCost:
        """Launches for so long; the median of their rates."""
        each = max(point.in_flight, 2 * point.batch, min(_WARM, _WARM_ALL // point.all_threads))
        took = max(1.0, self.launch(point, each))
        most = max(1, _MOST_BYTES // (point.bytes * point.all_threads))
        puts = max(each, min(most, int(each * seconds * 1e9 / took / 4)))  # four launches or so
        rates: list[float] = []
        spent, count = 0.0, puts * point.all_threads
        while not rates or spent < seconds * 1e9:
            took = max(1.0, self.launch(point, puts))
            rates.append(count / took * 1e9)
            spent += took
        return RateCost(
            point.sweep, point.value, "kernel", beside, point.blocks, point.threads, point.queues, point.bytes,
            point.batch, point.in_flight, count * len(rates), float(np.median(rates)), max(rates),
        )  # fmt: skip

    def close(self) -> None:
        """Give everything back."""
        self._open.close()


def _by_cpu(side: CpuSide, point: Point, seconds: float, beside: str) -> RateCost:
    """A prepared batch from Python, one doorbell for all that is in flight."""
    burst = 32 if point.sweep == "bytes" else point.value
    warm = max(1.0, float(np.median(side.rounds(point.bytes, 20, burst))))
    most = max(20, min(4096, _MOST_BYTES // (point.bytes * burst)))
    ns = side.rounds(point.bytes, max(20, min(most, int(seconds * 1e9 / warm))), burst)
    return RateCost(
        point.sweep, point.value, "CPU", beside, 0, 0, 1, point.bytes, burst, burst, len(ns) * burst,
        burst / float(np.median(ns)) * 1e9, burst / float(ns.min()) * 1e9,
    )  # fmt: skip


def measure_sweeps(
    nic: Nic, *, placement: str = "host", queues: str = "host", seconds: float = 0.2, beside: bool = True
) -> list[RateCost]:
    """All points by kernels, and by the CPU those of one thread; alone, then beside a matrix product."""
    processors = 0
    if nic.gpu is not None:
        processors = _cuda.cuDeviceGetAttribute(_cuda.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, nic.gpu.device)
    wanted = points(processors)
    with ExitStack() as stack:
        many = _Many(nic, wanted, placement, queues)
        stack.callback(many.close)
        cpu = CpuSide(nic, max(point.bytes for point in wanted), placement)
        stack.callback(cpu.close)

        def measured(what: str) -> Iterator[RateCost]:
            for point in wanted:
                yield many.measure(point, seconds, what)
            for point in wanted:
                if point.sweep in ("bytes", "in flight"):
                    yield _by_cpu(cpu, point, seconds, what)

        costs = list(measured(""))
        if beside:
            with load_of(nic) as load:
                costs += measured(load.what)
    return costs


def measure_ceilings(nic: Nic, *, placement: str = "host", queues: str = "host") -> Ceilings:
    """The NIC alone and the proxy, each the best of a few."""
    kernel = Kernel(TRIGGERS)
    by_size = {}
    for size in dict.fromkeys(point.bytes for point in points(0)):
        with closing(Prepared(nic, size, placement, kernel, queues)) as prepared:
            by_size[size] = _PREPARED / min(prepared.all_at_once(size, _PREPARED) for _ in range(_TRIES)) * 1e9
    try:
        proxy = Proxy(nic, SMALL, placement, kernel)
    except (UnavailableError, CompileError):
        return Ceilings(by_size, None)
    with closing(proxy):
        return Ceilings(by_size, BURST / float(np.median(proxy.rounds(SMALL, 200, BURST))) * 1e9)
