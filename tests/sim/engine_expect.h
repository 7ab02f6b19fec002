// SPDX-License-Identifier: Apache-2.0
// What tests of the engine expect of completions. The last part of engine_rig.h, included by it.
#pragma once

#include "tests/sim/engine_rig.h"

namespace rig {

inline uint32_t opcode_of(const uint8_t* e) { return e ? static_cast<uint32_t>(GDA_GET(cqe64, e, opcode)) : 99; }
inline uint32_t index_of(const uint8_t* e) { return e ? static_cast<uint32_t>(GDA_GET(cqe64, e, wqe_counter)) : 99999; }
inline uint32_t syndrome_of(const uint8_t* e) { return e ? static_cast<uint32_t>(GDA_GET(err_cqe, e, syndrome)) : 99; }
inline uint32_t vendor_of(const uint8_t* e) {
    return e ? static_cast<uint32_t>(GDA_GET(err_cqe, e, vendor_error_syndrome)) : 999;
}

// The next completion is this error, the queue pair is in ERR, and the report says `words`.
inline void expect_error(World& w, uint32_t syndrome, uint32_t vendor, const char* words, uint32_t index = 0) {
    const uint8_t* e = w.a_cq.wait();
    CHECK_EQ(opcode_of(e), MLX5_CQE_REQ_ERR);
    CHECK_EQ(syndrome_of(e), syndrome);
    if (vendor) CHECK_EQ(vendor_of(e), vendor);
    CHECK_EQ(index_of(e), index);
    CHECK_EQ(w.a.state(), MLX5_QPC_STATE_ERR);
    if (!w.nic.said(words)) {
        std::printf("  the report does not say: %s\n", words);
        w.nic.print_report();
        CHECK(false);
    }
}

}  // namespace rig
