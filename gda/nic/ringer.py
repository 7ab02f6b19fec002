# SPDX-License-Identifier: Apache-2.0
"""The host thread that rings doorbells for kernels: for machines whose driver lets no GPU write a NIC's registers.

Used by queue.py for doorbell="cpu". A kernel stores what it would ring to a word in host memory; the thread takes it,
writes the doorbell record and then the register. One thread a NIC, from its first such queue pair to its last. Right
after a doorbell it looks without a pause; the longer nothing comes, the longer it sleeps between two looks, at most
LONGEST_SLEEP_NS: that bounds what it costs at rest, and how late a doorbell may be.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass

from gda import _verbs
from gda.errors import UnavailableError
from gda.nic.gpu import Gpu
from gda.nic.placement import HostSlab

__all__ = ["LONGEST_SLEEP_NS", "Ringer", "Word"]

LONGEST_SLEEP_NS = 500_000
_BUSY_NS = 50_000  # after a doorbell: how long to look without a pause
_STRIDE = 64  # bytes: a word has its cache line for itself
_WORDS = 64  # of a page
_END_S = 10.0  # for the thread to end: it needs nothing but to run


@dataclass
class Word:
    """Where kernels of one queue pair ask: for code on the CPU, and for kernels on the GPU (0: they cannot)."""

    address: int
    gpu_address: int
    register: int
    record: int  # address of the record's send_counter dword


class Ringer:
    """Words, and the thread that looks at them while there are any.

    The thread stands still while the list of words changes: a register is never rung after remove() has returned.
    """

    def __init__(self, gpu: Gpu | None) -> None:
        self._gpu = gpu
        self._lock = threading.RLock()  # reentrant: garbage collection may free a queue meanwhile
        self._slabs: list[HostSlab] = []
        self._free: list[tuple[int, int]] = []
        self._words: list[Word] = []
        self._thread: threading.Thread | None = None
        self._stop = ctypes.c_uint64(0)

    @property
    def is_running(self) -> bool:
        """Whether its thread is there."""
        return self._thread is not None

    def add(self, register: int, record: int) -> Word:
        """From now on what is stored to the word is rung at `register`."""
        with self._lock:
            if not self._free:
                slab = HostSlab(_WORDS * _STRIDE, self._gpu)
                self._slabs.append(slab)
                for at in range(0, _WORDS * _STRIDE, _STRIDE):
                    self._free.append((slab.address + at, slab.gpu_address + at if slab.gpu_address else 0))
            address, gpu_address = self._free.pop()
            ctypes.c_uint64.from_address(address).value = 0
            word = Word(address, gpu_address, register, record)
            self._pause()
            self._words.append(word)
            self._go_on()
            return word

    def remove(self, word: Word) -> None:
        """The word is looked at no more; what was stored last is not rung."""
        with self._lock:
            self._pause()
            self._words.remove(word)
            self._free.append((word.address, word.gpu_address))
            self._go_on()

    def _pause(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop.value = 1
        if thread is threading.current_thread():  # garbage collected in it, before or after it looks
            return
        thread.join(_END_S)
        if thread.is_alive():
            raise UnavailableError(
                f"the thread that rings for kernels did not end within {_END_S:g} s", "is this machine overloaded?"
            )

    def _go_on(self) -> None:
        if not self._words:
            return
        table = b"".join(
            part.to_bytes(8, "little") for word in self._words for part in (word.address, word.register, word.record)
        )
        self._stop = stop = ctypes.c_uint64(0)
        self._thread = threading.Thread(
            target=_verbs.ring_for_kernels,
            args=(table, ctypes.addressof(stop), _BUSY_NS, LONGEST_SLEEP_NS),
            name="gda doorbells",
            daemon=True,
        )
        self._keep = stop
        self._thread.start()
