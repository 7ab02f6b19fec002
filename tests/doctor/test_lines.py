# SPDX-License-Identifier: Apache-2.0
"""Every line of doctor, on a machine where it is good and on one where it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gda.tools.doctor import Line, Machine, Report, Status
from gda.tools.doctor.examine import PROBES
from gda.tools.doctor.examine import examine as really_examine
from gda.tools.doctor.line import Probe
from tests.doctor.machines import SWITCH, UAR_WORKS, Played, container, gid, laptop, limits, server

# Line -> what its value holds on the server where all is in order.
GOOD = {
    "card 0000:83:00.0": "ConnectX-7, 32.0 GT/s PCIe x16, NUMA node 0",
    "card 0000:84:00.0": "ConnectX-7",
    "device files": "uverbs0, uverbs1",
    "device mlx5_0": "firmware 28.39.1002, 1 port",
    "device mlx5_1": "firmware",
    "port mlx5_0/1": "active, Ethernet (RoCE), 400 Gb/sec (4X NDR)",
    "port mlx5_1/1": "active",
    "addresses mlx5_0/1": "4 entries, index 3 is chosen: 10.0.0.1 RoCE v2, routed, over IPv4",
    "addresses mlx5_1/1": "index 3",
    "MTU mlx5_0/1": "active 4096, at most 4096; ens0 9000",
    "MTU mlx5_1/1": "ens1 9000",
    "P_Keys mlx5_0/1": "0: 0xffff",
    "P_Keys mlx5_1/1": "0: 0xffff",
    "DEVX mlx5_0": "answered; queues up to 32768 blocks; queues without doorbell record",
    "DEVX mlx5_1": "answered",
    "doorbell pages mlx5_0": "NC_DEDICATED, BF, NC",
    "doorbell pages mlx5_1": "NC_DEDICATED, BF, NC",
    "doorbell modes mlx5_0": "record, doorbell-first, no-record, blueflame, cpu",
    "doorbell modes mlx5_1": "record, doorbell-first",
    "CUDA driver": "CUDA 13.0",
    "GPU 0": "NVIDIA H100, compute capability 9.0",
    "GPU 1": "NVIDIA H100",
    "GPUDirect GPU 0": "offered; write ordering to all devices; flush by host",
    "GPUDirect GPU 1": "offered",
    "BAR1 0000:85:00.0": "128 GiB",
    "BAR1 0000:86:00.0": "128 GiB",
    "PeerMappingOverride": "PeerMappingOverride=1",
    "doorbell on GPU mlx5_0": "BF mapped for GPU 0 as I/O memory",
    "doorbell on GPU mlx5_1": "BF mapped",
    "dma-buf GPU 0": "exported, and registered with mlx5_0",
    "dma-buf GPU 1": "exported, and registered with mlx5_0",
    "nvidia-peermem": "loaded; GPU memory registered with mlx5_0",
    "distance of 0000:83:00.0": "0000:83:00.0 to GPU 0000:85:00.0: PIX",
    "distance of 0000:84:00.0": "PIX",
    "ACS": "off at all 6 bridges",
    "libibverbs": "1.14.50.0",
    "libmlx5": "1.25.50.0",
    "software NIC": "loads",
    "C++ compiler": "g++ 12.2.0",
    "GPU compiler": "NVRTC 13.0",
    "CuPy": "13.6.0",
    "release": "6.8.0-45-generic",
    "ib_core": "loaded",
    "ib_uverbs": "loaded",
    "mlx5_core": "loaded",
    "mlx5_ib": "loaded",
    "nvidia": "loaded, version 580.65",
    "locked memory": "unlimited",
    "huge pages": "1024 of 2 MiB; transparent: madvise",
    "container": "none seen",
    "IOMMU": "on, passes addresses through (iommu=pt)",
    "CPU governor": "performance on 4 CPUs",
}

CARD = f"{SWITCH}/0000:82:00.0/0000:83:00.0"
GPU = f"{SWITCH}/0000:82:02.0/0000:85:00.0"


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GDA_NIC", "GDA_TARGET", "GDA_GID_INDEX"):
        monkeypatch.delenv(name, raising=False)


def examine(machine: Machine, probes: tuple[Probe, ...] = PROBES) -> Report:
    return really_examine(machine, probes=probes, isolate=False)


def set_verbs(**values: object) -> Callable[[Played], None]:
    return lambda m: m.verbs.__dict__.update(values)


def set_cuda(**values: object) -> Callable[[Played], None]:
    return lambda m: m.cuda.__dict__.update(values)


def set_attribute(**values: int) -> Callable[[Played], None]:
    return lambda m: m.cuda.attributes.update(values)


def set_programs(**values: object) -> Callable[[Played], None]:
    return lambda m: m.programs.__dict__.update(values)


def write(name: str, text: str | bytes) -> Callable[[Played], None]:
    return lambda m: m.write(name, text)


def no_files(m: Played) -> None:
    m.remove("/dev/infiniband")


def no_cards(m: Played) -> None:
    for i in (3, 4):
        m.remove(f"/sys/bus/pci/devices/0000:8{i}:00.0")


def no_cards_at_all(m: Played) -> None:
    no_cards(m)
    m.verbs.names = []


def acs_on(m: Played) -> None:
    m.pci(f"{SWITCH}/0000:82:00.0", 0xC030, 0x1000, 0x060400, acs=0x1D)


def not_root(m: Played) -> None:
    for bridge in (m.root / "sys/bus/pci/devices").iterdir():
        (bridge / "config").write_bytes(bytes(64))


def far_gpus(m: Played) -> None:
    for address in ("0000:85:00.0", "0000:86:00.0"):
        m.remove(f"/sys/bus/pci/devices/{address}")
    m.pci("pci0000:10/0000:10:01.0/0000:11:00.0", 0x2330, 0x10DE, 0x030200, bar1=1 << 37, numa=1)


def small_bar(m: Played) -> None:
    m.pci(GPU, 0x2330, 0x10DE, 0x030200, bar1=256 << 20)


def no_module(name: str) -> Callable[[Played], None]:
    return lambda m: m.remove(f"/sys/module/{name}")


def old_peermem(m: Played) -> None:
    m.remove("/sys/module/nvidia_peermem")
    m.write("/sys/module/nv_peer_mem/version", "1.1\n")


def translated(m: Played) -> None:
    m.write("/sys/kernel/iommu_groups/10/type", "DMA-FQ\n")
    m.write("/proc/cmdline", "intel_iommu=on\n")


def no_large_pages(m: Played) -> None:
    m.write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n")
    m.write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")


def without_files(m: Played) -> None:
    m.write("/.dockerenv")
    m.remove("/dev/infiniband")


ONLY_V1 = [(0, gid("fe80::1"), "RoCE v1")]
ONLY_LOCAL = [(0, gid("fe80::1"), "RoCE v1"), (1, gid("fe80::1"), "RoCE v2")]
ONLY_CPU = [("record", "no page"), ("cpu", "")]
P, M, U, N = Status.PROBLEM, Status.MISSING, Status.UNKNOWN, Status.NOT_APPLICABLE

Row = tuple[str, Callable[[Played], None], Status, str, str]
# Line, what is wrong, how it is then, words of its value, words of what to do.
BAD: list[Row] = [
    ("card on the bus", no_cards_at_all, M, "no ConnectX", "buy or borrow"),
    ("card on the bus", no_cards, U, "/sys shows no card, but libibverbs lists mlx5_0, mlx5_1", "mount /sys"),
    ("card 0000:83:00.0", write(f"/sys/devices/{CARD}/current_link_width", "4\n"), P, "x4", "16 lanes"),
    ("device files", no_files, M, "no /dev/infiniband/uverbs*", "modprobe ib_uverbs"),
    ("devices", set_verbs(names=[]), M, "lists none", "modprobe mlx5_ib"),
    ("device odd0", set_verbs(names=[("odd0", False)]), N, "neither InfiniBand, RoCE nor iWARP", ""),
    ("addresses siw0/1", set_verbs(names=[("siw0", False)], connects=False), P, "librdmacm is not", "librdmacm1"),
    ("port mlx5_0/1", set_verbs(state=1), P, "down, Ethernet", "plug a cable"),
    ("addresses mlx5_0/1", set_verbs(table=[]), P, "none chosen", "ip addr add"),
    ("addresses mlx5_0/1", set_verbs(table=ONLY_LOCAL), P, "index 1 is chosen: fe80::1 RoCE v2", "ip addr add"),
    ("addresses mlx5_0/1", set_verbs(table=ONLY_V1), P, "RoCE v1, which no router", "ip addr add"),
    ("MTU mlx5_0/1", set_verbs(active_mtu=3), P, "active 1024, at most 4096; ens0 9000", "mtu 9000"),
    ("MTU mlx5_0/1", write("/sys/class/net/ens0/mtu", "1500\n"), P, "ens0 1500", "ip link set ens0 mtu 4192"),
    ("P_Keys mlx5_0/1", set_verbs(keys=[0x7FFF]), P, "0: 0x7fff", "full member"),
    ("P_Keys mlx5_0/1", set_verbs(keys=[0, 0x8001]), P, "1: 0x8001", "subnet manager"),
    ("DEVX mlx5_0", set_verbs(capabilities=None), P, "EPERM", "CAP_NET_RAW"),
    ("doorbell pages mlx5_0", set_verbs(uar=dict.fromkeys(UAR_WORKS, "EIO")), P, "none: NC_DEDICATED: EIO", "DEVX"),
    (
        "doorbell pages mlx5_0", set_verbs(uar={"NC_DEDICATED": "ENOTSUP", "BF": "ENOMEM", "NC": ""}), P,
        "only NC: NC_DEDICATED: ENOTSUP; BF: ENOMEM", "rdma-core",
    ),
    ("doorbell modes mlx5_0", set_verbs(modes=ONLY_CPU), P, "only cpu; record: no page", 'doorbell="cpu"'),
    ("doorbell modes mlx5_0", set_verbs(modes=ONLY_CPU[:1]), P, "none: record: no page", "DEVX"),
    ("CUDA driver", set_cuda(reason="cuInit: no device"), P, "cuInit: no device", "--gpus all"),
    ("GPUs", set_cuda(reason="cuInit: no device"), M, "none usable: cuInit", "CUDA driver"),
    ("GPU 0", set_attribute(COMPUTE_CAPABILITY_MAJOR=6), P, "capability 6.0", "newer GPU"),
    ("GPUDirect GPU 0", set_attribute(GPU_DIRECT_RDMA_SUPPORTED=0), P, "not offered", 'placement="host"'),
    ("GPUDirect GPU 0", set_attribute(GPU_DIRECT_RDMA_WRITES_ORDERING=0), P, "write ordering none", "flush"),
    ("BAR1 0000:85:00.0", small_bar, P, "256 MiB", "Resizable BAR"),
    ("BAR1 0000:85:00.0", write(f"/sys/devices/{GPU}/resource", ""), U, "no second region", "nvidia-smi"),
    ("PeerMappingOverride", write("/proc/driver/nvidia/params", 'RegistryDwords: ""\n'), P, "not set", "NVreg_Reg"),
    ("PeerMappingOverride", write("/proc/driver/nvidia/params", 'RegistryDwords: "A=1"\n'), P, "'A=1'", "modprobe.d"),
    ("doorbell on GPU mlx5_0", set_verbs(uar_on_gpu=""), P, "CUDA_ERROR_NOT_PERMITTED (800)", "PeerMappingOverride"),
    ("dma-buf GPU 0", set_cuda(exports=False), P, "not exported: cuMemGetHandle", "open kernel modules"),
    ("dma-buf GPU 0", set_verbs(gpu_memory=set()), P, "exported, but the card refused it", "Linux 5.12"),
    ("nvidia-peermem", no_module("nvidia_peermem"), M, "not loaded", "modprobe nvidia_peermem"),
    ("nvidia-peermem", set_verbs(gpu_memory=set()), P, "loaded, but ibv_reg_mr failed: EFAULT (14)", "reload it"),
    ("nvidia-peermem", old_peermem, P, "the old one", "modprobe nvidia_peermem"),
    ("distance of 0000:83:00.0", far_gpus, P, "to GPU 0000:11:00.0: SYS", "slot"),
    ("ACS", acs_on, P, "on at 1 of 6 bridges (0000:82:00.0: request redirect, completion redirect", "BIOS"),
    ("ACS", not_root, U, "only 64 bytes", "lspci"),
    ("libibverbs", set_verbs(versions=None), M, "libibverbs.so.1 is missing", "apt-get install libibverbs1"),
    ("libmlx5", set_verbs(versions=None), M, "is missing", "ibverbs-providers"),
    ("software NIC", set_programs(software_nic=""), M, "does not exist", "build it"),
    ("C++ compiler", set_programs(compiler=""), M, "no C++ compiler", "g++"),
    ("GPU compiler", set_programs(nvrtc=None), M, "NVRTC was not found", "pip install"),
    ("CuPy", set_programs(cupy=""), M, "CuPy cannot be imported", "pip install cupy"),
    ("release", write("/proc/sys/kernel/osrelease", "4.18.0-553.el8\n"), P, "4.18.0", "newer kernel"),
    ("release", write("/proc/sys/kernel/osrelease", "strange\n"), P, "strange", "newer kernel"),
    *(
        (name, no_module(name), M, "not loaded", f"modprobe {name}")
        for name in ("ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib")
    ),
    ("nvidia", no_module("nvidia"), M, "not loaded", "install NVIDIA's driver"),
    ("locked memory", lambda m: limits("65536", m), P, "64 KiB", "ulimit -l unlimited"),
    ("locked memory", write("/proc/self/limits", ""), U, "does not say", "ulimit -l"),
    ("huge pages", no_large_pages, P, "0 of 2 MiB; transparent: never", "nr_hugepages"),
    ("container", without_files, P, "Docker; /sys shows mlx5_0, mlx5_1", "--device=/dev/infiniband"),
    ("IOMMU", translated, P, "translates for 0000:83:00.0, 0000:85:00.0 (DMA-FQ) (intel_iommu=on)", "iommu=pt"),
    (
        "CPU governor", write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"), P,
        "performance on 3 CPUs, powersave on 1 CPUs", "cpupower",
    ),
]  # fmt: skip


def test_a_server_in_order(tmp_path: Path) -> None:
    report = examine(server(tmp_path).machine)
    assert {line.name for line in report.lines} == set(GOOD)
    for line in report.lines:
        assert line.status is Status.OK, line
        assert GOOD[line.name] in line.value, line
        assert line.meaning and not line.next, line
    assert report.verdict.can.startswith("GPU-initiated RDMA on a real card")
    assert report.verdict.uses == {
        "kernels": "the GPU", "NIC": "mlx5_0, a real card", "queues": "GPU memory", "payload": "GPU or host memory",
        "doorbell": 'the kernel on the GPU stores to a NC_DEDICATED page, mode "record"',
    }  # fmt: skip
    assert not report.verdict.steps


@pytest.mark.parametrize("row", BAD, ids=[f"{row[0]}: {row[3]}".replace("/", "|") for row in BAD])
def test_what_is_wrong_is_named(tmp_path: Path, row: Row) -> None:
    name, spoil, status, value, advice = row
    played = server(tmp_path)
    spoil(played)
    kinds = {p: p.name.removesuffix(" on the bus").removesuffix(" card to GPU").removesuffix("s") for p in PROBES}
    probe = [p for p, kind in kinds.items() if name.startswith(kind)]
    line: Line = examine(played.machine, probes=tuple(probe)).line(name)
    assert line.status is status, line
    assert value in line.value, line
    assert advice in line.next, line
    assert line.meaning, line
    assert bool(line.next) == (status is not N), line


def test_every_line_has_a_bad_machine() -> None:
    seen = {row[0] for row in BAD}
    for name in GOOD:
        kind = name.replace("mlx5_1", "mlx5_0").replace("84:", "83:").replace("86:", "85:").replace("GPU 1", "GPU 0")
        assert kind in seen or kind == "device mlx5_0", name


def test_a_laptop_is_told_what_to_buy_borrow_or_simulate(tmp_path: Path) -> None:
    report = examine(laptop(tmp_path).machine)
    assert not [line for line in report.lines if line.status is Status.UNKNOWN]
    card = report.line("card on the bus")
    assert "buy or borrow a ConnectX" in card.next and "GDA_NIC=software" in card.next
    assert report.line("mlx5_ib").status is Status.NOT_APPLICABLE
    assert "software NIC, with kernels on the CPU" in report.verdict.can
    assert report.verdict.uses["NIC"] == "the software NIC" and report.verdict.uses["kernels"] == "the CPU"
    assert report.verdict.steps


def test_without_cupy_kernels_run_on_the_cpu(tmp_path: Path) -> None:
    played = server(tmp_path)
    played.programs.cupy = ""
    verdict = examine(played.machine).verdict
    assert verdict.uses["kernels"] == "the CPU" and any("cupy" in step for step in verdict.steps)


def test_a_laptop_without_a_compiler_can_do_nothing_yet(tmp_path: Path) -> None:
    played = laptop(tmp_path)
    played.programs.compiler = ""
    report = examine(played.machine)
    assert report.verdict.can.startswith("Nothing yet")
    assert any("g++" in step for step in report.verdict.steps)


def test_a_container_without_devices(tmp_path: Path) -> None:
    report = examine(container(tmp_path).machine)
    assert "64 KiB" in report.line("locked memory").value
    assert report.line("container").status is Status.PROBLEM
    assert report.line("device files").status is Status.MISSING
    assert "software NIC, with kernels on the GPU" in report.verdict.can
    first = report.verdict.steps[:2]
    assert any("--device=/dev/infiniband" in step for step in first) and any("memlock" in step for step in first), first


def test_an_unmapped_doorbell_changes_the_verdict(tmp_path: Path) -> None:
    played = server(tmp_path)
    played.verbs.uar_on_gpu = ""
    verdict = examine(played.machine).verdict
    assert "they post, and a host thread rings for them" in verdict.can
    assert verdict.uses["doorbell"] == 'a host thread rings for the kernel on the GPU: ask for doorbell="cpu"'
    played.verbs.modes = [("record", "no page"), ("cpu", "no page")]
    verdict = examine(played.machine).verdict
    assert "cannot ring it yet" in verdict.can
    assert "not by a kernel on the GPU" in verdict.uses["doorbell"]


def test_gpu_memory_out_of_reach_puts_queues_in_host_memory(tmp_path: Path) -> None:
    played = server(tmp_path)
    played.verbs.gpu_memory = set()
    uses = examine(played.machine).verdict.uses
    assert uses["queues"] == "host memory: the card does not reach GPU memory" and uses["payload"] == "host memory"


def test_a_device_that_is_not_mlx5_is_reached_by_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = server(tmp_path)
    played.verbs.names = [("rxe0", False), ("siw0", False)]
    report = examine(played.machine)
    assert report.line("device rxe0").status is Status.OK and "by the proxy" in report.line("device rxe0").value
    assert report.line("port rxe0/1").status is Status.OK
    assert report.verdict.can.startswith("RDMA by rxe0 with kernels on the GPU: a host thread posts")
    assert report.verdict.uses["posting"] == "a host thread, by libibverbs" and "rxe0" in report.verdict.uses["NIC"]
    assert "Ethernet (iWARP)" in report.line("port siw0/1").value
    assert report.line("addresses siw0/1").value == "192.0.2.7, by the connection manager"
    assert report.line("P_Keys siw0/1").status is Status.NOT_APPLICABLE
    monkeypatch.setenv("GDA_POSTING", "direct")
    assert "posting" not in examine(played.machine).verdict.uses
    played.verbs.names = [("rxe0", False), ("mlx5_0", True)]
    monkeypatch.setenv("GDA_POSTING", "auto")
    assert examine(played.machine).verdict.uses["NIC"] == "mlx5_0, a real card"
    monkeypatch.setenv("GDA_POSTING", "proxy")
    uses = examine(played.machine).verdict.uses
    assert (uses["NIC"], uses["posting"]) == (
        "mlx5_0, a real device", "a host thread, by libibverbs (GDA_POSTING=proxy)"
    )


def test_several_switches_and_one_root(tmp_path: Path) -> None:
    played = server(tmp_path)
    far_gpus(played)
    played.remove("/sys/bus/pci/devices/0000:11:00.0")
    deep = f"{SWITCH}/0000:82:02.0/0000:90:00.0/0000:91:00.0"
    for way in (deep.rpartition("/")[0], deep):
        played.pci(way, 0xC030, 0x1000, 0x060400)
    played.pci(f"{deep}/0000:92:00.0", 0x2330, 0x10DE, 0x030200, bar1=1 << 37)
    assert examine(played.machine).line("distance of 0000:83").value.endswith("PXB")
    played.remove("/sys/bus/pci/devices/0000:92:00.0")
    played.pci("pci0000:80/0000:80:03.0/0000:93:00.0", 0x2330, 0x10DE, 0x030200, bar1=1 << 37)
    line = examine(played.machine).line("distance of 0000:83")
    assert line.value.endswith("PHB") and line.status is Status.PROBLEM


def test_a_right_that_lifts_the_limit(tmp_path: Path) -> None:
    played = server(tmp_path)
    limits("65536", played)
    played.write("/proc/self/status", "CapEff:\t0000000000004000\n")
    line = examine(played.machine).line("locked memory")
    assert line.status is Status.OK and "CAP_IPC_LOCK" in line.value


def test_files_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = server(tmp_path)
    machine = played.machine
    monkeypatch.setattr(type(machine), "may_open", lambda self, name: not name.endswith("uverbs1"))
    line = examine(machine).line("device files")
    assert line.status is Status.PROBLEM and line.value == "uverbs1 may not be opened" and "chmod" in line.next


def test_an_index_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_GID_INDEX", "1")
    assert "GDA_GID_INDEX names it" in examine(server(tmp_path).machine).line("addresses").value
    monkeypatch.setenv("GDA_GID_INDEX", "9")
    line = examine(server(tmp_path / "other").machine).line("addresses")
    assert line.status is Status.PROBLEM and "index 9" in line.value


def test_the_verdict_heeds_what_the_environment_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = server(tmp_path).machine
    monkeypatch.setenv("GDA_NIC", "software")
    monkeypatch.setenv("GDA_TARGET", "host")
    verdict = examine(machine).verdict
    assert "software NIC, with kernels on the CPU" in verdict.can
    assert (verdict.uses["NIC"], verdict.uses["kernels"]) == (
        "the software NIC (GDA_NIC=software)", "the CPU (GDA_TARGET=host)"
    )
    monkeypatch.setenv("GDA_NIC", "real")
    assert examine(laptop(tmp_path / "laptop").machine).verdict.uses["NIC"] == "none (GDA_NIC=real)"
