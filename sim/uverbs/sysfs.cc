// SPDX-License-Identifier: Apache-2.0
// See sysfs.h. What the files say is in sysfs_tree.cc; here are the directory's life and the rule for paths.
#include "sim/uverbs/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>

#include "sim/uverbs/nic.h"
#include "sim/uverbs/real.h"
#include "sim/uverbs/sysfs_tree.h"

namespace sim::uverbs::sysfs {
namespace {

struct Tree {
    std::mutex mutex;
    std::atomic<const char*> root{nullptr};  // no slash at the end; never freed: readers hold no lock
    int lock_fd = -1;                        // flock held while we live: whoever sweeps sees that the tree is in use
};
Tree& tree() {
    static Tree* instance = new Tree;
    return *instance;
}

bool starts_with(const char* text, const char* prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

// ---- the directory's life ----

void remove_directory(const std::string& path) {
    DIR* directory = real::opendir(path.c_str());
    if (!directory) return;
    while (const dirent* entry = readdir(directory)) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        const std::string child = path + "/" + entry->d_name;
        if (unlink(child.c_str()) != 0) remove_directory(child);
    }
    closedir(directory);
    rmdir(path.c_str());
}

// Trees of processes that were killed: nobody holds their lock any more.
void sweep(const std::string& parent, const std::string& prefix) {
    DIR* directory = real::opendir(parent.c_str());
    if (!directory) return;
    while (const dirent* entry = readdir(directory)) {
        if (!starts_with(entry->d_name, prefix.c_str())) continue;
        const std::string path = parent + "/" + entry->d_name;
        int fd = real::open((path + "/lock").c_str(), O_RDONLY | O_CLOEXEC, 0);
        // Without a lock file its owner is just starting, or died in that instant; only this user can tell, later.
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) remove_directory(path);
        real::close(fd);
    }
    closedir(directory);
}

const char* create() {
    const std::string prefix = "gda-sysfs-" + std::to_string(getuid()) + "-";
    // Twice each: somebody's sweep may take the directory in the instant before it is locked.
    for (const char* parent : {"/dev/shm", "/dev/shm", "/tmp", "/tmp"}) {
        sweep(parent, prefix);
        std::string name = std::string(parent) + "/" + prefix + "XXXXXX";
        if (!mkdtemp(name.data())) continue;
        int fd = real::open((name + "/lock").c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0 && flock(fd, LOCK_EX) == 0 && write_tree(name)) {
            tree().lock_fd = fd;
            return strdup(name.c_str());
        }
        remove_directory(name);
        if (fd >= 0) real::close(fd);
    }
    return nullptr;
}

const char* root() {
    Tree& t = tree();
    const char* found = t.root.load();
    if (found) return found;
    std::lock_guard<std::mutex> guard(t.mutex);
    if (!t.root.load()) t.root = create();
    return t.root.load();
}

bool is_or_is_below(const char* path, const char* prefix) {
    const size_t length = strlen(prefix);
    return strncmp(path, prefix, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

}  // namespace

Path resolve(const char* path, char (&moved)[path_bytes], int* nic) {
    if (!path || path[0] != '/') return Path::foreign;
    constexpr const char* device = "/dev/infiniband/uverbs";
    if (starts_with(path, device)) {
        const char* number = path + strlen(device);
        const bool ours = number[0] >= '0' && number[0] < '0' + Nic::count() && !number[1];
        if (ours && nic) *nic = number[0] - '0';
        return ours ? Path::device : Path::foreign;
    }
    if (!starts_with(path, "/sys/")) return Path::foreign;
    const char* below = path + strlen("/sys");  // keeps the slash
    bool ours = is_or_is_below(below, "/class/infiniband") || is_or_is_below(below, "/class/infiniband_verbs") ||
                is_or_is_below(below, (std::string("/") + peer_memory).c_str());
    const bool maybe = starts_with(below, "/devices/pci0000:10") || starts_with(below, "/bus/pci/devices/0000:1");
    for (int i = 0; maybe && i < Nic::count(); ++i) {
        const Names names(i);
        ours = ours || is_or_is_below(below, ("/" + names.pci_directory).c_str()) ||
               is_or_is_below(below, ("/bus/pci/devices/" + names.pci).c_str());
    }
    if (!ours) return Path::foreign;
    const char* where = root();
    if (!where) return Path::foreign;
    const int length = snprintf(moved, path_bytes, "%s%s", where, below);
    return length > 0 && static_cast<size_t>(length) < path_bytes ? Path::tree : Path::foreign;
}

bool restore(char* path) {
    const char* where = tree().root.load();
    if (!where || !is_or_is_below(path, where)) return false;
    const char* rest = path + strlen(where);
    memmove(path + strlen("/sys"), rest, strlen(rest) + 1);
    memcpy(path, "/sys", strlen("/sys"));
    return true;
}

dev_t device_number(int nic) { return makedev(device_major, first_device_minor + static_cast<unsigned>(nic)); }

void refresh() {
    Tree& t = tree();
    std::lock_guard<std::mutex> guard(t.mutex);
    if (const char* where = t.root.load()) write_networks(where);
}

void remove() {
    Tree& t = tree();
    const char* where = t.root.load();
    if (where && t.lock_fd >= 0) remove_directory(where);
}

void forget() {
    // The lock's file description is shared with the parent: closing our copy does not release it.
    Tree& t = tree();
    if (t.lock_fd >= 0) real::close(t.lock_fd);
    t.lock_fd = -1;
    t.root = nullptr;
}

}  // namespace sim::uverbs::sysfs
