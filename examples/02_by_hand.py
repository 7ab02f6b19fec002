# SPDX-License-Identifier: Apache-2.0
"""The same put without a kernel and without a library: every byte of the work request from Python."""

import struct
import time

import gda
from gda import formats

with gda.open() as nic:
    source, target = nic.allocate(64), nic.allocate(64)
    source.write(0, b"hello from a work request written by hand".ljust(64))
    queue, _ = nic.loopback_pair(depth=16)

    index = 0  # of this work request; counts up for ever, the NIC sees it modulo 2^16
    control = struct.pack(
        ">II3xBI",
        index << 8 | 0x08,  # opcode RDMA write
        queue.qpn << 8 | 3,  # the whole request is three segments of 16 bytes
        0x08,  # write a completion
        0,
    )
    remote = struct.pack(">QII", target.address, target.rkey, 0)
    local = struct.pack(">IIQ", 64, source.lkey, source.address)
    request = control + remote + local
    print(formats.decode_wqe(request))

    queue.write_wqe(index, request)  # 1. the request into its slot of the ring
    queue.write_record(struct.pack(">I", index + 1))  # 2. the doorbell record: one block written in all
    queue.ring(request[:8])  # 3. the doorbell: the first eight bytes

    deadline = time.monotonic() + 2
    while queue.read_cqe()[63] >> 4 == formats.MLX5_CQE_INVALID:  # 4. the NIC has not written the entry yet
        assert time.monotonic() < deadline, "no completion"
    print(formats.decode_cqe(queue.read_cqe()))
    assert target.read(0, 64) == source.read(0, 64)
    print("by hand: ok")
