# SPDX-License-Identifier: Apache-2.0
"""One compilation of the kernels that most tests here launch, per policy of converged lanes."""

from __future__ import annotations

import pytest

from gda.run import Kernel

KERNELS = r"""
#include <gda/gda.h>

// One put of thread i at offsets i * stride; its ticket.
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, uint64_t dst_offset, gda_mr src, uint64_t src_offset, uint64_t bytes,
                uint64_t stride, gda_ticket* tickets) {
    uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    tickets[i] = gda_put(qp, dst, dst_offset + i * stride, src, src_offset + i * stride, bytes);
}
GDA_KERNEL(wait)(gda_qp* qp, gda_ticket ticket, uint64_t deadline_ns, gda_status* result) {
    *result = gda_wait(qp, ticket, deadline_ns);
}
GDA_KERNEL(test)(gda_qp* qp, gda_ticket ticket, gda_status* result) { *result = gda_test(qp, ticket); }
GDA_KERNEL(flush)(gda_qp* qp, uint64_t deadline_ns, gda_status* result) { *result = gda_flush(qp, deadline_ns); }
GDA_KERNEL(put_null)(gda_mr dst, gda_mr src, gda_ticket* ticket) { *ticket = gda_put(nullptr, dst, 0, src, 0, 8); }
"""


@pytest.fixture(scope="session")
def kernels() -> Kernel:
    return Kernel(KERNELS, target="host")
