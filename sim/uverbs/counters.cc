// SPDX-License-Identifier: Apache-2.0
// See counters.h. Only what the chip counts is here; a card has more. Names and units: Linux,
// Documentation/ABI/stable/sysfs-class-infiniband, and the counters that mlx5_ib shows.
#include "sim/uverbs/counters.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "sim/uverbs/nic.h"
#include "sim/uverbs/real.h"

namespace sim::uverbs::counters {
namespace {

struct File {
    const char *directory, *name, *counter;  // counter: the chip's name for it
    unsigned unit;                           // how many of the chip's make one here
};
const File files[] = {
    {"counters", "port_xmit_packets", "packets_sent", 1},
    {"counters", "port_rcv_packets", "packets_received", 1},
    {"counters", "port_xmit_data", "bytes_sent", 4},  // in words of four bytes; payload only
    {"counters", "port_rcv_data", "bytes_received", 4},
    {"hw_counters", "rx_write_requests", "write_requests", 1},
    {"hw_counters", "rx_read_requests", "read_requests", 1},
    {"hw_counters", "rx_atomic_requests", "atomic_requests", 1},
    {"hw_counters", "duplicate_request", "duplicates", 1},
    {"hw_counters", "out_of_sequence", "out_of_order", 1},
    {"hw_counters", "out_of_buffer", "rnr_naks_sent", 1},    // a request came and no receive was there
    {"hw_counters", "rnr_nak_retry_err", "rnr_retries", 1},  // the same, told by the peer
    {"hw_counters", "local_ack_timeout_err", "ack_timeouts", 1},
    {"hw_counters", "packet_seq_err", "sequence_naks", 1},
    {"hw_counters", "implied_nak_seq_err", "missed_responses", 1},
    {"hw_counters", "req_cqe_error", "requester_errors", 1},
    {"hw_counters", "resp_cqe_error", "responder_errors", 1},
    {"hw_counters", "req_cqe_flush_error", "requester_flushes", 1},
    {"hw_counters", "resp_cqe_flush_error", "responder_flushes", 1},
    {"hw_counters", "resp_local_length_error", "lengths_exceeded", 1},
    {"hw_counters", "resp_remote_access_errors", "accesses_refused", 1},
    {"hw_counters", "req_remote_access_errors", "refused_access", 1},
    {"hw_counters", "req_remote_invalid_request", "refused_request", 1},
};

// The file whose path ends in DIRECTORY/NAME.
const File* find(const char* path) {
    const char* name = strrchr(path, '/');
    if (!name) return nullptr;
    for (const File& file : files) {
        const size_t length = strlen(file.directory);
        const auto before = static_cast<size_t>(name - path);
        if (strcmp(name + 1, file.name) == 0 && before > length && name[-static_cast<ptrdiff_t>(length) - 1] == '/' &&
            strncmp(name - length, file.directory, length) == 0)
            return &file;
    }
    return nullptr;
}

}  // namespace

std::vector<const char*> names(const std::string& directory) {
    std::vector<const char*> found;
    for (const File& file : files)
        if (directory == file.directory) found.push_back(file.name);
    return found;
}

namespace {
// The digit behind a part of the path: .../mlx5_<nic>/ports/<port>/...
int digit_behind(const char* path, const char* part) {
    const char* found = strstr(path, part);
    return found ? found[strlen(part)] - '0' : -1;
}
}  // namespace

void refresh(const char* path) {
    const File* file = find(path);
    if (!file) return;
    char text[32];
    {
        const int index = digit_behind(path, "/mlx5_"), port = digit_behind(path, "/ports/");
        if (index < 0 || index >= Nic::count() || port < 1) return;
        const Nic nic(index, Nic::Make::no);
        if (!nic) return;
        const auto value =
            static_cast<unsigned long long>(nic->counter(file->counter, static_cast<uint32_t>(port)) / file->unit);
        snprintf(text, sizeof text, "%llu\n", value);
    }
    // In one write without a moment of emptiness: counters only grow, so a reader sees the old or the new value.
    const int fd = real::open(path, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0) return;
    (void)!real::write(fd, text, strlen(text));
    real::close(fd);
}

}  // namespace sim::uverbs::counters
