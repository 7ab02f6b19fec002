# SPDX-License-Identifier: Apache-2.0
"""The host thread that rings doorbells for kernels: for machines whose driver lets no GPU write a NIC's registers.

Used by direct.py for doorbell="cpu". A kernel stores what it would ring to a word in host memory; the thread takes it,
writes the doorbell record and then the register. One thread a NIC, from its first such queue pair to its last. Right
after a doorbell it looks without a pause; the longer nothing comes, the longer it sleeps between two looks, at most
LONGEST_SLEEP_NS: that bounds what it costs at rest, and how late a doorbell may be.
"""

from __future__ import annotations

from dataclasses import dataclass

from gda import _verbs
from gda.nic.gpu import Gpu
from gda.nic.host_thread import HostThread, Words

__all__ = ["LONGEST_SLEEP_NS", "Ringer", "Word"]

LONGEST_SLEEP_NS = 500_000
_BUSY_NS = 50_000  # after a doorbell: how long to look without a pause


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
        self._places = Words(gpu)
        self._words: list[Word] = []
        self._thread = HostThread("gda doorbells", "rings for kernels", self._work, lambda: bool(self._words))

    @property
    def is_running(self) -> bool:
        """Whether its thread is there."""
        return self._thread.is_running

    def add(self, register: int, record: int) -> Word:
        """From now on what is stored to the word is rung at `register`."""
        with self._thread.lock:
            address, gpu_address = self._places.take()
            word = Word(address, gpu_address, register, record)
            with self._thread.still():
                self._words.append(word)
            return word

    def remove(self, word: Word) -> None:
        """The word is looked at no more; what was stored last is not rung."""
        with self._thread.still():
            self._words.remove(word)
            self._places.give((word.address, word.gpu_address))

    def _work(self, stop: int) -> None:
        table = b"".join(
            part.to_bytes(8, "little") for word in self._words for part in (word.address, word.register, word.record)
        )
        _verbs.ring_for_kernels(table, stop, _BUSY_NS, LONGEST_SLEEP_NS)
