# SPDX-License-Identifier: Apache-2.0
"""Signals: 64-bit words on every rank that say how far a peer is. Made by Team.signals().

Document: docs/programs.md, "Signals"; in kernels: cuda/gda/comm.h over signal.h. A signal is never seen before the
bytes that were put to the same rank by the same queue before it: its memory is registered with strict ordering.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gda import formats
from gda.comm.arguments import CALL_S, one_of, seconds, whole
from gda.comm.bootstrap import lost
from gda.comm.kernels import kernels_of
from gda.comm.part import Part, same_pieces
from gda.comm.window import Window, which
from gda.errors import ArgumentError, DeadlineError, OutOfBoundsError
from gda.nic import Memory
from gda.nic.lifetime import working

if TYPE_CHECKING:
    from gda.comm.team import Team

__all__ = ["Signals"]

_WORD = 8
_WORDS = 1 << 64  # they go round
# How far ahead of the value a signal is, and what it did not do at the deadline.
_COMPARISONS: dict[str, tuple[Callable[[int], bool], str]] = {
    ">=": (lambda ahead: ahead < _WORDS // 2, "reach"),
    "==": (lambda ahead: ahead == 0, "become"),
    "!=": (lambda ahead: ahead != 0, "leave"),
}
_OPERATIONS = {"add": "GDA_SIGNAL_ADD", "set": "GDA_SIGNAL_SET"}
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.00002, 0.005
_LOOK_S = 0.1  # how often a wait looks whether a rank has ended


class Signals(Window):
    """A window of `count` signals, all `start` at first. Options: `placement` "host" or "gpu".

    `epochs` are how far this rank has waited (wait_next, and gda_wait_next_here in kernels); they lie behind the
    signals, out of others' reach. Numbers go round after 2^64, and *reached* means at most 2^63 - 1 behind.
    """

    _call = "signals"

    def __init__(self, team: Team, count: int, *, placement: str = "host", start: int = 0) -> None:
        self.count = count = whole("count", count, 1)
        start = whole("start", start)
        # No rights but these, and above all no relaxed ordering: a signal could be seen before its data.
        access: tuple[str, ...] = ("local_write", "remote_write", "remote_read")
        if team.nic.capabilities.atomic:
            access += ("remote_atomic",)
        super().__init__(team, 2 * count * _WORD, placement=placement, access=access)
        try:
            self.memory.write(0, (start % _WORDS).to_bytes(_WORD, "little") * 2 * count)
            self.bytes = count * _WORD  # the epochs are no part of what others see
            self.remote = [dataclasses.replace(one, bytes=self.bytes) for one in self.remote]
            self._words_for_fetching: list[Memory] = []
            team.bootstrap.barrier()  # nobody signals before all have begun with `start`
        except BaseException:
            self._resources.close()
            raise

    def __repr__(self) -> str:
        return f"<{self.count} signals on each of {self.team.size} ranks>"

    def read(self, index: int) -> int:
        """This rank's signal as it is now."""
        self._resources.check()
        return int.from_bytes(self.memory.read(self._offset(index), _WORD), "little")

    @working
    def signal(
        self, peer: int, index: int, value: int = 1, operation: str = "add", *, queue: int = 0,
        deadline_s: float = CALL_S,
    ) -> None:  # fmt: skip
        """Add `value` to a signal of the peer, or "set" it, behind all that was posted to that queue before."""
        word, limit = self._word(peer, operation), seconds("deadline_s", deadline_s)
        at, value = self._offset(index) // _WORD, whole("value", value) % _WORDS
        with self.team.naming(peer):
            kernels_of("comm").gda_kernel_signal_to.start[1, 1](
                self.team, peer, which(queue), self, at, value, word, int(limit * 1e9)
            ).wait(limit + 1)

    @working
    def put_signal(
        self, peer: int, index: int, to: Part, source: Part | Memory | None = None, *, value: int = 1,
        operation: str = "add", queue: int = 0, deadline_s: float = CALL_S,
    ) -> None:  # fmt: skip
        """Put `source` to a part of another window at the peer, with a signal behind it (one piece: one submission)."""
        word, limit = self._word(peer, operation), seconds("deadline_s", deadline_s)
        at, value, queue = self._offset(index) // _WORD, whole("value", value) % _WORDS, which(queue)
        if not isinstance(to, Part):
            raise ArgumentError(f"{type(to).__name__} is no part of a window", "name one: window[2:5], for example")
        if to.window.team is not self.team:
            raise ArgumentError(
                f"{to.window!r} is of another team than these signals", "put to a window of the team that has them: "
                "ranks of two teams are other processes, and two NICs have no order between them",
            )  # fmt: skip
        there, here, memory = to.window._checked(peer, to, source, "remote_write")
        count, bytes, stride, own_stride = same_pieces(there, here)
        behind = self, at, value, word, int(limit * 1e9)
        with self.team.naming(peer):
            if count == 1:
                launch = kernels_of("comm").gda_kernel_put_signal_to.start[1, 1](
                    self.team, peer, queue, there.window, there.offset, memory, here.offset, bytes, *behind
                )
            else:
                launch = kernels_of("comm").gda_kernel_put_strided_signal_to.start[1, 1](
                    self.team, peer, queue, there.window, there.offset, stride, memory, here.offset, own_stride, count,
                    bytes, *behind,
                )  # fmt: skip
            launch.wait(limit + 1)

    @working
    def fetch_add(self, peer: int, index: int, value: int = 1, *, queue: int = 0, deadline_s: float = CALL_S) -> int:
        """Add to a signal of the peer; what it was before. So a counter hands out each number once."""
        self._word(peer, "add")
        limit = seconds("deadline_s", deadline_s)
        at, value = self._offset(index) // _WORD, whole("value", value) % _WORDS
        try:  # a word of this call's own: threads may take numbers at once
            word = self._words_for_fetching.pop()
        except IndexError:
            word = Memory.allocate(self.team.nic, _WORD, access=("local_write",))
            self._resources.callback(word._resources.close)
        with self.team.naming(peer):
            kernels_of("comm").gda_kernel_fetch_add_to.start[1, 1](
                self.team, peer, which(queue), word, self, at, value, int(limit * 1e9)
            ).wait(limit + 1)
        before = int.from_bytes(word.read(0, _WORD), "little")
        self._words_for_fetching.append(word)  # not one whose answer may still come: of a call that failed
        return before

    def wait(
        self, index: int, value: int, until: str = ">=", *, peer: int | None = None, deadline_s: float = CALL_S
    ) -> int:
        """Wait until this rank's signal has reached `value` (">="), is that ("==") or is not ("!="); what it is then.

        Raises PeerLostError when `peer` is gone meanwhile (None: when any rank is lost, since any may signal; one that
        closed its team in peace is not waited for, and not missed), DeadlineError with the value last seen.
        """
        self._offset(index)
        value, limit = whole("value", value), seconds("deadline_s", deadline_s)
        holds, doing = _COMPARISONS[one_of("until", until, _COMPARISONS)]
        peer = None if peer is None else self.team.checked_rank(peer)
        end, look_at = time.monotonic() + limit, time.monotonic() + _LOOK_S
        pause_s = _FIRST_PAUSE_S
        while True:
            seen = self.read(index)
            if holds((seen - value) % _WORDS):
                return seen
            now = time.monotonic()
            if now >= look_at or now >= end:
                look_at = now + _LOOK_S
                gone = [one.rank for one in self.team.lost()] if peer is None else [peer]
                for rank in gone:
                    why = self.team.bootstrap.fate(rank)
                    if why and self.read(index) == seen:  # it did not come just before the end
                        raise lost(
                            self.team.ranks[rank], f"{why}; signal {index} is {seen}, waited for {until} {value}"
                        )
            if now >= end:
                error = DeadlineError(
                    f"signal {index} of rank {self.team.rank} is {seen}: it did not {doing} {value} in {deadline_s} s",
                    advice="see that a rank signals it, and that all use the same window and index",
                )
                error.rank = peer
                raise error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    @property
    def epochs(self) -> list[int]:
        """For each signal, how far this rank has waited."""
        self._resources.check()
        data = self.memory.read(self.count * _WORD, self.count * _WORD)
        return [int.from_bytes(data[at : at + _WORD], "little") for at in range(0, len(data), _WORD)]

    def wait_next(self, index: int, step: int = 1, *, peer: int | None = None, deadline_s: float = CALL_S) -> int:
        """Wait for `step` more than what this rank has waited for so far: rolling epochs, never set back to zero."""
        at = self._offset(index) + self.count * _WORD
        value = (int.from_bytes(self.memory.read(at, _WORD), "little") + whole("step", step, 0)) % _WORDS
        seen = self.wait(index, value, peer=peer, deadline_s=deadline_s)
        self.memory.write(at, value.to_bytes(_WORD, "little"))
        return seen

    def _mine(self, target: str) -> bytes:
        layout = formats.layouts["gda_mr"]
        mine = layout.unpack(super()._mine(target))
        return layout.pack(**mine | {"bytes": self.bytes, "flags": mine["flags"] | int(formats.GDA_MR_EPOCHS)})

    def _offset(self, index: int) -> int:
        try:
            return whole("index", index, 0, self.count - 1) * _WORD
        except ArgumentError:
            raise OutOfBoundsError(f"signal {index!r} of {self.count}: they count from 0 to {self.count - 1}") from None

    def _word(self, peer: int, operation: str) -> int:
        one_of("operation", operation, _OPERATIONS)
        if operation == "add":
            self.team.check_answered('a signal that is added to ("add")')
        self.check_right(peer, "remote_atomic" if operation == "add" else "remote_write")
        return int(getattr(formats, _OPERATIONS[operation]))
