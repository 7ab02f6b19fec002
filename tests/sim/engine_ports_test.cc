// SPDX-License-Identifier: Apache-2.0
// A NIC with several ports: each has addresses, a link and counters of its own, and a queue pair belongs to one of
// them.

#include <errno.h>

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

Options at_port(uint32_t port) {
    Options o;
    o.port = port;
    o.timeout = 6;
    o.retry = 1;
    return o;
}

void each_has_its_addresses() {
    Nic nic;
    CHECK_EQ(nic.device.ports(), 3);
    Call caps = CALL(query_hca_cap, MLX5_CMD_OP_QUERY_HCA_CAP);
    GDA_SET(query_hca_cap_in, caps.in.data(), op_mod, 2 * HCA_CAP_GENERAL + 1);
    CHECK(caps.send(nic));
    const uint8_t* capability = caps.out.data() + GDA_BYTE_OFFSET(query_hca_cap_out, capability);
    CHECK_EQ(GDA_GET(cmd_hca_cap, capability, num_ports), 3);
    for (uint32_t port = 0; port <= 4; ++port) {
        Call c = CALL(query_roce_address, MLX5_CMD_OP_QUERY_ROCE_ADDRESS);
        GDA_SET(query_roce_address_in, c.in.data(), roce_address_index, 3);
        GDA_SET(query_roce_address_in, c.in.data(), vhca_port_num, port);
        CHECK_EQ(c.send(nic), port < 4);
        if (port == 4) break;
        uint8_t gid[16], mac[6];
        nic.device.gid(3, gid, port ? port : 1);
        nic.device.mac(mac, port ? port : 1);
        CHECK_EQ(gid[14], port ? port - 1 : 0);
        const uint8_t* answer = c.out.data() + GDA_BYTE_OFFSET(query_roce_address_out, roce_address);
        CHECK(std::memcmp(answer + GDA_BYTE_OFFSET(roce_addr_layout, source_l3_address), gid, 16) == 0);
        CHECK(std::memcmp(answer + GDA_BYTE_OFFSET(roce_addr_layout, source_mac_47_32), mac, 6) == 0);
    }
    CHECK(nic.said("port 4 of a NIC that has 3"));
    uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}, read[16];
    CHECK_EQ(nic.device.set_gid(7, gid, false, 2), 0);
    nic.device.gid(7, read, 2);
    CHECK(std::memcmp(read, gid, 16) == 0);
    nic.device.gid(7, read, 1);
    CHECK_EQ(read[10], 0);
    CHECK(nic.device.set_gid(8, gid, false, 3) == -EEXIST);
    CHECK(nic.device.set_gid(8, gid, false, 4) == -EINVAL);
}

uint64_t sent(Nic& nic, uint32_t port, bool clear = false) {
    Call c = CALL(query_vport_counter, MLX5_CMD_OP_QUERY_VPORT_COUNTER);
    GDA_SET(query_vport_counter_in, c.in.data(), port_num, port);
    GDA_SET(query_vport_counter_in, c.in.data(), clear, clear);
    CHECK_EQ(c.send(nic), port <= 3);
    return GDA_GET(query_vport_counter_out, c.out.data(), transmitted_ib_unicast.octets);
}

void a_pair_between_two_ports_and_what_each_counts() {
    World w(at_port(2), at_port(3));
    w.write(10000);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK(w.same(10000));
    sim::Device& d = w.nic.device;
    CHECK_EQ(d.counter("packets_sent", 1), 0);
    CHECK_EQ(d.counter("packets_received", 1), 0);
    CHECK_EQ(d.counter("bytes_sent", 2), 10000);
    CHECK_EQ(d.counter("bytes_received", 3), 10000);
    CHECK_EQ(d.counter("packets_received", 2), 1);  // the acknowledgement
    CHECK_EQ(d.counter("packets_sent", 3), 1);
    CHECK_EQ(d.counter("write_requests", 3), 1);
    CHECK_EQ(d.counter("bytes_sent"), 10000);
    CHECK_EQ(sent(w.nic, 0), 0);
    CHECK_EQ(sent(w.nic, 2, true), 10000);
    CHECK_EQ(sent(w.nic, 2), 0);
    CHECK_EQ(d.counter("bytes_sent", 2), 10000);
    sent(w.nic, 4);
    CHECK(w.nic.said("port 4 of a NIC that has 3"));
}

void init_binds_a_queue_pair() {
    Nic nic;
    Queue cq(nic, 6);
    Pair none(nic, cq, &cq, at_port(4));
    CHECK_EQ(none.to_init(), MLX5_CMD_STAT_BAD_PARAM_ERR);
    CHECK(nic.said("port 4 of a NIC that has 3"));

    Pair second(nic, cq, &cq, at_port(2));
    CHECK_EQ(second.to_init(), MLX5_CMD_STAT_OK);
    const auto path = [&](uint32_t opcode, uint32_t port, uint32_t optional) {
        Call c = CALL(init2rtr_qp, opcode);
        uint8_t* qpc = c.in.data() + GDA_BYTE_OFFSET(init2rtr_qp_in, qpc);
        GDA_SET(init2rtr_qp_in, c.in.data(), qpn, second.qpn);
        GDA_SET(init2rtr_qp_in, c.in.data(), opt_param_mask, optional);
        GDA_SET(qpc, qpc, mtu, 5);
        GDA_SET(qpc, qpc, primary_address_path.vhca_port_num, port);
        GDA_SET(qpc, qpc, primary_address_path.src_addr_index, 1);
        nic.device.gid(1, qpc + GDA_BYTE_OFFSET(qpc, primary_address_path.rgid_rip), 2);
        c.send(nic);
        return c.status();
    };
    CHECK_EQ(path(MLX5_CMD_OP_INIT2RTR_QP, 1, 0), MLX5_CMD_STAT_BAD_PARAM_ERR);
    CHECK(nic.said("is bound to port 2 since INIT, its path names port 1"));
    CHECK_EQ(path(MLX5_CMD_OP_INIT2INIT_QP, 4, MLX5_QP_OPTPAR_PRI_PORT), MLX5_CMD_STAT_BAD_PARAM_ERR);
    CHECK_EQ(path(MLX5_CMD_OP_INIT2INIT_QP, 1, MLX5_QP_OPTPAR_PRI_PORT), MLX5_CMD_STAT_OK);
    CHECK_EQ(path(MLX5_CMD_OP_INIT2INIT_QP, 2, 0), MLX5_CMD_STAT_OK);  // not asked for: it stays at port 1
    CHECK_EQ(path(MLX5_CMD_OP_INIT2RTR_QP, 2, 0), MLX5_CMD_STAT_BAD_PARAM_ERR);
    CHECK_EQ(path(MLX5_CMD_OP_INIT2RTR_QP, 0, 0), MLX5_CMD_STAT_OK);
    Call q = CALL(query_qp, MLX5_CMD_OP_QUERY_QP);
    GDA_SET(query_qp_in, q.in.data(), qpn, second.qpn);
    CHECK(q.send(nic));
    CHECK_EQ(GDA_GET(query_qp_out, q.out.data(), qpc.primary_address_path.vhca_port_num), 1);
}

void a_packet_at_another_port_is_dropped() {
    World w(at_port(1), at_port(2));
    Queue cq(w.nic, 6);
    Pair x(w.nic, cq, &cq, at_port(1)), y(w.nic, cq, &cq, at_port(2));
    uint8_t to_third[16];
    w.nic.device.gid(1, to_third, 3);
    x.connect(y.qpn, to_third);
    y.connect(x.qpn);
    x.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 8);
    x.ring();
    CHECK_EQ(syndrome_of(cq.wait()), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK(w.nic.said("dropped a packet that arrived at port 3, for it is bound to port 2"));
    CHECK_EQ(w.nic.device.counter("packets_received", 3), 2);
    w.write(8);  // the others go on
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
}

void the_link_of_one_port_goes_down() {
    World w(at_port(1), at_port(2));
    Queue cq(w.nic, 6);
    Pair x(w.nic, cq, &cq, at_port(1)), y(w.nic, cq, &cq, at_port(1));
    x.connect(y.qpn);
    y.connect(x.qpn);
    CHECK_EQ(w.nic.device.set_link_up(false, 2), 0);
    CHECK(w.nic.device.link_up(1) && !w.nic.device.link_up(2) && w.nic.device.link_up(3));
    CHECK(w.nic.device.set_link_up(false, 4) == -EINVAL);
    x.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 8);
    x.ring();
    CHECK_EQ(opcode_of(cq.wait()), MLX5_CQE_REQ);
    w.write(8);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK_EQ(w.nic.device.counter("packets_without_link"), 2);
}

void faults_of_one_port() {
    World w(at_port(1), at_port(2));
    std::string problem;
    CHECK(w.nic.device.set_faults("drop any port=2 first=1", &problem));  // the acknowledgement
    w.write(8);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK_EQ(w.nic.device.counter("fault_dropped"), 1);
    CHECK_EQ(w.nic.device.counter("duplicates", 2), 1);
    CHECK(w.nic.device.set_faults("link=down:3", &problem));
    w.write(8);
    w.a.ring();
    CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
    CHECK(w.nic.device.set_faults("link=down:2", &problem));
    w.write(8);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
}

void the_mtu_of_one_port() {
    World w(at_port(2), at_port(1));
    CHECK_EQ(w.nic.device.set_link_mtu(1500, 2), 0);
    CHECK_EQ(w.nic.device.link_mtu(1), 9000);
    w.write(4096);
    w.a.ring();
    CHECK_EQ(syndrome_of(w.a_cq.wait()), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK_EQ(w.nic.device.counter("packets_over_link_mtu"), 2);
}

void neighbours() {
    Nic three;
    setenv("GDA_SIM_PORTS", "2", 1);
    Nic two;
    setenv("GDA_SIM_PORTS", "3", 1);
    uint8_t gid[16], mac[6];
    for (uint32_t port = 1; port <= 3; ++port) {
        three.device.gid(1, gid, port);
        CHECK_EQ(two.device.neighbour(1, gid, mac, 2), 0);
        CHECK(mac[4] == port - 1 && mac[5] == three.device.slot());
        CHECK_EQ(three.device.neighbour(1, gid, mac, 1), 0);  // one port asks for another
        CHECK(mac[4] == port - 1);
    }
    gid[15] = static_cast<uint8_t>(two.device.slot());  // a third port, which that NIC does not have
    CHECK(three.device.neighbour(1, gid, mac, 3) == -ETIMEDOUT);
    CHECK(two.device.neighbour(1, gid, mac, 3) == -EINVAL);
}

}  // namespace

int main(int argc, char** argv) {
    setenv("GDA_SIM_PORTS", "3", 1);
    return run(
        {
            {"each_has_its_addresses", each_has_its_addresses},
            {"a_pair_between_two_ports_and_what_each_counts", a_pair_between_two_ports_and_what_each_counts},
            {"init_binds_a_queue_pair", init_binds_a_queue_pair},
            {"a_packet_at_another_port_is_dropped", a_packet_at_another_port_is_dropped},
            {"the_link_of_one_port_goes_down", the_link_of_one_port_goes_down},
            {"faults_of_one_port", faults_of_one_port},
            {"the_mtu_of_one_port", the_mtu_of_one_port},
            {"neighbours", neighbours},
        },
        argc, argv);
}
