// SPDX-License-Identifier: Apache-2.0
// See directory.h.

#include "sim/link/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "sim/link/address.h"

namespace sim {

namespace {

// The file of a dead NIC: tell who still maps it, and remove the name. The caller holds its lock.
void bury(int fd, const std::string& name, bool of_any_user) {
    if (Inbox* old = Inbox::map(fd, of_any_user)) {
        old->close();
        Inbox::unmap(old);
    }
    unlink((name + ".wake").c_str());  // first: once the name is gone, it may be another owner's
    unlink(name.c_str());
}

}  // namespace

Directory::Directory() {
    if (!prepare()) return;
    for (uint32_t slot = 0; slot < MAX_SLOTS; ++slot) {
        if (take(slot)) {
            slot_ = slot;
            sweep();
            return;
        }
        if (!problem_.empty()) return;
    }
    problem_ = "all " + std::to_string(MAX_SLOTS) + " slots of " + path_ + " are taken by living processes";
}

Directory::~Directory() {
    if (!inbox_) return;
    inbox_->close();
    Inbox::unmap(inbox_);
    pipe_.close();
    unlink(file(slot_).c_str());
    ::close(lock_);
}

uint64_t Directory::age() const {
    struct stat s;
    if (stat(path_.c_str(), &s) != 0) return 0;
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const auto count = [](const timespec& t) {
        return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
    };
    const uint64_t granularity_ns = 20 * 1000 * 1000;  // a tick of the kernel, with room
    const uint64_t changed = count(s.st_mtim);
    return changed + granularity_ns < count(now) ? changed : 0;
}

void Directory::touch() const { (void)!utimensat(AT_FDCWD, path_.c_str(), nullptr, 0); }

std::string Directory::file(uint32_t slot) const { return path_ + "/nic-" + std::to_string(slot); }

bool Directory::prepare() {
    const char* named = std::getenv("GDA_SIM_DIRECTORY");
    path_ = named && *named ? named : "/dev/shm/gda-sim-" + std::to_string(geteuid());
    if (mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
        problem_ = "cannot make " + path_ + ": " + std::strerror(errno);
        return false;
    }
    struct stat s;
    const bool there = lstat(path_.c_str(), &s) == 0 && S_ISDIR(s.st_mode);
    shared_ = there && named && *named && (s.st_mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH);
    if (!there || (!shared_ && (s.st_uid != geteuid() || (s.st_mode & 022)))) {
        problem_ = path_ + " is not a directory that only this user can write, nor one for all users (mode 1777)";
        return false;
    }
    return true;
}

// Opens the file of a slot, which may be another user's; makes it when there is none. -1: not now, with errno.
// Not by O_CREAT alone: Linux refuses that for files of others in a sticky directory.
int Directory::create(const std::string& name) const {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(name.c_str(), flags);
    if (fd >= 0 || errno != ENOENT) return fd;
    fd = open(name.c_str(), flags | O_CREAT | O_EXCL, 0600);
    if (fd >= 0 && shared_ && fchmod(fd, 0666) != 0) {
        ::close(fd);
        return -1;
    }
    return fd;
}

bool Directory::take(uint32_t slot) {
    const std::string name = file(slot);
    for (int attempt = 0; attempt < 8; ++attempt) {
        const int fd = create(name);
        if (fd < 0) {
            if (errno == EEXIST || errno == ENOENT) continue;  // another starter was faster, or just gave it up
            if (shared_ && errno == EACCES) return false;      // being made by another user
            problem_ = "cannot open " + name + ": " + std::strerror(errno);
            return false;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            ::close(fd);
            return false;  // a living NIC
        }
        // Between open and lock another starter may have removed the name: then this is nobody's file.
        struct stat mine, named;
        const bool same = fstat(fd, &mine) == 0 && stat(name.c_str(), &named) == 0 && mine.st_ino == named.st_ino;
        if (same && mine.st_size == 0) {
            int error = Inbox::format(fd);
            inbox_ = error ? nullptr : Inbox::map(fd);
            if (inbox_) {
                lock_ = fd;
                pipe_.make(pipe_path(slot), shared_);
                return true;
            }
            problem_ = "cannot lay out " + name + ": " + std::strerror(error ? error : ENOMEM);
            unlink(name.c_str());
            ::close(fd);
            return false;
        }
        if (same) bury(fd, name, shared_);
        ::close(fd);
    }
    return false;
}

void Directory::sweep() const {
    for (uint32_t slot = 0; slot < MAX_SLOTS; ++slot) {
        if (slot == slot_) continue;
        int fd = open(file(slot).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) bury(fd, file(slot), shared_);
        ::close(fd);
    }
}

Inbox* Directory::open_peer(uint32_t slot) const {
    if (path_.empty() || slot >= MAX_SLOTS) return nullptr;
    int fd = open(file(slot).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return nullptr;
    Inbox* inbox = Inbox::map(fd, shared_);
    ::close(fd);
    return inbox;
}

bool Directory::alive(uint32_t slot) const {
    int fd = open(file(slot).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return false;
    const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0;
    ::close(fd);
    return locked;
}

void Directory::disown() {
    if (lock_ >= 0) ::close(lock_);  // the lock belongs to the open file, which the parent still has
    lock_ = -1;
    pipe_.disown();
    inbox_ = nullptr;  // stays mapped: this process never looks at it again
}

}  // namespace sim
