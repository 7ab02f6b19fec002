# SPDX-License-Identifier: Apache-2.0
"""Runs the rows of rows.py on a queue pair, whoever implements it, and writes down what came of each.

A row's record says what was sent (>), what answered (<), completions, the state and what changed in memory. Numbers are
relative (PSNs to the connection's first, addresses to the region), so records of two implementations are equal when
these behave equally. Silence is told without waiting for it: a second queue pair, the sentinel, is asked after each
step, and what it answers comes behind whatever the first one had to say.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gda import formats

from . import wire
from .cable import Peer
from .frames import opcode_name
from .remote import Remote

MTU = 256
LIMIT_S = 30.0
GRACE_S = 0.03  # for what comes behind the sentinel's answer all the same: a guest has more than one processor
SENTINEL_QPN = 0x000FFE
FIRST_PSN, FIRST_SENT_PSN = 0x001000, 0x002000  # what the subject expects, and sends first, unless a row says otherwise
STATES = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"]
RECEIVES_FROM = 128  # opcodes of completions: receives from here on
HEARD = {  # what is written down of the headers of a packet that was heard
    "reth": "length={dma_length}",
    "aeth": "syndrome={syndrome:#04x} msn={msn}",
    "atomicacketh": "original={original:#x}",
    "immdt": "imm={imm:#010x}",
}


@dataclass(frozen=True)
class Send:
    """A packet to the subject. `psn` counts from what it expects, `va` from its region; `op` lacks the RC_ prefix."""

    op: str | int
    psn: int = 0
    data: bytes = b""
    va: int = 0
    length: int | None = None  # None: as much as there is data
    rkey: int | None = None  # None: the region's
    rkey_xor: int = 0
    imm: int = 0x01020304
    compare: int = 0
    add: int = 0  # or swap
    syndrome: int = 0x1F
    msn: int = 0
    original: int = 0
    ack: int = 1
    wait: bool = True  # for its answer, before the next step
    answer: bool = False  # `psn` counts from what the subject sent first
    bth: dict[str, int] = field(default_factory=dict)
    frame: dict[str, Any] = field(default_factory=dict)
    ends: dict[str, Any] = field(default_factory=dict)
    mangle: Callable[[bytes], bytes] | None = None  # what to do with the finished frame


@dataclass(frozen=True)
class Hear:
    """Wait until the subject has sent so many packets more."""

    count: int


@dataclass(frozen=True)
class Tell:
    """Give the subject an order: one of Pair's functions in subject.py."""

    function: str
    words: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One question. `spec` is the answer that the specification asks for, in the words of `first_answer`."""

    name: str
    spec: str
    steps: tuple[Send | Hear | Tell, ...]
    receives: tuple[int, ...] = ()
    pair: dict[str, Any] = field(default_factory=dict)
    path: dict[str, Any] | None = field(default_factory=dict)  # None: the queue pair stays in INIT


class Bench:
    """A peer on the cable and the program with the queue pairs."""

    def __init__(self, peer: Peer, subject: Remote, grace_s: float = GRACE_S) -> None:
        self._peer, self._subject, self._grace_s = peer, subject, grace_s
        self._sentinel = subject.make("sentinel")
        subject.connect("sentinel", address=peer.address, qpn=SENTINEL_QPN, rq_psn=0, sq_psn=0, mtu=MTU, timeout=0)
        self._asked = 0
        peer.meet()

    def run(self, row: Row, number: int) -> str:
        """Run one row on a queue pair of its own and return its record."""
        return _Run(self, row, number).record()

    def ask_sentinel(self, others: Callable[[wire.Packet], None]) -> None:
        """Return when everything sent so far has been looked at; what else is heard goes to `others`."""
        bth = {
            "opcode": formats.RC_RDMA_WRITE_ONLY, "psn": self._asked, "dest_qp": self._sentinel["qpn"], "ack_req": 1
        }  # fmt: skip
        reth = {"va": self._sentinel["va"], "rkey": self._sentinel["rkey"], "dma_length": 0}
        self._peer.send(wire.Packet(bth, {"reth": reth}))
        deadline = time.monotonic() + LIMIT_S
        answered = False
        while True:
            heard = self._peer.next(self._grace_s if answered else 0.5)
            if heard is None and answered:
                break
            if heard is None:
                assert time.monotonic() < deadline, "the sentinel does not answer: is the peer alive?"
            elif heard[0].bth["dest_qp"] == SENTINEL_QPN:
                answered |= heard[0].psn == self._asked
            else:
                others(heard[0])
        self._asked += 1

    def hear(self) -> wire.Packet | None:
        """Return the next packet of any queue pair."""
        heard = self._peer.next(0.5)
        return heard[0] if heard else None

    @property
    def peer(self) -> Peer:
        """The end of the cable."""
        return self._peer

    @property
    def subject(self) -> Remote:
        """The program."""
        return self._subject


class _Run:
    def __init__(self, bench: Bench, row: Row, number: int) -> None:
        self._bench, self._row, self._lines = bench, row, [f"[{row.name}]"]
        self._qpn = 0x010000 + number
        self._name, self._unclaimed = f"row-{number}", 0
        path = {"rq_psn": FIRST_PSN, "sq_psn": FIRST_SENT_PSN, "mtu": MTU, "timeout": 0, **(row.path or {})}
        self._expected, self._sent, self._timer = path["rq_psn"], path["sq_psn"], path["timeout"]
        orders: list[tuple[str, dict[str, Any]]] = [("make", {"name": self._name, **row.pair})]
        if row.path is not None:
            to = {"address": bench.peer.address, "qpn": self._qpn}
            orders.append(("connect", {"name": self._name, **to, **path}))
        for i, size in enumerate(row.receives):
            what = {"size": size, "offset": 8192 + 1024 * i, "number": 1000 + i}
            orders.append(("receive", {"name": self._name, **what}))
        self._place = bench.subject.all(orders)[0]

    def record(self) -> str:
        for step in self._row.steps:
            if isinstance(step, Send):
                self._send(step)
                if step.wait:
                    self._bench.ask_sentinel(self._note)
            elif isinstance(step, Hear):
                self._hear(step.count)
            else:
                said = " ".join(f"{k}={v}" for k, v in step.words.items())
                self._lines.append(f"{step.function} {said}")
                result = self._bench.subject.all([(step.function, {"name": self._name, **step.words})])[0]
                self._bench.ask_sentinel(self._note)
                if step.function == "wait":
                    self._lines += [self._completion(c) for c in result]
        self._bench.ask_sentinel(self._note)
        look, _ = self._bench.subject.all([("look", {"name": self._name}), ("forget", {"name": self._name})])
        self._lines += [self._completion(c) for c in look["completions"]]
        self._lines.append(f"state {STATES[look['state']]}")
        self._lines += [f"memory +{at}: {_bytes(bytes.fromhex(data))}" for at, data in look["memory"]]
        return "\n".join(self._lines)

    def _completion(self, c: dict[str, Any]) -> str:
        text = f"completion {c['wr_id']} status {c['status']}"
        if c.get("opcode", 0) >= RECEIVES_FROM:
            text += f" opcode {c['opcode']} bytes {c['bytes']}" + (f" imm {c['imm']:#010x}" if "imm" in c else "")
        return text

    def _hear(self, count: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self._unclaimed < count and time.monotonic() < deadline:
            packet = self._bench.hear()
            if packet is not None:
                self._note(packet, listening=True)
        if self._unclaimed < count:
            self._lines.append(f"(only {self._unclaimed} of {count} packets came)")
        self._unclaimed = max(0, self._unclaimed - count)

    def _send(self, step: Send) -> None:
        opcode = step.op if isinstance(step.op, int) else int(getattr(formats, f"RC_{step.op}"))
        first = self._sent if step.answer else self._expected
        bth = {
            "opcode": opcode, "psn": (first + step.psn) % (1 << 24), "dest_qp": self._place["qpn"],
            "ack_req": step.ack, **step.bth,
        }  # fmt: skip
        va = (self._place["va"] + step.va) % (1 << 64)
        rkey = (self._place["rkey"] if step.rkey is None else step.rkey) ^ step.rkey_xor
        values = {
            "reth": {"va": va, "rkey": rkey, "dma_length": len(step.data) if step.length is None else step.length},
            "atomiceth": {"va": va, "rkey": rkey, "swap_add": step.add, "compare": step.compare},
            "immdt": {"imm": step.imm},
            "aeth": {"syndrome": step.syndrome, "msn": step.msn},
            "atomicacketh": {"original": step.original},
            "deth": {"qkey": 0x11111111, "src_qp": self._qpn},
        }
        headers = {name: values[name] for name in wire.headers_of(opcode)}
        ends = self._bench.peer.ends()
        ends = wire.Ends(**{**ends.__dict__, **step.ends})
        packet = wire.Packet(bth, headers, step.data, ends, **step.frame)
        self._bench.peer.send_frame((step.mangle or bytes)(packet.frame()))
        self._lines.append("> " + self._describe(step, opcode))

    def _describe(self, step: Send, opcode: int) -> str:
        words = [opcode_name(opcode), f"psn{step.psn:+}"]
        for name in wire.headers_of(opcode):
            if name in ("reth", "atomiceth"):
                words.append(f"va{step.va:+}" + ("" if step.rkey is None else f" rkey={step.rkey:#x}"))
                words += [f"rkey-xor={step.rkey_xor:#x}"] if step.rkey_xor else []
            if name == "reth":
                words.append(f"length={len(step.data) if step.length is None else step.length}")
            if name == "atomiceth":
                words.append(f"compare={step.compare:#x} add-or-swap={step.add:#x}")
            if name == "aeth":
                words.append(f"syndrome={step.syndrome:#04x}")
        words += [] if step.ack else ["no-ack-request"]
        words += [f"{key}={value:#x}" for key, value in step.bth.items()]
        words += [f"{key}={value!r}" for key, value in {**step.frame, **step.ends}.items()]
        words += [step.mangle.__name__] if step.mangle else []
        return " ".join(words) + (f": {_bytes(step.data)}" if step.data else "")

    def _note(self, packet: wire.Packet, listening: bool = False) -> None:
        if packet.bth["dest_qp"] != self._qpn:
            return
        answers = "aeth" in packet.headers or packet.opcode == formats.RC_RDMA_READ_RESPONSE_MIDDLE
        psn = (packet.psn - (self._expected if answers else self._sent) + (1 << 23)) % (1 << 24) - (1 << 23)
        words = [opcode_name(packet.opcode), f"psn{psn:+}"]
        words += [HEARD[name].format_map(fields) for name, fields in packet.headers.items() if name in HEARD]
        usual = {"ack_req": 0, "se": 0, "pkey": 0xFFFF, "tver": 0}
        words += [f"{key}={packet.bth[key]:#x}" for key, value in usual.items() if packet.bth[key] != value]
        line = "< " + " ".join(words) + (f": {_bytes(packet.payload)}" if packet.payload else "")
        if not listening and self._timer and line in self._lines:
            return  # how often a timer struck meanwhile is the machine's affair
        self._unclaimed += 1
        self._lines.append(line)


def _bytes(data: bytes) -> str:
    """Short data as it is, longer by length and CRC-32."""
    return data.hex() if len(data) <= 16 else f"{len(data)} bytes, crc {zlib.crc32(data):#010x}"


def first_answer(record: str) -> str:
    """Say what kind of packet answered first."""
    answers = [line for line in record.splitlines() if line.startswith("< ")]
    if not answers:
        return "silence"
    kinds = {
        "RC_RDMA_READ_RESPONSE": "data", "RC_ATOMIC_ACKNOWLEDGE": "original", "syndrome=0x1f": "ACK",
        "syndrome=0x2": "RNR NAK", "syndrome=0x3": "RNR NAK", "syndrome=0x60": "NAK sequence",
        "syndrome=0x61": "NAK invalid request", "syndrome=0x62": "NAK remote access",
        "syndrome=0x63": "NAK remote operational",
    }  # fmt: skip
    return next((kind for sign, kind in kinds.items() if sign in answers[0]), "request")
