// SPDX-License-Identifier: Apache-2.0
// The command interface: opcode to handler, lengths, status and syndrome. uverbs/ comes in by Device::command.
// Source: ConnectX Programmer's Reference Manual, "Command Interface", "Command Return Status". Syndromes are not
// documented by the manual: the numbers are this model's choice, one per cause, in the table below.

#include <algorithm>
#include <cstring>
#include <exception>

#include "sim/engine/thread.h"
#include "sim/firmware/handlers.h"

namespace sim {

using namespace gda::prm;
using namespace sim::firmware;

namespace {

struct Words {
    Cause cause;
    cmd_status status;
    const char* words;
};

// In the order of enum Cause: syndrome = SYNDROME_BASE + position.
const uint32_t SYNDROME_BASE = 0x6d0a00;
const Words CAUSES[] = {
    {Cause::none, MLX5_CMD_STAT_OK, ""},
    {Cause::unknown_opcode, MLX5_CMD_STAT_BAD_OP_ERR, "the software NIC has no such command"},
    {Cause::short_input, MLX5_CMD_STAT_BAD_INP_LEN_ERR, "the input is shorter than the command"},
    {Cause::short_output, MLX5_CMD_STAT_BAD_OUTP_LEN_ERR, "the output is shorter than the answer"},
    {Cause::bad_capability, MLX5_CMD_STAT_BAD_PARAM_ERR, "no such group of capabilities"},
    {Cause::no_such_pd, MLX5_CMD_STAT_BAD_RES_ERR, "no such protection domain"},
    {Cause::no_such_umem, MLX5_CMD_STAT_BAD_RES_ERR, "no such umem"},
    {Cause::no_such_page, MLX5_CMD_STAT_BAD_RES_ERR, "no such doorbell page (uar_page)"},
    {Cause::no_such_cq, MLX5_CMD_STAT_BAD_RES_ERR, "no such completion queue"},
    {Cause::no_such_qp, MLX5_CMD_STAT_BAD_RES_ERR, "no such queue pair"},
    {Cause::no_such_key, MLX5_CMD_STAT_BAD_RES_ERR, "no such memory key"},
    {Cause::table_full, MLX5_CMD_STAT_LIM_ERR, "all objects of this kind are in use"},
    {Cause::no_memory, MLX5_CMD_STAT_NO_RES_ERR, "the process is out of memory"},
    {Cause::umem_needed, MLX5_CMD_STAT_BAD_PARAM_ERR, "memory is given by umem only: set the *_umem_valid bit"},
    {Cause::umem_too_small, MLX5_CMD_STAT_BAD_PARAM_ERR, "the umem does not hold it"},
    {Cause::misaligned, MLX5_CMD_STAT_BAD_PARAM_ERR, "the place in the umem is not aligned"},
    {Cause::record_needed, MLX5_CMD_STAT_BAD_PARAM_ERR, "a doorbell record is needed (dbr_umem_valid)"},
    {Cause::queue_too_large, MLX5_CMD_STAT_LIM_ERR, "the queue is larger than the capabilities say"},
    {Cause::cqe_size, MLX5_CMD_STAT_BAD_PARAM_ERR, "completions have 64 bytes (cqe_sz 0) or 128 (1)"},
    {Cause::transport, MLX5_CMD_STAT_BAD_PARAM_ERR,
     "this kind of queue pair is not supported: st must be RC (0), UC (1), UD (2), XRC (3) or DCI (5)"},
    {Cause::receive_type, MLX5_CMD_STAT_BAD_PARAM_ERR, "unknown rq_type"},
    {Cause::no_such_rmp, MLX5_CMD_STAT_BAD_RES_ERR, "no such shared receive queue (RMP)"},
    {Cause::no_such_dct, MLX5_CMD_STAT_BAD_RES_ERR, "no such target of dynamically connected queue pairs (DCT)"},
    {Cause::no_such_xrcd, MLX5_CMD_STAT_BAD_RES_ERR, "no such XRC domain"},
    {Cause::rmp_kind, MLX5_CMD_STAT_BAD_PARAM_ERR,
     "a shared receive queue is a linked list (wq_type 0) of WQEs of 32 to 512 bytes"},
    {Cause::rmp_in_use, MLX5_CMD_STAT_BAD_RES_STATE_ERR, "queue pairs still take from this shared receive queue"},
    {Cause::doorbell_mode, MLX5_CMD_STAT_BAD_PARAM_ERR, "this send_dbr_mode is not supported (0 and 1 are)"},
    {Cause::cq_in_use, MLX5_CMD_STAT_BAD_RES_STATE_ERR, "queue pairs still report to this completion queue"},
    {Cause::cq_change, MLX5_CMD_STAT_BAD_PARAM_ERR, "the completion queue cannot be changed like this"},
    {Cause::wrong_state, MLX5_CMD_STAT_BAD_QP_STATE_ERR, "the queue pair is not in the state this move starts from"},
    {Cause::path_mtu, MLX5_CMD_STAT_BAD_PARAM_ERR, "path MTU must be 1 (256 bytes) to 5 (4096 bytes)"},
    {Cause::message_size, MLX5_CMD_STAT_BAD_PARAM_ERR, "log_msg_max is beyond the capability log_max_msg"},
    {Cause::address_index, MLX5_CMD_STAT_BAD_PARAM_ERR, "the GID table has no such index"},
    {Cause::no_remote_gid, MLX5_CMD_STAT_BAD_PARAM_ERR, "RoCE needs the peer's GID (rgid_rip): it is all zero"},
    {Cause::port, MLX5_CMD_STAT_BAD_PARAM_ERR, "ports count from 1 (0 stands for 1)"},
    {Cause::migration, MLX5_CMD_STAT_BAD_PARAM_ERR,
     "pm_state is not MIGRATED (3): set it at CREATE_QP or RST2INIT, or the queue pair refuses to move"},
    {Cause::access_mode, MLX5_CMD_STAT_BAD_PARAM_ERR,
     "only keys of one range (MTT), of all addresses (PA), of pieces of other keys (KLM, KSM) and of device memory "
     "(MEMIC) "
     "are supported"},
    {Cause::translations, MLX5_CMD_STAT_BAD_PARAM_ERR, "the list of translations does not fit"},
    {Cause::key_range, MLX5_CMD_STAT_BAD_PARAM_ERR,
     "the range of the key is empty, goes round, or is not within its umem"},
    {Cause::remote_needs_local, MLX5_CMD_STAT_BAD_PARAM_ERR, "remote write and atomics need local write"},
    {Cause::forked, MLX5_CMD_STAT_BAD_SYS_STATE_ERR, "this process was forked after the NIC was opened"},
    {Cause::no_such_counter, MLX5_CMD_STAT_BAD_RES_ERR, "no such set of counters"},
    {Cause::counter_in_use, MLX5_CMD_STAT_BAD_RES_STATE_ERR, "queue pairs still count in this set"},
    {Cause::dci_streams, MLX5_CMD_STAT_BAD_PARAM_ERR, "more DCI streams, or in error, than the capabilities say"},
    {Cause::no_such_stream, MLX5_CMD_STAT_BAD_PARAM_ERR, "no stream in error can be reset by that"},
};

struct Command {
    uint32_t opcode;
    const char* name;
    size_t in_bytes, out_bytes;  // the structs
    size_t least_in, least_out;  // what must be there: programs may leave reserved tails away
    Handler handler;
};

// The least input ends behind FIELD.
#define SIM_UP_TO(TYPE, FIELD) (GDA_DWORD_OFFSET(TYPE, FIELD) + (GDA_BIT_WIDTH(TYPE, FIELD) == 64 ? 8 : 4))
#define SIM_COMMAND(OPCODE, TYPE, LAST_IN, LAST_OUT, HANDLER) \
    {OPCODE, #TYPE, GDA_BYTES_OF(TYPE##_in), GDA_BYTES_OF(TYPE##_out), LAST_IN, LAST_OUT, HANDLER}
const size_t HEAD = 16;  // of every command and answer
#define SIM_MOVE(OPCODE, TYPE, HANDLER) \
    SIM_COMMAND(OPCODE, TYPE, GDA_BYTE_OFFSET(TYPE##_in, qpc) + GDA_BYTES_OF(qpc), HEAD, HANDLER)

const Command COMMANDS[] = {
    SIM_COMMAND(MLX5_CMD_OP_QUERY_HCA_CAP, query_hca_cap, HEAD, HEAD + GDA_BYTES_OF(cmd_hca_cap), query_hca_cap),
    SIM_COMMAND(MLX5_CMD_OP_QUERY_ROCE_ADDRESS, query_roce_address, HEAD, HEAD + GDA_BYTES_OF(roce_addr_layout),
                query_roce_address),
    SIM_COMMAND(MLX5_CMD_OP_QUERY_LAG, query_lag, HEAD, GDA_BYTES_OF(query_lag_out), query_lag),
    SIM_COMMAND(MLX5_CMD_OP_ALLOC_Q_COUNTER, alloc_q_counter, HEAD, HEAD, allocate_q_counter),
    SIM_COMMAND(MLX5_CMD_OP_DEALLOC_Q_COUNTER, dealloc_q_counter, HEAD, HEAD, release_q_counter),
    SIM_COMMAND(MLX5_CMD_OP_QUERY_Q_COUNTER, query_q_counter, GDA_BYTES_OF(query_q_counter_in),
                GDA_BYTES_OF(query_q_counter_out), query_q_counter),
    SIM_COMMAND(MLX5_CMD_OP_QUERY_VPORT_COUNTER, query_vport_counter, HEAD, GDA_BYTES_OF(query_vport_counter_out),
                query_vport_counter),
    SIM_COMMAND(MLX5_CMD_OP_CREATE_MKEY, create_mkey, SIM_UP_TO(create_mkey_in, mkey_umem_offset), HEAD, create_mkey),
    SIM_COMMAND(MLX5_CMD_OP_DESTROY_MKEY, destroy_mkey, HEAD, HEAD, destroy_mkey),
    SIM_COMMAND(MLX5_CMD_OP_CREATE_CQ, create_cq, SIM_UP_TO(create_cq_in, cq_umem_valid), HEAD, create_cq),
    SIM_COMMAND(MLX5_CMD_OP_DESTROY_CQ, destroy_cq, HEAD, HEAD, destroy_cq),
    SIM_COMMAND(MLX5_CMD_OP_QUERY_CQ, query_cq, HEAD, HEAD + GDA_BYTES_OF(cqc), query_cq),
    SIM_COMMAND(MLX5_CMD_OP_MODIFY_CQ, modify_cq, GDA_BYTE_OFFSET(modify_cq_in, cq_context) + GDA_BYTES_OF(cqc), HEAD,
                modify_cq),
    SIM_COMMAND(MLX5_CMD_OP_CREATE_RMP, create_rmp,
                GDA_BYTE_OFFSET(create_rmp_in, ctx) + SIM_UP_TO(rmpc, wq.wq_umem_offset), HEAD, create_rmp),
    SIM_COMMAND(MLX5_CMD_OP_MODIFY_RMP, modify_rmp, GDA_BYTE_OFFSET(modify_rmp_in, ctx) + SIM_UP_TO(rmpc, wq.lwm), HEAD,
                modify_rmp),
    SIM_COMMAND(MLX5_CMD_OP_DESTROY_RMP, destroy_rmp, HEAD, HEAD, destroy_rmp),
    SIM_COMMAND(MLX5_CMD_OP_QUERY_RMP, query_rmp, HEAD, GDA_BYTES_OF(query_rmp_out), query_rmp),
    SIM_COMMAND(MLX5_CMD_OP_CREATE_QP, create_qp, SIM_UP_TO(create_qp_in, wq_umem_valid), HEAD, create_qp),
    SIM_COMMAND(MLX5_CMD_OP_DESTROY_QP, destroy_qp, HEAD, HEAD, destroy_qp),
    SIM_COMMAND(MLX5_CMD_OP_QUERY_QP, query_qp, HEAD, GDA_BYTE_OFFSET(query_qp_out, qpc) + GDA_BYTES_OF(qpc), query_qp),
    SIM_COMMAND(MLX5_CMD_OP_CREATE_DCT, create_dct,
                GDA_BYTE_OFFSET(create_dct_in, dct_context_entry) + GDA_BYTES_OF(dctc), HEAD, create_dct),
    SIM_COMMAND(MLX5_CMD_OP_DRAIN_DCT, drain_dct, HEAD, HEAD, drain_dct),
    SIM_COMMAND(MLX5_CMD_OP_DESTROY_DCT, destroy_dct, HEAD, HEAD, destroy_dct),
    SIM_COMMAND(MLX5_CMD_OP_QUERY_DCT, query_dct, HEAD,
                GDA_BYTE_OFFSET(query_dct_out, dct_context_entry) + GDA_BYTES_OF(dctc), query_dct),
    SIM_MOVE(MLX5_CMD_OP_RST2INIT_QP, rst2init_qp, rst2init),
    SIM_MOVE(MLX5_CMD_OP_INIT2RTR_QP, init2rtr_qp, init2rtr),
    SIM_MOVE(MLX5_CMD_OP_RTR2RTS_QP, rtr2rts_qp, rtr2rts),
    SIM_MOVE(MLX5_CMD_OP_INIT2INIT_QP, init2init_qp, init2init),
    SIM_MOVE(MLX5_CMD_OP_RTS2RTS_QP, rts2rts_qp, rts2rts),
    SIM_COMMAND(MLX5_CMD_OP_2ERR_QP, qp_2err, HEAD, HEAD, to_error),
    SIM_COMMAND(MLX5_CMD_OP_2RST_QP, qp_2rst, HEAD, HEAD, to_reset),
};

const size_t LARGEST_OUT = GDA_BYTES_OF(query_hca_cap_out);

Answer execute(DeviceState& s, const Command* command, const uint8_t* in, size_t in_bytes, uint8_t* out,
               size_t out_bytes) {
    if (in_bytes < command->least_in) {
        return {Cause::short_input, text("%zu bytes, at least %zu", in_bytes, command->least_in)};
    }
    if (out_bytes < command->least_out) {
        return {Cause::short_output, text("%zu bytes, at least %zu", out_bytes, command->least_out)};
    }
    // Whole structs for the handler, whatever reserved tail was left away.
    std::vector<uint8_t> whole_in(std::max(in_bytes, command->in_bytes)), whole_out(command->out_bytes);
    std::memcpy(whole_in.data(), in, in_bytes);
    Answer answer;
    {
        Hold hold(s);
        s.now_ns = s.clock.now_ns();
        s.command_bytes = in_bytes;
        answer = command->handler(s, whole_in.data(), whole_out.data());
    }
    if (answer.cause == Cause::none) std::memcpy(out, whole_out.data(), std::min(out_bytes, command->out_bytes));
    return answer;
}

}  // namespace

bool Device::command(const void* in, size_t in_bytes, void* out, size_t out_bytes) {
    DeviceState& s = *state_;
    static_assert(LARGEST_OUT == HEAD + 0x1000, "the largest answer is that of QUERY_HCA_CAP");
    if (out_bytes) std::memset(out, 0, out_bytes);
    if (out_bytes < 8) return false;  // no place even for the status
    const uint8_t* input = static_cast<const uint8_t*>(in);
    uint8_t* output = static_cast<uint8_t*>(out);
    const bool named = in_bytes >= 4;
    const uint32_t opcode =
        named ? static_cast<uint32_t>(GDA_GET(query_hca_cap_in, input, opcode)) : 0;  // in all alike
    const Command* command = nullptr;
    for (const Command& c : COMMANDS) {
        if (named && c.opcode == opcode) command = &c;
    }
    Answer answer;
    try {
        if (s.generation != process_generation()) {
            answer.cause = Cause::forked;
        } else if (!named) {
            answer = {Cause::short_input, text("%zu bytes, no opcode", in_bytes)};
        } else if (!command) {
            answer = {Cause::unknown_opcode, text("opcode 0x%x", opcode)};
        } else {
            answer = execute(s, command, input, in_bytes, output, out_bytes);
        }
    } catch (const std::exception&) {
        answer.cause = Cause::no_memory;
    }
    s.report.count_unlocked(Counter::commands);
    const Words& words = CAUSES[static_cast<int>(answer.cause)];
    if (words.cause != answer.cause) std::abort();  // the table is not in the enum's order: tested
    if (answer.cause != Cause::none) {
        s.report.count_unlocked(Counter::command_errors);
        s.report.say(Kind::command_refused,
                     text("command %s: %s%s%s (status 0x%x, syndrome 0x%x)", command ? command->name : "unknown",
                          words.words, answer.detail.empty() ? "" : ": ", answer.detail.c_str(), words.status,
                          SYNDROME_BASE + static_cast<uint32_t>(answer.cause)),
                     {{"status", static_cast<uint64_t>(words.status)},
                      {"syndrome", SYNDROME_BASE + static_cast<uint32_t>(answer.cause)}});
        std::memset(out, 0, out_bytes);
        GDA_SET(query_hca_cap_out, output, status, words.status);
        GDA_SET(query_hca_cap_out, output, syndrome, SYNDROME_BASE + static_cast<uint32_t>(answer.cause));
    }
    deliver_pending(s);
    return answer.cause == Cause::none;
}

namespace firmware {

Answer place_in_umem(DeviceState& s, uint32_t umem_id, uint64_t offset, uint64_t bytes, uint32_t alignment,
                     const char* what, Region* region) {
    Umem* umem = s.umems.find(umem_id);
    if (!umem) return {Cause::no_such_umem, text("umem %u for %s", umem_id, what)};
    if (offset > umem->bytes || bytes > umem->bytes - offset) {
        return {
            Cause::umem_too_small,
            text("%s needs %llu bytes at offset %llu, umem %u has %llu", what, static_cast<unsigned long long>(bytes),
                 static_cast<unsigned long long>(offset), umem_id, static_cast<unsigned long long>(umem->bytes))};
    }
    if ((umem->address + offset) % alignment) {
        return {Cause::misaligned, text("%s at 0x%llx, alignment %u", what,
                                        static_cast<unsigned long long>(umem->address + offset), alignment)};
    }
    *region = {umem, offset};
    return {};
}

}  // namespace firmware
}  // namespace sim
