# SPDX-License-Identifier: Apache-2.0
"""Every format of the NIC, read from the headers that C++ and CUDA compile (cuda/gda/formats/*.h, handle.h).

`structs`, `enums` and `layouts` are tables by name; each format, each enum and each constant is also an attribute:
`formats.qpc.pack(st=formats.MLX5_QPC_ST_RC)`. Read once, when first used; nothing here changes afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from gda.formats.command_names import command_name, command_names
from gda.formats.decode import (
    decode_answer,
    decode_command,
    decode_cqe,
    decode_doorbell,
    decode_handle,
    decode_record,
    decode_status,
    decode_wqe,
)
from gda.formats.fields import Field, Struct
from gda.formats.headers import declarations, include_directory
from gda.formats.layout import Layout, Member
from gda.formats.meaning import Meaning, command_status_meaning, opcode_meaning, status_meaning, syndrome_meaning
from gda.formats.packet import aeth_words, decode_packet, packet_parts
from gda.formats.parts import Part, command_parts, handle_parts, sized, wqe_parts
from gda.formats.vendor import vendor_words

__all__ = [
    "Field",
    "Layout",
    "Meaning",
    "Member",
    "Part",
    "Struct",
    "aeth_words",
    "command_name",
    "command_names",
    "command_parts",
    "command_status_meaning",
    "constants",
    "decode_answer",
    "decode_command",
    "decode_cqe",
    "decode_doorbell",
    "decode_handle",
    "decode_packet",
    "decode_record",
    "decode_status",
    "decode_wqe",
    "enums",
    "handle_parts",
    "include_directory",
    "layouts",
    "opcode_meaning",
    "packet_parts",
    "sized",
    "status_meaning",
    "structs",
    "syndrome_meaning",
    "vendor_words",
    "wqe_parts",
]

structs: Mapping[str, Struct]
"""Formats by name, arrangements of bits: `structs["qpc"].pack(pd=7)`. docs/formats.md."""

enums: Mapping[str, type[IntEnum]]
"""Enums of the headers by name: `enums["cqe_opcode"]`."""

layouts: Mapping[str, Layout]
"""Plain C structs that the host fills in for kernels (handle.h), by name: `layouts["gda_qp"]`."""

constants: Mapping[str, IntEnum]
"""Every constant of every enum by name; each knows its enum and its number."""


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
