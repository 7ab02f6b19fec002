# SPDX-License-Identifier: Apache-2.0
"""The cable of the software NIC, driven by C++ programs over sim/link alone (tests/sim/link_*_test.cc).

Each program holds named cases; each case is one test here, and each program runs once more under the address and
undefined-behaviour sanitizers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from compiled import COMPILER, FLAVOURS, objects, run

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PROGRAMS = ("link_port_test", "link_wire_test", "link_fault_test", "link_capture_test", "link_wire_carrier_test")
SOURCES = sorted((ROOT / "sim" / "link").glob("*.cc"))

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

Build = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build (once) a test program in a flavour and return its path."""
    directory = tmp_path_factory.mktemp("link")

    def make(name: str, flavour: str) -> Path:
        programs = [HERE / f"{program}.cc" for program in PROGRAMS]
        parts = objects([*SOURCES, *programs], flavour)
        out = directory / f"{flavour}-{name}"
        if not out.exists():
            own = parts[len(SOURCES) + PROGRAMS.index(name)]
            inputs = [str(part) for part in (own, *parts[: len(SOURCES)])]
            result = run([str(COMPILER), *FLAVOURS[flavour], *inputs, "-o", str(out), "-lpthread"])
            assert result.returncode == 0, result.stderr
        return out

    return make


def environment(directory: Path) -> dict[str, str]:
    """Environment of a test program: NICs meet in a directory of their own; sanitizers stop at the first finding."""
    values = {name: value for name, value in os.environ.items() if not name.startswith("GDA_SIM_")}
    values["GDA_SIM_DIRECTORY"] = str(directory / "nics")
    values["GDA_TEST_FILES"] = str(directory)
    values["ASAN_OPTIONS"] = "detect_leaks=0:allow_user_segv_handler=1"
    return values


def names_of_cases() -> list[tuple[str, str]]:
    """(program, case) pairs, read from the tables at the end of the programs."""
    pairs = re.compile(r'^\s*\{"(\w+)", (\w+)\},$', re.M)
    return [
        (program, name)
        for program in PROGRAMS
        for name, function in pairs.findall((HERE / f"{program}.cc").read_text())
        if name == function
    ]


@pytest.mark.parametrize(("program", "case"), names_of_cases())
def test_case(build: Build, tmp_path: Path, program: str, case: str) -> None:
    """Run one case of one program."""
    result = run([str(build(program, "plain")), case], env=environment(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"ok {case}" in result.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_sanitized(build: Build, tmp_path: Path, program: str) -> None:
    """All cases of a program under the sanitizers: no finding, no failure."""
    result = run([str(build(program, "address"))], env=environment(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "FAILED" not in result.stdout
