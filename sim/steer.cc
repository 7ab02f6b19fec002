// SPDX-License-Identifier: Apache-2.0
// See steer.h: a thin layer of C over the process's NIC. Questions about a NIC that does not exist answer zero and
// make none; only attaching, or a program that looks for devices, makes it.
#include "sim/steer.h"

#include <errno.h>

#include <string>

#include "sim/uverbs/attach.h"
#include "sim/uverbs/events.h"
#include "sim/uverbs/last_words.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/profile.h"

namespace {

using sim::Device;
using sim::uverbs::Nic;

thread_local std::string last_message;

// The answer of an order that each NIC may refuse.
template <typename Order>
int ordered(const Order& order) {
    last_message.clear();
    for (int i = 0; i < Nic::count(); ++i) {
        const Nic nic(i);
        if (!nic) return last_message = Nic::message(), -ENODEV;
        if (!order(*nic.operator->(), &last_message)) return -EINVAL;
    }
    return 0;
}

// The answer of one function stays valid until the same thread asks it again.
const char* keep(std::string& place, const std::vector<std::string>& lines) {
    place.clear();
    for (const std::string& line : lines) {
        if (!place.empty()) place += '\n';
        place += line;
    }
    return place.c_str();
}

// Sentences quote what programs gave (names of files, environment variables): no field of a line may end one.
std::string plain(std::string words) {
    for (char& c : words) {
        if (c == '\n' || c == '\t') c = ' ';
    }
    return words;
}

std::string line_of(const sim::Complaint& complaint) {
    std::string line = sim::words_of(complaint.kind).name + '\t' + std::to_string(complaint.times) + '\t';
    for (const sim::Value& value : complaint.values) {
        if (&value != &complaint.values.front()) line += ' ';
        line += std::string(value.name) + '=' + std::to_string(value.value);
    }
    return line + '\t' + plain(complaint.sentence);
}

bool exists(int nic) { return nic >= 0 && nic < Nic::count(); }

// A change of one NIC's network; it is made if it is not there yet.
template <typename Change>
int change(int nic, Change how) {
    if (!exists(nic)) return -ENODEV;
    Nic one(nic);
    return one ? how(one) : -ENODEV;
}

}  // namespace

int gda_sim_attach(void) {
    last_message.clear();
    return sim::uverbs::attach::attach(&last_message);
}
int gda_sim_attached(void) { return sim::uverbs::attach::attached(); }
const char* gda_sim_message(void) { return last_message.c_str(); }

int gda_sim_step(void) {
    const uint64_t since_ns = sim::uverbs::profile::begin();
    const int done = Nic::step();
    sim::uverbs::profile::end(sim::uverbs::profile::Wait::kernel, since_ns, done == 0);
    return done;
}

int gda_sim_set_thread(int mode) {
    if (mode < 0 || mode > 2) return -EINVAL;
    const Device::Thread modes[] = {Device::Thread::off, Device::Thread::adaptive, Device::Thread::busy};
    Nic::set_thread(modes[mode]);
    return 0;
}

int gda_sim_nics(void) { return Nic::count(); }
int gda_sim_ports(void) {
    const Nic nic(0);
    return nic ? static_cast<int>(nic->ports()) : 0;
}
void gda_sim_set_virtual_time(int on) { Device::set_virtual_time(on != 0); }
uint64_t gda_sim_now_ns(void) { return Device::now_ns(); }

uint64_t gda_sim_counter(const char* name) {
    uint64_t sum = 0;
    for (int i = 0; i < Nic::count(); ++i) sum += gda_sim_nic_counter(i, name);
    return sum;
}

uint64_t gda_sim_nic_counter(int nic, const char* name) {
    if (!exists(nic)) return 0;
    const Nic one(nic, Nic::Make::no);
    return one && name ? one->counter(name) : 0;
}

uint64_t gda_sim_port_counter(int nic, uint32_t port, const char* name) {
    if (!exists(nic)) return 0;
    const Nic one(nic, Nic::Make::no);
    return one && name ? one->counter(name, port) : 0;
}

const char* gda_sim_counter_names(void) {
    thread_local std::string text;
    const Nic nic(0, Nic::Make::no);
    return keep(text, nic ? nic->counter_names() : std::vector<std::string>{});
}

const char* gda_sim_report(void) {
    thread_local std::string text;
    std::vector<std::string> lines;
    for (int i = 0; i < Nic::count(); ++i) {
        const Nic nic(i, Nic::Make::no);
        if (!nic) continue;
        for (const sim::Complaint& complaint : nic->complaints()) lines.push_back(line_of(complaint));
    }
    return keep(text, lines);
}

const char* gda_sim_complaint_kinds(void) {
    thread_local std::string text;
    std::vector<std::string> lines;
    for (int i = 0; i < static_cast<int>(sim::Kind::count); ++i) {
        const sim::KindWords& words = sim::words_of(static_cast<sim::Kind>(i));
        lines.push_back(words.name + '\t' + words.rule + '\t' + words.source + '\t' + words.advice);
    }
    return keep(text, lines);
}

void gda_sim_clear_report(void) {
    for (int i = 0; i < Nic::count(); ++i) {
        const Nic nic(i, Nic::Make::no);
        if (nic) nic->clear_report();
    }
}

int gda_sim_set_last_words(int manner) {
    using sim::uverbs::last_words::Manner;
    if (manner < 0 || manner > static_cast<int>(Manner::strict)) return -EINVAL;
    sim::uverbs::last_words::set(static_cast<Manner>(manner));
    return 0;
}

int gda_sim_last_doorbell(uint32_t qpn, uint64_t* value) {
    for (int i = 0; i < Nic::count() && value; ++i) {
        const Nic nic(i, Nic::Make::no);
        if (nic && nic->last_doorbell(qpn, value)) return 1;
    }
    return 0;
}

int gda_sim_set_faults(const char* text) {
    return ordered([text](Device& d, std::string* problem) { return d.set_faults(text ? text : "", problem); });
}

int gda_sim_check_faults(const char* text) {
    last_message.clear();
    return Device::check_faults(text ? text : "", &last_message) ? 0 : -EINVAL;
}

int gda_sim_set_capture(const char* path) {
    return ordered([path](Device& d, std::string* problem) { return d.set_capture(path ? path : "", problem); });
}

int gda_sim_set_trace(const char* directory, uint32_t log_events, uint32_t skip) {
    return ordered([=](Device& d, std::string* problem) {
        return d.set_trace(directory ? directory : "", log_events, skip, problem);
    });
}

void gda_sim_synchronize_trace(void) {
    for (int i = 0; i < Nic::count(); ++i) {
        const Nic nic(i, Nic::Make::no);
        if (nic) nic->synchronize_trace();
    }
}

void gda_sim_set_gpu_staging(int on) {
    for (int i = 0; i < Nic::count(); ++i) {
        const Nic nic(i, Nic::Make::no);
        if (nic) nic->set_gpu_staging(on != 0);
    }
}

int gda_sim_raise(int event, uint32_t port) {
    int told = 0;
    for (int i = 0; i < Nic::count(); ++i) {
        const int here = sim::uverbs::events::raise(event, i, port);
        if (here < 0) return here;
        told += here;
    }
    return told;
}

int gda_sim_set_gid(int nic, uint32_t port, int index, const uint8_t* gid, int version) {
    if (version != 1 && version != 2) return -EINVAL;
    return change(nic, [&](Nic& one) { return one.set_gid(port, index, gid, version == 1); });
}
int gda_sim_set_link(int nic, uint32_t port, int up) {
    return change(nic, [&](Nic& one) { return one.set_link(port, up != 0); });
}
int gda_sim_set_mtu(int nic, uint32_t port, uint32_t bytes) {
    return change(nic, [&](Nic& one) { return one.set_link_mtu(port, bytes); });
}

void gda_sim_set_relaxed_ordering(int on, uint64_t seed) {
    for (int i = 0; i < Nic::count(); ++i) {
        const Nic nic(i, Nic::Make::no);
        if (nic) nic->set_relaxed_ordering(on != 0, seed);
    }
}

namespace {
template <typename Order>
void each_nic(const Order& order) {
    for (int i = 0; i < Nic::count(); ++i) {
        const Nic nic(i, Nic::Make::no);
        if (nic) order(*nic.operator->());
    }
}
}  // namespace

void gda_sim_set_store_buffer(int on) {
    each_nic([on](Device& d) { d.set_store_buffer(on != 0); });
}
void gda_sim_fence(int moment) {
    if (moment < 0 || moment > 2) return;
    each_nic([moment](Device& d) { d.device_code(moment); });
}
void gda_sim_watch_sources(int on) {
    each_nic([on](Device& d) { d.set_watch_sources(on != 0); });
}

uint64_t gda_sim_objects(void) {
    uint64_t sum = 0;
    for (int i = 0; i < Nic::count(); ++i) {
        const Nic nic(i, Nic::Make::no);
        if (nic) sum += nic->objects();
    }
    return sum;
}
