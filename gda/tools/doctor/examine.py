# SPDX-License-Identifier: Apache-2.0
"""Runs all probes on a machine and judges. Called by `python -m gda doctor` and by programs: `examine()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gda import config
from gda.tools.doctor import card, gpu, host, kernel, programs, topology
from gda.tools.doctor.isolate import run_all, run_here
from gda.tools.doctor.line import Line, Probe
from gda.tools.doctor.machine import Machine
from gda.tools.doctor.verdict import Verdict, judge

__all__ = ["PROBES", "SCHEMA", "Report", "examine"]

SCHEMA = 1  # of --json: grows when a field changes its meaning

PROBES: tuple[Probe, ...] = (
    *card.PROBES, *gpu.PROBES, *topology.PROBES, *programs.PROBES, *kernel.PROBES, *host.PROBES,
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """All lines, and what they come to."""

    lines: list[Line]
    verdict: Verdict

    def line(self, name: str) -> Line:
        """The first line whose name starts so. Raises KeyError without one."""
        for line in self.lines:
            if line.name.startswith(name):
                return line
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """As --json prints it."""
        return {
            "schema": SCHEMA, "verdict": self.verdict.to_json(), "lines": [line.to_json() for line in self.lines],
        }  # fmt: skip


def examine(
    machine: Machine | None = None, *, seconds: float = 10.0, overall_seconds: float = 60.0,
    probes: tuple[Probe, ...] = PROBES, isolate: bool = True,
) -> Report:  # fmt: skip
    """Look at this machine (or another one that tests play). `seconds` bounds each probe, `overall_seconds` all.

    Without `isolate` the probes run in this process, and nothing bounds them.
    To be called before this process uses CUDA: each probe is a child process, and CUDA does not survive a fork.
    """
    machine = machine or Machine()
    lines = run_all(probes, machine, seconds, overall_seconds) if isolate else run_here(probes, machine)
    asked = {"nic": "GDA_NIC", "target": "GDA_TARGET", "posting": "GDA_POSTING"}
    return Report(lines, judge(lines, **{word: config.get(name) for word, name in asked.items()}))
