# SPDX-License-Identifier: Apache-2.0
"""Queue pairs that the CPU posts to, through libmlx5: one request a call, or batches that are NumPy arrays.

The other end may be one of these, or a QueuePair that kernels drive. Document: docs/cpu_posting.md; man pages:
ibv_post_send(3), ibv_modify_qp(3).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gda import _verbs, notes
from gda.errors import (
    ArgumentError,
    CompletionError,
    DeadlineError,
    NotConnectedError,
    OutOfBoundsError,
    UnavailableError,
)  # fmt: skip
from gda.formats import syndrome_meaning
from gda.nic import checked, lint
from gda.nic.addresses import find_again, wanted_index
from gda.nic.batch import as_bytes
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
from gda.nic.lifetime import Owner, Resources, working
from gda.nic.memory import Memory
from gda.nic.remote import RemoteMemory
from gda.nic.verbs_states import make_ready

if TYPE_CHECKING:
    from gda.nic.device import Nic

__all__ = ["Batch", "HostQueuePair"]

_V = _verbs
_STATES = {0: "RST", 1: "INIT", 2: "RTR", 3: "RTS", 4: "SQD", 5: "SQER", 6: "ERR"}  # enum ibv_qp_state
# enum ibv_wc_status -> enum cqe_syndrome, as libmlx5 turns one into the other.
_SYNDROMES = {
    1: 0x01, 2: 0x02, 4: 0x04, 5: 0x05, 6: 0x06, 7: 0x10, 8: 0x11, 9: 0x12, 10: 0x13, 11: 0x14, 12: 0x15, 13: 0x16,
    16: 0x22,
}  # fmt: skip
_SIGNALED, _WRITE, _WRITE_IMM, _READ = (
    int(x) for x in (_V.IBV_SEND_SIGNALED, _V.IBV_WR_RDMA_WRITE, _V.IBV_WR_RDMA_WRITE_WITH_IMM, _V.IBV_WR_RDMA_READ)
)


class Batch:
    """A batch that was checked for one queue pair and built. HostQueuePair.prepare makes it, post(batch) posts it."""

    def __init__(self, queue: HostQueuePair, raw: _verbs.SendBatch) -> None:
        self.queue = queue
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} for queue pair 0x{self.queue.qpn:x}>"


class HostQueuePair(Owner):
    """A reliable connection whose work requests the CPU posts. Made by Nic.host_queue_pair.

    Options: `depth` requests may be outstanding; libmlx5 rounds up, `depth` says to what. `inline_bytes` of payload
    can lie in a request; `inline_bytes` says how many. `gid_index` and `psn` as in QueuePair. It has a completion queue
    of its own with an entry for each request, and no receives: the other side may write, read and do atomics, but not
    send. `raw` is the queue pair of gda._verbs. Not for two threads at a time; posting holds the GIL (20 ns a request).
    """

    def __init__(
        self, nic: Nic, *, depth: int = 128, inline_bytes: int = 0, gid_index: int | None = None, psn: int | None = None
    ) -> None:
        self._own(Resources("queue pair", nic._resources))
        for name, value, least in (("depth", depth, 1), ("inline_bytes", inline_bytes, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ArgumentError(f"{name}={value!r} is not a whole number from {least} on")
        lint.check(lint.limits_of(nic.context), max_send_wr=depth, inline_bytes=inline_bytes, psn=psn)
        if nic.is_iwarp:
            raise UnavailableError(
                f"{nic.name} speaks iWARP: host queue pairs are connected by ibv_modify_qp, which it has not",
                'use nic.queue_pair() and kernels with target="host"',
            )
        self.nic = nic
        self.gid = nic.pick_gid(gid_index)[1] if nic.port.is_ethernet or gid_index is not None else None
        self._gid_is_pinned = wanted_index(gid_index) is not None
        self.psn = secrets.randbits(24) if psn is None else psn
        self._remote: ConnectionInfo | None = None
        try:
            # libmlx5 rounds the depth up, at most to the next power of two.
            self._cq = checked.create_cq(nic, 2 * depth)
            self._resources.callback(self._cq.close)
            self.raw = checked.create_qp(
                nic, qp_type=_V.IBV_QPT_RC, send_cq=self._cq, recv_cq=self._cq, max_send_wr=depth, max_recv_wr=0,
                max_send_sge=1, max_recv_sge=0, max_inline_data=inline_bytes,
            )  # fmt: skip
            self._resources.callback(self.raw.close)
        except BaseException:
            self._resources.close()
            raise
        self.qpn: int = self.raw.qp_num
        self.depth: int = self.raw.cap["max_send_wr"]
        self.inline_bytes: int = self.raw.cap["max_inline_data"]
        self._resources.what = f"queue pair 0x{self.qpn:x}"

    def __repr__(self) -> str:
        return f"<HostQueuePair 0x{self.qpn:x} depth {self.depth}, {'closed' if self.closed else self.state}>"

    # ------------------------------------------------------------------------------------------------------ connect
    @property
    def info(self) -> ConnectionInfo:
        """What the other side must know to connect to this queue pair."""
        self._resources.check()
        port = self.nic.port
        if self.gid is None:
            return ConnectionInfo(self.qpn, self.psn, bytes(16), self.nic.active_mtu, port.is_ethernet, port.lid)
        version = {"RoCE v1": 1, "RoCE v2": 2}.get(self.gid.type, 0)
        mac = self.nic.mac(self.gid.index)
        return ConnectionInfo(
            self.qpn, self.psn, self.gid.raw, self.nic.active_mtu, port.is_ethernet, port.lid, mac, version
        )

    @property
    def remote(self) -> ConnectionInfo | None:
        """Whom it is connected to."""
        return self._remote

    @property
    @working
    def state(self) -> str:
        """ "RST", "INIT", "RTR", "RTS", "SQD", "SQER" or "ERR", as the kernel answers."""
        answer: dict[str, Any] = _V.ibv_query_qp(self.raw, _V.IBV_QP_STATE)
        return _STATES[answer["qp_state"]]

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
        """Connect to the queue pair that `remote` describes: see QueuePair.connect, with the same options and errors.

        A refused connect leaves the queue pair in reset, to be tried again.
        """
        remote = checked_connection(
            remote, qpn=self.qpn, connected_to=self._remote, nic=self.nic,
            options=(options := Options(
                ack_timeout, retry_count, rnr_retry, min_rnr_timer, max_rd_atomic, pkey_index
            )),
        )  # fmt: skip
        mtu = checked_mtu(path_mtu, self.nic.active_mtu, remote.mtu)
        if self.gid is not None:
            self.gid = find_again(self.nic.gids, self.gid, self._gid_is_pinned, self.nic.port_name)
        make_ready(self.nic, self.raw, remote, mtu=mtu, psn=self.psn, gid=self.gid, options=options)
        self._remote = remote
        notes.note("CONNECT", f"queue pair 0x{self.qpn:x} to 0x{remote.qpn:x}", qpn=self.qpn, index=remote.qpn)

    @working
    def reset(self) -> None:
        """Back to reset, as if newly made; what was outstanding is forgotten. Ready to connect again."""
        _V.ibv_modify_qp(self.raw, _V.IBV_QP_STATE, qp_state=_V.IBV_QPS_RESET)
        self._remote = None

    # --------------------------------------------------------------------------------------------------------- post
    def post(
        self, work: npt.NDArray[np.void] | Batch, *, remote: Iterable[Memory | RemoteMemory] | None = None
    ) -> None:
        """Post an array of gda.WORK_REQUEST, or a prepared Batch: all of it or nothing.

        Every row is checked first: opcode, flags, length, and that its local bytes lie in memory of this NIC that is
        open and allows the operation; with `remote` (which prepare() takes for a Batch) the same for its remote bytes.
        Raises WorkRequestError with the first bad `row`, PostError when the queue has no slots for all of them
        ("SQ full: 16 posted, 0 signaled; ..."), NotConnectedError before connect(). Should libmlx5 refuse a row after
        all, PostError.posted rows before it are on their way. Memory must stay open until the requests are complete;
        only signaled ones (IBV_SEND_SIGNALED) complete visibly, and one frees its slot and all before it.
        """
        if self._remote is None:
            self._refuse()
        if len(work) > self.depth:
            self._too_small(len(work))
        if isinstance(work, Batch):
            if work.queue is not self or remote is not None:
                raise ArgumentError(
                    f"{work!r} cannot be posted to queue pair 0x{self.qpn:x}" if work.queue is not self
                    else "the remote memory of a prepared batch is fixed",
                    "prepare it for this queue pair, with its remote memory",
                )  # fmt: skip
            _V.post_batch(work._raw)
        else:
            _V.post_rows(self.raw, as_bytes(work), self.nic.known_memory.table(remote))

    def prepare(self, rows: npt.NDArray[np.void], *, remote: Iterable[Memory | RemoteMemory] | None = None) -> Batch:
        """Check and build a batch once, to post it often; it copies the rows. Arguments and errors: see post()."""
        self._resources.check()
        data = as_bytes(rows)
        if len(np.atleast_1d(rows)) > self.depth:
            self._too_small(len(rows))
        return Batch(self, _V.SendBatch(self.raw, data, self.nic.known_memory.table_for(np.atleast_1d(rows), remote)))

    def put(
        self, target: Memory | RemoteMemory, target_offset: int, source: Memory, source_offset: int, bytes: int, *,
        immediate: int | None = None, signaled: bool = True, wr_id: int = 0,
    ) -> None:  # fmt: skip
        """Write bytes from source + source_offset to target + target_offset, as gda_put does; wait() for completion.

        Both memories must stay open until then; the source must not change. `immediate` (32 bits) also completes a
        receive there, `wr_id` comes back in the completion, `signaled=False` asks for none.

        Raises OutOfBoundsError, ArgumentError for memory without the right, PostError for a full queue.
        """
        self._check(source, source_offset, bytes, None)
        self._check(target, target_offset, bytes, "remote_write")
        _V.post_send(
            self.raw, _WRITE if immediate is None else _WRITE_IMM, source.address + source_offset, bytes, source.lkey,
            target.address + target_offset, target.rkey, wr_id, _SIGNALED if signaled else 0, immediate or 0,
        )  # fmt: skip

    def get(
        self, target: Memory, target_offset: int, source: Memory | RemoteMemory, source_offset: int, bytes: int, *,
        signaled: bool = True, wr_id: int = 0,
    ) -> None:  # fmt: skip
        """Read bytes from the other side's source + source_offset to target + target_offset; errors as of put()."""
        self._check(target, target_offset, bytes, "local_write")
        self._check(source, source_offset, bytes, "remote_read")
        _V.post_send(
            self.raw, _READ, target.address + target_offset, bytes, target.lkey, source.address + source_offset,
            source.rkey, wr_id, _SIGNALED if signaled else 0,
        )  # fmt: skip

    # ----------------------------------------------------------------------------------------------------- complete
    def poll(self, count: int = 64) -> list[_verbs.WC]:
        """Up to `count` completions (64 at most) that are there now, oldest first, failed ones too."""
        self._resources.check()
        return _V.ibv_poll_cq(self._cq, count)

    def wait(self, completions: int = 1, seconds: float = 1.0) -> list[_verbs.WC]:
        """Poll until so many signaled requests have completed; the GIL is given up between polls.

        Raises CompletionError for the first that failed, DeadlineError after `seconds`.
        """
        done: list[_verbs.WC] = []
        end = time.monotonic() + seconds
        while len(done) < completions:
            new = self.poll(min(64, completions - len(done)))
            for wc in new:
                if wc.status:
                    raise self._failed(wc)
            done += new
            if new:
                continue
            if time.monotonic() >= end:
                raise DeadlineError(
                    f"{len(done)} of {completions} completions of queue pair 0x{self.qpn:x} after {seconds} s",
                    advice="wait longer, or look whether so many requests were signaled",
                )
            time.sleep(0)
        return done

    # ------------------------------------------------------------------------------------------------------- inside
    def _failed(self, wc: _verbs.WC) -> CompletionError:
        """The same exception, with the same words, as of a kernel's request that failed so."""
        syndrome = _SYNDROMES.get(wc.status, 0)
        text = f"{_V.ibv_wc_status_str(wc.status)} (status {wc.status}, vendor error 0x{wc.vendor_err:x})"
        advice = "reset() and connect() again on both sides"
        if syndrome:
            meaning = syndrome_meaning(syndrome)
            text += f", syndrome 0x{syndrome:02x}: {meaning.text}"
            advice = f"{meaning.advice}; then {advice}"
        return CompletionError(
            f"request wr_id={wc.wr_id} of queue pair 0x{self.qpn:x} failed: {text}", wc.status, advice,
            syndrome=syndrome, vendor_syndrome=wc.vendor_err, qpn=self.qpn,
        )  # fmt: skip

    def _too_small(self, requests: int) -> None:
        lint.refuse(
            "depth", self.depth, f"depth={self.depth}: the send queue is too small for a batch of {requests} requests, "
            "which can never lie in it at once", f"make the queue pair with depth={requests}, or post it in parts",
        )  # fmt: skip

    def _refuse(self) -> None:
        self._resources.check()
        raise NotConnectedError(
            f"queue pair 0x{self.qpn:x} is not connected, so it cannot send",
            advice="connect(other.info) on both sides first",
        )

    def _check(self, memory: Memory | RemoteMemory, offset: int, bytes: int, right: str | None) -> None:
        if self._remote is None:
            self._refuse()
        if offset < 0 or bytes < 0 or offset + bytes > memory.bytes:
            raise OutOfBoundsError(
                f"offset {offset} + {bytes} bytes pass the end of a memory region of {memory.bytes} bytes",
                advice="register more memory, or move less",
            )
        if isinstance(memory, Memory):
            if memory._resources.closed:
                memory._resources.check()
            if right is not None and right not in memory.access:
                raise ArgumentError(f"{memory!r} has no right {right}", f"register it with access=(..., {right!r})")
