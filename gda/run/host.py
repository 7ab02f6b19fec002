# SPDX-License-Identifier: Apache-2.0
"""Device code on the CPU: compiled by the system's C++ compiler, run with the grid asked for.

Called by executor. The text becomes a shared library with one entry per kernel; the runtime that runs its threads as
fibers is cuda/gda/target/host/*.cc, compiled once. Both are cached. A kernel that reads or writes memory that is not
there ends the process with SIGSEGV, as any C++ code would: there is no memory protection between a kernel and Python.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gda import config, formats
from gda.errors import ArgumentError, CompileError, UnavailableError
from gda.locks import Lock
from gda.run.arguments import Packed
from gda.run.cache import cached, key_of, tree_digest
from gda.run.compile import include_directory
from gda.run.meters import SYMBOL, meter_names, no_meters
from gda.run.source import for_host
from gda.run.traces import GROUP, RING_BYTES, SKIP, TRACE_BYTES, used_bytes
from gda.run.traces import SYMBOL as TRACE_SYMBOL

__all__ = ["CONVERGED", "Compiler", "HostModule", "HostRun", "find_compiler"]

# Which lanes converged_group() finds: enum gda_host_policy of target/host/runtime.h.
CONVERGED = {"all": 0, "one": 1, "random": 2}

_RUNTIME_FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
_KERNEL_FLAGS = (
    "-std=c++17", "-O2", "-g1", "-fPIC", "-shared",
    "-fvisibility=hidden",  # a kernel's names are its own, whatever the process has loaded
    "-fno-strict-aliasing",  # device code looks at bytes through any type
    "-fno-threadsafe-statics",  # a fiber must not hold a lock when another one runs
    "-Wno-unknown-pragmas",  # #pragma unroll
)  # fmt: skip
# Counts turns of loops: target/host/runtime.h. Clang leaves out blocks that others imply, a loop of one block too.
_TURNS = {False: "-fsanitize-coverage=trace-pc", True: "-fsanitize-coverage=trace-pc,no-prune"}
_MAX_PARAMETERS = 64
_START_REASON_BYTES = 256
_LAST_WAIT_S = 2.0


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its path and the first line of its --version."""

    path: str
    version: str

    @property
    def is_clang(self) -> bool:
        """Whether it takes clang's flags."""
        return "clang" in self.version


class _Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]


class _Request(ctypes.Structure):  # gda_host_request
    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("idle_hook", ctypes.c_void_p),
        ("fence_hook", ctypes.c_void_p),
        ("blocks", _Dim),
        ("threads", _Dim),
        ("shared_bytes", ctypes.c_uint64),
        ("policy", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
    ]


def find_compiler() -> Compiler:
    """The C++ compiler for device code: GDA_CXX, else g++, c++ or clang++. Raises UnavailableError without one."""
    asked = config.get("GDA_CXX")
    for name in (asked,) if asked else ("g++", "c++", "clang++"):
        if path := shutil.which(name):
            return _described(path)
    advice = "apt-get install g++ (or clang), or set GDA_CXX to a compiler"
    if asked:
        raise UnavailableError(f"GDA_CXX={asked} is not a program on the PATH", advice)
    raise UnavailableError("no C++ compiler: g++, c++ and clang++ are not on the PATH", advice)


@functools.cache
def _described(path: str) -> Compiler:
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"{path} --version failed: {error}", "set GDA_CXX to a working C++ compiler") from None
    return Compiler(path, text.splitlines()[0] if text else path)


def _extra_flags() -> list[str]:
    return shlex.split(config.get("GDA_CXXFLAGS"))


def _compile(compiler: Compiler, arguments: Sequence[str], what: str) -> None:
    done = subprocess.run([compiler.path, *arguments], check=False, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise CompileError(f"{what} did not compile ({compiler.version})", done.stderr.strip() or done.stdout.strip())


def _headers_digest() -> str:
    return tree_digest(include_directory() / "gda", ("*.h", "*.cc"))


def _runtime_path(compiler: Compiler) -> Path:
    folder = include_directory() / "gda" / "target" / "host"
    flags = [*_RUNTIME_FLAGS, *_extra_flags()]
    key = key_of("runtime", compiler.path, compiler.version, *flags, tree_digest(folder, ("*.h", "*.cc")))

    def build(result: Path) -> Iterable[Path]:
        sources = sorted(str(file) for file in folder.glob("*.cc"))
        # Found by this name when a kernel's library asks for it, wherever the cache lies.
        arguments = [*flags, f"-Wl,-soname,gda-runtime-{key}.so", f"-I{include_directory()}", *sources]
        _compile(compiler, [*arguments, "-o", str(result)], "the runtime of device code on the CPU")
        return ()

    return cached(config.cache_directory() / "host", key, ".so", build)


@functools.cache
def _load_runtime(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.gda_host_start.restype = ctypes.c_void_p
    library.gda_host_start.argtypes = [ctypes.POINTER(_Request), ctypes.c_char_p, ctypes.c_size_t]
    library.gda_host_wait.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.gda_host_abort.argtypes = [ctypes.c_void_p]
    library.gda_host_abort.restype = None
    library.gda_host_error.argtypes = [ctypes.c_void_p]
    library.gda_host_error.restype = ctypes.c_char_p
    library.gda_host_free.argtypes = [ctypes.c_void_p]
    library.gda_host_free.restype = None
    return library


_loaded_paths: set[str] = set()


def _load_apart(path: Path) -> ctypes.CDLL:
    """Load a kernel's library with variables of its own, also when the same file is loaded already."""
    if str(path) not in _loaded_paths:
        _loaded_paths.add(str(path))
        return ctypes.CDLL(str(path))
    with tempfile.TemporaryDirectory(prefix="gda-") as directory:
        return ctypes.CDLL(str(shutil.copy(path, Path(directory) / path.name)))


class HostModule:
    """One text of device code, compiled and loaded. `names` are the kernels (or template instances) to enter."""

    target = "host"
    clock = "ticks"  # of a trace

    def __init__(
        self,
        text: str,
        file: str,
        *,
        include: Path | None,
        options: Sequence[str],
        names: Sequence[str],
        converged: str,
        seed: int,
    ) -> None:
        if converged not in CONVERGED:
            raise ArgumentError(f"converged={converged!r} is not one of {', '.join(CONVERGED)}")
        compiler = find_compiler()
        self.where = f"the CPU ({compiler.version})"
        self._file = file
        self._policy, self._seed = CONVERGED[converged], seed
        runtime = _runtime_path(compiler)
        self._runtime = _load_runtime(str(runtime))
        generated = _with_entries(text, file, names)
        folders = [f"-I{include_directory()}", *([f"-I{include}"] if include else [])]
        flags = [*_KERNEL_FLAGS, _TURNS[compiler.is_clang], *_extra_flags(), *options, *folders]
        key = key_of("kernel", compiler.path, compiler.version, *flags, runtime.name, _headers_digest(), generated)

        def build(result: Path) -> Iterable[Path]:
            unit, dependencies = result.with_suffix(".cc"), result.with_suffix(".d")
            unit.write_text(generated)
            wanted = [*flags, "-MMD", "-MF", str(dependencies), str(unit), str(runtime), "-o", str(result)]
            _compile(compiler, wanted, file)
            return _user_files(dependencies, unit)

        self._library = _load_apart(cached(config.cache_directory() / "host", key, ".so", build))
        self._numbers = {name: number for number, name in enumerate(names)}

    def sizes(self, name: str) -> list[int]:
        """Bytes of each parameter, as the compiler says."""
        number = self._numbers[name]
        bytes_of = (ctypes.c_uint64 * _MAX_PARAMETERS)()
        count = int(self._library[f"gda_entry_sizes_{number}"](bytes_of))
        return list(bytes_of[:count])

    def meters(self, *, clear: bool) -> list[int]:
        """The counters, which are then zero if `clear`."""
        try:
            words = (ctypes.c_uint64 * len(meter_names())).in_dll(self._library, SYMBOL)
        except ValueError:
            raise no_meters(self._file) from None
        counts = list(words)
        if clear:
            ctypes.memset(words, 0, ctypes.sizeof(words))
        return counts

    def has_trace(self) -> bool:
        """Whether the code was compiled with a ring for events."""
        return hasattr(self._library, TRACE_SYMBOL)

    def trace(self) -> bytes:
        """What traced kernels have left: header and events."""
        memory = (ctypes.c_uint8 * TRACE_BYTES).in_dll(self._library, TRACE_SYMBOL)
        return ctypes.string_at(memory, used_bytes(ctypes.string_at(memory, RING_BYTES)))

    def start_trace(self, skip: int) -> tuple[int, int]:
        """Empty the ring; a moment of its clock and the monotonic one."""
        memory = (ctypes.c_uint8 * TRACE_BYTES).in_dll(self._library, TRACE_SYMBOL)
        ctypes.memset(memory, 0, RING_BYTES)
        ctypes.c_uint32.from_buffer(memory, SKIP).value = skip
        ctypes.c_uint32.from_buffer(memory, GROUP).value = int(formats.TRACE_GROUP)
        return self.moment()

    def moment(self) -> tuple[int, int]:
        """The clock of traced kernels and the monotonic one."""
        ticks, ns = ctypes.c_uint64(), ctypes.c_uint64()
        self._runtime.gda_host_moment(ctypes.byref(ticks), ctypes.byref(ns))
        return ticks.value, ns.value

    def start(
        self, name: str, packed: Packed, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int,
        *, stream: int | None = None,
    ) -> HostRun:  # fmt: skip
        """Start a kernel; its blocks run in threads of this process, which has no streams."""
        from gda import attach  # here, so that kernels that use no NIC load none

        values = [ctypes.create_string_buffer(value + bytes(-len(value) % 16), max(16, -(-len(value) // 16) * 16))
                  for value in packed.values]  # fmt: skip
        arguments = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        request = _Request(
            ctypes.cast(self._library[f"gda_entry_{self._numbers[name]}"], ctypes.c_void_p),
            ctypes.cast(arguments, ctypes.c_void_p),
            attach.idle_hook_address() or None,
            attach.fence_hook_address() or None,
            _Dim(*grid), _Dim(*block), shared_bytes, self._policy, self._seed,
        )  # fmt: skip
        reason = ctypes.create_string_buffer(_START_REASON_BYTES)
        handle = self._runtime.gda_host_start(ctypes.byref(request), reason, len(reason))
        if not handle:
            raise UnavailableError(f"kernel {name} could not start: {reason.value.decode()}")
        return HostRun(self._runtime, handle, [values, arguments, packed.alive, self._library])


# Launches that have not ended, also when nobody holds their Launch any more: their threads use the arguments.
_under_way: set[HostRun] = set()


class HostRun:
    """A kernel under way. `alive` is what its threads use."""

    def __init__(self, runtime: ctypes.CDLL, handle: int, alive: list[object]) -> None:
        self._runtime, self._handle, self._alive = runtime, handle, alive
        self._lock = Lock()
        self.error = ""
        self._ended = False
        self.is_captured = False
        self._waiting = 0  # threads, each of which needs the handle until it knows of the end
        for other in list(_under_way):
            other.wait(0)
        _under_way.add(self)

    def wait(self, timeout_s: float) -> bool:
        """Wait at most so long; whether all blocks have ended."""
        # Without the lock, which others take that only look: each launch does at all that are under way.
        with self._lock:
            if self._ended:
                return True
            self._waiting += 1
        ended = bool(self._runtime.gda_host_wait(self._handle, max(0, int(timeout_s * 1e9))))
        with self._lock:
            self._waiting -= 1
            if ended and not self._ended:
                self.error = self._runtime.gda_host_error(self._handle).decode(errors="replace")
                self._ended = True
            if self._ended and self._handle and not self._waiting:
                self._runtime.gda_host_free(self._handle)
                self._handle, self._alive = 0, []
        if ended:
            _under_way.discard(self)
            _flush_output()
        return ended

    def abort(self) -> bool:
        """Blocks end at their next turn; a thread in a function without turns (a long memcpy) ends after it."""
        with self._lock:
            if self._handle:
                self._runtime.gda_host_abort(self._handle)
        return True


@atexit.register
def _stop_all() -> None:
    """At the end of the process no kernel may run: what it uses is taken down."""
    for run in list(_under_way):
        run.abort()
    for run in list(_under_way):
        run.wait(_LAST_WAIT_S)


def _flush_output() -> None:
    ctypes.CDLL(None).fflush(None)  # printf of kernels


def _with_entries(text: str, file: str, names: Sequence[str]) -> str:
    """The C++ text: CUDA's words, the kernel text under its own file name and lines, one entry per kernel."""
    shown = file.replace("\\", "\\\\").replace('"', '\\"')
    entries = "".join(
        f"""
extern "C" GDA_HOST_EXPORT void gda_entry_{number}(void* const* arguments) {{
    ::gda::target::call(&::{name}, arguments);
}}
extern "C" GDA_HOST_EXPORT uint64_t gda_entry_sizes_{number}(uint64_t* bytes) {{
    static_assert(::gda::target::parameter_count(static_cast<decltype(&::{name})>(nullptr)) <= {_MAX_PARAMETERS}, "");
    return ::gda::target::parameter_sizes(&::{name}, bytes);
}}
"""
        for number, name in enumerate(names)
    )
    head = f'#include <gda/target/host/words.h>\n#line 1 "{shown}"\n'
    return f'{head}{for_host(text)}\n#line 1 "entries of {shown}"{entries}'


def _user_files(dependencies: Path, unit: Path) -> list[Path]:
    """Files that the compiler read besides the unit, the package's headers and the system's."""
    rule = dependencies.read_text().replace("\\\n", " ").split(":", 1)[-1]
    own = include_directory().resolve()
    files = (Path(name.replace("\\ ", " ")) for name in rule.split())
    return [file for file in files if file != unit and own not in file.resolve().parents]
