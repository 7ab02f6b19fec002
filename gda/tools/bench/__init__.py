# SPDX-License-Identifier: Apache-2.0
"""Measurements: `python -m gda bench`, and one command for each question.

overview (no command): latency, rate and bandwidth of one thread. post: what posting alone costs. latency, rate,
bandwidth, cpu: a kernel's puts beside those of the CPU.
"""

from __future__ import annotations

from gda.tools.bench.overview import Latency, Rate, bench, measure_latency, measure_rate
from gda.tools.bench.post import PostCost, measure_post

__all__ = ["Latency", "PostCost", "Rate", "bench", "measure_latency", "measure_post", "measure_rate"]
