# SPDX-License-Identifier: Apache-2.0
"""What a launch shows to those who look from outside: written cheaply, seen while it runs, gone afterwards."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

from gda import Kernel, present
from gda.tools.outside import Process

FACTS = {"kernel": "one", "where": "here"}


def shown(pid: int = 0) -> list[dict[str, Any]]:
    """The kernels that a process shows."""
    return [facts for _, facts in Process(pid or os.getpid()).shown() if "kernel" in facts and facts["where"] == "here"]


def test_a_sign_is_seen_while_it_is_up_and_with_its_moment() -> None:
    sign = present.Sign(FACTS)
    first, second = sign.show(), sign.show()
    early, late = sorted(facts["since_ns"] for facts in shown())
    assert 0 < early <= late
    assert [facts["kernel"] for facts in shown()] == ["one", "one"]
    sign.hide(first)
    assert [facts["since_ns"] for facts in shown()] == [late]
    sign.hide(second)
    sign.hide(None)
    assert shown() == []


def test_a_sign_uses_its_slots_again_and_gives_them_back() -> None:
    sign = present.Sign(FACTS)
    slots = set()
    for _ in range(50):
        up = sign.show()
        assert up is not None
        slots.add(up[1])
        sign.hide(up)
    assert len(slots) == 1
    up = sign.show()
    del sign
    gc.collect()
    assert shown() == [], "who holds no sign shows nothing"
    assert up is not None and present.Sign(FACTS).show() is not None
    other = present.put({"kernel": "two", "where": "here"})
    assert [facts["kernel"] for facts in shown()].count("two") == 1
    other.drop()


def test_a_forked_child_shows_its_own_and_takes_nothing_from_its_parent() -> None:
    sign = present.Sign(FACTS)
    up = sign.show()
    ready, answer = os.pipe()
    again, wait = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sign.hide(up)  # the parent's: nothing
            mine = sign.show()
            os.write(answer, b"x")
            os.read(again, 1)
            sign.hide(mine)
        finally:
            os._exit(0)
    try:
        os.read(ready, 1)
        assert len(shown()) == 1
        assert len(shown(child)) == 1
    finally:
        os.write(wait, b"x")
        os.waitpid(child, 0)
        for descriptor in (ready, answer, again, wait):
            os.close(descriptor)
        sign.hide(up)
    assert shown() == []


def test_threads_show_at_once() -> None:
    sign = present.Sign(FACTS)
    slots: list[set[int]] = []

    def work() -> None:
        mine = set()
        for _ in range(200):
            up = sign.show()
            assert up is not None
            mine.add(up[1])
            sign.hide(up)
        slots.append(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(slots) == 4 and len(set.union(*slots)) <= 4
    assert shown() == []


def test_a_text_that_is_too_long_is_not_shown_and_does_no_harm() -> None:
    sign = present.Sign({"kernel": "k" * 3000, "where": "here"})
    up, other = sign.show(), present.put({"kernel": "two", "where": "here"})
    assert [facts["kernel"] for facts in shown()] == ["two"]
    sign.hide(up)
    other.drop()


def test_a_launch_is_shown_until_it_has_ended() -> None:
    kernel = Kernel('extern "C" __global__ void nothing(int) {}\n', target="host")
    launch = kernel.nothing.start[1, 1](1)
    launch.wait()
    assert "nothing" not in [facts.get("kernel") for _, facts in Process(os.getpid()).shown()]
