# SPDX-License-Identifier: Apache-2.0
"""What every attribute of a queue must keep to, in one table; asked before anything is issued to the NIC.

Used by command.py (firmware commands, with the PRM's field names), checked.py (libibverbs' calls, with its names) and
connection.py (the options of connect). A refusal names the field as it was called, its value, its bounds, and what to
try. Bounds of the device are known for contexts that a Nic has opened; of others only what a field can hold.
Source: ibv_modify_qp(3), ibv_create_qp(3); ConnectX Programmer's Reference Manual, "QP Context"; InfiniBand
Architecture Specification, volume 1, "Queue Pair Attributes".
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gda import _verbs
from gda.errors import ArgumentError, FieldError, GidError, PathMtuError
from gda.nic.addresses import routed

if TYPE_CHECKING:
    from gda.nic.device import Nic

__all__ = [
    "RULES", "Limits", "Rule", "check", "check_access", "check_command", "check_remote_gid", "check_tables",
    "limits_of", "refuse", "remember",
]  # fmt: skip

_24_BITS = (1 << 24) - 1


@dataclass(frozen=True)
class Limits:
    """What a device and its port allow; by default what the fields can hold."""

    what: str = "the field"
    ports: int = 255
    pkeys: int = 1 << 16
    gids: int = 256
    send_requests: int = 1 << 31
    receive_requests: int = 1 << 31
    pieces: int = 1 << 31
    inline_bytes: int = 1 << 31
    completions: int = (1 << 31) - 1
    reads_out: int = 255
    reads_in: int = 255
    blocks: int = 1 << 31
    mtu: int = 5  # a code; of a device, ask active_mtu
    region_bytes: int = 1 << 64
    has_atomics: bool = True
    is_ethernet: bool | None = None  # None: not known
    nic_reference: Callable[[], Nic | None] = lambda: None  # weak: bounds keep no NIC open

    @property
    def nic(self) -> Nic | None:
        """The NIC that they are of."""
        return self.nic_reference()

    @property
    def active_mtu(self) -> int:
        """Code of the path MTU that the link carries now."""
        nic = self.nic
        return nic.active_mtu if nic is not None else self.mtu

    @classmethod
    def of(cls, nic: Nic) -> Limits:
        """Those of an open NIC and its port."""
        device: dict[str, Any] = _verbs.ibv_query_device(nic.context)
        port: dict[str, Any] = _verbs.ibv_query_port(nic.context, nic.port.number)
        capabilities = nic.capabilities
        return cls(
            what=nic.port_name, ports=nic.ports, pkeys=max(1, int(port["pkey_tbl_len"])), gids=int(port["gid_tbl_len"]),
            send_requests=int(device["max_qp_wr"]), receive_requests=int(device["max_qp_wr"]),
            pieces=int(device["max_sge"]), inline_bytes=_inline_bytes(int(capabilities.max_wqe_sz_sq)),
            completions=int(device["max_cqe"]), reads_out=int(device["max_qp_init_rd_atom"]),
            reads_in=int(device["max_qp_rd_atom"]), blocks=1 << capabilities.log_max_qp_sz, mtu=int(port["active_mtu"]),
            region_bytes=int(device["max_mr_size"]), has_atomics=bool(device["atomic_cap"]),
            is_ethernet=nic.port.is_ethernet, nic_reference=weakref.ref(nic),
        )  # fmt: skip


def _inline_bytes(request_bytes: int) -> int:
    """Payload in the largest work request, beside what libmlx5 keeps for an RC queue pair's largest headers.

    Those are the control segment, and of a memory window's bind the control, the context and a list; and 4 bytes of
    the inline header.
    """
    return request_bytes - (16 + 48 + 64 + 64) - 4


Bound = int | Callable[[Limits], int]


@dataclass(frozen=True)
class Rule:
    """What one attribute must keep to.

    `names` are how it is called: the verbs name first, then the PRM's field and options of ours; `logarithms` those
    of them that carry the logarithm to base 2.
    """

    names: tuple[str, ...]
    least: Bound
    most: Bound
    meaning: str
    advice: str
    logarithms: tuple[str, ...] = ()


def _log(value: int) -> int:
    return value.bit_length() - 1


RULES: tuple[Rule, ...] = (
    Rule(("retry_cnt", "retry_count"), 0, 7, "how often a request without an answer is sent again",
         "7 is the most; a longer timeout gives up later, too"),
    Rule(("rnr_retry",), 0, 7, "how often a request is sent again to a receiver that was not ready",
         "7 means for ever, 0 gives up at once"),
    Rule(("timeout", "ack_timeout"), 0, 31, "an answer is waited for 4.096 us * 2^timeout, with 0 for ever",
         "14 waits 67 ms, 18 a second"),
    Rule(("min_rnr_timer", "min_rnr_nak"), 0, 31, "a code of the table of RNR timers", "12 stands for 0.64 ms"),
    Rule(("path_mtu", "mtu"), 1, 5, "the path MTU as a code: 1 is 256 bytes, 5 is 4096", "leave it out, or 3 for 1024"),
    Rule(("port_num", "vhca_port_num"), 1, lambda d: d.ports, "a port of the device", "ports count from 1"),
    Rule(("pkey_index",), 0, lambda d: d.pkeys - 1, "an index of the port's P_Key table", "0 is the default partition"),
    Rule(("sgid_index", "src_addr_index", "roce_address_index"), 0, lambda d: d.gids - 1,
         "an index of the port's address table", "leave it out for the best one"),
    Rule(("max_rd_atomic", "log_sra_max"), 0, lambda d: d.reads_out,
         "reads and atomics that this side may have outstanding", "leave it out for the most", ("log_sra_max",)),
    Rule(("max_dest_rd_atomic", "log_rra_max"), 0, lambda d: d.reads_in,
         "reads and atomics that this side answers at a time", "leave it out for the most", ("log_rra_max",)),
    Rule(("hop_limit",), 1, 255, "how many routers may pass a packet on", "64 is usual"),
    Rule(("traffic_class", "tclass"), 0, 255, "the packets' class of service", "0 is usual"),
    Rule(("sl", "service_level", "eth_prio"), 0, lambda d: 7 if d.is_ethernet else 15, "the service level",
         "0 is usual; Ethernet has 8, InfiniBand 16"),
    Rule(("flow_label",), 0, (1 << 20) - 1, "20 bits of the packets' header", "0 is usual"),
    Rule(("dest_qp_num", "remote_qpn"), 0, _24_BITS, "the other side's queue pair number", "24 bits; exchange it anew"),
    Rule(("rq_psn", "next_rcv_psn"), 0, _24_BITS, "the first packet sequence number to expect", "24 bits"),
    Rule(("sq_psn", "next_send_psn", "psn"), 0, _24_BITS, "the first packet sequence number to send", "24 bits"),
    Rule(("user_index",), 0, _24_BITS, "the number that completions name the queue pair by", "leave it out"),
    Rule(("udp_sport",), 0xC000, 0xFFFF, "the UDP port that RoCE v2 sends from", "0xc000 to 0xffff: the annex's range"),
    Rule(("max_send_wr",), 0, lambda d: d.send_requests, "requests that a send queue holds",
         "fewer, and more queue pairs"),
    Rule(("max_recv_wr",), 0, lambda d: d.receive_requests, "requests that a receive queue holds",
         "fewer, and more queue pairs"),
    Rule(("max_send_sge",), 0, lambda d: d.pieces, "pieces of memory in a request", "copy, or send several requests"),
    Rule(("max_recv_sge",), 0, lambda d: d.pieces, "pieces of memory in a receive", "copy, or receive several times"),
    Rule(("max_inline_data", "inline_bytes"), 0, lambda d: d.inline_bytes, "payload bytes inside a request",
         "send it from registered memory"),
    Rule(("cqe",), 1, lambda d: d.completions, "entries of a completion queue", "more completion queues"),
    Rule(("log_sq_size",), 0, lambda d: _log(d.blocks), "log2 of the send queue's basic blocks", "more queue pairs"),
    Rule(("log_rq_size",), 0, lambda d: _log(d.blocks), "log2 of the receive queue's entries", "more queue pairs"),
    Rule(("log_cq_size",), 0, lambda d: _log(d.completions + 1), "log2 of the completion queue's entries",
         "more completion queues"),
    Rule(("length",), 1, lambda d: d.region_bytes, "bytes of a memory region", "register it in pieces"),
)  # fmt: skip

_BY_NAME = {name: rule for rule in RULES for name in rule.names}
_limits: dict[int, Limits] = {}  # by the address of the C context, which the Nic holds open


def remember(nic: Nic) -> Callable[[], None]:
    """Commands on this NIC's context are judged by its bounds from now on; the answer undoes that."""
    key = nic.context.c_pointer
    _limits[key] = Limits.of(nic)

    def forget() -> None:
        _limits.pop(key, None)

    return forget


def limits_of(context: _verbs.Context) -> Limits:
    """Bounds of the device behind a context, as far as they are known."""
    return _limits.get(context.c_pointer, Limits())


def check(limits: Limits, **attributes: Any) -> None:
    """Raise FieldError for the first attribute that does not keep to its rule; None and names without a rule pass."""
    for name, value in attributes.items():
        rule = _BY_NAME.get(name)
        if rule is not None and value is not None:
            _check(rule, name, value, limits)


def check_command(limits: Limits, fields: Mapping[str, Any]) -> None:
    """The same for the fields of a firmware command, nested ones too; GIDs and P_Keys are looked up."""
    leaves = dict(_leaves(fields))
    check(limits, **leaves)
    check_tables(
        limits, port=leaves.get("vhca_port_num"), pkey_index=leaves.get("pkey_index"),
        gid_index=leaves.get("src_addr_index"), gid_name="src_addr_index",
    )  # fmt: skip
    if limits.is_ethernet and "remote_qpn" in leaves and "primary_address_path" in fields.get("qpc", {}):
        check_remote_gid(limits, "rgid_rip", leaves.get("rgid_rip"))


def check_tables(
    limits: Limits, *, port: int | None, pkey_index: int | None, gid_index: int | None, gid_name: str = "sgid_index"
) -> None:
    """Indices of P_Keys and GIDs name entries that are there. Of this NIC's own port only: others are not known."""
    nic = limits.nic
    if nic is None or (port is not None and port != nic.port.number):
        return
    has_pkeys = not nic.is_iwarp
    if pkey_index is not None and has_pkeys and not _verbs.ibv_query_pkey(nic.context, nic.port.number, pkey_index):
        refuse(
            "pkey_index", pkey_index, f"pkey_index={pkey_index}: that entry of {limits.what}'s P_Key table is empty",
            "0 is the default partition; ask the subnet manager for others",
        )  # fmt: skip
    if gid_index is not None and limits.is_ethernet:
        gids = nic.gids
        if all(g.index != gid_index for g in gids):
            raise GidError(
                f"{gid_name}={gid_index}: GID index {gid_index} of {limits.what} is empty", gid_index, routed(gids),
                f"leave it out for the best one, or one of {', '.join(str(g.index) for g in gids) or 'none'}",
            )  # fmt: skip


def check_remote_gid(limits: Limits, name: str, gid: Any) -> None:
    """On Ethernet the other side is found by its GID."""
    if gid is None or not any(bytes(gid)):
        refuse(
            name, gid, f"{name} is {'missing' if gid is None else 'empty'}: on Ethernet ({limits.what}) the other side "
            "is found by its GID alone", "pass the GID of the other side's ConnectionInfo",
        )  # fmt: skip


def check_access(limits: Limits, name: str, flags: int) -> None:
    """Rights that the device can grant, and that go together."""
    known = sum(_ACCESS)
    if flags & ~known & ~_OPTIONAL:
        refuse(name, flags, f"{name}=0x{flags:x} has bits that are no rights: 0x{flags & ~known & ~_OPTIONAL:x}",
               f"rights are 0x{known:x} (enum ibv_access_flags)")  # fmt: skip
    if flags & _verbs.IBV_ACCESS_REMOTE_ATOMIC and not limits.has_atomics:
        refuse(name, flags, f"{name}=0x{flags:x} allows remote atomics, which {limits.what} does not have",
               "leave IBV_ACCESS_REMOTE_ATOMIC out")  # fmt: skip


_ACCESS = (
    _verbs.IBV_ACCESS_LOCAL_WRITE, _verbs.IBV_ACCESS_REMOTE_WRITE, _verbs.IBV_ACCESS_REMOTE_READ,
    _verbs.IBV_ACCESS_REMOTE_ATOMIC, _verbs.IBV_ACCESS_MW_BIND, _verbs.IBV_ACCESS_ZERO_BASED,
    _verbs.IBV_ACCESS_ON_DEMAND, _verbs.IBV_ACCESS_HUGETLB,
)  # fmt: skip
_OPTIONAL = 0x3FF00000  # IBV_ACCESS_OPTIONAL_RANGE: devices ignore what they do not know of it


def refuse(name: str, value: Any, message: str, advice: str, bounds: tuple[int, int] | None = None) -> None:
    """Raise FieldError."""
    raise FieldError(message, name, value, bounds, advice)


def _check(rule: Rule, name: str, value: Any, limits: Limits) -> None:
    least, most = (bound if isinstance(bound, int) else bound(limits) for bound in (rule.least, rule.most))
    if name in rule.logarithms:
        least, most = _log(max(1, least)), _log(max(1, most))
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{name}={value!r} is no whole number", f"{least} to {most}: {rule.meaning}")
    number = int(value)
    if least <= number <= most:
        if name in {"path_mtu", "mtu"} and number > (active := limits.active_mtu):
            raise PathMtuError(
                f"{name}={number} is {128 << number} bytes, more than the link of {limits.what} carries: its active "
                f"MTU is {128 << active}", 128 << number, 128 << active,
                "leave it out, or raise the network device's MTU on every hop",
            )  # fmt: skip
        return
    device = f" on {limits.what}" if not isinstance(rule.most, int) and limits.nic is not None else ""
    raise FieldError(
        f"{name}={value} is outside {least}..{most}{device}: {rule.meaning}", name, number, (least, most), rule.advice
    )


def _leaves(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        else:
            yield name, value
