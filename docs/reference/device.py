# SPDX-License-Identifier: Apache-2.0
"""Pages of the device library: one for each header, in reading order, with every function that kernels call.

Called by site.py. What the headers say is read by headers.py.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import PurePosixPath

from docs.reference.headers import Entry, Header, below, every_header
from docs.reference.prose import code, prose

__all__ = ["Page", "pages"]

INTRODUCTION = """What a kernel may call, header by header: <code>#include &lt;gda/gda.h&gt;</code> brings all but what
goes by rank (<code>gda/comm.h</code> and the collectives). A kernel is declared with
<code>GDA_KERNEL(name)(parameters)</code>; the same text compiles for a GPU and for the CPU. Functions that post answer
a ticket, functions that wait a status, of which zero is success."""
_TOGETHER = {
    "_warp": "of a whole warp: all its threads call with equal arguments, one is carried out, all get the answer",
    "_block": "of a whole block: all its threads call with equal arguments, one is carried out, all get the answer",
}


@dataclass(frozen=True)
class Page:
    """A page: its path in the site, title, HTML, contents (name, anchor), what the search shall find.

    `told` are names without an anchor of their own, with the one where they are told (enumerators).
    """

    path: str
    title: str
    body: str
    contents: tuple[tuple[str, str], ...] = ()
    found: tuple[dict[str, str], ...] = ()
    told: tuple[tuple[str, str], ...] = ()


def path_of(header: Header) -> str:
    """Where its page lies: gda/collectives/barrier.h has device/collectives/barrier.html."""
    return f"device/{PurePosixPath(header.name).relative_to('gda').with_suffix('.html')}"


def pages() -> Iterator[Page]:
    """All pages, first the one that lists them."""
    groups = list(every_header())
    bases = {e.name: (e, path_of(h)) for _, headers in groups for h in headers for e in h.entries}
    yield _front(groups)
    for _, headers in groups:
        for header in headers:
            yield _of_header(header, bases)


def _front(groups: list[tuple[str, list[Header]]]) -> Page:
    out = ["<h1>Device library</h1>", f"<p>{INTRODUCTION}</p>"]
    for group, headers in groups:
        out.append(f'<h2 id="{_anchor(group)}">{group}</h2>')
        for header in headers:
            path = path_of(header)
            names = list(dict.fromkeys(entry.name for entry in header.entries))
            links = ", ".join(f'<a href="{path}#{name}"><code>{name}</code></a>' for name in names)
            out.append(f'<h3><a href="{path}">{header.name}</a></h3><p>{escape(header.summary)}.</p><p>{links}</p>')
    out.append('<h2 id="inside">What a put is made of</h2><p>Not called by kernels, but made to be read:</p>')
    for header in below():
        out.append(f"<h3><code>cuda/{header.name}</code></h3>{prose(header.comment)}")
    contents = (*((group, _anchor(group)) for group, _ in groups), ("What a put is made of", "inside"))
    return Page("device.html", "Device library", "\n".join(out), contents)


def _anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower())


def _of_header(header: Header, bases: dict[str, tuple[Entry, str]]) -> Page:
    path = path_of(header)
    out = [f"<h1>{header.name}</h1>", prose(header.comment)]
    found: list[dict[str, str]] = []
    told: list[tuple[str, str]] = []
    seen: set[str] = set()
    for entry in header.entries:
        comment, signature = entry.comment, entry.text
        suffix = next((s for s in _TOGETHER if entry.name.endswith(s)), "")
        base = bases.get(entry.name.removesuffix(suffix)) if suffix else None
        if base is not None:
            one = base[0]
            comment = comment or f"`{one.name}` {_TOGETHER[suffix]}."
            signature = re.sub(rf"\b{one.name}\(", f"{entry.name}(", one.text)
        text = prose(comment)
        anchor = "" if entry.name in seen else f' id="{entry.name}"'
        seen.add(entry.name)
        out.append(f'<section{anchor}><div class="attr device">{code(_folded(signature))}</div>')
        out.append(f'<div class="docstring">{text}</div></section>')
        enumerators = [(name, entry.name) for name in re.findall(r"\b(GDA_\w+) =", entry.text)]
        told += enumerators
        found.append(
            {
                "fullname": entry.name,
                "modulename": path.removesuffix(".html").replace("/", "."),
                "qualname": entry.name,
                "kind": "device",
                "annotation": " ".join(name for name, _ in enumerators),
                "doc": text,
            }
        )
    contents = tuple((name, name) for name in dict.fromkeys(entry.name for entry in header.entries))
    return Page(path, header.name, "\n".join(out), contents, tuple(found), tuple(told))


def _folded(text: str) -> str:
    """A signature in one line, or a parameter in each."""
    if "\n" in text or len(text) <= 90:
        return text
    head, _, rest = text.partition("(")
    head = head.replace("> ", ">\n", 1) if head.startswith("template") else head
    parameters = rest.rstrip(")")
    parts = re.split(r", (?![^<(]*[>)])", parameters)
    inside = textwrap.indent(",\n".join(parts), "    ")
    return f"{head}(\n{inside})" if len(parts) > 1 else text
