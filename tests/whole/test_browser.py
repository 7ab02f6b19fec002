# SPDX-License-Identifier: Apache-2.0
"""The browser by which tests look at pages sees what is wrong with a page, and shows what is right."""

from __future__ import annotations

from pathlib import Path

from tests.browser import Browser, fixture  # noqa: F401

PAGE = """<!doctype html><meta charset="utf-8"><title>a page</title><meta name="viewport" content="width=device-width">
<style>body {margin: 0} #wide {width: 500px}
@media (prefers-color-scheme: dark) {body {background: rgb(0, 0, 10)}}</style>
<button id="b" onclick="document.title = 'pressed'">press</button><div id="wide">wide</div>"""


def test_a_page_is_seen_as_a_phone_shows_it(chromium: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)
    page = chromium.open(tmp_path / "page.html", width=390, height=844, dark=True, touch=True)
    assert page.value("document.title") == "a page"
    assert page.value("innerHeight > innerWidth")
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(0, 0, 10)"
    assert page.overflow() > 0, "the page is wider than a phone"
    page.tap(*page.place("#b"))
    page.until("document.title === 'pressed'")
    assert page.screenshot(tmp_path / "page.png").startswith(b"\x89PNG")
    assert page.complaints == []


def test_errors_and_fetches_of_a_page_are_complaints(chromium: Browser, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(
        PAGE + "<script>console.error('so'); fetch('other.json').catch(() => 0); undefined.member</script>"
    )
    page = chromium.open(tmp_path / "bad.html")
    page.value("new Promise(done => setTimeout(done, 0))")
    assert page.overflow() == 0
    text = "\n".join(page.complaints)
    for words in ("so", "other.json", "TypeError"):
        assert words in text
