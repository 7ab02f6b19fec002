# SPDX-License-Identifier: Apache-2.0
"""Where the headers are found: in a source tree, in an installed package, or nowhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from gda import formats

ASK = "from gda import formats; print(formats.include_directory()); print(formats.wqe_ctrl_seg.bytes)"


def ask(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(root)!r}); {ASK}"]
    return subprocess.run(command, capture_output=True, text=True, cwd=root)


def package(root: Path) -> Path:
    """A copy of what formats needs of the package, with no headers."""
    source = Path(formats.__file__).parent
    shutil.copytree(source, root / "gda" / "formats", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source.parent / "errors.py", root / "gda")
    (root / "gda" / "__init__.py").touch()
    return root


def test_an_installed_package_brings_its_headers(tmp_path: Path) -> None:
    root = package(tmp_path)
    shutil.copytree(formats.include_directory() / "gda", root / "gda" / "include" / "gda")
    assert ask(root).stdout.split() == [str(root / "gda" / "include"), "16"]


def test_a_source_tree_has_them_in_cuda(tmp_path: Path) -> None:
    root = package(tmp_path)
    shutil.copytree(formats.include_directory() / "gda", root / "cuda" / "gda")
    assert ask(root).stdout.split() == [str(root / "cuda"), "16"]


def test_without_headers_the_error_says_where_it_looked(tmp_path: Path) -> None:
    error = ask(package(tmp_path)).stderr
    assert "UnavailableError: the headers are missing" in error
    assert str(tmp_path / "gda" / "include") in error
    assert str(tmp_path / "cuda") in error


def test_importing_reads_no_header(tmp_path: Path) -> None:
    """The tables are made when first asked for: a program that does not need them does not pay, nor fail."""
    root = package(tmp_path)
    command = f"import sys; sys.path.insert(0, {str(root)!r}); import gda.formats"
    assert subprocess.run([sys.executable, "-S", "-c", command], cwd=root).returncode == 0
