# SPDX-License-Identifier: Apache-2.0
"""What a work request asks for, read back from its send queue: for the exception that tells of its failure.

Used by queue.py; gda.run asks for it by the protocol `__gda_explain__(qpn, wqe_index)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gda import formats, present
from gda.errors import GdaError
from gda.formats import wqe_parts

if TYPE_CHECKING:
    from gda.nic.queue import QueuePair
    from gda.nic.visible import Visible

__all__ = ["ends", "explain"]


def explain(queue: Visible, qpn: int, wqe_index: int) -> dict[str, Any] | None:
    """Operation and ranges of a request; None for another queue pair's, or when its slot holds another by now.

    Keys: `operation` (words), `local` (address, bytes, lkey) and `remote` (address, bytes, rkey), each None where the
    request has none; `local` is its first piece of memory, and of inline data the address is 0.
    """
    if qpn != queue.qpn:
        return None
    try:
        parts = wqe_parts(queue.read_wqe(wqe_index))
    except GdaError:  # closed, or what lies there is no request
        return None
    control = formats.structs["wqe_ctrl_seg"].unpack(parts[0].data)
    if (control["qp_or_sq"], control["wqe_index"]) != (qpn, wqe_index):
        return None
    remote, local, total = None, None, 0
    for part in parts[1:]:
        if not isinstance(part.format, formats.Struct):
            continue
        name, fields = part.format.name, part.format.unpack(part.data)
        if name == "wqe_raddr_seg":
            remote = (int(fields["raddr"]), int(fields["rkey"]))
        elif name == "wqe_data_seg":
            local = local or (int(fields["addr"]), int(fields["byte_count"]), int(fields["lkey"]))
            total += int(fields["byte_count"])
        elif name == "wqe_inline_seg":
            local = local or (0, int(fields["byte_count"]), 0)
            total += int(fields["byte_count"])
    return {
        "operation": formats.opcode_meaning(control["opcode"]).words,
        "local": local,
        "remote": (remote[0], total, remote[1]) if remote else None,
    }


def ends(queue: QueuePair) -> str:
    """The states of a queue pair and of its peer, as far as this process knows, for an exception; "" when closed."""
    try:
        text = f"queue pair 0x{queue.qpn:x} is in {queue.state}"
        remote = queue.remote
        if remote is None:
            return f"{text}, not connected"
        for other in present.owners():
            if other.qpn == remote.qpn and other.gid is not None and other.gid.raw == remote.gid:
                return f"{text}, its peer 0x{remote.qpn:x} in {other.state}"
    except GdaError:
        return ""
    return f"{text}, its peer 0x{remote.qpn:x} is not in this process (python -m gda live looks for it)"
