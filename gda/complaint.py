# SPDX-License-Identifier: Apache-2.0
"""What the software NIC complains about, as objects that are also their sentences.

Made by gda.attach from the lines of sim/steer.h; the table of kinds is sim/engine/complaint.h, and docs/checker.md
lists it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

__all__ = ["Complaint", "ComplaintKind", "complaint_of", "kind_of"]


@dataclass(frozen=True)
class ComplaintKind:
    """One kind: its name, the rule that was broken, where that rule stands, and what to try."""

    name: str
    rule: str
    source: str
    advice: str


class Complaint(str):
    """One thing that a program did wrong. It is its sentence; the rest are attributes.

    `kind` is a short name that does not change, `values` are the numbers of the sentence by name, `times` is how often
    it happened, `rule` what was broken, `source` where that rule stands, `advice` what to try.
    """

    kind: str
    values: dict[str, int]
    times: int
    rule: str
    source: str
    advice: str

    def __new__(cls, sentence: str, kind: ComplaintKind, values: dict[str, int], times: int) -> Complaint:
        """A complaint whose text is `sentence`."""
        self = super().__new__(cls, sentence)
        self.kind, self.rule, self.source, self.advice = kind.name, kind.rule, kind.source, kind.advice
        self.values, self.times = values, times
        return self

    def __reduce__(self) -> tuple[type, tuple[str, ComplaintKind, dict[str, int], int]]:
        kind = ComplaintKind(self.kind, self.rule, self.source, self.advice)
        return type(self), (str(self), kind, self.values, self.times)

    @property
    def qpn(self) -> int | None:
        """The queue pair that it is about, if it is about one."""
        return self.values.get("qp")

    @property
    def cqn(self) -> int | None:
        """The completion queue that it is about, if it is about one."""
        return self.values.get("cq")

    @property
    def wqe_index(self) -> int | None:
        """The request that it is about (its first block, modulo 2^16), if it is about one."""
        return self.values.get("index")

    def explain(self) -> str:
        """The sentence, the rule with its source, and what to try, on lines of their own."""
        often = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.kind}: {self}{often}\n  rule: {self.rule} ({self.source})\n  try: {self.advice}"


@functools.cache
def kind_of(line: str) -> ComplaintKind:
    """A kind, from its line of gda_sim_complaint_kinds()."""
    return ComplaintKind(*line.split("\t"))


def complaint_of(line: str, kinds: dict[str, ComplaintKind]) -> Complaint:
    """A complaint, from its line of gda_sim_report()."""
    kind, times, values, sentence = line.split("\t", 3)
    pairs = (pair.split("=") for pair in values.split())
    return Complaint(sentence, kinds[kind], {name: int(number) for name, number in pairs}, int(times))
