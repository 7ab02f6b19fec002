# SPDX-License-Identifier: Apache-2.0
"""`once`: what a process has one of, made when it is first asked for, also when threads ask together.

functools.cache lets two threads that come at once both make it: two pools of one GPU, or a module that one loads while
the other's kernel already waits for it. Used where the thing made has an identity, not where it is a mere value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from gda.locks import Lock

__all__ = ["once"]

P = ParamSpec("P")
T = TypeVar("T")


class once(Generic[P, T]):  # noqa: N801 - a decorator
    """A function that is called once for each set of (hashable) arguments; who comes meanwhile waits.

    A failure is not kept: the next one tries again.
    """

    def __init__(self, make: Callable[P, T]) -> None:
        self._make = make
        self._lock = Lock()  # reentrant: what is made may ask for another of the same kind
        self._made: dict[tuple[object, ...], T] = {}
        functools.update_wrapper(self, make)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """What was made of these."""
        key = (args, *sorted(kwargs.items()))
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(*args, **kwargs)
            return self._made[key]

    @property
    def made(self) -> int:
        """How many there are so far."""
        return len(self._made)

    def forget(self) -> None:
        """Make new ones from now on."""
        with self._lock:
            self._made.clear()
