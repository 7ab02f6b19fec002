# SPDX-License-Identifier: Apache-2.0
"""Says why a queue pair does not do what it should: `print(*gda.diagnose(qp), sep="\n")`. Called by people.

Evidence: QUERY_QP, the first error completion, the address table and link of the port, what the NIC counted since
connect(), and on the software NIC its sentences. Reads only. The most telling finding comes first: a cause that was
seen before a cause that is possible, that before a symptom.
Source: InfiniBand Architecture Specification, volume 1, "Error Handling"; annex A17 (RoCE v2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gda import attach, formats
from gda.errors import ArgumentError, UnavailableError
from gda.nic import Gid, QueuePair
from gda.tools.causes import stuck
from gda.tools.finding import CAUSE, COUNTED, LIKELY, SAID, SYMPTOM, Finding
from gda.tools.live import live

__all__ = ["Finding", "diagnose"]

_FLUSHED, _RETRIES, _RNR_RETRIES = 0x05, 0x15, 0x16  # syndromes: the first is a consequence, the others have causes
_FIRST_TIMEOUT_US = 4.096  # times 2^ack_timeout


def diagnose(queue: QueuePair, peer: QueuePair | None = None) -> list[Finding]:
    """What is wrong with a queue pair, the most telling finding first; never empty.

    `peer` is the queue pair at the other end if it is in this process, too. Counters are those of the NIC since
    connect(): other queue pairs' packets are among them. A card does not show all of it; the last finding says what.
    """
    for one in (queue, peer):
        if one is not None and not isinstance(one, QueuePair):
            raise ArgumentError(f"cannot diagnose {type(one).__name__}", "give a queue pair")
    found = list(_of_one(queue))
    if peer is not None:
        mine = {finding.headline for finding in found}
        elsewhere = peer.nic.port_name != queue.nic.port_name  # then it has counters of its own
        others = [f for f in _of_one(peer, counters=elsewhere) if f.headline not in mine]
        found += [
            Finding(f"at the peer: {f.headline}", f.meaning, f.advice, f.values, f.rank - 1) for f in others if f.rank
        ]
    found.sort(key=lambda finding: -finding.rank)
    if not found:
        found.append(Finding("nothing wrong is visible", "it is connected, ready to send, and nothing was repeated"))
    if attach.loaded() is None:
        found.append(
            Finding(
                "not visible on a card", "packets that were dropped for their size, address or version, in the network",
                "ethtool -S of the network device, the switch's counters, the peer's diagnosis",
            )
        )  # fmt: skip
    return found


def _of_one(queue: QueuePair, counters: bool = True) -> Iterator[Finding]:
    context = queue.context()
    yield from _state(queue)
    yield from _error(queue, context)
    yield from _addresses(queue, context)
    yield from _path_mtu(queue, context)
    if counters and queue.remote is not None:
        yield from _counted(queue, context)
    yield from _said(queue)
    yield from _standing_still(queue)


def _standing_still(queue: QueuePair) -> Iterator[Finding]:
    # Where its requests are, by what lies in memory (live.py).
    try:
        seen = live(watched_s=0.01)
        yield from stuck(seen.queue(queue.qpn), seen)
    except UnavailableError:  # a sandbox that forbids to read one's own memory so
        return


def _state(queue: QueuePair) -> Iterator[Finding]:
    meaning = {
        "RST": ("it is not connected: nothing is sent, and what arrives is dropped", "connect() both sides"),
        "INIT": ("it is half connected", "reset() it and connect again"),
        "RTR": ("it receives but does not send", "reset() it and connect again"),
        "ERR": ("it failed: nothing more is sent, and what is posted is flushed", "mend the cause; reset(), connect()"),
        "SQER": ("its send queue failed", "mend the cause; reset(), connect()"),
        "SQD": ("its send queue is drained and waits", "move it to ready-to-send"),
    }.get(queue.state)
    if meaning is not None:
        rank = LIKELY + 90 if queue.state in ("RST", "INIT", "RTR", "SQD") else SYMPTOM + 90
        yield Finding(f"state {queue.state}", *meaning, {"queue pair": f"0x{queue.qpn:06x}"}, rank)
    if queue.nic.port_state != "ACTIVE":
        yield Finding(
            f"port {queue.nic.port.number} of {queue.nic.name} is {queue.nic.port_state}",
            "packets go nowhere while the port has no link", "look at the cable and the network device (ip link)",
            rank=CAUSE + 85,
        )  # fmt: skip


def _error(queue: QueuePair, context: dict[str, Any]) -> Iterator[Finding]:
    # What device code latched is the first error; a ring may still hold it for those who post by hand.
    latched = formats.decode_status(int(queue.read_handle()["error"]))
    if not latched["ok"] and not latched["syndrome"]:  # a deadline, a full queue: the library's words, not the NIC's
        values: dict[str, int | str] = {"request": latched["wqe_index"]}
        yield Finding(latched["words"], latched["meaning"], latched["advice"], values, SYMPTOM + 80)
        return
    errors = list(_error_completions(queue))
    if not latched["ok"]:
        errors.insert(0, (latched["syndrome"], latched["vendor_error_syndrome"], latched["wqe_index"]))
    if not errors:
        return
    syndrome, vendor, index = next((e for e in errors if e[0] != _FLUSHED), errors[0])
    values = {"request": index, "vendor syndrome": f"0x{vendor:02x}"}
    if syndrome == _RETRIES:
        sends, timeout = 1 + int(context["retry_count"]), int(context["primary_address_path"]["ack_timeout"])
        values["gave up after"] = f"{sends} sends, {sends * _FIRST_TIMEOUT_US * 2**timeout / 1e6:.3g} s"
    meaning = formats.syndrome_meaning(syndrome)
    vague = syndrome in (_FLUSHED, _RETRIES, _RNR_RETRIES)
    yield Finding(
        f"first error: {meaning.words} (0x{syndrome:02x})", meaning.text, meaning.advice, values,
        SYMPTOM + 95 if vague else CAUSE + 99,
    )  # fmt: skip


def _error_completions(queue: QueuePair) -> Iterator[tuple[int, int, int]]:
    # Syndrome, vendor's syndrome and request of each error completion that is still in a ring.
    entries = [queue.read_cqe(slot) for slot in range(1 if queue.is_collapsed else queue.depth)]
    entries += [queue.read_receive_cqe(slot) for slot in range(queue.receive_depth)]
    for cqe in entries:
        if formats.cqe64.get(cqe, "opcode") in (formats.MLX5_CQE_REQ_ERR, formats.MLX5_CQE_RESP_ERR):
            error = formats.err_cqe.unpack(cqe)
            yield int(error["syndrome"]), int(error["vendor_error_syndrome"]), int(error["wqe_counter"])


def _addresses(queue: QueuePair, context: dict[str, Any]) -> Iterator[Finding]:
    own, remote = queue.gid, queue.remote
    if own is None or remote is None:
        return
    version = {"RoCE v1": 1, "RoCE v2": 2}.get(own.type, 0)
    if version and remote.roce_version and version != remote.roce_version:
        yield Finding(
            f"RoCE v{version} against v{remote.roce_version}",
            "the ends were connected with GIDs of different types: each side's packets mean nothing to the other",
            "leave gid_index out on both sides, or choose entries of the same type",
            {
                "GID index": own.index, "own type": own.type, "peer's type": f"RoCE v{remote.roce_version}",
                "peer": f"0x{remote.qpn:06x}",
            },
            CAUSE + 75,
        )  # fmt: skip
    now = next((g for g in queue.nic.gids if g.index == own.index), None)
    if now is None or (now.raw, now.type) != (own.raw, own.type):
        again = [g.index for g in queue.nic.gids if (g.raw, g.type) == (own.raw, own.type)]
        where = f"; the address is now at {again[0]}" if again else "; the address is gone"
        yield Finding(
            f"GID index {own.index} {'is empty' if now is None else f'holds {_words(now)}'}{where}",
            f"it was connected from {_words(own)}: the network changed since, and packets from and to it are lost",
            "make a new queue pair, exchange its info, and connect again",
            {"GID index": own.index}, CAUSE + 76,
        )  # fmt: skip


def _words(gid: Gid) -> str:
    return f"{gid} ({gid.type})"


def _path_mtu(queue: QueuePair, context: dict[str, Any]) -> Iterator[Finding]:
    mtu, active = int(context["mtu"]), queue.nic.active_mtu
    far = queue.remote.mtu if queue.remote is not None else mtu
    for whose, carried in (("the link carries", active), ("the peer's link carries", far)):
        if queue.remote is not None and mtu > carried:
            yield Finding(
                f"path MTU {128 << mtu}, but {whose} {128 << carried}",
                "requests longer than a packet of that size are lost; shorter ones pass",
                "connect again without path_mtu, or raise the network device's MTU on every hop",
                {"path_mtu": 128 << mtu, "active_mtu": 128 << carried}, CAUSE + 60,
            )  # fmt: skip


def _counted(queue: QueuePair, context: dict[str, Any]) -> Iterator[Finding]:
    since = queue.counters()
    for row in COUNTED:
        count = since.get(row.counter, 0)
        values: dict[str, int | str] = {row.counter: count}
        if row.counter == "packets_over_link_mtu":
            values |= {"path_mtu": 128 << int(context["mtu"]), "active_mtu": 128 << queue.nic.active_mtu}
        if count:
            yield Finding(f"{row.headline}: {count}", row.meaning, row.advice, values, row.rank)


def _said(queue: QueuePair) -> Iterator[Finding]:
    software = attach.loaded()
    if software is None:
        return
    names = [f"0x{queue.qpn:06x}", *([f"0x{queue.remote.qpn:06x}"] if queue.remote is not None else [])]
    for order, sentence in enumerate(software.report()):
        if any(name in sentence for name in names):
            yield Finding(sentence, "the software NIC says so", rank=SAID + 99 - min(order, 99))
