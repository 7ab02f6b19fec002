# SPDX-License-Identifier: Apache-2.0
"""Connects queue pairs of iWARP devices, which only the kernel's connection manager does. Used by proxied.py.

One connector a NIC: an identifier that listens, whose address and port are part of each queue pair's info, and a thread
that does all else as events come. Of two sides the one with the smaller (address, port, number) connects, the other
accepts; both only begin when they are told to, in any order, so neither waits in connect(). A request says by private
data which two queue pairs it is for. Source: rdma_cm(7); RFC 5044, "MPA Request and Reply Frame Format".
Document: docs/proxy.md.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from gda import _rdmacm
from gda.errors import ArgumentError, GdaError, UnavailableError, VerbsError
from gda.locks import Busy
from gda.nic.connection import ConnectionInfo

__all__ = ["CONNECT_LIMIT_S", "Connector", "Link"]

CONNECT_LIMIT_S = 30.0  # for the other side to connect, too
_RESOLVE_LIMIT_MS = 5000
_BACKLOG = 128
_MOST_EARLY = 1024  # requests for queue pairs that were not told to connect yet
_END_S = 10.0
_REQUEST = struct.Struct(">4s16sHIIII")  # magic; who asks: address, port, number, psn; whom: number, psn
_MAGIC = b"gdi1"
_MAPPED = bytes(10) + b"\xff\xff"  # RFC 4291: in front of an IPv4 address it makes an IPv6 address

Key = tuple[bytes, int, int, int, int, int]


class Manager(Protocol):
    """What it needs of gda._rdmacm."""

    def Channel(self) -> Any:  # noqa: N802
        """An event channel."""

    def own_addresses(self) -> list[bytes]:
        """Of this host."""


class Link:
    """The connection of one queue pair. `state` is "connecting", "connected", "failed", "lost" or "closed".

    `ready` is called once it is there, `gone` when it failed or is there no more; both in the connector's thread. `why`
    says what happened.
    """

    def __init__(
        self,
        own: ConnectionInfo,
        remote: ConnectionInfo,
        reads: int,
        ready: Callable[[], object],
        gone: Callable[[], object],
    ) -> None:
        self.own, self.remote, self.reads, self.ready, self.gone = own, remote, reads, ready, gone
        self.state, self.why = "connecting", ""
        self.settled = threading.Event()
        self.deadline = time.monotonic() + CONNECT_LIMIT_S
        self.id: Any = None

    @property
    def is_active(self) -> bool:
        """Whether this side connects."""
        return _place(self.own) < _place(self.remote)

    @property
    def awaited(self) -> Key:
        """The request that this side, being passive, is to accept."""
        return _key(self.remote, self.own)

    def check(self) -> None:
        """Wait until it is there. Raises UnavailableError with the reason if it is not, or not any more."""
        self.settled.wait(CONNECT_LIMIT_S + _END_S)
        if self.state != "connected":
            raise UnavailableError(
                f"queue pair 0x{self.own.qpn:x} is not connected to 0x{self.remote.qpn:x} at {_words(self.remote)}: "
                f"{self.why or 'nothing was heard'}",
                "call connect() on both sides within half a minute, and make new queue pairs for another try",
            )


class Connector:
    """Of the device `name`. `address` (16 bytes) and `port` are where it listens."""

    def __init__(self, name: str, manager: Manager = _rdmacm) -> None:
        self._name = name
        self._channel = manager.Channel()
        self._listeners: list[Any] = []  # one, once it is found
        self._links: dict[int, Link] = {}  # by the number of their identifier
        self._waiting: dict[Key, Link] = {}
        self._early: dict[Key, Any] = {}
        self._orders: deque[Callable[[], object]] = deque()
        self._ended = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self.address = self._listen(manager.own_addresses())
            self.port: int = self._listeners[0].port
        except BaseException:
            self._free()
            raise
        self._thread = threading.Thread(target=self._run, name="gda connector", daemon=True)
        self._thread.start()

    @property
    def words(self) -> str:
        """The address, as people write it."""
        return str(ipaddress.ip_address(_packed(self.address)))

    def link(
        self,
        own: ConnectionInfo,
        remote: ConnectionInfo,
        reads: int,
        ready: Callable[[], object],
        gone: Callable[[], object],
    ) -> Link:
        """Begin to connect two queue pairs; see Link. Raises ArgumentError for one and the same."""
        if _place(own) == _place(remote):
            raise ArgumentError(f"queue pair 0x{own.qpn:x} cannot be connected to itself on iWARP", "make two")
        link = Link(own, remote, reads, ready, gone)
        self._order(lambda: self._begin(link))
        return link

    def unlink(self, link: Link) -> None:
        """End it; returns when nothing of it is left."""
        done = threading.Event()

        def end() -> None:
            try:
                self._end(link, "closed", "it was closed here")
            finally:
                done.set()

        if self._order(end):
            done.wait(_END_S)

    def close(self) -> None:
        """End all of it."""

        def end() -> None:
            self._ended = True

        if self._order(end) and self._thread is not threading.current_thread():
            self._thread.join(_END_S)

    # ----------------------------------------------------------------------------------------------- in its thread
    def _order(self, what: Callable[[], object]) -> bool:
        """Have the thread do it; whether there is one."""
        if self._wake_write < 0:
            return False
        self._orders.append(what)
        with contextlib.suppress(BlockingIOError):  # it will wake anyway
            os.write(self._wake_write, b"\0")
        return True

    def _run(self) -> None:
        with Busy():
            poller = select.poll()
            poller.register(self._channel.fd, select.POLLIN)
            poller.register(self._wake_read, select.POLLIN)
            while not self._ended:
                poller.poll(self._pause_ms())
                try:
                    self._step()
                except Exception:  # of what one link called; the others go on
                    sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            for link in [*self._links.values(), *self._waiting.values()]:
                self._end(link, "closed", "its NIC was closed")
            self._free()

    def _pause_ms(self) -> float | None:
        ends = [link.deadline for link in self._open()]
        return max(0.0, min(ends) - time.monotonic()) * 1000 + 1 if ends else None

    def _open(self) -> Iterable[Link]:
        links = {id(link): link for link in [*self._links.values(), *self._waiting.values()]}
        return [link for link in links.values() if link.state == "connecting"]

    def _step(self) -> None:
        """Do what is to be done now: orders, events, and what waited too long."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        while self._orders:
            self._orders.popleft()()
        while (event := self._channel.event()) is not None:
            self._take(event)
        now = time.monotonic()
        for link in self._open():
            if now >= link.deadline:
                self._end(link, "failed", f"the other side did not connect within {CONNECT_LIMIT_S:g} s")

    def _begin(self, link: Link) -> None:
        try:
            if link.is_active:
                link.id = self._channel.id()
                self._links[link.id.number] = link
                link.id.resolve_address(
                    _packed(link.own.gid), _packed(link.remote.gid), link.remote.tcp_port, _RESOLVE_LIMIT_MS
                )
            else:
                self._waiting[link.awaited] = link
                if link.awaited in self._early:
                    self._accept(link, self._early.pop(link.awaited))
        except GdaError as error:
            self._end(link, "failed", str(error))

    def _accept(self, link: Link, request: Any) -> None:
        try:
            request.accept(link.own.qpn, link.reads)
        except VerbsError:  # who asked has given up: it may ask anew
            request.destroy()
            return
        del self._waiting[link.awaited]
        link.id = request
        self._links[request.number] = link

    def _take(self, event: Any) -> None:
        if event.kind == "CONNECT_REQUEST":
            self._requested(event)
            return
        link = self._links.get(event.number)
        if link is None:
            self._forget(event)
            return
        try:
            if event.kind == "ADDR_RESOLVED":
                link.id.resolve_route(_RESOLVE_LIMIT_MS)
            elif event.kind == "ROUTE_RESOLVED":
                link.id.connect(link.own.qpn, _REQUEST.pack(_MAGIC, *_key(link.own, link.remote)), link.reads)
            elif event.kind == "ESTABLISHED":
                link.state = "connected"
                link.ready()
                link.settled.set()
            elif event.kind in ("DISCONNECTED", "DEVICE_REMOVAL", "TIMEWAIT_EXIT"):
                self._end(link, "lost", "the connection ended")
            elif event.kind not in ("CONNECT_RESPONSE", "ADDR_CHANGE"):
                self._end(link, "failed", _told(event))
        except GdaError as error:
            self._end(link, "failed", str(error))

    def _requested(self, event: Any) -> None:
        if len(event.private_data) < _REQUEST.size or event.private_data[:4] != _MAGIC:
            _dismiss(event.request)
            return
        key: Key = _REQUEST.unpack(event.private_data[: _REQUEST.size])[1:]
        if key in self._waiting:
            self._accept(self._waiting[key], event.request)
            return
        if key in self._early:  # who asks anew has given up what it asked before
            _dismiss(self._early.pop(key))
        if len(self._early) >= _MOST_EARLY:
            _dismiss(self._early.pop(next(iter(self._early))))
        self._early[key] = event.request

    def _forget(self, event: Any) -> None:
        """Whoever asked before this side was told to connect has given up."""
        for key, request in list(self._early.items()):
            if request.number == event.number:
                self._early.pop(key).destroy()

    def _end(self, link: Link, state: str, why: str) -> None:
        self._waiting.pop(link.awaited, None)
        identifier, link.id = link.id, None
        if identifier is not None:
            self._links.pop(identifier.number, None)
            if link.state == "connected":
                with contextlib.suppress(VerbsError):  # the other side was first
                    identifier.disconnect()
            identifier.destroy()
        if link.state in ("connecting", "connected"):
            link.state, link.why = state, why
            try:
                if state != "closed":
                    link.gone()
            finally:
                link.settled.set()

    def _listen(self, addresses: list[bytes]) -> bytes:
        passed = []
        for address in sorted(addresses, key=_rank):
            identifier = self._channel.id()
            try:
                identifier.bind(address)
                if identifier.device == self._name:
                    identifier.listen(_BACKLOG)
                    self._listeners.append(identifier)
                    return _MAPPED + address if len(address) == 4 else address
                passed.append(f"{ipaddress.ip_address(address)} ({identifier.device or 'no device'})")
            except VerbsError as error:
                passed.append(f"{ipaddress.ip_address(address)} ({error})")
            identifier.destroy()
        raise UnavailableError(
            f"no address of this host belongs to {self._name}, so its queue pairs cannot be connected; looked at: "
            f"{', '.join(passed) or 'none'}",
            "give its network interface an address, and see that no other RDMA device lies on the same interface",
        )

    def _free(self) -> None:
        for identifier in [*self._early.values(), *self._listeners]:
            identifier.destroy()
        self._early.clear()
        self._channel.close()
        wake, self._wake_write = self._wake_write, -1
        os.close(wake)
        os.close(self._wake_read)


def _place(info: ConnectionInfo) -> tuple[bytes, int, int]:
    return info.gid, info.tcp_port, info.qpn


def _key(asks: ConnectionInfo, asked: ConnectionInfo) -> Key:
    return asks.gid, asks.tcp_port, asks.qpn, asks.psn, asked.qpn, asked.psn


def _packed(gid: bytes) -> bytes:
    v4 = ipaddress.IPv6Address(gid).ipv4_mapped
    return v4.packed if v4 is not None else gid


def _words(info: ConnectionInfo) -> str:
    return f"{ipaddress.ip_address(_packed(info.gid))} port {info.tcp_port}"


def _rank(address: bytes) -> tuple[bool, bool, bool]:
    """Smaller is tried first: what others reach, IPv4 before IPv6."""
    ip = ipaddress.ip_address(address)
    return ip.is_loopback, ip.is_link_local, ip.version == 6


def _told(event: Any) -> str:
    what = {
        "REJECTED": "the other side refused", "UNREACHABLE": "the other side did not answer",
        "ADDR_ERROR": "its address did not resolve", "ROUTE_ERROR": "there is no route to it",
    }.get(event.kind, f"the connection manager said {event.kind}")  # fmt: skip
    return f"{what} ({os.strerror(event.status)})" if event.status else what


def _dismiss(request: Any) -> None:
    with contextlib.suppress(VerbsError):  # who asked is gone
        request.reject()
    request.destroy()
