// SPDX-License-Identifier: Apache-2.0
// An open /dev/infiniband/uverbs<n>: what the kernel keeps per file. The file descriptor is a memfd, so that mmap() of
// doorbell pages and of the clock page are ordinary system calls that nobody needs to hook.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "sim/uverbs/events.h"
#include "sim/uverbs/objects.h"

namespace sim::uverbs {

class Request;

class Context {
   public:
    // Opens the device: a file descriptor, or -errno. `flags` are those of open(): O_CLOEXEC counts.
    static int open(int nic, int flags);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    // RDMA_VERBS_IOCTL on this file: 0 or an errno. One command at a time, as one driver lock would do.
    int ioctl(void* header);
    // Gives everything back to the NIC, last created first. Called once, when the file is closed.
    void close();

    // Our own descriptor of the memfd: the program's may be closed while a duplicate of it lives on.
    int memory_fd() const { return memory_fd_; }
    // Which of the process's NICs.
    int nic() const { return nic_; }
    // The channel that attribute `id` of the request names for an object's asynchronous events, or the context's own.
    // 0 or EBADF.
    int event_channel(const Request& request, uint16_t id, std::shared_ptr<Channel>* channel) const;
    Objects objects;
    std::shared_ptr<Channel> asynchronous;  // where events go whose objects name no channel of their own
    bool opened = false;                    // GET_CONTEXT was here
    bool devx = false;                      // the program asked for firmware commands

   private:
    Context(int nic, int memory_fd) : nic_(nic), memory_fd_(memory_fd) {}
    bool preset_clock_page();
    std::mutex mutex_;
    const int nic_, memory_fd_;
    bool closed_ = false;
};

// Which file descriptors of the process are ours.
namespace files {

// The common case, for every close(), write() and ioctl() of the process: no lock, no side effect.
bool maybe(int fd);

// The context or channel behind a descriptor; null when it is not one, or is no longer the file it was.
std::shared_ptr<Context> context(int fd);
std::shared_ptr<Channel> channel(int fd);
// fstat() of an unknown descriptor answered `status`: when it is a duplicate (dup, fcntl) of a device file of ours, it
// is entered. That is how a program imports a device: ibv_import_device looks at the descriptor first.
bool adopt(int fd, const struct ::stat& status);
// Whether that is a device file of ours, as stat() and /proc/self/maps name files.
bool is_device(dev_t device, ino_t inode);
// True for descriptors of ours, also those that the child of a fork inherited and cannot use.
bool inherited(int fd);

void add(int fd, std::shared_ptr<Context> context);
void add(int fd, std::shared_ptr<Channel> channel);

// The program closes `fd`: with its last known descriptor the object behind it ends. As close(2).
int close(int fd);

void lock();  // around fork()
void unlock();
void forget();  // in the child: with the lock held

}  // namespace files
}  // namespace sim::uverbs
