# SPDX-License-Identifier: Apache-2.0
"""CPU time of this process's threads. Used by transfer.py and connect_rank.py."""

from __future__ import annotations

import threading
import time
from pathlib import Path

__all__ = ["NIC_THREAD", "by_thread", "clock_of"]

NIC_THREAD = "gda-sim"  # the software NIC's


def clock_of(number: int) -> int:
    """For time.clock_gettime: Linux's clock of a thread's CPU time."""
    return (~number << 3) | 6


def by_thread() -> dict[int, tuple[str, int]]:
    """Name and nanoseconds by number; "main" is Python's."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        number = int(task.name)
        try:
            name = (task / "comm").read_text().strip()
            used = time.clock_gettime_ns(clock_of(number))
        except OSError:  # it has ended meanwhile
            continue
        found[number] = "main" if number == threading.main_thread().native_id else name, used
    return found
