# SPDX-License-Identifier: Apache-2.0
"""Events of one trace, as NumPy arrays with one time base: nanoseconds of CLOCK_MONOTONIC.

Made by gather.py from rings and notes. Names of kinds: cuda/gda/formats/trace.h.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gda import formats

__all__ = ["EVENT", "RAW", "Actor", "kind", "kind_name"]

Array = npt.NDArray[Any]

# As it lies in memory: struct gda_trace_event.
RAW = np.dtype(
    {
        "names": list(formats.layouts["gda_trace_event"].members),
        "formats": [f"<u{m.bytes}" for m in formats.layouts["gda_trace_event"].members.values()],
        "offsets": [m.offset for m in formats.layouts["gda_trace_event"].members.values()],
        "itemsize": formats.layouts["gda_trace_event"].bytes,
    }
)

# As users see it. `actor` and `text` are places in the lists of the trace (text -1: none), `put` is a row of its puts.
EVENT = np.dtype(
    [
        ("time_ns", "i8"), ("kind", "u1"), ("actor", "u2"), ("lane", "u4"), ("qpn", "u4"), ("index", "u4"),
        ("bytes", "u4"), ("aux", "u4"), ("opcode", "u1"), ("flags", "u2"), ("text", "i4"), ("put", "i4"),
    ]
)  # fmt: skip


@dataclass
class Actor:
    """Who noted events: Python or the kernels of a module of one process, or one of its NICs."""

    pid: int
    source: str  # "python", "kernel" or "nic"
    name: str
    lost: int = 0  # events that newer ones have overwritten
    clock: dict[str, float] = field(default_factory=dict)  # how its times became nanoseconds


def kind(name: str) -> int:
    """Number of a kind, by its name without TRACE_."""
    return int(formats.constants[f"TRACE_{name}"])


def kind_name(number: int) -> str:
    """Name of a kind in small letters."""
    try:
        return formats.enums["trace_kind"](number).name.removeprefix("TRACE_").lower()
    except ValueError:
        return f"kind {number}"
