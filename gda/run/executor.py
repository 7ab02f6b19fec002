# SPDX-License-Identifier: Apache-2.0
"""`Kernel`: device code as a Python object. Called by programs; example: examples/03_your_kernel.py.

A kernel never waits for ever: a launch has a deadline, and when it passes the kernel is given up and DeadlineError says
so. Blocks that wait for each other must all fit at once: on the CPU at most 64, and 16,384 threads in all; on a GPU as
many as its multiprocessors hold. On the CPU a kernel shares the process's memory without protection: a null pointer
that it follows ends the process, as in any C++ code.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

from gda import config, notes
from gda.errors import ArgumentError, UnavailableError
from gda.run import source as text_of
from gda.run import streams, traces
from gda.run.arguments import Packed, pack
from gda.run.compile import include_directory
from gda.run.launch import Launch, Run, status_word
from gda.run.meters import DEFINE, leave_at_the_end, meter_names
from gda.run.status import explainers
from gda.run.status_word import StatusWord

__all__ = ["DEADLINE_S", "Function", "Kernel", "launch_shape"]

DEADLINE_S = 10.0
MAX_BLOCK_THREADS = 1024
_ENTER_DEPTH = 8  # of includes that are searched for kernels

Shape = int | Sequence[int]


class Module(Protocol):
    """Compiled device code, on either target."""

    target: str
    where: str

    def sizes(self, name: str) -> list[int] | None: ...
    clock: str

    def has_trace(self) -> bool: ...
    def meters(self, *, clear: bool) -> list[int]: ...
    def trace(self) -> bytes: ...
    def start_trace(self, skip: int) -> tuple[int, int]: ...
    def moment(self) -> tuple[int, int]: ...
    def start(
        self, name: str, packed: Packed, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int,
        *, stream: int | None = None,
    ) -> Run: ...  # fmt: skip


class Kernel:
    """Device code, compiled; each `__global__` function or GDA_KERNEL in it is an attribute to launch.

    `source` is CUDA C++ text, or a file (a Path, or a name that ends in .cu, .cuh or .h). `target` is "host" (the CPU),
    "gpu" or None for GDA_TARGET, else the GPU if there is one. `options` go to the compiler. `names` are template
    instances to make, such as "sum<float>", launched as `kernel["sum<float>"][grid, block](...)`.
    `converged` ("all", "one", "random" with `seed`) says which lanes of a warp find each other on the CPU.
    With `meter` the device library counts what it does, see `meters`. With `trace` it leaves an event of each step in
    memory, for gda.trace; None: if a trace is recorded when the Kernel is made.

        kernel = gda.Kernel(text)
        kernel.first_put[1, 1](a, dst, src, 1024)                # waits; raises what the kernel reported
        launch = kernel.first_put.start[1, 1](a, dst, src, 1024)
        launch.wait(deadline_s=1)

    Raises CompileError (with the compiler's log in the text's own lines), UnavailableError without a compiler.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        target: str | None = None,
        options: Sequence[str] = (),
        names: Sequence[str] = (),
        converged: str = "all",
        seed: int = 1,
        meter: bool = False,
        trace: bool | None = None,
    ) -> None:
        self.deadline_s: float = DEADLINE_S
        self._text, self._file, folder = _text(source)
        found = text_of.Source()
        _collect(self._text, folder, found, _ENTER_DEPTH)
        self._aliases = dict(found.aliases)
        self._functions: dict[str, Function] = {}
        self._kernels = found.kernels
        entered = [name for name, kernel in found.kernels.items() if not kernel.template]
        entered += [name for name in names if name not in entered]
        if not entered:
            raise ArgumentError(
                f"{self._file} has no kernel" + (" but templates" if found.kernels else ""),
                'declare one as GDA_KERNEL(name)(parameters), or ask for an instance with names=("name<int>",)',
            )
        self._metered = meter
        if meter or config.get("GDA_PROFILE"):
            options = (*options, DEFINE)
        traced = notes.kernels_are_traced() if trace is None else trace
        if traced:
            options = (*options, traces.DEFINE)
        target = _choose_target(target)
        if target == "host":
            from gda.run.host import HostModule

            self._module: Module = HostModule(
                self._text,
                self._file,
                include=folder,
                options=options,
                names=entered,
                converged=converged,
                seed=seed,
            )
        else:
            from gda.run.cuda import CudaModule

            self._module = CudaModule(
                self._text,
                self._file,
                include=folder,
                included=found.included,
                options=options,
                names=entered,
            )
        leave_at_the_end(self._module)
        for name in entered:
            self._functions[name] = Function(self, name)
        if traced and self._module.has_trace():
            notes.add_kernels(self._module, ", ".join(entered))
        elif trace:
            raise ArgumentError(f"{self._file} has nothing to trace", "it does not include <gda/gda.h>")

    @property
    def target(self) -> str:
        """The word "host" or "gpu"."""
        return self._module.target

    @property
    def where(self) -> str:
        """Where the kernels run, in words."""
        return self._module.where

    @property
    def names(self) -> tuple[str, ...]:
        """Kernels that can be launched."""
        return tuple(self._functions)

    def meters(self) -> dict[str, int]:
        """What the launches that have ended did since the last `clear_meters`, by name (cuda/gda/target/meter.h)."""
        self._check_metered()
        return dict(zip(meter_names(), self._module.meters(clear=False), strict=True))

    def clear_meters(self) -> None:
        """Count from zero."""
        self._check_metered()
        self._module.meters(clear=True)

    def _check_metered(self) -> None:
        if not self._metered:
            raise ArgumentError(f"{self._file} was compiled without meters", "Kernel(..., meter=True) counts")

    def __getitem__(self, name: str) -> Function:
        if name not in self._functions:
            template = name in self._kernels and bool(self._kernels[name].template)
            raise ArgumentError(
                f"{self._file} has no kernel {name!r}; it has {', '.join(self._functions)}",
                f'it is a template: ask for an instance with names=("{name}<...>",)' if template else "",
            )
        return self._functions[name]

    def __getattr__(self, name: str) -> Function:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except ArgumentError as error:
            raise AttributeError(str(error)) from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._functions]


class Function:
    """One kernel of a `Kernel`: `[grid, block]` or `[grid, block, shared_bytes]`, then arguments."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel, self.name = kernel, name
        declared = kernel._kernels.get(name.split("<", 1)[0])
        if declared is None:
            raise ArgumentError(f"{kernel._file} declares no kernel {name!r} that can be read in its text")
        self.declared = text_of.KernelText(name, declared.parameters, (), declared.line)
        self._aliases = {**kernel._aliases, **text_of.template_arguments(name, declared)}
        self._sizes = kernel._module.sizes(name)
        last = declared.parameters[-1] if declared.parameters else None
        self.reports = last is not None and (last.type, last.pointers, last.name) == ("gda_status", 1, "status")

    @property
    def start(self) -> Starter:
        """Launch without waiting: `.start[grid, block](...)` returns a Launch."""
        return Starter(self)

    def on(self, stream: Any) -> Starter:
        """Launch in a CUDA stream of yours: `.on(stream)[grid, block](...)` returns a Launch and waits for nothing.

        `stream` is one of CuPy, torch (torch.cuda.current_stream()), cuda-python, or a pointer. The kernel runs behind
        what is in the stream, and what comes behind it there sees what it did. Launch.wait() raises what it reported.
        In a stream that is being captured it becomes part of the graph: see Launch. On a GPU only.
        """
        if self._kernel.target != "gpu":
            raise UnavailableError(f"kernel {self.name} runs on {self._kernel.where}, which has no streams")
        return Starter(self, streams.pointer_of(stream))

    def __getitem__(self, shape: tuple[Shape, Shape] | tuple[Shape, Shape, int]) -> Bound:
        return Bound(self, launch_shape(self.name, shape), wait=True)

    def __call__(self, *arguments: object) -> None:
        """Refused: the shape is missing."""
        raise ArgumentError(f"kernel {self.name} needs a shape", f"{self.name}[grid, block](...), for example [1, 32]")

    def __repr__(self) -> str:
        wanted = ", ".join(parameter.text for parameter in self.declared.parameters)
        return f"<kernel {self.name}({wanted}) on {self._kernel.where}>"

    def enqueue(self, stream: Any, grid: int, block: int, *arguments: object) -> Packed:
        """Put a launch into a CUDA stream of the caller's, between other work there. On a GPU only.

        The caller keeps what is answered until the stream has come past it, and passes `status`, if there is one, and
        looks at it: nobody else waits for the kernel or hears of its errors.
        """
        from gda.run.cuda import CudaModule

        module = self._kernel._module
        if not isinstance(module, CudaModule):
            raise UnavailableError(f"kernel {self.name} runs on {module.where}, which has no streams")
        packed = pack(self.declared, arguments, module.target, self._aliases, self._sizes)
        module.enqueue(self.name, packed, stream, (grid, 1, 1), (block, 1, 1))
        return packed

    def launch(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int, arguments: Sequence[object],
        *, stream: int | None = None,
    ) -> Launch:  # fmt: skip
        """Check the arguments and start."""
        module = self._kernel._module
        status: StatusWord | None = None
        if self.reports and len(arguments) == len(self.declared.parameters) - 1:
            status = status_word(module.target)
            arguments = [*arguments, status.argument]
        is_captured = stream is not None and streams.is_captured(stream)
        with streams.relaxed() if is_captured else nullcontext():  # what moves to the GPU for this launch is no part
            packed = pack(self.declared, arguments, module.target, self._aliases, self._sizes)
        number = 0 if is_captured else notes.launched(self.name, grid, block)
        run = module.start(self.name, packed, grid, block, shared_bytes, stream=stream)
        if is_captured:
            for argument in arguments:
                if hasattr(argument, "__gda_stay__"):
                    argument.__gda_stay__(run)
        kernel = self._kernel
        return Launch(
            self.name, run, status, kernel.deadline_s, kernel.where, explainers=explainers(arguments),
            number=number,
        )  # fmt: skip


class Starter:
    """`kernel.name.start` and `.on(stream)`: takes the shape."""

    def __init__(self, function: Function, stream: int | None = None) -> None:
        self._function, self._stream = function, stream

    def __getitem__(self, shape: tuple[Shape, Shape] | tuple[Shape, Shape, int]) -> Bound:
        return Bound(self._function, launch_shape(self._function.name, shape), wait=False, stream=self._stream)


class Bound:
    """A kernel with its shape: takes the arguments. Returns the Launch, ended when it was waited for."""

    def __init__(
        self, function: Function, shape: tuple[tuple[int, int, int], tuple[int, int, int], int], wait: bool,
        stream: int | None = None,
    ) -> None:  # fmt: skip
        self._function, self._shape, self._wait, self._stream = function, shape, wait, stream

    def __call__(self, *arguments: object) -> Launch:
        launch = self._function.launch(*self._shape, arguments, stream=self._stream)
        if self._wait:
            launch.wait()
        return launch


def _text(source: str | Path) -> tuple[str, str, Path | None]:
    """Text, name for messages, directory for quoted includes."""
    named = isinstance(source, str) and "\n" not in source and source.endswith((".cu", ".cuh", ".h"))
    if isinstance(source, Path) or named:
        path = Path(source)
        try:
            return path.read_text(), str(path), path.resolve().parent
        except OSError as error:
            raise ArgumentError(f"kernel source {path} cannot be read: {error.strerror}") from None
    if not isinstance(source, str):
        raise ArgumentError(f"kernel source is a {type(source).__name__}", "pass CUDA C++ text or a path")
    return source, "<kernel>", None


def _collect(text: str, folder: Path | None, found: text_of.Source, depth: int) -> None:
    """Kernels of the text and of the files it includes: the package's own kernels, and those beside it."""
    read = text_of.read(text)
    for include in read.includes:
        directories = [include_directory()] if include[0] == "<" else [folder] if folder else []
        for directory in directories:
            file = directory / include[1:]
            if depth and file.is_file() and (include[0] == '"' or include.startswith("<gda/kernels/")):
                text = file.read_text()
                found.included += text
                _collect(text, file.parent, found, depth - 1)
    found.kernels.update(read.kernels)
    found.aliases.update(read.aliases)


def _choose_target(asked: str | None) -> str:
    target = asked if asked is not None else config.get("GDA_TARGET")
    if target not in ("auto", "host", "gpu"):
        raise ArgumentError(f'target={target!r} is not "host", "gpu" or None')
    if target == "auto":
        from gda.run.cuda import gpu_available

        return "gpu" if gpu_available() else "host"
    if target == "gpu":
        from gda.run.cuda import why_no_gpu

        if why := why_no_gpu():
            advice = 'Kernel(..., target="host") runs them on the CPU'
            raise UnavailableError(f"no GPU to run kernels on: {why}", advice)
    return target


def launch_shape(name: str, shape: object) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
    """Grid, block and bytes of shared memory, checked. Raises ArgumentError."""
    if not isinstance(shape, tuple) or len(shape) not in (2, 3):
        raise ArgumentError(f"kernel {name}: the shape is [grid, block] or [grid, block, shared_bytes], not {shape!r}")
    grid, block = _three(name, "grid", shape[0]), _three(name, "block", shape[1])
    threads = block[0] * block[1] * block[2]
    if threads > MAX_BLOCK_THREADS:
        raise ArgumentError(f"kernel {name}: {threads} threads per block; at most {MAX_BLOCK_THREADS}")
    shared = shape[2] if len(shape) == 3 else 0
    if not isinstance(shared, int) or not 0 <= shared <= 1 << 30:
        raise ArgumentError(f"kernel {name}: shared_bytes={shared!r} is not a number of bytes up to 2^30")
    return grid, block, shared


def _three(name: str, what: str, value: object) -> tuple[int, int, int]:
    parts = (value,) if isinstance(value, int) else tuple(value) if isinstance(value, Sequence) else ()
    whole = all(isinstance(part, int) and not isinstance(part, bool) and 1 <= part < 1 << 31 for part in parts)
    if not 1 <= len(parts) <= 3 or not whole:
        raise ArgumentError(f"kernel {name}: {what} {value!r} is not 1 to 3 positive integers")
    x, y, z = (*parts, 1, 1)[:3]
    return int(x), int(y), int(z)
