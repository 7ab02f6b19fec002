# SPDX-License-Identifier: Apache-2.0
"""The text of `python -m gda live`: what live.py saw, and what causes.py makes of it."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from gda import formats
from gda.tools.finding import Finding

if TYPE_CHECKING:
    from gda.tools.live import Live, LiveNic, LiveQueue

__all__ = ["causes_text", "live_text"]

_SHOWN_QUEUES = 64


def live_text(seen: Live, found: list[Finding]) -> str:
    """Everything, for people."""
    lines = [f"process {seen.pid}{' (stopped)' if seen.stopped else ''}: {seen.command}"]
    lines += [f"  kernel {k.name} runs on {k.where} since {k.seconds:.1f} s" for k in seen.kernels]
    for nic in seen.nics:
        lines += _nic(nic)
    for queue in seen.queues[:_SHOWN_QUEUES]:
        lines += _queue(queue)
    if len(seen.queues) > _SHOWN_QUEUES:
        lines.append(f"and {len(seen.queues) - _SHOWN_QUEUES} more queue pairs")
    return "\n".join([*lines, causes_text(found)])


def causes_text(found: list[Finding]) -> str:
    """The likely causes, numbered."""
    lines = ["likely causes, the most telling first:"]
    lines += [f"  {n}. " + str(finding).replace("\n", "\n   ") for n, finding in enumerate(found, 1)]
    return "\n".join(lines)


def _nic(nic: LiveNic) -> list[str]:
    how = "sleeps until somebody wakes it" if nic.sleeps else "moves" if nic.moves else "stands still"
    lines = [f"{nic.name}: software ConnectX, thread {nic.thread}, {how}"]
    counted = {name: value for name, value in nic.counters.items() if value}
    if counted:
        lines.append("  counted: " + ", ".join(f"{name} {value}" for name, value in counted.items()))
    return lines + [f"  it says: {sentence}" for sentence in nic.complaints]


def _queue(queue: LiveQueue) -> list[str]:
    name = f"queue pair 0x{queue.qpn:06x} of {queue.nic} port {queue.port}"
    lines = [f"{name}: {queue.transport}, {queue.state or 'state ?'}"]
    if queue.remote is not None:
        number, gid = queue.remote
        lines.append(f"  peer: 0x{number:06x} at {_address(gid)}: {queue.peer or 'not looked for'}")
    if queue.reserved is not None:
        names = ("reserved", "ready", "rung", "done")
        lines.append("  kernels: " + ", ".join(f"{name} {queue.member(name)}" for name in names))
    if queue.told is not None:
        lines.append(
            f"  NIC: told {queue.told}, fetched {queue.fetched}, completed {queue.completed}; packets not sent "
            f"{queue.unsent}, not answered {queue.unanswered}; completions written {queue.written}"
        )
    record = "none" if queue.record is None else str(queue.record)
    lines.append(f"  doorbell record {record}" + (f", register holds {queue.register:#018x}" if queue.register else ""))
    if queue.handle and queue.handle["error"]:
        lines.append(f"  first error that a kernel saw: {formats.decode_status(int(queue.handle['error']))['text']}")
    for index, wqe in queue.wqes:
        if any(wqe) and wqe != b"\xff" * len(wqe):
            mark = " (the next)" if index == queue.posted else ""
            lines.append(f"  slot {index % queue.depth}{mark}: {formats.decode_wqe(wqe).splitlines()[0]}")
    lines += [f"  completion in slot {slot}: {formats.decode_cqe(entry).splitlines()[0]}" for slot, entry in queue.cqes]
    return lines + [f"  not visible: {note}" for note in queue.notes]


def _address(gid: bytes) -> str:
    address = ipaddress.IPv6Address(gid)
    return str(address.ipv4_mapped or address)
