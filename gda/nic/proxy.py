# SPDX-License-Identifier: Apache-2.0
"""The host thread that posts kernels' requests by libibverbs: for NICs that kernels cannot post to themselves.

Used by proxied.py. One thread a NIC, from its first proxied queue pair to its last. A look takes what every queue has
rung, posts it, and writes the completions that came. Right after it did something it looks without a pause; the longer
nothing happens, the longer it sleeps between two looks. Document: docs/proxy.md.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from gda import _proxy
from gda.nic.gpu import Gpu
from gda.nic.host_thread import HostThread, Words

__all__ = ["LONGEST_SLEEP_NS", "OPEN_SLEEP_NS", "Proxy"]

LONGEST_SLEEP_NS = 500_000  # at rest
OPEN_SLEEP_NS = 50_000  # while completions are to come
_BUSY_NS = 50_000


class Proxy:
    """The queues of a NIC, and the thread that serves them while there are any."""

    def __init__(self, gpu: Gpu | None) -> None:
        self._words = Words(gpu)
        self._queues: list[_proxy.Queue] = []
        self._thread = HostThread("gda proxy", "posts for kernels", self._work, lambda: bool(self._queues))

    @property
    def is_running(self) -> bool:
        """Whether its thread is there."""
        return self._thread.is_running

    @property
    def thread(self) -> threading.Thread | None:
        """For those who want to bind it to a core, or see what it costs."""
        return self._thread.thread

    def still(self) -> AbstractContextManager[None]:
        """Inside, no queue is served: for what must not happen while requests are posted."""
        return self._thread.still()

    def take_word(self) -> tuple[int, int]:
        """Where kernels of a queue store their doorbells: for code on the CPU, and on the GPU (0: they cannot)."""
        with self._thread.lock:
            return self._words.take()

    def give_word(self, word: tuple[int, int]) -> None:
        """Take it back; no queue uses it any more."""
        with self._thread.lock:
            self._words.give(word)

    def add(self, queue: _proxy.Queue) -> None:
        """Serve this one, too."""
        with self.still():
            self._queues.append(queue)

    def remove(self, queue: _proxy.Queue) -> None:
        """Serve it no more: afterwards nothing of it is posted and no completion is written."""
        with self.still():
            self._queues.remove(queue)
            queue.close()

    def _work(self, stop: int) -> None:
        _proxy.serve(self._queues, stop, _BUSY_NS, LONGEST_SLEEP_NS, OPEN_SLEEP_NS)
