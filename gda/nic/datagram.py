# SPDX-License-Identifier: Apache-2.0
"""Queue pairs of transport UD: contexts that make one ready, and addresses that kernels send to. Used by queue.py.

Source: ConnectX Programmer's Reference Manual, "Queue Pair Context", "Datagram Segment".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gda import formats
from gda.nic.connection import ROCE_V2_SOURCE_PORT, ConnectionInfo, Path

__all__ = ["Q_KEY", "Peer", "init_fields", "peer", "rtr_fields", "rts_fields"]

Q_KEY = 0x11111111  # of all queue pairs here: the receiver drops datagrams with another one


@dataclass(frozen=True)
class Peer:
    """A receiver of datagrams, as the kernel argument `gda_address`."""

    qpn: int
    segment: bytes

    def __gda_argument__(self, target: str) -> tuple[str, bytes]:
        """The address vector, by value; the same on every target."""
        return "gda_address", self.segment


def init_fields(path: Path) -> dict[str, Any]:
    """The context for RST2INIT."""
    return {
        "pm_state": formats.MLX5_QPC_PM_STATE_MIGRATED,
        "q_key": Q_KEY,
        "primary_address_path": {"vhca_port_num": path.port, "pkey_index": 0},
    }


def rtr_fields(path: Path) -> dict[str, Any]:
    """The context for INIT2RTR: no path and no peer, each datagram brings its own."""
    return {"primary_address_path": {"vhca_port_num": path.port}}


def rts_fields(psn: int) -> dict[str, Any]:
    """The context for RTR2RTS."""
    return {"next_send_psn": psn}


def peer(path: Path, remote: ConnectionInfo, qpn: int) -> Peer:
    """How queue pair `qpn` sends to `remote`."""
    spread = (qpn ^ remote.qpn) % 0x4000
    where: dict[str, Any] = {"rlid_udp_sport": remote.lid}
    if remote.is_ethernet:
        where = {
            "rlid_udp_sport": ROCE_V2_SOURCE_PORT + spread if path.is_roce_v2 else 0,
            "rmac_47_16": int.from_bytes(path.rmac[:4], "big"),
            "rmac_15_0": int.from_bytes(path.rmac[4:], "big"),
            "grh": 1,
            "src_addr_index": path.gid_index,
            "hop_limit": path.hop_limit,
            "tclass": path.traffic_class,
            "rgid": remote.gid,
        }
    segment = formats.wqe_av_seg.pack(qkey=Q_KEY, extended=1, dqp_dct=remote.qpn, sl=path.service_level, **where)
    return Peer(remote.qpn, segment)
