# SPDX-License-Identifier: Apache-2.0
"""The cases of test_proxied.py with kernels on a GPU: rings and the word that they ring lie in pinned host memory."""

from __future__ import annotations

import pytest

from .test_proxied import *  # noqa: F403

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def target() -> str:
    return "gpu"
