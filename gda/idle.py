# SPDX-License-Identifier: Apache-2.0
"""What waits until no kernel runs on a GPU. Told by gda.run of each launch; asked by gda.nic.

Some calls of the driver return only when the kernels that run have ended (docs/streams.md, "What waits for kernels"). A
kernel may be waiting for another rank, and where ranks are threads of one process that is perhaps the thread that
calls. So what can wait is done later: when the last kernel of this process that is known here has ended, before the
next one begins. Kernels in graphs are not known: when they run, nobody tells.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from gda.locks import Lock

__all__ = ["began", "ended", "when_idle"]

_lock = Lock()  # held while something is done: the next launch waits for that, and not the other way
_running = 0
_later: list[Callable[[], object]] = []


def began() -> None:
    """A launch begins."""
    global _running
    with _lock:
        _running += 1


def ended() -> None:
    """One that began has ended. If it was the last, what was left for this moment is done."""
    global _running
    with _lock:
        _running -= 1
        while _later and not _running:
            try:
                _later.pop(0)()
            except Exception:  # who closed it has gone on, and whose kernel has ended has nothing to do with it
                sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]


def when_idle(action: Callable[[], object]) -> None:
    """Now, if no kernel runs, else when none does."""
    with _lock:
        if _running:
            _later.append(action)
        else:
            action()
