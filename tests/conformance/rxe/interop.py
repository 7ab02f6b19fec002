# SPDX-License-Identifier: Apache-2.0
"""The software NIC and the kernel's soft-RoCE talk to each other: every operation, each side as requester.

The same program (subject.py, pyverbs, unmodified libibverbs) runs in the guest and on the host; between them is nothing
but Ethernet frames. What a message carried is checked where it was read and where it was written. With loss, each side
loses one packet in a hundred of what it sends: the guest by netem, the software NIC by its own faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import cable
from .guest import Guest
from .remote import PROGRAM, Local, Remote

HOST, GUEST = "10.77.0.1", "10.77.0.2"
MTU = 1024  # what fits into the guest's netdev
REGION = 1 << 17
SIZES = (1, 1000, 1024, 1025, 10000, 65539)
VERBS = ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ", "SEND", "SEND_WITH_IMM")
ATOMICS = ("ATOMIC_FETCH_AND_ADD", "ATOMIC_CMP_AND_SWP")
IMMEDIATE = 0x0A0B0C0D
LIMIT_S = 60  # of one message
ROUNDS = {False: 1, True: 3}


@dataclass(frozen=True)
class Combination:
    """What is done, who asks for it, and whether packets are lost."""

    verb: str
    requester: str  # kernel, software
    loss: bool

    def __str__(self) -> str:
        return f"{self.verb.lower()} by {self.requester}{', 1 % loss' if self.loss else ''}"


COMBINATIONS = [
    Combination(verb, requester, loss)
    for loss in (False, True)
    for requester in ("software", "kernel")
    for verb in (*VERBS, *ATOMICS)
]


class World:
    """A guest, and the software NIC's program at the other end of its cable: one without loss, or one with."""

    def __init__(self, directory: Path, environment: dict[str, str], ports: tuple[int, int], kernel: Remote) -> None:
        self._directory, self.kernel = directory, kernel
        near, far = ports
        self._environment = {**environment, "GDA_SIM_ETHERNET": f"{near}:{far}", "GDA_SIM_ADDRESS": HOST}

    @contextmanager
    def software(self, loss: bool) -> Iterator[Remote]:
        """Run the program on the software NIC; each side loses one packet in a hundred if `loss`."""
        place = self._directory / ("lossy" if loss else "plain")
        place.mkdir()
        faults = {"GDA_SIM_FAULTS": "drop=1%,seed=1"} if loss else {}
        self.kernel.run(command="ip neigh flush all")  # another program may have another MAC address
        if loss:
            self.kernel.run(command="tc qdisc add dev eth0 root netem loss 1% limit 100000")
        try:
            with Local(place, {**self._environment, **faults}) as remote:
                remote.hello(address=HOST)
                yield remote
                remote.stop()
        finally:
            if loss:
                self.kernel.run(command="tc qdisc del dev eth0 root")

    def lost(self) -> int:
        """How many packets the guest has dropped on their way out."""
        said = self.kernel.run(command="tc -s qdisc show dev eth0")
        found = re.search(r"dropped (\d+)", said)
        return int(found[1]) if found else 0


@contextmanager
def world(directory: Path, environment: dict[str, str]) -> Iterator[World]:
    """Boot a guest. `environment` is that of a program on the software NIC."""
    ports = cable.ports(2)
    share = directory / "share"
    share.mkdir()
    script = f"/usr/bin/python3 {PROGRAM} {Guest.SHARE}"
    with Guest(share, script, port=ports[1], peer_port=ports[0], address=GUEST, mac="52:54:00:00:00:02") as guest:
        kernel = Remote(share, guest.alive)
        kernel.hello(address=GUEST, limit_s=240)
        yield World(directory, environment, (ports[0], ports[1]), kernel)
        kernel.stop()
        status = guest.exit_status()
        assert status == 0, guest.console()


def exchange(name: str, ends: tuple[Remote, Remote], verb: str, rounds: int = 1) -> int:
    """Do one operation from the first end to the second with each size; returns how many messages went right."""
    asking, answering = ends
    place = _connect(name, ends)[1]
    done = 0
    for seed in range(rounds):
        if verb in ATOMICS:
            done += _atomic(name, ends, verb, place, seed)
            continue
        for size in SIZES:
            _message(name, ends, verb, place, size=size, seed=seed)
            done += 1
    for end in (asking, answering):
        end.forget(name)
    return done


def _connect(name: str, ends: tuple[Remote, Remote]) -> list[dict[str, int]]:
    places = [end.make(name, size=REGION) for end in ends]
    for end, other in ((0, 1), (1, 0)):
        ends[end].connect(
            name, address=places[other]["address"], qpn=places[other]["qpn"], rq_psn=0xFFFFF0 + other,
            sq_psn=0xFFFFF0 + end, mtu=MTU, timeout=14,
        )  # fmt: skip
    return places


def _message(name: str, ends: tuple[Remote, Remote], verb: str, place: dict[str, int], *, size: int, seed: int) -> None:
    asking, answering = ends
    source, target = (answering, asking) if verb == "RDMA_READ" else (asking, answering)
    tells = "SEND" in verb or "IMM" in verb
    target.clear(name)
    source.fill(name, offset=0, size=size, seed=seed * 100000 + size)
    if tells:
        answering.receive(name, size=size, offset=0, number=size)
    asking.post(name, opcode=verb, size=size, va=place["va"], rkey=place["rkey"], imm=IMMEDIATE, number=size)
    _completed(asking.wait(name, count=1, seconds=LIMIT_S, limit_s=2 * LIMIT_S), verb, size)
    if tells:
        (told,) = answering.wait(name, count=1, seconds=LIMIT_S, limit_s=2 * LIMIT_S) or [{}]
        _completed([told], verb, size)
        assert told["bytes"] == size, told
        assert told.get("imm") == (IMMEDIATE if "IMM" in verb else None), told
    wrong = target.check(name, offset=0, size=size, seed=seed * 100000 + size)
    assert wrong != -2, f"{verb} of {size} bytes wrote more than that"
    assert wrong == -1, f"{verb} of {size} bytes: byte {wrong} is not what was sent"
    wrong = source.check(name, offset=0, size=size, seed=seed * 100000 + size)
    assert wrong == -1, f"{verb} of {size} bytes changed its source"


def _atomic(name: str, ends: tuple[Remote, Remote], verb: str, place: dict[str, int], seed: int) -> int:
    """Several atomics on one word: each result is the sum of those before it, so none was done twice or never."""
    asking, answering = ends
    add, value, times = 0x0101010101010101, 0x1122334455667788 + seed, 8
    answering.word(name, offset=8, value=value)
    for i in range(times):
        words: dict[str, Any] = {"compare_add": add}
        if verb == "ATOMIC_CMP_AND_SWP":
            right = i % 2 == 0  # every other one compares with what is not there
            words = {"compare_add": value if right else value ^ 1, "swap": value + add}
        asking.word(name, offset=0, value=0)
        asking.post(name, opcode=verb, size=8, va=place["va"] + 8, rkey=place["rkey"], number=i, **words)
        _completed(asking.wait(name, count=1, seconds=LIMIT_S, limit_s=2 * LIMIT_S), verb, 8)
        original = asking.word(name, offset=0)
        assert original == value, f"{verb} {i}: the original is {original:#x}, not {value:#x}"
        if verb != "ATOMIC_CMP_AND_SWP" or right:
            value = (value + add) % (1 << 64)
        found = answering.word(name, offset=8)
        assert found == value, f"{verb} {i}: memory has {found:#x}, not {value:#x}"
    return times


def _completed(completions: list[dict[str, Any]], verb: str, size: int) -> None:
    assert completions and completions[0], f"{verb} of {size} bytes did not complete within {LIMIT_S} s"
    assert completions[0]["status"] == 0, f"{verb} of {size} bytes: {completions[0]}"
