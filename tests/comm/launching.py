# SPDX-License-Identifier: Apache-2.0
"""Programs under launchers, or as processes of their own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def environment(**more: str) -> dict[str, str]:
    # Ranks that share a GPU would wait for each other's time on it: kernels run on the CPU.
    # MPICH needs none of the rest. Open MPI refuses to run as root, and more ranks than cores, unless it is told.
    told = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMP_NUM_THREADS": "1", "GDA_NIC": "software",
        "GDA_TARGET": "host",
    }  # fmt: skip
    return os.environ | told | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])} | more


def run(command: list[str], program: str, folder: Path, **more: str) -> None:
    """All ranks by one command."""
    path = folder / "program.py"
    path.write_text(program)
    result = subprocess.run(
        [*command, str(path)], env=environment(**more), capture_output=True, text=True, timeout=150, cwd=folder
    )
    assert result.returncode == 0, result.stdout + result.stderr


def run_each(program: str, folder: Path, environments: list[dict[str, str]]) -> None:
    """A process for each, as from shells of their own."""
    ranks = [subprocess.Popen([sys.executable, "-c", program], env=one, cwd=folder) for one in environments]
    try:
        assert [rank.wait(150) for rank in ranks] == [0] * len(ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def beside_python(program: str) -> str | None:
    """A program that pip has put beside this Python, or one on the PATH."""
    return shutil.which(program, path=str(Path(sys.executable).parent)) or shutil.which(program)


def need_mpirun() -> str:
    """Its path."""
    mpirun = beside_python("mpirun")
    if importlib.util.find_spec("mpi4py") is None or mpirun is None:
        pytest.skip("not run: mpi4py or mpirun is not installed")
    return mpirun


def need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not run: torch is not installed")
