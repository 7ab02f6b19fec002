# SPDX-License-Identifier: Apache-2.0
"""Reads another process of the same user, or this one, without its help: what live.py stands on.

A process that uses the software NIC or this library has memory with the names "gda-live-nic" (one a NIC,
sim/engine/live.h) and "gda-live" (gda/present.py); /proc/PID/maps tells where, process_vm_readv copies. Nothing is
written, no thread of the process takes part, no lock of it is taken: it may spin, hang or be stopped.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gda import present
from gda.errors import ArgumentError, GdaError, UnavailableError

__all__ = ["NicMemory", "Process", "Record", "processes"]

_MAPS_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+\s+/memfd:(gda-live(?:-nic)?)(?: \(deleted\))?$")
_NIC_MAGIC = b"gdalive1"
_NIC_NAME, _NIC_TEXT, _NIC_SENTENCES = 32, 64, 16 * 1024  # struct Head of sim/engine/live.cc
_MOST_OBJECTS = 4096  # queue pairs that are read: bounded time


class _IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Process:
    """A process that is looked at. Raises UnavailableError when it is gone or may not be read."""

    def __init__(self, pid: int) -> None:
        if not isinstance(pid, int) or pid <= 0:
            raise ArgumentError(f"{pid!r} is no number of a process", _LIST)
        self.pid = pid
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.process_vm_readv.restype = ctypes.c_ssize_t
        self._libc.process_vm_readv.argtypes = [
            ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong,
        ]  # fmt: skip

    @property
    def command(self) -> str:
        """Its command line."""
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return ""
        return b" ".join(words).decode(errors="replace").strip()

    @property
    def stopped(self) -> bool:
        """Whether the system lets none of its threads run: a signal or a debugger stopped it."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
        except (OSError, IndexError):
            return False

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes. Raises UnavailableError when they are not there."""
        buffer = ctypes.create_string_buffer(size)
        local = _IoVec(ctypes.addressof(buffer), size)
        remote = _IoVec(address, size)
        got = self._libc.process_vm_readv(self.pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if got == size:
            return buffer.raw
        code = ctypes.get_errno() if got < 0 else errno.EFAULT
        what = f"{self._why(code)} ({size} bytes at {address:#x})"
        raise UnavailableError(f"process {self.pid}: {what}", _ADVICE.get(code, ""))

    def mappings(self) -> list[tuple[str, int, int]]:
        """Name, address and size of what the process shows."""
        try:
            lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        except FileNotFoundError as error:
            raise UnavailableError(f"there is no process {self.pid}", _LIST) from error
        except OSError as error:
            why = self._why(error.errno or 0)
            raise UnavailableError(f"process {self.pid}: {why}", _ADVICE[errno.EPERM]) from error
        found = (match for line in lines if (match := _MAPS_LINE.match(line)))
        return [(m[3], int(m[1], 16), int(m[2], 16) - int(m[1], 16)) for m in found]

    def nics(self) -> list[NicMemory]:
        """The software NICs that live in it."""
        found = [NicMemory(self, address) for name, address, _ in self.mappings() if name == "gda-live-nic"]
        return sorted((nic for nic in found if nic.valid), key=lambda nic: nic.name)

    def shown(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What the library shows (gda/present.py): slot and facts."""
        for name, address, _ in self.mappings():
            if name != present.NAME:
                continue
            head = self.read(address, 24)
            if head[:8] != present.MAGIC or int.from_bytes(head[8:16], "little") != self.pid:
                continue
            for slot in range(min(int.from_bytes(head[16:24], "little"), _MOST_OBJECTS)):
                data = self.read(address + present.HEAD_BYTES + slot * present.SLOT_BYTES, present.SLOT_BYTES)
                length = int.from_bytes(data[:4], "little")
                if 0 < length <= present.SLOT_BYTES - 4:
                    try:
                        yield slot, json.loads(data[4 : 4 + length])
                    except ValueError:  # it is being written
                        continue

    def _why(self, code: int) -> str:
        return {
            errno.EPERM: "reading its memory is not allowed",
            errno.EACCES: "reading it is not allowed",
            errno.ESRCH: "it is gone",
            errno.EFAULT: "that memory is not there",
        }.get(code, os.strerror(code))


_LIST = "python -m gda live lists the processes that can be looked at"
_ADVICE = {
    errno.EPERM: "be the same user, and let it be read: `sysctl kernel.yama.ptrace_scope=0`, or be root; or call "
    "gda.live() in the program itself, from another thread",
    errno.EACCES: "be the same user or root",
}


def processes() -> list[Process]:
    """Those of this user that show something."""
    found = []
    for entry in sorted(Path("/proc").iterdir(), key=lambda path: path.name):
        if not entry.name.isdecimal():
            continue
        process = Process(int(entry.name))
        try:
            if any(process.nics()) or any(process.shown()):
                found.append(process)
        except GdaError:  # of another user, or gone
            continue
    return found


@dataclass(frozen=True)
class Record:
    """One object of the NIC as it was copied: its members as numbers, or as bytes where they are long."""

    kind: str
    values: dict[str, int | bytes]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(f"{self.kind} has no member {name!r}") from None


@dataclass
class NicMemory:
    """A software NIC in its process: tables that tell where its state lies, and what is read from there."""

    process: Process
    address: int
    name: str = ""
    valid: bool = False
    _at: dict[str, tuple[int, int]] = field(default_factory=dict)
    _structs: dict[str, tuple[int, dict[str, tuple[int, int]]]] = field(default_factory=dict)
    _counters: dict[str, tuple[int, int, list[str]]] = field(default_factory=dict)
    _tables: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        head = self.process.read(self.address, _NIC_SENTENCES)
        pid, size = (int.from_bytes(head[at : at + 8], "little") for at in (8, 16))
        if head[:8] != _NIC_MAGIC or pid != self.process.pid:
            return
        self.valid = True
        self.name = head[_NIC_NAME:_NIC_TEXT].split(b"\0")[0].decode()
        for line in head[_NIC_TEXT : _NIC_TEXT + size].decode().splitlines():
            kind, name, *words = line.split()
            if kind == "at":
                self._at[name] = int(words[0]), int(words[1])
            elif kind == "table":
                self._tables[name] = int(words[0]), int(words[1]), int(words[2])
            elif kind == "counters":
                self._counters[name] = int(words[0]), int(words[1]), words[2:]
            elif kind == "struct":
                members = {words[i]: (int(words[i + 1]), int(words[i + 2])) for i in range(1, len(words), 3)}
                self._structs[name] = int(words[0]), members

    def value(self, name: str) -> int:
        """One number of the NIC's."""
        address, size = self._at[name]
        return int.from_bytes(self.process.read(address, size), "little")

    def bytes_of(self, name: str) -> bytes:
        """One piece of its memory."""
        return self.process.read(*self._at[name])

    def object(self, kind: str, address: int) -> Record:
        """An object by its address."""
        size, members = self._structs[kind]
        data = self.process.read(address, size)
        values: dict[str, int | bytes] = {}
        for name, (offset, length) in members.items():
            piece = data[offset : offset + length]
            values[name] = int.from_bytes(piece, "little") if length <= 8 else piece
        return Record(kind, values)

    def queue_pairs(self) -> list[Record]:
        """All of them, at most some thousands."""
        address, per_block, blocks = self._tables["qps"]
        found: list[Record] = []
        for block in _pointers(self.process.read(address, 8 * blocks)):
            for pointer in _pointers(self.process.read(block, 8 * per_block)):
                try:
                    found.append(self.object("qp", pointer))
                except UnavailableError:  # it was destroyed just now
                    continue
                if len(found) == _MOST_OBJECTS:
                    return found
        return found

    def region(self, record: Record, name: str) -> tuple[int, bool] | None:
        """Address of a ring or a record in the process, and whether it lies on a GPU; None: there is none."""
        pointer = record.values[f"{name}.umem"]
        if not pointer:
            return None
        umem = self.object("umem", int(pointer))  # type: ignore[arg-type]
        return int(umem.address) + int(record.values[f"{name}.offset"]), bool(umem.gpu)  # type: ignore[arg-type]

    def counters(self, port: int = 0) -> dict[str, int]:
        """By name; of one port, or the sum."""
        found = {}
        for address, ports, names in self._counters.values():
            data = self.process.read(address, 8 * ports * len(names))
            values = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
            for i, name in enumerate(names):
                of_ports = values[i :: len(names)]
                found[name] = of_ports[port - 1] if port and ports > 1 else sum(of_ports)
        return found

    def gids(self) -> list[bytes]:
        """Its addresses, of all ports."""
        data = self.bytes_of("gids")
        return [data[at : at + 16] for at in range(0, len(data), 16) if any(data[at : at + 16])]

    def link_mtu(self, port: int) -> int:
        """MTU of the network device behind a port, in bytes."""
        return int.from_bytes(self.bytes_of("link_mtu")[4 * (port - 1) : 4 * port], "little")

    def sentences(self) -> list[str]:
        """What it has to say on what programs did wrong, oldest first."""
        size = int.from_bytes(self.process.read(self.address + 24, 8), "little")
        if not size:
            return []
        text = self.process.read(self.address + _NIC_SENTENCES, min(size, 112 * 1024))
        return text.decode(errors="replace").splitlines()


def _pointers(data: bytes) -> Iterator[int]:
    for at in range(0, len(data), 8):
        if pointer := int.from_bytes(data[at : at + 8], "little"):
            yield pointer
