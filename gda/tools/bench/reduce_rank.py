# SPDX-License-Identifier: Apache-2.0
"""One rank of `python -m gda bench collectives`. Started by collectives.py: as a process that measures and, as rank 0,
prints JSON, `python -m gda.tools.bench.reduce_rank device SECONDS SIZE...`, with `mpi` under mpirun; where ranks share
a GPU, as a thread.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import gda
from gda.comm.collectives.reduce import PROTOCOLS, AllReduce

__all__ = ["ALGORITHMS", "device", "times_kernel"]

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


def _name(protocol: str) -> str:
    return f"gda_kernel_all_reduce_times<{PROTOCOLS[protocol][0]},float,gda_sum>"


def times_kernel(target: str) -> gda.Kernel:
    """The kernel that measures, by each protocol. Ranks that share a GPU share it, too: loading waits for kernels."""
    return gda.Kernel("#include <gda/kernels/reduce.h>\n", target=target, names=[_name(one) for one in PROTOCOLS])


def _zeros(kernel: gda.Kernel, count: int, dtype: str) -> Any:
    """An array where the kernel is."""
    if kernel.target == "host":
        return np.zeros(count, dtype)
    import cupy

    return cupy.zeros(count, dtype)


def _in_kernel(reduce: AllReduce, kernel: gda.Kernel, rounds: int) -> np.ndarray[Any, Any]:
    ns = _zeros(kernel, rounds, "uint64")
    kernel[_name(reduce.protocol)].start[1, reduce.threads](
        reduce.team, reduce.window, reduce.count, reduce.staging, reduce.signals, int(reduce.algorithm == "doubling"),
        rounds, ns, int(_DEADLINE_S * 1e9),
    ).wait(_DEADLINE_S + 5)  # fmt: skip
    return np.asarray(ns.get() if hasattr(ns, "get") else ns)


def _by_calls(call: Callable[[], None], rounds: int) -> np.ndarray[Any, Any]:
    ns = np.zeros(rounds, np.int64)
    for i in range(rounds):
        begin = time.perf_counter_ns()
        call()
        ns[i] = time.perf_counter_ns() - begin
    return ns


def device(
    seconds: float, sizes: Sequence[int], kernel: gda.Kernel, *, carrier: Any = None, queues: str = "host",
    protocols: Iterable[str] = PROTOCOLS,
) -> list[dict[str, Any]]:  # fmt: skip
    """All-reduce on the device, every algorithm and protocol: inside of one launch, and the best of them by calls.

    The arrays lie where the kernel runs. The rows are rank 0's; other ranks have none.
    """
    rows = []
    with gda.init(carrier, deadline_s=_DEADLINE_S, placement=queues) as team:
        for size in sizes:
            for algorithm in ALGORITHMS:
                for protocol in protocols:
                    array = _zeros(kernel, size // 4, "float32")
                    with team.all_reduce(array, algorithm=algorithm, protocol=protocol) as one:
                        team.barrier()
                        once = float(np.median(_in_kernel(one, kernel, 5)))
                        # All ranks make as many rounds.
                        rounds = int(team.bootstrap.allgather(str(_rounds(seconds, once)).encode())[0])
                        times = _in_kernel(one, kernel, rounds)
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
    given = float(sys.argv[2]), [int(size) for size in sys.argv[3:]]
    measured = mpi(*given) if sys.argv[1] == "mpi" else device(*given, times_kernel("host"))
    if measured:
        print(json.dumps(measured))
