# SPDX-License-Identifier: Apache-2.0
"""The other end of what is recorded: queue pairs and memory in this process, or in another one over TCP.

Used by sequence.py. The other process (`python -m gda record --listen PORT`) does what a line of JSON says and answers
one: make a pair, post a receive, reset, fill and read memory, close. Only for people who trust each other.
"""

from __future__ import annotations

import builtins
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from gda.errors import ArgumentError, GdaError, UnavailableError
from gda.nic import ConnectionInfo, Memory, Nic, QueuePair, RemoteMemory
from gda.nic import open as open_nic
from gda.run import Kernel

__all__ = ["HERE", "Peer", "RemotePeer", "connect_to", "listen"]

BYTES = 1 << 20  # of the target memory
HERE = "this process"
_PATIENCE_S = 120.0  # the other side may still be compiling its kernels

_POST = r"""
#include <gda/gda.h>
GDA_KERNEL(post)(gda_qp* qp, gda_mr inbox, uint64_t offset, uint64_t bytes, gda_status* status) {
    gda_ticket posted = gda_post_receive(qp, inbox, offset, bytes);
    if (gda_failed(posted)) *status = gda_wait(qp, posted, 0);
}
GDA_KERNEL(take)(gda_qp* qp, gda_status* status) {
    gda_received r;
    *status = gda_wait_receive(qp, &r, GDA_S(5));
}
"""


class Peer(Protocol):
    """The other end of one queue pair at a time, and its memory."""

    target: RemoteMemory

    def pair(self, queue: QueuePair, options: dict[str, Any], connect: dict[str, Any]) -> None:
        """Make a queue pair at the other end and connect both."""

    def post_receive(self, bytes: int) -> None:
        """Post a receive there."""

    def take_receive(self) -> bytes:
        """Wait for a message there; its completion entry."""

    def reset(self) -> None:
        """Take the queue pair there out of service: it answers nothing any more."""

    def fill(self, data: bytes) -> None:
        """Write the first bytes of its memory."""

    def read(self, bytes: int) -> bytes:
        """Read the first bytes of its memory."""

    def close(self) -> None:
        """Destroy the queue pair there."""


class LocalPeer:
    """The other end in this process."""

    def __init__(self, nic: Nic) -> None:
        self._nic = nic
        self._memory: Memory = nic.allocate(BYTES)
        self._kernel: Kernel | None = None
        self._queue: QueuePair | None = None
        self._received = 0
        self.target: RemoteMemory = self._memory.remote

    def make(self, info: bytes, options: dict[str, Any], connect: dict[str, Any]) -> ConnectionInfo:
        """A queue pair that is connected to this one."""
        self.close()
        self._queue = QueuePair(self._nic, **options)
        self._queue.connect(info, **connect)
        self._received = 0
        return self._queue.info

    def pair(self, queue: QueuePair, options: dict[str, Any], connect: dict[str, Any]) -> None:
        """See Peer."""
        queue.connect(self.make(queue.info.to_bytes(), options, connect), **connect)

    def post_receive(self, bytes: int) -> None:
        """See Peer."""
        self._kernels().post[1, 1](self._there, self._memory, 0, bytes)

    def take_receive(self) -> bytes:
        """See Peer."""
        slot = self._received % self._there.receive_depth
        self._kernels().take[1, 1](self._there)
        self._received += 1
        return self._there.read_receive_cqe(slot)

    def reset(self) -> None:
        """See Peer."""
        self._there.reset()

    def fill(self, data: bytes) -> None:
        """See Peer."""
        self._memory.write(0, data)

    def read(self, bytes: int) -> bytes:
        """See Peer."""
        return self._memory.read(0, bytes)

    def close(self) -> None:
        """See Peer."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    @property
    def _there(self) -> QueuePair:
        if self._queue is None:
            raise ArgumentError("there is no queue pair at the other end", "pair() makes one")
        return self._queue

    def _kernels(self) -> Kernel:
        if self._kernel is None:
            self._kernel = Kernel(_POST)
        return self._kernel


class RemotePeer:
    """The other end in another process, by one line of JSON a call."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rw", encoding="utf-8", newline="\n")
        self._connection = connection
        self.target = RemoteMemory.from_bytes(bytes.fromhex(self._ask("hello")["target"]))

    def _ask(self, order: str, **arguments: Any) -> dict[str, Any]:
        try:
            self._file.write(json.dumps({"order": order, **arguments}) + "\n")
            self._file.flush()
            line = self._file.readline()
        except OSError as error:
            raise UnavailableError(f"the other side of the record is gone: {error}", "start both again") from error
        if not line:
            raise UnavailableError("the other side of the record closed the connection", "look at what it printed")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise UnavailableError(f"the other side of the record could not {order}: {answer['error']}")
        return answer

    def pair(self, queue: QueuePair, options: dict[str, Any], connect: dict[str, Any]) -> None:
        """See Peer."""
        answer = self._ask("make", info=queue.info.to_bytes().hex(), options=options, connect=connect)
        queue.connect(bytes.fromhex(answer["info"]), **connect)

    def post_receive(self, bytes: int) -> None:
        """See Peer."""
        self._ask("post_receive", bytes=bytes)

    def take_receive(self) -> bytes:
        """See Peer."""
        return bytes.fromhex(self._ask("take_receive")["cqe"])

    def reset(self) -> None:
        """See Peer."""
        self._ask("reset")

    def fill(self, data: bytes) -> None:
        """See Peer."""
        self._ask("fill", data=data.hex())

    def read(self, bytes: int) -> bytes:
        """See Peer."""
        return builtins.bytes.fromhex(self._ask("read", bytes=bytes)["data"])

    def close(self) -> None:
        """See Peer."""
        self._ask("close")


@contextmanager
def connect_to(address: str) -> Iterator[RemotePeer]:
    """Reach the other process at HOST:PORT; it is told to end afterwards."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ArgumentError(f"--peer {address!r} is no HOST:PORT", "for example --peer node2:4800")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S)
    except OSError as error:
        raise UnavailableError(
            f"{address} does not answer: {error}", "start `python -m gda record --listen PORT` there first"
        ) from error
    with connection:
        yield RemotePeer(connection)


def listen(port: int, *, nic: str | None = None) -> None:
    """Be the other end for one recording, with a NIC that is opened for it, then return."""
    with open_nic(nic) as opened:
        _serve(LocalPeer(opened), port)


def _serve(peer: LocalPeer, port: int) -> None:
    with socket.create_server(("", port)) as server:
        server.settimeout(_PATIENCE_S * 5)
        print(f"listening on port {server.getsockname()[1]}", flush=True)
        try:
            connection, _ = server.accept()
        except TimeoutError as error:
            raise UnavailableError("nobody came to record", "python -m gda record --peer THIS_HOST:PORT") from error
    with connection:
        connection.settimeout(_PATIENCE_S)
        file = connection.makefile("rw", encoding="utf-8", newline="\n")
        for line in file:
            file.write(json.dumps(_answer(peer, json.loads(line))) + "\n")
            file.flush()
    with suppress(GdaError):
        peer.close()


def _answer(peer: LocalPeer, order: dict[str, Any]) -> dict[str, Any]:
    name = order.pop("order")
    try:
        if name == "hello":
            return {"target": peer.target.to_bytes().hex()}
        if name == "make":
            info = peer.make(bytes.fromhex(order["info"]), order["options"], order["connect"])
            return {"info": info.to_bytes().hex()}
        if name == "take_receive":
            return {"cqe": peer.take_receive().hex()}
        if name == "read":
            return {"data": peer.read(order["bytes"]).hex()}
        if name == "fill":
            peer.fill(bytes.fromhex(order["data"]))
        elif name == "post_receive":
            peer.post_receive(order["bytes"])
        elif name == "reset":
            peer.reset()
        elif name == "close":
            peer.close()
        else:
            return {"error": f"no such order: {name}"}
    except GdaError as error:
        return {"error": str(error)}
    return {}
