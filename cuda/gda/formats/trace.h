// SPDX-License-Identifier: Apache-2.0
// What kernels, the software NIC and Python note of a put on its way: the values in the events of
// cuda/gda/trace_ring.h. Ours, not the NIC's, and never on a wire. Document: docs/trace.md.
#pragma once

#include <gda/formats/bits.h>

namespace gda {
namespace prm {

enum trace_kind {
    // A kernel's thread: `index` is that of the WQE, 32 bits of it; `lane` the thread's number in the grid.
    TRACE_RESERVE = 1,  // took slots: `index` the first, `aux` how many
    TRACE_WRITE = 2,    // wrote the request into its slot
    TRACE_RING = 3,     // begins to tell the NIC, by record and doorbell, of all up to `index`
    TRACE_POLL = 4,     // found in the completion queue that all up to `index` are complete
    TRACE_DONE = 5,     // its wait ended: `index` is that of the ticket, `aux` the status code
    // Two at once, where one reading of the clock does for both: a trace has each of them.
    TRACE_POSTED = 6,  // RESERVE of `aux` slots, and WRITE into the first
    TRACE_FOUND = 7,   // POLL up to `bytes`, and DONE
    // The NIC: `index` has 16 bits. Of the requester `qpn` is its own and `lane` its peer's; the responder names the
    // requester's as `qpn`, its own as `lane`, and in `aux` the PSN, which leads to the index.
    TRACE_SEEN = 16,      // has learned of all up to `index`, `aux` blocks of them new
    TRACE_FETCH = 17,     // read the request: `bytes` of payload, `aux` its blocks
    TRACE_SEND = 18,      // a packet, or a run of packets, left: `aux` the first PSN, `opcode` as in BTH
    TRACE_ARRIVE = 19,    // was carried out at the peer: `aux` the first PSN
    TRACE_REFUSE = 20,    // was refused there: `opcode` the AETH syndrome
    TRACE_ACK = 21,       // an answer came back: `aux` the PSN, `opcode` the AETH syndrome
    TRACE_RESPONSE = 22,  // fetched data came back: `aux` its first PSN
    TRACE_CQE = 23,       // a completion was written: `opcode` as in the CQE, `aux` the syndrome of an error
    TRACE_TIMEOUT = 24,   // no answer came in time: sent again from `index` on
    // Python: `aux` names the text that belongs to it, `lane` the thread.
    TRACE_LAUNCH = 32,    // a kernel begins: `index` numbers the launches of the process
    TRACE_ENDED = 33,     // it has ended, as seen by who waits for it
    TRACE_REGISTER = 34,  // memory: `index` is its rkey
    TRACE_CONNECT = 35,   // a queue pair, `index` its peer's number
    TRACE_WAIT = 36,      // Python begins to wait for the launch `index`
};

enum trace_flags {
    TRACE_AGAIN = 1,    // sent before
    TRACE_VIRTUAL = 2,  // `time` is nanoseconds of virtual time
};

// Of what the ring's times are.
enum trace_clock {
    TRACE_CLOCK_NS = 0,     // nanoseconds of the monotonic clock (Python)
    TRACE_CLOCK_TICKS = 1,  // the processor's time stamp counter: see the two moments
    TRACE_CLOCK_GPU = 2,    // a GPU's globaltimer
};

enum trace_limits {
    TRACE_MAGIC = 0x3165636172746467,
    TRACE_EVENT_BYTES = 32,
    TRACE_RING_BYTES = 128,
    TRACE_GROUP = 8,              // of a ring that kernels on the CPU write
    TRACE_NO_INDEX = 0xffffffff,  // who noted it does not know the WQE: the PSN leads to it
};

}  // namespace prm
}  // namespace gda
