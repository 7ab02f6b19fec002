# SPDX-License-Identifier: Apache-2.0
"""Every one-sided operation through Kernel on a NIC: data and sums are exact, also with many producers on one queue.

Imported by test_nic_operations.py (on the CPU) and test_gpu_operations.py (on a GPU), which say with the fixtures
`target` and `placement` where kernels run and where the bytes lie. Every wait in a kernel ends after LIMIT_S.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import gda
from gda.errors import CompletionError

Allocate = Callable[[int], gda.Memory]
LIMIT_S = {"host": 30, "gpu": 4}  # slow CPUs under sanitizers need long; on a GPU nothing may hold on

KERNELS = r"""
#include <gda/kernels/operations.h>
#define ME (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x)
// Every thread adds `rounds` times to one word and keeps the old values: all of them differ.
GDA_KERNEL(count_up)(gda_qp* qp, gda_mr counter, gda_mr old, uint32_t rounds, gda_status* status) {
    for (uint32_t i = 0; i < rounds; ++i) {
        gda_status s = gda_wait(qp, gda_fetch_add(qp, old, (ME * rounds + i) * 8, counter, 0, 1), LIMIT);
        if (s != 0) return gda_report(status, s);
    }
}
// A lock by compare-and-swap around an update of two words by get and put: it excludes, or updates are lost.
GDA_KERNEL(locked)(gda_qp* qp, gda_mr remote, gda_mr own, uint32_t rounds, gda_status* status) {
    uint64_t mine = ME * 32;  // old value of the lock, then the two words
    uint64_t* at = reinterpret_cast<uint64_t*>(own.addr + mine);
    uint64_t start = gda_now_ns();
    for (uint32_t i = 0; i < rounds; ++i) {
        gda_status s;
        do {
            s = gda_wait(qp, gda_compare_swap(qp, own, mine, remote, 0, 0, ME + 1), LIMIT);
            if (gda_now_ns() - start > LIMIT) s = GDA_TIMEOUT;
            if (s != 0) return gda_report(status, s);
        } while (*static_cast<volatile uint64_t*>(at) != 0);
        s = gda_wait(qp, gda_get(qp, own, mine + 8, remote, 8, 16), LIMIT);
        at[1] += 1;
        at[2] += at[1];
        __threadfence_system();
        if (s == 0) s = gda_wait(qp, gda_put(qp, remote, 8, own, mine + 8, 16), LIMIT);
        if (s == 0) s = gda_wait(qp, gda_put_value(qp, remote, 0, uint64_t(0)), LIMIT);
        if (s != 0) return gda_report(status, s);
    }
}
// Reads back what it has just written, in small pieces, everything under way at once.
GDA_KERNEL(there_and_back)(gda_qp* qp, gda_mr src, gda_mr there, gda_mr back, uint32_t bytes, gda_status* status) {
    uint64_t piece = ME * bytes;
    gda_ticket put = gda_put(qp, there, piece, src, piece, bytes);
    gda_ticket get = gda_get(qp, back, piece, there, piece, bytes);
    gda_status s = gda_wait(qp, put, LIMIT);
    if (s == 0) s = gda_wait(qp, get, LIMIT);
    gda_report(status, s);
}
// Values of 1 to 28 bytes side by side, 32 bytes apart; byte i of length n is n + i.
GDA_KERNEL(inline_lengths)(gda_qp* qp, gda_mr dst, gda_status* status) {
    uint8_t data[28];
    uint32_t length = threadIdx.x % 28 + 1;
    for (uint32_t i = 0; i < 28; ++i) data[i] = uint8_t(length + i);
    gda_report(status, gda_wait(qp, gda_put_inline(qp, dst, 32 * threadIdx.x, data, length), LIMIT));
}
GDA_KERNEL(mixed)(gda_qp* qp, gda_mr dst, gda_mr src, gda_mr own, uint32_t rounds, gda_status* status) {
    gda_status s = 0;
    for (uint32_t i = 0; i < rounds && s == 0; ++i) {
        gda_ticket t;
        switch ((ME + i) % 5) {
            case 0: t = gda_put(qp, dst, 64 + 8 * ME, src, 8 * ME, 8); break;
            case 1: t = gda_get(qp, own, 8 * ME, src, 8 * ME, 8); break;
            case 2: t = gda_fetch_add(qp, own, 4096 + 8 * ME, dst, 0, 1); break;
            case 3: t = gda_put_value(qp, dst, 2048 + 8 * ME, ME); break;
            default: t = gda_nop(qp);
        }
        s = gda_wait(qp, t, LIMIT);
    }
    gda_report(status, s);
}
"""


@pytest.fixture(scope="module")
def nic() -> Iterator[gda.Nic]:
    with gda.open() as nic:
        yield nic


@pytest.fixture(scope="module")
def k(target: str) -> gda.Kernel:
    kernels = gda.Kernel(KERNELS.replace("LIMIT", f"GDA_S({LIMIT_S[target]})"), target=target)
    kernels.deadline_s = 2 * LIMIT_S[target]
    return kernels


@pytest.fixture
def limit_ns(target: str) -> int:
    return LIMIT_S[target] * 1_000_000_000


@pytest.fixture(params=["collapsed", "ring"])
def queue(nic: gda.Nic, target: str, request: pytest.FixtureRequest) -> Iterator[gda.QueuePair]:
    a, b = nic.loopback_pair(depth=64, completion=request.param, deadline_ms=1000 * LIMIT_S[target])
    with a, b:
        yield a


@pytest.fixture
def allocate(nic: gda.Nic, placement: str) -> Allocate:
    return lambda bytes: nic.allocate(bytes, placement=placement)


def numbers(memory: gda.Memory, count: int, offset: int = 0) -> np.ndarray:
    return np.frombuffer(memory.read(offset, 8 * count), np.uint64)


@pytest.mark.parametrize("bytes", [1, 8, 4096, 70_001])
def test_get(allocate: Allocate, k: gda.Kernel, queue: gda.QueuePair, bytes: int, limit_ns: int) -> None:
    src, dst = allocate(4 * bytes + 16), allocate(4 * bytes + 16)
    src.write(0, np.random.default_rng(bytes).bytes(4 * bytes + 16))
    dst.write(0, b"\xee" * (4 * bytes + 16))
    k.gda_kernel_get[1, 4](queue, dst, 3, src, 7, bytes, limit_ns)
    assert dst.read(3, 4 * bytes) == src.read(7, 4 * bytes)
    assert dst.read(0, 3) == b"\xee" * 3 and dst.read(4 * bytes + 3, 13) == b"\xee" * 13


def test_get_is_split_like_put(allocate: Allocate, nic: gda.Nic, k: gda.Kernel, limit_ns: int) -> None:
    a, _ = nic.loopback_pair(depth=16)
    a._handle._constants["max_message_bytes"] = 1000
    a._handle.update()
    src, dst = allocate(10_500), allocate(10_500)
    src.write(0, np.random.default_rng(1).bytes(10_500))
    k.gda_kernel_get[1, 1](a, dst, 0, src, 0, 10_500, limit_ns)
    assert dst.read(0, 10_500) == src.read(0, 10_500)
    assert a.read_handle()["done"] == 11


def test_there_and_back(allocate: Allocate, k: gda.Kernel, queue: gda.QueuePair) -> None:
    """A read behind a write to the same place sees it: requests of one queue are carried out in order."""
    src, there, back = (allocate(64 * 3000) for _ in range(3))
    src.write(0, np.random.default_rng(2).bytes(64 * 3000))
    k.there_and_back[2, 32](queue, src, there, back, 3000)
    assert back.read(0, 64 * 3000) == src.read(0, 64 * 3000)


def test_inline_values_of_every_length(allocate: Allocate, k: gda.Kernel, queue: gda.QueuePair) -> None:
    dst = allocate(32 * 28)
    dst.write(0, b"\xee" * 32 * 28)
    k.inline_lengths[1, 28](queue, dst)
    for thread in range(28):
        length = thread + 1
        expected = bytes(length + i for i in range(length)).ljust(32, b"\xee")
        assert dst.read(32 * thread, 32) == expected, f"{length} bytes"


def test_64_producers_count_exactly(allocate: Allocate, k: gda.Kernel, queue: gda.QueuePair) -> None:
    """The sum is exact, and the old values are all numbers below it, each once."""
    counter, old = allocate(8), allocate(64 * 25 * 8)
    counter.write(0, (1 << 40).to_bytes(8, "little"))
    k.count_up[2, 32](queue, counter, old, 25)
    assert numbers(counter, 1)[0] == (1 << 40) + 64 * 25
    assert sorted(numbers(old, 64 * 25) - np.uint64(1 << 40)) == list(range(64 * 25))


def test_fetch_add_wraps(allocate: Allocate, k: gda.Kernel, queue: gda.QueuePair, limit_ns: int) -> None:
    counter, old = allocate(16), allocate(8)
    counter.write(0, b"\xff" * 8 + bytes(8))
    k.gda_kernel_fetch_add[1, 1](queue, old, 0, counter, 0, 2, limit_ns)
    assert numbers(counter, 2).tolist() == [1, 0]
    assert numbers(old, 1)[0] == (1 << 64) - 1


def test_compare_swap(allocate: Allocate, k: gda.Kernel, queue: gda.QueuePair, limit_ns: int) -> None:
    word, old = allocate(8), allocate(8)
    word.write(0, (0x0102030405060708).to_bytes(8, "little"))
    k.gda_kernel_compare_swap[1, 1](queue, old, 0, word, 0, 1, 2, limit_ns)
    assert (numbers(word, 1)[0], numbers(old, 1)[0]) == (0x0102030405060708, 0x0102030405060708), "it did not hold 1"
    k.gda_kernel_compare_swap[1, 1](queue, old, 0, word, 0, 0x0102030405060708, 2, limit_ns)
    assert (numbers(word, 1)[0], numbers(old, 1)[0]) == (2, 0x0102030405060708)


def test_one_of_64_swaps(allocate: Allocate, k: gda.Kernel, queue: gda.QueuePair, limit_ns: int) -> None:
    word, old = allocate(8), allocate(8 * 64)
    k.gda_kernel_compare_swap[2, 32](queue, old, 0, word, 0, 0, 7, limit_ns)
    assert numbers(word, 1)[0] == 7
    assert sorted(numbers(old, 64).tolist()) == [0] + [7] * 63


def test_lock_by_compare_swap(allocate: Allocate, k: gda.Kernel, queue: gda.QueuePair) -> None:
    remote, own = allocate(24), allocate(32 * 8)
    k.locked[2, 4](queue, remote, own, 6)
    assert numbers(remote, 3).tolist() == [0, 48, 48 * 49 // 2]


def test_everything_at_once(allocate: Allocate, k: gda.Kernel, queue: gda.QueuePair) -> None:
    dst, src, own = (allocate(8192) for _ in range(3))
    src.write(0, np.arange(1024, dtype=np.uint64).tobytes())
    k.mixed[2, 32](queue, dst, src, own, 20)
    assert numbers(dst, 1)[0] == 64 * 20 // 5
    assert numbers(dst, 64, 64).tolist() == numbers(own, 64).tolist() == list(range(64))
    assert numbers(dst, 64, 2048).tolist() == list(range(64))
    assert queue.read_handle()["done"] == 64 * 20


@pytest.mark.parametrize("shape", [(2, 32), (4, 16), (1, 40)])
def test_lanes_got_no_index_from_the_first_lane_of_their_part_of_a_warp(
    *, allocate: Allocate, k: gda.Kernel, queue: gda.QueuePair, shape: tuple[int, int], target: str
) -> None:
    """Lanes that wait for one another at many places: one launch in six went wrong on a GPU with collapsed CQEs."""
    dst, src, own = (allocate(8192) for _ in range(3))
    launches = 60 if target == "gpu" else 3
    for _ in range(launches):
        k.mixed[shape](queue, dst, src, own, 20)
    assert numbers(dst, 1)[0] == launches * shape[0] * shape[1] * 20 // 5


def test_nop(k: gda.Kernel, queue: gda.QueuePair, limit_ns: int) -> None:
    k.gda_kernel_nop[1, 32](queue, limit_ns)
    assert queue.read_handle()["done"] == 32


@pytest.mark.gda_complaints("key-right-missing", "refused-by-peer")
@pytest.mark.parametrize(
    ("access", "name", "words"),
    [
        (("local_write", "remote_write"), "gda_kernel_get", "remote access error"),
        (("local_write", "remote_write", "remote_read"), "gda_kernel_fetch_add", "remote access error"),
    ],
)
def test_rights_that_are_missing(
    *, allocate: Allocate, nic: gda.Nic, k: gda.Kernel, access: tuple[str, ...], name: str, words: str, limit_ns: int
) -> None:
    a, _ = nic.loopback_pair()
    remote, own = nic.register(np.zeros(8, np.uint64), access=access), allocate(64)
    with pytest.raises(CompletionError, match=words):
        k[name][1, 1](a, own, 0, remote, 0, 8, limit_ns)


@pytest.mark.gda_complaints("key-right-missing")
def test_result_without_local_write(allocate: Allocate, nic: gda.Nic, k: gda.Kernel, limit_ns: int) -> None:
    a, _ = nic.loopback_pair()
    remote, own = allocate(64), nic.register(np.zeros(8, np.uint64), access=())
    with pytest.raises(CompletionError, match="local protection error"):
        k.gda_kernel_get[1, 1](a, own, 0, remote, 0, 8, limit_ns)


@pytest.mark.gda_complaints("atomic-misaligned", "refused-by-peer")
def test_atomic_on_an_odd_address(allocate: Allocate, nic: gda.Nic, k: gda.Kernel, limit_ns: int) -> None:
    a, _ = nic.loopback_pair()
    remote, own = allocate(64), allocate(64)
    with pytest.raises(CompletionError, match="remote invalid request"):
        k.gda_kernel_fetch_add[1, 1](a, own, 0, remote, 4, 1, limit_ns)
