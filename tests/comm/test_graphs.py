# SPDX-License-Identifier: Apache-2.0
"""What kernels in a CUDA graph were given of a team stays readable. Without a GPU; replays: test_graph_gpu.py."""

from __future__ import annotations

import ctypes

import gda
from gda import formats
from gda.nic.placement import left_to_graphs


class Holder:
    """As a captured launch."""


def test_what_a_graph_was_given_outlives_its_team() -> None:
    holder, left = Holder(), len(left_to_graphs)
    with gda.init() as team:
        window = team.window(64)
        given = formats.layouts["gda_team"].unpack(team.__gda_argument__("host")[1])
        window.__gda_argument__("host")
        team.__gda_stay__(holder)
        window.__gda_stay__(holder)
        queue = ctypes.c_uint64.from_address(given["queues"]).value
        assert queue == int.from_bytes(team.queues[0][0].__gda_argument__("host")[1], "little")
    try:
        assert len(left_to_graphs) == left + 3  # the tables of both, and the queue pair's handle
        assert ctypes.c_uint64.from_address(given["queues"]).value == queue
        assert ctypes.string_at(queue, 64) == bytes(64), "what a replay finds there is no queue"
    finally:
        del left_to_graphs[left:]
    del holder
    with gda.init() as team:
        team.window(64).__gda_stay__(Holder())  # gone at once
    assert len(left_to_graphs) == left
