# SPDX-License-Identifier: Apache-2.0
"""Windows: memory of the same size on every rank, reached by rank and offset. Document: docs/programs.md, "Window".

Made by Team.window(). Every rank knows every rank's address, key and rights after one exchange. What Python asks for is
checked against them before anything is posted; the launches themselves are the kernels of cuda/gda/kernels/comm.h.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gda import formats
from gda.comm.arguments import CALL_S, seconds, whole
from gda.comm.kernels import kernels_of
from gda.comm.part import Index, Part, pieces, same_pieces
from gda.comm.table import Table
from gda.errors import ArgumentError, BootstrapError
from gda.nic import Memory, Nic, RemoteMemory
from gda.nic.lifetime import Owner, Resources, working

if TYPE_CHECKING:
    from gda.comm.team import Team

__all__ = ["Window", "bytes_of", "in_rows", "memory_of", "which"]

_RIGHTS = ("remote_write", "remote_read", "remote_atomic", "local_write")


def memory_of(
    nic: Nic, buffer: Any, placement: str = "host", access: tuple[str, ...] | None = None, shared: bool = False
) -> Memory:
    """What a window or collective is made of: so many bytes to allocate, or an array to register.

    An empty array has memory, too, of which nothing is told: collectives of nothing are as good as others.
    """
    if isinstance(buffer, int | np.integer) and not isinstance(buffer, bool):
        if buffer != 0:
            return Memory.allocate(nic, int(buffer), placement, access)
        shape, item = (0,), 1
    elif bytes_of(buffer) == 0:
        shape, item = tuple(getattr(buffer, "shape", (0,))), int(getattr(buffer, "itemsize", 1))
    else:
        return nic.register(buffer, access=access, shared=shared)
    memory = Memory.allocate(nic, 1, access=access)
    memory.bytes, memory.shape = 0, shape
    memory.strides = tuple(item * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return memory


def bytes_of(buffer: Any) -> int | None:
    """Of an array, or whatever has memory; None: it does not say."""
    found = getattr(buffer, "nbytes", None)
    try:
        return int(memoryview(buffer).nbytes if found is None else found)
    except (TypeError, ValueError):
        return None


def in_rows(memory: Memory) -> bool:
    """Whether its array lies row after row (C's order), so that what follows the first axis is in one piece."""
    expected = memory.bytes // max(1, math.prod(memory.shape))
    for extent, stride in zip(reversed(memory.shape), reversed(memory.strides), strict=True):
        if extent > 1 and stride != expected and memory.bytes:
            return False
        expected *= extent
    return True


def which(queue: int) -> int:
    """The number of a queue among those to a peer, as kernels take it: it goes round."""
    return whole("queue", queue, 0, (1 << 32) - 1)


class Window(Owner):
    """Symmetric memory: `buffer` is a number of bytes to allocate, or an array (NumPy, CuPy, torch) to register.

    Options: `placement` of what is allocated, "host" or "gpu"; `access` as in Nic.register; `shared`, too: arrays in
    one allocation (two tensors of a framework's pool) then have one memory region, which ends with the last of them.
    `memory` is this rank's Memory, `remote[rank]` each rank's RemoteMemory, for whatever takes those. Fits as a kernel
    argument `gda_window`. window[2:5], window[:, 3], window[::2] are Parts, as NumPy indexes the array (of bytes, if
    allocated); window.part(offset, bytes) says it in bytes.
    """

    _call = "window"  # what the exchange of its making is named

    def __init__(
        self, team: Team, buffer: Any, *, placement: str = "host", access: tuple[str, ...] | None = None,
        shared: bool = False,
    ) -> None:  # fmt: skip
        team._resources.check()
        self.team = team
        self._own(Resources(self._call, team._resources))
        try:
            self.memory = memory_of(team.nic, buffer, placement, access, shared)
            self._resources.callback(self.memory._resources.close)
            self.bytes = self.memory.bytes
            self.remote: list[RemoteMemory] = []
            self.rights: list[tuple[str, ...]] = []
            self.in_rows: list[bool] = []  # of each rank's array: see in_rows()
            if team.nic.gpu is not None:
                kernels_of("comm")  # behind the exchange all ranks have it
            self._exchange()
            self._table = Table(team.nic)
            self._resources.callback(self._table.close)
        except BaseException:
            self._resources.close()
            raise

    def __repr__(self) -> str:
        return f"<Window of {self.bytes} bytes on each of {self.team.size} ranks>"

    # ----------------------------------------------------------------------------------------------------------- parts
    def __getitem__(self, index: Index) -> Part:
        """What NumPy's basic indexing of the array means: whole numbers, slices with or without a step, `...`.

        It may be pieces at one distance: a column, every third row, a block of a matrix. Raises OutOfBoundsError for an
        index behind the end, ArgumentError for pieces at several distances.
        """
        self._resources.check()
        shape, strides = self.memory.shape, self.memory.strides
        item = self.memory.bytes // max(1, math.prod(shape)) or 1
        offset, bytes, count, stride = pieces(shape, strides, item, index)
        return Part(self, offset, bytes, count, stride)

    def part(self, offset: int = 0, bytes: int | None = None, count: int = 1, stride: int = 0) -> Part:
        """`count` pieces of `bytes` from `offset` on, `stride` bytes from one to the next; default: all.

        Raises OutOfBoundsError; ArgumentError for pieces that overlap.
        """
        self._resources.check()
        offset, count, stride = whole("offset", offset), whole("count", count, 1), whole("stride", stride)
        length = self.bytes - offset if bytes is None else whole("bytes", bytes)
        if count > 1 and stride < length:
            raise ArgumentError(
                f"{count} pieces of {length} bytes at a distance of {stride} bytes", "they may not overlap"
            )
        self.memory.range(offset, length + (count - 1) * stride)
        return Part(self, offset, length, count, stride if count > 1 else 0)

    # ----------------------------------------------------------------------------------------------------------- verbs
    @working
    def put(
        self, peer: int, to: Part | None = None, source: Part | Memory | None = None, *, queue: int = 0,
        deadline_s: float = CALL_S,
    ) -> None:  # fmt: skip
        """Write to a part of the peer's window (default: all of it) from `source`, and wait for completion.

        `source` is a part of a window, or a Memory; default: the same part of this rank's. Of a part in pieces each is
        a message. Raises OutOfBoundsError, ArgumentError for a right that the peer did not give or lengths that differ,
        before anything happens; what fails later names the rank (Team.naming).
        """
        there, here, memory = self._checked(peer, to, source, "remote_write")
        count, bytes, stride, own_stride = same_pieces(there, here)
        limit = seconds("deadline_s", deadline_s)
        with self.team.naming(peer):
            kernels_of("comm").gda_kernel_put_to.start[1, 1](
                self.team, peer, which(queue), self, there.offset, stride, memory, here.offset, own_stride, count,
                bytes, int(limit * 1e9),
            ).wait(limit + 1)  # fmt: skip

    @working
    def get(
        self, peer: int, of: Part | None = None, into: Part | Memory | None = None, *, queue: int = 0,
        deadline_s: float = CALL_S,
    ) -> None:  # fmt: skip
        """Read a part of the peer's window into this rank's memory, default: to the same part. Errors: as of put()."""
        self.team.check_answered("get")
        there, here, memory = self._checked(peer, of, into, "remote_read")
        if "local_write" not in memory.access:
            raise ArgumentError(f"{memory!r} has no right local_write", "register memory that may be written")
        count, bytes, stride, own_stride = same_pieces(there, here)
        limit = seconds("deadline_s", deadline_s)
        with self.team.naming(peer):
            kernels_of("comm").gda_kernel_get_from.start[1, 1](
                self.team, peer, which(queue), memory, here.offset, own_stride, self, there.offset, stride, count,
                bytes, int(limit * 1e9),
            ).wait(limit + 1)  # fmt: skip

    # ---------------------------------------------------------------------------------------------------------- inside
    def __gda_argument__(self, target: str) -> tuple[str, bytes]:
        """The kernel argument `gda_window`, by value; its table lies where `target` reads it."""
        self._resources.check()
        mine = self._mine(target)
        everybody = [remote.__gda_argument__(target)[1] for remote in self.remote]
        everybody[self.team.rank] = mine  # with its local key, too
        return "gda_window", formats.layouts["gda_window"].pack(
            mine=mine,
            peers=self._table.address(target, b"".join(everybody)),
            size=self.team.size,
            rank=self.team.rank,
        )

    def __gda_stay__(self, holder: object) -> None:
        """What a kernel got of it stays where it is as long as `holder` lives."""
        self._table.stay(holder)

    def _mine(self, target: str) -> bytes:
        """This rank's gda_mr."""
        return self.memory.__gda_argument__(target)[1]

    def check_right(self, peer: int, right: str) -> None:
        """Raise ArgumentError unless the peer's window gives this right."""
        self._resources.check()
        self.team.check_connected(peer)
        if right not in self.rights[peer]:
            given = ", ".join(self.rights[peer]) or "none"
            raise ArgumentError(
                f"the window of {self.team.ranks[peer]} does not give {right}; it gives: {given}",
                f"make it there with access=(..., {right!r})",
            )

    def _checked(
        self, peer: int, there: Part | None, here: Part | Memory | None, right: str
    ) -> tuple[Part, Part, Memory]:
        """Part of the peer's window, part here, and the memory that it is of."""
        self.check_right(peer, right)
        part = self.part() if there is None else there
        for one in (part, here):
            if one is not None and not isinstance(one, Part | Memory):
                raise ArgumentError(
                    f"{type(one).__name__} is no part of a window",
                    "window[2:5] and window.part(offset, bytes) are such; of an array that is in no window, its "
                    "memory: team.nic.register(array)",
                )
        if not isinstance(part, Part) or part.window is not self:
            other = part.window if isinstance(part, Part) else part
            raise ArgumentError(f"that part is of another window ({other!r})", "take a part of this one")
        if isinstance(here, Memory):
            own, memory = Part(self, 0, here.bytes), here
            here.range(0, here.bytes)
        else:
            own = part if here is None else here
            own.window._resources.check()
            memory = own.window.memory
        self.team.check_memory(memory)
        return part, own, memory

    def _exchange(self) -> None:
        team, memory = self.team, self.memory
        rights = sum(1 << i for i, name in enumerate(_RIGHTS) if name in memory.access)
        rights += in_rows(memory) << len(_RIGHTS)
        answers = team.bootstrap.allgather(bytes([rights]) + memory.remote.to_bytes(), call=self._call)
        for rank, data in enumerate(answers):
            one = RemoteMemory.from_bytes(data[1:])
            if one.bytes != memory.bytes:
                raise BootstrapError(
                    f"rank {rank} has a window of {one.bytes} bytes, this rank one of {memory.bytes}", rank=rank,
                    phase=team.bootstrap.phase - 1, advice="all ranks make the same windows in the same order",
                )  # fmt: skip
            self.remote.append(one)
            self.rights.append(tuple(name for i, name in enumerate(_RIGHTS) if data[0] >> i & 1))
            self.in_rows.append(bool(data[0] >> len(_RIGHTS) & 1))
