# SPDX-License-Identifier: Apache-2.0
"""The trace for Perfetto: every event as the format wants it, arrows that bind, and a file that can be read back."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gda
from gda import trace
from gda.errors import ArgumentError
from gda.sim import current
from gda.tools.trace.puts import STAGES

PUTS = 40


@pytest.fixture(scope="module")
def recorded() -> trace.Trace:
    current()
    kernel = gda.Kernel("#include <gda/kernels/put.h>\n", target="host", trace=True)
    with gda.open() as nic, trace.record() as t:
        source, target = nic.allocate(1 << 16), nic.allocate(1 << 16)
        a, _b = nic.loopback_pair()
        kernel.gda_kernel_put[1, PUTS](a, target, 0, source, 0, 256, 10**10)
    return t


@pytest.fixture(scope="module")
def saved(recorded: trace.Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chrome") / "put.json"
    recorded.save(path)
    return path


# What each phase must have, beyond name, ph, pid and tid. Source: "Trace Event Format".
NEEDS = {"X": {"ts", "dur"}, "i": {"ts", "s"}, "M": {"args"}, "s": {"ts", "id", "cat"}, "t": {"ts", "id", "cat"},
         "f": {"ts", "id", "cat", "bp"}}  # fmt: skip


def test_every_event_is_as_the_format_wants_it(saved: Path) -> None:
    content = json.loads(saved.read_text())
    assert content["displayTimeUnit"] in ("ms", "ns")
    assert content["traceEvents"]
    for event in content["traceEvents"]:
        assert event["ph"] in NEEDS, event
        assert NEEDS[event["ph"]] | {"name", "pid", "tid"} <= set(event), event
        assert isinstance(event["name"], str)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 1) > 0 or event["cat"] == "launch"


def test_lanes_have_names_and_an_order(saved: Path) -> None:
    meta = [e for e in json.loads(saved.read_text())["traceEvents"] if e["ph"] == "M"]
    names = [e["args"]["name"] for e in meta if e["name"] == "thread_name"]
    assert names[0] == "Python"
    assert any(name.startswith("threads 0") for name in names)
    assert any(name.startswith("queue 0x") for name in names)
    assert [name.split(",")[0] for name in names[-3:]] == ["engine", "wire", "peer"]
    order = [e["args"]["sort_index"] for e in meta if e["name"] == "thread_sort_index"]
    assert order == sorted(order)


def test_an_arrow_goes_through_each_put(saved: Path) -> None:
    """One begin, one end, in the order of time, each at the beginning of a slice of the same lane."""
    events = json.loads(saved.read_text())["traceEvents"]
    begins = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    arrows: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] in "stf":
            assert (event["pid"], event["tid"], event["ts"]) in begins
            arrows.setdefault(event["id"], []).append(event)
    assert len(arrows) == PUTS
    for steps in arrows.values():
        assert [e["ph"] for e in steps] == ["s", *["t"] * (len(steps) - 2), "f"]
        assert [e["ts"] for e in steps] == sorted(e["ts"] for e in steps)
        assert len(steps) == 8


def test_a_saved_trace_is_read_back(saved: Path, recorded: trace.Trace) -> None:
    again = trace.load(saved)
    assert np.array_equal(again.events, recorded.events)
    assert np.array_equal(again.puts, recorded.puts)
    assert again.texts == recorded.texts
    assert again.actors == recorded.actors


def test_statistics_are_those_of_the_puts(recorded: trace.Trace) -> None:
    found = {(s.begin, s.end): s for s in recorded.stages()}
    assert list(found)[:-1] == list(itertools.pairwise(STAGES))
    whole = found["reserve", "done"]
    assert sorted(whole.times_ns.tolist()) == sorted((recorded.puts["done"] - recorded.puts["reserve"]).tolist())
    assert whole.p50_ns <= whole.p99_ns <= whole.times_ns.max()
    counts, edges = whole.histogram()
    assert counts.sum() == PUTS
    assert len(edges) == len(counts) + 1


def test_the_table_names_every_stage(recorded: trace.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    recorded.print(Console(width=160))
    printed = capsys.readouterr().out
    for begin, end in itertools.pairwise(STAGES):
        assert f"{begin} → {end}" in printed
    assert f"{PUTS} requests" in printed


def test_other_files_are_refused(tmp_path: Path, recorded: trace.Trace) -> None:
    (tmp_path / "other.json").write_text('{"traceEvents": []}')
    with pytest.raises(ArgumentError, match="no trace"):
        trace.load(tmp_path / "other.json")
    with pytest.raises(ArgumentError, match="saved as"):
        recorded.save(tmp_path / "put.txt")
