# SPDX-License-Identifier: Apache-2.0
"""The GPU side of a launch against a driver that only takes notes: order, bytes, and what is given back."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gda import attach
from gda.errors import (
    ArgumentError,
    CompileError,
    CompletionError,
    CudaError,
    DeadlineError,
    UnavailableError,
)
from gda.run import Kernel, cuda, status_word, streams

from .fake_nic import FakeNic

TEXT = """
#include <gda/gda.h>
GDA_KERNEL(first)(uint32_t a, uint64_t b, gda_status* status) {}
GDA_KERNEL(second)(float x) {}
"""


class Error(Exception):
    status = 700


OWN, CALLERS, CAPTURED, TORCHS = 5, 64, 65, 66  # pointers of streams


class Event:
    ptr = 7

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    @property
    def done(self) -> bool:
        assert self.notes.mode == 2
        if self.notes.crash:
            raise Error("illegal address")
        return self.notes.ended


class Notes:
    """What the fake CuPy was asked, and what it shall answer."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.mode = 0  # of this thread towards captures; 0: global
        self.current = 0  # CuPy's current stream
        self.arguments: list[bytes] = []
        self.options: tuple[str, ...] = ()
        self.ended, self.crash, self.refuse, self.status, self.compile_fails = True, False, False, 0, False

    def record(self, event: int, stream: int) -> None:
        assert event == Event.ptr
        self.told.append("record" if stream == OWN else f"record {stream}" if stream else "record the caller's work")

    def driver_call(self, name: str, *arguments: Any) -> int | None:
        if name == "cuThreadExchangeStreamCaptureMode":
            mode = arguments[0]._obj
            self.mode, mode.value = mode.value, self.mode
            return 0
        if name == "cuStreamIsCapturing":
            arguments[1]._obj.value = arguments[0].value == CAPTURED
            return 0
        return None

    def launch(self, *args: Any) -> None:
        assert self.mode == 2, "a launch, or a look at its end, would spoil a capture of another thread"
        if args[8] != OWN:
            self.told.append(f"in stream {args[8]}")
        if self.refuse:
            raise Error("too many resources")
        self.told.append(f"launch {args[0]} {args[1:7]} shared {args[7]}")
        pointers = (ctypes.c_void_p * 3).from_address(args[9])
        if args[0] == 100:
            self.arguments = [ctypes.string_at(p, n) for p, n in zip(pointers, (4, 8, 8), strict=True)]
            where = int.from_bytes(self.arguments[2], "little")
            ctypes.c_uint64.from_address(where).value = self.status

    def module(self, *, code: str, options: tuple[str, ...], backend: str, name_expressions: list[str]) -> Any:
        self.told.append("module")
        self.options = options

        def function(name: str) -> Any:
            self.told.append(f"load {name}")
            return SimpleNamespace(
                kernel=SimpleNamespace(ptr=100 + name_expressions.index(name)), shared_size_bytes=16,
            )  # fmt: skip

        def compile() -> None:
            if self.compile_fails:
                raise CompilerRefusedError()

        return SimpleNamespace(compile=compile, get_function=function)


class CompilerRefusedError(Exception):
    def get_message(self) -> str:
        return "<kernel>(3): error"


class Device:
    id = 0

    def __init__(self, number: int = 0) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *args: object) -> None:
        pass


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notes]:
    notes = Notes()
    buffers: list[Any] = []

    def pinned(count: int) -> Any:
        notes.told.append("pinned")
        buffers.append(ctypes.create_string_buffer(count))
        return SimpleNamespace(ptr=ctypes.addressof(buffers[-1]))

    def stream(non_blocking: bool) -> Any:
        assert non_blocking
        return SimpleNamespace(ptr=OWN, wait_event=lambda event: notes.told.append("wait"))

    fake = SimpleNamespace(
        RawModule=notes.module,
        cuda=SimpleNamespace(
            Device=Device,
            Stream=stream,
            Event=lambda disable_timing: Event(notes),
            get_current_stream=lambda: SimpleNamespace(ptr=notes.current),
            alloc_pinned_memory=pinned,
            compiler=SimpleNamespace(CompileException=CompilerRefusedError),
            driver=SimpleNamespace(
                CUDADriverError=Error,
                launchKernel=notes.launch,
                occupancyMaxActiveBlocksPerMultiprocessor=lambda pointer, threads, shared: 2,
            ),
            runtime=SimpleNamespace(
                CUDARuntimeError=Error,
                eventRecord=notes.record,
                setDevice=lambda number: None,
                getDeviceProperties=lambda number: {"name": b"Fake", "multiProcessorCount": 10},
            ),
        ),
    )
    monkeypatch.setattr(cuda, "why_no_gpu", lambda: "")
    monkeypatch.setattr(cuda, "_cupy", lambda: fake)
    monkeypatch.setattr(streams, "driver_call", notes.driver_call)
    monkeypatch.setattr(attach, "loaded", lambda: None)
    for cache in (cuda.status_words, cuda._free_streams, cuda._free_events):
        cache.forget()
    yield notes
    cuda._under_way.clear()
    for cache in (cuda.status_words, cuda._free_streams, cuda._free_events):
        cache.forget()


def test_all_is_loaded_before_the_first_launch(notes: Notes) -> None:
    kernel = Kernel(TEXT, target="gpu")
    assert kernel.where == "GPU 0 (Fake)"
    loaded = list(notes.told)
    assert loaded == ["module", "load first", "load second", "pinned"]
    kernel.first[(2, 3), 64](7, 1 << 40)
    kernel.second[1, 1, 128](0.5)
    assert notes.told[len(loaded) :] == [
        "record the caller's work", "wait", "launch 100 (2, 3, 1, 64, 1, 1) shared 0", "record",
        "record the caller's work", "wait", "launch 101 (1, 1, 1, 1, 1, 1) shared 128", "record",
    ]  # fmt: skip
    assert notes.arguments[:2] == [(7).to_bytes(4, "little"), (1 << 40).to_bytes(8, "little")]
    assert any(option.startswith("-I") for option in notes.options)


def test_headers_are_part_of_the_compilers_key(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    Kernel(TEXT, target="gpu")
    before = notes.options
    monkeypatch.setattr(cuda, "tree_digest", lambda *arguments: "changed")
    Kernel(TEXT, target="gpu")
    assert notes.options != before


def test_status_words_come_back(notes: Notes) -> None:
    kernel = Kernel(TEXT, target="gpu")
    words, streams = len(cuda.status_words().free), len(cuda._free_streams(0))
    notes.status = 0x0005881300001201
    with pytest.raises(CompletionError, match="work request 5 of queue pair 0x12"):
        kernel.first[1, 1](1, 2)
    notes.status = 0
    for _ in range(3):
        kernel.first[1, 1](1, 2)
    assert (len(cuda.status_words().free), len(cuda._free_streams(0))) == (words, streams)


def test_running_kernel_keeps_its_word_and_stream(notes: Notes) -> None:
    kernel = Kernel(TEXT, target="gpu")
    words, streams = len(cuda.status_words().free), len(cuda._free_streams(0))
    notes.ended = False
    with pytest.raises(DeadlineError, match=r"left behind"):
        kernel.first.start[1, 1](1, 2).wait(0.01)
    assert (len(cuda.status_words().free), len(cuda._free_streams(0))) == (words - 1, streams - 1)
    notes.ended = True
    kernel.second[1, 1](1.0)
    assert (len(cuda.status_words().free), len(cuda._free_streams(0))) == (words, streams)


def test_refused_launch(notes: Notes) -> None:
    kernel = Kernel(TEXT, target="gpu")
    notes.refuse = True
    with pytest.raises(CudaError, match=r"launch of kernel first.*700"):
        kernel.first[1, 1](1, 2)
    assert cuda.NicHelper._running == 0
    assert len(cuda._free_streams(0)) == cuda._STREAMS


def test_crash(notes: Notes) -> None:
    kernel = Kernel(TEXT, target="gpu")
    notes.crash = True
    with pytest.raises(CudaError, match=r"kernel first.*\n.*start a new process"):
        kernel.first[1, 1](1, 2)
    assert cuda.NicHelper._running == 0


def test_compile_error(notes: Notes) -> None:
    notes.compile_fails = True
    with pytest.raises(CompileError, match=r"did not compile for GPU 0"):
        Kernel(TEXT, target="gpu")


def test_in_a_stream_of_the_callers(notes: Notes) -> None:
    kernel = Kernel(TEXT, target="gpu")
    notes.told.clear()
    notes.status = 0x0005881300001201
    launch = kernel.first.on(SimpleNamespace(ptr=CALLERS))[2, 32](1, 2)
    assert notes.told == ["in stream 64", "launch 100 (2, 1, 1, 32, 1, 1) shared 0", "record 64"]
    assert not launch.is_captured and notes.mode == 0
    with pytest.raises(CompletionError, match="work request 5 of queue pair 0x12"):
        launch.wait()
    events = len(cuda._free_events(0))
    for _ in range(events + 2):  # more at once than there were events
        kernel.second.on(CALLERS)[1, 1](1.0).wait()
    assert len(cuda._free_events(0)) == events and cuda.NicHelper._holders == 0


@pytest.mark.parametrize(
    "stream",
    [
        CALLERS, SimpleNamespace(ptr=CALLERS), SimpleNamespace(cuda_stream=CALLERS),
        SimpleNamespace(handle=ctypes.c_void_p(CALLERS)), SimpleNamespace(__cuda_stream__=lambda: (0, CALLERS)),
    ],
)  # fmt: skip
def test_what_is_a_stream(stream: object) -> None:
    assert streams.pointer_of(stream) == CALLERS


@pytest.mark.parametrize("thing", [None, True, -1, "stream", object()])
def test_what_is_no_stream(notes: Notes, thing: object) -> None:
    with pytest.raises(ArgumentError, match="is no CUDA stream"):
        Kernel(TEXT, target="gpu").first.on(thing)


def test_the_cpu_has_no_streams() -> None:
    with pytest.raises(UnavailableError, match="which has no streams"):
        Kernel("#include <gda/gda.h>\nGDA_KERNEL(k)(int n) {}", target="host").k.on(CALLERS)


def test_captured_into_a_graph(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel, and nothing else: no event. Its word is its own for ever, and says what the last replays reported."""
    told = FakeNic()
    monkeypatch.setattr(attach, "loaded", lambda: told)
    kernel = Kernel(TEXT, target="gpu")
    words, events = len(cuda.status_words().free), len(cuda._free_events(0))
    notes.told.clear()
    launch = kernel.first.on(CAPTURED)[40, 32](1, 2)
    assert notes.told == ["in stream 65", "launch 100 (40, 1, 1, 32, 1, 1) shared 0"]
    assert launch.is_captured and not launch.done() and not cuda._under_way
    assert told.told == [("staging", True)]  # it may fill the GPU at any time; nobody spins for that
    with pytest.raises(ArgumentError, match=r"kernel first was captured.*\n.*check\(\)"):
        launch.wait()
    launch.check()
    word = ctypes.c_uint64.from_address(int.from_bytes(notes.arguments[2], "little"))
    for _ in range(2):
        word.value = 0x0005881300001201  # as a replay does
        with pytest.raises(CompletionError, match="work request 5 of queue pair 0x12"):
            launch.check()
        launch.check()  # it was told
    del launch
    gc.collect()
    assert told.told[-1] == ("staging", False)
    assert len(cuda.status_words().free) == words - 1 and len(cuda._free_events(0)) == events


def test_captured_launches_leave_words_to_others(notes: Notes) -> None:
    kernel = Kernel(TEXT, target="gpu")
    for _ in range(status_word.AT_ONCE):
        kernel.first.on(CAPTURED)[1, 1](1, 2)
    assert len(cuda.status_words().free) >= status_word.SPARE and notes.told.count("pinned") == 2
    kernel.first[1, 1](1, 2)


def test_a_launch_of_its_own_while_the_current_stream_is_captured(notes: Notes) -> None:
    kernel = Kernel(TEXT, target="gpu")
    notes.current = CAPTURED
    told = len(notes.told)
    with pytest.raises(ArgumentError, match=r"the current stream is being captured.*\n.*first\.on\(stream\)"):
        kernel.first[1, 1](1, 2)
    assert len(notes.told) == told and cuda.NicHelper._holders == 0


def test_a_launch_begins_after_torch_too(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    current = SimpleNamespace(cuda_stream=TORCHS)
    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True, current_stream=lambda device: current))
    monkeypatch.setitem(sys.modules, "torch", torch)
    kernel = Kernel(TEXT, target="gpu")
    notes.told.clear()
    kernel.second[1, 1](1.0)
    assert notes.told[:4] == ["record the caller's work", "wait", "record 66", "wait"]
    current.cuda_stream = 0  # the default stream of both
    notes.told.clear()
    kernel.second[1, 1](1.0)
    assert notes.told.count("wait") == 1
