# SPDX-License-Identifier: Apache-2.0
"""One thing that doctor looked at: how it is, what was measured, what that means, what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gda.tools.doctor.machine import Machine

__all__ = ["Line", "Probe", "Status", "missing", "not_applicable", "ok", "problem", "unknown"]


class Status(Enum):
    """How a thing is. NOT_APPLICABLE: it would mean nothing here. UNKNOWN: looking at it was refused or failed."""

    OK = "ok"
    MISSING = "missing"
    PROBLEM = "problem"
    NOT_APPLICABLE = "not applicable"
    UNKNOWN = "could not tell"


@dataclass
class Line:
    """One line. `facts` holds what was measured for programs; `next` is empty where nothing is to be done.

    `name` and `group` are filled in by whoever runs the probe.
    """

    status: Status
    value: str
    meaning: str = ""
    next: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    group: str = ""

    def to_json(self) -> dict[str, Any]:
        """As --json prints it."""
        return {
            "group": self.group, "name": self.name, "status": self.status.value, "value": self.value,
            "meaning": self.meaning, "next": self.next, "facts": self.facts,
        }  # fmt: skip


@dataclass(frozen=True)
class Probe:
    """How a line is measured. May give several (a line each port); reads, tries and undoes, but changes nothing."""

    group: str
    name: str
    look: Callable[[Machine], Line | Iterable[Line]]


def ok(value: str, meaning: str = "", **facts: Any) -> Line:
    """It is as it should be."""
    return Line(Status.OK, value, meaning, "", facts)


def missing(value: str, meaning: str, next: str, **facts: Any) -> Line:
    """It is not there."""
    return Line(Status.MISSING, value, meaning, next, facts)


def problem(value: str, meaning: str, next: str, **facts: Any) -> Line:
    """It is there and gets in the way."""
    return Line(Status.PROBLEM, value, meaning, next, facts)


def not_applicable(value: str, meaning: str = "", **facts: Any) -> Line:
    """Nothing here that it could be about."""
    return Line(Status.NOT_APPLICABLE, value, meaning, "", facts)


def unknown(value: str, meaning: str, next: str, **facts: Any) -> Line:
    """It could not be looked at."""
    return Line(Status.UNKNOWN, value, meaning, next, facts)
