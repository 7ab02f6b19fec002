# SPDX-License-Identifier: Apache-2.0
"""What programs of several processes use. Reading order: team (`gda.init`), window and part, signal, collectives/ (what
a team has); bootstrap (how ranks find each other), record (what is checked of what they say), roll (who has left),
rendezvous and launchers (by what it travels), meeting (how two of them connect later).

Document: docs/programs.md.
"""

from __future__ import annotations

from gda.comm.bootstrap import Bootstrap, threads
from gda.comm.collectives.barrier import Barrier
from gda.comm.collectives.reduce import AllReduce, ReduceScatter
from gda.comm.part import Part
from gda.comm.signal import Signals
from gda.comm.team import Team, init
from gda.comm.window import Window

__all__ = ["AllReduce", "Barrier", "Bootstrap", "Part", "ReduceScatter", "Signals", "Team", "Window", "init", "threads"]
