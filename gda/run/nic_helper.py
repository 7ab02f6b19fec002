# SPDX-License-Identifier: Apache-2.0
"""What the software NIC is told of kernels on a GPU. Called by cuda.py and by gda.numba around each launch."""

from __future__ import annotations

from gda import idle
from gda.locks import Lock

__all__ = ["NicHelper"]


class NicHelper:
    """What the software NIC must know while kernels run: to spin for their doorbells, and how to reach GPU memory.

    Its device-to-device copies run on multiprocessors. When waiting kernels hold them all (`share` of each summed up
    reaches `limit`), copies must go through host memory. Of a captured kernel nobody tells when it runs: it counts in
    the sum as long as it may, and the NIC looks for its doorbells as for those of any GPU program (`spins` is False).
    """

    _lock = Lock()
    _running = 0  # that the NIC spins for
    _holders = 0
    _shares = 0.0
    _staging = False

    def __init__(self, share: float, limit: float, *, spins: bool = True) -> None:
        self._share, self._limit, self._spins = share, limit, spins
        self._active = False

    def begin(self) -> None:
        """Before the launch."""
        self._active = True
        if self._spins:
            idle.began()
        self._change(1)

    def end(self) -> None:
        """After the kernel's end; once."""
        if self._active:
            self._active = False
            self._change(-1)
            if self._spins:
                idle.ended()

    def _change(self, step: int) -> None:
        from gda import attach

        nic = attach.loaded()
        kind = NicHelper
        with kind._lock:
            kind._running += step * self._spins
            kind._holders += step
            kind._shares = kind._shares + step * self._share if kind._holders else 0.0
            stage = kind._shares >= self._limit
            if nic is None:
                return
            if self._spins and kind._running == (step > 0):  # the first began, or the last ended
                nic.set_thread("busy" if step > 0 else "adaptive")
            if stage != kind._staging:
                nic.set_gpu_staging(stage)
                kind._staging = stage
