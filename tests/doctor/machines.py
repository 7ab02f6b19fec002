# SPDX-License-Identifier: Apache-2.0
"""Machines that tests play for doctor: a tree of /sys and /proc, and doors that answer what they are told."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gda.errors import CudaError, UnavailableError, VerbsError
from gda.tools.doctor import Machine

UAR_WORKS = {"NC_DEDICATED": "", "BF": "", "NC": ""}
MODES = ("record", "doorbell-first", "no-record", "blueflame", "cpu")
MIB, GIB = 1 << 20, 1 << 30


def gid(text: str) -> bytes:
    address = ipaddress.ip_address(text)
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


GIDS = [
    (0, gid("fe80::1"), "RoCE v1"), (1, gid("fe80::1"), "RoCE v2"),
    (2, gid("10.0.0.1"), "RoCE v1"), (3, gid("10.0.0.1"), "RoCE v2"),
]  # fmt: skip


@dataclass
class PlayedVerbs:
    names: list[tuple[str, bool]] = field(default_factory=lambda: [("mlx5_0", True), ("mlx5_1", True)])
    versions: tuple[str, str] | None = ("1.14.50.0", "1.25.50.0")
    state: int = 4
    link_layer: int = 2
    active_mtu: int = 5
    table: list[tuple[int, bytes, str]] = field(default_factory=lambda: list(GIDS))
    keys: list[int] = field(default_factory=lambda: [0xFFFF, 0])
    capabilities: dict[str, Any] | None = field(
        default_factory=lambda: {"log_max_qp_sz": 15, "send_dbr_mode_no_dbr_ext": 1}
    )
    uar: dict[str, str] = field(default_factory=lambda: dict(UAR_WORKS))
    uar_on_gpu: str = "BF"
    modes: list[tuple[str, str]] = field(default_factory=lambda: [(mode, "") for mode in MODES])
    connects: bool = True
    gpu_memory: set[str] = field(default_factory=lambda: {"dma-buf", "address"})

    def libraries(self) -> tuple[str, str]:
        if self.versions is None:
            raise UnavailableError("libibverbs.so.1 is missing", "apt-get install libibverbs1 ibverbs-providers")
        return self.versions

    def is_software(self) -> bool:
        return False

    def devices(self) -> list[tuple[str, bool]]:
        self.libraries()
        return self.names

    def proxied(self) -> list[str]:
        return [name for name, mlx5 in self.names if not mlx5 and not name.startswith("odd")]

    def iwarp(self) -> list[str]:
        return [name for name, _ in self.names if name.startswith("siw")]

    def try_connector(self, name: str) -> str:
        if not self.connects:
            raise UnavailableError("librdmacm is not here", "apt-get install librdmacm1")
        return "192.0.2.7"

    def device(self, name: str) -> dict[str, Any]:
        return {"fw_ver": "28.39.1002", "phys_port_cnt": 1}

    def port(self, name: str, port: int) -> dict[str, Any]:
        return {
            "state": self.state, "link_layer": self.link_layer, "active_mtu": self.active_mtu, "max_mtu": 5,
        }  # fmt: skip

    def gids(self, name: str, port: int) -> list[tuple[int, bytes, str]]:
        return self.table

    def pkeys(self, name: str, port: int) -> list[int]:
        return self.keys

    def try_devx(self, name: str) -> dict[str, Any]:
        if self.capabilities is None:
            raise VerbsError(f"mlx5dv_open_device({name})", 1)
        return self.capabilities

    def try_uar(self, name: str) -> dict[str, str]:
        return self.uar

    def try_doorbell_modes(self, name: str) -> list[tuple[str, str]]:
        return self.modes

    def try_uar_on_gpu(self, name: str, gpu: int) -> str:
        if not self.uar_on_gpu:
            raise CudaError("cuMemHostRegister(0x7f0000000000, 4096, 7)", 800, "CUDA_ERROR_NOT_PERMITTED")
        return self.uar_on_gpu

    def try_gpu_memory(self, name: str, gpu: int, by: str) -> None:
        if by not in self.gpu_memory:
            raise VerbsError("ibv_reg_mr" if by == "address" else "ibv_reg_dmabuf_mr", 14)


@dataclass
class PlayedCuda:
    names: list[str] = field(default_factory=lambda: ["NVIDIA H100", "NVIDIA H100"])
    reason: str = ""
    attributes: dict[str, int] = field(
        default_factory=lambda: {
            "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "GPU_DIRECT_RDMA_SUPPORTED": 1,
            "GPU_DIRECT_RDMA_WRITES_ORDERING": 200, "GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS": 1,
        }
    )  # fmt: skip
    exports: bool = True

    def available(self) -> tuple[bool, str]:
        return (bool(self.names) and not self.reason), self.reason or ("" if self.names else "no CUDA driver")

    def version(self) -> tuple[int, int]:
        return 13, 0

    def count(self) -> int:
        return len(self.names)

    def name(self, gpu: int) -> str:
        return self.names[gpu]

    def attribute(self, name: str, gpu: int) -> int:
        return self.attributes[name]

    def try_dmabuf(self, gpu: int) -> None:
        if not self.exports:
            raise CudaError("cuMemGetHandleForAddressRange", 801, "CUDA_ERROR_NOT_SUPPORTED")


@dataclass
class PlayedPrograms:
    compiler: str = "g++ 12.2.0"
    nvrtc: tuple[int, int] | None = (13, 0)
    software_nic: str = "loads"
    cupy: str = "13.6.0"

    def try_cupy(self) -> str:
        if not self.cupy:
            raise UnavailableError("CuPy cannot be imported: No module named 'cupy'", "pip install cupy-cuda13x")
        return self.cupy

    def try_compiler(self) -> str:
        if not self.compiler:
            raise UnavailableError("no C++ compiler: g++, c++ and clang++ are not on the PATH", "apt-get install g++")
        return self.compiler

    def try_nvrtc(self) -> tuple[int, int]:
        if self.nvrtc is None:
            raise UnavailableError("NVRTC was not found", "pip install nvidia-cuda-nvrtc")
        return self.nvrtc

    def try_software_nic(self) -> str:
        if not self.software_nic:
            raise UnavailableError("the software NIC's library does not exist", "build it: make demo")
        return self.software_nic


class Played:
    """A machine under a directory; `write` and `remove` change it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.verbs, self.cuda, self.programs = PlayedVerbs(), PlayedCuda(), PlayedPrograms()

    @property
    def machine(self) -> Machine:
        return Machine(self.root, self.verbs, self.cuda, self.programs)  # type: ignore[arg-type]

    def write(self, name: str, text: str | bytes = "") -> None:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def remove(self, name: str) -> None:
        """A file, or a directory with what it holds."""
        path = self.root / name.lstrip("/")
        if path.is_dir() and not path.is_symlink():
            for inner in sorted(path.rglob("*"), reverse=True):
                inner.rmdir() if inner.is_dir() and not inner.is_symlink() else inner.unlink()
            path.rmdir()
        else:
            path.unlink()

    def pci(self, way: str, device: int, vendor: int, kind: int, *, bar1: int = 0, numa: int = 0, acs: int = 0) -> None:
        """A function at a path such as pci0000:80/0000:80:01.0/0000:81:00.0, with its entry in /sys/bus."""
        base = f"/sys/devices/{way}"
        self.write(f"{base}/vendor", f"0x{vendor:04x}\n")
        self.write(f"{base}/device", f"0x{device:04x}\n")
        self.write(f"{base}/class", f"0x{kind:06x}\n")
        self.write(f"{base}/numa_node", f"{numa}\n")
        self.write(f"{base}/current_link_speed", "32.0 GT/s PCIe\n")
        self.write(f"{base}/current_link_width", "16\n")
        regions = [(0x1000, 0x1FFFFFF), (0x100000000, 0x100000000 + bar1 - 1 if bar1 else 0)]
        self.write(f"{base}/resource", "".join(f"0x{a:016x} 0x{b if b else 0:016x} 0x00140204\n" for a, b in regions))
        self.write(f"{base}/config", config_space(acs))
        link = self.root / f"sys/bus/pci/devices/{way.rpartition('/')[2]}"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(f"../../../devices/{way}")


def config_space(acs: int) -> bytes:
    """4 KiB with an Advanced Error Reporting capability and one of Access Control Services behind it."""
    config = bytearray(4096)
    struct.pack_into("<HH", config, 256, 0x0001, 0x1402)  # next at 0x140
    struct.pack_into("<HHHH", config, 0x140, 0x000D, 0x0001, 0x001F, acs)
    return bytes(config)


SWITCH = "pci0000:80/0000:80:01.0/0000:81:00.0"


def server(root: Path) -> Played:
    """Two ConnectX-7 and two GPUs behind one switch, all in order."""
    played = Played(root)
    played.pci("pci0000:80/0000:80:01.0", 0x352A, 0x8086, 0x060400)
    played.pci(SWITCH, 0xC030, 0x1000, 0x060400)
    for port in range(4):
        played.pci(f"{SWITCH}/0000:82:0{port}.0", 0xC030, 0x1000, 0x060400)
    for i in range(2):
        card, gpu = f"{SWITCH}/0000:82:0{i}.0/0000:8{3 + i}:00.0", f"{SWITCH}/0000:82:0{2 + i}.0/0000:8{5 + i}:00.0"
        played.pci(card, 0x1021, 0x15B3, 0x020700)
        played.pci(gpu, 0x2330, 0x10DE, 0x030200, bar1=128 * GIB)
        played.write(f"/sys/class/infiniband/mlx5_{i}/ports/1/rate", "400 Gb/sec (4X NDR)\n")
        played.write(f"/sys/class/infiniband/mlx5_{i}/ports/1/gid_attrs/ndevs/0", f"ens{i}\n")
        played.write(f"/sys/class/net/ens{i}/mtu", "9000\n")
        played.write(f"/dev/infiniband/uverbs{i}")
        for address in (card.rpartition("/")[2], gpu.rpartition("/")[2]):
            group = f"sys/kernel/iommu_groups/{10 + i}"
            played.write(f"/{group}/type", "identity\n")
            (root / f"sys/bus/pci/devices/{address}/iommu_group").symlink_to(root / group)
    modules = ("ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia", "nvidia_peermem")
    for module in modules:
        played.write(f"/sys/module/{module}/version", "580.65\n" if "nvidia" in module else "")
    played.write("/proc/modules", "".join(f"{m} 1 0 - Live 0x0\n" for m in modules))
    played.write("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    played.write("/proc/driver/nvidia/params", 'EnableMSI: 1\nRegistryDwords: "PeerMappingOverride=1;"\n')
    played.write("/proc/cmdline", "root=/dev/sda1 iommu=pt\n")
    limits("unlimited", played)
    for cpu in range(4):
        played.write(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "performance\n")
    played.write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1024\n")
    played.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    return played


def laptop(root: Path) -> Played:
    """No card, no GPU."""
    played = Played(root)
    played.verbs.names, played.cuda.names = [], []
    played.programs.nvrtc = None
    played.programs.cupy = ""
    played.pci("pci0000:00/0000:00:02.0", 0x9A49, 0x8086, 0x030000)
    played.write("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
    played.write("/proc/cmdline", "quiet\n")
    limits(str(8 * MIB), played)
    played.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    played.write("/sys/kernel/mm/transparent_hugepage/enabled", "[never]\n")
    return played


def container(root: Path) -> Played:
    """The server, as a container with 64 KiB to lock and no device files sees it."""
    played = server(root)
    played.write("/.dockerenv")
    played.remove("/dev/infiniband")
    played.verbs.names = []
    limits(str(64 * 1024), played)
    return played


def limits(value: str, played: Played) -> None:
    row = f"Max locked memory         {value}   {value}   bytes\n"
    played.write("/proc/self/limits", f"Limit  Soft Limit  Hard Limit  Units\n{row}")
    played.write("/proc/self/status", "Name: python\nCapEff:\t0000000000000000\n")
