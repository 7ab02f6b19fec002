# SPDX-License-Identifier: Apache-2.0
"""The cases of doorbells, operations, signals, pieces, scopes and unreliable transports with kernels on the CPU."""

from __future__ import annotations

import pytest

from .doorbell_cases import *  # noqa: F403
from .operation_cases import *  # noqa: F403
from .scope_cases import *  # noqa: F403
from .signal_cases import *  # noqa: F403
from .strided_cases import *  # noqa: F403
from .unreliable_cases import *  # noqa: F403


@pytest.fixture(scope="module")
def target() -> str:
    return "host"


@pytest.fixture
def placement() -> str:
    return "host"
