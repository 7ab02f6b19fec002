# SPDX-License-Identifier: Apache-2.0
"""Numba: a kernel in Python computes and sends. Needs a GPU and numba-cuda; says what is missing otherwise."""

import sys

import numpy as np

import gda

try:
    import gda.numba  # isort: skip
    from numba import cuda

    cuda.current_context()
except Exception as missing:
    print(f"not run: {' '.join(str(missing).split())}")
    sys.exit()

BLOCKS, THREADS = 4, 64


@cuda.jit
def squares(qp, dst, src, values, status):
    """Four blocks compute, and each sends its part as soon as it is ready, over one shared queue."""
    i = cuda.grid(1)
    if i < values.size:
        values[i] = i * i
    cuda.threadfence_system()  # the NIC reads these values
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        first = cuda.blockIdx.x * cuda.blockDim.x * 8
        ticket = gda.numba.put(qp, dst, first, src, first, cuda.blockDim.x * 8)
        gda.numba.report(status, gda.numba.wait(qp, ticket, gda.numba.S))


with gda.open() as nic:
    count = BLOCKS * THREADS
    values = cuda.device_array(count, np.uint64)
    src, dst = nic.register(values), nic.allocate(8 * count)
    queue, _ = nic.loopback_pair(depth=64, shared=True)
    gda.numba.Kernel(squares)[BLOCKS, THREADS](queue, dst, src, values)  # status is filled in
    got = np.frombuffer(dst.read(0, 8 * count), np.uint64)
    assert (got == np.arange(count, dtype=np.uint64) ** 2).all()
    print(f"{BLOCKS} blocks of Numba sent {got.nbytes} bytes over one queue")
    print("numba: ok")
