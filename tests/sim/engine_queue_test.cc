// SPDX-License-Identifier: Apache-2.0
// What queues do when all is well: writes, sends, rings that go round, completion queues of all kinds, arming.

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

void write_arrives() {
    World w;
    w.write(1000);
    w.a.ring();
    const uint8_t* e = w.a_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
    CHECK_EQ(index_of(e), 0);
    CHECK_EQ(GDA_GET(cqe64, e, qpn), w.a.qpn);
    CHECK_EQ(GDA_GET(cqe64, e, srqn_uidx), w.a.options.user_index);
    CHECK_EQ(GDA_GET(cqe64, e, sop_drop_qpn_opcode), MLX5_OPCODE_RDMA_WRITE);
    CHECK(w.same(1000));
    CHECK_EQ(w.target.p[1000], 0);
    CHECK(w.nic.device.report().empty());
    uint64_t value = 0;
    CHECK(w.nic.device.last_doorbell(w.a.qpn, &value));
    CHECK_EQ(value, w.a.first_bytes(0));
    CHECK(!w.nic.device.last_doorbell(w.b.qpn, &value));
    CHECK_EQ(w.nic.device.counter("wqes"), 1);
    CHECK_EQ(w.nic.device.counter("packets_sent"), 2);  // the write and its acknowledgement
    CHECK_EQ(w.nic.device.counter("no such counter"), 0);
}

void empty_write_needs_no_key() {
    World w;
    w.a.write(0, 0, 0, 0, 0);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
}

void inline_data() {
    for (uint32_t bytes : {1u, 8u, 12u, 28u, 60u, 100u}) {
        World w;
        const uint32_t segments = (4 + bytes + 15) / 16;
        uint8_t payload[128];
        for (uint32_t i = 0; i < bytes; ++i) payload[i] = static_cast<uint8_t>(i + bytes);
        w.a.control(0, MLX5_OPCODE_RDMA_WRITE, 2 + segments);
        w.a.remote(0, w.target.address() + 3, w.dst.key);
        uint8_t* s = w.a.segment(0, 2);
        GDA_SET(wqe_inline_seg, s, is_inline, 1);
        GDA_SET(wqe_inline_seg, s, byte_count, bytes);
        std::memcpy(s + 4, payload, bytes);
        w.a.producer = (2 + segments + 3) / 4;
        w.a.ring();
        CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
        CHECK(std::memcmp(w.target.p + 3, payload, bytes) == 0);
        CHECK_EQ(w.target.p[3 + bytes], 0);
    }
}

void several_segments_and_ring_end() {
    Options o;
    o.log_sq = 3;
    World w(o);
    // 7 data segments: 9 segments, 3 blocks; on a ring of 8 blocks each begins elsewhere and some cross the end.
    for (uint32_t round = 0; round < 20; ++round) {
        const uint32_t index = w.a.producer;
        std::memset(w.target.p, 0, 700);
        w.a.control(index, MLX5_OPCODE_RDMA_WRITE, 9);
        w.a.remote(index, w.target.address(), w.dst.key);
        for (uint32_t n = 0; n < 7; ++n) w.a.data(index, 2 + n, w.source.address() + n * 100, 100, w.src.key);
        w.a.producer += 3;
        w.a.last = index;
        w.a.ring();
        const uint8_t* e = w.a_cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
        CHECK_EQ(index_of(e), index & 0xffff);
        CHECK(w.same(700));
    }
}

void indices_go_round_at_2_16() {
    World w;
    uint32_t done = 0;
    const uint32_t total = 70000;
    while (done < total) {
        while (w.a.producer < total && w.a.producer - done < 32) w.write(8);
        w.a.ring();
        w.nic.device.step();
        while (const uint8_t* e = w.a_cq.poll()) {
            CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
            CHECK_EQ(index_of(e), done & 0xffff);
            ++done;
        }
        if (failures) return;
    }
    CHECK(w.nic.device.report().empty());
}

void unsignaled_and_nop() {
    World w;
    for (int i = 0; i < 5; ++i) w.write(8, CE_ON_ERROR);
    w.a.control(w.a.producer, MLX5_OPCODE_NOP, 1);
    w.a.last = w.a.producer++;
    w.a.ring();
    const uint8_t* e = w.a_cq.wait();
    CHECK_EQ(index_of(e), 5);
    CHECK_EQ(GDA_GET(cqe64, e, sop_drop_qpn_opcode), MLX5_OPCODE_NOP);
    CHECK(!w.a_cq.poll());
}

void collapsed_queue_ignores_consumer() {
    World w(Options(), Options(), 0, true, true);
    w.a_cq.store_consumer = false;
    for (uint32_t i = 0; i < 300; ++i) {
        w.write(8);
        w.a.ring();
        w.nic.settle();
        const uint8_t* e = w.a_cq.entry(0);
        CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
        CHECK_EQ(index_of(e), i & 0xffff);
        CHECK_EQ(GDA_GET(cqe64, e, owner), 0);
    }
    CHECK_EQ(w.nic.device.counter("cq_overruns"), 0);
}

void ring_owner_bit_by_lap() {
    World w(Options(), Options(), 3);
    for (uint32_t i = 0; i < 11; ++i) {
        w.write(8);
        w.a.ring();
        w.nic.settle();
        CHECK(w.a_cq.poll());
    }
    for (uint32_t i = 0; i < 8; ++i) CHECK_EQ(GDA_GET(cqe64, w.a_cq.entry(i), owner), i < 3 ? 1 : 0);
}

void ignore_overrun_never_reads_the_consumer() {
    World w(Options(), Options(), 2, false, true);
    w.a_cq.store_consumer = false;
    for (uint32_t i = 0; i < 20; ++i) {
        w.write(8);
        w.a.ring();
        w.nic.settle();
    }
    CHECK_EQ(index_of(w.a_cq.entry(19)), 19);
    CHECK_EQ(w.nic.device.counter("cq_overruns"), 0);
}

void overrun_fails_the_queue() {
    World w(Options(), Options(), 3);
    for (uint32_t i = 0; i < 9; ++i) w.write(8);
    w.a.ring();
    w.nic.settle();
    CHECK_EQ(w.nic.device.counter("cqes"), 8);
    CHECK_EQ(w.nic.device.counter("cq_overruns"), 1);
    CHECK(w.nic.said("overrun"));
    CHECK(!w.nic.asynchronous.empty());
    if (!w.nic.asynchronous.empty()) {
        CHECK_EQ(w.nic.asynchronous[0].first, w.a_cq.cqn);
        CHECK_EQ(w.nic.asynchronous[0].second, static_cast<int>(sim::AsyncEvent::cq_error));
    }
    CHECK_EQ(w.a.state(), MLX5_QPC_STATE_ERR);
}

void send_and_receive() {
    Options o;
    o.receives = true;
    World w(o, o);
    for (uint32_t i = 0; i < 40; ++i) {  // the ring of 16 receives goes round
        w.b.post_receive(w.target.address() + 256 * (i % 4), 256, w.dst.key);
        const bool imm = i % 2;
        w.a.send(w.source.address() + i, w.src.key, 100, imm ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_SEND, 0xbadc0de + i,
                 i % 3 == 0);
        w.a.ring();
        const uint8_t* r = w.b_cq.wait();
        CHECK_EQ(opcode_of(r), imm ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND);
        CHECK_EQ(index_of(r), i);
        CHECK_EQ(GDA_GET(cqe64, r, byte_cnt), 100);
        CHECK_EQ(GDA_GET(cqe64, r, se), i % 3 == 0);
        CHECK_EQ(GDA_GET(cqe64, r, rqpn), w.a.qpn);
        if (imm) CHECK_EQ(GDA_GET(cqe64, r, imm_inval_pkey), 0xbadc0de + i);
        CHECK(std::memcmp(w.target.p + 256 * (i % 4), w.source.p + i, 100) == 0);
        CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    }
}

void receive_scatter_list() {
    Options o;
    o.receives = true;
    o.log_stride = 2;  // 64 bytes: up to 4 pieces
    World w(Options(), o);
    w.b.post_receive(w.target.address(), 10, w.dst.key);
    uint8_t* wqe = w.b.base;
    GDA_SET(wqe_data_seg, wqe + 16, byte_count, 20);
    GDA_SET(wqe_data_seg, wqe + 16, lkey, w.dst.key);
    GDA_SET(wqe_data_seg, wqe + 16, addr, w.target.address() + 1000);
    GDA_SET(wqe_data_seg, wqe + 32, lkey, LKEY_END_OF_LIST);
    w.a.send(w.source.address(), w.src.key, 25);
    w.a.ring();
    CHECK_EQ(opcode_of(w.b_cq.wait()), MLX5_CQE_RESP_SEND);
    CHECK(std::memcmp(w.target.p, w.source.p, 10) == 0);
    CHECK(std::memcmp(w.target.p + 1000, w.source.p + 10, 15) == 0);
    CHECK_EQ(w.target.p[10], 0);
    CHECK_EQ(w.target.p[1015], 0);
}

void write_with_immediate() {
    Options o;
    o.receives = true;
    World w(Options(), o);
    w.b.post_receive(0, 0, 0);
    w.a.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 64, CE_ALWAYS, MLX5_OPCODE_RDMA_WRITE_IMM,
              77);
    w.a.ring();
    const uint8_t* r = w.b_cq.wait();
    CHECK_EQ(opcode_of(r), MLX5_CQE_RESP_WR_IMM);
    CHECK_EQ(GDA_GET(cqe64, r, imm_inval_pkey), 77);
    CHECK_EQ(GDA_GET(cqe64, r, byte_cnt), 64);
    CHECK(w.same(64));
}

void send_waits_for_a_receive() {
    Options o;
    o.receives = true;
    World w(Options(), o);
    w.a.send(w.source.address(), w.src.key, 50);
    w.a.ring();
    w.nic.settle();
    CHECK(w.nic.device.counter("rnr_naks_sent") >= 1);
    CHECK(!w.a_cq.poll());
    w.b.post_receive(w.target.address(), 64, w.dst.key);
    CHECK_EQ(opcode_of(w.b_cq.wait()), MLX5_CQE_RESP_SEND);
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK(w.same(50));
}

void recordless_queue() {
    Options o;
    o.recordless = true;
    {
        World w(o);
        for (uint32_t i = 0; i < 100; ++i) {  // as rdma-core rings: the first eight bytes of the last WQE
            w.write(8);
            w.a.ring();
            const uint8_t* e = w.a_cq.wait();
            CHECK_EQ(index_of(e), i);
        }
        CHECK_EQ(w.nic.device.counter("cqes"), 100);
    }
    for (uint32_t offset : {0x600u, 0x800u}) {  // the producer index, opcode 0, nothing behind it; on either register
        World w(o);
        w.write(8), w.write(8), w.write(8);
        uint8_t value[8] = {};
        GDA_SET(send_doorbell, value, wqe_index, 3);
        GDA_SET(send_doorbell, value, qpn, w.a.qpn);
        uint64_t word;
        std::memcpy(&word, value, 8);
        w.a.store_register(offset, word);
        for (uint32_t i = 0; i < 3; ++i) CHECK_EQ(index_of(w.a_cq.wait()), i);
        GDA_SET(send_doorbell, value, wqe_index, 2);  // an older ring that comes late does not count
        std::memcpy(&word, value, 8);
        w.a.store_register(offset, word);
        w.nic.settle();
        CHECK(!w.a_cq.poll());
        CHECK(w.nic.device.report().empty());
    }
}

void blueflame_registers() {
    World w;
    for (uint32_t i = 0; i < 8; ++i) {
        w.write(8);
        w.a.store_record(1, w.a.producer);
        std::memcpy(w.nic.page_memory->p + 0x808 + 0x100 * (i % 4), w.a.block(i) + 8,
                    56);  // the rest of the WQE: ignored
        w.a.store_register(0x800 + 0x100 * (i % 4), w.a.first_bytes(i));
        CHECK_EQ(index_of(w.a_cq.wait()), i);
    }
}

void ring_before_record() {  // as GPU stacks do: ring, store the record, ring again
    World w;
    w.write(8);
    w.a.store_register(UAR_SEND_DOORBELL, w.a.first_bytes(0));
    w.nic.settle();
    CHECK(!w.a_cq.poll());
    w.a.store_record(1, 1);
    w.a.store_register(UAR_SEND_DOORBELL, w.a.first_bytes(0));
    CHECK(w.a_cq.wait());
    CHECK(w.nic.device.report().empty());
}

void lost_ring_is_made_up_by_a_neighbour() {
    World w;
    w.write(8);
    w.a.store_record(1, 1);
    w.b.control(0, MLX5_OPCODE_NOP, 1);
    w.b.producer = 1;
    w.b.ring();  // overwrites the register before the NIC looks
    CHECK(w.a_cq.wait());
    CHECK(w.b_cq.wait());
}

void posted_before_ready_to_send() {
    Nic nic;
    Queue cq(nic);
    Pair p(nic, cq);
    uint8_t own[16];
    nic.device.gid(1, own);
    p.to_init();
    p.to_rtr(p.qpn, own);
    p.control(0, MLX5_OPCODE_NOP, 1);
    p.producer = 1;
    p.ring();
    nic.settle();
    CHECK(!cq.poll());
    p.to_rts();
    CHECK(cq.wait());
}

void arming() {
    Options o;
    o.receives = true;
    World w(Options(), o);
    // Two queues armed between two looks: one register, nothing lost.
    w.a_cq.arm();
    w.b_cq.arm();
    w.nic.settle();
    CHECK(w.nic.fired.empty());
    w.write(8);
    w.a.ring();
    w.nic.settle();
    CHECK_EQ(w.nic.fired.size(), 1);
    CHECK(w.nic.fired.size() == 1 && w.nic.fired[0] == w.a_cq.cqn);
    w.write(8);
    w.a.ring();
    w.nic.settle();
    CHECK_EQ(w.nic.fired.size(), 1);  // once per request
    w.a_cq.poll(), w.a_cq.poll();
    w.a_cq.sequence = 1;
    w.a_cq.arm();
    w.nic.settle();
    CHECK_EQ(w.nic.fired.size(), 1);
    w.write(8);
    w.a.ring();
    w.nic.settle();
    CHECK_EQ(w.nic.fired.size(), 2);
    w.a_cq.sequence = 2;
    w.a_cq.arm();  // something is unread, but an event told of it
    w.nic.settle();
    CHECK_EQ(w.nic.fired.size(), 2);
    w.write(8);
    w.a.ring();
    w.nic.settle();
    CHECK_EQ(w.nic.fired.size(), 3);
    w.write(8);
    w.a.ring();
    w.nic.settle();
    w.a_cq.sequence = 3;
    w.a_cq.arm();  // one more came before it was armed: at once
    w.nic.settle();
    CHECK_EQ(w.nic.fired.size(), 4);
    while (w.a_cq.poll()) continue;
}

void arming_for_solicited() {
    Options o;
    o.receives = true;
    World w(Options(), o);
    for (int i = 0; i < 2; ++i) w.b.post_receive(w.target.address(), 64, w.dst.key);
    w.b_cq.arm(true);
    w.a.send(w.source.address(), w.src.key, 8);
    w.a.ring();
    w.nic.settle();
    CHECK(w.nic.fired.empty());
    w.a.send(w.source.address(), w.src.key, 8, MLX5_OPCODE_SEND, 0, true);
    w.a.ring();
    w.nic.settle();
    CHECK_EQ(w.nic.fired.size(), 1);
}

void reset_and_use_again() {
    World w;
    for (int i = 0; i < 3; ++i) w.write(8);
    w.a.ring();
    w.nic.settle();
    while (w.a_cq.poll()) {
    }
    CHECK_EQ(w.a.move(MLX5_CMD_OP_2RST_QP), MLX5_CMD_STAT_OK);
    CHECK_EQ(w.b.move(MLX5_CMD_OP_2RST_QP), MLX5_CMD_STAT_OK);
    CHECK_EQ(w.a.state(), MLX5_QPC_STATE_RST);
    std::memset(w.a.record, 0, 8);
    w.a.producer = 0;
    w.a.connect(w.b.qpn);
    w.b.connect(w.a.qpn);
    w.write(16);
    w.a.ring();
    CHECK_EQ(index_of(w.a_cq.wait()), 0);
    CHECK(w.same(16));
}

void connected_to_itself() {
    Nic nic;
    Queue cq(nic);
    Pair p(nic, cq);
    Pages memory(4096);
    Memory m(nic, memory.address(), 4096);
    p.connect(p.qpn);
    memory.p[0] = 42;
    p.write(memory.address() + 100, m.key, memory.address(), m.key, 1);
    p.ring();
    CHECK_EQ(opcode_of(cq.wait()), MLX5_CQE_REQ);
    CHECK_EQ(memory.p[100], 42);
    p.write(memory.address() + 100, m.key + 1, memory.address(), m.key, 1);  // refused by itself: told as such
    p.ring();
    CHECK_EQ(syndrome_of(cq.wait()), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
}

void iova_differs_from_address() {
    World w;
    Pages other(8192);
    Memory m(w.nic, other.address(), 8192, true, 0x1000);
    w.a.write(0x1000 + 5000, m.key, w.source.address(), w.src.key, 100);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK(std::memcmp(other.p + 5000, w.source.p, 100) == 0);
}

void background_thread() {
    World w;
    for (auto mode : {sim::Device::Thread::adaptive, sim::Device::Thread::busy}) {
        w.nic.device.set_thread(mode);
        for (int i = 0; i < 200; ++i) {
            w.write(8);
            w.a.ring();
            const uint64_t end = now_ns() + 5000000000u;
            while (!w.a_cq.poll()) {
                if (now_ns() > end) {
                    CHECK(!"the thread did nothing");
                    return;
                }
                usleep(0);
            }
        }
        w.nic.device.set_thread(sim::Device::Thread::off);
    }
    w.write(8);
    w.a.ring();
    usleep(2000);
    CHECK(!w.a_cq.poll());  // off means off
    CHECK(w.a_cq.wait());
}

}  // namespace

int main(int argc, char** argv) {
    const Cases cases = {
        {"write_arrives", write_arrives},
        {"empty_write_needs_no_key", empty_write_needs_no_key},
        {"inline_data", inline_data},
        {"several_segments_and_ring_end", several_segments_and_ring_end},
        {"indices_go_round_at_2_16", indices_go_round_at_2_16},
        {"unsignaled_and_nop", unsignaled_and_nop},
        {"collapsed_queue_ignores_consumer", collapsed_queue_ignores_consumer},
        {"ring_owner_bit_by_lap", ring_owner_bit_by_lap},
        {"ignore_overrun_never_reads_the_consumer", ignore_overrun_never_reads_the_consumer},
        {"overrun_fails_the_queue", overrun_fails_the_queue},
        {"send_and_receive", send_and_receive},
        {"receive_scatter_list", receive_scatter_list},
        {"write_with_immediate", write_with_immediate},
        {"send_waits_for_a_receive", send_waits_for_a_receive},
        {"recordless_queue", recordless_queue},
        {"blueflame_registers", blueflame_registers},
        {"ring_before_record", ring_before_record},
        {"lost_ring_is_made_up_by_a_neighbour", lost_ring_is_made_up_by_a_neighbour},
        {"posted_before_ready_to_send", posted_before_ready_to_send},
        {"arming", arming},
        {"arming_for_solicited", arming_for_solicited},
        {"reset_and_use_again", reset_and_use_again},
        {"connected_to_itself", connected_to_itself},
        {"iova_differs_from_address", iova_differs_from_address},
        {"background_thread", background_thread},
    };
    return run(cases, argc, argv);
}
