// SPDX-License-Identifier: Apache-2.0
// See live.h. The mapping is private to the process: a forked child writes to pages of its own, and its head still has
// its parent's number, so that nobody takes it for the child's.

#include "sim/engine/live.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "sim/engine/state.h"

namespace sim {

namespace {

const size_t TEXT_BYTES = 16 * 1024 - 64, SENTENCES_BYTES = 112 * 1024;
const char MAGIC[8] = {'g', 'd', 'a', 'l', 'i', 'v', 'e', '1'};

// Lines of words. Offsets are measured at an object, since not all types have offsets for the compiler.
class Words {
   public:
    std::string text;

    template <typename T>
    void at(const char* name, const T& value) {
        add("at %s %llu %zu\n", name, address(&value), sizeof(T));
    }
    void begin(const char* name, const void* object, size_t bytes) {
        base_ = static_cast<const char*>(object);
        add("struct %s %zu", name, bytes);
    }
    template <typename T>
    void member(const char* name, const T& value) {
        add(" %s %td %zu", name, reinterpret_cast<const char*>(&value) - base_, sizeof(T));
    }
    void region(const char* name, const Region& region) {
        member((std::string(name) + ".umem").c_str(), region.umem);
        member((std::string(name) + ".offset").c_str(), region.offset);
    }
    void end() { text += '\n'; }
    void counters(const char* name, const void* values, size_t ports, const std::vector<std::string>& names) {
        add("counters %s %llu %zu", name, address(values), ports);
        for (const std::string& one : names) text += " " + one;
        text += '\n';
    }
    void table(const char* name, const void* blocks, size_t per_block, size_t count) {
        add("table %s %llu %zu %zu\n", name, address(blocks), per_block, count);
    }

   private:
    template <typename... Arguments>
    void add(const char* format, Arguments... arguments) {
        char line[160];
        snprintf(line, sizeof line, format, arguments...);
        text += line;
    }
    static unsigned long long address(const void* p) {
        return static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(p));
    }

    const char* base_ = nullptr;
};

void queue_pair(Words& w) {
    const auto probe = std::make_unique<Qp>();
    const Qp& q = *probe;
    w.begin("qp", &q, sizeof q);
#define MEMBER(name) w.member(#name, q.name)
    MEMBER(number);
    MEMBER(context);
    MEMBER(state);
    MEMBER(transport);
    MEMBER(port);
    MEMBER(recordless);
    MEMBER(has_receives);
    MEMBER(send_blocks);
    MEMBER(receive_entries);
    MEMBER(receive_stride);
    MEMBER(page);
    MEMBER(send_cq);
    MEMBER(receive_cq);
    MEMBER(local_gid);
    MEMBER(remote_gid);
    MEMBER(mtu);
    MEMBER(retry_count);
    MEMBER(rnr_retry);
    MEMBER(ack_timeout);
    MEMBER(producer);
    MEMBER(next);
    MEMBER(retired);
    MEMBER(next_psn);
    MEMBER(fresh_psn);
    MEMBER(acked_psn);
    MEMBER(cursor_psn);
    MEMBER(fetches);
    MEMBER(deadline_ns);
    MEMBER(rnr_until_ns);
    MEMBER(retries_left);
    MEMBER(rnr_left);
    MEMBER(last_doorbell);
    MEMBER(rang);
    MEMBER(announced);
    MEMBER(announced_ns);
    MEMBER(expected_psn);
    MEMBER(receive_next);
#undef MEMBER
    w.region("send_ring", q.send_ring);
    w.region("receive_ring", q.receive_ring);
    w.region("record", q.record);
    w.end();
}

void completion_queue(Words& w) {
    const Cq c;
    w.begin("cq", &c, sizeof c);
#define MEMBER(name) w.member(#name, c.name)
    MEMBER(number);
    MEMBER(entries);
    MEMBER(entry_bytes);
    MEMBER(collapsed);
    MEMBER(ignore_overrun);
    MEMBER(failed);
    MEMBER(producer);
    MEMBER(consumer);
    MEMBER(armed);
#undef MEMBER
    w.region("ring", c.ring);
    w.region("record", c.record);
    w.end();
    const Umem u;
    w.begin("umem", &u, sizeof u);
    w.member("address", u.address);
    w.member("bytes", u.bytes);
    w.member("gpu", u.gpu);
    w.end();
    const UarPage page;
    w.begin("page", &page, sizeof page);
    w.member("base", page.base);
    w.end();
}

std::string describe(const DeviceState& s) {
    Words w;
    w.at("slot", s.slot);
    w.at("ports", s.ports);
    w.at("now_ns", s.now_ns);
    w.at("thread_mode", s.thread_mode);
    w.at("asleep_until_ns", s.asleep_until_ns);
    w.at("outside_steps", s.outside_steps);
    w.at("gids", s.gids);
    w.at("link_mtu", s.port->link_mtus());
    w.table("qps", s.qps.blocks(), Table<Qp>::PER_BLOCK, Table<Qp>::LIMIT / Table<Qp>::PER_BLOCK);
    queue_pair(w);
    completion_queue(w);
    w.counters("nic", s.report.values(), MAX_PORTS, Report::names());
    w.counters("link", s.port->counters().values(), 1, Port::counter_names());
    return w.text;
}

}  // namespace

struct Live::Head {
    char magic[8];
    uint64_t pid;
    uint64_t text_bytes;
    std::atomic<uint64_t> sentences_bytes;  // what stands there before it is whole
    char name[32];
    char text[TEXT_BYTES];
    char sentences[SENTENCES_BYTES];
};

Live::Live(const DeviceState& s) {
    const int fd = memfd_create("gda-live-nic", MFD_CLOEXEC);
    if (fd < 0) return;
    void* place = MAP_FAILED;
    if (ftruncate(fd, sizeof(Head)) == 0) {
        place = mmap(nullptr, sizeof(Head), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    }
    ::close(fd);
    if (place == MAP_FAILED) return;
    Head* head = static_cast<Head*>(place);
    const std::string text = describe(s);
    head->text_bytes = std::min(text.size(), sizeof head->text);
    std::memcpy(head->text, text.data(), head->text_bytes);
    head->pid = static_cast<uint64_t>(getpid());
    std::memcpy(head->magic, MAGIC, sizeof MAGIC);
    head_ = head;
}

Live::~Live() {
    if (head_) munmap(head_, sizeof *head_);
}

void Live::set_name(const char* name) {
    if (head_) snprintf(head_->name, sizeof head_->name, "%s", name);
}

void Live::said(const std::string& sentence) {
    if (!head_) return;
    const uint64_t used = head_->sentences_bytes.load(std::memory_order_relaxed);
    if (used + sentence.size() + 1 > sizeof head_->sentences) return;
    std::memcpy(head_->sentences + used, sentence.data(), sentence.size());
    head_->sentences[used + sentence.size()] = '\n';
    head_->sentences_bytes.store(used + sentence.size() + 1, std::memory_order_release);
}

void Live::forget_sentences() {
    if (head_) head_->sentences_bytes.store(0, std::memory_order_release);
}

}  // namespace sim
