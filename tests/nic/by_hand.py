# SPDX-License-Identifier: Apache-2.0
"""Posts work requests from Python, field by field, and waits for their completions."""

from __future__ import annotations

import time
from typing import Any

from gda import attach, formats
from gda.nic import Memory, QueuePair


def write_request(
    queue: QueuePair, index: int, source: Memory, target: Memory, bytes: int, **changes: Any
) -> bytes:
    """An RDMA write of `bytes` from the start of source to the start of target; `changes` override fields."""
    fields = {
        "opcode": formats.MLX5_OPCODE_RDMA_WRITE, "wqe_index": index % 65536, "qp_or_sq": queue.qpn, "ds": 3,
        "ce": formats.CE_ALWAYS, "raddr": target.address, "rkey": target.rkey,
        "byte_count": bytes, "lkey": source.lkey, "addr": source.address,
    } | changes  # fmt: skip
    control = ("opcode", "wqe_index", "qp_or_sq", "ds", "ce")
    return (
        formats.wqe_ctrl_seg.pack(**{name: fields[name] for name in control})
        + formats.wqe_raddr_seg.pack(raddr=fields["raddr"], rkey=fields["rkey"])
        + formats.wqe_data_seg.pack(byte_count=fields["byte_count"], lkey=fields["lkey"], addr=fields["addr"])
    )


def post(queue: QueuePair, index: int, request: bytes) -> None:
    """Into the ring, the record, the register."""
    queue.write_wqe(index, request)
    if queue.has_record:
        queue.write_record(index + 1)
        queue.ring(request[:8])
    else:  # without a record the register is the only source: opcode 0 says that it holds the producer index
        queue.ring(formats.send_doorbell.pack(wqe_index=(index + 1) % 65536, qpn=queue.qpn))


def completion(queue: QueuePair, index: int, seconds: float = 10.0) -> dict[str, Any]:
    """The completion with number `index` (from 0), as fields of cqe64 or err_cqe."""
    software = attach.loaded()
    slot = 0 if queue.is_collapsed else index % queue.depth
    lap = 0 if queue.is_collapsed else index // queue.depth % 2
    end = time.monotonic() + seconds
    while True:
        raw = queue.read_cqe(slot)
        cqe = formats.cqe64.unpack(raw)
        fresh = cqe["wqe_counter"] == index % 65536 if queue.is_collapsed else cqe["owner"] == lap
        if cqe["opcode"] != formats.MLX5_CQE_INVALID and fresh:
            is_error = cqe["opcode"] in (formats.MLX5_CQE_REQ_ERR, formats.MLX5_CQE_RESP_ERR)
            return formats.err_cqe.unpack(raw) if is_error else cqe
        report = software.report() if software else []
        assert time.monotonic() < end, f"no completion {index} in {seconds} s; the NIC says: {report}"
        if software:
            software.step()
