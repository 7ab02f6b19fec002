# SPDX-License-Identifier: Apache-2.0
"""A trace as lanes, and what lies on them: made once for every picture (chrome.py, page.py).

Lanes from top to bottom: Python, the kernels' threads, queues, NICs (engine), the wire, and the NICs as peers. A
request goes down them and comes back: post in the thread, wait in the queue, fetch and send in the engine, on the wire
to the peer, and the answer up to the completion, which the thread reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gda import formats
from gda.tools.trace.events import Array, kind
from gda.tools.trace.recording import Trace

__all__ = ["Bar", "Lane", "Timeline", "opcode_words", "timeline"]

MOST_THREAD_LANES = 12  # more threads share lanes


@dataclass(frozen=True)
class Lane:
    """One line of the picture."""

    kind: str  # python, thread, queue, engine, wire or peer
    name: str
    pid: int


@dataclass(frozen=True)
class Bar:
    """What Python did on its lane; of an instant both moments are the same."""

    lane: int
    begin_ns: int
    end_ns: int
    name: str
    what: str


@dataclass
class Timeline:
    """Lanes, and for each request the lane of its thread, queue, engine and peer (-1: none was traced)."""

    lanes: list[Lane] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    places: dict[str, Array] = field(default_factory=dict)
    begin_ns: int = 0
    end_ns: int = 0


def opcode_words(opcode: int) -> str:
    """Name of a request's opcode as people say it: "RDMA_WRITE"."""
    try:
        return formats.enums["wqe_opcode"](opcode).name.removeprefix("MLX5_OPCODE_")
    except ValueError:
        return f"opcode 0x{opcode:02x}"


def _actors_of(trace: Trace, name: str) -> Array:
    """Of each request, who noted its event of this kind; -1: nobody."""
    found = np.full(len(trace.puts), -1, np.int64)
    chosen = trace.events[(trace.events["kind"] == kind(name)) & (trace.events["put"] >= 0)]
    found[chosen["put"]] = chosen["actor"]
    return found


class _Builder:
    def __init__(self, trace: Trace) -> None:
        self.trace, self.result = trace, Timeline()
        self.several = len({actor.pid for actor in trace.actors}) > 1

    def lane(self, kind: str, name: str, pid: int) -> int:
        shown = f"{name} · {pid}" if self.several and pid else name
        self.result.lanes.append(Lane(kind, shown, pid))
        return len(self.result.lanes) - 1

    def python(self) -> None:
        events = self.trace.events
        for number, actor in enumerate(self.trace.actors):
            mine = events[(events["actor"] == number) & (events["text"] >= 0)]
            if actor.source != "python" or not len(mine):
                continue
            lane = self.lane("python", "Python", actor.pid)
            launched: dict[int, Bar] = {}
            for event in mine:
                what, time, text = int(event["kind"]), int(event["time_ns"]), self.trace.texts[event["text"]]
                if what == kind("LAUNCH"):
                    launched[int(event["index"])] = Bar(lane, time, self.result.end_ns, text, "launch")
                elif what == kind("ENDED") and int(event["index"]) in launched:
                    bar = launched.pop(int(event["index"]))
                    self.result.bars.append(Bar(lane, bar.begin_ns, time, bar.name, "launch"))
                elif what != kind("WAIT"):
                    name = {kind("REGISTER"): "register", kind("CONNECT"): "connect"}.get(what, "")
                    self.result.bars.append(Bar(lane, time, time, text, name))
            self.result.bars += launched.values()

    def each(self, lane_kind: str, keys: Array, name: str, pids: Array) -> Array:
        """A lane for each key that is not negative, in the order of keys; of each request its lane."""
        lanes = np.full(len(keys), -1, np.int64)
        for key in np.unique(keys[keys >= 0]):
            here = keys == key
            lanes[here] = self.lane(lane_kind, name.format(int(key)), int(pids[here][0]))
        return lanes

    def threads(self, actors: Array, pids: Array) -> Array:
        lanes = np.full(len(actors), -1, np.int64)
        known = actors >= 0
        thread = self.trace.puts["lane"]
        keys = sorted({(int(a), int(t)) for a, t in zip(actors[known], thread[known], strict=True)})
        share = -(-len(keys) // MOST_THREAD_LANES) or 1
        for first in range(0, len(keys), share):
            group = keys[first : first + share]
            numbers = [t for _, t in group]
            words = f"thread {numbers[0]}" if len(group) == 1 else f"threads {numbers[0]}–{numbers[-1]}"
            pid = self.trace.actors[group[0][0]].pid
            lane = self.lane("thread", words, pid)
            for actor, number in group:
                lanes[(actors == actor) & (thread == number)] = lane
        return lanes

    def build(self) -> Timeline:
        trace, result = self.trace, self.result
        if len(trace.events):
            result.begin_ns, result.end_ns = int(trace.events["time_ns"][0]), int(trace.events["time_ns"][-1])
        pid_of = np.array([actor.pid for actor in trace.actors] + [0])
        who = {name: _actors_of(trace, name) for name in ("WRITE", "FETCH", "ARRIVE", "REFUSE")}
        peer = np.where(who["ARRIVE"] >= 0, who["ARRIVE"], who["REFUSE"])
        self.python()
        places = result.places
        places["thread"] = self.threads(who["WRITE"], pid_of[who["WRITE"]])
        queue_pids = pid_of[np.where(who["WRITE"] >= 0, who["WRITE"], who["FETCH"])]
        places["queue"] = self.each("queue", trace.puts["qpn"].astype(np.int64), "queue 0x{:x}", queue_pids)
        places["engine"] = self.engines("engine", who["FETCH"], "engine")
        wire = self.lane("wire", "wire", 0) if (trace.puts["wire"] >= 0).any() else -1
        places["wire"] = np.where(trace.puts["wire"] >= 0, wire, -1)
        places["peer"] = self.engines("peer", peer, "peer")
        return result

    def engines(self, lane_kind: str, actors: Array, name: str) -> Array:
        lanes = np.full(len(actors), -1, np.int64)
        for actor in np.unique(actors[actors >= 0]):
            who = self.trace.actors[actor]
            lanes[actors == actor] = self.lane(lane_kind, f"{name}, {who.name}", who.pid)
        return lanes


def timeline(trace: Trace) -> Timeline:
    """Lanes and places of a trace."""
    return _Builder(trace).build()
