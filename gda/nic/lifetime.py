# SPDX-License-Identifier: Apache-2.0
"""Who frees what, in which order. Used by every object of gda/nic that holds something of the NIC.

An object and its finalizer share one `Resources`: closers run last in, first out; children are closed before their
parent; closing twice is no error; garbage collection and interpreter exit close whatever is left in the same order.
It never refers to the object itself, so it keeps nothing alive but what must be freed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from gda import attach
from gda.errors import ClosedError

__all__ = ["Owner", "Resources"]


class Resources:
    """What must be freed for one object: a stack of closers, and the resources of its children."""

    def __init__(self, what: str, parent: Resources | None = None) -> None:
        self.what = what
        self.closed = False
        self._process = os.getpid()
        self._parent = parent
        self._children: dict[int, Resources] = {}
        self._stack = ExitStack()
        self._lock = threading.RLock()  # reentrant: a finalizer may run inside any allocation of the same thread
        if parent is not None:
            parent.check()
            parent._children[id(self)] = self

    def check(self) -> None:
        """Raise ClosedError if this, or what it stands on, is closed; under gda.sim.strict() CheckError."""
        if self.closed:
            raise ClosedError(f"{self.what} has been closed", "use it before close() or the end of its with block")
        if self._parent is not None:
            self._parent.check()
        else:
            attach.check_complaints()

    def callback(self, closer: Callable[[], object]) -> None:
        """Call `closer` when this closes, before those added earlier."""
        self._stack.callback(closer)

    def close(self) -> None:
        """Close children, newest first, then run the closers. All run even if one fails; the last error is raised."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            if os.getpid() != self._process:  # a forked child must not destroy its parent's objects
                self._stack.pop_all()
                return
            with ExitStack() as order:
                order.callback(self._forget)
                order.push(self._stack.pop_all())
                for child in list(self._children.values()):
                    order.callback(child.close)

    def _forget(self) -> None:
        if self._parent is not None:
            self._parent._children.pop(id(self), None)
            self._parent = None


class Owner:
    """Base of objects with a close(): context manager, finalizer, use-after-close check."""

    _resources: Resources

    def _own(self, resources: Resources) -> None:
        self._resources = resources
        weakref.finalize(self, resources.close)

    @property
    def closed(self) -> bool:
        """True once this or its parent has been closed."""
        return self._resources.closed

    def close(self) -> None:
        """Free it and everything made from it. Again is no error."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
