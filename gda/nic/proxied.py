# SPDX-License-Identifier: Apache-2.0
"""Queue pairs whose requests a host thread carries out by libibverbs: for any RDMA NIC, with kernels unchanged.

Used by queue.py; the other way is direct.py. Rings, records and completions lie in memory of the host and look to
kernels as those of a card; behind them is an ordinary queue pair, with completion queues that only the thread reads.
Its number is the queue pair's. Document: docs/proxy.md.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from gda import _proxy, _verbs, formats
from gda.errors import UnavailableError, VerbsError
from gda.nic import checked
from gda.nic.addresses import Gid
from gda.nic.carrier import Wanted
from gda.nic.connection import ConnectionInfo, Options, Path
from gda.nic.connector import Connector, Link
from gda.nic.datagram import Q_KEY
from gda.nic.lifetime import Resources
from gda.nic.proxy import Proxy
from gda.nic.rings import CQ_RECORD, RECEIVE_WORD, SEND_WORD, Rings
from gda.nic.verbs_states import SERVICES, make_ready, most_reads

if TYPE_CHECKING:
    from gda.nic.device import Nic

__all__ = ["Proxied"]

_V = _verbs
_STATES = {  # enum ibv_qp_state -> that of the PRM
    0: formats.MLX5_QPC_STATE_RST, 1: formats.MLX5_QPC_STATE_INIT, 2: formats.MLX5_QPC_STATE_RTR,
    3: formats.MLX5_QPC_STATE_RTS, 4: formats.MLX5_QPC_STATE_SQD, 5: formats.MLX5_QPC_STATE_SQER,
    6: formats.MLX5_QPC_STATE_ERR,
}  # fmt: skip
_SERVICES = {"RC": formats.MLX5_QPC_ST_RC, "UC": formats.MLX5_QPC_ST_UC, "UD": formats.MLX5_QPC_ST_UD}
_ALL = _V.IBV_QP_STATE | _V.IBV_QP_AV | _V.IBV_QP_PATH_MTU | _V.IBV_QP_TIMEOUT | _V.IBV_QP_RETRY_CNT
_ALL |= _V.IBV_QP_RNR_RETRY | _V.IBV_QP_RQ_PSN | _V.IBV_QP_SQ_PSN | _V.IBV_QP_DEST_QPN | _V.IBV_QP_MIN_RNR_TIMER


class Proxied:
    """An ordinary queue pair behind `rings`, and its place in the proxy's thread. See carrier.Carrier."""

    page_type = ""

    def __init__(self, nic: Nic, rings: Rings, wanted: Wanted, resources: Resources) -> None:
        self._nic, self._wanted, self._resources = nic, wanted, resources
        self._known: set[bytes] = set()
        device: dict[str, Any] = _V.ibv_query_device(nic.context)
        pieces = min(_proxy.MOST_PIECES, int(device["max_sge"]))
        # A completion for each request: what is complete must be known in order.
        # On iWARP the proxy posts reads of its own beside them (proxy/send.h).
        posts = wanted.depth * (2 if nic.is_iwarp else 1)
        receives_behind = max(wanted.receive_depth, int(nic.is_iwarp))  # siw's library makes none without
        self.cq = self._make_cq(posts)
        self.receive_cq = self._make_cq(wanted.receive_depth) if wanted.receive_depth else self.cq
        try:
            self.qp = checked.create_qp(
                nic, qp_type=SERVICES[wanted.transport], send_cq=self.cq, recv_cq=self.receive_cq,
                max_send_wr=posts, max_recv_wr=receives_behind, max_send_sge=pieces,
                max_recv_sge=min(1, receives_behind), max_inline_data=_proxy.MOST_INLINE_BYTES,
            )  # fmt: skip
        except VerbsError as error:
            raise UnavailableError(
                f"{nic.name} makes no {wanted.transport} queue pair of {wanted.depth} requests and "
                f"{wanted.receive_depth} receives with {_proxy.MOST_INLINE_BYTES} bytes inline: {error.message}",
                "a smaller depth, or another transport; `ibv_devinfo -v` says what the device has",
            ) from error
        resources.callback(self.qp.close)
        self.qpn = self.qp.qp_num
        self.cqn = self.receive_cqn = 0  # libibverbs tells no number
        self._word = nic.proxy.take_word()
        resources.callback(functools.partial(nic.proxy.give_word, self._word))
        self.registers = self._word
        records = rings.address("records")
        receives = {
            "rq": rings.address("rq"), "receive_cq": rings.address("receive_cq"),
            "receive_record": records + RECEIVE_WORD, "receive_depth": wanted.receive_depth,
        } if wanted.receive_depth else {}  # fmt: skip
        self._queue = _proxy.Queue(
            self.qp, sq=rings.address("sq"), cq=rings.address("cq"), word=self._word[0],
            send_record=records + SEND_WORD, cq_record=0 if wanted.ignores_overrun else records + CQ_RECORD,
            depth=wanted.depth, cq_entries=rings.bytes("cq") // int(formats.CQE_BYTES), collapsed=wanted.is_collapsed,
            user_index=wanted.user_index, most_inline=self.qp.cap["max_inline_data"], most_pieces=pieces,
            iwarp=nic.is_iwarp, **receives,
        )  # fmt: skip
        self._link: Link | None = None
        self._is_failed = False
        nic.proxy.add(self._queue)
        resources.callback(functools.partial(nic.proxy.remove, self._queue))

    @property
    def register(self) -> int:
        """The word that kernels on the CPU store a doorbell to."""
        return self._word[0]

    def connect(
        self, own: ConnectionInfo, remote: ConnectionInfo, mtu: int, gid: Gid | None, options: Options
    ) -> None:
        """ibv_modify_qp three times; then its requests are posted. On iWARP connector.py does that, in a while."""
        if self._nic.connector is not None:
            reads = most_reads(self._nic, options)
            if (remote.gid, remote.tcp_port, remote.qpn) == (own.gid, own.tcp_port, own.qpn):
                remote = self._mirror(self._nic.connector, own, reads)
            ready, gone = (functools.partial(what, self._nic.proxy, self._queue) for what in (_start, _lose))
            self._link = self._nic.connector.link(own, remote, reads, ready, gone)
            self._resources.callback(functools.partial(self._nic.connector.unlink, self._link))
            return
        make_ready(
            self._nic, self.qp, remote, mtu=mtu, psn=own.psn, gid=gid, options=options,
            transport=self._wanted.transport, q_key=Q_KEY,
        )  # fmt: skip
        _start(self._nic.proxy, self._queue)

    def _mirror(self, connector: Connector, own: ConnectionInfo, reads: int) -> ConnectionInfo:
        """Another queue pair, for one that shall reach its own NIC: on iWARP none is connected to itself."""
        cq = self._make_cq(1)
        other = checked.create_qp(
            self._nic, qp_type=SERVICES["RC"], send_cq=cq, recv_cq=cq, max_send_wr=1, max_recv_wr=1, max_send_sge=1,
            max_recv_sge=1, max_inline_data=0,
        )  # fmt: skip
        self._resources.callback(other.close)
        info = dataclasses.replace(own, qpn=other.qp_num)
        link = connector.link(info, own, reads, _nothing, _nothing)
        self._resources.callback(functools.partial(connector.unlink, link))
        return info

    def settle(self) -> None:
        """Wait for the connection."""
        if self._link is not None:
            self._link.check()

    def reset(self) -> None:
        """No thread posts meanwhile, and what was posted before is forgotten."""
        if self._link is not None and self._nic.connector is not None:
            self._nic.connector.unlink(self._link)
            raise UnavailableError(
                f"queue pair 0x{self.qpn:x} cannot be reset: on iWARP one has a single try to connect. It has ended",
                "close it and make another",
            )
        with self._nic.proxy.still():
            _V.ibv_modify_qp(self.qp, _V.IBV_QP_STATE, qp_state=_V.IBV_QPS_RESET)
            self._queue.reset()

    def to_error(self) -> None:
        """What libibverbs has is flushed by it, what comes later by the thread."""
        with self._nic.proxy.still():
            _V.ibv_modify_qp(self.qp, _V.IBV_QP_STATE, qp_state=_V.IBV_QPS_ERR)
            self._queue.fail()
        self._is_failed = True

    def context(self) -> dict[str, Any]:
        """What ibv_query_qp answers."""
        qpc = formats.structs["qpc"]
        now: dict[str, Any] = _V.ibv_query_qp(self.qp, _ALL)
        if self._nic.is_iwarp:
            now |= self._iwarp_state()
        values = qpc.unpack(bytes(qpc.bytes))
        address = values["primary_address_path"] | {
            "ack_timeout": now["timeout"], "src_addr_index": now["sgid_index"], "hop_limit": now["hop_limit"],
            "tclass": now["traffic_class"], "rlid": now["dlid"], "rgid_rip": now["dgid"],
            "vhca_port_num": self._nic.port.number,
        }  # fmt: skip
        return values | {
            "st": _SERVICES[self._wanted.transport], "state": _STATES[now["qp_state"]], "mtu": now["path_mtu"],
            "remote_qpn": now["dest_qp_num"], "next_rcv_psn": now["rq_psn"], "next_send_psn": now["sq_psn"],
            "min_rnr_nak": now["min_rnr_timer"], "retry_count": now["retry_cnt"], "rnr_retry": now["rnr_retry"],
            "user_index": self._wanted.user_index, "log_sq_size": self._wanted.depth.bit_length() - 1,
            "primary_address_path": address,
        }  # fmt: skip

    def _iwarp_state(self) -> dict[str, int]:
        """What ibv_query_qp does not tell there."""
        if self._link is None:
            return {"qp_state": 6 if self._is_failed else 0}
        states = {"connecting": 1, "connected": 3}
        state = 6 if self._is_failed or self._queue.in_error else states.get(self._link.state, 6)
        return {"qp_state": state, "dest_qp_num": self._link.remote.qpn}

    def path_to(self, remote: ConnectionInfo, mtu: int, gid: Gid | None) -> Path:
        """The kernel knows the next hop, and keeps it to itself."""
        if gid is None:
            return Path(self._nic.port.number, 0, False, bytes(6), mtu)
        return Path(self._nic.port.number, gid.index, gid.type == "RoCE v2", bytes(6), mtu)

    def know(self, segment: bytes, path: Path, remote: ConnectionInfo) -> None:
        """Make an address handle for the datagrams of this address vector."""
        if segment in self._known:
            return
        self._known.add(segment)
        handle = _V.ibv_create_ah(
            self._nic.pd, port_num=path.port, dgid=remote.gid, sgid_index=path.gid_index, dlid=remote.lid,
            is_global=self._nic.port.is_ethernet,
        )  # fmt: skip
        self._resources.callback(handle.close)
        with self._nic.proxy.still():
            self._queue.know(segment, handle)

    def _make_cq(self, entries: int) -> _verbs.CQ:
        queue = checked.create_cq(self._nic, entries)
        self._resources.callback(queue.close)
        return queue


# What the connector's thread calls: bound to what is closed after the link, and not to the queue pair.
def _start(proxy: Proxy, queue: _proxy.Queue) -> None:
    with proxy.still():
        queue.start()


def _nothing() -> None:
    pass


def _lose(proxy: Proxy, queue: _proxy.Queue) -> None:
    with proxy.still():
        queue.start()
        queue.lose()
