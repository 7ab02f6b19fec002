# SPDX-License-Identifier: Apache-2.0
"""The commands that the README names, as a newcomer types them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def gda_command(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gda", *arguments],
        capture_output=True, text=True, timeout=timeout, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_demo_shows_every_step_in_order_and_ends_ok() -> None:
    result = gda_command("demo")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.rstrip().splitlines()[-1] == "first put: ok"
    steps = [int(n) for n in re.findall(r"^(\d)\. ", result.stdout, re.M)]
    assert steps == list(range(1, 10))
    for shown in (
        "libibverbs", "send queue (SQ)", "completion queue (CQ)", "doorbell record", "doorbell page (UAR)",
        "MLX5_OPCODE_RDMA_WRITE", "as the NIC saw it", "MLX5_CQE_REQ", "1024 bytes arrived", "1048576 B",
    ):  # fmt: skip
        assert shown in result.stdout, shown


@pytest.mark.parametrize("size", ["0", "1", "4097"])
def test_demo_with_other_sizes(size: str) -> None:
    result = gda_command("demo", "--bytes", size)
    assert result.returncode == 0 and result.stdout.rstrip().endswith("first put: ok"), result.stdout + result.stderr


def test_demo_refuses_a_size_beyond_the_nic() -> None:
    result = gda_command("demo", "--bytes", str(1 << 31))
    assert result.returncode == 1 and "2147483648" in result.stderr


def test_demo_without_a_gpu_says_why_gpu_placement_is_not_to_be_had() -> None:
    if gda_command("demo", "--placement", "gpu").returncode == 0:
        pytest.skip("not run: this machine has a GPU")
    result = gda_command("demo", "--placement", "gpu")
    assert "UnavailableError" in result.stderr and "GPU" in result.stderr


def test_bench_prints_json() -> None:
    result = gda_command("bench", "--json")
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["latency"][0]["bytes"] == 8
    assert all(row["median_ns"] > 0 for row in data["latency"]) and all(row["per_second"] > 0 for row in data["rate"])


def test_help_teaches() -> None:
    assert "demo" in gda_command("--help").stdout
    assert "example: python -m gda sim run -- ibv_devinfo -v" in gda_command("sim", "--help").stdout


def test_sim_run_without_a_program_or_with_an_unknown_one() -> None:
    for arguments in (("sim", "run", "--"), ("sim", "run", "--", "no-such-program")):
        result = gda_command(*arguments)
        assert result.returncode != 0 and "Traceback" not in result.stderr and result.stderr.strip()


def test_a_program_sees_as_many_nics_as_asked_for() -> None:
    if shutil.which("ibv_devices") is None:
        pytest.skip("not run: ibv_devices is not installed (Debian package ibverbs-utils)")
    shown = gda_command("sim", "run", "--nics", "3", "--", "ibv_devices").stdout
    assert re.findall(r"mlx5_\d", shown) and set(re.findall(r"mlx5_\d", shown)) == {"mlx5_0", "mlx5_1", "mlx5_2"}
    refused = gda_command("sim", "run", "--nics", "9", "--", "ibv_devices")
    assert refused.returncode == 1 and "GDA_SIM_NICS='9' is not one of 1, 2" in refused.stderr
