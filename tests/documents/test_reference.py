# SPDX-License-Identifier: Apache-2.0
"""The reference that `make docs` writes: every public name is in it with words, links lead somewhere, pages fit."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import gda
from tests import browser
from tests.browser import fixture  # noqa: F401 - the fixture `chromium`

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gda.nic", "gda.run", "gda.comm", "gda.formats", "gda.numba", "gda.sim", "gda.errors")


class Words(HTMLParser):
    """Anchors and links of a page, and the text below each anchor up to the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: dict[str, str] = {}
        self.links: list[str] = []
        self._open: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = dict(attrs)
        if tag == "a" and of.get("href"):
            self.links.append(str(of["href"]))
        if of.get("id"):
            self.anchors[str(of["id"])] = ""
        self._open.append((tag, "docstring" if "docstring" in (of.get("class") or "") else str(of.get("id") or "")))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        marks = [mark for _, mark in self._open if mark]
        if "docstring" in marks and len(marks) > 1:
            self.anchors[marks[marks.index("docstring") - 1]] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("pdoc", "markdown2"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"not run: {name} cannot be imported")
    out = tmp_path_factory.mktemp("reference") / "docs"
    done = subprocess.run(
        [sys.executable, "-m", "docs.reference", out],
        capture_output=True, text=True, cwd=ROOT, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "/pdoc/" not in done.stderr, f"what pdoc cannot read:\n{done.stderr}"  # its warnings name its files
    assert "index.html" in done.stdout
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Words]:
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path] = Words()
        found[path].feed(path.read_text())
    return found


def device_functions() -> set[str]:
    """What kernels can call, as the compiler sees it: names of functions that a kernel's text may use."""
    headers = ["gda/gda.h", "gda/comm.h", *collectives()]
    text = "".join(f"#include <{name}>\n" for name in headers)
    command = [shutil.which("c++") or "c++", "-std=c++17", "-E", "-P", f"-I{gda.get_include()}", "-x", "c++", "-"]
    out = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    api = r"static __attribute__\(\(noinline, unused\)\)(?: __attribute__\(\(no_sanitize_coverage\)\))?"
    found = set(re.findall(rf"{api}[^;{{(]*?\b(gda_\w+)\(", out))
    return {name for name in found if not name.startswith("gda_host")}


def collectives() -> list[str]:
    top = ROOT / "cuda"
    return sorted(path.relative_to(top).as_posix() for path in (top / "gda").glob("collectives/*.h"))


def test_every_python_name_has_words(site: Path, pages: dict[Path, Words]) -> None:
    for package in ("gda", *PACKAGES):
        page = site / f"{package.replace('.', '/')}.html"
        if not page.exists():
            assert package == "gda.numba"
            assert "gda.numba" in (site / "index.html").read_text()
            continue
        words = pages[page]
        missing = [
            name
            for name in importlib.import_module(package).__all__
            if not words.anchors.get(name, "").strip() and not _is_module(package, name)
        ]
        assert not missing, f"{package}: no words for {missing}"


def _is_module(package: str, name: str) -> bool:
    return type(getattr(importlib.import_module(package), name)).__name__ == "module"


def test_every_raw_call_has_words(site: Path, pages: dict[Path, Words]) -> None:
    for leaf in ("_verbs", "_cuda", "_proxy"):
        module = importlib.import_module(f"gda.{leaf}")
        words = pages[site / f"gda/{leaf}.html"]
        stub = (ROOT / f"gda/{leaf}.pyi").read_text()
        names = re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", stub, re.M)
        assert names
        missing = [name for name in names if hasattr(module, name) and not words.anchors.get(name, "").strip()]
        assert not missing, f"gda.{leaf}: no words for {missing}"
        constants = [name for name in re.findall(r"^([A-Z]\w+): int", stub, re.M) if name not in words.anchors]
        assert not constants, f"gda.{leaf}: {constants}"


def test_every_device_function_has_words(pages: dict[Path, Words]) -> None:
    device = [words.anchors for path, words in pages.items() if "device" in path.parts]
    told = {name: text for anchors in device for name, text in anchors.items()}
    wanted = device_functions()
    assert {"gda_put", "gda_put_block", "gda_wait", "gda_put_to", "gda_barrier_block"} <= wanted
    missing = sorted(name for name in wanted if not told.get(name, "").strip())
    assert not missing, f"no comment above these, or no page: {missing}"


def test_every_command_has_words(site: Path, pages: dict[Path, Words]) -> None:
    listed = subprocess.run([sys.executable, "-m", "gda", "--help"], capture_output=True, text=True, cwd=ROOT).stdout
    commands = re.findall(r"^    (\w+) ", listed, re.M)
    assert "demo" in commands
    page = (site / "commands.html").read_text()
    for command in commands:
        assert command in pages[site / "commands.html"].anchors, command
        section = page.split(f'<section id="{command}">')[1].split("</section>")[0]
        assert len(re.findall(r"<p>[^<]{10,}", section)) >= 1, f"{command}: no description"


def test_links_lead_somewhere(site: Path, pages: dict[Path, Words]) -> None:
    broken = []
    for path, words in pages.items():
        for link in words.links:
            parts = urlsplit(unescape(link))
            if parts.scheme in {"http", "https", "data"}:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target not in pages or (parts.fragment and parts.fragment not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken, "\n".join(broken[:20])
    assert sum(len(words.links) for words in pages.values()) > 500


SHAPES = [pytest.param(390, 844, id="phone"), pytest.param(1280, 800, id="desktop")]
LOOKED_AT = [
    "index.html", "gda.html", "gda/nic.html", "gda/_verbs.html", "device.html", "device/collective.html",
    "commands.html", "pages/README.html", "pages/docs/ordering.html",
]  # fmt: skip


@pytest.mark.parametrize(("width", "height"), SHAPES)
def test_pages_fit_their_window(site: Path, chromium: browser.Browser, width: int, height: int) -> None:
    for name in LOOKED_AT:
        page = chromium.open(site / name, width=width, height=height, touch=width < 500)
        assert page.overflow() == 0, name
        assert page.complaints == [], name
        assert page.value("document.querySelector('main').innerText.trim().length") > 200, name
        page.close()


def search(page: browser.Page, term: str) -> list[str]:
    page.click(*page.place("input[type=search]"))
    page.call("Input.insertText", {"text": term})
    page.until("/search result/.test(document.querySelector('main').innerText)")
    return list(page.value("[...document.querySelectorAll('.search-result > a')].map(a => a.getAttribute('href'))"))


@pytest.mark.parametrize(
    ("term", "first"),
    [
        ("gda_put_signal", "device/signal.html#gda_put_signal"),
        ("loopback_pair", "gda.html#Nic.loopback_pair"),
        ("ibv_reg_mr", "gda/_verbs.html#ibv_reg_mr"),
        ("doctor", "commands.html#doctor"),
        ("GDA_FENCE", "device/handle.html#gda_post_flags"),
    ],
)
def test_search_finds(site: Path, chromium: browser.Browser, term: str, first: str) -> None:
    page = chromium.open(site / "index.html")
    assert first in search(page, term)[:5]
    page.close()


def test_the_menu_opens_on_a_phone(site: Path, chromium: browser.Browser) -> None:
    page = chromium.open(site / "device/put.html", width=390, height=844, touch=True)
    shown = "getComputedStyle(document.querySelector('nav.pdoc > div')).display !== 'none'"
    assert not page.value(shown)
    page.tap(*page.place("#navtoggle"))
    page.until(shown)
    clear = "(b => document.elementFromPoint(b.right - 2, b.top + b.height / 2))"
    button = "document.querySelector('#navtoggle')"
    assert page.value(f"{button}.contains({clear}({button}.getBoundingClientRect()))"), "nothing lies over the button"
    page.tap(*page.place("input[type=search]"))
    page.until("document.activeElement.type === 'search'")
    page.call("Input.insertText", {"text": "wait signal"})
    page.until("document.querySelector('.search-result') !== null")
    assert page.overflow() == 0
    page.close()


def test_a_reader_of_headers_that_misses_something_is_noticed(tmp_path: Path) -> None:
    from docs.reference import headers

    text = (
        "// SPDX-License-Identifier: Apache-2.0\n// What it is.\n#pragma once\n\nnamespace gda {\n"
        "// Hidden.\nGDA_DEVICE int gda_hidden() { return 0; }\n}  // namespace gda\n\n"
        "// Of one.\ntemplate <class T>\nGDA_API gda_status gda_one(T a,\n    int b = 0) {\n    if (a) {\n    }\n}\n"
        "// Of two.\nGDA_API int gda_two() { return 2; }\nGDA_API int gda_two(int a) { return a; }\n\n"
        "GDA_API void gda_bare() {}\n"
    )
    path = headers.CUDA / "gda" / "put.h"
    fake = tmp_path / "cuda" / "gda" / "put.h"
    fake.parent.mkdir(parents=True)
    fake.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headers, "CUDA", tmp_path / "cuda")
        found = headers.read_header(fake)
    assert path.exists()
    assert [(e.name, e.comment) for e in found.entries] == [
        ("gda_one", "Of one."), ("gda_two", "Of two."), ("gda_two", "Of two."), ("gda_bare", ""),
    ]  # fmt: skip
    assert found.entries[0].text == "template <class T> gda_status gda_one(T a, int b = 0)"
    assert found.summary == "What it is."
