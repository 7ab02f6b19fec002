// SPDX-License-Identifier: Apache-2.0
// A capture of what a NIC sends and receives, as a pcapng file that Wireshark opens. What it sends is recorded before
// faults befall it, with what they will be; what arrives from other NICs, when it arrives. Each packet has a comment:
// queue pair, WQE, whether it was sent before, faults, and who posted it (the engine's words). Used by tapped.h and the
// port.
//
// Several NICs, also of several processes, may write into one file: each appends an interface to its only section.
// Every packet is written at once and whole, so that a program that is killed leaves a readable file.
// Source: "PCAP Next Generation (pcapng) Capture File Format", IETF draft-ietf-opsawg-pcapng.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/link/link.h"

namespace sim {

class Capture {
   public:
    Capture() = default;
    ~Capture() { close(); }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    // Begins to write into a file, after what is there already. The slot of the NIC names the interface. False:
    // *problem says why, and nothing is captured.
    bool open(const std::string& path, uint32_t slot, std::string* problem);
    void close();
    bool on() const { return fd_ >= 0; }
    const std::string& path() const { return path_; }
    // Why it ended by itself; empty: it did not.
    const std::string& failure() const { return failure_; }
    uint64_t packets() const { return packets_; }

    // Times are those of the NIC's clock, in nanoseconds. Marks the packet as unreadable when its payload is.
    void sent(const Packet& packet, uint64_t now_ns, const std::string& remark);
    void received(const Packet& packet, uint64_t now_ns, const std::string& remark);

   private:
    void record(const Packet& packet, uint64_t now_ns, bool outgoing, const std::string& comment);

    int fd_ = -1;
    uint32_t interface_ = 0;
    std::string path_, failure_;
    uint64_t packets_ = 0;
    std::vector<uint8_t> frame_;
};

}  // namespace sim
