# SPDX-License-Identifier: Apache-2.0
"""What posting alone costs: `python -m gda bench post`. No NIC: puts into rings that are never full.

Queues are `PlainQueue`s: on a GPU rings, records and handles in its memory and doorbell pages in pinned host memory.
All indices are set anew before each launch, and a launch posts at most as many requests as a ring holds. Its time is
from the first thread's begin to the last thread's end, by the kernel's clock. In the second lap all requests of the
first are complete, which the launch has to find out in the completion queue before it may use their slots.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gda import formats
from gda.errors import DeviceStatusError
from gda.nic.gpu import Gpu, use_gpu
from gda.nic.plain import PlainMemory, PlainQueue
from gda.run import Kernel

__all__ = ["BYTES", "DEPTH", "USUAL", "PostCost", "PostCount", "Shape", "count_post", "measure_post", "shapes"]

USUAL = ("record", "no-record")  # doorbell modes that are measured unless others are named
BYTES = 64  # of each put
DEPTH = 32768  # blocks of a ring, the most a queue can have
KERNELS = "#include <gda/kernels/bench.h>\n"
UNCHECKED = "-DGDA_UNCHECKED"
_SMALL_BLOCK = 128  # threads: kernels/bench.h has a kernel for these that is not short of registers
_ATOMICS = ("additions", "notes", "parkings", "swaps", "raises")  # meters of read-modify-writes
_SOURCE, _TARGET = 0x0000AABBCCDD0000, 0x1122334455660000  # nobody goes there


@dataclass(frozen=True)
class Shape:
    """Who posts. `own`: a queue for each block, else one for all; `owner`: one "thread" or "warp" owns it."""

    row: str
    who: str
    blocks: int
    threads: int
    own: bool = False
    owner: str = ""
    alone: bool = False  # one after the other: its figure is a time, not a rate


@dataclass(frozen=True)
class PostCost:
    """Time per 64-byte put of one shape, over `launches` launches of `posts` puts each."""

    row: str
    who: str
    doorbell: str  # a mode of docs/doorbells.md
    record: bool
    checks: bool
    posts: int
    launches: int
    ns_per_post: float
    fastest_ns_per_post: float
    alone: bool

    @property
    def posts_per_second(self) -> float:
        """Of all threads together."""
        return 1e9 / self.ns_per_post


@dataclass(frozen=True)
class PostCount:
    """What the library did for each put of one shape, counted in a launch of a kernel that is compiled to count.

    `atomics` are read-modify-writes of shared words, `fences` barriers of any name, `doorbells` writes to the NIC, or
    to the word that a host thread looks at.
    """

    row: str
    who: str
    doorbell: str
    record: bool
    posts: int
    fences: float
    atomics: float
    doorbells: float
    records: float


def shapes(blocks: int, threads: int) -> list[Shape]:
    """The twelve rows: `blocks` blocks (a GPU's multiprocessors) and blocks of `threads` threads where a row is large.

    Lanes that post a request each and together find each other: so a warp that shares a queue is the same in the rows
    of threads and in those of warps, which differ for libraries that have two functions for it. A queue of one's own is
    posted to by `gda_owner` and `gda_warp_owner`, but for the last row, where 1,024 threads share it.
    """
    warp = min(32, threads)
    return [
        Shape("thread_owned", "1 thread, own queue", 1, 1, True, "thread", alone=True),
        Shape("blocks_owned", f"{blocks} blocks x 1 thread, own queues", blocks, 1, True, "thread"),
        Shape("thread_shared", "1 thread, queue that all may share", 1, 1, alone=True),
        Shape("warp_thread_scope", "1 warp, each lane posts, one queue", 1, warp),
        Shape("warp_warp_scope", "1 warp, warp scope, one queue", 1, warp),
        Shape("block_threads", f"{threads:,} threads of a block, one queue", 1, threads),
        Shape("block_warps", f"{threads // warp} warps of a block, warp scope, one queue", 1, threads),
        Shape("blocks_threads", f"{blocks} blocks x {warp} threads, one queue", blocks, warp),
        Shape("warps_shared", f"{blocks} warps, warp scope, one queue", blocks, warp),
        Shape("blocks_shared", f"{blocks} blocks x 1 thread, one queue", blocks, 1),
        Shape("warps_own", f"{blocks} warps, own queues, warp scope", blocks, warp, True, "warp"),
        Shape("blocks_own_threads", f"{blocks} x {threads:,} threads, own queues", blocks, threads, True),
    ]


@dataclass
class _Arrays:
    """Where kernels read addresses and leave times, and how to get them back."""

    addresses: Any
    begins: Any
    ends: Any

    @classmethod
    def on(cls, gpu: Gpu | None, addresses: list[int], most_threads: int) -> _Arrays:
        values = np.array(addresses, np.uint64)
        if gpu is None:
            return cls(values, np.zeros(most_threads, np.uint64), np.zeros(most_threads, np.uint64))
        import cupy

        return cls(cupy.asarray(values), *(cupy.zeros(most_threads, cupy.uint64) for _ in range(2)))

    def took(self, threads: int) -> int:
        """Nanoseconds from the first begin to the last end."""
        begins, ends = (a if isinstance(a, np.ndarray) else a.get() for a in (self.begins, self.ends))
        return int(ends[:threads].max()) - int(begins[:threads].min())


@contextmanager
def _queues(gpu: Gpu | None, count: int, owned: bool, doorbell: str) -> Iterator[list[PlainQueue]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(PlainQueue(gpu, depth=DEPTH, owned=owned, doorbell=doorbell, qpn=0x100000 + i))
            for i in range(count)
        ]


def _size(gpu: Gpu | None) -> tuple[int, int]:
    """Blocks and threads of the large rows: the whole GPU; on a CPU, whose threads are played, a few."""
    if gpu is None:
        return 4, 64
    from gda import _cuda

    return _cuda.cuDeviceGetAttribute(_cuda.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu.device), 1024


def measure_post(
    *,
    doorbells: Iterable[str] = USUAL,
    checks: Iterable[bool] = (True,),
    launches: int = 9,
    rows: Iterable[str] = (),
    size: tuple[int, int] | None = None,
    second_lap: bool = False,
) -> list[PostCost]:
    """Measure the rows of `shapes` (all, or those named) for each doorbell mode, with and without checks.

    `size` are blocks and threads of the large rows. The median of `launches`, after one that does not count. Every
    launch is checked: all that was posted was told to the NIC. `second_lap`: the ring is not new, see above.
    """
    gpu, wanted = _wanted(rows, size)
    modes = list(doorbells)
    costs = []
    for checked in checks:
        kernel = Kernel(KERNELS, target="host" if gpu is None else "gpu", options=() if checked else (UNCHECKED,))
        for shape, queues, arrays in _prepared(gpu, wanted, modes):
            costs.append(_measure(kernel, shape, queues, arrays, launches, checked=checked, lap=int(second_lap)))
    order = {shape.row: number for number, shape in enumerate(wanted)}
    return sorted(costs, key=lambda cost: (not cost.checks, order[cost.row], modes.index(cost.doorbell)))


def count_post(
    *,
    doorbells: Iterable[str] = USUAL,
    rows: Iterable[str] = (),
    size: tuple[int, int] | None = None,
    second_lap: bool = False,
) -> list[PostCount]:
    """Count what the rows of `measure_post` do, each in one launch of another kernel: counting takes time."""
    gpu, wanted = _wanted(rows, size)
    kernel = Kernel(KERNELS, target="host" if gpu is None else "gpu", meter=True)
    modes = list(doorbells)
    counts = [
        _count(kernel, shape, queues, arrays, int(second_lap))
        for shape, queues, arrays in _prepared(gpu, wanted, modes)
    ]
    order = {shape.row: number for number, shape in enumerate(wanted)}
    return sorted(counts, key=lambda count: (order[count.row], modes.index(count.doorbell)))


def _wanted(rows: Iterable[str], size: tuple[int, int] | None) -> tuple[Gpu | None, list[Shape]]:
    gpu, _ = use_gpu(0)
    blocks, threads = size or _size(gpu)
    named = set(rows)
    return gpu, [shape for shape in shapes(blocks, threads) if not named or shape.row in named]


def _prepared(
    gpu: Gpu | None, wanted: list[Shape], modes: list[str]
) -> Iterator[tuple[Shape, list[PlainQueue], _Arrays]]:
    """Each shape with queues of its kind."""
    for owned in sorted({shape.owner != "" for shape in wanted}):
        these = [shape for shape in wanted if (shape.owner != "") == owned]
        count = max(shape.blocks if shape.own else 1 for shape in these)
        for mode in modes:
            with _queues(gpu, count, owned, mode) as queues:
                arrays = _Arrays.on(gpu, [q.address for q in queues], max(s.blocks * s.threads for s in these))
                for shape in these:
                    yield shape, queues, arrays


def _region() -> tuple[PlainMemory, PlainMemory]:
    return PlainMemory(_TARGET, DEPTH * BYTES), PlainMemory(_SOURCE, DEPTH * BYTES)


@dataclass
class _Launcher:
    """Launches of one shape: all queues as new before each, and looked at after it."""

    kernel: Kernel
    shape: Shape
    queues: list[PlainQueue]
    arrays: _Arrays
    lap: int

    def __post_init__(self) -> None:
        self.used = self.queues[: self.shape.blocks if self.shape.own else 1]
        self.threads = self.shape.blocks * self.shape.threads
        self.iterations = DEPTH * len(self.used) // self.threads
        self.posts = self.iterations * self.threads
        small = self.shape.threads <= _SMALL_BLOCK
        post = {
            "": self.kernel.gda_kernel_post_small if small else self.kernel.gda_kernel_post_alone,
            "thread": self.kernel.gda_kernel_post_owner,
            "warp": self.kernel.gda_kernel_post_warp_owner,
        }
        self.function = post[self.shape.owner]

    def launch(self) -> int:
        """Nanoseconds that it took."""
        for queue in self.used:
            queue.reset(self.lap * DEPTH, unread=self.lap * DEPTH)
        arrays, shape = self.arrays, self.shape
        self.function[shape.blocks, shape.threads](
            arrays.addresses, int(shape.own), *_region(), BYTES, self.iterations, arrays.begins, arrays.ends
        )
        took = arrays.took(self.threads)
        for queue in self.used:
            _check(queue, self.lap * DEPTH + self.posts // len(self.used), shape.row)
        return took


def _measure(
    kernel: Kernel, shape: Shape, queues: list[PlainQueue], arrays: _Arrays, launches: int, *, checked: bool, lap: int
) -> PostCost:
    launcher = _Launcher(kernel, shape, queues, arrays, lap)
    times = [launcher.launch() for _ in range(launches + 1)][1:]
    posts = launcher.posts
    return PostCost(
        shape.row, shape.who, launcher.used[0].mode, launcher.used[0].has_record, checked, posts, launches,
        statistics.median(times) / posts, min(times) / posts, shape.alone,
    )  # fmt: skip


def _count(kernel: Kernel, shape: Shape, queues: list[PlainQueue], arrays: _Arrays, lap: int) -> PostCount:
    launcher = _Launcher(kernel, shape, queues, arrays, lap)
    kernel.clear_meters()
    launcher.launch()
    meters = kernel.meters()
    fences = sum(count for name, count in meters.items() if "_before_" in name)
    atomics = sum(meters[name] for name in _ATOMICS)
    told = meters["doorbells"] + meters["blueflames"] + meters["asked"]
    counts = (count / launcher.posts for count in (fences, atomics, told, meters["records"]))
    queue = launcher.used[0]
    return PostCount(shape.row, shape.who, queue.mode, queue.has_record, launcher.posts, *counts)


def _check(queue: PlainQueue, index: int, row: str) -> None:
    """A figure of a queue that lost a request would be worthless."""
    state = queue.read_handle()
    seen = {name: int(state[name]) for name in ("reserved", "ready", "rung")}
    if queue.has_record:  # a doorbell may then be overtaken by an earlier one: the NIC reads the record
        seen["record"] = queue.send_counter - index % 65536 + index
    else:
        seen["doorbell"] = int(formats.send_doorbell.unpack(queue.doorbell)["wqe_index"]) - index % 65536 + index
    if any(value != index for value in seen.values()):
        raise DeviceStatusError(
            f"bench post, row {row}: the queue should stand at {index}, but says {seen}",
            advice="this is a defect of the device library; the figures of this row mean nothing",
        )
