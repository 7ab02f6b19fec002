# SPDX-License-Identifier: Apache-2.0
"""What this machine can do, and why not: `python -m gda doctor`. Document: docs/doctor.md.

line: one thing that was looked at; machine: where its facts come from; kernel, host, card, gpu, programs: the probes,
a function for each line; isolate: runs them, each with a deadline; verdict: what can be run here; show: for people.
"""

from gda.tools.doctor.examine import Report, examine
from gda.tools.doctor.line import Line, Status
from gda.tools.doctor.machine import Machine

__all__ = ["Line", "Machine", "Report", "Status", "examine"]
