// SPDX-License-Identifier: Apache-2.0
// Puts counting functions into an object of libibverbs, before the program sees it. libibverbs' own calls are inline
// functions that jump through these places (public ABI in <infiniband/verbs.h>); what is behind them, a card's driver
// or anything else, is not asked and not changed. Called by names.cc.
#pragma once

#include <infiniband/verbs.h>

namespace sim::calls {

// Each takes null and what is watched already, too, and answers what it was given.
ibv_context* watch(ibv_context* context);      // posts, receives, polls, and the making of extended queues
verbs_context* watch(verbs_context* context);  // the same
ibv_cq_ex* watch(ibv_cq_ex* cq);               // polls of an extended queue
ibv_qp_ex* watch(ibv_qp_ex* qp);               // posts piece by piece: ibv_wr_start() to ibv_wr_complete()

}  // namespace sim::calls
