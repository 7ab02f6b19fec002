# SPDX-License-Identifier: Apache-2.0
"""The grader of lab 3 passes the solution, and says what is wrong with everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Lab

LAB = Lab("03_a_kernel_that_posts", "cu")
FIRST = "    target::wqe_before_doorbell_record(target::scope_system);\n"
SECOND = "    target::doorbell_record_before_doorbell(target::scope_system);\n"
RECORD = "    target::store_record(reinterpret_cast<void*>(qp->record), gda::be32(counter));\n"
DOORBELL = "    target::store_doorbell(reinterpret_cast<void*>(qp->doorbell), word);\n"


def test_solution_passes_on_the_nic() -> None:
    assert "20 requests in a ring of 8, all data there" in LAB.passes()


def test_empty_exercise_is_told_what_is_missing() -> None:
    code, text = LAB.grade(LAB.exercise)
    assert code == 1 and "request 0 is not in slot 0: nothing was written there" in text, text


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("ds, 3", "ds, 48", "request 0, control segment: ds is 0x30, should be 0x3: the length of the whole"),
        ("gda::be32(dst.rkey_be)", "dst.rkey_be", "its bytes are reversed; the NIC reads big-endian"),
        ("index % depth * 64", "index % depth * 48", "lies at byte 48 of the ring, its slot 1 begins at byte 64"),
        ("gda::be32(counter)", "counter", "should say 5: its bytes are reversed"),
        ("static_cast<uint32_t>(end))", "5u)", "the record says 5, should say 10: it counts all requests"),
        ("(qp->record)", "(qp->record - 4)", "the send counter lies at"),
        (RECORD, "    *reinterpret_cast<volatile uint32_t*>(qp->record) = gda::be32(counter);\n",
         "the record was never stored by target::store_record (memory holds 5)"),
        (FIRST, "", "no barrier stands between the requests and the record: the NIC may see the new record"),
        (SECOND, "", "no barrier stands between the record and the doorbell"),
        (FIRST, "    target::wqe_before_doorbell_record(target::scope_gpu);\n", "has gpu scope"),
        (SECOND, "    __threadfence();\n", "__threadfence stands between the record and the doorbell"),
        (DOORBELL, "    target::store_doorbell(reinterpret_cast<void*>(qp->doorbell), gda::be64(word));\n",
         "it names queue pair"),
        (DOORBELL, "", "the doorbell was never rung"),
        ("reinterpret_cast<uint8_t*>(qp->sq)", "reinterpret_cast<uint8_t*>(8)", "signal 11: it read or wrote memory"),
        ("tell(qp, first + count);", "tell(qp, first + count); words[3] = 7;", "[fence-missing; try: a fence"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    LAB.names(tmp_path, right, wrong, said)


def test_order_of_the_steps(tmp_path: Path) -> None:
    text = LAB.solution.read_text()
    told = text[text.index(FIRST) : text.index(DOORBELL) + len(DOORBELL)]
    swapped = told.replace(RECORD, "").replace(SECOND, "") + SECOND + RECORD
    LAB.names(tmp_path, told, swapped, "rung before the record")


def test_the_record_before_the_requests(tmp_path: Path) -> None:
    text = LAB.solution.read_text()
    written = text[text.index("    for (uint32_t i = 0; i < count; ++i) write_request") : text.index("    *done =")]
    requests, told = written.splitlines(keepends=True)
    LAB.names(tmp_path, written, told + requests, "when request 0 is not written yet")


def test_the_library_is_not_the_answer(tmp_path: Path) -> None:
    include = "#include <gda/target.h>\n"
    LAB.names(tmp_path, include, include + "#include <gda/gda.h>\n", "this lab is to do without the library")


def test_what_does_not_compile_is_told_in_its_own_lines(tmp_path: Path) -> None:
    LAB.names(tmp_path, "uint8_t value[8] = {};", "uint8_t value[8] = {}", "it does not compile: mine.cu:")
