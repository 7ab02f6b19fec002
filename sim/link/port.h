// SPDX-License-Identifier: Apache-2.0
// The ports of a NIC: what the engine sees of the cables. It owns the carriers and chooses one by destination: this NIC
// itself, the NICs of other processes of this host, hosts behind a wire when addresses are configured, or nobody. Every
// function is called under the lock of its NIC, except the counters. The environment may order how many ports there are
// (GDA_SIM_PORTS), faults (GDA_SIM_FAULTS) and a capture (GDA_SIM_CAPTURE) from the start, addresses of port 1 on a
// wire (GDA_SIM_ADDRESS) and that the wire is a virtual machine (GDA_SIM_ETHERNET): all read here alone.
// All ports share the carriers, one slot and one inbox: each port is a range of GIDs, and has a link state and an MTU
// of its own. docs/simulator.md, "Links".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/clock.h"
#include "sim/link/ethernet.h"
#include "sim/link/loopback.h"
#include "sim/link/shm.h"
#include "sim/link/tapped.h"
#include "sim/link/udp.h"

namespace sim {

class Port {
   public:
    // `own` takes what this NIC sends to itself, within the call of send().
    Port(const Clock& clock, Link::Receive own);
    ~Port();
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    // The slot of this NIC on its host; 0 without a directory.
    uint32_t slot() const { return slot_; }
    // Sentences about what could not be set up, for the NIC's report.
    const std::vector<std::string>& problems() const { return problems_; }

    // How many ports there are, 1 to MAX_PORTS.
    uint32_t ports() const { return ports_; }

    // The GIDs that lead back to this NIC, GID_COUNT of each port: from the start those made of its slot.
    void set_gids(const Gid* gids, size_t count);
    bool own(const uint8_t gid[16]) const;
    // The MAC behind an address that leads somewhere; `awake`: its NIC must be alive. False: there is none.
    bool neighbour(const uint8_t gid[16], bool awake, uint8_t mac[6]);
    // The addresses that GDA_SIM_ADDRESS gives this NIC, for the GID table of port 1: own ones in any case.
    const std::vector<Address>& addresses() const { return addresses_; }
    // Whether the wire carries RoCE v1, which is not IP.
    bool carries_version1() const { return ethernet_ != nullptr; }

    // The link that leads to a GID, never null. The pointer is valid as long as the port; a GID that nobody had may
    // get an owner later, so ask again before a message is sent once more.
    Link* route(const uint8_t gid[16]);
    // Whether a link hands the payload on in place: then it may be memory that the CPU cannot read.
    bool in_place(const Link* link) const { return link == &to_self_ && !tap_.looks(); }

    // Hands over what has arrived, at most `budget` packets of each carrier; sends held packets that have fallen due.
    int poll(const Link::Receive& receive, int budget);
    // Whether poll() has nothing to hand over, now and of itself; a wire is not asked, which would take a system call.
    bool quiet() const { return loopback_.empty() && shm_->empty() && tap_.held.empty() && !tap_.room_ns; }
    // The earliest time at which poll() has something to do of itself; 0: none.
    uint64_t due_ns() const { return tap_.due_ns(); }

    // Faults of the network, by the language of fault_spec.h, and a capture of what it carries. While either is on,
    // links take single packets only. False: *problem says why, and nothing changed.
    bool set_faults(const std::string& text, std::string* problem) { return tap_.faults.set(text, problem); }
    bool set_capture(const std::string& path, std::string* problem);  // an empty path ends it
    Faults& faults() { return tap_.faults; }
    Capture& capture() { return tap_.capture; }

    // What a thread may wait on for packets of hosts behind a wire; the inbox wakes by itself.
    std::vector<int> descriptors() const;

    // The MTU of a port's netdev: an IP packet (RoCE v1: GRH packet) longer than this is dropped and counted.
    void set_mtu(uint32_t bytes, uint32_t port = 1) { tap_.mtu_bytes[port - 1] = bytes; }
    uint32_t mtu(uint32_t port = 1) const { return tap_.mtu_bytes[port - 1]; }
    const auto& link_mtus() const { return tap_.mtu_bytes; }

    // Whether the cable of a port is plugged in. Without it everything that is sent there or has arrived is lost.
    void set_up(bool up, uint32_t port = 1);
    bool up(uint32_t port = 1) const { return !(tap_.down & port_bit(port)); }

    // Whether the NIC with that GID lives on this host; and whether it has not yet looked at all that was sent to it:
    // its answer may still come, however long the machine lets it wait.
    bool peer_lives(const uint8_t gid[16]);
    bool behind(const uint8_t gid[16]);

    // For an engine that wants to sleep: readable when a sender has woken it. False: packets could come unnoticed.
    // After it look once more. A light sleep is one between the looks of a program that polls; looked() says that it
    // did.
    bool fall_asleep(Inbox::Asleep how);
    void wake_up();
    int wake_descriptor() { return shm_->descriptor(); }
    void looked(uint64_t now_ns) { shm_->looked(now_ns); }

    // In a forked child: forgets the slot without giving it up, since the parent still has it.
    void disown();

    uint64_t counter(const char* name) const { return tap_.counters.value(name); }
    const LinkCounters& counters() const { return tap_.counters; }
    static std::vector<std::string> counter_names() { return LinkCounters::names(); }

   private:
    void read_ports();
    void configure();
    void from_others(const Packet& packet, const Link::Receive& receive);

    // A cable that ends nowhere: the sender's retry counter is what notices.
    struct Nowhere final : Link {
        explicit Nowhere(LinkCounters& counters) : counters_(counters) {}
        bool send(const Packet&) override { return counters_.count(LinkCounter::packets_to_nowhere), true; }
        int poll(const Receive&, int) override { return 0; }
        size_t run_bytes() const override { return Inbox::PACKET_PAYLOAD_BYTES; }
        LinkCounters& counters_;
    };

    uint32_t slot_ = 0, ports_ = 1;
    std::vector<std::string> problems_;
    Tap tap_;
    Loopback loopback_;
    std::unique_ptr<Shm> shm_;
    Nowhere nowhere_;
    Tapped to_self_, to_host_, to_nobody_;
    std::vector<Address> addresses_;
    std::unique_ptr<Udp> udp_;  // either of them, or none
    std::unique_ptr<Ethernet> ethernet_;
    std::unique_ptr<Tapped> to_wire_;
};

}  // namespace sim
