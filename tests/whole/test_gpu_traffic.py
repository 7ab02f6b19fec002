# SPDX-License-Identifier: Apache-2.0
"""Payload in GPU memory on the software NIC, on a real GPU: every size and alignment, order, atomics, few launches."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

import gda
from gda import attach

pytestmark = pytest.mark.gpu

KERNELS = r"""
#include <gda/gda.h>
// Puts one after the other: `list` has destination, source and bytes of each.
GDA_KERNEL(puts)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr list, uint32_t count, gda_status* status) {
    const uint64_t* at = reinterpret_cast<const uint64_t*>(list.addr);
    gda_ticket last = 0;
    for (uint32_t i = 0; i < count; ++i) last = gda_put(qp, dst, at[3 * i], src, at[3 * i + 1], at[3 * i + 2]);
    gda_report(status, gda_wait(qp, last, GDA_S(5)));
}
// Block 0: payload, and behind it puts of eight bytes each to neighbouring words, the last word last. Block 1 waits for
// the last word and counts what is older than it.
GDA_KERNEL(order)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t words, uint32_t rounds, gda_mr out, gda_status* status) {
    volatile uint64_t* source = reinterpret_cast<volatile uint64_t*>(src.addr);
    volatile uint64_t* target = reinterpret_cast<volatile uint64_t*>(dst.addr);
    uint64_t* older = reinterpret_cast<uint64_t*>(out.addr);
    for (uint64_t round = 1; round <= rounds; ++round) {
        if (blockIdx.x == 0) {
            for (uint32_t i = 0; i < words; ++i) source[i] = round;
            __threadfence_system();
            gda_ticket last = gda_put(qp, dst, 64, src, 64, 8 * words - 64);
            for (uint32_t i = 0; i < 8; ++i) last = gda_put(qp, dst, 8 * i, src, 8 * i, 8);
            gda_status result = gda_wait(qp, last, GDA_S(2));
            if (result != 0) { gda_report(status, result); return; }
        } else {
            uint64_t start = gda_now_ns();
            while (target[7] < round) {
                if (gda_now_ns() - start > GDA_S(2)) { *status = GDA_TIMEOUT; return; }
            }
            for (uint32_t i = 7; i-- > 0;) *older += target[i] < round;
            for (uint32_t i = words; i-- > 8;) *older += target[i] < round;
            *older += uint64_t{1} << 32;
        }
    }
}
// All threads: an addition to one word by the NIC, and one by the GPU itself.
GDA_KERNEL(additions)(gda_qp* qp, gda_mr word, gda_mr scratch, gda_status* status) {
    uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    gda_ticket t = gda_fetch_add(qp, scratch, 8 * i, word, 0, 1);
    atomicAdd(reinterpret_cast<unsigned long long*>(word.addr), 1ull << 32);
    gda_report(status, gda_wait(qp, t, GDA_S(10)));
}
"""


@pytest.fixture(scope="module")
def nic() -> Iterator[gda.Nic]:
    with gda.open() as nic:
        yield nic


@pytest.fixture(scope="module")
def kernels() -> gda.Kernel:
    return gda.Kernel(KERNELS)


def counters() -> dict[str, int]:
    """Those of the software NIC."""
    software = attach.loaded()
    if software is None:
        pytest.skip("not run: about the software NIC")
    return software.counters()


@pytest.mark.parametrize("target", ["gpu", "host"])
def test_every_size_and_alignment(nic: gda.Nic, kernels: gda.Kernel, target: str) -> None:
    """By the kernel of ours, and by copies of the driver from 64 KiB on."""
    rng = np.random.default_rng(7)
    sizes = [*range(1, 40), 63, 64, 65, 500, 512, 513, 4095, 4096, 4100, 16384, 16385, 65536, 65537, 300001]
    shape = [(int(rng.integers(0, 40)), int(rng.integers(0, 40)), size) for size in sizes]
    rows, at = [], 0
    for to, from_, size in [*shape, *((16 * (a // 16), 16 * (b // 16), c // 16 * 16 or 16) for a, b, c in shape)]:
        rows.append((at + to, at + from_, size))
        at += (size + 127) // 64 * 64
    source, dst = nic.allocate(at, placement="gpu"), nic.allocate(at, placement=target)
    listed = nic.allocate(24 * len(rows))
    data = os.urandom(at)
    source.write(0, data)
    listed.write(0, np.array(rows, np.uint64).tobytes())
    a, _ = nic.loopback_pair(depth=256)
    kernels.puts[1, 1](a, dst, source, listed, len(rows))
    expected = bytearray(at)
    for to, from_, size in rows:
        expected[to : to + size] = data[from_ : from_ + size]
    assert dst.read(0, at) == bytes(expected)


@pytest.mark.parametrize("words", [16, 1024, 32768])
def test_who_sees_a_signal_sees_what_came_before(nic: gda.Nic, kernels: gda.Kernel, words: int) -> None:
    """Puts of one queue pair, watched by a kernel while they arrive; also those to the same 32 bytes."""
    rounds = 2000 if words < 2048 else 200
    source, dst = nic.allocate(8 * words, placement="gpu"), nic.allocate(8 * words, placement="gpu")
    out = nic.allocate(8, placement="gpu")
    for memory in (source, dst, out):
        memory.write(0, bytes(memory.bytes))
    a, _ = nic.loopback_pair()
    kernels.order[2, 1](a, dst, source, words, rounds, out)
    seen, older = divmod(int.from_bytes(out.read(0, 8), "little"), 1 << 32)
    assert (seen, older) == (rounds, 0)


def test_atomics_of_the_nic_and_of_the_gpu_on_one_word(nic: gda.Nic, kernels: gda.Kernel) -> None:
    word, scratch = nic.allocate(8, placement="gpu"), nic.allocate(8 * 2048, placement="gpu")
    word.write(0, bytes(8))
    a, _ = nic.loopback_pair(depth=1024, deadline_ms=10_000)
    kernels.additions[16, 128](a, word, scratch)
    assert int.from_bytes(word.read(0, 8), "little") == 2048 | 2048 << 32
    low = np.frombuffer(scratch.read(0, 8 * 2048), np.uint64) & 0xFFFFFFFF
    assert sorted(low) == list(range(2048))


def test_small_puts_need_few_launches(nic: gda.Nic, kernels: gda.Kernel) -> None:
    source, dst = nic.allocate(1 << 16, placement="gpu"), nic.allocate(1 << 16, placement="gpu")
    listed = nic.allocate(24 * 1000)
    listed.write(0, np.array([(8 * i, 8 * i, 8) for i in range(1000)], np.uint64).tobytes())
    a, _ = nic.loopback_pair(depth=2048)
    before = counters()
    kernels.puts[1, 1](a, dst, source, listed, 1000)
    after = counters()
    assert after["gpu_items"] - before["gpu_items"] == 1000
    assert after["gpu_launches"] - before["gpu_launches"] <= 3
