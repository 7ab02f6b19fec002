# SPDX-License-Identifier: Apache-2.0
"""How the suites judge: skips need a line, lines need a skip, and the command says so by its status."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from . import __main__ as command
from . import results
from .results import (
    Case,
    FailedError,
    Host,
    NotInstalledError,
    Result,
    Rule,
    Since,
    SkippedError,
    Suite,
    execute,
    judge,
    read_rules,
    rules,
)
from .suites import SUITES, pyverbs


def nothing(host: Host) -> None:
    """Pass."""


def test_every_line_of_the_skips_has_a_reason_and_a_case() -> None:
    cases = [case for suite in SUITES for case in suite.cases()]
    shipped = bool(pyverbs.modules())
    for rule in rules():
        assert len(rule.reason) > 15, rule
        general = rule.reason.startswith(results.ANYWHERE) or (rule.test.startswith("test_") and not shipped)
        assert general or any(rule.concerns(case) for case in cases), f"no case has this name: {rule}"


def test_names_of_cases_are_unique() -> None:
    names = [case.name for suite in SUITES for case in suite.cases()]
    assert len(set(names)) == len(names)


def test_a_rule_is_read() -> None:
    text = "# about\n\ntest_x.Case.* | no | because it is so\n"
    assert read_rules(text) == [Rule("test_x.Case.*", "no", "because it is so")]


def test_a_line_may_have_a_condition() -> None:
    (rule,) = read_rules("test_x.Case.* | no | because it is so | since rdma-core 54\n")
    assert rule == Rule("test_x.Case.*", "no", "because it is so", Since("rdma-core", 54))
    with pytest.raises(ValueError, match="'from 54' is no condition; write: since PACKAGE VERSION"):
        read_rules("a | b | c | from 54\n")


@pytest.mark.parametrize(
    ("version", "failed"),
    [
        ((54, 0), ["a line of skips.txt that nothing needs any more: test_x.Case.test_a | no luck"]),
        ((53, 1), ["skipped without a line in skips.txt: no luck"]),
        ((), ["skipped without a line in skips.txt: no luck"]),
    ],
)
def test_a_condition_that_is_not_met_leaves_the_line_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: tuple[int, ...], failed: list[str]
) -> None:
    lines = tmp_path / "skips.txt"
    lines.write_text("test_x.Case.test_a | no luck | a reason | since rdma-core 54\n")
    monkeypatch.setattr(results, "SKIPS", lines)
    monkeypatch.setattr(results, "installed", lambda package: version)
    case = Case("test_x", nothing)
    # Where the condition is met the skip is allowed and missed, elsewhere neither.
    skip, passed = Result("test_x.Case.test_a", "skipped", "no luck"), Result("test_x.Case.test_a", "passed")
    assert failures(case, [skip], rules()) + failures(case, [passed], rules()) == failed


def test_versions_of_packages_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def version(shown: str) -> tuple[int, ...]:
        program = tmp_path / "dpkg-query"
        program.write_text(f"#!/bin/sh\necho '{shown}'\n")
        program.chmod(0o755)
        results.installed.cache_clear()
        return results.installed("p")

    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert version("56.1-1") == (56, 1)
    assert version("1:25.01.0+0.80-1") == (25, 1, 0)
    assert version("") == ()
    (tmp_path / "dpkg-query").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    results.installed.cache_clear()
    assert results.installed("p") == ()
    results.installed.cache_clear()


def failures(case: Case, found: Iterable[Result], allowed: list[Rule]) -> list[str]:
    return [result.message for result in judge(case, list(found), allowed) if result.outcome == "failed"]


def test_a_skip_without_a_line_fails() -> None:
    case, skip = Case("test_x", nothing), Result("test_x.Case.test_a", "skipped", "no luck")
    assert failures(case, [skip], []) == ["skipped without a line in skips.txt: no luck"]
    assert failures(case, [skip], [Rule("test_x.Case.test_a", "no luck", "reason")]) == []
    assert failures(case, [skip], [Rule("test_x.Case.test_a", "other words", "machine: reason")]) != []


def test_a_line_without_a_skip_fails() -> None:
    case, passed = Case("test_x", nothing), Result("test_x.Case.test_a", "passed")
    line = Rule("test_x.Case.test_a", "no luck", "reason")
    assert failures(case, [passed], [line]) == [
        "a line of skips.txt that nothing needs any more: test_x.Case.test_a | no luck"
    ]
    assert failures(case, [passed], [Rule("test_x.Case.test_a", "no luck", "machine: reason")]) == []
    assert failures(case, [passed], [Rule("test_y.Case.test_a", "no luck", "reason")]) == []


def test_no_result_at_all_fails() -> None:
    assert failures(Case("test_x", nothing), [], []) == ["it had no result at all"]


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [(SkippedError("a"), "skipped"), (NotInstalledError("a"), "not installed"), (FailedError("a"), "failed")],
)
def test_an_end_by_exception_is_a_result(tmp_path: Path, raised: Exception, outcome: str) -> None:
    def call(host: Host) -> None:
        raise raised

    (result,) = execute(Case("x", call), tmp_path)
    assert (result.outcome, result.message) == (outcome, "a")


def test_a_suite_out_of_time_fails_what_is_left(tmp_path: Path) -> None:
    suite = Suite("late", "nothing", list, limit_s=-1)
    row = results.run_suite(suite, [Case("x", nothing)], tmp_path, lambda name: None)
    assert [result.outcome for result in row.failures] == ["failed"]
    assert "seconds are over" in row.failures[0].message


@pytest.mark.parametrize(("outcome", "status"), [("passed", 0), ("failed", 1), ("skipped", 1), ("not installed", 1)])
def test_the_command_ends_as_its_results_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: str, status: int
) -> None:
    case = Case("one", lambda host: [Result("one", outcome, "words")])
    monkeypatch.setattr(command, "SUITES", [Suite("only", "one case", lambda: [case], 60)])
    written = tmp_path / "all.json"
    assert command.main(["only", "--json", str(written)]) == status
    report = json.loads(written.read_text())
    assert report["ok"] is (status == 0)
    (row,) = report["suites"]
    assert (row["passed"], row["failed"]) == (1 - status, status)
    assert command.main(["--only", "two"]) == 1  # nothing has this name


def test_results_of_unittest_are_read_in_each_form() -> None:
    text = (
        "test_a (tests.test_x.Case)\nwords about it ... ok\n"
        "test_b (tests.test_x.Case.test_b) ... skipped 'No \"such\" thing'\n"
        "test_c (tests.test_x.Case.test_c)\nwords ... ERROR\n"
        "test_d (tests.test_x.Case.test_d) ... it = 1\nok\n"
    )
    assert pyverbs.results(text) == {
        "test_x.Case.test_a": ("passed", ""),
        "test_x.Case.test_b": ("skipped", 'No "such" thing'),
        "test_x.Case.test_c": ("failed", ""),
        "test_x.Case.test_d": ("passed", ""),
    }


CRASH = "Fatal Python error: Segmentation fault\n\nThread:\n"


@pytest.mark.parametrize(
    ("output", "at_the_end"),
    [
        (f"OK (skipped=2)\n{CRASH}  Garbage-collecting\n  <no Python frame>\n", True),
        ("OK\nException ignored in: 'pyverbs.cq.CQEX.__dealloc__'\n", True),
        (f"OK\n{CRASH}  <no Python frame>\n", False),
        (f"test_a (x) ... {CRASH}  Garbage-collecting\n  File y\n", False),
        ("Exception ignored in: 'x'\nFAILED (failures=1)\n", False),
    ],
)
def test_what_pyverbs_does_at_the_end_is_told_from_a_crash(output: str, at_the_end: bool) -> None:
    assert bool(re.search(pyverbs.AT_THE_END, output, re.MULTILINE | re.DOTALL)) is at_the_end
