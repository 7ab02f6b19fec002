// SPDX-License-Identifier: Apache-2.0
// See steer.h: a thin layer of C over the process's NIC. Questions about a NIC that does not exist answer zero and
// make none; only attaching, or a program that looks for devices, makes it.
#include "sim/steer.h"

#include <errno.h>

#include <string>

#include "sim/uverbs/attach.h"
#include "sim/uverbs/events.h"
#include "sim/uverbs/nic.h"

namespace {

using sim::Device;
using sim::uverbs::Nic;

thread_local std::string last_message;

// The answer of an order that a NIC may refuse.
template <typename Order>
int ordered(const Order& order) {
    last_message.clear();
    Nic nic;
    if (!nic) return last_message = Nic::message(), -ENODEV;
    return order(*nic.operator->(), &last_message) ? 0 : -EINVAL;
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

}  // namespace

int gda_sim_attach(void) {
    last_message.clear();
    return sim::uverbs::attach::attach(&last_message);
}
int gda_sim_attached(void) { return sim::uverbs::attach::attached(); }
const char* gda_sim_message(void) { return last_message.c_str(); }

int gda_sim_step(void) { return Nic::step(); }

int gda_sim_set_thread(int mode) {
    if (mode < 0 || mode > 2) return -EINVAL;
    const Device::Thread modes[] = {Device::Thread::off, Device::Thread::adaptive, Device::Thread::busy};
    Nic::set_thread(modes[mode]);
    return 0;
}

void gda_sim_set_virtual_time(int on) { Device::set_virtual_time(on != 0); }
uint64_t gda_sim_now_ns(void) { return Device::now_ns(); }

uint64_t gda_sim_counter(const char* name) {
    Nic nic(Nic::Make::no);
    return nic && name ? nic->counter(name) : 0;
}

const char* gda_sim_counter_names(void) {
    thread_local std::string text;
    Nic nic(Nic::Make::no);
    return keep(text, nic ? nic->counter_names() : std::vector<std::string>{});
}

const char* gda_sim_report(void) {
    thread_local std::string text;
    Nic nic(Nic::Make::no);
    return keep(text, nic ? nic->report() : std::vector<std::string>{});
}

void gda_sim_clear_report(void) {
    Nic nic(Nic::Make::no);
    if (nic) nic->clear_report();
}

int gda_sim_last_doorbell(uint32_t qpn, uint64_t* value) {
    Nic nic(Nic::Make::no);
    return nic && value && nic->last_doorbell(qpn, value) ? 1 : 0;
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

void gda_sim_set_gpu_staging(int on) {
    Nic nic(Nic::Make::no);
    if (nic) nic->set_gpu_staging(on != 0);
}

void gda_sim_set_relaxed_ordering(int on, uint64_t seed) {
    Nic nic(Nic::Make::no);
    if (nic) nic->set_relaxed_ordering(on != 0, seed);
}

int gda_sim_raise(int event) { return sim::uverbs::events::raise(event); }

uint64_t gda_sim_objects(void) {
    Nic nic(Nic::Make::no);
    return nic ? nic->objects() : 0;
}
