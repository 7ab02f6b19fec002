# SPDX-License-Identifier: Apache-2.0
"""Compile errors in the user's own lines, and compiled code found again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gda.errors import ArgumentError, CompileError, DeadlineError, UnavailableError
from gda.run import Kernel, host
from gda.run.cache import cached

TEXT = "#include <gda/gda.h>\nGDA_KERNEL(answer)(int* out) { *out = 42; }\n"


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the runtime and one kernel."""
    directory = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GDA_CACHE", str(directory))
        Kernel(TEXT, target="host")
    return directory


@pytest.fixture
def cache(warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it."""
    shutil.copytree(warm, tmp_path / "cache")
    monkeypatch.setenv("GDA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "host"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was compiled, in order."""
    done: list[str] = []
    real = host._compile

    def counted(compiler: host.Compiler, arguments: list[str], what: str) -> None:
        done.append(what)
        real(compiler, arguments, what)

    monkeypatch.setattr(host, "_compile", counted)
    return done


def answer(kernel: Kernel) -> int:
    out = np.zeros(1, np.int32)
    kernel.answer[1, 1](out)
    return int(out[0])


def test_error_in_the_users_line() -> None:
    with pytest.raises(CompileError) as caught:
        Kernel(
            "#include <gda/gda.h>\n\nGDA_KERNEL(k)(int n) {\n    while (n) n--;\n    nonsense(n);\n}\n", target="host"
        )
    assert "<kernel>:5:" in caught.value.log
    assert "nonsense" in caught.value.log
    assert "<kernel> did not compile" in str(caught.value)


def test_error_in_the_users_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.cu"
    file.write_text('#include "part.h"\nGDA_KERNEL(k)(int n) {\n    part(n);\n    int x = "text";\n}\n')
    (tmp_path / "part.h").write_text("#include <gda/gda.h>\n__device__ void part(int) {}\n")
    with pytest.raises(CompileError) as caught:
        Kernel(file, target="host")
    assert f"{file}:4:" in caught.value.log


def test_kernels_of_an_included_file(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text(TEXT)
    (tmp_path / "mine.cu").write_text('#include "part.h"\n')
    assert answer(Kernel(tmp_path / "mine.cu", target="host")) == 42


def test_kernels_of_the_package() -> None:
    names = Kernel("#include <gda/kernels/put.h>\n#include <gda/kernels/bench.h>\n", target="host").names
    assert {"gda_kernel_put", "gda_kernel_put_times", "gda_kernel_post_alone"} <= set(names)


def test_options() -> None:
    text = "#include <gda/gda.h>\nGDA_KERNEL(answer)(int* out) { *out = ANSWER; }\n"
    assert answer(Kernel(text, target="host", options=("-DANSWER=7",))) == 7


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("int x;", "has no kernel"),
        ("template <class T> __global__ void k(T x) {}", "but templates"),
        (Path("/nowhere/k.cu"), "cannot be read"),
        ("/nowhere/k.cu", "cannot be read"),
        (5, "is a int"),
    ],
)
def test_sources_refused(source: object, why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        Kernel(source, target="host")  # type: ignore[arg-type]


def test_unknown_kernel() -> None:
    kernel = Kernel(TEXT, target="host")
    with pytest.raises(AttributeError, match="no kernel 'missing'; it has answer"):
        kernel.missing
    with pytest.raises(ArgumentError, match="no kernel"):
        kernel["missing"]
    with pytest.raises(ArgumentError, match="converged"):
        Kernel(TEXT, target="host", converged="some")
    with pytest.raises(ArgumentError, match="target"):
        Kernel(TEXT, target="cpu")


def test_compiled_once(cache: Path, compilations: list[str]) -> None:
    for _ in range(2):
        assert answer(Kernel(TEXT, target="host")) == 42
    assert compilations == []
    for _ in range(2):
        assert answer(Kernel(TEXT.replace("42", "43"), target="host")) == 43
    assert compilations == ["<kernel>"]
    shutil.rmtree(cache)
    assert answer(Kernel(TEXT, target="host")) == 42
    assert len(compilations) == 3, "the runtime and the kernel"


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "entry", "no entry", "no result"])
def test_damaged_entry_is_built_again(cache: Path, compilations: list[str], damage: str) -> None:
    entries = [(entry, cache / json.loads(entry.read_text())["file"]) for entry in cache.glob("*.json")]
    entries.sort(key=lambda pair: pair[1].stat().st_size)
    for entry, result in entries if damage == "cut" else entries[:1]:  # the kernel's is the smaller one
        data = result.read_bytes()
        result.unlink()  # it may be loaded: a new file, as a broken disk or copy would leave
        if damage == "cut":
            result.write_bytes(data[: len(data) // 2])
        elif damage == "empty":
            result.write_bytes(b"")
        elif damage == "garbage":
            result.write_bytes(bytes(len(data)))
        elif damage != "no result":
            result.write_bytes(data)
            entry.write_text("{" if damage == "entry" else "[]")
            if damage == "no entry":
                entry.unlink()
    assert answer(Kernel(TEXT, target="host")) == 42
    assert len(compilations) == (2 if damage == "cut" else 1)


def test_changed_include_is_seen(tmp_path: Path, cache: Path, compilations: list[str]) -> None:
    (tmp_path / "part.h").write_text("#define ANSWER 1\n")
    file = tmp_path / "mine.cu"
    file.write_text('#include "part.h"\n' + TEXT.replace("42", "ANSWER"))
    assert answer(Kernel(file, target="host")) == 1
    (tmp_path / "part.h").write_text("#define ANSWER 2\n")
    assert answer(Kernel(file, target="host")) == 2
    (tmp_path / "part.h").write_text("#define ANSWER 1\n")
    assert answer(Kernel(file, target="host")) == 1


def test_several_processes_at_once(cache: Path) -> None:
    for entry in cache.glob("*.json"):
        entry.unlink()
    program = f"""
import numpy as np
from gda.run import Kernel
out = np.zeros(1, np.int32)
Kernel({TEXT!r}, target="host").answer[1, 1](out)
print(out[0])
"""
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "GDA_CACHE": str(cache.parent)}
    processes = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in processes] == ["42"] * 2
    assert not list(cache.glob("building-*"))


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnavailableError, match=r"no C\+\+ compiler.*\n.*apt-get install g\+\+"):
        Kernel(TEXT, target="host")
    monkeypatch.setenv("GDA_CXX", "no-such-compiler")
    with pytest.raises(UnavailableError, match="GDA_CXX=no-such-compiler"):
        Kernel(TEXT, target="host")


def test_asked_compiler_and_flags(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("GDA_CXXFLAGS", "-DANSWER=11 -DOTHER='a b'")
    text = "#include <gda/gda.h>\nGDA_KERNEL(answer)(int* out) { *out = ANSWER; }\n"
    assert answer(Kernel(text, target="host")) == 11


def test_clang(monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("clang++"):
        pytest.skip("not run: clang++ is not on the PATH")
    monkeypatch.setenv("GDA_CXX", "clang++")
    monkeypatch.delenv("GDA_CXXFLAGS", raising=False)  # make sanitize: the sanitizer's runtime is g++'s
    endless = "GDA_KERNEL(endless)() { for (;;) { } }\n"
    kernel = Kernel(TEXT + endless, target="host")
    assert "clang" in kernel.where
    assert answer(kernel) == 42
    with pytest.raises(DeadlineError) as caught:
        kernel.endless.start[1, 1]().wait(0.1)
    assert "left behind" not in str(caught.value), "a loop of one block counts its turns too"


def test_where_and_repr() -> None:
    kernel = Kernel(TEXT, target="host")
    assert kernel.target == "host"
    assert kernel.where.startswith("the CPU (")
    assert "answer(int* out)" in repr(kernel.answer)
    assert "answer" in dir(kernel)


def test_a_result_that_another_process_is_about_to_load_is_not_removed(tmp_path: Path) -> None:
    """Two builders of one key used to delete each other's file between finding and loading it."""

    def build(text: bytes) -> Callable[[Path], list[Path]]:
        def write(path: Path) -> list[Path]:
            path.write_bytes(text)
            return []

        return write

    first = cached(tmp_path, "key", ".so", build(b"one"))
    (tmp_path / "key.json").unlink()  # the other process had not seen the entry when it began to build
    second = cached(tmp_path, "key", ".so", build(b"two"))
    assert first != second and first.read_bytes() == b"one"
