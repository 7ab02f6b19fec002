# SPDX-License-Identifier: Apache-2.0
"""Batches of work requests as NumPy arrays of WORK_REQUEST, a row a request; and the memory that they are checked by.

Used by host_queue.py and memory.py. The declaration is the C struct of gda/_verbs.pxd; here it becomes a NumPy dtype.
Document: docs/cpu_posting.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gda import _verbs
from gda.errors import ArgumentError
from gda.nic.remote import RemoteMemory

if TYPE_CHECKING:
    from gda.nic.memory import Memory

__all__ = ["WORK_REQUEST", "KnownMemory", "as_bytes"]

WORK_REQUEST: np.dtype[np.void] = np.dtype(
    {
        "names": [name for name, _, _ in _verbs.WORK_REQUEST_FIELDS],
        "formats": [kind for _, kind, _ in _verbs.WORK_REQUEST_FIELDS],
        "offsets": [offset for _, _, offset in _verbs.WORK_REQUEST_FIELDS],
        "itemsize": _verbs.WORK_REQUEST_BYTES,
    }
)
"""NumPy's type of a row that `HostQueuePair.post` takes.

Fields: wr_id, local_addr, remote_addr, compare_add, swap (64 bits); length in bytes, lkey, rkey, imm_data, opcode
(IBV_WR_*), send_flags (IBV_SEND_*) (32 bits). Host byte order. All zero: an unsignaled RDMA WRITE of nothing.
Document: docs/cpu_posting.md.
"""


def as_bytes(rows: Any) -> npt.NDArray[np.uint8]:
    """The bytes of a one-dimensional array of WORK_REQUEST, without a copy where they lie together."""
    if not isinstance(rows, np.ndarray) or rows.dtype != WORK_REQUEST or rows.ndim > 1:
        what = f"{rows.dtype} of shape {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise ArgumentError(
            f"a batch is a one-dimensional NumPy array of gda.WORK_REQUEST, not {what}",
            "rows = numpy.zeros(count, gda.WORK_REQUEST); rows['opcode'] = ...",
        )
    return np.ascontiguousarray(np.atleast_1d(rows)).view(np.uint8)


class KnownMemory:
    """The open memory regions of one NIC, by lkey. Memory adds itself, and takes itself out before it closes."""

    def __init__(self) -> None:
        self._regions: dict[int, _verbs.MR] = {}
        self._remote: list[Memory | RemoteMemory] | None = None
        self._table: _verbs.Regions | None = None

    def add(self, region: _verbs.MR) -> None:
        """Rows may use it from now on."""
        self._regions[region.lkey] = region
        self._table = None

    def remove(self, region: _verbs.MR) -> None:
        """It is about to be closed."""
        self._regions.pop(region.lkey, None)
        self._table = None

    def table(self, remote: Iterable[Memory | RemoteMemory] | None) -> _verbs.Regions:
        """What any rows are checked against; made anew only when something has changed."""
        there = None if remote is None else list(remote)
        if self._table is None or there != self._remote:
            self._table = _verbs.Regions(self._regions.values(), _remote_regions(there))
            self._remote = there
        return self._table

    def table_for(self, rows: npt.NDArray[np.void], remote: Iterable[Memory | RemoteMemory] | None) -> _verbs.Regions:
        """The same with only the local memory that these rows name: it stays of use when other memory closes."""
        named = [self._regions[key] for key in np.unique(rows["lkey"]).tolist() if key in self._regions]
        return _verbs.Regions(named, _remote_regions(None if remote is None else list(remote)))


def _remote_regions(
    remote: list[Memory | RemoteMemory] | None,
) -> list[_verbs.MR | tuple[int, int, int]] | None:
    """RemoteMemory does not say its rights: those the other side checks."""
    if remote is None:
        return None
    return [(r.address, r.bytes, r.rkey) if isinstance(r, RemoteMemory) else r.raw for r in remote]
