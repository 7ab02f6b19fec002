# SPDX-License-Identifier: Apache-2.0
"""How two ranks of a team meet alone, while the others do something else: for Team.connect(). Document:
docs/programs.md, "Team".

Each rank listens at a TCP port of its own, whose address all learn when the team is made. Of a pair the lower rank
calls the higher one; both send a record (record.py) with what they offer, connect, and send another when they are
ready. Nobody listens between calls: who comes early waits in the port's queue.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gda.comm import record
from gda.comm.agreement import agree
from gda.comm.bootstrap import Bootstrap, lost
from gda.comm.connections import Incoming, connected_to, readable
from gda.comm.record import Record
from gda.errors import BootstrapError, DeadlineError, GdaError

__all__ = ["Meeting"]

_OFFER, _READY = 0, 1  # what a record's phase says here
_LOOK_S = 0.1  # between two looks whether those that are waited for still live
_DEATH_S = 0.2  # a connection ends a moment before its process has
_RECORD_S = 5.0  # for the rest of a record that has begun


@dataclass
class _Call:
    """The calls of one meet(): who is still waited for, and their connections."""

    offers: Mapping[int, bytes]
    connect: Callable[[int, bytes], None]
    ready: Callable[[int], None]
    missing: set[int]
    sockets: dict[int, socket.socket] = field(default_factory=dict)


class Meeting:
    """This rank's port, and where the others' are. Collective to make, with equal `options` on all ranks.

    `addresses` are where others may find this host; ranks that all run on one meet at the loopback address.
    """

    def __init__(self, bootstrap: Bootstrap, options: Mapping[str, object], addresses: Iterable[str] = ()) -> None:
        self._bootstrap, self.rank = bootstrap, bootstrap.rank
        own = bootstrap.ranks[self.rank]
        is_local = all(one.is_here and one.host == own.host for one in bootstrap.ranks)
        names = ["127.0.0.1"] if is_local else [*addresses, socket.gethostname()]
        self._listener = socket.create_server((names[0] if is_local else "", 0), backlog=max(16, bootstrap.size))
        self._callers: dict[socket.socket, Incoming] = {}  # who has not said yet who it is
        self._came: dict[int, tuple[socket.socket, bytes]] = {}  # early ones: with what they offered
        try:
            place = json.dumps([self._listener.getsockname()[1], list(dict.fromkeys(names))]).encode()
            self._places: list[tuple[int, list[str]]] = [
                (int(port), list(names))
                for port, names in map(json.loads, agree(bootstrap, "a team", options, place, call="team"))
            ]
        except BaseException:
            self.close()
            raise

    def meet(
        self, offers: Mapping[int, bytes], connect: Callable[[int, bytes], None], ready: Callable[[int], None],
        deadline_s: float,
    ) -> None:  # fmt: skip
        """Exchange offers with these ranks, each of which names this one, in whatever order they come.

        `connect` is told what a rank has offered, `ready` that both sides have connected. Raises PeerLostError,
        DeadlineError, BootstrapError with the rank; those that were ready before stay so.
        """
        call = _Call(offers, connect, ready, set(offers))
        end = time.monotonic() + deadline_s
        try:
            for peer in sorted(offers):
                if peer > self.rank:
                    call.sockets[peer] = self._call(peer, end)
                    self._send(call.sockets[peer], peer, _OFFER, offers[peer])
            while call.missing:
                while callers := readable([self._listener, *self._callers]):
                    self._hear(callers)
                for peer in [peer for peer in self._waiting() if peer in call.missing and peer not in call.sockets]:
                    call.sockets[peer], offered = self._came.pop(peer)
                    self._send(call.sockets[peer], peer, _OFFER, offers[peer])
                    self._be_ready(call, peer, offered)
                self._look(call, end, deadline_s)
        finally:
            for one in call.sockets.values():
                one.close()

    def close(self) -> None:
        """Listen no more; who waits is told so by the end of its connection."""
        for one in [*self._callers, *(one for one, _ in self._came.values())]:
            one.close()
        self._callers.clear()
        self._came.clear()
        self._listener.close()

    # ---------------------------------------------------------------------------------------------------------- inside
    def _look(self, call: _Call, end: float, deadline_s: float) -> None:
        """Take what has come, or look whether somebody has died."""
        waiting = {call.sockets[peer]: peer for peer in call.missing if peer in call.sockets}
        ready = readable(
            [self._listener, *self._callers, *waiting], max(0.0, min(_LOOK_S, end - time.monotonic()))
        )  # fmt: skip
        self._hear([one for one in ready if one not in waiting])
        for one in ready:
            if one in waiting:
                self._take(call, waiting[one])
        if ready:
            return
        self._look_for_death(call.missing)
        if time.monotonic() >= end:
            peer = min(call.missing)
            error = DeadlineError(
                f"{self._names(call.missing)} did not connect to this rank within {deadline_s:g} s",
                advice="both sides call team.connect(), each with the other among its peers",
            )
            error.rank = peer
            raise error

    def _take(self, call: _Call, peer: int) -> None:
        one = self._receive(call.sockets[peer], self._names([peer]))
        if one is None:
            self._look_for_death([peer], patience_s=_DEATH_S)
            raise BootstrapError(
                f"{self._names([peer])} has given up, or closed its team, before it was connected", rank=peer,
                advice="look at what it said; both sides can call team.connect() again",
            )  # fmt: skip
        self._check(one, peer, one.phase if one.phase in {_OFFER, _READY} else _OFFER)
        if one.phase == _OFFER:
            self._be_ready(call, peer, one.payload)
        else:
            call.missing.discard(peer)
            call.ready(peer)

    def _be_ready(self, call: _Call, peer: int, offered: bytes) -> None:
        call.connect(peer, offered)
        self._send(call.sockets[peer], peer, _READY, b"")

    def _hear(self, ready: Iterable[socket.socket]) -> None:
        """Those who call this rank, maybe before it wants to connect; who says something else is not heard."""
        for one in ready:
            if one is self._listener:
                caller, _ = self._listener.accept()
                self._callers[caller] = Incoming("a caller")
                continue
            try:
                if not self._callers[one].take(one, _OFFER):
                    continue
                said = record.read(bytes(self._callers.pop(one).data), _OFFER, "a caller")
                if not 0 <= said.rank < self.rank:
                    raise BootstrapError("no rank that would call this one")
                self._check(said, said.rank, _OFFER)
            except GdaError:
                self._callers.pop(one, None)
                one.close()
                continue
            if said.rank in self._came:  # it gave up, and tries again
                self._came.pop(said.rank)[0].close()
            self._came[said.rank] = one, said.payload

    def _waiting(self) -> list[int]:
        """Who has come and is still there."""
        for peer, (one, _) in list(self._came.items()):
            with contextlib.suppress(OSError):
                if not readable([one]) or one.recv(1, socket.MSG_PEEK):
                    continue
            one.close()  # it has given up
            del self._came[peer]
        return list(self._came)

    def _call(self, peer: int, end: float) -> socket.socket:
        port, names = self._places[peer]
        refusal: Exception = BootstrapError(f"rank {peer} named no address")
        for name in names:
            try:
                return connected_to(name, port, end)
            except OSError as error:
                refusal = error
        self._look_for_death([peer], patience_s=_DEATH_S)
        raise BootstrapError(
            f"{self._names([peer])} cannot be reached at {', '.join(names)}, port {port}: {refusal}", rank=peer,
            advice="it has closed its team, or its host does not let this one in; "
            'gda.init(connect="all") needs no such port',
        )  # fmt: skip

    def _look_for_death(self, peers: Iterable[int], patience_s: float = 0.0) -> None:
        """Raise PeerLostError for one whose process has ended, or that has left."""
        end = time.monotonic() + patience_s
        while True:
            for peer in peers:
                if why := self._bootstrap.fate(peer):
                    raise lost(self._bootstrap.ranks[peer], why)
            if time.monotonic() >= end:
                return
            time.sleep(_DEATH_S / 20)

    def _send(self, one: socket.socket, peer: int, phase: int, payload: bytes) -> None:
        data = Record(record.DATA, self._bootstrap.world, self.rank, self._bootstrap.size, phase, payload).to_bytes()
        with contextlib.suppress(OSError):  # who is gone is missed when it should answer
            one.settimeout(_RECORD_S)
            one.sendall(data)

    @staticmethod
    def _receive(one: socket.socket, who: str) -> Record | None:
        """The next record; None: the connection has ended before one."""
        one.settimeout(_RECORD_S)
        came = Incoming(who)
        while not came.take(one, _OFFER):
            pass
        return record.read(bytes(came.data), _OFFER, who) if came.data else None

    def _check(self, one: Record, peer: int, phase: int) -> None:
        bootstrap = self._bootstrap
        record.check(one, kind=record.DATA, world=bootstrap.world, rank=peer, size=bootstrap.size, phase=phase)

    def _names(self, ranks: Iterable[int]) -> str:
        return ", ".join(str(self._bootstrap.ranks[rank]) for rank in sorted(ranks))
