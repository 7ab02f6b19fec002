# SPDX-License-Identifier: Apache-2.0
"""The Python package for pdoc: which modules are shown, and what pdoc cannot know of them. Called by site.py.

Classes and functions are told once, where people import them from; the search leads there, too.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import types
import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pdoc.doc

import gda
from gda.errors import UnavailableError

__all__ = ["dispensable", "load", "names"]

RAW = ("gda._verbs", "gda._cuda", "gda._proxy")
DEPTH = 3  # gda.nic.queue, but not what a tool is made of (gda.tools.bench.sweep)


@cache
def names() -> tuple[str, ...]:
    """Modules in the reference."""
    found = ["gda"]
    for module in pkgutil.walk_packages(gda.__path__, "gda.", onerror=lambda name: None):
        name = module.name
        private = any(part.startswith("_") for part in name.split("."))
        if name in RAW or not (private or name.startswith("gda.commands") or name.count(".") >= DEPTH):
            found.append(name)
    return tuple(sorted(found))


def load() -> tuple[dict[str, pdoc.doc.Module], dict[str, str]]:
    """Modules by name as pdoc sees them; and those that this machine cannot import, with the reason."""
    # Stub files may name it; typing itself has it only for type checkers.
    if not hasattr(typing, "type_check_only"):
        typing.type_check_only = lambda one: one  # type: ignore[attr-defined]
    modules: dict[str, pdoc.doc.Module] = {}
    missing: dict[str, str] = {}
    for name in names():
        try:
            module = importlib.import_module(name)
        except (UnavailableError, ImportError) as error:
            missing[name] = str(error).split("\n", maxsplit=1)[0]
            continue
        if name in RAW:  # a compiled module has no text from which to see which names are its own
            module.__all__ = _in_stub(module)
        for public in getattr(module, "__all__", ()):  # names that are looked up when first used
            getattr(module, public)
        modules[name] = pdoc.doc.Module(module)
    for module in modules.values():
        _give_words(module, modules)
    return modules, missing


def _in_stub(module: types.ModuleType) -> list[str]:
    stub = Path(gda.__path__[0]) / f"{module.__name__.rpartition('.')[2]}.pyi"
    declared = re.findall(r"^(?:def |class )?([A-Za-z]\w*)(?=:|\(| =)", stub.read_text(), re.M)
    there = [name for name in dict.fromkeys(declared) if hasattr(module, name)]
    return sorted(there, key=str.isupper)  # calls and objects, then the many constants


def _give_words(module: pdoc.doc.Module, modules: Mapping[str, pdoc.doc.Module]) -> None:
    """A constant that is imported has its docstring where it was made: bring it along."""
    for member in module.own_members:
        if isinstance(member, pdoc.doc.Variable) and not member.docstring:
            value = getattr(module.obj, member.name, None)
            for other in modules.values():
                twin = other.members.get(member.name) if other is not module else None
                if twin is not None and twin.docstring and getattr(other.obj, member.name, None) is value:
                    member.docstring = twin.docstring
                    break


def dispensable(rows: list[dict[str, str]], modules: Mapping[str, pdoc.doc.Module]) -> list[dict[str, str]]:
    """The search's rows without those that tell again what a shorter name tells."""
    best: dict[tuple[str, str], str] = {}
    homes: dict[str, tuple[str, str]] = {}
    for module in modules.values():
        for member in _all(module):
            home = homes[member.fullname] = member.taken_from
            if len(member.fullname) < len(best.get(home, member.fullname + " ")):
                best[home] = member.fullname
    return [row for row in rows if row["fullname"] not in homes or best[homes[row["fullname"]]] == row["fullname"]]


def _all(namespace: pdoc.doc.Namespace[typing.Any]) -> typing.Iterator[pdoc.doc.Doc[typing.Any]]:
    for member in namespace.own_members:
        yield member
        if isinstance(member, pdoc.doc.Class):
            yield from _all(member)
