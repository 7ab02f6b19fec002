# SPDX-License-Identifier: Apache-2.0
"""What every queue pair of a program does right now, seen from another thread or process: gda.live().

Called by people, by `python -m gda live`, and by diagnose.py for the queue pairs of its own process.

Reads only, by outside.py: no lock, no system call into the NIC, no help of the program, so that a kernel that spins, an
engine that stands still and a stopped process can be looked at; bounded in time. Numbers are read one after the other
while the program may run: those of a queue that works may be some requests apart. What it means: causes.py.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

from gda import formats, present
from gda.errors import GdaError, UnavailableError
from gda.tools.outside import NicMemory, Process, Record, processes

__all__ = ["Live", "LiveNic", "LiveQueue", "RunningKernel", "live", "wait_for_kernel"]

_BLOCK, _CQE = int(formats.WQE_BASIC_BLOCK_BYTES), int(formats.CQE_BYTES)
_AROUND = 2  # work requests shown before the producer and behind it
_THREADS = {0: "off", 1: "adaptive", 2: "busy"}  # Device::Thread of sim/engine/device.h
_SERVICES = {0: "RC", 1: "UC", 3: "UD", 5: "XRC", 6: "DCI", 7: "DCT"}


@dataclass
class RunningKernel:
    """A kernel that was started and has not ended."""

    name: str
    where: str
    seconds: float


@dataclass
class LiveNic:
    """A software NIC: how it is driven, and what it has counted since it started."""

    name: str
    thread: str  # "off", "adaptive", "busy"
    moves: bool  # whether its engine did anything while it was watched, or sleeps until somebody wakes it
    sleeps: bool
    counters: dict[str, int]
    complaints: list[str]
    link_mtu: dict[int, int]
    gids: list[bytes]


@dataclass
class LiveQueue:
    """One queue pair. Indices count basic blocks; None: that cannot be seen here, and `notes` say why.

    What the library keeps (64 bits): `reserved`, `ready`, `rung`, `done`. What the NIC knows (16 bits, raised to the
    library's): `told` by doorbell and record, `fetched`, `completed`. What lies in memory: `record`, `register` (a
    value that the NIC has not taken yet), work requests and completions.
    """

    qpn: int
    nic: str
    port: int
    transport: str = "RC"
    state: str = ""
    depth: int = 0
    collapsed: bool = False
    handle: dict[str, Any] | None = None
    record: int | None = None
    receive_record: int = 0
    receives: bool = False
    register: int = 0
    told: int | None = None
    fetched: int | None = None
    completed: int | None = None
    announced: int | None = None  # by a doorbell, while the record does not say it
    unsent: int = 0  # packets that were never sent
    unanswered: int = 0  # packets that were sent and not acknowledged
    waits_rnr: bool = False
    retries_left: int = 0
    retries: int = 0
    path_mtu: int = 0
    written: int | None = None  # completions that the NIC has ever written to its queue
    consumed: int | None = None  # of them, read, as the program told the NIC
    cq_entries: int = 0
    cq_failed: bool = False
    cqes: list[tuple[int, bytes]] = field(default_factory=list)  # slot and entry, the last ones
    wqes: list[tuple[int, bytes]] = field(default_factory=list)  # index and basic block, around the producer
    gid: bytes = b""
    remote: tuple[int, bytes] | None = None
    counters_before: dict[str, int] = field(default_factory=dict)  # of its port, when it was connected
    peer: str = ""  # state at the other end, and where it is
    peer_idle: bool | None = None  # whether nothing is under way there
    notes: list[str] = field(default_factory=list)

    @property
    def reserved(self) -> int | None:
        """Basic blocks handed out to writers; None when no kernel ever posted."""
        return int(self.handle["reserved"]) if self.handle and self.handle["reserved"] else None

    def member(self, name: str) -> int | None:
        """A word of the handle; None when no kernel ever posted."""
        return int(self.handle[name]) if self.handle and self.reserved is not None else None

    @property
    def posted(self) -> int:
        """The index behind the last request that anybody knows of."""
        return max(n for n in (self.reserved, self.told, 0) if n is not None)

    @property
    def idle(self) -> bool:
        """Nothing is under way: everything posted is complete, and read."""
        done = self.member("done")
        return self.posted == (self.completed if self.completed is not None else done or 0)

    def error(self) -> bytes | None:
        """The first error completion that is still there: one that is no flush before one that is."""
        wrong = [e for _, e in self.cqes if formats.cqe64.get(e, "opcode") in _ERRORS]
        first = [e for e in wrong if formats.err_cqe.get(e, "syndrome") != formats.MLX5_CQE_SYNDROME_WR_FLUSH_ERR]
        return next(iter(first or wrong), None)


_ERRORS = (formats.MLX5_CQE_REQ_ERR, formats.MLX5_CQE_RESP_ERR)


@dataclass
class Live:
    """A process as it was for a moment. `str()` is for people, and ends with the likely causes."""

    pid: int
    command: str
    stopped: bool
    queues: list[LiveQueue]
    nics: list[LiveNic]
    kernels: list[RunningKernel]

    def queue(self, qpn: int) -> LiveQueue:
        """The queue pair with that number. Raises UnavailableError when there is none."""
        for one in self.queues:
            if one.qpn == qpn:
                return one
        there = ", ".join(hex(one.qpn) for one in self.queues)
        raise UnavailableError(f"process {self.pid} has no queue pair {qpn:#x}", f"it has {there or 'none'}")

    def nic(self, name: str) -> LiveNic | None:
        """The software NIC of that name."""
        return next((nic for nic in self.nics if nic.name == name), None)

    def __str__(self) -> str:
        from gda.tools.causes import causes
        from gda.tools.live_text import live_text

        return live_text(self, causes(self))


def live(pid: int | None = None, *, watched_s: float = 0.03) -> Live:
    """Look at a process: this one (from a thread beside the kernel's), or another one of the same user.

    `watched_s` is how long it is watched, to see whether the NIC moves. Raises UnavailableError when the process is
    gone, may not be read, or has nothing of this library or of the software NIC.
    """
    process = Process(os.getpid() if pid is None else pid)
    nics = process.nics()
    before = {nic.name: (nic.value("now_ns"), nic.value("outside_steps")) for nic in nics}
    shown = list(process.shown())
    if not nics and not shown:
        raise UnavailableError(
            f"process {process.pid} shows nothing: it has no queue pairs of gda, and no software NIC",
            "python -m gda live lists the processes that do",
        )
    time.sleep(watched_s)
    queues = _queues(process, nics, shown)
    _find_peers(queues, process, nics)
    now = time.monotonic_ns()
    kernels = [
        RunningKernel(facts["kernel"], facts["where"], max(0.0, (now - facts["since_ns"]) / 1e9))
        for _, facts in shown
        if "kernel" in facts
    ]
    return Live(
        process.pid, process.command, process.stopped, queues, [_nic(nic, before[nic.name]) for nic in nics], kernels
    )


def wait_for_kernel(pid: int, seconds: float, limit_s: float = 60.0) -> None:
    """Until a kernel of the process has been running for so long; raises UnavailableError when none does in time."""
    end = time.monotonic() + limit_s
    process = Process(pid)
    while True:
        now = time.monotonic_ns()
        since = [facts["since_ns"] for _, facts in process.shown() if "kernel" in facts]
        if any(now - begun >= seconds * 1e9 for begun in since):
            return
        if time.monotonic() > end:
            raise UnavailableError(f"process {pid} has had no kernel running for {seconds:g} s within {limit_s:g} s")
        time.sleep(0.02)


# -------------------------------------------------------------------------------------------------------------- inside
def _nic(nic: NicMemory, before: tuple[int, int]) -> LiveNic:
    asleep = nic.value("asleep_until_ns") != 0
    moves = (nic.value("now_ns"), nic.value("outside_steps")) != before
    ports = range(1, nic.value("ports") + 1)
    return LiveNic(
        nic.name, _THREADS.get(nic.value("thread_mode"), "unknown"), moves, asleep, nic.counters(), nic.sentences(),
        {port: nic.link_mtu(port) for port in ports}, nic.gids(),
    )  # fmt: skip


def _queues(process: Process, nics: list[NicMemory], shown: list[tuple[int, dict[str, Any]]]) -> list[LiveQueue]:
    found: dict[int, LiveQueue] = {}
    for slot, facts in shown:
        if "qpn" in facts:
            queue = _of_library(process, slot, facts)
            found[queue.qpn] = queue
    for nic in nics:
        for record in nic.queue_pairs():
            known = found.get(record.number) or LiveQueue(record.number, nic.name, record.port)
            found[record.number] = known
            _of_nic(process, nic, record, known)
    if not nics:
        for queue in found.values():
            _state_of_card(process, queue)
    return [found[number] for number in sorted(found)]


def _of_library(process: Process, slot: int, facts: dict[str, Any]) -> LiveQueue:
    """What the library's own memory says."""
    queue = LiveQueue(
        facts["qpn"], facts["nic"], facts["port"], facts["transport"], depth=facts["depth"],
        collapsed=facts["collapsed"], gid=bytes.fromhex(facts["gid"]), receives=bool(facts["receive_depth"]),
    )  # fmt: skip
    if facts["remote"]:
        queue.remote = facts["remote"][0], bytes.fromhex(facts["remote"][1])
    queue.counters_before = facts["counters"]
    parts = facts["parts"]
    unseen: dict[str, dict[str, None]] = {}  # reason to parts, in the order they were asked for

    def copy(part: str, offset: int = 0, size: int = 0) -> bytes | None:
        kind, address, length = parts[part]
        try:
            return _copy(process, slot, part, kind, (address, offset, size or length))
        except GdaError as error:
            unseen.setdefault(f"{error.message}; {error.advice}" if error.advice else error.message, {})[part] = None
            return None

    handle = copy("handle")
    if handle is not None:
        values = formats.layouts["gda_queue"].unpack(handle)
        queue.handle = {**values["qp"], "receive": values["receive"]}
    if "record" in parts and (record := copy("record")) is not None:
        _record(queue, record)
    around = queue.reserved or queue.record or 0
    queue.wqes = _around(around, queue.depth, lambda slot: copy("sq", slot * _BLOCK, _BLOCK))
    queue.cq_entries = parts["cq"][2] // _CQE
    last = (queue.member("cq_consumed") or 0) if not queue.collapsed else 0
    queue.cqes = _last_cqes(last, queue.cq_entries, lambda slot: copy("cq", slot * _CQE, _CQE))
    queue.notes += [f"{', '.join(those)}: {reason}" for reason, those in unseen.items()]
    return queue


def _copy(process: Process, slot: int, part: str, kind: str, place: tuple[int, int, int]) -> bytes:
    address, offset, size = place
    if kind != "gpu":
        return process.read(address + offset, size)
    owner = present.owner(slot) if process.pid == os.getpid() else None
    if owner is None:
        raise UnavailableError(
            f"it lies in GPU memory of process {process.pid}, which another process cannot read",
            "call gda.live() in the program, from another thread",
        )
    copied: bytes = owner.copy_part(part, offset, size)  # on a stream of its own: kernels may run on
    return copied


def _record(queue: LiveQueue, data: bytes) -> None:
    fields = formats.qp_doorbell_record.unpack(data)
    queue.record, queue.receive_record = int(fields["send_counter"]), int(fields["receive_counter"])


def _of_nic(process: Process, nic: NicMemory, record: Record, queue: LiveQueue) -> None:
    """What the software NIC knows."""
    known = queue.depth > 0  # by the library, which told of its memory
    state = record.state
    queue.state = next((s.name for s in formats.enums["qpc_state"] if s == state), f"state {state}").rpartition("_")[2]
    queue.transport = _SERVICES.get(record.transport, queue.transport)
    queue.depth = queue.depth or record.send_blocks
    queue.gid = queue.gid or record.local_gid
    queue.receives = queue.receives or bool(record.receive_entries)
    if any(record.remote_gid):
        remote = formats.qpc.get(record.context, "remote_qpn")
        queue.remote = queue.remote or (int(remote), record.remote_gid)
    base = queue.reserved if queue.reserved is not None else record.producer
    queue.told, queue.fetched, queue.completed = (
        _raise(n, base) for n in (record.producer, record.next, record.retired)
    )
    if record.announced_ns and record.announced != record.producer:
        queue.announced = _raise(record.announced, base)
    if queue.transport in ("RC", "XRC", "DCI") and queue.completed != queue.fetched:
        queue.unanswered = _packets(record.fresh_psn, record.acked_psn + 1)
        queue.unsent = _packets(record.next_psn, record.fresh_psn)
    queue.waits_rnr = bool(record.rnr_until_ns)
    queue.retries, queue.retries_left = record.retry_count, record.retries_left
    queue.path_mtu = record.mtu
    if record.page:
        page = process.read(nic.object("page", record.page).base, int(formats.UAR_PAGE_BYTES))
        queue.register = _register(page, queue.qpn)
    if not known:
        _memory_of_others(process, nic, record, queue)
    if record.send_cq:
        cq = nic.object("cq", record.send_cq)
        queue.written, queue.consumed = cq.producer, cq.consumer
        queue.cq_entries, queue.collapsed, queue.cq_failed = cq.entries, bool(cq.collapsed), bool(cq.failed)
        ring = nic.region(cq, "ring")
        if not known and ring is not None and not ring[1]:
            at, size = ring[0], cq.entry_bytes
            queue.cqes = _last_cqes(
                cq.producer, cq.entries, lambda slot: process.read(at + (slot + 1) * size - _CQE, _CQE)
            )
        elif known and not queue.collapsed and queue.cqes:
            kept = dict(queue.cqes)
            queue.cqes = [(slot, kept[slot]) for slot in sorted(kept)]


def _memory_of_others(process: Process, nic: NicMemory, record: Record, queue: LiveQueue) -> None:
    """Ring and record of a queue pair that libmlx5 made, or anybody else."""
    place = nic.region(record, "record")
    if place is not None and not place[1]:
        _record(queue, process.read(place[0], formats.qp_doorbell_record.bytes))
    ring = nic.region(record, "send_ring")
    if ring is not None and not ring[1] and record.send_blocks:
        at = ring[0]
        told = queue.told or 0
        queue.wqes = _around(told, record.send_blocks, lambda slot: process.read(at + slot * _BLOCK, _BLOCK))
    elif ring is not None and ring[1]:
        queue.notes.append("its ring lies in GPU memory, which another process cannot read")


def _register(page: bytes, qpn: int) -> int:
    """A value of this queue pair that lies in a doorbell register of the page, untaken; 0: none."""
    for place in range(int(formats.UAR_RECORDLESS_DOORBELL), len(page), 8):
        value = page[place : place + 8]
        if any(value) and formats.send_doorbell.get(value, "qpn") == qpn:
            return int.from_bytes(value, "big")
    return 0


def _state_of_card(process: Process, queue: LiveQueue) -> None:
    queue.notes.append(
        "the state of a card's queue pair is known to its own process and its driver: gda.diagnose(queue) there, or "
        f"`rdma resource show qp lqpn {queue.qpn}`"
    )


def _packets(after: int, first: int) -> int:
    """From one sequence number to another, of 24 bits; 0 where the second is not behind the first."""
    count = (after - first) % (1 << 24)
    return count if count < 1 << 23 else 0


def _raise(counter: int, base: int) -> int:
    """An index of 16 bits, as near to `base` as it can be."""
    modulus = 1 << 16
    index = base - base % modulus + counter
    return min((index, index - modulus, index + modulus), key=lambda i: (abs(i - base), i < 0)) if base else counter


def _around(index: int, depth: int, read: Any) -> list[tuple[int, bytes]]:
    found = []
    for i in range(max(0, index - min(_AROUND, depth)), index + 1):
        data = read(i % depth)
        if data is not None:
            found.append((i, data))
    return found


def _last_cqes(consumed: int, entries: int, read: Any) -> list[tuple[int, bytes]]:
    """Those that were read last and those behind them; of a collapsed queue its only one."""
    slots = sorted({(consumed + i) % entries for i in range(-2, 4)}) if entries > 1 else [0]
    found = []
    for slot in slots:
        data = read(slot)
        if data is not None and formats.cqe64.get(data, "opcode") != formats.MLX5_CQE_INVALID:
            found.append((slot, data))
    return found


def _find_peers(queues: list[LiveQueue], process: Process, nics: list[NicMemory]) -> None:
    """The other ends: in this process, or in another one of this host that shows its NIC."""
    wanted = [queue for queue in queues if queue.remote is not None and queue.transport != "UD"]
    own = {gid for nic in nics for gid in nic.gids()} | {queue.gid for queue in queues}
    here = {queue.qpn: queue for queue in queues}
    elsewhere: dict[bytes, tuple[Process, NicMemory]] | None = None
    for queue in wanted:
        assert queue.remote is not None
        number, gid = queue.remote
        if gid in own:
            peer = here.get(number)
            queue.peer = f"{peer.state}, in this process" if peer else "gone: this process has it no more"
            queue.peer_idle = peer.idle if peer else None
            continue
        if elsewhere is None:
            elsewhere = {g: (p, n) for p in processes() if p.pid != process.pid for n in p.nics() for g in n.gids()}
        there = elsewhere.get(gid)
        if there is None:
            queue.peer = "not to be seen from here: on another host, of another user, or gone"
            continue
        found = next((r for r in there[1].queue_pairs() if r.number == number), None)
        if found is None:
            queue.peer = f"gone: process {there[0].pid} has it no more"
            continue
        other = LiveQueue(number, there[1].name, found.port)
        _of_nic(there[0], there[1], found, other)
        queue.peer, queue.peer_idle = f"{other.state}, in process {there[0].pid}", other.idle
