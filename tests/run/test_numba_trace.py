# SPDX-License-Identifier: Apache-2.0
"""Traces of Numba's kernels, as far as they show without a GPU: what is linked, and how a ring is found and read."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gda import formats, notes
from gda.errors import CudaError, UnavailableError
from gda.run.compile import nvrtc_version
from gda.run.traces import LOG_EVENTS, RING_BYTES, SKIP, SYMBOL
from gda.tools.trace.rings import ring_events

from .test_numba import CC, compiled, region_type

pytest.importorskip("numba")
try:
    import gda.numba
    from gda.numba import traced
    from gda.numba.library import LIBRARY, object_code
except UnavailableError as error:
    pytest.skip(f"not run: {error}", allow_module_level=True)


@pytest.fixture
def nvrtc() -> None:
    try:
        nvrtc_version()
    except UnavailableError as error:
        pytest.skip(f"not run: {error}")


def put(qp: Any, dst: Any, src: Any, status: Any) -> None:
    """A kernel."""
    ticket = gda.numba.put(qp, dst, 0, src, 0, 8)
    gda.numba.report(status, gda.numba.wait(qp, ticket, gda.numba.S))


def test_a_traced_kernel_has_a_ring_under_its_name(nvrtc: None) -> None:
    """In what the linker leaves of kernel and library: machine code, optimized as one."""
    from cuda.core import Linker, LinkerOptions, ObjectCode
    from numba import types

    with traced.linking("put", True):
        codes = compiled(gda.numba, put, types.uint64, region_type(), region_type(), types.uint64)
    parts = [ObjectCode.from_ltoir(code) for code in codes]
    code = Linker(*parts, options=LinkerOptions(arch="sm_90", link_time_optimization=True)).link("cubin").code
    assert SYMBOL.encode() in bytes(code)


def test_who_is_traced() -> None:
    """As of gda.Kernel: while a trace is recorded, unless asked for otherwise."""
    assert not traced.wanted()
    notes.begin()
    try:
        assert traced.wanted()
        with traced.linking("put", False):
            assert not traced.wanted()
    finally:
        notes.end()
    with traced.linking("put", True):
        assert traced.wanted()


def test_the_object_of_each_kind_is_kept_apart(nvrtc: None) -> None:
    name = SYMBOL.encode()
    assert name in object_code(CC, "ptx", trace=True)
    assert name not in object_code(CC, "ptx")
    LIBRARY.cc = CC
    try:
        with traced.linking("put", True):
            assert LIBRARY.data == object_code(CC, trace=True)
        assert LIBRARY.data == object_code(CC)
    finally:
        LIBRARY.cc = None


def test_a_kernel_that_was_linked_before_is_linked_again_for_a_trace() -> None:
    from numba import cuda

    jitted = cuda.jit(put, lto=True)
    assert gda.numba.Kernel(jitted)._jitted is jitted
    again = gda.numba.Kernel(jitted, trace=True)._jitted
    assert again is not jitted
    assert again.py_func is jitted.py_func
    assert again.targetoptions == jitted.targetoptions


# ---- the ring, in memory of the CPU behind calls that have the driver's names


class Driver:
    """The driver's calls that a ring needs. Whoever launches its clock gets answers from a thread."""

    def __init__(self, found: bool = True) -> None:
        self.memory = ctypes.create_string_buffer(RING_BYTES + (32 << LOG_EVENTS))
        self.kept: list[Any] = []
        self.found, self.streams, self.freed, self.answers = found, 0, 0, True

    def __call__(self, name: str, *arguments: Any) -> Any:
        return getattr(self, name)(*arguments)

    def cuLibraryGetGlobal(self, handle: object, name: bytes) -> list[int]:
        assert (handle, name) == ("module", SYMBOL.encode())
        if not self.found:
            raise CudaError("cuLibraryGetGlobal", 500, "CUDA_ERROR_NOT_FOUND")
        return [ctypes.addressof(self.memory), len(self.memory)]

    def cuStreamCreate(self, flags: int) -> str:
        assert flags == traced.NON_BLOCKING, "kernels that wait may run in the default stream"
        self.streams += 1
        return "stream"

    def cuStreamDestroy(self, stream: str) -> None:
        self.streams -= 1

    def cuStreamSynchronize(self, stream: str) -> None:
        pass

    def cuMemcpyHtoDAsync(self, to: int, where: int, size: int, stream: str) -> None:
        ctypes.memmove(to, where, size)

    def cuMemcpyDtoHAsync(self, to: int, where: int, size: int, stream: str) -> None:
        ctypes.memmove(to, where, size)

    def cuMemHostAlloc(self, size: int, flags: int) -> int:
        self.kept.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.kept[-1])

    def cuMemFreeHost(self, address: int) -> None:
        self.freed += 1

    def cuLaunchKernel(self, kernel: str, *rest: Any) -> None:
        (address, turns, deadline_ns), kinds = rest[8]
        assert (kernel, rest[:7], kinds[0]) == ("clock", (1, 1, 1, 1, 1, 1, 0), ctypes.c_void_p)
        words = (ctypes.c_uint64 * 3).from_address(address)
        self.running = threading.Thread(target=self.answer, args=(words, turns, deadline_ns))
        self.running.start()

    def answer(self, words: Any, turns: int, deadline_ns: int) -> None:
        give_up_at = time.monotonic_ns() + deadline_ns
        for turn in range(1, turns + 1):
            while words[0] < turn or not self.answers:
                if time.monotonic_ns() > give_up_at:
                    return
                time.sleep(0)
            words[2] = time.monotonic_ns() + 7_000_000_000
            words[1] = turn

    def cuStreamQuery(self, stream: str) -> None:
        if self.running.is_alive():
            raise CudaError("cuStreamQuery", 600, "CUDA_ERROR_NOT_READY")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    gpu = SimpleNamespace(id=3)
    gpus = {3: contextlib.nullcontext()}
    monkeypatch.setattr(traced, "driver", made)
    monkeypatch.setattr(traced, "cuda", SimpleNamespace(gpus=gpus, get_current_device=lambda: gpu))
    monkeypatch.setattr(traced, "_clock_kernel", {3: "clock"}.__getitem__)
    monkeypatch.setattr(traced, "rings", [])
    monkeypatch.setattr(notes, "_kernels", {})
    return made


def test_a_loaded_module_with_a_ring_is_a_part_of_the_trace(driver: Driver) -> None:
    with traced.linking("put", True):
        for _ in range(3):  # as Numba does for a kernel that puts, waits and reports
            LIBRARY.setup_callback(SimpleNamespace(handle="module"))
    (ring,) = notes._kernels
    event = ctypes.c_uint8 * 32
    raw = event.from_buffer(driver.memory, RING_BYTES)
    raw[28] = int(formats.TRACE_RING)
    ctypes.c_uint64.from_buffer(driver.memory, 8).value = 1  # one place taken
    (found,) = notes.Notes("", 0).rings()
    assert (found.name, found.clock) == ("put", "gpu")
    _, events, lost = ring_events(found.data, LOG_EVENTS)
    assert (events["kind"].tolist(), lost) == ([int(formats.TRACE_RING)], 0)
    assert len(found.data) == RING_BYTES + 32
    for gpu, ns in found.moments:
        assert abs(gpu - ns - 7_000_000_000) < 50_000_000, "where the GPU's clock lies, to half a turn"
    ring.start_trace(3)
    assert int.from_bytes(driver.memory.raw[SKIP : SKIP + 4], "little") == 3
    assert driver.memory.raw[8:16] == bytes(8)
    assert driver.streams == 0
    assert driver.freed == len(driver.kept) == 3


def test_a_module_without_a_ring_is_none(driver: Driver) -> None:
    driver.found = False
    LIBRARY.setup_callback(SimpleNamespace(handle="module"))
    assert notes._kernels == {}


def test_a_gpu_that_is_full_gives_no_moment(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "WAIT_S", 0.01)
    driver.answers = False
    assert traced.Ring("put", ctypes.addressof(driver.memory), 3).moment() == (0, 0)
    driver.running.join()
    assert driver.freed == 0 or driver.freed == len(driver.kept)
