// SPDX-License-Identifier: Apache-2.0
// Teams and windows in kernels: the five verbs (put, get, signal, wait, flush) by rank instead of by queue and key.
// Called by kernels that take a gda_team and gda_window (gda/comm); document: docs/programs.md.
//
//   gda_ticket t = gda_put_to(team, peer, window, 0, window.mine, 0, bytes);
//   gda_status s = gda_wait_for(team, peer, t, GDA_MS(100));
//
// Each is one line over put.h, strided.h and signal.h: gda_queue_of and gda_memory_of give what those take. A rank that
// is not of the team has no queue and no memory, and what is posted to it is refused as for a null handle. `which`
// chooses among a peer's queues, and goes round: a block or warp may pass its own number. Requests of two queues have
// no order.
#pragma once

#include <gda/collective.h>
#include <gda/put.h>
#include <gda/signal.h>
#include <gda/strided.h>

// The queue pair that leads to `peer`: for every function of the device library. Null for a rank that there is not, or
// that is not connected.
GDA_API gda_qp* gda_queue_of(const gda_team& team, uint32_t peer, uint32_t which = 0) {
    if (team.version != GDA_HANDLE_VERSION || peer >= team.size) return nullptr;
    const uint64_t* table = reinterpret_cast<const uint64_t*>(team.queues);
    return reinterpret_cast<gda_qp*>(table[peer * team.queues_per_peer + which % team.queues_per_peer]);
}

// Which of a peer's queues the calling thread uses by the team's policy: the last argument of the functions here. The
// threads of a warp have the same one. Whoever wants to share in another way passes a number of their own.
GDA_API uint32_t gda_which(const gda_team& team) {
    if (team.policy == GDA_BY_PEER || team.queues_per_peer == 0) return 0;
    uint32_t number = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    if (team.policy == GDA_BY_WARP) {
        uint32_t warps = (blockDim.x * blockDim.y * blockDim.z + 31) / 32;
        number = number * warps + gda::target::thread_of_block() / 32;
    }
    return number % team.queues_per_peer;
}

// The window's memory at `peer`. Of a rank that there is not: no memory.
GDA_API gda_mr gda_memory_of(const gda_window& window, uint32_t peer) {
    if (peer >= window.size) return gda_mr{};
    return reinterpret_cast<const gda_mr*>(window.peers)[peer];
}

// Where a signal of this rank lies, for gda_wait_signal; null behind the window's end.
GDA_API const uint64_t* gda_signal_of(const gda_window& window, uint64_t index) {
    if (index >= window.mine.bytes / sizeof(uint64_t)) return nullptr;
    return reinterpret_cast<const uint64_t*>(window.mine.addr) + index;
}

namespace gda {

// Bytes from the first signal to signal `index`; where they would go round, more than any memory has.
GDA_API uint64_t offset_of_signal(uint64_t index) {
    uint64_t none = ~static_cast<uint64_t>(0);
    return index < none / sizeof(uint64_t) ? index * sizeof(uint64_t) : none;
}

}  // namespace gda

// Writes bytes of this rank's memory to the peer's window.
GDA_API gda_ticket gda_put_to(const gda_team& team, uint32_t peer, const gda_window& window, uint64_t offset,
                              const gda_mr& src, uint64_t src_offset, uint64_t bytes, uint32_t which = 0) {
    return gda_put(gda_queue_of(team, peer, which), gda_memory_of(window, peer), offset, src, src_offset, bytes);
}

// Reads bytes of the peer's window to this rank's memory.
GDA_API gda_ticket gda_get_from(const gda_team& team, uint32_t peer, const gda_mr& dst, uint64_t dst_offset,
                                const gda_window& window, uint64_t offset, uint64_t bytes, uint32_t which = 0) {
    return gda_get(gda_queue_of(team, peer, which), dst, dst_offset, gda_memory_of(window, peer), offset, bytes);
}

// Writes `count` pieces of `bytes` bytes each, piece i to offset + i * stride of the peer's window: one ticket.
GDA_API gda_ticket gda_put_strided_to(const gda_team& team, uint32_t peer, const gda_window& window, uint64_t offset,
                                      uint64_t stride, const gda_mr& src, uint64_t src_offset, uint64_t src_stride,
                                      uint64_t count, uint64_t bytes, uint32_t which = 0) {
    return gda_put_strided(gda_queue_of(team, peer, which), gda_memory_of(window, peer), offset, stride, src,
                           src_offset, src_stride, count, bytes);
}

// Reads them from the peer's window in the same way.
GDA_API gda_ticket gda_get_strided_from(const gda_team& team, uint32_t peer, const gda_mr& dst, uint64_t dst_offset,
                                        uint64_t dst_stride, const gda_window& window, uint64_t offset, uint64_t stride,
                                        uint64_t count, uint64_t bytes, uint32_t which = 0) {
    return gda_get_strided(gda_queue_of(team, peer, which), dst, dst_offset, dst_stride, gda_memory_of(window, peer),
                           offset, stride, count, bytes);
}

// Adds `value` to signal `index` of the peer, or sets it, behind all that was posted to the same queue.
GDA_API gda_ticket gda_signal_to(const gda_team& team, uint32_t peer, const gda_window& signals, uint64_t index,
                                 uint64_t value, gda_signal_operation operation, uint32_t which = 0) {
    return gda_signal(gda_queue_of(team, peer, which), gda_memory_of(signals, peer), gda::offset_of_signal(index),
                      value, operation);
}

// A put and a signal behind it: whoever sees the signal sees the bytes.
GDA_API gda_ticket gda_put_signal_to(const gda_team& team, uint32_t peer, const gda_window& window, uint64_t offset,
                                     const gda_mr& src, uint64_t src_offset, uint64_t bytes, const gda_window& signals,
                                     uint64_t index, uint64_t value, gda_signal_operation operation,
                                     uint32_t which = 0) {
    return gda_put_signal(gda_queue_of(team, peer, which), gda_memory_of(window, peer), offset, src, src_offset, bytes,
                          gda_memory_of(signals, peer), gda::offset_of_signal(index), value, operation);
}

// Waits for a ticket of the queue that leads to `peer`.
GDA_API gda_status gda_wait_for(const gda_team& team, uint32_t peer, gda_ticket ticket, uint64_t deadline_ns,
                                uint32_t which = 0) {
    return gda_wait(gda_queue_of(team, peer, which), ticket, deadline_ns);
}

// Waits until signal `index` of this rank has reached `value`.
GDA_API gda_status gda_wait_here(const gda_window& signals, uint64_t index, uint64_t value, uint64_t deadline_ns) {
    const uint64_t* signal = gda_signal_of(signals, index);
    if (signal == nullptr) return gda::make_status(gda::prm::GDA_OUT_OF_BOUNDS, 0, 0);
    return gda_wait_signal(signal, GDA_REACHED, value, deadline_ns);
}

// Waits until signal `index` of this rank has come `step` further than it was waited for before. How far that is lies
// behind the signals that Team.signals made: Python and kernels take turns, and nothing is ever set back. One thread at
// a time waits for a signal.
GDA_API gda_status gda_wait_next_here(const gda_window& signals, uint64_t index, uint64_t deadline_ns,
                                      uint64_t step = 1) {
    uint64_t* signal = const_cast<uint64_t*>(gda_signal_of(signals, index));
    if (signal == nullptr || (signals.mine.flags & GDA_MR_EPOCHS) == 0) {
        return gda::make_status(gda::prm::GDA_OUT_OF_BOUNDS, 0, 0);
    }
    uint64_t* epoch = signal + signals.mine.bytes / sizeof(uint64_t);
    uint64_t value = gda::target::load_owned(epoch) + step;
    gda_status status = gda_wait_here(signals, index, value, deadline_ns);
    if (status == 0) gda::target::store_owned(epoch, value);
    return status;
}

// Adds to signal `index` of the peer and fetches what it was before, to eight bytes here: a counter that many share.
GDA_API gda_ticket gda_fetch_add_to(const gda_team& team, uint32_t peer, const gda_mr& result, uint64_t result_offset,
                                    const gda_window& signals, uint64_t index, uint64_t add, uint32_t which = 0) {
    return gda_fetch_add(gda_queue_of(team, peer, which), result, result_offset, gda_memory_of(signals, peer),
                         gda::offset_of_signal(index), add);
}

// Waits for everything that was posted to all ranks; the deadline is that of each wait. The first failure is told.
GDA_API gda_status gda_flush_all(const gda_team& team, uint64_t deadline_ns) {
    gda_status first = 0;
    for (uint32_t i = 0; i < team.size * team.queues_per_peer; ++i) {
        gda_qp* qp = gda_queue_of(team, i / team.queues_per_peer, i % team.queues_per_peer);
        if (qp == nullptr && team.version == GDA_HANDLE_VERSION) continue;  // not connected
        gda_status status = gda_flush(qp, deadline_ns);
        if (first == 0) first = status;
    }
    return first;
}
