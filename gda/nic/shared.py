# SPDX-License-Identifier: Apache-2.0
"""Memory regions that several buffers share because they lie in one allocation: two tensors, one registration.

Used by memory.py for Nic.register(shared=True). A region covers its whole allocation and lives until the last memory
in it is closed. It is found again by range and rights: other rights make another region.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gda import _cuda, _verbs
from gda.locks import Lock
from gda.nic.gpu import Gpu

__all__ = ["Range", "SharedRegions", "allocation_around"]

Range = tuple[int, int]  # address, bytes


def allocation_around(buffer: Any, address: int, bytes: int, gpu: Gpu | None) -> Range:
    """The allocation that a buffer lies in; the buffer's own range where nobody says more.

    Of GPU memory the driver knows it. Of host memory: a torch tensor's storage, the array at the end of a chain of
    NumPy views, the object behind a memoryview.
    """
    if gpu is not None:
        return _around(_cuda.cuMemGetAddressRange(gpu.context, address), address, bytes)
    storage = getattr(buffer, "untyped_storage", None)
    if storage is not None:
        whole = storage()
        return _around((int(whole.data_ptr()), int(whole.nbytes())), address, bytes)
    owner: Any = buffer
    found = address, bytes
    while True:
        is_view = isinstance(owner, np.ndarray | memoryview)
        base: Any = (owner.base if isinstance(owner, np.ndarray) else owner.obj) if is_view else None
        if base is None:
            return found
        try:
            flat = np.frombuffer(base, np.uint8)
        except (TypeError, ValueError, BufferError):  # not contiguous, or memory that only its view knows
            flat = None
        if flat is not None:
            found = _around((int(flat.__array_interface__["data"][0]), flat.nbytes), *found)
        owner = base


def _around(whole: Range, address: int, bytes: int) -> Range:
    """`whole`, unless the range passes it: a view that was made by hand."""
    inside = whole[0] <= address and address + bytes <= whole[0] + whole[1]
    return whole if inside else (address, bytes)


@dataclass
class _Shared:
    region: _verbs.MR
    where: Range
    flags: int
    is_gpu: bool
    users: int = 0


class SharedRegions:
    """Those of one NIC."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._regions: list[_Shared] = []

    def users(self, region: _verbs.MR) -> int:
        """How many memories share a region."""
        with self._lock:
            return sum(shared.users for shared in self._regions if shared.region is region)

    def take(self, where: Range, flags: int, is_gpu: bool, make: Callable[[], _verbs.MR]) -> _verbs.MR:
        """The region around `where` with these rights, made if there is none."""
        with self._lock:
            for shared in self._regions:
                start, size = shared.where
                around = start <= where[0] and where[0] + where[1] <= start + size
                if around and (shared.flags, shared.is_gpu) == (flags, is_gpu):
                    shared.users += 1
                    return shared.region
            region = make()
            self._regions.append(_Shared(region, where, flags, is_gpu, 1))
            return region

    def give(self, region: _verbs.MR, last: Callable[[], object]) -> None:
        """One memory less; `last` ends the region when it was the last one."""
        with self._lock:
            (shared,) = [shared for shared in self._regions if shared.region is region]
            shared.users -= 1
            if shared.users:
                return
            self._regions.remove(shared)
        last()
