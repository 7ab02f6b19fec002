# SPDX-License-Identifier: Apache-2.0
"""What callers pass: whole numbers of any kind (NumPy's too), times, and one of a few words. Used by all of gda.comm.

What is not that is refused by an ArgumentError before anything is sent: other ranks do not learn of it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from gda.errors import ArgumentError

__all__ = ["CALL_S", "one_of", "seconds", "whole", "wholes"]

# The deadline of what goes to other ranks, where none is given: windows, signals, collectives. It is for peers that are
# silent; a rank of this host that has died is named by its end, at once.
CALL_S = 30.0
_LONGEST_S = 1e9


def whole(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """The same number as an int. Raises ArgumentError for what is none (True and 1.0 too), or outside the bounds."""
    found: int | None = None
    if not isinstance(value, bool):
        try:
            found = operator.index(value)
        except TypeError:
            found = None
    if found is None or (least is not None and found < least) or (most is not None and found > most):
        bounds = {
            (False, False): "", (True, False): f" from {least} on", (False, True): f" up to {most}",
            (True, True): f" from {least} to {most}",
        }[least is not None, most is not None]  # fmt: skip
        raise ArgumentError(f"{name}={value!r} is not a whole number{bounds}")
    return found


def wholes(name: str, values: Iterable[Any], least: int | None = None, most: int | None = None) -> list[int]:
    """Several of them."""
    try:
        found = list(values)
    except TypeError:
        raise ArgumentError(f"{name}={values!r} is not a list of whole numbers", f"{name}=[{values!r}]") from None
    return [whole(f"{name}[{i}]", one, least, most) for i, one in enumerate(found)]


def one_of(name: str, value: Any, words: Iterable[str], advice: str = "") -> str:
    """The same word. Raises ArgumentError for any other, or what is none."""
    words = tuple(words)
    if not isinstance(value, str) or value not in words:
        raise ArgumentError(f"{name}={value!r} is not one of {', '.join(words)}", advice)
    return value


def seconds(name: str, value: Any, *, or_zero: bool = True) -> float:
    """The same time as a float: at most 1e9 s, for every wait ends. Zero, if it may be, means: only look."""
    try:
        found = float(value) if not isinstance(value, str | bytes | bool) else -1.0
    except (TypeError, ValueError, OverflowError):
        found = -1.0
    if not (0 <= found <= _LONGEST_S and (or_zero or found > 0)):  # NaN is neither
        raise ArgumentError(
            f"{name}={value!r} is not a {'' if or_zero else 'positive '}time in seconds"
            + (", zero or more" if or_zero else ""),
            f"a number of at most {_LONGEST_S:g}",
        )
    return found
