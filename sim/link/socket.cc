// SPDX-License-Identifier: Apache-2.0
// See socket.h.

#include "sim/link/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sim/link/wire.h"

namespace sim {

namespace {

socklen_t to_sockaddr(const Address& address, uint16_t port, bool ipv4, sockaddr_storage* out) {
    std::memset(out, 0, sizeof *out);
    if (ipv4) {
        sockaddr_in* a = reinterpret_cast<sockaddr_in*>(out);
        a->sin_family = AF_INET;
        a->sin_port = htons(port);
        std::memcpy(&a->sin_addr, address.data() + 12, 4);
        return sizeof *a;
    }
    sockaddr_in6* a = reinterpret_cast<sockaddr_in6*>(out);
    a->sin6_family = AF_INET6;
    a->sin6_port = htons(port);
    std::memcpy(&a->sin6_addr, address.data(), 16);
    return sizeof *a;
}

Address from_sockaddr(const sockaddr_storage& in, uint16_t* port) {
    Address address = {};
    if (in.ss_family == AF_INET) {
        const sockaddr_in& a = reinterpret_cast<const sockaddr_in&>(in);
        address[10] = address[11] = 0xff;
        std::memcpy(address.data() + 12, &a.sin_addr, 4);
        *port = ntohs(a.sin_port);
    } else {
        const sockaddr_in6& a = reinterpret_cast<const sockaddr_in6&>(in);
        std::memcpy(address.data(), &a.sin6_addr, 16);
        *port = ntohs(a.sin6_port);
    }
    return address;
}

}  // namespace

bool parse_addresses(const std::string& text, std::vector<Address>* addresses, std::string* problem) {
    addresses->clear();
    for (size_t at = 0; at < text.size();) {
        const size_t comma = std::min(text.find(',', at), text.size());
        const std::string word = text.substr(at, comma - at);
        at = comma + 1;
        Address address = {};
        if (inet_pton(AF_INET, word.c_str(), address.data() + 12) == 1) {
            address[10] = address[11] = 0xff;
        } else if (inet_pton(AF_INET6, word.c_str(), address.data()) != 1) {
            *problem = "'" + word + "' is not an IPv4 or IPv6 address";
            return false;
        }
        addresses->push_back(address);
    }
    return true;
}

std::string text_of(const Address& address) {
    char text[INET6_ADDRSTRLEN] = {};
    const bool ipv4 = is_ipv4(address.data());
    inet_ntop(ipv4 ? AF_INET : AF_INET6, address.data() + (ipv4 ? 12 : 0), text, sizeof text);
    return text;
}

Socket::~Socket() {
    if (fd_ >= 0) close(fd_);
}

bool Socket::open(const Address& address, uint16_t port, std::string* problem) {
    ipv4_ = is_ipv4(address.data());
    fd_ = socket(ipv4_ ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_storage own;
    const socklen_t own_bytes = to_sockaddr(address, port, ipv4_, &own);
    const int on = 1, discover = ipv4_ ? IP_PMTUDISC_DO : IPV6_PMTUDISC_DO, room = 4 << 20;
    bool good = fd_ >= 0;
    if (good && ipv4_) {
        good = setsockopt(fd_, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover) == 0;
    } else if (good) {
        good = setsockopt(fd_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &discover, sizeof discover) == 0 &&
               setsockopt(fd_, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0;
    }
    good = good && bind(fd_, reinterpret_cast<const sockaddr*>(&own), own_bytes) == 0;
    if (!good) {
        *problem = "cannot take UDP port " + std::to_string(port) + " of " + text_of(address) + ": " +
                   std::strerror(errno) + (errno == EADDRINUSE ? "; another NIC has it" : "") +
                   (errno == EADDRNOTAVAIL ? "; this host has no such address" : "");
        if (fd_ >= 0) close(fd_);
        fd_ = -1;
        return false;
    }
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);  // as far as the host allows
    setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    buffer_.reset(new uint8_t[BATCH * DATAGRAM_BYTES]);
    return true;
}

Socket::Sent Socket::send(const Address& to, uint16_t port, const uint8_t* data, size_t bytes) {
    sockaddr_storage peer;
    const socklen_t peer_bytes = to_sockaddr(to, port, ipv4_, &peer);
    for (int attempt = 0; attempt < 3; ++attempt) {  // the first may report what an earlier datagram met
        if (sendto(fd_, data, bytes, 0, reinterpret_cast<const sockaddr*>(&peer), peer_bytes) >= 0) return Sent::yes;
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return Sent::no_room;
        if (errno == EMSGSIZE) return Sent::too_long;
        if (errno != EINTR && errno != ECONNREFUSED) return Sent::refused;
    }
    return Sent::refused;
}

int Socket::receive(const Take& take, int budget) {
    mmsghdr messages[BATCH];
    iovec pieces[BATCH];
    sockaddr_storage from[BATCH];
    int taken = 0;
    while (taken < budget) {
        const int wanted = std::min<int>(BATCH, budget - taken);
        for (int i = 0; i < wanted; ++i) {
            pieces[i] = {buffer_.get() + static_cast<size_t>(i) * DATAGRAM_BYTES, DATAGRAM_BYTES};
            messages[i] = {};
            messages[i].msg_hdr.msg_name = &from[i];
            messages[i].msg_hdr.msg_namelen = sizeof from[i];
            messages[i].msg_hdr.msg_iov = &pieces[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        const int got = recvmmsg(fd_, messages, static_cast<unsigned>(wanted), MSG_DONTWAIT, nullptr);
        if (got <= 0) return taken;  // nothing there, or an error that some earlier datagram met
        for (int i = 0; i < got; ++i) {
            uint16_t port;
            const Address address = from_sockaddr(from[i], &port);
            take(address, port, static_cast<const uint8_t*>(pieces[i].iov_base), messages[i].msg_len);
        }
        taken += got;
        if (got < wanted) return taken;
    }
    return taken;
}

}  // namespace sim
