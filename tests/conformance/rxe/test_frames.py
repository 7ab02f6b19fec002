# SPDX-License-Identifier: Apache-2.0
"""The kernel's frames, read and made again bit for bit: headers, lengths, checksum, pad bytes and ICRC.

Needs no guest: the frames stand in kernel_frames.txt.
"""

from __future__ import annotations

import pytest

from gda import formats

from . import frames, wire

KERNEL = frames.frames()


@pytest.mark.parametrize("what, frame", KERNEL, ids=[what.replace(" ", "-") for what, _ in KERNEL])
def test_kernel_frame_is_made_again(what: str, frame: bytes) -> None:
    packet = wire.decode(frame)
    assert packet.frame() == frame
    assert what.startswith(f"{frames.opcode_name(packet.opcode)} payload={len(packet.payload)}")


def test_every_opcode_is_there() -> None:
    seen = {wire.decode(frame).opcode for _, frame in KERNEL}
    assert seen == {int(opcode) for opcode in formats.enums["bth_opcode"]}
    pads = {wire.decode(frame).bth["pad_count"] for _, frame in KERNEL}
    assert pads == {0, 1, 2, 3}
    assert frames.FILE.stat().st_size <= frames.LARGEST_BYTES


def test_a_changed_bit_is_noticed() -> None:
    """Where the ICRC covers it; TOS, TTL, the IP checksum, the UDP checksum and BTH's reserved byte it does not."""
    frame = KERNEL[2][1]
    uncovered = {15, 22, 24, 25, 40, 41, 46}
    for at in range(14, len(frame)):
        changed = bytearray(frame)
        changed[at] ^= 0x10
        if 14 <= at < 34 and at not in (24, 25):  # the IP header's own checksum would tell first
            changed[24:26] = b"\0\0"
            changed[24:26] = wire.checksum(bytes(changed[14:34])).to_bytes(2, "big")
        if at in uncovered - {24, 25}:
            wire.decode(bytes(changed))
            continue
        with pytest.raises(wire.MalformedError):
            wire.decode(bytes(changed))
