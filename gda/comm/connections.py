# SPDX-License-Identifier: Apache-2.0
"""What rendezvous.py and meeting.py do with TCP connections: make one, wait for several, take records that come in
pieces.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable

from gda.comm import record
from gda.comm.record import HEADER_BYTES

__all__ = ["Incoming", "connected_to", "readable"]


def connected_to(host: str, port: int, end: float) -> socket.socket:
    """A connection to there, asked for until `end` of time.monotonic() and for a moment at least. Raises OSError."""
    one = socket.create_connection((host, port), timeout=max(0.1, end - time.monotonic()))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one


def readable(connections: Iterable[socket.socket], seconds: float = 0.0) -> list[socket.socket]:
    """Those with something to take, or that have ended. By poll: descriptors of a large program pass select's 1,024."""
    poll, by_number = select.poll(), {one.fileno(): one for one in connections}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(int(1e3 * seconds))]


class Incoming:
    """A record that comes in pieces, each taken when it is there: who says nothing keeps nobody from being heard."""

    def __init__(self, who: str) -> None:
        self.who, self.data, self._wanted = who, bytearray(), HEADER_BYTES

    def take(self, connection: socket.socket, phase: int) -> bool:
        """What is there, or comes within the connection's timeout; whether that was the last of the record, or of the
        connection.

        Raises BootstrapError for what is not the start of a record.
        """
        try:
            piece = connection.recv(self._wanted - len(self.data))
        except OSError:
            piece = b""
        self.data += piece
        if piece and len(self.data) == HEADER_BYTES:
            self._wanted += record.length_of(bytes(self.data), phase, self.who)
        return not piece or len(self.data) == self._wanted
