# SPDX-License-Identifier: Apache-2.0
"""Send, receive and put with immediate through Kernel on a NIC: data, immediates and order are checked.

Imported by test_nic_messages.py (on the CPU) and test_gpu_operations.py (on a GPU), which say with the fixture `target`
where kernels run. Every wait in a kernel ends after LIMIT_S.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gda
from gda import formats
from gda.errors import ArgumentError, CompletionError, HandleError

RECEIVED = formats.layouts["gda_received"]

LIMIT_S = {"host": 30, "gpu": 4}  # slow CPUs under sanitizers need long; on a GPU nothing may hold on

KERNELS = r"""
#include <gda/gda.h>
#define ME (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x)
// Block 0 receives `messages` messages into pieces of `dst`, the other block sends them from pieces of `src`, each with
// its number as immediate. Every thread takes part; out[i]: how often message i arrived whole.
GDA_KERNEL(exchange)(gda_qp* a, gda_qp* b, gda_mr dst, gda_mr src, uint32_t bytes, uint32_t messages, gda_mr out,
                     gda_status* status) {
    uint32_t me = threadIdx.x;
    for (uint32_t i = me; i < messages; i += blockDim.x) {
        if (blockIdx.x == 0) {
            gda_ticket posted = gda_post_receive(b, dst, uint64_t(i) * bytes, bytes);
            if (gda_failed(posted)) return gda_report(status, gda_wait(b, posted, 0));
            gda_received r;
            gda_status s = gda_wait_receive(b, &r, LIMIT);
            if (s != 0) return gda_report(status, s);
            const uint32_t* word = reinterpret_cast<const uint32_t*>(r.addr);
            bool whole = r.bytes == bytes && r.opcode == gda::prm::MLX5_CQE_RESP_SEND_IMM;
            for (uint32_t w = 0; w < bytes / 4; ++w) whole = whole && word[w] == r.immediate;
            if (whole && r.immediate < messages) atomicAdd(reinterpret_cast<uint32_t*>(out.addr) + r.immediate, 1u);
        } else {
            uint32_t* word = reinterpret_cast<uint32_t*>(src.addr + uint64_t(i) * bytes);
            for (uint32_t w = 0; w < bytes / 4; ++w) word[w] = i;
            __threadfence_system();
            gda_status s = gda_wait(a, gda_send_imm(a, src, uint64_t(i) * bytes, bytes, i), LIMIT);
            if (s != 0) return gda_report(status, s);
        }
    }
}
// A put that tells: the receiver waits for the immediate, then all bytes are there.
GDA_KERNEL(notify)(gda_qp* a, gda_qp* b, gda_mr dst, gda_mr src, uint32_t rounds, gda_mr out,
                   gda_status* status) {
    if (blockIdx.x == 0) {
        for (uint32_t i = 0; i < rounds; ++i) {
            gda_received r;
            gda_status s = gda_wait_receive(b, &r, LIMIT);
            if (s != 0) return gda_report(status, s);
            reinterpret_cast<gda_received*>(out.addr)[i] = r;
            if (i + 4 < rounds) gda_post_receive(b, dst, 0, 0);
        }
    } else {
        for (uint32_t i = 0; i < rounds; ++i) {
            gda_ticket t = gda_put_imm(a, dst, 0, src, 0, dst.bytes, 1000 + i);
            gda_status s = gda_wait(a, t, LIMIT);
            if (s != 0) return gda_report(status, s);
        }
    }
}
GDA_KERNEL(post)(gda_qp* qp, gda_mr dst, uint64_t bytes, uint32_t count, gda_status* status) {
    for (uint32_t i = 0; i < count; ++i) {
        gda_ticket t = gda_post_receive(qp, dst, 0, bytes);
        if (gda_failed(t)) return gda_report(status, gda_wait(qp, t, 0));
    }
}
GDA_KERNEL(send)(gda_qp* qp, gda_mr src, uint64_t bytes, gda_status* status) {
    gda_report(status, gda_wait(qp, gda_send(qp, src, 0, bytes), LIMIT));
}
GDA_KERNEL(take)(gda_qp* qp, gda_mr out, gda_status* status) {
    gda_report(status, gda_wait_receive(qp, reinterpret_cast<gda_received*>(out.addr), LIMIT));
}
// One receive and one message for all threads of a warp or block; each keeps what it was told.
GDA_KERNEL(all_of_warp)(gda_qp* a, gda_qp* b, gda_mr dst, gda_mr src, gda_mr out, gda_status* status) {
    gda_post_receive_warp(b, dst, 0, 64);
    gda_ticket sent = gda_send_imm_warp(a, src, 0, 64, 5u);
    gda_received r = {};
    gda_status s = gda_wait_receive_warp(b, &r, LIMIT);
    if (s == 0) s = gda_wait_warp(a, sent, LIMIT);
    if (s == 0 && gda_code(gda_poll_receive_warp(b, &r)) != GDA_TIMEOUT) s = GDA_TIMEOUT;
    reinterpret_cast<gda_received*>(out.addr)[ME] = r;
    gda_report(status, s);
}
GDA_KERNEL(all_of_block)(gda_qp* a, gda_qp* b, gda_mr dst, gda_mr src, gda_mr out, gda_status* status) {
    gda_post_receive_block(b, dst, 0, 64);
    gda_ticket sent = gda_send_imm_block(a, src, 0, 64, 5u);
    gda_received r = {};
    gda_status s = gda_wait_receive_block(b, &r, LIMIT);
    if (s == 0) s = gda_wait_block(a, sent, LIMIT);
    if (s == 0 && gda_code(gda_poll_receive_block(b, &r)) != GDA_TIMEOUT) s = GDA_TIMEOUT;
    reinterpret_cast<gda_received*>(out.addr)[ME] = r;
    gda_report(status, s);
}
"""


@pytest.fixture(scope="module")
def nic() -> Iterator[gda.Nic]:
    with gda.open() as nic:
        yield nic


@pytest.fixture(scope="module")
def kernels(target: str) -> gda.Kernel:
    kernels = gda.Kernel(KERNELS.replace("LIMIT", f"GDA_S({LIMIT_S[target]})"), target=target)
    kernels.deadline_s = 2 * LIMIT_S[target]
    return kernels


def received(out: gda.Memory) -> list[dict[str, int]]:
    return [RECEIVED.unpack(out.read(at, RECEIVED.bytes)) for at in range(0, out.bytes, RECEIVED.bytes)]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("completion", ["collapsed", "ring"])
@pytest.mark.parametrize("bytes", [4, 5000])
def test_messages_between_two_blocks(
    *, nic: gda.Nic, kernels: gda.Kernel, target: str, shared: bool, completion: str, bytes: int
) -> None:
    """100 messages through 16 receives: laps of both rings; the sender waits while no receive is posted."""
    bytes, threads, messages = bytes // 4 * 4, 4 if shared else 1, 100
    a, b = nic.loopback_pair(
        depth=16, receive_depth=16, shared=shared, completion=completion, deadline_ms=1000 * LIMIT_S[target]
    )
    src, dst = nic.allocate(bytes * messages), nic.allocate(bytes * messages)
    out = nic.allocate(4 * messages)
    kernels.exchange[2, threads](a, b, dst, src, bytes, messages, out)
    assert (np.frombuffer(out.read(0, 4 * messages), np.uint32) == 1).all()
    handle = b.read_handle()
    receive = handle["receive"]
    assert receive["reserved"] == receive["ready"] == receive["received"] == messages
    assert b.read_receive_record() == messages


def test_put_with_immediate_tells_the_receiver(nic: gda.Nic, kernels: gda.Kernel) -> None:
    a, b = nic.loopback_pair(receive_depth=4)
    src, dst = nic.allocate(10_000), nic.allocate(10_000)
    src.write(0, np.arange(10_000).astype(np.uint8).tobytes())
    out = nic.allocate(20 * RECEIVED.bytes)
    kernels.post[1, 1](b, dst, 0, 4)
    kernels.notify[2, 1](a, b, dst, src, 20, out)
    got = received(out)
    assert [r["immediate"] for r in got] == list(range(1000, 1020))
    assert {r["bytes"] for r in got} == {10_000}
    assert {r["opcode"] for r in got} == {formats.MLX5_CQE_RESP_WR_IMM}
    assert [r["index"] for r in got] == list(range(20))
    assert dst.read(0, 10_000) == src.read(0, 10_000)


@pytest.mark.gda_complaints("receive-too-short", "refused-by-peer")
def test_a_receive_that_is_too_short(nic: gda.Nic, kernels: gda.Kernel) -> None:
    a, b = nic.loopback_pair(receive_depth=4)
    src, dst = nic.allocate(64), nic.allocate(64)
    kernels.post[1, 1](b, dst, 16, 2)
    with pytest.raises(CompletionError, match="remote invalid request"):
        kernels.send[1, 1](a, src, 17)
    out = nic.allocate(RECEIVED.bytes)
    with pytest.raises(CompletionError, match="local length error"):
        kernels.take[1, 1](b, out)
    assert b.state == "ERR"
    with pytest.raises(CompletionError):
        kernels.post[1, 1](b, dst, 16, 1)


def test_after_a_reset_all_starts_anew(nic: gda.Nic, kernels: gda.Kernel) -> None:
    """Receives begin at zero again, their completion ring goes on where it was: unread entries stay behind."""
    a, b = nic.loopback_pair(receive_depth=4, completion="ring")
    src, dst = nic.allocate(64), nic.allocate(64)
    for lap in range(3):
        src.write(0, bytes([lap + 1]) * 64)
        kernels.post[1, 1](b, dst, 64, 3)
        for _ in range(3):
            kernels.send[1, 1](a, src, 64)
        out = nic.allocate(RECEIVED.bytes)
        kernels.take[1, 1](b, out)
        assert received(out)[0]["index"] == 0 and received(out)[0]["bytes"] == 64
        assert dst.read(0, 64) == src.read(0, 64)
        a.reset()
        b.reset()
        a.connect(b.info)
        b.connect(a.info)
        assert b.read_handle()["receive"]["cq_base"] == 3 * (lap + 1)


def test_queue_pair_without_receives(nic: gda.Nic, kernels: gda.Kernel) -> None:
    a, _ = nic.loopback_pair()
    with pytest.raises(HandleError, match="no receive queue"):
        kernels.post[1, 1](a, nic.allocate(8), 8, 1)
    for look in (a.read_receive, a.read_receive_cqe):
        with pytest.raises(ArgumentError, match="no receive queue"):
            look(0)
    with pytest.raises(ArgumentError, match="no receive queue"):
        a.read_receive_record()


@pytest.mark.parametrize("depth", [1, 2, 3, 48, 65536, -4, True, 4.0])
def test_receive_depths_that_do_not_exist(nic: gda.Nic, depth: object) -> None:
    with pytest.raises(ArgumentError, match=r"receive_depth=.* is not a power of two from 4 to"):
        nic.queue_pair(receive_depth=depth)


def test_where_the_parts_lie(nic: gda.Nic) -> None:
    with nic.queue_pair(depth=16, receive_depth=4, record=True) as queue:
        where = queue.where()
        assert where["rq"][2] == 4 * 16 and where["receive_cq"][2] == 4 * 64
        assert where["sq"][1] == where["rq"][1] + 64, "the NIC takes both as one"
        assert where["receive_record"][1] == where["record"][1]
        assert len({part[1] // 64 for name, part in where.items() if "record" in name}) == 3, "a cache line each"
        assert queue.read_receive(0) == b"\xff" * 16 and queue.read_receive_cqe(3) == b"\xff" * 64


def test_queue_pair_without_send_record_has_a_receive_record(nic: gda.Nic, kernels: gda.Kernel) -> None:
    if not nic.capabilities.send_dbr_mode_no_dbr_ext:
        pytest.skip("not run: this NIC has no queue pairs without doorbell record")
    a, b = nic.loopback_pair(receive_depth=4, record=False)
    src, dst = nic.allocate(64), nic.allocate(64)
    kernels.post[1, 1](b, dst, 64, 1)
    kernels.send[1, 1](a, src, 64)
    assert b.read_receive_record() == 1


@pytest.mark.parametrize(("scope", "threads"), [("warp", 32), ("block", 96)])
def test_one_receive_for_a_warp_or_block(nic: gda.Nic, kernels: gda.Kernel, scope: str, threads: int) -> None:
    a, b = nic.loopback_pair(depth=16, receive_depth=4)
    with a, b:
        src, dst, out = nic.allocate(64), nic.allocate(64), nic.allocate(threads * RECEIVED.bytes)
        src.write(0, bytes(range(64)))
        for _ in range(6):  # round the ring of receives
            getattr(kernels, f"all_of_{scope}")[1, threads](a, b, dst, src, out)
        assert dst.read(0, 64) == bytes(range(64))
        for thread in range(threads):
            seen = RECEIVED.unpack(out.read(thread * RECEIVED.bytes, RECEIVED.bytes))
            assert (seen["index"], seen["bytes"], seen["immediate"], seen["addr"]) == (5, 64, 5, dst.address)
