# SPDX-License-Identifier: Apache-2.0
"""Hostile input: the kept inputs, and a bounded search from them with a fixed seed. Longer: `make fuzz`."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import fuzzer, seeds

RUNS = {"packet": 8000, "command": 3000, "ioctl": 8000}
SECONDS = 25  # of one target, whatever it reached by then


@pytest.fixture(scope="module")
def built() -> None:
    if fuzzer.compiler() is None:
        pytest.skip("not run: apt-get install clang libclang-rt-dev")
    fuzzer.build()


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first build of the instrumented NIC
@pytest.mark.parametrize("target", fuzzer.TARGETS)
def test_hostile_input(built: None, tmp_path: Path, target: str) -> None:
    kept = fuzzer.run(target, tmp_path, "-runs=0")
    assert kept.status == 0, kept.output[-6000:]
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    limits = (f"-runs={RUNS[target]}", f"-max_total_time={SECONDS}")
    found = fuzzer.run(target, tmp_path, *limits, seed=1, corpus=corpus)
    assert found.status == 0, found.output[-6000:]
    assert list(corpus.iterdir()), "the search found nothing new: does the target see its input?"


@pytest.mark.parametrize("target", fuzzer.TARGETS)
def test_the_kept_inputs_are_those_that_are_written(target: str) -> None:
    """A format that changed must not leave inputs behind that reach nothing."""
    made = {"packet": seeds.packets, "command": seeds.commands, "ioctl": seeds.ioctls}[target]()
    for name, data in made.items():
        assert (seeds.CORPUS / target / name).read_bytes() == data, "python -m tests.fuzz.seeds writes it again"
    assert sum(path.stat().st_size for path in (seeds.CORPUS / target).iterdir()) < 32768
