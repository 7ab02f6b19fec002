// SPDX-License-Identifier: Apache-2.0
// What the engine's C++ tests share: a NIC with queues over plain memory, made by commands alone, and WQEs written
// field by field. It plays the program; the engine is reached through sim/engine/device.h only.
#pragma once

#include <gda/formats/command.h>
#include <gda/formats/cqe.h>
#include <gda/formats/doorbell.h>
#include <gda/formats/wqe.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine/device.h"
#include "tests/sim/check.h"

namespace rig {

using namespace gda::prm;

inline uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

// Memory of whole pages, zeroed, as a program would register it.
struct Pages {
    explicit Pages(size_t size) : bytes((size + 4095) / 4096 * 4096) {
        p = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    }
    ~Pages() { munmap(p, bytes); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    uint64_t address() const { return reinterpret_cast<uint64_t>(p); }
    uint8_t* p;
    size_t bytes;
};

struct Nic {
    Nic()
        : device(sim::Events{[this](uint32_t cqn) { fired.push_back(cqn); },
                             [this](uint32_t n, int type) { asynchronous.push_back({n, type}); }}) {
        device.set_thread(sim::Device::Thread::off);
        page_memory = std::make_unique<Pages>(4096);
        device.attach_uar(PAGE, page_memory->p);
        device.allocate_pd(&pdn);
    }
    ~Nic() {
        device.detach_uar(PAGE);
        device.release_pd(pdn);
    }
    bool command(const std::vector<uint8_t>& in, std::vector<uint8_t>& out) {
        return device.command(in.data(), in.size(), out.data(), out.size());
    }
    // Steps until `done`, or for at most `limit_ns`.
    bool until(const std::function<bool()>& done, uint64_t limit_ns = 5000000000u) {
        const uint64_t end = now_ns() + limit_ns;
        while (!done()) {
            device.step();
            if (now_ns() > end) return false;
        }
        return true;
    }
    void settle() {
        while (device.step()) {
        }
    }
    bool said(const char* words) const {
        for (const std::string& sentence : device.report()) {
            if (sentence.find(words) != std::string::npos) return true;
        }
        return false;
    }
    void print_report() const {
        for (const std::string& sentence : device.report()) std::printf("  | %s\n", sentence.c_str());
    }
    enum : uint32_t { PAGE = 7 };
    std::vector<uint32_t> fired;
    std::vector<std::pair<uint32_t, int>> asynchronous;
    sim::Device device;
    std::unique_ptr<Pages> page_memory;
    uint32_t pdn = 0;
};

// Builds an input struct, sends it, keeps the answer.
struct Call {
    explicit Call(size_t in_bytes, size_t out_bytes, uint32_t opcode) : in(in_bytes), out(out_bytes) {
        GDA_SET(query_hca_cap_in, in.data(), opcode, opcode);
    }
    bool send(Nic& nic) { return nic.command(in, out); }
    uint32_t status() const { return static_cast<uint32_t>(GDA_GET(query_hca_cap_out, out.data(), status)); }
    uint32_t syndrome() const { return static_cast<uint32_t>(GDA_GET(query_hca_cap_out, out.data(), syndrome)); }
    std::vector<uint8_t> in, out;
};
#define CALL(TYPE, OPCODE) rig::Call(GDA_BYTES_OF(TYPE##_in), GDA_BYTES_OF(TYPE##_out), OPCODE)

struct Memory {
    Memory(Nic& n, uint64_t address, uint64_t size, bool remote = true, uint64_t start = 0, bool writable = true,
           bool relaxed = false)
        : nic(n), bytes(size) {
        CHECK_EQ(nic.device.register_umem(address, size, &umem), 0);
        Call c = CALL(create_mkey, MLX5_CMD_OP_CREATE_MKEY);
        uint8_t* in = c.in.data();
        uint8_t* mkc = in + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
        GDA_SET(create_mkey_in, in, mkey_umem_valid, 1);
        GDA_SET(create_mkey_in, in, mkey_umem_id, umem);
        GDA_SET(mkc, mkc, access_mode_1_0, MKC_ACCESS_MODE_MTT);
        GDA_SET(mkc, mkc, start_addr, start ? start : address);
        GDA_SET(mkc, mkc, len, size);
        GDA_SET(mkc, mkc, pd, nic.pdn);
        GDA_SET(mkc, mkc, mkey_7_0, 0x5a);
        GDA_SET(mkc, mkc, qpn, 0xffffff);
        GDA_SET(mkc, mkc, lr, 1);
        GDA_SET(mkc, mkc, relaxed_ordering_write, relaxed);
        GDA_SET(mkc, mkc, lw, writable);
        GDA_SET(mkc, mkc, rr, remote);
        GDA_SET(mkc, mkc, rw, remote);
        GDA_SET(mkc, mkc, a, remote);
        CHECK(c.send(nic));
        index = static_cast<uint32_t>(GDA_GET(create_mkey_out, c.out.data(), mkey_index));
        key = index << 8 | 0x5a;
    }
    ~Memory() {
        Call c = CALL(destroy_mkey, MLX5_CMD_OP_DESTROY_MKEY);
        GDA_SET(destroy_mkey_in, c.in.data(), mkey_index, index);
        CHECK(c.send(nic));
        CHECK_EQ(nic.device.release_umem(umem), 0);
    }
    Nic& nic;
    uint64_t bytes;
    uint32_t umem = 0, index = 0, key = 0;
};

struct Queue {  // a completion queue
    explicit Queue(Nic& n, uint32_t log_entries = 4, bool collapsed = false, bool ignore_overrun = false,
                   uint8_t* at = nullptr, uint64_t registered = 0, uint32_t size_code = 0)
        : nic(n), log(log_entries), stride(64u << size_code), cc(collapsed), memory(at ? 0 : (stride << log) + 64) {
        base = at ? at : memory.p;
        std::memset(base, 0xff, size_t{stride} << log);
        record = base + (size_t{stride} << log);
        if (!registered) registered = reinterpret_cast<uint64_t>(base);
        CHECK_EQ(nic.device.register_umem(registered, (stride << log) + 64, &umem), 0);
        Call c = CALL(create_cq, MLX5_CMD_OP_CREATE_CQ);
        uint8_t* in = c.in.data();
        uint8_t* cqc = in + GDA_BYTE_OFFSET(create_cq_in, cq_context);
        GDA_SET(create_cq_in, in, cq_umem_valid, 1);
        GDA_SET(create_cq_in, in, cq_umem_id, umem);
        GDA_SET(cqc, cqc, log_cq_size, log);
        GDA_SET(cqc, cqc, cc, collapsed);
        GDA_SET(cqc, cqc, oi, ignore_overrun);
        GDA_SET(cqc, cqc, uar_page, Nic::PAGE);
        GDA_SET(cqc, cqc, dbr_umem_valid, 1);
        GDA_SET(cqc, cqc, dbr_umem_id, umem);
        GDA_SET(cqc, cqc, dbr_addr, uint64_t{stride} << log);
        GDA_SET(cqc, cqc, cqe_sz, size_code);
        CHECK(c.send(nic));
        cqn = static_cast<uint32_t>(GDA_GET(create_cq_out, c.out.data(), cqn));
    }
    ~Queue() {
        Call c = CALL(destroy_cq, MLX5_CMD_OP_DESTROY_CQ);
        GDA_SET(destroy_cq_in, c.in.data(), cqn, cqn);
        CHECK(c.send(nic));
        CHECK_EQ(nic.device.release_umem(umem), 0);
    }
    const uint8_t* entry(uint32_t index) const {
        return base + stride * (cc ? 0 : index & ((1u << log) - 1)) + stride - 64;
    }
    // The entry at the consumer index, or null. Owner bit and opcode, as every poller does it.
    const uint8_t* poll() {
        const uint8_t* e = entry(consumer);
        uint32_t word = __atomic_load_n(reinterpret_cast<const uint32_t*>(e + 60), __ATOMIC_ACQUIRE);
        uint8_t last[64];
        std::memcpy(last + 60, &word, 4);
        const uint32_t owner = (consumer >> log) & 1;
        if (GDA_GET(cqe64, last, opcode) == MLX5_CQE_INVALID || GDA_GET(cqe64, last, owner) != owner) return nullptr;
        for (int i = 0; i < 15; ++i) {
            uint32_t w = __atomic_load_n(reinterpret_cast<const uint32_t*>(e) + i, __ATOMIC_RELAXED);
            std::memcpy(copy + 4 * i, &w, 4);
        }
        std::memcpy(copy + 60, &word, 4);
        ++consumer;
        if (store_consumer) {
            __atomic_store_n(reinterpret_cast<uint32_t*>(record), gda::be32(consumer & 0xffffff), __ATOMIC_RELEASE);
        }
        return copy;
    }
    const uint8_t* wait(uint64_t limit_ns = 5000000000u) {
        const uint8_t* e = nullptr;
        nic.until([&] { return (e = poll()) != nullptr; }, limit_ns);
        return e;
    }
    // Arms as libmlx5 does: record, then doorbell.
    void arm(bool solicited = false) {
        uint8_t value[8] = {};
        GDA_SET(cq_doorbell, value, consumer_index, consumer & 0xffffff);
        GDA_SET(cq_doorbell, value, solicited_only, solicited);
        GDA_SET(cq_doorbell, value, cmd_sn, sequence);
        __atomic_store_n(reinterpret_cast<uint32_t*>(record) + 1, gda::load32(value), __ATOMIC_RELEASE);
        GDA_SET(cq_doorbell, value, cqn, cqn);
        uint64_t word;
        std::memcpy(&word, value, 8);
        __atomic_store_n(reinterpret_cast<uint64_t*>(nic.page_memory->p + UAR_CQ_DOORBELL), word, __ATOMIC_RELEASE);
    }
    Nic& nic;
    uint32_t log, stride;
    bool cc;
    Pages memory;
    uint8_t* base;
    uint8_t* record;
    uint8_t copy[64];
    uint32_t umem = 0, cqn = 0, consumer = 0, sequence = 0;
    bool store_consumer = true;
};

struct Options {
    uint32_t log_sq = 6, log_rq = 4, log_stride = 1;
    bool receives = false, recordless = false, migrated = true;
    // "Not ready" waits 10 ms: settle() ends meanwhile, however slow a sanitizer makes the engine.
    uint32_t retry = 7, rnr = 7, timeout = 14, mtu = 5, min_rnr = 20, log_message = 30, psn = 0x100, rwe = 1;
    uint32_t user_index = 0xabcde, port = 1;
    uint32_t transport = MLX5_QPC_ST_RC, rre = 1, rae = 1, log_requests = 2, log_replies = 2, q_key = 0x1234;
    uint32_t log_streams = 0, log_errored = 0;  // of an initiator (DCI)
    uint32_t rmpn = 0;                          // not 0: receives come from this shared queue
    uint8_t* at = nullptr;                      // rings and record in this memory
    uint64_t registered = 0;                    // the address the NIC is told, if it differs: memory of a GPU
};

struct Pair {  // a queue pair
    Pair(Nic& n, Queue& send_cq, Queue* receive_cq = nullptr, Options o = Options())
        : nic(n),
          options(o),
          receive_bytes(o.receives ? (16u << o.log_stride) << o.log_rq : 0),
          memory(o.at ? 0 : receive_bytes + (64u << o.log_sq) + 64) {
        base = o.at ? o.at : memory.p;
        sq = base + receive_bytes;
        record = sq + (size_t{64} << o.log_sq);
        const uint64_t address = o.registered ? o.registered : reinterpret_cast<uint64_t>(base);
        CHECK_EQ(nic.device.register_umem(address, receive_bytes + (64u << o.log_sq) + 64, &umem), 0);
        Call c = CALL(create_qp, MLX5_CMD_OP_CREATE_QP);
        uint8_t* in = c.in.data();
        uint8_t* qpc = in + GDA_BYTE_OFFSET(create_qp_in, qpc);
        GDA_SET(create_qp_in, in, wq_umem_valid, 1);
        GDA_SET(create_qp_in, in, wq_umem_id, umem);
        GDA_SET(qpc, qpc, st, o.transport);
        GDA_SET(qpc, qpc, pm_state, o.migrated ? MLX5_QPC_PM_STATE_MIGRATED : MLX5_QPC_PM_STATE_ARMED);
        GDA_SET(qpc, qpc, pd, nic.pdn);
        GDA_SET(qpc, qpc, log_sq_size, o.log_sq);
        GDA_SET(qpc, qpc, log_num_dci_stream_channels, o.log_streams);
        GDA_SET(qpc, qpc, log_num_dci_errored_streams, o.log_errored);
        GDA_SET(qpc, qpc, log_rq_size, o.log_rq);
        GDA_SET(qpc, qpc, log_rq_stride, o.log_stride);
        GDA_SET(qpc, qpc, rq_type, o.receives ? RQ_TYPE_REGULAR : o.rmpn ? RQ_TYPE_SRQ : RQ_TYPE_ZERO_SIZE);
        GDA_SET(qpc, qpc, srqn_rmpn_xrqn, o.rmpn);
        GDA_SET(qpc, qpc, uar_page, Nic::PAGE);
        GDA_SET(qpc, qpc, user_index, o.user_index);
        GDA_SET(qpc, qpc, cqn_snd, send_cq.cqn);
        GDA_SET(qpc, qpc, cqn_rcv, receive_cq ? receive_cq->cqn : 0);
        GDA_SET(qpc, qpc, send_dbr_mode, o.recordless ? SEND_DBR_MODE_NO_DBR_EXT : SEND_DBR_MODE_VALID);
        GDA_SET(qpc, qpc, dbr_umem_valid, 1);
        GDA_SET(qpc, qpc, dbr_umem_id, umem);
        GDA_SET(qpc, qpc, dbr_addr, static_cast<uint64_t>(record - base));
        CHECK(c.send(nic));
        qpn = static_cast<uint32_t>(GDA_GET(create_qp_out, c.out.data(), qpn));
    }
    ~Pair() {
        Call c = CALL(destroy_qp, MLX5_CMD_OP_DESTROY_QP);
        GDA_SET(destroy_qp_in, c.in.data(), qpn, qpn);
        CHECK(c.send(nic));
        CHECK_EQ(nic.device.release_umem(umem), 0);
    }
    uint32_t to_init() {
        Call c = CALL(rst2init_qp, MLX5_CMD_OP_RST2INIT_QP);
        uint8_t* qpc = c.in.data() + GDA_BYTE_OFFSET(rst2init_qp_in, qpc);
        GDA_SET(rst2init_qp_in, c.in.data(), qpn, qpn);
        GDA_SET(qpc, qpc, primary_address_path.vhca_port_num, options.port);
        GDA_SET(qpc, qpc, rwe, options.rwe);
        GDA_SET(qpc, qpc, rre, options.rre);
        GDA_SET(qpc, qpc, rae, options.rae);
        GDA_SET(qpc, qpc, q_key, options.q_key);
        c.send(nic);
        return c.status();
    }
    uint32_t to_rtr(uint32_t remote_qpn, const uint8_t gid[16]) {
        Call c = CALL(init2rtr_qp, MLX5_CMD_OP_INIT2RTR_QP);
        uint8_t* qpc = c.in.data() + GDA_BYTE_OFFSET(init2rtr_qp_in, qpc);
        GDA_SET(init2rtr_qp_in, c.in.data(), qpn, qpn);
        GDA_SET(qpc, qpc, mtu, options.mtu);
        GDA_SET(qpc, qpc, log_msg_max, options.log_message);
        GDA_SET(qpc, qpc, remote_qpn, remote_qpn);
        GDA_SET(qpc, qpc, next_rcv_psn, options.psn);
        GDA_SET(qpc, qpc, min_rnr_nak, options.min_rnr);
        GDA_SET(qpc, qpc, log_rra_max, options.log_replies);
        GDA_SET(qpc, qpc, primary_address_path.src_addr_index, 1);
        std::memcpy(qpc + GDA_BYTE_OFFSET(qpc, primary_address_path.rgid_rip), gid, 16);
        c.send(nic);
        return c.status();
    }
    uint32_t to_rts() {
        Call c = CALL(rtr2rts_qp, MLX5_CMD_OP_RTR2RTS_QP);
        uint8_t* qpc = c.in.data() + GDA_BYTE_OFFSET(rtr2rts_qp_in, qpc);
        GDA_SET(rtr2rts_qp_in, c.in.data(), qpn, qpn);
        GDA_SET(qpc, qpc, retry_count, options.retry);
        GDA_SET(qpc, qpc, rnr_retry, options.rnr);
        GDA_SET(qpc, qpc, log_sra_max, options.log_requests);
        GDA_SET(qpc, qpc, next_send_psn, options.psn);
        GDA_SET(qpc, qpc, primary_address_path.ack_timeout, options.timeout);
        c.send(nic);
        return c.status();
    }
    void connect(uint32_t remote_qpn, const uint8_t* gid = nullptr) {
        uint8_t own[16];
        nic.device.gid(1, own, options.port);
        CHECK_EQ(to_init(), MLX5_CMD_STAT_OK);
        CHECK_EQ(to_rtr(remote_qpn, gid ? gid : own), MLX5_CMD_STAT_OK);
        CHECK_EQ(to_rts(), MLX5_CMD_STAT_OK);
    }
    uint32_t move(uint32_t opcode) {  // 2ERR or 2RST
        Call c = CALL(qp_2err, opcode);
        GDA_SET(qp_2err_in, c.in.data(), qpn, qpn);
        c.send(nic);
        return c.status();
    }
    uint32_t state() {
        Call c = CALL(query_qp, MLX5_CMD_OP_QUERY_QP);
        GDA_SET(query_qp_in, c.in.data(), qpn, qpn);
        CHECK(c.send(nic));
        return static_cast<uint32_t>(GDA_GET(qpc, c.out.data() + GDA_BYTE_OFFSET(query_qp_out, qpc), state));
    }
    uint8_t* block(uint32_t index) { return sq + 64 * (index & ((1u << options.log_sq) - 1)); }
    // One segment of the WQE that begins at `index`, round the ring's end.
    uint8_t* segment(uint32_t index, uint32_t n) { return block(index + n / 4) + n % 4 * 16; }

    void control(uint32_t index, uint32_t opcode, uint32_t ds, uint32_t ce = CE_ALWAYS, uint32_t imm = 0,
                 bool se = false) {
        uint8_t* w = block(index);
        std::memset(w, 0, 64);
        GDA_SET(wqe_ctrl_seg, w, wqe_index, index & 0xffff);
        GDA_SET(wqe_ctrl_seg, w, opcode, opcode);
        GDA_SET(wqe_ctrl_seg, w, qp_or_sq, qpn);
        GDA_SET(wqe_ctrl_seg, w, ds, ds);
        GDA_SET(wqe_ctrl_seg, w, ce, ce);
        GDA_SET(wqe_ctrl_seg, w, se, se);
        GDA_SET(wqe_ctrl_seg, w, imm, imm);
    }
    void remote(uint32_t index, uint64_t address, uint32_t key) {
        uint8_t* w = segment(index, 1);
        GDA_SET(wqe_raddr_seg, w, raddr, address);
        GDA_SET(wqe_raddr_seg, w, rkey, key);
    }
    void data(uint32_t index, uint32_t n, uint64_t address, uint32_t bytes, uint32_t key) {
        uint8_t* w = segment(index, n);
        std::memset(w, 0, 16);
        GDA_SET(wqe_data_seg, w, byte_count, bytes);
        GDA_SET(wqe_data_seg, w, lkey, key);
        GDA_SET(wqe_data_seg, w, addr, address);
    }
    // A whole RDMA write of one block; returns its index.
    uint32_t write(uint64_t to, uint32_t rkey, uint64_t from, uint32_t lkey, uint32_t bytes, uint32_t ce = CE_ALWAYS,
                   uint32_t opcode = MLX5_OPCODE_RDMA_WRITE, uint32_t imm = 0) {
        control(producer, opcode, bytes ? 3 : 2, ce, imm);
        remote(producer, to, rkey);
        if (bytes) data(producer, 2, from, bytes, lkey);
        last = producer++;
        return last;
    }
    uint32_t send(uint64_t from, uint32_t lkey, uint32_t bytes, uint32_t opcode = MLX5_OPCODE_SEND, uint32_t imm = 0,
                  bool se = false) {
        control(producer, opcode, bytes ? 2 : 1, CE_ALWAYS, imm, se);
        if (bytes) data(producer, 1, from, bytes, lkey);
        last = producer++;
        return last;
    }
    void store_record(uint32_t word, uint32_t value) {
        __atomic_store_n(reinterpret_cast<uint32_t*>(record) + word, gda::be32(value & 0xffff), __ATOMIC_RELEASE);
    }
    void store_register(uint32_t offset, uint64_t value) {
        __atomic_store_n(reinterpret_cast<uint64_t*>(nic.page_memory->p + offset), value, __ATOMIC_RELEASE);
    }
    uint64_t first_bytes(uint32_t index) {
        uint64_t v;
        std::memcpy(&v, block(index), 8);
        return v;
    }
    void ring() {  // record, then doorbell
        if (options.recordless) {
            store_register(UAR_RECORDLESS_DOORBELL, first_bytes(last));
        } else {
            store_record(1, producer);
            store_register(UAR_SEND_DOORBELL, first_bytes(last));
        }
    }
    void post_receive(uint64_t address, uint32_t bytes, uint32_t key) {
        uint8_t* w = base + (16u << options.log_stride) * (received & ((1u << options.log_rq) - 1));
        std::memset(w, 0, 16u << options.log_stride);
        GDA_SET(wqe_data_seg, w, byte_count, bytes);
        GDA_SET(wqe_data_seg, w, lkey, key);
        GDA_SET(wqe_data_seg, w, addr, address);
        if (options.log_stride) GDA_SET(wqe_data_seg, w + 16, lkey, LKEY_END_OF_LIST);
        ++received;
        store_record(0, received);
    }
    Nic& nic;
    Options options;
    uint32_t receive_bytes;
    Pages memory;
    uint8_t* base;
    uint8_t* sq;
    uint8_t* record;
    uint32_t umem = 0, qpn = 0, producer = 0, last = 0, received = 0;
};

// Of one NIC or of two, each by the port of its options.
inline void connect(Pair& x, Pair& y) {
    uint8_t to_x[16], to_y[16];
    x.nic.device.gid(1, to_x, x.options.port), y.nic.device.gid(1, to_y, y.options.port);
    x.connect(y.qpn, to_y);
    y.connect(x.qpn, to_x);
}

// Two connected queue pairs of one NIC, and two pieces of memory.
struct World {
    explicit World(Options a_options = Options(), Options b_options = Options(), uint32_t log_cq = 6,
                   bool collapsed = false, bool ignore = false, size_t bytes = 1 << 20)
        : source(bytes),
          target(bytes),
          a_cq(nic, log_cq, collapsed, ignore),
          b_cq(nic, 6),
          a(nic, a_cq, &a_cq, a_options),
          b(nic, b_cq, &b_cq, b_options),
          src(nic, source.address(), bytes),
          dst(nic, target.address(), bytes) {
        connect(a, b);
        for (size_t i = 0; i < bytes; ++i) source.p[i] = static_cast<uint8_t>(i * 7 + 1);
    }
    uint32_t write(uint32_t bytes, uint32_t ce = CE_ALWAYS) {
        return a.write(target.address(), dst.key, source.address(), src.key, bytes, ce);
    }
    bool same(uint32_t bytes) const { return std::memcmp(source.p, target.p, bytes) == 0; }
    Nic nic;
    Pages source, target;
    Queue a_cq, b_cq;
    Pair a, b;
    Memory src, dst;
};

}  // namespace rig

#include "tests/sim/engine_expect.h"
