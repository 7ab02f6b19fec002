# SPDX-License-Identifier: Apache-2.0
"""What the software NIC is told while kernels run on a GPU; no GPU is needed to see it."""

from __future__ import annotations

import pytest

from gda import attach
from gda.errors import UnavailableError
from gda.run import Kernel, cuda

from .fake_nic import FakeNic


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> FakeNic:
    fake = FakeNic()
    monkeypatch.setattr(attach, "loaded", lambda: fake)
    return fake


def test_engine_spins_while_kernels_run(nic: FakeNic) -> None:
    first, second = cuda.NicHelper(0.1, 0.99), cuda.NicHelper(0.1, 0.99)
    first.begin()
    second.begin()
    first.end()
    assert nic.told == [("thread", "busy")]
    second.end()
    second.end()
    assert nic.told == [("thread", "busy"), ("thread", "adaptive")]


def test_copies_are_staged_while_the_gpu_is_full(nic: FakeNic) -> None:
    small, large, full = (cuda.NicHelper(share, 0.99) for share in (0.4, 0.7, 2.0))
    small.begin()
    assert ("staging", True) not in nic.told
    large.begin()
    assert nic.told[-1] == ("staging", True), "two that fill it together"
    small.end()
    assert nic.told[-1] == ("staging", False)
    full.begin()
    assert nic.told[-1] == ("staging", True)
    large.end()
    assert nic.told[-1] == ("staging", True)
    full.end()
    assert nic.told[-2:] == [("thread", "adaptive"), ("staging", False)]


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "why_no_gpu", lambda: "the CUDA driver sees no device")
    with pytest.raises(UnavailableError, match=r"no GPU to run kernels on: the CUDA driver.*\n.*target=\"host\""):
        Kernel("__global__ void k() {}", target="gpu")
    assert not cuda.gpu_available()
    monkeypatch.setenv("GDA_TARGET", "auto")
    assert Kernel("__global__ void k() {}").target == "host"
    monkeypatch.setenv("GDA_TARGET", "gpu")
    with pytest.raises(UnavailableError):
        Kernel("__global__ void k() {}")
