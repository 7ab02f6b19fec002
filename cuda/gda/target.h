// SPDX-License-Identifier: Apache-2.0
// What a target must provide. Everything above this line of the house is written once, for a GPU (target/cuda.h: PTX)
// and for a CPU (target/host.h: compiler atomics and, for a real card, the processor's I/O barriers). Called by tell.h,
// ring.h, token.h, post.h, poll.h and message.h. Facts: PTX ISA, "Memory Consistency Model"; PCI Express Base
// Specification, "Transaction Ordering".
//
// Words. GDA_DEVICE qualifies a device function, GDA_MEMBER one of a class, GDA_API one that kernels call,
// GDA_COLD one that is rarely run, or long and used at many places: it stands once, and
// GDA_KERNEL(name)(parameters) declares a kernel that Python can launch. CHECKED is false when the code is compiled
// with GDA_UNCHECKED: posting then checks nothing, to measure what its checks cost (python -m gda bench post
// --unchecked).
// GDA_LINKABLE(name)(parameters) declares a device function that stays in the compiled code under its C name, for
// kernels that are compiled elsewhere and linked with it: numba.h.
//
// Observers. A queue is seen by threads of its own processor and by one outsider, the NIC. `scope` says how far an
// order must hold: scope_gpu when rings, record and payload all lie in GPU memory (the practice of every GPU stack;
// PTX itself promises a PCIe device nothing at gpu scope), scope_system otherwise. The CPU has one scope.
//
// Shared words (64 bits, in gda_qp; several threads, never the NIC)
//   load_shared(p)                  a read that no compiler and no cache may skip; orders nothing on a GPU by itself
//   load_shared_acquire(p)          ... and what the writer of that value did before is seen afterwards
//   load_done(p, scope)             the same for the reuse of slots: stores that depend on it come after it. At gpu
//                                   scope a GPU leaves that to the dependence (no store is made before it is known
//                                   to be wanted: practice, not PTX's promise); at system scope it acquires.
//   store_shared(p, v)              a write all threads see; on a GPU it orders nothing: a named barrier stands before
//   store_shared_release(p, v)      ... after everything this thread did or saw before
//   compare_swap(p, expected, v)    true when p held `expected` and now holds v; acquire and release
//   add(p, n), set_bits(p, v)       p += n, p |= v; what was there before
//   exchange_if(p, expected, v)     p = v where it holds `expected`; what was there before
//   raise(p, v)                     p = max(p, v); nobody waits for it
//   raise_release(p, v)             ... after everything this thread did or saw before
//   These four but the last order nothing on a GPU (compare_swap_relaxed is the fifth): the named barriers do.
// Owned words (the same words, one thread): load_owned(p), store_owned(p, v)
//
// Memory that the NIC reads or writes
//   store_segment(p, low, high)     16 bytes of a WQE in one store; plain, a barrier follows
//   store_record(p, v)              one dword of a doorbell record; single and whole
//   store_doorbell(p, v)            8 bytes to a UAR page: exactly one write on the bus, not merged, not repeated
//   store_request_to_ring(p, v)     8 bytes to a word in host memory, for the host thread that rings for kernels
//   store_blueflame(p, slot)        the 64 bytes of a slot to a half of a BlueFlame register, the first 8 (a doorbell)
//                                   last. A card takes them as one work request only when they reach it together
//   load_completion(p, scope)       one dword of a CQE, with the barrier `cqe_read` in it, see below
//   load_signal(p)                  eight bytes that a peer's NIC writes, with the barrier `signal_read` in it
//   load_flagged(p)                 the same in one piece, but it orders nothing else: for words that carry their flag
//
// Barriers, each named by its use, with its two observers
//   wqe_before_doorbell_record(scope)     this thread (and what it has seen of others) -> NIC. The WQEs, and every WQE
//                                         of earlier slots that this thread learned of through `ready`, are visible
//                                         before the record says that they are there.
//   own_wqe_before_doorbell_record(scope)  this thread -> NIC. The same for who owns the queue, alone or as the first
//                                         lane of a warp behind sync(g): there is nothing to learn of others, so it
//                                         releases and acquires nothing.
//   wqe_before_doorbell(scope)            this thread -> NIC. In addition, where there is no record: the doorbell
//                                         itself makes the NIC read the WQE.
//   doorbell_record_before_doorbell(scope)  this thread -> NIC. The NIC reads the record because of the doorbell, so
//                                         the record must be there first. On the CPU it also flushes write combining.
//                                         And thread -> next holder: the record comes before the token is parked.
//   earlier_slots_before_mine(scope)      thread -> thread -> NIC. After notes of written slots, or the token, were
//                                         found in the window: their writers come before the record or doorbell that
//                                         this thread writes.
//   doorbell_before_ready(scope)          this thread -> next holder of the token -> NIC. Only where the register (or
//                                         the word in its place) says more than that something is there: without a
//                                         record, for BlueFlame, for a host thread. Two must not overtake.
//   cqe_read (in load_completion)         NIC -> thread, acquire. What the NIC wrote before the completion's last
//                                         dword, and the state of slots it has released, is seen after the load.
//   signal_read (in load_signal)          peer's NIC -> thread, acquire. What that NIC wrote before the signal is seen
//                                         after the load. At system scope whatever the queue's: the writer is outside.
//
// Threads
//   group g = converged_group(key)  lanes of this warp that are here now with the same key; they submit as one. A GPU
//                                   finds all threads of the warp or none but the own (target/cuda.h says why). Fields
//                                   mask, leader (a lane), rank (0 is the leader's), size. The CPU target may answer
//                                   all, one or random of them (gda.run: converged=), so that tests can count.
//   broadcast(g, v), sync(g)        the leader's value; all lanes arrive, memory ordered among them
//   warp(), subset(g, mine)         all threads of this warp; those of a group where `mine` holds (all lanes of g call)
//   in_first_warp()                 this thread is one of the first 32 of its block
//   threads_of_block()              how many there are
//   sync_block(), broadcast_block(v)  all threads of the block arrive, memory ordered; the first thread's value
//   sync_block_any(v)               all threads of the block arrive, memory ordered; whether any brought true
//   clock_ns()                      one clock for all threads of the target, nanoseconds
//   not_before(v)                   v, the answer of an earlier read-modify-write: what is computed of it is computed
//                                   here, for whoever computes with it waits for it
//   count_ones(v)                   bits of a word that are set in one piece from bit 0 on
//   idle()                          called once per turn of every wait: a CPU lets other threads and the NIC run
//
// meter(what, n) counts a step when the code is compiled with GDA_METER, see target/meter.h.
#pragma once

#include <gda/target/select.h>
