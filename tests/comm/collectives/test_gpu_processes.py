# SPDX-License-Identifier: Apache-2.0
"""Collectives over arrays in GPU memory by two processes, each with a GPU of its own where there are two."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.comm.launching import run

pytestmark = pytest.mark.gpu


PROGRAM = """
import cupy as cp
import numpy as np
import gda
from gda.config import get
device = int(get("GDA_RANK")) % cp.cuda.runtime.getDeviceCount()
cp.cuda.Device(device).use()
with gda.open(gpu=device) as nic, gda.init(nic=nic, deadline_s=60) as team:
    array = cp.full(100_003, team.rank + 1.5, np.float32)
    rows = cp.zeros((team.size, 5001), np.int16)
    rows[team.rank] = team.rank + 3
    reduce, gather = team.all_reduce(array), team.all_gather(rows)
    for call in range(2):
        cp.cuda.get_current_stream().synchronize()
        reduce(deadline_s=60)
        gather(deadline_s=60)
        assert (array.get() == 4.0 * 2**call).all(), array
        assert (rows.get() == np.arange(3, 3 + team.size)[:, None]).all()
    with open(f"said.{team.rank}", "w") as file:
        print(device, reduce.window.memory.is_gpu, file=file)
    team.barrier()
"""


def test_two_processes(tmp_path: Path) -> None:
    """Where they share a GPU they take turns on it, a time slice each: correct, and slow."""
    cupy: Any = pytest.importorskip("cupy", reason="not run: CuPy is not installed")
    gpus = cupy.cuda.runtime.getDeviceCount()
    run([sys.executable, "-m", "gda", "launch", "-n", "2"], PROGRAM, tmp_path, GDA_TARGET="gpu")
    said = [(tmp_path / f"said.{rank}").read_text().split() for rank in range(2)]
    assert said == [["0", "True"], [str(1 % gpus), "True"]]
