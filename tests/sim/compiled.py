# SPDX-License-Identifier: Apache-2.0
"""Objects of the software NIC and its C++ tests, compiled once a session and flavour, whoever asks first.

Used by test_engine.py and test_link.py: compiling is most of their time, and half of the sources are the same.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
BASE_FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fPIC", "-Icuda", "-I."]
FLAVOURS = {
    "plain": ["-O1"],
    "address": ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-O1", "-g1", "-fsanitize=thread"],
}

_place = tempfile.TemporaryDirectory(prefix="gda-objects-")  # until the interpreter ends
_known: dict[tuple[Path, str], str] = {}  # what the compiler said: nothing, or why there is no object


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command from the root with a limit; its output is text."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, **options)  # type: ignore[call-overload,no-any-return]


def objects(sources: Sequence[Path], flavour: str) -> list[Path]:
    """The objects of these sources, in their order; what is missing is compiled, two at a time."""

    def path(source: Path) -> Path:
        return Path(_place.name) / f"{flavour}-{source.parent.name}-{source.stem}.o"

    def compile_one(source: Path) -> None:
        flags = [*BASE_FLAGS, *FLAVOURS[flavour]]
        name = str(source.relative_to(ROOT))
        result = run([str(COMPILER), *flags, "-c", name, "-o", str(path(source))])
        _known[source, flavour] = "" if result.returncode == 0 else result.stderr or f"{name} does not compile"

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(compile_one, [source for source in sources if (source, flavour) not in _known]))
    wrong = [_known[source, flavour] for source in sources if _known[source, flavour]]
    assert not wrong, "\n".join(wrong)
    return [path(source) for source in sources]
