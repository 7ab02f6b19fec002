# SPDX-License-Identifier: Apache-2.0
"""The memory of one queue pair: work queues, completion queues and doorbell records, in one slab and umem per kind.

Used by queue.py. Within a slab each part starts on a page of its own: [rq sq | cq | receive_cq | records]; but the send
queue follows the receive queue without a gap, since the NIC takes both as one.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gda import _verbs, formats
from gda.nic.lifetime import Resources
from gda.nic.placement import Slab, make_slab, page_range, register_umem

if TYPE_CHECKING:
    from gda.nic.device import Nic

__all__ = ["CQ_RECORD", "RECEIVE_CQ_RECORD", "RECEIVE_WORD", "RECORDS_BYTES", "SEND_WORD", "Rings"]

# Byte offsets in the records: the two dwords of the queue pair's, then the completion queues' in cache lines of their
# own.
SEND_WORD = formats.qp_doorbell_record.offset("send_counter") // 32 * 4
RECEIVE_WORD = formats.qp_doorbell_record.offset("receive_counter") // 32 * 4
CQ_RECORD = 64
RECEIVE_CQ_RECORD = 128
RECORDS_BYTES = 192
_FOLLOWED_CLOSELY = {"rq"}  # the next part comes right behind


class Rings:
    """Slabs and umems of the parts in `sizes` (bytes each, in this order); freed by `resources`.

    Without `for_nic` no NIC knows of them: there are no umems.
    """

    def __init__(
        self, nic: Nic, placement: Mapping[str, str], sizes: Mapping[str, int], resources: Resources, *,
        for_nic: bool = True,
    ) -> None:  # fmt: skip
        self._kinds = {part: placement[part] for part in sizes}
        self._parts: dict[str, tuple[int, int]] = {}
        self._slabs: dict[str, Slab] = {}
        self._umems: dict[str, _verbs.Umem] = {}
        ends: dict[str, int] = {}
        for part, size in sizes.items():
            start = ends.get(self._kinds[part], 0)
            self._parts[part] = (start, size)
            end = start + size
            ends[self._kinds[part]] = end if part in _FOLLOWED_CLOSELY else page_range(0, end)[1]
        for kind, size in ends.items():
            self._slabs[kind] = slab = make_slab(kind, size, nic.gpu)
            resources.callback(slab.close)
            if not for_nic:
                continue
            self._umems[kind] = umem = register_umem(nic.context, slab, nic.is_software)
            resources.callback(umem.close)

    def kind(self, part: str) -> str:
        """ "host" or "gpu"."""
        return self._kinds[part]

    def umem_id(self, part: str) -> int:
        """How commands name the memory of a part."""
        return self._umems[self._kinds[part]].umem_id

    @property
    def memory_bytes(self) -> int:
        """What they take: whole pages."""
        return sum(slab.bytes for slab in self._slabs.values())

    def offset(self, part: str) -> int:
        """Where the part starts in its umem."""
        return self._parts[part][0]

    def bytes(self, part: str) -> int:
        """Length of a part."""
        return self._parts[part][1]

    def address(self, part: str, target: str = "host") -> int:
        """First byte of a part, as the NIC and the CPU name it, or as kernels on the GPU do."""
        slab = self._slabs[self._kinds[part]]
        return (slab.gpu_address if target == "gpu" else slab.address) + self.offset(part)

    def read(self, part: str, offset: int, bytes: int) -> builtins.bytes:
        """Copy bytes out of a part."""
        return self._slabs[self._kinds[part]].read(self.offset(part) + offset, bytes)

    def write(self, part: str, offset: int, data: builtins.bytes) -> None:
        """Copy bytes into a part."""
        self._slabs[self._kinds[part]].write(self.offset(part) + offset, data)

    def poison(self) -> None:
        """Fill the rings so that nothing in them can be taken for real, and zero the records."""
        for part in self._parts:
            value = 0 if part == "records" else 0xFF
            self._slabs[self._kinds[part]].fill(self.offset(part), self.bytes(part), value)
