# SPDX-License-Identifier: Apache-2.0
"""`gda.init()`: the ranks of a program, each connected to each. Document: docs/programs.md, "Team".

A Team is a bootstrap (who is there), a NIC, and queue pairs to every rank; windows and signals are made from it. Its
parts are public: `team.bootstrap`, `team.nic`, `team.queues[peer]`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gda import formats
from gda.comm import rendezvous
from gda.comm.agreement import agree
from gda.comm.arguments import one_of, seconds, whole
from gda.comm.bootstrap import DEADLINE_S, Bootstrap, Carrier, Identity, carrier_from, lost
from gda.comm.meeting import Meeting
from gda.comm.table import Table
from gda.errors import ArgumentError, CompletionError, DeadlineError, NotConnectedError, QueueFullError
from gda.locks import Lock
from gda.nic import Memory, Nic, QueuePair
from gda.nic import open as open_nic
from gda.nic.lifetime import Owner, Resources

if TYPE_CHECKING:
    from gda.comm.collectives.all_gather import AllGather
    from gda.comm.collectives.all_to_all import AllToAll
    from gda.comm.collectives.all_to_all_v import AllToAllV
    from gda.comm.collectives.barrier import Barrier
    from gda.comm.collectives.broadcast import Broadcast
    from gda.comm.collectives.reduce import AllReduce, ReduceScatter
    from gda.comm.signal import Signals
    from gda.comm.window import Window

__all__ = ["Team", "init"]

_WAYS = ("all", "on_demand")
# Ranks that are threads of one process make and connect queue pairs one after the other: each call gives Python's lock
# away, and to hand it over among many at each takes longer than the calls.
_turn = Lock()
_POLICIES = {"block": "GDA_BY_BLOCK", "warp": "GDA_BY_WARP", "peer": "GDA_BY_PEER"}


def init(
    carrier: Any = None, *, nic: Nic | None = None, queues_per_peer: int = 1, connect: str = "all",
    policy: str = "block", deadline_s: float = DEADLINE_S, **queue_options: Any,
) -> Team:  # fmt: skip
    """Find the other ranks and connect to each. Collective: all ranks call it with the same options.

    `carrier` is how they find each other, default: by the launcher at hand (gda.comm.bootstrap.find). It may be a
    communicator of mpi4py (split, Cartesian, ...), a process group of torch.distributed (new_group), a Bootstrap, or
    one of threads(n): its ranks are the team's. `nic` is an open NIC, which stays open at the end; default: gda.open(),
    closed with the team. `queues_per_peer` queue pairs lead to each rank, also to the own one; `queue_options` are
    those of QueuePair. `connect` says when: "all" now, "on_demand" by Team.connect (to itself a rank is always
    connected). `policy` is what gda_which() in kernels goes by: each "block" or each "warp" has a queue of its own, in
    turn, or all share the first to a "peer". `deadline_s` bounds this call and is the default of later ones. Raises as
    Bootstrap does; then nothing is left open.
    """
    one_of("connect", connect, _WAYS)
    advice = "kernels that share queues in another way pass a number of their own as `which`"
    one_of("policy", policy, _POLICIES, advice)
    queues_per_peer = whole("queues_per_peer", queues_per_peer, 1, 256)
    deadline_s = seconds("deadline_s", deadline_s, or_zero=False)
    _check_nic(nic)
    if queue_options.get("transport") == "UD":
        raise ArgumentError(
            "transport='UD': datagrams have no connection, and a team is connections of each rank with each",
            'leave it out, for "RC"; datagrams go by nic.queue_pair(transport="UD")',
        )
    if not isinstance(carrier, Bootstrap):
        carrier = Bootstrap(carrier_from(carrier, deadline_s), deadline_s=deadline_s)
    return Team(carrier, nic, queues_per_peer, queue_options, connect=connect, policy=policy)


def _check_nic(nic: Any) -> None:
    if nic is not None and not isinstance(nic, Nic):
        raise ArgumentError(f"nic={nic!r} is no NIC", "pass one that gda.open() has opened")


class Team(Owner):
    """All ranks of a program, as one of them sees it. Made by gda.init(); fits as a kernel argument `gda_team`.

    `rank` and `size` say who this is, `ranks` who each is (host, process). `queues[peer]` are the queue pairs that lead
    to a rank, none while it is not connected. `bootstrap` exchanges bytes, `nic` makes memory. close() asks nothing of
    the others: a rank that still sends to this one gets an error. barrier() first if they may.
    """

    def __init__(
        self, bootstrap: Bootstrap, nic: Nic | None, queues_per_peer: int, options: dict[str, Any], *,
        connect: str = "all", policy: str = "block", first: Team | None = None,
    ) -> None:  # fmt: skip
        self.bootstrap, self.policy, self._options = bootstrap, policy, options
        self.rank, self.size, self.ranks = bootstrap.rank, bootstrap.size, bootstrap.ranks
        self.queues_per_peer, self._way = queues_per_peer, connect
        self._own(Resources(f"team of {self.size}", None if first is None else first._resources))
        if first is None:
            self._resources.callback(bootstrap.close)
        try:
            self._seconds: dict[str, float] = {}
            self._cpu_seconds: dict[str, float] = {}
            with self._timed("open the NIC"):
                self.nic = open_nic() if nic is None else nic
            if nic is None:
                self._resources.callback(self.nic._resources.close)
            self.queues: list[list[QueuePair]] = [[] for _ in range(self.size)]
            self._table = Table(self.nic)
            self._resources.callback(self._table.close)
            self._meeting: Meeting | None = None
            if connect == "all":
                self._connect_all()
            else:
                own = self._make_queues()
                self.queues[self.rank] = own
                self._connect_queues(own, [queue.info.to_bytes() for queue in own])
                addresses = [str(gid) for gid in self.nic.gids if gid.is_ipv4]
                self._meeting = Meeting(bootstrap, self._same, addresses)
                self._resources.callback(self._meeting.close)
            if first is None:
                self._resources.callback(bootstrap.leave)  # the first thing of all
        except BaseException:
            if first is None:
                bootstrap.leave(failed=True)
            self._resources.close()
            raise

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.queues_per_peer} queue pairs a peer on {self.nic.name}"
        return f"<Team rank {self.rank} of {self.size}, {state}>"

    # --------------------------------------------------------------------------------------------------------- connect
    def connect(self, peers: Iterable[int] | None = None, *, deadline_s: float | None = None) -> None:
        """Connect to these ranks (default: all) as far as they are not. Each of them calls it, too, with this one.

        Nobody else takes part. Kernels that are launched later see the new queues. Raises DeadlineError, PeerLostError
        or BootstrapError, which name the rank; with those that were ready before it stays connected.
        """
        wanted = self._checked_ranks("peers", range(self.size) if peers is None else peers)
        limit = self.bootstrap.deadline_s if deadline_s is None else seconds("deadline_s", deadline_s)
        wanted = {peer for peer in wanted if not self.queues[peer]}
        if not wanted or self._meeting is None:
            return
        made = {peer: self._make_queues() for peer in sorted(wanted)}
        offers = {peer: b"".join(queue.info.to_bytes() for queue in queues) for peer, queues in made.items()}

        def connect(peer: int, offered: bytes) -> None:
            piece = len(offers[peer]) // self.queues_per_peer
            self._connect_queues(made[peer], [offered[i : i + piece] for i in range(0, len(offered), piece)])

        def ready(peer: int) -> None:
            for queue in made[peer]:
                queue.settle()
            self.queues[peer] = made.pop(peer)

        try:
            self._meeting.meet(offers, connect, ready, limit)
        finally:
            for queues in made.values():  # to whom it did not come
                for queue in queues:
                    queue._resources.close()

    @property
    def connected(self) -> list[int]:
        """The ranks that queue pairs lead to, this one among them."""
        return [peer for peer, queues in enumerate(self.queues) if queues]

    def over(self, nic: Nic, *, queues_per_peer: int | None = None, **queue_options: Any) -> Team:
        """The same ranks over another NIC: a team beside this one, with queue pairs, windows and signals of its own.

        Collective. Kernels take both teams and divide what they move. `nic` stays open; options are this team's unless
        given. It is closed with this team, or before. Raises as gda.init().
        """
        self._resources.check()
        _check_nic(nic)
        return Team(
            self.bootstrap, nic, self.queues_per_peer if queues_per_peer is None else queues_per_peer,
            {**self._options, **queue_options}, connect=self._way, policy=self.policy, first=self,
        )  # fmt: skip

    # -------------------------------------------------------------------------------------------------- what it makes
    def window(self, buffer: Any, **options: Any) -> Window:
        """Memory of the same size on every rank. Collective. Options: see Window."""
        from gda.comm.window import Window

        return Window(self, buffer, **options)

    def signals(self, count: int, **options: Any) -> Signals:
        """64-bit signals, so many on every rank, all zero. Collective. Options: see Signals."""
        from gda.comm.signal import Signals

        return Signals(self, count, **options)

    def device_barrier(self, **options: Any) -> Barrier:
        """A barrier that kernels call. Collective. Options: see Barrier."""
        from gda.comm.collectives.barrier import Barrier

        return Barrier(self, **options)

    def broadcast(self, data: Any, **options: Any) -> Broadcast:
        """Bytes of one rank to all. Collective. Options: see Broadcast."""
        from gda.comm.collectives.broadcast import Broadcast

        return Broadcast(self, data, **options)

    def all_gather(self, data: Any, **options: Any) -> AllGather:
        """Every rank's piece to all. Collective. Options: see AllGather."""
        from gda.comm.collectives.all_gather import AllGather

        return AllGather(self, data, **options)

    def all_to_all(self, source: Any, target: Any, **options: Any) -> AllToAll:
        """A piece from every rank to every rank. Collective. Options: see AllToAll."""
        from gda.comm.collectives.all_to_all import AllToAll

        return AllToAll(self, source, target, **options)

    def all_to_all_v(self, source: Any, target: Any, back: Any = None, **options: Any) -> AllToAllV:
        """Rows to ranks, whose counts only the sender knows, and back. Collective. Options: see AllToAllV."""
        from gda.comm.collectives.all_to_all_v import AllToAllV

        return AllToAllV(self, source, target, back, **options)

    def reduce_scatter(self, array: Any, op: str = "sum", **options: Any) -> ReduceScatter:
        """To be called: each rank gets its piece of the sum of all arrays. Collective. Options: see ReduceScatter."""
        from gda.comm.collectives.reduce import ReduceScatter

        return ReduceScatter(self, array, op, **options)

    def all_reduce(self, array: Any, op: str = "sum", **options: Any) -> AllReduce:
        """To be called: every rank gets the sum of all arrays. Collective. Options: see AllReduce."""
        from gda.comm.collectives.reduce import AllReduce

        return AllReduce(self, array, op, **options)

    # ---------------------------------------------------------------------------------------------- who is still there
    def barrier(self, deadline_s: float | None = None) -> None:
        """Return when all ranks have called it. Collective. By the bootstrap: it says nothing of what is under way."""
        self._resources.check()
        self.bootstrap.barrier(deadline_s)

    def lost(self) -> list[Identity]:
        """Ranks of this host that are known to be gone without having closed their team, or by an exception."""
        fate, left = self.bootstrap.fate, self.bootstrap.has_left
        return [one for one in self.ranks if fate(one.rank) and not left(one.rank)]

    def left(self) -> list[Identity]:
        """Ranks of this host that have closed their team in peace: nothing comes from them any more."""
        return [one for one in self.ranks if self.bootstrap.has_left(one.rank)]

    def check(self) -> None:
        """Raise PeerLostError for the first rank that is known to be lost."""
        for one in self.lost():
            raise lost(one, self.bootstrap.fate(one.rank))

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not self.closed:
            self.bootstrap.leave(failed=True)
        self.close()

    def without(self, lost: Iterable[int], place: str | None = None) -> Carrier:
        """A carrier for gda.init(): a new team of all ranks but the lost ones, in the same order, counted anew.

        All that are left call it with the same `lost`. `place` is where they meet, tcp://HOST:PORT or a directory;
        default: a directory in the one where this team met. close() this team before or after.
        """
        gone = self._checked_ranks("lost", lost)
        if self.rank in gone:
            raise ArgumentError(f"rank {self.rank} is this one: it cannot go on without itself")
        left = [rank for rank in range(self.size) if rank not in gone]
        if place is None:
            if not isinstance(self.bootstrap.carrier, rendezvous.DirectoryCarrier):
                raise ArgumentError(
                    f"the ranks met by {self.bootstrap.carrier.name}, which serves no smaller team",
                    "name a place: tcp://HOST:PORT of the first rank that is left, or a directory",
                )
            place = str(self.bootstrap.carrier.directory / f"without-{'-'.join(map(str, sorted(gone)))}")
        return rendezvous.carrier(left.index(self.rank), len(left), place, self.bootstrap.deadline_s)

    @contextmanager
    def naming(self, peer: int | None = None) -> Iterator[None]:
        """Whatever fails in the `with` names the rank: PeerLostError if one is lost, else error.rank = peer.

        Put around launches of your own kernels. Who closes the team or its NIC meanwhile waits for its end.
        """
        try:
            with self._resources.at_work(), self.nic._resources.at_work():
                yield
        except (CompletionError, DeadlineError, QueueFullError) as error:
            error.rank = peer if error.rank is None else error.rank
            if error.rank is None and error.qpn:
                error.rank = self._rank_behind(error.qpn)
            dead = self.lost()
            if dead:
                first = next((one for one in dead if one.rank == error.rank), dead[0])
                raise lost(first, f"{self.bootstrap.fate(first.rank)} ({error.message})") from error
            if error.rank is not None and str(self.ranks[error.rank]) not in error.message:
                error.message += f"; at the other end is {self.ranks[error.rank]}"
            for one in self.left():
                error.message += f"; {one} has closed its team"
            raise

    # -------------------------------------------------------------------------------------------------- what it costs
    @property
    def memory_bytes_per_connection(self) -> int:
        """Memory of one queue pair on this side."""
        self._resources.check()
        return self.queues[self.rank][0].memory_bytes

    @property
    def seconds(self) -> dict[str, float]:
        """How long each step of connecting took here, from gda.init() on."""
        return dict(self._seconds)

    @property
    def cpu_seconds(self) -> dict[str, float]:
        """How much of `seconds` this rank's thread was at work; the rest it waited for others, or for a core."""
        return dict(self._cpu_seconds)

    def report(self) -> str:
        """Who is there and what the connections cost, for people."""
        count = sum(len(queues) for queues in self.queues)
        each = self.memory_bytes_per_connection
        per_queue = (self._seconds["make queue pairs"] + self._seconds["connect"]) / count
        there = "each rank" if count == self.size * self.queues_per_peer else f"{len(self.connected)} of the ranks"
        lines = [
            f"team of {self.size} by {self.bootstrap.carrier.name}; this is {self.ranks[self.rank]}, {self.nic.name}",
            f"{count} queue pairs, {self.queues_per_peer} to {there}: {each} bytes and {1e3 * per_queue:.2f} ms of "
            f"each, {each * count} bytes in all",
            ", ".join(f"{step} {1e3 * seconds:.1f} ms" for step, seconds in self._seconds.items()),
        ]
        lines += [f"  {one}  {self.bootstrap.fate(one.rank)}".rstrip() for one in self.ranks]
        return "\n".join(lines)

    # -------------------------------------------------------------------------------------------------------- inside
    def __gda_argument__(self, target: str) -> tuple[str, bytes]:
        """The kernel argument `gda_team`, by value; its table lies where `target` reads it."""
        self._resources.check()
        none = bytes(8 * self.queues_per_peer)  # null, as kernels see a rank that is not connected
        addresses = b"".join(
            b"".join(queue.__gda_argument__(target)[1] for queue in queues) or none for queues in self.queues
        )
        return "gda_team", formats.layouts["gda_team"].pack(
            version=int(formats.GDA_HANDLE_VERSION),
            rank=self.rank,
            size=self.size,
            queues_per_peer=self.queues_per_peer,
            queues=self._table.address(target, addresses),
            policy=int(getattr(formats, _POLICIES[self.policy])),
        )

    def __gda_stay__(self, holder: object) -> None:
        """What a kernel got of it stays where it is as long as `holder` lives."""
        self._table.stay(holder)
        for queues in self.queues:
            for queue in queues:
                queue.__gda_stay__(holder)

    def __gda_explain__(self, qpn: int, wqe_index: int) -> dict[str, Any] | None:
        """What a failed request asked for, of whichever queue pair it was."""
        if not qpn:
            return None
        found = [queue for queues in self.queues for queue in queues if queue.qpn == qpn]
        return found[0].__gda_explain__(qpn, wqe_index) if found else None

    def checked_rank(self, peer: int) -> int:
        """The same rank, if the team has it."""
        self._resources.check()
        try:
            return whole("rank", peer, 0, self.size - 1)
        except ArgumentError:
            raise ArgumentError(f"there is no rank {peer!r}: the team has ranks 0 to {self.size - 1}") from None

    def _checked_ranks(self, name: str, ranks: Iterable[int]) -> set[int]:
        try:
            return {self.checked_rank(rank) for rank in ranks}
        except TypeError:
            raise ArgumentError(f"{name}={ranks!r} is not a list of ranks", f"{name}=[{ranks!r}]") from None

    def check_memory(self, memory: Memory) -> None:
        """Raise ArgumentError unless that memory is of the team's NIC: another's key would mean other memory, or none.
        """
        if memory.nic is not self.nic:
            raise ArgumentError(
                f"{memory!r} is registered with another NIC ({memory.nic.name}) than this team's ({self.nic.name}), "
                "or with the same one opened a second time",
                "register it with team.nic; two NICs have a window each over one array",
            )

    def check_answered(self, what: str) -> None:
        """Raise ArgumentError where the queue pairs carry nothing that the other side has to answer."""
        transport = self._options.get("transport", "RC")
        if transport != "RC":
            raise ArgumentError(
                f"{what} wants an answer, which queue pairs of transport {transport!r} do not carry",
                'puts and signals that are "set" do without; or gda.init(transport="RC"), the default',
            )

    def check_connected(self, peer: int) -> None:
        """Raise NotConnectedError unless queue pairs lead to that rank."""
        peer = self.checked_rank(peer)
        if not self.queues[peer]:
            raise NotConnectedError(
                f"{self.ranks[peer]} is not connected to this rank, {self.rank}",
                advice=f"team.connect([{peer}]) here and team.connect([{self.rank}]) there",
            )

    def _make_queues(self) -> list[QueuePair]:
        """Those that lead to one rank."""
        made = []
        with _turn, self._timed("make queue pairs"):
            for _ in range(self.queues_per_peer):
                queue = self.nic.queue_pair(**self._options)
                self._resources.callback(queue._resources.close)
                made.append(queue)
        return made

    def _connect_queues(self, queues: list[QueuePair], infos: list[bytes]) -> None:
        with _turn, self._timed("connect"):
            for queue, info in zip(queues, infos, strict=True):
                queue.connect(info)

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        begin, cpu_begin = time.perf_counter(), time.thread_time()
        yield
        self._seconds[step] = self._seconds.get(step, 0.0) + time.perf_counter() - begin
        self._cpu_seconds[step] = self._cpu_seconds.get(step, 0.0) + time.thread_time() - cpu_begin

    def _connect_all(self) -> None:
        """One exchange for all: as many queue pairs as there are ranks, each connected once."""
        with _turn:
            self.queues = [self._make_queues() for _ in range(self.size)]
        with self._timed("exchange"):
            theirs = self._exchange_infos()
        with _turn:
            for queues, infos in zip(self.queues, theirs, strict=True):
                self._connect_queues(queues, infos)
        with self._timed("exchange"):
            for queue in itertools.chain.from_iterable(self.queues):
                queue.settle()
            self.bootstrap.barrier()  # a request may come as soon as a peer is past this: all must be ready to receive

    def _rank_behind(self, qpn: int) -> int | None:
        return next((peer for peer, queues in enumerate(self.queues) if qpn in [q.qpn for q in queues]), None)

    @property
    def _same(self) -> dict[str, object]:
        """The options that all ranks must have alike."""
        transport = self._options.get("transport", "RC")
        return {"connect": self._way, "queues_per_peer": self.queues_per_peer, "transport": transport}

    def _exchange_infos(self) -> list[list[bytes]]:
        """For each rank, what its queue pairs that lead here say: one exchange for all."""
        own = b"".join(queue.info.to_bytes() for queues in self.queues for queue in queues)
        piece = len(own) // self.size
        infos = []
        for data in agree(self.bootstrap, "a team", self._same, own, call="team"):
            mine = data[self.rank * piece : (self.rank + 1) * piece]
            size = piece // self.queues_per_peer
            infos.append([mine[i : i + size] for i in range(0, piece, size)])
        return infos
