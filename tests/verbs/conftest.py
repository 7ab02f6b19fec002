# SPDX-License-Identifier: Apache-2.0
"""Raw verbs run against the software NIC: no hardware is touched, whatever the machine has."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gda import _verbs, attach


@pytest.fixture(scope="session")
def software() -> attach.SoftwareNic:
    return attach.software_nic()


@pytest.fixture
def context(software: attach.SoftwareNic) -> Iterator[_verbs.Context]:
    """An open context; when the test is over, nothing of it may be left in the NIC."""
    before = software.objects()
    context = _verbs.mlx5dv_open_device(_verbs.ibv_get_device_list()[0].name, _verbs.MLX5DV_CONTEXT_FLAGS_DEVX)
    yield context
    gc.collect()
    context.close()
    assert software.objects() == before


@pytest.fixture
def pd(context: _verbs.Context) -> Iterator[_verbs.PD]:
    pd = _verbs.ibv_alloc_pd(context)
    yield pd
    gc.collect()
    pd.close()


@pytest.fixture
def cqs(context: _verbs.Context) -> Iterator[list[_verbs.CQ]]:
    """For sends and for receives."""
    cqs = [_verbs.ibv_create_cq(context, 64) for _ in range(2)]
    yield cqs
    for cq in cqs:
        cq.close()
