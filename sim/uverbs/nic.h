// SPDX-License-Identifier: Apache-2.0
// The NICs of this process: each made on first use, shared by all its contexts, given back at exit. How many there are
// says GDA_SIM_NICS. What a real driver learns from a card when it is loaded (capabilities, addresses) is read here
// once, with QUERY_HCA_CAP; the cards are alike.
#pragma once

#include <gda/formats/command.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "sim/engine/device.h"

namespace sim::uverbs {

// Limits of the card, as the driver reports them to libibverbs. Counts and bytes; log_* are powers of two.
struct Limits {
    uint32_t log_max_qp = 0, log_max_qp_size = 0, log_max_cq = 0, log_max_cq_size = 0, log_max_mkey = 0;
    uint32_t log_max_pd = 0, log_max_srq = 0, log_max_srq_size = 0, log_max_message = 0, log_bf_register = 0;
    uint32_t log_max_requests = 0,
             log_max_responses = 0;                  // reads and atomics in flight per QP: as requester, responder
    uint32_t max_send_wqe = 0, max_receive_wqe = 0;  // bytes
    uint32_t ports = 1;
    uint32_t gid_entries = 0, pkey_entries = 0, frequency_khz = 0, ack_delay = 0, vhca_id = 0;
    uint32_t device_memory = 0, device_memory_unit = 0;         // bytes: all of it, and the least that is given
    uint32_t log_device_memory_alignment = 0;                   // the largest that may be asked for
    uint32_t log_max_streams = 0, log_max_errored_streams = 0;  // of an initiator (DCI)
    bool atomic = false;
};

// What the card is called. One place: sysfs, QUERY_DEVICE and the clock page answer from here.
namespace identity {
constexpr uint32_t vendor_oui = 0x2c9;  // what verbs say; the PCI vendor is 0x15b3
constexpr uint32_t pci_vendor = 0x15b3, pci_device = 0x1021, pci_subsystem = 0x0041;
constexpr uint32_t completion_vectors = 1;
constexpr unsigned firmware_major = 28, firmware_minor = 0, firmware_sub = 1;  // 28 is ConnectX-7's family
uint64_t node_guid(int nic);  // host byte order, made from the MAC as a card does
}  // namespace identity

// Holding one keeps the NIC alive. Null when this process has none (not created, or the process is about to end).
class Nic {
   public:
    enum class Make { yes, no };
    explicit Nic(int index, Make make = Make::yes);
    // The one whose context this thread serves.
    explicit Nic(Make make = Make::yes) : Nic(current(), make) {}
    ~Nic();
    Nic(const Nic&) = delete;
    Nic& operator=(const Nic&) = delete;
    explicit operator bool() const { return device_ != nullptr; }
    Device* operator->() const { return device_; }

    enum : int { MOST = 8 };  // in one process: each takes a slot of the host
    static int count();
    static int current();
    // While it lives, this thread works for that NIC.
    class Use {
       public:
        explicit Use(int index);
        ~Use();
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

       private:
        const int before_;
    };

    static const Limits& limits();  // valid once a Nic has been non-null
    static std::string message();   // why making it failed
    static void set_thread(Device::Thread mode);
    // Whether a program may name that port: they count from 1. Valid when limits() are.
    static bool has_port(uint64_t port) { return port >= 1 && port <= limits().ports; }
    // What the driver tells every context: an entry of a port's address table changed, its link went up or down.
    int set_gid(uint32_t port, int index, const uint8_t* gid, bool version1);
    int set_link(uint32_t port, bool up);
    int set_link_mtu(uint32_t port, uint32_t bytes);
    static int step();  // one step of all of them; 0 where there is no NIC. The cheapest way to it: the poll path.

   private:
    const int index_;
    Device* device_ = nullptr;
};

// A firmware command with room for its answer. IN and OUT are sizes of formats/command.h.
template <size_t IN, size_t OUT>
struct Command {
    uint8_t in[IN] = {};
    uint8_t out[OUT] = {};
};
// Hands it to the firmware; true when its status is OK.
bool run_command(Nic& nic, const void* in, size_t in_bytes, void* out, size_t out_bytes);
// Runs it as the driver would: 0, or the errno that mlx5_core makes of the status.
int execute(const void* in, size_t in_bytes, void* out, size_t out_bytes);
template <size_t IN, size_t OUT>
int execute(Command<IN, OUT>& command) {
    return execute(command.in, IN, command.out, OUT);
}
#define SIM_COMMAND(NAME) ::sim::uverbs::Command<GDA_BYTES_OF(NAME##_in), GDA_BYTES_OF(NAME##_out)>
// Declares `command` and fills in the opcode.
#define SIM_COMMAND_OF(VARIABLE, NAME, OPCODE) \
    SIM_COMMAND(NAME) VARIABLE;                \
    GDA_SET(NAME##_in, (VARIABLE).in, opcode, (OPCODE))

// GDA_SIM_DEBUG=1: what the driver is asked and answers, on standard error.
bool debugging();

}  // namespace sim::uverbs
