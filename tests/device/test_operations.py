# SPDX-License-Identifier: Apache-2.0
"""What each operation beside put writes: golden bytes by hand, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from gda import formats
from gda.run import Kernel

from .toy_queue import QPN, ToyMemory, ToyQueue

FAILED = 1 << 63
REMOTE = ToyMemory(1 << 16, rkey=0x55667788, address=0x1122334455660000)
LOCAL = ToyMemory(1 << 16, lkey=0x11223344, address=0x0000AABBCCDD0000)

# Each kernel posts one request per thread and tells its ticket.
OPERATIONS = r"""
#include <gda/gda.h>
#define ME (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x)
GDA_KERNEL(get)(gda_qp* qp, gda_mr local, uint64_t to, gda_mr remote, uint64_t from, uint64_t bytes, gda_ticket* t) {
    t[ME] = gda_get(qp, local, to, remote, from, bytes);
}
GDA_KERNEL(put_imm)(gda_qp* qp, gda_mr remote, uint64_t to, gda_mr local, uint64_t from, uint64_t bytes, uint32_t imm,
                    gda_ticket* t) {
    t[ME] = gda_put_imm(qp, remote, to, local, from, bytes, imm);
}
GDA_KERNEL(put_inline)(gda_qp* qp, gda_mr remote, uint64_t to, const uint8_t* data, uint32_t bytes, gda_ticket* t) {
    t[ME] = gda_put_inline(qp, remote, to, data, bytes);
}
struct seven { uint32_t word[7]; };
GDA_KERNEL(put_values)(gda_qp* qp, gda_mr remote, gda_ticket* t) {
    t[0] = gda_put_value(qp, remote, 0, uint8_t(0xab));
    t[1] = gda_put_value(qp, remote, 8, uint64_t(0x0102030405060708));
    t[2] = gda_put_value(qp, remote, 16, 1.5);
    seven all = {{1, 2, 3, 4, 5, 6, 7}};
    t[3] = gda_put_value(qp, remote, 32, all);
}
GDA_KERNEL(fetch_add)(gda_qp* qp, gda_mr local, uint64_t to, gda_mr remote, uint64_t at, uint64_t add, gda_ticket* t) {
    t[ME] = gda_fetch_add(qp, local, to, remote, at, add);
}
GDA_KERNEL(compare_swap)(gda_qp* qp, gda_mr local, uint64_t to, gda_mr remote, uint64_t at, uint64_t compare,
                         uint64_t swap, gda_ticket* t) {
    t[ME] = gda_compare_swap(qp, local, to, remote, at, compare, swap);
}
GDA_KERNEL(masked_add)(gda_qp* qp, gda_mr local, uint64_t to, gda_mr remote, uint64_t at, uint64_t add,
                       uint64_t boundary, gda_ticket* t) {
    t[ME] = gda_masked_fetch_add<uint64_t>(qp, local, to, remote, at, add, boundary);
}
GDA_KERNEL(masked_add_32)(gda_qp* qp, gda_mr local, uint64_t to, gda_mr remote, uint64_t at, uint32_t add,
                          uint32_t boundary, gda_ticket* t) {
    t[ME] = gda_masked_fetch_add<uint32_t>(qp, local, to, remote, at, add, boundary);
}
GDA_KERNEL(masked_swap)(gda_qp* qp, gda_mr local, uint64_t to, gda_mr remote, uint64_t at, uint64_t compare,
                        uint64_t compare_mask, uint64_t swap, uint64_t swap_mask, gda_ticket* t) {
    t[ME] = gda_masked_compare_swap<uint64_t>(qp, local, to, remote, at, compare, compare_mask, swap, swap_mask);
}
GDA_KERNEL(masked_swap_32)(gda_qp* qp, gda_mr local, uint64_t to, gda_mr remote, uint64_t at, uint32_t compare,
                           uint32_t compare_mask, uint32_t swap, uint32_t swap_mask, gda_ticket* t) {
    t[ME] = gda_masked_compare_swap<uint32_t>(qp, local, to, remote, at, compare, compare_mask, swap, swap_mask);
}
GDA_KERNEL(send_to)(gda_qp* qp, gda_address to, gda_mr local, uint64_t from, uint64_t bytes, gda_ticket* t) {
    t[ME] = gda_send_imm_to(qp, to, local, from, bytes, 0xcafebabe);
}
GDA_KERNEL(nop)(gda_qp* qp, gda_ticket* t) { t[ME] = gda_nop(qp); }
// Lanes that do different things on one queue.
GDA_KERNEL(mixed)(gda_qp* qp, gda_mr remote, gda_mr local, gda_ticket* t) {
    switch (threadIdx.x % 4) {
        case 0: t[ME] = gda_put(qp, remote, 0, local, 0, 8); break;
        case 1: t[ME] = gda_get(qp, local, 0, remote, 0, 8); break;
        case 2: t[ME] = gda_put_value(qp, remote, 0, threadIdx.x); break;
        default: t[ME] = gda_fetch_add(qp, local, 0, remote, 0, 1);
    }
}
"""


@pytest.fixture(scope="module")
def k() -> Kernel:
    return Kernel(OPERATIONS, target="host")


@pytest.fixture(params=["owned", "shared"])
def owned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "owned")


def tickets(count: int = 1) -> np.ndarray:
    return np.zeros(count, np.uint64)


def code(word: int) -> str:
    assert int(word) & FAILED
    return str(formats.decode_status(int(word) & ~FAILED)["code_name"])


def untouched(queue: ToyQueue) -> bool:
    return bool((queue.sq == 0xFF).all()) and queue.state["reserved"] == 0 and not queue.page.any()


def golden(text: str) -> bytes:
    """The bytes, and the rest of the block as it was before."""
    return bytes.fromhex(text).ljust(64, b"\xff")


def test_get(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), tickets()
    k.get[1, 1](queue, LOCAL, 0x40, REMOTE, 0x10, 0x20, t)
    assert t[0] == 1
    assert queue.wqe(0) == golden(
        "00000010 12345603 00000008 00000000 1122334455660010 55667788 00000000 00000020 11223344 0000aabbccdd0040"
    )
    assert queue.send_counter == 1
    assert queue.doorbell == bytes.fromhex("00000100 12345600")


def test_put_with_immediate(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), tickets()
    k.put_imm[1, 1](queue, REMOTE, 0x10, LOCAL, 0x40, 0x20, 0xCAFEBABE, t)
    assert t[0] == 1
    assert queue.wqe(0) == golden(
        "00000009 12345603 00000008 cafebabe 1122334455660010 55667788 00000000 00000020 11223344 0000aabbccdd0040"
    )


def test_only_the_last_message_has_the_immediate(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(16, owned=owned, max_message_bytes=100), tickets()
    k.put_imm[1, 1](queue, REMOTE, 0, LOCAL, 0, 250, 7, t)
    assert t[0] == 3
    control = [formats.wqe_ctrl_seg.unpack(queue.wqe(i)[:16]) for i in range(3)]
    assert [c["opcode"] for c in control] == [8, 8, 9]
    assert [c["imm"] for c in control] == [0, 0, 7]
    assert [c["ce"] for c in control] == [0, 0, 2]


def test_immediate_without_bytes(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), tickets()
    k.put_imm[1, 1](queue, REMOTE, 0, LOCAL, 0, 0, 7, t)
    assert queue.wqe(0) == golden("00000009 12345602 00000008 00000007 1122334455660000 55667788 00000000")


@pytest.mark.parametrize("count", range(1, 29))
def test_inline(k: Kernel, owned: bool, count: int) -> None:
    """Every length: the segments, the byte count in the inline segment's dword, the bytes behind it."""
    queue, t = ToyQueue(owned=owned), tickets()
    data = np.arange(0x41, 0x41 + 32, dtype=np.uint8)
    k.put_inline[1, 1](queue, REMOTE, 0x10, data, count, t)
    assert t[0] == 1
    wqe = queue.wqe(0)
    segments = 3 if count <= 12 else 4
    assert wqe[:16] == formats.wqe_ctrl_seg.pack(opcode=8, qp_or_sq=QPN, ds=segments, ce=2)
    assert wqe[16:32] == formats.wqe_raddr_seg.pack(raddr=REMOTE.address + 0x10, rkey=REMOTE.rkey)
    assert wqe[32:36] == (0x80000000 | count).to_bytes(4, "big")
    assert wqe[36 : 36 + count] == data[:count].tobytes()
    assert wqe[36 + count : 16 * segments] == bytes(16 * segments - 36 - count), "padded with zeros"
    assert wqe[16 * segments :] == b"\xff" * (64 - 16 * segments)


@pytest.mark.parametrize("count", [0, 29, 64, 0xFFFFFFFF])
def test_inline_lengths_that_do_not_fit(k: Kernel, owned: bool, count: int) -> None:
    queue, t = ToyQueue(owned=owned), tickets()
    k.put_inline[1, 1](queue, REMOTE, 0, np.zeros(64, np.uint8), count, t)
    assert code(t[0]) == "GDA_OUT_OF_BOUNDS"
    assert untouched(queue)


def test_values_of_many_types(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), tickets(4)
    k.put_values[1, 1](queue, REMOTE, t)
    assert t.tolist() == [1, 2, 3, 4]
    sizes = [int.from_bytes(queue.wqe(i)[32:36], "big") & 0x3FF for i in range(4)]
    assert sizes == [1, 8, 8, 28]
    bodies = [queue.wqe(i)[36 : 36 + size] for i, size in enumerate(sizes)]
    assert bodies[:3] == [b"\xab", (0x0102030405060708).to_bytes(8, "little"), np.float64(1.5).tobytes()]
    assert bodies[3] == np.arange(1, 8, dtype=np.uint32).tobytes()


def test_fetch_add(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), tickets()
    k.fetch_add[1, 1](queue, LOCAL, 0x40, REMOTE, 0x10, 0x0102030405060708, t)
    assert t[0] == 1
    assert queue.wqe(0) == bytes.fromhex(
        "00000012 12345604 00000008 00000000 1122334455660010 55667788 00000000"
        "0102030405060708 0000000000000000 00000008 11223344 0000aabbccdd0040"
    )


def test_compare_swap(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), tickets()
    k.compare_swap[1, 1](queue, LOCAL, 0x40, REMOTE, 0x10, 0x1112131415161718, 0x2122232425262728, t)
    assert t[0] == 1
    assert queue.wqe(0) == bytes.fromhex(
        "00000011 12345604 00000008 00000000 1122334455660010 55667788 00000000"
        "2122232425262728 1112131415161718 00000008 11223344 0000aabbccdd0040"
    ), "the new value comes first"


REMOTE_ADDRESS = "1122334455660010 55667788 00000000"


def test_masked_fetch_add(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), tickets()
    k.masked_add[1, 1](queue, LOCAL, 0x40, REMOTE, 0x10, 0x0102030405060708, 0x8000000080000000, t)
    k.masked_add_32[1, 1](queue, LOCAL, 0x40, REMOTE, 0x10, 0x01020304, 0x80008000, t)
    assert queue.wqe(0) == bytes.fromhex(
        f"09000015 12345604 00000008 00000000 {REMOTE_ADDRESS}"
        "0102030405060708 8000000080000000 00000008 11223344 0000aabbccdd0040"
    )
    assert queue.wqe(1) == bytes.fromhex(
        f"08000115 12345604 00000008 00000000 {REMOTE_ADDRESS}"
        "01020304 80008000 0000000000000000 00000004 11223344 0000aabbccdd0040"
    )


def test_masked_compare_swap_of_four_bytes(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned), tickets()
    k.masked_swap_32[1, 1](queue, LOCAL, 0x40, REMOTE, 0x10, 0x11121314, 0xFFFFFF00, 0x21222324, 0x00FFFFFF, t)
    assert t[0] == 1
    assert queue.wqe(0) == bytes.fromhex(
        f"08000014 12345604 00000008 00000000 {REMOTE_ADDRESS}"
        "21222324 11121314 00ffffff ffffff00 00000004 11223344 0000aabbccdd0040"
    ), "the new value comes first, and its mask"


@pytest.mark.parametrize("start", [0, 7])
def test_masked_compare_swap_has_two_blocks(k: Kernel, owned: bool, start: int) -> None:
    """Also when the second one is the ring's first. The ticket is complete with the block that a completion names."""
    queue, t = ToyQueue(owned=owned, start=start), tickets()
    values = 0x1112131415161718, 0xFFFFFFFFFFFFFF00, 0x2122232425262728, 0x00FFFFFFFFFFFFFF
    k.masked_swap[1, 1](queue, LOCAL, 0x40, REMOTE, 0x10, *values, t)
    assert t[0] == start + 1
    assert queue.wqe(start) == bytes.fromhex(
        f"0900{start:02x}14 12345605 00000008 00000000 {REMOTE_ADDRESS}"
        "2122232425262728 1112131415161718 00ffffffffffffff ffffffffffffff00"
    )
    assert queue.wqe(start + 1) == golden("00000008 11223344 0000aabbccdd0040")
    assert queue.send_counter == start + 2
    k.nop[1, 1](queue, t)
    assert t[0] == start + 3


def test_datagram(k: Kernel, owned: bool) -> None:
    """Control and address fill the first block, here the ring's last one."""
    queue, t = ToyQueue(owned=owned, start=7), tickets()
    k.send_to[1, 1](queue, bytes(range(48)), LOCAL, 0x40, 0x20, t)
    assert t[0] == 8
    assert queue.wqe(7) == bytes.fromhex("0000070b 12345605 00000008 cafebabe") + bytes(range(48))
    assert queue.wqe(8) == golden("00000020 11223344 0000aabbccdd0040")
    assert queue.send_counter == 9


def test_nop(k: Kernel, owned: bool) -> None:
    queue, t = ToyQueue(owned=owned, start=5), tickets()
    k.nop[1, 1](queue, t)
    assert t[0] == 6
    assert queue.wqe(5) == golden("00000500 12345601 00000008 00000000")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get", (LOCAL, 0, REMOTE, 65500, 37)),
        ("get", (LOCAL, 65500, REMOTE, 0, 37)),
        ("put_imm", (REMOTE, 65536, LOCAL, 0, 1, 0)),
        ("put_inline", (REMOTE, 65529, np.zeros(8, np.uint8), 8)),
        ("fetch_add", (LOCAL, 0, REMOTE, 65529, 1)),
        ("fetch_add", (LOCAL, 65529, REMOTE, 0, 1)),
        ("compare_swap", (LOCAL, 0, REMOTE, (1 << 64) - 8, 1, 1)),
        ("masked_add", (LOCAL, 0, REMOTE, 65529, 1, 1)),
        ("masked_add_32", (LOCAL, 65533, REMOTE, 0, 1, 1)),
        ("masked_swap", (LOCAL, 65529, REMOTE, 0, 1, 1, 1, 1)),
        ("masked_swap_32", (LOCAL, 0, REMOTE, 65533, 1, 1, 1, 1)),
    ],
)
def test_out_of_bounds(k: Kernel, owned: bool, name: str, arguments: tuple[object, ...]) -> None:
    queue, t = ToyQueue(owned=owned), tickets()
    k[name][1, 1](queue, *arguments, t)
    assert code(t[0]) == "GDA_OUT_OF_BOUNDS"
    assert untouched(queue)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get", (LOCAL, 0, REMOTE, 0, 8)),
        ("put_imm", (REMOTE, 0, LOCAL, 0, 8, 0)),
        ("put_inline", (REMOTE, 0, np.zeros(8, np.uint8), 8)),
        ("fetch_add", (LOCAL, 0, REMOTE, 0, 1)),
        ("compare_swap", (LOCAL, 0, REMOTE, 0, 1, 1)),
        ("nop", ()),
    ],
)
def test_refusals_of_the_queue(k: Kernel, owned: bool, name: str, arguments: tuple[object, ...]) -> None:
    t = tickets()
    k[name][1, 1](ToyQueue(owned=owned, version=1), *arguments, t)
    assert code(t[0]) == "GDA_BAD_HANDLE"
    k[name][1, 1](ToyQueue(owned=owned, connected=False), *arguments, t)
    assert code(t[0]) == "GDA_NOT_CONNECTED"
    full = ToyQueue(2, owned=owned, deadline_ns=2_000_000)
    for _ in range(2):
        k[name][1, 1](full, *arguments, t)
        assert not int(t[0]) & FAILED
    k[name][1, 1](full, *arguments, t)
    assert code(t[0]) == "GDA_QUEUE_FULL"


@pytest.mark.parametrize("converged", ["all", "one", "random"])
def test_lanes_that_do_different_things_share_a_queue(converged: str) -> None:
    kernel = Kernel(OPERATIONS, target="host", converged=converged, seed=5)
    queue, t = ToyQueue(64), tickets(64)
    kernel.mixed[1, 64](queue, REMOTE, LOCAL, t)
    assert sorted(t.tolist()) == list(range(1, 65))
    expected = (0x08, 0x10, 0x08, 0x12)
    for lane, ticket in enumerate(t.tolist()):
        control = formats.wqe_ctrl_seg.unpack(queue.wqe(ticket - 1)[:16])
        assert (control["opcode"], control["wqe_index"]) == (expected[lane % 4], ticket - 1)
    assert queue.send_counter == 64
