# SPDX-License-Identifier: Apache-2.0
"""The device library under every compiler that it is for: warnings are errors where a compiler has them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gda.errors import CompileError, UnavailableError
from gda.run.compile import compile_for_gpu, include_directory, nvrtc_version

from . import (
    message_cases,
    operation_cases,
    scope_cases,
    signal_cases,
    test_message,
    test_operations,
    test_scopes,
    unreliable_cases,
)

KERNELS = sorted(path.name for path in (include_directory() / "gda" / "kernels").glob("*.h"))
ALL = "".join(f"#include <gda/kernels/{name}>\n" for name in KERNELS)


@pytest.fixture(scope="module")
def nvrtc() -> tuple[int, int]:
    try:
        return nvrtc_version()
    except UnavailableError as error:
        pytest.skip(f"not run: {error}")


def test_there_are_kernels() -> None:
    assert {"put.h", "bench.h"} <= set(KERNELS)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "compute_90"])
@pytest.mark.parametrize("name", KERNELS)
def test_nvrtc(name: str, arch: str, nvrtc: tuple[int, int]) -> None:
    text = f"#include <gda/kernels/{name}>\n"
    kernels = re.findall(r"GDA_KERNEL\((\w+)\)", (include_directory() / "gda" / "kernels" / name).read_text())
    assert compile_for_gpu(text, arch=arch, names=kernels)


REDUCTIONS = [
    "gda_kernel_reduce_scatter<gda_simple,gda_half,gda_prod>",
    "gda_kernel_all_reduce_ring<gda_ll,int64_t,gda_min>",
    "gda_kernel_all_reduce_doubling<gda_ll128,float,gda_sum>",
]


def test_nvrtc_makes_instances_of_reductions(nvrtc: tuple[int, int]) -> None:
    """They are templates: including them compiles nothing yet."""
    ptx = compile_for_gpu("#include <gda/kernels/reduce.h>\n", arch="compute_90", names=REDUCTIONS).decode()
    assert ptx.count(".entry ") == len(REDUCTIONS)
    assert "ld.relaxed.sys" in ptx, "words that carry their flag"


LAUNCHED = {
    "litmus.cu": (Path(__file__).parent / "litmus.cu").read_text(),
    "toy_nic_gpu.cu": (Path(__file__).parent / "toy_nic_gpu.cu").read_text(),
    "operations": test_operations.OPERATIONS,
    "messages": test_message.MESSAGES,
    "operation_cases": operation_cases.KERNELS.replace("LIMIT", "GDA_S(1)"),
    "scope_cases": scope_cases.SCOPE_KERNELS.replace("LIMIT", "GDA_S(1)"),
    "scopes": test_scopes.SCOPES,
    "unreliable_cases": unreliable_cases.UNRELIABLE_KERNELS.replace("LIMIT", "GDA_S(1)"),
    "signal_cases": signal_cases.SIGNAL_KERNELS.replace("LIMIT", "GDA_S(1)"),
    "message_cases": message_cases.KERNELS.replace("LIMIT", "GDA_S(1)"),
}


@pytest.mark.parametrize("name", LAUNCHED)
def test_nvrtc_compiles_what_the_gpu_tests_launch(name: str, nvrtc: tuple[int, int]) -> None:
    """Their kernels must not be found broken only where there is a GPU."""
    assert compile_for_gpu(LAUNCHED[name], file=name, arch="compute_90")


def test_meters_are_counted_where_they_are_asked_for(nvrtc: tuple[int, int]) -> None:
    """With GDA_METER every step adds to a counter; without it there is neither a counter nor an addition."""
    without, counted = (
        compile_for_gpu(ALL, arch="compute_90"),
        compile_for_gpu("#define GDA_METER\n" + ALL, arch="compute_90"),
    )
    assert b"gda_meter_counts" in counted
    assert b"gda_meter_counts" not in without


def test_nvrtc_shows_the_log(nvrtc: tuple[int, int]) -> None:
    with pytest.raises(CompileError) as caught:
        compile_for_gpu("__global__ void k() { nonsense; }", file="mine.cu")
    assert "mine.cu(1)" in caught.value.log
    assert "nonsense" in caught.value.log


def test_ptx_has_the_stores_and_barriers_that_a_card_needs(nvrtc: tuple[int, int]) -> None:
    kernel = "GDA_KERNEL(k)(gda_qp* q, gda_mr d, gda_mr s) { gda_put(q, d, 0, s, 0, 8); }"
    ptx = compile_for_gpu(f"#include <gda/gda.h>\n{kernel}", arch="compute_90").decode()
    assert "st.mmio.relaxed.sys.global" in ptx, "the doorbell"
    assert "st.relaxed.sys" in ptx, "the record"
    assert "st.weak.global.cs.v2.b64" in ptx, "16 bytes of a work request at once"
    assert {"fence.acq_rel.gpu", "fence.acq_rel.sys", "fence.release.gpu", "fence.release.sys"} <= set(
        re.findall(r"fence\.\w+\.\w+", ptx)
    )
    assert "ld.acquire.sys" in ptx
    assert "membar" not in ptx


def test_old_gpus_have_no_release_fence(nvrtc: tuple[int, int]) -> None:
    ptx = compile_for_gpu(ALL, arch="compute_80").decode()
    assert "fence.release" not in ptx
    assert "fence.acq_rel.sys" in ptx


def test_nvcc(tmp_path: Path) -> None:
    if not (nvcc := shutil.which("nvcc")):
        pytest.skip("not run: nvcc is not on the PATH")
    source = tmp_path / "all.cu"
    source.write_text(ALL)
    command = [nvcc, "-std=c++17", "-arch=sm_90", "-Werror=all-warnings", "-Xcompiler=-Wall,-Wextra", "-cubin"]
    done = subprocess.run(
        [*command, f"-I{include_directory()}", "-o", str(tmp_path / "all.cubin"), str(source)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_host(compiler: str, level: str, tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"not run: {compiler} is not on the PATH")
    source = tmp_path / "all.cc"
    source.write_text(ALL)
    command = [compiler, "-std=c++17", level, "-Wall", "-Wextra", "-Werror", "-fPIC", "-c"]
    units = [source, *sorted((include_directory() / "gda" / "target" / "host").glob("*.cc"))]
    for unit in units:
        done = subprocess.run(
            [*command, f"-I{include_directory()}", "-o", str(tmp_path / "out.o"), str(unit)],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("header", sorted(p.name for p in (include_directory() / "gda").glob("*.h")))
def test_each_header_stands_alone(header: str, tmp_path: Path) -> None:
    source = tmp_path / "one.cc"
    source.write_text(f"#include <gda/{header}>\n#include <gda/{header}>\n")
    done = subprocess.run(
        ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{include_directory()}", str(source)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
