# SPDX-License-Identifier: Apache-2.0
"""Every code block of the documents runs: Python is run, commands succeed, device code compiles.

What runs elsewhere, or cannot run, stands in elsewhere.txt with its reason; a block that is neither fails here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from gda.errors import CompileError, UnavailableError
from gda.run.compile import compile_for_gpu, include_directory
from tests.documents.blocks import ROOT, TOLD_IN_ONE_GO, Block, Elsewhere, blocks, commands, documents, elsewhere

TABLE = elsewhere()
EVERY = [block for path in documents() for block in blocks(path)]
KINDS = {"python", "device", "c", "shell", "console", "text"}
# What a fragment of device code may take for given: the names that the documents use.
GIVEN = (
    "gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, uint32_t index, uint8_t* buffer, gda_team team,"
    " gda_window window, gda_window signals, uint32_t peer, const uint64_t* signal, gda_status* status"
)


def row_of(block: Block, first: str | None = None) -> Elsewhere | None:
    """The line of the table that speaks of a block, or of one command in it."""
    first = block.text.lstrip("\n").splitlines()[0] if first is None else first
    return next((row for row in TABLE if row.covers(block.document, first)), None)


def of_kind(kind: str) -> list[Block]:
    return [block for block in EVERY if block.kind == kind and row_of(block) is None]


def scratch(directory: Path, document: str) -> tuple[Path, dict[str, str]]:
    """A directory that looks like the repository's root, with the files of a document, and a command's environment."""
    root = directory / "root"
    (root / "build").mkdir(parents=True)
    for entry in ROOT.iterdir():
        if entry.name not in {"build", ".git"}:
            (root / entry.name).symlink_to(entry)
    (root / "program.py").symlink_to(ROOT / "examples/12_ranks.py")  # a program of several ranks
    for block in EVERY:
        if block.document == document and block.file:
            (root / block.file).write_text(block.text)
    tools = directory / "bin"
    tools.mkdir()
    python = tools / "python"  # this one, whatever the PATH has
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (root / "build/python").write_text(f"{python}\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tools}:{os.environ['PATH']}"}
    return root, environment


def test_each_block_says_what_it_is() -> None:
    unknown = [block.name for block in EVERY if block.kind not in KINDS]
    assert not unknown, f"give their fences a language (text: nothing to run): {unknown}"
    assert {block.kind for block in EVERY} == KINDS


def test_the_table_is_of_blocks_that_are_there() -> None:
    firsts = [
        (block.document, first)
        for block in EVERY
        for first in [block.text.lstrip("\n").splitlines()[0], *(commands(block) if block.kind == "shell" else ())]
    ]
    for row in TABLE:
        assert any(row.covers(*first) for first in firsts), f"elsewhere.txt: nothing is left of {row}"
        where = re.match(r"by ([\w/.]+\.py)", row.reason)
        assert where or row.reason.startswith("not run: "), f"elsewhere.txt: by which test, or why not? {row}"
        assert not where or (ROOT / where[1]).is_file(), f"elsewhere.txt: {row.reason}"


def is_run_by_a_command(block: Block) -> bool:
    commands_below = [one.text for one in of_kind("shell") if one.document == block.document]
    return bool(block.file) and any(block.file in text for text in commands_below)


def python_groups() -> list[object]:
    found = []
    alone = [block for block in of_kind("python") if not is_run_by_a_command(block)]
    for document, group in groupby(alone, key=lambda block: block.document):
        each = list(group)
        groups = [each] if document in TOLD_IN_ONE_GO else [[block] for block in each]
        found += [pytest.param(group, id=group[0].name) for group in groups]
    return found


@pytest.mark.parametrize("group", python_groups())
def test_python(group: list[Block], tmp_path: Path) -> None:
    root, environment = scratch(tmp_path, group[0].document)
    result = subprocess.run(
        [sys.executable, "-m", "tests.documents.blocks", group[0].document, *(str(block.line) for block in group)],
        capture_output=True, text=True, timeout=150, cwd=root, env=environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in of_kind("shell")])
def test_commands(block: Block, tmp_path: Path) -> None:
    root, environment = scratch(tmp_path, block.document)
    for command in commands(block):
        if row_of(block, command) is None:
            result = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, timeout=150, cwd=root, env=environment
            )
            assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in of_kind("device")])
def test_device_code_compiles(block: Block, tmp_path: Path) -> None:
    text = block.text
    if re.match(r"struct \w+_bits", text):  # a format's declaration, beside the real one
        text = f"namespace gda::prm::shown {{\n{text}}}\n"
    elif "GDA_KERNEL" not in text and "struct " not in text:
        lines = text.splitlines()
        heads = [line for line in lines if line.startswith("#include")]
        rest = [line for line in lines if not line.startswith("#include")]
        text = "\n".join([*heads, f"GDA_KERNEL(fragment)({GIVEN}) {{", *rest, "}", ""])
    text = f"#include <gda/gda.h>\n#include <gda/comm.h>\n#include <gda/formats/command.h>\n{text}"
    source = tmp_path / "block.cc"
    source.write_text(text)
    done = subprocess.run(
        ["c++", "-std=c++17", "-fsyntax-only", f"-I{include_directory()}", str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{block.name}\n{done.stderr}"
    try:
        compile_for_gpu(text, arch="compute_90")
    except CompileError as error:
        pytest.fail(f"{block.name}\n{error.log}")
    except UnavailableError:
        pass  # test_compile.py says that there is no NVRTC


@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in of_kind("c")])
def test_c_compiles(block: Block, tmp_path: Path) -> None:
    """A file of C is also linked and run by a command below it."""
    source = tmp_path / "block.c"
    source.write_text(block.text)
    done = subprocess.run(
        ["cc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{block.name}\n{done.stderr}"
    assert is_run_by_a_command(block), f"{block.name}: nothing runs it"


def test_a_block_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n```python\nx = 1\n```\n\n    python -m gda demo   # one\n    python a.py \\\n        --more\n\n"
        "* list\n    that goes on\n\n```\nnobody knows\n```\n\n```text\nboxes\n```\n\n    GDA_KERNEL(k)() {}\n"
    )
    found = list(blocks(page))
    assert [block.kind for block in found] == ["python", "shell", "", "text", "device"]
    assert [block.line for block in found] == [4, 7, 15, 19, 22]
    assert commands(found[1]) == ["python -m gda demo   # one", "python a.py      --more"]
    assert not Elsewhere("docs/*.md", "make *", "").covers("README.md", "make demo")
