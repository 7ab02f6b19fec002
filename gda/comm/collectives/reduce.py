# SPDX-License-Identifier: Apache-2.0
"""Reduce-scatter and all-reduce: arrays of all ranks, added (multiplied, compared) element by element on the device.

Made by Team.reduce_scatter() and Team.all_reduce(). The steps are in cuda/gda/collectives/reduce_scatter.h and
all_reduce.h; here they are as data, too, with what NumPy makes of them: `ring`, `doubling`, `reference`. Documents:
docs/programs.md, "Reduce-scatter and all-reduce", and docs/protocols.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gda.comm.arguments import CALL_S, one_of, whole
from gda.comm.collectives.collective import Collective
from gda.comm.collectives.elements import ELEMENTS, OPERATIONS, Array, combined, element_of
from gda.comm.collectives.steps import Step, doubling, pieces, ring, rounds_of
from gda.comm.kernels import kernels_of
from gda.comm.window import Window, bytes_of
from gda.errors import ArgumentError

if TYPE_CHECKING:
    from gda.comm.team import Team

__all__ = ["AllReduce", "ReduceScatter", "reference"]

# cuda/gda/collectives/protocol.h: name there, bytes of a line and of the elements in it, slots of a link (link.h).
PROTOCOLS = {"simple": ("gda_simple", 1, 1, 4), "ll": ("gda_ll", 16, 8, 8), "ll128": ("gda_ll128", 128, 120, 8)}
_SLOT_ALIGNMENT, _LINK_WORDS = 128, 4
_LONGEST_SLOT = 256 << 10  # bytes, unless slot_bytes says otherwise
_RING_FROM_BYTES = 32 << 10  # smaller arrays by doubling; docs/figures.md, "Collectives"
_GPU_THREADS = 512  # GDA_REDUCE_THREADS of cuda/gda/kernels/reduce.h: no longer block has the registers


class _Reduction(Collective):
    """What both have in common: the array's window, the staging window, one kernel."""

    def __init__(
        self, team: Team, what: str, array: Any, *, kernel: str, links: int, parts: int, op: str, dtype: str | None,
        protocol: str, channels: int, slot_bytes: int | None, threads: int | None, placement: str | None, start: int,
        algorithm: str = "",
    ) -> None:  # fmt: skip
        self.dtype, self.op, self.protocol = element_of(array, dtype), op, protocol
        item = ELEMENTS[self.dtype][1]
        one_of("op", op, OPERATIONS)
        one_of("protocol", protocol, PROTOCOLS)
        line, of_line, slots = PROTOCOLS[protocol][1:]
        self.bytes = _bytes_of(array)
        self.count = self.bytes // item
        if self.bytes % item:
            raise ArgumentError(f"{self.bytes} bytes are not a whole number of elements of {self.dtype}")
        if slot_bytes is None:
            blocks = channels if isinstance(channels, int) and channels > 0 else 1  # else refused below
            part = _divided_up(_divided_up(self.count, parts), blocks)
            slot_bytes = min(_LONGEST_SLOT, _divided_up(part * item, of_line) * line)
        else:
            slot_bytes = whole("slot_bytes", slot_bytes, 1)
        self.slot_bytes = max(1, _divided_up(slot_bytes, _SLOT_ALIGNMENT)) * _SLOT_ALIGNMENT
        options: dict[str, object] = {"count": self.count, "dtype": self.dtype, "op": op, "protocol": protocol}
        options["slot_bytes"] = self.slot_bytes
        if algorithm:
            options["algorithm"] = algorithm
        on_gpu = hasattr(array.memory if isinstance(array, Window) else array, "__cuda_array_interface__")
        where = placement if placement is not None else "gpu" if on_gpu else "host"
        if protocol == "ll128" and where == "gpu" and team.nic.is_software:
            raise ArgumentError(
                "protocol='ll128' wants memory that shows a line in the order of its addresses, and the software NIC's "
                "copies within a GPU do not", "take 'll' or 'simple'; docs/protocols.md",
            )  # fmt: skip
        self._instance = instance_of(kernel, protocol, self.dtype, op)
        super().__init__(
            team, what, options, more_words=links * _LINK_WORDS, channels=channels, placement=where, start=start
        )
        with self._closed_on_failure():
            # Where the array is.
            self._kernels = kernels_of("reduce", self._instance, target="gpu" if on_gpu else "host")
            self.threads = _GPU_THREADS if on_gpu else 1
            if threads is not None:
                self.threads = whole("threads", threads, 1, _GPU_THREADS)
            self.window = self._window(array if self.bytes else item)
            self._must_give(self.window, "array", "local_write")
            size = self.channels * links * slots * self.slot_bytes
            # No relaxed ordering: a flag could be seen before the bytes in front of it.
            access = ("local_write", "remote_write", "remote_read")
            self.staging = Window(team, size, placement=where, access=access)
            self._resources.callback(self.staging._resources.close)
            self._windows.append(self.staging)
            # Flags as if the step before the first one had been everywhere; docs/protocols.md.
            flag = (start % 2**64).to_bytes(8, "little")
            if protocol == "ll":
                flag = flag[:4] * 2
            self.staging.memory.write(0, flag * (size // 8))

    def __call__(self, *, deadline_s: float = CALL_S) -> None:
        """Do it, in place, by one launch. Collective. Raises DeadlineError or CompletionError, whose `rank` says for
        whom it waited, PeerLostError where that one's process has ended. Afterwards make another.
        """
        self._resources.check()
        if self.count != 0:
            self._launch(self._instance, self.window, 0, self.count, self.staging, deadline_s=deadline_s)


def instance_of(kernel: str, protocol: str, dtype: str, op: str) -> str:
    """The name of a kernel of cuda/gda/kernels/reduce.h: "reduce_scatter", "all_reduce_ring", "all_reduce_doubling"."""
    return f"gda_kernel_{kernel}<{PROTOCOLS[protocol][0]},{ELEMENTS[dtype][0]},gda_{op}>"


def _divided_up(count: int, by: int) -> int:
    return (count + by - 1) // by


def _bytes_of(array: Any) -> int:
    found = array.bytes if isinstance(array, Window) else bytes_of(array)
    if found is None:
        raise ArgumentError(f"a {type(array).__name__} is no array", "NumPy, CuPy and torch make some")
    return found


class ReduceScatter(_Reduction):
    """Made by Team.reduce_scatter(array): behind a call, `array[reduce.own]` is this rank's piece of the result.

    `array` is one-dimensional or taken as such: NumPy, CuPy, torch, or a Window of this team with `dtype`. It is work
    space: its other pieces are unfinished sums afterwards. Options: `op` "sum", "prod", "min", "max"; `dtype`, if the
    array does not say ("bfloat16" for uint16 arrays that hold such); `protocol` "simple", "ll", "ll128"; `channels`,
    blocks of the kernel that each carry a part; slot_bytes, of staging; threads, of a block; placement, of staging and
    signals, default: where the array is; start, the count of steps to begin with.

    Raw parts for your own kernels: `window` (of the array), `staging`, `signals`; count and channels.
    """

    def __init__(
        self, team: Team, array: Any, op: str = "sum", *, dtype: str | None = None, protocol: str = "simple",
        channels: int = 1, slot_bytes: int | None = None, threads: int | None = None, placement: str | None = None,
        start: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(
            team, "reduce-scatter", array, kernel="reduce_scatter", links=1, parts=team.size, op=op, dtype=dtype,
            protocol=protocol, channels=channels, slot_bytes=slot_bytes, threads=threads, placement=placement,
            start=start,
        )  # fmt: skip
        self.pieces = pieces(self.count, team.size)
        self.own = self.pieces[team.rank]


class AllReduce(_Reduction):
    """Made by Team.all_reduce(array): behind a call the array is the result, the same bits on all ranks.

    `algorithm` is "ring", "doubling", or "auto": by size. The others: see ReduceScatter.
    """

    def __init__(
        self, team: Team, array: Any, op: str = "sum", *, algorithm: str = "auto", dtype: str | None = None,
        protocol: str = "simple", channels: int = 1, slot_bytes: int | None = None, threads: int | None = None,
        placement: str | None = None, start: int = 0,
    ) -> None:  # fmt: skip
        one_of("algorithm", algorithm, ("auto", "ring", "doubling"))
        if algorithm == "auto":
            algorithm = "doubling" if _bytes_of(array) < _RING_FROM_BYTES else "ring"
        self.algorithm = algorithm
        links, parts = (1, team.size) if algorithm == "ring" else (rounds_of(team.size) + 1, 1)
        super().__init__(
            team, "all-reduce", array, kernel=f"all_reduce_{algorithm}", links=links, parts=parts, op=op, dtype=dtype,
            protocol=protocol, channels=channels, slot_bytes=slot_bytes, threads=threads, placement=placement,
            start=start, algorithm=algorithm,
        )  # fmt: skip


def steps_of(rank: int, size: int, algorithm: str) -> list[Step]:
    """The steps of a rank by "ring", "doubling", or "scatter": the reduce-scatter alone."""
    return doubling(rank, size) if algorithm == "doubling" else ring(rank, size, gather=algorithm == "ring")


def elements_sent(rank: int, size: int, count: int, algorithm: str) -> int:
    """How many elements a rank sends in all."""
    parts = pieces(count, 1 if algorithm == "doubling" else size)
    sent = [parts[step.sends] for step in steps_of(rank, size, algorithm) if step.to is not None]
    return sum(part.stop - part.start for part in sent)


def reference(arrays: list[Array], op: str = "sum", algorithm: str = "ring", dtype: str | None = None) -> list[Array]:
    """What each rank has in the end, given what each begins with: the steps by NumPy, with the device's bits."""
    size, name = len(arrays), element_of(arrays[0], dtype)
    have = [array.reshape(-1).copy() for array in arrays]
    parts = pieces(len(have[0]), 1 if algorithm == "doubling" else size)
    for step in zip(*(steps_of(rank, size, algorithm) for rank in range(size)), strict=True):
        under_way = {
            (rank, one.to): have[rank][parts[one.sends]].copy() for rank, one in enumerate(step) if one.to is not None
        }
        for rank, one in enumerate(step):
            if one.source is None:
                continue
            arrived, own = under_way[one.source, rank], have[rank][parts[one.receives]]
            if one.takes == "result":
                own[:] = arrived
            elif one.takes == "arrived first":
                own[:] = combined(arrived, own, op, name)
            else:
                own[:] = combined(own, arrived, op, name)
    return [result.reshape(array.shape) for result, array in zip(have, arrays, strict=True)]
