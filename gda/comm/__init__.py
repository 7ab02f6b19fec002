# SPDX-License-Identifier: Apache-2.0
"""What programs of several processes use. Reading order: bootstrap (how ranks find each other), record (what is
checked of what they exchange), rendezvous and launchers (by what it travels).

Document: docs/programs.md.
"""

from __future__ import annotations

from gda.comm.bootstrap import Bootstrap, threads

__all__ = ["Bootstrap", "threads"]
