# SPDX-License-Identifier: Apache-2.0
"""A kernel that posts by itself, without the library's put, in a right form and with a planted bug.

    python examples/bugs/own_put.py [right | wrong-word | wrong-key | short-ring | no-fence] [diagnose] [store-buffer]

docs/find_a_bug.md finds each bug with the tools.
"""

import sys

import numpy as np

import gda
import gda.sim

KERNEL = r"""
#include <gda/gda.h>
// `count` writes of 64 bytes, told to the NIC at once; then it waits for the last one's completion.
GDA_KERNEL(own_put)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t count, uint32_t bug) {
    uint32_t depth = 1u << qp->log_sq_size;
    for (uint32_t i = 0; i < count * 64; ++i) ((volatile uint8_t*)src.addr)[i] = 1;
    for (uint32_t i = 0; i < count; ++i) {
        uint8_t wqe[64] = {};
        GDA_SET(wqe_ctrl_seg, wqe, opcode, gda::prm::MLX5_OPCODE_RDMA_WRITE);
        GDA_SET(wqe_ctrl_seg, wqe, wqe_index, i);
        GDA_SET(wqe_ctrl_seg, wqe, qp_or_sq, qp->qpn);
        GDA_SET(wqe_ctrl_seg, wqe, ds, 3);
        GDA_SET(wqe_ctrl_seg, wqe, ce, gda::prm::CE_ALWAYS);
        GDA_SET(wqe_raddr_seg, wqe + 16, raddr, dst.addr + i * 64);
        GDA_SET(wqe_raddr_seg, wqe + 16, rkey, bug == 2 ? dst.rkey_be : gda::be32(dst.rkey_be));
        GDA_SET(wqe_data_seg, wqe + 32, byte_count, 64);
        GDA_SET(wqe_data_seg, wqe + 32, lkey, gda::be32(src.lkey_be));
        GDA_SET(wqe_data_seg, wqe + 32, addr, src.addr + i * 64);
        uint64_t* slot = (uint64_t*)(qp->sq + uint64_t(i % depth) * 64);
        for (int w = 0; w < 8; ++w) slot[w] = ((uint64_t*)wqe)[w];
    }
    if (bug != 4) __threadfence_system();  // payload and requests before the record
    *(volatile uint32_t*)(qp->record - (bug == 1 ? 4 : 0)) = gda::be32(count);
    if (bug != 4) __threadfence_system();  // the record before the doorbell
    uint8_t doorbell[8] = {};
    GDA_SET(send_doorbell, doorbell, wqe_index, count);
    GDA_SET(send_doorbell, doorbell, qpn, qp->qpn);
    *(volatile uint64_t*)qp->doorbell = *(uint64_t*)doorbell;
    volatile uint8_t* cqe = (volatile uint8_t*)qp->cq.ring;  // one entry, overwritten by each completion
    uint64_t give_up = gda::target::clock_ns() + GDA_MS(20000);
    while (cqe[63] >> 4 == 0xf || cqe[61] != count - 1) {
        if (gda::target::clock_ns() > give_up) return;
    }
}
"""
BUGS = {"right": 0, "wrong-word": 1, "wrong-key": 2, "short-ring": 3, "no-fence": 4}

bug = sys.argv[1] if len(sys.argv) > 1 else "right"
depth, count = (4 if bug == "short-ring" else 16), 6
with gda.open() as nic:
    source, target = nic.register(np.zeros(384, np.uint8)), nic.register(np.zeros(384, np.uint8))
    if "store-buffer" in sys.argv:
        gda.sim.current().store_buffer(True)
    queue, peer = nic.loopback_pair(depth=depth)
    gda.Kernel(KERNEL, target="host").own_put[1, 1](queue, target, source, count, BUGS[bug])
    print("completion:", queue.read_cqe().hex(" ", 4))
    arrived = sum(target.read(64 * i, 64) == bytes([1]) * 64 for i in range(count))
    print(f"{arrived} of {count} writes arrived: {'ok' if arrived == count else 'not ok'}")
    if "diagnose" in sys.argv:
        print(*gda.diagnose(queue, peer), sep="\n")
