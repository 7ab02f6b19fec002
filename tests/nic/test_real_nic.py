# SPDX-License-Identifier: Apache-2.0
"""One put by hand on a real card, in a process of its own: here the software NIC hides real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SCRIPT = """
import gda
from gda import formats
from by_hand import completion, post, write_request
with gda.open() as nic:
    assert not nic.is_software
    print(nic.description)
    source, target = nic.allocate(4096), nic.allocate(4096)
    source.write(0, bytes(range(256)) * 16)
    kinds = [True, False] if nic.capabilities.send_dbr_mode_no_dbr_ext else [True]
    for record in kinds:
        for kind in ("collapsed", "ring"):
            target.write(0, bytes(4096))
            a, b = nic.loopback_pair(depth=8, record=record, completion=kind)
            for index in range(20):
                post(a, index, write_request(a, index, source, target, 4096))
                assert completion(a, index)["opcode"] == formats.MLX5_CQE_REQ
            assert target.read(0, 4096) == source.read(0, 4096)
            post(a, 20, write_request(a, 20, source, target, 8, rkey=target.rkey ^ 0x5500))
            assert completion(a, 20)["syndrome"] == formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR
            assert a.state == "ERR"
            a.reset()
            b.reset()
            a.connect(b.info)
            b.connect(a.info)
            assert a.state == "RTS"
print("real card: ok")
"""


def run(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.nic
def test_put_by_hand_on_a_real_card() -> None:
    environment = {**os.environ, "GDA_NIC": "real", "PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{HERE}"}
    result = run(SCRIPT, environment)
    assert result.returncode == 0 and result.stdout.endswith("real card: ok\n"), result.stdout + result.stderr


def test_the_same_script_on_the_software_nic() -> None:
    environment = {**os.environ, "GDA_NIC": "software", "PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{HERE}"}
    script = SCRIPT.replace("assert not nic.is_software", "assert nic.is_software")
    result = run(script, environment)
    assert result.returncode == 0 and result.stdout.endswith("real card: ok\n"), result.stdout + result.stderr
