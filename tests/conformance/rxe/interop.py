# SPDX-License-Identifier: Apache-2.0
"""The software NIC and the kernel's soft-RoCE talk to each other: every operation, each side as requester.

The same program (subject.py, pyverbs, unmodified libibverbs) runs in the guest and on the host; between them is nothing
but Ethernet frames. What a message carried is checked where it was read and where it was written. With loss, each side
loses one packet in a hundred of what it sends: the guest by netem, the software NIC by its own faults. RC must then
deliver all the same; what UC and UD deliver is judged by streams.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from . import cable
from .guest import Guest
from .remote import PROGRAM, Local, Remote

ADDRESSES = {"IPv4": ("10.77.0.1", "10.77.0.2"), "IPv6": ("fd77::1", "fd77::2")}  # of host and guest
NETDEV_MTU = 9000  # a path MTU of 4096 fits
REGION = 1 << 17
GRH_BYTES = 40  # before what a datagram carried
SENDS = ("SEND", "SEND_WITH_IMM")
WRITES = ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM")
ATOMICS = ("ATOMIC_FETCH_AND_ADD", "ATOMIC_CMP_AND_SWP")
VERBS = {"RC": (*WRITES, "RDMA_READ", *SENDS, *ATOMICS), "UC": (*WRITES, *SENDS), "UD": SENDS}
IMMEDIATE = 0x0A0B0C0D
LIMIT_S = 60  # of one message
ROUNDS = {False: 1, True: 3}


@dataclass(frozen=True)
class Combination:
    """What is done, who asks for it, over what, and whether packets are lost."""

    verb: str
    requester: str  # kernel, software
    service: str = "RC"
    network: str = "IPv4"
    mtu: int = 1024  # of the path; UD has the port's
    loss: bool = False

    def __str__(self) -> str:
        words = [f"{self.verb.lower()} by {self.requester}"]
        words += [self.service] if self.service != "RC" else []
        words += [self.network] if self.network != "IPv4" else []
        words += [f"MTU {self.mtu}"] if self.mtu != 1024 and self.service != "UD" else []
        return ", ".join(words + ["1 % loss"] * self.loss)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of messages: less than a packet, exactly one, a byte more, many."""
        around = (1, self.mtu - 24, self.mtu)
        return around if self.service == "UD" else (*around, self.mtu + 1, 10000, 65539)

    @property
    def head(self) -> int:
        """Bytes in a receive before what was sent."""
        return GRH_BYTES if self.service == "UD" else 0


# Loss is a matter of the transport, so it is tried over one network and one path MTU.
SETS = [
    {"service": "RC"}, {"service": "RC", "mtu": 4096}, {"service": "RC", "network": "IPv6"},
    {"service": "UC"}, {"service": "UC", "network": "IPv6"},
    {"service": "UD", "mtu": 4096}, {"service": "UD", "mtu": 4096, "network": "IPv6"},
    {"service": "RC", "loss": True}, {"service": "UC", "loss": True}, {"service": "UD", "mtu": 4096, "loss": True},
]  # fmt: skip
COMBINATIONS = [
    Combination(verb, requester, **of)  # type: ignore[arg-type]
    for of in SETS
    for requester in ("software", "kernel")
    for verb in VERBS[str(of["service"])]
]


class World:
    """A guest, and the software NIC's program at the other end of its cable: one without loss, or one with."""

    def __init__(self, directory: Path, environment: dict[str, str], ports: tuple[int, int], kernel: Remote) -> None:
        self._directory, self.kernel = directory, kernel
        near, far = ports
        self._addresses = [host for host, _ in ADDRESSES.values()]
        words = {"GDA_SIM_ETHERNET": f"{near}:{far}", "GDA_SIM_ADDRESS": ",".join(self._addresses)}
        self._environment = {**environment, **words}

    @contextmanager
    def software(self, loss: bool) -> Iterator[Remote]:
        """Run the program on the software NIC; each side loses one packet in a hundred if `loss`."""
        place = self._directory / ("lossy" if loss else "plain")
        place.mkdir()
        faults = {"GDA_SIM_FAULTS": "drop=1%,seed=1"} if loss else {}
        for family in ("-4", "-6"):  # another program may have another MAC address
            self.kernel.run(command=f"ip {family} neigh flush all")
        if loss:
            self.kernel.run(command="tc qdisc add dev eth0 root netem loss 1% limit 100000")
        try:
            with Local(place, {**self._environment, **faults}) as remote:
                remote.hello(addresses=self._addresses)
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
    addresses = [guest for _, guest in ADDRESSES.values()]
    with Guest(
        share, script, port=ports[1], peer_port=ports[0], address=addresses[0], address6=addresses[1],
        mac="52:54:00:00:00:02", mtu=NETDEV_MTU,
    ) as guest:  # fmt: skip
        kernel = Remote(share, guest.alive)
        kernel.hello(addresses=addresses, limit_s=240)
        yield World(directory, environment, (ports[0], ports[1]), kernel)
        kernel.stop()
        status = guest.exit_status()
        assert status == 0, guest.console()


def exchange(c: Combination, ends: tuple[Remote, Remote]) -> None:
    """Do one operation from the first end to the second with each size; everything must arrive."""
    with connected(c, ends) as place:
        for seed in range(ROUNDS[c.loss]):
            if c.verb in ATOMICS:
                _atomic(c, ends, place, seed)
                continue
            for size in c.sizes:
                _message(c, ends, place, size=size, seed=seed)


@contextmanager
def connected(c: Combination, ends: tuple[Remote, Remote]) -> Iterator[dict[str, int]]:
    """A queue pair at each end while in the context; gives the number and region of the second."""
    name, addresses = str(c), requester_first(c)
    places = [end.make(name, size=REGION, service=c.service) for end in ends]
    for end, other in ((0, 1), (1, 0)):
        ends[end].connect(
            name, address=addresses[other], qpn=places[other]["qpn"], rq_psn=0xFFFFF0 + other, sq_psn=0xFFFFF0 + end,
            mtu=c.mtu, timeout=14,
        )  # fmt: skip
    yield places[1]
    for end in ends:
        end.forget(name)


def requester_first(c: Combination) -> tuple[str, str]:
    """Addresses of requester and responder."""
    host, guest = ADDRESSES[c.network]
    return (host, guest) if c.requester == "software" else (guest, host)


def _message(c: Combination, ends: tuple[Remote, Remote], place: dict[str, int], *, size: int, seed: int) -> None:
    asking, answering = ends
    name, verb = str(c), c.verb
    source, target = (answering, asking) if verb == "RDMA_READ" else (asking, answering)
    tells = "SEND" in verb or "IMM" in verb
    pattern = {"size": size, "seed": seed * 100000 + size}
    target.clear(name)
    source.fill(name, offset=0, **pattern)
    if tells:
        answering.receive(name, size=size + c.head, offset=0, number=size)
    asking.post(name, opcode=verb, size=size, va=place["va"], rkey=place["rkey"], imm=IMMEDIATE, number=size)
    completed(asking.wait(name, count=1, seconds=LIMIT_S, limit_s=2 * LIMIT_S), verb, size)
    if tells:
        (told,) = answering.wait(name, count=1, seconds=LIMIT_S, limit_s=2 * LIMIT_S) or [{}]
        completed([told], verb, size)
        assert told["bytes"] == size + c.head, told
        assert told.get("imm") == (IMMEDIATE if "IMM" in verb else None), told
    wrong = target.check(name, offset=c.head, **pattern)
    # Nobody tells that a write over UC has arrived.
    deadline = time.monotonic() + (LIMIT_S if c.service == "UC" and not tells else 0)
    while wrong >= 0 and time.monotonic() < deadline:
        wrong = target.check(name, offset=c.head, **pattern)
    assert wrong != -2, f"{verb} of {size} bytes wrote more than that"
    assert wrong == -1, f"{verb} of {size} bytes: byte {wrong} is not what was sent"
    wrong = source.check(name, offset=0, **pattern)
    assert wrong == -1, f"{verb} of {size} bytes changed its source"
    if c.service == "UD":
        check_grh(c, bytes.fromhex(target.peek(name, offset=0, size=GRH_BYTES)))


def check_grh(c: Combination, grh: bytes) -> None:
    """Check that what stands before a datagram names both ends: a GRH, or an IPv4 header in its last 20 bytes."""
    header, version, at = (grh, 6, 8) if c.network == "IPv6" else (grh[20:], 4, 12)
    addresses = [ip_address(address).packed for address in requester_first(c)]
    found = header[at : at + len(addresses[0]) * 2]
    assert header[0] >> 4 == version and found == b"".join(addresses), f"GRH {grh.hex()}, addresses {addresses}"


def _atomic(c: Combination, ends: tuple[Remote, Remote], place: dict[str, int], seed: int) -> None:
    """Several atomics on one word: each result is the sum of those before it, so none was done twice or never."""
    asking, answering = ends
    name, verb = str(c), c.verb
    add, value = 0x0101010101010101, 0x1122334455667788 + seed
    answering.word(name, offset=8, value=value)
    for i in range(8):
        words: dict[str, Any] = {"compare_add": add}
        if verb == "ATOMIC_CMP_AND_SWP":
            right = i % 2 == 0  # every other one compares with what is not there
            words = {"compare_add": value if right else value ^ 1, "swap": value + add}
        asking.word(name, offset=0, value=0)
        asking.post(name, opcode=verb, size=8, va=place["va"] + 8, rkey=place["rkey"], number=i, **words)
        completed(asking.wait(name, count=1, seconds=LIMIT_S, limit_s=2 * LIMIT_S), verb, 8)
        original = asking.word(name, offset=0)
        assert original == value, f"{verb} {i}: the original is {original:#x}, not {value:#x}"
        if verb != "ATOMIC_CMP_AND_SWP" or right:
            value = (value + add) % (1 << 64)
        found = answering.word(name, offset=8)
        assert found == value, f"{verb} {i}: memory has {found:#x}, not {value:#x}"


def completed(completions: list[dict[str, Any]], verb: str, size: int) -> None:
    """Fail unless there is a completion, and it is a good one."""
    assert completions and completions[0], f"{verb} of {size} bytes did not complete within {LIMIT_S} s"
    assert completions[0]["status"] == 0, f"{verb} of {size} bytes: {completions[0]}"
