# SPDX-License-Identifier: Apache-2.0
"""The documents themselves as pages, so that the reference leads into them. Called by site.py.

They keep their places under pages/, so links between them hold. Pictures become part of their page; a link to a file of
the repository becomes plain text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path

import markdown2

from docs.reference.device import Page

__all__ = ["documents", "page", "path_of"]

ROOT = Path(__file__).resolve().parents[2]
FIRST = (
    "README.md", "docs/guide.md", "docs/howto.md", "docs/one_put.md", "docs/programs.md", "docs/simulator.md",
    "docs/errors.md", "docs/glossary.md",
)  # fmt: skip
PATTERNS = ("docs/*.md", "examples/*.md", "labs/*.md", "labs/*/*.md", "*.md")
EXTRAS = ["tables", "fenced-code-blocks", "header-ids", "code-friendly", "cuddled-lists"]


def documents() -> Iterator[Path]:
    """What people read, but the history: first what leads on, then the others by name."""
    every = [path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern)) if path.name != "CHANGELOG.md"]
    first = [ROOT / name for name in FIRST if (ROOT / name).exists()]
    yield from [*first, *(path for path in every if path not in first)]


def path_of(document: Path) -> str:
    """Where its page lies."""
    return f"pages/{document.relative_to(ROOT).with_suffix('.html').as_posix()}"


@cache
def page(document: Path) -> Page:
    """One document."""
    body = str(markdown2.markdown(document.read_text(), extras=EXTRAS))
    body = body.replace('class="codehilite"', 'class="pdoc-code codehilite"')
    body = re.sub(r'<a href="([^"]*)">(.*?)</a>', lambda match: _link(document, match[1], match[2]), body, flags=re.S)
    body = re.sub(
        r'<img src="([^":]*)"', lambda match: f'<img src="{_picture(document, match[1])}"', body
    )
    body = re.sub(r"<table>.*?</table>", lambda match: f'<div class="wide">{match[0]}</div>', body, flags=re.S)
    heads = re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', body)
    title = re.search(r"<h1[^>]*>(.*?)</h1>", body)
    path = path_of(document)
    return Page(
        path,
        _plain(title[1]) if title else document.stem,
        body,
        tuple((_plain(text), anchor) for anchor, text in heads),
        tuple(_rows(path, _plain(title[1]) if title else document.stem, body)),
    )


def _link(document: Path, target: str, text: str) -> str:
    place, hash_, anchor = target.partition("#")
    if target.startswith("http") or not place:
        return f'<a href="{target}">{text}</a>'
    file = (document.parent / place).resolve()
    if file.suffix == ".md" and file.name != "CHANGELOG.md" and file.is_relative_to(ROOT):
        return f'<a href="{place[:-3]}.html{hash_}{anchor}">{text}</a>'
    if (file / "README.md").is_file():
        return f'<a href="{place.rstrip("/")}/README.html">{text}</a>'
    return f'<span title="{place}">{text}</span>'


def _plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


def _rows(path: str, title: str, body: str) -> Iterator[dict[str, str]]:
    """What the search shall find: each section."""
    sections = re.split(r'<h[12] id="([^"]*)">(.*?)</h[12]>', body)
    for at in range(1, len(sections) - 2, 3):
        anchor, head, text = sections[at : at + 3]
        yield {
            "fullname": f"{title}: {_plain(head)}" if at > 1 else title,
            "modulename": path.removesuffix(".html").replace("/", "."),
            "qualname": anchor,
            "kind": "document",
            "doc": f"<p>{_plain(text)[:600]}</p>".replace("\n", " "),
        }


def _picture(document: Path, target: str) -> str:
    """A picture as part of the page, so that the page can be sent to somebody."""
    file = (document.parent / target).resolve()
    kind = "svg+xml" if file.suffix == ".svg" else file.suffix[1:]
    return f"data:image/{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"
