# SPDX-License-Identifier: Apache-2.0
"""Says which field of a work request is wrong, and guesses why. Used by the graders of labs 1 and 3.

A request is an RDMA write of one piece of memory that asks for a completion: 48 bytes.
"""

from __future__ import annotations

from gda import formats

SEGMENTS = (("control segment", "wqe_ctrl_seg", 0), ("remote address segment", "wqe_raddr_seg", 16),
            ("data segment", "wqe_data_seg", 32))  # fmt: skip


def problems_of(request: bytes, values: dict[str, int]) -> list[str]:
    """What is wrong with 48 bytes that should ask for this; `values` as lab 1 names them."""
    problems = []
    wanted = _expected(values)
    for title, name, at in SEGMENTS:
        layout = formats.structs[name]
        fields = layout.unpack(request[at : at + 16])
        for field, right in wanted[name].items():
            got = fields[field]
            if got != right:
                guess = _hint(field, got, right, layout.fields[field].width_bits)
                problems.append(f"{title}: {field} is 0x{got:x}, should be 0x{right:x}{guess}")
    return problems


def _expected(values: dict[str, int]) -> dict[str, dict[str, int]]:
    """What each field must be, by the formats of the project."""
    return {
        "wqe_ctrl_seg": {
            "opmod": 0, "wqe_index": values["index"], "opcode": 0x08, "qp_or_sq": values["qpn"], "ds": 3,
            "signature": 0, "dci_stream_channel_id": 0, "fm": 0, "ce": 2, "se": 0, "imm": 0,
        },
        "wqe_raddr_seg": {"raddr": values["remote_address"], "rkey": values["rkey"]},
        "wqe_data_seg": {"byte_count": values["length"], "lkey": values["lkey"], "addr": values["local_address"]},
    }  # fmt: skip


def _hint(field: str, got: int, right: int, width_bits: int) -> str:
    """A guess at the mistake behind a wrong value."""
    width = max(1, (width_bits + 7) // 8)
    if width > 1 and got == int.from_bytes((right % (1 << 8 * width)).to_bytes(width, "little"), "big"):
        return ": its bytes are reversed; the NIC reads big-endian"
    if field == "ds":
        return ": the length of the whole work request counts 16-byte segments: 48 bytes are 3"
    if field == "ce" and got == 0:
        return ": without the flag 0x08 the NIC writes no completion"
    if got == 0:
        return ": it is not filled in"
    return ""
