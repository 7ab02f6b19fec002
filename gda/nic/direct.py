# SPDX-License-Identifier: Apache-2.0
"""Queue pairs that the NIC carries out itself: made by firmware commands over the rings that kernels write.

Used by queue.py; the other way is proxied.py.
Source: ConnectX Programmer's Reference Manual, "Create CQ", "Create QP", "QP state transitions".
"""

from __future__ import annotations

import errno
import functools
from typing import TYPE_CHECKING, Any

from gda import _verbs, formats
from gda.errors import GdaError, VerbsError
from gda.nic import command, datagram
from gda.nic.addresses import Gid, unreachable
from gda.nic.carrier import Wanted
from gda.nic.connection import ConnectionInfo, Options, Path, init_fields, rtr_fields, rts_fields
from gda.nic.lifetime import Resources
from gda.nic.rings import CQ_RECORD, RECEIVE_CQ_RECORD, SEND_WORD, Rings

if TYPE_CHECKING:
    from gda.nic.device import Nic

__all__ = ["Direct"]

_CQE = int(formats.CQE_BYTES)
_SERVICES = {"RC": int(formats.MLX5_QPC_ST_RC), "UC": int(formats.MLX5_QPC_ST_UC), "UD": int(formats.MLX5_QPC_ST_UD)}


class Direct:
    """A queue pair of the NIC, over `rings`; freed by `resources`. See carrier.Carrier."""

    def __init__(self, nic: Nic, rings: Rings, wanted: Wanted, resources: Resources) -> None:
        self._nic, self._rings, self._wanted, self._resources = nic, rings, wanted, resources
        self.page = nic.doorbell_pages.allocate(wanted.doorbell)
        resources.callback(self.page.close)
        self.page_type = self.page.type
        self.cq, self.cqn = self._create_cq("cq", CQ_RECORD, wanted.is_collapsed, wanted.ignores_overrun)
        self.receive_cqn = self.cqn
        if wanted.receive_depth:
            # Entries are never too few: a receive is posted again only when its completion was read.
            self.receive_cq, self.receive_cqn = self._create_cq("receive_cq", RECEIVE_CQ_RECORD, False, True)
        self.qp, self.qpn = self._create_qp()
        resources.callback(self.qp.close)
        self.registers = self._ask_host_thread() if wanted.doorbell == "cpu" else self.page.registers

    @property
    def register(self) -> int:
        """Where code on the CPU rings by hand: the NIC's own, whoever rings for kernels."""
        return self.page.register

    def connect(
        self, own: ConnectionInfo, remote: ConnectionInfo, mtu: int, gid: Gid | None, options: Options
    ) -> None:
        """The three commands."""
        nic, transport = self._nic, self._wanted.transport
        path = self.path_to(remote, mtu, gid)
        capabilities = nic.capabilities
        log_most = 4 if options.max_rd_atomic is None else max(1, options.max_rd_atomic).bit_length() - 1
        log_sends, log_answers = (
            min(log_most, most) for most in (capabilities.log_max_ra_req_qp, capabilities.log_max_ra_res_qp)
        )
        try:
            fields = [
                init_fields(path, transport == "RC" and bool(capabilities.atomic), options.pkey_index),
                rtr_fields(path, remote, self.qpn, log_answers, min_rnr_timer=options.min_rnr_timer),
                rts_fields(
                    path, own.psn, log_sends, options.ack_timeout, options.retry_count, rnr_retry=options.rnr_retry
                ),
            ]
            if transport == "UD":
                fields = [datagram.init_fields(path), datagram.rtr_fields(path), datagram.rts_fields(own.psn)]
            command.rst2init_qp(self.qp, qpn=self.qpn, qpc=fields[0])
            command.init2rtr_qp(self.qp, qpn=self.qpn, qpc=fields[1])
            command.rtr2rts_qp(self.qp, qpn=self.qpn, qpc=fields[2])
        except GdaError:
            self.reset()
            raise

    def settle(self) -> None:
        """connect() did all."""

    def reset(self) -> None:
        """2RST_QP."""
        command.qp_2rst(self.qp, qpn=self.qpn)

    def to_error(self) -> None:
        """2ERR_QP."""
        command.qp_2err(self.qp, qpn=self.qpn)

    def context(self) -> dict[str, Any]:
        """The NIC's answer to QUERY_QP."""
        return command.query_qp(self.qp, qpn=self.qpn)

    def path_to(self, remote: ConnectionInfo, mtu: int, gid: Gid | None) -> Path:
        """Next hop, source port, path MTU. Raises GidError for what a link-local address does not reach."""
        nic, port = self._nic, self._nic.port
        if gid is None:
            return Path(port.number, 0, False, bytes(6), mtu)
        # Only the kernel can resolve the next hop's MAC address; an address handle makes it do so.
        try:
            with _verbs.ibv_create_ah(nic.pd, port_num=port.number, dgid=remote.gid, sgid_index=gid.index) as address:
                rmac = _verbs.mlx5dv_init_obj_ah(address).rmac
        except VerbsError as error:
            if error.errno != errno.ETIMEDOUT or not gid.is_link_local:
                raise
            raise unreachable(nic.gids, gid, nic.port_name) from error
        return Path(port.number, gid.index, gid.type == "RoCE v2", rmac, mtu)

    def know(self, segment: bytes, path: Path, remote: ConnectionInfo) -> None:
        """The address vector says all."""

    def _create_qp(self) -> tuple[_verbs.DevxObj, int]:
        nic, wanted, rings = self._nic, self._wanted, self._rings
        has_record = wanted.doorbell != "no-record"
        has_records = has_record or bool(wanted.receive_depth)
        # Zero where the device knows only free-running timestamps (it had no such field once).
        timestamps = nic.capabilities.qp_ts_format if nic.capabilities.roce else nic.capabilities.sq_ts_format
        return command.create_qp(
            nic.context,
            qpc={
                "st": _SERVICES[wanted.transport],
                "pm_state": formats.MLX5_QPC_PM_STATE_MIGRATED,
                "pd": nic.pdn,
                "rq_type": formats.RQ_TYPE_REGULAR if wanted.receive_depth else formats.RQ_TYPE_ZERO_SIZE,
                "log_rq_size": max(0, wanted.receive_depth.bit_length() - 1),
                "log_rq_stride": 0,  # 16 bytes: one data segment
                "log_sq_size": wanted.depth.bit_length() - 1,
                "ts_format": 1 if timestamps else 0,  # 1: the device's default clock
                "uar_page": self.page.page_id,
                "user_index": wanted.user_index,
                "cqn_snd": self.cqn,
                "cqn_rcv": self.receive_cqn,
                "send_dbr_mode": formats.SEND_DBR_MODE_VALID if has_record else formats.SEND_DBR_MODE_NO_DBR_EXT,
                "dbr_umem_valid": int(has_records),
                "dbr_umem_id": rings.umem_id("records") if has_records else 0,
                "dbr_addr": rings.offset("records") if has_records else 0,
            },
            wq_umem_valid=1,
            wq_umem_id=rings.umem_id("sq"),
            wq_umem_offset=rings.offset("rq" if wanted.receive_depth else "sq"),
        )

    def _create_cq(self, part: str, record: int, collapsed: bool, ignores_overrun: bool) -> tuple[_verbs.DevxObj, int]:
        """A completion queue in the memory of `part`, its record at that offset of the records."""
        queue, number = command.create_cq(
            self._nic.context,
            cq_context={
                "cc": int(collapsed),
                "oi": int(ignores_overrun),
                "log_cq_size": (self._rings.bytes(part) // _CQE).bit_length() - 1,
                "uar_page": self._nic.completion_page.page_id,
                "c_eqn_or_apu_element": self._nic.eqn,
                "dbr_umem_valid": 1,
                "dbr_umem_id": self._rings.umem_id("records"),
                "dbr_addr": self._rings.offset("records") + record,
            },
            cq_umem_valid=1,
            cq_umem_id=self._rings.umem_id(part),
            cq_umem_offset=self._rings.offset(part),
        )
        self._resources.callback(queue.close)
        return queue, number

    def _ask_host_thread(self) -> tuple[int, int]:
        """Where kernels ask the NIC's thread to ring. It stops doing so before the queue pair is destroyed."""
        ringer = self._nic.ringer
        word = ringer.add(self.page.register, self._rings.address("records") + SEND_WORD)
        self._resources.callback(functools.partial(ringer.remove, word))
        return word.address, word.gpu_address
