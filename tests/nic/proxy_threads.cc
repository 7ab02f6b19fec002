// SPDX-License-Identifier: Apache-2.0
// Kernels and the proxy's thread at once, on rings of 16 slots that go round many times: the device library as kernels
// have it (cuda/gda), the proxy's queue and its loop as gda/_proxy.pyx calls them, over the device of proxy_played.h.
// Run by test_proxy_threads.py under the sanitizers for threads and addresses. All that the two sides share is in this
// program: rings, records, doorbell words, completions and payload.
//
// Blocks are threads of the operating system. While they post, the proxy's thread is stopped and started again, as when
// queue pairs are made; lives of a queue end with a failure, or in the error state, or well, and a reset begins the
// next.

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "proxy/queue.h"
#include "tests/nic/proxy_played.h"
// Behind those, since it defines the words of CUDA C++.
#include <gda/gda.h>

using namespace gda::prm;

namespace {

const uint32_t DEPTH = 16, RECEIVES = 8, CELL_WORDS = 8;
const uint64_t LIMIT_NS = GDA_S(120);

template <class T>
uint64_t address(T* p) {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p));
}

gda_mr region(void* start, size_t bytes) {
    gda_mr mr = {};
    mr.addr = address(start);
    mr.bytes = bytes;
    return mr;
}

// What a queue pair is, as gda/nic/queue.py makes it.
struct Form {
    bool shared, collapsed, ignores_overrun;
    uint32_t entries;  // of a completion ring
};

// A queue pair: its memory, the proxy's half, and the device's behind it.
struct Pair {
    Pair(ibv_context* context, uint32_t qpn, Form f, unsigned seed)
        : form(f),
          played(context, qpn, seed),
          blocks(DEPTH * WQE_BASIC_BLOCK_BYTES, 0xff),
          entries(f.entries * CQE_BYTES, 0xff),
          receives(RECEIVES * WQE_SEGMENT_BYTES, 0xff),
          receive_entries(RECEIVES * CQE_BYTES, 0xff) {
        const proxy::Places places = {address(blocks.data()),   address(entries.data()),
                                      address(receives.data()), address(receive_entries.data()),
                                      address(&word),           address(&send_record),
                                      address(&receive_record), form.ignores_overrun ? 0 : address(&cq_record)};
        const proxy::Facts facts = {
            DEPTH, form.entries, RECEIVES, form.collapsed, 7, proxy::MOST_INLINE_BYTES, proxy::MOST_PIECES, false};
        queue.reset(new proxy::Queue(places, facts, &played));
        begin(0, 0);
    }

    // The handle of a queue on which nothing was posted since a reset. The completion rings go on where they were.
    void begin(uint64_t consumed, uint64_t arrived) {
        handle = gda_queue();
        gda_qp& qp = handle.qp;
        qp.version = GDA_HANDLE_VERSION;
        qp.flags = GDA_QP_RECORDLESS | GDA_QP_ASSISTED | GDA_QP_CONNECTED;
        if (!form.shared) qp.flags |= GDA_QP_OWNED;
        qp.sq = address(blocks.data());
        qp.doorbell = address(&word);
        qp.qpn = played.qp_num;
        qp.log_sq_size = log(DEPTH);
        qp.deadline_ns = LIMIT_NS;
        qp.max_message_bytes = 1 << 20;
        qp.cq = {address(entries.data()), address(&cq_record), 0, log(form.entries), 0, 0};
        if (form.collapsed) qp.cq.flags |= GDA_CQ_COLLAPSED;
        if (form.ignores_overrun) qp.cq.flags |= GDA_CQ_IGNORE_OVERRUN;
        qp.cq_consumed = consumed;
        const uint64_t parked = gda::parked_at(0);
        std::memcpy(handle.window, &parked, sizeof parked);
        handle.receive.ring = address(receives.data());
        handle.receive.record = address(&receive_record);
        handle.receive.log_size = log(RECEIVES);
        handle.receive.cq = {address(receive_entries.data()), 0, 0, log(RECEIVES), GDA_CQ_IGNORE_OVERRUN, 0};
        handle.receive.cq_base = arrived;
        queue->start();
    }

    // As QueuePair.reset(), while no thread serves the queue and no kernel runs.
    void reset() {
        played.as_new();
        queue->reset();
        CHECK(!queue->is_waiting() && word == 0);
        const uint64_t consumed = form.collapsed ? 0 : written(entries, handle.qp.cq_consumed);
        const uint64_t arrived = written(receive_entries, handle.receive.cq_base + handle.receive.received);
        std::fill(blocks.begin(), blocks.end(), 0xff);
        std::fill(entries.begin(), entries.end(), 0xff);
        std::fill(receive_entries.begin(), receive_entries.end(), 0xff);
        send_record = receive_record = 0;
        cq_record = form.collapsed ? 0 : gda::be32(static_cast<uint32_t>(consumed) & 0xffffff);
        begin(consumed, arrived);
    }

    static uint32_t log(uint32_t size) { return static_cast<uint32_t>(__builtin_ctz(size)); }
    static uint64_t written(const std::vector<uint8_t>& ring, uint64_t index) {
        const uint64_t count = ring.size() / CQE_BYTES;
        for (uint64_t n = 0; n < count; ++n, ++index) {
            const uint8_t* entry = ring.data() + index % count * CQE_BYTES;
            if (GDA_GET(cqe64, entry, opcode) == MLX5_CQE_INVALID) break;
            if (GDA_GET(cqe64, entry, owner) != index / count % 2) break;
        }
        return index;
    }

    Form form;
    played::Pair played;
    std::vector<uint8_t> blocks, entries, receives, receive_entries;  // of exactly their size: reads beyond are seen
    alignas(64) uint64_t word = 0;
    alignas(64) uint32_t send_record = 0, receive_record = 0;
    alignas(64) uint32_t cq_record = 0;
    std::unique_ptr<proxy::Queue> queue;
    gda_queue handle;
};

// The proxy's thread, as gda/nic/host_thread.py has it.
class Thread {
   public:
    explicit Thread(std::vector<proxy::Queue*> queues) : queues_(queues) {}
    void start() {
        stop_ = 0;
        thread_ = std::thread([this] {
            const proxy::Patience patience = {20000, 200000, 20000};
            found_ += proxy::serve(queues_.data(), queues_.size(), &stop_, patience);
        });
    }
    void stop() {
        __atomic_store_n(&stop_, 1, __ATOMIC_RELEASE);
        thread_.join();
    }
    uint64_t found() const { return found_; }

   private:
    std::vector<proxy::Queue*> queues_;
    std::thread thread_;
    uint64_t stop_ = 0, found_ = 0;
};

// ---------------------------------------------------------------------------------------------------------- kernels

// What a kernel is given, and what it leaves.
struct Work {
    gda_qp* sender;
    gda_qp* receiver;
    gda_mr source, target;  // CELL_WORDS words a thread
    gda_mr sum;             // one word
    gda_mr buffers;         // RECEIVES pieces of 16 bytes
    uint32_t rounds;
    std::vector<uint64_t> done;  // by thread: rounds that ended well
    uint64_t taken, wrong;       // words that all threads add to
    std::vector<uint8_t> seen;   // by message
};

void complain(Work* w) { atomicAdd(&w->wrong, 1); }

// Every thread moves its own words there and back, by each kind of request, and looks at what came. Its memory is
// plain: only completions keep its thread and the device apart.
void move(Work* w) {
    const uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t at = me * CELL_WORDS * sizeof(uint64_t);
    uint64_t* source = reinterpret_cast<uint64_t*>(w->source.addr + at);
    const uint64_t* target = reinterpret_cast<const uint64_t*>(w->target.addr + at);
    gda_qp* qp = w->sender;
    for (uint64_t i = 0; i < w->rounds; ++i) {
        const uint64_t value = me * 1000003 + i;
        for (uint32_t n = 0; n < 4; ++n) source[n] = value + n;
        gda_ticket ticket = gda_put(qp, w->target, at, w->source, at, 32, i % 3 == 0 ? GDA_UNSIGNALED : 0);
        if (i % 4 == 0) ticket = gda_put_value(qp, w->target, at + 32, value);
        if (i % 4 == 1) ticket = gda_fetch_add(qp, w->source, at + 32, w->sum, 0, 1);
        if (i % 4 == 2) ticket = gda_get(qp, w->source, at + 40, w->target, at, 8, GDA_FENCE);
        if (i % 4 == 3) ticket = gda_nop(qp);
        if (gda_wait(qp, ticket, LIMIT_NS) != 0) return;
        for (uint32_t n = 0; n < 4; ++n) {
            if (target[n] != value + n) complain(w);
        }
        if (i % 4 == 0 && target[4] != value) complain(w);
        if (i % 4 == 1 && source[4] >= gridDim.x * blockDim.x * uint64_t{w->rounds}) complain(w);
        if (i % 4 == 2 && source[5] != value) complain(w);
        w->done[me] = i + 1;
    }
}

// Block 0 sends numbered messages, half of them as puts with immediate; the threads of the others post receives, take
// what arrives, whoever posted for it, and post again.
void messages(Work* w) {
    const uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x == 0) {
        const uint64_t at = me * CELL_WORDS * sizeof(uint64_t);
        uint64_t* source = reinterpret_cast<uint64_t*>(w->source.addr + at);
        for (uint32_t i = 0; i < w->rounds; ++i) {
            const uint32_t number = i * blockDim.x + me;
            source[0] = number, source[1] = ~source[0];
            const gda_ticket ticket = i % 2 ? gda_put_imm(w->sender, w->target, number * 16, w->source, at, 16, number)
                                            : gda_send(w->sender, w->source, at, 16);
            if (gda_wait(w->sender, ticket, LIMIT_NS) != 0) return;
            w->done[me] = i + 1;
        }
        return;
    }
    const uint32_t own = me - blockDim.x, total = blockDim.x * w->rounds;
    uint64_t buffer = w->buffers.addr + own * 16;
    bool posted = false;
    while (__atomic_load_n(&w->taken, __ATOMIC_RELAXED) < total) {
        if (!posted) {
            // A buffer that arrived for another's message may be posted before that one's completion frees the entry.
            posted = !gda_failed(gda_post_receive(w->receiver, w->buffers, buffer - w->buffers.addr, 16));
        }
        gda_received r;
        const gda_status status = gda_poll_receive(w->receiver, &r);
        if (gda_code(status) == GDA_TIMEOUT) {
            gda::target::idle();
            continue;
        }
        if (status != 0) return;
        const bool put = r.opcode == MLX5_CQE_RESP_WR_IMM;
        const uint64_t* got = reinterpret_cast<const uint64_t*>(put ? w->target.addr + r.immediate * 16 : r.addr);
        const uint64_t number = got[0];
        if (got[1] != ~number || number >= total || r.bytes != 16) return complain(w);
        if (__atomic_fetch_add(&w->seen[number], 1, __ATOMIC_RELAXED) != 0) complain(w);
        buffer = r.addr;
        posted = false;
        atomicAdd(&w->taken, 1);
    }
}

template <void (*KERNEL)(Work*)>
void enter(void* const* arguments) {
    KERNEL(*static_cast<Work* const*>(arguments[0]));
}

// ------------------------------------------------------------------------------------------------------------- lives

enum Ending { WELL, FAILURE, TO_ERROR };

// Runs a kernel while the proxy's thread is stopped and started again and again.
void run(void (*entry)(void* const*), uint32_t blocks, uint32_t threads, Work* w, Thread* thread, Pair* fails) {
    void* arguments[] = {&w};
    gda_host_request request = {};
    request.entry = entry;
    request.arguments = arguments;
    request.blocks = {blocks, 1, 1};
    request.threads = {threads, 1, 1};
    request.policy = GDA_HOST_CONVERGED_RANDOM;
    request.seed = 5;
    char reason[256];
    thread->start();
    gda_host_launch* launch = gda_host_start(&request, reason, sizeof reason);
    CHECK(launch);
    const uint64_t end = gda_host_clock_ns() + LIMIT_NS;
    for (uint32_t pauses = 0; !gda_host_wait(launch, 3000000); ++pauses) {
        CHECK(gda_host_clock_ns() < end);
        thread->stop();
        if (fails && pauses == 3) {  // as QueuePair.to_error()
            ibv_qp_attr error = {};
            error.qp_state = IBV_QPS_ERR;
            ibv_modify_qp(&fails->played, &error, IBV_QP_STATE);
            fails->queue->fail();
        }
        thread->start();
    }
    thread->stop();
    CHECK(gda_host_error(launch)[0] == 0);
    gda_host_free(launch);
}

uint64_t sum_of(const std::vector<uint64_t>& counts) {
    uint64_t sum = 0;
    for (uint64_t n : counts) sum += n;
    return sum;
}

void puts_of(Form form, uint32_t blocks, uint32_t threads, uint32_t rounds) {
    ibv_context context = played::device();
    Pair pair(&context, 0x123, form, 1);
    Thread thread({pair.queue.get()});
    const uint32_t all = blocks * threads;
    std::vector<uint64_t> source(all * CELL_WORDS), target(all * CELL_WORDS);
    uint64_t sum = 0;
    for (Ending ending : {WELL, FAILURE, WELL, TO_ERROR, WELL}) {
        Work w = {};
        w.sender = &pair.handle.qp;
        w.source = region(source.data(), source.size() * 8);
        w.target = region(target.data(), target.size() * 8);
        w.sum = region(&sum, sizeof sum);
        w.rounds = ending == TO_ERROR ? 1000000 : rounds;
        w.done.resize(all);
        sum = 0;
        if (ending == FAILURE) pair.played.until_failure = all * rounds;  // of about twice as many
        run(enter<move>, blocks, threads, &w, &thread, ending == TO_ERROR ? &pair : nullptr);
        CHECK(w.wrong == 0);
        const uint64_t done = sum_of(w.done);
        if (ending == WELL) {
            CHECK(done == uint64_t{all} * rounds && sum == all * uint64_t{rounds / 4} && pair.handle.qp.error == 0);
        } else {
            CHECK(gda_code(pair.handle.qp.error) == GDA_COMPLETION_ERROR && done < uint64_t{all} * w.rounds);
        }
        pair.reset();
    }
    std::printf("%s, %s: served %llu times\n", form.shared ? "shared" : "owned",
                form.collapsed         ? "collapsed"
                : form.ignores_overrun ? "ring"
                                       : "ring with a record",
                static_cast<unsigned long long>(thread.found()));
}

void messages_of(uint32_t senders, uint32_t blocks, uint32_t rounds) {
    ibv_context context = played::device();
    const Form form = {true, true, true, 1};
    Pair a(&context, 0x123, form, 2), b(&context, 0x124, form, 3);
    a.played.peer = &b.played;
    b.played.peer = &a.played;
    Thread thread({a.queue.get(), b.queue.get()});
    std::vector<uint64_t> source(senders * CELL_WORDS), target(senders * rounds * 2), buffers(RECEIVES * 2);
    CHECK((blocks - 1) * senders <= RECEIVES);
    for (int life = 0; life < 3; ++life) {
        Work w = {};
        w.sender = &a.handle.qp;
        w.receiver = &b.handle.qp;
        w.source = region(source.data(), source.size() * 8);
        w.target = region(target.data(), target.size() * 8);
        w.buffers = region(buffers.data(), buffers.size() * 8);
        w.rounds = rounds;
        w.done.resize(senders);
        w.seen.resize(senders * rounds);
        run(enter<messages>, blocks, senders, &w, &thread, nullptr);
        CHECK(w.wrong == 0 && w.taken == uint64_t{senders} * rounds && sum_of(w.done) == w.taken);
        CHECK(a.handle.qp.error == 0 && b.handle.qp.error == 0);
        a.reset();
        b.reset();
    }
    std::printf("messages: served %llu times\n", static_cast<unsigned long long>(thread.found()));
}

}  // namespace

int main(int, char** arguments) {
    const uint32_t rounds = static_cast<uint32_t>(std::atoi(arguments[1])) / 4 * 4;
    puts_of({true, true, true, 1}, 3, 2, rounds);
    puts_of({true, false, true, DEPTH}, 3, 2, rounds);
    puts_of({true, false, false, DEPTH}, 3, 2, rounds);
    puts_of({false, true, true, 1}, 1, 1, rounds);
    puts_of({false, false, false, DEPTH}, 1, 1, rounds);
    messages_of(2, 4, rounds);
    return 0;
}
