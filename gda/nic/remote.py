# SPDX-License-Identifier: Apache-2.0
"""What another process must know to reach a memory region: address, length, key. Made by `Memory.remote`."""

from __future__ import annotations

import builtins
import struct
import zlib
from dataclasses import dataclass

from gda import formats
from gda.errors import ArgumentError

__all__ = ["RemoteMemory", "flags_of", "key_in_memory"]

_MAGIC = b"gdm1"
_LAYOUT = struct.Struct(">4sQQIB")  # magic, address, bytes, rkey, flags; then a checksum


def key_in_memory(key: int) -> int:
    """The number whose little-endian bytes are the key's big-endian ones: how gda_mr carries keys."""
    return int.from_bytes(key.to_bytes(4, "big"), "little")


def flags_of(is_gpu: bool, is_relaxed: bool) -> int:
    """enum gda_mr_flags of a region."""
    return (int(formats.GDA_MR_GPU) if is_gpu else 0) + (int(formats.GDA_MR_RELAXED) if is_relaxed else 0)


@dataclass(frozen=True)
class RemoteMemory:
    """A memory region of another process, as a target of puts. Fits as a kernel argument `gda_mr`."""

    address: int
    bytes: int
    rkey: int
    is_gpu: bool = False
    is_relaxed: bool = False  # registered with relaxed ordering

    def to_bytes(self) -> builtins.bytes:
        """Bytes to send to the other side: fixed length, with version and checksum."""
        body = _LAYOUT.pack(_MAGIC, self.address, self.bytes, self.rkey, flags_of(self.is_gpu, self.is_relaxed))
        return body + zlib.crc32(body).to_bytes(4, "big")

    @classmethod
    def from_bytes(cls, data: builtins.bytes) -> RemoteMemory:
        """Read what to_bytes made. Raises ArgumentError for bytes that are cut, changed or of another kind."""
        data, size = bytes(data), _LAYOUT.size + 4
        if len(data) != size:
            raise ArgumentError(
                f"a remote memory region is {size} bytes, not {len(data)}", "receive until all of it is there"
            )
        magic, address, length, rkey, flags = _LAYOUT.unpack(data[:-4])
        if magic != _MAGIC or zlib.crc32(data[:-4]).to_bytes(4, "big") != data[-4:]:
            raise ArgumentError(
                f"these bytes are no remote memory region, or were changed on the way (they start with {magic!r})",
                "pass the bytes of the other side's Memory.remote.to_bytes(); both need the same version of gda",
            )
        return cls(address, length, rkey, bool(flags & formats.GDA_MR_GPU), bool(flags & formats.GDA_MR_RELAXED))

    def __gda_argument__(self, target: str) -> tuple[str, builtins.bytes]:
        """The kernel argument `gda_mr`, without a local key: it can only be a put's target."""
        layout = formats.layouts["gda_mr"]
        flags = flags_of(self.is_gpu, self.is_relaxed)
        return "gda_mr", layout.pack(addr=self.address, bytes=self.bytes, rkey_be=key_in_memory(self.rkey), flags=flags)
