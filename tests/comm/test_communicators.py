# SPDX-License-Identifier: Apache-2.0
"""gda.init() with a communicator of mpi4py or a process group of torch: its ranks, in its order, are the team's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import gda
from gda.errors import ArgumentError
from tests.comm.conftest import free_port
from tests.comm.launching import environment, need_mpirun, need_torch, run, run_each

RANKS = 4
START = """
import gda
from gda.errors import ArgumentError, DeadlineError

def meet(thing, rank, size):
    \"""A team of that communicator passes a word round.\"""
    with gda.init(thing, deadline_s=30) as team:
        assert (team.rank, team.size) == (rank, size), (team.rank, team.size, rank, size)
        signals = team.signals(1)
        signals.signal((rank + 1) % size, 0, 10 + rank, "set", deadline_s=30)
        signals.wait(0, 10 + (rank - 1) % size, deadline_s=30)
        team.barrier()

def refused(thing, words):
    try:
        gda.init(thing, deadline_s=30)
    except ArgumentError as error:
        assert words in str(error), error
    else:
        raise AssertionError("not refused: " + words)
"""
MPI = START + """
from mpi4py import MPI
from gda.comm.launchers import MpiCarrier

world = MPI.COMM_WORLD
me, size = world.Get_rank(), world.Get_size()
meet(world, me, size)
half = world.Split(me % 2, -me)                      # two halves, each counted backwards
meet(half, half.Get_rank(), 2)
assert half.Get_rank() == (1 if me < 2 else 0)
grid = world.Create_cart([2, 2], periods=[True, True], reorder=False)
meet(grid, me, size)
row = grid.Sub([False, True])
meet(row, me % 2, 2)
meet(MPI.COMM_SELF, 0, 1)
some = world.Split(0 if me else MPI.UNDEFINED, me)   # all but rank 0
if me:
    meet(some, me - 1, size - 1)
else:
    refused(some, "a null communicator")
refused(MPI.COMM_NULL, "a null communicator")
refused(world.Get_group(), "cannot be taken from a Group")
between = half.Create_intercomm(0, world, 3 if me % 2 == 0 else 2)
refused(between, "an intercommunicator, of 2 ranks here and 2 there")
with gda.init(half, deadline_s=30) as team:          # the team does not need the program's communicator any more
    half.Free()
    team.barrier()
    refused(half, "a null communicator")
    team.barrier()
class Silent:                                        # a communicator whose other ranks do not come
    Get_rank = Get_size = lambda self: 1
    Is_inter = Test = lambda self: False
    Idup = lambda self: (None, self)
try:
    MpiCarrier(0.1, Silent())
except DeadlineError as error:
    assert "MPI did not bring all ranks within 0.1 s" in str(error), error
else:
    raise AssertionError("no deadline")
open(f"said.{me}", "w").write("ok")
"""
TORCH = START + """
import torch.distributed as distributed

distributed.init_process_group("gloo")
me, size = distributed.get_rank(), distributed.get_world_size()
meet(distributed.group.WORLD, me, size)
some = distributed.new_group([1, 3])
if me in (1, 3):
    meet(some, (1, 3).index(me), 2)
else:
    refused(some, "not in that process group")
meet(None, me, size)                                 # the default group
gone = distributed.new_group(list(range(size)))
distributed.destroy_process_group(gone)
refused(gone, "this process group is of no use")
assert distributed.is_initialized()                  # nobody destroyed what was not ours
distributed.destroy_process_group()
refused(some if me in (1, 3) else gone, "this process group is of no use")
open(f"said.{me}", "w").write("ok")
"""


def said(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob("said.*"))]


def test_communicators_of_mpi4py(tmp_path: Path) -> None:
    run([need_mpirun(), "-n", str(RANKS), sys.executable], MPI, tmp_path)
    assert said(tmp_path) == ["ok"] * RANKS


def test_process_groups_of_torch(tmp_path: Path) -> None:
    need_torch()
    shared = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    run_each(TORCH, tmp_path, [environment(RANK=str(rank), **shared) for rank in range(RANKS)])
    assert said(tmp_path) == ["ok"] * RANKS


@pytest.mark.gpu
def test_a_group_by_nccl(tmp_path: Path) -> None:
    """Its records go by GPU memory. NCCL wants a GPU for each rank, so there is one."""
    need_torch()
    program = START + """
import torch, torch.distributed as distributed
distributed.init_process_group("nccl", device_id=torch.device("cuda", 0))
meet(None, 0, 1)
meet(distributed.group.WORLD, 0, 1)
with gda.init(deadline_s=30) as team:
    assert team.bootstrap.carrier.name == "torch.distributed (nccl)", team.bootstrap.carrier.name
    assert team.bootstrap.allgather(b"x" * 1000) == [b"x" * 1000]
distributed.destroy_process_group()
open("said.0", "w").write("ok")
"""
    shared = {"WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    run_each(program, tmp_path, [environment(RANK="0", **shared)])
    assert said(tmp_path) == ["ok"]


@pytest.mark.parametrize("thing", [3, "world", object()])
def test_what_is_no_communicator(thing: object) -> None:
    with pytest.raises(ArgumentError, match=f"cannot be taken from a {type(thing).__name__}"):
        gda.init(thing)
