# SPDX-License-Identifier: Apache-2.0
"""A queue pair in plain memory: what a NIC would see, and what it would write, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from gda import formats
from gda.nic.doorbell_modes import kernel_flags
from gda.nic.handle import window

QPN = 0x123456
BLOCK = 64
SEGMENT = 16
DOORBELLS = ("record", "no-record", "doorbell-first", "blueflame", "cpu")
EMPTY = 0xFF  # as rings are filled before use
SCRATCH, SCRATCH_LKEY = 0x0000DDEEFF001000, 0x99887766  # only the NIC goes there


def aligned(count: int, fill: int = 0) -> np.ndarray:
    """`count` bytes that begin on a page."""
    raw = np.full(count + 4096, fill, np.uint8)
    start = -raw.ctypes.data % 4096
    return raw[start : start + count]


class ToyMemory:
    """A memory region with keys as registered."""

    def __init__(
        self, count: int, lkey: int = 0x11223344, rkey: int = 0x55667788, address: int | None = None, *, flags: int = 0
    ) -> None:
        self.data = aligned(max(count, 1))
        self.address = self.data.ctypes.data if address is None else address
        self.bytes = count
        self.lkey, self.rkey = lkey, rkey
        self.flags = flags

    def __gda_argument__(self, target: str) -> tuple[str, bytes]:
        swapped = [int.from_bytes(key.to_bytes(4, "big"), "little") for key in (self.lkey, self.rkey)]
        return "gda_mr", formats.layouts["gda_mr"].pack(
            addr=self.address, bytes=self.bytes, lkey_be=swapped[0], rkey_be=swapped[1], flags=self.flags
        )


class ToyQueue:
    """A gda_qp with its rings. `start`: the index where all counters begin.

    `doorbell`: how kernels tell the NIC, as gda.QueuePair has it; `record=False` is "no-record".
    """

    def __init__(
        self,
        depth: int = 8,
        *,
        owned: bool = False,
        record: bool = True,
        doorbell: str = "record",
        collapsed: bool = True,
        ignore_overrun: bool = True,
        connected: bool = True,
        start: int = 0,
        deadline_ns: int = 20_000_000,
        max_message_bytes: int = 1 << 30,
        version: int | None = None,
        cq_depth: int | None = None,
        receive_depth: int = 0,
        receive_start: int = 0,
        receive_cq_base: int = 0,
    ) -> None:
        flag = formats.constants
        self.depth, self.owned = depth, owned
        self.cq_depth = 1 if collapsed else (cq_depth or depth)
        self.sq = aligned(depth * BLOCK, EMPTY)
        self.cq = aligned(self.cq_depth * BLOCK, EMPTY)
        self.record = aligned(64)  # queue pair's two words, then the completion queues'
        self.page = aligned(4096)
        self.handle = aligned(formats.layouts["gda_queue"].bytes)
        self.receive_depth, self.receive_cq_base = receive_depth, receive_cq_base
        self.rq = aligned(receive_depth * SEGMENT, EMPTY)
        self.receive_cq = aligned(receive_depth * BLOCK, EMPTY)
        receives = {
            "ring": self.rq.ctypes.data,
            "record": self.record.ctypes.data,
            "log_size": receive_depth.bit_length() - 1,
            "cq_base": receive_cq_base,
            "reserved": receive_start,
            "ready": receive_start,
            "received": receive_start,
            "cq": {
                "ring": self.receive_cq.ctypes.data,
                "record": self.record.ctypes.data + 32,
                "log_size": receive_depth.bit_length() - 1,
                "flags": flag["GDA_CQ_IGNORE_OVERRUN"],
            },
        }
        self.mode = doorbell if record else "no-record"
        flags = (flag["GDA_QP_OWNED"] if owned else 0) | kernel_flags(self.mode)
        flags |= flag["GDA_QP_CONNECTED"] if connected else 0
        cq_flags = (flag["GDA_CQ_COLLAPSED"] if collapsed else 0) | (
            flag["GDA_CQ_IGNORE_OVERRUN"] if ignore_overrun else 0
        )
        self.register = int(flag["UAR_RECORDLESS_DOORBELL" if self.mode == "no-record" else "UAR_SEND_DOORBELL"])
        self.write_handle(
            version=flag["GDA_HANDLE_VERSION"] if version is None else version,
            flags=flags,
            sq=self.sq.ctypes.data,
            doorbell=self.page.ctypes.data + self.register,
            record=self.record.ctypes.data + 4,
            qpn=QPN,
            log_sq_size=depth.bit_length() - 1,
            deadline_ns=deadline_ns,
            max_message_bytes=max_message_bytes,
            scratch=SCRATCH,
            scratch_lkey_be=int.from_bytes(SCRATCH_LKEY.to_bytes(4, "big"), "little"),
            cq={
                "ring": self.cq.ctypes.data,
                "record": self.record.ctypes.data + 16,
                "cqn": 0x77,
                "log_size": self.cq_depth.bit_length() - 1,
                "flags": cq_flags,
            },
            reserved=start,
            ready=start,
            done=start,
            rung=start,
            window=window(start),
            receive=receives if receive_depth else {"cq": {}},
        )

    def write_handle(self, window: bytes, receive: dict[str, object], **qp: object) -> None:
        data = formats.layouts["gda_queue"].pack(qp=qp, window=window, receive=receive)
        self.handle[:] = np.frombuffer(data, np.uint8)

    def __gda_argument__(self, target: str) -> tuple[str, bytes]:
        return "gda_qp*", self.handle.ctypes.data.to_bytes(8, "little")

    @property
    def state(self) -> dict[str, Any]:
        """Members of the queue pair; of its receive queue under "receive"."""
        values = formats.layouts["gda_queue"].unpack(self.handle.tobytes())
        return {**values["qp"], "window": values["window"], "receive": values["receive"]}

    def wqe(self, index: int) -> bytes:
        at = index % self.depth * BLOCK
        return self.sq[at : at + BLOCK].tobytes()

    @property
    def send_counter(self) -> int:
        return int(formats.qp_doorbell_record.unpack(self.record[:8].tobytes())["send_counter"])

    @property
    def consumer_index(self) -> int:
        return int(formats.cq_doorbell_record.unpack(self.record[16:24].tobytes())["consumer_index"])

    @property
    def doorbell(self) -> bytes:
        return self.page[self.register : self.register + 8].tobytes()

    def half(self, number: int) -> bytes:
        """What was written to one half of the BlueFlame register."""
        at = self.register + number * int(formats.UAR_BLUEFLAME_HALF_BYTES)
        return self.page[at : at + BLOCK].tobytes()

    def complete(self, index: int, entry: int = 0) -> None:
        """A good completion of the request at `index`; `entry` is the 64-bit index of the completion."""
        self._write(entry, formats.cqe64.pack(wqe_counter=index % 65536, qpn=QPN, **self._hand_over(entry, 0)))

    def fail(self, index: int, syndrome: int, vendor: int = 0x88, entry: int = 0) -> None:
        """An error completion."""
        error = int(formats.constants["MLX5_CQE_REQ_ERR"])
        self._write(
            entry,
            formats.err_cqe.pack(
                wqe_counter=index % 65536,
                qpn=QPN,
                syndrome=syndrome,
                vendor_error_syndrome=vendor,
                **self._hand_over(entry, error),
            ),
        )

    def receive(self, index: int) -> bytes:
        at = index % self.receive_depth * SEGMENT
        return self.rq[at : at + SEGMENT].tobytes()

    @property
    def receive_counter(self) -> int:
        return int(formats.qp_doorbell_record.unpack(self.record[:8].tobytes())["receive_counter"])

    def arrive(self, index: int, *, bytes: int = 0, immediate: int = 0, opcode: str = "SEND") -> None:
        """A message for receive `index`; opcode is SEND, SEND_IMM or WR_IMM."""
        value = int(formats.constants[f"MLX5_CQE_RESP_{opcode}"])
        self._write_arrival(index, formats.cqe64, value, byte_cnt=bytes, imm_inval_pkey=immediate)

    def fail_receive(self, index: int, syndrome: int, vendor: int = 0x88) -> None:
        error = int(formats.constants["MLX5_CQE_RESP_ERR"])
        self._write_arrival(index, formats.err_cqe, error, syndrome=syndrome, vendor_error_syndrome=vendor)

    def _write_arrival(self, index: int, form: formats.Struct, opcode: int, **fields: int) -> None:
        entry = index + self.receive_cq_base
        owner = entry // self.receive_depth % 2
        data = form.pack(wqe_counter=index % 65536, qpn=QPN, opcode=opcode, owner=owner, **fields)
        at = entry % self.receive_depth * BLOCK
        self.receive_cq[at : at + BLOCK] = np.frombuffer(data, np.uint8)

    def _hand_over(self, entry: int, opcode: int) -> dict[str, int]:
        return {"opcode": opcode, "owner": entry // self.cq_depth % 2 if self.cq_depth > 1 else 0}

    def _write(self, entry: int, data: bytes) -> None:
        at = entry % self.cq_depth * BLOCK
        self.cq[at : at + BLOCK] = np.frombuffer(data, np.uint8)
