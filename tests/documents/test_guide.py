# SPDX-License-Identifier: Apache-2.0
"""The guide keeps its order, its pictures are drawn by their program, and the reading paths name files that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/guide.md").read_text()
# The order in which a reader meets them: each stands on those before it.
CONCEPTS = [
    "Memory and keys", "Queue pair", "Work request", "Doorbell", "Completion", "Errors and deadlines",
    "Order and fences", "Signals", "Atomics", "Who posts", "Placement",
    "Several processes: ranks, team, window, signals", "Collectives", "Seeing", "Breaking the network", "A real card",
]  # fmt: skip


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.*)$", GUIDE, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_concepts_come_in_order() -> None:
    assert list(sections()) == CONCEPTS


@pytest.mark.parametrize("concept", CONCEPTS)
def test_each_concept_has_lines_that_run_and_says_where_to_go_on(concept: str) -> None:
    text = sections()[concept]
    assert "```python\n" in text
    leads = re.findall(r"`((?:cuda|gda|examples)/[\w/.]+)`|\]\(([^)#]+)", text)
    assert leads, "no file or document to read next"


def test_how_tos_are_listed() -> None:
    text = (ROOT / "docs/howto.md").read_text()
    tasks = re.findall(r"^## (.*)$", text, re.M)
    listed = re.findall(r"^- \[(.*)\]\(#(.*)\)$", text, re.M)
    assert [title for title, _ in listed] == tasks
    assert [anchor for _, anchor in listed] == [title.lower().replace(" ", "-") for title in tasks]
    for title, section in zip(tasks, re.split(r"^## .*$", text, flags=re.M)[1:], strict=True):
        assert "```" in section or title == "Add an operation", f"{title}: nothing to run"


def test_pictures_are_drawn_by_their_program(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs/pictures/guide.py", tmp_path], check=True)
    drawn = sorted(tmp_path.glob("*.svg"))
    assert len(drawn) == 3
    for path in drawn:
        assert path.read_text() == (ROOT / "docs/pictures" / path.name).read_text(), "python docs/pictures/guide.py"
        assert f"pictures/{path.name}" in GUIDE


def test_every_document_can_be_reached() -> None:
    """From the README by links, or by names as `docs/ordering.md`; only the history need not be."""
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#]+)", text) + re.findall(r"\bdocs/\w+\.md", text):
            for base in (page.parent, ROOT):
                file = (base / target).resolve()
                file = file / "README.md" if file.is_dir() else file
                if file.suffix == ".md" and file.is_file():
                    todo.append(file)
    patterns = ("*.md", "docs/**/*.md", "labs/**/*.md", "examples/*.md")
    every = {path for pattern in patterns for path in ROOT.glob(pattern)}
    lost = sorted(path.relative_to(ROOT).as_posix() for path in every - seen)
    assert lost == ["CHANGELOG.md"], "nobody is led to these"


def test_the_reading_path_exists() -> None:
    """README, "Where to read": links are looked at with all others; these are the files between backticks."""
    text = (ROOT / "README.md").read_text().split("## Where to read")[1].split("\n\n`python -m gda doctor`")[0]
    names = re.findall(r"`([\w./]+/[\w./]*)`", text)
    assert len(names) >= 15
    for name in names:
        assert (ROOT / name).exists(), name
    for room in ("cuda/gda/", "cuda/gda/collectives/", "gda/comm/", "gda/tools/", "sim/engine/", "examples/"):
        assert any(name.startswith(room) for name in names), f"nobody is led to {room}"
