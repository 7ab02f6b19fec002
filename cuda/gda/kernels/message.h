// SPDX-License-Identifier: Apache-2.0
// One thin kernel per verb of send and receive, launched from Python on both targets:
// Kernel('#include <gda/kernels/message.h>'). Thread i of the grid works at i * bytes behind the offset. Offsets and
// lengths in bytes; deadlines in nanoseconds.
#pragma once

#include <gda/gda.h>

// Every thread sends its own piece and waits until it has arrived.
GDA_KERNEL(gda_kernel_send)(gda_qp* qp, gda_mr src, uint64_t src_offset, uint64_t bytes, uint64_t deadline_ns,
                            gda_status* status) {
    uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    gda_report(status, gda_wait(qp, gda_send(qp, src, src_offset + thread * bytes, bytes), deadline_ns));
}

// The same with an immediate.
GDA_KERNEL(gda_kernel_send_imm)(gda_qp* qp, gda_mr src, uint64_t src_offset, uint64_t bytes, uint32_t immediate,
                                uint64_t deadline_ns, gda_status* status) {
    uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    gda_ticket ticket = gda_send_imm(qp, src, src_offset + thread * bytes, bytes, immediate);
    gda_report(status, gda_wait(qp, ticket, deadline_ns));
}

// Every thread posts one receive.
GDA_KERNEL(gda_kernel_post_receive)(gda_qp* qp, gda_mr buffer, uint64_t offset, uint64_t bytes, gda_status* status) {
    uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    gda_ticket posted = gda_post_receive(qp, buffer, offset + thread * bytes, bytes);
    if (gda_failed(posted)) gda_report(status, gda_wait(qp, posted, 0));
}

// Every thread takes one arrival: received[i] for thread i.
GDA_KERNEL(gda_kernel_wait_receive)(gda_qp* qp, gda_received* received, uint64_t deadline_ns, gda_status* status) {
    uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    gda_report(status, gda_wait_receive(qp, received + thread, deadline_ns));
}

// Every thread sends its own piece to `to`, over UD, and waits until it is sent.
GDA_KERNEL(gda_kernel_send_to)(gda_qp* qp, gda_address to, gda_mr src, uint64_t src_offset, uint64_t bytes,
                               uint64_t deadline_ns, gda_status* status) {
    uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    gda_report(status, gda_wait(qp, gda_send_to(qp, to, src, src_offset + thread * bytes, bytes), deadline_ns));
}
