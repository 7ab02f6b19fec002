// SPDX-License-Identifier: Apache-2.0
// Broadcast as kernels: each block is a channel, which carries its share of the bytes. Launched by
// gda/comm/collectives/broadcast.py.
#pragma once

#include <gda/collectives/broadcast.h>

GDA_KERNEL(gda_kernel_broadcast)(gda_team team, gda_window data, uint64_t offset, uint64_t bytes, uint32_t root,
                                 uint64_t chunk, gda_window signals, uint64_t deadline_ns, gda_status* status) {
    gda::collective_share share = gda::share_of(bytes, blockIdx.x, gridDim.x);
    gda_report(status, gda_broadcast_block(team, data, offset + share.offset, share.bytes, root, signals, deadline_ns,
                                           blockIdx.x, chunk));
}

GDA_KERNEL(gda_kernel_broadcast_tree)(gda_team team, gda_window data, uint64_t offset, uint64_t bytes, uint32_t root,
                                      uint64_t chunk, gda_window signals, uint64_t deadline_ns, gda_status* status) {
    gda::collective_share share = gda::share_of(bytes, blockIdx.x, gridDim.x);
    static_cast<void>(chunk);
    gda_report(status, gda_broadcast_tree_block(team, data, offset + share.offset, share.bytes, root, signals,
                                                deadline_ns, blockIdx.x));
}

GDA_KERNEL(gda_kernel_broadcast_chain)(gda_team team, gda_window data, uint64_t offset, uint64_t bytes, uint32_t root,
                                       uint64_t chunk, gda_window signals, uint64_t deadline_ns, gda_status* status) {
    gda::collective_share share = gda::share_of(bytes, blockIdx.x, gridDim.x);
    gda_report(status, gda_broadcast_chain_block(team, data, offset + share.offset, share.bytes, root, signals,
                                                 deadline_ns, blockIdx.x, chunk));
}
