# SPDX-License-Identifier: Apache-2.0
"""Bytes on the wire: what each rank's own NIC counts is what the model's steps say, to the byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gda.comm.collectives import all_gather, all_to_all, all_to_all_v, broadcast
from gda.comm.collectives.collective import Transfer
from tests.comm.collectives.wire import BYTES, COLLECTIVES

SIGNAL = 8  # bytes

STEPS = {
    "broadcast by tree": lambda n: broadcast.tree(n, 0, BYTES),
    "broadcast by chain": lambda n: broadcast.chain(n, 0, BYTES, 12_000),
    "all-gather by ring": lambda n: all_gather.ring(n, BYTES),
    "all-gather direct": lambda n: all_gather.direct(n, BYTES),
    "all-to-all": lambda n: all_to_all.rotated(n, BYTES),
    "rows to ranks": lambda n: all_to_all_v.dispatch(counts(n), counts(n), 1),  # where they lie does not matter here
    "rows and back": lambda n: (
        all_to_all_v.dispatch(counts(n), counts(n), 1) + all_to_all_v.back(counts(n), counts(n), 1)
    ),
}
# What a rank sends at most, in units of BYTES; of the all-to-all, its own piece comes back to it.
BOUNDS = {
    "broadcast by tree": lambda n: (n - 1).bit_length(),
    "broadcast by chain": lambda n: min(1, n - 1),
    "all-gather by ring": lambda n: n - 1,
    "all-gather direct": lambda n: n - 1,
    "all-to-all": lambda n: n - 1 + 1,
    "rows to ranks": lambda n: n * n,  # the last rank's
    "rows and back": lambda n: n * n + n * (n + 1) // 2,  # and what came back from it
}
# To each peer: a count and a place, their signal; a place, its signal; that of the rows. On the way back: two.
WORDS = {"rows to ranks": 6, "rows and back": 8}


def counts(size: int) -> list[list[int]]:
    return [[BYTES * (rank + 1)] * size for rank in range(size)]


@pytest.fixture(scope="module")
def counted() -> dict[tuple[str, int], list[int]]:
    environment = {**os.environ, "GDA_NIC": "software", "GDA_SIM_NICS": "8", "GDA_TARGET": "host"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.comm.collectives.wire"], cwd=Path(__file__).parents[3], env=environment,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {(name, size): sent for name, size, sent in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("size", [1, 2, 5, 8])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_bytes_of_each_rank(counted, name: str, size: int) -> None:
    steps: list[Transfer] = STEPS[name](size)
    expected = []
    for rank in range(size):
        puts = [one for one in steps if one.sender == rank]
        admitted = {one.sender for one in steps if one.receiver == rank}
        data = sum(one.bytes for one in puts)
        assert data <= BOUNDS[name](size) * BYTES
        expected.append(data + SIGNAL * (WORDS[name] * size if name in WORDS else len(puts) + len(admitted)))
    assert counted[name, size] == expected
    assert max(expected) >= BOUNDS[name](size) * BYTES
