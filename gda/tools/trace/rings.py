# SPDX-License-Identifier: Apache-2.0
"""What lies in a ring of trace events (cuda/gda/trace_ring.h), as events. Called by gather.

A ring may be read while it is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gda import formats
from gda.tools.trace.events import RAW, Array, kind

__all__ = ["HEADER", "ring_events"]

HEADER = formats.layouts["gda_trace_ring"]
_POSTED, _FOUND = kind("POSTED"), kind("FOUND")


def ring_events(data: bytes, log_events: int | None = None) -> tuple[dict[str, Any], Array, int]:
    """Header, events in the order in which their places were taken, and how many older places are lost."""
    header = HEADER.unpack(data[: HEADER.bytes])
    slots = 1 << (header["log_events"] if log_events is None else log_events)
    taken = header["next"]
    held = _filled(np.frombuffer(data, RAW, min(taken, slots), HEADER.bytes), header["group"])
    first = taken % slots if taken > slots else 0
    held = np.concatenate([held[first:], held[:first]])
    return header, _apart(held[held["kind"] != 0]), max(0, taken - slots)


def _filled(places: Array, group: int) -> Array:
    """Kind 0 where a place of a group holds what it held before its last writer took it."""
    if group < 2:
        return places
    places = places.copy()
    times = places["time"][: len(places) // group * group].reshape(-1, group)
    old = (times < times[:, :1]).reshape(-1)
    places["kind"][: len(old)][old] = 0
    return places


def _apart(events: Array) -> Array:
    """Two events for each that stands for two."""
    counts = 1 + ((events["kind"] == _POSTED) | (events["kind"] == _FOUND))
    first = (np.cumsum(counts) - counts)[counts == 2]
    events = np.repeat(events, counts)
    posted, found = (first[events["kind"][first] == what] for what in (_POSTED, _FOUND))
    _make(events, posted, kind("RESERVE"), bytes=0, opcode=0)
    _make(events, posted + 1, kind("WRITE"), aux=0)
    _make(events, found, kind("POLL"), index=events["bytes"][found], bytes=0, aux=0)
    _make(events, found + 1, kind("DONE"), bytes=0)
    return events


def _make(events: Array, rows: Array, what: int, **values: Any) -> None:
    events["kind"][rows] = what
    for name, value in values.items():
        events[name][rows] = value
