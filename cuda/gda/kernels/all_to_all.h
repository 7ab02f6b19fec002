// SPDX-License-Identifier: Apache-2.0
// All-to-all as a kernel: each block is a channel, which carries its share of every piece. Launched by
// gda/comm/collectives/all_to_all.py.
#pragma once

#include <gda/collectives/all_to_all.h>

GDA_KERNEL(gda_kernel_all_to_all)(gda_team team, gda_window target, gda_mr source, uint64_t bytes, uint64_t stride,
                                  gda_window signals, uint64_t deadline_ns, gda_status* status) {
    gda::collective_share share = gda::share_of(bytes, blockIdx.x, gridDim.x);
    gda_report(status, gda_all_to_all_block(team, target, share.offset, source, share.offset, share.bytes, stride,
                                            signals, deadline_ns, blockIdx.x));
}
