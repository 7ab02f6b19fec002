# SPDX-License-Identifier: Apache-2.0
"""What every fault of the drill stands on: a NIC, two connected queue pairs, memory, requests, kernels."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np

import gda
from gda import attach, formats

KERNELS = r"""
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, uint64_t at, gda_mr src, uint64_t bytes, uint64_t deadline_ms,
                gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, at, src, 0, bytes), GDA_MS(1) * deadline_ms);
}
GDA_KERNEL(signal)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr signals, gda_status* status) {
    *status = gda_wait(qp, gda_put_signal(qp, dst, 0, src, 0, 64, signals, 0, 1, GDA_SIGNAL_ADD), GDA_MS(2000));
}
GDA_KERNEL(post_without_a_fence)(uint64_t payload, uint64_t record, uint64_t doorbell, uint32_t index_be,
                                 uint64_t value, uint64_t cqe, gda_status* status) {
    *reinterpret_cast<volatile uint64_t*>(payload) = ~uint64_t(0);
    __threadfence();
    *reinterpret_cast<volatile uint32_t*>(record) = index_be;
    __threadfence();
    *reinterpret_cast<volatile uint64_t*>(doorbell) = value;
    volatile uint8_t* entry = reinterpret_cast<volatile uint8_t*>(cqe);
    uint64_t start = gda_now_ns();
    while (entry[63] >> 4 == 0xf && gda_now_ns() - start < GDA_S(5)) { }
}
"""


@functools.cache
def kernels() -> gda.Kernel:
    return gda.Kernel(KERNELS, target="host")


class Rig:
    """Made anew for each fault. `a` sends from `source` to `target` of `b`."""

    def __init__(self, **options: Any) -> None:
        self.nic = gda.open()
        self.software = attach.software_nic()
        self.software.clear_report()
        self.source = self.nic.register(np.arange(512, dtype=np.uint64))
        self.target = self.nic.register(np.zeros(4096, np.uint8))
        self.kept: list[gda.Memory] = []  # regions that a fault has made
        self.a, self.b = self.nic.loopback_pair(depth=16, **({"completion": "ring"} | options))

    def request(self, index: int = 0, **changes: Any) -> bytes:
        """An RDMA write of 64 bytes; `changes` override fields."""
        fields = {
            "opcode": formats.MLX5_OPCODE_RDMA_WRITE, "wqe_index": index, "qp_or_sq": self.a.qpn, "ds": 3,
            "ce": formats.CE_ALWAYS, "raddr": self.target.address, "rkey": self.target.rkey, "byte_count": 64,
            "lkey": self.source.lkey, "addr": self.source.address,
        } | changes  # fmt: skip
        control = {name: fields[name] for name in ("opcode", "wqe_index", "qp_or_sq", "ds", "ce")}
        return (
            formats.wqe_ctrl_seg.pack(**control)
            + formats.wqe_raddr_seg.pack(raddr=fields["raddr"], rkey=fields["rkey"])
            + formats.wqe_data_seg.pack(byte_count=fields["byte_count"], lkey=fields["lkey"], addr=fields["addr"])
        )

    def post(self, index: int = 0, request: bytes | None = None, **changes: Any) -> None:
        """Into the ring, the record, the register."""
        request = self.request(index, **changes) if request is None else request
        self.a.write_wqe(index, request)
        self.a.write_record(index + 1)
        self.a.ring(request[:8])

    def complete(self, count: int) -> None:
        """Requests until that many have completed."""
        for index in range(count):
            self.post(index)
            self.until(lambda index=index: self.entry(index) is not None, 5)

    def entry(self, index: int) -> dict[str, Any] | None:
        """Completion number `index`, or None while there is none."""
        raw = self.a.read_cqe(index % self.a.depth)
        cqe = formats.cqe64.unpack(raw)
        if cqe["opcode"] == formats.MLX5_CQE_INVALID or cqe["owner"] != index // self.a.depth % 2:
            return None
        bad = cqe["opcode"] in (formats.MLX5_CQE_REQ_ERR, formats.MLX5_CQE_RESP_ERR)
        return formats.err_cqe.unpack(raw) if bad else cqe

    def first_error(self) -> tuple[int, int] | None:
        """Syndrome and vendor syndrome of the first error completion in the ring; rather not one of a flush."""
        flushed = None
        for slot in range(self.a.depth):
            raw = self.a.read_cqe(slot)
            if formats.cqe64.unpack(raw)["opcode"] == formats.MLX5_CQE_REQ_ERR:
                error = formats.err_cqe.unpack(raw)
                found = int(error["syndrome"]), int(error["vendor_error_syndrome"])
                if found[0] != formats.MLX5_CQE_SYNDROME_WR_FLUSH_ERR:
                    return found
                flushed = found
        return flushed

    def until(self, condition: Any, seconds: float) -> bool:
        """Step the NIC until it holds; whether it did in time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            self.software.step()
        return True

    def close(self) -> None:
        self.software.set_faults("")
        self.software.set_link(True)
        self.software.store_buffer(False)
        self.software.watch_sources(False)
        self.software.set_relaxed_ordering(False)
        self.nic.close()
