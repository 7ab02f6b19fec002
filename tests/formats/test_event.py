# SPDX-License-Identifier: Apache-2.0
"""cuda/gda/formats/event.h: golden entries, both ways, and the kernel as judge of every place and code.

golden_event.txt was written by hand from the manual's figures.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gda import formats

from . import linux_ifc, quad
from .golden import Record, records

HERE = [struct for struct in formats.structs.values() if struct.source.startswith("event.h:")]


@pytest.mark.parametrize("record", records("event", "event.h"))
@pytest.mark.parametrize("check", quad.QUAD, ids=lambda check: check.__name__)
def test_event(check: Callable[[Record], None], record: Record) -> None:
    check(record)


@pytest.mark.parametrize("struct", HERE, ids=lambda s: s.name)
def test_every_field_lies_where_the_kernel_has_it(struct: formats.Struct) -> None:
    size, theirs = linux_ifc.Kernel().struct(struct.name)
    assert size == struct.bits
    for name, field in struct.fields.items():
        width = field.count_bytes * 8 or field.width_bits
        assert theirs[name] == (field.offset_bits, width), name


def test_codes_are_the_kernels() -> None:
    theirs = linux_ifc.enum_values("device.h")
    for member in formats.enums["event_type"]:
        assert theirs[member.name] == member.value
