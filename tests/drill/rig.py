# SPDX-License-Identifier: Apache-2.0
"""What every fault of the drill stands on: a NIC, two connected queue pairs, memory, requests, kernels.

The queue pairs are gda's here, and libibverbs' in plain.py.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
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

WITH_TEAM = r"""
#include <gda/comm.h>
GDA_KERNEL(put_to)(gda_team team, gda_window window, uint64_t at, gda_mr src, uint64_t bytes, uint64_t deadline_ms,
                   gda_status* status) {
    *status = gda_wait_for(team, 0, gda_put_to(team, 0, window, at, src, 0, bytes), GDA_MS(1) * deadline_ms);
}
"""


@functools.cache
def kernels() -> gda.Kernel:
    return gda.Kernel(KERNELS, target="host")


@functools.cache
def with_team() -> gda.Kernel:
    return gda.Kernel(WITH_TEAM, target="host")


class Bench(ABC):
    """What a fault is made with, whoever made the queue pairs: `a` sends from `source` to `target` of `b`."""

    software: attach.SoftwareNic
    a: Any
    b: Any
    source: Any
    target: Any
    kept: list[Any]  # regions that a fault has made

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
            self.until(lambda index=index: self.is_complete(index), 5)

    @abstractmethod
    def is_complete(self, index: int) -> bool:
        """Whether completion number `index` is there."""

    def until(self, condition: Any, seconds: float) -> bool:
        """Step the NIC until it holds; whether it did in time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            self.software.step()
        return True

    def calm(self) -> None:
        """The NIC without anything that a fault asked of it."""
        self.software.set_faults("")
        self.software.set_link(True)
        self.software.store_buffer(False)
        self.software.watch_sources(False)
        self.software.set_relaxed_ordering(False)


class Rig(Bench):
    """With queue pairs of gda, and kernels. Made anew for each fault."""

    def __init__(self, **options: Any) -> None:
        self.nic = gda.open()
        self.software = attach.software_nic()
        self.software.clear_report()
        self.source = self.nic.register(np.arange(512, dtype=np.uint64))
        self.target = self.nic.register(np.zeros(4096, np.uint8))
        self.kept = []
        self.a, self.b = self.nic.loopback_pair(depth=16, **({"completion": "ring"} | options))

    def another(self) -> Rig:
        """Of another context, with a protection domain and doorbell pages of its own."""
        return Rig()

    def register(self, array: np.ndarray, **options: Any) -> gda.Memory:
        """Memory that stays until the end."""
        self.kept.append(self.nic.register(array, **options))
        return self.kept[-1]

    def queue(self) -> gda.QueuePair:
        """One more, to be connected to another process."""
        return self.nic.queue_pair(depth=16, completion="ring")

    def put(self, target: Any, at: int, bytes: int, deadline_ms: int) -> None:
        """An ordinary put, waited for: by a kernel."""
        kernels().put[1, 1](self.a, target, at, self.source, bytes, deadline_ms)

    def put_behind_a_window(self, region: gda.Memory, at: int, bytes: int, deadline_ms: int) -> None:
        """The window of a team begins at `at` of a region and has so many bytes; a kernel puts behind them."""
        with gda.init(nic=self.nic) as team:
            window = team.window(region.array[at : at + bytes], shared=True)
            with_team().put_to[1, 1](team, window, bytes, self.source, bytes, deadline_ms)

    def signal(self, signals: Any) -> None:
        """A put, and behind it an addition to the first word of `signals`."""
        kernels().signal[1, 1](self.a, self.target, self.source, signals)

    def is_complete(self, index: int) -> bool:
        cqe = formats.cqe64.unpack(self.a.read_cqe(index % self.a.depth))
        return cqe["opcode"] != formats.MLX5_CQE_INVALID and cqe["owner"] == index // self.a.depth % 2

    def close(self) -> None:
        self.calm()
        self.nic.close()
