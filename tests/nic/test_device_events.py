# SPDX-License-Identifier: Apache-2.0
"""Events of queues that firmware commands made reach a DEVX channel and an eventfd; answers that nobody waits for."""

from __future__ import annotations

import os
import select

import numpy as np
import pytest

from gda import _verbs, formats, nic, run
from gda.errors import ClosedError, CompletionError, VerbsError

ACCESS_ERROR = 0x11  # MLX5_EVENT_TYPE_WQ_ACCESS_ERROR: a peer's request was refused
PUT = """
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, 64), GDA_MS(10000));
}
"""


@pytest.mark.gda_complaints("key-right-missing", "refused-by-peer")
def test_access_error_of_a_queue_pair():
    with nic.open() as card:
        source = card.register(np.zeros(64, np.uint8))
        read_only = card.register(np.zeros(64, np.uint8), access=("local_write",))
        a, b = card.loopback_pair(depth=16)
        signal = os.eventfd(0, os.EFD_NONBLOCK)
        with _verbs.mlx5dv_devx_create_event_channel(card.context) as channel:
            assert channel.context is card.context
            _verbs.mlx5dv_devx_subscribe_devx_event(channel, b._carrier.qp, [ACCESS_ERROR], 77)
            _verbs.mlx5dv_devx_subscribe_devx_event_fd(channel, signal, b._carrier.qp, ACCESS_ERROR)
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
                _verbs.mlx5dv_devx_subscribe_devx_event(channel, b._carrier.qp, [40000])
        os.close(signal)
        with pytest.raises(ClosedError):
            channel.fd


def test_queries_that_are_not_waited_for():
    with nic.open() as card:
        pair = card.loopback_pair(depth=16)
        with _verbs.mlx5dv_devx_create_cmd_comp(card.context) as channel:
            os.set_blocking(channel.fd, False)
            with pytest.raises(VerbsError, match=r"mlx5dv_devx_get_async_cmd_comp\(outlen=16\) failed: EAGAIN"):
                _verbs.mlx5dv_devx_get_async_cmd_comp(channel, 16)
            size = formats.query_qp_out.bytes
            for wr_id, queue in enumerate(pair):
                command = formats.query_qp_in.pack(opcode=formats.MLX5_CMD_OP_QUERY_QP, qpn=queue.qpn)
                _verbs.mlx5dv_devx_obj_query_async(queue._carrier.qp, command, size, wr_id, channel)
            for wr_id, peer in enumerate(reversed(pair)):
                assert select.select([channel.fd], [], [], 10)[0]
                answer = _verbs.mlx5dv_devx_get_async_cmd_comp(channel, size)
                found = formats.query_qp_out.unpack(answer.output)
                assert (answer.wr_id, found["status"], found["qpc"]["remote_qpn"]) == (wr_id, 0, peer.qpn)
        with pytest.raises(ClosedError, match="channel of command answers"):
            _verbs.mlx5dv_devx_obj_query_async(pair[0]._carrier.qp, bytes(16), 16, 9, channel)
        with pytest.raises(ClosedError):
            channel.fd


@pytest.mark.gda_complaints("command-refused")
def test_a_queue_changes_state_by_command():
    with nic.open() as card:
        a, _ = card.loopback_pair(depth=16)
        command = formats.qp_2err_in.pack(opcode=formats.MLX5_CMD_OP_2ERR_QP, qpn=a.qpn)
        answer = _verbs.mlx5dv_devx_obj_modify(a._carrier.qp, command, formats.qp_2err_out.bytes)
        assert formats.qp_2err_out.unpack(answer)["status"] == 0 and a.state == "ERR"
        with pytest.raises(_verbs.DevxError, match=r"mlx5dv_devx_obj_modify\(16 bytes\)"):
            _verbs.mlx5dv_devx_obj_modify(a._carrier.qp, bytes(16), 16)
