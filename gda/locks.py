# SPDX-License-Identifier: Apache-2.0
"""Locks in which no garbage is closed. Used by all of this package that holds a lock or has a finalizer.

Python frees garbage in the middle of any allocation, in whichever thread that is, and with it what this package closes
when nobody holds it any more: queue pairs, memory, whole NICs. If that thread held a lock then, it would wait for the
locks of what it closes, one thread for another in an order that nobody chose, and sometimes in a circle. So finalizers
wait until their thread holds no Lock; what they left is done by the first thread that gives back its last one.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType

__all__ = ["Busy", "Lock", "when_free"]


class _Here(threading.local):
    depth = 0  # of locks that this thread holds or waits for


_here = _Here()
_left: deque[Callable[[], object]] = deque()  # what finalizers could not do at once


def when_free(action: Callable[[], object]) -> None:
    """For finalizers: do it now, or, if this thread holds a Lock, soon after it has given back its last one."""
    if _here.depth:
        _left.append(action)
    else:
        action()


def _do_what_is_left() -> None:
    while _left and not _here.depth:
        try:
            action = _left.popleft()
        except IndexError:  # another thread took it
            return
        try:
            action()
        except Exception:  # nobody called this: told as Python tells of finalizers
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]


class Busy:
    """In the `with`, this thread closes no garbage: it holds a lock that is not of this file, or somebody awaits it."""

    def __enter__(self) -> None:
        _here.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _here.depth -= 1
        if _left and not _here.depth:
            _do_what_is_left()


class Lock:
    """For `with`. Reentrant. In a forked child it is free, unless the thread that forked held it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def take(self, timeout_s: float) -> bool:
        """Wait at most so long; whether it is held now, and is to be given back by give()."""
        _here.depth += 1
        try:
            taken = self._lock.acquire(timeout=timeout_s) if timeout_s > 0 else self._lock.acquire(blocking=False)
        except BaseException:
            _here.depth -= 1
            raise
        if not taken:
            _here.depth -= 1
        return taken

    def give(self) -> None:
        """Give it back."""
        self._lock.release()
        _here.depth -= 1
        if _left and not _here.depth:
            _do_what_is_left()

    def __enter__(self) -> None:
        _here.depth += 1
        try:
            self._lock.acquire()
        except BaseException:
            _here.depth -= 1
            raise

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give()


_all: weakref.WeakSet[Lock] = weakref.WeakSet()


def _after_fork() -> None:
    """In the child no other thread is left to give back what it held."""
    for lock in list(_all):
        if lock._lock.acquire(blocking=False):
            lock._lock.release()
        else:
            lock._lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_do_what_is_left)
