# SPDX-License-Identifier: Apache-2.0
"""Who frees what, in which order. Used by every object of gda/nic that holds something of the NIC.

An object and its finalizer share one `Resources`: closers run last in, first out; children are closed before their
parent; closing twice is no error; garbage collection and interpreter exit close whatever is left in the same order.
It never refers to the object itself, so it keeps nothing alive but what must be freed.

Threads: who closes waits for those that are at work on an object, above all for one that is still being made: what
stands under it must not go meanwhile. The maker is told at its end, by ClosedError; nothing new is begun.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from gda import attach
from gda.errors import ClosedError
from gda.locks import Lock, when_free

__all__ = ["WAIT_S", "Owner", "Resources", "working"]

Object = TypeVar("Object", bound="Owner")
P = ParamSpec("P")
T = TypeVar("T")

WAIT_S = 10.0  # for those at work when somebody closes; then their calls fail as they may
_LOOK_S = 0.0005
_at_work = Lock()  # held for a moment


class Resources:
    """What must be freed for one object: a stack of closers, and the resources of its children."""

    def __init__(self, what: str, parent: Resources | None = None) -> None:
        self.what = what
        self.closed = False
        self._process = os.getpid()
        self._parent = parent
        self._children: dict[int, Resources] = {}
        self._stack = ExitStack()
        self._lock = Lock()
        self._workers: tuple[int, ...] = ()  # threads
        self._emptied = False
        self._closer = 0  # the thread that closes it now
        if parent is not None:
            # First known to who closes the parent, then a look whether somebody does.
            parent._children[id(self)] = self
            try:
                parent.check()
            except BaseException:
                self.closed = True
                parent._children.pop(id(self), None)
                raise

    @property
    def doomed(self) -> bool:
        """Whether this, or what it stands on, is closed or being closed."""
        return self.closed or (self._parent is not None and self._parent.doomed)

    def check(self) -> None:
        """Raise ClosedError if this, or what it stands on, is closed; under gda.sim.strict() CheckError."""
        if self.closed:
            raise ClosedError(f"{self.what} has been closed", "use it before close() or the end of its with block")
        if self._parent is not None:
            self._parent.check()
        else:
            attach.check_complaints()

    def callback(self, closer: Callable[[], object]) -> None:
        """Call `closer` when this closes, before those added earlier; at once if it was closed without waiting longer.

        Then raises ClosedError.
        """
        with _at_work:
            if not self._emptied:
                self._stack.callback(closer)
                return
        closer()
        raise ClosedError(f"{self.what} was closed while it was made", "let threads end before the NIC is closed")

    def begin_work(self) -> None:
        """This thread is at work on the object: who closes it waits for end_work(). Raises ClosedError."""
        with _at_work:
            self._workers += (threading.get_ident(),)
        try:
            self.check()
        except BaseException:
            self.end_work()
            raise

    def end_work(self) -> None:
        """See begin_work()."""
        with _at_work:
            rest = list(self._workers)
            rest.remove(threading.get_ident())
            self._workers = tuple(rest)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The same around a block."""
        self.begin_work()
        try:
            yield
        finally:
            self.end_work()

    def _await_workers(self) -> None:
        # On this and on its children, all before any of them closes: the new may use the old. The own thread is not
        # waited for: it closes what it could not finish, or garbage.
        own, end = {threading.get_ident()}, time.monotonic() + WAIT_S
        for one in (self, *list(self._children.values())):
            while not own.issuperset(one._workers) and time.monotonic() < end:
                time.sleep(_LOOK_S)

    def _await_closer(self) -> None:
        # What it stands on may go when this returns. Who is at work on it is not to wait: the closer waits for them.
        own, end = threading.get_ident(), time.monotonic() + WAIT_S
        workers = {worker for one in (self, *list(self._children.values())) for worker in one._workers}
        while self._closer not in (0, own) and own not in workers and time.monotonic() < end:
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """Close children, newest first, then run the closers. All run even if one fails; the last error is raised."""
        with self._lock:
            is_first, self.closed = not self.closed, True
            if is_first:
                self._closer = threading.get_ident()
        if not is_first:
            self._await_closer()
            return
        try:
            if os.getpid() != self._process:  # a forked child must not destroy its parent's objects
                self._stack.pop_all()
                return
            self._await_workers()  # without the lock: a maker that fails closes, too
            with self._lock, ExitStack() as order:
                order.callback(self._forget)
                with _at_work:
                    self._emptied = True
                    order.push(self._stack.pop_all())
                for child in list(self._children.values()):
                    order.callback(child.close)
        finally:
            self._closer = 0

    def _forget(self) -> None:
        if self._parent is not None:
            self._parent._children.pop(id(self), None)
            self._parent = None


def working(method: Callable[Concatenate[Object, P], T]) -> Callable[Concatenate[Object, P], T]:
    """A method that the object is not taken away from; raises ClosedError, so it needs no check() of its own."""

    @functools.wraps(method)
    def work(self: Object, /, *args: P.args, **options: P.kwargs) -> T:
        with self._resources.at_work():
            return method(self, *args, **options)

    return work


def _made_in_peace(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor during which nobody takes away what the object stands on."""

    @functools.wraps(init)
    def construct(self: Owner, *args: Any, **options: Any) -> None:
        if type(self).__init__ is not construct:  # of a base: the object is not whole yet
            return init(self, *args, **options)
        try:
            init(self, *args, **options)
        except BaseException:
            if hasattr(self, "_resources"):
                self._resources.close()
            raise
        finally:
            if hasattr(self, "_resources"):
                self._resources.end_work()
        if self._resources.doomed:
            raise ClosedError(
                f"{self._resources.what} was closed while it was made: another thread closed what it belongs to",
                "let threads end before the NIC is closed",
            )
        return None

    return construct


class Owner:
    """Base of objects with a close(): context manager, finalizer, use-after-close check."""

    _resources: Resources

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            cls.__init__ = _made_in_peace(cls.__init__)  # type: ignore[method-assign]

    def _own(self, resources: Resources) -> None:
        """Called once by the constructor, before it makes anything."""
        resources.begin_work()
        self._resources = resources
        weakref.finalize(self, when_free, resources.close)

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
