# SPDX-License-Identifier: Apache-2.0
"""What connecting costs, for docs/figures.md: python tests/comm/connect_bench.py [--processes N] SIZE...

Ranks are threads of this process on one software NIC; with --processes N, N processes that `gda launch` starts, each
with a NIC of its own. CPU time is told beside the time that passed, for machines that do other things, too.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gda
from gda.comm import threads

DEADLINE_S = 300.0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_threads(size: int) -> None:
    """A team of so many threads: made, one barrier, closed."""
    carriers, told = threads(size), dict[str, Any]()
    before, begin, cpu = resident_bytes(), time.perf_counter(), time.process_time()

    def rank(number: int) -> None:
        with gda.init(carriers[number], nic=nic, depth=16, deadline_s=DEADLINE_S) as team:
            team.barrier()
            if number == 0:
                told["s"], told["cpu_s"] = time.perf_counter() - begin, time.process_time() - cpu
                told["bytes"] = (resident_bytes() - before) // size**2
                told["queue"] = team.memory_bytes_per_connection
            team.barrier()

    with gda.open() as nic:
        ranks = [threading.Thread(target=rank, args=(number,)) for number in range(size)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
    print(
        f"{size:5} {size * size:12} {told['s']:8.2f} {told['cpu_s']:8.2f} {1e3 * told['cpu_s'] / size**2:10.2f} "
        f"{1e3 * told['cpu_s'] / size:10.1f} {told['bytes'] / 1024:8.1f} {told['queue']:8}",
        flush=True,
    )


def as_rank() -> None:
    """What each process does: a team, a round of signals, a barrier."""
    begin = time.perf_counter()
    with gda.init(depth=16, deadline_s=DEADLINE_S) as team:
        signals = team.signals(1)
        made = time.perf_counter()
        signals.signal((team.rank + 1) % team.size, 0, deadline_s=DEADLINE_S)
        signals.wait_next(0, peer=(team.rank - 1) % team.size, deadline_s=DEADLINE_S)
        rounded = time.perf_counter()
        team.barrier()
        if team.rank == 0:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(team.report().splitlines()[1])
            print(
                f"{team.size} processes: team {made - begin:.2f} s, round of signals {rounded - made:.2f} s, CPU of "
                f"rank 0 {time.process_time():.2f} s, its memory {peak:.0f} MiB", flush=True,
            )  # fmt: skip
        team.barrier()


def main(arguments: list[str]) -> None:
    os.environ.setdefault("GDA_NIC", "software")
    if arguments[:1] == ["--rank"]:
        return as_rank()
    if arguments[:1] == ["--processes"]:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "gda", "launch", "-n", arguments[1], __file__, "--rank"], check=True)
        print(f"in all {time.perf_counter() - begin:.2f} s")
        return None
    print("ranks  queue pairs        s    CPU s  ms of each  ms of rank  KiB each  bytes of queue")
    for size in arguments:
        in_threads(int(size))
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
