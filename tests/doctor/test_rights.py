# SPDX-License-Identifier: Apache-2.0
"""doctor as a user without any rights: it runs, leaves nothing behind, and says which rights are missing.

Where the tests run as root, a process of theirs becomes nobody. It imports everything before, for the interpreter may
lie in root's home; probes are forked from it, and import nothing more of ours.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doctor.test_command import everything

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
LOCKED_BYTES = 64 << 10
BECOME_NOBODY = f"""
import importlib, os, pkgutil, resource, sys
import gda.__main__
from tests.doctor import machines
for room in ("gda", "gda.commands", "gda.formats", "gda.nic", "gda.run", "gda.tools", "gda.tools.doctor"):
    for module in pkgutil.iter_modules(importlib.import_module(room).__path__, room + "."):
        if module.name not in ("gda.numba", "gda.pytest_plugin"):
            importlib.import_module(module.name)
resource.setrlimit(resource.RLIMIT_MEMLOCK, ({LOCKED_BYTES}, {LOCKED_BYTES}))
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
assert os.getuid() and not os.access("/etc/shadow", os.R_OK)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """Of that user: pytest's own directories are closed to others."""
    directory = Path(tempfile.mkdtemp(prefix="gda-nobody-"))
    if os.getuid() == 0:
        os.chown(directory, NOBODY, NOBODY)
    yield directory
    shutil.rmtree(directory)


def as_nobody(program: str, home: Path) -> str:
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home),
        "GDA_SIM_DIRECTORY": str(home / "nics"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [sys.executable, "-c", BECOME_NOBODY + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=ROOT)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_it_runs_changes_nothing_and_names_the_missing_right(home: Path) -> None:
    before = everything(ROOT / "gda", ROOT / "cuda", home)
    report = json.loads(as_nobody('sys.exit(gda.__main__.main(["doctor", "--json"]))', home))
    assert everything(ROOT / "gda", ROOT / "cuda", home) == before
    lines = {line["name"]: line for line in report["lines"]}
    locked = lines["locked memory"]
    assert (locked["status"], locked["value"]) == ("problem", f"{LOCKED_BYTES >> 10} KiB")
    assert "ulimit -l unlimited" in locked["next"]
    assert any(step.startswith("locked memory: ulimit -l") for step in report["verdict"]["steps"])
    assert report["verdict"]["can"] and lines["software NIC"]["status"] == "ok", lines["software NIC"]
    for line in report["lines"]:
        assert line["status"] != "unknown" or line["next"], line
        assert "Traceback" not in json.dumps(line), line


def test_device_files_that_this_user_may_not_open_are_named(home: Path) -> None:
    devices = home / "root" / "dev" / "infiniband"
    devices.mkdir(parents=True)
    for name, mode in (("uverbs0", 0), ("uverbs1", 0o666)):
        (devices / name).touch()
        (devices / name).chmod(mode)
    told = as_nobody(
        "import dataclasses, json, pathlib\n"
        "from gda.tools.doctor import Machine, card\n"
        f"machine = Machine(pathlib.Path({str(home / 'root')!r}), verbs=machines.PlayedVerbs())\n"
        "line = card.device_files(machine)\n"
        "print(json.dumps([line.status.value, line.value, line.next]))\n",
        home,
    )
    status, value, advice = json.loads(told)
    assert (status, value) == ("problem", "uverbs0 may not be opened") and "udev" in advice
