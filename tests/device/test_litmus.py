# SPDX-License-Identifier: Apache-2.0
"""Two threads and two words, on a GPU and on the CPU: what the library's barriers forbid is never seen.

The patterns without a barrier say how weak the machine is: their weak outcomes are reported, not judged. The order in
all executions is explored on a model (test_model.py); this is what a real memory does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gda.run import Kernel

SOURCE = Path(__file__).parent / "litmus.cu"
PATTERNS = ("note, bare", "note", "record, bare", "record", "hand-over, bare", "hand-over")  # of litmus.cu
OUTCOMES = ("neither", "first", "both", "weak")
COUNT = 65_521  # a prime, so that every meeting takes place


def meet(
    xp: Any, kernel: Kernel, pattern: str, *, blocks: int, threads: int, count: int, system: int, seed: int
) -> Any:
    """One launch: how often each outcome was seen."""
    cells, words = xp.zeros(64 * count, xp.uint8), xp.zeros(count, xp.uint64)
    seen, outcomes, scratch = xp.zeros(count, xp.uint8), xp.zeros(4, xp.uint64), xp.zeros(1024, xp.uint64)
    if xp is not np:
        xp.cuda.Stream.null.synchronize()  # the zeros are there: launches have streams of their own
    what = PATTERNS.index(pattern)
    kernel.litmus[3 * blocks, threads](cells, words, seen, outcomes, scratch, count, what, system, seed)
    if pattern.startswith("hand-over"):
        outcomes[1] = 0
        if xp is not np:
            xp.cuda.Stream.null.synchronize()
        kernel.judge[blocks, threads](cells, seen, outcomes, count)
    return np.array([int(n) for n in outcomes])


def check(pattern: str, total: Any, count: int) -> None:
    found = dict(zip(OUTCOMES, map(int, total), strict=True))
    print(f"{pattern}: {found}")
    assert sum(found.values()) == count, "every meeting took place"
    if not pattern.endswith("bare"):
        assert found["weak"] == 0


@pytest.mark.parametrize("pattern", PATTERNS)
def test_on_the_cpu(pattern: str) -> None:
    kernel = Kernel(SOURCE, target="host")
    total = sum(meet(np, kernel, pattern, blocks=1, threads=8, count=997, system=0, seed=seed) for seed in range(1, 4))
    check(pattern, total, 3 * 997)


@pytest.mark.gpu
@pytest.mark.parametrize("system", [0, 1])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_on_a_gpu(pattern: str, system: int) -> None:
    import cupy

    kernel = Kernel(SOURCE, target="gpu")
    kernel.deadline_s = 20
    seeds = range(1, 17)
    shapes = [(1, 1), (4, 32), (16, 64), (40, 128)]
    total = sum(
        meet(cupy, kernel, pattern, blocks=blocks, threads=threads, count=COUNT if blocks > 1 else 1021, system=system,
             seed=seed)
        for seed in seeds for blocks, threads in shapes
    )  # fmt: skip
    check(pattern, total, len(seeds) * (1021 + 3 * COUNT))
