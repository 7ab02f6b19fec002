# SPDX-License-Identifier: Apache-2.0
"""A kernel writes 1024 bytes into another queue pair's memory by itself."""

import numpy as np

import gda

KERNEL = r"""
#include <gda/gda.h>
GDA_KERNEL(first_put)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, gda_status* status) {
    gda_ticket ticket = gda_put(qp, dst, 0, src, 0, bytes);   // build the work request, ring the doorbell
    *status = gda_wait(qp, ticket, GDA_MS(1000));             // read the completion, or give up after a second
}
"""

with gda.open() as nic:
    source = np.arange(1024, dtype=np.uint8)
    target = np.zeros(1024, dtype=np.uint8)
    src = nic.register(source)
    dst = nic.register(target)
    a, b = nic.loopback_pair(depth=128)
    gda.Kernel(KERNEL).first_put[1, 1](a, dst, src, 1024)
    assert (source == target).all()
    print(gda.inspect(a))
    print("first put: ok")
