// SPDX-License-Identifier: Apache-2.0
// The cable. A link carries packets between NICs: real transport headers (formats/packet.h) and payload. Carriers:
// loopback (this NIC to itself) and shm (NICs of other processes of this host). Wrappers may stand before any of them.
//
// A carrier of this host may also take a *run*: consecutive packets of one message as if they were one, so that a
// message moves as one copy. A run counts as many packets as its payload would fill at the path MTU, and takes as many
// sequence numbers; nothing else about the transport depends on whether packets travelled alone or in a run.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace sim {

struct Packet {
    uint8_t source[16];  // GIDs
    uint8_t destination[16];
    uint8_t port = 1;             // of the NIC that sends it, counted from 1; not on the wire
    bool version1 = false;        // RoCE v1: a GRH behind Ethernet type 0x8915; else RoCE v2: IP and UDP
    uint8_t traffic_class = 0;    // of the IP header
    uint8_t hop_limit = 64;       // of the IP header
    uint16_t flow_port = 0xc000;  // UDP source port: constant per connection
    uint8_t header[80];           // BTH and what follows it up to the payload
    uint32_t header_bytes = 0;
    const iovec* payload = nullptr;  // valid during the call only; without the pad bytes that BTH counts
    size_t payload_count = 0;
    size_t payload_bytes = 0;
    uint32_t run_mtu = 0;  // 0: one packet. Else a run, cut at this many payload bytes; its header is that of an
                           // unsegmented message or part: the opcode tells whether it begins and ends the message
    // For people who read a capture; not on the wire.
    uint32_t note_qpn = 0;             // the queue pair that sent it
    int32_t note_index = -1;           // WQE it belongs to; -1: none
    bool note_again = false;           // sent before
    const char* note_words = nullptr;  // who made it; valid during the call only
    mutable bool unreadable = false;   // set by whoever copies the payload, when its pages are gone: nothing was sent
    // Of a packet that is handed over within send() and not kept anywhere: its receiver may have it come again, since
    // what came before is not placed yet. Nothing was sent then.
    bool may_wait = false;
    mutable bool later = false;
};

class Link {
   public:
    using Receive = std::function<void(const Packet&)>;
    virtual ~Link() = default;
    // False: no room now, try again in a later step. The packet is copied or delivered before send() returns.
    virtual bool send(const Packet& packet) = 0;
    // Hands over what has arrived, at most `budget` packets; returns how many.
    virtual int poll(const Receive& receive, int budget) = 0;
    // The longest payload of a run that it takes; 0: single packets only. May change from one send to the next.
    virtual size_t run_bytes() const = 0;
};

}  // namespace sim
