// SPDX-License-Identifier: Apache-2.0
// Targets of dynamically connected queue pairs as verbs have them: a queue pair of the driver's own type whose number
// exists only from RTR on, when the card makes it. Called by qp.cc.
// Source: Linux, drivers/infiniband/hw/mlx5/qp.c (create_dct, mlx5_ib_modify_dct, mlx5_ib_dct_query_qp).
#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include "sim/uverbs/nic.h"
#include "sim/uverbs/path.h"
#include "sim/uverbs/qp.h"

namespace sim::uverbs {

namespace a = qp_attr;

#define SIM_DCTC(FIELD, VALUE) GDA_SET(create_dct_in, in, dct_context_entry.FIELD, VALUE)

void begin_dct(Qp& qp, const DctParts& parts, const mlx5_ib_create_qp& driver) {
    uint8_t* in = qp.create_dct;
    GDA_SET(create_dct_in, in, opcode, gda::prm::MLX5_CMD_OP_CREATE_DCT);
    SIM_DCTC(pd, parts.pd->pdn);
    SIM_DCTC(cqn, parts.cq->cqn);
    SIM_DCTC(srqn_xrqn, parts.srq->srqn);
    SIM_DCTC(dc_access_key, driver.access_key);
    SIM_DCTC(user_index, driver.uidx);
}

namespace {

int to_init(Qp& qp, const ib_uverbs_modify_qp& r) {
    if (r.attr_mask != (a::state | a::access_flags | a::pkey_index | a::port)) return EINVAL;
    uint8_t* in = qp.create_dct;
    SIM_DCTC(rre, !!(r.qp_access_flags & IB_UVERBS_ACCESS_REMOTE_READ));
    SIM_DCTC(rwe, !!(r.qp_access_flags & IB_UVERBS_ACCESS_REMOTE_WRITE));
    SIM_DCTC(rae, !!(r.qp_access_flags & IB_UVERBS_ACCESS_REMOTE_ATOMIC));
    if (r.qp_access_flags & IB_UVERBS_ACCESS_REMOTE_ATOMIC)
        SIM_DCTC(atomic_mode, gda::prm::MLX5_QPC_ATOMIC_MODE_IB_SPEC);
    SIM_DCTC(pkey_index, r.pkey_index);
    SIM_DCTC(port, r.port_num);
    qp.access = r.qp_access_flags;
    return 0;
}

int to_receive(Qp& qp, const ib_uverbs_modify_qp& r) {
    if (r.attr_mask != (a::state | a::min_rnr_timer | a::av | a::path_mtu)) return EINVAL;
    uint8_t* in = qp.create_dct;
    SIM_DCTC(min_rnr_nak, r.min_rnr_timer);
    SIM_DCTC(tclass, r.dest.traffic_class);
    SIM_DCTC(flow_label, r.dest.flow_label);
    SIM_DCTC(mtu, r.path_mtu);
    SIM_DCTC(my_addr_index, r.dest.sgid_index);
    SIM_DCTC(hop_limit, r.dest.hop_limit);
    SIM_DCTC(eth_prio, r.dest.sl & 7);
    uint8_t out[GDA_BYTES_OF(create_dct_out)] = {};
    if (int error = execute(qp.create_dct, sizeof qp.create_dct, out, sizeof out)) return error;
    qp.qpn = static_cast<uint32_t>(GDA_GET(create_dct_out, out, dctn));
    events::add_qp(qp.qpn, std::move(qp.listener));
    return 0;
}

}  // namespace

int modify_dct(Qp& qp, const ib_uverbs_modify_qp& r) {
    if (!(r.attr_mask & a::state) || !valid_values(r)) return EINVAL;
    if ((r.attr_mask & a::port) && !Nic::has_port(r.port_num)) return EINVAL;  // the card sees it at RTR only
    const auto to = static_cast<QpState>(r.qp_state);
    int error = EINVAL;
    if (qp.state == QpState::reset && to == QpState::init) error = to_init(qp, r);
    if (qp.state == QpState::init && to == QpState::rtr) error = to_receive(qp, r);
    if (!error) qp.state = to;
    return error;
}

int query_dct(Qp& qp, ib_uverbs_query_qp_resp* r) {
    if (qp.state != QpState::rtr) return EINVAL;
    SIM_COMMAND_OF(command, query_dct, gda::prm::MLX5_CMD_OP_QUERY_DCT);
    GDA_SET(query_dct_in, command.in, dctn, qp.qpn);
    if (int error = execute(command)) return error;
#define SIM_OF_DCTC(FIELD) GDA_GET(query_dct_out, command.out, dct_context_entry.FIELD)
    r->qp_state = r->cur_qp_state = static_cast<uint8_t>(qp.state);
    r->qp_access_flags = (SIM_OF_DCTC(rre) ? IB_UVERBS_ACCESS_REMOTE_READ : 0) |
                         (SIM_OF_DCTC(rwe) ? IB_UVERBS_ACCESS_REMOTE_WRITE : 0) |
                         (SIM_OF_DCTC(rae) ? IB_UVERBS_ACCESS_REMOTE_ATOMIC : 0);
    r->port_num = static_cast<uint8_t>(SIM_OF_DCTC(port));
    r->pkey_index = static_cast<uint16_t>(SIM_OF_DCTC(pkey_index));
    r->min_rnr_timer = static_cast<uint8_t>(SIM_OF_DCTC(min_rnr_nak));
    r->path_mtu = static_cast<uint8_t>(SIM_OF_DCTC(mtu));
    r->dest.traffic_class = static_cast<uint8_t>(SIM_OF_DCTC(tclass));
    r->dest.flow_label = static_cast<uint32_t>(SIM_OF_DCTC(flow_label));
    r->dest.sgid_index = static_cast<uint8_t>(SIM_OF_DCTC(my_addr_index));
    r->dest.hop_limit = static_cast<uint8_t>(SIM_OF_DCTC(hop_limit));
    r->dest.is_global = 1;
    r->dest.port_num = r->port_num;
    return 0;
}

int destroy_dct(Qp& qp) {
    if (!qp.qpn) return 0;
    SIM_COMMAND_OF(drain, drain_dct, gda::prm::MLX5_CMD_OP_DRAIN_DCT);
    GDA_SET(drain_dct_in, drain.in, dctn, qp.qpn);
    int error = execute(drain);
    if (error && error != ENODEV) return error;
    SIM_COMMAND_OF(command, destroy_dct, gda::prm::MLX5_CMD_OP_DESTROY_DCT);
    GDA_SET(destroy_dct_in, command.in, dctn, qp.qpn);
    error = execute(command);
    if (error && error != ENODEV) return error;
    qp.asynchronous_reported = events::remove_qp(qp.qpn).asynchronous;
    return 0;
}

}  // namespace sim::uverbs
