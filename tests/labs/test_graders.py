# SPDX-License-Identifier: Apache-2.0
"""What all labs have: a task, an exercise, a solution that a GPU could run, and a line in the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from planted import ROOT, Lab

from gda.errors import UnavailableError
from gda.run.compile import compile_for_gpu, nvrtc_version

FOLDERS = sorted(path for path in (ROOT / "labs").iterdir() if path.is_dir() and path.name[0].isdigit())
KERNELS = [path for folder in FOLDERS for path in sorted(folder.glob("*.cu"))]


def test_five_labs_in_their_order() -> None:
    listed = re.findall(r"\[(\d\d_\w+)\]\((\d\d_\w+)/README.md\)", (ROOT / "labs" / "README.md").read_text())
    assert listed == [(folder.name, folder.name) for folder in FOLDERS]
    assert [folder.name[:2] for folder in FOLDERS] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_task_says_how_it_is_graded(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert f"python labs/{folder.name}/grade.py" in text and "Questions to think about" in text
    files = {path.stem for path in folder.iterdir() if path.suffix in (".py", ".cu")}
    assert files == {"exercise", "grade", "solution"}


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_gpu_could_run_it(path: Path) -> None:
    try:
        nvrtc_version()
    except UnavailableError as error:
        pytest.skip(f"not run: {error}")
    assert compile_for_gpu(path.read_text(), arch="sm_90")


def test_files_that_are_not_there_or_not_python(tmp_path: Path) -> None:
    lab = Lab("01_by_hand")
    code, output = lab.grade(tmp_path / "none.py")
    assert code == 2 and "none.py: no such file" in output
    (tmp_path / "mine.py").write_text("def work_request(:\n")
    code, output = lab.grade(tmp_path / "mine.py")
    assert code == 1 and "line 1 of mine.py ends with SyntaxError" in output and "lab 1: 1 to mend" in output


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_CXX", "/nowhere/g++")
    lab = Lab("03_a_kernel_that_posts", "cu")
    code, output = lab.grade(lab.solution)
    assert code == 1 and "this machine lacks what the lab needs, your file is not to blame" in output, output
