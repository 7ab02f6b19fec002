// SPDX-License-Identifier: Apache-2.0
// All-gather as kernels: each block is a channel, which carries its share of every piece. Launched by
// gda/comm/collectives/all_gather.py.
#pragma once

#include <gda/collectives/all_gather.h>

GDA_KERNEL(gda_kernel_all_gather)(gda_team team, gda_window data, uint64_t bytes, uint64_t stride, gda_window signals,
                                  uint64_t deadline_ns, gda_status* status) {
    gda::collective_share share = gda::share_of(bytes, blockIdx.x, gridDim.x);
    gda_report(status,
               gda_all_gather_block(team, data, share.offset, share.bytes, stride, signals, deadline_ns, blockIdx.x));
}

GDA_KERNEL(gda_kernel_all_gather_ring)(gda_team team, gda_window data, uint64_t bytes, uint64_t stride,
                                       gda_window signals, uint64_t deadline_ns, gda_status* status) {
    gda::collective_share share = gda::share_of(bytes, blockIdx.x, gridDim.x);
    gda_report(status, gda_all_gather_ring_block(team, data, share.offset, share.bytes, stride, signals, deadline_ns,
                                                 blockIdx.x));
}

GDA_KERNEL(gda_kernel_all_gather_direct)(gda_team team, gda_window data, uint64_t bytes, uint64_t stride,
                                         gda_window signals, uint64_t deadline_ns, gda_status* status) {
    gda::collective_share share = gda::share_of(bytes, blockIdx.x, gridDim.x);
    gda_report(status, gda_all_gather_direct_block(team, data, share.offset, share.bytes, stride, signals, deadline_ns,
                                                   blockIdx.x));
}
