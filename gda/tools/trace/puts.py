# SPDX-License-Identifier: Apache-2.0
"""Which events belong to one request: from its reservation by a kernel to the kernel that knows of its completion.

Kernels name a request by queue pair and 32 bits of its index, the NIC by 16 of them, its peer by the packet sequence
number. The clocks of a GPU and of the NIC are known to a microsecond, so events of one request may seem to have
changed places: a request takes an event whose stage it lacks, whatever came before.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from gda import formats
from gda.tools.trace.events import Array, kind

__all__ = ["PUT", "STAGES", "follow"]

# In the order of a put; each the moment of an event, see docs/one_put.md.
STAGES = ("reserve", "write", "ring", "seen", "fetch", "wire", "peer", "ack", "cqe", "done")

# One request. Moments are nanoseconds, -1 where nothing was noted.
PUT = np.dtype(
    [
        ("qpn", "u4"), ("index", "u4"), ("opcode", "u1"), ("bytes", "u4"), ("lane", "i8"), ("peer_qpn", "u4"),
        ("resent", "u2"), ("syndrome", "u1"), ("refused", "?"), *((stage, "i8") for stage in STAGES),
    ]
)  # fmt: skip

_HALF = 1 << 15
_REQUESTER = (int(formats.MLX5_CQE_REQ), int(formats.MLX5_CQE_REQ_ERR))
_NO_INDEX = int(formats.TRACE_NO_INDEX)


def _covers(upto: int, index: int) -> bool:
    """Whether `index` is one of those up to `upto`, of which 16 bits are known."""
    return (upto - index) & 0xFFFF < _HALF


@dataclass
class _Queue:
    """Requests of one queue pair that wait for something."""

    current: dict[int, int] = field(default_factory=dict)  # index (16 bits) to row
    reserved: dict[int, int] = field(default_factory=dict)  # index to moment
    to_ring: deque[int] = field(default_factory=deque)
    to_poll: deque[int] = field(default_factory=deque)
    seen: deque[tuple[int, int]] = field(default_factory=deque)  # up to which index, when
    sent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=1 << 16))  # first PSN, row
    to_ack: deque[tuple[int, int]] = field(default_factory=deque)


class _Follower:
    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []
        self.queues: defaultdict[int, _Queue] = defaultdict(_Queue)

    def row(self, queue: _Queue, qpn: int, index: int, stage: str) -> int:
        """The request with this index that lacks the stage; a new one if there is none."""
        found = queue.current.get(index & 0xFFFF)
        if found is None or (stage and stage in self.rows[found]):
            if not stage:
                return -1
            found = len(self.rows)
            self.rows.append({"qpn": qpn, "index": index})
            queue.current[index & 0xFFFF] = found
        return found

    def up_to(self, waiting: deque[int], index: int, stage: str, time: int) -> int:
        """All that wait and are covered by `index` have reached the stage; the newest of them, or -1.

        They wait in the order in which they were written, which threads do in any order of their indices.
        """
        newest = -1
        for _ in range(len(waiting)):
            row = waiting.popleft()
            if _covers(index, self.rows[row]["index"]):
                self.rows[row].setdefault(stage, time)
                newest = max(newest, row)
            else:
                waiting.append(row)
        return newest

    # Kinds of events, each: queue, moment and the event's fields; the row it belongs to.

    def reserve(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        for index in range(e["index"], e["index"] + min(e["aux"], _HALF)):
            q.reserved[index & 0xFFFFFFFF] = time
        return -1

    def write(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        row = self.row(q, e["qpn"], e["index"], "write")
        put = self.rows[row]
        put.update(write=time, index=e["index"], lane=e["lane"], opcode=e["opcode"], bytes=e["bytes"])
        reserved = q.reserved.pop(e["index"], None)
        if reserved is not None:
            put["reserve"] = reserved
        q.to_ring.append(row)
        q.to_poll.append(row)
        return row

    def ring(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        return self.up_to(q.to_ring, e["index"], "ring", time)

    def poll(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        return self.up_to(q.to_poll, e["index"], "done", time)

    def done(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        return self.row(q, e["qpn"], e["index"], "")

    def seen(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        q.seen.append((e["index"], time))
        return self.row(q, e["qpn"], e["index"], "")

    def fetch(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        row = self.row(q, e["qpn"], e["index"], "fetch")
        put = self.rows[row]
        put.update(fetch=time, opcode=e["opcode"], bytes=e["bytes"], peer_qpn=e["lane"])
        while q.seen and not _covers(q.seen[0][0], e["index"]):
            q.seen.popleft()
        if q.seen:
            put.setdefault("seen", q.seen[0][1])
        return row

    def send(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        row = self.row(q, e["qpn"], e["index"], "")
        if row < 0:
            return -1
        put = self.rows[row]
        if e["flags"] & int(formats.TRACE_AGAIN):
            put["resent"] = put.get("resent", 0) + 1
        elif "wire" not in put:
            put["wire"] = time
            q.sent.append((e["aux"], row))
            q.to_ack.append((e["aux"], row))
        return row

    def arrive(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        row = self.row(q, e["qpn"], e["index"], "") if e["index"] != _NO_INDEX else self.by_psn(q, e["aux"])
        if row >= 0:
            self.rows[row]["peer"] = time  # the last packet's
        return row

    def refuse(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        row = self.by_psn(q, e["aux"])
        if row >= 0:
            self.rows[row].update(peer=time, refused=1)
        return row

    @staticmethod
    def by_psn(q: _Queue, psn: int) -> int:
        """The request that was sent with this packet sequence number."""
        for first, row in reversed(q.sent):
            if (psn - first) & 0xFFFFFF < 1 << 23:
                return row
        return -1

    def ack(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        newest = -1
        while q.to_ack and (e["aux"] - q.to_ack[0][0]) & 0xFFFFFF < 1 << 23:
            newest = q.to_ack[0][1]
            self.rows[newest]["ack"] = time
            # The last one may be answered in part: it waits for more.
            if len(q.to_ack) == 1 or (e["aux"] - q.to_ack[1][0] + 1) & 0xFFFFFF >= 1 << 23:
                break
            q.to_ack.popleft()
        return newest

    def response(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        row = self.row(q, e["qpn"], e["index"], "")
        # It answers what was sent before, too.
        while q.to_ack and q.to_ack[0][1] != row and (e["aux"] - q.to_ack[0][0]) & 0xFFFFFF < 1 << 23:
            self.rows[q.to_ack.popleft()[1]].setdefault("ack", time)
        if row >= 0:
            self.rows[row]["ack"] = time
        return row

    def cqe(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        if e["opcode"] not in _REQUESTER:
            return -1
        row = self.row(q, e["qpn"], e["index"], "")
        if row >= 0:
            self.rows[row].setdefault("cqe", time)
            self.rows[row]["syndrome"] = e["aux"]
            while q.to_ack and _covers(e["index"], self.rows[q.to_ack[0][1]]["index"]):
                q.to_ack.popleft()
        return row

    def timeout(self, q: _Queue, time: int, e: dict[str, int]) -> int:
        return self.row(q, e["qpn"], e["index"], "")


def follow(events: Array) -> Array:
    """All requests, in the order of their first event; fills in `put` of the events."""
    follower = _Follower()
    names = ("reserve", "write", "ring", "poll", "done", "seen", "fetch", "send", "arrive", "refuse", "ack", "response",
             "cqe", "timeout")  # fmt: skip
    taken = {kind(name.upper()): getattr(follower, name) for name in names}
    fields = ("qpn", "index", "bytes", "aux", "lane", "opcode", "flags")
    columns = [events[name].tolist() for name in fields]
    puts = np.full(len(events), -1, np.int32)
    for number, (what, time, *values) in enumerate(
        zip(events["kind"].tolist(), events["time_ns"].tolist(), *columns, strict=True)
    ):
        take = taken.get(what)
        if take is not None:
            e = dict(zip(fields, values, strict=True))
            puts[number] = take(follower.queues[e["qpn"]], time, e)
    events["put"] = puts
    table = np.zeros(len(follower.rows), PUT)
    for stage in STAGES:
        table[stage] = -1
    table["lane"] = -1
    for row, put in zip(table, follower.rows, strict=True):
        for name, value in put.items():
            row[name] = value
    return table
