# SPDX-License-Identifier: Apache-2.0
"""Writes the reference as a folder of HTML pages that needs no server and no network.

Called by `make docs` (docs/reference/__main__.py) and by its tests. pdoc makes the pages of the Python package, the
menu and the search; device library, commands and documents are pages beside them in the same dress.
"""

from __future__ import annotations

import json
import shutil
import warnings
from html import escape
from pathlib import Path
from typing import Any

import pdoc.render
import pdoc.search

from docs.reference import commands, device, documents, python
from docs.reference.device import Page
from docs.reference.prose import linked

__all__ = ["write"]

TEMPLATES = Path(__file__).parent / "templates"
# The parts: title, first page, what one finds there.
ROOMS = (
    ("Guide", "pages/docs/guide.html", "every concept in the order in which one meets it"),
    ("How to", "pages/docs/howto.html", "tasks, each with lines that run"),
    ("Python", "gda.html", "what programs import; the modules are below"),
    ("Device library", "device.html", "what kernels call, header by header"),
    ("Commands", "commands.html", "python -m gda"),
    ("Raw verbs", "gda/_verbs.html", "libibverbs and libmlx5, call by call"),
    ("Raw CUDA", "gda/_cuda.html", "the few calls of the driver that queues need"),
)


def write(out: Path) -> dict[str, str]:
    """Write everything to `out`, which is emptied first. What could not be imported here, by name with the reason."""
    # The constructor of a NamedTuple does not know the module whose names its annotations use.
    warnings.filterwarnings("ignore", r"Error parsing type annotation ForwardRef\('[^']+'\) for .*\.__init__")
    modules, missing = python.load()
    pages = [*device.pages(), commands.page(), *map(documents.page, documents.documents())]
    rooms = tuple(room[:2] for room in ROOMS if room[1].startswith("gda") or room[1] in {page.path for page in pages})
    _configure(rooms)
    places = _places(pages)
    shutil.rmtree(out, ignore_errors=True)
    html: dict[str, str] = {}
    for name, module in modules.items():
        html[f"{name.replace('.', '/')}.html"] = pdoc.render.html_module(module, modules)
    template = pdoc.render.env.get_template("page.html.jinja2")
    pages.append(_front(rooms, modules, missing))
    for page in pages:
        module_ = {"modulename": page.path.removesuffix(".html").replace("/", ".")}
        html[page.path] = template.render(
            title=page.title, body=page.body, contents=page.contents, module=module_, all_modules=modules
        )
    for path, text in html.items():
        file = out / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(linked(text, places, path))
    (out / "search.js").write_text(_search(modules, pages))
    return missing


def _configure(rooms: tuple[tuple[str, str], ...]) -> None:
    pdoc.render.configure(docformat="markdown", show_source=False, template_directory=TEMPLATES)
    pdoc.render.env.globals["rooms"] = rooms


def _places(pages: list[Page]) -> dict[str, str]:
    """Where a name of the device library, or a document, is told."""
    places = {}
    for page in pages:
        if page.path.startswith("device/"):
            places |= {name: f"{page.path}#{anchor}" for name, anchor in (*page.told, *page.contents)}
            header = f"gda/{page.title.removeprefix('gda/')}"
            places |= {header: page.path, f"cuda/{header}": page.path, header.rsplit("/", 1)[-1]: page.path}
    for document in documents.documents():
        name = document.relative_to(documents.ROOT).as_posix()
        places[name] = documents.path_of(document)
        if name.startswith("docs/"):
            places[document.name] = documents.path_of(document)  # as docstrings and documents name their neighbours
    return places


def _front(rooms: tuple[tuple[str, str], ...], modules: dict[str, Any], missing: dict[str, str]) -> Page:
    """The page to start from."""
    out = ["<h1>gda: GPU-initiated RDMA in Python</h1>", "<dl>"]
    words = {path: text for _, path, text in ROOMS}
    out += [f'<dt><a href="{path}">{escape(title)}</a></dt><dd>{escape(words[path])}</dd>' for title, path in rooms]
    out += ["</dl>", '<h2 id="documents">Documents</h2>', "<ul>"]
    for document in documents.documents():
        page = documents.page(document)
        out.append(f'<li><a href="{page.path}">{escape(page.title)}</a></li>')
    out += ["</ul>", '<h2 id="modules">Modules</h2>', "<dl>"]
    for name, module in modules.items():
        first = module.docstring.strip().split("\n\n", maxsplit=1)[0].replace("\n", " ")
        path = f"{name.replace('.', '/')}.html"
        out.append(f'<dt><a href="{path}"><code>{name}</code></a></dt><dd>{escape(first)}</dd>')
    out += [f"<dt><code>{name}</code></dt><dd>not shown: {escape(why)}</dd>" for name, why in missing.items()]
    out.append("</dl>")
    return Page("index.html", "gda", "\n".join(out), (("Documents", "documents"), ("Modules", "modules")))


def _search(modules: dict[str, Any], pages: list[Page]) -> str:
    def public(doc: Any) -> bool:
        return not doc.name.startswith("_") or doc.name == "__init__" or doc.kind == "module"

    rows = python.dispensable(pdoc.search.make_index(modules, public, "markdown"), modules)
    rows += [row for page in pages for row in page.found]
    return str(pdoc.render.env.get_template("search.js.jinja2").render(search_index=json.dumps(rows)))
