# SPDX-License-Identifier: Apache-2.0
"""The grader of lab 2 passes the solution, and says what is wrong with everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Lab

LAB = Lab("02_completions")


def test_solution_passes_on_the_nic() -> None:
    text = LAB.passes()
    assert "40 requests done by 20 completions in a ring of 8" in text
    assert "(1, 19), (2, 5), (3, 5)" in text


def test_empty_exercise_is_told_what_is_missing() -> None:
    code, text = LAB.grade(LAB.exercise)
    assert code == 1
    assert "is_there says False of completion 0" in text and "should be (1286, 19)" in text


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("entry[63] >> 4 != 0xF and ", "", "the owner bit alone is not enough"),
        (" and entry[63] & 1 == lap", "", "is the first lap's entry, already read"),
        ("consumed // entries & 1", "consumed & 1", "the owner bit is the lap's, not the number's"),
        ('entry[60:62], "big"', 'entry[60:62], "little"', "the index's bytes are reversed"),
        ("entry[55] if", "entry[54] if", "the vendor's syndrome; the syndrome is byte 55"),
        ("entry[55] if entry[63] >> 4 == 0xD else 0", "0", "this was taken for success"),
        ("done + (counter + 1 - done) % 0x10000", "counter + 1", "16 bits have gone round, the count goes on"),
        ("done + (counter + 1 - done) % 0x10000", "done + 1", "only the last asked for a completion"),
        ('(consumed % (1 << 24)).to_bytes(4, "big")', 'consumed.to_bytes(4, "little")', "32 bits big-endian"),
        ("(consumed % (1 << 24))", "(0 if consumed < 12 and consumed != 5 else consumed % (1 << 24))",
         "overrun, a completion found all 8 entries unread"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    LAB.names(tmp_path, right, wrong, said)
