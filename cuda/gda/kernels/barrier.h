// SPDX-License-Identifier: Apache-2.0
// A barrier as a kernel of one thread. Launched by gda/comm/collectives/barrier.py.
#pragma once

#include <gda/collectives/barrier.h>

GDA_KERNEL(gda_kernel_barrier)(gda_team team, gda_window barrier, uint64_t deadline_ns, gda_status* status) {
    gda_report(status, gda_barrier(team, barrier, deadline_ns));
}
