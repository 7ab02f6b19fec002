# SPDX-License-Identifier: Apache-2.0
"""From bytes of a ring to events: groups of places that a writer has not filled, events that stand for two."""

from __future__ import annotations

import numpy as np

from gda import formats
from gda.tools.trace.events import RAW, kind, kind_name
from gda.tools.trace.rings import HEADER, ring_events

SLOTS_LOG = 4
GROUP = int(formats.TRACE_GROUP)


def ring(places: list[tuple[str, int]], taken: int, group: int = GROUP) -> bytes:
    """Of 16 places; each a kind and a time, the index its number."""
    header = bytearray(HEADER.bytes)
    for name, value in (("next", taken), ("group", group)):
        header[HEADER.offset(name) : HEADER.offset(name) + 4] = value.to_bytes(4, "little")
    made = np.zeros(1 << SLOTS_LOG, RAW)
    for number, (name, time) in enumerate(places):
        made[number]["kind"], made[number]["time"], made[number]["index"] = kind(name) if name else 0, time, number
    return bytes(header) + made.tobytes()


def indices(data: bytes) -> list[int]:
    _, events, _ = ring_events(data, SLOTS_LOG)
    return [int(i) for i in events["index"]]


def test_places_that_a_writer_has_not_filled_are_no_events() -> None:
    filled = [("RING", 10), ("RING", 20), ("RING", 30)]
    assert indices(ring([*filled, *[("", 0)] * 5, ("RING", 15)], 16)) == [0, 1, 2, 8]


def test_what_a_group_held_a_lap_or_a_recording_ago_is_none_either() -> None:
    new, old, other = [("RING", 500), ("RING", 510)], [("RING", 100 + i) for i in range(6)], [("RING", 300)] * 8
    assert indices(ring([*new, *old, *other], 24)) == [8, 9, 10, 11, 12, 13, 14, 15, 0, 1]
    assert indices(ring([*new, *old, *other], 8)) == [0, 1]


def test_without_groups_each_place_is_an_event() -> None:
    assert indices(ring([("CQE", 30), ("CQE", 20), ("CQE", 40)], 3, group=0)) == [0, 1, 2]


def test_an_event_that_stands_for_two_is_two() -> None:
    data = bytearray(ring([("POSTED", 10), ("RING", 20), ("FOUND", 30)], 8))
    made = np.frombuffer(data, RAW, 3, HEADER.bytes)
    made["bytes"], made["aux"], made["opcode"], made["lane"] = (48, 0, 6), (2, 0, 5), (8, 0, 0), 7
    _, events, lost = ring_events(bytes(data), SLOTS_LOG)
    rows = [(kind_name(e["kind"]), *(int(e[n]) for n in ("time", "index", "bytes", "aux", "opcode"))) for e in events]
    assert rows == [
        ("reserve", 10, 0, 0, 2, 0), ("write", 10, 0, 48, 0, 8), ("ring", 20, 1, 0, 0, 0),
        ("poll", 30, 6, 0, 0, 0), ("done", 30, 2, 0, 5, 0),
    ]  # fmt: skip
    assert set(events["lane"].tolist()) == {7}
    assert lost == 0


def test_places_that_were_taken_again_are_counted() -> None:
    assert ring_events(ring([("RING", 1)] * 16, 40), SLOTS_LOG)[2] == 24
