# SPDX-License-Identifier: Apache-2.0
"""What is tried for a record, in this order: open, demo, memory, queues, each operation, deliberate errors.

Called by `python -m gda record`. Every operation is posted by a kernel (on the GPU where there is one), over a queue
pair of its own with a completion ring, so that every entry stays to be read.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import platform
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import gda
from gda import _verbs
from gda.errors import GdaError
from gda.nic import Memory, Nic, QueuePair, command
from gda.nic import open as open_nic
from gda.run import Kernel
from gda.tools.demo import demo
from gda.tools.record.journal import Journal
from gda.tools.record.peer import BYTES, HERE, LocalPeer, Peer, connect_to

__all__ = ["record"]

_KERNELS = r"""
#include <gda/gda.h>
#define WAIT(ticket) *status = gda_wait(qp, ticket, GDA_S(10))
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, uint32_t flip, uint32_t flip_local,
                gda_status* status) {
    dst.rkey_be ^= flip;
    src.lkey_be ^= flip_local;
    WAIT(gda_put(qp, dst, 0, src, 0, bytes));
}
GDA_KERNEL(put_value)(gda_qp* qp, gda_mr dst, uint64_t value, gda_status* status) {
    WAIT(gda_put_value(qp, dst, 0, value));
}
GDA_KERNEL(put_imm)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, uint32_t immediate, gda_status* status) {
    WAIT(gda_put_imm(qp, dst, 0, src, 0, bytes, immediate));
}
GDA_KERNEL(get)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, gda_status* status) {
    WAIT(gda_get(qp, dst, 0, src, 0, bytes));
}
GDA_KERNEL(fetch_add)(gda_qp* qp, gda_mr dst, gda_mr old, uint64_t add, gda_status* status) {
    WAIT(gda_fetch_add(qp, old, 0, dst, 0, add));
}
GDA_KERNEL(compare_swap)(gda_qp* qp, gda_mr dst, gda_mr old, uint64_t compare, uint64_t swap, gda_status* status) {
    WAIT(gda_compare_swap(qp, old, 0, dst, 0, compare, swap));
}
GDA_KERNEL(send)(gda_qp* qp, gda_mr src, uint64_t bytes, gda_status* status) { WAIT(gda_send(qp, src, 0, bytes)); }
GDA_KERNEL(send_imm)(gda_qp* qp, gda_mr src, uint64_t bytes, uint32_t immediate, gda_status* status) {
    WAIT(gda_send_imm(qp, src, 0, bytes, immediate));
}
GDA_KERNEL(nop)(gda_qp* qp, gda_status* status) { WAIT(gda_nop(qp)); }
"""
_SIZES = (1, 8, 4096, 65536, BYTES)
_OPTIONS: dict[str, Any] = {"depth": 64, "receive_depth": 16, "completion": "ring"}
_PSN = 0x123456  # fixed, so that records agree
_IMPATIENT = {"ack_timeout": 10, "retry_count": 1, "rnr_retry": 1, "min_rnr_timer": 1}  # errors within milliseconds
_FLIP = 0x00555500  # of a key as it lies in memory: another index, the same variant
_IMMEDIATE = 0x11223344


def record(*, peer: str = "", with_demo: bool = True, nic: str | None = None) -> dict[str, Any]:
    """Try everything and write down what happened; the record. `peer` is HOST:PORT of another process, else this one.

    Raises UnavailableError where there is no NIC or no compiler, or the other process does not answer.
    """
    journal = Journal()
    with command.observed(journal.command), contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_nic(nic))
        _about(journal.data, opened)
        kernel = Kernel(_KERNELS)
        journal.data["machine"]["kernels"] = kernel.where
        other: Peer = stack.enter_context(connect_to(peer)) if peer else LocalPeer(opened)
        journal.data["peer"] = "another process" if peer else HERE
        if with_demo:
            _demo(journal)
        _Sequence(journal, opened, kernel, other).run()
    return journal.data


def _about(data: dict[str, Any], nic: Nic) -> None:
    data["made"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    data["gda"] = gda.__version__
    data["machine"] = {
        "system": platform.system(), "release": platform.release(), "processor": platform.machine(),
        "python": platform.python_version(), "library": nic.library,
        "gpu": nic.gpu.name if nic.gpu is not None else f"none ({nic.no_gpu_reason})",
    }  # fmt: skip
    port = _verbs.ibv_query_port(nic.context, nic.port.number)
    data["nic"] = {
        "name": nic.name, "description": nic.description, "firmware": nic.firmware, "part": nic.part,
        "is_software": nic.is_software, "ports": nic.ports, "port": asdict(nic.port),
        "port_attributes": dict(port),
        "device_attributes": dict(_verbs.ibv_query_device(nic.context)),
        "gids": [[g.index, g.type] for g in nic.gids],
    }  # fmt: skip
    data["capabilities"] = {name: dict(fields) for name, fields in nic.capabilities.groups.items()}


def _demo(journal: Journal) -> None:
    """Its commands are its own matter: only how it went is written down."""
    kept = len(journal.data["commands"])
    with journal.step("demo") as step, contextlib.redirect_stdout(io.StringIO()) as said:
        demo()
        step["text"] = said.getvalue()
    del journal.data["commands"][kept:]


class _Sequence:
    def __init__(self, journal: Journal, nic: Nic, kernel: Kernel, peer: Peer) -> None:
        self.journal, self.nic, self.kernel, self.peer = journal, nic, kernel, peer
        self.source: Memory

    def run(self) -> None:
        """All steps; one that fails is written down, and the next is tried."""
        journal = self.journal
        with journal.step("memory"):
            self.source = self.nic.allocate(BYTES)
            there = self.peer.target
            journal.data["regions"] = [  # the key by which requests name each
                {"name": "source", "address": self.source.address, "bytes": BYTES, "key": self.source.lkey},
                {"name": "target", "address": there.address, "bytes": there.bytes, "key": there.rkey},
            ]
            self.source.write(0, bytes(i % 251 for i in range(BYTES)))
        if journal.data["steps"][-1]["outcome"] != "ok":
            return
        self._key()
        pattern = self.source.read(0, BYTES)
        for size in _SIZES:
            self._try(f"put {size}", functools.partial(self._put, size=size), pattern[:size])
        self._try("put value", lambda q: self._kernel("put_value", q, self._there, 0x0102030405060708),
                  bytes.fromhex("0807060504030201"))  # fmt: skip
        self._try("put immediate", self._put_immediate, pattern[:64], receive=64)
        self._try("get 4096", self._get)
        self._try("fetch and add", self._fetch_add, (105).to_bytes(8, "little"))
        self._try("compare and swap", self._compare_swap, (7).to_bytes(8, "little"))
        self._try("send 64", lambda q: self._kernel("send", q, self.source, 64), pattern[:64], receive=64)
        self._try("send immediate", lambda q: self._kernel("send_imm", q, self.source, 64, _IMMEDIATE), pattern[:64],
                  receive=64)  # fmt: skip
        self._try("nop", lambda q: self._kernel("nop", q))
        self._try("error: unknown remote key", lambda q: self._put(q, 64, flip=_FLIP), connect=_IMPATIENT)
        self._try("error: unknown local key", lambda q: self._put(q, 64, flip_local=_FLIP), connect=_IMPATIENT)
        self._try("error: message longer than the receive", lambda q: self._kernel("send", q, self.source, 128),
                  receive=64, connect=_IMPATIENT)  # fmt: skip
        self._try("error: receiver not ready", lambda q: self._kernel("send", q, self.source, 64), connect=_IMPATIENT)
        self._try("error: nobody answers", lambda q: self._put(q, 64), connect=_IMPATIENT, gone=True)
        self._refused_command()

    # ------------------------------------------------------------------------------------------------------ one step
    def _try(
        self, name: str, act: Callable[[QueuePair], object], expected: bytes | None = None, *, receive: int = 0,
        connect: dict[str, Any] | None = None, gone: bool = False,
    ) -> None:  # fmt: skip
        """A fresh pair, the operation, and what memory, send queue and completion rings hold afterwards."""
        options = {**_OPTIONS, "psn": _PSN}
        with self.journal.step(name) as step, contextlib.ExitStack() as stack:
            queue = stack.enter_context(QueuePair(self.nic, **options))
            stack.callback(self.peer.close)
            self.peer.pair(queue, options, connect or {})
            self.peer.fill(bytes(max(64, len(expected or b""))))
            if receive:
                self.peer.post_receive(receive)
            if gone:
                self.peer.reset()
            try:
                act(queue)
                if receive:
                    Journal.completion(step, self.peer.take_receive(), 0, of_receive=True)
                if expected is not None:
                    got = self.peer.read(len(expected))
                    wrong = sum(x != y for x, y in zip(got, expected, strict=True))
                    step["data"] = "ok" if not wrong else f"{wrong} of {len(expected)} bytes are wrong"
            finally:
                self._look(step, queue)

    def _look(self, step: dict[str, Any], queue: QueuePair) -> None:
        reserved = min(int(queue.read_handle()["reserved"]), queue.depth)
        for index in range(reserved):
            with contextlib.suppress(GdaError):  # an inner block of a longer request
                Journal.request(step, queue, index)
        for slot in range(queue.depth):
            cqe = queue.read_cqe(slot)
            if cqe[-1] == 0xFF:  # as it was made: the NIC has written nothing there
                break
            Journal.completion(step, cqe, slot)
        step["state"] = queue.state

    def _kernel(self, name: str, *arguments: object) -> None:
        getattr(self.kernel, name)[1, 1](*arguments)

    @property
    def _there(self) -> object:
        return self.peer.target

    # ---------------------------------------------------------------------------------------------------- operations
    def _put(self, queue: QueuePair, size: int, *, flip: int = 0, flip_local: int = 0) -> None:
        self._kernel("put", queue, self._there, self.source, size, flip, flip_local)

    def _put_immediate(self, queue: QueuePair) -> None:
        self._kernel("put_imm", queue, self._there, self.source, 64, _IMMEDIATE)

    def _get(self, queue: QueuePair) -> None:
        self.peer.fill(bytes(range(256)) * 16)
        with self.nic.allocate(4096) as target:
            self._kernel("get", queue, target, self._there, 4096)
            self.journal.data["steps"][-1]["data"] = (
                "ok" if target.read(0, 4096) == bytes(range(256)) * 16 else "other bytes were read"
            )

    def _fetch_add(self, queue: QueuePair) -> None:
        self._atomic(queue, "fetch_add", 100, 5)

    def _compare_swap(self, queue: QueuePair) -> None:
        self._atomic(queue, "compare_swap", 100, 100, 7)

    def _atomic(self, queue: QueuePair, name: str, before: int, *arguments: int) -> None:
        self.peer.fill(before.to_bytes(8, "little"))
        with self.nic.allocate(8) as old:
            self._kernel(name, queue, self._there, old, *arguments)
            self.journal.data["steps"][-1]["fetched"] = int.from_bytes(old.read(0, 8), "little")

    def _key(self) -> None:
        """A memory key by command."""
        with self.journal.step("memory key by command"):
            fields = {"lr": 1, "lw": 1, "pd": self.nic.pdn, "length64": 1}
            key, _ = command.create_mkey(self.nic.context, memory_key_mkey_entry=fields)
            key.close()

    def _refused_command(self) -> None:
        """A command that firmware must refuse: a queue pair in a protection domain that does not exist."""
        with self.journal.step("error: command with an unknown protection domain"):
            command.create_qp(self.nic.context, qpc={"st": 0, "pm_state": 3, "pd": 0xFFFFFF, "rq_type": 3})
