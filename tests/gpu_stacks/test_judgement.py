# SPDX-License-Identifier: Apache-2.0
"""How `make test-gpu-stacks` judges. The stacks themselves need a GPU and run by that command."""

from __future__ import annotations

from pathlib import Path

import pytest

from .__main__ import main
from .machine import Machine
from .stacks import CASES, Outcome


def outcome(statuses: list[int], *lines: str) -> Outcome:
    made = Outcome(CASES[0], statuses=statuses)
    for line in lines:
        made.read(line)
    return made


def test_values_of_both_processes_count() -> None:
    made = outcome(
        [0, 0],
        '{"process": 0, "check": "puts", "wrong": 0}\nsome other words\n[1, 2]\n{"process": 0, "wrong_values": 0}',
        '{"process": 1, "check": "puts", "wrong": 3}\n{"measure": "put, 8 bytes", "value": 12.5, "unit": "us"}',
    )
    assert made.checks == {"puts": 3}
    assert made.measures == {"put, 8 bytes": (12.5, "us")}
    assert not made.ok


@pytest.mark.parametrize(
    ("statuses", "lines", "ok"),
    [
        ([0, 0], ['{"check": "puts", "wrong": 0}'], True),
        ([0, -9], ['{"check": "puts", "wrong": 0}'], False),  # one did not end
        ([0, 0], [], False),  # nothing was checked
        ([0], ['{"check": "puts", "wrong": 0}'], False),
    ],
)
def test_all_must_be_right(statuses: list[int], lines: list[str], ok: bool) -> None:
    assert outcome(statuses, *lines).ok is ok


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (Machine(gpus=0, compiler="nvcc", nvshmem=Path("/"), nccl=Path("/")), "no NVIDIA GPU"),
        (Machine(gpus=2, compiler=None, nvshmem=Path("/"), nccl=Path("/")), "nvcc"),
        (Machine(gpus=2, compiler="nvcc", nvshmem=None, nccl=None), "nvidia-nvshmem-cu13"),
        (Machine(gpus=2, compiler="nvcc", nvshmem=Path("/nowhere"), nccl=None), "no calls for kernels"),
    ],
)
def test_what_is_missing_is_named(machine: Machine, reason: str) -> None:
    assert reason in machine.missing("nvshmem")


def test_a_machine_without_a_gpu_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("not run: no NVIDIA GPU") == len(CASES)
