# SPDX-License-Identifier: Apache-2.0
"""The proxy that posts kernels' requests by libibverbs (proxy/queue.h), for Python. Used by gda/nic/proxy.py.

A `Queue` is the half of a queue pair that kernels see, over a QP of gda._verbs; `serve` is the loop of the proxy's
thread, without the GIL. Document: docs/proxy.md.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t
from libcpp cimport bool as c_bool
from libcpp.vector cimport vector
from cpython.bytes cimport PyBytes_AS_STRING

from gda.errors import ArgumentError, ClosedError

cdef extern from "<infiniband/verbs.h>":
    struct ibv_qp:
        pass
    struct ibv_ah:
        pass

cdef extern from "proxy/request.h" namespace "proxy":
    const int c_MOST_INLINE_BYTES "proxy::MOST_INLINE_BYTES"
    const int c_MOST_PIECES "proxy::MOST_PIECES"
    cppclass AddressBytes:
        size_t size()

cdef extern from "proxy/refusal.h":
    const int c_TORN "proxy::REFUSAL_TORN"
    const int c_OPERATION "proxy::REFUSAL_OPERATION"
    const int c_SEGMENTS "proxy::REFUSAL_SEGMENTS"
    const int c_PIECES "proxy::REFUSAL_PIECES"
    const int c_ADDRESS "proxy::REFUSAL_ADDRESS"
    const int c_NOT_POSTED "proxy::REFUSAL_NOT_POSTED"
    const int c_LOST "proxy::REFUSAL_LOST"

cdef extern from "proxy/queue.h" namespace "proxy" nogil:
    struct c_Places "proxy::Places":
        uint64_t sq
        uint64_t cq
        uint64_t rq
        uint64_t receive_cq
        uint64_t word
        uint64_t send_record
        uint64_t receive_record
        uint64_t cq_record
    struct c_Facts "proxy::Facts":
        uint32_t depth
        uint32_t cq_entries
        uint32_t receive_depth
        c_bool collapsed
        uint32_t user_index
        uint32_t most_inline
        uint32_t most_pieces
        c_bool iwarp
    struct c_Patience "proxy::Patience":
        uint64_t busy_ns
        uint64_t longest_sleep_ns
        uint64_t open_sleep_ns
    cppclass c_Queue "proxy::Queue":
        c_Queue(const c_Places &, const c_Facts &, ibv_qp *) except +
        void start()
        void fail()
        void lose()
        c_bool in_error()
        void reset()
        void know(const uint8_t *, ibv_ah *) except +
    c_bool c_look "proxy::look"(c_Queue *const *, size_t) except +
    uint64_t c_serve "proxy::serve"(c_Queue *const *, size_t, const uint64_t *, const c_Patience &)

MOST_INLINE_BYTES = c_MOST_INLINE_BYTES
MOST_PIECES = c_MOST_PIECES

# What the proxy itself answers, as vendor's byte of an error completion.
REFUSAL_TORN = c_TORN
REFUSAL_OPERATION = c_OPERATION
REFUSAL_SEGMENTS = c_SEGMENTS
REFUSAL_PIECES = c_PIECES
REFUSAL_ADDRESS = c_ADDRESS
REFUSAL_NOT_POSTED = c_NOT_POSTED
REFUSAL_LOST = c_LOST

cdef size_t ADDRESS_BYTES = sizeof(AddressBytes)
cdef uint64_t SECOND_NS = 1000000000


cdef class Queue:
    """What kernels see of a queue pair. Places are addresses in memory of the host (0: there is none).

    `qp` is the QP of gda._verbs that carries out what kernels ask for, with completion queues of its own; it must stay
    open until close(). All methods are for times when no thread serves the queue.
    """

    cdef c_Queue *pointer
    cdef object qp
    cdef dict handles

    def __cinit__(self, qp not None, *, uint64_t sq, uint64_t cq, uint64_t word, uint64_t send_record,
                  uint32_t depth, uint32_t cq_entries, bint collapsed, uint64_t cq_record=0, uint64_t rq=0,
                  uint64_t receive_cq=0, uint64_t receive_record=0, uint32_t receive_depth=0, uint32_t user_index=0,
                  uint32_t most_inline=0, uint32_t most_pieces=1, bint iwarp=False):
        for name, size in (("depth", depth), ("cq_entries", cq_entries), ("receive_depth", receive_depth or 1)):
            if size == 0 or size & (size - 1):
                raise ArgumentError(f"{name}={size} is not a power of two")
        for name, place in (("sq", sq), ("cq", cq), ("word", word), ("send_record", send_record)):
            if place == 0 or place % 4:
                raise ArgumentError(f"{name} lies at 0x{place:x}, which is no place for it")
        if bool(receive_depth) != bool(rq and receive_cq and receive_record):
            raise ArgumentError("a receive queue needs its ring, its completion queue and its record")
        cdef c_Places places
        cdef c_Facts facts
        places.sq, places.cq, places.rq, places.receive_cq = sq, cq, rq, receive_cq
        places.word, places.send_record = word, send_record
        places.receive_record, places.cq_record = receive_record, cq_record
        facts.depth, facts.cq_entries, facts.receive_depth = depth, cq_entries, receive_depth
        facts.collapsed, facts.user_index = collapsed, user_index
        facts.most_inline, facts.most_pieces, facts.iwarp = most_inline, most_pieces, iwarp
        self.qp, self.handles = qp, {}
        cdef uintptr_t c_pointer = qp.c_pointer
        self.pointer = new c_Queue(places, facts, <ibv_qp *>c_pointer)

    def __dealloc__(self):
        del self.pointer

    cdef c_Queue *get(self) except NULL:
        if self.pointer == NULL:
            raise ClosedError("this queue of the proxy has been closed", "use it before close()")
        return self.pointer

    def close(self):
        """Forget it; again is no error."""
        del self.pointer
        self.pointer = NULL
        self.handles.clear()
        self.qp = None

    def start(self):
        """From now on what is rung is posted: the QP is connected."""
        self.get().start()

    def fail(self):
        """The QP was moved to the error state: what is still rung is flushed."""
        self.get().fail()

    def lose(self):
        """iWARP: its connection has ended, or was never made; what is not complete fails."""
        self.get().lose()

    @property
    def in_error(self):
        """Whether what is rung now is flushed."""
        return self.get().in_error()

    def reset(self):
        """As new; the QP is in reset. What its completion queues still hold is dropped."""
        self.get().reset()

    def know(self, bytes address not None, ah not None):
        """Datagrams with this address vector (48 bytes, as in a work request) are posted with `ah`, kept from now."""
        if <size_t>len(address) != ADDRESS_BYTES:
            raise ArgumentError(f"an address vector has {ADDRESS_BYTES} bytes, not {len(address)}")
        cdef uintptr_t c_pointer = ah.c_pointer
        self.get().know(<const uint8_t *>PyBytes_AS_STRING(address), <ibv_ah *>c_pointer)
        self.handles[address] = ah

    def look(self):
        """Serve it once, by hand; whether anything was done."""
        cdef c_Queue *pointer = self.get()
        return c_look(&pointer, 1)


def serve(queues, uintptr_t stop, uint64_t busy_ns, uint64_t longest_sleep_ns, uint64_t open_sleep_ns):
    """Serve these queues until the 8 bytes at `stop` are not zero; how many looks found something to do.

    After `busy_ns` without anything it sleeps between two looks, ever longer: up to `open_sleep_ns` while completions
    are to come, else up to `longest_sleep_ns` (both below a second). Gives up the GIL.
    """
    if stop == 0 or stop % 8 or longest_sleep_ns >= SECOND_NS or open_sleep_ns >= SECOND_NS:
        raise ArgumentError(f"serve: stop at 0x{stop:x}, sleeps of {longest_sleep_ns} and {open_sleep_ns} ns")
    cdef list held = list(queues)
    cdef vector[c_Queue *] pointers
    cdef Queue queue
    cdef c_Patience patience
    cdef uint64_t found
    for queue in held:
        pointers.push_back(queue.get())
    patience.busy_ns, patience.longest_sleep_ns, patience.open_sleep_ns = busy_ns, longest_sleep_ns, open_sleep_ns
    with nogil:
        found = c_serve(pointers.data(), pointers.size(), <const uint64_t *>stop, patience)
    return found
