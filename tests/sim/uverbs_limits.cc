// SPDX-License-Identifier: Apache-2.0
// Resource limits: as many objects as the device says can be made, one more is refused as mlx5 refuses it, and when
// they are gone there is room again. One check per run, named by the first argument; run by test_uverbs.py under the
// preload library. Exit status 0: as expected.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gda/formats/command.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <vector>

#include "objects.h"

namespace {

using namespace gda::prm;

constexpr int at_once = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
alignas(4096) uint8_t page[8192];

ibv_context* context;
ibv_device_attr device;
ibv_pd* pd;
ibv_cq* cq;

void set_up() {
    ibv_device** list = ibv_get_device_list(nullptr);
    EXPECT(list && list[0]);
    mlx5dv_context_attr attributes = {};
    attributes.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    EXPECT(context = mlx5dv_open_device(list[0], &attributes));
    ibv_free_device_list(list);
    EXPECT(ibv_query_device(context, &device) == 0);
    EXPECT(pd = ibv_alloc_pd(context));
    EXPECT(cq = ibv_create_cq(context, 16, nullptr, nullptr, 0));
}

void tear_down() {
    EXPECT(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    EXPECT(objects() == 0);
}

// Makes objects until one is refused: exactly `most` there must be, and the refusal says ENOMEM, also through DEVX,
// where the firmware's status says it. Then there is room for one when one has gone, and for all when all have.
template <typename Thing>
void walk(size_t most, const std::function<Thing*()>& make, const std::function<int(Thing*)>& end) {
    std::vector<Thing*> all;
    all.reserve(most + 1);
    const uint64_t before = objects();
    for (int round = 0; round < 2; ++round) {
        // Once up to the limit; the second time, to see that nothing was left behind, a few.
        const size_t wanted = round == 0 ? most + 1 : 10;
        Thing* thing = nullptr;
        while (all.size() < wanted && (errno = 0, thing = make())) all.push_back(thing);
        if (round == 0) {
            const int error = errno;
            if (all.size() != most || error != ENOMEM)
                fprintf(stderr, "%zu made of %zu, errno %d\n", all.size(), most, error);
            EXPECT(all.size() == most && error == ENOMEM);
            EXPECT(end(all.back()) == 0);
            EXPECT(all.back() = make());
            errno = 0;
            EXPECT(!make() && errno == ENOMEM);
        }
        EXPECT(all.size() == (round == 0 ? most : wanted));
        for (Thing* each : all) EXPECT(end(each) == 0);
        all.clear();
        EXPECT(objects() == before);
    }
}

struct Capabilities {
    Capabilities() {
        GDA_SET(query_hca_cap_in, in, opcode, MLX5_CMD_OP_QUERY_HCA_CAP);
        GDA_SET(query_hca_cap_in, in, op_mod, HCA_CAP_GENERAL * 2 + 1);
        EXPECT(mlx5dv_devx_general_cmd(context, in, sizeof in, out, sizeof out) == 0);
    }
    const uint8_t* at() const { return out + GDA_BYTE_OFFSET(query_hca_cap_out, capability); }
    uint8_t in[GDA_BYTES_OF(query_hca_cap_in)] = {}, out[GDA_BYTES_OF(query_hca_cap_out)] = {};
};

void domains() {
    walk<ibv_pd>(static_cast<size_t>(device.max_pd) - 1, [] { return ibv_alloc_pd(context); }, ibv_dealloc_pd);
}

void xrc_domains() {
    const auto make = [] {
        ibv_xrcd_init_attr init = {};
        init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        init.fd = -1;
        init.oflags = O_CREAT;
        return ibv_open_xrcd(context, &init);
    };
    walk<ibv_xrcd>(size_t{1} << GDA_GET(cmd_hca_cap, Capabilities().at(), log_max_xrcd), make, ibv_close_xrcd);
}

ibv_qp* make_queue_pair(uint32_t send_pieces, uint32_t receive_pieces, uint32_t inline_bytes) {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = init.cap.max_recv_wr = 1;
    init.cap.max_send_sge = send_pieces;
    init.cap.max_recv_sge = receive_pieces;
    init.cap.max_inline_data = inline_bytes;
    return ibv_create_qp(pd, &init);
}

void queue_pairs() {
    // The driver's library keeps every doorbell page that it once asked for: it gets them all before.
    std::vector<ibv_qp*> first;
    for (int i = 0; i < 4096; ++i) {
        first.push_back(make_queue_pair(1, 1, 0));
        EXPECT(first.back());
    }
    for (ibv_qp* qp : first) EXPECT(ibv_destroy_qp(qp) == 0);
    walk<ibv_qp>(static_cast<size_t>(device.max_qp), [] { return make_queue_pair(1, 1, 0); }, ibv_destroy_qp);
}

void completion_queues() {
    walk<ibv_cq>(
        static_cast<size_t>(device.max_cq) - 1, [] { return ibv_create_cq(context, 1, nullptr, nullptr, 0); },
        ibv_destroy_cq);
}

void shared_receive_queues() {
    const auto make = [] {
        ibv_srq_init_attr init = {};
        init.attr.max_wr = init.attr.max_sge = 1;
        return ibv_create_srq(pd, &init);
    };
    walk<ibv_srq>(static_cast<size_t>(device.max_srq), make, ibv_destroy_srq);
}

// Regions and windows are keys: one table for both.
void regions() {
    walk<ibv_mr>(static_cast<size_t>(device.max_mr), [] { return ibv_reg_mr(pd, page, 64, at_once); }, ibv_dereg_mr);
}

void windows() {
    EXPECT(device.max_mw == device.max_mr);
    ibv_mr* mr = ibv_reg_mr(pd, page, 64, at_once);
    EXPECT(mr);
    walk<ibv_mw>(
        static_cast<size_t>(device.max_mw) - 1, [] { return ibv_alloc_mw(pd, IBV_MW_TYPE_2); }, ibv_dealloc_mw);
    EXPECT(ibv_dereg_mr(mr) == 0);
}

// How many the firmware's capabilities announce; the two queues of verbs have their rings and records in umems, too.
void umems() {
    const size_t held = 2;  // of the completion queue
    walk<mlx5dv_devx_umem>((size_t{1} << GDA_GET(cmd_hca_cap, Capabilities().at(), log_max_umem)) - held,
                           [] { return mlx5dv_devx_umem_reg(context, page, 64, IBV_ACCESS_LOCAL_WRITE); },
                           mlx5dv_devx_umem_dereg);
}

uint32_t number_of(ibv_pd* of) {
    mlx5dv_pd driver = {};
    mlx5dv_obj object = {};
    object.pd.in = of;
    object.pd.out = &driver;
    EXPECT(mlx5dv_init_obj(&object, MLX5DV_OBJ_PD) == 0);
    return driver.pdn;
}

// What a refused command says, as the errno that a call of verbs would have had.
mlx5dv_devx_obj* create(const void* in, size_t in_bytes, uint8_t* out, size_t out_bytes) {
    mlx5dv_devx_obj* object = mlx5dv_devx_obj_create(context, in, in_bytes, out, out_bytes);
    if (object) return object;
    EXPECT(errno == EREMOTEIO && GDA_GET(create_qp_out, out, status) == MLX5_CMD_STAT_LIM_ERR);
    errno = ENOMEM;
    return nullptr;
}

// By commands: sets of counters, keys, and queue pairs that share one ring. They count with those of verbs.
void objects_by_command() {
    walk<mlx5dv_devx_obj>(
        GDA_GET(cmd_hca_cap, Capabilities().at(), max_qp_cnt),
        [] {
            COMMAND(alloc_q_counter, MLX5_CMD_OP_ALLOC_Q_COUNTER);
            return create(in, sizeof in, out, sizeof out);
        },
        mlx5dv_devx_obj_destroy);
    const uint32_t pdn = number_of(pd);
    ibv_mr* mr = ibv_reg_mr(pd, page, 64, at_once);
    EXPECT(mr);
    walk<mlx5dv_devx_obj>(
        static_cast<size_t>(device.max_mr) - 1,
        [pdn] {
            COMMAND(create_mkey, MLX5_CMD_OP_CREATE_MKEY);
            GDA_SET(create_mkey_in, in, memory_key_mkey_entry.access_mode_1_0, MKC_ACCESS_MODE_PA);
            GDA_SET(create_mkey_in, in, memory_key_mkey_entry.length64, 1);
            GDA_SET(create_mkey_in, in, memory_key_mkey_entry.qpn, 0xffffff);
            GDA_SET(create_mkey_in, in, memory_key_mkey_entry.pd, pdn);
            return create(in, sizeof in, out, sizeof out);
        },
        mlx5dv_devx_obj_destroy);
    EXPECT(ibv_dereg_mr(mr) == 0);

    mlx5dv_cq driver_cq = {};
    mlx5dv_obj object = {};
    object.cq.in = cq;
    object.cq.out = &driver_cq;
    EXPECT(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
    mlx5dv_devx_uar* uar = mlx5dv_devx_alloc_uar(context, MLX5DV_UAR_ALLOC_TYPE_NC);
    mlx5dv_devx_umem* umem = mlx5dv_devx_umem_reg(context, page, sizeof page, IBV_ACCESS_LOCAL_WRITE);
    ibv_qp* of_verbs = make_queue_pair(1, 1, 0);
    EXPECT(uar && umem && of_verbs);
    walk<mlx5dv_devx_obj>(
        static_cast<size_t>(device.max_qp) - 1,
        [&] {
            COMMAND(create_qp, MLX5_CMD_OP_CREATE_QP);
            GDA_SET(create_qp_in, in, qpc.st, MLX5_QPC_ST_RC);
            GDA_SET(create_qp_in, in, qpc.pm_state, MLX5_QPC_PM_STATE_MIGRATED);
            GDA_SET(create_qp_in, in, qpc.pd, pdn);
            GDA_SET(create_qp_in, in, qpc.rq_type, RQ_TYPE_ZERO_SIZE);
            GDA_SET(create_qp_in, in, qpc.uar_page, uar->page_id);
            GDA_SET(create_qp_in, in, qpc.cqn_snd, driver_cq.cqn);
            GDA_SET(create_qp_in, in, qpc.cqn_rcv, driver_cq.cqn);
            GDA_SET(create_qp_in, in, qpc.dbr_umem_valid, 1);
            GDA_SET(create_qp_in, in, qpc.dbr_umem_id, umem->umem_id);
            GDA_SET(create_qp_in, in, qpc.dbr_addr, 4096);
            GDA_SET(create_qp_in, in, wq_umem_valid, 1);
            GDA_SET(create_qp_in, in, wq_umem_id, umem->umem_id);
            return create(in, sizeof in, out, sizeof out);
        },
        mlx5dv_devx_obj_destroy);
    EXPECT(ibv_destroy_qp(of_verbs) == 0 && mlx5dv_devx_umem_dereg(umem) == 0);
    mlx5dv_devx_free_uar(uar);
}

// Elements of one work request. The driver's library knows the largest WQE: the last that fits is found here, and the
// device makes a queue pair with it; one more is EINVAL.
uint32_t largest(const std::function<ibv_qp*(uint32_t)>& make) {
    uint32_t fits = 1, too_many = 4096;
    while (too_many - fits > 1) {
        const uint32_t n = (fits + too_many) / 2;
        errno = 0;
        ibv_qp* qp = make(n);
        if (qp) EXPECT(ibv_destroy_qp(qp) == 0);
        if (!qp) EXPECT(errno == EINVAL);
        (qp ? fits : too_many) = n;
    }
    return fits;
}

void elements() {
    const uint32_t send = largest([](uint32_t n) { return make_queue_pair(n, 1, 0); });
    const uint32_t receive = largest([](uint32_t n) { return make_queue_pair(1, n, 0); });
    const uint32_t in_line = largest([](uint32_t n) { return make_queue_pair(1, 1, n); });
    const uint32_t room_bytes = 1024, receive_bytes = 512, piece_bytes = 16;  // WQEs of either kind, a data segment
    EXPECT(receive == receive_bytes / piece_bytes);
    EXPECT(send >= static_cast<uint32_t>(device.max_sge) && send < room_bytes / piece_bytes);
    EXPECT(receive >= static_cast<uint32_t>(device.max_sge));
    EXPECT(in_line > room_bytes / 2 && in_line < room_bytes);
    // All of it in one: connected to itself, the longest inline payload and the longest list are really sent.
    ibv_qp* qp = make_queue_pair(send, receive, in_line);
    EXPECT(qp);
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    EXPECT(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = qp->qp_num;
    a.ah_attr.is_global = a.ah_attr.port_num = a.ah_attr.grh.sgid_index = 1;
    EXPECT(ibv_query_gid(context, 1, 1, &a.ah_attr.grh.dgid) == 0);
    EXPECT(ibv_modify_qp(qp, &a,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14, a.retry_cnt = 7, a.rnr_retry = 7;
    EXPECT(ibv_modify_qp(qp, &a,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    ibv_mr* mr = ibv_reg_mr(pd, page, sizeof page, at_once);
    EXPECT(mr);
    const auto at = reinterpret_cast<uint64_t>(page);
    const auto write = [&](std::vector<ibv_sge> list, uint32_t bytes, unsigned flags) {
        for (uint32_t i = 0; i < bytes; ++i) page[i] = static_cast<uint8_t>(i * 7 + bytes), page[4096 + i] = 0;
        ibv_send_wr wr = {}, *bad;
        wr.sg_list = list.data();
        wr.num_sge = static_cast<int>(list.size());
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = flags | IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = at + 4096;
        wr.wr.rdma.rkey = mr->rkey;
        if (int error = ibv_post_send(qp, &wr, &bad)) return error;
        ibv_wc wc = {};
        while (ibv_poll_cq(cq, 1, &wc) == 0) continue;
        EXPECT(wc.status == IBV_WC_SUCCESS && memcmp(page, page + 4096, bytes) == 0);
        return 0;
    };
    EXPECT(write({{at, in_line, 0}}, in_line, IBV_SEND_INLINE) == 0);
    std::vector<ibv_sge> list;
    for (uint32_t i = 0; i < send; ++i) list.push_back({at + i * 5, 5, mr->lkey});
    EXPECT(write(list, send * 5, 0) == 0);
    EXPECT(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
}

}  // namespace

int main(int count, char** arguments) {
    const struct {
        const char* name;
        void (*check)();
    } checks[] = {{"domains", domains},
                  {"xrc_domains", xrc_domains},
                  {"queue_pairs", queue_pairs},
                  {"completion_queues", completion_queues},
                  {"shared_receive_queues", shared_receive_queues},
                  {"regions", regions},
                  {"windows", windows},
                  {"umems", umems},
                  {"objects_by_command", objects_by_command},
                  {"elements", elements}};
    for (const auto& c : checks) {
        if (count != 2 || strcmp(c.name, arguments[1]) != 0) continue;
        set_up();
        c.check();
        tear_down();
        return 0;
    }
    fprintf(stderr, "usage: %s CHECK\n", arguments[0]);
    return 2;
}
