# SPDX-License-Identifier: Apache-2.0
"""Two buffers in one allocation: one memory region while one of them is open (Nic.register(shared=True))."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from arrays import OnlyDlpack
from by_hand import completion, post, write_request

from gda import formats
from gda.errors import ClosedError


class Tensor(OnlyDlpack):
    """As a torch tensor on the CPU: DLPack, and a storage that says where the allocation lies."""

    def __init__(self, array, storage):
        super().__init__(array)
        self.storage = storage

    def untyped_storage(self):
        return self

    def data_ptr(self):
        return self.storage.ctypes.data

    def nbytes(self):
        return self.storage.nbytes


def views(kind):
    base = np.zeros(8192, np.uint8)
    halves = base[:4000], base[4096:]
    if kind == "memoryview":
        block = bytearray(8192)
        return np.frombuffer(block, np.uint8), (memoryview(block)[:4000], memoryview(block)[4096:])
    if kind == "views of views":
        return base, (base.reshape(2, 4096)[0][:4000], base[4000:].view(np.uint32)[24:])
    if kind == "tensors":
        return base, tuple(Tensor(half, base) for half in halves)
    return base, halves


@pytest.mark.gda_complaints("key-unknown", "refused-by-peer")
@pytest.mark.parametrize("kind", ["views", "views of views", "memoryview", "tensors"])
def test_two_buffers_in_one_allocation_have_one_region(nic, kind):
    base, (first, second) = views(kind)
    a, b = nic.register(first, shared=True), nic.register(second, shared=True)
    assert a.raw is b.raw and (a.lkey, a.rkey) == (b.lkey, b.rkey)
    assert (a.users, b.users) == (2, 2)
    assert (a.address, a.bytes) == (base.ctypes.data, 4000), "each knows its own bytes"
    assert (b.address, b.bytes) == (base.ctypes.data + 4096, 4096)
    source = nic.allocate(64)
    source.write(0, bytes(range(64)))
    queue, _ = nic.loopback_pair()
    a.close()
    assert b.users == 1
    with pytest.raises(ClosedError):
        a.__gda_argument__("host")
    post(queue, 0, write_request(queue, 0, source, b, 64))
    assert completion(queue, 0)["opcode"] == formats.MLX5_CQE_REQ
    assert b.read(0, 64) == bytes(range(64)) and base[4096 : 4096 + 64].tobytes() == bytes(range(64))
    assert not base[:4096].any() and not base[4160:].any(), "every other byte is unchanged"
    at, key = b.address, b.rkey
    b.close()
    post(queue, 1, write_request(queue, 1, source, source, 64, raddr=at, rkey=key))
    error = completion(queue, 1)
    assert error["syndrome"] == formats.MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, "the region is gone with the last"


def test_other_rights_make_another_region(nic):
    base = np.zeros(8192, np.uint8)
    all_rights = nic.register(base[:64], shared=True)
    reading = nic.register(base[64:128], shared=True, access=("remote_read",))
    assert all_rights.raw is not reading.raw and (all_rights.users, reading.users) == (1, 1)
    base.flags.writeable = False
    constant = nic.register(base[128:192], shared=True)
    assert constant.access == ("remote_read",) and constant.raw is reading.raw


def test_plain_registration_shares_nothing(nic):
    base = np.zeros(8192, np.uint8)
    shared, first, second = nic.register(base, shared=True), nic.register(base[:64]), nic.register(base[64:128])
    assert len({memory.rkey for memory in (shared, first, second)}) == 3
    assert first.raw.length == 64 and shared.raw.length == 8192 and first.users == 1


def test_arrays_that_share_nothing_have_regions_of_their_own(nic):
    one, other = np.zeros(4096, np.uint8), np.zeros(4096, np.uint8)
    a, b = nic.register(one, shared=True), nic.register(other, shared=True)
    assert a.raw is not b.raw
    own = OnlyDlpack(one[:100])  # DLPack says nothing of the allocation: its own bytes, which lie in a region already
    c = nic.register(own, shared=True)
    assert c.raw is a.raw and (c.bytes, c.users) == (100, 2)


def test_the_allocation_lives_as_long_as_one_of_them(nic):
    base = np.zeros(8192, np.uint8)
    gone = weakref.ref(base)
    a, b = nic.register(base[:64], shared=True), nic.register(base[64:], shared=True)
    del base
    a.close()
    gc.collect()
    assert gone() is not None
    b.write(0, b"still")
    b.close()
    del a, b
    gc.collect()
    assert gone() is None


def test_a_region_that_was_closed_is_not_found_again(nic):
    base = np.zeros(8192, np.uint8)
    first = nic.register(base[:64], shared=True)
    old = first.raw
    first.close()
    assert old.closed
    again = nic.register(base[:64], shared=True)
    assert again.raw is not old and again.users == 1
