// SPDX-License-Identifier: Apache-2.0
// A queue pair as the driver keeps it: what it must know to build the next firmware command. The card's own state may
// be ahead (it moves to the error state by itself); the card then refuses what the driver still thinks possible.
#pragma once

#include <gda/formats/command.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "sim/uverbs/events.h"
#include "sim/uverbs/objects.h"

namespace sim::uverbs {

class Context;

// enum ib_qp_state and enum ib_qp_attr_mask: IBTA's and libibverbs' numbers, not in the ABI headers.
enum class QpState : uint8_t { reset = 0, init = 1, rtr = 2, rts = 3, sqd = 4, sqe = 5, err = 6 };
namespace qp_attr {
constexpr uint32_t state = 1u << 0, cur_state = 1u << 1, en_sqd_async_notify = 1u << 2, access_flags = 1u << 3,
                   pkey_index = 1u << 4, port = 1u << 5, qkey = 1u << 6, av = 1u << 7, path_mtu = 1u << 8,
                   timeout = 1u << 9, retry_cnt = 1u << 10, rnr_retry = 1u << 11, rq_psn = 1u << 12,
                   max_qp_rd_atomic = 1u << 13, alt_path = 1u << 14, min_rnr_timer = 1u << 15, sq_psn = 1u << 16,
                   max_dest_rd_atomic = 1u << 17, path_mig_state = 1u << 18, cap = 1u << 19, dest_qpn = 1u << 20,
                   rate_limit = 1u << 25;
}  // namespace qp_attr

// What a queue pair is: its verbs type, and of the driver's own type which one.
enum class Service : uint8_t { rc, uc, ud, xrc_initiator, xrc_target, dc_initiator, dc_target };

class Qp : public Object {
   public:
    static constexpr Type kind = Type::qp;
    Qp() : Object(kind) {}
    int destroy() override;
    Object** more_bases() override { return queues; }  // behind the PD
    // Its state and the commands about it: of a receiving end of XRC all that opened it share one. To be used under
    // hold(), which locks that one and nothing else.
    Qp& real();
    std::unique_lock<std::mutex> hold();

    std::shared_ptr<XrcTarget> target;  // of the receiving end of XRC

    Object* queues[MORE_BASES] = {};  // of completions and receives
    Umem rings, record;
    uint32_t qpn = 0;  // 0: a target of dynamically connected queue pairs before RTR, when the card makes it
    Service service = Service::rc;
    QpState state = QpState::reset;
    uint32_t receive_entries = 0, receive_segments = 0, max_inline = 0;
    bool signal_all = false;
    uint32_t access = 0;                 // IB_UVERBS_ACCESS_*, last asked for
    uint32_t responder_depth = 0;        // max_dest_rd_atomic, last asked for
    uint32_t asynchronous_reported = 0;  // filled in by destroy()
    // A target of dynamically connected ones: the command that makes it, filled in by the moves, and its event channel.
    uint8_t create_dct[GDA_BYTES_OF(create_dct_in)] = {};
    events::Listener listener;
};

// The receiving end of XRC itself. It ends with the last queue pair that stands for it.
struct XrcTarget {
    explicit XrcTarget(int nic) : nic(nic) {}
    ~XrcTarget();
    const int nic;
    std::mutex lock;
    Qp qp;  // in no context
};
// Gives a context a queue pair that stands for it: its handle.
uint32_t share(Context& context, Xrcd* xrcd, std::shared_ptr<XrcTarget> target, events::Listener listener);

// dct.cc: the same for a target of dynamically connected queue pairs.
struct DctParts {
    Pd* pd;
    Cq* cq;
    Srq* srq;
};
void begin_dct(Qp& qp, const DctParts& parts, const mlx5_ib_create_qp& driver);
int modify_dct(Qp& qp, const ib_uverbs_modify_qp& request);
int query_dct(Qp& qp, ib_uverbs_query_qp_resp* answer);
int destroy_dct(Qp& qp);

// qp_modify.cc: the values of a request that Linux checks before the card sees them.
bool valid_values(const ib_uverbs_modify_qp& request);

// qp_modify.cc: one transition, checked as the kernel checks it. 0 or an errno; nothing changes on an error.
int modify_qp(Qp& qp, const ib_uverbs_modify_qp& request);

}  // namespace sim::uverbs
