# SPDX-License-Identifier: Apache-2.0
"""What the documents say is true: links lead somewhere, tables equal the code. Their code runs: tests/documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gda.config import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("labs/**/*.md")])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", re.sub(r"`[^`]*`", "", text)):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
    for name in re.findall(r"`((?:cuda|sim|gda|tests|examples|labs|docs)/(?!lib/)[\w./*-]+)`", text):
        assert any(ROOT.glob(name.rstrip("/"))), f"{path.name} names {name}, which does not exist"


def test_environment_table_is_complete() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", (ROOT / "docs/environment.md").read_text(), re.M)
    expected = [
        (v.name, v.default or "unset", ", ".join(filter(None, v.values)) or "any", v.meaning)
        for v in VARIABLES.values()
    ]
    assert rows == expected
