# SPDX-License-Identifier: Apache-2.0
"""What two queue pairs must tell each other, and the fields of the three commands that connect them.

Used by queue.py and host_queue.py; programs send `ConnectionInfo.to_bytes()` by whatever they have (a pipe, a socket,
MPI).
Source: ConnectX Programmer's Reference Manual, "QP Context" and "Address Path"; InfiniBand Architecture
Specification, volume 1, "Queue Pair States".
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gda import formats
from gda.errors import ArgumentError, PathMtuError
from gda.nic import lint

if TYPE_CHECKING:
    from gda.nic.device import Nic

__all__ = [
    "ConnectionInfo", "Options", "Path", "checked_connection", "checked_mtu", "init_fields", "rtr_fields", "rts_fields",
]  # fmt: skip

_MAGIC = b"gda1"
_LAYOUT = struct.Struct(">4sII16sBBH6s")  # magic, qpn, psn, gid, mtu, link layer, lid or port, mac; then a checksum
_IWARP = 4  # as link layer; else 0 for InfiniBand, and 1 and the RoCE version for Ethernet
_BYTES = _LAYOUT.size + 4

LOG_MESSAGE_MAX = 30  # qpc.log_msg_max: 2^30 bytes a message
ACK_TIMEOUT = 14  # 4.096 us * 2^14 = 67 ms
RETRY_COUNT = 7
RNR_RETRY_FOR_EVER = 7  # 7 means without limit
MIN_RNR_NAK = 12  # IB specification, table of RNR NAK timers: 0.64 ms
ROCE_V2_SOURCE_PORT = 0xC000  # first of the range the RoCE v2 annex names; spread by qpn over the rest


@dataclass(frozen=True)
class ConnectionInfo:
    """One side of a connection: queue pair number, first packet sequence number, address.

    mtu is 1 (256 bytes) to 5 (4096); gid is 16 bytes; lid is 0 and mac is set on Ethernet. roce_version is 1 or 2, or
    0 where it is not known: both sides must have the same, since the same address may be there in both versions.
    With iWARP `tcp_port` is where it is connected to, at the IP address that gid stands for; else 0.
    """

    qpn: int
    psn: int
    gid: bytes
    mtu: int
    is_ethernet: bool = True
    lid: int = 0
    mac: bytes = bytes(6)
    roce_version: int = 0
    tcp_port: int = 0

    def __post_init__(self) -> None:
        checks = (
            ("qpn", 0 < self.qpn < 1 << 24), ("psn", 0 <= self.psn < 1 << 24), ("gid", len(self.gid) == 16),
            ("mtu", 1 <= self.mtu <= 5), ("lid", 0 <= self.lid < 1 << 16), ("mac", len(self.mac) == 6),
            ("roce_version", self.roce_version in ((0, 1, 2) if self.is_ethernet and not self.tcp_port else (0,))),
            ("tcp_port", 0 <= self.tcp_port < 1 << 16 and (not self.tcp_port or (self.is_ethernet and not self.lid))),
        )  # fmt: skip
        for name, good in checks:
            if not good:
                raise ArgumentError(f"connection information has a bad {name}: {getattr(self, name)!r}")

    def to_bytes(self) -> bytes:
        """Bytes to send to the other side: fixed length, with version and checksum."""
        link = _IWARP if self.tcp_port else 1 + self.roce_version if self.is_ethernet else 0
        number = self.tcp_port or self.lid
        body = _LAYOUT.pack(_MAGIC, self.qpn, self.psn, self.gid, self.mtu, link, number, self.mac)
        return body + zlib.crc32(body).to_bytes(4, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> ConnectionInfo:
        """Read what to_bytes made. Raises ArgumentError for bytes that are cut, changed or of another kind."""
        data = bytes(data)
        if len(data) != _BYTES:
            raise ArgumentError(
                f"connection information has {_BYTES} bytes, not {len(data)}", "receive until all of it is there"
            )
        magic, qpn, psn, gid, mtu, link, lid, mac = _LAYOUT.unpack(data[: _LAYOUT.size])
        if magic != _MAGIC:
            raise ArgumentError(
                f"these bytes are no connection information: they start with {magic!r}, not {_MAGIC!r}",
                "pass the bytes of the other side's QueuePair.info.to_bytes(); both need the same version of gda",
            )
        if zlib.crc32(data[: _LAYOUT.size]).to_bytes(4, "big") != data[_LAYOUT.size :]:
            raise ArgumentError("connection information was changed on the way: its checksum is wrong", "send it again")
        if link == _IWARP:
            return cls(qpn, psn, gid, mtu, mac=mac, tcp_port=lid)
        return cls(qpn, psn, gid, mtu, link > 0, lid, mac, max(0, link - 1))


@dataclass(frozen=True)
class Path:
    """How packets get to the other side, beside what ConnectionInfo says."""

    port: int
    gid_index: int
    is_roce_v2: bool
    rmac: bytes  # of the next hop
    mtu: int
    traffic_class: int = 0
    hop_limit: int = 64
    service_level: int = 0

    def replaced(self, **changes: Any) -> Path:
        """A copy with other values."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True)
class Options:
    """What connect() lets people choose of how a queue pair sends, with its defaults. lint.py bounds each.

    `ack_timeout`, `retry_count`, `rnr_retry`, `min_rnr_timer` are codes of the specification; `max_rd_atomic` is how
    many reads and atomics each side may have outstanding (None: up to 16, as the device allows).
    """

    ack_timeout: int = ACK_TIMEOUT
    retry_count: int = RETRY_COUNT
    rnr_retry: int = RNR_RETRY_FOR_EVER
    min_rnr_timer: int = MIN_RNR_NAK
    max_rd_atomic: int | None = None
    pkey_index: int = 0


def init_fields(path: Path, atomics: bool, pkey_index: int = 0) -> dict[str, Any]:
    """The context for RST2INIT: port and what the other side may do."""
    return {
        "pm_state": formats.MLX5_QPC_PM_STATE_MIGRATED,
        "rre": 1,
        "rwe": 1,
        "rae": int(atomics),
        "atomic_mode": formats.MLX5_QPC_ATOMIC_MODE_UP_TO_8B if atomics else 0,
        "primary_address_path": {"vhca_port_num": path.port, "pkey_index": pkey_index},
    }


def rtr_fields(
    path: Path, remote: ConnectionInfo, qpn: int, log_rra_max: int, *, min_rnr_timer: int = MIN_RNR_NAK
) -> dict[str, Any]:
    """The context for INIT2RTR: where packets go and which is the first to expect."""
    address: dict[str, Any] = {"vhca_port_num": path.port}
    if remote.is_ethernet:
        # A RoCE path has no GRH bit: the global header is always there.
        address |= {
            "rgid_rip": remote.gid,
            "rmac_47_32": int.from_bytes(path.rmac[:2], "big"),
            "rmac_31_0": int.from_bytes(path.rmac[2:], "big"),
            "src_addr_index": path.gid_index,
            "hop_limit": path.hop_limit,
            "tclass": path.traffic_class,
            "eth_prio": path.service_level,
        }
        if path.is_roce_v2:
            spread = (qpn ^ remote.qpn) % 0x4000  # both directions of a pair take the same port, pairs spread
            address |= {"udp_sport": ROCE_V2_SOURCE_PORT + spread, "dscp": path.traffic_class // 4}
    else:
        address |= {"rlid": remote.lid, "sl": path.service_level}
    return {
        "mtu": path.mtu,
        "log_msg_max": LOG_MESSAGE_MAX,
        "remote_qpn": remote.qpn,
        "next_rcv_psn": remote.psn,
        "min_rnr_nak": min_rnr_timer,
        "log_rra_max": log_rra_max,
        "primary_address_path": address,
    }


def rts_fields(
    path: Path, psn: int, log_sra_max: int, ack_timeout: int, retry_count: int, *, rnr_retry: int = RNR_RETRY_FOR_EVER
) -> dict[str, Any]:
    """The context for RTR2RTS: the first packet to send, and how often and how fast to repeat."""
    return {
        "next_send_psn": psn,
        "retry_count": retry_count,
        "rnr_retry": rnr_retry,
        "log_sra_max": log_sra_max,
        "primary_address_path": {"vhca_port_num": path.port, "ack_timeout": ack_timeout},
    }


def checked_connection(
    remote: object, *, qpn: int, connected_to: ConnectionInfo | None, nic: Nic, options: Options
) -> ConnectionInfo:
    """What connect() was given, if this queue pair may connect to it. Raises ArgumentError before anything happens."""
    if not isinstance(remote, ConnectionInfo):
        if not isinstance(remote, (bytes, bytearray, memoryview)):
            raise ArgumentError(
                f"connect takes ConnectionInfo or its bytes, not {type(remote).__name__}", "pass other.info"
            )
        remote = ConnectionInfo.from_bytes(bytes(remote))
    if connected_to is not None:
        raise ArgumentError(f"queue pair 0x{qpn:x} is connected already, to 0x{connected_to.qpn:x}", "reset() it first")
    if bool(remote.tcp_port) != nic.is_iwarp:
        raise ArgumentError("one side is on iWARP, the other is not: they cannot reach each other")
    if remote.is_ethernet != nic.port.is_ethernet:
        raise ArgumentError("one side is on Ethernet, the other on InfiniBand: they cannot reach each other")
    limits = lint.limits_of(nic.context)
    lint.check(limits, **dataclasses.asdict(options))
    lint.check_tables(limits, port=nic.port.number, pkey_index=options.pkey_index, gid_index=None)
    if nic.port.is_ethernet:
        lint.check_remote_gid(limits, "remote.gid", remote.gid)
    return remote


def checked_mtu(asked: int | None, own: int, remote: int) -> int:
    """The path MTU as commands carry it, of `asked` bytes or the smaller of both ports'."""
    smaller = min(own, remote)
    if asked is None:
        return smaller
    sizes = {128 << code: code for code in range(1, 6)}
    if asked not in sizes:
        raise ArgumentError(f"path_mtu={asked!r} is not one of {', '.join(map(str, sizes))} (bytes)", "leave it out")
    if sizes[asked] > smaller:
        whose = "this port's link" if own == smaller else "the other side's link"
        raise PathMtuError(
            f"path_mtu={asked} is more than {whose} carries: its active MTU is {128 << smaller}", asked, 128 << smaller,
            f"leave path_mtu out for {128 << smaller}, or raise the network device's MTU on every hop",
        )  # fmt: skip
    return sizes[asked]
