# SPDX-License-Identifier: Apache-2.0
"""cuda/gda/formats/command.h: golden commands, set by DEVX_SET in the structs of the kernel, both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import quad
from .golden import Record, records


@pytest.mark.parametrize("record", records("command", "command.h"))
@pytest.mark.parametrize("check", quad.QUAD, ids=lambda check: check.__name__)
def test_command(check: Callable[[Record], None], record: Record) -> None:
    check(record)
