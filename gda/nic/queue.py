# SPDX-License-Identifier: Apache-2.0
"""Queue pairs for device code: queues in memory of our choice, connected, reset, closed.

A queue pair has a send queue with its own completion queue and, when asked for, a receive queue with another. Where
their memory lies within its slabs: rings.py. Who carries out what kernels post there: carrier.py.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gda import config, formats, notes
from gda.errors import ArgumentError, FieldError, NotConnectedError, UnavailableError
from gda.nic import datagram, doorbell_modes, lint, request
from gda.nic.addresses import find_again, wanted_index
from gda.nic.carrier import Carrier, Wanted, check_posting
from gda.nic.connection import (
    ACK_TIMEOUT,
    MIN_RNR_NAK,
    RETRY_COUNT,
    RNR_RETRY_FOR_EVER,
    ConnectionInfo,
    Options,
    checked_connection,
    checked_mtu,
)  # fmt: skip
from gda.nic.direct import Direct
from gda.nic.handle import Addresses, Handle, leave_count
from gda.nic.lifetime import Resources, working
from gda.nic.memory import Memory
from gda.nic.placement import choose
from gda.nic.proxied import Proxied
from gda.nic.remote import key_in_memory
from gda.nic.rings import CQ_RECORD, RECEIVE_CQ_RECORD, RECEIVE_WORD, RECORDS_BYTES, SEND_WORD, Rings
from gda.nic.visible import Visible

if TYPE_CHECKING:
    from gda.nic.device import Nic
    from gda.nic.host_queue import HostQueuePair

__all__ = ["QueuePair", "connect"]

MAX_DEPTH = 32768  # completions carry 16 bits of the index: more in flight would be ambiguous
_BLOCK = int(formats.WQE_BASIC_BLOCK_BYTES)
_CQE = int(formats.CQE_BYTES)
_RECEIVE = int(formats.WQE_SEGMENT_BYTES)  # one data segment each
_SCRATCH_BYTES = 8
_TRANSPORTS = ("RC", "UC", "UD")
_MIN_RECEIVES = _BLOCK // _RECEIVE  # the send queue behind them starts on a basic block


class QueuePair(Visible):
    """A connection whose send queue, completion queue, records and handle lie where `placement` says.

    Options: `depth` basic blocks of 64 bytes (a power of two); `placement` "host", "gpu" or a dict by part ("sq",
    "cq", "records", "handle"); `completion` "collapsed" (one entry, overwritten) or "ring"; `doorbell` says how
    kernels tell the NIC: "record" and doorbell (default), "no-record" (needs the capability; `record=False` says the
    same), "doorbell-first", "blueflame" or "cpu", see docs/doorbells.md and Nic.doorbell_modes(), which says what works
    here; with "cpu" the records lie in host memory; `shared=False` promises one thread at a time, which saves atomics;
    `deadline_ms` bounds a put's wait for a free slot; `ignore_overrun=False` makes the NIC check the consumer index;
    `receive_depth` receives can be posted (a power of two from 4; 0: none), completed in a ring of as many entries
    (placement "receive_cq", by default where "cq" is; the receive queue lies before the send queue, in its memory);
    `transport` "RC" is reliable and has all operations; "UC" has puts, sends and signals that set, and what is lost
    stays lost, without an error; "UD" sends datagrams, to any `peer()`. Both sides must be of one kind;
    `posting` "direct" leaves all to the NIC, "proxy" to a host thread that posts by libibverbs, on any NIC, from queues
    in host memory (docs/proxy.md; default: as the NIC was opened);
    `gid_index`, `psn`, `user_index` fix what is otherwise chosen; `allow_unconnected` lets kernels take it before it
    is connected. Fits as a kernel argument `gda_qp*`. Made by Nic.queue_pair; it ends with close(), or with its Nic.
    Raises ArgumentError or FieldError for what cannot be, UnavailableError for a placement or doorbell that is not to
    be had here, CommandError when the firmware refuses.
    """

    def __init__(
        self,
        nic: Nic,
        *,
        depth: int = 128,
        receive_depth: int = 0,
        placement: str | Mapping[str, str] | None = None,
        completion: str = "collapsed",
        doorbell: str | None = None,
        record: bool | None = None,
        shared: bool = True,
        deadline_ms: int = 1000,
        ignore_overrun: bool = True,
        gid_index: int | None = None,
        psn: int | None = None,
        user_index: int | None = None,
        allow_unconnected: bool = False,
        transport: str = "RC",
        posting: str | None = None,
    ) -> None:
        self._own(Resources("queue pair", nic._resources))
        self.posting = check_posting(posting, nic.posting)
        self.depth = _checked_depth("depth", depth, 1, nic)
        self.receive_depth = _checked_depth("receive_depth", receive_depth, _MIN_RECEIVES, nic) if receive_depth else 0
        if completion not in ("collapsed", "ring"):
            raise ArgumentError(f"completion={completion!r} is not one of collapsed, ring")
        if transport not in _TRANSPORTS:
            raise ArgumentError(f"transport={transport!r} is not one of {', '.join(_TRANSPORTS)}")
        self.transport = transport
        if not isinstance(deadline_ms, int) or deadline_ms <= 0:
            raise ArgumentError(f"deadline_ms={deadline_ms!r} is not a positive whole number", "for example 1000")
        lint.check(lint.limits_of(nic.context), psn=psn, user_index=user_index)
        named = placement if isinstance(placement, Mapping) else {}
        self.doorbell = doorbell_modes.check_name(doorbell, record, self.posting)
        doorbell_modes.refuse(nic, self.doorbell, named)
        on_host = nic.is_software or nic.gpu is None or self.posting == "proxy"
        self.placement = choose(placement, "host" if on_host else "gpu", nic.gpu, nic.no_gpu_reason)
        self.placement |= {"rq": self.placement["sq"]}
        if self.doorbell == "cpu":
            self.placement["records"] = "host"
        self.placement.setdefault("receive_cq", self.placement["cq"])
        doorbell_modes.refuse_placement(self.doorbell, self.placement)
        fixed = isinstance(placement, Mapping) and "handle" in placement
        self.nic = nic
        has_gid = nic.port.is_ethernet and not nic.is_iwarp
        self.gid = nic.pick_gid(gid_index)[1] if has_gid or gid_index is not None else None
        self._gid_is_pinned = wanted_index(gid_index) is not None
        self.psn = secrets.randbits(24) if psn is None else psn
        self.user_index = nic._user_index() if user_index is None else user_index
        self.allow_unconnected = allow_unconnected
        self.is_collapsed, self.is_shared = completion == "collapsed", shared
        self.has_record = self.doorbell != "no-record"
        self._ignores_overrun = ignore_overrun
        wanted = Wanted(
            transport, self.depth, self.receive_depth, self.doorbell, self.is_collapsed, ignore_overrun, self.user_index
        )
        self._deadline_ns = deadline_ms * 1_000_000
        self._remote: ConnectionInfo | None = None
        self._counters_before: dict[str, int] = {}
        try:
            self._cq_entries = 1 if self.is_collapsed else self.depth
            sizes = {
                "rq": self.receive_depth * _RECEIVE,
                "sq": self.depth * _BLOCK,
                "cq": self._cq_entries * _CQE,
                "receive_cq": self.receive_depth * _CQE,
                "records": RECORDS_BYTES,
            }
            if not self.receive_depth:
                del sizes["rq"], sizes["receive_cq"]
            is_direct = self.posting == "direct"
            self._rings = Rings(nic, self.placement, sizes, self._resources, for_nic=is_direct)
            self._rings.poison()
            self._carrier: Carrier = (Direct if is_direct else Proxied)(nic, self._rings, wanted, self._resources)
            self.qpn, self.cqn, self.receive_cqn = (
                self._carrier.qpn, self._carrier.cqn, self._carrier.receive_cqn
            )  # fmt: skip
            # Old values that nobody wants: where signals that add leave them. No kernel looks there.
            self._scratch = Memory.allocate(nic, _SCRATCH_BYTES, access=("local_write",))
            self._resources.callback(self._scratch._resources.close)  # which holds no object of ours
            # The handle must not hold this object: its close() is kept by what frees this object.
            addresses = functools.partial(
                _addresses, self._rings, self._carrier.registers, self.has_record, bool(self.receive_depth)
            )
            self._handle = Handle(self._constants(), addresses, self.placement["handle"], fixed, nic.gpu)
            self._resources.callback(self._handle.close)
            if config.get("GDA_PROFILE"):
                self._resources.callback(functools.partial(leave_count, self._handle, self.posting))
            self._show()
        except BaseException:
            self._resources.close()
            raise
        self._resources.what = f"queue pair 0x{self.qpn:x}"

    def __repr__(self) -> str:
        return f"<QueuePair 0x{self.qpn:x} depth {self.depth}, {'closed' if self.closed else self.state}>"

    # ------------------------------------------------------------------------------------------------------ connect
    @property
    def info(self) -> ConnectionInfo:
        """What the other side must know to connect to this queue pair."""
        self._resources.check()
        port = self.nic.port
        if self.nic.connector is not None:
            at = self.nic.connector
            return ConnectionInfo(self.qpn, self.psn, at.address, self.nic.active_mtu, tcp_port=at.port)
        gid = self.gid.raw if self.gid is not None else bytes(16)
        mac = self.nic.mac(self.gid.index) if self.gid is not None else bytes(6)
        version = {"RoCE v1": 1, "RoCE v2": 2}.get(self.gid.type, 0) if self.gid is not None else 0
        return ConnectionInfo(self.qpn, self.psn, gid, self.nic.active_mtu, port.is_ethernet, port.lid, mac, version)

    @working
    def connect(
        self,
        remote: ConnectionInfo | bytes,
        *,
        path_mtu: int | None = None,
        ack_timeout: int = ACK_TIMEOUT,
        retry_count: int = RETRY_COUNT,
        rnr_retry: int = RNR_RETRY_FOR_EVER,
        min_rnr_timer: int = MIN_RNR_NAK,
        max_rd_atomic: int | None = None,
        pkey_index: int = 0,
    ) -> None:
        """Connect to the queue pair that `remote` (its info, or the bytes of it) describes: reset to ready-to-send.

        `path_mtu` (bytes: 256 to 4096) defaults to the smaller of both ports'. `ack_timeout` waits 4.096 us *
        2^ack_timeout for an answer, `retry_count` (0..7) repeats so often, `rnr_retry` (7: for ever) to a receiver
        that had no receive posted and asks for the pause `min_rnr_timer` stands for. `max_rd_atomic` reads and atomics
        may be outstanding (up to 16 where left out; rounded down to a power of two). A refused connect leaves the queue
        pair in reset, to be tried again. Raises FieldError for values out of bounds, PathMtuError for a path MTU beyond
        what both links carry, GidError when this side's address is at another index now (and that was fixed), is gone,
        or does not reach the other side; of all these the NIC hears nothing. On iWARP it only begins to connect
        (both sides must, within half a minute) and of the options takes max_rd_atomic alone; see settle().
        """
        options = Options(ack_timeout, retry_count, rnr_retry, min_rnr_timer, max_rd_atomic, pkey_index)
        remote = checked_connection(
            remote, qpn=self.qpn, connected_to=self._remote, nic=self.nic, options=options
        )
        mtu = checked_mtu(path_mtu, self.nic.active_mtu, remote.mtu)
        if self.gid is not None:
            self.gid = find_again(self.nic.gids, self.gid, self._gid_is_pinned, self.nic.port_name)
        before = self.nic.counters()
        self._carrier.connect(self.info, remote, mtu, self.gid, options)
        self._remote, self._counters_before = remote, before
        self._handle.update(flags=self._flags())
        notes.note("CONNECT", f"queue pair 0x{self.qpn:x} to 0x{remote.qpn:x}", qpn=self.qpn, index=remote.qpn)
        self._show()

    @working
    def settle(self) -> None:
        """Wait until it is connected, on iWARP, where connect() only begins to. Kernels' launches do that, too.

        Raises UnavailableError, with the reason, when it did not come to it within half a minute, or is over.
        """
        self._carrier.settle()

    def peer(self, remote: ConnectionInfo) -> datagram.Peer:
        """Where `gda_send_to` sends to the queue pair with this info, as the kernel argument `gda_address` (UD)."""
        self._resources.check()
        path = self._carrier.path_to(remote, self.nic.active_mtu, self.gid)
        peer = datagram.peer(path, remote, self.qpn)
        self._carrier.know(peer.segment, path, remote)
        return peer

    @property
    def memory_bytes(self) -> int:
        """Memory of its rings, records, handle and scratch; what the NIC and its driver keep comes to that."""
        return self._rings.memory_bytes + self._handle.slab.bytes + self._scratch.bytes

    @property
    def remote(self) -> ConnectionInfo | None:
        """Whom it is connected to."""
        return self._remote

    @property
    def path_mtu(self) -> int:
        """Path MTU in use, as commands carry it: 1 (256 bytes) to 5 (4096); 0 before connect()."""
        return int(self.context()["mtu"])

    @property
    def state(self) -> str:
        """The NIC's answer to QUERY_QP: "RST", "INIT", "RTR", "RTS", "SQER", "ERR", "SQD"."""
        state = self.context()["state"]
        name = getattr(state, "name", f"state {int(state)}")
        return str(name.removeprefix("MLX5_QPC_STATE_"))

    def counters(self) -> dict[str, int]:
        """What the NIC has counted since connect(); NICs do not count by queue pair, so others' are among it."""
        now, before = self.nic.counters(), self._counters_before
        return {name: value - before.get(name, 0) for name, value in now.items()}

    @working
    def context(self) -> dict[str, Any]:
        """The NIC's answer to QUERY_QP, with the PRM's field names (format qpc)."""
        return self._carrier.context()

    @working
    def reset(self) -> None:
        """Back to reset, as if newly made: indices zero, rings poisoned, ready to connect again.

        No kernel may be using the queue. Tickets from before mean nothing afterwards. On iWARP only before connect():
        afterwards it ends there, and raises UnavailableError.
        """
        self._carrier.reset()
        consumed = 0 if self.is_collapsed else self._completions_written("cq", int(self.read_handle()["cq_consumed"]))
        received = self._arrivals_written()
        self._remote = None
        self._rings.poison()
        if not self.is_collapsed:
            # The completion queue stays, and the NIC goes on where it was: so do we.
            record = formats.cq_doorbell_record.pack(consumer_index=consumed % (1 << 24))
            self._rings.write("records", CQ_RECORD, record)
        self._handle.update(
            flags=self._flags(), reserved=0, ready=0, done=0, error=0, cq_consumed=consumed, rung=0, deferred=0,
            silent=0, flashes=0, receive={"reserved": 0, "ready": 0, "received": 0, "cq_base": received},
        )  # fmt: skip
        self._show()

    @working
    def to_error(self) -> None:
        """Move to the error state: what is outstanding completes as flushed, and nothing more is sent."""
        self._carrier.to_error()

    # ------------------------------------------------------------------------------------------------ kernel argument
    def __gda_argument__(self, target: str) -> tuple[str, bytes]:
        """The kernel argument `gda_qp*`: the handle's address on `target` ("host" or "gpu").

        Raises NotConnectedError before connect(), ArgumentError for parts that the target cannot reach.
        """
        self._resources.check()
        if self._remote is None and not self.allow_unconnected:
            raise NotConnectedError(
                f"queue pair 0x{self.qpn:x} is not connected, so a kernel cannot send on it",
                advice="connect(other.info) on both sides first, or make a loopback_pair()",
            )
        self._carrier.settle()
        if target == "host":
            for part in ("sq", "cq", "records", *(("receive_cq",) if self.receive_depth else ())):
                if self.placement[part] == "gpu":
                    raise ArgumentError(
                        f"the queue pair's {part} lies in GPU memory, which code on the CPU cannot reach",
                        'make the queue pair with placement="host", or run the kernel on the GPU',
                    )
        elif self.nic.gpu is None:
            raise UnavailableError(f"this queue pair was made for the CPU: {self.nic.no_gpu_reason}")
        address = self._handle.address(target)
        if self._handle.slab.address != self._shown_handle:  # it followed the target
            self._show()
        return "gda_qp*", address.to_bytes(8, "little")

    def __gda_stay__(self, holder: object) -> None:
        """What a kernel got of it stays where it is as long as `holder` lives."""
        self._handle.stay(holder)

    def __gda_explain__(self, qpn: int, wqe_index: int) -> dict[str, Any] | None:
        """What a failed request asked for (request.explain); None when it is not of this queue pair.

        Queue pair 0 is none: asked when a signal did not come, and the answer tells the states of both ends.
        """
        return request.explain(self, qpn, wqe_index) if qpn else {"ends": request.ends(self)}

    # -------------------------------------------------------------------------------------------------------- inside
    def _flags(self) -> int:
        flags = doorbell_modes.kernel_flags(self.doorbell)
        if not self.is_shared:
            flags += int(formats.GDA_QP_OWNED)
        if self._remote is not None:
            flags += int(formats.GDA_QP_CONNECTED)
        return flags

    def _constants(self) -> dict[str, Any]:
        port, capabilities = self.nic.port, self.nic.capabilities
        cq_flags = int(formats.GDA_CQ_COLLAPSED) if self.is_collapsed else 0
        cq_flags += int(formats.GDA_CQ_IGNORE_OVERRUN) if self._ignores_overrun else 0
        return {
            "version": int(formats.GDA_HANDLE_VERSION),
            "flags": self._flags(),
            "qpn": self.qpn,
            "log_sq_size": self.depth.bit_length() - 1,
            "deadline_ns": self._deadline_ns,
            "max_message_bytes": 128 << self.nic.active_mtu  # one packet
            if self.transport == "UD"
            else min(1 << 30, port.max_message_bytes, 1 << (capabilities.log_max_msg or 30)),
            "scratch": self._scratch.address,
            "scratch_lkey_be": key_in_memory(self._scratch.lkey),
            "cq": {"cqn": self.cqn, "log_size": self._cq_entries.bit_length() - 1, "flags": cq_flags},
            "receive": self._receive_constants(),
        }

    def _receive_constants(self) -> dict[str, Any]:
        if not self.receive_depth:
            return {"cq": {}}
        log_size = self.receive_depth.bit_length() - 1
        cq = {"cqn": self.receive_cqn, "log_size": log_size, "flags": int(formats.GDA_CQ_IGNORE_OVERRUN)}
        return {"log_size": log_size, "cq": cq}


def _addresses(
    rings: Rings, registers: tuple[int, int], has_record: bool, has_receives: bool, target: str
) -> Addresses:
    """Where code on `target` finds the parts of a queue pair; its doorbell is at `registers` (CPU, GPU)."""
    records = rings.address("records", target)
    receives = {
        "rq": rings.address("rq", target),
        "receive_record": records + RECEIVE_WORD,
        "receive_cq_ring": rings.address("receive_cq", target),
        "receive_cq_record": records + RECEIVE_CQ_RECORD,
    } if has_receives else {}  # fmt: skip
    return Addresses(
        sq=rings.address("sq", target),
        doorbell=registers[target == "gpu"],
        record=records + SEND_WORD if has_record else 0,
        cq_ring=rings.address("cq", target),
        cq_record=records + CQ_RECORD,
        **receives,
    )


def connect(first: QueuePair | HostQueuePair, second: QueuePair | HostQueuePair, **options: Any) -> None:
    """Connect two queue pairs of this process to each other, of one NIC or of two. Options: see QueuePair.connect.

    The path MTU is the smaller of both ports'. When one side refuses, the other is in reset, too.
    """
    kinds = [getattr(queue, "transport", "RC") for queue in (first, second)]
    if kinds[0] != kinds[1]:
        raise ArgumentError(f"one queue pair is {kinds[0]}, the other {kinds[1]}", "make both with one transport")
    infos = first.info, second.info
    first.connect(infos[1], **options)
    try:
        second.connect(infos[0], **options)
    except BaseException:
        with contextlib.suppress(UnavailableError):  # of iWARP, where it has ended then
            first.reset()
        raise


def _checked_depth(name: str, depth: int, least: int, nic: Nic) -> int:
    limit = min(MAX_DEPTH, 1 << nic.capabilities.log_max_qp_sz)
    if not isinstance(depth, int) or isinstance(depth, bool) or depth & (depth - 1) or not least <= depth <= limit:
        raise FieldError(
            f"{name}={depth!r} is not a power of two from {least} to {limit}"
            + (" basic blocks" if name == "depth" else ""),
            name, depth, (least, limit), f"for example {'128, the default' if name == 'depth' else 64}",
        )  # fmt: skip
    return depth
