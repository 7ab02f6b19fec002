# SPDX-License-Identifier: Apache-2.0
"""What the host's threads for kernels share: a thread that can stand still, and words in memory that kernels store to.

Used by ringer.py (the thread that rings doorbells) and proxy.py (the thread that posts requests). Their loops are
compiled code that gives up the GIL and ends when a word says so.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gda.errors import UnavailableError
from gda.locks import Busy, Lock
from gda.nic.gpu import Gpu
from gda.nic.placement import HostSlab

__all__ = ["HostThread", "Words"]

_STRIDE = 64  # bytes: a word has its cache line for itself
_WORDS = 64  # of a page
_END_S = 10.0  # for the thread to end: it needs nothing but to run


class Words:
    """Words of 8 bytes in host memory, that kernels on the CPU and on `gpu` reach."""

    def __init__(self, gpu: Gpu | None) -> None:
        self._gpu = gpu
        self._slabs: list[HostSlab] = []
        self._free: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        """A zero word: its address for code on the CPU, and for kernels on the GPU (0: they cannot)."""
        if not self._free:
            slab = HostSlab(_WORDS * _STRIDE, self._gpu)
            self._slabs.append(slab)
            for at in range(0, _WORDS * _STRIDE, _STRIDE):
                self._free.append((slab.address + at, slab.gpu_address + at if slab.gpu_address else 0))
        word = self._free.pop()
        ctypes.c_uint64.from_address(word[0]).value = 0
        return word

    def give(self, word: tuple[int, int]) -> None:
        """Take it back."""
        self._free.append(word)


class HostThread:
    """A thread that runs `work(stop)` until the 8 bytes at `stop` are not zero; `wanted` says whether it should be.

    It stands still inside `still()`: what it works on may change there. `what` is for messages.
    """

    def __init__(self, name: str, what: str, work: Callable[[int], object], wanted: Callable[[], bool]) -> None:
        self._name, self._what, self._work, self._wanted = name, what, work, wanted
        self.lock = Lock()
        self.thread: threading.Thread | None = None
        self._stop = ctypes.c_uint64(0)
        self._still = 0

    @property
    def is_running(self) -> bool:
        """Whether it is there."""
        return self.thread is not None

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing is worked on meanwhile."""
        with self.lock:
            self._pause()
            self._still += 1
            try:
                yield
            finally:
                self._still -= 1
                if not self._still and self._wanted():
                    self._go_on()

    def _pause(self) -> None:
        thread, self.thread = self.thread, None
        if thread is None:
            return
        self._stop.value = 1
        thread.join(_END_S)
        if thread.is_alive():
            raise UnavailableError(
                f"the thread that {self._what} did not end within {_END_S:g} s", "is this machine overloaded?"
            )

    def _go_on(self) -> None:
        self._stop = stop = ctypes.c_uint64(0)
        self.thread = threading.Thread(target=_run, args=(self._work, stop), name=self._name, daemon=True)
        self.thread.start()


def _run(work: Callable[[int], object], stop: ctypes.c_uint64) -> None:
    with Busy():  # who closes a queue waits for this thread
        work(ctypes.addressof(stop))
