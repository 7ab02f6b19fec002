# SPDX-License-Identifier: Apache-2.0
"""What the device library's headers declare for kernels, with the comment above each: functions, structs, enums, types.

Called by device.py, which makes pages of it. Reads text, in the manner in which these headers are written: public
things stand at the left edge outside of namespaces, a comment stands right above what it is about, and one comment may
speak for several that follow without an empty line. gda/run/source.py reads device code too, but for what a launch has
to know: kernels and the bytes of their parameters; it drops comments and looks at no other function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

__all__ = ["CUDA", "GROUPS", "Entry", "Header", "below", "every_header", "read_header"]

CUDA = Path(__file__).resolve().parents[2] / "cuda"
# In the order in which a reader meets them. Others that kernels call come behind them; the rest is told by `below`.
GROUPS: dict[str, tuple[str, ...]] = {
    "Handles and answers": ("handle.h", "status.h"),
    "Move bytes": ("put.h", "strided.h", "atomic.h", "signal.h", "message.h", "datagram.h"),
    "Wait": ("wait.h",),
    "Many threads": ("collective.h", "owner.h"),
    "By rank": ("comm.h", "collectives/barrier.h", "collectives/broadcast.h", "collectives/*.h"),
}


@dataclass(frozen=True)
class Entry:
    """One declaration: what it is (function, struct, enum, type, constant, macro), its name, text and comment."""

    kind: str
    name: str
    text: str
    comment: str
    line: int


@dataclass
class Header:
    """A header: its name as included (`gda/put.h`), its first comment, what it declares."""

    name: str
    comment: str
    entries: list[Entry] = field(default_factory=list)

    @property
    def has_functions(self) -> bool:
        """Whether kernels call anything of it."""
        return any(entry.kind == "function" for entry in self.entries)

    @property
    def summary(self) -> str:
        """The first sentence of its comment."""
        return re.split(r"(?<=[.:])\s", " ".join(self.comment.split()))[0].rstrip(":")


@dataclass(frozen=True)
class _Macro:
    parameters: tuple[str, ...]
    body: str

    def expand(self, arguments: list[str]) -> str:
        text = self.body
        for name, value in zip(self.parameters, arguments, strict=False):
            text = re.sub(rf"\s*##\s*{name}\b|\b{name}\s*##\s*", value, text)
            text = re.sub(rf"\b{name}\b", value, text)
        return re.sub(r"\s*##\s*", "", text)


_COMMENT = re.compile(r"//[ ]?(.*)")
_NAME = re.compile(r"(\w+)\s*\(")


def every_header() -> Iterator[tuple[str, list[Header]]]:
    """Groups with their headers, in reading order; a header that declares nothing public is left out."""
    top = CUDA / "gda"
    for group, patterns in {**GROUPS, "More": tuple(path.name for path in _unnamed())}.items():
        paths = dict.fromkeys(path for pattern in patterns for path in sorted(top.glob(pattern)))
        headers = [read_header(path) for path in paths]
        if found := [header for header in headers if header.entries and (group in GROUPS or header.has_functions)]:
            yield group, found


def below() -> list[Header]:
    """The headers under those: what a put is made of. Their comments are for readers of the library."""
    top = CUDA / "gda"
    order = ("gda.h", "scope.h", "submit.h", "post.h", "token.h", "ring.h", "tell.h", "poll.h", "target.h")
    rest = [read_header(path) for path in _unnamed() if path.name not in order]
    return [*(read_header(top / name) for name in order), *(header for header in rest if not header.has_functions)]


def _unnamed() -> list[Path]:
    top = CUDA / "gda"
    named = {path for patterns in GROUPS.values() for pattern in patterns for path in top.glob(pattern)}
    return sorted(path for path in top.glob("*.h") if path not in named)


def read_header(path: Path) -> Header:
    """Read one header."""
    text = path.read_text()
    lines = text.splitlines()
    first = _comment_block(lines, 1)
    header = Header(path.relative_to(CUDA).as_posix(), "\n".join(first))
    macros = {**_shared_macros(), **_macros(text)}
    inside = 0  # braces of namespaces
    shared = ""  # the comment that speaks for what follows without an empty line
    at = 1 + len(first)
    while at < len(lines):
        line = lines[at]
        if inside or re.match(r"namespace\b.*\{", line):
            inside += line.count("{") - line.count("}")
            at, shared = at + 1, ""
        elif not line.strip():
            at, shared = at + 1, ""
        elif line.startswith("//"):
            block = _comment_block(lines, at)
            shared = "\n".join(block)
            at += len(block)
        elif line.startswith("#"):
            if entry := _macro_entry(line, shared, at):
                header.entries.append(entry)
            while lines[at].endswith("\\"):
                at += 1
            at += 1
        else:
            end = _end_of(lines, at)
            header.entries += _entries("\n".join(lines[at:end]), shared, at + 1, macros)
            at = end
    return header


def _comment_block(lines: list[str], at: int) -> list[str]:
    found = []
    while at < len(lines) and (match := _COMMENT.fullmatch(lines[at])):
        found.append(match[1])
        at += 1
    return found


def _end_of(lines: list[str], at: int) -> int:
    """Line behind the declaration that begins at `at`: behind its closing brace, its semicolon, or a macro's line."""
    depth = 0
    for end in range(at, len(lines)):
        code = lines[end].split("//")[0]
        depth += code.count("{") + code.count("(") - code.count("}") - code.count(")")
        if depth == 0 and code.rstrip().endswith((";", "}", ")")):
            return end + 1
    return len(lines)


def _entries(text: str, comment: str, line: int, macros: dict[str, _Macro]) -> list[Entry]:
    if call := re.fullmatch(r"(\w+)\(([\w, ]*)\)\s*;?", text.strip()):
        return _expanded(call[1], [a.strip() for a in call[2].split(",")], comment, line, macros)
    if match := re.match(r"(?:template\s*<[^{]*?>\s*)?(?:GDA_API|GDA_INLINE)\s", text):
        name = _NAME.search(text, match.end())
        if name is None or name[1].startswith("gda_host"):
            return []
        return [Entry("function", name[1], _signature(text), comment, line)]
    if match := re.match(r"(struct|enum) (gda_\w+) \{", text):
        return [Entry(match[1], match[2], text, comment, line)]
    if match := re.match(r"enum \{ (GDA_\w+)", text):
        return [Entry("constant", match[1], text, comment, line)]
    if match := re.match(r"typedef [^;]*?(\w+);", text):
        return [Entry("type", match[1], text, comment, line)]
    if match := re.match(r"static constexpr \w+ (GDA_\w+)", text):
        return [Entry("constant", match[1], text, comment, line)]
    return []


def _signature(text: str) -> str:
    """A function without its body and without the words that compilers need."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == "{" and depth == 0:
            text = text[:at]
            break
    return re.sub(r"\b(GDA_API|GDA_INLINE|constexpr)\s+", "", " ".join(text.split())).strip()


def _macro_entry(line: str, comment: str, at: int) -> Entry | None:
    match = re.match(r"#define (GDA_[A-Z]+\(\w+\)) (.*)", line)
    if match is None or not comment or match[2].endswith("\\") or match[1].startswith("GDA_ASSERT"):
        return None
    return Entry("macro", match[1].split("(")[0], f"{match[1]} {match[2]}", comment, at + 1)


@cache
def _shared_macros() -> dict[str, _Macro]:
    """Those by which one header declares functions of another."""
    top = CUDA / "gda"
    paths = [*top.glob("*.h"), *top.glob("collectives/*.h")]
    return {name: macro for path in paths for name, macro in _macros(path.read_text()).items()}


def _macros(text: str) -> dict[str, _Macro]:
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    found = re.findall(r"^#define (\w+)\(([\w, ]*)\) (.*)$", joined, re.M)
    return {name: _Macro(tuple(p.strip() for p in parameters.split(",")), body) for name, parameters, body in found}


def _expanded(name: str, arguments: list[str], comment: str, line: int, macros: dict[str, _Macro]) -> list[Entry]:
    """The functions that a macro's line stands for."""
    if name not in macros:
        return []
    text = macros[name].expand(arguments)
    if arguments[0] in macros:  # a list of calls of another macro
        calls = re.findall(rf"\b{arguments[0]}\((\w+)\)", text)
        return [entry for one in calls for entry in _expanded(arguments[0], [one], comment, line, macros)]
    found = []
    for match in re.finditer(r"template <[^>]*> (GDA_API .*?\))\s*\{", text):
        function = _NAME.search(match[1], len("GDA_API "))
        if function is not None:
            found.append(Entry("function", function[1], _signature(match[1]), comment, line))
    return found
