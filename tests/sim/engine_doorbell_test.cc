// SPDX-License-Identifier: Apache-2.0
// What the NIC says about doorbells and records that make no sense: one case per complaint.

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

void overrun_of_the_send_queue() {
    World w;
    for (int i = 0; i < 65; ++i) w.write(8);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 0, "SQ overrun PI-CI=65 > 64");
}

void record_went_back() {
    World w;
    w.write(8), w.write(8);
    w.a.ring();
    w.nic.settle();
    w.a.store_record(1, 1);
    w.a.store_register(UAR_SEND_DOORBELL, w.a.first_bytes(0));
    w.nic.settle();
    CHECK(
        w.nic.said("doorbell record went back 2\xe2\x86\x92"
                   "1"));
    CHECK_EQ(w.nic.device.counter("cqes"), 2);
}

void record_in_the_wrong_word() {
    World w;
    w.write(8);
    w.a.store_record(0, 1);
    w.a.store_register(UAR_SEND_DOORBELL, w.a.first_bytes(0));
    w.nic.settle();
    CHECK(w.nic.said("rung, send record is 0, receive record changed to 1, QP has no RQ"));
    CHECK_EQ(w.nic.device.counter("wqes"), 0);
}

void record_never_stored() {
    World w;
    w.write(8);
    w.a.store_register(UAR_SEND_DOORBELL, w.a.first_bytes(0));
    CHECK(w.nic.until([&] { return w.nic.said("its record still says 0"); }));
    CHECK_EQ(w.nic.device.counter("wqes"), 0);
}

void doorbell_for_nobody() {
    World w;
    uint8_t value[8] = {};
    GDA_SET(send_doorbell, value, qpn, w.a.qpn + 77);
    GDA_SET(send_doorbell, value, ds, 3);
    uint64_t word;
    std::memcpy(&word, value, 8);
    w.a.store_register(UAR_SEND_DOORBELL, word);
    w.nic.settle();
    CHECK(w.nic.said("does not exist"));
    // And one of a queue pair that rings on another page.
    Pages other(4096);
    CHECK_EQ(w.nic.device.attach_uar(9, other.p), 0);
    w.write(8);
    w.a.store_record(1, 1);
    __atomic_store_n(reinterpret_cast<uint64_t*>(other.p + 0x800), w.a.first_bytes(0), __ATOMIC_RELEASE);
    w.nic.settle();
    CHECK(w.nic.said("rings on page 7"));
    CHECK_EQ(w.nic.device.counter("wqes"), 0);
    CHECK_EQ(w.nic.device.detach_uar(9), 0);
}

void doorbell_in_reset() {
    World w;
    w.a.move(MLX5_CMD_OP_2RST_QP);
    w.write(8);
    w.a.ring();
    w.nic.settle();
    CHECK(w.nic.said("in state RESET"));
}

// A ring that the NIC has not looked at when the queue pair is reset belongs to the old life, without a complaint.
void rung_just_before_reset() {
    for (bool recordless : {false, true}) {
        Options o;
        o.recordless = recordless;
        World w(o);
        for (int i = 0; i < 3; ++i) w.write(8);
        w.a.ring();
        CHECK_EQ(w.a.move(MLX5_CMD_OP_2RST_QP), MLX5_CMD_STAT_OK);
        std::memset(w.a.record, 0, 8);
        w.a.producer = 0;
        w.a.connect(w.b.qpn);
        w.nic.settle();
        CHECK(!w.a_cq.poll());
        w.write(8);
        w.a.ring();
        CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
        CHECK(w.nic.device.report().empty());
    }
}

// What an earlier owner left in a page's registers is not a ring.
void values_left_in_a_new_page() {
    Nic nic;
    Pages page(4096);
    std::memset(page.p, 0x11, 4096);
    CHECK_EQ(nic.device.attach_uar(9, page.p), 0);
    Queue cq(nic);
    nic.settle();
    CHECK_EQ(nic.device.counter("doorbells"), 0);
    CHECK_EQ(nic.device.counter("cq_doorbells"), 0);
    CHECK_EQ(nic.device.detach_uar(9), 0);
}

void two_recordless_on_one_page() {
    Options o;
    o.recordless = true;
    World w(o, o);
    CHECK(w.nic.said("share doorbell page"));
}

void receive_overrun() {
    Options o;
    o.receives = true;
    World w(Options(), o);
    w.b.store_record(0, 17);
    w.a.send(w.source.address(), w.src.key, 8);
    w.a.ring();
    w.nic.settle();
    CHECK(w.nic.said("RQ overrun"));
}

void report_is_bounded() {
    World w;
    for (uint32_t i = 0; i < 500; ++i) {
        uint8_t value[8] = {};
        GDA_SET(send_doorbell, value, qpn, 0x5000 + i / 2);
        GDA_SET(send_doorbell, value, ds, 1);
        uint64_t word;
        std::memcpy(&word, value, 8);
        w.a.store_register(UAR_SEND_DOORBELL, word);
        w.nic.device.step();
    }
    const auto report = w.nic.device.report();
    CHECK_EQ(report.size(), 201);
    CHECK(report.back() == "and 100 times something more, not kept");
    w.nic.device.clear_report();
    CHECK(w.nic.device.report().empty());
}

}  // namespace

int main(int argc, char** argv) {
    const Cases cases = {
        {"overrun_of_the_send_queue", overrun_of_the_send_queue},
        {"record_went_back", record_went_back},
        {"record_in_the_wrong_word", record_in_the_wrong_word},
        {"record_never_stored", record_never_stored},
        {"doorbell_for_nobody", doorbell_for_nobody},
        {"doorbell_in_reset", doorbell_in_reset},
        {"rung_just_before_reset", rung_just_before_reset},
        {"values_left_in_a_new_page", values_left_in_a_new_page},
        {"two_recordless_on_one_page", two_recordless_on_one_page},
        {"receive_overrun", receive_overrun},
        {"report_is_bounded", report_is_bounded},
    };
    return run(cases, argc, argv);
}
