# SPDX-License-Identifier: Apache-2.0
"""Publication and hand-over, explored in every order that weak memory allows; and without each of their barriers.

The library is the real one (token.h, ring.h, submit.h, poll.h), on the target of tests/device/model. A barrier that can
be removed, or two steps that can change places, without anything being found would be superfluous or untested.
"""

from __future__ import annotations

import pytest

from .explore import SMALL_WINDOW, Edit, Found, build, explore

# Explored to the end: threads that put, fill rings, wait, defer; a script for each thread (model/explore.cc).
WHOLE = (
    "--gpu-scope p p p",
    "--gpu-scope --start 31 2 pp",
    "--gpu-scope --recordless p p p",
    "--gpu-scope --nic --depth 2 p p",
    "p",
    "p p p p",
    "--start 31 pp p p",
    "--start 30 23 p",
    "--start 31 d p p",
    "--start 30 pd dp",
    "--recordless p p p",
    "--recordless --start 31 2 pp",
    "--start 65534 p p p",
    "--gpu-scope --doorbell-first p p p",
    "--doorbell-first --start 31 2 pp",
    "--doorbell-first --nic --depth 2 p p",
    "--gpu-scope --blueflame p p p",
    "--blueflame --start 31 2 pp",
    "--blueflame --start 65534 p p p",
    "--blueflame --nic --depth 2 p p",
    "--blueflame --nic --depth 8 mp p",
    "--gpu-scope --assisted p p p",
    "--assisted --start 31 2 pp",
    "--nic --depth 2 p pp",
    "--nic --depth 2 pw p",
    "--nic --depth 8 mw p",
    "--nic --depth 8 mp p",
    "--nic --depth 8 uf",
    "--nic --depth 8 mf",
    "--nic --depth 2 --deadline-zero p p p",
    "--nic --ring --depth 2 pw p",
    "--nic --ring --depth 2 ppw",
    "--owned --nic --depth 2 pppw",
    "--owned --nic --ring --depth 2 pppw",
    "--owned --recordless --nic --depth 2 pppw",
    "--owned --doorbell-first --nic --depth 2 pw",
    "--owned --blueflame --nic --depth 2 pppw",
    "--owned --assisted --nic --depth 2 pppw",
    "--owned --nic --depth 16 pmmw",
    "--owned --registers pppp",
    "--owned --registers --nic --depth 2 pppw",
    "--owned --registers --nic --ring --depth 2 pppw",
    "--owned --registers --recordless --nic --depth 2 pppw",
    "--owned --registers --blueflame --nic --depth 16 pmpw",
    "--owned --registers --assisted --nic --depth 2 pppw",
    "--owned --registers --nic --depth 16 pmmw",
    "--owned --registers --nic --depth 16 pmm",
    "--owned --registers --nic --depth 8 puf",
)
# The same where the window's words come round again.
WHOLE_LAPS = (
    "--gpu-scope ppp pp",
    "--gpu-scope 2p p p",
    "pp pp",
    "ppp ppp",
    "2p p p",
    "--start 1 22 22",
    "--recordless ppp pp",
    "--blueflame 2p p p",
    "--assisted ppp pp",
)
# Too many executions for all of them: so many, and so many at random.
BOUNDED = (
    "--most 60000 --gpu-scope --nic --depth 2 pwp p",
    "--most 50000 --nic --depth 8 uf u",
    "--most 100000 --nic --depth 2 pw pw",
    "--most 100000 --nic --ring --depth 2 ppw p",
    "--most 20000 --random 1 pppp pppp pppp",
    "--most 10000 --random 2 --nic --depth 4 pmpw ppw mpw pp",
    "--most 10000 --random 3 --nic --ring --depth 4 ppppw pppw",
)
BOUNDED_LAPS = ("--most 20000 --random 1 ppp ppp ppp ppp", "--most 20000 --random 2 --recordless 222 p2p pp2")


def look(arguments: str, edits: tuple[Edit, ...] = ()) -> Found:
    return explore(build(edits), arguments.split())


@pytest.mark.parametrize("arguments", WHOLE)
def test_every_execution_is_right(arguments: str) -> None:
    found = look(arguments)
    print(arguments, found)
    assert found.complete and not found.violation, str(found)


@pytest.mark.parametrize("arguments", WHOLE_LAPS)
def test_every_execution_is_right_when_the_window_comes_round(arguments: str) -> None:
    found = look(arguments, SMALL_WINDOW)
    print(arguments, found)
    assert found.complete and not found.violation, str(found)


@pytest.mark.parametrize("arguments", [*BOUNDED, *BOUNDED_LAPS])
def test_many_executions_of_larger_programs_are_right(arguments: str) -> None:
    found = look(arguments, SMALL_WINDOW if arguments in BOUNDED_LAPS else ())
    print(arguments, found)
    assert not found.violation, str(found)


def test_a_holder_came_between_the_words_of_one_request() -> None:
    """It rang for the first block of a request of two: the NIC found half of it."""
    loop = "    for (uint64_t end = t->end; end != c.base;) {\n"
    first_word_first = "    target::set_bits(window_word(q.window, c.base), slot_bits(c.base % WORD_SLOTS, 1));\n"
    found = look("--start 30 pd dp", (Edit("token.h", loop, first_word_first + loop),))
    assert found.violation == "the NIC is told of half a request"


def test_a_holder_that_found_the_token_by_its_note_read_words_a_lap_old() -> None:
    """The words ahead are cleared by holders: they may be looked at behind the barrier only, not before it."""
    barrier = "    target::earlier_slots_before_mine(q.scope);\n"
    as_it_was = Edit("token.h", f"{barrier}    for (;;) {{", "    for (;;) {")
    found = look("ppp ppp", (*SMALL_WINDOW, as_it_was))
    assert found.violation == "rung before the work request is there"
    assert any("(old)" in line for line in found.log)
    assert not look("ppp ppp", SMALL_WINDOW).violation
