# SPDX-License-Identifier: Apache-2.0
"""The kernel that is PTX text: NVIDIA's linker assembles it, as it stands and as it is changed for newer GPUs.

nvJitLink comes with Numba's CUDA packages; where it is missing the test says so. What the kernel does is tested on a
GPU (tests/whole/test_gpu_traffic.py); how the engine uses it on a GPU that is played (engine_gpu_later_test.cc).
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from pathlib import Path

import pytest

ENGINE = Path(__file__).resolve().parents[2] / "sim" / "engine"
INPUT_PTX = 2  # NVJITLINK_INPUT_PTX


@pytest.fixture(scope="module")
def linker() -> ctypes.CDLL:
    """NVIDIA's linker of device code."""
    for package in ("nvidia.cu13", "nvidia.nvjitlink"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for place in (spec.submodule_search_locations or ()) if spec else ():
            for name in sorted((Path(place) / "lib").glob("libnvJitLink.so.*")):
                return ctypes.CDLL(str(name))
    pytest.skip("not run: nvJitLink (package nvidia-nvjitlink) is not installed")


def kernel() -> str:
    """The text between the quotes."""
    found = re.search(r'R"ptx\((.*)\)ptx"', (ENGINE / "copy_kernel_ptx.h").read_text(), re.DOTALL)
    assert found
    return found[1]


def newer() -> str:
    """As gpu_ring.cc changes it: its own replacements."""
    text = kernel()
    pairs = re.findall(r'replace_all\(&newer, "([^"]+)", "([^"]+)"\)', (ENGINE / "gpu_ring.cc").read_text())
    assert len(pairs) == 3
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def assemble(linker: ctypes.CDLL, ptx: str, arch: str) -> bytes:
    """The machine code."""

    def call(name: str, *arguments: object) -> int:
        # Each version of the library has the names of the versions before.
        for suffix in ("_13_0", "_12_0", ""):
            try:
                return int(linker["".join(("__" if suffix else "", "nvJitLink", name, suffix))](*arguments))
            except AttributeError:
                continue
        raise AttributeError(name)

    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(f"-arch={arch}".encode())
    assert call("Create", ctypes.byref(handle), 1, options) == 0
    code = ptx.encode()
    result = call("AddData", handle, INPUT_PTX, code, ctypes.c_size_t(len(code)), b"copy_kernel") or call(
        "Complete", handle
    )
    call("GetErrorLogSize", handle, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    call("GetErrorLog", handle, log)
    assert result == 0, log.value.decode()
    call("GetLinkedCubinSize", handle, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    assert call("GetLinkedCubin", handle, cubin) == 0
    return cubin.raw


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_it_assembles(linker: ctypes.CDLL, arch: str) -> None:
    """For the oldest GPU that the linker knows, and for newer ones."""
    assert b"gda_copy_items" in assemble(linker, kernel(), arch)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_it_assembles_for_newer_gpus(linker: ctypes.CDLL, arch: str) -> None:
    """With one-sided fences."""
    assert "fence.release.gpu" in newer()
    assert b"gda_copy_items" in assemble(linker, newer(), arch)


def test_a_mistake_is_found(linker: ctypes.CDLL) -> None:
    """What the two above find."""
    with pytest.raises(AssertionError):
        assemble(linker, kernel().replace("shl.b64 item, y, 6;", "shl.b64 itm, y, 6;", 1), "sm_90")


def test_the_sum_is_the_same_on_both_sides() -> None:
    """The factors in copy_kernel.h are those in the PTX, which has them as signed numbers, twice."""
    factors = re.findall(r"\* (0x[0-9a-f]{16})", (ENGINE / "copy_kernel.h").read_text())
    assert len(factors) == 8
    for factor in factors:
        value = int(factor, 16)
        signed = value - (1 << 64) if value >> 63 else value
        assert len(re.findall(rf"[ ,]{signed}\b", kernel())) == 2, factor
