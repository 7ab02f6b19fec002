# SPDX-License-Identifier: Apache-2.0
"""The GID table of a port, and which entry to connect with. Used by device.py and queue.py.

Source: InfiniBand Architecture Specification, volume 1, annex A17 (RoCE v2); RFC 4291 (IPv4-mapped and link-local
addresses).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from gda import config
from gda.errors import ArgumentError, GidError, UnavailableError

__all__ = ["Gid", "choose", "find_again", "routed", "unreachable", "wanted_index"]


@dataclass(frozen=True)
class Gid:
    """One entry of a port's GID table. `type` is "RoCE v1", "RoCE v2" or "IB"."""

    index: int
    raw: bytes
    type: str

    @property
    def address(self) -> ipaddress.IPv6Address:
        """The GID as an IPv6 address."""
        return ipaddress.IPv6Address(self.raw)

    @property
    def is_ipv4(self) -> bool:
        """True if it stands for an IPv4 address (::ffff:a.b.c.d)."""
        return self.address.ipv4_mapped is not None

    @property
    def is_link_local(self) -> bool:
        """True if no router passes its packets on."""
        return self.address.is_link_local

    def __str__(self) -> str:
        return str(self.address.ipv4_mapped or self.address)


def _rank(gid: Gid) -> tuple[bool, bool, bool, bool, int]:
    """Smaller is better: RoCE v2 is routed, v1 is not; IPv4 is what most networks of RoCE are built with."""
    plain = gid.address.ipv4_mapped or gid.address
    return gid.type == "RoCE v1", gid.is_link_local, not gid.is_ipv4, plain.is_loopback, gid.index


def routed(gids: Sequence[Gid]) -> tuple[int, ...]:
    """Indices of entries whose packets reach other networks, the best first."""
    return tuple(g.index for g in sorted(gids, key=_rank) if g.type != "RoCE v1" and not g.is_link_local)


def unreachable(gids: Sequence[Gid], gid: Gid, where: str) -> GidError:
    """The error of a link-local address that no neighbour answers: it ends at this network."""
    others = routed(gids)
    return GidError(
        f"GID index {gid.index} of {where} does not reach the other side: link-local GID, not routable; "
        f"candidates: {', '.join(map(str, others)) or 'none'}",
        gid.index, others, "leave gid_index out on both sides, and exchange the information anew",
    )  # fmt: skip


def wanted_index(index: int | None) -> int | None:
    """The index that was asked for: by argument, else by GDA_GID_INDEX; None: any."""
    text = config.get("GDA_GID_INDEX")
    if index is not None or not text:
        return index
    if not text.isdecimal():
        raise ArgumentError(f"environment variable GDA_GID_INDEX={text!r} is no index", "unset it for the best one")
    return int(text)


def choose(gids: Sequence[Gid], index: int | None, where: str) -> Gid:
    """Entry `index`, or the best: RoCE v2 over IPv4 before IPv6 before link-local before v1; of equals, the first.

    Raises GidError for an empty index, UnavailableError for an empty table.
    """
    if index is not None:
        for gid in gids:
            if gid.index == index:
                return gid
        raise GidError(f"GID index {index} of {where} is empty", index, routed(gids), f"GIDs: {_listed(gids)}")
    if not gids:
        raise UnavailableError(f"{where} has no GID", "give its network interface an address")
    return min(gids, key=_rank)


def find_again(gids: Sequence[Gid], chosen: Gid, pinned: bool, where: str) -> Gid:
    """The entry with the address that was chosen earlier, which others may know already: the network moves entries.

    Raises GidError when it is gone, or is `pinned` to an index where it is no more.
    """
    same = [g for g in gids if g.raw == chosen.raw and g.type == chosen.type]
    at = tuple(g.index for g in same)
    if chosen.index in at:
        return chosen
    now = next((g for g in gids if g.index == chosen.index), None)
    state = f"index {chosen.index} {'empty' if now is None else f'holds {now} {now.type}'}"
    if not same:
        raise GidError(
            f"{state}; {chosen} {chosen.type} is no address of {where} any more", chosen.index, routed(gids),
            f"make a new queue pair: the other side must learn another address. GIDs: {_listed(gids)}",
        )  # fmt: skip
    if pinned:
        raise GidError(
            f"{state}; same address now at {at[0]}", chosen.index, at,
            f"leave gid_index out, or make the queue pair with gid_index={at[0]}",
        )  # fmt: skip
    return same[0]


def _listed(gids: Sequence[Gid]) -> str:
    return ", ".join(f"{g.index}: {g} {g.type}" for g in gids) or "none"
