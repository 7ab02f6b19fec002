# SPDX-License-Identifier: Apache-2.0
"""One rank of `python -m gda bench collectives`: a process that measures and, as rank 0, prints JSON. Started by
collectives.py: as `python -m gda.tools.bench.reduce_rank device SECONDS SIZE...`, and with `mpi` under mpirun.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gda
from gda.comm.collectives.reduce import PROTOCOLS, AllReduce

__all__ = ["ALGORITHMS"]

ALGORITHMS = ("doubling", "ring")
_SERIES = 10  # calls
_MOST_ROUNDS = 5000
_DEADLINE_S = 60.0


def _rounds(seconds: float, once_ns: float) -> int:
    return int(max(_SERIES, min(_MOST_ROUNDS, seconds * 1e9 / max(once_ns, 1.0))))


def _row(who: str, size: int, ns: np.ndarray[Any, Any], algorithm: str = "", protocol: str = "") -> dict[str, Any]:
    """Times of series of calls: of one alone a rank that comes late would tell only how long it found all there."""
    series = [part.mean() for part in np.array_split(ns, max(1, len(ns) // _SERIES))]
    return {
        "who": who, "algorithm": algorithm, "protocol": protocol, "bytes": size, "rounds": len(ns),
        "median_ns": float(np.median(series)), "fastest_ns": float(min(series)),
    }  # fmt: skip


def _in_kernel(reduce: AllReduce, kernel: gda.Kernel, protocol: str, rounds: int) -> np.ndarray[Any, Any]:
    name = f"gda_kernel_all_reduce_times<{PROTOCOLS[protocol][0]},float,gda_sum>"
    ns = np.zeros(rounds, np.uint64)
    kernel[name].start[1, 1](
        reduce.team, reduce.window, reduce.count, reduce.staging, reduce.signals, int(reduce.algorithm == "doubling"),
        rounds, ns, int(_DEADLINE_S * 1e9),
    ).wait(_DEADLINE_S + 5)  # fmt: skip
    return ns


def _by_calls(call: Callable[[], None], rounds: int) -> np.ndarray[Any, Any]:
    ns = np.zeros(rounds, np.int64)
    for i in range(rounds):
        begin = time.perf_counter_ns()
        call()
        ns[i] = time.perf_counter_ns() - begin
    return ns


def device(seconds: float, sizes: list[int]) -> list[dict[str, Any]]:
    """All-reduce on the device, every algorithm and protocol: inside of one launch, and the best of them by calls."""
    names = [f"gda_kernel_all_reduce_times<{policy[0]},float,gda_sum>" for policy in PROTOCOLS.values()]
    kernel = gda.Kernel("#include <gda/kernels/reduce.h>\n", target="host", names=names)
    rows = []
    with gda.init(deadline_s=_DEADLINE_S) as team:
        for size in sizes:
            for algorithm in ALGORITHMS:
                for protocol in PROTOCOLS:
                    array = np.zeros(size // 4, np.float32)
                    with team.all_reduce(array, algorithm=algorithm, protocol=protocol) as one:
                        team.barrier()
                        once = float(np.median(_in_kernel(one, kernel, protocol, 5)))
                        # All ranks make as many rounds.
                        rounds = int(team.bootstrap.allgather(str(_rounds(seconds, once)).encode())[0])
                        times = _in_kernel(one, kernel, protocol, rounds)
                        rows.append(_row("kernel", size, times, algorithm, protocol))
                        if protocol == "simple":
                            calls = _by_calls(one, min(rounds, 100))
                            rows.append(_row("launch a call", size, calls, algorithm, protocol))
                        team.barrier()
    return rows if team.rank == 0 else []


def mpi(seconds: float, sizes: list[int]) -> list[dict[str, Any]]:
    """mpi4py's Allreduce, in place."""
    from mpi4py import MPI

    rows = []
    for size in sizes:
        array = np.zeros(size // 4, np.float32)

        def call(array: Any = array) -> None:
            MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, array)

        once = float(np.median(_by_calls(call, 5)))
        rounds = MPI.COMM_WORLD.bcast(_rounds(seconds, once))
        rows.append(_row("mpi4py", size, _by_calls(call, rounds)))
    return rows if MPI.COMM_WORLD.rank == 0 else []


if __name__ == "__main__":
    measured = {"device": device, "mpi": mpi}[sys.argv[1]](float(sys.argv[2]), [int(size) for size in sys.argv[3:]])
    if measured:
        print(json.dumps(measured))
