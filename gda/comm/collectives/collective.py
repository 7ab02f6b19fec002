# SPDX-License-Identifier: Apache-2.0
"""What the collectives that move data have in common: their signals, one launch for a call, and the steps as data.

Base of the classes of this folder; document: docs/programs.md, "Collectives". The other half, and what the words of the
signals mean: cuda/gda/collectives/call.h.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gda.comm.agreement import agree
from gda.comm.arguments import seconds, whole
from gda.comm.kernels import kernels_of
from gda.comm.signal import Signals
from gda.comm.window import Window
from gda.errors import ArgumentError, ClosedError, CompletionError, DeadlineError, OutOfBoundsError, QueueFullError
from gda.nic import Memory
from gda.nic.lifetime import Owner, Resources, working
from gda.run import Kernel, Launch

if TYPE_CHECKING:
    from gda.comm.team import Team

__all__ = ["Collective", "Transfer", "play", "share_of"]

MOST_CHANNELS = 64
_LAST_WORDS_S = 0.5  # for what a rank had sent before its end
_MARGIN_S = 2.0  # a kernel's own deadlines come first: that of the call, and a queue's for a free slot


def prepare(kernels: Kernel, team: Team, *windows: Window) -> None:
    """Make what a first launch makes, on all ranks: on a GPU that would wait for a kernel which waits for this rank."""
    team.__gda_argument__(kernels.target)
    for window in windows:
        window.__gda_argument__(kernels.target)
    team.bootstrap.barrier()


def finish(team: Team, launch: Launch, limit_s: float, signals: Signals, stop: Iterable[int]) -> None:
    """Wait for a kernel of a collective. When a rank is lost it is told to stop, by the signals `stop` of this rank.

    Not at once: what that rank had sent may be enough. cuda/gda/collectives/patience.h looks there.
    """
    at: float | None = None

    def look() -> None:
        nonlocal at
        lost = team.lost()
        if not lost:
            return
        if at is None:
            at = time.monotonic() + _LAST_WORDS_S
        elif time.monotonic() >= at:
            for word in stop:
                signals.memory.write(8 * word, (lost[0].rank + 1).to_bytes(8, "little"))
            at = float("inf")

    launch.wait(limit_s, meanwhile=look)


def refuse_overlap(sent: Memory, name: str, written: Memory, other: str) -> None:
    """What others write while this rank may still send it would arrive changed."""
    if sent.address < written.address + written.bytes and written.address < sent.address + sent.bytes:
        raise ArgumentError(f"{name} and {other} overlap", "keep what is sent apart from what arrives")


def neighbours(team: Team, alone: bool) -> set[int] | None:
    """Whom a rank is to be connected with, where a ring is all there is; None: all."""
    return {(team.rank + 1) % team.size, (team.rank - 1) % team.size} if alone else None


class Collective(Owner):
    """What a rank has of one collective: `signals`, and `channels`, each a block that carries its share of the bytes.

    Made by all ranks with equal `options`, else by none. `file` names its kernels, in cuda/gda/kernels. `more_words`
    are those of a channel behind its own, `peers` the ranks to be connected with (default: all). `placement` and
    `start` are those of the signals. A call that failed leaves the ranks' words apart: later ones are refused.
    """

    threads = 1  # of each block

    def __init__(
        self, team: Team, what: str, options: dict[str, object], *, file: str = "", more_words: int = 0,
        peers: Iterable[int] | None = None, channels: int = 1, placement: str = "host", start: int = 0,
    ) -> None:  # fmt: skip
        team._resources.check()
        self.team, self.channels, self._what = team, channels, what
        self._own(Resources(what, team._resources))
        self._failed = ""
        self._turn = [True]  # whoever launches has it meanwhile
        self._windows: list[Window] = []
        try:
            self._kernels = kernels_of(file) if file else None
            agree(team.bootstrap, what, {**options, "channels": channels, "start": start})
            team.connect(peers)
            self.channels = channels = whole("channels", channels, 1, MOST_CHANNELS)
            start = whole("start", start)
            self._words = 2 * team.size + 2 + more_words
            self.signals = Signals(team, channels * self._words, placement=placement, start=start)
            self._resources.callback(self.signals._resources.close)
            for word in self._missed_words:
                self.signals.memory.write(8 * word, bytes(8))
        except BaseException:
            self._resources.close()
            raise

    def __repr__(self) -> str:
        return f"<{self._what} of {self.team.size} ranks in {self.channels} channels>"

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """Around what a class adds when it is made. At its end all ranks are ready to launch and to receive."""
        try:
            yield
            if self._kernels is not None:
                prepare(self._kernels, self.team, self.signals, *self._windows)
        except BaseException:
            self._resources.close()
            raise

    def _window(self, data: Any, placement: str = "host") -> Window:
        """A window over `data` (what Window takes), closed with this; or that window, if it is one already."""
        if isinstance(data, Window):
            if data.team is not self.team:
                raise ArgumentError(f"{data!r} is of another team", "make it by this one's window()")
            window = data
        else:
            window = Window(self.team, data, placement=placement)
            self._resources.callback(window._resources.close)
        self._windows.append(window)
        if len(set(window.in_rows)) > 1:
            columns = ", ".join(str(rank) for rank, is_so in enumerate(window.in_rows) if not is_so)
            raise ArgumentError(
                f"the ranks' arrays lie in memory in different orders: in Fortran's that of rank {columns}, in C's the "
                "others", "bytes are moved as they lie: numpy.ascontiguousarray(array) on all ranks",
            )  # fmt: skip
        return window

    def _must_give(self, window: Window, name: str, right: str, but: int | None = None) -> None:
        """Raise ArgumentError, on all ranks, where the window of one (other than `but`) does not give this right."""
        for rank, rights in enumerate(window.rights):
            if right not in rights and rank != but:
                raise ArgumentError(
                    f"the {name} of {self.team.ranks[rank]} is not to be written: it gives "
                    f"{', '.join(rights) or 'no rights'}, but not {right}",
                    "a read-only array cannot take what arrives: give a writable copy, or a window with that right",
                )

    def _piece_bytes(self, window: Window) -> int:
        """Of each of the N equal pieces that a window holds."""
        if not all(window.in_rows):
            raise ArgumentError(
                f"an array of shape {window.memory.shape} in Fortran order: its rows are not in one piece each",
                "pass its transpose (array.T), whose rows are, or numpy.ascontiguousarray(array)",
            )
        if window.bytes % self.team.size:
            raise ArgumentError(
                f"{window.bytes} bytes are not {self.team.size} pieces of one length", "make it N pieces, one a rank"
            )
        return window.bytes // self.team.size

    def _part_of_piece(self, bytes: int | None, piece_bytes: int) -> int:
        """How many of each piece move: all of them, or as many as were asked for."""
        try:
            return piece_bytes if bytes is None else whole("bytes", bytes, 0, piece_bytes)
        except ArgumentError:
            raise OutOfBoundsError(f"{bytes!r} bytes of each piece: one has {piece_bytes}") from None

    @working
    def _launch(self, kernel: str, *arguments: object, deadline_s: float) -> None:
        """One launch of a kernel, a block a channel. In front of `arguments` goes the team, behind them signals and
        deadline.
        """
        if self._failed:
            raise ClosedError(f"this {self._what} has failed before ({self._failed})", "make another, on all ranks")
        deadline_s = seconds("deadline_s", deadline_s, or_zero=False)
        start = getattr(self._kernels, kernel).start[self.channels, self.threads]
        try:
            turn = self._turn.pop()
        except IndexError:
            raise ArgumentError(
                f"another thread is in this {self._what}", "one at a time; make one for each thread, on all ranks"
            ) from None
        with self.team.naming():
            try:
                launch = start(self.team, *arguments, self.signals, int(deadline_s * 1e9))
                finish(self.team, launch, deadline_s + _MARGIN_S, self.signals, self._missed_words)
            except BaseException as error:
                if isinstance(error, OutOfBoundsError) and (told := self._refused(error)) is not None:
                    raise told from error
                self._failed = str(error).split("\n")[0] or type(error).__name__
                if isinstance(error, (CompletionError, DeadlineError, QueueFullError)):
                    error.rank = self._missed()
                raise
            finally:
                self._turn.append(turn)

    def _refused(self, error: OutOfBoundsError) -> OutOfBoundsError | None:
        """What is raised where a kernel refused something and went through all steps: the ranks are still in step."""
        return None

    def _missed(self) -> int | None:
        """The rank that the failed call waited for, as its kernel left it."""
        found = (self.signals.read(word) for word in self._missed_words)
        return next((one - 1 for one in found if one), None)

    @property
    def _missed_words(self) -> range:
        return range(2 * self.team.size, self.channels * self._words, self._words)


# ------------------------------------------------------------------------------------------------- the steps as data
@dataclass(frozen=True)
class Transfer:
    """Bytes that one rank puts to another in one step; those of a step may happen in any order, or at once."""

    step: int
    sender: int
    receiver: int
    source_offset: int
    target_offset: int
    bytes: int


Bytes = npt.NDArray[np.uint8]


def play(transfers: Iterable[Transfer], sources: Sequence[Bytes], targets: Sequence[Bytes]) -> None:
    """Do to memory in Python what the ranks do by puts. In place where `targets` are `sources`."""
    steps: dict[int, list[Transfer]] = {}
    for one in transfers:
        steps.setdefault(one.step, []).append(one)
    for step in sorted(steps):
        moving = [sources[t.sender][t.source_offset : t.source_offset + t.bytes].copy() for t in steps[step]]
        for t, data in zip(steps[step], moving, strict=True):
            targets[t.receiver][t.target_offset : t.target_offset + t.bytes] = data


def share_of(bytes: int, channel: int, channels: int) -> tuple[int, int]:
    """Offset and length of what one of several channels carries: share_of() of call.h."""
    each = (bytes + channels * 128 - 1) // (channels * 128) * 128
    offset = min(channel * each, bytes)
    return offset, min(each, bytes - offset)
