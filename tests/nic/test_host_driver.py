# SPDX-License-Identifier: Apache-2.0
"""gpu_cases.py on a CUDA driver made of host memory: placement and copies are tested where there is no GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with libcuda.so.1 in it."""
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("not run: no C compiler")
    directory = tmp_path_factory.mktemp("driver")
    command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1", "-pthread"]
    subprocess.run([*command, HERE / "host_driver.c", "-o", directory / "libcuda.so.1"], check=True)
    return directory


def test_cases_hold_on_the_stand_in(driver: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver), "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:randomly", HERE / "gpu_cases.py"],
        capture_output=True, text=True, timeout=170, env=environment, cwd=ROOT,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    assert " passed" in result.stdout and "skipped" not in result.stdout
