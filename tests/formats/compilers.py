# SPDX-License-Identifier: Apache-2.0
"""The compilers that read the formats: found, run, or the test skipped with what was not run."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from gda import formats

STANDARD = ("-std=c++17", "-Wall", "-Wextra", "-Werror")
_NAMES = {"cc": ("cc", "gcc", "clang"), "g++": ("g++",), "clang++": ("clang++",), "nvcc": ("nvcc",)}


def find(kind: str) -> str:
    """Path of a compiler, or skip the test."""
    for name in _NAMES[kind]:
        if path := shutil.which(name):
            return path
    pytest.skip(f"not run: {kind} is not on the PATH")


def with_header(kind: str, header: str, package: str) -> str:
    """A compiler that finds a system header, or skip the test with the package's name."""
    compiler = find(kind)
    text = f"#include <{header}>\n"
    if subprocess.run([compiler, "-E", "-xc", "-"], input=text, capture_output=True, text=True).returncode:
        pytest.skip(f"not run: no {header}; apt-get install {package}")
    return compiler


def build(compiler: str, source: Path, directory: Path, *options: str) -> Path:
    """Compile and link one source file; the compiler's words are the test's failure."""
    program = directory / (source.stem + "-" + Path(compiler).name.replace("+", "p"))
    command = [compiler, *options, f"-I{formats.include_directory()}", "-o", str(program), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr[-4000:]}"
    return program


def run(program: Path) -> str:
    """Output of a program that must succeed."""
    result = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, f"{program.name} exited with {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


class Nvrtc:
    """NVRTC through ctypes: the library of a PyPI wheel, of CuPy's dependencies or of the system."""

    def __init__(self) -> None:
        self._library = _load_nvrtc()
        major, minor = ctypes.c_int(), ctypes.c_int()
        assert self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
        self.version = f"{major.value}.{minor.value}"

    def compile(self, source: str, architecture: str = "sm_90") -> bytes:
        """The cubin; the compiler's log is the test's failure."""
        library, program = self._library, ctypes.c_void_p()
        create = library.nvrtcCreateProgram
        text, pointer = ctypes.c_char_p, ctypes.c_void_p
        create.argtypes = [pointer, text, text, ctypes.c_int, pointer, pointer]
        assert create(ctypes.byref(program), source.encode(), b"formats.cu", 0, None, None) == 0
        try:
            options = [f"-I{formats.include_directory()}", "-std=c++17", f"--gpu-architecture={architecture}"]
            array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            code = library.nvrtcCompileProgram(program, len(options), array)
            log = self._text(program, "ProgramLog").decode(errors="replace")
            assert code == 0, f"NVRTC {self.version} refused:\n{log[-4000:]}"
            return self._text(program, "CUBIN")
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        assert getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
        buffer = ctypes.create_string_buffer(size.value)
        assert getattr(self._library, f"nvrtcGet{what}")(program, buffer) == 0
        return buffer.raw


def _load_nvrtc() -> ctypes.CDLL:
    candidates: list[str] = []
    for package in ("nvidia.cu13", "nvidia.cuda_nvrtc"):  # wheels: nvidia-cuda-nvrtc (13), nvidia-cuda-nvrtc-cu12
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for directory in spec.submodule_search_locations or () if spec else ():
            candidates += map(str, sorted(Path(directory).glob("lib/libnvrtc.so.*")))
    nvcc = shutil.which("nvcc")
    roots = [Path("/usr/local/cuda"), *([Path(nvcc).resolve().parents[1]] if nvcc else [])]
    for root in roots:
        candidates += map(str, sorted(root.glob("lib64/libnvrtc.so.*")))
    candidates += filter(None, [ctypes.util.find_library("nvrtc"), "libnvrtc.so.13", "libnvrtc.so.12"])
    for candidate in candidates:
        if "builtins" in candidate or ".alt." in candidate:
            continue
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    pytest.skip("not run: no NVRTC; pip install nvidia-cuda-nvrtc")
