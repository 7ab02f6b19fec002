# SPDX-License-Identifier: Apache-2.0
"""What tests of collectives move: bytes by rank and seed, which differ wherever they could be mixed up."""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
MAP_NORESERVE = 0x4000  # mmap(2); named in Python's module only from 3.13 on


def content(bytes: int, *seed: int) -> Bytes:
    """So many bytes, always the same for a seed."""
    return np.random.default_rng(seed).integers(0, 256, bytes, np.uint8)


def sparse(bytes: int) -> Bytes:
    """Zeros that take memory only where they are touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    return np.frombuffer(mmap.mmap(-1, bytes, flags=flags), np.uint8)
