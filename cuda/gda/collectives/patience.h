// SPDX-License-Identifier: Apache-2.0
// How a collective waits for a signal: until its deadline, or until the host says that it is in vain. Used by
// barrier.h, call.h, link.h and protocol.h.
//
// A kernel cannot see that the process of a rank has ended; Python, which waits for the kernel, does, and then sets a
// word of the collective's own signals, `stop` (finish() in gda/comm/collectives/collective.py). So ranks of one host
// hear of a lost one long before the deadline. The word is looked at now and then: it may be far away, and a wait
// should see its signal at once.
#pragma once

#include <gda/signal.h>

namespace gda {

static constexpr uint64_t STOP_LOOK_NS = GDA_MS(100);
static constexpr uint32_t STOP_LOOK_TURNS = 1024;  // of a thread's own loop

GDA_DEVICE uint64_t nanoseconds_until(uint64_t end_ns) {
    uint64_t now = target::clock_ns();
    return now < end_ns ? end_ns - now : 0;
}

// Until the signal has reached `value`, at most until `end_ns` by the target's clock: GDA_OK or GDA_SIGNAL_TIMEOUT.
GDA_COLD gda_status await_unless_stopped(const uint64_t* signal, uint64_t value, uint64_t end_ns,
                                         const uint64_t* stop) {
    if (gda_test_signal(signal, GDA_REACHED, value) == GDA_OK) return GDA_OK;
    for (;;) {
        uint64_t left = nanoseconds_until(end_ns);
        bool last = left <= STOP_LOOK_NS;
        gda_status status = gda_wait_signal(signal, GDA_REACHED, value, last ? left : STOP_LOOK_NS);
        if (status == GDA_OK || last || target::load_signal(stop) != 0) return status;
    }
}

}  // namespace gda
