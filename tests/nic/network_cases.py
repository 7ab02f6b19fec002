# SPDX-License-Identifier: Apache-2.0
"""Cases for two NICs, A and B, whose addresses and links change (cases C1 and C8). Run by test_networks.py."""

from __future__ import annotations

import errno
import ipaddress
import os
import select
from collections.abc import Iterator

import numpy as np
import pytest

import gda
import gda.nic
from gda import _verbs, attach, run
from gda.errors import CompletionError, GidError, PathMtuError, VerbsError
from gda.nic import connect

PUT = """
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t bytes, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, bytes), GDA_MS(20000));
}
"""
A = [("fe80::a", 1), ("fe80::a", 2), ("::ffff:10.0.0.1", 1), ("::ffff:10.0.0.1", 2)]
B = [  # with the entries of a VLAN before its IPv4 address
    ("fe80::b", 1), ("fe80::b", 2), ("fe80::1b", 1), ("fe80::1b", 2), ("::ffff:10.0.0.2", 1), ("::ffff:10.0.0.2", 2),
]  # fmt: skip


def packed(address: str) -> bytes:
    return ipaddress.IPv6Address(address).packed


@pytest.fixture
def software() -> Iterator[attach.SoftwareNic]:
    nic = attach.software_nic()
    nic.clear_report()
    yield nic
    for index in range(2):
        nic.set_mtu(9000, nic=index)
        nic.set_link(True, nic=index)


def fill(software: attach.SoftwareNic, nic: int, entries: list[tuple[str, int]]) -> None:
    for index in range(16):
        software.set_gid(index, None, nic=nic)
    for index, (address, version) in enumerate(entries):
        software.set_gid(index, packed(address), f"RoCE v{version}", nic=nic)


@pytest.fixture
def cards(software: attach.SoftwareNic) -> Iterator[tuple[gda.nic.Nic, gda.nic.Nic]]:
    fill(software, 0, A)
    fill(software, 1, B)
    with gda.nic.open("mlx5_0") as a, gda.nic.open("mlx5_1") as b:
        yield a, b


def put(queue: gda.nic.QueuePair, here: gda.nic.Nic, there: gda.nic.Nic, bytes: int) -> bool:
    """Write and look whether it is there."""
    source, target = np.random.default_rng(7).integers(0, 256, bytes, np.uint8), np.zeros(bytes, np.uint8)
    with here.register(source) as src, there.register(target) as dst:
        run.Kernel(PUT, target="host").put[1, 1](queue, dst, src, bytes)
    return bool((source == target).all())


def event(context: _verbs.Context) -> int:
    assert select.select([context.async_fd], [], [], 10)[0]
    got = _verbs.ibv_get_async_event(context)
    _verbs.ibv_ack_async_event(got)
    return int(got.event_type)


def test_each_nic_is_a_device_of_its_own(cards):
    a, b = cards
    assert (a.name, b.name) == ("mlx5_0", "mlx5_1")
    devices = _verbs.ibv_get_device_list()
    assert sorted(d.name for d in devices) == ["mlx5_0", "mlx5_1"]
    guids = {d.guid for d in devices}
    assert len(guids) == 2
    assert a.mac(3) != b.mac(5)
    with a.queue_pair() as one, b.queue_pair() as other:
        assert one.qpn >> 16 != other.qpn >> 16


def test_work_is_counted_where_it_is_done(cards, software):
    a, b = cards
    before = [software.counter("write_requests", nic=i) for i in (0, 1)]
    with a.queue_pair() as one, b.queue_pair() as other:
        connect(one, other)
        assert put(one, a, b, 100)
    after = [software.counter("write_requests", nic=i) for i in (0, 1)]
    assert [y - x for x, y in zip(before, after, strict=True)] == [0, 1]


def test_each_side_uses_its_own_index(cards):
    a, b = cards
    assert a.pick_gid()[0] == 3 and b.pick_gid()[0] == 5
    with a.queue_pair() as one, b.queue_pair() as other:
        assert one.info.gid == packed("::ffff:10.0.0.1") and other.info.gid == packed("::ffff:10.0.0.2")
        connect(one, other)
        assert put(one, a, b, 5000) and put(other, b, a, 5000)


def test_an_entry_that_moves_is_followed_unless_pinned(cards, software):
    a, b = cards
    address = packed("::ffff:10.0.0.1")
    with a.queue_pair() as free, a.queue_pair(gid_index=3) as pinned, b.queue_pair() as other:
        os.set_blocking(a.context.async_fd, False)
        software.set_gid(3, None)
        software.set_gid(4, address)
        assert event(a.context) == _verbs.IBV_EVENT_GID_CHANGE
        assert a.pick_gid()[0] == 4
        with pytest.raises(GidError, match="index 3 empty; same address now at 4") as caught:
            pinned.connect(other.info)
        assert caught.value.index == 3 and caught.value.candidates == (4,) and pinned.state == "RST"
        connect(free, other)
        assert free.gid.index == 4 and put(free, a, b, 100)


def test_link_local_on_another_link(cards, software):
    a, b = cards
    software.set_gid(1, packed("fe80::b:1"), nic=1)
    with a.queue_pair(gid_index=1) as one, b.queue_pair(gid_index=1) as other:
        connect(one, other)
        assert put(one, a, b, 64)
    # Now B's link is another one: its old address is nobody's here.
    with a.queue_pair(gid_index=1) as one, b.queue_pair(gid_index=1) as other:
        info = other.info
        software.set_gid(1, packed("fe80::b:2"), nic=1)
        with pytest.raises(GidError, match="link-local GID, not routable; candidates: 3") as caught:
            one.connect(info)
        assert caught.value.index == 1 and caught.value.candidates == (3,)
        with pytest.raises(VerbsError) as refused:
            _verbs.ibv_create_ah(a.pd, port_num=1, dgid=info.gid, sgid_index=1)
        assert refused.value.errno == errno.ETIMEDOUT
    with pytest.raises(VerbsError) as refused:  # from a link-local address to one of another network
        _verbs.ibv_create_ah(a.pd, port_num=1, dgid=packed("::ffff:10.0.0.2"), sgid_index=1)
    assert refused.value.errno == errno.ETIMEDOUT == 110


@pytest.mark.gda_complaints("roce-version", "retries-exceeded")
def test_version_1_against_version_2(cards, software):
    a, b = cards
    with a.queue_pair(gid_index=2) as one, b.queue_pair(gid_index=5) as other:
        connect(one, other, ack_timeout=8, retry_count=2)
        with pytest.raises(CompletionError) as caught:
            put(one, a, b, 64)
        assert caught.value.syndrome == 0x15
        found = gda.diagnose(one)
        assert found[0].headline == "RoCE v1 against v2"
        assert found[0].values == {
            "GID index": 2, "own type": "RoCE v1", "peer's type": "RoCE v2", "peer": f"0x{other.qpn:06x}",
        }  # fmt: skip
        said = [s for s in software.report() if "RoCE v1 against v2" in s]
        assert said and f"0x{other.qpn:06x}" in said[0]


def test_version_1_on_both_sides(cards):
    a, b = cards
    with a.queue_pair(gid_index=2) as one, b.queue_pair(gid_index=4) as other:
        connect(one, other)
        assert put(one, a, b, 5000)


def test_path_mtu_of_a_smaller_link(cards, software):
    a, b = cards
    for nic in (0, 1):
        software.set_mtu(1500, nic=nic)
    assert a.active_mtu == b.active_mtu == 3
    assert _verbs.ibv_query_port(a.context, 1)["max_mtu"] == 5
    with a.queue_pair() as one, b.queue_pair() as other:
        connect(one, other)
        assert one.path_mtu == other.path_mtu == 3
        for bytes in (1, 1441, 1 << 20):
            assert put(one, a, b, bytes)
    with a.queue_pair() as one, b.queue_pair() as other:
        info, before = other.info, software.counter("commands")
        with pytest.raises(PathMtuError, match="path_mtu=4096 is more than this port's link carries") as caught:
            one.connect(info, path_mtu=4096)
        assert (caught.value.requested, caught.value.active) == (4096, 1024)
        assert software.counter("commands") == before and one.state == "RST"


@pytest.mark.gda_complaints("retries-exceeded")
def test_packets_longer_than_the_link_are_lost_without_a_word(cards, software):
    """Both sides agreed on 4096; 1500 bytes of IPv4 hold 1440 of a write: IP 20, UDP 8, BTH 12, RETH 16, ICRC 4."""
    a, b = cards
    for indices, most in (((3, 5), 1440), ((1, 1), 1420)):  # IPv6 has 40 bytes
        lose_one_byte_too_many(a, b, software, indices, most)


def lose_one_byte_too_many(a, b, software, indices, most):
    for nic in (0, 1):
        software.set_mtu(9000, nic=nic)
    with a.queue_pair(deadline_ms=20000, gid_index=indices[0]) as one, b.queue_pair(gid_index=indices[1]) as other:
        connect(one, other)
        for nic in (0, 1):
            software.set_mtu(1500, nic=nic)
        software.set_virtual_time(True)
        try:
            assert put(one, a, b, most)
            lost, start_ns = software.counter("packets_over_link_mtu"), software.now_ns()
            with pytest.raises(CompletionError) as caught:
                put(one, a, b, most + 1)
            took_ns = software.now_ns() - start_ns
        finally:
            software.set_virtual_time(False)
        assert (caught.value.syndrome, caught.value.vendor_syndrome, one.state) == (0x15, 0x81, "ERR")
        assert software.counter("packets_over_link_mtu") - lost == 8
        found = gda.diagnose(one)
        assert found[0].headline == "packets over link MTU: 8"
        assert found[0].values == {"packets_over_link_mtu": 8, "path_mtu": 4096, "active_mtu": 1024}
        assert found[1].headline == "path MTU 4096, but the link carries 1024"
        assert "first error: transport retries exhausted (0x15)" in [f.headline for f in found]
        assert took_ns // 1_000_000 == 536  # 8 * 4.096 us * 2^14 = 0.537 s


def test_the_smaller_of_two_links_wins(cards, software):
    a, b = cards
    software.set_mtu(1500, nic=1)
    with a.queue_pair() as one, b.queue_pair() as other:
        connect(one, other)
        assert one.path_mtu == other.path_mtu == 3
        with pytest.raises(PathMtuError, match="the other side's link carries: its active MTU is 1024"):
            a.queue_pair().connect(other.info, path_mtu=2048)


def test_the_rule_of_the_active_mtu(cards, software):
    for link, path in ((9000, 5), (4192, 5), (4191, 4), (1500, 3), (1119, 2), (352, 1)):
        software.set_mtu(link)
        assert cards[0].active_mtu == path
        assert cards[1].active_mtu == 5


@pytest.mark.gda_complaints("retries-exceeded")
def test_a_port_goes_down_and_comes_back(cards, software):
    a, b = cards
    os.set_blocking(a.context.async_fd, False)
    while select.select([a.context.async_fd], [], [], 0)[0]:  # of the table that was filled
        event(a.context)
    software.set_link(False)
    assert event(a.context) == _verbs.IBV_EVENT_PORT_ERR and a.port_state == "DOWN"
    assert b.port_state == "ACTIVE" and not select.select([b.context.async_fd], [], [], 0)[0]
    with a.queue_pair() as one, b.queue_pair() as other:
        connect(one, other, ack_timeout=8, retry_count=2)
        with pytest.raises(CompletionError) as caught:
            put(one, a, b, 64)
        assert caught.value.syndrome == 0x15 and software.counter("packets_without_link", nic=0) >= 3
    software.set_link(True)
    with a.queue_pair() as one, b.queue_pair() as other:
        connect(one, other)
        assert put(one, a, b, 64)
    assert event(a.context) == _verbs.IBV_EVENT_PORT_ACTIVE and a.port_state == "ACTIVE"


def test_what_no_table_can_hold(software):
    for arguments in ((16, packed("fe80::1")), (0, b"short")):
        with pytest.raises(ValueError, match="GID"):
            software.set_gid(*arguments)
    software.set_gid(7, packed("fe80::77"))
    with pytest.raises(ValueError, match="File exists"):
        software.set_gid(8, packed("fe80::77"))
    with pytest.raises(ValueError, match="No such device"):
        software.set_gid(8, packed("fe80::78"), nic=5)
    with pytest.raises(ValueError, match="352 to 65535"):
        software.set_mtu(351)
