# SPDX-License-Identifier: Apache-2.0
"""The layer `nic` on the software NIC. After every test nothing may be left in it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import gda.nic
from gda import attach


@pytest.fixture(autouse=True)
def software_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_NIC", "software")


@pytest.fixture(scope="session")
def software() -> attach.SoftwareNic:
    return attach.software_nic()


@pytest.fixture
def nic(software: attach.SoftwareNic) -> Iterator[gda.nic.Nic]:
    software.clear_report()
    before = software.objects()
    nic = gda.nic.open()
    yield nic
    nic.close()
    gc.collect()
    assert software.objects() == before
