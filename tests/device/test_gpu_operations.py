# SPDX-License-Identifier: Apache-2.0
"""The cases of test_nic_operations.py and test_nic_messages.py on a GPU, bytes in host and in GPU memory.

The tier `gpu`.
"""

from __future__ import annotations

import pytest

import gda
from gda import formats

from .doorbell_cases import *  # noqa: F403
from .message_cases import *  # noqa: F403
from .operation_cases import *  # noqa: F403
from .scope_cases import *  # noqa: F403
from .signal_cases import *  # noqa: F403
from .strided_cases import *  # noqa: F403
from .unreliable_cases import *  # noqa: F403

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def target() -> str:
    return "gpu"


@pytest.fixture(params=["host", "gpu"])
def placement(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_queue_in_gpu_memory(nic: gda.Nic, k: gda.Kernel, kernels: gda.Kernel) -> None:
    """Rings, records and payload all there, as with a card: the NIC reads and writes them by copies."""
    a, b = nic.loopback_pair(depth=16, receive_depth=4, placement="gpu")
    src, dst, own = (nic.allocate(64, placement="gpu") for _ in range(3))
    src.write(0, bytes(range(64)))
    kernels.post[1, 1](b, dst, 64, 1)
    kernels.send[1, 1](a, src, 64)
    assert dst.read(0, 64) == src.read(0, 64)
    out = nic.allocate(formats.layouts["gda_received"].bytes)
    kernels.take[1, 1](b, out)
    assert formats.layouts["gda_received"].unpack(out.read(0, 32))["bytes"] == 64
    k.gda_kernel_get[1, 1](a, own, 0, src, 32, 32, 4_000_000_000)
    assert own.read(0, 32) == src.read(32, 32)
    assert b.where()["rq"][0] == b.where()["receive_cq"][0] == "gpu"
