# SPDX-License-Identifier: Apache-2.0
"""A small table that kernels read (cuda/gda/comm.h), in memory of their target. Used by team.py and window.py."""

from __future__ import annotations

import weakref

from gda.nic import Nic
from gda.nic.placement import Slab, left_to_graphs, make_slab

__all__ = ["Table"]


class Table:
    """Bytes at an address that code on a target can read; each target has its own copy, made when first asked for."""

    def __init__(self, nic: Nic) -> None:
        self._nic = nic
        self._slabs: dict[str, Slab] = {}
        self._written: dict[str, bytes] = {}  # compared without a look at GPU memory, which captures of graphs forbid
        self._stays_for: weakref.WeakSet[object] = weakref.WeakSet()

    def address(self, target: str, data: bytes) -> int:
        """Where `data` lies for code on `target`. No kernel may be reading it while it changes."""
        kind = "gpu" if target == "gpu" and self._nic.gpu is not None else "host"
        slab = self._slabs.get(kind)
        if slab is None:
            slab = self._slabs[kind] = make_slab(kind, len(data), self._nic.gpu)
        if self._written.get(kind) != data:
            slab.write(0, data)
            self._written[kind] = data
        return slab.gpu_address if target == "gpu" else slab.address

    def stay(self, holder: object) -> None:
        """Remain readable as long as `holder` lives, also when it is closed: a graph has the address."""
        self._stays_for.add(holder)

    def close(self) -> None:
        """Give the memory back."""
        for slab in self._slabs.values():
            if self._stays_for:
                left_to_graphs.append(slab)
            else:
                slab.close()
        self._slabs.clear()
