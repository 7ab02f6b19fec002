# SPDX-License-Identifier: Apache-2.0
"""Kernels on queue pairs of other transports than RC, with the fixtures of operation_cases.py.

Imported by test_nic_operations.py (on the CPU) and test_gpu_operations.py (on a GPU).
"""

from __future__ import annotations

import numpy as np
import pytest

import gda
from gda import formats
from gda.errors import ArgumentError, CompletionError, OutOfBoundsError

from .operation_cases import LIMIT_S, Allocate, numbers

UNRELIABLE_KERNELS = r"""
#include <gda/kernels/message.h>
#include <gda/kernels/operations.h>
#include <gda/kernels/put.h>
#include <gda/kernels/signal.h>
GDA_KERNEL(take)(gda_qp* qp, gda_mr out, gda_status* status) {
    gda_report(status, gda_wait_receive(qp, reinterpret_cast<gda_received*>(out.addr), LIMIT));
}
"""


@pytest.fixture(scope="module")
def unreliable(target: str) -> gda.Kernel:
    kernels = gda.Kernel(UNRELIABLE_KERNELS.replace("LIMIT", f"GDA_S({LIMIT_S[target]})"), target=target)
    kernels.deadline_s = 2 * LIMIT_S[target]
    return kernels


def test_puts_and_sends_over_uc(allocate: Allocate, nic: gda.Nic, unreliable: gda.Kernel, limit_ns: int) -> None:
    a, b = nic.loopback_pair(depth=16, receive_depth=8, transport="UC")
    assert (a.transport, int(a.context()["st"])) == ("UC", int(formats.MLX5_QPC_ST_UC))
    src, dst, out = allocate(9000), allocate(9000), allocate(formats.layouts["gda_received"].bytes)
    src.write(0, np.random.default_rng(1).bytes(9000))
    unreliable.gda_kernel_put[1, 3](a, dst, 0, src, 0, 3000, limit_ns)
    unreliable.gda_kernel_post_receive[1, 2](b, dst, 0, 64)
    unreliable.gda_kernel_put_imm[1, 1](a, dst, 128, src, 0, 64, 77, limit_ns)
    unreliable.take[1, 1](b, out)  # before the rest is compared: an answer that nobody gives cannot be waited for
    assert formats.layouts["gda_received"].unpack(out.read(0, 32))["immediate"] == 77
    assert dst.read(128, 64) == src.read(0, 64)
    assert dst.read(192, 8808) == src.read(192, 8808)
    unreliable.gda_kernel_send[1, 1](a, src, 500, 64, limit_ns)
    unreliable.take[1, 1](b, out)
    assert dst.read(64, 64) == src.read(500, 64)
    unreliable.gda_kernel_put_value[1, 1](a, dst, 0, 5, limit_ns)
    unreliable.gda_kernel_signal[1, 1](a, dst, 8, 6, int(formats.GDA_SIGNAL_SET), limit_ns)
    unreliable.gda_kernel_wait_signal[1, 1](dst, 8, int(formats.GDA_EQUAL), 6, limit_ns)
    assert numbers(dst, 1)[0] == 5


@pytest.mark.gda_complaints("wqe-opcode")
@pytest.mark.parametrize("name", ["gda_kernel_get", "gda_kernel_fetch_add"])
def test_what_uc_does_not_have(
    allocate: Allocate, nic: gda.Nic, unreliable: gda.Kernel, name: str, limit_ns: int
) -> None:
    a, _ = nic.loopback_pair(depth=16, transport="UC")
    own, remote = allocate(64), allocate(64)
    with pytest.raises(CompletionError, match="local queue pair operation error"):
        unreliable[name][1, 1](a, own, 0, remote, 0, 8, limit_ns)


def test_datagrams(allocate: Allocate, nic: gda.Nic, unreliable: gda.Kernel, limit_ns: int) -> None:
    """Two senders, one receiver; each datagram says to whom, and arrives behind 40 bytes of header."""
    a, b = nic.loopback_pair(depth=16, receive_depth=8, transport="UD")
    c, _ = nic.loopback_pair(depth=16, transport="UD")
    src, inbox, out = allocate(4096), allocate(4 * 1040), allocate(4 * formats.layouts["gda_received"].bytes)
    src.write(0, np.random.default_rng(1).bytes(4096))
    unreliable.gda_kernel_post_receive[1, 4](b, inbox, 0, 1040)
    unreliable.gda_kernel_send_to[1, 3](a, a.peer(b.info), src, 0, 1000, limit_ns)
    unreliable.gda_kernel_send_to[1, 1](c, c.peer(b.info), src, 3000, 1000, limit_ns)
    for number in range(4):
        unreliable.take[1, 1](b, out)
        assert formats.layouts["gda_received"].unpack(out.read(0, 32))["bytes"] == 1040
        assert inbox.read(1040 * number + 40, 1000) == src.read(1000 * number, 1000)
    with pytest.raises(OutOfBoundsError):  # more than a packet
        unreliable.gda_kernel_send_to[1, 1](a, a.peer(b.info), allocate(1 << 16), 0, 4097, limit_ns)
    with pytest.raises(OutOfBoundsError):
        unreliable.gda_kernel_send_to[1, 1](a, a.peer(b.info), src, 0, 0, limit_ns)


def test_transports_do_not_mix(nic: gda.Nic) -> None:
    reliable, other = nic.queue_pair(), nic.queue_pair(transport="UC")
    with reliable, other, pytest.raises(ArgumentError, match="one queue pair is RC, the other UC"):
        gda.nic.connect(reliable, other)
    with pytest.raises(ArgumentError, match="transport='TCP' is not one of RC, UC, UD"):
        nic.queue_pair(transport="TCP")
