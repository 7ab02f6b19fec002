// SPDX-License-Identifier: Apache-2.0
// See watch.h: contexts and completion queues.
#include <errno.h>

#include "sim/calls/before.h"
#include "sim/calls/counted.h"
#include "sim/calls/watch.h"
#include "sim/uverbs/profile.h"

namespace sim::calls {
namespace {

namespace waits = uverbs::profile;

struct ContextFunctions {
    decltype(ibv_context_ops::post_send) post_send;
    decltype(ibv_context_ops::post_recv) post_recv;
    decltype(ibv_context_ops::post_srq_recv) post_srq_recv;
    decltype(ibv_context_ops::poll_cq) poll_cq;
    decltype(verbs_context::create_cq_ex) create_cq_ex;
    decltype(verbs_context::create_qp_ex) create_qp_ex;
};
using StartFunction = int (*)(ibv_cq_ex*, ibv_poll_cq_attr*);

Before<ContextFunctions> contexts;
Before<StartFunction> queues;

int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
    ibv_send_wr* refused = nullptr;
    const int answer = contexts.of(qp->context)->post_send(qp, first, &refused);
    if (answer && bad) *bad = refused;
    const ibv_send_wr* end = answer ? refused : nullptr;
    for (const ibv_send_wr* wr = first; wr != end; wr = wr->next) {
        uint64_t bytes = 0;
        for (int i = 0; i < wr->num_sge; ++i) bytes += wr->sg_list[i].length;
        request(wr->opcode, bytes);
    }
    if (first != end) doorbell();
    return answer;
}

uint64_t posted(const ibv_recv_wr* first, const ibv_recv_wr* end) {
    uint64_t number = 0;
    for (; first != end; first = first->next) ++number;
    return number;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad) {
    ibv_recv_wr* refused = nullptr;
    const int answer = contexts.of(qp->context)->post_recv(qp, first, &refused);
    if (answer && bad) *bad = refused;
    receives(posted(first, answer ? refused : nullptr));
    return answer;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) {
    ibv_recv_wr* refused = nullptr;
    const int answer = contexts.of(srq->context)->post_srq_recv(srq, first, &refused);
    if (answer && bad) *bad = refused;
    receives(posted(first, answer ? refused : nullptr));
    return answer;
}

void polled(bool vain) {
    if (vain)
        waits::end(waits::Wait::poll, waits::begin(), true);
    else
        waits::found(waits::Wait::poll);
}

int poll_cq(ibv_cq* cq, int entries, ibv_wc* completions) {
    const int found = contexts.of(cq->context)->poll_cq(cq, entries, completions);
    polled(found == 0);
    return found;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
    const int answer = (*queues.of(cq))(cq, attributes);
    polled(answer == ENOENT);
    return answer;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
    return watch(contexts.of(context)->create_cq_ex(context, attributes));
}

// With operations to build, the answer is the head of an ibv_qp_ex: ibv_qp_to_qp_ex(3) is no more than a cast then.
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
    ibv_qp* qp = contexts.of(context)->create_qp_ex(context, attributes);
    if (attributes->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) watch(reinterpret_cast<ibv_qp_ex*>(qp));
    return qp;
}

template <typename Function>
void replace(Function** place, Function** before, Function* with) {
    if (!*place || *place == with) return;
    *before = *place;
    *place = with;
}

}  // namespace

// libmlx5 fills a context in several steps, and this is called after each.
verbs_context* watch(verbs_context* context) {
    if (!context) return context;
    ibv_context_ops& ops = context->context.ops;
    const ContextFunctions* known = contexts.of(&context->context);
    ContextFunctions before = known ? *known : ContextFunctions{};
    if (!contexts.enter(&context->context, before)) return missed(), context;
    watched();
    replace(&ops.post_send, &before.post_send, post_send);
    replace(&ops.post_recv, &before.post_recv, post_recv);
    replace(&ops.post_srq_recv, &before.post_srq_recv, post_srq_recv);
    replace(&ops.poll_cq, &before.poll_cq, poll_cq);
    replace(&context->create_cq_ex, &before.create_cq_ex, create_cq_ex);
    replace(&context->create_qp_ex, &before.create_qp_ex, create_qp_ex);
    contexts.enter(&context->context, before);
    return context;
}

ibv_context* watch(ibv_context* context) {
    if (context) watch(verbs_get_ctx(context));
    return context;
}

ibv_cq_ex* watch(ibv_cq_ex* cq) {
    if (!cq || !cq->start_poll || cq->start_poll == start_poll) return cq;
    if (!queues.enter(cq, cq->start_poll)) return missed(), cq;
    cq->start_poll = start_poll;
    return cq;
}

}  // namespace sim::calls
