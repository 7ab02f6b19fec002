// SPDX-License-Identifier: Apache-2.0
// See nic.h. All state here is plain or leaked on purpose: hooks run before constructors and after destructors.
#include "sim/uverbs/nic.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>

#include "sim/uverbs/context.h"
#include "sim/uverbs/device_memory.h"
#include "sim/uverbs/events.h"
#include "sim/uverbs/last_words.h"
#include "sim/uverbs/profile.h"
#include "sim/uverbs/sysfs.h"

namespace sim::uverbs {

const char* const profile::variable = "GDA_SIM_PROFILE";

namespace {

std::atomic<Device*> devices[Nic::MOST];
thread_local int current_nic = 0;
std::atomic<int> users{0};
std::atomic<bool> closing{false};
std::atomic<int> thread_mode{static_cast<int>(Device::Thread::adaptive)};

// Guards creation. Never destroyed: a thread may still be in here when the process ends.
std::mutex& making() {
    static std::mutex* mutex = new std::mutex;
    return *mutex;
}
std::string& failure() {
    static std::string* text = new std::string;
    return *text;
}
Limits the_limits;

// One group of capabilities, current values.
template <size_t BYTES>
bool query_capabilities(Device& device, uint32_t type, uint8_t (&capability)[BYTES]) {
    SIM_COMMAND_OF(command, query_hca_cap, gda::prm::MLX5_CMD_OP_QUERY_HCA_CAP);
    GDA_SET(query_hca_cap_in, command.in, op_mod, type * 2 + 1);
    if (!device.command(command.in, sizeof command.in, command.out, sizeof command.out)) return false;
    static_assert(BYTES <= sizeof command.out - GDA_BYTE_OFFSET(query_hca_cap_out, capability), "one capability page");
    __builtin_memcpy(capability, command.out + GDA_BYTE_OFFSET(query_hca_cap_out, capability), BYTES);
    return true;
}

bool read_limits(Device& device, Limits* limits) {
    uint8_t cap[GDA_BYTES_OF(cmd_hca_cap)];
    if (!query_capabilities(device, gda::prm::HCA_CAP_GENERAL, cap)) return false;
    auto& l = *limits;
    l.log_max_qp = GDA_GET(cmd_hca_cap, cap, log_max_qp);
    l.log_max_qp_size = GDA_GET(cmd_hca_cap, cap, log_max_qp_sz);
    l.log_max_cq = GDA_GET(cmd_hca_cap, cap, log_max_cq);
    l.log_max_cq_size = GDA_GET(cmd_hca_cap, cap, log_max_cq_sz);
    l.log_max_mkey = GDA_GET(cmd_hca_cap, cap, log_max_mkey);
    l.log_max_pd = GDA_GET(cmd_hca_cap, cap, log_max_pd);
    l.log_max_srq = GDA_GET(cmd_hca_cap, cap, log_max_srq);
    l.log_max_srq_size = GDA_GET(cmd_hca_cap, cap, log_max_srq_sz);
    l.log_max_message = GDA_GET(cmd_hca_cap, cap, log_max_msg);
    l.log_max_streams = GDA_GET(cmd_hca_cap, cap, log_max_dci_stream_channels);
    l.log_max_errored_streams = GDA_GET(cmd_hca_cap, cap, log_max_dci_errored_streams);
    l.log_bf_register = GDA_GET(cmd_hca_cap, cap, log_bf_reg_size);
    l.log_max_requests = GDA_GET(cmd_hca_cap, cap, log_max_ra_req_qp);
    l.log_max_responses = GDA_GET(cmd_hca_cap, cap, log_max_ra_res_qp);
    l.max_send_wqe = GDA_GET(cmd_hca_cap, cap, max_wqe_sz_sq);
    l.max_receive_wqe = GDA_GET(cmd_hca_cap, cap, max_wqe_sz_rq);
    l.frequency_khz = GDA_GET(cmd_hca_cap, cap, device_frequency_khz);
    l.ack_delay = GDA_GET(cmd_hca_cap, cap, local_ca_ack_delay);
    l.vhca_id = GDA_GET(cmd_hca_cap, cap, vhca_id);
    l.ports = GDA_GET(cmd_hca_cap, cap, num_ports);
    // Atomic as the verbs mean it: both operations on eight bytes, with answers in the program's byte order.
    uint8_t atomics[GDA_BYTES_OF(atomic_caps)];
    if (!query_capabilities(device, gda::prm::HCA_CAP_ATOMIC, atomics)) return false;
    constexpr uint32_t both = gda::prm::MLX5_ATOMIC_OPS_CMP_SWAP | gda::prm::MLX5_ATOMIC_OPS_FETCH_ADD, eight_bytes = 8;
    l.atomic = GDA_GET(cmd_hca_cap, cap, atomic) && (GDA_GET(atomic_caps, atomics, atomic_operations) & both) == both &&
               (GDA_GET(atomic_caps, atomics, atomic_size_qp) & eight_bytes);
    uint8_t memory[GDA_BYTES_OF(device_mem_cap)];
    if (!query_capabilities(device, gda::prm::HCA_CAP_DEV_MEM, memory)) return false;
    if (GDA_GET(device_mem_cap, memory, memic)) l.device_memory = GDA_GET(device_mem_cap, memory, max_memic_size);
    l.device_memory_unit = 1u << GDA_GET(device_mem_cap, memory, log_min_memic_alloc_size);
    l.log_device_memory_alignment = GDA_GET(device_mem_cap, memory, log_max_memic_addr_alignment);
    // The driver decides how much of the card's tables it shows: the addresses that are filled in, the default key.
    l.gid_entries = static_cast<uint32_t>(Device::gid_count());
    l.pkey_entries = 1;
    return true;
}

// The NIC goes back at exit only when no thread is inside it; a thread that still polls then finds none.
void close_at_exit(int status, void*) {
    std::vector<Complaint> complaints;
    for (auto& device : devices) {
        if (!device.load()) continue;
        for (Complaint& one : device.load()->complaints()) complaints.push_back(std::move(one));
    }
    const int wanted = last_words::say(complaints, status);
    closing = true;
    const timespec pause{0, 1000 * 1000};
    for (int wait_ms = 0; users.load() != 0 && wait_ms < 200; ++wait_ms) nanosleep(&pause, nullptr);
    if (profile::on()) {
        std::vector<std::string> told;
        for (auto& device : devices) {
            if (Device* one = device.load()) told.push_back(one->profile());
        }
        profile::write(told);
    }
    for (auto& device : devices) {
        if (users.load() == 0) delete device.exchange(nullptr);
    }
    sysfs::remove();
    if (wanted != status) {
        fflush(nullptr);
        _exit(wanted);
    }
}

// The child of a fork has a copy of the tables but no engine thread and no claim on the card: it starts afresh, and
// what it inherited answers EIO. Its locks were taken before the fork so that they are consistent after it.
void before_fork() {
    making().lock();
    files::lock();
    events::lock();
}
void after_fork_in_parent() {
    events::unlock();
    files::unlock();
    making().unlock();
}
void after_fork_in_child() {
    for (auto& device : devices) device = nullptr;
    users = 0;
    events::forget();
    device_memory::forget();
    files::forget();
    sysfs::forget();
    after_fork_in_parent();
}

// Called with making() held.
Device* make(int index) {
    try {
        Events receivers;
        receivers.completion = [index](uint32_t cqn) { events::completion(index, cqn); };
        receivers.asynchronous = [index](uint32_t number, int event) { events::asynchronous(index, number, event); };
        auto* device = new Device(std::move(receivers));
        device->set_name(("mlx5_" + std::to_string(index)).c_str());
        if (!read_limits(*device, &the_limits)) {
            failure() = "the software NIC refused QUERY_HCA_CAP";
            delete device;
            return nullptr;
        }
        device->set_thread(static_cast<Device::Thread>(thread_mode.load()));
        // After the engine registered its own: the handlers before a fork run in reverse order, so that our locks are
        // taken first, as everywhere.
        static bool registered = false;
        if (!registered) {
            registered = true;
            on_exit(close_at_exit, nullptr);  // of the C library's own: only this one is told the status
            pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        }
        return device;
    } catch (const std::exception& error) {
        failure() = std::string("the software NIC could not start: ") + error.what();
    }
    return nullptr;
}

}  // namespace

Nic::Nic(int index, Make make_it) : index_(index) {
    users.fetch_add(1);
    auto& device = devices[index];
    device_ = closing.load() ? nullptr : device.load();
    if (!device_ && make_it == Make::yes && !closing.load()) {
        std::lock_guard<std::mutex> guard(making());
        device_ = device.load();
        if (!device_) device = device_ = make(index);
    }
    if (!device_) users.fetch_sub(1);
}
Nic::~Nic() {
    if (device_) users.fetch_sub(1);
}

int Nic::current() { return current_nic; }
Nic::Use::Use(int index) : before_(current_nic) { current_nic = index; }
Nic::Use::~Use() { current_nic = before_; }

int Nic::count() {
    static const int number = [] {
        const char* value = getenv("GDA_SIM_NICS");
        const int wanted = value && *value ? atoi(value) : 1;
        return std::min(std::max(wanted, 1), int{MOST});
    }();
    return number;
}

const Limits& Nic::limits() { return the_limits; }

std::string Nic::message() {
    std::lock_guard<std::mutex> guard(making());
    return failure();
}

void Nic::set_thread(Device::Thread mode) {
    thread_mode = static_cast<int>(mode);
    for (int i = 0; i < count(); ++i) {
        const Nic nic(i, Make::no);
        if (nic) nic->set_thread(mode);
    }
}

int Nic::set_gid(uint32_t port, int index, const uint8_t* gid, bool version1) {
    if (const int error = device_->set_gid(index, gid, version1, port)) return error;
    sysfs::refresh();
    events::raise(events::gid_change, index_, port);
    return 0;
}
int Nic::set_link(uint32_t port, bool up) {
    const bool was_up = device_->link_up(port);
    if (const int error = device_->set_link_up(up, port)) return error;
    if (was_up == up) return 0;
    sysfs::refresh();
    events::raise(up ? events::port_active : events::port_error, index_, port);
    return 0;
}
int Nic::set_link_mtu(uint32_t port, uint32_t bytes) {
    if (const int error = device_->set_link_mtu(bytes, port)) return error;
    sysfs::refresh();
    return 0;
}

int Nic::step() {
    int done = 0;
    for (int i = 0; i < count(); ++i) {
        const Nic nic(i, Make::no);
        if (nic) done += nic->step();
    }
    return done;
}

uint64_t identity::node_guid(int index) {
    const Nic nic(index);
    uint8_t mac[6] = {};
    if (nic) nic->mac(mac);
    // EUI-64: the MAC with ff:fe in its middle and the universal/local bit flipped, as in the link-local GID.
    const uint8_t eui[8] = {static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
    uint64_t guid = 0;
    for (uint8_t byte : eui) guid = guid << 8 | byte;
    return guid;
}

bool run_command(Nic& nic, const void* in, size_t in_bytes, void* out, size_t out_bytes) {
    const bool ok = nic->command(in, in_bytes, out, out_bytes);
    if (debugging()) {
        fprintf(stderr, "gda-sim: command 0x%03x: status 0x%x syndrome 0x%x\n",
                static_cast<unsigned>(GDA_GET(destroy_cq_in, in, opcode)),
                static_cast<unsigned>(GDA_GET(destroy_cq_out, out, status)),
                static_cast<unsigned>(GDA_GET(destroy_cq_out, out, syndrome)));
    }
    return ok;
}

int execute(const void* in, size_t in_bytes, void* out, size_t out_bytes) {
    Nic nic;
    if (!nic) return ENODEV;
    if (run_command(nic, in, in_bytes, out, out_bytes)) return 0;
    switch (GDA_GET(destroy_cq_out, out, status)) {  // status lies at the same place in every answer
        case gda::prm::MLX5_CMD_STAT_BAD_OP_ERR:
        case gda::prm::MLX5_CMD_STAT_BAD_PARAM_ERR:
        case gda::prm::MLX5_CMD_STAT_BAD_RES_ERR:
        case gda::prm::MLX5_CMD_STAT_BAD_RES_STATE_ERR:
        case gda::prm::MLX5_CMD_STAT_IX_ERR:
        case gda::prm::MLX5_CMD_STAT_BAD_QP_STATE_ERR:
        case gda::prm::MLX5_CMD_STAT_BAD_PKT_ERR:
        case gda::prm::MLX5_CMD_STAT_BAD_SIZE_OUTS_CQES_ERR:
            return EINVAL;
        case gda::prm::MLX5_CMD_STAT_RES_BUSY:
            return EBUSY;
        case gda::prm::MLX5_CMD_STAT_LIM_ERR:
            return ENOMEM;
        case gda::prm::MLX5_CMD_STAT_NO_RES_ERR:
            return EAGAIN;
        default:
            return EIO;
    }
}

bool debugging() {
    static const bool on = [] {
        const char* value = getenv("GDA_SIM_DEBUG");
        return value && *value;
    }();
    return on;
}

}  // namespace sim::uverbs
