# SPDX-License-Identifier: Apache-2.0
"""The code blocks of the documents, and which of them run elsewhere or cannot run (elsewhere.txt).

A block is fenced and says its language, or is indented by four spaces; what it then is its first line tells. Used by
test_blocks.py, and as a program by it: `python -m tests.documents.blocks DOCUMENT LINE ...` runs the Python blocks that
begin there, one after the other in one namespace, so that a traceback names the document's own lines.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "Elsewhere", "blocks", "commands", "documents", "elsewhere"]

ROOT = Path(__file__).resolve().parents[2]
# Documents whose Python blocks follow one another: what one makes the next one uses.
TOLD_IN_ONE_GO = {"docs/guide.md"}
LANGUAGES = {
    "python": "python", "c++": "device", "cuda": "device", "c": "c", "sh": "shell", "console": "console",
    "text": "text",
}  # fmt: skip
_FILE = re.compile(r"(?:#|//) (\w[\w.]*\.(?:py|c|cu))$")
_PROGRAMS = r"cc|python|pip|make|mpirun|torchrun|ib\w+|apt-get|sudo|tshark|nvcc|g\+\+"
_SHELL = re.compile(rf"(\w+=\S* )*(\$\(|\./|({_PROGRAMS})\b)")
_DEVICE = re.compile(r"GDA_KERNEL|#include|gda_\w+")
_PYTHON = re.compile(r"import |from |@|with |def |\w+ = ")


@dataclass(frozen=True)
class Block:
    """A block: where it stands (the line of its first line of code, from 1), what it is, its text."""

    document: str
    line: int
    kind: str  # python, device, c, shell, console, text; empty: nobody knows
    text: str

    @property
    def name(self) -> str:
        """For a test's name and a message."""
        return f"{self.document}:{self.line}"

    @property
    def file(self) -> str:
        """The name of the file that it is, where its first line says so; a command below it may use that."""
        found = _FILE.match(self.text.split("\n", maxsplit=1)[0])
        return found[1] if found else ""


@dataclass(frozen=True)
class Elsewhere:
    """A line of elsewhere.txt: blocks whose first line, or commands, match `pattern`."""

    document: str
    pattern: str
    reason: str

    def covers(self, document: str, first: str) -> bool:
        """Whether it speaks of this."""
        return fnmatch.fnmatchcase(document, self.document) and fnmatch.fnmatchcase(first.strip(), self.pattern)


def documents() -> list[Path]:
    """What people read: the root's documents, docs, labs and examples."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("labs/**/*.md"), *ROOT.glob("examples/*.md")]
    return sorted(found)


def blocks(path: Path) -> Iterator[Block]:
    """All blocks of a document, in order."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    lines = path.read_text().splitlines()
    at = 0
    while at < len(lines):
        if fence := re.match(r"( *)```(\S*)", lines[at]):
            end = at + 1
            while end < len(lines) and not re.match(r" *```$", lines[end]):
                end += 1
            inside = [line[len(fence[1]) :] for line in lines[at + 1 : end]]
            kind = LANGUAGES.get(fence[2], "") if fence[2] else _guess(inside)
            yield Block(name, at + 2, kind, "\n".join(inside) + "\n")
            at = end + 1
        elif lines[at].startswith("    ") and not (at and lines[at - 1].strip()):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            inside = [line[4:] for line in lines[at:end]]
            yield Block(name, at + 1, _guess(inside), "\n".join(inside).rstrip() + "\n")
            at = end
        else:
            at += 1


def _guess(inside: list[str]) -> str:
    first = next((line.strip() for line in inside if line.strip()), "")
    if first.startswith("$ "):
        return "console"
    for kind, pattern in (("shell", _SHELL), ("device", _DEVICE), ("python", _PYTHON)):
        if pattern.match(first):
            return kind
    return ""


def commands(block: Block) -> list[str]:
    """The commands of a shell block, a line each; a backslash at the end goes on."""
    joined = block.text.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if shlex.split(line, comments=True)]


def elsewhere() -> list[Elsewhere]:
    """The table of what is not run by test_blocks.py."""
    lines = (Path(__file__).parent / "elsewhere.txt").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line and not line.startswith("#")]
    return [Elsewhere(*map(str.strip, row)) for row in rows]


def _run(document: str, first_lines: list[int]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(ROOT / document):
        if block.line in first_lines:
            exec(compile("\n" * (block.line - 1) + block.text, document, "exec"), names)


if __name__ == "__main__":
    _run(sys.argv[1], [int(number) for number in sys.argv[2:]])
