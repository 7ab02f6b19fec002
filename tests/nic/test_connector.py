# SPDX-License-Identifier: Apache-2.0
"""How iWARP queue pairs find each other (gda/nic/connector.py), over a connection manager that is played.

On the real one: tests/conformance/rxe/iwarp_cases.py.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gda import _rdmacm
from gda.errors import ArgumentError, UnavailableError, VerbsError
from gda.nic import connector
from gda.nic.connection import ConnectionInfo
from gda.nic.connector import Connector, Link

HERE, THERE = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
LIMIT_S = 20.0


class Net:
    """What is played: devices with an address each, and all that was made there."""

    def __init__(self) -> None:
        self.devices = {HERE: "siw0", THERE: "siw1"}
        self.listeners: dict[tuple[bytes, int], Id] = {}
        self.ids: set[Id] = set()
        self.numbers = itertools.count(1)
        self.ports = itertools.count(5000)
        self.connected: dict[int, int] = {}  # queue pairs, by number
        self.accepts_to_fail = 0
        self.lock = threading.RLock()  # of the kernel, which does one thing at a time here

    def Channel(self) -> Channel:
        return Channel(self)

    def own_addresses(self) -> list[bytes]:
        return [bytes([127, 0, 0, 1]), bytes(15) + b"\1", *self.devices]


class Channel:
    def __init__(self, net: Net) -> None:
        self.net, self.events, self.fd = net, deque[Any](), os.eventfd(0, os.EFD_NONBLOCK)

    def id(self) -> Id:
        return Id(self)

    def tell(self, kind: str, number: int, status: int = 0, request: Id | None = None, data: bytes = b"") -> None:
        self.events.append(_rdmacm.Event(kind, status, number, request, data))  # type: ignore[arg-type]
        os.eventfd_write(self.fd, 1)

    def event(self) -> Any:
        if not self.events:
            return None
        if len(self.events) == 1:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.fd)
        return self.events.popleft()

    def close(self) -> None:
        os.close(self.fd)


class Id:
    def __init__(self, channel: Channel) -> None:
        self.channel, self.net, self.number = channel, channel.net, next(channel.net.numbers)
        self.device, self.port, self.peer, self.qpn = "", 0, None, 0
        self.address, self.to = b"", (b"", 0)
        self.peer: Id | None
        self.net.ids.add(self)

    def bind(self, address: bytes, port: int = 0) -> None:
        if address[0] == 0:
            raise VerbsError("rdma_bind_addr(port 0)", 19)
        self.address, self.port = address, next(self.net.ports)
        self.device = self.net.devices.get(address, "")

    def listen(self, backlog: int) -> None:
        self.net.listeners[self.address, self.port] = self

    def resolve_address(self, own: bytes, address: bytes, port: int, limit_ms: int) -> None:
        self.to = address, port
        self.channel.tell("ADDR_RESOLVED" if address in self.net.devices else "ADDR_ERROR", self.number, 110)

    def resolve_route(self, limit_ms: int) -> None:
        self.channel.tell("ROUTE_RESOLVED", self.number)

    def connect(self, qpn: int, private_data: bytes, reads: int) -> None:
        listener = self.net.listeners.get(self.to)
        if listener is None:
            self.channel.tell("REJECTED", self.number, 111)
            return
        self.qpn = qpn
        with self.net.lock:
            request = Id(listener.channel)
            request.peer, self.peer = self, request
        listener.channel.tell("CONNECT_REQUEST", listener.number, request=request, data=private_data)

    def accept(self, qpn: int, reads: int) -> None:
        with self.net.lock:
            if self.peer is None or self.net.accepts_to_fail:
                self.net.accepts_to_fail = max(0, self.net.accepts_to_fail - 1)
                raise VerbsError(f"rdma_accept(queue pair 0x{qpn:x})", 104)
            self.net.connected |= {qpn: self.peer.qpn, self.peer.qpn: qpn}
            for one in (self, self.peer):
                one.channel.tell("ESTABLISHED", one.number)

    def reject(self) -> None:
        with self.net.lock:
            if self.peer is not None:
                self.peer.channel.tell("REJECTED", self.peer.number, 111)
                self.peer.peer = self.peer = None

    def disconnect(self) -> None:
        if self.peer is None:
            raise VerbsError("rdma_disconnect()", 22)

    def destroy(self) -> None:
        with self.net.lock:
            self.net.ids.discard(self)
            self.net.listeners.pop((self.address, self.port), None)
            if self.peer is not None:
                self.peer.channel.tell("DISCONNECTED", self.peer.number)
                self.peer.peer = None


class Side:
    """A queue pair that is to be connected, and what it heard."""

    def __init__(self, at: Connector, qpn: int, psn: int = 7) -> None:
        self.at, self.heard = at, list[str]()
        self.info = ConnectionInfo(qpn, psn, at.address, 5, tcp_port=at.port)

    def connect(self, other: ConnectionInfo) -> Link:
        return self.at.link(
            self.info, other, 16, lambda: self.heard.append("ready"), lambda: self.heard.append("gone")
        )


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def ends(net: Net) -> Iterator[tuple[Connector, Connector]]:
    two = Connector("siw0", net), Connector("siw1", net)
    yield two
    for one in two:
        one.close()
    assert not net.ids, "identifiers are left"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("same", [True, False])
def test_either_side_may_be_first_and_nobody_waits(
    net: Net, ends: tuple[Connector, Connector], order: tuple[int, int], same: bool
) -> None:
    sides = Side(ends[0], 5), Side(ends[0 if same else 1], 6)
    links = {which: sides[which].connect(sides[1 - which].info) for which in order}
    for link in links.values():
        link.check()
    assert net.connected == {5: 6, 6: 5}
    assert [side.heard for side in sides] == [["ready"]] * 2
    assert (links[0].is_active, links[1].is_active) == (True, False)
    ends[0].unlink(links[0])
    wait_until(lambda: sides[1].heard == ["ready", "gone"])
    with pytest.raises(UnavailableError, match=r"0x6 is not connected to 0x5 at 10\.0\.0\.1 port \d+: the connection"):
        links[1].check()
    assert (links[0].state, links[1].state, sides[0].heard) == ("closed", "lost", ["ready"])


def test_many_at_once_are_told_apart(net: Net, ends: tuple[Connector, Connector]) -> None:
    pairs = [(Side(ends[0], 10 + i), Side(ends[1], 110 + i)) for i in range(40)]
    links = [a.connect(b.info) for a, b in pairs] + [b.connect(a.info) for a, b in reversed(pairs)]
    for link in links:
        link.check()
    assert net.connected == {own: other for i in range(40) for own, other in ((10 + i, 110 + i), (110 + i, 10 + i))}


@pytest.mark.parametrize("which", [0, 1])
def test_who_is_alone_gives_up(
    ends: tuple[Connector, Connector], which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "CONNECT_LIMIT_S", 0.05)
    sides = Side(ends[0], 5), Side(ends[1], 6)
    link = sides[which].connect(sides[1 - which].info)
    with pytest.raises(UnavailableError, match=r"did not connect within 0\.05 s"):
        link.check()
    assert (link.state, sides[which].heard) == ("failed", ["gone"])


def test_a_request_meant_for_an_earlier_queue_pair_of_that_number_is_not_accepted(
    net: Net, ends: tuple[Connector, Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "CONNECT_LIMIT_S", 0.2)
    a, old, new = Side(ends[0], 5), Side(ends[1], 6, psn=1), Side(ends[1], 6, psn=2)
    links = a.connect(old.info), new.connect(a.info)
    for link in links:
        with pytest.raises(UnavailableError):
            link.check()
    assert not net.connected


def test_who_gave_up_and_asks_anew_is_accepted(net: Net, ends: tuple[Connector, Connector]) -> None:
    a, b = Side(ends[0], 5), Side(ends[1], 6)
    ends[0].unlink(a.connect(b.info))
    again = a.connect(b.info)
    b.connect(a.info).check()
    again.check()
    c, d = Side(ends[0], 7), Side(ends[1], 8)
    net.accepts_to_fail = 1  # the request looked good, and its sender was gone
    given_up, late = c.connect(d.info), d.connect(c.info)
    wait_until(lambda: not net.accepts_to_fail)
    ends[0].unlink(given_up)
    c.connect(d.info).check()
    late.check()


def test_strangers_are_refused_and_nothing_is_kept(net: Net, ends: tuple[Connector, Connector]) -> None:
    channel = net.Channel()
    stranger = channel.id()
    stranger.to = THERE, ends[1].port
    for data in (b"", b"hello", b"x" * 60):
        stranger.connect(1, data, 1)
        wait_until(lambda: channel.events)
        assert channel.event().kind == "REJECTED"
    stranger.destroy()
    wait_until(lambda: len(net.ids) == 2)
    channel.close()


def test_what_the_manager_says_is_the_reason(net: Net, ends: tuple[Connector, Connector]) -> None:
    a, b = Side(ends[0], 5), Side(ends[1], 6)
    net.devices.pop(THERE)
    with pytest.raises(UnavailableError, match="its address did not resolve"):
        a.connect(b.info).check()
    net.devices[THERE] = "siw1"
    net.listeners.pop((THERE, ends[1].port))
    with pytest.raises(UnavailableError, match="the other side refused"):
        a.connect(b.info).check()


def test_none_is_connected_to_itself(ends: tuple[Connector, Connector]) -> None:
    a = Side(ends[0], 5)
    with pytest.raises(ArgumentError, match="itself"):
        a.connect(a.info)


def test_closing_ends_what_waits(net: Net) -> None:
    end = Connector("siw1", net)
    side = Side(end, 6)
    link = side.connect(ConnectionInfo(5, 7, connector._MAPPED + HERE, 5, tcp_port=1))
    end.close()
    with pytest.raises(UnavailableError, match="its NIC was closed"):
        link.check()
    assert not net.ids and not side.heard


def test_an_address_of_the_device_is_found_or_missed(net: Net) -> None:
    end = Connector("siw1", net)
    assert (end.address, end.words) == (connector._MAPPED + THERE, "10.0.0.2")
    end.close()
    with pytest.raises(UnavailableError, match=r"no address of this host belongs to siw7.*10\.0\.0\.1 \(siw0\)"):
        Connector("siw7", net)
    assert not net.ids


def test_info_carries_the_port() -> None:
    info = ConnectionInfo(5, 7, connector._MAPPED + HERE, 5, tcp_port=40000)
    assert ConnectionInfo.from_bytes(info.to_bytes()) == info
    for wrong in ({"roce_version": 2}, {"lid": 3}, {"is_ethernet": False}):
        with pytest.raises(ArgumentError, match="bad"):
            ConnectionInfo(5, 7, connector._MAPPED + HERE, 5, **{"tcp_port": 40000, **wrong})


def test_the_library_is_opened_when_it_is_asked_for() -> None:
    assert bytes([127, 0, 0, 1]) in _rdmacm.own_addresses()
    assert _rdmacm.EVENTS[9] == "ESTABLISHED"
    if Path("/dev/infiniband/rdma_cm").exists():
        _rdmacm.Channel().close()
        return
    with pytest.raises((UnavailableError, VerbsError), match=r"apt-get install librdmacm1|modprobe rdma_ucm"):
        _rdmacm.Channel()
