// SPDX-License-Identifier: Apache-2.0
// See interpose.h.
#include "sim/uverbs/interpose.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sim/uverbs/context.h"
#include "sim/uverbs/counters.h"
#include "sim/uverbs/poll.h"
#include "sim/uverbs/profile.h"
#include "sim/uverbs/real.h"
#include "sim/uverbs/sysfs.h"
#include "sim/uverbs/uar.h"

namespace sim::uverbs::hook {

bool preloaded = false;

namespace {

using sysfs::Path;

// The device file as stat() shows it.
void describe_device(int nic, struct ::stat* out) {
    memset(out, 0, sizeof *out);
    out->st_mode = S_IFCHR | 0666;
    out->st_rdev = sysfs::device_number(nic);
    out->st_nlink = 1;
    out->st_blksize = 4096;
    out->st_uid = 0;
    out->st_gid = 0;
}

void describe_device(int nic, struct ::statx* out) {
    memset(out, 0, sizeof *out);
    out->stx_mask = STATX_BASIC_STATS;
    out->stx_mode = S_IFCHR | 0666;
    out->stx_nlink = 1;
    out->stx_blksize = 4096;
    out->stx_rdev_major = major(sysfs::device_number(nic));
    out->stx_rdev_minor = minor(sysfs::device_number(nic));
}

int open_device(int nic, int flags) {
    const int fd = Context::open(nic, flags);
    if (fd >= 0) return fd;
    errno = -fd;
    return -1;
}

}  // namespace

int open(const char* path, int flags, mode_t mode) {
    char moved[sysfs::path_bytes];
    int nic = 0;
    switch (sysfs::resolve(path, moved, &nic)) {
        case Path::device:
            return open_device(nic, flags);
        case Path::tree:
            counters::refresh(moved);
            return real::open(moved, flags, mode);
        case Path::foreign:
            break;
    }
    return real::open(path, flags, mode);
}

int openat(int directory, const char* path, int flags, mode_t mode) {
    char moved[sysfs::path_bytes];
    int nic = 0;
    switch (sysfs::resolve(path, moved, &nic)) {
        case Path::device:
            return open_device(nic, flags);
        case Path::tree:
            counters::refresh(moved);
            return real::open(moved, flags, mode);
        case Path::foreign:
            break;
    }
    return real::openat(directory, path, flags, mode);
}

DIR* opendir(const char* path) {
    char moved[sysfs::path_bytes];
    return real::opendir(sysfs::resolve(path, moved) == Path::tree ? moved : path);
}

FILE* fopen(const char* path, const char* mode) {
    char moved[sysfs::path_bytes];
    if (sysfs::resolve(path, moved) != Path::tree) return real::fopen(path, mode);
    counters::refresh(moved);
    return real::fopen(moved, mode);
}

int stat(const char* path, struct ::stat* out) {
    char moved[sysfs::path_bytes];
    int nic = 0;
    switch (sysfs::resolve(path, moved, &nic)) {
        case Path::device:
            describe_device(nic, out);
            return 0;
        case Path::tree:
            return real::stat(moved, out);
        case Path::foreign:
            break;
    }
    return real::stat(path, out);
}

int lstat(const char* path, struct ::stat* out) {
    char moved[sysfs::path_bytes];
    int nic = 0;
    switch (sysfs::resolve(path, moved, &nic)) {
        case Path::device:
            describe_device(nic, out);
            return 0;
        case Path::tree:
            return real::lstat(moved, out);
        case Path::foreign:
            break;
    }
    return real::lstat(path, out);
}

int fstat(int fd, struct ::stat* out) {
    if (const auto context = files::maybe(fd) ? files::context(fd) : nullptr) {
        describe_device(context->nic(), out);
        return 0;
    }
    const int answer = real::fstat(fd, out);
    if (answer == 0 && files::adopt(fd, *out)) describe_device(files::context(fd)->nic(), out);
    return answer;
}

int fstatat(int directory, const char* path, struct ::stat* out, int flags) {
    if (path && !*path && (flags & AT_EMPTY_PATH) && directory >= 0) return hook::fstat(directory, out);
    char moved[sysfs::path_bytes];
    int nic = 0;
    switch (sysfs::resolve(path, moved, &nic)) {
        case Path::device:
            describe_device(nic, out);
            return 0;
        case Path::tree:
            return real::fstatat(directory, moved, out, flags);
        case Path::foreign:
            break;
    }
    return real::fstatat(directory, path, out, flags);
}

int statx(int directory, const char* path, int flags, unsigned mask, struct ::statx* out) {
    char moved[sysfs::path_bytes];
    int nic = 0;
    switch (sysfs::resolve(path, moved, &nic)) {
        case Path::device:
            describe_device(nic, out);
            return 0;
        case Path::tree:
            return real::statx(directory, moved, flags, mask, out);
        case Path::foreign:
            break;
    }
    return real::statx(directory, path, flags, mask, out);
}

int access(const char* path, int mode) {
    char moved[sysfs::path_bytes];
    switch (sysfs::resolve(path, moved)) {
        case Path::device:
            return 0;
        case Path::tree:
            return real::access(moved, mode);
        case Path::foreign:
            break;
    }
    return real::access(path, mode);
}

int faccessat(int directory, const char* path, int mode, int flags) {
    char moved[sysfs::path_bytes];
    switch (sysfs::resolve(path, moved)) {
        case Path::device:
            return 0;
        case Path::tree:
            return real::faccessat(directory, moved, mode, flags);
        case Path::foreign:
            break;
    }
    return real::faccessat(directory, path, mode, flags);
}

char* realpath(const char* path, char* resolved) {
    char moved[sysfs::path_bytes];
    switch (sysfs::resolve(path, moved)) {
        case Path::device:
            return resolved ? strcpy(resolved, path) : strdup(path);
        case Path::tree: {
            // At least PATH_MAX bytes, as realpath() asks of its caller; shorter after restore().
            char* answer = real::realpath(moved, resolved);
            if (answer) sysfs::restore(answer);
            return answer;
        }
        case Path::foreign:
            break;
    }
    return real::realpath(path, resolved);
}

ssize_t readlink(const char* path, char* out, size_t bytes) {
    char moved[sysfs::path_bytes];
    return real::readlink(sysfs::resolve(path, moved) == Path::tree ? moved : path, out, bytes);
}

int ioctl(int fd, unsigned long request, void* argument) {
    if (!files::maybe(fd)) return real::ioctl(fd, request, argument);
    const auto context = files::context(fd);
    int error = 0;
    if (context)
        error = request == RDMA_VERBS_IOCTL ? context->ioctl(argument) : ENOTTY;
    else if (files::inherited(fd))
        error = EIO;  // opened before a fork: it is the parent's
    else
        return real::ioctl(fd, request, argument);
    if (!error) return 0;
    errno = error;
    return -1;
}

ssize_t read(int fd, void* data, size_t bytes) {
    if (files::maybe(fd)) {
        const auto channel = files::channel(fd);
        if (channel && channel->carries() != Channel::Carries::asynchronous) {
            const profile::Sleeping sleeping;
            poll::before_read(fd);
            return real::read(fd, data, bytes);
        }
    }
    return real::read(fd, data, bytes);
}

// Commands come by ioctl; the older write interface, which libibverbs uses when the kernel has no INVOKE_WRITE, is
// refused so that nothing is written into the doorbell pages' file.
ssize_t write(int fd, const void* data, size_t bytes) {
    if (files::maybe(fd) && files::context(fd)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return real::write(fd, data, bytes);
}

int close(int fd) { return files::maybe(fd) ? files::close(fd) : real::close(fd); }

// Doorbell pages are mapped by an ordinary mmap() of the device file; the engine wants to know where, so that a store
// there can wake it.
void* mmap(void* address, size_t bytes, int rights, int flags, int fd, off_t offset) {
    void* mapped = real::mmap(address, bytes, rights, flags, fd, offset);
    if (mapped != MAP_FAILED && (rights & PROT_WRITE) && files::maybe(fd) && files::context(fd))
        uar::mapped(offset, bytes, mapped);
    return mapped;
}

// libibverbs asks the kernel for its devices by netlink first. A kernel with InfiniBand answers with an empty list,
// and then nobody looks into sysfs; so the question itself must fail.
int socket(int domain, int type, int protocol) {
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return real::socket(domain, type, protocol);
}

}  // namespace sim::uverbs::hook
