// SPDX-License-Identifier: Apache-2.0
// Queue pairs: QP_CREATE, QUERY_QP, DESTROY_QP. MODIFY_QP's rules are in qp_modify.cc.
#include "sim/uverbs/qp.h"

#include <errno.h>
#include <gda/formats/wqe.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include "sim/uverbs/context.h"
#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/events.h"
#include "sim/uverbs/nic.h"

namespace sim::uverbs {

int Qp::destroy() {
    if (target) {
        asynchronous_reported = events::remove_qp(qpn, listener.user_handle).asynchronous;
        target.reset();
        return 0;
    }
    if (service == Service::dc_target) return destroy_dct(*this);
    SIM_COMMAND_OF(command, destroy_qp, gda::prm::MLX5_CMD_OP_DESTROY_QP);
    GDA_SET(destroy_qp_in, command.in, qpn, qpn);
    const int error = execute(command);
    if (error && error != ENODEV) return error;
    asynchronous_reported = events::remove_qp(qpn).asynchronous;
    rings.release();
    record.release();
    return 0;
}

Qp& Qp::real() { return target ? target->qp : *this; }
std::unique_lock<std::mutex> Qp::hold() {
    return target ? std::unique_lock<std::mutex>(target->lock) : std::unique_lock<std::mutex>();
}

XrcTarget::~XrcTarget() {
    const Nic::Use use(nic);
    if (qp.qpn) qp.destroy();
}

uint32_t share(Context& context, Xrcd* xrcd, std::shared_ptr<XrcTarget> target, events::Listener listener) {
    auto qp = std::make_unique<Qp>();
    qp->service = Service::xrc_target;
    qp->qpn = target->qp.qpn;
    qp->target = std::move(target);
    qp->listener.user_handle = listener.user_handle;
    events::add_qp(qp->qpn, std::move(listener));
    return context.objects.add(std::move(qp), {xrcd});
}

namespace qp {
namespace {

constexpr uint32_t doorbell_record_bytes = GDA_BYTES_OF(qp_doorbell_record);
constexpr uint32_t block_bytes = gda::prm::WQE_BASIC_BLOCK_BYTES, segment_bytes = gda::prm::WQE_SEGMENT_BYTES;
// Permissions and hints that change nothing here: the NIC never scatters payload into CQEs.
constexpr uint32_t ignored_flags =
    MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE;

// False: a type this NIC does not have (raw packets).
bool service_of(uint64_t type, uint32_t* flags, Service* service) {
    constexpr uint32_t own_types = MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI;
    const uint32_t own = *flags & own_types;
    if ((type == IB_UVERBS_QPT_DRIVER) != (own != 0) || own == own_types) return false;
    *flags &= ~own_types;
    switch (type) {
        case IB_UVERBS_QPT_RC:
            return *service = Service::rc, true;
        case IB_UVERBS_QPT_UC:
            return *service = Service::uc, true;
        case IB_UVERBS_QPT_UD:
            return *service = Service::ud, true;
        case IB_UVERBS_QPT_XRC_INI:
            return *service = Service::xrc_initiator, true;
        case IB_UVERBS_QPT_XRC_TGT:
            return *service = Service::xrc_target, true;
        case IB_UVERBS_QPT_DRIVER:
            return *service = own == MLX5_QP_FLAG_TYPE_DCT ? Service::dc_target : Service::dc_initiator, true;
        default:
            return false;
    }
}

uint32_t transport_of(Service service) {
    switch (service) {
        case Service::uc:
            return gda::prm::MLX5_QPC_ST_UC;
        case Service::ud:
            return gda::prm::MLX5_QPC_ST_UD;
        case Service::xrc_initiator:
        case Service::xrc_target:
            return gda::prm::MLX5_QPC_ST_XRC;
        case Service::dc_initiator:
            return gda::prm::MLX5_QPC_ST_DCI;
        default:
            return gda::prm::MLX5_QPC_ST_RC;
    }
}

bool power_of_two(uint32_t n) { return n && !(n & (n - 1)); }
uint32_t log2(uint32_t power) { return static_cast<uint32_t>(__builtin_ctz(power)); }

// The rings in one buffer: receive queue first, then the send queue.
int fill_rings(Qp& qp, const mlx5_ib_create_qp& driver, bool wants_receive, const Srq* srq, uint8_t* in) {
    const Limits& l = Nic::limits();
    uint64_t receive_bytes = 0;
    if (srq) {
        GDA_SET(create_qp_in, in, qpc.rq_type, gda::prm::RQ_TYPE_SRQ);
        GDA_SET(create_qp_in, in, qpc.srqn_rmpn_xrqn, srq->srqn);
    } else if (wants_receive) {
        if (!power_of_two(driver.rq_wqe_count) || driver.rq_wqe_count > 1u << l.log_max_qp_size) return EINVAL;
        if (driver.rq_wqe_shift < log2(segment_bytes) || 1ull << driver.rq_wqe_shift > l.max_receive_wqe) return EINVAL;
        receive_bytes = uint64_t{driver.rq_wqe_count} << driver.rq_wqe_shift;
        qp.receive_entries = driver.rq_wqe_count;
        qp.receive_segments = (1u << driver.rq_wqe_shift) / segment_bytes;
        GDA_SET(create_qp_in, in, qpc.rq_type, gda::prm::RQ_TYPE_REGULAR);
        GDA_SET(create_qp_in, in, qpc.log_rq_size, log2(driver.rq_wqe_count));
        GDA_SET(create_qp_in, in, qpc.log_rq_stride, driver.rq_wqe_shift - log2(segment_bytes));
    } else {
        GDA_SET(create_qp_in, in, qpc.rq_type, gda::prm::RQ_TYPE_ZERO_SIZE);
    }
    if (driver.sq_wqe_count) {
        if (!power_of_two(driver.sq_wqe_count) || driver.sq_wqe_count > 1u << l.log_max_qp_size) return EINVAL;
        GDA_SET(create_qp_in, in, qpc.log_sq_size, log2(driver.sq_wqe_count));
    } else {
        GDA_SET(create_qp_in, in, qpc.no_sq, 1);
    }
    const uint64_t bytes = receive_bytes + uint64_t{driver.sq_wqe_count} * block_bytes;
    if (bytes) {
        if (int error = qp.rings.reserve(driver.buf_addr, bytes)) return error;
        GDA_SET(create_qp_in, in, wq_umem_valid, 1);
        GDA_SET(create_qp_in, in, wq_umem_id, qp.rings.id());
        GDA_SET(create_qp_in, in, wq_umem_offset, 0);
    }
    if (int error = qp.record.reserve(driver.db_addr, doorbell_record_bytes)) return error;
    GDA_SET(create_qp_in, in, qpc.dbr_umem_valid, 1);
    GDA_SET(create_qp_in, in, qpc.dbr_umem_id, qp.record.id());
    GDA_SET(create_qp_in, in, qpc.dbr_addr, 0);
    return 0;
}

// A target of dynamically connected queue pairs: only remembered, until it is moved to RTR.
int create_target(Context& context, Request& request, const DctParts& parts, const mlx5_ib_create_qp& driver,
                  events::Listener listener) {
    auto qp = std::make_unique<Qp>();
    qp->service = Service::dc_target;
    qp->listener = std::move(listener);
    begin_dct(*qp, parts, driver);
    driver_part(request).answer_driver(mlx5_ib_create_qp_resp{});
    request.answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qp->qpn);
    request.answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, ib_uverbs_qp_cap{});
    request.set_handle(UVERBS_ATTR_CREATE_QP_HANDLE,
                       context.objects.add(std::move(qp), {parts.pd, parts.cq, parts.srq}));
    return 0;
}

// The receiving end of XRC: it has no memory of its own, and no protection domain.
int create_xrc_target(Context& context, Request& request, events::Listener listener) {
    auto* xrcd = context.objects.find<Xrcd>(request.handle(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE));
    if (!xrcd) return EINVAL;
    auto target = std::make_shared<XrcTarget>(Nic::current());
    SIM_COMMAND_OF(firmware, create_qp, gda::prm::MLX5_CMD_OP_CREATE_QP);
    uint8_t* in = firmware.in;
    GDA_SET(create_qp_in, in, qpc.st, gda::prm::MLX5_QPC_ST_XRC);
    GDA_SET(create_qp_in, in, qpc.pm_state, gda::prm::MLX5_QPC_PM_STATE_MIGRATED);
    GDA_SET(create_qp_in, in, qpc.xrcd, xrcd->number());
    GDA_SET(create_qp_in, in, qpc.rq_type, gda::prm::RQ_TYPE_ZERO_SIZE);
    GDA_SET(create_qp_in, in, qpc.no_sq, 1);
    GDA_SET(create_qp_in, in, qpc.uar_page, 0xffffff);  // none
    if (int error = execute(firmware)) return error;
    target->qp.qpn = static_cast<uint32_t>(GDA_GET(create_qp_out, firmware.out, qpn));
    target->qp.service = Service::xrc_target;
    xrcd->add(target);
    driver_part(request).answer_driver(mlx5_ib_create_qp_resp{});
    request.answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, target->qp.qpn);
    request.answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, ib_uverbs_qp_cap{});
    request.set_handle(UVERBS_ATTR_CREATE_QP_HANDLE, share(context, xrcd, std::move(target), std::move(listener)));
    return 0;
}

}  // namespace

int create(Context& context, Request& request) {
    const WriteCommand command = driver_part(request);
    auto driver = command.driver<mlx5_ib_create_qp>();
    const Limits& l = Nic::limits();
    const auto type = request.constant(UVERBS_ATTR_CREATE_QP_TYPE);
    const auto flags = request.value<uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS);
    const auto limits = request.value<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP);
    Service service;
    if (!type || !service_of(*type, &driver.flags, &service)) return EOPNOTSUPP;
    // A NIC without multicast never hears itself.
    const uint32_t known =
        IB_UVERBS_QP_CREATE_SQ_SIG_ALL | (type == IB_UVERBS_QPT_UD ? IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK : 0);
    if (flags & ~known) return EOPNOTSUPP;
    if (request.has(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE) || request.has(UVERBS_ATTR_CREATE_QP_SOURCE_QPN))
        return EOPNOTSUPP;
    const bool streams = driver.flags & MLX5_QP_FLAG_DCI_STREAM;
    if (driver.flags & ~(ignored_flags | MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_DCI_STREAM)) return EOPNOTSUPP;
    if (streams && service != Service::dc_initiator) return EINVAL;
    events::Listener listener;
    listener.user_handle = request.value<uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
    if (int error = context.event_channel(request, UVERBS_ATTR_CREATE_QP_EVENT_FD, &listener.asynchronous))
        return error;
    if (service == Service::xrc_target) return create_xrc_target(context, request, std::move(listener));
    if (limits.max_send_wr > 1u << l.log_max_qp_size || limits.max_recv_wr > 1u << l.log_max_qp_size) return EINVAL;
    auto* pd = context.objects.find<Pd>(request.handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE));
    auto* send = context.objects.find<Cq>(request.handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE));
    auto* receive = context.objects.find<Cq>(request.handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE));
    if (service == Service::xrc_initiator && !receive) receive = send;  // it receives nothing
    if (!pd || !send || !receive) return EINVAL;
    Srq* srq = nullptr;
    if (request.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)) {
        srq = context.objects.find<Srq>(request.handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE));
        if (!srq || service == Service::uc || service == Service::xrc_initiator) return EINVAL;
    }
    if (service == Service::dc_target) {
        if (!srq) return EINVAL;
        return create_target(context, request, {pd, receive, srq}, driver, std::move(listener));
    }
    if (!(driver.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX)) return EINVAL;  // there are no static doorbell pages
    const bool receives =
        limits.max_recv_wr != 0 && service != Service::xrc_initiator && service != Service::dc_initiator;

    auto qp = std::make_unique<Qp>();
    SIM_COMMAND_OF(firmware, create_qp, gda::prm::MLX5_CMD_OP_CREATE_QP);
    uint8_t* in = firmware.in;
    GDA_SET(create_qp_in, in, qpc.st, transport_of(service));
    GDA_SET(create_qp_in, in, qpc.pm_state, gda::prm::MLX5_QPC_PM_STATE_MIGRATED);
    GDA_SET(create_qp_in, in, qpc.pd, pd->pdn);
    GDA_SET(create_qp_in, in, qpc.cqn_snd, send->cqn);
    GDA_SET(create_qp_in, in, qpc.cqn_rcv, receive->cqn);
    GDA_SET(create_qp_in, in, qpc.uar_page, driver.bfreg_index);
    GDA_SET(create_qp_in, in, qpc.user_index, driver.uidx);
    if (streams) {
        GDA_SET(create_qp_in, in, qpc.log_num_dci_stream_channels, driver.dci_streams.log_num_concurent);
        GDA_SET(create_qp_in, in, qpc.log_num_dci_errored_streams, driver.dci_streams.log_num_errored);
    }
    if (int error = fill_rings(*qp, driver, receives, srq, in)) return error;
    if (int error = execute(firmware)) return error;
    qp->qpn = static_cast<uint32_t>(GDA_GET(create_qp_out, firmware.out, qpn));
    if (const Nic nic; nic) nic->set_through_libibverbs(qp->qpn);
    qp->signal_all = flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
    qp->service = service;
    qp->max_inline = limits.max_inline_data;
    events::add_qp(qp->qpn, std::move(listener));

    const mlx5_ib_create_qp_resp driver_response{};  // bfreg_index 0: the page was the program's own choice
    command.answer_driver(driver_response);
    request.answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qp->qpn);
    request.answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, limits);
    request.set_handle(UVERBS_ATTR_CREATE_QP_HANDLE, context.objects.add(std::move(qp), {pd, send, receive, srq}));
    return 0;
}

namespace {

QpState state_of(uint64_t prm) {
    switch (prm) {
        case gda::prm::MLX5_QPC_STATE_RST:
            return QpState::reset;
        case gda::prm::MLX5_QPC_STATE_INIT:
            return QpState::init;
        case gda::prm::MLX5_QPC_STATE_RTR:
            return QpState::rtr;
        case gda::prm::MLX5_QPC_STATE_RTS:
            return QpState::rts;
        case gda::prm::MLX5_QPC_STATE_SQER:
            return QpState::sqe;
        case gda::prm::MLX5_QPC_STATE_SQD:
            return QpState::sqd;
        default:
            return QpState::err;
    }
}

void read_path(const uint8_t* out, ib_uverbs_qp_dest* path) {
#define SIM_PATH(FIELD) GDA_GET(query_qp_out, out, qpc.primary_address_path.FIELD)
    memcpy(path->dgid, out + GDA_BYTE_OFFSET(query_qp_out, qpc.primary_address_path.rgid_rip), sizeof path->dgid);
    path->flow_label = static_cast<uint32_t>(SIM_PATH(flow_label));
    path->sgid_index = static_cast<uint8_t>(SIM_PATH(src_addr_index));
    path->hop_limit = static_cast<uint8_t>(SIM_PATH(hop_limit));
    path->traffic_class = static_cast<uint8_t>(SIM_PATH(tclass));
    path->sl = static_cast<uint8_t>(SIM_PATH(eth_prio));
    path->is_global = 1;
    path->port_num = static_cast<uint8_t>(SIM_PATH(vhca_port_num));
}

}  // namespace

int query(Context& context, const WriteCommand& command) {
    ib_uverbs_query_qp request;
    if (!command.read(&request)) return ENOSPC;
    auto* qp = context.objects.find<Qp>(request.qp_handle);
    if (!qp) return EINVAL;
    if (qp->service == Service::dc_target) {
        ib_uverbs_query_qp_resp r{};
        if (int error = query_dct(*qp, &r)) return error;
        command.answer(r);
        return 0;
    }
    const auto hold = qp->hold();
    qp = &qp->real();
    SIM_COMMAND_OF(firmware, query_qp, gda::prm::MLX5_CMD_OP_QUERY_QP);
    GDA_SET(query_qp_in, firmware.in, qpn, qp->qpn);
    if (int error = execute(firmware)) return error;
    const uint8_t* out = firmware.out;
#define SIM_QPC(FIELD) static_cast<uint32_t>(GDA_GET(query_qp_out, out, qpc.FIELD))
    qp->state = state_of(SIM_QPC(state));

    ib_uverbs_query_qp_resp r{};
    read_path(out, &r.dest);
    // Send limits are libmlx5's to fill in; the receive limits it takes from here.
    r.max_recv_wr = qp->receive_entries;
    r.max_recv_sge = qp->receive_segments;
    r.max_inline_data = qp->max_inline;
    r.qkey = SIM_QPC(q_key);
    r.rq_psn = SIM_QPC(next_rcv_psn);
    r.sq_psn = SIM_QPC(next_send_psn);
    r.dest_qp_num = SIM_QPC(remote_qpn);
    r.qp_access_flags = (SIM_QPC(rre) ? IB_UVERBS_ACCESS_REMOTE_READ : 0) |
                        (SIM_QPC(rwe) ? IB_UVERBS_ACCESS_REMOTE_WRITE : 0) |
                        (SIM_QPC(rae) ? IB_UVERBS_ACCESS_REMOTE_ATOMIC : 0);
    r.pkey_index = static_cast<uint16_t>(SIM_QPC(primary_address_path.pkey_index));
    r.qp_state = r.cur_qp_state = static_cast<uint8_t>(qp->state);
    r.path_mtu = static_cast<uint8_t>(SIM_QPC(mtu));
    r.path_mig_state = 0;  // IB_MIG_MIGRATED: there is one path
    r.max_rd_atomic = static_cast<uint8_t>(1u << SIM_QPC(log_sra_max));
    r.max_dest_rd_atomic = static_cast<uint8_t>(1u << SIM_QPC(log_rra_max));
    r.min_rnr_timer = static_cast<uint8_t>(SIM_QPC(min_rnr_nak));
    r.port_num = static_cast<uint8_t>(SIM_QPC(primary_address_path.vhca_port_num));
    r.timeout = static_cast<uint8_t>(SIM_QPC(primary_address_path.ack_timeout));
    r.retry_cnt = static_cast<uint8_t>(SIM_QPC(retry_count));
    r.rnr_retry = static_cast<uint8_t>(SIM_QPC(rnr_retry));
    r.sq_sig_all = qp->signal_all;
    command.answer(r);
    return 0;
}

int modify(Context& context, const WriteCommand& command) {
    ib_uverbs_modify_qp request{};  // the extended form begins with it
    if (!command.read(&request)) return ENOSPC;
    auto* qp = context.objects.find<Qp>(request.qp_handle);
    if (!qp) return EINVAL;
    const auto hold = qp->hold();
    qp = &qp->real();
    const bool target = qp->service == Service::dc_target;
    if (int error = target ? modify_dct(*qp, request) : modify_qp(*qp, request)) return error;
    if (command.core_out.bytes) {
        ib_uverbs_ex_modify_qp_resp response{};
        response.response_length = sizeof response;
        command.answer(response);
    }
    mlx5_ib_modify_qp_resp driver{};
    driver.response_length = static_cast<uint32_t>(std::min(sizeof driver, command.driver_out.bytes));
    if (target) driver.dctn = qp->qpn;  // only now it has a number
    command.answer_driver(driver);
    return 0;
}

int destroy(Context& context, const WriteCommand& command) {
    ib_uverbs_destroy_qp request;
    if (!command.read(&request)) return ENOSPC;
    auto* qp = context.objects.find<Qp>(request.qp_handle);
    if (!qp) return EINVAL;
    if (qp->users) return EBUSY;
    if (int error = qp->destroy()) return error;
    const ib_uverbs_destroy_qp_resp response{qp->asynchronous_reported};
    context.objects.forget(qp);
    command.answer(response);
    return 0;
}

}  // namespace qp
}  // namespace sim::uverbs
