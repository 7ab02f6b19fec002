# SPDX-License-Identifier: Apache-2.0
"""Garbage is closed when its thread holds no lock: closed in the middle of one, threads had waited in a circle."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator

import pytest

from gda.locks import Busy, Lock, when_free

LIMIT_S = 20.0


class Thing:
    """Part of a circle, so that only the garbage collector frees it."""

    def __init__(self, log: list[str], name: str = "closed") -> None:
        self.itself = self
        weakref.finalize(self, when_free, lambda: log.append(name))


@pytest.fixture(autouse=True)
def collector_by_hand() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_garbage_is_closed_at_once_where_no_lock_is_held() -> None:
    log: list[str] = []
    Thing(log)
    gc.collect()
    assert log == ["closed"]


def test_garbage_waits_for_the_last_lock_of_its_thread() -> None:
    log: list[str] = []
    outer, inner = Lock(), Lock()
    Thing(log)
    with outer:
        with inner, outer:
            gc.collect()
        assert log == []
    assert log == ["closed"]
    Thing(log)
    with Busy():
        gc.collect()
        assert log == ["closed"]
    assert log == ["closed"] * 2


def test_a_lock_of_another_thread_delays_nothing() -> None:
    log: list[str] = []
    held, go_on = threading.Event(), threading.Event()
    lock = Lock()

    def hold() -> None:
        with lock:
            held.set()
            go_on.wait(LIMIT_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(LIMIT_S)
    assert not lock.take(0) and not lock.take(0.01)
    Thing(log)
    gc.collect()
    assert log == ["closed"]
    go_on.set()
    holder.join(LIMIT_S)
    assert lock.take(0)
    lock.give()


def test_what_one_finalizer_raises_is_told_and_the_next_runs(capsys: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []

    def fail() -> None:
        raise ValueError("a closer failed")

    lock = Lock()
    with lock:
        when_free(fail)
        when_free(lambda: log.append("second"))
        assert log == []
    assert log == ["second"]
    assert "a closer failed" in capsys.readouterr().err


def test_a_forked_child_finds_locks_free_that_other_threads_held() -> None:
    held, go_on = threading.Event(), threading.Event()
    theirs, own = Lock(), Lock()

    def hold() -> None:
        with theirs:
            held.set()
            go_on.wait(LIMIT_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(LIMIT_S)
    with own:
        child = os.fork()
        if child == 0:
            fine = theirs.take(5) and own.take(0)
            os._exit(0 if fine else 1)
    go_on.set()
    holder.join(LIMIT_S)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
