# SPDX-License-Identifier: Apache-2.0
"""Every format of the NIC, read from the headers that C++ and CUDA compile (cuda/gda/formats/*.h, handle.h).

`structs`, `enums` and `layouts` are tables by name; each format, each enum and each constant is also an attribute:
`formats.qpc.pack(st=formats.MLX5_QPC_ST_RC)`. Read once, when first used; nothing here changes afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from gda.formats.decode import decode_cqe, decode_doorbell, decode_status, decode_wqe
from gda.formats.fields import Field, Struct
from gda.formats.headers import declarations, include_directory
from gda.formats.layout import Layout, Member
from gda.formats.meaning import Meaning, command_status_meaning, opcode_meaning, status_meaning, syndrome_meaning

__all__ = [
    "Field",
    "Layout",
    "Meaning",
    "Member",
    "Struct",
    "command_status_meaning",
    "constants",
    "decode_cqe",
    "decode_doorbell",
    "decode_status",
    "decode_wqe",
    "enums",
    "include_directory",
    "layouts",
    "opcode_meaning",
    "status_meaning",
    "structs",
    "syndrome_meaning",
]

structs: Mapping[str, Struct]
enums: Mapping[str, type[IntEnum]]
layouts: Mapping[str, Layout]
constants: Mapping[str, IntEnum]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # asked by import machinery and inspect: no reason to read the headers
        raise AttributeError(f"module 'gda.formats' has no attribute {name!r}")
    found = declarations()
    if name in ("structs", "enums", "layouts", "constants"):
        return getattr(found, name)
    for table in (found.structs, found.constants, found.enums, found.layouts):
        if name in table:
            return table[name]
    raise AttributeError(f"gda.formats declares no format, enum or constant {name!r}")


def __dir__() -> list[str]:
    found = declarations()
    return sorted({*__all__, *found.structs, *found.enums, *found.layouts, *found.constants})
