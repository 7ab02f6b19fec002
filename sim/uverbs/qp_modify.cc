// SPDX-License-Identifier: Apache-2.0
// MODIFY_QP: which transitions and attributes are allowed, and the firmware command that each becomes.
// Source: InfiniBand Architecture Specification, volume 1, table "QP State Transition Properties", in the form that
// Linux checks it (ib_modify_qp_is_ok); how attributes land in the context: mlx5_ib.
#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <cstring>

#include "sim/uverbs/nic.h"
#include "sim/uverbs/path.h"
#include "sim/uverbs/qp.h"

namespace sim::uverbs {
namespace {

namespace a = qp_attr;

constexpr uint32_t bit(Service service) { return 1u << static_cast<uint32_t>(service); }
constexpr uint32_t rc = bit(Service::rc), uc = bit(Service::uc), ud = bit(Service::ud),
                   xi = bit(Service::xrc_initiator), xt = bit(Service::xrc_target), dci = bit(Service::dc_initiator);

struct Transition {
    QpState from, to;
    uint32_t services, required, optional;
};

// Every state may also go to RESET and ERR without attributes. SQD is not in the table: mlx5 has no command for it.
const Transition transitions[] = {
    {QpState::reset, QpState::init, rc | uc | xi | xt, a::pkey_index | a::port | a::access_flags, 0},
    {QpState::reset, QpState::init, ud, a::pkey_index | a::port | a::qkey, 0},
    {QpState::init, QpState::init, rc | uc | xi | xt, 0, a::pkey_index | a::port | a::access_flags},
    {QpState::init, QpState::init, ud, 0, a::pkey_index | a::port | a::qkey},
    {QpState::init, QpState::rtr, rc | xt,
     a::av | a::path_mtu | a::dest_qpn | a::rq_psn | a::max_dest_rd_atomic | a::min_rnr_timer,
     a::alt_path | a::access_flags | a::pkey_index},
    {QpState::init, QpState::rtr, uc | xi, a::av | a::path_mtu | a::dest_qpn | a::rq_psn,
     a::alt_path | a::access_flags | a::pkey_index},
    {QpState::init, QpState::rtr, ud, 0, a::pkey_index | a::qkey},
    {QpState::rtr, QpState::rts, rc, a::timeout | a::retry_cnt | a::rnr_retry | a::sq_psn | a::max_qp_rd_atomic,
     a::cur_state | a::alt_path | a::access_flags | a::min_rnr_timer | a::path_mig_state | a::rate_limit},
    {QpState::rtr, QpState::rts, xi, a::timeout | a::retry_cnt | a::rnr_retry | a::sq_psn | a::max_qp_rd_atomic,
     a::cur_state | a::alt_path | a::access_flags | a::path_mig_state | a::rate_limit},
    {QpState::rtr, QpState::rts, xt, a::timeout | a::sq_psn,
     a::cur_state | a::alt_path | a::access_flags | a::min_rnr_timer | a::path_mig_state | a::rate_limit},
    {QpState::rtr, QpState::rts, uc, a::sq_psn,
     a::cur_state | a::alt_path | a::access_flags | a::path_mig_state | a::rate_limit},
    {QpState::rtr, QpState::rts, ud, a::sq_psn, a::cur_state | a::qkey | a::rate_limit},
    {QpState::rts, QpState::rts, rc | xt, 0,
     a::cur_state | a::access_flags | a::alt_path | a::path_mig_state | a::min_rnr_timer | a::rate_limit},
    {QpState::rts, QpState::rts, uc | xi, 0,
     a::cur_state | a::access_flags | a::alt_path | a::path_mig_state | a::rate_limit},
    {QpState::rts, QpState::rts, ud, 0, a::cur_state | a::qkey | a::rate_limit},
    // The driver's own rules.
    {QpState::reset, QpState::init, dci, a::pkey_index | a::port, 0},
    {QpState::init, QpState::init, dci, 0, a::pkey_index | a::port},
    {QpState::init, QpState::rtr, dci, a::path_mtu, a::pkey_index | a::av},
    {QpState::rtr, QpState::rts, dci, a::timeout | a::retry_cnt | a::rnr_retry | a::max_qp_rd_atomic | a::sq_psn,
     a::min_rnr_timer},
    {QpState::rts, QpState::rts, dci, 0, a::min_rnr_timer},
};

bool allowed(QpState from, QpState to, Service service, uint32_t mask) {
    if (to == QpState::reset || to == QpState::err) return !(mask & ~a::state);
    for (const Transition& t : transitions) {
        if (t.from != from || t.to != to || !(t.services & bit(service))) continue;
        return (mask & t.required) == t.required && !(mask & ~(t.required | t.optional | a::state));
    }
    return false;
}

}  // namespace

bool valid_values(const ib_uverbs_modify_qp& r) {
    const Limits& l = Nic::limits();
    const uint32_t mask = r.attr_mask;
    if ((mask & a::port) && !r.port_num) return false;  // one that is too large the card refuses, and says why
    if ((mask & a::pkey_index) && r.pkey_index >= l.pkey_entries) return false;
    if ((mask & a::path_mtu) &&
        (r.path_mtu < gda::prm::MLX5_QPC_MTU_256_BYTES || r.path_mtu > gda::prm::MLX5_QPC_MTU_4K_BYTES))
        return false;
    if ((mask & a::av) &&
        (!Nic::has_port(r.dest.port_num) || !r.dest.is_global || r.dest.sgid_index >= Device::gid_count()))
        return false;
    if ((mask & a::max_qp_rd_atomic) && r.max_rd_atomic > 1u << l.log_max_requests) return false;
    if ((mask & a::max_dest_rd_atomic) && r.max_dest_rd_atomic > 1u << l.log_max_responses) return false;
    if ((mask & a::timeout) && r.timeout > 31) return false;
    if ((mask & a::retry_cnt) && r.retry_cnt > 7) return false;
    if ((mask & a::rnr_retry) && r.rnr_retry > 7) return false;
    if ((mask & a::min_rnr_timer) && r.min_rnr_timer > 31) return false;
    return true;
}

namespace {

uint32_t log2_ceiling(uint32_t n) { return n > 1 ? 32 - static_cast<uint32_t>(__builtin_clz(n - 1)) : 0; }

// The commands with a context have it at the same place: `in` is the body of any of them.
using Body = SIM_COMMAND(init2rtr_qp);
static_assert(GDA_BIT_OFFSET(rst2init_qp_in, qpc) == GDA_BIT_OFFSET(init2rtr_qp_in, qpc) &&
                  GDA_BIT_OFFSET(rtr2rts_qp_in, qpc) == GDA_BIT_OFFSET(init2rtr_qp_in, qpc) &&
                  GDA_BIT_OFFSET(init2init_qp_in, qpc) == GDA_BIT_OFFSET(init2rtr_qp_in, qpc) &&
                  GDA_BIT_OFFSET(rts2rts_qp_in, qpc) == GDA_BIT_OFFSET(init2rtr_qp_in, qpc) &&
                  sizeof(Body) == sizeof(SIM_COMMAND(init2init_qp)) &&
                  sizeof(Body) == sizeof(SIM_COMMAND(rts2rts_qp)) && sizeof(Body) == sizeof(SIM_COMMAND(rst2init_qp)) &&
                  sizeof(Body) == sizeof(SIM_COMMAND(rtr2rts_qp)),
              "one layout for the transitions with a context");
#define SIM_SET_QPC(FIELD, VALUE) GDA_SET(init2rtr_qp_in, in, qpc.FIELD, VALUE)

// Remote access: without room for reads and atomics as responder only writes are let in.
void fill_access(const Qp& qp, const ib_uverbs_modify_qp& r, uint8_t* in) {
    if (!(r.attr_mask & (a::access_flags | a::max_dest_rd_atomic))) return;
    const uint32_t depth = r.attr_mask & a::max_dest_rd_atomic ? r.max_dest_rd_atomic : qp.responder_depth;
    const uint32_t access = r.attr_mask & a::access_flags ? r.qp_access_flags : qp.access;
    SIM_SET_QPC(rwe, !!(access & IB_UVERBS_ACCESS_REMOTE_WRITE));
    SIM_SET_QPC(rre, depth && (access & IB_UVERBS_ACCESS_REMOTE_READ));
    if (depth && (access & IB_UVERBS_ACCESS_REMOTE_ATOMIC)) {
        SIM_SET_QPC(rae, 1);
        SIM_SET_QPC(atomic_mode, gda::prm::MLX5_QPC_ATOMIC_MODE_IB_SPEC);
    }
}

// Fields that a transition changes only when it is told so.
uint32_t optional_fields(uint32_t mask) {
    using namespace gda::prm;
    uint32_t bits = 0;
    if (mask & (a::access_flags | a::max_dest_rd_atomic))
        bits |= MLX5_QP_OPTPAR_RWE | MLX5_QP_OPTPAR_RRE | MLX5_QP_OPTPAR_RAE;
    if (mask & a::pkey_index) bits |= MLX5_QP_OPTPAR_PKEY_INDEX;
    if (mask & a::port) bits |= MLX5_QP_OPTPAR_PRI_PORT;
    if (mask & a::min_rnr_timer) bits |= MLX5_QP_OPTPAR_RNR_TIMEOUT;
    if (mask & a::qkey) bits |= MLX5_QP_OPTPAR_Q_KEY;
    return bits;
}

// The RoCE path. 0, or an errno when nobody can be behind the address.
int fill_path(const ib_uverbs_qp_dest& path, uint8_t* in) {
    uint8_t mac[6];
    if (int error = resolve_mac(path.port_num, path.sgid_index, path.dgid, mac)) return error;
    uint64_t mac48 = 0;
    for (uint8_t byte : mac) mac48 = mac48 << 8 | byte;
    memcpy(in + GDA_BYTE_OFFSET(init2rtr_qp_in, qpc.primary_address_path.rgid_rip), path.dgid, sizeof path.dgid);
    SIM_SET_QPC(primary_address_path.rmac_47_32, mac48 >> 32);
    SIM_SET_QPC(primary_address_path.rmac_31_0, mac48 & 0xffffffffu);
    SIM_SET_QPC(primary_address_path.grh, 1);
    SIM_SET_QPC(primary_address_path.src_addr_index, path.sgid_index);
    SIM_SET_QPC(primary_address_path.hop_limit, path.hop_limit);
    SIM_SET_QPC(primary_address_path.tclass, path.traffic_class);
    SIM_SET_QPC(primary_address_path.dscp, path.traffic_class >> 2);
    SIM_SET_QPC(primary_address_path.flow_label, path.flow_label);
    SIM_SET_QPC(primary_address_path.eth_prio, path.sl & 7);
    SIM_SET_QPC(primary_address_path.vhca_port_num, path.port_num);  // the card refuses another than INIT's
    // RoCE v2 carries a UDP source port from the flow label, in the range reserved for it.
    Nic nic;
    if (nic && !nic->gid_is_version1(path.sgid_index, path.port_num))
        SIM_SET_QPC(primary_address_path.udp_sport, 0xc000 | (path.flow_label & 0x3fff));
    return 0;
}

int run(uint32_t opcode, uint32_t qpn, uint8_t* in, size_t bytes) {
    Body answer;
    GDA_SET(init2rtr_qp_in, in, opcode, opcode);
    GDA_SET(init2rtr_qp_in, in, qpn, qpn);
    return execute(in, bytes, answer.out, sizeof answer.out);
}

constexpr uint32_t log_datagram_bytes = 12;

int with_context(const Qp& qp, const ib_uverbs_modify_qp& r, uint32_t opcode) {
    Body body;
    uint8_t* in = body.in;
    const uint32_t mask = r.attr_mask;
    fill_access(qp, r, in);
    GDA_SET(init2rtr_qp_in, in, opt_param_mask, optional_fields(mask));
    SIM_SET_QPC(pm_state, gda::prm::MLX5_QPC_PM_STATE_MIGRATED);
    if (mask & a::av) {
        if (int error = fill_path(r.dest, in)) return error;
    }
    if (mask & a::port) SIM_SET_QPC(primary_address_path.vhca_port_num, r.port_num);
    if (mask & a::pkey_index) SIM_SET_QPC(primary_address_path.pkey_index, r.pkey_index);
    if (mask & a::path_mtu) {
        SIM_SET_QPC(mtu, r.path_mtu);
        SIM_SET_QPC(log_msg_max, Nic::limits().log_max_message);
    } else if (qp.service == Service::ud && opcode == gda::prm::MLX5_CMD_OP_INIT2RTR_QP) {
        SIM_SET_QPC(mtu, gda::prm::MLX5_QPC_MTU_4K_BYTES);  // one datagram is one packet
        SIM_SET_QPC(log_msg_max, log_datagram_bytes);
    }
    if (mask & a::qkey) SIM_SET_QPC(q_key, r.qkey);
    if (mask & a::dest_qpn) SIM_SET_QPC(remote_qpn, r.dest_qp_num);
    if (mask & a::rq_psn) SIM_SET_QPC(next_rcv_psn, r.rq_psn);
    if (mask & a::sq_psn) SIM_SET_QPC(next_send_psn, r.sq_psn);
    if (mask & a::min_rnr_timer) SIM_SET_QPC(min_rnr_nak, r.min_rnr_timer);
    if (mask & a::timeout) SIM_SET_QPC(primary_address_path.ack_timeout, r.timeout);
    if (mask & a::retry_cnt) SIM_SET_QPC(retry_count, r.retry_cnt);
    if (mask & a::rnr_retry) SIM_SET_QPC(rnr_retry, r.rnr_retry);
    if (mask & a::max_qp_rd_atomic) SIM_SET_QPC(log_sra_max, log2_ceiling(r.max_rd_atomic));
    if (mask & a::max_dest_rd_atomic) SIM_SET_QPC(log_rra_max, log2_ceiling(r.max_dest_rd_atomic));
    return run(opcode, qp.qpn, in, sizeof body.in);
}

int without_context(const Qp& qp, uint32_t opcode) {
    static_assert(GDA_BIT_OFFSET(qp_2err_in, qpn) == GDA_BIT_OFFSET(init2rtr_qp_in, qpn), "one header for all");
    SIM_COMMAND(qp_2err) body;
    return run(opcode, qp.qpn, body.in, sizeof body.in);
}

int apply(const Qp& qp, const ib_uverbs_modify_qp& r, QpState from, QpState to) {
    using namespace gda::prm;
    switch (to) {
        case QpState::reset:
            return without_context(qp, MLX5_CMD_OP_2RST_QP);
        case QpState::err:
            return without_context(qp, MLX5_CMD_OP_2ERR_QP);
        case QpState::init:
            return with_context(qp, r, from == QpState::reset ? MLX5_CMD_OP_RST2INIT_QP : MLX5_CMD_OP_INIT2INIT_QP);
        case QpState::rtr:
            return with_context(qp, r, MLX5_CMD_OP_INIT2RTR_QP);
        case QpState::rts:
            return with_context(qp, r, from == QpState::rtr ? MLX5_CMD_OP_RTR2RTS_QP : MLX5_CMD_OP_RTS2RTS_QP);
        default:
            return EINVAL;
    }
}

}  // namespace

namespace {

// Programs move both ends of XRC as one; what an end does not have is left away for them (uverbs_cmd.c).
uint32_t mask_of(const Qp& qp, uint32_t mask) {
    if (qp.service == Service::xrc_initiator) return mask & ~(a::max_dest_rd_atomic | a::min_rnr_timer);
    if (qp.service == Service::xrc_target) return mask & ~(a::max_qp_rd_atomic | a::retry_cnt | a::rnr_retry);
    return mask;
}

}  // namespace

int modify_qp(Qp& qp, const ib_uverbs_modify_qp& asked) {
    ib_uverbs_modify_qp r = asked;
    r.attr_mask = mask_of(qp, asked.attr_mask);
    if ((r.attr_mask & a::state) && r.qp_state > static_cast<uint8_t>(QpState::err)) return EINVAL;
    if ((r.attr_mask & a::cur_state) && r.cur_qp_state > static_cast<uint8_t>(QpState::err)) return EINVAL;
    const QpState from = r.attr_mask & a::cur_state ? static_cast<QpState>(r.cur_qp_state) : qp.state;
    const QpState to = r.attr_mask & a::state ? static_cast<QpState>(r.qp_state) : from;
    if (from == QpState::reset && to == QpState::reset) return 0;
    if (!allowed(from, to, qp.service, r.attr_mask) || !valid_values(r)) return EINVAL;
    if (int error = apply(qp, r, from, to)) return error;
    qp.state = to;
    if (r.attr_mask & a::access_flags) qp.access = r.qp_access_flags;
    if (r.attr_mask & a::max_dest_rd_atomic) qp.responder_depth = r.max_dest_rd_atomic;
    if (to == QpState::reset) qp.access = qp.responder_depth = 0;
    return 0;
}

}  // namespace sim::uverbs
