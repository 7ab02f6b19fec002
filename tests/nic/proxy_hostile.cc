// SPDX-License-Identifier: Apache-2.0
// The proxy's queue over a device that is played here: requests right and wrong, a device that has no room, refuses,
// fails. Run by test_proxy_hostile.py under AddressSanitizer: rings have exactly their size, so a read beyond is seen.
//
// Of each life of the queue (until a failure, then reset): completions come in the order of the requests, each once,
// every signaled request that was carried out has a good one, and behind the first error there are errors only. With
// the third argument the device speaks iWARP: a good completion then says that an answered read was behind the request.

#include <gda/formats/cqe.h>
#include <gda/formats/doorbell.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>

#include "proxy/life.h"
#include "proxy/queue.h"

using namespace gda::prm;

namespace {

const uint32_t DEPTH = 16, QPN = 0x123;
std::mt19937 rng;
uint32_t chance(uint32_t one_in) { return rng() % one_in == 0; }

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            std::fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
            std::exit(1);                                                              \
        }                                                                              \
    } while (false)

// The device.
struct Posted {
    uint64_t id;
    bool reads;
};
std::deque<Posted> posted;
bool in_error, iwarp;
uint64_t confirmed;  // iWARP: all below this index is in place
uint64_t touched;

int post_send(ibv_qp*, ibv_send_wr* wr, ibv_send_wr** bad) {
    for (; wr; wr = wr->next) {
        const bool full = !posted.empty() && chance(20);
        if (full || chance(400)) {
            *bad = wr;
            return full ? ENOMEM : EINVAL;
        }
        CHECK(wr->send_flags & IBV_SEND_SIGNALED);
        CHECK(wr->num_sge >= 0 && wr->num_sge <= proxy::MOST_PIECES);
        const bool reads = wr->opcode == IBV_WR_RDMA_READ;
        if (iwarp) {
            CHECK(reads || wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_SEND);
            CHECK(!reads || (wr->num_sge == 1 && !(wr->send_flags & IBV_SEND_FENCE)));
            CHECK(reads || wr->next);  // each batch ends with a read
        }
        for (int i = 0; i < wr->num_sge; ++i) {
            if (!(wr->send_flags & IBV_SEND_INLINE)) continue;
            const uint8_t* bytes = reinterpret_cast<const uint8_t*>(wr->sg_list[i].addr);
            for (uint32_t b = 0; b < wr->sg_list[i].length; ++b) touched += bytes[b];
        }
        posted.push_back({wr->wr_id, reads});
    }
    return 0;
}

int post_recv(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return EINVAL; }

int poll_cq(ibv_cq*, int, ibv_wc* wc) {
    if (posted.empty() || chance(2)) return 0;
    *wc = ibv_wc{};
    wc->wr_id = posted.front().id;
    const bool reads = posted.front().reads;
    wc->opcode = reads ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
    posted.pop_front();
    wc->status = in_error ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS;
    if (!in_error && chance(500)) {
        in_error = true;
        wc->status = chance(2) && iwarp ? IBV_WC_WR_FLUSH_ERR : IBV_WC_REM_ACCESS_ERR;
    }
    if (reads && wc->status == IBV_WC_SUCCESS) confirmed = proxy::index_of(wc->wr_id) + 1;
    return 1;
}

}  // namespace

// In libibverbs' place.
extern "C" int ibv_modify_qp(ibv_qp*, ibv_qp_attr* attributes, int) {
    CHECK(attributes->qp_state == IBV_QPS_ERR);
    in_error = true;
    return 0;
}

namespace {

// What a kernel would write at `index`, or what it never would. How many blocks that is.
uint32_t write_request(uint8_t* ring, uint64_t index, bool signaled, bool* changed) {
    static const uint8_t OPCODES[] = {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM,
                                      MLX5_OPCODE_SEND,       MLX5_OPCODE_NOP,        MLX5_OPCODE_RDMA_READ,
                                      MLX5_OPCODE_ATOMIC_FA,  MLX5_OPCODE_ATOMIC_CS};
    alignas(8) uint8_t wqe[1024] = {};
    static const uint8_t OF_IWARP[] = {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_SEND, MLX5_OPCODE_NOP,
                                       MLX5_OPCODE_RDMA_READ};
    const bool all = !iwarp || chance(100);
    const uint8_t one = all ? OPCODES[rng() % sizeof OPCODES] : OF_IWARP[rng() % sizeof OF_IWARP];
    const uint8_t opcode = chance(300) ? static_cast<uint8_t>(rng()) : one;
    uint32_t at = GDA_BYTES_OF(wqe_ctrl_seg);
    if (opcode == MLX5_OPCODE_RDMA_READ || opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
        opcode == MLX5_OPCODE_ATOMIC_FA || opcode == MLX5_OPCODE_ATOMIC_CS) {
        at += GDA_BYTES_OF(wqe_raddr_seg);
    }
    if (opcode == MLX5_OPCODE_ATOMIC_FA || opcode == MLX5_OPCODE_ATOMIC_CS) at += GDA_BYTES_OF(wqe_atomic_seg);
    if (opcode == MLX5_OPCODE_RDMA_WRITE && chance(2)) {
        const uint32_t bytes = rng() % (proxy::MOST_INLINE_BYTES + 1 + (chance(100) ? 40 : 0));
        GDA_SET(wqe_inline_seg, wqe + at, is_inline, 1);
        GDA_SET(wqe_inline_seg, wqe + at, byte_count, bytes);
        at += GDA_BYTES_OF(wqe_inline_seg) + bytes;
    } else if (opcode != MLX5_OPCODE_NOP) {
        const bool alone = iwarp && opcode == MLX5_OPCODE_RDMA_READ && !chance(100);
        const uint32_t pieces = alone ? 1 : 1 + rng() % (chance(300) ? 6 : 3);
        for (uint32_t i = 0; i < pieces; ++i, at += GDA_BYTES_OF(wqe_data_seg)) {
            GDA_SET(wqe_data_seg, wqe + at, byte_count, rng() % 5000);
        }
    }
    const uint32_t segments = (at + WQE_SEGMENT_BYTES - 1) / WQE_SEGMENT_BYTES;
    GDA_SET(wqe_ctrl_seg, wqe, opcode, opcode);
    GDA_SET(wqe_ctrl_seg, wqe, wqe_index, index);
    GDA_SET(wqe_ctrl_seg, wqe, qp_or_sq, QPN);
    GDA_SET(wqe_ctrl_seg, wqe, ds, segments);
    GDA_SET(wqe_ctrl_seg, wqe, ce, signaled ? CE_ALWAYS : CE_ON_ERROR);
    if (chance(500)) {  // a bit is wrong: the request may be another now, or longer than it was
        wqe[rng() % 64] ^= static_cast<uint8_t>(1u << rng() % 8);
        *changed = true;
    }
    if (chance(1000)) {
        GDA_SET(wqe_ctrl_seg, wqe, ds, rng() % 64);
        *changed = true;
    }
    const uint32_t blocks = (segments + 3) / 4;
    for (uint32_t b = 0; b < blocks; ++b) {
        std::memcpy(ring + (index + b) % DEPTH * WQE_BASIC_BLOCK_BYTES, wqe + b * WQE_BASIC_BLOCK_BYTES,
                    WQE_BASIC_BLOCK_BYTES);
    }
    return blocks;
}

}  // namespace

int main(int, char** arguments) {
    rng.seed(static_cast<unsigned>(std::atoi(arguments[1])));
    const uint64_t rounds = std::strtoull(arguments[2], nullptr, 10);
    iwarp = arguments[3] != nullptr;
    ibv_context context = {};
    context.ops.post_send = post_send;
    context.ops.post_recv = post_recv;
    context.ops.poll_cq = poll_cq;
    ibv_cq cq = {};
    cq.context = &context;
    ibv_qp qp = {};
    qp.context = &context;
    qp.send_cq = qp.recv_cq = &cq;
    qp.qp_num = QPN;
    qp.qp_type = IBV_QPT_RC;
    std::unique_ptr<uint8_t[]> ring(new uint8_t[DEPTH * WQE_BASIC_BLOCK_BYTES]);
    std::unique_ptr<uint8_t[]> entries(new uint8_t[DEPTH * CQE_BYTES]);
    uint64_t word = 0;
    uint32_t record = 0;
    std::memset(entries.get(), 0xff, DEPTH * CQE_BYTES);
    const auto address = [](void* p) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p)); };
    const proxy::Places places = {address(ring.get()), address(entries.get()), 0, 0,
                                  address(&word),      address(&record),       0, 0};
    const proxy::Facts facts = {DEPTH, DEPTH, 0, false, 7, proxy::MOST_INLINE_BYTES, proxy::MOST_PIECES, iwarp};
    proxy::Queue queue(places, facts, &qp);
    proxy::Queue* queues[] = {&queue};
    queue.start();

    uint64_t written = 0, done = 0, consumed = 0, lives = 0, good = 0;
    std::deque<uint64_t> signaled;  // those whose completion is to come
    bool failed = false, changed = false;
    const auto read_completions = [&] {
        for (;; ++consumed) {
            const uint8_t* entry = entries.get() + consumed % DEPTH * CQE_BYTES;
            if (GDA_GET(cqe64, entry, opcode) == MLX5_CQE_INVALID) break;
            if (GDA_GET(cqe64, entry, owner) != consumed / DEPTH % 2) break;
            const bool error = GDA_GET(cqe64, entry, opcode) == MLX5_CQE_REQ_ERR;
            CHECK(GDA_GET(cqe64, entry, qpn) == QPN && (error || !failed));
            const uint64_t counter = GDA_GET(cqe64, entry, wqe_counter);
            const uint64_t index = done + static_cast<uint16_t>(counter - done);
            CHECK(index >= done && index < written);
            done = index + 1;
            if (error) {
                failed = true;
                continue;
            }
            const bool is_nop = GDA_GET(cqe64, entry, sop_drop_qpn_opcode) == MLX5_OPCODE_NOP;
            if (iwarp && !is_nop) CHECK(index < confirmed);
            if (!changed) CHECK(!signaled.empty() && signaled.front() == index);
            if (!signaled.empty()) signaled.pop_front();
            ++good;
        }
    };
    for (uint64_t round = 0; round < rounds; ++round) {
        for (uint32_t n = rng() % 4; n != 0 && written + 3 - done <= DEPTH; --n) {
            const bool wanted = chance(2) || written + 6 - done > DEPTH;
            const uint32_t blocks = write_request(ring.get(), written, wanted, &changed);
            if (wanted) signaled.push_back(written);
            written += blocks;
        }
        uint64_t doorbell = 0;
        GDA_SET(send_doorbell, &doorbell, qpn, QPN);
        GDA_SET(send_doorbell, &doorbell, wqe_index, written);
        if (chance(2)) word = doorbell;
        proxy::look(queues, 1);
        if (iwarp && chance(1000)) {  // the other side has ended it
            in_error = true;
            queue.lose();
        }
        read_completions();
        if (!failed || !chance(4)) continue;
        word = doorbell;
        for (int looks = 0; looks < 400 && (queue.is_waiting() || word != 0); ++looks) {
            proxy::look(queues, 1);
            read_completions();
        }
        CHECK(!queue.is_waiting());  // all that was rung is flushed
        // As QueuePair.reset() does: the completion queue goes on where it was.
        posted.clear();
        in_error = failed = changed = false;
        confirmed = 0;
        queue.reset();
        CHECK(!queue.is_waiting() && word == 0 && record == 0);
        queue.start();
        written = done = 0;
        signaled.clear();
        ++lives;
    }
    std::printf("%llu lives, %llu good completions\n", static_cast<unsigned long long>(lives),
                static_cast<unsigned long long>(good));
    CHECK(lives > rounds / 2000 && good > rounds / 4);
    return touched == 1 ? 2 : 0;  // so that what is read inline counts
}
