// SPDX-License-Identifier: Apache-2.0
// What the calls of this process asked for. Written by posts.cc and extended.cc, told at exit as the software NIC tells
// it (sim/engine/profile.h, sim/uverbs/profile.h), with GDA_PROFILE.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace sim::calls {

// Something was found to be watched: this process has something to tell.
void watched();
// Something was not: there is no room for so many objects.
void missed();
// A request was posted: an ibv_wr_opcode, and its payload in bytes.
void request(uint32_t opcode, uint64_t bytes);
// libmlx5 rings once for each call that posts anything.
void doorbell();
void receives(uint64_t number);

}  // namespace sim::calls
