# SPDX-License-Identifier: Apache-2.0
"""The .pyi files say what the extension modules have: same names, same parameters."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from gda import _cuda, _verbs

IMPORTED = {
    "ArgumentError", "ClosedError", "CudaError", "NamedTuple", "PostError", "UnavailableError", "VerbsError",
    "WorkRequestError",
}  # fmt: skip


def stub_of(module: ModuleType) -> list[ast.stmt]:
    name = module.__name__.rpartition(".")[2]
    return ast.parse((Path(__file__).resolve().parents[2] / "gda" / f"{name}.pyi").read_text()).body


@pytest.mark.parametrize("module", [_verbs, _cuda])
def test_same_names(module):
    declared = set()
    for node in stub_of(module):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and "type_check_only" not in map(
            ast.unparse, node.decorator_list
        ):
            declared.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            declared.add(node.target.id)
    there = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name not in IMPORTED | {"WeakValueDictionary"}
    }
    assert declared == there


@pytest.mark.parametrize("module", [_verbs, _cuda])
def test_same_parameters(module):
    checked = 0
    for node in stub_of(module):
        if not isinstance(node, ast.FunctionDef):
            continue
        signature = inspect.signature(getattr(module, node.name))
        positional = [a.arg for a in node.args.args]
        keyword = [a.arg for a in node.args.kwonlyargs]
        kinds = {inspect.Parameter.KEYWORD_ONLY: keyword, inspect.Parameter.POSITIONAL_OR_KEYWORD: positional}
        for kind, names in kinds.items():
            assert [p.name for p in signature.parameters.values() if p.kind is kind] == names, node.name
        checked += 1
    assert checked > 10


@pytest.mark.parametrize("module", [_verbs, _cuda])
def test_classes_have_what_the_stub_promises(module):
    for node in stub_of(module):
        if isinstance(node, ast.ClassDef) and not node.decorator_list:
            kind = getattr(module, node.name)
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    owners = [kind, *kind.__subclasses__()]
                    assert any(hasattr(owner, member.name) for owner in owners), f"{node.name}.{member.name}"


def test_every_call_has_a_test():
    """A binding that no test calls is a guess: each function's name stands in a test of this room or of gda.nic's."""
    tests = Path(__file__).resolve().parents[1]
    files = [p for room in ("verbs", "nic") for p in (tests / room).glob("*.py") if p != Path(__file__).resolve()]
    words = set(re.findall(r"\w+", "\n".join(p.read_text() for p in files)))
    calls = [node.name for node in stub_of(_verbs) if isinstance(node, ast.FunctionDef)]
    assert len(calls) > 130
    assert [name for name in calls if name not in words] == []
