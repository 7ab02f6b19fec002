# SPDX-License-Identifier: Apache-2.0
"""A trace for Perfetto and chrome://tracing. Source: "Trace Event Format" of Chromium's project.

A slice for each part of a request, on the lane of who did it, and an arrow (a flow) through all of them. Times are
microseconds from the first event on.
"""

from __future__ import annotations

from typing import Any

from gda.tools.trace.puts import STAGES
from gda.tools.trace.recording import Trace
from gda.tools.trace.timeline import opcode_words, timeline

__all__ = ["PARTS", "chrome", "slices_of"]

# Parts of a request: name, lane, from which moment to which; the first that is there of several.
PARTS = (
    ("post", "thread", ("reserve", "write"), ("ring", "write")),
    ("in the queue", "queue", ("ring",), ("seen", "fetch")),
    ("send", "engine", ("seen", "fetch"), ("wire", "cqe")),
    ("request", "wire", ("wire",), ("peer",)),
    ("carry out", "peer", ("peer",), ("peer",)),
    ("answer", "wire", ("peer",), ("ack",)),
    ("complete", "engine", ("ack",), ("cqe",)),
    ("done", "thread", ("done",), ("done",)),
)
_SHORTEST_US = 0.001  # an arrow binds to a slice, which must not be empty


def _first(put: Any, stages: tuple[str, ...]) -> int:
    return next((int(put[stage]) for stage in stages if put[stage] >= 0), -1)


def slices_of(put: Any) -> list[tuple[str, str, int, int]]:
    """Name, kind of lane, begin and end of each part that was noted.

    None begins before the one before it: clocks of two processors agree to some tens of nanoseconds only.
    """
    found: list[tuple[str, str, int, int]] = []
    for name, lane, begins, ends in PARTS:
        begin, end = _first(put, begins), _first(put, ends)
        if begin >= 0 and end >= 0:
            begin = max(begin, found[-1][2] if found else begin)
            found.append((name, lane, begin, max(begin, end)))
    return found


def chrome(trace: Trace) -> dict[str, Any]:
    """The JSON object, to be written by json.dumps."""
    lines = timeline(trace)
    events: list[dict[str, Any]] = []
    named = {actor.pid: actor.name for actor in trace.actors if actor.source == "python"}
    for pid in dict.fromkeys(lane.pid for lane in lines.lanes):
        words = f"{named.get(pid, 'process')} ({pid})" if pid else "between NICs"
        events.append({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": words}})
    for number, lane in enumerate(lines.lanes):
        where = {"ph": "M", "pid": lane.pid, "tid": number + 1}
        events.append({**where, "name": "thread_name", "args": {"name": lane.name}})
        events.append({**where, "name": "thread_sort_index", "args": {"sort_index": number}})

    def at(lane: int) -> dict[str, int]:
        return {"pid": lines.lanes[lane].pid, "tid": lane + 1}

    def us(time_ns: int) -> float:
        return (time_ns - lines.begin_ns) / 1000

    for bar in lines.bars:
        shape = {"ph": "X", "dur": us(bar.end_ns) - us(bar.begin_ns)} if bar.what == "launch" else {"ph": "i", "s": "t"}
        events.append({**shape, "name": bar.name, "cat": bar.what, "ts": us(bar.begin_ns), **at(bar.lane)})
    for row, put in enumerate(trace.puts):
        words = f"{opcode_words(put['opcode'])} {put['bytes']} B"
        values = {
            "queue pair": f"0x{put['qpn']:x}", "index": int(put["index"]), "bytes": int(put["bytes"]),
            "sent again": int(put["resent"]), "syndrome": int(put["syndrome"]),
            **{f"{stage} (ns)": int(put[stage]) - lines.begin_ns for stage in STAGES if put[stage] >= 0},
        }  # fmt: skip
        parts = [(name, int(lines.places[lane][row]), begin, end) for name, lane, begin, end in slices_of(put)]
        parts = [part for part in parts if part[1] >= 0]
        for number, (name, place, begin, end) in enumerate(parts):
            common = {"ts": us(begin), **at(place)}
            events.append({**common, "ph": "X", "cat": "put", "name": f"{name}: {words}", "args": values,
                           "dur": max(us(end) - us(begin), _SHORTEST_US)})  # fmt: skip
            if len(parts) > 1:
                step = "s" if number == 0 else "f" if number == len(parts) - 1 else "t"
                flow = {**common, "ph": step, "id": row + 1, "cat": "put", "name": "put"}
                events.append({**flow, "bp": "e"} if step == "f" else flow)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"lost events": trace.lost}}
