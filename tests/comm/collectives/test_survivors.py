# SPDX-License-Identifier: Apache-2.0
"""A rank is killed in an all-reduce: the others name it within the deadline, close, and go on as a smaller team."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gda import config
from gda.comm.arguments import CALL_S
from gda.comm.collectives.reduce import instance_of
from gda.comm.kernels import kernels_of

DYING = """
import os, signal, sys, threading, time
import numpy as np
import gda
protocol = sys.argv[1]
with gda.init(deadline_s=60) as team:
    array = np.ones(1 << 16, np.float32)
    reduce = team.all_reduce(array, algorithm="ring", protocol=protocol)
    reduce(deadline_s=60)
    assert (array == 4).all()
    team.barrier()
    if team.rank == 2:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
    begin = time.monotonic()
    try:
        while True:
            array[:] = 1
            reduce(deadline_s=3)
    except gda.GdaError as error:
        print(type(error).__name__, error.rank, error.pid == team.ranks[2].pid, time.monotonic() - begin < 40)
    carrier = team.without([2])
with gda.init(carrier, deadline_s=60) as team:
    array = np.full(1000, 1 << team.rank, np.int32)
    team.all_reduce(array, algorithm="doubling", protocol=protocol)(deadline_s=60)
    print("three go on:", team.rank, team.size, set(array.tolist()))
    team.barrier()
"""


@pytest.mark.parametrize("protocol", ["simple", "ll128"])
def test_a_killed_rank_is_named_by_all_and_three_go_on(tmp_path: Path, protocol: str) -> None:
    for instance in (  # compiled once, not by each process
        instance_of("all_reduce_ring", protocol, "float32", "sum"),
        instance_of("all_reduce_doubling", protocol, "int32", "sum"),
    ):
        kernels_of("reduce", instance, target="host")
    command = [sys.executable, "-c", DYING, protocol]
    places = [config.environment_of_rank(rank, 4, str(tmp_path)) for rank in range(4)]
    ranks = [subprocess.Popen(command, env=place, stdout=subprocess.PIPE, text=True) for place in places]
    said = [one.communicate(timeout=180)[0] for one in ranks]
    left = [said[rank] for rank in (0, 1, 3)]
    assert left == [f"PeerLostError 2 True True\nthree go on: {rank} 3 {{7}}\n" for rank in range(3)]
    assert [ranks[rank].returncode for rank in (0, 1, 3)] == [0, 0, 0]


# Nobody gives a deadline: it is by the end of its process that a rank is known, as soon whatever waits for it.
ENDING = """
import os, signal, sys, threading, time
import numpy as np
import gda
which = sys.argv[1]
with gda.init(deadline_s=60) as team:
    array = np.ones(3 << 10, np.float32)
    if which == "barrier":
        call = team.device_barrier().arrive
    elif which == "all_gather":
        call = team.all_gather(array)
    else:
        call = team.all_reduce(array, algorithm="ring", protocol=which)
    call()
    team.barrier()
    if team.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        while True:
            call()
    except gda.errors.PeerLostError as error:
        print(error.rank, time.monotonic() - begin < 20)
"""


@pytest.mark.parametrize("which", ["barrier", "all_gather", "simple", "ll"])
def test_a_killed_rank_is_named_long_before_the_default_deadline(tmp_path: Path, which: str) -> None:
    assert CALL_S >= 30
    if which in ("simple", "ll"):
        kernels_of("reduce", instance_of("all_reduce_ring", which, "float32", "sum"), target="host")
    places = [config.environment_of_rank(rank, 3, str(tmp_path)) for rank in range(3)]
    command = [sys.executable, "-c", ENDING, which]
    ranks = [subprocess.Popen(command, env=place, stdout=subprocess.PIPE, text=True) for place in places]
    said = [one.communicate(timeout=120)[0] for one in ranks]
    assert (said[0], said[2]) == ("1 True\n", "1 True\n")
