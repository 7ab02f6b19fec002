# SPDX-License-Identifier: Apache-2.0
"""Where the probes take their facts from: a root for /sys and /proc, and three doors to libraries and programs.

Tests play other machines by another root and other doors. Nothing here writes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from gda.tools.doctor.doors import CudaDoor, ProgramDoor, VerbsDoor

__all__ = ["MELLANOX", "NVIDIA", "Machine", "PciFunction"]

MELLANOX, NVIDIA = 0x15B3, 0x10DE
_DISPLAY, _BRIDGE = 0x03, 0x06  # PCI base classes


@dataclass(frozen=True)
class PciFunction:
    """A PCI function as sysfs shows it. `above` are the bridges over it, the nearest to the root first."""

    address: str
    vendor: int
    device: int
    kind: int  # 24 bits: base class, sub-class, interface
    above: tuple[str, ...]
    host_bridge: str
    numa: int
    link_speed: str
    link_width: str
    resources: tuple[int, ...]  # bytes of each region, BAR0 first

    @property
    def base_class(self) -> int:
        """0x02 network, 0x03 display (GPUs), 0x06 bridge."""
        return self.kind // 65536

    @property
    def link(self) -> str:
        """Speed and width, where the device says them."""
        return f"{self.link_speed} x{self.link_width}" if self.link_speed else "link unknown"


@dataclass
class Machine:
    """One machine. `root` stands before /sys, /proc, /dev and /run."""

    root: Path = Path("/")
    verbs: VerbsDoor = field(default_factory=VerbsDoor)
    cuda: CudaDoor = field(default_factory=CudaDoor)
    programs: ProgramDoor = field(default_factory=ProgramDoor)

    def path(self, name: str) -> Path:
        """Where the file with this absolute name lies."""
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str | None:
        """Text of a file, stripped; None where it is not there. Raises PermissionError where it may not be read."""
        try:
            return self.path(name).read_text(errors="replace").strip()
        except PermissionError:
            raise
        except OSError:
            return None

    def read_bytes(self, name: str) -> bytes:
        """Bytes of a file, none where it is not there or may not be read."""
        try:
            return self.path(name).read_bytes()
        except OSError:
            return b""

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        try:
            return self.path(name).exists()
        except OSError:
            return False

    def names(self, name: str) -> list[str]:
        """What a directory holds, sorted; nothing where there is none."""
        try:
            return sorted((p.name for p in self.path(name).iterdir()), key=lambda n: (len(n), n))
        except OSError:
            return []

    def may_open(self, name: str) -> bool:
        """Whether this user may read and write the file. Does not open it."""
        return os.access(self.path(name), os.R_OK | os.W_OK)

    # ------------------------------------------------------------------------------------------------------ PCI
    def pci(self) -> list[PciFunction]:
        """All functions on the bus."""
        return [f for f in map(self._function, self.names("/sys/bus/pci/devices")) if f is not None]

    def cards(self) -> list[PciFunction]:
        """Functions of NVIDIA's network cards."""
        return [f for f in self.pci() if f.vendor == MELLANOX and f.base_class == 0x02]

    def gpus(self) -> list[PciFunction]:
        """Functions of NVIDIA's GPUs."""
        return [f for f in self.pci() if f.vendor == NVIDIA and f.base_class == _DISPLAY]

    def bridges(self, function: PciFunction) -> list[str]:
        """Addresses of the bridges over a function."""
        return [a for a in function.above if self._number(f"/sys/bus/pci/devices/{a}/class") // 65536 == _BRIDGE]

    def _function(self, address: str) -> PciFunction | None:
        base = f"/sys/bus/pci/devices/{address}"
        try:
            parts = self.path(base).resolve().parts
        except OSError:
            return None
        at = next((i for i, p in enumerate(parts) if p.startswith("pci") and p.count(":") == 1), None)
        chain = parts[at + 1 : -1] if at is not None else ()
        rows = (self.read(f"{base}/resource") or "").splitlines()
        return PciFunction(
            address, self._number(f"{base}/vendor"), self._number(f"{base}/device"), self._number(f"{base}/class"),
            tuple(chain), parts[at] if at is not None else "", self._number(f"{base}/numa_node", -1),
            self._said(f"{base}/current_link_speed"), self._said(f"{base}/current_link_width"),
            tuple(_region_bytes(row) for row in rows),
        )  # fmt: skip

    def _number(self, name: str, otherwise: int = 0) -> int:
        try:
            return int(self._said(name), 0)
        except ValueError:
            return otherwise

    def _said(self, name: str) -> str:
        try:
            return self.read(name) or ""
        except PermissionError:
            return ""


def _region_bytes(row: str) -> int:
    """Length of a region, from a row of sysfs' `resource`: first byte, last byte, flags."""
    words = row.split()
    if len(words) != 3:
        return 0
    start, end = int(words[0], 16), int(words[1], 16)
    return end - start + 1 if end else 0
