# SPDX-License-Identifier: Apache-2.0
"""message_cases.py with kernels on the CPU."""

from __future__ import annotations

import pytest

from .message_cases import *  # noqa: F403


@pytest.fixture(scope="module")
def target() -> str:
    return "host"
