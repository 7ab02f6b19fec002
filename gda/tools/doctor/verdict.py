# SPDX-License-Identifier: Apache-2.0
"""What can be run here, from the lines: which NIC, where kernels run, where queues lie, how they ring; what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gda.tools.doctor.line import Line, Status

__all__ = ["Verdict", "judge"]

_SOFTWARE_PAGE = " to the software NIC's page"
_NOT_URGENT = ("not needed to begin", "for measuring", "nothing to begin with")


@dataclass(frozen=True)
class Verdict:
    """`can` says what runs here, `uses` what gda.open() would take, `steps` what to do next, the most useful first."""

    can: str
    uses: dict[str, str]
    steps: list[str]

    def to_json(self) -> dict[str, Any]:
        """As --json prints it."""
        return {"can": self.can, "uses": self.uses, "steps": self.steps}


def judge(lines: Sequence[Line], *, nic: str = "auto", target: str = "auto", posting: str = "auto") -> Verdict:
    """Read the lines' facts. `nic`, `target` and `posting` are what GDA_NIC, GDA_TARGET and GDA_POSTING ask for."""
    facts = _Facts(lines)
    card = facts.card if nic != "software" or facts.software else ""
    proxied = facts.proxied_by(posting) if nic != "software" or facts.software else ""
    works = facts.any("GPU", "capability", lambda v: v[0] >= 7) and facts.any("CUDA driver", "version", bool)
    gpu = target != "host" and works and facts.any("CuPy", "version", bool)
    compiler = facts.any("C++ compiler", "version", bool)
    rings = facts.any("doorbell on GPU", "mapped", bool)
    reaches = facts.any("dma-buf", "registered", bool) or facts.any("nvidia-peermem", "registered", bool)
    software = facts.any("software NIC", "how", bool)
    kernels = "the GPU" if gpu else "the CPU" if compiler else "nowhere: no C++ compiler"
    uses = {"kernels": kernels + (" (GDA_TARGET=host)" if target == "host" else "")}
    if card:
        uses["NIC"] = f"{card}, a real card" if not facts.software else f"{card}, the software NIC"
        on_gpu = bool(gpu) and bool(reaches) and not facts.software
        uses["queues"] = "GPU memory" if on_gpu else "host memory"
        uses["queues"] += "" if on_gpu or not gpu or facts.software else ": the card does not reach GPU memory"
        uses["payload"] = "GPU or host memory" if reaches or (facts.software and gpu) else "host memory"
    else:
        uses["NIC"] = "the software NIC" if software and nic != "real" else "none"
        uses["NIC"] += f" (GDA_NIC={nic})" if nic != "auto" else ""
        uses["queues"] = "host memory"
        uses["payload"] = "GPU or host memory" if gpu else "host memory"
    kinds = facts.value("doorbell pages", "kinds") or []
    modes = facts.value("doorbell modes", "modes") or []
    if proxied:
        uses |= {
            "NIC": f"{proxied}, the software NIC" if facts.software else f"{proxied}, a real device",
            "queues": "host memory",
            "posting": "a host thread, by libibverbs" + (" (GDA_POSTING=proxy)" if posting == "proxy" else ""),
            "payload": uses.get("payload", "host memory") if facts.software else "host memory",
            "doorbell": "the kernel stores to a word of that thread",
        }
        where = "kernels on the GPU" if gpu else "kernels on the CPU" if compiler else "no kernels yet: no C++ compiler"
        can = f"RDMA by {proxied} with {where}: a host thread posts what they ask for (docs/proxy.md)."
        return Verdict(can, uses, _steps(lines))
    uses["doorbell"] = _doorbell(bool(card), bool(gpu), bool(rings), kinds, modes)
    real = bool(card) and not facts.software
    simulated = software and nic != "real"
    can = _can(
        real=real, gpu=bool(gpu), rings=rings, helped="cpu" in modes, software=simulated, compiler=compiler
    )  # fmt: skip
    return Verdict(can, uses, _steps(lines))


def _doorbell(card: bool, gpu: bool, rings: bool, kinds: list[str], modes: list[str]) -> str:
    page = f" to a {kinds[0]} page" if kinds else ""
    mode = f', mode "{modes[0]}"' if modes and card else ""
    if gpu and (rings or not card):
        return f"the kernel on the GPU stores{page if card else _SOFTWARE_PAGE}{mode}"
    if gpu and "cpu" in modes:
        return 'a host thread rings for the kernel on the GPU: ask for doorbell="cpu"'
    if gpu:
        return "not by a kernel on the GPU: its page cannot be mapped there; kernels on the CPU (GDA_TARGET=host) ring"
    return f"the kernel on the CPU stores{page if card else _SOFTWARE_PAGE}{mode}"


def _can(*, real: bool, gpu: bool, rings: bool, helped: bool, software: bool, compiler: bool) -> str:
    if real:
        if gpu and rings:
            return "GPU-initiated RDMA on a real card: kernels on the GPU post and ring by themselves."
        if gpu and helped:
            return "RDMA on a real card by kernels on the GPU: they post, and a host thread rings for them (see below)."
        if gpu:
            return "RDMA on a real card from the CPU; kernels on the GPU cannot ring it yet (see below)."
        return "RDMA on a real card, posted by kernels on the CPU. There is no GPU."
    if not (software and (gpu or compiler)):
        return "Nothing yet: there is neither a card nor the software NIC with a compiler (see below)."
    where = "on the GPU" if gpu else "on the CPU"
    return f"Everything of gda on the software NIC, with kernels {where}. No packet leaves by a card."


def _steps(lines: Sequence[Line]) -> list[str]:
    """What stops something first, then what is missing, then what would be better."""

    def rank(line: Line) -> int:
        later = any(word in line.next for word in _NOT_URGENT)
        return (2 if later else 0) + (line.status is not Status.PROBLEM)

    wanting = [line for line in lines if line.next and line.status in {Status.PROBLEM, Status.MISSING}]
    return [f"{line.name}: {line.next}" for line in sorted(wanting, key=rank)]


class _Facts:
    """Finds facts by the name that a line starts with."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        works = {line.facts.get("device") for line in self._named("DEVX") if line.facts.get("devx")}
        ports = [line.facts for line in self._named("port ") if line.facts.get("active")]
        self.card = next((str(p["device"]) for p in ports if p["device"] in works), "")
        self._active = [str(p["device"]) for p in ports]
        self._proxied = [str(name) for line in self._named("device ") if (name := line.facts.get("proxied"))]
        self.software = any(line.value.startswith("the software NIC") for line in self._named("device "))

    def proxied_by(self, posting: str) -> str:
        """The device that gda.open() would take for the proxy; "" where kernels post themselves, or nobody does."""
        if posting == "direct":
            return ""
        others = [name for name in self._active if name in self._proxied]
        cards = [name for name in self._active if name not in self._proxied]
        if posting == "proxy":
            return next(iter(cards + others), "")
        return "" if cards else next(iter(others), "")

    def _named(self, name: str) -> list[Line]:
        return [line for line in self._lines if line.name.startswith(name)]

    def any(self, name: str, fact: str, good: Any) -> bool:
        """Whether a line of that name has such a fact that is good."""
        return any(good(line.facts[fact]) for line in self._named(name) if line.facts.get(fact) is not None)

    def value(self, name: str, fact: str) -> Any:
        """The first of that name."""
        return next((line.facts[fact] for line in self._named(name) if fact in line.facts), None)
