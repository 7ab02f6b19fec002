# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the explorer of tests/device/model: the device library on a model of weak memory.

As a program: `$(cat build/python) tests/device/explore.py [--small-window] [options] SCRIPT...`; the other options and
the scripts are those of model/explore.cc. Prints what was found, with the interleaving that shows it.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gda.run.compile import include_directory
from gda.run.host import find_compiler

__all__ = ["SMALL_WINDOW", "Edit", "Found", "build", "explore"]

MODEL = Path(__file__).parent / "model"
FLAGS = ("-std=c++17", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True)
class Edit:
    """A change of a device header: `old`, which stands there exactly once, becomes `new`."""

    file: str
    old: str
    new: str


# A window of two words for two slots each: a few puts go around it.
SMALL_WINDOW = (
    Edit("token.h", "WORD_SLOTS = 32;", "WORD_SLOTS = 2;"),
    Edit("token.h", "WINDOW_WORDS = 64;", "WINDOW_WORDS = 2;"),
    Edit("token.h", "sizeof(gda_queue::window) ==", "sizeof(gda_queue::window) >="),
)


@dataclass(frozen=True)
class Found:
    """What an exploration answers."""

    executions: int
    cut: int  # left out: like one that was run, but for the order of accesses that do not meet
    complete: bool
    violation: str
    log: tuple[str, ...]
    sites: frozenset[str]  # barriers and orders met, each as name@function

    def __str__(self) -> str:
        how = "all" if self.complete else "bounded"
        lines = [self.violation or "no violation", f"{self.executions} executions ({how}), {self.cut} cut short"]
        return "\n".join([*lines, *self.log])


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gda-model-")


def _compile(*arguments: str) -> None:
    done = subprocess.run([find_compiler().path, *FLAGS, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@functools.cache
def _objects() -> tuple[str, ...]:
    objects = []
    for source in (MODEL / "explorer.cc", include_directory() / "gda" / "target" / "host" / "fiber.cc"):
        objects.append(str(Path(_folder().name) / f"{source.stem}.o"))
        _compile("-O2", f"-I{include_directory()}", "-c", str(source), "-o", objects[-1])
    return tuple(objects)


@functools.cache
def build(edits: tuple[Edit, ...] = (), *, quickly: bool = False) -> Path:
    """The explorer with a device library so changed. `quickly` built it runs three times as long."""
    folder = Path(tempfile.mkdtemp(dir=_folder().name))
    for edit in edits:
        changed = folder / "gda" / edit.file
        text = (changed if changed.exists() else include_directory() / "gda" / edit.file).read_text()
        assert text.count(edit.old) == 1, f"{edit.file} has {text.count(edit.old)} times {edit.old!r}"
        changed.parent.mkdir(exist_ok=True)
        changed.write_text(text.replace(edit.old, edit.new))
    program = folder / "explore"
    includes = (f"-I{folder}", f"-I{MODEL}", f"-I{include_directory()}")
    level = "-O0" if quickly else "-O2"
    _compile(
        level, '-DGDA_TARGET_HEADER="target.h"', *includes, str(MODEL / "explore.cc"), *_objects(), "-o", str(program)
    )
    return program


def explore(program: Path, arguments: Sequence[str]) -> Found:
    """Run the explorer."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    found = json.loads(done.stdout)
    return Found(
        found["executions"],
        found["cut"],
        found["complete"],
        found["violation"],
        tuple(found["log"]),
        frozenset(found["sites"]),
    )


if __name__ == "__main__":
    small = "--small-window" in sys.argv
    print(explore(build(SMALL_WINDOW if small else ()), [a for a in sys.argv[1:] if a != "--small-window"]))
