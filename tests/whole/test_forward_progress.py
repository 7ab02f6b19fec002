# SPDX-License-Identifier: Apache-2.0
"""A kernel that waits for the NIC is never what the NIC waits for. One test for each hazard.

On the CPU: nobody but the waiting threads is there to run the engine; more threads wait than there are processors;
a wait is a raw spin. On a GPU: lazy loading, synchronizing and allocating calls, the legacy stream, a full GPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import pytest

import gda
from gda import attach

KERNELS = r"""
#include <gda/gda.h>
// Every thread puts its own 8 bytes and waits.
GDA_KERNEL(everyone)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    gda_ticket t = gda_put(qp, dst, 8 * i, src, 8 * i, 8);
    gda_report(status, gda_wait(qp, t, GDA_S(20)));
}
// Waits for data, not for a completion: a raw spin on memory that only the NIC changes.
GDA_KERNEL(spin)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    volatile uint64_t* word = reinterpret_cast<volatile uint64_t*>(dst.addr);
    gda_ticket t = gda_put(qp, dst, 0, src, 0, 8);
    if (gda_failed(t)) { *status = gda_wait(qp, t, 0); return; }
    while (*word == 0) { }
    *status = gda_wait(qp, t, GDA_S(5));
}
// Waits until a host thread writes the word.
GDA_KERNEL(hold)(gda_mr word, uint64_t give_up_ns, gda_status* status) {
    volatile uint64_t* at = reinterpret_cast<volatile uint64_t*>(word.addr);
    uint64_t start = gda_now_ns();
    while (*at == 0) {
        if (gda_now_ns() - start > give_up_ns) { *status = GDA_TIMEOUT; return; }
    }
}
"""
OTHER = r"""
#include <gda/gda.h>
GDA_KERNEL(other)(gda_mr word, gda_status* status) {
    *reinterpret_cast<volatile uint64_t*>(word.addr) = 1;
    *status = 0;
}
"""


@pytest.fixture(scope="module")
def nic() -> Iterator[gda.Nic]:
    with gda.open() as nic:
        yield nic


@pytest.fixture(scope="module")
def kernels() -> gda.Kernel:
    return gda.Kernel(KERNELS)


@pytest.fixture
def no_engine_thread(nic: gda.Nic) -> Iterator[None]:
    software = attach.loaded()
    if software is None:
        pytest.skip("not run: a card works by itself")
    software.set_thread("off")
    yield
    software.set_thread("adaptive")


def filled(nic: gda.Nic, count: int, placement: str = "host") -> tuple[gda.Memory, gda.Memory]:
    src, dst = nic.allocate(8 * count, placement=placement), nic.allocate(8 * count, placement=placement)
    src.write(0, (np.arange(count, dtype=np.uint64) + 1).tobytes())
    dst.write(0, bytes(8 * count))
    return src, dst


@pytest.mark.parametrize("shape", [(1, 1), (1, 32), (2, 256), (16, 1024)], ids=str)
def test_waiting_threads_run_the_nic_themselves(
    nic: gda.Nic, kernels: gda.Kernel, no_engine_thread: None, shape: tuple[int, int]
) -> None:
    if "GPU" in kernels.where:
        pytest.skip("not run: on a GPU the engine's thread does it")
    count = shape[0] * shape[1]
    src, dst = filled(nic, count)
    a, _ = nic.loopback_pair(depth=256, deadline_ms=20_000)
    kernels.everyone[shape](a, dst, src)
    assert dst.read(0, 8 * count) == src.read(0, 8 * count)


def test_raw_spin_on_data_from_the_nic(nic: gda.Nic, kernels: gda.Kernel, no_engine_thread: None) -> None:
    if "GPU" in kernels.where:
        pytest.skip("not run: on a GPU the engine's thread does it")
    src, dst = filled(nic, 1)
    a, _ = nic.loopback_pair()
    kernels.spin[1, 1](a, dst, src)
    assert dst.read(0, 8) == src.read(0, 8)


@pytest.mark.gpu
def test_another_kernel_is_loaded_and_run_while_one_waits(nic: gda.Nic, kernels: gda.Kernel) -> None:
    """Lazy loading of the second kernel hangs behind the first one unless it was loaded before."""
    other = gda.Kernel(OTHER)  # loaded when made, not at its first launch
    word = nic.allocate(8)
    word.write(0, bytes(8))
    waiting = kernels.hold.start[1, 1](word, 5_000_000_000)
    other.other[1, 1](word)
    waiting.wait(10)


@pytest.mark.gpu
def test_memory_and_queues_are_made_while_a_kernel_waits(nic: gda.Nic, kernels: gda.Kernel) -> None:
    word = nic.allocate(8)
    word.write(0, bytes(8))
    waiting = kernels.hold.start[1, 1](word, 5_000_000_000)
    start = time.monotonic()
    with nic.allocate(4096), nic.queue_pair():
        pass
    word.write(0, b"\1" + bytes(7))
    waiting.wait(10)
    assert time.monotonic() - start < 4


@pytest.mark.gpu
def test_legacy_stream_work_of_others_does_not_wait_for_our_kernel(nic: gda.Nic, kernels: gda.Kernel) -> None:
    import cupy

    cupy.arange(8).sum().get()  # its kernels are loaded
    word = nic.allocate(8)
    word.write(0, bytes(8))
    waiting = kernels.hold.start[1, 1](word, 5_000_000_000)
    start = time.monotonic()
    assert int(cupy.arange(8).sum().get()) == 28
    assert time.monotonic() - start < 4
    word.write(0, b"\1" + bytes(7))
    waiting.wait(10)


@pytest.mark.gpu
@pytest.mark.parametrize("placement", ["host", "gpu"])
def test_kernel_that_fills_the_gpu_and_waits(nic: gda.Nic, kernels: gda.Kernel, placement: str) -> None:
    """Device-to-device copies cannot run then: the engine goes through pinned host memory."""
    blocks, threads = 264, 1024
    src, dst = filled(nic, blocks * threads, placement)
    a, _ = nic.loopback_pair(depth=16384, deadline_ms=8_000)
    code = KERNELS.replace("GDA_KERNEL(everyone)", "GDA_KERNEL(first_of_block)").replace(
        "gda_ticket t = gda_put(qp, dst, 8 * i, src, 8 * i, 8);",
        "uint64_t start = gda_now_ns();\n"
        "    volatile uint64_t* first = reinterpret_cast<volatile uint64_t*>(dst.addr);\n"
        "    if (threadIdx.x) { while (!*first && gda_now_ns() - start < GDA_S(8)) { } return; }\n"
        "    gda_ticket t = gda_put(qp, dst, 8 * i, src, 8 * i, 8 * blockDim.x);",
    )
    code = code.replace("GDA_S(20)", "GDA_S(8)")
    filling = gda.Kernel(code).first_of_block.start[blocks, threads](a, dst, src)
    filling.wait(30)
    assert dst.read(0, 8 * blocks * threads) == src.read(0, 8 * blocks * threads)


def test_nothing_here_asks_for_the_legacy_stream_or_a_device_wide_wait() -> None:
    """The calls that would hang behind a waiting kernel are in none of our files."""
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    for path in [*root.glob("gda/**/*.py*"), *root.glob("sim/**/*.cc")]:
        text = path.read_text() if path.suffix in {".py", ".pyx", ".cc"} else ""
        for call in ("cuCtxSynchronize", "cudaDeviceSynchronize", "deviceSynchronize", "Device().synchronize"):
            assert call not in text, f"{path.relative_to(root)} calls {call}"


def test_many_more_threads_than_processors_wait_at_once(nic: gda.Nic, kernels: gda.Kernel) -> None:
    if "GPU" in kernels.where:
        pytest.skip("not run: about processors of the CPU")
    blocks = 8 * (os.cpu_count() or 1)
    src, dst = filled(nic, blocks * 8)
    a, _ = nic.loopback_pair(depth=64, deadline_ms=20_000)
    kernels.everyone[blocks, 8](a, dst, src)
    assert dst.read(0, 64 * blocks) == src.read(0, 64 * blocks)
