# SPDX-License-Identifier: Apache-2.0
"""Each test is a host of its own: its programs meet nobody else's NIC."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import runner


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    """Environment of programs on a host with software NICs."""
    meeting_place = tmp_path / "meet"
    meeting_place.mkdir()
    return runner.environment(meeting_place)
