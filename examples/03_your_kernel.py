# SPDX-License-Identifier: Apache-2.0
"""Your own kernel: four blocks compute, and each sends its part as soon as it is ready, over one shared queue."""

import numpy as np

import gda

BLOCKS, THREADS = 4, 64

KERNEL = r"""
#include <gda/gda.h>
GDA_KERNEL(squares)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t count, gda_status* status) {
    uint32_t* values = reinterpret_cast<uint32_t*>(src.addr);
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = i * i;
    __threadfence_system();  // the NIC reads these values
    __syncthreads();
    if (threadIdx.x == 0) {  // the block's part is complete: send it while other blocks still compute
        uint64_t first = uint64_t(blockIdx.x) * blockDim.x * sizeof(uint32_t);
        gda_ticket ticket = gda_put(qp, dst, first, src, first, blockDim.x * sizeof(uint32_t));
        gda_report(status, gda_wait(qp, ticket, GDA_MS(1000)));
    }
}
"""

with gda.open() as nic:
    count = BLOCKS * THREADS
    src, dst = nic.allocate(4 * count), nic.allocate(4 * count)
    queue, _ = nic.loopback_pair(depth=64, shared=True)
    gda.Kernel(KERNEL).squares[BLOCKS, THREADS](queue, dst, src, count)
    got = np.frombuffer(dst.read(0, 4 * count), dtype=np.uint32)
    assert (got == np.arange(count, dtype=np.uint32) ** 2).all()
    print(f"{BLOCKS} blocks sent {got.nbytes} bytes over one queue")
    print("your kernel: ok")
