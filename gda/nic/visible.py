# SPDX-License-Identifier: Apache-2.0
"""What people may see and do by hand of a queue pair's memory: rings, records, doorbell. The base of queue.QueuePair.

Everything here is for looking and teaching; nothing of it runs when kernels send. Formats: gda.formats.
"""

from __future__ import annotations

from typing import Any

from gda import _verbs, formats, present
from gda.errors import ArgumentError
from gda.nic.carrier import Carrier
from gda.nic.handle import Handle
from gda.nic.lifetime import Owner
from gda.nic.rings import CQ_RECORD, RECEIVE_CQ_RECORD, RECEIVE_WORD, SEND_WORD, Rings

__all__ = ["Visible"]

_BLOCK = int(formats.WQE_BASIC_BLOCK_BYTES)
_SEGMENT = int(formats.WQE_SEGMENT_BYTES)
_CQE = int(formats.CQE_BYTES)


class Visible(Owner):
    """The parts of a queue pair in memory, read and written one by one."""

    depth: int
    receive_depth: int
    has_record: bool
    is_collapsed: bool
    qpn: int
    _cq_entries: int
    _rings: Rings
    _carrier: Carrier
    _handle: Handle
    _shown: present.Place | None = None
    _shown_handle = 0

    # ------------------------------------------------------------------------------------------- for those outside
    def _show(self) -> None:
        """Tell those who look at this process where everything lies now (gda/present.py)."""
        remote = self.remote  # type: ignore[attr-defined]
        gid = self.gid  # type: ignore[attr-defined]
        self._shown_handle = self._handle.slab.address
        before = {name: count for name, count in self._counters_before.items() if count}  # type: ignore[attr-defined]
        facts = {
            "qpn": self.qpn,
            "nic": self.nic.name,  # type: ignore[attr-defined]
            "port": self.nic.port.number,  # type: ignore[attr-defined]
            "transport": self.transport,  # type: ignore[attr-defined]
            "depth": self.depth,
            "receive_depth": self.receive_depth,
            "collapsed": self.is_collapsed,
            "parts": self.where(),
            "gid": gid.raw.hex() if gid is not None else "",
            "remote": [remote.qpn, remote.gid.hex()] if remote is not None else None,
            "counters": before,  # of the port, when it was connected
        }
        if self._shown is None:
            self._shown = present.put(facts, self)
            self._resources.callback(self._shown.drop)
        else:
            self._shown.update(facts)

    # --------------------------------------------------------------------------------------------------------- look
    def where(self) -> dict[str, tuple[str, int, int]]:
        """Where each part lies: (kind, address, bytes). Kinds: "host", "gpu", and "uar" for the doorbell register.

        A queue pair with receives has "rq", "receive_cq", "receive_record" and "receive_cq_record" too.
        """
        self._resources.check()
        rings, handle = self._rings, self._handle
        parts = {part: (rings.kind(part), rings.address(part), rings.bytes(part)) for part in ("sq", "cq")}
        kind, records = rings.kind("records"), rings.address("records")
        if self.has_record:
            parts["record"] = (kind, records, formats.qp_doorbell_record.bytes)
        parts["cq_record"] = (kind, records + CQ_RECORD, formats.cq_doorbell_record.bytes)
        if self.receive_depth:
            parts |= {part: (rings.kind(part), rings.address(part), rings.bytes(part)) for part in ("rq", "receive_cq")}
            parts["receive_record"] = (kind, records + RECEIVE_WORD, 4)
            parts["receive_cq_record"] = (kind, records + RECEIVE_CQ_RECORD, formats.cq_doorbell_record.bytes)
        kind = "uar" if self._carrier.page_type else "host"
        parts["doorbell"] = (kind, self._carrier.register, formats.send_doorbell.bytes)
        parts["handle"] = (handle.slab.kind, handle.slab.address, handle.bytes)
        return parts

    def copy_part(self, part: str, offset: int, bytes: int) -> bytes:
        """Bytes of a part that where() names, wherever it lies; from GPU memory on a stream of its own."""
        self._resources.check()
        if part == "handle":
            return self._handle.slab.read(offset, bytes)
        of, at = {"record": ("records", 0), "cq_record": ("records", CQ_RECORD)}.get(part, (part, 0))
        return self._rings.read(of, at + offset, bytes)

    @property
    def doorbell_page(self) -> str:
        """Type of the doorbell page: "NC_DEDICATED", "BF" or "NC"; "" where a word in memory stands for it."""
        return self._carrier.page_type

    def read_handle(self) -> dict[str, Any]:
        """The gda_qp in memory, members by name (the nested gda_cq as a dict)."""
        self._resources.check()
        return self._handle.read()

    def read_wqe(self, index: int) -> bytes:
        """The 64 bytes of a basic block, by its ever-growing index."""
        self._resources.check()
        return self._rings.read("sq", index % self.depth * _BLOCK, _BLOCK)

    def read_cqe(self, slot: int = 0) -> bytes:
        """The 64 bytes of a completion entry."""
        self._resources.check()
        if not 0 <= slot < self._cq_entries:
            raise ArgumentError(f"completion slot {slot} is outside 0..{self._cq_entries - 1}")
        return self._rings.read("cq", slot * _CQE, _CQE)

    def read_receive(self, index: int) -> bytes:
        """The 16 bytes of a posted receive (format wqe_data_seg), by its ever-growing index."""
        self._check_receives()
        return self._rings.read("rq", index % self.receive_depth * _SEGMENT, _SEGMENT)

    def read_receive_cqe(self, slot: int = 0) -> bytes:
        """The 64 bytes of an entry of the receives' completion ring."""
        self._check_receives()
        if not 0 <= slot < self.receive_depth:
            raise ArgumentError(f"completion slot {slot} is outside 0..{self.receive_depth - 1}")
        return self._rings.read("receive_cq", slot * _CQE, _CQE)

    def read_receive_record(self) -> int:
        """The receive counter in the doorbell record (modulo 2^16)."""
        self._check_receives()
        record = formats.qp_doorbell_record
        return int(record.get(self._rings.read("records", 0, record.bytes), "receive_counter"))

    def read_record(self) -> int | None:
        """The send counter in the doorbell record (modulo 2^16); None for a queue without record."""
        self._resources.check()
        if not self.has_record:
            return None
        record = formats.qp_doorbell_record
        return int(record.get(self._rings.read("records", 0, record.bytes), "send_counter"))

    def _completions_written(self, part: str, index: int) -> int:
        """How many completions the NIC has ever written to a ring: those before `index`, and what follows it."""
        entries, entry = self._rings.bytes(part) // _CQE, formats.cqe64
        for _ in range(entries):
            cqe = self._rings.read(part, index % entries * _CQE, _CQE)
            lap = index // entries % 2
            if entry.get(cqe, "opcode") == formats.MLX5_CQE_INVALID or entry.get(cqe, "owner") != lap:
                break
            index += 1
        return index

    def _arrivals_written(self) -> int:
        """The same for the ring of receives."""
        if not self.receive_depth:
            return 0
        receive = self.read_handle()["receive"]
        taken = int(receive["received"]) % (1 << 63)  # without the bit of a reader that was given up
        return self._completions_written("receive_cq", int(receive["cq_base"]) + taken)

    # ---------------------------------------------------------------------------------------- post by hand, for people
    def hand_over(self, index: int, completions: int | None = None) -> None:
        """Kernels go on at basic block `index`: the CPU posted all before it by hand, and they are complete.

        `completions` says how many entries of a completion ring the CPU has read (by default one a block). No kernel
        may be using the queue. Raises ArgumentError for numbers below what kernels have posted or read already.
        """
        self._resources.check()
        read = index if completions is None else completions
        now = self._handle.read()
        if index < now["reserved"] or (not self.is_collapsed and read < now["cq_consumed"]):
            raise ArgumentError(
                f"hand_over({index}, {read}): kernels have posted {now['reserved']} blocks already and read "
                f"{now['cq_consumed']} completions",
                "count all that were posted since the queue pair was made or reset",
            )
        if not self.is_collapsed:
            self._handle.update(cq_consumed=read)
        self._handle.update(reserved=index, ready=index, done=index, rung=index)

    def write_wqe(self, index: int, wqe: bytes) -> None:
        """Write a work request (whole segments of 16 bytes) from basic block `index` on, around the ring's end."""
        self._resources.check()
        if not wqe or len(wqe) % formats.WQE_SEGMENT_BYTES or len(wqe) > self.depth * _BLOCK:
            raise ArgumentError(
                f"a work request of {len(wqe)} bytes is not made of 16-byte segments that fit the queue"
            )
        start = index % self.depth * _BLOCK
        first = min(len(wqe), self.depth * _BLOCK - start)
        self._rings.write("sq", start, wqe[:first])
        if first < len(wqe):
            self._rings.write("sq", 0, wqe[first:])

    def write_record(self, counter: int | bytes) -> None:
        """Store the send counter (the index after the last basic block, modulo 2^16) in the doorbell record.

        Bytes are stored as they are: the four of the record's dword, big-endian.
        """
        self._resources.check()
        if not self.has_record:
            raise ArgumentError(f"queue pair 0x{self.qpn:x} has no doorbell record", "ring() alone tells the NIC")
        if isinstance(counter, int):
            record = formats.qp_doorbell_record.pack(send_counter=counter % (1 << 16))
            word = bytes(record[SEND_WORD : SEND_WORD + 4])
        else:
            word = bytes(counter)
        if len(word) != 4:
            raise ArgumentError(f"the record's dword has 4 bytes, not {len(word)}")
        self._rings.write("records", SEND_WORD, word)  # the other dword belongs to the receive queue

    def ring(self, value: bytes) -> None:
        """Store the 8 bytes of a doorbell (format send_doorbell) in the register, after everything written before."""
        self._resources.check()
        _verbs.store_doorbell(self._carrier.register, value)

    def _check_receives(self) -> None:
        self._resources.check()
        if not self.receive_depth:
            raise ArgumentError(
                f"queue pair 0x{self.qpn:x} has no receive queue", "make it with receive_depth, for example 64"
            )
