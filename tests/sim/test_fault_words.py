# SPDX-License-Identifier: Apache-2.0
"""The language of faults (docs/simulator.md, "Faults"): what it takes and refuses, and that refusals name the word.

What the words do to packets: tests/sim/link_fault_test.cc.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gda import formats
from gda.attach import check_faults
from gda.errors import ArgumentError

SETTINGS = settings(max_examples=80, deadline=None)
CLASSES = (
    "any", "request", "answer", "ack", "nak", "rnr", "response", "result", "write", "send", "read", "atomic",
    "immediate", "again",
)  # fmt: skip
OPCODES = [opcode.name for opcode in formats.bth_opcode if opcode.name.startswith(("RC_", "UC_", "UD_"))]

chances = st.integers(0, 100).map("{}%".format) | st.sampled_from(["0", "0.05", "1", "1.0", "12.5%"])
times = st.builds("{}{}".format, st.integers(1, 999), st.sampled_from(["ns", "us", "ms", "s"]))
rates = st.builds("{}{}".format, st.integers(1, 999), st.sampled_from(["kb", "Mb", "Gb", "kB", "MB", "GB"]))
numbers = st.integers(0, 2**24 - 1).flatmap(lambda n: st.sampled_from([str(n), hex(n)]))
bounds = st.tuples(st.integers(0, 2**24 - 1), st.integers(0, 2**24 - 1)).map(sorted)
ranges = numbers | numbers.map("{}-".format) | bounds.map(lambda b: f"{b[0]}-{b[1]}")
assignments = st.one_of(
    st.builds("{}={}".format, st.sampled_from(["drop", "duplicate", "corrupt", "reorder"]), chances),
    st.builds("reorder={}:{}".format, chances, st.integers(1, 10000)),
    st.builds("{}={}".format, st.sampled_from(["delay", "jitter"]), times),
    st.builds("rate={}".format, rates),
    st.builds("seed={}".format, numbers),
    st.sampled_from(["link=up", "link=down", "unordered"]),
    st.builds("link=down:{}".format, st.integers(1, 4)),
)
conditions = st.one_of(
    st.builds("{}={}".format, st.sampled_from(["psn", "qpn", "from", "wqe"]), ranges),
    st.builds("first={}".format, st.integers(1, 10**6)),
    st.builds("port={}".format, st.integers(1, 4)),
)
classes = st.sampled_from([*CLASSES, *OPCODES])
rules = st.tuples(
    st.sampled_from(["drop", "duplicate", "corrupt"]) | times.map("delay by={}".format), classes,
    st.lists(conditions, max_size=3).map(" ".join),
).map(" ".join)  # fmt: skip
plans = st.lists(rules | st.lists(assignments, min_size=1, max_size=5).map(",".join), max_size=5)


@given(plans)
@SETTINGS
def test_everything_the_document_offers_is_taken(plan):
    check_faults(";".join(plan))


@given(plans.filter(bool), st.data())
@SETTINGS
def test_spaces_and_empty_clauses_mean_nothing(plan, data):
    space = st.sampled_from(["", " ", "  ", "\t"])
    text = "".join(data.draw(space) + clause + data.draw(space) + data.draw(st.sampled_from([";", ";;", " ; ;"]))
                   for clause in plan)  # fmt: skip
    check_faults(text)


@given(plans, st.data(), st.from_regex(r"[a-z_]{3,12}(=[a-z0-9%:.-]{0,8})?", fullmatch=True))
@SETTINGS
def test_a_word_that_does_not_exist_is_named(plan, data, word):
    known = {"drop", "duplicate", "corrupt", "delay", "jitter", "reorder", "rate", "seed", "link", *CLASSES}
    known |= {"psn", "qpn", "from", "port", "wqe", "nth", "first"}
    assume(word.partition("=")[0] not in known)
    place = data.draw(st.integers(0, len(plan)))
    in_rule = data.draw(st.booleans())
    clause = f"drop any {word}" if in_rule else word
    with pytest.raises(ArgumentError) as caught:
        check_faults(";".join([*plan[:place], clause, *plan[place:]]))
    assert f"'{word}'" in str(caught.value) and "may be" in str(caught.value)


@given(st.sampled_from(["drop=", "duplicate=", "corrupt=", "reorder=", "delay=", "jitter=", "rate=", "seed=", "link="]),
       st.from_regex(r"[g-z]{1,5}|-[0-9]{1,3}|[0-9]{1,4}[vwxyz]{1,3}", fullmatch=True))  # fmt: skip
@SETTINGS
def test_a_value_that_is_none_is_named(setting, value):
    assume(setting != "link=" or value not in ("up", "down"))
    with pytest.raises(ArgumentError, match=re.escape(f"'{setting}{value}'")):
        check_faults(f"seed=1,{setting}{value}")


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode(errors="surrogateescape")))
@SETTINGS
def test_any_text_is_taken_or_refused_with_a_reason(text):
    try:
        check_faults(text)
    except ArgumentError as error:
        assert str(error)


def test_nothing_behind_a_zero_character_is_overlooked():
    with pytest.raises(ArgumentError, match="zero character"):
        check_faults("drop=5%\0; lose any")


def test_a_rule_that_can_never_hold_is_refused():
    """The third of those that match is not among the first two."""
    check_faults("drop any nth=3- first=4")
    check_faults("drop any first=3 nth=3")
    with pytest.raises(ArgumentError, match="'first=2' in 'drop any nth=3 first=2'"):
        check_faults("drop any nth=3 first=2")
