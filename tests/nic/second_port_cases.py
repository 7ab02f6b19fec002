# SPDX-License-Identifier: Apache-2.0
"""Cases for a NIC with two ports. Run by test_second_port.py, in a process that has one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gda
import gda.nic
from gda import attach, run
from gda.errors import ArgumentError, CompletionError, GidError
from gda.nic import connect

PUT = """
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t bytes, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, bytes), GDA_MS(20000));
}
"""


@pytest.fixture
def software() -> Iterator[attach.SoftwareNic]:
    nic = attach.software_nic()
    nic.clear_report()
    yield nic
    nic.set_link(True, port=2)


@pytest.fixture
def ports(software: attach.SoftwareNic) -> Iterator[tuple[gda.nic.Nic, gda.nic.Nic]]:
    with gda.open(port=1) as one, gda.open(port=2) as two:
        yield one, two


def put(queue: gda.nic.QueuePair, here: gda.nic.Nic, there: gda.nic.Nic, bytes: int) -> bool:
    """Write and look whether it is there."""
    source, target = np.random.default_rng(7).integers(0, 256, bytes, np.uint8), np.zeros(bytes, np.uint8)
    with here.register(source) as src, there.register(target) as dst:
        run.Kernel(PUT, target="host").put[1, 1](queue, dst, src, bytes)
    return bool((source == target).all())


def test_each_port_has_its_own_addresses(ports):
    one, two = ports
    assert (one.ports, two.ports, one.port.number, two.port.number) == (2, 2, 1, 2)
    assert [g.index for g in one.gids] == [g.index for g in two.gids] == [0, 1, 2, 3]
    assert {g.raw for g in one.gids}.isdisjoint(g.raw for g in two.gids)
    assert one.pick_gid()[0] == two.pick_gid()[0] == 3
    assert str(two.pick_gid()[1]).startswith("127.71.1.")
    assert one.mac(3)[4] == 0 and two.mac(3)[4] == 1
    assert (one.port_name, two.port_name) == ("mlx5_0 port 1", "mlx5_0 port 2")


def test_port_to_port(ports):
    one, two = ports
    with one.queue_pair() as a, two.queue_pair() as b:
        connect(a, b)
        assert b.info.mac[4] == 1 and b.context()["primary_address_path"]["vhca_port_num"] == 2
        before = two.counters()["write_requests"]
        assert put(a, one, two, 10000) and put(b, two, one, 10000)
        assert two.counters()["write_requests"] == before + 1
    first, second = two.loopback_pair()
    assert put(first, two, two, 100) and put(second, two, two, 100)


def test_messages_name_the_port(ports, software):
    one, two = ports
    with pytest.raises(GidError, match="GID index 9 of mlx5_0 port 2 is empty"):
        two.queue_pair(gid_index=9)
    with pytest.raises(ArgumentError, match="mlx5_0 has no port 3") as caught:
        gda.open(port=3)
    assert "from 1 to 2" in str(caught.value)
    with pytest.raises(ArgumentError, match="port 3 of the software NIC 0 cannot change its link"):
        software.set_link(False, port=3)
    gid = two.gids[3]
    with one.queue_pair() as a, two.queue_pair() as b:
        info = a.info
        software.set_gid(3, None, port=2)
        try:
            with pytest.raises(GidError, match="no address of mlx5_0 port 2 any more"):
                b.connect(info)
        finally:
            software.set_gid(3, gid.raw, port=2)


@pytest.mark.gda_complaints("retries-exceeded")
def test_a_port_whose_link_is_down(ports, software):
    one, two = ports
    with one.queue_pair() as a, two.queue_pair() as b:
        connect(a, b, ack_timeout=8, retry_count=1)
        software.set_link(False, port=2)
        assert (one.port_state, two.port_state) == ("ACTIVE", "DOWN")
        with pytest.raises(CompletionError):
            put(a, one, two, 8)
        assert any(finding.headline == "port 2 of mlx5_0 is DOWN" for finding in gda.diagnose(b))
        assert any("port 2 of mlx5_0 is DOWN" in finding.headline for finding in gda.diagnose(a, b))
