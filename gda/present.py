# SPDX-License-Identifier: Apache-2.0
"""What this process has, for those who look at it from outside while it runs or hangs (gda/tools/live.py).

A leaf: `nic` writes where each queue pair's memory lies, `run` which kernels are under way. It stands in a piece of
memory with the name "gda-live", which others find in /proc/PID/maps and read with process_vm_readv: this process takes
no part in that. Slots of 2 KiB: the length of a JSON text, then the text; length 0: nothing. Pages are used as far as
slots ever were. A forked child begins anew.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import time
import weakref
from typing import Any

from gda.locks import Lock

__all__ = ["HEAD_BYTES", "MAGIC", "NAME", "SLOTS", "SLOT_BYTES", "Place", "Sign", "owner", "owners", "put"]

NAME = "gda-live"
MAGIC = b"gdaliveP"  # then the process's number and how many slots were ever used, 8 bytes each
HEAD_BYTES, SLOT_BYTES, SLOTS = 64, 2048, 16384
_LENGTH_BYTES = 4
_NOTHING = bytes(_LENGTH_BYTES)
_MOMENT_DIGITS = 20  # of a Sign's moment; blanks before a number are JSON
_encoded = json.JSONEncoder(separators=(",", ":")).encode


class _Memory:
    """The mapping, private: what a forked child writes is its own."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = Lock()
        self.free: list[int] = []
        self.used = 0
        self.owners: dict[int, weakref.ref[Any]] = {}
        self.address = 0
        self.view = memoryview(b"")
        size = HEAD_BYTES + SLOTS * SLOT_BYTES
        try:
            descriptor = os.memfd_create(NAME)
        except OSError:  # a sandbox: then nobody can look
            return
        try:
            os.ftruncate(descriptor, size)
            libc = ctypes.CDLL(None, use_errno=True)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
            place = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, descriptor, 0)
        finally:
            os.close(descriptor)
        if place in (None, ctypes.c_void_p(-1).value):
            return
        self.address = int(place)
        self.view = memoryview((ctypes.c_ubyte * size).from_address(self.address)).cast("B")
        self._head()

    def take(self) -> int:
        """The number of a free slot; -1: there is none."""
        with self.lock:
            if not self.address:
                return -1
            if self.free:
                return self.free.pop()
            if self.used == SLOTS:
                return -1
            self.used += 1
            self._head()
            return self.used - 1

    def write(self, slot: int, text: bytes) -> None:
        """Show a text, and never a part of it as the whole."""
        at = HEAD_BYTES + slot * SLOT_BYTES
        behind = at + _LENGTH_BYTES
        text = text[: SLOT_BYTES - _LENGTH_BYTES]
        self.view[at:behind] = bytes(_LENGTH_BYTES)
        if text:
            self.view[behind : behind + len(text)] = text
            self.view[at:behind] = len(text).to_bytes(_LENGTH_BYTES, "little")

    def prepare(self, slot: int, text: bytes) -> None:
        """Write a text that is not shown yet."""
        behind = HEAD_BYTES + slot * SLOT_BYTES + _LENGTH_BYTES
        self.view[behind : behind + len(text)] = text

    def give(self, slot: int) -> None:
        """Show nothing there any more."""
        with self.lock:
            self.write(slot, b"")
            self.owners.pop(slot, None)
            self.free.append(slot)

    def _head(self) -> None:
        head = MAGIC + self.process.to_bytes(8, "little") + self.used.to_bytes(8, "little")
        self.view[: len(head)] = head


class Place:
    """One entry. `drop()` takes it away; again is no error. In a forked child both do nothing."""

    def __init__(self, memory: _Memory, slot: int) -> None:
        self._memory, self._slot = memory, slot

    def update(self, facts: dict[str, Any]) -> None:
        """Show other facts."""
        if self._slot >= 0 and self._memory.process == os.getpid():
            self._memory.write(self._slot, _encoded(facts).encode())

    def drop(self) -> None:
        """Show nothing of it any more."""
        slot, self._slot = self._slot, -1
        if slot >= 0 and self._memory.process == os.getpid():
            self._memory.give(slot)


class Sign:
    """Facts that are shown again and again, each time with the moment as `since_ns` (of the monotonic clock).

    For what comes often and is short, such as a launch: its text is written once into each slot that it needs at a
    time, and to show it or to hide it is to write a number. Several may be shown at once, by any threads. It keeps its
    slots as long as it lives.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        text = b'{"since_ns":' + b" " * _MOMENT_DIGITS + b"," + _encoded(facts).encode()[1:]
        self._text = text[: SLOT_BYTES - _LENGTH_BYTES]
        self._length = len(self._text).to_bytes(_LENGTH_BYTES, "little")
        self._digits = _LENGTH_BYTES + text.index(b" ")
        self._memory: _Memory | None = None
        self._slots: list[int] = []
        self._free: list[int] = []

    def show(self) -> tuple[_Memory, int] | None:
        """Show them from now on; what hide() takes, None where nobody can look."""
        memory = self._memory
        if memory is None or memory is not _memory:
            memory = self._renew()
        try:
            slot = self._free.pop()
        except IndexError:
            slot = memory.take()
            if slot < 0:
                return None
            self._slots.append(slot)
            memory.prepare(slot, self._text)
        at = HEAD_BYTES + slot * SLOT_BYTES
        moment, view = at + self._digits, memory.view
        view[moment : moment + _MOMENT_DIGITS] = b"%*d" % (_MOMENT_DIGITS, time.monotonic_ns())
        view[at : at + _LENGTH_BYTES] = self._length
        return memory, slot

    def hide(self, shown: tuple[_Memory, int] | None) -> None:
        """Show them no longer. What was shown before a fork is not the child's."""
        if shown is None or shown[0] is not self._memory or shown[0] is not _memory:
            return
        at = HEAD_BYTES + shown[1] * SLOT_BYTES
        shown[0].view[at : at + _LENGTH_BYTES] = _NOTHING
        self._free.append(shown[1])

    def _renew(self) -> _Memory:
        """The first time, and in a forked child: the slots are the parent's."""
        memory = _current()
        with _making:
            if self._memory is not memory:
                self._slots, self._free = [], []
                self._memory = memory
        return memory

    def __del__(self) -> None:
        memory = self._memory
        if memory is not None and memory is _memory:
            for slot in self._slots:
                memory.give(slot)


_memory: _Memory | None = None
_making = Lock()


def _current() -> _Memory:
    """This process's memory."""
    global _memory
    with _making:
        if _memory is None or _memory.process != os.getpid():
            _memory = _Memory()
        return _memory


def _forget() -> None:
    """In a forked child, which begins anew: to ask for the process's number at each launch would cost half of it."""
    global _memory
    _memory = None


os.register_at_fork(after_in_child=_forget)


def put(facts: dict[str, Any], owner: object = None) -> Place:
    """Show facts (numbers, texts, lists and dicts; at most two kilobytes of JSON) until the place is dropped.

    `owner` is the object that they are about: in this process it can be asked, for it reaches memory that lies on a
    GPU; it is not kept alive.
    """
    memory = _current()
    slot = memory.take()
    place = Place(memory, slot)
    if slot >= 0:
        if owner is not None:
            memory.owners[slot] = weakref.ref(owner)
        place.update(facts)
    return place


def owner(slot: int) -> Any:
    """The object that a slot of this process is about; None when it is gone."""
    memory = _memory
    found = memory.owners.get(slot) if memory is not None else None
    return found() if found is not None else None


def owners() -> list[Any]:
    """The objects of this process that something is shown about."""
    memory = _memory
    if memory is None or memory.process != os.getpid():
        return []
    with memory.lock:
        found = [one() for one in memory.owners.values()]
    return [one for one in found if one is not None]
