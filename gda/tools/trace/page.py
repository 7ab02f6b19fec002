# SPDX-License-Identifier: Apache-2.0
"""A trace as one page that needs nothing else: page.html with the numbers in it. Called by Trace.save.

Lanes and parts are those of timeline.py and chrome.py; what happens on the page is written in page.html.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gda import formats
from gda.tools.trace.chrome import PARTS
from gda.tools.trace.events import kind
from gda.tools.trace.puts import STAGES
from gda.tools.trace.recording import Trace
from gda.tools.trace.statistics import stages, time_words
from gda.tools.trace.timeline import Timeline, opcode_words, timeline

__all__ = ["page"]

MOST_PUTS = 20_000  # on a page; the newest
_PLACE = '{"DATA": 0}'
# By whom a stage is spent: the colour of its lane.
_LANE_OF = {
    "reserve": "thread", "write": "thread", "ring": "queue", "seen": "engine", "fetch": "engine", "wire": "wire",
    "peer": "wire", "ack": "engine", "cqe": "thread",
}  # fmt: skip


def page(trace: Trace) -> str:
    """The page's text."""
    template = (Path(__file__).parent / "page.html").read_text()
    numbers = json.dumps(_data(trace), separators=(",", ":"))
    # The numbers stand within a script element: no text of a program may end it.
    return template.replace(_PLACE, numbers.replace("<", "\\u003c"), 1)


def _data(trace: Trace) -> dict[str, Any]:
    lines = timeline(trace)
    first = max(0, len(trace.puts) - MOST_PUTS)
    python = next((actor.name for actor in trace.actors if actor.source == "python" and actor.name), "")
    return {
        "title": f"Trace of {Path(python.split()[0]).name}" if python else "Trace",
        "summary": _summary(trace, lines, first),
        "span": lines.end_ns - lines.begin_ns,
        "lanes": [{"kind": lane.kind, "name": lane.name} for lane in lines.lanes],
        "bars": [
            {"lane": bar.lane, "a": bar.begin_ns - lines.begin_ns, "b": bar.end_ns - lines.begin_ns, "name": bar.name,
             "what": bar.what}
            for bar in lines.bars
        ],
        "stage_names": list(STAGES),
        "parts": PARTS,
        "puts": [_put(trace, lines, row) for row in range(first, len(trace.puts))],
        "marks": _marks(trace, lines),
        "stages": _stages(trace),
        "first": _typical(trace) - first,
    }  # fmt: skip


def _summary(trace: Trace, lines: Timeline, first: int) -> str:
    whole = time_words(lines.end_ns - lines.begin_ns)
    words = [
        f"{_count(len(trace.puts), 'request')} and {_count(len(trace.events), 'event')} in {whole}, "
        f"{_count(len({actor.pid for actor in trace.actors}), 'process')}"
    ]
    if first:
        words.append(f"shown are the newest {MOST_PUTS} requests")
    if trace.lost:
        words.append(f"{trace.lost} older events were overwritten")
    return "; ".join(words) + "."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}{'es' if what.endswith('s') else 's'}"


def _put(trace: Trace, lines: Timeline, row: int) -> dict[str, Any]:
    put = trace.puts[row]
    error = ""
    if put["syndrome"]:
        error = formats.syndrome_meaning(int(put["syndrome"])).words
    elif put["refused"]:
        error = "refused by the peer"
    return {
        "t": [int(put[stage]) - lines.begin_ns if put[stage] >= 0 else None for stage in STAGES],
        "places": {name: int(lanes[row]) for name, lanes in lines.places.items()},
        "qpn": int(put["qpn"]), "index": int(put["index"]), "bytes": int(put["bytes"]), "thread": int(put["lane"]),
        "opcode": opcode_words(int(put["opcode"])), "resent": int(put["resent"]), "error": error,
    }  # fmt: skip


def _marks(trace: Trace, lines: Timeline) -> list[dict[str, int]]:
    """Where something went wrong: timers that ran out, packets that were sent again, refusals."""
    events = trace.events
    again = (events["kind"] == kind("SEND")) & ((events["flags"] & int(formats.TRACE_AGAIN)) != 0)
    wrong = again | np.isin(events["kind"], [kind("TIMEOUT"), kind("REFUSE")])
    found = []
    for event in events[wrong & (events["put"] >= 0)]:
        lane = {kind("SEND"): "wire", kind("TIMEOUT"): "engine"}.get(int(event["kind"]), "peer")
        place = int(lines.places[lane][event["put"]])
        if place >= 0:
            found.append({"t": int(event["time_ns"]) - lines.begin_ns, "lane": place})
    return found


def _stages(trace: Trace) -> list[dict[str, Any]]:
    rows = []
    for stage in stages(trace.puts):
        counts, edges = stage.histogram()
        # "All of it" has no lane: it is everybody's.
        follows = STAGES.index(stage.end) - STAGES.index(stage.begin) == 1
        rows.append({
            "begin": stage.begin, "end": stage.end, "words": stage.words, "p50": stage.p50_ns, "p99": stage.p99_ns,
            "counts": counts.tolist(), "low": float(edges[0]), "high": float(edges[-1]),
            "lane": _LANE_OF[stage.begin] if follows else "",
        })  # fmt: skip
    return rows


def _typical(trace: Trace) -> int:
    """The request to show first: one that went wrong, else one of median length among the whole ones."""
    if not len(trace.puts):
        return -1
    wrong = np.flatnonzero(trace.puts["resent"] | trace.puts["syndrome"] | trace.puts["refused"])
    if len(wrong):
        return int(wrong[0])
    moments = np.array([[int(put[stage]) for stage in STAGES] for put in trace.puts[-MOST_PUTS:]])
    whole = (moments >= 0).sum(axis=1)
    candidates = np.flatnonzero(whole == whole.max())
    length = moments.max(axis=1) - np.where(moments >= 0, moments, np.iinfo(np.int64).max).min(axis=1)
    order = candidates[np.argsort(length[candidates], kind="stable")]
    return int(order[len(order) // 2]) + max(0, len(trace.puts) - MOST_PUTS)
