# SPDX-License-Identifier: Apache-2.0
"""The device library for kernels written in Python with Numba: `@cuda.jit` functions that put, wait and signal.

    import gda.numba
    from numba import cuda

    @cuda.jit
    def first_put(qp, dst, src, bytes, status):
        ticket = gda.numba.put(qp, dst, 0, src, 0, bytes)
        gda.numba.report(status, gda.numba.wait(qp, ticket, 1000 * gda.numba.MS))

    gda.numba.Kernel(first_put)[1, 1](queue, dst, src, 1024)

Reading order: device (what kernels call), kernel (Kernel: launch, arguments, deadline), library (the object that
kernels are linked with). Document: docs/python_kernels.md. Importing this needs numba-cuda and says so; a GPU is needed
to launch, not to import or to compile.
"""

from __future__ import annotations

from gda.errors import UnavailableError as _UnavailableError


def _require_numba() -> None:
    """Raise UnavailableError unless numba-cuda is there, in a version that links what a declaration names."""
    advice = 'pip install "numba-cuda[cu13]"; without it, gda.Kernel runs kernels in CUDA C++, on a GPU or on the CPU'
    try:
        import numba
        from numba import cuda
    except Exception as error:  # numba-cuda loads CUDA's run-time library, and fails in its own way without it
        raise _UnavailableError(
            f"gda.numba lets kernels of Numba call the device library, but Numba cannot be imported ({error})", advice
        ) from None
    if getattr(numba.config, "ENABLE_CUDASIM", 0):
        raise _UnavailableError(
            "NUMBA_ENABLE_CUDASIM is set: Numba's simulator runs kernels as plain Python, which cannot call the "
            "device library",
            "unset it; without a GPU, gda.Kernel runs kernels in CUDA C++ on the CPU",
        )
    if getattr(cuda, "implementation", "Built-in") != "NVIDIA":
        raise _UnavailableError(
            f"numba.cuda is the one built into Numba {numba.__version__}, which cannot link the device library into "
            "a kernel by itself",
            advice,
        )
    try:
        from numba.cuda.cudadrv.linkable_code import LTOIR  # noqa: F401
        from numba.cuda.extending import overload  # noqa: F401
    except ImportError as error:
        raise _UnavailableError(f"this numba-cuda is too old for gda.numba ({error})", advice) from None


_require_numba()

from gda.numba.device import (  # noqa: E402
    EQUAL,
    MORE,
    MS,
    NOT_EQUAL,
    REACHED,
    SIGNAL_ADD,
    SIGNAL_SET,
    UNSIGNALED,
    US,
    S,
    compare_swap,
    failed,
    fetch_add,
    flush,
    flush_block,
    flush_warp,
    get,
    nop,
    now_ns,
    old_value,
    put,
    put_block,
    put_imm,
    put_signal,
    put_value,
    put_value_block,
    put_value_warp,
    put_warp,
    report,
    signal,
    signal_block,
    signal_warp,
    test,
    test_signal,
    wait,
    wait_block,
    wait_signal,
    wait_warp,
)
from gda.numba.kernel import Kernel, Region, queue, region  # noqa: E402
from gda.numba.library import object_code  # noqa: E402

__all__ = [
    "EQUAL",
    "MORE",
    "MS",
    "NOT_EQUAL",
    "REACHED",
    "SIGNAL_ADD",
    "SIGNAL_SET",
    "UNSIGNALED",
    "US",
    "Kernel",
    "Region",
    "S",
    "compare_swap",
    "failed",
    "fetch_add",
    "flush",
    "flush_block",
    "flush_warp",
    "get",
    "nop",
    "now_ns",
    "object_code",
    "old_value",
    "put",
    "put_block",
    "put_imm",
    "put_signal",
    "put_value",
    "put_value_block",
    "put_value_warp",
    "put_warp",
    "queue",
    "region",
    "report",
    "signal",
    "signal_block",
    "signal_warp",
    "test",
    "test_signal",
    "wait",
    "wait_block",
    "wait_signal",
    "wait_warp",
]
