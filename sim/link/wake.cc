// SPDX-License-Identifier: Apache-2.0
// See wake.h.

#include "sim/link/wake.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sim {

namespace {

// Both ends are opened for reading and writing: so there is always a reader, nobody gets SIGPIPE, and the sleeper never
// sees the end of the file.
const int FLAGS = O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW;

bool is_pipe(int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISFIFO(s.st_mode);
}

}  // namespace

void WakePipe::close() {
    if (fd_ < 0) return;
    ::close(fd_);
    fd_ = -1;
    unlink(path_.c_str());
}

int WakePipe::make(const std::string& path, bool shared) {
    unlink(path.c_str());  // of a dead owner of the slot
    if (mkfifo(path.c_str(), 0600) != 0) return errno;
    const int fd = open(path.c_str(), FLAGS);
    if (fd < 0 || !is_pipe(fd) || (shared && fchmod(fd, 0666) != 0)) {
        const int error = errno;
        if (fd >= 0) ::close(fd);
        unlink(path.c_str());
        return error;
    }
    path_ = path;
    fd_ = fd;
    return 0;
}

void WakePipe::drain() {
    char bytes[64];
    while (fd_ >= 0 && read(fd_, bytes, sizeof bytes) == static_cast<ssize_t>(sizeof bytes)) {
    }
}

void WakePipe::disown() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

void WakeCall::wake(const std::string& path) {
    if (fd_ < 0) {
        fd_ = open(path.c_str(), FLAGS);
        if (fd_ >= 0 && !is_pipe(fd_)) forget();
        if (fd_ < 0) return;
    }
    const char byte = 1;
    if (write(fd_, &byte, 1) < 0 && errno != EAGAIN) forget();  // full: it is awake soon anyway
}

void WakeCall::forget() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

}  // namespace sim
