# SPDX-License-Identifier: Apache-2.0
"""The part of the conformance suites that every commit runs: the same cases as `make conformance`, one test each."""

from __future__ import annotations

from pathlib import Path

import pytest

from .results import Case, execute, judge, rules
from .suites import SUITES

CASES = [case for suite in SUITES for case in suite.cases() if case.ci]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "_"))
def test_case(case: Case, tmp_path: Path) -> None:
    results = execute(case, tmp_path)
    missing = [result.message for result in results if result.outcome == "not installed"]
    if missing:
        pytest.skip(f"not run: {missing[0]}")
    failures = [f"{r.name}: {r.message}" for r in judge(case, results, rules()) if r.outcome == "failed"]
    assert not failures, "\n\n".join(failures)
    if all(result.outcome == "skipped" for result in results):
        pytest.skip(f"as skips.txt says: {results[0].message}")
