# SPDX-License-Identifier: Apache-2.0
"""One thread closes a NIC while others make things from it: the closer waits, the makers are told, nothing is left."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

import numpy as np
import pytest

import gda.nic
from gda.errors import ClosedError
from gda.nic import lifetime
from gda.nic.lifetime import Owner, Resources, working

LIMIT_S = 30.0


class Parent(Owner):
    def __init__(self) -> None:
        self._own(Resources("parent"))
        self.log: list[str] = []
        self._resources.callback(lambda: self.log.append("parent closed"))


class Slow(Owner):
    """Its maker stands still in the middle until it is let go."""

    def __init__(self, parent: Parent, inside: threading.Event, go_on: threading.Event) -> None:
        self._own(Resources("slow one", parent._resources))
        self._resources.callback(lambda: parent.log.append("first part freed"))
        inside.set()
        assert go_on.wait(LIMIT_S)
        self._resources.callback(lambda: parent.log.append("second part freed"))

    @working
    def work(self, inside: threading.Event, go_on: threading.Event) -> str:
        inside.set()
        assert go_on.wait(LIMIT_S)
        return "done"


def caught(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException | object]]:
    """A thread that calls it, and what came of it."""
    outcome: list[BaseException | object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_the_closer_waits_for_who_makes_and_the_maker_is_told() -> None:
    parent = Parent()
    inside, go_on = threading.Event(), threading.Event()
    maker, made = caught(lambda: Slow(parent, inside, go_on))
    assert inside.wait(LIMIT_S)
    closer, _ = caught(parent.close)
    while not parent.closed:
        time.sleep(0)
    with pytest.raises(ClosedError, match="parent has been closed"):  # and nobody begins anything new
        Slow(parent, threading.Event(), threading.Event())
    assert closer.is_alive() and parent.log == []
    go_on.set()
    maker.join(LIMIT_S)
    closer.join(LIMIT_S)
    assert isinstance(made[0], ClosedError) and "slow one was closed while it was made" in str(made[0])
    assert parent.log == ["second part freed", "first part freed", "parent closed"]


def test_the_closer_waits_for_who_works_on_an_object() -> None:
    parent = Parent()
    ready = threading.Event()
    ready.set()
    slow = Slow(parent, threading.Event(), ready)
    inside, go_on = threading.Event(), threading.Event()
    worker, outcome = caught(lambda: slow.work(inside, go_on))
    assert inside.wait(LIMIT_S)
    closer, _ = caught(parent.close)
    while not parent.closed:
        time.sleep(0)
    assert closer.is_alive() and parent.log == []
    go_on.set()
    worker.join(LIMIT_S)
    closer.join(LIMIT_S)
    assert outcome == ["done"] and parent.log[-1] == "parent closed"
    with pytest.raises(ClosedError):
        slow.work(inside, go_on)


def test_who_closes_the_parent_waits_for_who_closes_a_part() -> None:
    """The part was marked as closed, its closer waited for a worker, and the parent went: EBUSY, and things left."""
    parent = Parent()
    middle = Resources("middle", parent._resources)
    middle.callback(lambda: parent.log.append("middle closed"))
    part = Resources("part", middle)
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        with part.at_work():
            inside.set()
            assert go_on.wait(LIMIT_S)

    worker, _ = caught(work)
    assert inside.wait(LIMIT_S)
    first, _ = caught(middle.close)
    while not middle.closed:
        time.sleep(0)
    second, _ = caught(parent.close)
    second.join(0.1)
    assert second.is_alive() and parent.log == []
    go_on.set()
    for thread in (worker, first, second):
        thread.join(LIMIT_S)
    assert parent.log == ["middle closed", "parent closed"]


def test_who_fails_to_make_it_does_not_wait_for_its_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The closer waits for the maker: they would wait for each other."""
    parent = Parent()
    inside, go_on = threading.Event(), threading.Event()

    class Failing(Slow):
        def __init__(self) -> None:
            super().__init__(parent, inside, go_on)
            self.close()

    maker, _ = caught(Failing)
    assert inside.wait(LIMIT_S)
    closer, _ = caught(parent.close)
    begin = time.monotonic()
    go_on.set()
    maker.join(LIMIT_S)
    closer.join(LIMIT_S)
    assert parent.log[-1] == "parent closed" and time.monotonic() - begin < lifetime.WAIT_S / 2


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "WAIT_S", 0.05)
    parent = Parent()
    inside, go_on = threading.Event(), threading.Event()
    maker, made = caught(lambda: Slow(parent, inside, go_on))
    assert inside.wait(LIMIT_S)
    parent.close()
    assert parent.log == ["first part freed", "parent closed"]
    go_on.set()
    maker.join(LIMIT_S)
    assert isinstance(made[0], ClosedError)
    assert parent.log[-1] == "second part freed", "what came too late is freed at once"


def test_a_maker_that_fails_meanwhile_frees_what_it_has() -> None:
    parent = Parent()
    inside, go_on = threading.Event(), threading.Event()

    class Failing(Slow):
        def __init__(self) -> None:
            super().__init__(parent, inside, go_on)
            raise ValueError("no")

    maker, made = caught(Failing)
    assert inside.wait(LIMIT_S)
    closer, _ = caught(parent.close)
    go_on.set()
    maker.join(LIMIT_S)
    closer.join(LIMIT_S)
    assert isinstance(made[0], ValueError)
    assert parent.log == ["second part freed", "first part freed", "parent closed"]


def test_garbage_that_is_found_in_the_middle_of_closing_awaits_no_other_thread() -> None:
    """Two threads waited in a circle: one for what the other was closing, that one to go on with its closing."""

    class Circle(Owner):
        """Only the collector finds it."""

        def __init__(self) -> None:
            self._own(Resources("circle"))
            self.itself = self

    whole = Circle()
    part, resources = Resources("part", whole._resources), whole._resources
    threads = [threading.Thread(target=part.close, daemon=True)]

    class Finding(ExitStack):
        """Of something else that is being closed; the collector runs in the middle."""

        def pop_all(self) -> Self:
            threads[0].start()
            time.sleep(0.2)  # it is in the middle of closing, too
            gc.collect()
            return super().pop_all()

    other = Resources("other")
    other._stack = Finding()
    del whole
    threads.append(threading.Thread(target=other.close, daemon=True))
    threads[1].start()
    for thread in reversed(threads):
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert part.closed and other.closed and resources.closed


MAKERS: dict[str, Callable[[gda.nic.Nic], object]] = {
    "pair": lambda nic: nic.loopback_pair(depth=16),
    "host queue pair": lambda nic: nic.host_queue_pair(depth=16),
    "allocate": lambda nic: nic.allocate(64),
    "register": lambda nic: nic.register(np.zeros(64)),
    "look": lambda nic: (nic.gids, nic.active_mtu, nic.port_state),
}


@pytest.mark.parametrize("make", MAKERS)
def test_a_nic_is_closed_while_threads_use_it(software, make: str) -> None:
    """Into whatever moment it falls. It once ended in EBUSY, in errors of libibverbs, or in a crash there."""
    before = software.objects()
    for round_number in range(8):
        nic = gda.nic.open()

        def use(nic: gda.nic.Nic = nic) -> None:
            while True:
                MAKERS[make](nic)

        threads = [caught(use) for _ in range(2)]
        time.sleep(0.002 * round_number)
        nic.close()
        for thread, outcome in threads:
            thread.join(LIMIT_S)
            assert isinstance(outcome[0], ClosedError), outcome
        assert software.objects() == before
