# SPDX-License-Identifier: Apache-2.0
"""Who carries out what kernels post on a queue pair: what queue.py asks of it, whoever it is.

direct.py: the NIC itself, by firmware commands over the queue pair's rings. proxied.py: a host thread, which posts
by libibverbs and writes completions; for NICs that kernels cannot post to. Kernels see no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from gda.errors import ArgumentError, UnavailableError
from gda.nic.addresses import Gid
from gda.nic.connection import ConnectionInfo, Options, Path

__all__ = ["POSTINGS", "Carrier", "Wanted", "check_posting"]

POSTINGS = ("direct", "proxy")


@dataclass(frozen=True)
class Wanted:
    """What a queue pair was asked to be; sizes are powers of two. See QueuePair."""

    transport: str
    depth: int
    receive_depth: int
    doorbell: str
    is_collapsed: bool
    ignores_overrun: bool
    user_index: int


class Carrier(Protocol):
    """One queue pair's. `registers` are where kernels ring, for code on the CPU and on the GPU (0: they cannot)."""

    qpn: int
    cqn: int
    receive_cqn: int
    registers: tuple[int, int]
    page_type: str  # of the doorbell's page; "" where a word in memory stands for it

    @property
    def register(self) -> int:
        """Where code on the CPU rings by hand."""

    def connect(
        self, own: ConnectionInfo, remote: ConnectionInfo, mtu: int, gid: Gid | None, options: Options
    ) -> None:
        """From reset to ready-to-send; back in reset when that fails. iWARP only begins with it."""

    def settle(self) -> None:
        """Before kernels get it. On iWARP: wait for the connection, UnavailableError if there is none."""

    def reset(self) -> None:
        """To reset; nothing is posted and no completion is written any more."""

    def to_error(self) -> None:
        """To the error state."""

    def context(self) -> dict[str, Any]:
        """What it is now, with the PRM's field names (format qpc); what is not known is zero."""

    def path_to(self, remote: ConnectionInfo, mtu: int, gid: Gid | None) -> Path:
        """How packets get there, as far as it is known."""

    def know(self, segment: bytes, path: Path, remote: ConnectionInfo) -> None:
        """Datagrams with this address vector go to `remote`."""


def check_posting(posting: str | None, default: str) -> str:
    """Raise ArgumentError for an unknown word, UnavailableError for what a NIC of that default cannot."""
    if posting is None:
        return default
    if posting not in POSTINGS:
        raise ArgumentError(f"posting={posting!r} is not one of {', '.join(POSTINGS)}")
    if posting == "direct" and default == "proxy":
        raise UnavailableError(
            "this NIC was opened for the proxy: kernels cannot post to it directly",
            'leave posting out, or open an mlx5 device with posting="direct"; docs/proxy.md',
        )
    return posting
