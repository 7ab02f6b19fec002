# SPDX-License-Identifier: Apache-2.0
"""The one object that kernels are linked with, made when Numba links the first kernel that calls into it.

Called by device. Numba and its linker decide which NVRTC compiles it: a linker takes code of its own version or older,
so the library is compiled by the NVRTC that Numba itself would use.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.cudadrv import linkable_code

from gda.errors import UnavailableError
from gda.numba.traced import loaded, wanted
from gda.run.linkable import linkable

__all__ = ["LIBRARY", "object_code"]


@functools.cache
def _nvrtc() -> str:
    """Path of the NVRTC that Numba uses; empty when there is none that its finder knows."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # of NVIDIA's packages that numba-cuda stands on

        return str(load_nvidia_dynamic_lib("nvrtc").abs_path or "")
    except Exception:  # the finder raises its own errors; ours then says what is missing
        return ""


@functools.cache
def _linker_takes_ltoir() -> bool:
    """Whether Numba links with nvJitLink; the driver's own linker takes PTX only."""
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except Exception:  # of the finder, or of the binding
        return False
    return True


def object_code(cc: tuple[int, int] | None = None, form: str = "", *, trace: bool = False) -> bytes:
    """The device library for a GPU of compute capability `cc` (default: the current one's), as a linker takes it.

    `form` is "ltoir", "ptx" or "cubin"; default: LTO-IR with nvJitLink, else PTX. With `trace` it leaves events in a
    ring of its own. Raises UnavailableError without
    NVRTC, and without a GPU when `cc` is not given.
    """
    major, minor = cc or _current()
    form = form or ("ltoir" if _linker_takes_ltoir() else "ptx")
    arch = f"compute_{major}{minor}" if form == "ptx" else f"sm_{major}{minor}"
    return linkable(arch=arch, form=form, library=_nvrtc(), trace=trace)


def _current() -> tuple[int, int]:
    try:
        return tuple(cuda.get_current_device().compute_capability)  # type: ignore[return-value]
    except Exception as error:  # without a driver Numba raises errors of many kinds
        raise UnavailableError(
            f"no GPU to link the device library for: {' '.join(str(error).split())}",
            "name one to compile for: gda.numba.library.LIBRARY.cc = (9, 0); gda.Kernel runs on the CPU",
        ) from None


class _Library(linkable_code.LTOIR):  # type: ignore[misc]
    """What a declaration names in `link=`: Numba asks for kind and data when it links a kernel.

    `cc` is the compute capability to compile for; None: the current GPU's.
    """

    cc: tuple[int, int] | None = None

    def __init__(self) -> None:
        super().__init__(b"", name="gda.ltoir")
        self.setup_callback = loaded  # before the first launch of what it was linked into

    @property
    def kind(self) -> Any:
        """LTO-IR or PTX, as Numba's linker counts them."""
        return linkable_code.LTOIR.kind if _linker_takes_ltoir() else linkable_code.PTXSource.kind

    @property
    def data(self) -> bytes:
        """The object."""
        return object_code(self.cc, trace=wanted())


LIBRARY = _Library()
