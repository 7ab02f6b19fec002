// SPDX-License-Identifier: Apache-2.0
// The same random work requests written by rdma-core's functions (infiniband/mlx5dv.h) and by GDA_SET and GDA_FIELD.
// Arguments: seed, rounds. Prints the number of differences. Compiled and run by test_mlx5dv.py.
#include <gda/formats/doorbell.h>
#include <gda/formats/wqe.h>
#include <infiniband/mlx5dv.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace {

std::mt19937_64 generator;

uint64_t bits(int width) { return generator() >> (64 - width); }

bool control_differs() {
    uint64_t index = bits(16), opcode = bits(8), opmod = bits(8), qpn = bits(24), ds = bits(6), signature = bits(8);
    uint64_t imm = bits(32), fm = bits(3), ce = bits(2), se = bits(1), stream = bits(16);
    mlx5_wqe_ctrl_seg theirs;
    memset(&theirs, 0, sizeof theirs);
    mlx5dv_set_ctrl_seg(&theirs, index, opcode, opmod, qpn, fm << 5 | ce << 2 | se << 1, ds, signature, htobe32(imm));
    theirs.dci_stream_channel_id = htobe16(stream);

    unsigned char ours[sizeof theirs] = {};
    GDA_SET(wqe_ctrl_seg, ours, opmod, opmod);
    GDA_SET(wqe_ctrl_seg, ours, wqe_index, index);
    GDA_SET(wqe_ctrl_seg, ours, opcode, opcode);
    GDA_SET(wqe_ctrl_seg, ours, qp_or_sq, qpn);
    GDA_SET(wqe_ctrl_seg, ours, ds, ds);
    GDA_SET(wqe_ctrl_seg, ours, signature, signature);
    GDA_SET(wqe_ctrl_seg, ours, dci_stream_channel_id, stream);
    GDA_SET(wqe_ctrl_seg, ours, fm, fm);
    GDA_SET(wqe_ctrl_seg, ours, ce, ce);
    GDA_SET(wqe_ctrl_seg, ours, se, se);
    GDA_SET(wqe_ctrl_seg, ours, imm, imm);

    // As device code does it: a dword from its fields, swapped once; and the doorbell is the same eight bytes.
    uint32_t dwords[2] = {gda::be32(GDA_FIELD(wqe_ctrl_seg, opmod, opmod) | GDA_FIELD(wqe_ctrl_seg, wqe_index, index) |
                                    GDA_FIELD(wqe_ctrl_seg, opcode, opcode)),
                          gda::be32(GDA_FIELD(wqe_ctrl_seg, qp_or_sq, qpn) | GDA_FIELD(wqe_ctrl_seg, ds, ds))};
    unsigned char doorbell[8] = {};
    GDA_SET(send_doorbell, doorbell, opmod, opmod);
    GDA_SET(send_doorbell, doorbell, wqe_index, index);
    GDA_SET(send_doorbell, doorbell, opcode, opcode);
    GDA_SET(send_doorbell, doorbell, qpn, qpn);
    GDA_SET(send_doorbell, doorbell, ds, ds);
    return memcmp(&theirs, ours, sizeof theirs) || memcmp(&theirs, dwords, 8) || memcmp(&theirs, doorbell, 8);
}

bool data_differs() {
    uint64_t bytes = bits(31), lkey = bits(32), addr = bits(64);
    mlx5_wqe_data_seg theirs;
    mlx5dv_set_data_seg(&theirs, bytes, lkey, addr);
    unsigned char ours[sizeof theirs] = {};
    GDA_SET(wqe_data_seg, ours, byte_count, bytes);
    GDA_SET(wqe_data_seg, ours, lkey, lkey);
    GDA_SET(wqe_data_seg, ours, addr, addr);
    return memcmp(&theirs, ours, sizeof theirs);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    generator.seed(std::strtoull(argv[1], nullptr, 10));
    long differences = 0, rounds = std::atol(argv[2]);
    for (long i = 0; i < rounds; i++) differences += control_differs() + data_differs();
    std::printf("%ld rounds, %ld differences\n", rounds, differences);
    return differences != 0;
}
