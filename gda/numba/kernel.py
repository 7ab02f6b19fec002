# SPDX-License-Identifier: Apache-2.0
"""`Kernel`: a `@cuda.jit` function launched so that it may wait for the NIC. Called by programs.

Document: docs/python_kernels.md. What Numba's own launch leaves open, and gda.run.cuda does for kernels in CUDA C++, is
done here too: a stream of its own that nothing in the default stream waits for, the arguments alive until the end, a
deadline, a status word turned into an exception, and the software NIC told that a kernel runs.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from gda import notes
from gda.errors import ArgumentError, CudaError, UnavailableError
from gda.numba.traced import NON_BLOCKING, driver, linking
from gda.once import once
from gda.run.cuda import CudaRun, Lane, NicHelper
from gda.run.executor import DEADLINE_S, launch_shape
from gda.run.launch import Launch
from gda.run.status import explainers
from gda.run.status_word import PinnedStatus, PinnedWords

__all__ = ["Kernel", "Region", "queue", "region"]


class QueueAddress(np.uint64):
    """Address of a queue pair's handle, as a kernel's argument; keeps the queue pair alive."""

    owner: object


class _Words(NamedTuple):
    address: np.uint64
    bytes: np.uint64
    keys: np.uint64
    flags: np.uint64


class Region(_Words):
    """A memory region as a kernel's argument: the four words of a gda_mr; keeps the memory alive.

    In the kernel `region.address` and `region.bytes` may be read.
    """

    owner: object


def queue(queue_pair: Any) -> QueueAddress:
    """A QueuePair as an argument for a launch by Numba itself.

    Raises NotConnectedError, ArgumentError for parts that a GPU cannot reach, and UnavailableError without a GPU.
    """
    address = QueueAddress(int.from_bytes(_data(queue_pair, "gda_qp*"), "little"))
    address.owner = queue_pair
    return address


def region(memory: Any) -> Region:
    """A Memory or RemoteMemory as an argument for a launch by Numba itself."""
    words = Region(*(np.uint64(word) for word in struct.unpack("<4Q", _data(memory, "gda_mr"))))
    words.owner = memory
    return words


def _data(value: Any, wanted: str) -> bytes:
    if not hasattr(value, "__gda_argument__"):
        raise ArgumentError(f"a {type(value).__name__} is no {wanted}", "pass an object of gda.open()'s NIC")
    name, data = value.__gda_argument__("gpu")
    if name != wanted:
        raise ArgumentError(f"a {type(value).__name__} is a {name}, not a {wanted}")
    return bytes(data)


def _argument(number: int, name: str, value: Any) -> Any:
    """What Numba gets for an argument of a launch."""
    if hasattr(value, "__gda_argument__"):
        kind, _ = value.__gda_argument__("gpu")
        return queue(value) if kind == "gda_qp*" else region(value)
    if isinstance(value, np.ndarray) and not hasattr(value, "__cuda_array_interface__"):
        raise ArgumentError(
            f"kernel {name}, argument {number}: a {type(value).__name__} lies in CPU memory",
            "pass numba.cuda.to_device(array) or a CuPy array: Numba would copy it back when the kernel has ended, and "
            "wait for that",
        )
    return value


class Kernel:
    """A kernel of Numba: `[grid, block]` or `[grid, block, shared_bytes]`, then arguments, as of gda.Kernel.

    Queue pairs and memory regions may be arguments, GPU arrays and numbers as Numba takes them. A last parameter
    `status`, where none is passed, is the address of a status word (gda.numba.report), and the launch raises what it
    says. `.start[grid, block](...)` returns the Launch without waiting. With `trace` it leaves an event of each step
    for gda.trace; None: if a trace is recorded when the Kernel is made. Needs a GPU: UnavailableError.
    """

    def __init__(self, function: Any, *, trace: bool | None = None) -> None:
        self._jitted = function if hasattr(function, "py_func") else cuda.jit(function)
        self._traced = notes.kernels_are_traced() if trace is None else trace
        if self._traced and self._jitted is function:  # what was linked before has no ring
            self._jitted = type(function)(function.py_func, targetoptions=dict(function.targetoptions))
        code = self._jitted.py_func.__code__
        self.name: str = self._jitted.py_func.__name__
        self._parameters = code.co_varnames[: code.co_argcount]
        self.deadline_s: float = DEADLINE_S

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self._parameters)}) of Numba>"

    def __getitem__(self, shape: Any) -> Callable[..., Launch]:
        return functools.partial(self._launch, launch_shape(self.name, shape), True)

    @property
    def start(self) -> _Starter:
        """Launch without waiting."""
        return _Starter(self)

    def _launch(
        self, shape: tuple[tuple[int, int, int], tuple[int, int, int], int], wait: bool, *arguments: Any
    ) -> Launch:
        takes = len(self._parameters)
        reports = bool(takes) and self._parameters[-1] == "status" and len(arguments) == takes - 1
        if len(arguments) != takes - reports:
            raise ArgumentError(
                f"kernel {self.name} takes {takes} arguments ({', '.join(self._parameters)}), not {len(arguments)}",
                "a last parameter `status` is filled in by the launch",
            )
        device = _gpu()
        status = PinnedStatus(_status_words()) if reports else None
        passed = [_argument(number, self.name, value) for number, value in enumerate(arguments)]
        if status is not None:
            passed.append(np.uint64(status.address))
        alive = [*arguments, *passed, self, status]
        with linking(self.name, self._traced):
            _prepare(self._jitted, passed)
        number = notes.launched(self.name, *shape[:2])
        run = _start(self.name, self._jitted, shape, passed, device=device, alive=alive)
        name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
        launch = Launch(
            self.name, run, status, self.deadline_s, f"GPU {device.id} ({name})", explainers=explainers(arguments),
            number=number,
        )  # fmt: skip
        if wait:
            launch.wait()
        return launch


class _Starter:
    """`kernel.start`: takes the shape."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __getitem__(self, shape: Any) -> Callable[..., Launch]:
        return functools.partial(self._kernel._launch, launch_shape(self._kernel.name, shape), False)


def _start(name: str, jitted: Any, shape: Any, arguments: list[Any], *, device: Any, alive: list[Any]) -> CudaRun:
    grid, block, shared_bytes = shape
    processors = int(device.MULTIPROCESSOR_COUNT)
    lanes = _lanes(int(device.id))
    lane = lanes.pop() if lanes else _lane()
    # At least one block fits a multiprocessor, so this is the most that the grid can take of the GPU.
    blocks = grid[0] * grid[1] * grid[2]
    helper = NicHelper(blocks / processors, 1 - 1 / processors)
    helper.begin()
    try:
        with cuda.defer_cleanup():  # giving memory back would wait for kernels that wait
            lane.before.record(cuda.default_stream())
            lane.before.wait(lane.stream)
            jitted[grid, block, lane.stream, shared_bytes](*arguments)
            lane.done.event.record(lane.stream)
    except BaseException as error:
        helper.end()
        lanes.append(lane)
        if isinstance(error, Exception) and hasattr(error, "code"):  # a driver call of Numba's
            advice = "compare grid, block and shared memory with the device's limits"
            raise CudaError(f"launch of kernel {name}", int(error.code), str(error), advice) from None
        raise
    return CudaRun(name, lane.done, helper=helper, back=(lanes, lane), alive=alive)


def _prepare(jitted: Any, arguments: list[Any]) -> None:
    """Compiled, linked and loaded before the NIC is told, and before anything of it runs."""
    jitted.compile(tuple(jitted.typeof_pyval(value) for value in arguments)).bind()


class _Done:
    """An event that CudaRun can ask."""

    def __init__(self) -> None:
        self.event = cuda.event(timing=False)

    @property
    def done(self) -> bool:
        """Whether the kernel before it has ended."""
        return bool(self.event.query())


@once
def _lanes(device: int) -> list[Lane]:
    """Streams and events of a device's launches that have ended."""
    return []


def _lane() -> Lane:
    stream = cuda.external_stream(int(driver("cuStreamCreate", NON_BLOCKING)))
    return Lane(stream, cuda.event(timing=False), _Done())


def _gpu() -> Any:
    """The current GPU, its context made."""
    try:
        cuda.current_context()
        return cuda.get_current_device()
    except Exception as error:  # without a driver Numba raises errors of many kinds
        raise UnavailableError(
            f"no GPU to run Numba's kernels on: {' '.join(str(error).split())}",
            "gda.Kernel runs kernels in CUDA C++ on the CPU; numba.cuda.compile needs no GPU",
        ) from None


@once
def _status_words() -> PinnedWords:
    """For all launches of this process."""
    return PinnedWords(lambda size: int(driver("cuMemHostAlloc", size, 0)))
