# SPDX-License-Identifier: Apache-2.0
"""Kernels of Numba on a GPU, over the software NIC: what they put arrives, what they report is raised. Tier `gpu`."""

from __future__ import annotations

import numpy as np
import pytest

import gda
from gda.errors import ArgumentError, CompletionError, DeadlineError, OutOfBoundsError, UnavailableError
from gda.tools.trace.puts import STAGES

try:
    import gda.numba as gn
except UnavailableError as error:
    pytest.skip(f"not run: {error}", allow_module_level=True)
pytestmark = pytest.mark.gpu

from numba import cuda  # noqa: E402


@cuda.jit
def fill_and_put(qp, dst, src, values, bytes, status):  # noqa: PLR0917
    """Each thread computes a number and puts its eight bytes."""
    i = cuda.grid(1)
    if i < values.size:
        values[i] = 3 * i + 1
        cuda.threadfence_system()  # the NIC reads it
        ticket = gn.put(qp, dst, i * bytes, src, i * bytes, bytes)
        gn.report(status, gn.wait(qp, ticket, 5 * gn.S))


@cuda.jit
def operations(qp, dst, own, status):
    gn.put_value(qp, dst, 0, np.float32(1.5), gn.MORE)
    gn.put_value(qp, dst, 4, np.uint8(7), flags=gn.MORE)
    gn.put_value(qp, dst, 8, 1234567890123)
    gn.fetch_add(qp, own, 0, dst, 8, 5)
    gn.compare_swap(qp, own, 8, dst, 8, 1234567890128, 99)
    status_of = gn.flush(qp, 5 * gn.S)
    if status_of == 0:
        ticket = gn.get(qp, own, 16, dst, 8, 8)
        status_of = gn.wait(qp, ticket, 5 * gn.S)
    gn.report(status, status_of)


@cuda.jit
def pass_rows(qp, dst, src, signals, row_bytes, taken, status):  # noqa: PLR0917
    """The first block sends rows with a signal each, the second waits for them and reads what came."""
    row = cuda.threadIdx.x
    if cuda.blockIdx.x == 0:
        ticket = gn.put_signal(qp, dst, row * row_bytes, src, row * row_bytes, row_bytes, signals, 8 * row, row + 1)
        gn.report(status, gn.wait(qp, ticket, 5 * gn.S))
    else:
        seen = gn.wait_signal(signals, 8 * row, gn.REACHED, row + 1, 5 * gn.S)
        gn.report(status, seen)
        taken[row] = gn.old_value(dst, row * row_bytes)


@cuda.jit
def together(qp, dst, src, bytes, status):
    """The first warp puts and signals as one, then the whole block; every thread learns of each."""
    if cuda.threadIdx.x < 32:
        gn.put_warp(qp, dst, 0, src, 0, bytes)
        gn.put_value_warp(qp, dst, 64, 7)
        gn.report(status, gn.wait_warp(qp, gn.signal_warp(qp, dst, 72, 2), 5 * gn.S))
        gn.report(status, gn.flush_warp(qp, 5 * gn.S))
    cuda.syncthreads()
    gn.put_block(qp, dst, 80, src, 0, bytes)
    gn.put_value_block(qp, dst, 144, 9)
    gn.report(status, gn.wait_block(qp, gn.signal_block(qp, dst, 72, 3), 5 * gn.S))
    gn.report(status, gn.flush_block(qp, 5 * gn.S))


@cuda.jit
def hold(flag, status):
    start = gn.now_ns()
    while flag[0] == 0 and gn.now_ns() - start < 3 * gn.S:
        cuda.threadfence_system()


@pytest.mark.parametrize("where", ["host", "gpu"])
@pytest.mark.parametrize("shape", [(1, 32), (4, 96)])
def test_put(where: str, shape: tuple[int, int]) -> None:
    count = shape[0] * shape[1]
    values = cuda.device_array(count, np.uint64)
    with gda.open() as nic:
        src, dst = nic.register(values), nic.allocate(8 * count, where)
        a, _ = nic.loopback_pair(depth=256)
        gn.Kernel(fill_and_put)[shape](a, dst, src, values, 8)
        assert (np.frombuffer(dst.read(0, 8 * count), np.uint64) == 3 * np.arange(count) + 1).all()


@pytest.mark.parametrize("lto", [False, True])
def test_values_and_atomics(lto: bool) -> None:
    with gda.open() as nic:
        dst, own = nic.allocate(64), nic.allocate(64)
        a, _ = nic.loopback_pair()
        gn.Kernel(cuda.jit(lto=lto)(operations.py_func))[1, 1](a, dst, own)
        assert np.frombuffer(dst.read(0, 4), np.float32)[0] == 1.5
        assert dst.read(4, 1) == b"\x07"
        assert np.frombuffer(dst.read(8, 8), np.uint64)[0] == 99
        assert np.frombuffer(own.read(0, 24), np.uint64).tolist() == [1234567890123, 1234567890128, 99]


def test_a_warp_and_a_block_together() -> None:
    """One operation for all of them: the signals add up once each."""
    with gda.open() as nic:
        src, dst = nic.allocate(64), nic.allocate(160)
        src.write(0, bytes(range(64)))
        a, _ = nic.loopback_pair(depth=64)
        gn.Kernel(together)[1, 96](a, dst, src, 64)
        assert dst.read(0, 64) == dst.read(80, 64) == bytes(range(64))
        assert [int.from_bytes(dst.read(at, 8), "little") for at in (64, 72, 144)] == [7, 5, 9]
        assert a.read_handle()["reserved"] == 6


def test_signals() -> None:
    sent = 7 * np.arange(32, dtype=np.uint64) + 1
    taken = cuda.to_device(np.zeros(32, np.uint64))
    with gda.open() as nic:
        src, dst, signals = nic.allocate(256), nic.allocate(256), nic.allocate(256)
        src.write(0, sent.tobytes())
        a, _ = nic.loopback_pair(depth=128)
        gn.Kernel(pass_rows)[2, 32](a, dst, src, signals, 8, taken)
        assert (taken.copy_to_host() == sent).all()


def test_launched_by_numba_itself() -> None:
    """With arguments made by hand, on a stream of the caller's; the status word is an array's element."""
    values, status = cuda.to_device(np.zeros(32, np.uint64)), cuda.to_device(np.zeros(1, np.uint64))
    with gda.open() as nic:
        src, dst = nic.register(values), nic.allocate(256)
        a, _ = nic.loopback_pair(depth=64)
        where = np.uint64(status.__cuda_array_interface__["data"][0])
        fill_and_put[1, 32, cuda.stream()](gn.queue(a), gn.region(dst), gn.region(src), values, 8, where)
        cuda.synchronize()
        assert status.copy_to_host()[0] == 0
        assert (np.frombuffer(dst.read(0, 256), np.uint64) == 3 * np.arange(32) + 1).all()


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
def test_what_the_kernel_reports_is_raised() -> None:
    values = cuda.device_array(1, np.uint64)
    with gda.open() as nic:
        src, dst = nic.register(values), nic.allocate(8)
        a, _ = nic.loopback_pair()
        with pytest.raises(OutOfBoundsError, match="kernel fill_and_put"):
            gn.Kernel(fill_and_put)[1, 1](a, dst, src, values, 16)
        gone = dst.remote
        dst.close()
        with pytest.raises(CompletionError, match="remote access error"):
            gn.Kernel(fill_and_put)[1, 1](a, gone, src, values, 8)


@pytest.mark.parametrize("by_numba", [False, True])
def test_a_traced_kernel_leaves_every_stage(by_numba: bool) -> None:
    """Also of a launch by Numba itself, of a kernel that is linked while a trace is recorded."""
    count = 8
    values, status = cuda.to_device(np.zeros(count, np.uint64)), cuda.to_device(np.zeros(1, np.uint64))
    with gda.open() as nic, gda.trace.record() as t:
        src, dst = nic.register(values), nic.allocate(8 * count)
        a, _b = nic.loopback_pair(depth=64)
        if by_numba:
            where = np.uint64(status.__cuda_array_interface__["data"][0])
            own = cuda.jit(fill_and_put.py_func)
            own[1, count, cuda.stream()](gn.queue(a), gn.region(dst), gn.region(src), values, 8, where)
            cuda.synchronize()
        else:
            gn.Kernel(fill_and_put)[1, count](a, dst, src, values, 8)
    assert len(t.puts) == count
    assert sorted(t.puts["lane"].tolist()) == list(range(count))
    for stage in STAGES:
        assert (t.puts[stage] > 0).all(), stage
    assert (t.puts["done"] - t.puts["reserve"] > 0).all()
    assert (t.puts["seen"] - t.puts["ring"] > -20_000).all(), "one time base, to some microseconds"
    (actor,) = [actor for actor in t.actors if actor.source == "kernel"]
    assert actor.name == ("a kernel of Numba" if by_numba else "fill_and_put")


def test_deadline_and_start() -> None:
    kernel = gn.Kernel(hold)
    flag = cuda.mapped_array(1, np.uint64)
    flag[0] = 0
    launch = kernel.start[1, 1](flag)
    assert not launch.done()
    with pytest.raises(DeadlineError, match=r"did not end within 0.2 s"):
        launch.wait(0.2)
    flag[0] = 1
    again = kernel.start[1, 1](flag)
    again.wait(5)
    assert again.done()


def test_arrays_of_the_cpu_are_refused() -> None:
    with pytest.raises(ArgumentError, match="kernel hold, argument 0: a ndarray lies in CPU memory"):
        gn.Kernel(hold)[1, 1](np.zeros(1, np.uint64))


def test_library_is_for_this_gpu() -> None:
    major, minor = cuda.get_current_device().compute_capability
    assert gn.object_code() == gn.object_code((major, minor))
    assert f".target sm_{major}{minor}".encode() in gn.object_code(form="ptx")


def test_what_was_queued_before_comes_first() -> None:
    with gda.open() as nic:
        values = cuda.to_device(np.zeros(1, np.uint64))
        src, dst = nic.register(values), nic.allocate(8)
        a, _ = nic.loopback_pair()
        kernel = gn.Kernel(put_one)
        for done in (5, 10):  # in the second round both are compiled
            add_slowly[1, 1](values)
            kernel[1, 1](a, dst, src)
            assert np.frombuffer(dst.read(0, 8), np.uint64)[0] == done


@cuda.jit
def add_slowly(values):
    for _ in range(40):
        cuda.nanosleep(np.uint32(500_000))
    values[0] += np.uint64(5)


@cuda.jit
def put_one(qp, dst, src, status):
    gn.report(status, gn.wait(qp, gn.put(qp, dst, 0, src, 0, 8), 5 * gn.S))
