# SPDX-License-Identifier: Apache-2.0
"""Events to requests, from events that are made up: orders that a machine shows only now and then."""

from __future__ import annotations

import numpy as np

from gda.tools.trace.events import EVENT, Array, kind
from gda.tools.trace.puts import follow


def events(*rows: tuple[str, int, int, int]) -> Array:
    """Kind, index, aux (a PSN, or how many), opcode; each a nanosecond after the one before."""
    made = np.zeros(len(rows), EVENT)
    for number, (name, index, aux, opcode) in enumerate(rows):
        made[number]["time_ns"], made[number]["kind"], made[number]["qpn"] = 100 + number, kind(name), 0x40
        made[number]["index"], made[number]["aux"], made[number]["opcode"] = index, aux, opcode
    return made


def test_threads_write_in_any_order_and_one_rings_for_others() -> None:
    puts = follow(
        events(
            ("RESERVE", 0, 2, 0), ("RESERVE", 2, 1, 0), ("WRITE", 2, 0, 8), ("WRITE", 1, 0, 8), ("WRITE", 0, 0, 8),
            ("RING", 1, 0, 0), ("RING", 2, 0, 0), ("POLL", 1, 0, 0), ("POLL", 2, 0, 0),
        )
    )  # fmt: skip
    found = {int(put["index"]): (int(put["reserve"]), int(put["ring"]), int(put["done"])) for put in puts}
    assert found == {0: (100, 105, 107), 1: (100, 105, 107), 2: (101, 106, 108)}


def test_an_index_that_comes_round_again_is_another_request() -> None:
    puts = follow(
        events(
            ("WRITE", 5, 0, 8), ("FETCH", 5, 1, 8), ("SEND", 5, 900, 10), ("CQE", 5, 0, 0),
            ("WRITE", 5 + 65536, 0, 8), ("FETCH", 5, 1, 8), ("SEND", 5, 901, 10), ("CQE", 5, 0, 0),
        )
    )  # fmt: skip
    assert puts["index"].tolist() == [5, 5 + 65536]
    assert puts["cqe"].tolist() == [103, 107]


def test_the_psn_leads_to_the_request_also_when_it_goes_round() -> None:
    unknown = 0xFFFFFFFF
    made = events(
        ("FETCH", 0, 1, 8), ("SEND", 0, 0xFFFFFE, 10), ("FETCH", 1, 1, 8), ("SEND", 1, 1, 10),
        ("ARRIVE", unknown, 0xFFFFFE, 10), ("ARRIVE", unknown, 0, 10), ("ARRIVE", unknown, 1, 10), ("ACK", 0, 1, 31),
    )  # fmt: skip
    puts = follow(made)
    assert puts["peer"].tolist() == [105, 106], "the last packet of each"
    assert puts["ack"].tolist() == [107, 107]
    assert made["put"].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]


def test_clocks_that_are_off_by_a_microsecond_do_no_harm() -> None:
    """The NIC's events of a GPU's request may seem to come first."""
    puts = follow(
        events(
            ("SEEN", 0, 1, 0), ("FETCH", 0, 1, 8), ("SEND", 0, 7, 10), ("RESERVE", 0, 1, 0), ("WRITE", 0, 0, 8),
            ("RING", 0, 0, 0), ("ACK", 0, 7, 31), ("CQE", 0, 0, 0), ("POLL", 0, 0, 0),
        )
    )  # fmt: skip
    assert len(puts) == 1
    for stage in ("reserve", "write", "ring", "seen", "fetch", "wire", "ack", "cqe", "done"):
        assert puts[stage][0] >= 100, stage
