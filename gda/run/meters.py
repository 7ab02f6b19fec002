# SPDX-License-Identifier: Apache-2.0
"""What the device library did, counted: names and words of cuda/gda/target/meter.h. Called by executor and targets."""

from __future__ import annotations

import functools
import re

from gda.errors import ArgumentError
from gda.run.compile import include_directory

__all__ = ["DEFINE", "SYMBOL", "meter_names", "no_meters"]

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
