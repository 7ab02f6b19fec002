# SPDX-License-Identifier: Apache-2.0
"""Probes of the kernel and its modules."""

from __future__ import annotations

import functools

from gda.tools.doctor.line import Line, Probe, missing, not_applicable, ok, problem
from gda.tools.doctor.machine import Machine

__all__ = ["PROBES"]


def release(machine: Machine) -> Line:
    """Which kernel."""
    text = machine.read("/proc/sys/kernel/osrelease") or ""
    try:
        number = tuple(int(n) for n in text.split("-", maxsplit=1)[0].split(".")[:2])
    except ValueError:
        number = (0, 0)
    if number >= (5, 12):
        return ok(text, "Registers GPU memory with a network card by dma-buf (from 5.12 on).", release=text)
    return problem(
        text or "unknown", "Older than 5.12: no GPU memory by dma-buf, only by nvidia-peermem.",
        "use a newer kernel, or load nvidia-peermem", release=text,
    )  # fmt: skip


# module, whose it is, what it is for, what to do where it is missing
_MODULES = (
    ("ib_core", "card", "The kernel's RDMA core.", "modprobe ib_core (package linux-modules-extra on Ubuntu)"),
    ("ib_uverbs", "card", "Lets programs use RDMA.", "modprobe ib_uverbs"),
    ("mlx5_core", "card", "Drives ConnectX cards.", "modprobe mlx5_core"),
    ("mlx5_ib", "card", "RDMA on ConnectX cards.", "modprobe mlx5_ib"),
    ("nvidia", "gpu", "Drives NVIDIA GPUs.", "install NVIDIA's driver, best its open kernel modules"),
)


def module(machine: Machine, name: str, whose: str, meaning: str, advice: str) -> Line:
    """One module: loaded or built in, and its version."""
    if machine.exists(f"/sys/module/{name}"):
        loaded = f"\n{name} " in "\n" + (machine.read("/proc/modules") or "")
        version = machine.read(f"/sys/module/{name}/version")
        value = ("loaded" if loaded else "built in") + (f", version {version}" if version else "")
        return ok(value, meaning, version=version or "")
    things = machine.cards() if whose == "card" else machine.gpus()
    if not things:
        what = "ConnectX card" if whose == "card" else "NVIDIA GPU"
        return not_applicable("not loaded", f"{meaning} No {what} here that would need it.")
    return missing("not loaded", meaning, advice)


PROBES = (
    Probe("kernel", "release", release),
    *(
        Probe("kernel", name, functools.partial(module, name=name, whose=whose, meaning=meaning, advice=advice))
        for name, whose, meaning, advice in _MODULES
    ),
)
