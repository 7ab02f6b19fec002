# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md lists every exception and every rule of an attribute, as they are in the code.

`python -m tests.whole.test_errors` prints both tables.
"""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest

from gda import errors
from gda.nic import lint

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/errors.md"
CLASSES = [getattr(errors, name) for name in errors.__all__]


def depth(kind: type) -> int:
    return sum(issubclass(base, errors.GdaError) for base in kind.__mro__) - 1


def tree() -> list[str]:
    """A row for each exception, children after their parent."""
    children: dict[type, list[type]] = {}
    for kind in CLASSES:
        if kind is not errors.GdaError:
            parent = next(base for base in kind.__bases__ if issubclass(base, errors.GdaError))
            children.setdefault(parent, []).append(kind)
    rows = []

    def add(kind: type) -> None:
        also = [base.__name__ for base in kind.__bases__ if not issubclass(base, errors.GdaError)]
        first = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
        also_text = f" (also {', '.join(also)})" if also and also != ["Exception"] else ""
        rows.append(f"| {'· ' * depth(kind)}`{kind.__name__}`{also_text} | {first} |")
        for child in sorted(children.get(kind, []), key=lambda k: k.__name__):
            add(child)

    add(errors.GdaError)
    return rows


def rules() -> list[str]:
    """A row for each rule, with the bounds of a device that bounds nothing, or "the device's"."""
    rows = []
    for rule in lint.RULES:
        least = rule.least if isinstance(rule.least, int) else "the device's"
        most = rule.most if isinstance(rule.most, int) else "the device's"
        names = ", ".join(f"`{name}`" for name in rule.names)
        rows.append(f"| {names} | {least} | {most} | {rule.meaning} |")
    return rows


def document_rows(heading: str) -> list[str]:
    section = DOCUMENT.read_text().partition(heading)[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def test_the_document_lists_every_exception() -> None:
    assert document_rows("## All exceptions") == tree(), "python -m tests.whole.test_errors prints the table"


def test_the_document_lists_every_rule() -> None:
    assert document_rows("## What is checked") == rules(), "python -m tests.whole.test_errors prints the table"


def test_there_is_one_tree() -> None:
    defined = {
        name for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
    }  # fmt: skip
    assert defined == set(errors.__all__)
    assert all(issubclass(kind, errors.GdaError) for kind in CLASSES)


@pytest.mark.parametrize(
    "error",
    [
        errors.CompileError("did not compile", "line 3: no", "install g++"),
        errors.DeviceStatusError("failed", 7, "try"), errors.DeadlineError("late", 2, "wait"),
        errors.CompletionError("bad", 1, "try", syndrome=0x13, vendor_syndrome=0x88, qpn=5, wqe_index=3),
        errors.FieldError("x=9 is outside 0..7", "x", 9, (0, 7), "7"),
        errors.GidError("empty", 3, (4,), "leave it out"),
        errors.UnavailableError("none", "buy one"),
    ],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_errors_go_from_process_to_process(error: errors.GdaError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error)
    assert vars(copy) == vars(error)


if __name__ == "__main__":
    print(*tree(), "", *rules(), sep="\n")
