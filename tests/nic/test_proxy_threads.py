# SPDX-License-Identifier: Apache-2.0
"""Kernels and the proxy's thread at once, under the compiler's sanitizers: proxy_threads.cc."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which("g++") or shutil.which("clang++") or "c++"
FLAGS = [
    "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Icuda", "-I.", "-O1", "-g1", "-pthread",
    "-fno-strict-aliasing",  # as kernels are compiled
    "-fno-builtin",  # a memcpy that the compiler writes out is not looked at by the thread sanitizer
    "-fno-omit-frame-pointer",
]  # fmt: skip
FLAVOURS = {
    "thread": ["-fsanitize=thread"],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
}
SOURCES = [ROOT / "tests/nic/proxy_threads.cc", *ROOT.glob("proxy/*.cc"), *ROOT.glob("cuda/gda/target/host/*.cc")]
ROUNDS = "400"
PLANTED = {  # where, what stands there, and what is wrong
    "requests-read-too-early": ("send.cc", "exchange_n(word_, 0, __ATOMIC_ACQ_REL)", "__ATOMIC_ACQ_REL"),
    "receives-read-too-early": ("receive.cc", "load_n(record_, __ATOMIC_ACQUIRE)", "__ATOMIC_ACQUIRE"),
    "completion-before-payload": ("completions.cc", "load32(entry + last), __ATOMIC_RELEASE)", "__ATOMIC_RELEASE"),
}

Program = Callable[[str], list[Path]]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    # Where the tests themselves run under a sanitizer, its runtime must not be this program's.
    inherited = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    options = {"TSAN_OPTIONS": "halt_on_error=1", "ASAN_OPTIONS": "detect_leaks=0"}
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False, env=inherited | options
    )


def compile_one(source: Path, flavour: str, made: Path) -> Path:
    done = run(COMPILER, *FLAGS, *FLAVOURS[flavour], "-c", str(source), "-o", str(made))
    assert done.returncode == 0, done.stderr
    return made


def link(objects: list[Path], flavour: str, made: Path) -> str:
    done = run(COMPILER, *FLAGS, *FLAVOURS[flavour], *map(str, objects), "-o", str(made))
    assert done.returncode == 0, done.stderr
    return str(made)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The objects of the program in a flavour, compiled once, two at a time."""
    known: dict[str, list[Path]] = {}

    def make(flavour: str) -> list[Path]:
        if flavour not in known:
            folder = tmp_path_factory.mktemp(flavour)
            with ThreadPoolExecutor(max_workers=2) as pool:
                known[flavour] = list(
                    pool.map(lambda source: compile_one(source, flavour, folder / f"{source.stem}.o"), SOURCES)
                )
        return known[flavour]

    return make


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_race_between_kernels_and_the_proxy(objects: Program, tmp_path: Path, flavour: str) -> None:
    done = run(link(objects(flavour), flavour, tmp_path / "threads"), ROUNDS)
    assert done.returncode == 0, (done.stdout + done.stderr)[:8000]
    assert done.stdout.count("served") == 6


@pytest.mark.parametrize("name", PLANTED)
def test_a_race_would_be_found(objects: Program, tmp_path: Path, name: str) -> None:
    """With one order less in the proxy the thread sanitizer says so: what it does not find is worth something."""
    file, there, order = PLANTED[name]
    text = (ROOT / "proxy" / file).read_text()
    assert text.count(there) == 1, f"{file} has changed: say anew where a race can be planted"
    wrong = tmp_path / file
    wrong.write_text(text.replace(there, there.replace(order, "__ATOMIC_RELAXED")))
    planted = compile_one(wrong, "thread", tmp_path / "planted.o")
    sound = [made for made in objects("thread") if made.stem != wrong.stem]
    done = run(link([*sound, planted], "thread", tmp_path / "threads"), ROUNDS)
    assert done.returncode != 0 and "data race" in done.stderr, (done.stdout + done.stderr)[:8000]
