# SPDX-License-Identifier: Apache-2.0
"""gda.live of queues that lie where not everybody can read: GPU memory."""

from __future__ import annotations

import os

import pytest

import gda
from gda import formats
from tests.whole.test_live import KERNELS, command, first, why_not_from_outside


def test_what_another_process_cannot_see_is_said_once_with_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of queues in GPU memory the reason was given without what to try, and "nothing wrong is visible" below it."""
    if why := why_not_from_outside():
        pytest.skip(f"not run: {why}")
    with gda.open() as nic:
        a, _b = nic.loopback_pair()
        on_gpu = {name: ("gpu", *place[1:]) for name, place in a.where().items()}
        monkeypatch.setattr(type(a), "where", lambda self: on_gpu)
        a._show()
        shown = command(str(os.getpid())).stdout
    assert shown.count(f"it lies in GPU memory of process {os.getpid()}") == 1, shown
    assert "call gda.live() in the program" in shown
    assert f"nothing wrong is visible, but not all is: 0x{a.qpn:06x}" in shown


@pytest.mark.gpu
def test_queues_in_gpu_memory_are_read_from_within_and_not_from_outside() -> None:
    with gda.open() as nic:
        if nic.gpu is None:
            pytest.skip(f"not run: {nic.no_gpu_reason}")
        a, b = nic.loopback_pair(placement="gpu")
        regions = nic.allocate(4096, "gpu"), nic.allocate(4096, "gpu")
        kernel = gda.Kernel(KERNELS, target="gpu")
        kernel.post[1, 1](a, regions[1], regions[0], 3, formats.GDA_MORE)
        queue = gda.live().queue(a.qpn)
        assert queue.reserved == 3 and not queue.notes and b.state == "RTS"
        assert first(gda.live()) == f"queue pair 0x{a.qpn:06x}: posted but not rung: 3 basic blocks"
        if why := why_not_from_outside():
            pytest.skip(f"not run: {why}")
        shown = command(str(os.getpid()))
        assert "in GPU memory of process" in shown.stdout and "call gda.live() in the program" in shown.stdout
