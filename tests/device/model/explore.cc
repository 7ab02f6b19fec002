// SPDX-License-Identifier: Apache-2.0
// Explores how threads share one send queue: the device library itself, on the model's target. Run by
// tests/device/explore.py; document: docs/ordering.md.
//
//   explore [options] SCRIPT...     a script for each thread, a letter for each thing that it does:
//     p  a put         m  a put with GDA_MORE        2, 3  a warp's put: so many slots, published at once
//     d  one request of two slots
//     u  with GDA_UNSIGNALED    w  waits for the last one    f  flushes the queue
//   --start N      index where the queue's counters begin          --depth N   of the ring
//   --registers    with --owned: by a gda_owner, opened once and closed at the end
//   --recordless   --doorbell-first   --blueflame   --assisted (else record and doorbell)
//   --owned   --ring (completions; else collapsed)  --nic (it completes; waits and full rings need it)
//   --gpu-scope    (else system)
//   --deadline-zero  a put that finds no room gives its slot back  --remove BARRIER@FUNCTION
//   --most N       executions                                      --random SEED
//
// Prints one JSON object.
#include <gda/gda.h>

#include <cstring>

namespace model {
machine here;
}
using model::here;

namespace {

alignas(4096) gda_queue queue;
alignas(4096) uint8_t ring[64 * 256], completions[64 * 16];
alignas(64) uint64_t page[64], record;
alignas(64) uint32_t consumer_record[2];
uint32_t first_completion;

struct shared_queue : model::program {
    std::vector<std::string> scripts;
    bool nic = false, in_ring = false, registers = false;
    uint64_t start = 0, depth = 16, entries = 1;

    uint32_t threads() const override { return static_cast<uint32_t>(scripts.size()) + (nic ? 1 : 0); }

    void make(uint32_t bell, bool owned, bool more, bool flushes, uint64_t deadline_ns) {
        gda_qp& qp = queue.qp;
        qp.version = GDA_HANDLE_VERSION;
        qp.flags = GDA_QP_CONNECTED | bell;
        if (owned) qp.flags |= GDA_QP_OWNED;
        if (here.gpu_scope) qp.flags |= GDA_QP_GPU_SCOPE;
        qp.sq = reinterpret_cast<uintptr_t>(ring);
        qp.doorbell = reinterpret_cast<uintptr_t>(page);
        qp.record = reinterpret_cast<uintptr_t>(&record);
        qp.qpn = 0x123456;
        qp.log_sq_size = static_cast<uint32_t>(__builtin_ctzll(depth));
        qp.deadline_ns = deadline_ns;
        qp.cq.ring = reinterpret_cast<uintptr_t>(completions);
        entries = in_ring ? depth : 1;
        qp.cq.log_size = static_cast<uint32_t>(__builtin_ctzll(entries));
        qp.cq.flags = 0;
        if (!in_ring) qp.cq.flags = GDA_CQ_COLLAPSED;
        qp.cq.record = reinterpret_cast<uintptr_t>(consumer_record);
        here.consumer_record = consumer_record + GDA_DWORD_OFFSET(cq_doorbell_record, consumer_index) / 4;
        here.recordless = (bell & GDA_QP_RECORDLESS) != 0;
        here.doorbell_first = (bell & GDA_QP_DOORBELL_FIRST) != 0;
        here.assisted = (bell & GDA_QP_ASSISTED) != 0;
        here.owned = owned;
        here.sq = ring;
        here.record = &record;
        here.doorbell = page;
        here.depth = depth;
        here.first = start;
        if (nic) here.nic = threads() - 1;
        model::habit completing = nic ? model::shared : model::constant;
        here.add_word(&qp.reserved, "reserved", start);
        here.add_word(&qp.ready, "ready", start);
        here.add_word(&qp.done, "done", start, completing);
        here.add_word(&qp.error, "error", 0, model::constant);
        here.add_word(&qp.cq_consumed, "cq_consumed", 0, completing);
        // Only a deferred doorbell and a wait look at these.
        bool blueflame = (bell & GDA_QP_BLUEFLAME) != 0;
        here.add_word(&qp.rung, "rung", start, more || blueflame ? model::shared : model::unread);
        here.add_word(&qp.flashes, "flashes", 0, blueflame ? model::shared : model::unread);
        here.add_word(&qp.deferred, "deferred", 0, more ? model::shared : model::unread);
        here.add_word(&qp.silent, "silent", 0, flushes ? model::shared : model::unread);  // only a flush
        uint64_t* window = reinterpret_cast<uint64_t*>(queue.window);
        static const char* names[] = {"window 0", "window 1", "window 2", "window 3", "window 4", "window 5"};
        uint64_t token = start / gda::WORD_SLOTS;
        // Those that the program reaches, and those behind that are read ahead.
        for (uint64_t i = 0; i < 6 && i < gda::WINDOW_WORDS; ++i) {
            here.add_word(window + ((token + i) & (gda::WINDOW_WORDS - 1)), names[i],
                          i == 0 ? gda::parked_at(start) : 0);
        }
        first_completion = here.count;
        for (uint64_t i = 0; nic && i < entries; ++i) {
            here.add_word(completions + 64 * i + GDA_DWORD_OFFSET(cqe64, opcode), "completion", 0xffffffff);
        }
    }

    void begin() override {
        here.begin();
        if (here.owned) {
            gda_qp& qp = queue.qp;
            qp.reserved = qp.ready = qp.done = qp.rung = start;
            qp.deferred = qp.silent = qp.error = qp.cq_consumed = qp.flashes = 0;
        }
    }

    void run(uint32_t thread) override {
        if (thread == scripts.size()) return run_nic();
        gda_qp* qp = &queue.qp;
        gda_mr memory = {0x1000, 1 << 20, 0x11, 0x22, 0, 0};
        gda_ticket ticket = 0;
        gda_owner owner(registers ? qp : nullptr);
        for (char c : scripts[thread]) {
            if (c == 'w') {
                gda_status s = registers ? owner.wait(ticket, GDA_S(1)) : gda_wait(qp, ticket, GDA_S(1));
                if (s != GDA_OK) here.all->violated("a wait failed");
                if ((here.me().now.delivered & here.bit(ticket - 1)) == 0) {
                    here.all->violated("a wait is over before the data is surely there");
                }
            } else if (c == 'f') {
                uint64_t before = here.me().now.written;
                gda_status s = registers ? owner.flush(GDA_S(1)) : gda_flush(qp, GDA_S(1));
                if (s != GDA_OK) here.all->violated("a flush failed");
                if ((before & ~here.me().now.delivered) != 0) {
                    here.all->violated("a flush is over before the data is surely there");
                }
            } else if (c == '2' || c == '3' || c == 'd') {
                gda::queue_view q = gda::view(qp);
                gda::rdma_request r = {gda::prm::MLX5_OPCODE_RDMA_WRITE, 0, 0x2000, 0x1000, 0x22, 0x11, 8};
                gda::claim claim = gda::reserve(qp, q, c == '3' ? 3 : 2, c == 'd' ? 2 : 1);
                if (c == 'd') here.longer |= here.bit(claim.base);
                uint64_t seen = gda::park_early(q, claim);
                for (uint64_t i = 0; i < claim.count; ++i) gda::store_request(q, claim.base + i, r, true);
                gda::publish_shared(qp, q, claim, seen, false);
                ticket = claim.base + claim.count;
            } else {
                uint32_t flags = c == 'm' ? uint32_t(GDA_MORE) : c == 'u' ? uint32_t(GDA_UNSIGNALED) : 0;
                ticket =
                    registers ? owner.put(memory, 0, memory, 0, 8, flags) : gda_put(qp, memory, 0, memory, 0, 8, flags);
                if (gda_failed(ticket)) {
                    if (queue.qp.deadline_ns == 0 && gda_code(ticket) == GDA_QUEUE_FULL) return;
                    here.all->violated("a put was refused");
                }
            }
        }
        if (registers) owner.close();
    }

    void run_nic() {
        for (;;) {
            if (here.served == here.announced) {
                here.take_doorbell();
                continue;
            }
            if (!here.serve()) continue;
            uint64_t at = here.completions;
            uint32_t owner = in_ring ? static_cast<uint32_t>(at / entries % 2) : 0;
            uint32_t counter = static_cast<uint16_t>(here.served - 1);
            uint32_t last = GDA_FIELD(cqe64, wqe_counter, counter) | GDA_FIELD(cqe64, owner, owner);
            here.complete(first_completion + static_cast<uint32_t>(at % entries), gda::be32(last), entries);
            ++here.completions;
        }
    }

    bool can_go_on(uint32_t thread) override {
        return nic && thread == scripts.size() ? here.arrived() != 0 : here.looked_old(thread);
    }
    bool may_stay(uint32_t thread) override { return thread == scripts.size(); }
    void end() override { here.judge(here.owned ? queue.qp.reserved : here.words[0].newest()); }
};

void print_string(const std::string& s) {
    putchar('"');
    for (char c : s) {
        if (c == '"' || c == '\\') putchar('\\');
        putchar(c);
    }
    putchar('"');
}

template <class Strings>
void print_list(const Strings& strings) {
    putchar('[');
    bool first = true;
    for (const std::string& s : strings) {
        if (!first) putchar(',');
        first = false;
        print_string(s);
    }
    putchar(']');
}

}  // namespace

int main(int argc, char** argv) {
    shared_queue q;
    uint32_t bell = 0;
    bool owned = false, more = false, flushes = false;
    uint64_t deadline_ns = GDA_S(1), most = ~uint64_t(0), seed = 0;
    for (int i = 1; i < argc; ++i) {
        std::string a = argv[i];
        auto number = [&] { return i + 1 < argc ? strtoull(argv[++i], nullptr, 0) : 0; };
        if (a == "--start") {
            q.start = number();
        } else if (a == "--depth") {
            q.depth = number();
        } else if (a == "--most") {
            most = number();
        } else if (a == "--random") {
            seed = number();
        } else if (a == "--remove") {
            here.removed = ++i < argc ? argv[i] : "";
        } else if (a == "--recordless") {
            bell = GDA_QP_RECORDLESS;
        } else if (a == "--doorbell-first") {
            bell = GDA_QP_DOORBELL_FIRST;
        } else if (a == "--blueflame") {
            bell = GDA_QP_BLUEFLAME;
        } else if (a == "--assisted") {
            bell = GDA_QP_RECORDLESS | GDA_QP_ASSISTED;
        } else if (a == "--owned") {
            owned = true;
        } else if (a == "--registers") {
            q.registers = true;
        } else if (a == "--gpu-scope") {
            here.gpu_scope = true;
        } else if (a == "--ring") {
            q.in_ring = true;
        } else if (a == "--nic") {
            q.nic = true;
        } else if (a == "--deadline-zero") {
            deadline_ns = 0;
        } else if (a.find_first_not_of("pmu23dwf") == std::string::npos) {
            more = more || a.find_first_of("mwf") != std::string::npos;
            flushes = flushes || a.find('f') != std::string::npos;
            q.scripts.push_back(a);
        } else {
            fprintf(stderr, "explore: %s is neither an option nor a script of p, m, u, 2, 3, d, w and f\n", argv[i]);
            return 2;
        }
    }
    if (q.scripts.empty() || q.threads() > model::MOST_THREADS || q.depth < 2 || q.depth > 256) return 2;
    q.make(bell, owned, more, flushes, deadline_ns);
    model::explorer e(q, most, seed);
    here.all = &e;
    model::outcome o = e.explore();
    printf("{\"executions\": %llu, \"cut\": %llu, \"accesses\": %llu, \"complete\": %s, \"violation\": ",
           static_cast<unsigned long long>(o.executions), static_cast<unsigned long long>(o.cut),
           static_cast<unsigned long long>(o.accesses), o.complete ? "true" : "false");
    print_string(o.violation);
    printf(", \"log\": ");
    print_list(o.log);
    printf(", \"sites\": ");
    print_list(here.sites);
    printf("}\n");
    return 0;
}
