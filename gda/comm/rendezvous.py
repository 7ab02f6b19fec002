# SPDX-License-Identifier: Apache-2.0
"""Our own rendezvous, for two shells and for `python -m gda launch`: a directory, or a TCP address of rank 0.

Carriers for bootstrap.py. In a directory each rank leaves a file for each phase; by TCP rank 0 gathers the records and
answers each rank with all of them. For tens of ranks; large worlds come with a launcher that has its own engine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import Counter
from pathlib import Path

from gda import config
from gda.comm import record
from gda.comm.bootstrap import Carrier, Watch, closed, lost, missing_error, threads
from gda.comm.connections import Incoming, connected_to, readable
from gda.comm.record import HEADER_BYTES, NO_WORLD, Record
from gda.errors import ArgumentError, BootstrapError, DeadlineError, GdaError

__all__ = ["DirectoryCarrier", "TcpCarrier", "carrier", "from_environment"]

_NO_RANK = 0xFFFFFFFF
_LOOK_S = 0.1  # between two looks whether those still live from whom a connection brings nothing
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02  # between two looks; each is twice the one before


def from_environment(deadline_s: float) -> Carrier:
    """The carrier that GDA_RANK, GDA_SIZE and GDA_RENDEZVOUS name."""
    numbers = []
    for name in ("GDA_RANK", "GDA_SIZE"):
        text = config.get(name)
        if not text.isdecimal():
            raise ArgumentError(
                f"{name}={text!r} is not a whole number",
                "set GDA_RANK, GDA_SIZE and GDA_RENDEZVOUS for each process, or start it with: python -m gda launch",
            )
        numbers.append(int(text))
    return carrier(numbers[0], numbers[1], config.get("GDA_RENDEZVOUS"), deadline_s)


def carrier(rank: int, size: int, place: str, deadline_s: float) -> Carrier:
    """The carrier for this rank; `place` is tcp://HOST:PORT or a directory."""
    if size < 1:
        raise ArgumentError(f"a world of {size} ranks (GDA_SIZE)", "at least 1, the same number for all processes")
    if not 0 <= rank < size:
        raise ArgumentError(f"rank {rank} of {size}: ranks count from 0 to {size - 1}")
    if size == 1:
        return threads(1)[0]
    if not place:
        raise ArgumentError(
            "the ranks have no place to meet: GDA_RENDEZVOUS is not set",
            "name an empty directory that all see, or tcp://HOST:PORT of rank 0, the same for all",
        )
    scheme, found, _ = place.partition("://")
    if found:
        host, colon, port = place.removeprefix("tcp://").rpartition(":")
        if scheme != "tcp" or not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ArgumentError(f"{place!r} is not tcp://HOST:PORT", "as in tcp://127.0.0.1:29400; or a directory")
        return TcpCarrier(rank, size, host.strip("[]"), int(port), deadline_s)
    return DirectoryCarrier(rank, size, place)


class _Wait:
    """The wait of one exchange: its deadline, and longer and longer pauses that look whether the others still live."""

    def __init__(self, phase: int, deadline_s: float, watch: Watch) -> None:
        self.phase, self.watch = phase, watch
        self._deadline_s, self._end = deadline_s, time.monotonic() + deadline_s
        self._pause_s = _FIRST_PAUSE_S

    @property
    def left_s(self) -> float:
        """How long it may still last; a little at least, so that what is there already is taken."""
        return max(0.001, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self._end

    def expired(self, missing: list[int]) -> DeadlineError:
        """The exception for the deadline."""
        return missing_error(self.phase, missing, self.watch.ranks, self._deadline_s)

    def pause(self, missing: list[int]) -> None:
        """Raise PeerLostError or DeadlineError, or return after a pause."""
        if self.is_over:
            raise self.expired(missing)
        if self._pause_s >= _LONGEST_PAUSE_S:
            self.watch.look(missing, 2 * _LONGEST_PAUSE_S)
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def name(self, rank: int) -> str:
        """A rank for messages, by host and process where they are known."""
        return str(self.watch.ranks[rank]) if rank < len(self.watch.ranks) else f"rank {rank}"


_worlds: Counter[tuple[str, int]] = Counter()  # how many this process has been in: by directory and rank


class DirectoryCarrier:
    """Files in a directory that all ranks see: PHASE.RANK, each there at once and complete, or not at all.

    The second world of a program, and those after it, have a directory in it each: a rank may begin one while another
    is still in the one before.
    """

    def __init__(self, rank: int, size: int, directory: str | os.PathLike[str]) -> None:
        self.rank, self.size = rank, size
        self._number = os.path.realpath(directory), rank
        count = _worlds[self._number]
        self.directory = Path(directory) / f"again-{count}" if count else Path(directory)
        self.name = f"directory {self.directory}"
        self._own: list[Path] = []
        self._phase = 0
        self._is_joined = False  # whether all ranks have met here once
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BootstrapError(
                f"cannot meet in {self.directory}: {error}", rank=rank,
                advice="GDA_RENDEZVOUS is an empty directory that all ranks may write to, or tcp://HOST:PORT of rank 0",
            ) from error  # fmt: skip

    def exchange(self, data: bytes, phase: int, deadline_s: float, watch: Watch) -> list[bytes]:
        """See Carrier."""
        own = self._path(phase, self.rank)
        self._write(own, data, phase)
        try:
            found = self._gather(data, phase, _Wait(phase, deadline_s, watch))
        except BaseException:
            with contextlib.suppress(OSError):
                own.unlink(missing_ok=True)  # who comes later must not believe that this rank goes on
            raise
        self._is_joined, self._phase = True, phase
        if phase == 1:  # what a Bootstrap begins with is done
            _worlds[self._number] += 1
        # All have begun this phase, so all have read what was before it.
        for path in self._own[:-1]:
            path.unlink(missing_ok=True)
        del self._own[:-1]
        return [found[rank] for rank in range(self.size)]

    def _gather(self, data: bytes, phase: int, wait: _Wait) -> dict[int, bytes]:
        """The records of all ranks, as they come."""
        found = {self.rank: data}
        while missing := [rank for rank in range(self.size) if rank not in found]:
            gone = [rank for rank in missing if self._path("closed", rank).exists()]
            for rank in missing:
                try:
                    found[rank] = self._path(phase, rank).read_bytes()
                except FileNotFoundError:
                    pass
                except OSError as error:
                    raise BootstrapError(
                        f"phase {phase}: the record of {wait.name(rank)} cannot be read: {error}", rank=rank,
                        phase=phase, advice="all ranks must be able to read there, and nothing else may be there: "
                        "take an empty directory",
                    ) from error  # fmt: skip
            for rank in gone:  # looked for before its record: what it has left is there
                if rank not in found:
                    wait.watch.look([rank])  # by an exception?
                    gone_error = closed(wait.name(rank), rank, phase)
                    if phase < 2:
                        gone_error.advice += f"; or an earlier run left that word in {self.directory}: empty it"
                    raise gone_error
            if len(found) == self.size:
                break
            wait.pause([rank for rank in missing if rank not in found])
        return found

    def close(self) -> None:
        """Say that this rank is gone; the last one to do so takes all files away, if the directory is still there."""
        own, self._own = self._own, []
        if not self._is_joined:  # nobody counts on it: the next try finds no leftovers of this one
            for path in own:
                path.unlink(missing_ok=True)
            return
        self._is_joined = False
        with contextlib.suppress(OSError):
            self._path("closed", self.rank).touch()
            if all(self._path("closed", rank).exists() for rank in range(self.size)):
                for rank in range(self.size):  # of a phase that is over each has taken its record away
                    for phase in range(self._phase - 1, self._phase + 2):
                        self._path(phase, rank).unlink(missing_ok=True)
                for rank in range(self.size):
                    self._path("closed", rank).unlink(missing_ok=True)
                if self.directory.name.startswith("again-"):
                    self.directory.rmdir()

    def _path(self, phase: int | str, rank: int) -> Path:
        return self.directory / f"{phase}.{rank}"

    def _write(self, path: Path, data: bytes, phase: int) -> None:
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            part.write_bytes(data)
            os.link(part, path)  # which never replaces a file that is there
        except FileExistsError as error:
            raise BootstrapError(
                f"phase {phase}, rank {self.rank}: its record is in {self.directory} already", rank=self.rank,
                phase=phase, advice="two processes have the same rank, or an earlier run left its files there: "
                "take an empty directory",
            ) from error  # fmt: skip
        except OSError as error:
            raise BootstrapError(
                f"phase {phase}, rank {self.rank}: cannot leave a record in {self.directory}: {error}", rank=self.rank,
                phase=phase, advice="all ranks must be able to write there",
            ) from error  # fmt: skip
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        self._own.append(path)


class TcpCarrier:
    """Rank 0 listens at the address; the others connect, and know at once when a connection ends."""

    def __init__(self, rank: int, size: int, host: str, port: int, deadline_s: float) -> None:
        self.rank, self.size = rank, size
        self._address = f"{host}:{port}"
        self.name = f"tcp://{self._address}"
        self._peers: dict[int, socket.socket] = {}  # of rank 0: by rank; of others: rank 0's
        self._listener: socket.socket | None = None
        try:
            if rank == 0:
                self._listener = socket.create_server((host, port), backlog=size)
            else:
                self._peers[0] = self._connect(host, port, deadline_s)
        except GdaError:  # a deadline; it is a TimeoutError, too
            raise
        except (OSError, OverflowError) as error:
            raise BootstrapError(
                f"rank {rank} cannot {'listen at' if rank == 0 else 'connect to'} {self._address}: {error}", rank=rank,
                advice="name an address of rank 0's host and a free port, the same for all ranks",
            ) from error  # fmt: skip

    def exchange(self, data: bytes, phase: int, deadline_s: float, watch: Watch) -> list[bytes]:
        """See Carrier."""
        if self.rank:
            # Rank 0 gives up at the deadline and says why; that word is worth waiting a little longer for.
            return self._ask(data, _Wait(phase, deadline_s + 1, watch))
        wait = _Wait(phase, deadline_s, watch)
        try:
            records = {0: data}
            if self._listener is not None:
                records |= self._accept(wait)
            for rank in range(1, self.size):
                if rank not in records:
                    missing = list(range(rank, self.size))  # of these none leaves in peace: it has no answer yet
                    records[rank] = self._receive(self._peers[rank], wait.name(rank), missing, wait)
        except GdaError as error:
            cause = getattr(error, "rank", None)
            told = (_NO_RANK if cause is None else cause).to_bytes(4, "big") + error.message.encode()
            self._tell_all(Record(record.FAILURE, NO_WORLD, 0, self.size, phase, told).to_bytes(), 1.0)
            raise
        everything = [records[rank] for rank in range(self.size)]
        payload = b"".join(len(one).to_bytes(8, "big") + one for one in everything)
        self._tell_all(Record(record.ANSWER, NO_WORLD, 0, self.size, phase, payload).to_bytes(), max(1.0, wait.left_s))
        return everything

    def close(self) -> None:
        """Close the connections."""
        for one in [*self._peers.values(), *([self._listener] if self._listener else [])]:
            one.close()
        self._peers.clear()
        self._listener = None

    def _connect(self, host: str, port: int, deadline_s: float) -> socket.socket:
        end, pause_s = time.monotonic() + deadline_s, _FIRST_PAUSE_S
        while True:
            try:
                return connected_to(host, port, end)
            except ConnectionRefusedError:  # rank 0 is not there yet
                if time.monotonic() >= end:
                    raise missing_error(0, [0], (), deadline_s) from None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _ask(self, data: bytes, wait: _Wait) -> list[bytes]:
        phase, ranks = wait.phase, wait.watch.ranks
        self._send(self._peers[0], data, wait)
        answer = record.read(self._receive(self._peers[0], wait.name(0), [0], wait), phase, "rank 0")
        if answer.kind == record.FAILURE:
            cause, text = int.from_bytes(answer.payload[:4], "big"), answer.payload[4:].decode(errors="replace")
            if cause < len(ranks) and ranks[cause].is_dead:
                raise lost(ranks[cause], f"rank 0 says: {text}")
            raise BootstrapError(
                f"rank 0 has given up: {text}", rank=None if cause == _NO_RANK else cause, phase=phase,
                advice="look at what the rank that it names said last",
            )  # fmt: skip
        record.check(answer, kind=record.ANSWER, world=NO_WORLD, rank=0, size=self.size, phase=phase)
        records, rest = [], memoryview(answer.payload)
        while rest:
            length = int.from_bytes(rest[:8], "big")
            records.append(bytes(rest[8 : 8 + length]))
            rest = rest[8 + length :]
        if len(records) != self.size:
            raise BootstrapError(
                f"phase {phase}: rank 0 answers with {len(records)} records, there are {self.size} ranks", rank=0,
                phase=phase, advice="use one version of gda",
            )  # fmt: skip
        return records

    def _accept(self, wait: _Wait) -> dict[int, bytes]:
        """The first record of each rank, which says which one it is. Who ends without a word is no rank."""
        listener, records, phase = self._listener, dict[int, bytes](), wait.phase
        assert listener is not None
        callers: dict[socket.socket, Incoming] = {}
        while missing := [rank for rank in range(1, self.size) if rank not in records]:
            ready = readable([listener, *callers], min(_LOOK_S, wait.left_s))
            if not ready and wait.is_over:
                raise wait.expired(missing)
            for one in ready:
                if one is listener:
                    caller, address = listener.accept()
                    self._peers[-1 - len(self._peers)] = caller  # closed with the others, whatever it says
                    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    callers[caller] = Incoming(f"{address[0]}:{address[1]}")
                elif callers[one].take(one, phase):
                    came = callers.pop(one)
                    if not came.data:
                        continue
                    rank = record.read(bytes(came.data), phase, came.who).rank
                    if rank not in range(1, self.size) or rank in records:
                        raise BootstrapError(
                            f"phase {phase}, rank {rank}: {came.who} says that it is this rank, "
                            + (f"of {self.size}" if rank >= self.size else "which has come already"),
                            rank=rank, phase=phase, advice="give each process a rank of its own (GDA_RANK)",
                        )  # fmt: skip
                    records[rank] = bytes(came.data)
                    self._peers = {k: v for k, v in self._peers.items() if v is not one} | {rank: one}
        listener.close()
        self._listener = None
        return records

    def _receive(self, one: socket.socket, who: str, missing: list[int], wait: _Wait) -> bytes:
        """A record, perhaps cut: that is found out by who reads it."""
        try:
            header = _read(one, HEADER_BYTES, wait, missing)
            rest = b""
            if len(header) == HEADER_BYTES:
                rest = _read(one, record.length_of(header, wait.phase, who), wait, missing)
        except GdaError:
            raise
        except OSError:
            header = rest = b""
        if header:
            return header + rest
        for _ in range(10):  # a connection ends a moment before its process has
            wait.watch.look(missing)
            time.sleep(_LONGEST_PAUSE_S / 2)
        raise BootstrapError(
            f"phase {wait.phase}: the connection to {who} has ended", rank=missing[0], phase=wait.phase,
            advice="it has closed its team, or died: look at what it said last",
        )  # fmt: skip

    def _send(self, one: socket.socket, data: bytes, wait: _Wait) -> None:
        try:
            one.settimeout(wait.left_s)  # a long record is taken when rank 0 comes
            one.sendall(data)
        except TimeoutError:
            raise wait.expired([0]) from None
        except OSError as error:
            raise BootstrapError(
                f"phase {wait.phase}: cannot send to rank 0: {error}", rank=0, phase=wait.phase,
                advice="it has closed its team, or died: look at what it said last",
            ) from error  # fmt: skip

    def _tell_all(self, data: bytes, seconds: float) -> None:
        for one in self._peers.values():
            with contextlib.suppress(OSError):  # who is gone finds out by itself, or is missed in the next phase
                one.settimeout(seconds)
                one.sendall(data)


def _read(one: socket.socket, count: int, wait: _Wait, missing: list[int]) -> bytes:
    """So many bytes, fewer when the connection ends before them. Raises DeadlineError, and what Watch.look raises."""
    data = bytearray()
    while len(data) < count:
        one.settimeout(min(_LOOK_S, wait.left_s))
        try:
            piece = one.recv(min(1 << 20, count - len(data)))
        except TimeoutError:
            wait.watch.look(missing, _LOOK_S)
            if wait.is_over:
                raise wait.expired(missing[:1]) from None
            continue
        if not piece:
            break
        data += piece
    return bytes(data)
