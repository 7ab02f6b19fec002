# SPDX-License-Identifier: Apache-2.0
"""The software NIC answers packets as the Linux kernel does, row by row; each departure has its reason.

Needs no guest: the kernel's answers stand in answers.txt. `make conformance` asks the kernel again.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ..results import NotInstalledError, environment
from . import compare, record
from .bench import first_answer
from .remote import PYTHON
from .rows import ROWS

KERNEL = record.blocks(record.FILE)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Records of the software NIC, all rows."""
    if not Path(PYTHON).exists() or not list(Path("/usr/lib/python3/dist-packages").glob("pyverbs")):
        pytest.skip("not run: apt-get install python3-pyverbs")
    directory = tmp_path_factory.mktemp("software")
    (directory / "meet").mkdir()
    try:
        words = environment(directory / "meet")
    except NotInstalledError as why:
        pytest.skip(f"not run: {why}")
    with compare.software(directory, words) as bench:
        return {row.name: bench.run(row, number) for number, row in enumerate(ROWS)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))
def test_row(answers: dict[str, str], row: compare.Row) -> None:
    assert compare.judge(row, answers[row.name]) is None


def test_the_kernel_follows_the_specification_or_a_line_says_why_not() -> None:
    departs = {row.name for row in ROWS if first_answer(KERNEL[row.name]) != row.spec}
    assert departs == set(compare.kernel_departs())


def test_everything_is_recorded_and_every_reason_is_one() -> None:
    assert [name for name, count in Counter(row.name for row in ROWS).items() if count > 1] == []
    assert list(KERNEL) == [row.name for row in ROWS]
    assert set(compare.software_departs()) <= set(KERNEL)
    for row, why in {**compare.reasons(), **compare.kernel_departs()}.items():
        assert len(why) > 30, row
