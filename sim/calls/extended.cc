// SPDX-License-Identifier: Apache-2.0
// See watch.h: requests that are built piece by piece. Between ibv_wr_start() and its end the queue belongs to the
// calling thread, so what it has built so far is kept by thread.
#include <algorithm>
#include <vector>

#include "sim/calls/before.h"
#include "sim/calls/counted.h"
#include "sim/calls/watch.h"

namespace sim::calls {
namespace {

Before<ibv_qp_ex> queues;

struct Batch {
    ibv_qp_ex* qp;
    ibv_qp_ex* before;
    std::vector<std::pair<uint32_t, uint64_t>> requests;  // operation, bytes
};
thread_local std::vector<Batch> open;  // one, but for programs that build on several queues at once

Batch& batch(ibv_qp_ex* qp) {
    const auto found = std::find_if(open.begin(), open.end(), [qp](const Batch& one) { return one.qp == qp; });
    if (found != open.end()) return *found;
    open.push_back({qp, queues.of(qp), {}});
    return open.back();
}

Batch taken(ibv_qp_ex* qp) {
    Batch one = std::move(batch(qp));
    open.erase(std::find_if(open.begin(), open.end(), [qp](const Batch& other) { return other.qp == qp; }));
    return one;
}

int complete(ibv_qp_ex* qp) {
    const Batch built = taken(qp);
    const int answer = built.before->wr_complete(qp);
    if (answer) return answer;  // none of them was posted
    for (const auto& [opcode, bytes] : built.requests) request(opcode, bytes);
    if (!built.requests.empty()) doorbell();
    return 0;
}

void start(ibv_qp_ex* qp) {
    Batch& one = batch(qp);
    one.requests.clear();
    one.before->wr_start(qp);
    // libmlx5 puts another function there when the queue pair comes to RTS, and when it is reset.
    if (qp->wr_complete != complete) {
        one.before->wr_complete = qp->wr_complete;
        qp->wr_complete = complete;
    }
}

void abort_all(ibv_qp_ex* qp) { taken(qp).before->wr_abort(qp); }

// The function in that place of ibv_qp_ex begins a request of this operation.
template <auto PLACE, uint32_t OPCODE, typename... Arguments>
void begins(ibv_qp_ex* qp, Arguments... arguments) {
    Batch& one = batch(qp);
    one.requests.push_back({OPCODE, 0});
    (one.before->*PLACE)(qp, arguments...);
}
template <auto PLACE, uint32_t OPCODE>
void replace(ibv_qp_ex* qp) {
    if (qp->*PLACE) qp->*PLACE = begins<PLACE, OPCODE>;
}

const ibv_qp_ex* adds(ibv_qp_ex* qp, uint64_t bytes) {
    Batch& one = batch(qp);
    if (!one.requests.empty()) one.requests.back().second += bytes;
    return one.before;
}
void set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t bytes) {
    adds(qp, bytes)->wr_set_sge(qp, lkey, address, bytes);
}
void set_sge_list(ibv_qp_ex* qp, size_t number, const ibv_sge* list) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < number; ++i) bytes += list[i].length;
    adds(qp, bytes)->wr_set_sge_list(qp, number, list);
}
void set_inline_data(ibv_qp_ex* qp, void* address, size_t bytes) {
    adds(qp, bytes)->wr_set_inline_data(qp, address, bytes);
}
void set_inline_data_list(ibv_qp_ex* qp, size_t number, const ibv_data_buf* list) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < number; ++i) bytes += list[i].length;
    adds(qp, bytes)->wr_set_inline_data_list(qp, number, list);
}

}  // namespace

ibv_qp_ex* watch(ibv_qp_ex* qp) {
    if (!qp || !qp->wr_start || qp->wr_start == start) return qp;
    if (!queues.enter(qp, *qp)) return missed(), qp;
    replace<&ibv_qp_ex::wr_rdma_write, IBV_WR_RDMA_WRITE>(qp);
    replace<&ibv_qp_ex::wr_rdma_write_imm, IBV_WR_RDMA_WRITE_WITH_IMM>(qp);
    replace<&ibv_qp_ex::wr_send, IBV_WR_SEND>(qp);
    replace<&ibv_qp_ex::wr_send_imm, IBV_WR_SEND_WITH_IMM>(qp);
    replace<&ibv_qp_ex::wr_send_inv, IBV_WR_SEND_WITH_INV>(qp);
    replace<&ibv_qp_ex::wr_send_tso, IBV_WR_TSO>(qp);
    replace<&ibv_qp_ex::wr_rdma_read, IBV_WR_RDMA_READ>(qp);
    replace<&ibv_qp_ex::wr_atomic_cmp_swp, IBV_WR_ATOMIC_CMP_AND_SWP>(qp);
    replace<&ibv_qp_ex::wr_atomic_fetch_add, IBV_WR_ATOMIC_FETCH_AND_ADD>(qp);
    replace<&ibv_qp_ex::wr_local_inv, IBV_WR_LOCAL_INV>(qp);
    replace<&ibv_qp_ex::wr_bind_mw, IBV_WR_BIND_MW>(qp);
    if (qp->wr_set_sge) qp->wr_set_sge = set_sge;
    if (qp->wr_set_sge_list) qp->wr_set_sge_list = set_sge_list;
    if (qp->wr_set_inline_data) qp->wr_set_inline_data = set_inline_data;
    if (qp->wr_set_inline_data_list) qp->wr_set_inline_data_list = set_inline_data_list;
    qp->wr_abort = abort_all;
    qp->wr_complete = complete;
    qp->wr_start = start;
    return qp;
}

}  // namespace sim::calls
