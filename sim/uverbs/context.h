// SPDX-License-Identifier: Apache-2.0
// An open /dev/infiniband/uverbs0: what the kernel keeps per file. The file descriptor is a memfd, so that mmap() of
// doorbell pages and of the clock page are ordinary system calls that nobody needs to hook.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "sim/uverbs/events.h"
#include "sim/uverbs/objects.h"

namespace sim::uverbs {

class Context {
   public:
    // Opens the device: a file descriptor, or -errno. `flags` are those of open(): O_CLOEXEC counts.
    static int open(int flags);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    // RDMA_VERBS_IOCTL on this file: 0 or an errno. One command at a time, as one driver lock would do.
    int ioctl(void* header);
    // Gives everything back to the NIC, last created first. Called once, when the file is closed.
    void close();

    int fd() const { return fd_; }
    Objects objects;
    std::shared_ptr<Channel> asynchronous;  // made by GET_CONTEXT
    bool devx = false;                      // the program asked for firmware commands

   private:
    explicit Context(int fd) : fd_(fd) {}
    bool preset_clock_page();
    std::mutex mutex_;
    int fd_;
    bool closed_ = false;
};

// Which file descriptors of the process are ours.
namespace files {

// The common case, for every close(), write() and ioctl() of the process: no lock, no side effect.
bool maybe(int fd);

// The context or channel behind a descriptor; null when it is not one, or is no longer the file it was.
std::shared_ptr<Context> context(int fd);
std::shared_ptr<Channel> channel(int fd);
// True for descriptors of ours, also those that the child of a fork inherited and cannot use.
bool inherited(int fd);

void add(int fd, std::shared_ptr<Context> context);
void add(int fd, std::shared_ptr<Channel> channel);

// The program closes `fd`: the object behind it ends, then the descriptor. As close(2).
int close(int fd);

void lock();  // around fork()
void unlock();
void forget();  // in the child: with the lock held

}  // namespace files
}  // namespace sim::uverbs
