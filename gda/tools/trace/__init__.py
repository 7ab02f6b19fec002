# SPDX-License-Identifier: Apache-2.0
"""`gda.trace`: record what kernels, the software NIC and Python do, as one timeline. Document: docs/trace.md.

    with gda.trace.record() as t:
        ...                       # gda.Kernel(...) made here is traced; others with trace=True
    t.events                      # NumPy, nanoseconds of CLOCK_MONOTONIC
    t.puts                        # a row for each request, with the moment of each stage
    t.print()                     # p50, p99 and histograms of the stages
    t.save("put.html")            # a timeline to look at; put.json for Perfetto
"""

from __future__ import annotations

from gda.tools.trace.recording import Trace, load, read_directory, record

__all__ = ["Trace", "load", "read_directory", "record"]
