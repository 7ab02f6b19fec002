# SPDX-License-Identifier: Apache-2.0
"""Signals and masked atomics through Kernel on a NIC, with the fixtures of operation_cases.py.

Imported by test_nic_operations.py (on the CPU) and test_gpu_operations.py (on a GPU).
"""

from __future__ import annotations

import numpy as np
import pytest

import gda
from gda.errors import DeadlineError

from .operation_cases import LIMIT_S, Allocate, numbers

SIGNAL_KERNELS = r"""
#include <gda/kernels/signal.h>
#define ME (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x)
// Block 0 sends rounds to block 1, which takes each as soon as its signal says so and answers by a signal: no word may
// be old. `data` is one piece a thread; signals[0] counts pieces, signals[1] answers.
GDA_KERNEL(rounds)(gda_qp* qp, gda_qp* back, gda_mr src, gda_mr dst, gda_mr signals, uint32_t rounds, uint32_t bytes,
                   gda_mr wrong, gda_status* status) {
    uint64_t at = uint64_t(threadIdx.x) * bytes;
    uint64_t* signal = reinterpret_cast<uint64_t*>(signals.addr);
    for (uint64_t round = 1; round <= rounds; ++round) {
        gda_status s = 0;
        if (blockIdx.x == 0) {
            uint32_t* words = reinterpret_cast<uint32_t*>(src.addr + at);
            for (uint32_t i = 0; i < bytes / 4; ++i) words[i] = uint32_t(round * 1000 + threadIdx.x);
            __threadfence_system();
            gda_ticket t = gda_put_signal(qp, dst, at, src, at, bytes, signals, 0, 1, GDA_SIGNAL_ADD);
            s = gda_wait(qp, t, LIMIT);
            if (s == 0) s = gda_wait_signal(signal + 1, GDA_EQUAL, round, LIMIT);
        } else {
            s = gda_wait_signal(signal, GDA_REACHED, round * blockDim.x, LIMIT);
            const volatile uint32_t* words = reinterpret_cast<uint32_t*>(dst.addr + at);
            uint64_t* count = reinterpret_cast<uint64_t*>(wrong.addr) + threadIdx.x;
            for (uint32_t i = 0; i < bytes / 4; ++i) *count += words[i] != uint32_t(round * 1000 + threadIdx.x);
            __syncthreads();
            if (threadIdx.x == 0 && s == 0) {
                s = gda_wait(back, gda_signal(back, signals, 8, round, GDA_SIGNAL_SET), LIMIT);
            }
        }
        gda_report(status, s);
    }
}
// Fetches and sends on without a wait between them.
GDA_KERNEL(fetch_and_forward)(gda_qp* qp, gda_mr from, gda_mr own, gda_mr to, gda_mr old, uint64_t bytes,
                              gda_status* status) {
    uint64_t at = ME * bytes;
    gda_get(qp, own, at, from, at, bytes);
    gda_put(qp, to, at, own, at, bytes, GDA_FENCE);
    gda_fetch_add(qp, old, 16 * ME, from, ME * bytes, 1);
    gda_ticket t = gda_put_signal(qp, to, at, old, 16 * ME, 8, old, 16 * ME + 8, 5, GDA_SIGNAL_SET, GDA_FENCE);
    gda_report(status, gda_wait(qp, t, LIMIT));
}
GDA_KERNEL(masked_counts)(gda_qp* qp, gda_mr word, gda_mr old, uint32_t rounds, gda_status* status) {
    for (uint32_t i = 0; i < rounds; ++i) {  // two numbers of 32 bits: the lower one overflows into nothing
        gda_ticket t = gda_masked_fetch_add<uint64_t>(qp, old, ME * 8, word, 0, 0x100000001, 0x80000000);
        gda_status s = gda_wait(qp, t, LIMIT);
        if (s != 0) return gda_report(status, s);
    }
}
// Each thread owns four bits of the word: nobody else's change.
GDA_KERNEL(masked_fields)(gda_qp* qp, gda_mr word, gda_mr old, uint32_t rounds, gda_status* status) {
    uint64_t mine = uint64_t(15) << 4 * (ME % 16);
    for (uint32_t i = 0; i < rounds; ++i) {
        uint64_t from = mine & (0x1111111111111111 * i), to = mine & (0x1111111111111111 * (i + 1));
        gda_ticket t = gda_masked_compare_swap<uint64_t>(qp, old, ME * 8, word, 0, from, mine, to, mine);
        gda_status s = gda_wait(qp, t, LIMIT);
        if (s != 0) return gda_report(status, s);
        if ((gda_old_value(reinterpret_cast<uint64_t*>(old.addr + ME * 8)) & mine) != from) return __trap();
    }
}
GDA_KERNEL(masked_small)(gda_qp* qp, gda_mr word, gda_mr old, gda_mr out, gda_status* status) {
    uint32_t* seen = reinterpret_cast<uint32_t*>(out.addr);
    const uint32_t* at = reinterpret_cast<uint32_t*>(old.addr);
    gda_status s = gda_wait(qp, gda_masked_fetch_add<uint32_t>(qp, old, 0, word, 4, 0x00010001, 0x8000), LIMIT);
    seen[0] = gda_old_value(at);
    gda_ticket t = gda_masked_compare_swap<uint32_t>(qp, old, 4, word, 4, 0x12, 0xff, 0xab00, 0xff00);
    if (s == 0) s = gda_wait(qp, t, LIMIT);
    seen[1] = gda_old_value(at + 1);
    gda_report(status, s);
}
// Posts of one and two blocks by turns, without waiting: laps of the ring in which a request wraps.
GDA_KERNEL(mixed_sizes)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr own, uint32_t rounds, gda_status* status) {
    gda_ticket t = 0;
    for (uint32_t i = 0; i < rounds && !gda_failed(t); ++i) {
        switch ((ME + i) % 3) {
            case 0: t = gda_put_signal(qp, dst, 64 + 8 * ME, src, 8 * ME, 8, dst, 0, 1, GDA_SIGNAL_ADD); break;
            case 1: t = gda_masked_compare_swap<uint64_t>(qp, own, 8 * ME, dst, 8, 0, 0, 7, 7); break;
            default: t = gda_signal(qp, dst, 16, 1, GDA_SIGNAL_ADD, GDA_UNSIGNALED);
        }
    }
    gda_report(status, gda_failed(t) ? gda_test(qp, t) : gda_flush(qp, LIMIT));
}
"""


@pytest.fixture(scope="module")
def signals(target: str) -> gda.Kernel:
    kernels = gda.Kernel(SIGNAL_KERNELS.replace("LIMIT", f"GDA_S({LIMIT_S[target]})"), target=target)
    kernels.deadline_s = 2 * LIMIT_S[target]
    return kernels


@pytest.mark.parametrize("operation", ["GDA_SIGNAL_ADD", "GDA_SIGNAL_SET"])
def test_put_signal_by_a_kernel_of_the_library(
    allocate: Allocate, signals: gda.Kernel, queue: gda.QueuePair, operation: str, limit_ns: int
) -> None:
    src, dst, signal = allocate(4 * 1000), allocate(4 * 1000), allocate(16)
    src.write(0, np.random.default_rng(1).bytes(4000))
    signal.write(8, (10).to_bytes(8, "little"))
    value = int(gda.formats.constants[operation])
    signals.gda_kernel_put_signal[1, 4](queue, dst, 0, src, 0, 1000, signal, 8, 5, value, limit_ns)
    assert dst.read(0, 4000) == src.read(0, 4000)
    assert numbers(signal, 2).tolist() == [0, 30 if operation == "GDA_SIGNAL_ADD" else 5]
    signals.gda_kernel_signal[1, 1](queue, signal, 0, 7, value, limit_ns)
    reached = int(gda.formats.GDA_REACHED)
    signals.gda_kernel_wait_signal[1, 1](signal, 0, reached, 7, limit_ns)
    with pytest.raises(DeadlineError, match="no signal, last seen 7: "):
        signals.gda_kernel_wait_signal[1, 1](signal, 0, reached, 8, 1_000_000)


def test_put_signal_of_several_messages(allocate: Allocate, nic: gda.Nic, signals: gda.Kernel, limit_ns: int) -> None:
    a, _ = nic.loopback_pair(depth=16)
    a._handle._constants["max_message_bytes"] = 1000
    a._handle.update()
    src, dst, signal = allocate(10_500), allocate(10_500), allocate(8)
    src.write(0, np.random.default_rng(1).bytes(10_500))
    signals.gda_kernel_put_signal[1, 1](a, dst, 0, src, 0, 10_500, signal, 0, 1, 0, limit_ns)
    assert dst.read(0, 10_500) == src.read(0, 10_500)
    assert numbers(signal, 1)[0] == 1
    assert a.read_handle()["done"] == 12


@pytest.mark.parametrize("bytes", [4, 9000])
def test_data_is_there_when_its_signal_is(allocate: Allocate, nic: gda.Nic, signals: gda.Kernel, bytes: int) -> None:
    a, b = nic.loopback_pair(depth=64)
    src, dst, signal, wrong = allocate(32 * bytes), allocate(32 * bytes), allocate(16), allocate(32 * 8)
    signals.rounds[2, 32](a, b, src, dst, signal, 6, bytes, wrong)
    assert numbers(wrong, 32).tolist() == [0] * 32
    assert numbers(signal, 2).tolist() == [32 * 6, 6]


def test_a_fenced_request_sends_what_was_fetched_before_it(
    allocate: Allocate, signals: gda.Kernel, queue: gda.QueuePair
) -> None:
    source, own, target_memory = (allocate(8 * 20_000) for _ in range(3))
    old = allocate(8 * 16)
    source.write(0, np.random.default_rng(1).bytes(8 * 20_000))
    before = source.read(0, 8 * 20_000)
    signals.fetch_and_forward[1, 8](queue, source, own, target_memory, old, 20_000)
    assert target_memory.read(0, 8 * 20_000) == before, "the bytes of the get, and the old values"
    assert numbers(old, 16)[1::2].tolist() == [5] * 8


def test_masked_add_has_no_carry_between_numbers(
    allocate: Allocate, signals: gda.Kernel, queue: gda.QueuePair
) -> None:
    word, old = allocate(8), allocate(8 * 64)
    word.write(0, (5 << 32 | 0xFFFFFFFF).to_bytes(8, "little"))
    signals.masked_counts[2, 32](queue, word, old, 5)
    assert numbers(word, 1)[0] == (5 + 320) << 32 | 319
    assert len(set(numbers(old, 64).tolist())) == 64


def test_masked_swaps_leave_other_bits_alone(allocate: Allocate, signals: gda.Kernel, queue: gda.QueuePair) -> None:
    word, old = allocate(8), allocate(8 * 16)
    signals.masked_fields[1, 16](queue, word, old, 15)
    assert numbers(word, 1)[0] == 0xFFFFFFFFFFFFFFFF


def test_masked_atomics_of_four_bytes(allocate: Allocate, signals: gda.Kernel, queue: gda.QueuePair) -> None:
    word, old, seen = allocate(8), allocate(8), allocate(8)
    word.write(0, bytes(4) + (0x0007FFFF).to_bytes(4, "little"))
    signals.masked_small[1, 1](queue, word, old, seen)
    first, second = np.frombuffer(seen.read(0, 8), np.uint32)
    assert (first, second) == (0x0007FFFF, 0x00080000), "the old values, turned round"
    assert word.read(0, 8) == bytes(4) + (0x00080000).to_bytes(4, "little"), "0x00 is not 0x12: nothing was swapped"
    word.write(4, (0x12).to_bytes(4, "little"))
    signals.masked_small[1, 1](queue, word, old, seen)
    assert word.read(4, 4) == (0x00010013).to_bytes(4, "little")


@pytest.mark.parametrize("depth", [4, 16, 32, 64])
def test_requests_of_one_and_two_blocks(
    allocate: Allocate, nic: gda.Nic, target: str, signals: gda.Kernel, depth: int
) -> None:
    """Every thread 30 requests, without a wait between them; a flush knows of those without a completion."""
    a, _ = nic.loopback_pair(depth=depth, deadline_ms=1000 * LIMIT_S[target])
    dst, src, own = (allocate(1024) for _ in range(3))
    src.write(0, np.arange(128, dtype=np.uint64).tobytes())
    # In one of a few hundred turns a request lay across two words of the window, and was rung by half.
    for turn in range(1, 21 if target == "host" else 4):
        dst.write(8, bytes(8))
        signals.mixed_sizes[2, 32](a, dst, src, own, 30)
        assert numbers(dst, 3).tolist() == [640 * turn, 7, 640 * turn]
    assert numbers(dst, 64, 64).tolist() == list(range(64))
