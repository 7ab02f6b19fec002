# SPDX-License-Identifier: Apache-2.0
"""The GPU side of a launch against a driver that only takes notes: order, bytes, and what is given back."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gda import attach
from gda.errors import CompileError, CompletionError, CudaError, DeadlineError
from gda.run import Kernel, cuda

TEXT = """
#include <gda/gda.h>
GDA_KERNEL(first)(uint32_t a, uint64_t b, gda_status* status) {}
GDA_KERNEL(second)(float x) {}
"""


class Error(Exception):
    status = 700


class Event:
    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def record(self, stream: Any) -> None:
        self.notes.told.append("record" if stream.ptr == 5 else "record the caller's work")

    @property
    def done(self) -> bool:
        if self.notes.crash:
            raise Error("illegal address")
        return self.notes.ended


class Notes:
    """What the fake CuPy was asked, and what it shall answer."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.arguments: list[bytes] = []
        self.options: tuple[str, ...] = ()
        self.ended, self.crash, self.refuse, self.status, self.compile_fails = True, False, False, 0, False

    def launch(self, *args: Any) -> None:
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
        return SimpleNamespace(ptr=5, wait_event=lambda event: notes.told.append("wait"))

    fake = SimpleNamespace(
        RawModule=notes.module,
        cuda=SimpleNamespace(
            Device=Device,
            Stream=stream,
            Event=lambda disable_timing: Event(notes),
            get_current_stream=lambda: SimpleNamespace(ptr=0),
            alloc_pinned_memory=pinned,
            compiler=SimpleNamespace(CompileException=CompilerRefusedError),
            driver=SimpleNamespace(
                CUDADriverError=Error,
                launchKernel=notes.launch,
                occupancyMaxActiveBlocksPerMultiprocessor=lambda pointer, threads, shared: 2,
            ),
            runtime=SimpleNamespace(
                CUDARuntimeError=Error,
                setDevice=lambda number: None,
                getDeviceProperties=lambda number: {"name": b"Fake", "multiProcessorCount": 10},
            ),
        ),
    )
    monkeypatch.setattr(cuda, "why_no_gpu", lambda: "")
    monkeypatch.setattr(cuda, "_cupy", lambda: fake)
    monkeypatch.setattr(cuda, "_driver_call", lambda name, *arguments: None)
    monkeypatch.setattr(attach, "loaded", lambda: None)
    for cache in (cuda._free_words, cuda._free_streams):
        cache.forget()
    yield notes
    cuda._under_way.clear()
    for cache in (cuda._free_words, cuda._free_streams):
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
    words, streams = len(cuda._free_words()), len(cuda._free_streams(0))
    notes.status = 0x0005881300001201
    with pytest.raises(CompletionError, match="work request 5 of queue pair 0x12"):
        kernel.first[1, 1](1, 2)
    notes.status = 0
    for _ in range(3):
        kernel.first[1, 1](1, 2)
    assert (len(cuda._free_words()), len(cuda._free_streams(0))) == (words, streams)


def test_running_kernel_keeps_its_word_and_stream(notes: Notes) -> None:
    kernel = Kernel(TEXT, target="gpu")
    words, streams = len(cuda._free_words()), len(cuda._free_streams(0))
    notes.ended = False
    with pytest.raises(DeadlineError, match=r"left behind"):
        kernel.first.start[1, 1](1, 2).wait(0.01)
    assert (len(cuda._free_words()), len(cuda._free_streams(0))) == (words - 1, streams - 1)
    notes.ended = True
    kernel.second[1, 1](1.0)
    assert (len(cuda._free_words()), len(cuda._free_streams(0))) == (words, streams)


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
