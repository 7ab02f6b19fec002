# SPDX-License-Identifier: Apache-2.0
"""Rings of trace events that kernels leave in their module: names and sizes of cuda/gda/target/trace.h.

Called by executor and the targets. What is read is judged by gda.tools.trace.
"""

from __future__ import annotations

from gda import formats

__all__ = ["DEFINE", "GROUP", "LOG_EVENTS", "RING_BYTES", "SKIP", "SYMBOL", "TRACE_BYTES", "used_bytes"]

LOG_EVENTS = 15
DEFINE = f"-DGDA_TRACE={LOG_EVENTS}"
SYMBOL = "gda_trace_memory"
RING_BYTES = int(formats.TRACE_RING_BYTES)
TRACE_BYTES = RING_BYTES + (int(formats.TRACE_EVENT_BYTES) << LOG_EVENTS)
# 32 bits each; the rest of the header but `next` stays zero.
SKIP = formats.layouts["gda_trace_ring"].offset("skip")
GROUP = formats.layouts["gda_trace_ring"].offset("group")


def used_bytes(header: bytes) -> int:
    """How much of the memory holds anything: the header, and events from the first slot on."""
    noted = int(formats.layouts["gda_trace_ring"].unpack(header[:RING_BYTES])["next"])
    return RING_BYTES + int(formats.TRACE_EVENT_BYTES) * min(noted, 1 << LOG_EVENTS)
