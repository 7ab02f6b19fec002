# SPDX-License-Identifier: Apache-2.0
"""Side by side with Debian's pyverbs, under the system's Python: objects in and out, and the cost of a post."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).with_name("pyverbs_cases.py")
PYTHON = "/usr/bin/python3"


def ask(program: str) -> str:
    result = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, timeout=60)
    return result.stdout.strip() if result.returncode == 0 else ""


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A directory from which the system's Python imports gda: the tree itself, or one with the leaves built for it."""
    if not Path(PYTHON).exists() or not ask("import pyverbs.qp; print(1)"):
        pytest.skip(f"not run: {PYTHON} has no pyverbs (apt-get install python3-pyverbs)")
    if not ask("import numpy; print(1)"):
        pytest.skip(f"not run: {PYTHON} has no NumPy (apt-get install python3-numpy)")
    suffix = ask("import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))")
    if (ROOT / "gda" / f"_verbs{suffix}").exists():
        return ROOT
    include = ask("import sysconfig; print(sysconfig.get_path('include'))")
    if not Path(include, "Python.h").exists():
        pytest.skip(f"not run: {include} has no Python.h (apt-get install python3-dev)")
    tree = tmp_path_factory.mktemp("tree")
    (tree / "gda").mkdir()
    for entry in (ROOT / "gda").iterdir():
        if entry.suffix != ".so":
            (tree / "gda" / entry.name).symlink_to(entry)
    for leaf, libraries in (("_verbs", ["-libverbs", "-lmlx5"]), ("_cuda", ["-ldl"])):
        c_file = tree / f"{leaf}.c"
        subprocess.run(
            [sys.executable, "-m", "cython", "-3", str(ROOT / "gda" / f"{leaf}.pyx"), "-o", str(c_file)],
            check=True, cwd=ROOT, timeout=170,
        )  # fmt: skip
        target = tree / "gda" / f"{leaf}{suffix}"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O2", "-w", f"-I{include}", str(c_file), "-o", str(target), *libraries],
            check=True, timeout=170,
        )  # fmt: skip
    return tree


def run(case: str, tree: Path) -> str:
    result = subprocess.run(
        [PYTHON, str(CASES), case], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert result.returncode == 0 and result.stdout.rstrip().endswith("done"), result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("case", ["theirs_become_ours", "ours_become_theirs", "their_queues_are_driven_by_us"])
def test_objects_in_and_out(tree, case):
    run(case, tree)


def test_a_prepared_post_costs_no_more_than_pyverbs(tree):
    """Best of forty rounds each, in turn in one process; a fifth is left for the noise of a busy machine."""
    best = json.loads(run("cost_of_a_post", tree).splitlines()[0])
    print(best)
    assert best["gda"] <= 1.2 * best["pyverbs"], best


def test_posting_side_by_side(tree):
    """The benchmark runs, and no way is far from its place, however busy the machine; figures: docs/figures.md."""
    if not shutil.which("cc"):
        pytest.skip("not run: no C compiler (apt-get install gcc)")
    result = subprocess.run(
        [PYTHON, str(CASES.with_name("post_bench.py")), "--rounds", "15", "--json"], capture_output=True, text=True,
        timeout=120, env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    best = json.loads(result.stdout)
    print(best)
    assert len(best) == 14
    assert best["prepared: gda, ibv_post_send"] <= 2 * best["prepared: pyverbs"], best
    assert best["built: gda, post_send"] <= best["built: gda, SendWR and ibv_post_send"] <= best["built: pyverbs"], best
    assert best["built: gda, HostQueuePair.put"] <= best["built: pyverbs"], best
    for way in ("post_rows, rows checked each time", "HostQueuePair.post(rows)", "post_batch, checked once"):
        assert best[f"batch: gda, {way}"] <= 3 * best["batch: C, ibv_post_send, one by one"], best
