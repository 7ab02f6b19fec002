# SPDX-License-Identifier: Apache-2.0
"""Python and every C++ compiler read the same declaration the same way: g++, clang++, nvcc and NVRTC.

A compiler that is absent is skipped by name; see answers.py for what each is asked.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gda import formats

from . import answers, compilers


@pytest.fixture(scope="module")
def text() -> str:
    return answers.source()


def test_enough_is_asked(text: str) -> None:
    fields = sum(len(answers.numbers(struct)) for struct in formats.structs.values())
    assert fields > 500
    assert text.count("    CHECK(") == fields
    assert text.count("static_assert(GDA_FIELD(") == text.count("bad += GDA_FIELD(") > 400


@pytest.mark.parametrize("kind", ["g++", "clang++"])
def test_cpp_compiler(kind: str, text: str, tmp_path: Path) -> None:
    compiler = compilers.find(kind)
    source = tmp_path / "answers.cc"
    source.write_text(text + answers.HOST_MAIN)
    program = compilers.build(compiler, source, tmp_path, *compilers.STANDARD)
    assert compilers.run(program) == "0 wrong answers\n"


@pytest.mark.parametrize("kind", ["g++", "clang++"])
def test_a_wrong_belief_would_be_found(kind: str, tmp_path: Path) -> None:
    compiler = compilers.find(kind)
    source = tmp_path / "wrong.cc"
    source.write_text("#include <gda/formats/wqe.h>\nstatic_assert(GDA_FIELD(wqe_ctrl_seg, opcode, 8) == 9);\n")
    result = subprocess.run(
        [compiler, "-std=c++17", f"-I{formats.include_directory()}", "-fsyntax-only", str(source)],
        capture_output=True,
        text=True,
    )
    assert result.returncode
    assert "static" in result.stderr


def test_nvcc(text: str, tmp_path: Path) -> None:
    compiler = compilers.find("nvcc")
    source = tmp_path / "answers.cu"
    source.write_text(text + answers.KERNEL + answers.HOST_MAIN)
    program = compilers.build(compiler, source, tmp_path, "-std=c++17", "-arch=sm_90", "-cudart=none", "-c")
    assert program.stat().st_size > 0


def test_nvrtc(text: str) -> None:
    nvrtc = compilers.Nvrtc()
    cubin = nvrtc.compile(text + answers.KERNEL)
    assert b"formats_check" in cubin


@pytest.mark.gpu
def test_on_the_gpu(text: str) -> None:
    cupy = pytest.importorskip("cupy")
    device = cupy.cuda.Device()
    cubin = compilers.Nvrtc().compile(text + answers.KERNEL, f"sm_{device.compute_capability}")
    module = cupy.cuda.function.Module()
    module.load(cubin)
    bad = cupy.full(1, 0xFFFF_FFFF, dtype=cupy.uint32)
    module.get_function("formats_check")((1,), (1,), (bad, cupy.uint32(0)))
    device.synchronize()
    assert int(bad[0]) == 0


def test_names_are_the_same_on_both_sides(tmp_path: Path) -> None:
    """The preprocessor's output names every format and constant that the compiler sees; Python has the same."""
    compiler = compilers.find("g++")
    source = tmp_path / "names.cc"
    headers = sorted(path.name for path in (formats.include_directory() / "gda" / "formats").glob("*.h"))
    plain = "#include <gda/handle.h>\n#include <gda/trace_ring.h>\n"
    source.write_text("".join(f"#include <gda/formats/{name}>\n" for name in headers) + plain)
    result = subprocess.run(
        [compiler, "-std=c++17", "-E", "-P", f"-I{formats.include_directory()}", str(source)],
        capture_output=True,
        text=True,
        check=True,
    )
    ours = result.stdout[result.stdout.index("namespace gda") :]
    structs = set(re.findall(r"\bstruct (\w+) \{", ours)) - {"place"}
    assert structs == {f"{name}_bits" for name in formats.structs} | set(formats.layouts)
    enums = re.findall(r"\benum (\w* ?)\{(.*?)\}", ours, re.S)
    assert {name.strip() for name, _ in enums} - {""} == set(formats.enums)
    constants = {name for _, body in enums for name in re.findall(r"\b([A-Za-z]\w*)\s*=", body)}
    assert constants == set(formats.constants)
