# SPDX-License-Identifier: Apache-2.0
"""One right answer. Look here last."""

from __future__ import annotations

import struct


def work_request(
    index: int, qpn: int, remote_address: int, rkey: int, local_address: int, lkey: int, length: int
) -> bytes:
    """48 bytes: control, remote address and data segment of an RDMA write that asks for a completion."""
    control = struct.pack(">II3xBI", (index & 0xFFFF) << 8 | 0x08, qpn << 8 | 3, 0x08, 0)
    remote = struct.pack(">QII", remote_address, rkey, 0)
    local = struct.pack(">IIQ", length, lkey, local_address)
    return control + remote + local


def doorbell_record(written: int) -> bytes:
    """4 bytes: the counter, when `written` work requests have been written since the queue was made."""
    return struct.pack(">I", written & 0xFFFF)


def doorbell(request: bytes) -> bytes:
    """8 bytes: what to store to the doorbell page for this work request."""
    return request[:8]
