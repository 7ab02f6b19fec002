# SPDX-License-Identifier: Apache-2.0
"""Ranks of two hosts: network namespaces, each with a name, processes and a NIC of its own, which meet by TCP alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gda import config
from tests.namespaces import two_namespaces

PROGRAM = """
import os, socket, sys
import numpy as np
import gda
socket.sethostname("gda-host-" + os.environ["GDA_RANK"])
with gda.init(deadline_s=60, connect=sys.argv[1]) as team:
    peer = 1 - team.rank
    assert [one.host for one in team.ranks] == ["gda-host-0", "gda-host-1"], team.ranks
    assert [one.is_here for one in team.ranks] == [team.rank == 0, team.rank == 1]
    team.connect([peer])
    window, signals = team.window(np.full(8, team.rank, np.uint8)), team.signals(1)
    signals.put_signal(peer, 0, window[0:4], window[4:8], deadline_s=30)
    signals.wait_next(0, peer=peer, deadline_s=30)
    print(window.memory.array.tolist(), flush=True)
    team.barrier()
    if team.rank == 0:
        try:
            team.barrier()
        except gda.GdaError as error:  # of another host only the end of its connection is known
            print(type(error).__name__, error.rank, team.lost(), flush=True)
"""


@pytest.fixture
def hosts() -> Iterator[list[list[str]]]:
    """For each host, what runs a command there."""
    if shutil.which("unshare") is None:
        pytest.skip("not run: the command unshare is not installed (apt-get install util-linux)")
    apart = ["unshare", "--uts", "--pid", "--fork", "--mount-proc"]
    with two_namespaces("gdac", ("10.78.0.1/24", "10.78.0.2/24")) as names:
        yield [["ip", "netns", "exec", name, *apart] for name in names]


@pytest.mark.parametrize("connect", ["all", "on_demand"])
def test_two_hosts(hosts: list[list[str]], tmp_path: Path, connect: str) -> None:
    ranks = []
    for number, prefix in enumerate(hosts):
        directory = tmp_path / f"nics-{number}"
        directory.mkdir(mode=0o1777)
        environment = config.environment_of_rank(number, 2, "tcp://10.78.0.1:29400") | {
            "GDA_SIM_ADDRESS": f"10.78.0.{number + 1}", "GDA_SIM_DIRECTORY": str(directory)
        }  # fmt: skip
        command = [*prefix, sys.executable, "-c", PROGRAM, connect]
        ranks.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    said = [one.communicate(timeout=120)[0] for one in ranks]
    assert said == ["[1, 1, 1, 1, 0, 0, 0, 0]\nBootstrapError 1 []\n", "[0, 0, 0, 0, 1, 1, 1, 1]\n"]
