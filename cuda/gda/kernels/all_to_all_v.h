// SPDX-License-Identifier: Apache-2.0
// All-to-all of rows as kernels: each block is a channel, which carries its share of the bytes. `asked` holds the
// counts and, behind them, the starts. Launched by gda/comm/collectives/all_to_all_v.py.
#pragma once

#include <gda/collectives/all_to_all_v.h>

GDA_KERNEL(gda_kernel_all_to_all_v)(gda_team team, gda_window target, gda_mr source, gda_mr asked, uint64_t row_bytes,
                                    gda_window signals, uint64_t deadline_ns, gda_status* status) {
    const uint64_t* counts = reinterpret_cast<const uint64_t*>(asked.addr);
    gda_report(status, gda_all_to_all_v_block(team, target, source, counts, counts + team.size, row_bytes, signals,
                                              deadline_ns, blockIdx.x, gridDim.x));
}

GDA_KERNEL(gda_kernel_all_to_all_v_back)(gda_team team, gda_window back, gda_mr source, uint64_t row_bytes,
                                         gda_window signals, uint64_t deadline_ns, gda_status* status) {
    gda_report(status,
               gda_all_to_all_v_back_block(team, back, source, row_bytes, signals, deadline_ns, blockIdx.x, gridDim.x));
}
