// SPDX-License-Identifier: Apache-2.0
// See device.h. Commands are in firmware/command.cc, the background thread in thread.cc.

#include "sim/engine/device.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sim/engine/addresses.h"
#include "sim/engine/doorbell.h"
#include "sim/engine/ordering.h"
#include "sim/engine/requester.h"
#include "sim/engine/responder.h"
#include "sim/engine/shadow.h"
#include "sim/engine/sources.h"
#include "sim/engine/thread.h"
#include "sim/engine/unrung.h"
#include "sim/engine/virtual.h"
#include "sim/link/guard.h"

namespace sim {

using namespace gda::prm;

namespace {

const int LINK_BUDGET = 128;           // packets taken per round
const int ROUNDS = 4;                  // per step: enough for request, execution and completion on the loopback link
const size_t FAILED_PER_STEP = 16;     // queue pairs in error
const uint32_t MAX_PDS = 1u << 15;     // as the capabilities say: firmware/handlers.h, LOG_MAX_OBJECTS
const uint32_t MAX_UMEMS = 1u << 17;   // LOG_MAX_UMEM
const uint32_t LOG_TRACE_EVENTS = 17;  // 4 MiB
const uint32_t FIRST_INDEX = 16;       // low numbers look like mistakes

void deliver(DeviceState& s, std::vector<PendingEvent>& events) {
    for (const PendingEvent& e : events) {
        if (e.completion) {
            if (s.events.completion) s.events.completion(e.number);
        } else if (s.events.asynchronous) {
            s.events.asynchronous(e.number, static_cast<int>(e.type));
        }
    }
}

void flush_gpu(DeviceState& s) {
    if (s.gpu_memory.empty()) return;
    s.copier.flush();
    const gpu::Copier::Counts counts = s.copier.take_counts();
    s.report.count(Counter::gpu_items, counts.items);
    s.report.count(Counter::gpu_launches, counts.launches);
    s.report.count(Counter::gpu_copies, counts.copies);
}

void round(DeviceState& s) {
    s.done += s.copier.poll();
    // What has arrived comes first: an answer that is here must not be counted as missing.
    const Link::Receive receive = [&s](const Packet& packet) { arrived(s, packet); };
    s.done += s.port->poll(receive, LINK_BUDGET);
    for (size_t i = 0; i < s.busy.size(); ++i) {  // it may grow meanwhile
        Qp* qp = s.busy[i];
        if (!serve(s, qp)) {
            qp->busy = false;
        } else if (qp->state == MLX5_QPC_STATE_ERR) {  // nothing but receives that may still be posted
            qp->busy = false;
            if (!qp->failed) s.failed.push_back(qp);
            qp->failed = true;
        }
    }
    size_t kept = 0;
    for (Qp* qp : s.busy) {
        if (qp->busy) s.busy[kept++] = qp;
    }
    s.busy.resize(kept);
    flush_gpu(s);
}

// Receives that are posted to a queue pair in error ring no doorbell: some of them are looked at in each step, so that
// many cost little, and nobody stays awake for them.
void flush_failed(DeviceState& s) {
    for (size_t i = std::min<size_t>(s.failed.size(), FAILED_PER_STEP); i > 0; --i) {
        if (s.failed_next >= s.failed.size()) s.failed_next = 0;
        serve(s, s.failed[s.failed_next++]);
    }
}

// What was left to a GPU goes on by itself, and there is more to come. Virtual time must not jump meanwhile.
void wait_for_gpu(DeviceState& s) {
    ++s.done;
    if (Clock::is_virtual()) s.copier.settle();
}

void note_outside_step(DeviceState& s) {
    s.outside_step_ns.store(s.now_ns, std::memory_order_relaxed);
    s.outside_steps.store(s.outside_steps.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    s.port->looked(s.now_ns);
}

}  // namespace

Device::Device(Events events) : state_(std::make_unique<DeviceState>()) {
    DeviceState& s = *state_;
    install_guard();
    s.generation = process_generation();
    s.events = std::move(events);
    s.device = this;
    s.port = std::make_unique<Port>(s.clock, [&s](const Packet& packet) { arrived(s, packet); });
    for (const std::string& problem : s.port->problems()) s.report.say(Kind::configuration, problem);
    s.slot = s.port->slot();
    s.ports = s.port->ports();
    fill_addresses(s);
    s.live = std::make_unique<Live>(s);
    s.report.copy_to(s.live.get());
    std::string trace_problem;
    const std::string directory = trace_directory();
    if (!directory.empty() && !s.trace.open(directory, s.slot, LOG_TRACE_EVENTS, 0, &trace_problem)) {
        s.report.say(Kind::configuration, "GDA_TRACE: " + trace_problem);
    }
    prepare_thread(s);
    enlist(&s);
    set_thread(Thread::adaptive);
}

Device::~Device() {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) {  // a forked child: the parent's thread, locks and files are not its own
        delist(&s);
        state_.release();  // and are in whatever state they were in: left alone
        return;
    }
    stop_thread(s);
    s.watch.close();
    delist(&s);
    s.report.copy_to(nullptr);
    if (s.thread_wake >= 0) ::close(s.thread_wake);
}

void Device::set_virtual_time(bool on) {
    if (on == Clock::is_virtual()) return;
    if (on) {
        each_device([](DeviceState& s) {
            const int mode = s.thread_mode.load();
            stop_thread(s);
            s.thread_mode.store(mode);  // as it shall be when time is real again
        });
        return Clock::make_virtual();
    }
    Clock::make_real();
    each_device([](DeviceState& s) { start_thread(s); });
}

int Device::settle() { return Clock::is_virtual() ? settle_virtual() : 0; }

uint64_t Device::now_ns() { return Clock().now_ns(); }

int Device::step() { return std::max(step_now(*state_, true), 0); }

int step_now(DeviceState& s, bool outside) {
    if (Clock::is_virtual()) return outside ? step_virtual() : 0;
    return step_one(s, outside);
}

int step_one(DeviceState& s, bool outside) {
    if (s.generation != process_generation()) {
        s.report.say(
            Kind::forked,
            "this process was forked from the one that opened the software NIC: its queues do not move here; open "
            "the NIC after the fork");
        return 0;
    }
    if (s.callers.load(std::memory_order_acquire)) return BUSY;  // a command is waiting: pollers must not starve it
    std::unique_lock<std::mutex> hold(s.lock, std::try_to_lock);
    if (!hold.owns_lock()) return BUSY;
    std::vector<PendingEvent> events;
    s.done = 0;
    s.trace.begin();
    try {
        if (s.qps.size() || s.cqs.size()) {
            s.now_ns = s.clock.now_ns();
            if (outside) note_outside_step(s);
            make_some_visible(s);
            const bool last_look = !outside && s.asleep_until_ns.load(std::memory_order_relaxed);  // then it sleeps
            scan_doorbells(s, last_look);
            if (!outside && s.ring_waits) expect_ring(s);
            flush_failed(s);
            for (int i = 0, before = -1; i < ROUNDS && before != s.done; ++i) {
                before = s.done;
                round(s);
                if (s.busy.empty() && s.port->quiet()) break;
            }
            if (!s.sweeping.empty()) {
                const int before = s.done;
                sweep_records(s, before == 0);
                if (s.done != before) round(s);
            }
            if (!s.done) look_for_unrung(s);
            if (s.copier.busy()) wait_for_gpu(s);
        }
    } catch (const std::exception& e) {  // out of memory: the work stays where it is, a later step tries again
        s.report.say(Kind::internal, std::string("the software NIC could not finish a step: ") + e.what());
    }
    const int done = s.done;
    events.swap(s.pending);
    if (outside) {
        nudge(s);
    } else {
        s.due_ns = done ? 0 : rest_until(s);
    }
    hold.unlock();
    deliver(s, events);
    return done;
}

void deliver_pending(DeviceState& s) {
    std::vector<PendingEvent> events;
    {
        Hold hold(s);
        events.swap(s.pending);
        nudge(s);
    }
    deliver(s, events);
}

int Device::register_umem(uint64_t address, uint64_t bytes, uint32_t* id) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    if (bytes == 0 || address + bytes < address) return -EINVAL;
    Hold hold(s);
    try {
        const uint32_t index = s.umems.free_index(FIRST_INDEX);
        if (index >= s.umems.LIMIT || s.umems.size() >= MAX_UMEMS) return -ENOMEM;
        auto umem = std::make_unique<Umem>();
        umem->id = index;
        umem->address = address;
        umem->bytes = bytes;
        std::string problem;
        umem->gpu = s.copier.context_of(address, &problem);
        if (!problem.empty()) {
            s.report.say(Kind::gpu_memory, problem);
            return -EFAULT;
        }
        const Umem* made = s.umems.put(index, std::move(umem));
        if (made->gpu) s.gpu_memory.push_back(made);
        s.gpu_umems.store(static_cast<int>(s.gpu_memory.size()));
        return *id = index, 0;
    } catch (const std::exception&) {
        return -ENOMEM;
    }
}

int Device::release_umem(uint32_t id) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    Hold hold(s);
    Umem* umem = s.umems.find(id);
    if (!umem) return -ENOENT;
    if (umem->uses) return -EBUSY;
    if (umem->gpu) {
        s.copier.settle();
        s.gpu_memory.erase(std::remove(s.gpu_memory.begin(), s.gpu_memory.end(), umem), s.gpu_memory.end());
        s.gpu_umems.store(static_cast<int>(s.gpu_memory.size()));
    }
    s.umems.erase(id);
    return 0;
}

int Device::allocate_pd(uint32_t* pdn) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    Hold hold(s);
    try {
        const uint32_t index = s.pds.free_index(FIRST_INDEX);
        if (index >= s.pds.LIMIT || s.pds.size() >= MAX_PDS) return -ENOMEM;
        auto pd = std::make_unique<Pd>();
        pd->number = index;
        s.pds.put(index, std::move(pd));
        return *pdn = index, 0;
    } catch (const std::exception&) {
        return -ENOMEM;
    }
}

int Device::release_pd(uint32_t pdn) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    Hold hold(s);
    Pd* pd = s.pds.find(pdn);
    if (!pd) return -ENOENT;
    if (pd->uses) return -EBUSY;
    s.pds.erase(pdn);
    return 0;
}

int Device::attach_uar(uint32_t page_id, uint8_t* page) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    if (page_id >= s.pages.LIMIT || !page) return -EINVAL;
    try {
        Hold hold(s);
        if (s.pages.find(page_id)) return -EEXIST;
        auto made = std::make_unique<UarPage>();
        made->id = page_id;
        made->base = page;
        clear_doorbells(made.get());
        s.watch.expect(page_id);
        s.page_list.push_back(s.pages.put(page_id, std::move(made)));
        s.attached.store(static_cast<int>(s.page_list.size()));
    } catch (const std::exception&) {
        return -ENOMEM;
    }
    start_thread(s);
    wake_thread(s);
    return 0;
}

int Device::map_uar(uint32_t page_id, uint8_t* program) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    try {
        if (!s.watch.map(page_id, program)) return -ENOENT;
    } catch (const std::exception&) {
        return -ENOMEM;
    }
    wake_thread(s);  // it may sleep, and this mapping is not yet protected
    return 0;
}

int Device::detach_uar(uint32_t page_id) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return -ENODEV;
    Hold hold(s);
    UarPage* page = s.pages.find(page_id);
    if (!page) return -ENOENT;
    if (!page->qps.empty() || !page->cqs.empty()) return -EBUSY;
    s.sweeping.erase(std::remove(s.sweeping.begin(), s.sweeping.end(), page), s.sweeping.end());
    for (size_t i = 0; i < s.page_list.size(); ++i) {
        if (s.page_list[i] == page) s.page_list.erase(s.page_list.begin() + static_cast<std::ptrdiff_t>(i--));
    }
    s.watch.forget(page_id);
    s.pages.erase(page_id);
    s.attached.store(static_cast<int>(s.page_list.size()));
    return 0;
}

uint32_t Device::slot() const { return state_->slot; }
uint32_t Device::ports() const { return state_->ports; }
void Device::mac(uint8_t out[6], uint32_t port) const { mac_of(state_->slot, out, port); }

bool Device::set_faults(const std::string& plan, std::string* problem) {
    Hold hold(*state_);
    return state_->port->set_faults(plan, problem);
}

bool Device::set_capture(const std::string& path, std::string* problem) {
    Hold hold(*state_);
    return state_->port->set_capture(path, problem);
}

void Device::set_through_libibverbs(uint32_t qpn) {
    Hold hold(*state_);
    if (Qp* qp = state_->qp(qpn)) qp->through_libibverbs = true;
}

bool Device::set_trace(const std::string& directory, uint32_t log_events, uint32_t skip, std::string* problem) {
    Hold hold(*state_);
    if (!directory.empty()) return state_->trace.open(directory, state_->slot, log_events, skip, problem);
    state_->trace.close();
    return true;
}

void Device::synchronize_trace() {
    Hold hold(*state_);
    state_->trace.synchronize();
}

uint64_t Device::counter(const char* name) const {
    return state_->report.counter(name) + state_->port->counter(name);  // no name is in both
}

uint64_t Device::counter(const char* name, uint32_t port) const {
    if (port < 1 || port > state_->ports) return 0;
    return state_->report.counter(name, port) + state_->port->counter(name);
}

std::vector<std::string> Device::counter_names() const {
    std::vector<std::string> names = Report::names();
    for (std::string& name : Port::counter_names()) names.push_back(std::move(name));
    return names;
}
std::vector<Complaint> Device::complaints() const {
    std::vector<Complaint> all = state_->report.complaints();
    if (const uint64_t more = state_->report.not_kept()) {
        all.push_back({Kind::more,
                       text("and %llu times something more, not kept", static_cast<unsigned long long>(more)),
                       {},
                       more});
    }
    Hold hold(*state_);
    const std::string& capture = state_->port->capture().failure();
    if (!capture.empty()) all.push_back({Kind::configuration, capture, {}, 1});
    return all;
}
std::vector<std::string> Device::report() const {
    std::vector<std::string> sentences;
    for (Complaint& complaint : complaints()) sentences.push_back(std::move(complaint.sentence));
    return sentences;
}
std::string Device::profile() const {
    Hold hold(*state_);
    std::string lines = state_->profile.lines(state_->slot);
    for (const std::string& name : Report::names()) {
        const uint64_t value = state_->report.counter(name.c_str());
        if (value) lines += text("counter %s %llu\n", name.c_str(), static_cast<unsigned long long>(value));
    }
    return lines;
}
void Device::set_name(const char* name) { state_->live->set_name(name); }
void Device::clear_report() { state_->report.clear(); }

bool Device::last_doorbell(uint32_t qpn, uint64_t* value) const {
    Hold hold(*state_);
    const Qp* qp = state_->qp(qpn);
    if (!qp || !qp->rang) return false;
    *value = qp->last_doorbell;
    return true;
}

bool Device::check_faults(const std::string& text, std::string* problem) {
    FaultPlan plan;
    return parse_faults(text, &plan, problem);
}

void Device::set_relaxed_ordering(bool on, uint64_t seed) {
    Hold hold(*state_);
    place_all(*state_);
    state_->ordering.on = on;
    state_->ordering.random = (seed + 1) * 0x9e3779b97f4a7c15u;  // never 0
}

void Device::set_store_buffer(bool on) {
    Hold hold(*state_);
    place_all(*state_);
    state_->shadows = on ? std::make_unique<Shadows>() : nullptr;
}

void Device::device_code(int moment) {
    DeviceState& s = *state_;
    if (s.generation != process_generation()) return;
    Hold hold(s);
    if (s.shadows) s.shadows->reached(s, static_cast<Shadows::Moment>(moment));
}

void Device::set_watch_sources(bool on) {
    Hold hold(*state_);
    state_->sources = on ? std::make_unique<Sources>() : nullptr;
}

void Device::set_gpu_staging(bool on) {
    Hold hold(*state_);
    state_->copier.set_staging(on);
}

size_t Device::objects() const {
    const DeviceState& s = *state_;
    Hold hold(*state_);
    return s.umems.size() + s.pds.size() + s.keys.size() + s.cqs.size() + s.srqs.size() + s.qps.size() +
           s.pages.size() + s.counter_sets.size();
}

}  // namespace sim
