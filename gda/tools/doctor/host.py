# SPDX-License-Identifier: Apache-2.0
"""Probes of the host: limits, huge pages, containers, IOMMU, CPU frequency."""

from __future__ import annotations

import re
from collections import Counter

from gda.tools.doctor.line import Line, Probe, not_applicable, ok, problem, unknown
from gda.tools.doctor.machine import Machine

__all__ = ["PROBES", "UNLIMITED"]

UNLIMITED = -1
_ENOUGH_LOCKED = 64 << 20  # a few queues and buffers


def memlock(machine: Machine) -> Line:
    """How much memory a process may lock: registered memory is."""
    text = machine.read("/proc/self/limits") or ""
    found = re.search(r"^Max locked memory\s+(\S+)", text, re.M)
    if not found:
        return unknown("/proc/self/limits does not say", "Registered memory is locked.", "ulimit -l")
    limit = UNLIMITED if found[1] == "unlimited" else int(found[1])
    if limit == UNLIMITED:
        return ok("unlimited", "Registered memory is locked; nothing limits it.", bytes=limit)
    size = f"{limit // 1024} KiB"
    if limit >= _ENOUGH_LOCKED:
        return ok(size, "Registered memory is locked: a card refuses more than this.", bytes=limit)
    status = machine.read("/proc/self/status") or ""
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.M)
    if capabilities and "ipc_lock" in _capabilities(int(capabilities[1], 16)):
        return ok(f"{size}, but CAP_IPC_LOCK lifts it", "Registered memory is locked; nothing limits it.", bytes=-1)
    return problem(
        size, "Registered memory is locked: a real card refuses more with ENOMEM. The software NIC does not care.",
        "ulimit -l unlimited (docker run --ulimit memlock=-1; /etc/security/limits.conf)", bytes=limit,
    )  # fmt: skip


def _capabilities(mask: int) -> set[str]:
    numbers = {14: "ipc_lock"}  # linux/capability.h
    return {name for bit, name in numbers.items() if mask // 2**bit % 2}


def huge_pages(machine: Machine) -> Line:
    """Pages larger than the usual: fewer entries in the card's translation table."""
    pools = []
    total = 0
    for name in machine.names("/sys/kernel/mm/hugepages"):
        kib = int(re.sub(r"\D", "", name) or 0)
        count = int(machine.read(f"/sys/kernel/mm/hugepages/{name}/nr_hugepages") or 0)
        total += count * kib
        pools.append(f"{count} of {kib // 1024} MiB" if kib >= 1024 else f"{count} of {kib} KiB")
    found = re.search(r"\[(\w+)\]", machine.read("/sys/kernel/mm/transparent_hugepage/enabled") or "")
    transparent = found[1] if found else ""
    value = "; ".join([", ".join(pools) or "none", f"transparent: {transparent or 'not there'}"])
    facts = {"kib": total, "transparent": transparent}
    if total or transparent in {"always", "madvise"}:
        return ok(value, "Large buffers in huge pages take fewer entries of a card's translation table.", **facts)
    return problem(
        value, "Buffers of many GiB lie in 4 KiB pages: a card looks up each.",
        "sysctl vm.nr_hugepages=512, or transparent_hugepage=madvise (not needed to begin)", **facts,
    )  # fmt: skip


def container(machine: Machine) -> Line:
    """Whether this is a container, and what of the card it sees."""
    kinds = []
    if machine.exists("/.dockerenv"):
        kinds.append("Docker")
    if machine.exists("/run/.containerenv"):
        kinds.append("Podman")
    groups = machine.read("/proc/1/cgroup") or ""
    if "kubepods" in groups or machine.exists("/var/run/secrets/kubernetes.io"):
        kinds.append("Kubernetes")
    elif not kinds and re.search(r"/(docker|lxc|containerd)[/-]", groups):
        kinds.append("container")
    if not kinds:
        return ok("none seen", "The host's devices are this process's.", kinds=kinds)
    sysfs = machine.names("/sys/class/infiniband")
    devices = machine.names("/dev/infiniband")
    if sysfs and not machine.verbs.is_software() and not any(d.startswith("uverbs") for d in devices):
        return problem(
            f"{', '.join(kinds)}; /sys shows {', '.join(sysfs)}, /dev/infiniband no uverbs device",
            "The container was started without the card's device files.",
            "docker run --device=/dev/infiniband --ulimit memlock=-1 --network=host", kinds=kinds,
        )  # fmt: skip
    seen = f"sees {', '.join(sysfs)}" if sysfs else "no RDMA device in it"
    return ok(f"{', '.join(kinds)}; {seen}", "What is not handed in is not there.", kinds=kinds)


def iommu(machine: Machine) -> Line:
    """Whether addresses of devices are translated, and for whom."""
    groups = machine.names("/sys/kernel/iommu_groups")
    command = machine.read("/proc/cmdline") or ""
    asked = [w for w in command.split() if re.match(r"(intel_|amd_)?iommu(\.\w+)?=", w)]
    said = f" ({' '.join(asked)})" if asked else ""
    if not groups:
        return ok(f"off{said}", "Card and GPU reach each other's addresses as they are.", groups=0, types={})
    kinds: dict[str, str] = {}
    for function in [*machine.cards(), *machine.gpus()]:
        group = machine.path(f"/sys/bus/pci/devices/{function.address}/iommu_group").resolve().name
        kinds[function.address] = machine.read(f"/sys/kernel/iommu_groups/{group}/type") or "?"
    facts = {"groups": len(groups), "types": kinds}
    if not kinds:
        return not_applicable(f"on, {len(groups)} groups{said}", "No card or GPU that it could slow down.", **facts)
    translated = {address: kind for address, kind in kinds.items() if kind not in {"identity", "?"}}
    if translated:
        return problem(
            f"translates for {', '.join(sorted(translated))} ({', '.join(sorted(set(translated.values())))}){said}",
            "What card and GPU send each other goes by the root complex for translation: slow, or refused.",
            "boot with iommu=pt, or switch the IOMMU off where no virtual machine needs it", **facts,
        )  # fmt: skip
    return ok(f"on, passes addresses through{said}", "Card and GPU reach each other directly.", **facts)


def governor(machine: Machine) -> Line:
    """How the CPU chooses its frequency."""
    base = "/sys/devices/system/cpu"
    cpus = [n for n in machine.names(base) if re.fullmatch(r"cpu\d+", n)]
    governors = Counter(
        g for g in (machine.read(f"{base}/{cpu}/cpufreq/scaling_governor") for cpu in cpus) if g is not None
    )
    if not governors:
        return not_applicable("the host decides (no cpufreq here)", "Usual in a virtual machine.", governors={})
    value = ", ".join(f"{name} on {count} CPUs" for name, count in governors.most_common())
    if set(governors) <= {"performance", "schedutil"}:
        return ok(value, "Cores are fast when they post and poll.", governors=dict(governors))
    return problem(
        value, "Cores may start slow: latencies measured from the CPU vary. Kernels on the GPU do not care.",
        "cpupower frequency-set -g performance (for measuring)", governors=dict(governors),
    )  # fmt: skip


PROBES = (
    Probe("host", "locked memory", memlock),
    Probe("host", "huge pages", huge_pages),
    Probe("host", "container", container),
    Probe("host", "IOMMU", iommu),
    Probe("host", "CPU governor", governor),
)
