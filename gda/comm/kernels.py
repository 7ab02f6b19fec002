# SPDX-License-Identifier: Apache-2.0
"""The kernels of cuda/gda/kernels that this room launches. Called by windows, signals and collectives.

On a GPU no module may be loaded while a kernel of another rank waits: ranks that are threads share one, and each asks
before an exchange behind which any may launch.
"""

from __future__ import annotations

from gda import config
from gda.once import once
from gda.run import Kernel

__all__ = ["kernels_of"]


def kernels_of(file: str, *instances: str, target: str = "") -> Kernel:
    """Those of cuda/gda/kernels/FILE.h, and these instances of its templates, for `target` (default: GDA_TARGET)."""
    return made(file, instances, target or config.get("GDA_TARGET"))


@once
def made(file: str, instances: tuple[str, ...], target: str) -> Kernel:
    """The one of a process."""
    return Kernel(
        f"#include <gda/kernels/{file}.h>\n", target=None if target == "auto" else target, names=instances
    )
