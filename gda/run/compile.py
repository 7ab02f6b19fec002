# SPDX-License-Identifier: Apache-2.0
"""Compile device code for a GPU without a GPU or a driver: NVRTC through ctypes.

Called by linkable, tests and anybody who wants PTX or a cubin; launching is `gda.run.cuda`'s work, which lets CuPy
compile. Source: NVRTC documentation, "User Interface".
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from gda.errors import ArgumentError, CompileError, UnavailableError

__all__ = ["compile_for_gpu", "include_directory", "nvrtc_version"]

_GETTERS = {"cubin": "nvrtcGetCUBIN", "ptx": "nvrtcGetPTX", "ltoir": "nvrtcGetLTOIR"}


def include_directory() -> Path:
    """Directory that holds `gda/gda.h`: what a compiler gets as -I."""
    import gda.formats

    return Path(gda.formats.include_directory())


def _candidates() -> list[str]:
    """Where libnvrtc may lie: the PyPI wheel first, then what the loader finds."""
    found: list[str] = []
    for package in ("nvidia.cu13", "nvidia.cuda_nvrtc"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for place in (spec.submodule_search_locations or ()) if spec else ():
            # libnvrtc.so.13, but neither libnvrtc-builtins nor the .alt build of newer wheels
            names = (Path(place) / "lib").glob("libnvrtc.so.*")
            found += sorted((str(name) for name in names if ".alt." not in name.name), reverse=True)
    return [*found, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]


@functools.cache
def _library(path: str = "") -> ctypes.CDLL:
    for name in [path] if path else _candidates():
        try:
            # NVRTC opens its headers' library by name when it compiles, and finds it only where the system looks, or
            # where it has been loaded from already.
            for headers in sorted(Path(name).parent.glob("libnvrtc-builtins.so*")) if "/" in name else ():
                ctypes.CDLL(str(headers), ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise UnavailableError(
        "NVRTC, CUDA's run-time compiler, was not found", "pip install nvidia-cuda-nvrtc, or install the CUDA toolkit"
    )


def _check(code: int, call: str) -> None:
    if code:
        text = _library().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise CompileError(f"{call} failed: {text(code).decode()} ({code})")


@functools.cache
def nvrtc_version(library: str = "") -> tuple[int, int]:
    """Version of the NVRTC that `compile_for_gpu` uses. Raises UnavailableError when there is none."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library(library).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


def compile_for_gpu(
    source: str,
    *,
    arch: str = "sm_90",
    form: str = "",
    options: Sequence[str] = (),
    names: Sequence[str] = (),
    file: str = "kernel.cu",
    library: str = "",
) -> bytes:
    """Compile CUDA C++ text to a cubin (`arch="sm_90"`) or to PTX (`arch="compute_90"`), or to what `form` says.

    `form` is "cubin", "ptx" or "ltoir" (for link-time optimization). `names` are kernels or template instances that
    must be in the result. `library` is the path of the NVRTC to use, for a result that must suit another's linker.
    Raises CompileError with the compiler's log, UnavailableError without NVRTC.
    """
    form = form or ("cubin" if arch.startswith("sm_") else "ptx")
    if form not in _GETTERS:
        raise ArgumentError(f"form={form!r} is not one of {', '.join(_GETTERS)}")
    nvrtc = _library(library)
    program = ctypes.c_void_p()
    _check(
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), file.encode(), 0, None, None),
        "nvrtcCreateProgram",
    )
    try:
        for name in names:
            _check(nvrtc.nvrtcAddNameExpression(program, name.encode()), f"nvrtcAddNameExpression({name!r})")
        flags = [f"--gpu-architecture={arch}", "--std=c++17", f"-I{include_directory()}", *options]
        flags += ["--dlink-time-opt"] if form == "ltoir" else []
        array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        code = nvrtc.nvrtcCompileProgram(program, len(flags), array)
        if code:
            size = ctypes.c_size_t()
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value + 1)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise CompileError(f"NVRTC could not compile {file} for {arch}", log.value.decode(errors="replace"))
        getter = _GETTERS[form]
        size = ctypes.c_size_t()
        _check(getattr(nvrtc, f"{getter}Size")(program, ctypes.byref(size)), f"{getter}Size")
        result = ctypes.create_string_buffer(size.value)
        _check(getattr(nvrtc, getter)(program, result), getter)
        return result.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
