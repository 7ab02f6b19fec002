# SPDX-License-Identifier: Apache-2.0
"""Probes of the GPU: driver, attributes, and the ways by which GPU and card reach each other, really tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gda.errors import GdaError
from gda.tools.doctor.card import mlx5_devices
from gda.tools.doctor.line import Line, Probe, missing, not_applicable, ok, problem, unknown
from gda.tools.doctor.machine import Machine

__all__ = ["PROBES"]

_BAR1 = 1  # the region through which others on the bus reach GPU memory
_ORDERINGS = {0: "none", 100: "to the owner", 200: "to all devices"}  # CU_GPU_DIRECT_RDMA_WRITES_ORDERING_*
_FLUSHES = {1: "host", 2: "memory operations"}  # CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_*
_PEERMEM = ("nvidia_peermem", "nv_peer_mem")


def _gpus(machine: Machine) -> tuple[int, str]:
    """How many GPUs CUDA has here, and why none."""
    works, reason = machine.cuda.available()
    return (machine.cuda.count(), "") if works else (0, reason)


def driver(machine: Machine) -> Line:
    """libcuda."""
    count, reason = _gpus(machine)
    if count:
        major, minor = machine.cuda.version()
        return ok(f"CUDA {major}.{minor}", "Kernels can be launched.", version=[major, minor])
    if machine.gpus():
        return problem(
            reason, "A GPU is on the bus, but CUDA does not work.",
            "install NVIDIA's driver; in a container: docker run --gpus all", version=[],
        )  # fmt: skip
    return not_applicable(reason, "No NVIDIA GPU on the PCI bus.", version=[])


def devices(machine: Machine) -> list[Line] | Line:
    """GPUs as CUDA sees them."""
    count, reason = _gpus(machine)
    if not count:
        if machine.gpus():
            return missing(f"none usable: {reason}", "Kernels run on the CPU.", "see CUDA driver", gpus=0)
        return missing(
            "no NVIDIA GPU", "Kernels run on the CPU: the same source, slower.",
            "nothing to begin with; for speed, a GPU of compute capability 7.0 or newer", gpus=0,
        )  # fmt: skip
    lines = []
    for gpu in range(count):
        major = machine.cuda.attribute("COMPUTE_CAPABILITY_MAJOR", gpu)
        minor = machine.cuda.attribute("COMPUTE_CAPABILITY_MINOR", gpu)
        value = f"{machine.cuda.name(gpu)}, compute capability {major}.{minor}"
        facts = {"gpu": gpu, "capability": [major, minor]}
        if major < 7:
            line = problem(value, "The device library needs 7.0: it cannot run there.", "use a newer GPU", **facts)
        else:
            line = ok(value, "Kernels run on it.", **facts)
        line.name = f"GPU {gpu}"
        lines.append(line)
    return lines


def _each(machine: Machine) -> Iterator[int]:
    yield from range(_gpus(machine)[0])


def direct(machine: Machine) -> list[Line] | Line:
    """GPUDirect RDMA: who sees a card's writes in which order."""
    lines = []
    for gpu in _each(machine):
        offered = machine.cuda.attribute("GPU_DIRECT_RDMA_SUPPORTED", gpu)
        order = machine.cuda.attribute("GPU_DIRECT_RDMA_WRITES_ORDERING", gpu)
        flush = machine.cuda.attribute("GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS", gpu)
        flushes = [word for bit, word in _FLUSHES.items() if flush // bit % 2]
        ordered = _ORDERINGS.get(order, str(order))
        value = f"{'offered' if offered else 'not offered'}; write ordering {ordered}"
        value += f"; flush by {' and '.join(flushes) or 'nothing'}"
        facts = {"gpu": gpu, "offered": bool(offered), "ordering": order, "flush": flush}
        if not offered:
            line = problem(
                value, "A card cannot read or write this GPU's memory.",
                "payload and queues in host memory: placement=\"host\"", **facts,
            )  # fmt: skip
        elif order < 100:
            line = problem(
                value, "A kernel may see a signal before the data that a card wrote before it.",
                "flush before reading (cuFlushGPUDirectRDMAWrites), or signals in host memory", **facts,
            )  # fmt: skip
        else:
            line = ok(value, "A kernel sees a card's writes in order.", **facts)
        line.name = f"GPUDirect GPU {gpu}"
        lines.append(line)
    return lines or not_applicable("no GPU that CUDA can use")


def bar1(machine: Machine) -> list[Line] | Line:
    """How much of its memory a GPU shows on the bus."""
    lines = []
    for gpu in machine.gpus():
        size = gpu.resources[_BAR1] if len(gpu.resources) > _BAR1 else 0
        facts = {"address": gpu.address, "bytes": size}
        if not size:
            line = unknown("sysfs shows no second region", "Others reach GPU memory by it.", "nvidia-smi -q", **facts)
        elif size < 1 << 30:
            line = problem(
                f"{size >> 20} MiB", "Only so much GPU memory can be registered with a card at a time.",
                "BIOS: Above 4G Decoding and Resizable BAR on; a data-centre GPU shows all of it", **facts,
            )  # fmt: skip
        else:
            line = ok(f"{size / (1 << 30):.0f} GiB", "So much GPU memory can be registered with a card.", **facts)
        line.name = f"BAR1 {gpu.address}"
        lines.append(line)
    return lines or not_applicable("no GPU on the bus")


def peer_mapping(machine: Machine) -> Line:
    """The driver's option that lets others than root map a card's pages for a GPU."""
    text = machine.read("/proc/driver/nvidia/params")
    if text is None:
        return not_applicable("no /proc/driver/nvidia/params", "Comes with NVIDIA's kernel driver.", override=False)
    words = next((row.partition(":")[2].strip(' "') for row in text.splitlines() if "RegistryDwords:" in row), "")
    if "PeerMappingOverride=1" in words:
        return ok("PeerMappingOverride=1", "Who is not root may map doorbell pages for a GPU.", override=True)
    return problem(
        f"RegistryDwords is {words!r}" if words else "not set",
        "Who is not root may not map a card's doorbell pages for a GPU: kernels cannot ring by themselves.",
        'options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;" in /etc/modprobe.d/, then reload the driver',
        override=False,
    )


def uar_on_gpu(machine: Machine) -> list[Line] | Line:
    """Map a doorbell page for a GPU: really tried."""
    names, gpus = mlx5_devices(machine), list(_each(machine))
    if not names or not gpus:
        what = "no card" if gpus else "no GPU that CUDA can use" if names else "neither card nor GPU"
        return not_applicable(what, "A kernel rings by storing to the card's page.", mapped=False)
    lines = []
    for name in names:
        try:
            kind = machine.verbs.try_uar_on_gpu(name, gpus[0])
            how = "as memory (software NIC)" if machine.verbs.is_software() else "as I/O memory"
            line = ok(f"{kind} mapped for GPU {gpus[0]} {how}", "Kernels ring by themselves.", mapped=True)
        except GdaError as error:
            line = problem(
                error.message.splitlines()[0], "Kernels cannot ring this card by themselves.",
                "set PeerMappingOverride=1 (see its line), or run as root", mapped=False,
            )  # fmt: skip
        line.name = f"doorbell on GPU {name}"
        line.facts |= {"device": name}
        lines.append(line)
    return lines


def dmabuf(machine: Machine) -> list[Line] | Line:
    """Export GPU memory as a dma-buf, and register it with the card: really tried."""
    lines = []
    names = [] if machine.verbs.is_software() else mlx5_devices(machine)
    for gpu in _each(machine):
        facts = {"gpu": gpu, "exported": False, "registered": False}
        try:
            machine.cuda.try_dmabuf(gpu)
            facts["exported"] = True
            for name in names[:1]:
                machine.verbs.try_gpu_memory(name, gpu, "dma-buf")
                facts["registered"] = True
        except GdaError as error:
            what = "exported, but the card refused it" if facts["exported"] else "not exported"
            line = problem(
                f"{what}: {error.message.splitlines()[0]}", "GPU memory cannot be registered the modern way.",
                "the open kernel modules of NVIDIA's driver and Linux 5.12 or newer; else nvidia-peermem", **facts,
            )  # fmt: skip
        else:
            value = f"exported, and registered with {names[0]}" if names else "exported"
            line = ok(value, "A card reaches GPU memory by it.", **facts)
        line.name = f"dma-buf GPU {gpu}"
        lines.append(line)
    return lines or not_applicable("no GPU that CUDA can use", exported=False, registered=False)


def peermem(machine: Machine) -> Line:
    """nvidia-peermem: the older way to register GPU memory; tried where there is a card."""
    gpus = list(_each(machine))
    names = [] if machine.verbs.is_software() else mlx5_devices(machine)
    loaded = next((name for name in _PEERMEM if machine.exists(f"/sys/module/{name}")), "")
    facts: dict[str, Any] = {"loaded": loaded, "registered": False}
    if loaded == "nv_peer_mem":
        return problem(
            "nv_peer_mem, the old one", "Other programs refuse it.", "modprobe nvidia_peermem instead", **facts
        )
    if not loaded:
        if not names or not gpus:
            return not_applicable("not loaded", "Of use with a card and a GPU only.", **facts)
        return missing(
            "not loaded", "Not needed where dma-buf works.", "modprobe nvidia_peermem, where dma-buf fails", **facts
        )
    if not names or not gpus:
        return ok("loaded", "Registers GPU memory by address; no card here to try it with.", **facts)
    try:
        machine.verbs.try_gpu_memory(names[0], gpus[0], "address")
    except GdaError as error:
        return problem(
            f"loaded, but {error.message.splitlines()[0]}", "GPU memory by address is refused all the same.",
            "reload it after the network driver: modprobe -r nvidia_peermem; modprobe nvidia_peermem", **facts,
        )  # fmt: skip
    facts["registered"] = True
    return ok(f"loaded; GPU memory registered with {names[0]}", "Works beside dma-buf.", **facts)


PROBES = (
    Probe("GPU", "CUDA driver", driver),
    Probe("GPU", "GPUs", devices),
    Probe("GPU", "GPUDirect", direct),
    Probe("GPU", "BAR1", bar1),
    Probe("GPU", "PeerMappingOverride", peer_mapping),
    Probe("GPU", "doorbell on GPU", uar_on_gpu),
    Probe("GPU", "dma-buf", dmabuf),
    Probe("GPU", "nvidia-peermem", peermem),
)
