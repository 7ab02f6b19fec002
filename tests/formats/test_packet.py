# SPDX-License-Identifier: Apache-2.0
"""cuda/gda/formats/packet.h: golden headers of the InfiniBand specification, both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import quad
from .golden import Record, records


@pytest.mark.parametrize("record", records("packet", "packet.h"))
@pytest.mark.parametrize("check", quad.QUAD, ids=lambda check: check.__name__)
def test_packet(check: Callable[[Record], None], record: Record) -> None:
    check(record)
