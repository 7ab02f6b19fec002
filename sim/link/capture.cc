// SPDX-License-Identifier: Apache-2.0
// See capture.h.

#include "sim/link/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "sim/link/address.h"
#include "sim/link/wire.h"

namespace sim {

namespace {

enum : uint32_t {
    SECTION_BLOCK = 0x0a0d0d0a,
    INTERFACE_BLOCK = 1,
    PACKET_BLOCK = 6,
    BYTE_ORDER_MAGIC = 0x1a2b3c4d,
    LINKTYPE_ETHERNET = 1,
    INBOUND = 1,
    OUTBOUND = 2,
};
enum : uint16_t {
    OPTION_END = 0,
    OPTION_COMMENT = 1,
    OPTION_NAME = 2,         // of an interface
    OPTION_FLAGS = 2,        // of a packet
    OPTION_APPLICATION = 4,  // of a section
    OPTION_MAC = 6,
    OPTION_RESOLUTION = 9,
};

// A block as it grows; pcapng is written in the byte order of the machine.
class Block {
   public:
    explicit Block(uint32_t type) {
        add(type);
        add(uint32_t{0});  // the length, filled in at the end
    }
    template <typename T>
    void add(T value) {
        const uint8_t* p = reinterpret_cast<const uint8_t*>(&value);
        bytes_.insert(bytes_.end(), p, p + sizeof value);
    }
    void add(const void* data, size_t bytes) {  // and up to a whole dword
        const uint8_t* p = static_cast<const uint8_t*>(data);
        bytes_.insert(bytes_.end(), p, p + bytes);
        bytes_.resize((bytes_.size() + 3) / 4 * 4);
    }
    void option(uint16_t code, const void* data, size_t bytes) {
        add(code);
        add(static_cast<uint16_t>(bytes));
        add(data, bytes);
    }
    // In one call, so that it is there as a whole or not at all.
    bool write_to(int fd) {
        option(OPTION_END, nullptr, 0);
        const uint32_t length = static_cast<uint32_t>(bytes_.size() + 4);
        add(length);
        std::memcpy(bytes_.data() + 4, &length, 4);
        ssize_t written;
        do {
            written = ::write(fd, bytes_.data(), bytes_.size());
        } while (written < 0 && errno == EINTR);
        if (written >= 0 && static_cast<size_t>(written) != bytes_.size()) errno = ENOSPC;
        return written == static_cast<ssize_t>(bytes_.size());
    }

   private:
    std::vector<uint8_t> bytes_;
};

bool write_section(int fd) {
    Block block(SECTION_BLOCK);
    block.add(uint32_t{BYTE_ORDER_MAGIC});
    block.add(uint16_t{1});  // version 1.0
    block.add(uint16_t{0});
    block.add(int64_t{-1});  // of unknown length
    const char application[] = "gda software NIC";
    block.option(OPTION_APPLICATION, application, sizeof application - 1);
    return block.write_to(fd);
}

bool write_interface(int fd, uint32_t slot) {
    Block block(INTERFACE_BLOCK);
    block.add(uint16_t{LINKTYPE_ETHERNET});
    block.add(uint16_t{0});
    block.add(uint32_t{0});  // packets are captured whole
    const std::string name = "gda-sim-" + std::to_string(slot);
    block.option(OPTION_NAME, name.data(), name.size());
    uint8_t mac[6];
    mac_of(slot, mac);
    block.option(OPTION_MAC, mac, sizeof mac);
    const uint8_t nanoseconds = 9;  // 10 to the minus 9
    block.option(OPTION_RESOLUTION, &nanoseconds, 1);
    return block.write_to(fd);
}

// How many interfaces a file describes. False: it is something else than one section of ours.
bool count_interfaces(int fd, uint32_t* count) {
    *count = 0;
    uint32_t head[3];  // type, length; of a section also the byte order
    off_t at = 0;
    for (;; at += head[1]) {
        const ssize_t n = pread(fd, head, sizeof head, at);
        if (n == 0) return at > 0;
        if (n != sizeof head || head[1] < 12 || head[1] % 4) return false;
        if ((head[0] == SECTION_BLOCK) != (at == 0)) return false;
        if (at == 0 && head[2] != BYTE_ORDER_MAGIC) return false;
        *count += head[0] == INTERFACE_BLOCK;
    }
}

// The MAC that a GID stands for: a NIC of this host, or made from the address as its owner would.
void mac_for(const uint8_t gid[16], uint8_t mac[6]) {
    uint32_t slot, port;
    if (slot_of(gid, &slot, &port)) return mac_of(slot, mac, port);
    mac[0] = 0x02, mac[1] = 0;
    std::memcpy(mac + 2, gid + 12, 4);
}

std::string comment_of(const Packet& packet, const std::string& remark) {
    char words[96];
    int n = std::snprintf(words, sizeof words, "QP 0x%06x", packet.note_qpn);
    if (packet.note_index >= 0) n += std::snprintf(words + n, sizeof words - n, ", WQE %d", packet.note_index);
    if (packet.note_again) n += std::snprintf(words + n, sizeof words - n, ", sent again");
    return words + (remark.empty() ? "" : "; " + remark) + (packet.note_words ? "; " : "") +
           (packet.note_words ? packet.note_words : "");
}

}  // namespace

bool Capture::open(const std::string& path, uint32_t slot, std::string* problem) {
    close();
    failure_.clear();
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    struct stat s;
    if (fd < 0 || flock(fd, LOCK_EX) != 0 || fstat(fd, &s) != 0) {
        *problem = "cannot capture to " + path + ": " + std::strerror(errno);
        if (fd >= 0) ::close(fd);
        return false;
    }
    bool good = true;
    if (s.st_size == 0) {
        interface_ = 0;
        good = write_section(fd) && write_interface(fd, slot);
        if (!good) *problem = "cannot write to " + path + ": " + std::strerror(errno);
    } else if (!count_interfaces(fd, &interface_)) {
        good = false;
        *problem = "cannot capture to " + path + ": it holds something else than a capture of this program; remove it";
    } else if (!write_interface(fd, slot)) {
        good = false;
        *problem = "cannot write to " + path + ": " + std::strerror(errno);
    }
    flock(fd, LOCK_UN);
    if (!good) return ::close(fd), false;
    fd_ = fd;
    path_ = path;
    return true;
}

void Capture::close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

void Capture::sent(const Packet& packet, uint64_t now_ns, const std::string& remark) {
    record(packet, now_ns, true, comment_of(packet, remark));
}

void Capture::received(const Packet& packet, uint64_t now_ns, const std::string& remark) {
    record(packet, now_ns, false, remark.empty() ? "received" : "received; " + remark);
}

void Capture::record(const Packet& packet, uint64_t now_ns, bool outgoing, const std::string& comment) {
    uint8_t from[6], to[6];
    mac_for(packet.source, from);
    mac_for(packet.destination, to);
    frame_.resize(frame_bytes(packet));
    if (!encode_frame(packet, to, from, frame_.data())) return;
    Block block(PACKET_BLOCK);
    block.add(interface_);
    block.add(static_cast<uint32_t>(now_ns >> 32));
    block.add(static_cast<uint32_t>(now_ns));
    block.add(static_cast<uint32_t>(frame_.size()));
    block.add(static_cast<uint32_t>(frame_.size()));
    block.add(frame_.data(), frame_.size());
    const uint32_t flags = outgoing ? OUTBOUND : INBOUND;
    block.option(OPTION_FLAGS, &flags, sizeof flags);
    block.option(OPTION_COMMENT, comment.data(), comment.size());
    if (block.write_to(fd_)) {
        ++packets_;
        return;
    }
    failure_ =
        "the capture to " + path_ + " ended after " + std::to_string(packets_) + " packets: " + std::strerror(errno);
    close();
}

}  // namespace sim
