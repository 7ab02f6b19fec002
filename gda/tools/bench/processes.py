# SPDX-License-Identifier: Apache-2.0
"""Processes that measure together and the first of which prints JSON. Used by collectives.py and connect.py."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from gda import config
from gda.errors import GdaError

__all__ = ["answer_of", "as_ranks"]

_PATIENCE_S = 600.0


def as_ranks(size: int, module: str, *arguments: str) -> Any:
    """Run `python -m MODULE ARGUMENTS` as the ranks of a program, kernels on the CPU; what rank 0 printed."""
    with tempfile.TemporaryDirectory(prefix="gda-bench-") as place:
        return answer_of([
            subprocess.Popen(
                [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**config.environment_of_rank(rank, size, place), "GDA_TARGET": "host"},
            )
            for rank in range(size)
        ])  # fmt: skip


def answer_of(ranks: Sequence[subprocess.Popen[str]]) -> Any:
    """What the first printed. Raises GdaError with the last line of one that failed."""
    try:
        said = [one.communicate(timeout=_PATIENCE_S) for one in ranks]
    finally:
        for one in ranks:
            one.kill()
    for rank, (one, (_, errors)) in enumerate(zip(ranks, said, strict=True)):
        if one.returncode:
            last = (errors.strip() or "nothing was said").splitlines()[-1]
            raise GdaError(f"rank {rank} of {len(ranks)} ended with {one.returncode}: {last}")
    return json.loads(said[0][0])
