# SPDX-License-Identifier: Apache-2.0
"""From rings in memory and files of several processes to one array of events in the order of time."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gda import formats
from gda.errors import ArgumentError
from gda.notes import Notes, Ring
from gda.tools.trace.events import EVENT, RAW, Actor, Array, kind
from gda.tools.trace.rings import HEADER, ring_events

__all__ = ["Gathered", "gather_directory", "gather_process", "nanoseconds"]

Moments = list[tuple[int, int]]  # of another clock, and of the monotonic one in nanoseconds


class Gathered:
    """What was found, not yet on one clock nor sorted."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.texts: list[str] = []
        self._rings: list[tuple[Array, str, Moments, list[int]]] = []

    def add(self, actor: Actor, raw: Array, clock: str, moments: Moments, texts: Iterable[int] = ()) -> None:
        """Events of one actor. `clock`: "ns", "ticks" (which all of a machine share) or "gpu"."""
        self.actors.append(actor)
        self._rings.append((raw, clock, moments, list(texts)))

    def events(self) -> Array:
        """All of them, in the order of time."""
        # One line for all who read the same counter: what they noted of each other cannot change places then.
        ticks = sorted(m for _, clock, moments, _ in self._rings if clock == "ticks" for m in moments if m != (0, 0))
        parts = [np.zeros(0, EVENT)]
        for number, (raw, clock, moments, texts) in enumerate(self._rings):
            part = np.zeros(len(raw), EVENT)
            for name in ("kind", "lane", "qpn", "index", "bytes", "aux", "opcode", "flags"):
                part[name] = raw[name]
            line = {"ns": [], "ticks": ticks}.get(clock, moments)
            part["time_ns"], self.actors[number].clock = nanoseconds(raw["time"], line)
            virtual = (raw["flags"] & int(formats.TRACE_VIRTUAL)) != 0
            part["time_ns"][virtual] = raw["time"][virtual].astype(np.int64)
            part["actor"], part["put"] = number, -1
            part["text"] = texts or -1
            parts.append(part)
        everything = np.concatenate(parts)
        return everything[np.argsort(everything["time_ns"], kind="stable")]

    def text(self, words: str) -> int:
        """The place of a text in the list."""
        self.texts.append(words)
        return len(self.texts) - 1


def nanoseconds(times: Array, moments: Moments) -> tuple[Array, dict[str, float]]:
    """Times of another clock on the monotonic one: along the line through the first and the last moment.

    Moments are (other clock, monotonic ns); (0, 0) stands for one that could not be read. With one moment alone, or two
    too close to each other, both clocks are taken to run alike.
    """
    known = [m for m in moments if m != (0, 0)]
    if not known:
        return times.astype(np.int64), {"offset_ns": 0.0, "rate": 1.0}
    (time, ns), (last_time, last_ns) = known[0], known[-1]
    apart = last_time - time
    rate = (last_ns - ns) / apart if apart > 0 else 1.0
    # Differences first: a double has 53 bits, and a counter that has run for weeks more.
    since = (times.astype(np.uint64) - np.uint64(time)).astype(np.int64)
    return ns + np.round(since * rate).astype(np.int64), {"offset_ns": float(ns - time * rate), "rate": rate}


def _add_nic(found: Gathered, path: Path) -> None:
    data = path.read_bytes()
    if len(data) < HEADER.bytes:
        return
    header, raw, lost = ring_events(data)
    if header["magic"] != formats.TRACE_MAGIC:
        return  # being made just now
    moments = [(header["first_time"], header["first_ns"]), (header["last_time"], header["last_ns"])]
    found.add(Actor(header["pid"], "nic", f"NIC {header['slot']}", lost), raw, "ticks", moments)


def _add_kernels(found: Gathered, pid: int, ring: Ring) -> None:
    from gda.run.traces import LOG_EVENTS

    _, raw, lost = ring_events(ring.data, LOG_EVENTS)
    found.add(Actor(pid, "kernel", ring.name, lost), raw, ring.clock, ring.moments)


def _add_python(found: Gathered, pid: int, program: str, noted: Iterable[Any]) -> None:
    rows = list(noted)
    raw = np.zeros(len(rows), RAW)
    for row, (time_ns, name, values, _) in zip(raw, rows, strict=True):
        row["time"], row["kind"] = time_ns, kind(name)
        for field, value in values.items():
            row[field] = value & 0xFFFFFFFF
    texts = [found.text(words) for *_, words in rows]
    found.add(Actor(pid, "python", program), raw, "ns", [], texts)


def gather_process(notes: Notes, pid: int, program: str) -> Gathered:
    """This process's own: what it noted, its kernels, and the files of its NICs."""
    found = Gathered()
    _add_python(found, pid, program, list(notes.python))
    for ring in notes.rings():
        _add_kernels(found, pid, ring)
    for path in sorted(Path(notes.directory).glob(f"nic-{pid}-*.ring")) if notes.directory else ():
        _add_nic(found, path)
    return found


def gather_directory(directory: Path) -> Gathered:
    """Everything that processes left in a directory (GDA_TRACE)."""
    found = Gathered()
    for path in sorted(directory.glob("python-*.json")):
        content = json.loads(path.read_text())
        _add_python(found, content["pid"], content["program"], content["python"])
        for ring in content["kernels"]:
            data = base64.b64decode(ring["data"])
            moments = [(int(time), int(ns)) for time, ns in ring["moments"]]
            _add_kernels(found, content["pid"], Ring(ring["name"], ring["clock"], moments, data))
    for path in sorted(directory.glob("nic-*.ring")):
        _add_nic(found, path)
    if not found.actors:
        raise ArgumentError(
            f"there is no trace in {directory}",
            "the program used no software NIC and no gda; on a card, Python and kernels are traced, not the NIC",
        )
    return found
