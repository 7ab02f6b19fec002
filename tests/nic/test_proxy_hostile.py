# SPDX-License-Identifier: Apache-2.0
"""The proxy's queue over a device that is played, with requests and answers of all kinds: proxy_hostile.cc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Icuda", "-I.", "-O1", "-g1", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
]  # fmt: skip


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("g++") or shutil.which("clang++") or "c++"
    made = str(tmp_path_factory.mktemp("hostile") / "proxy_hostile")
    sources = sorted(str(path) for path in ROOT.glob("proxy/*.cc"))
    done = run(compiler, *FLAGS, "tests/nic/proxy_hostile.cc", *sources, "-o", made)
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.parametrize("iwarp", [(), ("iwarp",)], ids=["roce", "iwarp"])
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_order_and_bounds_hold_whatever_comes(program: str, seed: str, iwarp: tuple[str, ...]) -> None:
    done = run(program, seed, "100000", *iwarp)
    assert done.returncode == 0, done.stdout + done.stderr
