# SPDX-License-Identifier: Apache-2.0
"""One program under every launcher has one result. Those that are missing here are not run."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

from gda import config
from tests.comm.conftest import free_port
from tests.comm.launching import environment, need_mpirun, need_torch, run, run_each

RANKS = 4
# A ring in Python: every rank's row goes once round. What each has then, and by what it found the others.
PROGRAM = """
import hashlib
import numpy as np
import gda
with gda.init(deadline_s=60) as team:
    rows = np.zeros((team.size, 1000), np.int32)
    rows[team.rank] = np.arange(1000) * (team.rank + 1)
    window, arrived = team.window(rows), team.signals(1)
    right, left = (team.rank + 1) % team.size, (team.rank - 1) % team.size
    for step in range(team.size - 1):
        row = (team.rank - step) % team.size
        arrived.put_signal(right, 0, window[row], deadline_s=30)
        arrived.wait_next(0, peer=left, deadline_s=30)
    assert rows[:, 1].tolist() == [rank + 1 for rank in range(team.size)]
    with open(f"said.{team.rank}", "w") as file:
        print(team.rank, team.size, hashlib.sha256(rows).hexdigest()[:16], team.bootstrap.carrier.name, file=file)
    team.barrier()
"""
WITH_A_GROUP = f"""
import torch.distributed
torch.distributed.init_process_group("gloo")
{PROGRAM}
torch.distributed.destroy_process_group()
"""


def check(folder: Path, carrier: str) -> None:
    """The result is that of a process which computes it alone."""
    rows = np.outer(np.arange(1, RANKS + 1), np.arange(1000)).astype(np.int32)
    digest = hashlib.sha256(rows).hexdigest()[:16]  # a launcher may mix what ranks print: each writes a file
    said = [path.read_text().strip() for path in sorted(folder.glob("said.*"))]
    assert [line.split(maxsplit=3)[:3] for line in said] == [[str(r), str(RANKS), digest] for r in range(RANKS)]
    assert all(carrier in line for line in said), said


def test_gda_launch(tmp_path: Path) -> None:
    run([sys.executable, "-m", "gda", "launch", "-n", str(RANKS)], PROGRAM, tmp_path)
    check(tmp_path, "directory ")


def test_mpirun(tmp_path: Path) -> None:
    run([need_mpirun(), "-n", str(RANKS), sys.executable], PROGRAM, tmp_path)
    check(tmp_path, "mpi4py")


@pytest.mark.parametrize("by", ["tcp", "directory"])
def test_shells_of_their_own(tmp_path: Path, by: str) -> None:
    place = f"tcp://127.0.0.1:{free_port()}" if by == "tcp" else str(tmp_path / "meet")
    shells = [environment() | config.environment_of_rank(rank, RANKS, place) for rank in range(RANKS)]
    run_each(PROGRAM, tmp_path, [one | {"PYTHONPATH": environment()["PYTHONPATH"]} for one in reversed(shells)])
    check(tmp_path, place if by == "tcp" else "directory ")


def test_torchrun(tmp_path: Path) -> None:
    need_torch()
    # Old spellings, and redirection said outright: under Python 3.11 torchrun before 2.0 fails with its own default of
    # none (a zero of an enum, which iteration leaves out there).
    run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(RANKS), "--master_port",
         str(free_port()), "--redirects", "1", "--tee", "1", "--log_dir", str(tmp_path / "log")],
        PROGRAM, tmp_path,
    )  # fmt: skip
    check(tmp_path, "torch.distributed (gloo)")


@pytest.mark.parametrize("program", [PROGRAM, WITH_A_GROUP], ids=["environment", "group"])
def test_what_torchrun_leaves_in_the_environment(tmp_path: Path, program: str) -> None:
    need_torch()
    shared = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    run_each(program, tmp_path, [environment(RANK=str(rank), **shared) for rank in range(RANKS)])
    check(tmp_path, "torch.distributed (gloo)")
