# SPDX-License-Identifier: Apache-2.0
"""GPU-initiated RDMA from Python: open a NIC, register memory, create queues, let a kernel post by itself.

The layers, from the floor up; each is public and imports only those before it:

- `gda._verbs`, `gda._cuda`: raw calls into libibverbs, libmlx5 and libcuda; bytes and integers.
- `gda.formats`: every queue and command format, read from the C headers that device code compiles.
- `gda.attach`: puts the software ConnectX behind libibverbs in this process.
- `gda.nic`: what the NIC knows: devices, commands, memory, placement, queues, handles.
- `gda.run`: where device code runs: a GPU, or the CPU with the grid asked for.
- `gda.comm`: programs of several processes: teams, symmetric windows, signals.
- `gda.tools`, `gda.sim`: readers, measurers and the steering of the software NIC.

Most programs need only the names below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gda.comm import Team, init
    from gda.errors import GdaError as GdaError
    from gda.formats import include_directory as get_include
    from gda.nic import WORK_REQUEST as WORK_REQUEST
    from gda.nic import ConnectionInfo, HostQueuePair, Memory, Nic, QueuePair, RemoteMemory, open
    from gda.run import Kernel
    from gda.tools import trace
    from gda.tools.diagnose import diagnose
    from gda.tools.inspect import inspect
    from gda.tools.live import live

__version__ = "0.1.0"

__all__ = [
    "WORK_REQUEST",
    "ConnectionInfo",
    "GdaError",
    "HostQueuePair",
    "Kernel",
    "Memory",
    "Nic",
    "QueuePair",
    "RemoteMemory",
    "Team",
    "diagnose",
    "get_include",
    "init",
    "inspect",
    "live",
    "open",
    "trace",
]

# Names are looked up when first used, so that a part of the package works where another cannot be loaded.
_HOME = {
    "WORK_REQUEST": "gda.nic",
    "ConnectionInfo": "gda.nic",
    "GdaError": "gda.errors",
    "HostQueuePair": "gda.nic",
    "Kernel": "gda.run",
    "Memory": "gda.nic",
    "Nic": "gda.nic",
    "QueuePair": "gda.nic",
    "RemoteMemory": "gda.nic",
    "Team": "gda.comm",
    "diagnose": "gda.tools.diagnose",
    "get_include": "gda.formats:include_directory",
    "init": "gda.comm",
    "inspect": "gda.tools.inspect",
    "live": "gda.tools.live",
    "open": "gda.nic",
    "trace": "gda.tools.trace:",  # the module itself
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'gda' has no attribute {name!r}")
    from importlib import import_module

    module, colon, other = _HOME[name].partition(":")
    home = import_module(module)
    value = home if colon and not other else getattr(home, other or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
