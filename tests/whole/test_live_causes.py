# SPDX-License-Identifier: Apache-2.0
"""gda.live and gda.diagnose where a request stands still because of a third party: a thread that took slots and went
another way, a peer without receives, a completion queue that nobody empties. Each is made for real, and ranked first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from test_live import first, until, write

import gda
from gda import attach
from gda.errors import DeadlineError
from gda.tools.causes import causes

KERNELS = """
#include <gda/gda.h>
// Takes a slot and ends without filling it, as a thread that an error sends another way.
GDA_KERNEL(takes)(gda_qp* qp) {
    gda::reserve(qp, gda::view(qp), 1);
}
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t ms, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, 64), GDA_MS(ms));
}
GDA_KERNEL(sends)(gda_qp* qp, gda_mr src, uint64_t ms, gda_status* status) {
    *status = gda_wait(qp, gda_send(qp, src, 0, 64), GDA_MS(ms));
}
GDA_KERNEL(receives)(gda_qp* qp, gda_mr dst, gda_status* status) {
    gda_received got;
    gda_post_receive(qp, dst, 0, 64);
    *status = gda_wait_receive(qp, &got, GDA_MS(20000));
}
"""


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> Iterator[gda.Nic]:
    monkeypatch.setenv("GDA_NIC", "software")
    with gda.open() as nic:
        attach.software_nic().clear_report()
        yield nic
        attach.software_nic().set_thread("adaptive")


@pytest.fixture
def regions(nic: gda.Nic) -> tuple[gda.Memory, gda.Memory]:
    return nic.register(np.ones(4096, np.uint8)), nic.register(np.zeros(4096, np.uint8))


@pytest.fixture
def kernel() -> gda.Kernel:
    return gda.Kernel(KERNELS, target="host")


def test_reserved_but_not_written(nic, regions, kernel):
    """While the kernel behind the gap waits, and after its deadline."""
    a, _ = nic.loopback_pair()
    kernel.takes[1, 1](a)
    launch = kernel.put.start[1, 1](a, regions[1], regions[0], 2000)
    seen = until(lambda seen: seen.queue(a.qpn).reserved == 2)
    wanted = f"queue pair 0x{a.qpn:06x}: reserved but not written: 2 basic blocks"
    found = causes(seen)[0]
    assert found.headline == wanted and "a thread took slots" in found.meaning and "divergent" in found.advice
    assert (found.values["reserved"], found.values["ready"], found.values["rung"], found.values["told"]) == (2, 0, 0, 0)
    with pytest.raises(DeadlineError):
        launch.wait()
    assert gda.diagnose(a)[0].headline == wanted


def test_the_peer_has_no_receive(nic, regions, kernel):
    """It is told while the sender waits; a receive that is posted then ends it."""
    a, b = nic.loopback_pair(receive_depth=4)
    launch = kernel.sends.start[1, 1](a, regions[0], 20000)
    seen = until(lambda seen: seen.queue(a.qpn).waits_rnr)
    found = causes(seen)[0]
    assert found.headline == f"queue pair 0x{a.qpn:06x}: the peer has no receive posted"
    assert "receiver not ready" in found.meaning and found.values["completed"] == 0
    kernel.receives[1, 1](b, regions[1])
    launch.wait()
    assert regions[1].array[:64].all() and "no receive posted" not in first(gda.live())


@pytest.mark.gda_complaints("cq-consumer-never-written")
def test_the_completion_queue_overran(nic, regions):
    """Posted by hand, since kernels never have more under way than the queue has entries."""
    a, _ = nic.loopback_pair(depth=4, completion="ring", ignore_overrun=False)
    for index in range(5):
        request = write(a, index, regions)
        a.write_wqe(index, request)
        a.write_record(index + 1)
        a.ring(request[:8])
        if index < 4:
            until(lambda seen, wanted=index + 1: seen.queue(a.qpn).completed == wanted)
    seen = until(lambda seen: seen.queue(a.qpn).cq_failed and seen.queue(a.qpn).state == "ERR")
    found = causes(seen)[0]
    assert found.headline == f"queue pair 0x{a.qpn:06x}: its completion queue overran"
    assert found.values["written"] == 4 and "consumer index" in found.advice
    assert gda.diagnose(a)[0].headline == found.headline
