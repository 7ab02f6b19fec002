# SPDX-License-Identifier: Apache-2.0
"""Ends of Ethernet cables that are UDP sockets of 127.0.0.1, as QEMU's `-netdev dgram` has them: a frame a datagram.

`Peer` is a host made of this program: it answers ARP, keeps what it hears, sends what it is told. `Relay` joins two
cables and may drop, copy or look at what passes. Both read in a thread: a kernel's ARP must be answered at once.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from . import wire

LARGEST = 65536


def ports(count: int) -> list[int]:
    """UDP ports that nobody uses now."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    found = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return found


def _open(port: int) -> socket.socket:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    s.bind(("127.0.0.1", port))
    s.settimeout(0.1)
    return s


class _Reader:
    """A thread that hands over every datagram of a socket until it is closed."""

    def __init__(self, s: socket.socket, take: Callable[[bytes], None]) -> None:
        self._socket, self._take, self._stop = s, take, False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop:
            try:
                data = self._socket.recv(LARGEST)
            except TimeoutError:
                continue
            except OSError:  # the other end is not there (yet): told by the kernel at the next call
                time.sleep(0.001)
                continue
            self._take(data)

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        self._socket.close()


class Peer:
    """A host with one address at the end of a cable. Queue pairs of its own exist only in the sender's head."""

    def __init__(self, port: int, peer_port: int, address: str, peer: str, mac: bytes = b"\x52\x54\0\0\0\1") -> None:
        self.address, self.peer, self.mac = address, peer, mac
        self.peer_mac: bytes | None = None
        self.malformed: list[str] = []
        self.heard: queue.Queue[tuple[wire.Packet, bytes]] = queue.Queue()
        self._socket = _open(port)
        self._to = ("127.0.0.1", peer_port)
        self._reader = _Reader(self._socket, self._take)

    def _take(self, frame: bytes) -> None:
        asked = wire.read_arp(frame)
        if asked is not None:
            operation, mac, sender, target = asked
            if sender == self.peer:
                self.peer_mac = mac
            if operation == 1 and target == self.address:
                self._send(wire.arp(2, self.mac, self.address, mac, sender))
            return
        try:
            self.heard.put((wire.decode(frame), frame))
        except wire.MalformedError as why:
            if frame[12:14] == b"\x08\0":
                self.malformed.append(f"{why}: {frame.hex()}")

    def _send(self, frame: bytes) -> None:
        with suppress(OSError):  # nobody there yet
            self._socket.sendto(frame, self._to)

    def meet(self, limit_s: float = 60) -> None:
        """Ask for the peer's MAC until it answers."""
        deadline = time.monotonic() + limit_s
        while self.peer_mac is None:
            assert time.monotonic() < deadline, f"{self.peer} answers no ARP"
            self._send(wire.arp(1, self.mac, self.address, bytes(6), self.peer))
            time.sleep(0.05)

    def ends(self, port: int = 0xC000) -> wire.Ends:
        """Addresses of a frame from here to the peer."""
        assert self.peer_mac is not None
        return wire.Ends(self.mac, self.peer_mac, self.address, self.peer, port)

    def send(self, packet: wire.Packet) -> None:
        """Put one packet on the cable."""
        self._send(packet.frame(self.ends()))

    def send_frame(self, frame: bytes) -> None:
        """Put any bytes on the cable."""
        self._send(frame)

    def next(self, limit_s: float) -> tuple[wire.Packet, bytes] | None:
        """Return what was heard next, in order; None if nothing comes in time."""
        try:
            return self.heard.get(timeout=max(limit_s, 0.0001))
        except queue.Empty:
            return None

    def close(self) -> None:
        """Leave."""
        self._reader.close()


class Relay:
    """Joins two cables. `passes(side, frame)` is asked about each frame that came in on side 0 or 1."""

    def __init__(self, ends: tuple[tuple[int, int], tuple[int, int]], passes: Callable[[int, bytes], bool]) -> None:
        self._sockets = [_open(port) for port, _ in ends]
        self._to = [("127.0.0.1", peer) for _, peer in ends]
        self._passes = passes
        self._readers = [
            _Reader(s, lambda frame, side=side: self._take(side, frame)) for side, s in enumerate(self._sockets)
        ]

    def _take(self, side: int, frame: bytes) -> None:
        if self._passes(side, frame):
            with suppress(OSError):  # nobody there yet
                self._sockets[1 - side].sendto(frame, self._to[1 - side])

    def close(self) -> None:
        """Cut both."""
        for reader in self._readers:
            reader.close()
