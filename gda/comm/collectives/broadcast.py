# SPDX-License-Identifier: Apache-2.0
"""Broadcast: cuda/gda/collectives/broadcast.h, and the same steps as data. Made by Team.broadcast().

Document: docs/programs.md, "Collectives".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gda.comm.arguments import CALL_S, one_of, whole
from gda.comm.collectives.collective import Collective, Transfer, neighbours

if TYPE_CHECKING:
    from gda.comm.team import Team

__all__ = ["Broadcast", "chain", "is_chain", "tree"]

CHUNK_BYTES = 128 << 10
_KERNELS = {
    "auto": "gda_kernel_broadcast", "tree": "gda_kernel_broadcast_tree", "chain": "gda_kernel_broadcast_chain",
}  # fmt: skip


class Broadcast(Collective):
    """The root's bytes to all ranks. Collective to make: `data` is what Window takes, or a window of the team.

    `algorithm` is "tree", "chain" (in chunks of `chunk_bytes`), or "auto": by size. `window` and `signals` are what
    kernels that call gda_broadcast() themselves take.
    """

    def __init__(
        self, team: Team, data: Any, *, algorithm: str = "auto", chunk_bytes: int = CHUNK_BYTES, channels: int = 1,
        placement: str = "host", start: int = 0,
    ) -> None:  # fmt: skip
        self.algorithm, self.chunk_bytes = algorithm, chunk_bytes
        options: dict[str, object] = {"algorithm": algorithm, "chunk_bytes": chunk_bytes}
        super().__init__(
            team, "broadcast", options, file="broadcast", peers=neighbours(team, algorithm == "chain"),
            channels=channels, placement=placement, start=start,
        )  # fmt: skip
        with self._closed_on_failure():
            one_of("algorithm", algorithm, _KERNELS)
            self.chunk_bytes = whole("chunk_bytes", chunk_bytes, 1, (1 << 63) - 1)
            self.window = self._window(data, placement)

    def __call__(self, root: int = 0, *, offset: int = 0, bytes: int | None = None, deadline_s: float = CALL_S) -> None:
        """Return when this rank has the root's bytes, or its own have left. All ranks call it with the same."""
        self._must_give(self.window, "array", "remote_write", but=self.team.checked_rank(root))
        part = self.window.part(offset, bytes)
        self._launch(
            _KERNELS[self.algorithm], self.window, offset, part.bytes, root, self.chunk_bytes, deadline_s=deadline_s
        )


def is_chain(size: int, bytes: int, chunk_bytes: int = CHUNK_BYTES) -> bool:
    """Whether "auto" takes the chain for so many bytes of one channel."""
    rounds = (size - 1).bit_length()
    return rounds > 1 and bytes // size > chunk_bytes // (rounds - 1)


def tree(size: int, root: int, bytes: int, offset: int = 0) -> list[Transfer]:
    """A binomial tree. In step k all that have the bytes send them: the first of two halves to the other's first."""
    steps, reach = [], 1 << max(0, size - 1).bit_length()
    for step in range((size - 1).bit_length()):
        half = reach >> 1
        for place in range(0, size, reach):
            if place + half < size:
                sender, receiver = (place + root) % size, (place + half + root) % size
                steps.append(Transfer(step, sender, receiver, offset, offset, bytes))
        reach = half
    return steps


def chain(size: int, root: int, bytes: int, chunk_bytes: int = CHUNK_BYTES, offset: int = 0) -> list[Transfer]:
    """Chunk i reaches place p in step i + p - 1."""
    steps = []
    for number, at in enumerate(range(0, max(1, bytes), chunk_bytes)):
        for place in range(size - 1):
            sender, receiver = (place + root) % size, (place + 1 + root) % size
            steps.append(
                Transfer(number + place, sender, receiver, offset + at, offset + at, min(chunk_bytes, bytes - at))
            )
    return sorted(steps, key=lambda one: one.step)
