# SPDX-License-Identifier: Apache-2.0
"""The rules of CONTRIBUTING.md that a machine can keep."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = {".py", ".pyx", ".pxd", ".pyi", ".h", ".cc", ".c", ".cu", ".sh"}
# The commands, and two Cython leaves: one module each by nature.
LEAVES = {f"gda/_{leaf}.{end}" for leaf in ("verbs", "cuda") for end in ("pyx", "pxd", "pyi")}
LONG_BY_NATURE = {"cuda/gda/formats/command.h", *LEAVES}
MEANINGLESS = {"utils", "util", "helpers", "helper", "common", "misc"}


def tracked() -> list[str]:
    out = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if out.returncode:  # an unpacked archive has no git
        everything = (p for top in ("cuda", "proxy", "sim", "gda", "tests") for p in (ROOT / top).rglob("*"))
        return [p.relative_to(ROOT).as_posix() for p in everything if p.is_file()]
    return [name for name in out.stdout.splitlines() if (ROOT / name).exists()]


FILES = [name for name in tracked() if Path(name).suffix in SOURCE]


@pytest.mark.parametrize("name", FILES)
def test_file_keeps_the_rules(name: str) -> None:
    path = ROOT / name
    text = path.read_text()
    lines = text.splitlines()
    assert name in LONG_BY_NATURE or len(lines) <= 500, f"{len(lines)} lines: which room is missing?"
    assert not lines or "SPDX-License-Identifier: Apache-2.0" in "\n".join(lines[:2]), "no SPDX line at the top"
    assert path.stem not in MEANINGLESS, "a file is named after what it holds"
    if name.startswith("cuda/") and not name.startswith("cuda/gda/target/"):
        found = re.search(r"^\s*#\s*(if|ifdef|ifndef)\b.*", text, re.M)
        assert not found, f"{found and found.group()}: only target/ tells compilers and machines apart"
    if name.startswith("gda/") and name != "gda/config.py":
        assert not re.search(r"\bos\.(environ|getenv)\b", text), "environment variables are read in gda/config.py only"
    if name.startswith("gda/") and name != "gda/locks.py":
        assert not re.search(r"threading\.R?Lock\(", text), "a lock in which garbage is closed: take gda/locks.py's"


def test_no_package_file_in_cuda() -> None:
    """Run from the root it would hide cuda-python's `cuda` package."""
    assert not (ROOT / "cuda" / "__init__.py").exists()


@pytest.mark.parametrize("name", [n for n in FILES if n.startswith("cuda/gda/") and "/formats/" not in n])
def test_device_code_shifts_no_format(name: str) -> None:
    """Fields are placed by GDA_FIELD and GDA_SET: a literal shift next to a byte swap is a format by hand."""
    for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
        if "types.h" in name:
            continue
        assert not re.search(r"be(32|64)\([^)]*(<<|>>)", line), f"{name}:{number}: {line.strip()}"
