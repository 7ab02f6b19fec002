# SPDX-License-Identifier: Apache-2.0
"""What a trace costs an in-process put: `python tests/whole/trace_cost.py`. For docs/figures.md, run by hand.

Each figure is the median of a few medians, taken in turns so that a busy machine befalls all alike.
"""

from __future__ import annotations

from statistics import median

import numpy as np

import gda
from gda import attach, trace
from gda.sim import current

KERNELS = "#include <gda/kernels/bench.h>\n"
TURNS = 7
SIZES = (8, 4096, 65536, 1 << 20)


def main() -> None:
    current()
    plain, traced = (gda.Kernel(KERNELS, target="host", trace=on) for on in (False, True))
    with gda.open() as nic:
        source, target, times = nic.allocate(1 << 20), nic.allocate(1 << 20), nic.allocate(8 * 4096)
        a, _b = nic.loopback_pair()

        def put(kernel: gda.Kernel, size: int, every: int) -> float:
            rounds = 2000 if size < 1 << 17 else 200
            arguments = (a, target, source, size, rounds, 1, 10**10, times)
            if every == 0:
                kernel.gda_kernel_put_times[1, 1](*arguments)
            else:
                with trace.record(every=every):
                    kernel.gda_kernel_put_times[1, 1](*arguments)
            return float(np.median(np.frombuffer(times.read(0, 8 * rounds), dtype=np.int64)))

        print("| size | off | NIC and kernel | each fourth | each sixteenth |\n|---|---|---|---|---|")
        for size in SIZES:
            ways = ((plain, 0), (traced, 1), (traced, 4), (traced, 16))
            taken = [[put(kernel, size, every) for kernel, every in ways] for _ in range(TURNS)]
            off, *on = (median(column) for column in zip(*taken, strict=True))
            cells = [f"{ns / 1000:.2f} us ({(ns / off - 1) * 100:+.0f} %)" for ns in on]
            print(f"| {size} B | {off / 1000:.2f} us | {' | '.join(cells)} |")
    assert attach.loaded() is not None


if __name__ == "__main__":
    main()
