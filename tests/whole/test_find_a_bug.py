# SPDX-License-Identifier: Apache-2.0
"""docs/find_a_bug.md: its commands run, and print what stands there, but for numbers that differ from run to run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_live import why_not_from_outside

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/find_a_bug.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.M | re.S)


def normal(line: str) -> str:
    """Without addresses, numbers of queue pairs, keys, seconds and completions' dwords."""
    line = re.sub(r"0x[0-9a-f]{4,}", "0x#", line)
    return re.sub(r"\b[0-9a-f]{8}\b", "########", re.sub(r"\d+\.\d+ s\b", "# s", line)).rstrip()


def commands(block: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def run(lines: list[str], directory: Path) -> list[list[str]]:
    """What each command prints, in one shell."""
    script = "".join(f"echo '@@@'\n{line}\n" for line in lines)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software", "COLUMNS": "500"}
    python = directory / "python"  # this one, whatever the PATH has
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    environment["PATH"] = f"{directory}:{environment['PATH']}"
    result = subprocess.run(
        ["bash", "-c", script],
        capture_output=True, text=True, cwd=ROOT, env=environment, timeout=150,
    )  # fmt: skip
    return [part.splitlines() for part in result.stdout.split("@@@\n")[1:]]


def agrees(wanted: list[str], seen: list[str]) -> bool:
    """`...` stands for any lines."""
    if not wanted:
        return not seen
    if wanted[0].strip() == "...":
        return any(agrees(wanted[1:], seen[at:]) for at in range(len(seen) + 1))
    return bool(seen) and normal(wanted[0]) == normal(seen[0]) and agrees(wanted[1:], seen[1:])


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_page_is_what_a_terminal_shows(block: str, tmp_path: Path) -> None:
    if "gda live" in block and (why := why_not_from_outside()):
        pytest.skip(f"not run: {why}")
    wanted = commands(block)
    seen = run([command for command, _ in wanted], tmp_path)
    for (command, lines), output in zip(wanted, seen, strict=True):
        assert agrees(lines, output), f"$ {command}\n" + "\n".join(output)


def test_each_bug_is_found_in_under_five_commands() -> None:
    bugs = [section for section in PAGE.split("\n## ")[1:] if "```console" in section]
    assert len(bugs) == 4
    assert all(len(re.findall(r"^\$ ", section, re.M)) < 5 for section in bugs)


def test_a_page_that_is_not_true_is_noticed() -> None:
    assert agrees(["a 0x12345", "...", "z"], ["a 0xabcde", "b", "c", "z"])
    assert not agrees(["a", "..."], ["b"])
    assert not agrees(["a", "...", "z"], ["a", "b"])
    assert not agrees(["a"], ["a", "b"])
