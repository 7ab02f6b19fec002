# SPDX-License-Identifier: Apache-2.0
"""A matrix product that keeps the processor of the kernels busy, and tells how fast it goes.

Used by transfer.py, triggers.py and sweep.py.

On a GPU by CuPy in a thread and a stream of its own, half precision; on a CPU by NumPy in a process of its own, so that
its CPU time is not taken for that of the puts.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from gda.errors import DeadlineError
from gda.nic import Nic

__all__ = ["CpuLoad", "GpuLoad", "Load", "load_of"]

_GPU_SIDE, _CPU_SIDE = 8192, 512  # rows of the square matrices
_AT_ONCE = 4  # products queued before one waits for the last batch but one
_START_S = 60.0
_CHILD = """
import mmap, sys
import numpy as np
side, file = int(sys.argv[1]), open(sys.argv[2], "r+b")
count = np.frombuffer(mmap.mmap(file.fileno(), 8), np.uint64)
a = np.random.default_rng(1).random((side, side), np.float32)
out = np.empty_like(a)
while True:
    np.matmul(a, a, out=out)
    count[0] += 1
"""


class Load(ABC):
    """Products under way between enter and exit. `cpu_ns` is CPU time of this process that they took."""

    what = "GEMM"
    cpu_ns = 0
    thread: int | None = None  # its number, if it is one of this process

    def __init__(self, side: int) -> None:
        self._flops_each = 2.0 * side**3

    @abstractmethod
    def count(self) -> int:
        """Products done so far."""

    def flops(self) -> float:
        """Operations done so far."""
        return self.count() * self._flops_each

    @abstractmethod
    def stop(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        end = time.monotonic() + _START_S
        while self.count() < 2:
            if time.monotonic() > end:
                self.stop()
                raise DeadlineError(f"the matrix product did not start within {_START_S:g} s")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class CpuLoad(Load):
    """NumPy's product, as many threads as its BLAS takes."""

    def __init__(self, side: int = _CPU_SIDE) -> None:
        super().__init__(side)
        with tempfile.NamedTemporaryFile(prefix="gda-load-") as file:
            file.write(bytes(mmap.PAGESIZE))
            file.flush()
            self._count = mmap.mmap(file.fileno(), 8)
            self._child = subprocess.Popen([sys.executable, "-c", _CHILD, str(side), file.name])
            end = time.monotonic() + _START_S
            while not self.count() and self._child.poll() is None and time.monotonic() < end:
                time.sleep(0.01)  # it opens the file by name, which is gone afterwards

    def count(self) -> int:
        """Products done so far."""
        return int.from_bytes(self._count[:8], "little")

    def stop(self) -> None:
        """Kill the process."""
        self._child.kill()
        self._child.wait()


class GpuLoad(Load):
    """CuPy's product, one after the other on a stream that nothing else uses."""

    def __init__(self, side: int = _GPU_SIDE) -> None:
        super().__init__(side)
        self._side, self._done, self._stop = side, 0, False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="gda-gemm", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._multiply()
        except BaseException as error:
            self._error = error

    def _multiply(self) -> None:
        import cupy

        start, self.thread = time.thread_time_ns(), threading.get_native_id()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            # Not zeros: they would cost less power, and so less time.
            numbers = cupy.arange(self._side**2, dtype=cupy.float32) % 251 / 251
            a = numbers.reshape(self._side, self._side).astype(cupy.float16)
            out = cupy.empty_like(a)
            pending: list[Any] = []
            while not self._stop:
                for _ in range(_AT_ONCE):
                    cupy.matmul(a, a, out=out)
                pending.append(stream.record())
                if len(pending) > 1:
                    pending.pop(0).synchronize()
                    self._done += _AT_ONCE
                self.cpu_ns = time.thread_time_ns() - start
            stream.synchronize()

    def count(self) -> int:
        """Products done so far."""
        if self._error is not None:
            raise self._error
        return self._done

    def stop(self) -> None:
        """Let it finish what is queued."""
        self._stop = True
        self._thread.join(_START_S)


def load_of(nic: Nic) -> Load:
    """On the processor where kernels that use this NIC run."""
    return GpuLoad() if nic.gpu is not None else CpuLoad()
