# SPDX-License-Identifier: Apache-2.0
"""The picture of doctor in the documents shows what doctor shows, in a real browser too."""

from __future__ import annotations

import html
import re
from pathlib import Path

from gda.tools.doctor.show import picture
from tests.browser import Browser, fixture  # noqa: F401 (the fixture is named chromium)
from tests.doctor.picture import FILE, shown


def words(svg: str) -> str:
    return " ".join(html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).split())


def test_the_picture_in_the_documents_is_of_today(tmp_path: Path) -> None:
    assert words(FILE.read_text()) == words(picture(shown(tmp_path))), "python -m tests.doctor.picture draws it anew"


def test_a_browser_shows_it_whole_and_fetches_nothing(chromium: Browser, tmp_path: Path) -> None:
    page_file = tmp_path / "page.html"
    svg = FILE.read_text().replace("<svg ", "<svg width=800 ", 1)
    page_file.write_text(f"<!doctype html><title>doctor</title><body style='margin:0'>{svg}")
    page = chromium.open(page_file, width=820, height=1200)
    assert page.complaints == []
    text = " ".join(page.value("document.querySelector('svg').textContent").split())
    for said in ("What you can run here", "What to do next", "PeerMappingOverride", "request redirect"):
        assert said in text, said
    assert page.value("document.documentElement.scrollWidth") <= 820
    page.screenshot(tmp_path / "doctor.png")
    assert (tmp_path / "doctor.png").read_bytes().startswith(b"\x89PNG")
