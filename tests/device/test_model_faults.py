# SPDX-License-Identifier: Apache-2.0
"""The explorer of test_model.py finds what goes wrong without any one barrier, and with any two steps swapped.

Each line of docs/ordering.md's table is one of these tests: what was taken away or swapped, and what was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from .explore import SMALL_WINDOW, Edit, Found, build, explore

ORDERING = Path(__file__).resolve().parents[2] / "docs" / "ordering.md"


@dataclass(frozen=True)
class Fault:
    """`what` is wrong; `arguments` to the explorer show it as `found`."""

    what: str
    arguments: str
    found: str
    edits: tuple[Edit, ...] = ()
    laps: bool = False  # where the window's words come round again

    @property
    def row(self) -> str:
        """Of the table."""
        return f"| {self.what} | {self.found} |"

    @property
    def site(self) -> str:
        """Of a barrier that is taken away, as the explorer names it."""
        return self.what.replace("`", "").replace(" in ", "@")

    def look(self, *, faulty: bool) -> Found:
        edits = (SMALL_WINDOW if self.laps else ()) + (self.edits if faulty else ())
        arguments = self.arguments.split()
        if faulty and not self.edits:
            arguments += ["--remove", self.site]
        return explore(build(edits, quickly=faulty and bool(self.edits)), [*arguments, "--most", "30000"])


NOT_THERE = "rung before the work request is there"
NOT_WRITTEN = "the NIC reads a slot that is not written"
LOST = "a doorbell is lost: the NIC may never hear of the last requests"
STUCK = "nobody can go on: a doorbell or a hand-over is lost"
RECORDS = "two records without order: the record may go back"
DOORBELLS = "two doorbells without order: the index may go back"
CONSUMERS = "two consumer records without order: the record may go back"
TOO_EARLY = "a slot is written before the NIC has surely read what was in it"
NOT_NEXT = "the work request in the register is not the NIC's next"
NO_DATA = "a wait is over before the data is surely there"
OVERRUN = "the completion queue overruns: the NIC does not surely see that an entry was read"

# Barriers and orders that are taken away, one at each place.
REMOVED = (
    Fault("`wqe_before_doorbell_record` in `publish_shared`", "pp", NOT_THERE),
    Fault("`own_wqe_before_doorbell_record` in `publish_owned`", "--owned --nic --depth 2 pppw", NOT_WRITTEN),
    Fault("`own_wqe_before_doorbell_record` in `ring`", "--owned --registers --nic --depth 2 pppw", NOT_WRITTEN),
    Fault("`wqe_before_doorbell` in `tell_nic`", "--recordless p p", NOT_THERE),
    Fault("`doorbell_record_before_doorbell` in `tell_nic`", "p", LOST),
    Fault("`doorbell_before_ready` in `publish_shared`", "--recordless p p", DOORBELLS),
    Fault("`doorbell_before_ready` in `publish_shared`", "--assisted p p", DOORBELLS),
    Fault("`doorbell_before_ready` in `publish_shared`", "--blueflame p p", NOT_NEXT),
    Fault("`wqe_before_doorbell` in `tell_doorbell_first`", "--doorbell-first p p", NOT_THERE),
    Fault("`doorbell_record_before_doorbell` in `tell_doorbell_first`", "--doorbell-first p", LOST),
    Fault("`doorbell_record_before_doorbell` in `tell_blueflame`", "--blueflame p", LOST),
    Fault("`earlier_slots_before_mine` in `ring_for_others`", "p p", RECORDS),
    Fault("`earlier_slots_before_mine` in `await_window`", "--start 1 22 22", NOT_THERE, laps=True),
    Fault("`cqe_read` in `poll_collapsed`", "--nic --depth 2 pw p", NO_DATA),
    Fault("`cqe_read` in `poll_ring`", "--nic --ring --depth 2 ppw", NO_DATA),
    Fault("`load_shared_acquire` in `load_done`", "--nic --depth 2 pw pw", NO_DATA),
    Fault("`load_done` in `reserve`", "--nic --depth 2 pwp p", TOO_EARLY),
    Fault("`raise_release` in `take_in`", "--nic --depth 2 pw pw", NO_DATA),
    Fault("`load_shared_acquire` in `poll_ring`", "--nic --ring --depth 2 ppw p", CONSUMERS),
    Fault("`store_shared_release` in `poll_ring`", "--nic --ring --depth 2 ppw p", CONSUMERS),
)

RECORD = """    if (__builtin_expect((q.flags & (OTHER_DOORBELLS | GDA_QP_RECORDLESS)) == 0, 1)) {
        tell_record(q, end);
        target::doorbell_record_before_doorbell(q.scope);
"""
NO_RECORD = RECORD.partition("\n")[0] + "\n"
DOORBELL = """        return tell_otherwise(qp, end, rung);
    }
    target::store_doorbell(q.doorbell, doorbell_value(q, end));
"""
LAST_DOORBELL = """    target::doorbell_record_before_doorbell(q.scope);
    target::store_doorbell(q.doorbell, doorbell_value(q, end));
}"""
ONE_REQUEST = "    if (end - rung != 1) return target::store_doorbell(q.doorbell, doorbell_value(q, end));\n"
STORE = "    if (g.rank < lanes) ticket = store_at(q, c.base + g.rank * BLOCKS, request, m, unnoted);\n"
PUBLISH = "            publish_shared(qp, q, c, seen, m.more);\n"
NOTE_BARRIER = "        target::wqe_before_doorbell_record(q.scope);  // here before the note\n"
RING = "        ring_or_defer(qp, q, end, more);\n"
READY = "        target::store_shared(&qp->ready, end);\n"
LAST = "    target::store_shared(&qp->ready, end);\n}"
CLEAR = ("        clear_words(q.window, c.base, end);\n", "        clear_words(q.window, at, end);\n")
LOOK_AHEAD = "    target::earlier_slots_before_mine(q.scope);\n    for (;;) {"
FOR_OTHERS = "        target::earlier_slots_before_mine(q.scope);\n        ring_doorbell(qp, q, t.end);"
PARK = "target::exchange_if(window_word(q.window, t.end), t.word, parked_at(t.end) | written(t.word));"
LOOK = "if ((seen & FLAGS) == parked_at(slot)) found = slot;"
CONSUMER = "        // The record frees entries for the NIC;"
TAKE_IN = "        take_in(qp, q, done, all, unnoted);\n"

# Steps that change places, or are left out.
SWAPPED = (
    Fault(
        "the doorbell, then the record",
        "p",
        LOST,
        (
            Edit("tell.h", RECORD, NO_RECORD),
            Edit("tell.h", DOORBELL, f"{DOORBELL}{RECORD}    }}\n"),
        ),
    ),
    Fault(
        "the doorbell first, and none behind the record",
        "--doorbell-first p",
        LOST,
        (Edit("tell.h", LAST_DOORBELL, "}"),),
    ),
    Fault(
        "BlueFlame of the last of several requests",
        "--blueflame mp",
        NOT_NEXT,
        (Edit("tell.h", ONE_REQUEST, "    (void)rung;\n"),),
    ),
    Fault(
        "the wait for free slots does not acquire",
        "--nic --ring --depth 2 ppw p",
        TOO_EARLY,
        (Edit("ring.h", "uint64_t done = load_done(qp, q);", "uint64_t done = load_word(q, &qp->done);"),),
    ),
    Fault(
        "publication, then the work request",
        "p",
        NOT_THERE,
        (Edit("submit.h", STORE, ""), Edit("submit.h", PUBLISH, PUBLISH + STORE)),
    ),
    Fault("the note, then the barrier behind the work request", "p p", NOT_THERE, (Edit("token.h", NOTE_BARRIER, ""),)),
    Fault("`ready`, then the record", "p p", RECORDS, (Edit("token.h", RING, READY + RING),)),
    Fault(
        "`ready`, then the clearing of the window's words",
        "ppp ppp",
        LOST,
        (
            *(Edit("token.h", clear, "") for clear in CLEAR),
            Edit("token.h", LAST, LAST[:-1] + "    clear_words(q.window, c.base, c.base + c.count);\n}"),
        ),
        laps=True,
    ),
    Fault(
        "the window's next words are read, then the barrier behind the token",
        "ppp ppp",
        NOT_THERE,
        (Edit("token.h", LOOK_AHEAD, "    for (;;) {"),),
        laps=True,
    ),
    Fault(
        "no barrier between the window's words and the record",
        "p p p",
        NOT_THERE,
        (Edit("token.h", FOR_OTHERS, "        ring_doorbell(qp, q, t.end);"),),
    ),
    Fault(
        "who finds the token by its note does not wait for its last holder",
        "p p",
        RECORDS,
        (Edit("token.h", "&at, &t) || !await_token(qp, at)) return;", "&at, &t)) return;"),),
    ),
    Fault(
        "the token is parked by a store that looks at nothing",
        "p p p",
        LOST,
        (
            Edit(
                "token.h",
                f"uint64_t seen = {PARK}",
                "uint64_t seen = t.word;\n"
                "        target::store_shared(window_word(q.window, t.end), parked_at(t.end) | written(t.word));",
            ),
        ),
    ),
    Fault(
        "a note that does not look for the token",
        "p p",
        LOST,
        (Edit("token.h", LOOK, "(void)FLAGS, (void)seen;"),),
    ),
    Fault(
        "`done`, then the completion queue's record",
        "--nic --ring --depth 2 ppw p",
        OVERRUN,
        (Edit("poll.h", TAKE_IN, ""), Edit("poll.h", CONSUMER, TAKE_IN + CONSUMER)),
    ),
    Fault(
        "a wait that does not ring for a deferred doorbell",
        "--nic --depth 8 mw",
        STUCK,
        (Edit("wait.h", "            ring_deferred(qp, q, end);\n", ""),),
    ),
)


@pytest.mark.parametrize("fault", [*REMOVED, *SWAPPED], ids=lambda f: f.what)
def test_the_explorer_finds(fault: Fault) -> None:
    found = fault.look(faulty=True)
    assert found.violation == fault.found, str(found)
    right = fault.look(faulty=False)
    assert not right.violation, str(right)
    print(f"{fault.what}: {found.violation}, in execution {found.executions}; {right.executions} without it are right")


def test_a_completion_was_read_as_it_was_two_laps_ago() -> None:
    """Its owner bit is the same then, so who looks at the ring must have acquired what the last reader saw."""
    as_it_was = (
        Edit("poll.h", "load_shared_acquire(&qp->cq_consumed)", "load_shared(&qp->cq_consumed)"),
        Edit("poll.h", "compare_swap_relaxed(&qp->cq_consumed", "compare_swap(&qp->cq_consumed"),
    )
    program = ["--random", "5", "--most", "30000", "--nic", "--ring", "--depth", "4", "pmpw", "u2pw", "mwpf"]
    found = explore(build(as_it_was), program)
    assert found.violation == STUCK
    assert any("reads completion (old)" in line for line in found.log), str(found)
    assert not explore(build(), program).violation


def test_the_table_says_what_is_found() -> None:
    text = ORDERING.read_text()
    assert [fault.row for fault in (*REMOVED, *SWAPPED) if fault.row not in text] == []


def test_no_barrier_is_without_a_line() -> None:
    """Each barrier and order that the explorer meets is taken away above, at each place."""
    met = {site for fault in REMOVED for site in fault.look(faulty=False).sites}
    assert met == {fault.site for fault in REMOVED}
