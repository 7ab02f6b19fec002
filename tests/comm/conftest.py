# SPDX-License-Identifier: Apache-2.0
"""The layer `comm`: ranks are threads of this process, or processes of this host, on the software NIC."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gda
from gda import attach, config
from gda.comm import Team, threads
from gda.errors import DeadlineError, PeerLostError

PATIENCE_S = 60.0  # for a world of threads: this bounds a test, and no test waits for it


@pytest.fixture(autouse=True)
def nobody_launched_this(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_NIC", "software")
    ours = ("GDA_BOOTSTRAP", "GDA_RANK", "GDA_SIZE", "GDA_RENDEZVOUS")
    for name in (*ours, "RANK", "WORLD_SIZE", "PMI_RANK", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert config.launcher() == ""


def world(size: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work(rank)` answers, or raises, in a thread for each rank."""
    answers: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            answers[rank] = work(rank)
        except BaseException as error:  # also what pytest raises when an assertion of a rank fails
            answers[rank] = error

    ranks = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(PATIENCE_S)
        assert not rank.is_alive(), "a rank hangs"
    return answers


def whole_world(size: int, work: Callable[[int], Any]) -> list[Any]:
    """The same where no rank may fail."""
    answers = world(size, work)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    # The others only miss the one that failed first.
    for answer in sorted(failed, key=lambda one: isinstance(one, DeadlineError | PeerLostError)):
        raise answer
    return answers


@pytest.fixture
def nothing_left() -> Iterator[None]:
    software = attach.software_nic()
    before = software.objects()
    yield
    assert software.objects() == before


def teams(size: int, work: Callable[[Team], Any], **options: Any) -> list[Any]:
    """What work(team) answers in each of `size` ranks."""
    carriers = threads(size)

    def rank(number: int) -> Any:
        with gda.init(carriers[number], deadline_s=30, **options) as team:
            answer = work(team)
            team.barrier()
            return answer

    return whole_world(size, rank)


def free_port() -> int:
    """Of this host; free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
