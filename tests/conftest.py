# SPDX-License-Identifier: Apache-2.0
"""What a machine lacks is reported as not run, with its reason; never as passed."""

from __future__ import annotations

import os
import shutil

import pytest

# Workers of pytest-xdist have NICs of their own: what one does is not seen by another.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ["GDA_SIM_DIRECTORY"] = f"/dev/shm/gda-tests-{worker}-{os.getpid()}"


def pytest_unconfigure() -> None:
    if worker:
        shutil.rmtree(os.environ["GDA_SIM_DIRECTORY"], ignore_errors=True)


def _why_no_gpu() -> str:
    """Empty when tests of the GPU tier can run here."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        return "" if cupy.cuda.runtime.getDeviceCount() else "no CUDA GPU"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA GPU ({error})"


def _why_no_nic() -> str:
    """Empty when tests of the NIC tier can run here."""
    from pathlib import Path

    root = Path("/sys/class/infiniband")
    return "" if root.is_dir() and any(p.name.startswith("mlx5") for p in root.iterdir()) else "no mlx5 NIC"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker, reason in (("gpu", _why_no_gpu), ("nic", _why_no_nic)):
        marked = [item for item in items if item.get_closest_marker(marker)]
        if marked and (why := reason()):
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=f"not run: {why}"))
