// SPDX-License-Identifier: Apache-2.0
// The device library as functions with C names, compiled once and linked into kernels that other compilers make. Called
// by kernels of Numba; declared for them, from the same parameters, in gda/numba/device.py. What each function does:
// put.h, atomic.h, signal.h, wait.h, collective.h. Document: docs/python_kernels.md.
//
// Convention (Numba-CUDA documentation, "Calling foreign functions from Python kernels"): the first parameter is where
// the result goes, and the function itself answers 0, which says that no Python exception happened. A region is four
// words: the 32 bytes of a gda_mr.
#pragma once

#include <gda/gda.h>

namespace gda {

GDA_DEVICE gda_mr region_of(uint64_t addr, uint64_t bytes, uint64_t keys, uint64_t flags) {
    gda_mr m;
    m.addr = addr;
    m.bytes = bytes;
    m.lkey_be = static_cast<uint32_t>(keys);
    m.rkey_be = static_cast<uint32_t>(keys >> 32);
    m.flags = static_cast<uint32_t>(flags);
    m.reserved = 0;
    return m;
}

GDA_DEVICE gda_qp* queue_at(uint64_t address) { return reinterpret_cast<gda_qp*>(address); }

GDA_DEVICE const uint64_t* word_at(uint64_t address, uint64_t offset) {
    return reinterpret_cast<const uint64_t*>(address + offset);
}

}  // namespace gda

#define GDA_REGION_WORDS(name) uint64_t name##_addr, uint64_t name##_bytes, uint64_t name##_keys, uint64_t name##_flags
#define GDA_REGION(name) gda::region_of(name##_addr, name##_bytes, name##_keys, name##_flags)

GDA_LINKABLE(gda_numba_put)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(dst), uint64_t dst_offset,
                            GDA_REGION_WORDS(src), uint64_t src_offset, uint64_t bytes, uint32_t flags) {
    *result = gda_put(gda::queue_at(qp), GDA_REGION(dst), dst_offset, GDA_REGION(src), src_offset, bytes, flags);
    return 0;
}

GDA_LINKABLE(gda_numba_put_imm)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(dst), uint64_t dst_offset,
                                GDA_REGION_WORDS(src), uint64_t src_offset, uint64_t bytes, uint32_t immediate,
                                uint32_t flags) {
    *result = gda_put_imm(gda::queue_at(qp), GDA_REGION(dst), dst_offset, GDA_REGION(src), src_offset, bytes, immediate,
                          flags);
    return 0;
}

GDA_LINKABLE(gda_numba_get)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(dst), uint64_t dst_offset,
                            GDA_REGION_WORDS(src), uint64_t src_offset, uint64_t bytes, uint32_t flags) {
    *result = gda_get(gda::queue_at(qp), GDA_REGION(dst), dst_offset, GDA_REGION(src), src_offset, bytes, flags);
    return 0;
}

// One function for each way in which a number is passed; signed and unsigned ones have the same bytes.
#define GDA_NUMBA_PUT_VALUE(suffix, type)                                                                  \
    GDA_LINKABLE(gda_numba_put_value_##suffix)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(dst),       \
                                               uint64_t dst_offset, type value, uint32_t flags) {          \
        *result = gda_put_value(gda::queue_at(qp), GDA_REGION(dst), dst_offset, value, flags);             \
        return 0;                                                                                          \
    }                                                                                                      \
    GDA_LINKABLE(gda_numba_put_value_warp_##suffix)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(dst),  \
                                                    uint64_t dst_offset, type value, uint32_t flags) {     \
        *result = gda_put_value_warp(gda::queue_at(qp), GDA_REGION(dst), dst_offset, value, flags);        \
        return 0;                                                                                          \
    }                                                                                                      \
    GDA_LINKABLE(gda_numba_put_value_block_##suffix)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(dst), \
                                                     uint64_t dst_offset, type value, uint32_t flags) {    \
        *result = gda_put_value_block(gda::queue_at(qp), GDA_REGION(dst), dst_offset, value, flags);       \
        return 0;                                                                                          \
    }
GDA_NUMBA_PUT_VALUE(uint8, uint8_t)
GDA_NUMBA_PUT_VALUE(uint16, uint16_t)
GDA_NUMBA_PUT_VALUE(uint32, uint32_t)
GDA_NUMBA_PUT_VALUE(uint64, uint64_t)
GDA_NUMBA_PUT_VALUE(float32, float)
GDA_NUMBA_PUT_VALUE(float64, double)

GDA_LINKABLE(gda_numba_fetch_add)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(old), uint64_t old_offset,
                                  GDA_REGION_WORDS(remote), uint64_t remote_offset, uint64_t add, uint32_t flags) {
    *result =
        gda_fetch_add(gda::queue_at(qp), GDA_REGION(old), old_offset, GDA_REGION(remote), remote_offset, add, flags);
    return 0;
}

GDA_LINKABLE(gda_numba_compare_swap)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(old), uint64_t old_offset,
                                     GDA_REGION_WORDS(remote), uint64_t remote_offset, uint64_t compare, uint64_t swap,
                                     uint32_t flags) {
    *result = gda_compare_swap(gda::queue_at(qp), GDA_REGION(old), old_offset, GDA_REGION(remote), remote_offset,
                               compare, swap, flags);
    return 0;
}

// What an atomic left at old + old_offset, once its ticket is complete.
GDA_LINKABLE(gda_numba_old_value)(uint64_t* result, GDA_REGION_WORDS(old), uint64_t old_offset) {
    *result = 0;
    if (gda::within(GDA_REGION(old), old_offset, sizeof(*result)))
        *result = gda_old_value(gda::word_at(old_addr, old_offset));
    return 0;
}

GDA_LINKABLE(gda_numba_signal)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(remote), uint64_t offset, uint64_t value,
                               uint32_t operation, uint32_t flags) {
    *result = gda_signal(gda::queue_at(qp), GDA_REGION(remote), offset, value,
                         static_cast<gda_signal_operation>(operation), flags);
    return 0;
}

GDA_LINKABLE(gda_numba_put_signal)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(dst), uint64_t dst_offset,
                                   GDA_REGION_WORDS(src), uint64_t src_offset, uint64_t bytes,
                                   GDA_REGION_WORDS(signals), uint64_t signal_offset, uint64_t value,
                                   uint32_t operation, uint32_t flags) {
    *result =
        gda_put_signal(gda::queue_at(qp), GDA_REGION(dst), dst_offset, GDA_REGION(src), src_offset, bytes,
                       GDA_REGION(signals), signal_offset, value, static_cast<gda_signal_operation>(operation), flags);
    return 0;
}

GDA_LINKABLE(gda_numba_test_signal)(uint64_t* result, GDA_REGION_WORDS(signals), uint64_t offset, uint32_t comparison,
                                    uint64_t value) {
    *result = GDA_OUT_OF_BOUNDS;
    if (!gda::within(GDA_REGION(signals), offset, sizeof(value))) return 0;
    *result = gda_test_signal(gda::word_at(signals_addr, offset), static_cast<gda_comparison>(comparison), value);
    return 0;
}

GDA_LINKABLE(gda_numba_wait_signal)(uint64_t* result, GDA_REGION_WORDS(signals), uint64_t offset, uint32_t comparison,
                                    uint64_t value, uint64_t deadline_ns) {
    *result = GDA_OUT_OF_BOUNDS;
    if (!gda::within(GDA_REGION(signals), offset, sizeof(value))) return 0;
    *result = gda_wait_signal(gda::word_at(signals_addr, offset), static_cast<gda_comparison>(comparison), value,
                              deadline_ns);
    return 0;
}

GDA_LINKABLE(gda_numba_nop)(uint64_t* result, uint64_t qp, uint32_t flags) {
    *result = gda_nop(gda::queue_at(qp), flags);
    return 0;
}

GDA_LINKABLE(gda_numba_test)(uint64_t* result, uint64_t qp, uint64_t ticket) {
    *result = gda_test(gda::queue_at(qp), ticket);
    return 0;
}

GDA_LINKABLE(gda_numba_wait)(uint64_t* result, uint64_t qp, uint64_t ticket, uint64_t deadline_ns) {
    *result = gda_wait(gda::queue_at(qp), ticket, deadline_ns);
    return 0;
}

GDA_LINKABLE(gda_numba_flush)(uint64_t* result, uint64_t qp, uint64_t deadline_ns) {
    *result = gda_flush(gda::queue_at(qp), deadline_ns);
    return 0;
}

// The forms of a warp and of a block: all its threads call with equal arguments, and all get the answer. See
// collective.h.
GDA_LINKABLE(gda_numba_put_warp)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(dst), uint64_t dst_offset,
                                 GDA_REGION_WORDS(src), uint64_t src_offset, uint64_t bytes, uint32_t flags) {
    *result = gda_put_warp(gda::queue_at(qp), GDA_REGION(dst), dst_offset, GDA_REGION(src), src_offset, bytes, flags);
    return 0;
}

GDA_LINKABLE(gda_numba_signal_warp)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(remote), uint64_t offset,
                                    uint64_t value, uint32_t operation, uint32_t flags) {
    *result = gda_signal_warp(gda::queue_at(qp), GDA_REGION(remote), offset, value,
                              static_cast<gda_signal_operation>(operation), flags);
    return 0;
}

GDA_LINKABLE(gda_numba_wait_warp)(uint64_t* result, uint64_t qp, uint64_t ticket, uint64_t deadline_ns) {
    *result = gda_wait_warp(gda::queue_at(qp), ticket, deadline_ns);
    return 0;
}

GDA_LINKABLE(gda_numba_flush_warp)(uint64_t* result, uint64_t qp, uint64_t deadline_ns) {
    *result = gda_flush_warp(gda::queue_at(qp), deadline_ns);
    return 0;
}

GDA_LINKABLE(gda_numba_put_block)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(dst), uint64_t dst_offset,
                                  GDA_REGION_WORDS(src), uint64_t src_offset, uint64_t bytes, uint32_t flags) {
    *result = gda_put_block(gda::queue_at(qp), GDA_REGION(dst), dst_offset, GDA_REGION(src), src_offset, bytes, flags);
    return 0;
}

GDA_LINKABLE(gda_numba_signal_block)(uint64_t* result, uint64_t qp, GDA_REGION_WORDS(remote), uint64_t offset,
                                     uint64_t value, uint32_t operation, uint32_t flags) {
    *result = gda_signal_block(gda::queue_at(qp), GDA_REGION(remote), offset, value,
                               static_cast<gda_signal_operation>(operation), flags);
    return 0;
}

GDA_LINKABLE(gda_numba_wait_block)(uint64_t* result, uint64_t qp, uint64_t ticket, uint64_t deadline_ns) {
    *result = gda_wait_block(gda::queue_at(qp), ticket, deadline_ns);
    return 0;
}

GDA_LINKABLE(gda_numba_flush_block)(uint64_t* result, uint64_t qp, uint64_t deadline_ns) {
    *result = gda_flush_block(gda::queue_at(qp), deadline_ns);
    return 0;
}

// The status word lies at `where`; zero is nowhere. The result is the status itself.
GDA_LINKABLE(gda_numba_report)(uint64_t* result, uint64_t where, uint64_t status) {
    gda_report(reinterpret_cast<gda_status*>(where), status);
    *result = status;
    return 0;
}

GDA_LINKABLE(gda_numba_failed)(uint64_t* result, uint64_t ticket) {
    *result = gda_failed(ticket);
    return 0;
}

GDA_LINKABLE(gda_numba_now_ns)(uint64_t* result) {
    *result = gda_now_ns();
    return 0;
}
