// SPDX-License-Identifier: Apache-2.0
// A UDP socket as the carriers that leave this host use it: never waits, receives in batches. Used by udp.h and
// ethernet.h. Addresses are GIDs: IPv6, or IPv4 as ::ffff:a.b.c.d.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sim {

typedef std::array<uint8_t, 16> Address;

// "10.0.0.1,2001:db8::1". False: *problem says which word is no address.
bool parse_addresses(const std::string& text, std::vector<Address>* addresses, std::string* problem);
std::string text_of(const Address& address);

class Socket {
   public:
    Socket() = default;
    ~Socket();
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    // False: *problem says why. The path MTU is "discovered" (datagrams are never fragmented by this host), which makes
    // Linux send IPv4 datagrams with ID 0 and "do not fragment".
    bool open(const Address& address, uint16_t port, std::string* problem);
    int descriptor() const { return fd_; }

    enum class Sent { yes, no_room, too_long, refused };
    Sent send(const Address& to, uint16_t port, const uint8_t* data, size_t bytes);
    // Hands over at most `budget` datagrams; returns how many.
    typedef std::function<void(const Address& from, uint16_t port, const uint8_t* data, size_t bytes)> Take;
    int receive(const Take& take, int budget);

   private:
    enum : int { BATCH = 32 };
    enum : size_t { DATAGRAM_BYTES = 10240 };  // longer ones are cut off, and no packet then
    int fd_ = -1;
    bool ipv4_ = false;
    std::unique_ptr<uint8_t[]> buffer_;
};

}  // namespace sim
