# SPDX-License-Identifier: Apache-2.0
"""What the device library did, counted: names and words of cuda/gda/target/meter.h. Called by executor and targets.

With GDA_PROFILE all kernels count, and the process leaves their sum at its end (`python -m gda profile`).
"""

from __future__ import annotations

import atexit
import functools
import os
import re
from pathlib import Path
from typing import Protocol

from gda import config
from gda.errors import ArgumentError, GdaError
from gda.run.compile import include_directory

__all__ = ["DEFINE", "SYMBOL", "Metered", "leave_at_the_end", "meter_names", "no_meters"]

DEFINE = "-DGDA_METER"
SYMBOL = "gda_meter_counts"


@functools.cache
def meter_names() -> tuple[str, ...]:
    """As in the header, in its order, in small letters."""
    text = (include_directory() / "gda" / "target" / "meter.h").read_text()
    return tuple(name.lower() for name in re.findall(r"^    GDA_METER_(\w+),", text, re.M))


def no_meters(file: str) -> ArgumentError:
    """For device code without the library."""
    return ArgumentError(f"{file} has nothing to count", "it does not include <gda/gda.h>")


class Metered(Protocol):
    """Compiled kernels that count."""

    def meters(self, *, clear: bool) -> list[int]:
        """The counters, which are then zero if `clear`."""
        ...


_left: list[Metered] = []  # kept alive until then: a program may drop its Kernel before


def leave_at_the_end(module: Metered) -> None:
    """Tell what this module's kernels did when the process ends, if GDA_PROFILE asks for it and they count."""
    if not config.get("GDA_PROFILE"):
        return
    try:
        module.meters(clear=False)
    except ArgumentError:  # without the device library
        return
    if not _left:
        atexit.register(_leave)
        os.register_at_fork(after_in_child=_left.clear)
    _left.append(module)


def _leave() -> None:
    totals = [0] * len(meter_names())
    for module in _left:
        try:
            totals = [sum(both) for both in zip(totals, module.meters(clear=False), strict=True)]
        except (GdaError, RuntimeError):  # a kernel left the GPU's context unusable: what it did is lost
            continue
    lines = [f"meter {name} {count}\n" for name, count in zip(meter_names(), totals, strict=True)]
    Path(f"{config.get('GDA_PROFILE')}.{os.getpid()}.kernels").write_text("".join(lines))
