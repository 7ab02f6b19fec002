# SPDX-License-Identifier: Apache-2.0
"""What the NIC knows: devices and capabilities, firmware commands, memory, placement, queue pairs and their handles.

Reading order: device, command, memory, placement, queue, handle. Everything here works without a GPU and without a
compiler; device code reaches these objects only through their `__gda_argument__`.
"""

from __future__ import annotations

from gda.errors import UnavailableError

try:
    from gda import _proxy as _proxy
    from gda import _verbs as _verbs
except ImportError as error:
    if "libmlx5" in str(error):
        raise UnavailableError("libmlx5.so.1 is missing", "apt-get install ibverbs-providers") from error
    if "libibverbs" in str(error):
        raise UnavailableError("libibverbs.so.1 is missing", "apt-get install libibverbs1 ibverbs-providers") from error
    if "_verbs" in str(error) or "_proxy" in str(error):
        raise UnavailableError(
            "gda._verbs is not built" if "_verbs" in str(error) else "gda._proxy is not built",
            "apt-get install libibverbs-dev, then python setup.py build_ext --inplace (make demo does both)",
        ) from error
    raise

from gda.nic.addresses import Gid
from gda.nic.batch import WORK_REQUEST
from gda.nic.connection import ConnectionInfo
from gda.nic.device import Capabilities, Nic, Port, open
from gda.nic.host_queue import Batch, HostQueuePair
from gda.nic.memory import Memory
from gda.nic.queue import QueuePair, connect
from gda.nic.remote import RemoteMemory

__all__ = [
    "WORK_REQUEST", "Batch", "Capabilities", "ConnectionInfo", "Gid", "HostQueuePair", "Memory", "Nic", "Port",
    "QueuePair", "RemoteMemory", "connect", "open",
]  # fmt: skip
