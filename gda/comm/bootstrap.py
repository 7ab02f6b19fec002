# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a program find each other and exchange a few bytes. Called by team.py; document: docs/programs.md.

`find()` takes the launcher at hand: torch.distributed, mpi4py, or our own rendezvous. What carries the bytes is a
Carrier; here is what is the same for all: records that are checked, phases, deadlines, and who has died.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gda import config
from gda.comm import record
from gda.comm.arguments import seconds, whole
from gda.comm.record import NO_WORLD, Record
from gda.comm.roll import FAILED, HERE, LEFT, Roll
from gda.errors import ArgumentError, BootstrapError, DeadlineError, PeerLostError
from gda.locks import Busy

__all__ = ["Bootstrap", "Carrier", "Identity", "carrier_from", "find", "threads"]

DEADLINE_S = 60.0  # for all ranks to come
_LOOK_S = 0.1  # between two looks whether ranks that are threads have left
_IDENTITY = struct.Struct(">IIQi64sB")  # rank, process, when it began, roll, boot, bytes of the host's name behind it


class Carrier(Protocol):
    """What moves one record of each rank to all ranks."""

    name: str
    rank: int
    size: int

    def exchange(self, data: bytes, phase: int, deadline_s: float, watch: Watch) -> list[bytes]:
        """The records of all ranks, by rank. Calls `watch.look(missing)` while it waits for those ranks."""
        ...

    def close(self) -> None:
        """Give back what it holds; twice is no error."""
        ...


@dataclass(frozen=True)
class Identity:
    """Who a rank is: host, process, and when that process began (so that a number that is used again is another)."""

    rank: int
    host: str
    boot: str
    pid: int
    began: int
    roll: int = -1  # descriptor of the memory in which ranks of its host tell that they left (roll.py); -1: none

    @classmethod
    def own(cls, rank: int, roll: int = -1) -> Identity:
        """Of this process."""
        boot, pid, began = _this_process()
        return cls(rank, socket.gethostname(), boot, pid, began, roll)

    def to_bytes(self) -> bytes:
        """Bytes for the others."""
        host = self.host.encode()[:255]
        return _IDENTITY.pack(self.rank, self.pid, self.began, self.roll, self.boot.encode(), len(host)) + host

    @classmethod
    def from_bytes(cls, data: bytes) -> Identity:
        """Read what to_bytes made; the record around it was checked."""
        rank, pid, began, roll, boot, length = _IDENTITY.unpack_from(data)
        host = data[_IDENTITY.size :][:length].decode()
        return cls(rank, host, boot.rstrip(b"\0").decode(), pid, began, roll)

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, process {self.pid})"

    @property
    def is_here(self) -> bool:
        """Whether it runs under the same Linux and in the same container, where its death can be seen."""
        return self.boot == _this_process()[0] and bool(self.boot)

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to have ended; False for one on another host."""
        if not self.is_here:
            return False
        _, pid, began = _this_process()
        return self.began != (began if self.pid == pid else _began(self.pid))


class Watch:
    """Looks whether ranks that are waited for in a phase can still come, as far as they are known."""

    def __init__(self) -> None:
        self.ranks: Sequence[Identity] = ()
        self.roll: Roll | None = None
        self.phase = 0
        self._gone: dict[int, float] = {}  # since when it is known

    def fate(self, rank: int) -> str:
        """See Bootstrap.fate."""
        how = HERE if self.roll is None else self.roll.how(rank)
        if how == FAILED:
            return "it left by an exception"
        if how == LEFT:
            return "it has closed its team"
        return "its process has ended" if rank < len(self.ranks) and self.ranks[rank].is_dead else ""

    def has_left(self, rank: int) -> bool:
        """See Bootstrap.has_left."""
        return self.roll is not None and self.roll.how(rank) == LEFT

    def look(self, missing: Sequence[int], patience_s: float = 0.0, *, but_left: bool = False) -> None:
        """Raise PeerLostError for the first of `missing` that has died or left by an exception, BootstrapError for one
        that has closed its team (unless `but_left`), if that is known for `patience_s`: what it gave before is seen
        meanwhile.
        """
        for rank in missing:
            why, is_left = self.fate(rank), self.has_left(rank)
            if not why or (is_left and but_left):
                continue
            now = time.monotonic()
            if now - self._gone.setdefault(rank, now) < patience_s:
                continue
            raise closed(str(self.ranks[rank]), rank, self.phase) if is_left else lost(self.ranks[rank], why)


def lost(who: Identity, why: str) -> PeerLostError:
    """The exception that names it."""
    return PeerLostError(
        f"{who} is lost: {why}", rank=who.rank, host=who.host, pid=who.pid,
        advice="look at what it said last; the others can close and begin again without it",
    )  # fmt: skip


def closed(who: str, rank: int, phase: int) -> BootstrapError:
    """The exception for a rank that will not come, for it has closed its team."""
    return BootstrapError(
        f"phase {phase}: {who} has closed its team", rank=rank, phase=phase,
        advice="every rank must make the same calls in the same order: init, windows, barriers, close",
    )  # fmt: skip


def missing_error(phase: int, missing: Sequence[int], ranks: Sequence[Identity], deadline_s: float) -> DeadlineError:
    """The exception for ranks that did not come in time."""
    names = ", ".join(str(ranks[r]) if r < len(ranks) else f"rank {r}" for r in missing)
    error = DeadlineError(
        f"phase {phase}: nothing came from {names} within {deadline_s:g} s",
        advice="see that every rank was started and makes the same calls in the same order; gda.init(deadline_s=...) "
        "waits longer",
    )
    error.rank = missing[0] if missing else None
    return error


class Bootstrap:
    """The exchange among ranks: `rank`, `size`, allgather, barrier; each with a deadline.

    Making one is collective: all ranks tell who they are (`ranks`), then that all were told the same. What fails leaves
    no rank behind that believes itself connected.
    """

    def __init__(self, carrier: Carrier, *, deadline_s: float = DEADLINE_S) -> None:
        self.carrier, self.deadline_s = carrier, seconds("deadline_s", deadline_s, or_zero=False)
        self.size = whole("size of the carrier", getattr(carrier, "size", None), 1)
        self.rank = whole("rank of the carrier", getattr(carrier, "rank", None), 0, self.size - 1)
        self.phase = 0
        self._process = os.getpid()
        self._world = NO_WORLD
        self._watch = Watch()
        self._broken = ""
        self._roll = Roll(self.size)
        try:
            own = secrets.token_bytes(16) + Identity.own(self.rank, self._roll.descriptor).to_bytes()
            everybody = self.allgather(own, call="init")
            self._watch.ranks = self.ranks = [Identity.from_bytes(one[16:]) for one in everybody]
            self._world = everybody[0][:16]
            self._roll.join(self.ranks)
            self._watch.roll = self._roll
            told = hashlib.sha256(b"".join(everybody)).digest()
            for rank, other in enumerate(self.allgather(told, call="init")):
                if other != told:
                    raise BootstrapError(
                        f"phase 1, rank {rank}: it was told of other ranks than this one", rank=rank, phase=1,
                        advice="records of two programs met in one place: take an empty one",
                    )  # fmt: skip
        except BaseException:
            self._roll.close()
            carrier.close()
            raise

    def __repr__(self) -> str:
        return f"<Bootstrap rank {self.rank} of {self.size} by {self.carrier.name}, phase {self.phase}>"

    def allgather(self, payload: bytes, deadline_s: float | None = None, *, call: str = "allgather") -> list[bytes]:
        """What every rank gave, by rank. Collective. `call` says for what, in 16 characters: the same on all ranks.

        Raises PeerLostError for a rank whose process has ended, DeadlineError for one that does not come,
        BootstrapError for a record that is not the one due; nothing can be exchanged afterwards.
        """
        if self._broken:
            raise BootstrapError(
                f"phase {self.phase}: the exchange has failed before ({self._broken})", phase=self.phase,
                advice="close the team and make another",
            )  # fmt: skip
        limit = self.deadline_s if deadline_s is None else seconds("deadline_s", deadline_s)
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise ArgumentError(
                f"{type(payload).__name__} where bytes are exchanged", 'encode it: "text".encode(), array.tobytes()'
            )
        if not (isinstance(call, str) and call.isascii() and 0 < len(call) <= record.CALL_BYTES):
            raise ArgumentError(f"call={call!r} is not a name of 1 to {record.CALL_BYTES} ASCII characters")
        self._watch.phase = self.phase
        own = Record(record.DATA, self._world, self.rank, self.size, self.phase, bytes(payload), call)
        try:
            records = self.carrier.exchange(own.to_bytes(), self.phase, limit, self._watch)
            if len(records) != self.size or not all(isinstance(one, bytes | bytearray) for one in records):
                kinds = ", ".join(sorted({type(one).__name__ for one in records}))
                raise BootstrapError(
                    f"phase {self.phase}: the carrier ({self.carrier.name}) brought {len(records)} records ({kinds}), "
                    f"not the bytes of {self.size} ranks",
                    phase=self.phase, advice="exchange() answers with what each rank gave, by rank",
                )  # fmt: skip
            answer = []
            for rank, data in enumerate(records):
                one = record.read(bytes(data), self.phase, f"rank {rank}")
                record.check(
                    one, kind=record.DATA, world=self._world, rank=rank, size=self.size, phase=self.phase, call=call
                )
                answer.append(one.payload)
        except BaseException as error:
            self._broken = str(error).split("\n")[0] or type(error).__name__
            raise
        self.phase += 1
        return answer

    @property
    def world(self) -> bytes:
        """16 bytes that name this program's run in each record."""
        return self._world

    def barrier(self, deadline_s: float | None = None) -> None:
        """Return when all ranks have called it. Collective."""
        self.allgather(b"", deadline_s, call="barrier")

    def fate(self, rank: int) -> str:
        """Why nothing comes from a rank any more, as far as it is known: only of ranks of this host. Empty: it is here.

        The others differ: who has closed its team has left in peace, unless an exception made it do so.
        """
        return self._watch.fate(rank)

    def has_left(self, rank: int) -> bool:
        """Whether a rank has closed its team, and no exception made it do so."""
        return self._watch.has_left(rank)

    def leave(self, failed: bool = False) -> None:
        """Tell the ranks of this host that this one does no more. close() does it, too."""
        if os.getpid() == self._process:  # what a forked child does is not the rank's
            self._roll.mark(self.rank, FAILED if failed else LEFT)

    def close(self) -> None:
        """End this rank's part; the others need not do the same now."""
        if os.getpid() != self._process:
            return
        self.leave()
        self._roll.close()
        self._broken = self._broken or "it was closed"
        self.carrier.close()


def find(deadline_s: float = DEADLINE_S) -> Carrier:
    """The carrier of the launcher at hand.

    GDA_BOOTSTRAP decides, or (auto) the first of: GDA_RANK is set; torch.distributed is initialized; torchrun's
    environment; mpirun's environment; else this process is a world of its own. Where GDA_SIZE or GDA_RENDEZVOUS says
    otherwise and GDA_RANK nothing, that is an ArgumentError.
    """
    from gda.comm import launchers, rendezvous

    wanted = config.get("GDA_BOOTSTRAP")
    launcher = config.launcher()
    if wanted == "own" or (wanted == "auto" and config.get("GDA_RANK")):
        return rendezvous.from_environment(deadline_s)
    if wanted == "torch" or (wanted == "auto" and (launchers.torch_is_initialized() or launcher == "torchrun")):
        return launchers.TorchCarrier(deadline_s)
    if wanted == "mpi" or (wanted == "auto" and launcher == "mpirun"):
        return launchers.MpiCarrier(deadline_s)
    if config.get("GDA_SIZE") or config.get("GDA_RENDEZVOUS"):  # of shells, where GDA_RANK was forgotten
        return rendezvous.from_environment(deadline_s)
    return threads(1)[0]


def carrier_from(thing: Any, deadline_s: float = DEADLINE_S) -> Carrier:
    """What gda.init() was given as a Carrier: it is one, or a communicator or process group; None: find()."""
    if thing is None:
        return find(deadline_s)
    if hasattr(thing, "exchange"):
        carrier: Carrier = thing
        return carrier
    from gda.comm import launchers

    return launchers.carrier_of(thing, deadline_s)


class _Meeting:
    """Where the threads of a world of one process meet."""

    def __init__(self, size: int) -> None:
        self.changed = threading.Condition()
        self.given: dict[int, dict[int, bytes]] = {}
        self.size = size


class _ThreadCarrier:
    """A rank that is a thread of this process."""

    name = "threads of one process"

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self.rank, self.size, self._meeting = rank, meeting.size, meeting

    def exchange(self, data: bytes, phase: int, deadline_s: float, watch: Watch) -> list[bytes]:
        """See Carrier."""
        meeting, end = self._meeting, time.monotonic() + deadline_s
        with Busy(), meeting.changed:
            given = meeting.given.setdefault(phase, {})
            if self.rank in given:
                raise BootstrapError(
                    f"phase {phase}, rank {self.rank}: its record is there already", rank=self.rank, phase=phase,
                    advice="give each thread a carrier of its own, and each team new ones",
                )  # fmt: skip
            given[self.rank] = data
            meeting.given.pop(phase - 2, None)  # all have read it: all have come to phase - 1
            meeting.changed.notify_all()
            try:
                while not meeting.changed.wait_for(
                    lambda: len(given) == self.size, max(0.0, min(_LOOK_S, end - time.monotonic()))
                ):
                    missing = [rank for rank in range(self.size) if rank not in given]
                    watch.look(missing)
                    if time.monotonic() >= end:
                        raise missing_error(phase, missing, watch.ranks, deadline_s)
            except BaseException:
                del given[self.rank]  # who comes later must not believe that this rank goes on
                raise
            return [given[rank] for rank in range(self.size)]

    def close(self) -> None:
        """Nothing is held."""


def threads(size: int) -> list[Carrier]:
    """Carriers for a world whose ranks are threads of this process; each thread passes its own to gda.init()."""
    size = whole("size", size, 1)
    meeting = _Meeting(size)
    return [_ThreadCarrier(rank, meeting) for rank in range(size)]


@functools.cache
def _this_process() -> tuple[str, int, int]:
    """Its boot, its number, and when it began: read once, since ranks that are threads look at one another often."""
    pid = os.getpid()
    return _boot(), pid, _began(pid) or 0


os.register_at_fork(after_in_child=_this_process.cache_clear)


def _boot() -> str:
    """This run of this Linux and its space of process numbers (a container has its own); empty if it does not say."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"[:64]
    return ""


def _began(pid: int) -> int | None:
    """When a process of this host began, in clock ticks since boot; None when it has ended (also as a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(") ")[2].split()
    return None if state in "ZX" else int(fields[18])  # proc_pid_stat(5): field 22, starttime
