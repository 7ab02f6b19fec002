# SPDX-License-Identifier: Apache-2.0
"""Launches on the CPU: deadlines, spins, threads that block each other, status words, the idle hook."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from gda import attach, formats
from gda.errors import (
    ArgumentError,
    CompletionError,
    DeadlineError,
    DeviceStatusError,
    HandleError,
    NotConnectedError,
    OrderingError,
    OutOfBoundsError,
    QueueFullError,
)
from gda.run import Kernel, host

TEXT = r"""
#include <gda/gda.h>
GDA_KERNEL(spin_plain)(int* flag) { while (!*flag) ; }
GDA_KERNEL(spin_volatile)(int* flag) { volatile int* f = flag; while (*f == 0) { } }
GDA_KERNEL(spin_for)(int* flag) { for (; *flag == 0;) { } }
GDA_KERNEL(spin_do)(int* flag) { do { } while (!*flag); }
GDA_KERNEL(spin_goto)(int* flag) { volatile int* f = flag; again: if (!*f) goto again; }
GDA_KERNEL(spin_idle)(int* flag) { while (!*flag) gda::target::idle(); }
GDA_KERNEL(for_ever)() { for (;;) { } }
GDA_KERNEL(compute)(uint64_t n, uint64_t* out) {
    uint64_t x = 1;
    for (uint64_t i = 0; i < n; i++) x = x * 6364136223846793005u + (x >> 60 ? 1 : 3);
    out[threadIdx.x] = x;
}
// Thread 0 waits for thread 1 of the same block, without any barrier.
GDA_KERNEL(hand_over)(int* out) {
    __shared__ int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) { while (flag == 0) ; out[0] = flag; }
    if (threadIdx.x == 1) { flag = 5; }
}
// Block 0 waits for block 1.
GDA_KERNEL(between_blocks)(int* flag) {
    if (blockIdx.x == 0) { while (!*flag) ; } else { *flag = 1; }
}
GDA_KERNEL(divergent)() { if (threadIdx.x != 5) __syncthreads(); else __syncwarp(0x21); }
GDA_KERNEL(bad_mask)() { if (threadIdx.x == 3) __syncwarp(0x1); }
GDA_KERNEL(trap)() { if (threadIdx.x == 2) __trap(); }
GDA_KERNEL(two_masks)() { __syncwarp(threadIdx.x < 2 ? 0x7u : 0xfu); }
GDA_KERNEL(report)(uint64_t word, gda_status* status) { gda_report(status, word); }
GDA_KERNEL(report_many)(gda_status* status) { gda_report(status, threadIdx.x < 8 ? 0 : 2); }
GDA_KERNEL(nothing)() { }
"""
STUCK = r"""
#include <unistd.h>
#include <gda/gda.h>
GDA_KERNEL(stuck)(int us) { usleep(us); }
"""


@pytest.fixture(scope="module")
def k() -> Kernel:
    return Kernel(TEXT, target="host")


@pytest.mark.parametrize("name", ["spin_plain", "spin_volatile", "spin_for", "spin_do", "spin_goto", "spin_idle"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 40)])
def test_spin_ends_when_the_flag_is_set(k: Kernel, name: str, shape: tuple[int, int]) -> None:
    flag = np.zeros(1, np.int32)
    launch = k[name].start[shape](flag)
    assert not launch.done()
    flag[0] = 1
    launch.wait(10)
    assert launch.done()


@pytest.mark.parametrize("name", ["spin_plain", "spin_volatile", "spin_goto", "spin_idle"])
@pytest.mark.parametrize("shape", [(1, 1), (70, 33)])
def test_spin_ends_at_the_deadline(k: Kernel, name: str, shape: tuple[int, int]) -> None:
    flag = np.zeros(1, np.int32)
    begin = time.monotonic()
    with pytest.raises(DeadlineError, match=f"{name} .*did not end within 0.2 s") as caught:
        k[name].start[shape](flag).wait(0.2)
    assert 0.2 <= time.monotonic() - begin < 2
    assert "left behind" not in str(caught.value)
    k.nothing[1, 1]()


def test_endless_loop_without_memory(k: Kernel) -> None:
    with pytest.raises(DeadlineError):
        k.for_ever.start[2, 64]().wait(0.1)


def test_default_deadline_is_the_kernels(k: Kernel) -> None:
    own = Kernel(TEXT, target="host")
    own.deadline_s = 0.1
    begin = time.monotonic()
    with pytest.raises(DeadlineError):
        own.for_ever[1, 1]()
    assert time.monotonic() - begin < 2


def test_thread_that_cannot_be_stopped_is_left_behind(k: Kernel) -> None:
    """In a function of the C library no turns are counted."""
    with pytest.raises(DeadlineError, match=r"some of its threads do not stop and are left behind"):
        Kernel(STUCK, target="host").stuck.start[1, 1](2_500_000).wait(0.1)
    k.nothing[1, 1]()
    end = time.monotonic() + 10
    while host._under_way and time.monotonic() < end:
        k.nothing[1, 1]()
    assert not host._under_way


def test_a_launch_does_not_wait_for_those_who_wait_for_another(k: Kernel) -> None:
    """Each launch looks whether others have ended. Ranks that are threads took 50 ms for each, or starved."""
    flag = np.zeros(1, np.int32)
    long = k.spin_volatile.start[1, 1](flag)
    waiters = [threading.Thread(target=long.wait, args=(30,)) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    begin = time.monotonic()
    for _ in range(40):
        k.nothing[1, 1]()
    took = time.monotonic() - begin
    flag[0] = 1
    for waiter in waiters:
        waiter.join(30)
        assert not waiter.is_alive()
    assert long.done() and took < 0.5


def test_who_waits_is_called_meanwhile(k: Kernel) -> None:
    flag, calls = np.zeros(1, np.int32), []

    def meanwhile() -> None:
        calls.append(1)
        if len(calls) == 3:
            flag[0] = 1

    k.spin_idle.start[1, 1](flag).wait(60, meanwhile=meanwhile)
    assert len(calls) >= 3


WAITING = """
#include <gda/gda.h>
GDA_KERNEL(wait)(uint64_t* signal, uint64_t ns) { gda_wait_signal(signal, GDA_REACHED, 1, ns); }
GDA_KERNEL(wait_and_compute)(uint64_t* signal, uint64_t n, uint64_t* out) {
    if (threadIdx.x == 0) { gda_wait_signal(signal, GDA_REACHED, 1, GDA_S(30)); return; }
    uint64_t x = 1;
    for (uint64_t i = 0; i < n; i++) x = 3 * x + i;
    out[0] = x;
    __atomic_store_n(signal, uint64_t(1), __ATOMIC_RELEASE);
}
"""


def test_who_waits_for_long_leaves_the_processor_to_others() -> None:
    """With more threads than processors some had never run: ranks waited for them until their deadline."""
    kernel, signal = Kernel(WAITING, target="host"), np.zeros(1, np.uint64)
    used, began = time.process_time(), time.monotonic()
    kernel.wait[1, 32](signal, 10**9)
    assert time.process_time() - used < 0.6 * (time.monotonic() - began)


def test_who_waits_does_not_hold_up_who_computes() -> None:
    kernel, signal, out = Kernel(WAITING, target="host"), np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    kernel.deadline_s = 30
    began = time.monotonic()
    kernel.wait_and_compute[1, 2](signal, 100_000_000, out)
    assert time.monotonic() - began < 4  # naps at each turn would take 7 s


def test_given_up_launch_says_so_again(k: Kernel) -> None:
    launch = k.for_ever.start[1, 1]()
    for _ in range(2):
        with pytest.raises(DeadlineError):
            launch.wait(0.05)


def test_long_computation_is_no_spin(k: Kernel) -> None:
    out = np.zeros(4, np.uint64)
    k.compute[1, 4](3_000_000, out)
    assert len(set(out)) == 1


def test_thread_waits_for_another(k: Kernel) -> None:
    out = np.zeros(1, np.int32)
    k.hand_over[1, 33](out)
    assert out[0] == 5


def test_block_waits_for_another(k: Kernel) -> None:
    k.between_blocks[2, 32](np.zeros(1, np.int32))


def test_threads_that_block_each_other(k: Kernel) -> None:
    begin = time.monotonic()
    with pytest.raises(DeviceStatusError) as caught:
        k.divergent[3, 32]()
    assert time.monotonic() - begin < 5, "found at once, not at the deadline"
    text = str(caught.value)
    assert "31 threads (0 first) wait at __syncthreads" in text
    assert "thread 5 waits at __syncwarp with mask 0x00000021" in text
    assert "block " in text and "try:" in text


def test_lanes_with_different_masks(k: Kernel) -> None:
    with pytest.raises(DeviceStatusError, match=r"with mask 0x00000007.*with mask 0x0000000f"):
        k.two_masks[1, 4]()


def test_mask_without_the_own_lane(k: Kernel) -> None:
    with pytest.raises(DeviceStatusError, match="thread 3 calls a warp operation with mask 0x00000001"):
        k.bad_mask[1, 32]()


def test_trap(k: Kernel) -> None:
    with pytest.raises(DeviceStatusError, match=r"block 0: thread 2 called __trap"):
        k.trap[1, 32]()


def word(**fields: int) -> int:
    return int.from_bytes(formats.status.pack(**fields), "big")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("GDA_TIMEOUT", DeadlineError),
        ("GDA_QUEUE_FULL", QueueFullError),
        ("GDA_OUT_OF_BOUNDS", OutOfBoundsError),
        ("GDA_NOT_CONNECTED", NotConnectedError),
        ("GDA_BAD_HANDLE", HandleError),
        ("GDA_NO_RECEIVE_QUEUE", HandleError),
        ("GDA_RELAXED_SIGNAL", OrderingError),
    ],
)
def test_status_becomes_an_exception(k: Kernel, code: str, error: type[DeviceStatusError]) -> None:
    status = word(code=int(formats.constants[code]), qpn=0x12, wqe_index=5)
    with pytest.raises(error) as caught:
        k.report[1, 1](status)
    assert caught.value.status == status
    assert "kernel report" in str(caught.value) and "queue pair 0x12" in str(caught.value)
    assert caught.value.advice


def test_a_signal_that_did_not_come(k: Kernel) -> None:
    status = 0x123456789 << 8 | int(formats.constants["GDA_SIGNAL_TIMEOUT"])
    with pytest.raises(DeadlineError, match=f"no signal, last seen {0x123456789}: the signal had") as caught:
        k.report[1, 1](status)
    assert caught.value.advice


def test_completion_error(k: Kernel) -> None:
    status = word(code=1, qpn=0x12, wqe_index=5, syndrome=0x13, vendor_error_syndrome=0x88)
    with pytest.raises(CompletionError) as caught:
        k.report[1, 1](status)
    said = "remote access error (syndrome 0x13, vendor 0x88) on work request 5 of queue pair 0x12"
    assert said in str(caught.value)
    assert (caught.value.syndrome, caught.value.vendor_syndrome) == (0x13, 0x88)
    assert (caught.value.qpn, caught.value.wqe_index) == (0x12, 5)


def test_unknown_status_is_still_an_error(k: Kernel) -> None:
    with pytest.raises(DeviceStatusError):
        k.report[1, 1](word(code=0x77))


def test_no_status_no_exception(k: Kernel) -> None:
    k.report[1, 1](0)
    own = np.zeros(1, np.uint64)
    k.report[1, 1](3, own)
    assert own[0] == 3, "an own status word is the caller's to look at"


def test_first_report_counts(k: Kernel) -> None:
    with pytest.raises(DeadlineError):
        k.report_many[1, 32]()


@pytest.mark.parametrize(
    "shape", [(1,), 1, (1, 1, 1, 1), (0, 1), (1, 0), (1, 1025), (1, (32, 33)), (1, 1.5), (1, True)]
)
def test_wrong_shapes(k: Kernel, shape: object) -> None:
    with pytest.raises(ArgumentError):
        k.nothing[shape]()  # type: ignore[index]
    with pytest.raises(ArgumentError, match="needs a shape"):
        k.nothing()


def test_idle_hook_runs_while_all_wait(k: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook is what makes the software NIC go on: nobody else is there."""
    flag = np.zeros(1, np.int32)
    calls = 0

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def hook() -> int:
        nonlocal calls
        calls += 1
        if calls == 10:
            flag[0] = 1
        return 0

    address = ctypes.cast(hook, ctypes.c_void_p).value
    monkeypatch.setattr(attach, "idle_hook_address", lambda: address)
    for name in ("spin_plain", "spin_idle", "spin_goto"):
        flag[0], calls = 0, 0
        k[name][2, 64](flag)
        assert calls >= 10


def test_launches_from_several_threads(k: Kernel) -> None:
    failed: list[BaseException] = []

    def some() -> None:
        try:
            for _ in range(20):
                k.between_blocks[2, 32](np.zeros(1, np.int32))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed and not any(thread.is_alive() for thread in threads)


def test_forgotten_launch_keeps_its_arguments(k: Kernel) -> None:
    go = np.zeros(1, np.int32)
    out = np.zeros(1, np.uint64)
    k.spin_plain.start[2, 32](go)
    k.compute.start[1, 1](1000, out)
    gc.collect()
    go[0] = 1
    k.nothing[1, 1]()
    end = time.monotonic() + 10
    while host._under_way and time.monotonic() < end:
        k.nothing[1, 1]()
    assert not host._under_way


def test_kernel_that_runs_at_the_end_of_the_process() -> None:
    program = f"from gda.run import Kernel\nKernel({TEXT!r}, target='host').for_ever.start[3, 64]()\nprint('last line')"
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "last line\n"), done.stderr
