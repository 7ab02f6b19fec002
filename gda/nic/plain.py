# SPDX-License-Identifier: Apache-2.0
"""A queue pair in plain memory, that no NIC knows: device code posts to it, and nobody reads what it posts.

Used where posting itself is looked at: `python -m gda bench post` and tests of the device library. Rings, record and
handle lie in GPU memory when there is a GPU, the doorbell's page in pinned host memory, as queues of a real card that
are placed on the GPU do; without a GPU all lies in host memory.
"""

from __future__ import annotations

import builtins
from typing import Any

from gda import formats
from gda.errors import ArgumentError
from gda.nic import doorbell_modes
from gda.nic.gpu import Gpu
from gda.nic.handle import Addresses, Handle
from gda.nic.lifetime import Owner, Resources
from gda.nic.placement import HostSlab, make_slab
from gda.nic.rings import CQ_RECORD, SEND_WORD

__all__ = ["PlainMemory", "PlainQueue"]

_BLOCK = int(formats.WQE_BASIC_BLOCK_BYTES)
_MAX_DEPTH = 32768
_CQ = 1024  # offset of the one completion behind the records, in their page


class PlainMemory:
    """A memory region in name only: an address and keys for work requests that nobody carries out."""

    def __init__(self, address: int, bytes: int, *, lkey: int = 0x11223344, rkey: int = 0x55667788) -> None:
        self.address, self.bytes, self.lkey, self.rkey = address, bytes, lkey, rkey

    def __gda_argument__(self, target: str) -> tuple[str, builtins.bytes]:
        """The kernel argument `gda_mr`, by value."""
        swapped = [int.from_bytes(key.to_bytes(4, "big"), "little") for key in (self.lkey, self.rkey)]
        return "gda_mr", formats.layouts["gda_mr"].pack(
            addr=self.address, bytes=self.bytes, lkey_be=swapped[0], rkey_be=swapped[1]
        )


class PlainQueue(Owner):
    """A `gda_qp` with a send ring of `depth` blocks and a collapsed completion queue that stays empty.

    `gpu` (gda.nic.gpu.use_gpu) places it; None: the host. `owned`: one thread posts. `doorbell` is one of the modes of
    docs/doorbells.md, by default "record", with `record=False` "no-record"; with "cpu" no thread takes what is asked.
    Fits as a kernel argument `gda_qp*` on the target that it was made for.
    """

    def __init__(
        self,
        gpu: Gpu | None,
        *,
        depth: int = _MAX_DEPTH,
        owned: bool = False,
        record: bool = True,
        doorbell: str | None = None,
        qpn: int = 0x123456,
        deadline_ns: int = 1_000_000_000,
    ) -> None:
        if depth < 1 or depth > _MAX_DEPTH or depth & (depth - 1):
            raise ArgumentError(f"depth={depth} is not a power of two up to {_MAX_DEPTH}")
        self.target = "host" if gpu is None else "gpu"
        self.depth, self.qpn = depth, qpn
        self.mode = doorbell or ("record" if record else "no-record")
        mode_flags = doorbell_modes.kernel_flags(self.mode)
        self.has_record = not mode_flags & int(formats.GDA_QP_RECORDLESS)
        resources = Resources(f"plain queue 0x{qpn:x}")
        self._own(resources)
        kind = "host" if gpu is None else "gpu"
        try:
            self._sq = make_slab(kind, depth * _BLOCK, gpu)
            resources.callback(self._sq.close)
            self._rest = make_slab(kind, _CQ + _BLOCK, gpu)
            resources.callback(self._rest.close)
            self._page = HostSlab(1, gpu)
            resources.callback(self._page.close)
            self.register = int(formats.UAR_SEND_DOORBELL if self.has_record else formats.UAR_RECORDLESS_DOORBELL)
            self._sq.fill(0, depth * _BLOCK, 0xFF)
            self._rest.fill(_CQ, _BLOCK, 0xFF)
            flags = int(formats.GDA_QP_CONNECTED) | (int(formats.GDA_QP_OWNED) if owned else 0)
            flags |= mode_flags
            flags |= 0 if gpu is None else int(formats.GDA_QP_GPU_SCOPE)
            rest = self._rest.gpu_address if gpu is not None else self._rest.address
            page = self._page.gpu_address if gpu is not None else self._page.address
            addresses = Addresses(
                sq=self._sq.gpu_address if gpu is not None else self._sq.address,
                doorbell=page + self.register,
                record=rest + SEND_WORD,
                cq_ring=rest + _CQ,
                cq_record=rest + CQ_RECORD,
            )
            constants: dict[str, Any] = {
                "version": int(formats.GDA_HANDLE_VERSION),
                "flags": flags,
                "qpn": qpn,
                "log_sq_size": depth.bit_length() - 1,
                "deadline_ns": deadline_ns,
                "max_message_bytes": 1 << 30,
                "cq": {
                    "cqn": 0,
                    "log_size": 0,
                    "flags": int(formats.GDA_CQ_COLLAPSED) | int(formats.GDA_CQ_IGNORE_OVERRUN),
                },
                "receive": {"cq": {}},
            }
            self._handle = Handle(constants, lambda target: addresses, kind, True, gpu)
            resources.callback(self._handle.close)
        except BaseException:
            resources.close()
            raise

    def reset(self, index: int = 0, unread: int = 0) -> None:
        """Nothing is open, as new: the next request has this index. No kernel may be using the queue.

        With `unread` the NIC has completed that many before it, and nobody has read that yet.
        """
        self._resources.check()
        if not 0 <= unread <= min(index, self.depth):
            raise ArgumentError(f"unread={unread} is outside 0..{min(index, self.depth)}")
        cqe = b"\xff" * _BLOCK
        if unread:
            last = {"wqe_counter": (index - 1) % 65536, "qpn": self.qpn, "opcode": int(formats.MLX5_CQE_REQ)}
            cqe = formats.cqe64.pack(**last)
        self._rest.write(_CQ, cqe)
        self._handle.update(
            reserved=index, ready=index, done=index - unread, error=0, cq_consumed=0, rung=index, deferred=0, silent=0,
            flashes=0,
        )  # fmt: skip

    def read_handle(self) -> dict[str, Any]:
        """Members of the handle as they are in memory."""
        return self._handle.read()

    def wqe(self, index: int) -> builtins.bytes:
        """The 64 bytes of a slot."""
        return self._sq.read(index % self.depth * _BLOCK, _BLOCK)

    @property
    def send_counter(self) -> int:
        """What the doorbell record says."""
        return int(formats.qp_doorbell_record.unpack(self._rest.read(0, 8))["send_counter"])

    @property
    def doorbell(self) -> builtins.bytes:
        """The last eight bytes that were written to the doorbell, or asked of a host thread."""
        return self._page.read(self.register, 8)

    def __gda_argument__(self, target: str) -> tuple[str, builtins.bytes]:
        """The kernel argument `gda_qp*`."""
        self._resources.check()
        if target != self.target:
            raise ArgumentError(f"this plain queue was made for kernels on the {self.target}, not on the {target}")
        return "gda_qp*", self.address.to_bytes(8, "little")

    @property
    def address(self) -> int:
        """Where kernels find the handle."""
        return self._handle.address(self.target)
