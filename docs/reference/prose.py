# SPDX-License-Identifier: Apache-2.0
"""Text into HTML, and names in it into links. Called by all that make pages.

A comment of a header is prose: paragraphs, `words of code`, and lines set in by two or more spaces, which stay as they
are. Links are found in finished pages, so that docstrings, comments and documents are treated alike.
"""

from __future__ import annotations

import re
from html import escape

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer

__all__ = ["code", "linked", "prose"]

# Pieces of a page in which nothing is linked: tags, links, headings, and the text of scripts and styles.
_KEPT = re.compile(r"(<(?:a|h1|h2|h3|script|style|nav|svg)\b.*?</(?:a|h1|h2|h3|script|style|nav|svg)>|<[^>]*>)", re.S)
# What pdoc links to a base class that it does not show.
_TO_HIDDEN = re.compile(r'<a href="[^"]*#_(?!_)[^"]*">(.*?)</a>', re.S)
_WORD = re.compile(r"\b(docs/\w+\.md|(?:cuda/)?gda/(?:\w+/)*\w+\.h|\w+\.md|(?<![/\w])\w+\.h|gda_\w+|GDA_\w+)\b")


def prose(text: str) -> str:
    """A comment as HTML."""
    out: list[str] = []
    paragraph: list[str] = []
    fixed: list[str] = []

    def flush() -> None:
        if paragraph:
            out.append(f"<p>{_inline(' '.join(paragraph))}</p>")
        if fixed:
            least = min(len(line) - len(line.lstrip()) for line in fixed)
            out.append(code("\n".join(line[least:] for line in fixed)))
        paragraph.clear()
        fixed.clear()

    for line in text.splitlines():
        if not line.strip():
            flush()
        elif line.startswith("  ") and not paragraph:
            fixed.append(line)
        else:
            if fixed:
                flush()
            paragraph.append(line.strip())
    flush()
    return "\n".join(out)


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def code(text: str) -> str:
    """C++ with its words coloured as pdoc colours Python."""
    return str(highlight(text, CppLexer(), HtmlFormatter(cssclass="pdoc-code codehilite")))


def linked(page: str, places: dict[str, str], here: str) -> str:
    """The page with names made links: `places` says where a name is told, from the root; `here` is this page's path."""
    page = _TO_HIDDEN.sub(r"\1", page)
    up = "../" * here.count("/")

    def link(match: re.Match[str]) -> str:
        target = places.get(match[1])
        if target is None or target.split("#")[0] == here:
            return match[0]
        return f'<a href="{up}{target}">{match[0]}</a>'

    pieces = _KEPT.split(page)
    return "".join(piece if at % 2 else _WORD.sub(link, piece) for at, piece in enumerate(pieces))
