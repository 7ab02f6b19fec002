// SPDX-License-Identifier: Apache-2.0
// A target of dynamically connected queue pairs through the verbs, as NVSHMEM makes it. For uverbs_gpu_initiator.cc.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "cuda_as_found.h"

namespace {

constexpr uint32_t target_receives = 16384;
constexpr uint64_t access_key = 0x5623ceaf;

struct Target {
    ibv_pd* pd;
    ibv_srq* srq;
    ibv_cq *send_cq, *receive_cq;
    ibv_qp* qp;
};

// The target of dynamically connected queue pairs, which are made whether or not connected ones carry the data.
void create_target(Target* t, ibv_context* context, ibv_pd* pd, const union ibv_gid& own) {
    ibv_parent_domain_init_attr domain = {};
    domain.pd = pd;
    EXPECT(t->pd = ibv_alloc_parent_domain(context, &domain));
    ibv_srq_init_attr shared = {};
    shared.attr.max_wr = target_receives;
    shared.attr.max_sge = 1;
    EXPECT(t->srq = ibv_create_srq(t->pd, &shared));
    EXPECT(t->send_cq = ibv_create_cq(context, target_receives, nullptr, nullptr, 0));
    EXPECT(t->receive_cq = ibv_create_cq(context, target_receives, nullptr, nullptr, 0));
    ibv_qp_init_attr_ex attributes = {};
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.qp_type = IBV_QPT_DRIVER;
    attributes.pd = t->pd;
    attributes.srq = t->srq;
    attributes.send_cq = t->send_cq;
    attributes.recv_cq = t->receive_cq;
    attributes.cap = {1024, 1024, 1, 1, 256};
    mlx5dv_qp_init_attr driver = {};
    driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    driver.dc_init_attr.dct_access_key = access_key;
    EXPECT(t->qp = mlx5dv_create_qp(context, &attributes, &driver));
    ibv_qp_attr to = {};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    EXPECT(ibv_modify_qp(t->qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    to = {};
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_4096;
    to.min_rnr_timer = 12;
    to.ah_attr.is_global = to.ah_attr.port_num = to.ah_attr.grh.sgid_index = 1;
    to.ah_attr.grh.dgid = own;
    to.ah_attr.grh.hop_limit = 255;
    EXPECT(ibv_modify_qp(t->qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER) == 0);
    EXPECT(t->qp->qp_num != 0);
}

void destroy_target(Target* t) {
    EXPECT(ibv_destroy_qp(t->qp) == 0 && ibv_destroy_cq(t->send_cq) == 0 && ibv_destroy_cq(t->receive_cq) == 0);
    EXPECT(ibv_destroy_srq(t->srq) == 0 && ibv_dealloc_pd(t->pd) == 0);
}

}  // namespace
