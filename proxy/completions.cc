// SPDX-License-Identifier: Apache-2.0
// See completions.h.

#include "proxy/completions.h"

#include <gda/formats/doorbell.h>

namespace proxy {

using namespace gda::prm;

bool Completions::has_room() const {
    if (!record_) return true;
    const uint32_t word = __atomic_load_n(record_, __ATOMIC_ACQUIRE);  // what was read before it may be overwritten
    const uint32_t consumer = static_cast<uint32_t>(GDA_GET(cq_doorbell_record, &word, consumer_index));
    // Indices in the record have as many bits as the field.
    const uint32_t mask = GDA_PLACE(cq_doorbell_record, consumer_index)::mask;
    return ((producer_ - consumer) & mask) < entries_;
}

void Completions::write(const Completion& c) {
    alignas(8) uint8_t entry[CQE_BYTES] = {};
    GDA_SET(cqe64, entry, srqn_uidx, user_index_);
    GDA_SET(cqe64, entry, sop_drop_qpn_opcode, c.wqe_opcode);
    GDA_SET(cqe64, entry, qpn, qpn_);
    GDA_SET(cqe64, entry, wqe_counter, c.index);
    GDA_SET(cqe64, entry, opcode, c.opcode);
    if (c.opcode == MLX5_CQE_REQ_ERR || c.opcode == MLX5_CQE_RESP_ERR) {
        GDA_SET(err_cqe, entry, vendor_error_syndrome, c.vendor);
        GDA_SET(err_cqe, entry, syndrome, c.syndrome);
    } else {
        GDA_SET(cqe64, entry, rqpn, c.from);
        GDA_SET(cqe64, entry, grh, c.grh);
        gda::store32(entry + GDA_DWORD_OFFSET(cqe64, imm_inval_pkey), c.immediate_be);
        GDA_SET(cqe64, entry, byte_cnt, c.bytes);
    }
    const uint32_t slot = collapsed_ ? 0 : producer_ & (entries_ - 1);
    const uint32_t lap = collapsed_ ? 0 : producer_ / entries_ % 2;
    GDA_SET(cqe64, entry, owner, lap);
    // The last dword hands the entry over: a kernel that sees it sees the rest, and the data of the request, which the
    // device had written before libibverbs told of it. Dword by dword, as kernels read them: one may still be reading
    // the cause of a failure in a collapsed queue's entry when that of what was flushed behind it comes.
    const uint32_t last = GDA_DWORD_OFFSET(cqe64, owner);
    uint8_t* place = ring_ + static_cast<size_t>(slot) * CQE_BYTES;
    for (uint32_t at = 0; at != last; at += sizeof(uint32_t)) {
        __atomic_store_n(reinterpret_cast<uint32_t*>(place + at), gda::load32(entry + at), __ATOMIC_RELAXED);
    }
    __atomic_store_n(reinterpret_cast<uint32_t*>(place + last), gda::load32(entry + last), __ATOMIC_RELEASE);
    ++producer_;
}

uint8_t syndrome_of(enum ibv_wc_status status) {
    switch (status) {
        case IBV_WC_LOC_LEN_ERR:
            return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
        case IBV_WC_LOC_PROT_ERR:
            return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
        case IBV_WC_WR_FLUSH_ERR:
            return MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
        case IBV_WC_MW_BIND_ERR:
            return MLX5_CQE_SYNDROME_MW_BIND_ERR;
        case IBV_WC_BAD_RESP_ERR:
            return MLX5_CQE_SYNDROME_BAD_RESP_ERR;
        case IBV_WC_LOC_ACCESS_ERR:
            return MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR;
        case IBV_WC_REM_INV_REQ_ERR:
            return MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
        case IBV_WC_REM_ACCESS_ERR:
            return MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
        case IBV_WC_REM_OP_ERR:
            return MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
        case IBV_WC_RETRY_EXC_ERR:
            return MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR;
        case IBV_WC_REM_ABORT_ERR:
            return MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR;
        default:  // what cards have no syndrome for
            return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    }
}

void move_to_error(ibv_qp* qp) {
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_ERR;
    ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
}

}  // namespace proxy
