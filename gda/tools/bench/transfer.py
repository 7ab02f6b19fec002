# SPDX-License-Identifier: Apache-2.0
"""Puts from post to completion, by a kernel and by the CPU, alone and beside a matrix product: what each costs whom.

Used by the commands latency, rate, bandwidth and cpu (report.py). One `Cost` is one side, one size, one burst: how long
rounds take, and what the run took of the CPU and of the GPU. CPU time is that of the process, without the matrix
product's thread; the software NIC's own thread is counted apart, since a card has none. On the CPU target kernels and
the NIC share the processor: a waiting kernel lets the NIC run in its own thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

import numpy as np

from gda.errors import CompileError, UnavailableError
from gda.nic import Nic
from gda.run import Kernel
from gda.tools.bench.cpu_time import NIC_THREAD, by_thread
from gda.tools.bench.load import Load, load_of
from gda.tools.bench.sides import MOST_ROUNDS, CpuSide, KernelSide, Rounds, Side, summary
from gda.tools.bench.triggers import KERNELS as TRIGGERS
from gda.tools.bench.triggers import Proxy

__all__ = ["Cost", "ceiling_bytes_per_second", "measure_costs"]

_WARM_ROUNDS = 20
_BYTES_A_LAUNCH = 1 << 28  # keeps a launch of large puts far from the kernel's deadline


@dataclass(frozen=True)
class Cost(Rounds):
    """What rounds took. Times in nanoseconds; those by put are of the whole run.

    `sm_ns_per_put`: how long blocks of the kernel were on multiprocessors (0: nothing ran on a GPU). `load_flops` and
    `load_alone_flops`: the matrix product's speed meanwhile and without puts (0: there was none). `threads`: the CPU
    time of a put by thread; "ended" are threads that lived for a launch (kernels on the CPU, a proxy).
    """

    per_second: float
    cpu_ns_per_put: float
    nic_cpu_ns_per_put: float
    sm_ns_per_put: float
    load_flops: float = 0.0
    load_alone_flops: float = 0.0
    threads: dict[str, float] = field(default_factory=dict)

    @property
    def bytes_per_second(self) -> float:
        """Payload."""
        return self.per_second * self.bytes

    @property
    def load_lost(self) -> float:
        """What part of the matrix product's speed the puts took: 0 to 1; below 0 by chance."""
        return 1 - self.load_flops / self.load_alone_flops if self.load_alone_flops else 0.0


class _Cpu:
    """CPU time of this process since it was made, by thread; without the load's."""

    def __init__(self, load: Load | None) -> None:
        self._load = load
        self._threads = self._by_thread()
        self._total = self._all()

    def _all(self) -> int:
        return time.process_time_ns() - (self._load.cpu_ns if self._load else 0)

    def _by_thread(self) -> dict[int, tuple[str, int]]:
        load = self._load
        return {number: one for number, one in by_thread().items() if load is None or number != load.thread}

    def since(self) -> dict[str, int]:
        """Nanoseconds by name: "main" is Python's, "ended" of threads that are no more."""
        total = self._all() - self._total
        used: dict[str, int] = {}
        for number, (name, now) in self._by_thread().items():
            before = self._threads.get(number, ("", 0))[1]
            used[name] = used.get(name, 0) + now - before
        used["ended"] = max(0, total - sum(used.values()))
        return {name: ns for name, ns in used.items() if ns}


def _measure(side: Side, size: int, burst: int, seconds: float, load: Load | None) -> Cost:
    warm = side.rounds(size, _WARM_ROUNDS, burst)
    most = max(1, min(MOST_ROUNDS, _BYTES_A_LAUNCH // max(1, size * burst)))
    rounds = max(20, min(most, side.most_rounds, int(seconds * 1e9 / max(1.0, float(np.median(warm))))))
    times: list[np.ndarray] = []
    flops, cpu, start = (load.flops() if load else 0.0), _Cpu(load), time.monotonic()
    while not times or time.monotonic() - start < seconds:
        times.append(side.rounds(size, rounds, burst))
    wall = time.monotonic() - start
    used = cpu.since()
    nic = used.get(NIC_THREAD, 0)
    done = (load.flops() - flops) / wall if load else 0.0
    ns = np.concatenate(times)
    puts, total = len(ns) * burst, float(ns.sum())
    return Cost(
        side.who, load.what if load else "", size, burst, *summary(ns), puts / total * 1e9,
        (sum(used.values()) - nic) / puts, nic / puts, total * side.blocks / puts, done,
        threads={name: ns / puts for name, ns in used.items()},
    )  # fmt: skip


def measure_costs(
    nic: Nic,
    sizes: Iterable[int],
    bursts: Iterable[int],
    *,
    placement: str = "host",
    queues: str = "host",
    seconds: float = 0.2,
    beside: bool = True,
    proxy: bool = False,
) -> list[Cost]:
    """Every size and burst, by a kernel's thread and by the CPU (and by a proxy), alone and beside a GEMM.

    `seconds` is how long each figure is measured at least.
    """
    sizes, bursts = list(sizes), list(bursts)
    with ExitStack() as stack:
        sides: list[Side] = []
        makers: tuple[Callable[[], Side], ...] = (
            lambda: KernelSide(nic, max(sizes), placement, queues),
            lambda: CpuSide(nic, max(sizes), placement),
        )
        for make in makers:
            sides.append(make())
            stack.callback(sides[-1].close)
        if proxy:
            with suppress(UnavailableError, CompileError):  # no compiler for the CPU: report.py says so
                sides.append(Proxy(nic, max(sizes), placement, Kernel(TRIGGERS)))
                stack.callback(sides[-1].close)
        wanted = [(side, size, burst) for side in sides for size in sizes for burst in bursts]
        costs = [_measure(*one, seconds, None) for one in wanted]
        if beside:
            with load_of(nic) as load:
                alone = _speed(load, max(seconds, 0.2))
                costs += [replace(_measure(*one, seconds, load), load_alone_flops=alone) for one in wanted]
    return costs


def _speed(load: Load, seconds: float) -> float:
    start, before = time.monotonic(), load.flops()
    time.sleep(seconds)
    return (load.flops() - before) / (time.monotonic() - start)


# ------------------------------------------------------------------------------------------------------------ ceilings
# InfiniBand Architecture Specification, PortInfo: gigabits a second of a lane, and lanes.
_SPEEDS = {1: 2.5, 2: 5.0, 4: 10.0, 8: 10.0, 16: 14.0625, 32: 25.78125, 64: 53.125, 128: 106.25}
_WIDTHS = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}


def ceiling_bytes_per_second(nic: Nic, size: int, placement: str) -> tuple[str, float]:
    """What the transport cannot pass, and its name: a card's link; for the software NIC one copy of the bytes."""
    if not nic.is_software:
        from gda import _verbs

        port = _verbs.ibv_query_port(nic.context, nic.port.number)
        rate = _SPEEDS.get(int(port["active_speed"]), 0.0) * _WIDTHS.get(int(port["active_width"]), 0)
        return f"link, {rate:g} Gb/s", rate * 1e9 / 8
    repeats = max(5, (1 << 26) // max(size, 1) // 100)
    if placement == "gpu":
        import cupy

        source, target = (cupy.zeros(size, cupy.uint8) for _ in "st")
        stream = cupy.cuda.Stream(non_blocking=True)
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(stream)
        for _ in range(repeats):
            target.data.copy_from_device_async(source.data, size, stream)
        end.record(stream)
        end.synchronize()
        return "one copy in GPU memory", size * repeats / (cupy.cuda.get_elapsed_time(begin, end) / 1e3)
    one, other = np.zeros(size, np.uint8), np.ones(size, np.uint8)
    best = 1e18
    for _ in range(min(repeats, 1000)):
        start = time.perf_counter_ns()
        np.copyto(one, other)
        best = min(best, time.perf_counter_ns() - start)
    return "one copy by a CPU core", size / best * 1e9
