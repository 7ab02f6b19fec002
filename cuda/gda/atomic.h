// SPDX-License-Identifier: Apache-2.0
// Atomics on eight or four bytes of the other side's memory. Called by kernels. Refusals and tickets: put.h; format:
// ConnectX Programmer's Reference Manual, "Atomic Segment".
//
// The other side's address must be a multiple of the size. The old value lands at result + result_offset (a region with
// local write), and is there when the ticket is complete: of eight bytes in the processor's byte order, of four
// big-endian, as cards write it (gda_old_value turns it round). They are atomic among each other through one NIC;
// whether also with the other side's processor, the NIC's capabilities say.
#pragma once

#include <gda/put.h>

namespace gda {

// Any of them: `r` lacks only the places.
template <class Poster, class Request>
GDA_DEVICE gda_ticket atomic(Poster& p, uint64_t bytes, const gda_mr& result, uint64_t result_offset,
                             const gda_mr& remote, uint64_t remote_offset, Request r, uint32_t flags) {
    if (p.status != 0) return GDA_TICKET_FAILED | p.status;
    bool fits = within(remote, remote_offset, bytes) && within(result, result_offset, bytes);
    r.raddr = remote.addr + remote_offset;
    r.addr = result.addr + result_offset;
    r.rkey_be = remote.rkey_be;
    r.lkey_be = result.lkey_be;
    return p.submit(r, manner_of(flags, true), fits ? 0 : out_of_bounds(p.q));
}

GDA_DEVICE atomic_request fetch_add_of(uint64_t add) {
    atomic_request r = {};
    r.opcode = prm::MLX5_OPCODE_ATOMIC_FA;
    r.swap_add = add;
    return r;
}

template <class Poster>
GDA_DEVICE gda_ticket fetch_add(Poster& p, const gda_mr& result, uint64_t result_offset, const gda_mr& remote,
                                uint64_t remote_offset, uint64_t add, uint32_t flags = 0) {
    return atomic(p, sizeof(add), result, result_offset, remote, remote_offset, fetch_add_of(add), flags);
}

template <class Poster>
GDA_DEVICE gda_ticket compare_swap(Poster& p, const gda_mr& result, uint64_t result_offset, const gda_mr& remote,
                                   uint64_t remote_offset, uint64_t compare, uint64_t swap, uint32_t flags = 0) {
    atomic_request r = {};
    r.opcode = prm::MLX5_OPCODE_ATOMIC_CS;
    r.swap_add = swap;
    r.compare = compare;
    return atomic(p, sizeof(swap), result, result_offset, remote, remote_offset, r, flags);
}

template <class Poster, class T>
GDA_DEVICE gda_ticket masked_fetch_add(Poster& p, const gda_mr& result, uint64_t result_offset, const gda_mr& remote,
                                       uint64_t remote_offset, T add, T boundary, uint32_t flags = 0) {
    static_assert(sizeof(T) == sizeof(uint32_t) || sizeof(T) == sizeof(uint64_t), "masked atomics have 4 or 8 bytes");
    masked_add_request r = {};
    r.bytes = sizeof(T);
    r.add = add;
    r.boundary = boundary;
    return atomic(p, sizeof(T), result, result_offset, remote, remote_offset, r, flags);
}

template <class Poster, class T>
GDA_DEVICE gda_ticket masked_compare_swap(Poster& p, const gda_mr& result, uint64_t result_offset, const gda_mr& remote,
                                          uint64_t remote_offset, T compare, T compare_mask, T swap, T swap_mask,
                                          uint32_t flags = 0) {
    static_assert(sizeof(T) == sizeof(uint32_t) || sizeof(T) == sizeof(uint64_t), "masked atomics have 4 or 8 bytes");
    masked_swap_request<T> r = {};
    r.swap = swap;
    r.swap_mask = swap_mask;
    r.compare = compare;
    r.compare_mask = compare_mask;
    return atomic(p, sizeof(T), result, result_offset, remote, remote_offset, r, flags);
}

}  // namespace gda

// Adds to the eight remote bytes, modulo 2^64.
GDA_API gda_ticket gda_fetch_add(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                 uint64_t remote_offset, uint64_t add, uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::fetch_add(p, result, result_offset, remote, remote_offset, add, flags);
}

// Stores `swap` in the eight remote bytes if they hold `compare`: it did when the old value equals `compare`.
GDA_API gda_ticket gda_compare_swap(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                    uint64_t remote_offset, uint64_t compare, uint64_t swap, uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::compare_swap(p, result, result_offset, remote, remote_offset, compare, swap, flags);
}

// Adds to four or eight remote bytes (T is uint32_t or uint64_t) as to several numbers side by side: each bit that is
// set in `boundary` is the highest of a number, and no carry leaves it. gda_masked_fetch_add<uint32_t>(...).
template <class T>
GDA_API gda_ticket gda_masked_fetch_add(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                        uint64_t remote_offset, T add, T boundary, uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::masked_fetch_add(p, result, result_offset, remote, remote_offset, add, boundary, flags);
}

// Replaces the bits of `swap_mask` by those of `swap` if the bits of `compare_mask` equal those of `compare`. With
// eight bytes it takes two basic blocks, and a ring of at least four.
template <class T>
GDA_API gda_ticket gda_masked_compare_swap(gda_qp* qp, gda_mr result, uint64_t result_offset, gda_mr remote,
                                           uint64_t remote_offset, T compare, T compare_mask, T swap, T swap_mask,
                                           uint32_t flags = 0) {
    gda::by_thread p(qp);
    return gda::masked_compare_swap(p, result, result_offset, remote, remote_offset, compare, compare_mask, swap,
                                    swap_mask, flags);
}

// The old value that an atomic has left at `at`, in the processor's byte order.
GDA_API uint64_t gda_old_value(const uint64_t* at) { return gda::target::load_signal(at); }
GDA_API uint32_t gda_old_value(const uint32_t* at) {
    return gda::be32(gda::target::load_completion(at, gda::target::scope_system));
}
