# SPDX-License-Identifier: Apache-2.0
"""The device library compiled for linking: what kernels of other compilers are linked with. Called by gda.numba.

One object with the functions of cuda/gda/numba.h under their C names, for one architecture, kept on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gda import config
from gda.run import traces
from gda.run.cache import cached, key_of, tree_digest
from gda.run.compile import compile_for_gpu, include_directory, nvrtc_version

__all__ = ["linkable"]

_TEXT = "#include <gda/numba.h>\n"
_OPTIONS = ("--relocatable-device-code=true",)  # without it NVRTC drops functions that no kernel calls


def linkable(*, arch: str = "sm_90", form: str = "ltoir", library: str = "", trace: bool = False) -> bytes:
    """The device library as LTO-IR ("ltoir"), PTX ("ptx") or machine code ("cubin") for `arch`.

    With `trace` it has a ring of events, under the name traces.SYMBOL. A linker takes LTO-IR and PTX of its own version
    or older: `library` is the path of the NVRTC that belongs to it. Raises CompileError, and UnavailableError
    without NVRTC.
    """
    version = nvrtc_version(library)
    headers = tree_digest(include_directory() / "gda", ("*.h",))
    options = (*_OPTIONS, traces.DEFINE) if trace else _OPTIONS

    def build(path: Path) -> Iterable[Path]:
        path.write_bytes(
            compile_for_gpu(_TEXT, arch=arch, form=form, options=options, file="linkable.cu", library=library)
        )
        return ()

    key = key_of("linkable", _TEXT, arch, form, repr(version), *options, headers)
    return cached(config.cache_directory() / "linkable", key, f".{form}", build).read_bytes()
