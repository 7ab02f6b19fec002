# SPDX-License-Identifier: Apache-2.0
"""The word that a kernel reports into, one for each launch: in any memory for the CPU, in pinned memory for a GPU.

Made by launch, and by gda.numba.kernel; read by Launch. A GPU writes pinned memory, where it has the same address
(unified addressing), and Python reads it there without a copy. Pinning more could wait for a kernel that waits, so
words are taken from a pool that was there before the first kernel ran, and go back to it. What a word says:
cuda/gda/formats/status.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from gda.errors import UnavailableError
from gda.run.arguments import OwnedAddress

__all__ = ["PinnedStatus", "PinnedWords", "StatusWord"]

AT_ONCE = 512  # launches whose outcome somebody may still read
SPARE = 64  # words that captured launches leave to others


class StatusWord:
    """A zero word in memory of this process."""

    def __init__(self) -> None:
        self._word = ctypes.c_uint64(0)

    @property
    def address(self) -> int:
        """Where it is."""
        return ctypes.addressof(self._word)

    @property
    def argument(self) -> OwnedAddress:
        """What the kernel gets."""
        return OwnedAddress(self.address, self)

    def read(self) -> int:
        """What the kernel wrote."""
        return self._word.value

    def clear(self) -> None:
        """As if nothing was written."""
        self._word.value = 0

    def keep(self) -> None:
        """Never give this memory to another launch: it is this one's own anyway."""


class PinnedWords:
    """Addresses of free words. `pin` answers with that of so many bytes, which live as long as the process."""

    def __init__(self, pin: Callable[[int], int]) -> None:
        self._pin = pin
        self.free: list[int] = []
        self.add()

    def add(self) -> None:
        """Pin as many again."""
        first = self._pin(8 * AT_ONCE)
        self.free += range(first, first + 8 * AT_ONCE, 8)


class PinnedStatus(StatusWord):
    """A zero word of a pool."""

    _is_kept = False

    def __init__(self, words: PinnedWords) -> None:
        if not words.free:
            raise UnavailableError("all status words are in use", "drop Launch objects whose kernels have ended")
        self._words = words
        self._word = ctypes.c_uint64.from_address(words.free.pop())
        self.clear()

    def keep(self) -> None:
        """Never give it to another launch: a graph writes there whenever it is replayed, and nobody says how long."""
        self._is_kept = True
        if len(self._words.free) < SPARE:
            self._words.add()

    def __del__(self) -> None:
        # Neither the Launch nor a running kernel's arguments hold this object any more.
        if hasattr(self, "_word") and not self._is_kept:
            self._words.free.append(self.address)
