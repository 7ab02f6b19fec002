# SPDX-License-Identifier: Apache-2.0
"""CUDA streams of the caller's: which one an object means, and what holds while a stream is captured into a graph.

Called by executor and cuda. Between begin and end of a capture most calls that ask or wait are forbidden to the thread
that captures, and in mode "global" to all threads (also those of other ranks): one of them spoils the capture. Calls
that touch no captured stream are made under relaxed(), which lifts that for this thread. Source: CUDA Driver API,
"Stream Management", cuThreadExchangeStreamCaptureMode; CUDA C++ Programming Guide, "CUDA Graphs", "Prohibited and
Unhandled Operations".
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

from gda.errors import ArgumentError

__all__ = ["callers", "driver_call", "is_captured", "pointer_of", "relaxed"]

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_DEFAULTS = 2  # CU_STREAM_LEGACY is 1, CU_STREAM_PER_THREAD is 2, null is one of them


@functools.cache
def _function(name: str) -> Callable[..., int] | None:
    try:
        return getattr(ctypes.CDLL("libcuda.so.1"), name, None)
    except OSError:
        return None


def driver_call(name: str, *arguments: Any) -> int | None:
    """Call a function of libcuda that CuPy does not have; None when this driver has none of that name either."""
    function = _function(name)
    return None if function is None else int(function(*arguments))


class relaxed:  # noqa: N801 - a class, since each launch enters one and a generator takes three times as long
    """In the `with`, calls of this thread disturb no capture (but for those into the captured stream itself)."""

    def __enter__(self) -> None:
        self._mode = ctypes.c_int(_RELAXED)
        self._is_changed = driver_call("cuThreadExchangeStreamCaptureMode", ctypes.byref(self._mode)) == 0

    def __exit__(self, *error: object) -> None:
        if self._is_changed:
            driver_call("cuThreadExchangeStreamCaptureMode", ctypes.byref(self._mode))


def pointer_of(stream: Any) -> int:
    """The driver's pointer of a stream of CuPy, torch, cuda-python or Numba, or of an int that is one.

    Raises ArgumentError for anything else.
    """
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    said = getattr(stream, "__cuda_stream__", None)  # a protocol: version and pointer
    if said is not None:
        return int((said() if callable(said) else said)[1])
    for name in ("ptr", "cuda_stream", "handle"):  # CuPy's, torch's, Numba's
        value = getattr(stream, name, None)
        value = getattr(value, "value", value)  # a ctypes pointer
        if isinstance(value, int):
            return value
    raise ArgumentError(
        f"a {type(stream).__name__} is no CUDA stream",
        "pass cupy.cuda.Stream(...), torch.cuda.current_stream(), or the pointer of one as an int",
    )


def is_captured(pointer: int) -> bool:
    """Whether what is put into this stream becomes part of a graph."""
    # Default streams cannot be captured; asked about the legacy one, the driver would spoil the capture of another.
    status = ctypes.c_int(0)
    return pointer > _DEFAULTS and driver_call(
        "cuStreamIsCapturing", ctypes.c_void_p(pointer), ctypes.byref(status)
    ) == 0 and status.value != 0  # fmt: skip


def callers(cupy: Any, device: int) -> list[int]:
    """Streams in which the caller's arrays may still be computed: CuPy's current one, and torch's where it is used."""
    found = [int(cupy.cuda.get_current_stream().ptr)]
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        found.append(int(cuda.current_stream(device).cuda_stream))
    return list(dict.fromkeys(found))
