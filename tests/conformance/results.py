# SPDX-License-Identifier: Apache-2.0
"""What a suite is made of, how a case ends, and which skips are allowed.

A suite has cases; a case runs something and yields one result or, when it is a test suite itself, many. skips.txt names
every skip that is allowed; judge() turns what it does not name, and what it names in vain, into failures. Used by the
command (__main__.py) and by pytest (test_suites.py) alike.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gda import sim
from gda.errors import UnavailableError

SKIPS = Path(__file__).parent / "skips.txt"
ANYWHERE = "machine:"  # begins the reason of a skip that depends on the machine


class SkippedError(Exception):
    """The case cannot run; its words must stand in skips.txt."""


class NotInstalledError(Exception):
    """A program is missing: pytest reports the case as not run, the command as a failure."""


class FailedError(Exception):
    """The case ran and went wrong; its words say how."""


@dataclass(frozen=True)
class Result:
    name: str
    outcome: str  # passed, failed, skipped, not installed
    message: str = ""
    seconds: float = 0.0


@dataclass
class Host:
    """Where a case runs: a host of its own, whose programs meet nobody else's NIC."""

    directory: Path
    environment: dict[str, str]


@dataclass(frozen=True)
class Case:
    name: str  # of the one result; or the first word, up to the first dot, of the names of all its results
    call: Callable[[Host], Iterable[Result] | None]
    ci: bool = True  # part of what pytest runs


@dataclass(frozen=True)
class Suite:
    name: str
    about: str
    cases: Callable[[], list[Case]]
    limit_s: float  # of the whole suite


@functools.cache
def installed(package: str) -> tuple[int, ...]:
    """Version of a Debian package, up to the first part that is no number; empty when it is not installed."""
    if shutil.which("dpkg-query") is None:
        return ()
    command = ["dpkg-query", "--show", "--showformat=${Version}", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    numbers = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", done.stdout)
    return tuple(int(n) for n in numbers[1].split(".")) if numbers else ()


@dataclass(frozen=True)
class Since:
    """The condition of a line: a package in this version or a later one."""

    package: str
    version: int

    @classmethod
    def read(cls, text: str) -> Since:
        words = re.fullmatch(r"since (\S+) (\d+)", text)
        if words is None:
            raise ValueError(f"{text!r} is no condition; write: since PACKAGE VERSION (a whole number)")
        return cls(words[1], int(words[2]))

    @property
    def met(self) -> bool:
        return installed(self.package) >= (self.version,)


@dataclass(frozen=True)
class Rule:
    """One line of skips.txt."""

    test: str
    message: str
    reason: str
    since: Since | None = None

    def allows(self, result: Result) -> bool:
        return fnmatch.fnmatchcase(result.name, self.test) and fnmatch.fnmatchcase(result.message, self.message)

    def concerns(self, case: Case) -> bool:
        return self.test.split(".")[0] == case.name or fnmatch.fnmatchcase(case.name, self.test)


def read_rules(text: str) -> list[Rule]:
    """Read the lines of a file of skips."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            test, message, reason, *condition = (part.strip() for part in line.split(" | "))
            found.append(Rule(test, message, reason, *map(Since.read, condition)))
    return found


def rules() -> list[Rule]:
    """The lines of skips.txt whose condition is met here. The others neither allow a skip nor need one."""
    return [rule for rule in read_rules(SKIPS.read_text()) if rule.since is None or rule.since.met]


def environment(meeting_place: Path) -> dict[str, str]:
    """Environment of a program on the software NIC; NICs of one `meeting_place` find each other."""
    import os

    try:
        libraries = sim.preload_libraries()
    except UnavailableError as error:
        raise NotInstalledError(str(error)) from None
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(libraries),
        "GDA_SIM_DIRECTORY": str(meeting_place),
        # For a sanitized build of the NIC under programs that are not: what they leak is their own affair, and how
        # they order their accesses before a doorbell cannot be seen.
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",
    }


def execute(case: Case, directory: Path) -> list[Result]:
    """Run a case on a host of its own in `directory`, which exists and is empty."""
    begun = time.monotonic()

    def single(outcome: str, message: str = "") -> list[Result]:
        return [Result(case.name, outcome, message, time.monotonic() - begun)]

    meeting_place = directory / "meet"
    meeting_place.mkdir()
    try:
        found = case.call(Host(directory, environment(meeting_place)))
        return single("passed") if found is None else list(found)
    except SkippedError as skipped:
        return single("skipped", str(skipped))
    except NotInstalledError as missing:
        return single("not installed", str(missing))
    except FailedError as failed:
        return single("failed", str(failed))


def judge(case: Case, results: list[Result], allowed: list[Rule]) -> Iterator[Result]:
    """Yield the results of a case as they count: a skip without a rule failed, and so did a rule without a skip."""
    skips = [result for result in results if result.outcome == "skipped"]
    for result in results:
        if result.outcome == "skipped" and not any(rule.allows(result) for rule in allowed):
            yield Result(result.name, "failed", f"skipped without a line in skips.txt: {result.message}")
        else:
            yield result
    if not results:
        yield Result(case.name, "failed", "it had no result at all")
    if any(result.outcome == "not installed" for result in results):
        return
    for rule in allowed:
        if rule.reason.startswith(ANYWHERE) or not rule.concerns(case):
            continue
        if not any(rule.allows(skip) for skip in skips):
            words = f"a line of skips.txt that nothing needs any more: {rule.test} | {rule.message}"
            yield Result(f"{case.name}: skips.txt", "failed", words)


@dataclass
class Row:
    """A suite and how it went."""

    suite: Suite
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, outcome: str) -> int:
        return sum(result.outcome == outcome for result in self.results)

    @property
    def failures(self) -> list[Result]:
        return [r for r in self.results if r.outcome in ("failed", "not installed")]


def run_suite(suite: Suite, cases: list[Case], directory: Path, tell: Callable[[str], None]) -> Row:
    """Run these cases of a suite within its time; `tell` hears the name of each case before it runs."""
    row, allowed, begun = Row(suite), rules(), time.monotonic()
    for number, case in enumerate(cases):
        if time.monotonic() - begun > suite.limit_s:
            late = f"not run: the suite's {suite.limit_s:.0f} seconds are over"
            row.results += [Result(rest.name, "failed", late) for rest in cases[number:]]
            break
        tell(case.name)
        place = directory / f"{suite.name}-{number}"
        place.mkdir(parents=True)
        row.results += judge(case, execute(case, place), allowed)
    row.seconds = time.monotonic() - begun
    return row
