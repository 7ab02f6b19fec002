# SPDX-License-Identifier: Apache-2.0
"""All collectives for 1 to 9 ranks, from no byte to 4 MiB, on a network that loses packets, compared with NumPy.

Run by hand, for it takes minutes: `python -m tests.comm.collectives.matrix [--drop 1] [--ranks 1 2 3]`. It says what is
wrong, and ends with status 1 then.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np

from gda.comm import Team
from gda.comm.collectives.reduce import reference
from gda.sim import faults
from tests.comm.collectives.content import content
from tests.comm.conftest import teams

SIZES = (0, 1, 7, 4097, 65_536, (1 << 20) + 3, 4 << 20)  # bytes that a rank gives, or gets
DEADLINE_S = 120.0


def moved(team: Team, bytes: int) -> Iterator[tuple[str, bool]]:
    """Those that move bytes; each twice, with nothing between."""
    size, rank, piece = team.size, team.rank, bytes // team.size
    for algorithm in ("tree", "chain"):
        data = np.zeros(bytes, np.uint8)
        give = team.broadcast(data if bytes else 1, algorithm=algorithm, channels=2)
        for root in {0, size - 1}:
            data[:] = content(bytes, root) if rank == root else 0
            give(root, bytes=bytes, deadline_s=DEADLINE_S)
            yield f"broadcast, {algorithm}", bool((data == content(bytes, root)).all())
    for algorithm in ("ring", "direct"):
        pieces = np.zeros((size, piece), np.uint8)
        gather = team.all_gather(pieces if piece else size, algorithm=algorithm)
        for seed in range(2):
            pieces[rank] = content(piece, seed, rank)
            gather(bytes=piece, deadline_s=DEADLINE_S)
            yield f"all-gather, {algorithm}", all((pieces[r] == content(piece, seed, r)).all() for r in range(size))
    source, target = (np.zeros((size, piece), np.uint8) for _ in range(2))
    exchange = team.all_to_all(source if piece else size, target if piece else size)
    for seed in range(2):
        for peer in range(size):
            source[peer] = content(piece, seed, rank, peer)
        exchange(bytes=piece, deadline_s=DEADLINE_S)
        yield "all-to-all", all((target[r] == content(piece, seed, r, rank)).all() for r in range(size))
    counts = [(rank + peer) % 3 for peer in range(size)]  # rows, none for some
    width = max(1, piece // 2)
    rows, room, back = (np.zeros((2 * size, width), np.uint8) for _ in range(3))
    rows[:] = content(rows.size, rank).reshape(rows.shape)
    route = team.all_to_all_v(rows, room, back)
    for _ in range(2):
        came = route.dispatch(counts, deadline_s=DEADLINE_S)
        good = all(
            (room[one.start : one.start + one.count] == sent(r, size, width)[one.origin : one.origin + one.count]).all()
            for r, one in enumerate(came)
        )
        yield "all-to-all of rows", good and [one.count for one in came] == [(r + rank) % 3 for r in range(size)]
        route.combine(deadline_s=DEADLINE_S)
        yield "rows come back", bool((back[: sum(counts)] == rows[: sum(counts)]).all())


def sent(rank: int, size: int, width: int) -> np.ndarray:
    return content(2 * size * width, rank).reshape(2 * size, width)


def added(team: Team, bytes: int) -> Iterator[tuple[str, bool]]:
    """Those that compute, by each algorithm and protocol."""
    count = bytes // 4
    for algorithm in ("ring", "doubling", "scatter"):
        begin = [np.random.default_rng(rank).standard_normal(count).astype(np.float32) for rank in range(team.size)]
        expected = reference(begin, "sum", algorithm)[team.rank]
        for protocol in ("simple", "ll", "ll128"):
            array = begin[team.rank].copy()
            if algorithm == "scatter":
                scatter = team.reduce_scatter(array, protocol=protocol, channels=2)
                scatter(deadline_s=DEADLINE_S)
                good = array[scatter.own].tobytes() == expected[scatter.own].tobytes()
            else:
                team.all_reduce(array, algorithm=algorithm, protocol=protocol, channels=2)(deadline_s=DEADLINE_S)
                good = array.tobytes() == expected.tobytes()
            yield f"{algorithm}, {protocol}", good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drop", type=float, default=1.0, metavar="PERCENT", help="of packets (default 1)")
    parser.add_argument("--ranks", type=int, nargs="*", default=list(range(1, 10)))
    options = parser.parse_args()

    def work(team: Team) -> list[tuple[int, str, bool]]:
        return [(bytes, *one) for bytes in SIZES for each in (moved, added) for one in each(team, bytes)]

    wrong = 0
    for size in options.ranks:
        begin = time.monotonic()
        with faults(f"drop={options.drop:g}%,seed={size}"):
            answers = teams(size, work)
        bad = sorted({(bytes, name) for answer in answers for bytes, name, good in answer if not good})
        wrong += len(bad)
        took = time.monotonic() - begin
        print(f"{size} ranks: {len(answers[0])} calls each, {len(bad)} wrong, {took:.0f} s", flush=True)
        for bytes, name in bad:
            print(f"  {name}, {bytes} bytes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
