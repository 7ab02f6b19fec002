# SPDX-License-Identifier: Apache-2.0
"""Events of queues that firmware commands made reach a DEVX channel and an eventfd."""

from __future__ import annotations

import os
import select

import numpy as np
import pytest

from gda import _verbs, nic, run
from gda.errors import ClosedError, CompletionError, VerbsError

ACCESS_ERROR = 0x11  # MLX5_EVENT_TYPE_WQ_ACCESS_ERROR: a peer's request was refused
PUT = """
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, 64), GDA_MS(10000));
}
"""


def test_access_error_of_a_queue_pair():
    with nic.open() as card:
        source = card.register(np.zeros(64, np.uint8))
        read_only = card.register(np.zeros(64, np.uint8), access=("local_write",))
        a, b = card.loopback_pair(depth=16)
        signal = os.eventfd(0, os.EFD_NONBLOCK)
        with _verbs.mlx5dv_devx_create_event_channel(card.context) as channel:
            assert channel.context is card.context
            _verbs.mlx5dv_devx_subscribe_devx_event(channel, b._qp, [ACCESS_ERROR], 77)
            _verbs.mlx5dv_devx_subscribe_devx_event_fd(channel, signal, b._qp, ACCESS_ERROR)
            os.set_blocking(channel.fd, False)
            with pytest.raises(VerbsError, match=r"mlx5dv_devx_get_event\(max_data=64\) failed: EAGAIN"):
                _verbs.mlx5dv_devx_get_event(channel, 64)
            with pytest.raises(CompletionError):
                run.Kernel(PUT, target="host").put[1, 1](a, read_only, source)
            assert select.select([channel.fd], [], [], 10)[0]
            event = _verbs.mlx5dv_devx_get_event(channel)
            assert event.cookie == 77 and len(event.data) == 64
            assert os.eventfd_read(signal) == 1
            with pytest.raises(VerbsError, match=r"subscribe_devx_event\(\[40000\], cookie=0\)"):
                _verbs.mlx5dv_devx_subscribe_devx_event(channel, b._qp, [40000])
        os.close(signal)
        with pytest.raises(ClosedError):
            channel.fd
