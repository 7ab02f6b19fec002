# SPDX-License-Identifier: Apache-2.0
"""docs/one_put.md is true: a put is run, and leaves the events that the table names, in the table's order."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import gda
from gda import trace
from gda.sim import current
from gda.tools.trace.events import kind_name

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "one_put.md"


def rows() -> list[list[str]]:
    """The table's cells."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def expected() -> list[tuple[str, str]]:
    """Who, and which event."""
    found = []
    for _, who, _, _, watch in rows():
        found += [(who, event) for event in re.findall(r"`(\w+)`", watch.partition("trace:")[2])]
    return found


def test_the_table_has_every_step() -> None:
    assert [int(row[0]) for row in rows()] == list(range(1, 13))
    assert {who for who, _ in expected()} == {"Python", "kernel", "NIC", "peer"}


@pytest.mark.parametrize("shared", [True, False])
def test_a_put_leaves_the_events_of_the_table_in_its_order(shared: bool) -> None:
    current()
    kernel = gda.Kernel("#include <gda/kernels/put.h>\n", target="host", trace=True)
    with gda.open() as nic:
        source, target = nic.register(np.arange(1024, dtype=np.uint8)), nic.allocate(1024)
        a, _b = nic.loopback_pair(shared=shared)
        current().set_thread("off")  # one processor's clock: of two, one may seem tens of nanoseconds ahead
        try:
            with trace.record() as t:
                kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 1024, 10**10)
        finally:
            current().set_thread("adaptive")
        assert target.read(0, 1024) == bytes(range(256)) * 4
    sources = {"python": "Python", "kernel": "kernel", "nic": "NIC"}
    noted = []
    for event in t.events:
        name, who = kind_name(event["kind"]), sources[t.actors[event["actor"]].source]
        noted.append(("peer" if name == "arrive" else who, name))
    assert [event for event in noted if event != ("Python", "wait")] == expected()
    times = t.events["time_ns"].tolist()
    assert all(earlier <= later for earlier, later in itertools.pairwise(times))
