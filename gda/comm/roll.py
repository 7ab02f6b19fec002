# SPDX-License-Identifier: Apache-2.0
"""Who has left, among the ranks of one host: a byte for each in memory that they share. Used by bootstrap.py.

A process that has ended may have died, or may have closed its team before: the byte tells. The memory has no name and
ends with the last process; the lowest rank of the host makes it, the others take it from /proc while it waits for them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gda.comm.bootstrap import Identity

__all__ = ["FAILED", "HERE", "LEFT", "Roll"]

HERE, LEFT, FAILED = 0, 1, 2


class Roll:
    """The bytes of `size` ranks. Of those on other hosts, and where /proc does not serve, nothing is known: HERE."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._map: mmap.mmap | None = None
        self._last = bytes(size)  # what was known when it was closed
        self.descriptor = -1
        with contextlib.suppress(OSError):  # a sandbox
            self.descriptor = os.memfd_create("gda-roll")
            os.ftruncate(self.descriptor, size)
            self._map = mmap.mmap(self.descriptor, size)

    def join(self, ranks: Sequence[Identity]) -> None:
        """Take that of the lowest rank here. After all have told who they are, before any goes on."""
        first = next((one for one in ranks if one.is_here), None)
        if first is None or self._map is None or first.roll < 0:
            return
        with contextlib.suppress(OSError, ValueError):
            descriptor = os.open(f"/proc/{first.pid}/fd/{first.roll}", os.O_RDWR | os.O_CLOEXEC)
            try:
                shared = mmap.mmap(descriptor, self._size)
            finally:
                os.close(descriptor)
            self._map.close()
            self._map = shared

    def mark(self, rank: int, how: int) -> None:
        """Say that this rank has left; the first word stands."""
        if self._map is not None and self._map[rank] == HERE:
            self._map[rank] = how

    def how(self, rank: int) -> int:
        """What a rank has said."""
        return self._last[rank] if self._map is None else self._map[rank]

    def close(self) -> None:
        """Give the memory back; what was known stays known."""
        if self._map is not None:
            self._last = self._map[:]
            self._map.close()
            self._map = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
