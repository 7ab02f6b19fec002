# SPDX-License-Identifier: Apache-2.0
"""Ranks find each other by every carrier of our own; who is not due, dead or late is named, and nobody is half in."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gda.comm import bootstrap, record, rendezvous
from gda.comm.bootstrap import Bootstrap, Identity
from gda.comm.record import NO_WORLD, Record
from gda.errors import ArgumentError, BootstrapError, DeadlineError, PeerLostError
from tests.comm.conftest import free_port, whole_world, world


@pytest.fixture(params=["directory", "tcp", "threads"])
def carriers(request: pytest.FixtureRequest, tmp_path: Path):
    """Makes the carrier of a rank of a world of so many."""
    place = str(tmp_path / "meet") if request.param == "directory" else f"tcp://127.0.0.1:{free_port()}"
    shared: dict[int, list[bootstrap.Carrier]] = {}
    lock = threading.Lock()

    def make(rank: int, size: int, deadline_s: float = 20.0) -> bootstrap.Carrier:
        if request.param != "threads":
            return rendezvous.carrier(rank, size, place, deadline_s)
        with lock:
            return shared.setdefault(size, bootstrap.threads(size))[rank]

    return make


@pytest.mark.parametrize("size", [1, 2, 5])
def test_all_learn_what_each_gave(carriers, size: int) -> None:
    def work(rank: int) -> list[list[bytes]]:
        meeting = Bootstrap(carriers(rank, size), deadline_s=20)
        try:
            answers = [meeting.allgather(bytes([rank]) * (rank + n)) for n in range(3)]
            meeting.barrier()
            assert meeting.phase == 6 and [one.rank for one in meeting.ranks] == list(range(size))
            return answers
        finally:
            meeting.close()

    for answers in whole_world(size, work):
        assert answers == [[bytes([r]) * (r + n) for r in range(size)] for n in range(3)]


def test_a_directory_is_empty_afterwards(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        meeting = Bootstrap(rendezvous.carrier(rank, 3, str(tmp_path), 20), deadline_s=20)
        meeting.allgather(b"x")
        meeting.close()

    for _ in range(2):  # and can be used again
        whole_world(3, work)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("by", ["directory", "tcp"])
@pytest.mark.parametrize("order", ["one after the other", "both at once"])
def test_a_program_may_have_several_worlds(tmp_path: Path, by: str, order: str) -> None:
    """In a directory the files of one were taken for those of the next, or taken away."""
    place = str(tmp_path) if by == "directory" else f"tcp://127.0.0.1:{free_port()}"

    def work(rank: int) -> None:
        kept: list[Bootstrap] = []
        for count in range(4):
            meeting = Bootstrap(rendezvous.carrier(rank, 3, place, 20), deadline_s=20)
            assert meeting.allgather(bytes([count])) == [bytes([count])] * 3
            kept.append(meeting)
            if order == "one after the other":
                time.sleep(0.05 * ((rank + count) % 3))  # another is the last one each time
                kept.pop().close()
        for count, meeting in enumerate(kept):
            assert meeting.allgather(bytes([count])) == [bytes([count])] * 3
        for meeting in kept:
            meeting.close()

    whole_world(3, work)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_a_record_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "0.1").mkdir()
    with pytest.raises(BootstrapError, match=r"phase 0: the record of rank 1 cannot be read: .*Is a directory"):
        Bootstrap(rendezvous.carrier(0, 2, str(tmp_path), 1), deadline_s=1)


def test_a_word_that_an_earlier_run_has_left(tmp_path: Path) -> None:
    (tmp_path / "closed.1").touch()
    with pytest.raises(BootstrapError, match=r"phase 0: rank 1 has closed its team.*\n.*an earlier run left that word"):
        Bootstrap(rendezvous.carrier(0, 2, str(tmp_path), 1), deadline_s=1)


@pytest.mark.parametrize("place", ["http://here:80", "TCP://here:80", "file:///tmp/here"])
def test_a_place_that_is_no_place(place: str) -> None:
    """It had been made, as a directory of that name, and the ranks had waited in it."""
    with pytest.raises(ArgumentError, match="is not tcp://HOST:PORT"):
        rendezvous.carrier(0, 2, place, 1)


def test_who_does_not_come_is_named(carriers) -> None:
    with pytest.raises(DeadlineError, match="phase 0: nothing came from rank 1"):
        Bootstrap(carriers(0, 2), deadline_s=0.2)


def test_a_try_that_failed_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DeadlineError):
        Bootstrap(rendezvous.carrier(0, 2, str(tmp_path), 1), deadline_s=0.1)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_exchanged_after_a_failure(carriers) -> None:
    kept: list[Bootstrap] = []

    def work(rank: int) -> str:
        meeting = Bootstrap(carriers(rank, 2), deadline_s=20)
        kept.append(meeting)  # rank 1 does not leave: it only does not come
        if rank == 0:
            with pytest.raises(DeadlineError):
                meeting.allgather(b"", deadline_s=0.1)
            with pytest.raises(BootstrapError, match="has failed before") as caught:
                meeting.barrier()
            assert caught.value.phase == 2
        return "ok"

    assert whole_world(2, work) == ["ok", "ok"]


def test_sizes_that_differ(carriers, request: pytest.FixtureRequest) -> None:
    if "threads" in request.node.name:
        return  # there the size is that of the meeting
    answers = world(2, lambda rank: Bootstrap(carriers(rank, 2 + rank), deadline_s=1))
    assert all(isinstance(answer, (BootstrapError, DeadlineError)) for answer in answers)
    assert any("believes in a world of" in str(answer) for answer in answers)


def test_two_of_one_rank_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "0.1").write_bytes(b"")
    with pytest.raises(BootstrapError, match=r"phase 0, rank 1: its record is in .* already"):
        Bootstrap(rendezvous.carrier(1, 2, str(tmp_path), 1), deadline_s=1)


def test_a_cut_record_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "0.1").write_bytes(Record(record.DATA, NO_WORLD, 1, 2, 0, b"x" * 40).to_bytes()[:-9])
    with pytest.raises(BootstrapError, match="phase 0: the record of rank 1 is cut"):
        Bootstrap(rendezvous.carrier(0, 2, str(tmp_path), 1), deadline_s=1)


def test_a_rank_that_closed_is_not_waited_for(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        meeting = Bootstrap(rendezvous.carrier(rank, 2, str(tmp_path), 20), deadline_s=20)
        if rank == 1:
            return meeting.close()
        with pytest.raises(BootstrapError, match=r"phase 2: rank 1 \(.*\) has closed its team"):
            meeting.barrier()
        return meeting.close()

    whole_world(2, work)


def test_who_comes_too_late_does_not_go_on_alone(carriers) -> None:
    """The record of the rank that had given up was there still: the late one had believed itself connected."""
    gave_up = threading.Event()

    def work(rank: int) -> None:
        meeting = Bootstrap(carriers(rank, 2), deadline_s=20)
        kept.append(meeting)
        if rank == 0:
            with pytest.raises(DeadlineError):
                meeting.barrier(deadline_s=0.1)
            gave_up.set()
        else:
            assert gave_up.wait(20)
            with pytest.raises((DeadlineError, BootstrapError)):
                meeting.barrier(deadline_s=0.3)

    kept: list[Bootstrap] = []
    whole_world(2, work)


@pytest.mark.parametrize("failed", [True, False])
def test_who_has_left_is_not_waited_for(carriers, failed: bool) -> None:
    def work(rank: int) -> None:
        meeting = Bootstrap(carriers(rank, 3), deadline_s=50)
        meeting.barrier()
        if rank == 1:
            meeting.leave(failed)
            if not failed:
                meeting.close()
        else:
            with pytest.raises((PeerLostError, BootstrapError), match=r"left by an exc|has closed its team") as caught:
                meeting.barrier()
            assert caught.value.rank == 1
        left.wait(30)
        meeting.close()

    left = threading.Barrier(3)
    begin = time.monotonic()
    whole_world(3, work)
    assert time.monotonic() - begin < 40  # not at the deadline


FORKING = """
import os, sys
import gda
team = gda.init(deadline_s=30)
if team.rank == 1:
    child = os.fork()
    if child == 0:
        with team:
            sys.exit(0)
    os.waitpid(child, 0)
team.barrier()
print([one.rank for one in team.lost() + team.left()])
team.barrier()
team.close()
"""


def test_what_a_forked_child_does_is_not_the_ranks(tmp_path: Path) -> None:
    """It had left the with block, and the others took the rank for lost."""
    from gda import config

    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", FORKING], env=config.environment_of_rank(rank, 2, str(tmp_path)),
            stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [one.communicate(timeout=60)[0] for one in ranks] == ["[]\n", "[]\n"]
    assert [one.returncode for one in ranks] == [0, 0]


class Own:
    """A carrier of the program's, as docs/howto.md has one, that does not do what it should."""

    name = "own"

    def __init__(self, rank: object = 0, size: object = 1, answer: Callable[[bytes], object] = lambda data: [data]):
        self.rank, self.size, self.answer = rank, size, answer

    def exchange(self, data: bytes, phase: int, deadline_s: float, watch: bootstrap.Watch) -> Any:
        return self.answer(data)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("answer, words", [
    (lambda data: [], "brought 0 records"), (lambda data: [data, data], r"brought 2 records \(bytes\)"),
    (lambda data: ["text"], r"brought 1 records \(str\), not the bytes of 1 ranks"),
    (lambda data: [data[:30]], "is cut"), (lambda data: [b""], "is cut: 0 bytes"),
])  # fmt: skip
def test_a_carrier_that_does_not_bring_what_it_should(answer: Callable[[bytes], object], words: str) -> None:
    assert Bootstrap(Own()).allgather(b"me") == [b"me"]
    with pytest.raises(BootstrapError, match=words):
        Bootstrap(Own(answer=answer))


@pytest.mark.parametrize("rank, size", [(0, 0), (1, 1), (-1, 2), ("0", 1), (0, None)])
def test_a_carrier_without_a_rank(rank: object, size: object) -> None:
    with pytest.raises(ArgumentError, match=r"(rank|size) of the carrier=.* is not a whole number"):
        Bootstrap(Own(rank, size))


def test_names_of_calls() -> None:
    meeting = Bootstrap(bootstrap.threads(1)[0])
    for call in ("", "seventeen letters", "gr\u00f6\u00dfe", None):
        with pytest.raises(ArgumentError, match="call="):
            meeting.allgather(b"", call=call)  # type: ignore[arg-type]
    assert meeting.allgather(b"x", call="sixteen letters.") == [b"x"]


def test_two_threads_with_one_carrier() -> None:
    carrier = bootstrap.threads(2)[0]
    answers = world(2, lambda _: Bootstrap(carrier, deadline_s=1))
    assert any("its record is there already" in str(answer) for answer in answers)


@pytest.mark.parametrize("rank, words", [(1, "which has come already"), (7, "of 3")])
def test_two_of_one_rank_by_tcp(rank: int, words: str) -> None:
    port = free_port()
    hello = Record(record.DATA, NO_WORLD, rank, 3, 0, b"").to_bytes()

    def strangers() -> None:
        for _ in range(2):
            one = rendezvous.TcpCarrier(1, 3, "127.0.0.1", port, 20)
            one._peers[0].sendall(hello)
            kept.append(one)

    kept: list[rendezvous.TcpCarrier] = []
    thread = threading.Thread(target=strangers)
    thread.start()
    with pytest.raises(BootstrapError, match=words):
        Bootstrap(rendezvous.TcpCarrier(0, 3, "127.0.0.1", port, 20), deadline_s=20)
    thread.join()
    for one in kept:
        one.close()


@pytest.mark.parametrize(
    "data, words",
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\nUser-Agent: somebody\r\n\r\n", "is no record of this library"),
        (Record(record.DATA, NO_WORLD, 1, 2, 0, b"x" * 99).to_bytes()[:-20], "is cut"),
    ],
)
def test_foreign_and_cut_records_by_tcp(data: bytes, words: str) -> None:
    port = free_port()

    def stranger() -> None:
        one = rendezvous.TcpCarrier(1, 2, "127.0.0.1", port, 20)
        one._peers[0].sendall(data)
        one.close()

    thread = threading.Thread(target=stranger)
    thread.start()
    with pytest.raises(BootstrapError, match=words):
        Bootstrap(rendezvous.TcpCarrier(0, 2, "127.0.0.1", port, 20), deadline_s=20)
    thread.join()


@pytest.mark.parametrize("what", ["says nothing", "ends at once"])
def test_a_stranger_keeps_nobody_from_coming(what: str) -> None:
    """A port that is looked at: rank 0 had waited for its record to the deadline, or given up."""
    port, strange = free_port(), threading.Event()

    def work(rank: int) -> None:
        if rank == 1:
            assert strange.wait(20)
        meeting = Bootstrap(rendezvous.carrier(rank, 2, f"tcp://127.0.0.1:{port}", 20), deadline_s=20)
        meeting.barrier()
        meeting.close()

    def stranger() -> None:
        one = rendezvous.TcpCarrier(1, 2, "127.0.0.1", port, 20)._peers[0]
        if what == "ends at once":
            one.close()
        strange.set()
        done.wait(30)
        one.close()

    done = threading.Event()
    thread = threading.Thread(target=stranger)
    thread.start()
    begin = time.monotonic()
    try:
        whole_world(2, work)
        assert time.monotonic() - begin < 15
    finally:
        done.set()
        thread.join()


def test_a_long_record_has_a_deadline_too() -> None:
    """What the system's buffers do not hold had been sent without one."""
    port, over = free_port(), threading.Event()

    def work(rank: int) -> None:
        meeting = Bootstrap(rendezvous.carrier(rank, 2, f"tcp://127.0.0.1:{port}", 20), deadline_s=20)
        if rank == 0:
            over.wait(30)
        else:
            with pytest.raises(DeadlineError, match="phase 2: nothing came from rank 0"):
                meeting.allgather(bytes(64 << 20), deadline_s=0.2)
            over.set()
        meeting.close()

    begin = time.monotonic()
    whole_world(2, work)
    assert time.monotonic() - begin < 20


def test_rank_0_that_does_not_listen_is_missed_by_a_deadline() -> None:
    with pytest.raises(DeadlineError, match=r"phase 0: nothing came from rank 0 within 0\.2 s") as caught:
        rendezvous.TcpCarrier(1, 2, "127.0.0.1", free_port(), 0.2)
    assert caught.value.rank == 0 and str(caught.value).count("try:") == 1


DYING = """
import os, signal, sys
from gda.comm import bootstrap
meeting = bootstrap.Bootstrap(bootstrap.find(20), deadline_s=20)
if meeting.rank == 1:
    print("mine is", os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    meeting.allgather(b"", deadline_s=20)
except Exception as error:
    print(type(error).__name__, error.rank, error.pid, flush=True)
"""


@pytest.mark.parametrize("by", ["directory", "tcp"])
def test_a_rank_that_is_killed_is_named(tmp_path: Path, by: str) -> None:
    from gda import config

    place = str(tmp_path / "meet") if by == "directory" else f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-c", DYING]
    ranks = [
        subprocess.Popen(command, env=config.environment_of_rank(rank, 3, place), stdout=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    said = [one.communicate(timeout=60)[0] for one in ranks]
    pid = said[1].split()[-1]
    assert said[0] == said[2] == f"PeerLostError 1 {pid}\n"


def test_identities() -> None:
    own = Identity.own(3)
    assert Identity.from_bytes(own.to_bytes()) == own
    assert own.is_here and not own.is_dead
    gone = subprocess.Popen([sys.executable, "-c", ""])
    before = Identity(0, own.host, own.boot, gone.pid, own.began + 1)
    gone.wait()
    assert before.is_dead
    assert not Identity(0, "elsewhere", "another boot", gone.pid, 1).is_dead  # nothing is known of it
    # In another container of the same host the same number is another process, or none.
    assert own.boot.split()[0] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert not Identity(0, own.host, own.boot.split()[0] + " pid:[1]", gone.pid, own.began + 1).is_dead
    watch = bootstrap.Watch()
    watch.ranks = [before]
    with pytest.raises(PeerLostError, match=f"rank 0 .*process {gone.pid}.* is lost"):
        watch.look([0])


def test_ranks_of_one_process_know_of_each_other_without_a_look_at_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 threads that wait look at 63 each: reading /proc for it took them as long as to connect."""
    own = Identity.own(0)
    monkeypatch.setattr(Path, "read_text", lambda *_: pytest.fail("it was read"))
    monkeypatch.setattr(Path, "readlink", lambda *_: pytest.fail("it was read"))
    assert own.is_here and not own.is_dead and Identity.own(0) == own
    assert Identity(0, own.host, own.boot, own.pid, own.began - 1).is_dead  # another one had this number before
    monkeypatch.undo()
    program = (
        "import os\nfrom gda.comm.bootstrap import Identity\nown = Identity.own(0)\nchild = os.fork()\n"
        "if child == 0:\n    os._exit(0 if Identity.own(0).pid == os.getpid() != own.pid and not own.is_dead else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)  # a child is another


@pytest.mark.parametrize(
    "rank, size, place, words",
    [
        ("1", "", "x", "GDA_SIZE='' is not"), ("-1", "2", "x", "GDA_RANK='-1' is not"), ("2", "2", "x", "rank 2 of 2"),
        ("", "2", "x", "GDA_RANK='' is not"), ("", "2", "", "GDA_RANK='' is not"), ("", "", "x", "GDA_RANK='' is not"),
        ("0", "0", "x", "a world of 0 ranks"),
        ("0", "2", "", "GDA_RENDEZVOUS is not set"), ("0", "2", "tcp://host", "is not tcp://HOST:PORT"),
        ("0", "2", "tcp://host:70000", "is not tcp://HOST:PORT"),
    ],
)  # fmt: skip
def test_wrong_environment(monkeypatch: pytest.MonkeyPatch, rank: str, size: str, place: str, words: str) -> None:
    for name, value in (("GDA_RANK", rank), ("GDA_SIZE", size), ("GDA_RENDEZVOUS", place)):
        monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match=words):
        bootstrap.find()


def test_without_a_launcher_a_process_is_its_own_world() -> None:
    meeting = Bootstrap(bootstrap.find())
    assert (meeting.rank, meeting.size) == (0, 1) and meeting.allgather(b"me") == [b"me"]
