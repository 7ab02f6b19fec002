# SPDX-License-Identifier: Apache-2.0
"""Profiles a program, and says whether GPU initiation would help it: `python -m gda profile -- PROGRAM`.

The program runs unmodified. On the software NIC, the NIC counts what it is asked for (sim/engine/profile.h) and how
long threads wait (sim/uverbs/profile.h); on a card, a preloaded library counts the calls of libibverbs (sim/calls) in
the same way. Kernels count what they post (gda/run/meters.py), /proc tells the CPU time of threads. The verdict's
thresholds and their reasons: docs/profile.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gda import _verbs, config, formats
from gda.errors import ArgumentError, UnavailableError, VerbsError

__all__ = ["Measured", "Sized", "Verdict", "profile", "profile_text", "verdict"]

_SAMPLE_S = 0.02  # how often the threads' CPU time is read
_NIC_THREAD = "gda-sim"
_CALLS = Path(__file__).resolve().parents[1] / "lib" / "libgda_calls.so"

HAND_OVER_S = 10e-6  # what a message can save at most: the way from a kernel to the CPU and back
FEW = 1000  # messages in all, and messages a second: below it that is 1 % of the time
MANY_PER_S = 10_000  # 10 % of the time
LARGE_BYTES, LARGE_SHARE = 65536, 0.9  # of the bytes: the wire takes longer than posting does
SMALL_BYTES, SMALL_SHARE = 4096, 0.5  # of the messages
HARDLY_WAITS, WAITS = 0.05, 0.2  # share of the time between first and last message


@dataclass
class Sized:
    """Messages of one operation and size: more than half of `up_to_bytes`, and at most that."""

    operation: str
    up_to_bytes: int
    messages: int
    bytes: int


@dataclass
class Measured:
    """What was seen of a program."""

    program: str
    on: str = "software"  # or "card"
    status: int = 0
    seconds: float = 0.0
    processes: int = 0
    active_s: float = 0.0  # from the first request to the last
    sizes: list[Sized] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    poll_s: float = 0.0  # polling in vain
    channel_s: float = 0.0  # asleep in ibv_get_cq_event
    kernel_s: float = 0.0  # device code on the CPU that waits
    polls: int = 0
    vain_polls: int = 0
    cpu_s: float = 0.0  # of all its processes
    threads: dict[str, float] = field(default_factory=dict)  # of its first process, by name and number
    nic_cpu_s: float = 0.0  # of them, the software NIC's, whose work a card does
    kernels: dict[str, int] = field(default_factory=dict)  # what gda's kernels did (cuda/gda/target/meter.h)
    blocks: dict[str, int] = field(default_factory=dict)  # of 64 bytes, in gda's queue pairs: "direct", "proxy"
    sent: dict[str, int] = field(default_factory=dict)  # by this machine's ports meanwhile: bytes, packets

    @property
    def messages(self) -> int:
        """How many."""
        return sum(one.messages for one in self.sizes)

    @property
    def by_kernels(self) -> int:
        """Requests that kernels posted, as far as they count; at least those of Numba's kernels do not."""
        return self.kernels.get("requests", 0)

    @property
    def are_among(self) -> bool:
        """Whether `messages` hold the kernels': the NIC sees all, calls of libibverbs only what the proxy posts."""
        return self.on == "software" or self.blocks.get("proxy", 0) > 0

    @property
    def by_cpu(self) -> int:
        """Messages that the program's CPU code posted."""
        return max(0, self.messages - self.by_kernels) if self.are_among else self.messages

    @property
    def bytes(self) -> int:
        """Payload of all."""
        return sum(one.bytes for one in self.sizes)

    @property
    def rate(self) -> float:
        """Messages a second between the first and the last one."""
        return self.messages / self.active_s if self.active_s else 0.0

    @property
    def doorbells_per_message(self) -> float:
        """One, unless the program posts several and rings once."""
        return self.counters.get("doorbells", 0) / self.messages if self.messages else 0.0

    @property
    def wait_share(self) -> float:
        """Of the time between first and last message, how much the host waited for completions."""
        return min(1.0, (self.poll_s + self.channel_s) / self.active_s) if self.active_s else 0.0

    def share_of_bytes(self, at_least: int) -> float:
        """Of the payload, in messages of at least so many bytes, by the mean of their size class."""
        return sum(one.bytes for one in self.sizes if _mean(one) >= at_least) / max(1, self.bytes)

    def share_of_messages(self, at_most: int) -> float:
        """Of the messages, those of at most so many bytes."""
        return sum(s.messages for s in self.sizes if s.up_to_bytes <= at_most) / max(1, self.messages)


def _mean(one: Sized) -> float:
    return one.bytes / one.messages if one.messages else 0.0


@dataclass(frozen=True)
class Verdict:
    """Whether GPU initiation would help: "yes", "no" or "undecided", in short why, and the reasons with values."""

    answer: str
    because: str
    reasons: tuple[str, ...]


def verdict(seen: Measured) -> Verdict:
    """Judge; each reason names its threshold."""
    large, small = seen.share_of_bytes(LARGE_BYTES), seen.share_of_messages(SMALL_BYTES)
    saved = min(1.0, seen.rate * HAND_OVER_S)
    facts = (
        f"{seen.messages} messages, {seen.rate:.0f} a second: at most {100 * saved:.1f} % of the time could be saved, "
        f"at {HAND_OVER_S * 1e6:.0f} us a message",
        f"{100 * large:.0f} % of the bytes are in messages of {LARGE_BYTES} bytes or more",
        f"{100 * small:.0f} % of the messages have at most {SMALL_BYTES} bytes",
        f"the host waited {100 * seen.wait_share:.0f} % of the time between the first message and the last",
    )
    if sum(seen.blocks.values()) and not seen.by_cpu:
        posted = f"kernels posted {sum(seen.blocks.values())} basic blocks of requests, the CPU none"
        return Verdict("no", "kernels post already", (posted,))
    if not seen.messages:
        return Verdict("no", "nothing was sent", ("the program posted no request to an RDMA NIC",))
    if seen.messages < FEW or seen.rate < FEW:
        return Verdict("no", "too few messages", facts)
    if large >= LARGE_SHARE:
        return Verdict("no", "large messages, bound by bandwidth", facts)
    if seen.wait_share < HARDLY_WAITS:
        return Verdict("no", "the host hardly waits", facts)
    if small >= SMALL_SHARE and seen.rate >= MANY_PER_S and seen.wait_share >= WAITS:
        return Verdict("yes", "many small messages that the host waits for", facts)
    missing = [
        f"fewer than {100 * SMALL_SHARE:.0f} % of the messages are small" if small < SMALL_SHARE else "",
        f"fewer than {MANY_PER_S} messages a second" if seen.rate < MANY_PER_S else "",
        f"the host waits less than {100 * WAITS:.0f} % of the time" if seen.wait_share < WAITS else "",
    ]
    return Verdict("undecided", "; ".join(filter(None, missing)), facts)


def profile(argv: Sequence[str], on: str, preload: Sequence[str] = ()) -> tuple[Measured, Verdict]:
    """Run a program on the "software" NIC, whose libraries are `preload`, or on the "card" of this machine; judge.

    Raises ArgumentError without a program, UnavailableError for one that is not there, and without a card.
    """
    command = list(argv[1:] if argv[:1] == ["--"] else argv)
    if not command:
        raise ArgumentError("profile needs a program", "python -m gda profile -- python train.py")
    program = shutil.which(command[0])
    if program is None:
        raise UnavailableError(f"the program {command[0]!r} is not on the PATH or not executable")
    if on == "card":
        _check_card()
        preload = [str(_CALLS)]
    seen = Measured(" ".join(command), on)
    with tempfile.TemporaryDirectory() as directory:
        told = Path(directory) / "told"
        environment = config.environment_with_preload(preload)
        environment |= {"GDA_PROFILE": str(told)}
        if on == "software":
            environment |= {"GDA_SIM_PROFILE": str(told), "GDA_NIC": "software"}
        elif config.get("GDA_NIC") == "auto":
            environment["GDA_NIC"] = "real"  # rather than the software NIC when the card's port is down
        before = _sent()
        start = time.monotonic()
        running = subprocess.Popen([program, *command[1:]], env=environment)
        _watch(running, seen)
        seen.seconds = time.monotonic() - start
        if on == "card":
            seen.sent = {name: count - before[name] for name, count in _sent().items()}
        for path in sorted(Path(directory).glob("told.*")):
            _take(path.read_text(), seen)
    return seen, verdict(seen)


def _check_card() -> None:
    if not _CALLS.exists():
        raise UnavailableError(f"{_CALLS} does not exist", "build it: python setup.py build_ext --inplace")
    try:
        if _verbs.ibv_get_device_list():
            return
    except VerbsError:  # a kernel without InfiniBand
        pass
    raise UnavailableError(
        "libibverbs lists no device on this machine", "python -m gda profile --on software needs none"
    )


def _sent(ports: Path = Path("/sys/class/infiniband")) -> dict[str, int]:
    """What all ports of this machine have sent so far; the kernel counts bytes in words of four."""
    totals = {"bytes": 0, "packets": 0}
    for name, file, unit in (("bytes", "port_xmit_data", 4), ("packets", "port_xmit_packets", 1)):
        for path in ports.glob(f"*/ports/*/counters/{file}"):
            try:
                totals[name] += unit * int(path.read_text())
            except (OSError, ValueError):  # "N/A (no PMA)"
                continue
    return totals


def _watch(running: subprocess.Popen[bytes], seen: Measured) -> None:
    """Until it ends; CPU time of its threads meanwhile."""
    threads: dict[str, tuple[str, float]] = {}
    tick = os.sysconf("SC_CLK_TCK")
    while True:
        for task in Path(f"/proc/{running.pid}/task").glob("*"):
            try:
                name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:  # it ended just now
                continue
            fields = rest.split()
            threads[task.name] = name, (int(fields[11]) + int(fields[12])) / tick
        pid, status, usage = os.wait4(running.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(_SAMPLE_S)
    running.returncode = seen.status = os.waitstatus_to_exitcode(status)
    seen.cpu_s = usage.ru_utime + usage.ru_stime
    seen.threads = {f"{name} {number}": cpu for number, (name, cpu) in threads.items()}
    seen.nic_cpu_s = sum(cpu for name, cpu in threads.values() if name == _NIC_THREAD)


def _take(text: str, seen: Measured) -> None:
    """What a process wrote: NIC or sim/calls, both by sim/uverbs/profile.cc; gda/run/meters.py; gda/nic/handle.py."""
    known = {(one.operation, one.up_to_bytes): one for one in seen.sizes}
    for line in text.splitlines():
        kind, *words = line.split()
        if kind == "process":
            seen.processes += 1
        elif kind == "waited":
            name, ns = f"{words[0]}_s", int(words[1])
            setattr(seen, name, getattr(seen, name) + ns / 1e9)
            if words[0] == "poll":
                seen.polls += int(words[2])
                seen.vain_polls += int(words[3])
        elif kind == "nic":
            seen.active_s = max(seen.active_s, (int(words[2]) - int(words[1])) / 1e9)
        elif kind == "requests":
            operation, size, messages, bytes_ = map(int, words)
            key = formats.opcode_meaning(operation).words, 1 << size
            one = known.setdefault(key, Sized(*key, 0, 0))
            one.messages += messages
            one.bytes += bytes_
        elif kind == "queue":
            seen.blocks[words[0]] = seen.blocks.get(words[0], 0) + int(words[1])
        elif kind == "meter":
            seen.kernels[words[0]] = seen.kernels.get(words[0], 0) + int(words[1])
        elif kind == "counter":
            seen.counters[words[0]] = seen.counters.get(words[0], 0) + int(words[1])
    seen.sizes = sorted(known.values(), key=lambda one: (one.operation, one.up_to_bytes))


_NEVER_SEEN = (
    "requests are counted by kernels of gda.Kernel, of others' only the blocks; kernels on a GPU wait unseen",
    "threads that end between two looks, and those of child processes, are in the CPU time of all only",
)
NOT_SEEN = {
    "software": (
        "times are of the software NIC on this machine, not of a card: rates and waits are shapes, not figures",
        *_NEVER_SEEN,
    ),
    "card": (
        "what is posted and polled past libibverbs, by kernels of other libraries or by UCX's rc_mlx5, is only in what "
        "the ports sent",
        *_NEVER_SEEN,
    ),
}


def as_json(seen: Measured, judged: Verdict) -> dict[str, Any]:
    """For --json."""
    return {
        **asdict(seen), "messages": seen.messages, "bytes": seen.bytes, "rate_per_s": seen.rate,
        "doorbells_per_message": seen.doorbells_per_message, "wait_share": seen.wait_share,
        "verdict": asdict(judged),
        "not_seen": NOT_SEEN[seen.on],
    }  # fmt: skip


def profile_text(seen: Measured, judged: Verdict) -> str:
    """For people."""
    lines = [
        f"{seen.program}: status {seen.status}, {seen.seconds:.2f} s, {seen.processes} processes with an RDMA NIC",
        f"messages: {seen.messages}, {seen.bytes} bytes, {seen.rate:.0f} a second for {seen.active_s:.3f} s, "
        f"{seen.doorbells_per_message:.2f} doorbells a message",
    ]
    if seen.blocks:
        blocks = ", ".join(f"{count} {how}" for how, count in sorted(seen.blocks.items()))
        lines.append(f"basic blocks of 64 bytes that kernels filled in gda's queue pairs: {blocks}")
    if seen.kernels:
        of = "of them" if seen.are_among else "beside them"
        words = ("requests", "payload_bytes", "doorbells", "polls")
        counts = ", ".join(f"{seen.kernels.get(word, 0)} {word.replace('_', ' ')}" for word in words)
        lines.append(f"by kernels, {of}: {counts}")
    most = max((one.messages for one in seen.sizes), default=1)
    for one in seen.sizes:
        bar = "#" * max(1, 40 * one.messages // most)
        lines.append(f"  {one.operation:<24} up to {one.up_to_bytes:>10} B {one.messages:>10}  {bar}")
    lines.append(
        f"waiting: polls in vain {seen.poll_s:.3f} s ({seen.vain_polls} of {seen.polls} polls), asleep on a channel "
        f"{seen.channel_s:.3f} s"
        + (f", device code on the CPU {seen.kernel_s:.3f} s" if seen.on == "software" else "")
    )
    if seen.sent:
        lines.append(f"ports sent {seen.sent['bytes']} bytes in {seen.sent['packets']} packets, for all programs")
    lines.append(
        f"CPU: {seen.cpu_s:.2f} s"
        + (f", of which {seen.nic_cpu_s:.2f} s the software NIC's thread" if seen.on == "software" else "")
    )
    busy = sorted(seen.threads.items(), key=lambda item: -item[1])[:8]
    lines += [f"  {name:<24} {cpu:.2f} s" for name, cpu in busy if cpu]
    lines.append(f"Would GPU initiation help? {judged.answer}: {judged.because}")
    lines += [f"  - {reason}" for reason in judged.reasons]
    lines += [f"  (not seen: {what})" for what in NOT_SEEN[seen.on]]
    return "\n".join(lines)
