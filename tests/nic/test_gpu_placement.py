# SPDX-License-Identifier: Apache-2.0
"""gpu_cases.py on a real GPU, and arrays of CuPy."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import OnlyDlpack
from gpu_cases import *  # noqa: F403

pytestmark = pytest.mark.gpu


def test_cupy_arrays_are_registered_where_they_lie(nic):
    import cupy

    array = cupy.arange(1000, dtype=cupy.float32)
    memory = nic.register(array)
    assert (memory.address, memory.bytes, memory.is_gpu) == (array.data.ptr, 4000, True)
    assert np.frombuffer(memory.read(0, 4000), np.float32)[999] == 999
    with pytest.raises(ArgumentError, match="not contiguous"):  # noqa: F405
        nic.register(array[::2])


def test_two_cupy_arrays_of_one_block_share_a_region(nic):
    import cupy

    whole = cupy.zeros(1 << 16, dtype=cupy.uint8)
    a, b = nic.register(whole[:4096], shared=True), nic.register(whole[8192:12288], shared=True)
    assert a.raw is b.raw and b.address == whole.data.ptr + 8192 and b.users == 2
    a.close()
    b.write(0, b"there")
    assert whole[8192:8197].get().tobytes() == b"there" and b.users == 1


def test_memory_is_a_cupy_array(nic):
    import cupy

    memory = nic.allocate(64, "gpu")
    array = cupy.asarray(memory)
    assert array.data.ptr == memory.address and array.nbytes == 64
    memory.write(3, b"\x07")
    assert int(array[3]) == 7


def test_arrays_that_offer_only_dlpack(nic):
    import cupy

    array = cupy.arange(100, dtype=cupy.int64)
    memory = nic.register(OnlyDlpack(array))
    assert (memory.address, memory.bytes, memory.is_gpu) == (array.data.ptr, 800, True)
