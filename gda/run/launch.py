# SPDX-License-Identifier: Apache-2.0
"""`Launch`: a kernel under way, and the word that it reports into. Made by executor; the same on both targets."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gda import attach, notes, present
from gda.errors import ArgumentError, DeadlineError, DeviceStatusError
from gda.run.status import Explainer, status_error
from gda.run.status_word import PinnedStatus, StatusWord

__all__ = ["Launch", "Run", "status_word"]

_POLL_S = 0.05  # how often a waiting Python looks for signals (Ctrl-C)
_GRACE_S = 2.0  # for blocks to end after they were told to


class Run(Protocol):
    """A kernel under way, on either target."""

    error: str  # why it failed, once it has ended; empty when it did not
    is_captured: bool  # part of a CUDA graph: it runs with each replay, and its ends are not seen

    def wait(self, timeout_s: float) -> bool:
        """Wait at most so long; whether it has ended."""
        ...

    def abort(self) -> bool:
        """Make it end soon; False where that is not possible."""
        ...


@functools.lru_cache(maxsize=1024)
def _sign(name: str, where: str) -> present.Sign:
    """What those who look from outside see of each launch of a kernel (gda/tools/live.py)."""
    return present.Sign({"kernel": name, "where": where})


class Launch:
    """A kernel that was started. Keeps its arguments alive until it has ended.

    One that was captured into a CUDA graph (`is_captured`) runs whenever the graph is replayed: keep this object as
    long as the graph, and after a replay that has come to its end ask check().
    """

    def __init__(
        self, name: str, run: Run, status: StatusWord | None, deadline_s: float, where: str, *,
        explainers: Sequence[Explainer] = (), number: int = 0,
    ) -> None:  # fmt: skip
        self.name = name
        self._number = number  # in a trace; 0: none is recorded, or its end was noted
        self._run, self._status, self._deadline_s, self._where = run, status, deadline_s, where
        self._explainers = explainers
        self._given_up = False
        self.is_captured = run.is_captured
        if run.is_captured and status is not None:
            status.keep()
        self._sign = _sign(name, where)
        self._shown = None if run.is_captured else self._sign.show()  # captured: it is not under way

    def __del__(self) -> None:
        self._hide()

    def _hide(self) -> None:
        shown, self._shown = self._shown, None
        self._sign.hide(shown)

    def done(self) -> bool:
        """Whether the kernel has ended; never waits."""
        return not self._given_up and self._ended(0)

    def wait(self, deadline_s: float | None = None, *, meanwhile: Callable[[], object] | None = None) -> None:
        """Wait for the end, at most `deadline_s` seconds from now (default: the Kernel's deadline_s).

        `meanwhile` is called every 50 ms as long as it lasts.
        Raises DeadlineError when the kernel has not ended (it is given up then), what the kernel reported through
        `gda_status* status`, or DeviceStatusError when its threads blocked each other.
        """
        if self.is_captured:
            raise ArgumentError(
                f"kernel {self.name} was captured: it has not run, and its ends are not seen here",
                "launch the graph, synchronize its stream, then check() raises what the kernel has reported",
            )
        limit = self._deadline_s if deadline_s is None else deadline_s
        end = time.monotonic() + limit
        if self._given_up:
            raise DeadlineError(f"kernel {self.name} was given up before")
        if self._number:
            notes.note("WAIT", self.name, index=self._number)
        try:
            while not self._ended(min(_POLL_S, max(0.0, end - time.monotonic()))):
                if time.monotonic() >= end:
                    self._give_up(limit)
                if meanwhile is not None:
                    meanwhile()
        except KeyboardInterrupt:
            self._run.abort()
            raise
        if self._run.error:
            raise DeviceStatusError(
                f"kernel {self.name}: {self._run.error}",
                advice="all threads of a block that have not ended must reach the same barrier, "
                "and all lanes of a mask the same warp operation",
            )
        self.check()

    def check(self) -> None:
        """Raise what the kernel has reported so far; never waits, and what still runs may report more.

        For launches in a stream or graph of yours, which you have synchronized. Of a captured kernel the report is
        taken away: the next replay begins without one.
        """
        attach.check_complaints()
        if self._status is not None and (word := self._status.read()):
            if self.is_captured:
                self._status.clear()
            raise status_error(word, self.name, self._explainers)

    def _ended(self, timeout_s: float) -> bool:
        if not self._run.wait(timeout_s):
            return False
        self._hide()
        if self._number:
            notes.note("ENDED", self.name, index=self._number)
            self._number = 0
        return True

    def _give_up(self, limit: float) -> None:
        self._given_up = True
        stopped = self._run.abort() and self._ended(_GRACE_S)
        left = "" if stopped else "; some of its threads do not stop and are left behind, with the memory they use"
        raise DeadlineError(
            f"kernel {self.name} on {self._where} did not end within {limit:g} s and was given up{left}",
            advice="if it waits for the NIC, look at the queue pair (gda.inspect) and give gda_wait a deadline; "
            "if it needs longer, raise Kernel.deadline_s",
        )


def status_word(target: str) -> StatusWord:
    """A zero word where a kernel of this target can report."""
    if target == "host":
        return StatusWord()
    from gda.run.cuda import status_words

    return PinnedStatus(status_words())
