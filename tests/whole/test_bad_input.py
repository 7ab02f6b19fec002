# SPDX-License-Identifier: Apache-2.0
"""Everything people get wrong, through all layers: a clear error, nothing lost, and the objects still work."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gda
from gda.errors import (
    ArgumentError,
    ClosedError,
    CompletionError,
    DeadlineError,
    GdaError,
    NotConnectedError,
    OutOfBoundsError,
)

ROOT = Path(__file__).resolve().parents[2]

PUT = r"""
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, uint64_t at, gda_mr src, uint64_t bytes, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, at, src, 0, bytes), GDA_MS(2000));
}
GDA_KERNEL(put_key)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t rkey, uint32_t lkey, gda_status* status) {
    if (rkey) dst.rkey_be = gda::be32(rkey);
    if (lkey) src.lkey_be = gda::be32(lkey);
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, 64), GDA_MS(2000));
}
GDA_KERNEL(never)(gda_status* status) {
    volatile uint32_t go = 0;
    while (go == 0) { }
    *status = 0;
}
"""


@pytest.fixture(scope="module")
def nic() -> Iterator[gda.Nic]:
    with gda.open() as nic:
        yield nic


@pytest.fixture(scope="module")
def kernels() -> gda.Kernel:
    return gda.Kernel(PUT)


def works(nic: gda.Nic, kernels: gda.Kernel) -> None:
    """A fresh pair still moves bytes."""
    src, dst = nic.allocate(64), nic.allocate(64)
    src.write(0, bytes(range(64)))
    a, b = nic.loopback_pair()
    kernels.put[1, 1](a, dst, 0, src, 64)
    assert dst.read(0, 64) == bytes(range(64))
    for thing in (a, b, src, dst):
        thing.close()


@pytest.mark.gda_complaints("refused-by-peer", may=("key-unknown", "key-byte-swapped",))
@pytest.mark.parametrize("swapped", [False, True], ids=["unknown", "byte-swapped"])
def test_wrong_remote_key(nic: gda.Nic, kernels: gda.Kernel, swapped: bool) -> None:
    src, dst = nic.allocate(64), nic.allocate(64)
    a, _ = nic.loopback_pair()
    key = int.from_bytes(dst.rkey.to_bytes(4, "big"), "little") if swapped else dst.rkey ^ 0x5500
    with pytest.raises(CompletionError) as caught:
        kernels.put_key[1, 1](a, dst, src, key, 0)
    assert caught.value.syndrome == 0x13 and caught.value.qpn == a.qpn
    assert "remote access" in str(caught.value).lower()
    with pytest.raises(GdaError):  # the queue has failed: at once, not at a deadline
        kernels.put[1, 1](a, dst, 0, src, 64)
    a.reset()
    works(nic, kernels)


@pytest.mark.gda_complaints("key-unknown")
def test_wrong_local_key(nic: gda.Nic, kernels: gda.Kernel) -> None:
    src, dst = nic.allocate(64), nic.allocate(64)
    a, _ = nic.loopback_pair()
    with pytest.raises(CompletionError) as caught:
        kernels.put_key[1, 1](a, dst, src, 0, src.lkey ^ 0x5500)
    assert caught.value.syndrome == 0x04
    works(nic, kernels)


def test_out_of_bounds_is_refused_before_anything_is_sent(nic: gda.Nic, kernels: gda.Kernel) -> None:
    src, dst = nic.allocate(64), nic.allocate(64)
    a, _ = nic.loopback_pair()
    for at, size in ((1, 64), (64, 1), (0, 65), (2**63, 8), (2**64 - 8, 16)):
        with pytest.raises(OutOfBoundsError):
            kernels.put[1, 1](a, dst, at, src, size)
    kernels.put[1, 1](a, dst, 0, src, 64)  # the queue is untouched by refusals
    assert int(a.read_handle()["reserved"]) == 1


@pytest.mark.gda_complaints("memory-gone", may=("refused-by-peer", "request-refused",))
def test_memory_unmapped_while_registered_fails_the_request_not_the_process(
    nic: gda.Nic, kernels: gda.Kernel
) -> None:
    if not nic.is_software:
        pytest.skip("not run: a card keeps the pages")
    page = mmap.mmap(-1, mmap.PAGESIZE)
    view = np.frombuffer(page, dtype=np.uint8)
    src, dst = nic.allocate(64), nic.register(view)
    a, _ = nic.loopback_pair()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(dst.address), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    try:
        with pytest.raises(CompletionError):
            kernels.put[1, 1](a, dst, 0, src, 64)
    finally:
        libc.mprotect(ctypes.c_void_p(dst.address), ctypes.c_size_t(mmap.PAGESIZE), 3)
    works(nic, kernels)


def test_kernel_arguments_are_checked_before_the_launch(nic: gda.Nic, kernels: gda.Kernel) -> None:
    src, dst = nic.allocate(64), nic.allocate(64)
    a, _ = nic.loopback_pair()
    for arguments, said in (
        ((a, dst, 0, src), "bytes"),  # one too few
        ((a, dst, 0, src, 64, None, 1), "7"),  # too many, even with a status of its own
        ((src, dst, 0, src, 64), "gda_qp"),
        ((a, a, 0, src, 64), "gda_mr"),
        ((a, dst, -1, src, 64), "-1"),
        ((a, dst, 2**64, src, 64), "uint64_t"),
        ((a, dst, 1.5, src, 64), "1.5"),
        ((None, dst, 0, src, 64), "None"),
        ((a, dst, "0", src, 64), "'0'"),
    ):
        with pytest.raises(ArgumentError) as caught:
            kernels.put[1, 1](*arguments)
        assert said in str(caught.value), str(caught.value)
    assert int(a.read_handle()["reserved"]) == 0
    kernels.put[1, 1](a, dst, 0, src, 64)


def test_kernel_that_never_completes_ends_at_its_deadline(nic: gda.Nic, kernels: gda.Kernel) -> None:
    if "GPU" in kernels.where:
        pytest.skip("not run: a GPU cannot take a spinning kernel back without killing the process")
    with pytest.raises(DeadlineError):
        kernels.never.start[1, 1]().wait(0.5)
    works(nic, kernels)


def test_queue_used_before_it_is_connected(nic: gda.Nic, kernels: gda.Kernel) -> None:
    src, dst = nic.allocate(64), nic.allocate(64)
    with nic.queue_pair() as queue, pytest.raises(NotConnectedError) as caught:
        kernels.put[1, 1](queue, dst, 0, src, 64)
    assert "connect" in str(caught.value)
    works(nic, kernels)


def test_parents_closed_before_children(kernels: gda.Kernel) -> None:
    nic = gda.open()
    src = nic.allocate(64)
    a, b = nic.loopback_pair()
    nic.close()
    for use in (lambda: kernels.put[1, 1](a, src, 0, src, 64), lambda: nic.allocate(8), lambda: b.state):
        with pytest.raises(ClosedError):
            use()
    for thing in (a, b, src, nic):
        thing.close()  # again, in any order, is fine
    with gda.open() as again:
        works(again, kernels)


def test_full_ring_fails_at_the_deadline_and_loses_nothing(nic: gda.Nic) -> None:
    if not nic.is_software:
        pytest.skip("not run: a card cannot be told to stand still")
    code = r"""
    #include <gda/gda.h>
    GDA_KERNEL(fill)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t count, gda_status* status) {
        for (uint32_t i = 0; i < count; i++) {
            gda_ticket t = gda_put(qp, dst, 0, src, 0, 8);
            if (gda_failed(t)) { *status = gda_wait(qp, t, 0); return; }
        }
    }
    """
    script = f"""
import gda
from gda import attach
from gda.errors import QueueFullError
with gda.open() as nic:
    src, dst = nic.allocate(8), nic.allocate(8)
    a, b = nic.loopback_pair(depth=16, deadline_ms=50)
    b.to_error()   # the peer does not answer any more: nothing completes until the retries are over
    kernel = gda.Kernel({code!r})
    kernel.fill[1, 1](a, dst, src, 16)
    first = a.read_wqe(0)
    try:
        kernel.fill[1, 1](a, dst, src, 1)
    except QueueFullError as error:
        assert a.read_wqe(0) == first and a.read_handle()["reserved"] == 16
        print("full:", error)
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert result.returncode == 0 and "full:" in result.stdout, result.stdout + result.stderr


def run_python(script: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    return result.stdout + result.stderr


def test_no_compiler_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import gda\nfrom gda.errors import UnavailableError\n"
        "try:\n    gda.Kernel('__global__ void k() {}').k[1, 1]()\n"
        "except UnavailableError as error:\n    print('said:', error)\n"
    )
    text = run_python(script, PATH=str(tmp_path), GDA_CACHE=str(tmp_path), GDA_TARGET="host", GDA_CXX="")
    assert "said:" in text and "g++" in text, text


def test_no_libmlx5_says_what_to_install(tmp_path: Path) -> None:
    """The loader is made not to find libmlx5: what a machine without ibverbs-providers does."""
    script = (
        "import sys, importlib.abc\n"
        "class Missing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'gda._verbs':\n"
        "            raise ImportError('libmlx5.so.1: cannot open shared object file: No such file or directory')\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import gda\nfrom gda.errors import UnavailableError\n"
        "try:\n    gda.open()\nexcept UnavailableError as error:\n    print('said:', error)\n"
    )
    text = run_python(script)
    assert "said:" in text and "ibverbs-providers" in text, text
