// SPDX-License-Identifier: Apache-2.0
// See sysfs.h. The layout is that of a PCI device with an InfiniBand port: attributes in the device's directory,
// class directories full of links to it. Programs find the PCI device by realpath(), so the links must be real.
// Source: Documentation/ABI/stable/sysfs-class-infiniband of Linux, and what the libraries open.
#include "sim/uverbs/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "sim/uverbs/counters.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/real.h"

namespace sim::uverbs::sysfs {
namespace {

constexpr const char* pci_directory = "devices/pci0000:10/0000:11:00.0";
constexpr unsigned device_major = 231, device_minor = 192;  // the first uverbs device of every Linux

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

// ---- writing the tree ----

class Writer {
   public:
    explicit Writer(std::string root) : root_(std::move(root)) {}

    void directory(const std::string& path) {
        for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
            mkdir((root_ + "/" + path.substr(0, slash)).c_str(), 0755);
        mkdir((root_ + "/" + path).c_str(), 0755);
        here_ = path;
    }
    // A file in the directory made last; a newline is added as sysfs does.
    __attribute__((format(printf, 3, 4))) void file(const char* name, const char* format, ...) {
        va_list arguments;
        va_start(arguments, format);
        char text[512];
        int length = vsnprintf(text, sizeof text - 1, format, arguments);
        va_end(arguments);
        text[length++] = '\n';
        int fd = real::open((root_ + "/" + here_ + "/" + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        ok_ = ok_ && fd >= 0 && real::write(fd, text, static_cast<size_t>(length)) == length;
        if (fd >= 0) real::close(fd);
    }
    void link(const char* name, const std::string& target) {
        ok_ = symlink(target.c_str(), (root_ + "/" + here_ + "/" + name).c_str()) == 0 && ok_;
    }
    bool ok() const { return ok_; }

   private:
    std::string root_, here_;
    bool ok_ = true;
};

std::string quads(const uint8_t (&gid)[16]) {
    char text[40];
    char* end = text;
    for (int i = 0; i < 16; i += 2) end += snprintf(end, 6, "%s%02x%02x", i ? ":" : "", gid[i], gid[i + 1]);
    return text;
}

void write_pci(Writer& w) {
    w.directory(pci_directory);
    w.file("vendor", "0x%04x", identity::pci_vendor);
    w.file("device", "0x%04x", identity::pci_device);
    w.file("subsystem_vendor", "0x%04x", identity::pci_vendor);
    w.file("subsystem_device", "0x%04x", identity::pci_subsystem);
    w.file("class", "0x020700");
    w.file("revision", "0x00");
    w.file("numa_node", "0");
    const long cpus = sysconf(_SC_NPROCESSORS_CONF);
    std::string mask;  // words of 32 processors, the highest first
    for (long word = (cpus - 1) / 32; word >= 0; --word) {
        char text[16];
        const long used = std::min(cpus - word * 32, 32l);
        snprintf(text, sizeof text, "%s%08x", mask.empty() ? "" : ",", used == 32 ? ~0u : (1u << used) - 1);
        mask += text;
    }
    w.file("local_cpulist", "0-%ld", cpus - 1);
    w.file("local_cpus", "%s", mask.c_str());
    w.file("current_link_speed", "32.0 GT/s PCIe");
    w.file("max_link_speed", "32.0 GT/s PCIe");
    w.file("current_link_width", "16");
    w.file("max_link_width", "16");
    w.file("modalias", "pci:v%08Xd%08Xsv%08Xsd%08Xbc02sc07i00", identity::pci_vendor, identity::pci_device,
           identity::pci_vendor, identity::pci_subsystem);
    w.file("uevent", "DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_ID=%04X:%04X\nPCI_SLOT_NAME=0000:11:00.0",
           identity::pci_vendor, identity::pci_device);
}

void write_port(Writer& w, const std::string& port, const Nic& nic) {
    w.directory(port);
    w.file("state", "4: ACTIVE");
    w.file("phys_state", "5: LinkUp");
    w.file("rate", "400 Gb/sec (4X NDR)");
    w.file("link_layer", "Ethernet");
    w.file("lid", "0x0");
    w.file("sm_lid", "0x0");
    w.file("lid_mask_count", "0");
    w.file("sm_sl", "0");
    w.file("cap_mask", "0x04010000");
    w.directory(port + "/pkeys");
    w.file("0", "0xffff");
    for (const char* directory : {"counters", "hw_counters"}) {
        w.directory(port + "/" + directory);
        for (const char* name : counters::names(directory)) w.file(name, "0");
    }
    w.directory(port + "/gid_attrs/types");
    for (int i = 0; i < identity::gids; ++i) w.file(std::to_string(i).c_str(), "%s", i % 2 ? "RoCE v2" : "IB/RoCE v1");
    w.directory(port + "/gid_attrs/ndevs");  // empty: no network device stands behind the port
    w.directory(port + "/gids");
    for (int i = 0; i < identity::gids; ++i) {
        uint8_t gid[16];
        nic->gid(i, gid);
        w.file(std::to_string(i).c_str(), "%s", quads(gid).c_str());
    }
}

bool write_tree(const std::string& root) {
    Nic nic;
    if (!nic) return false;
    Writer w(root);
    write_pci(w);
    const std::string pci = pci_directory, device = pci + "/infiniband/mlx5_0", verbs = pci + "/infiniband_verbs";
    const uint64_t guid = identity::node_guid();
    char guid_text[24];
    snprintf(guid_text, sizeof guid_text, "%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48),
             static_cast<unsigned>(guid >> 32 & 0xffff), static_cast<unsigned>(guid >> 16 & 0xffff),
             static_cast<unsigned>(guid & 0xffff));
    w.directory(device);
    w.file("node_type", "1: CA");
    w.file("node_guid", "%s", guid_text);
    w.file("sys_image_guid", "%s", guid_text);
    w.file("fw_ver", "%u.%u.%04u", identity::firmware_major, identity::firmware_minor, identity::firmware_sub);
    w.file("hw_rev", "0");
    w.file("hca_type", "MT4129");
    w.file("board_id", "GDA_SOFTWARE");
    w.file("node_desc", "gda software ConnectX-7");
    w.link("device", "../../../0000:11:00.0");
    write_port(w, device + "/ports/1", nic);
    w.directory(verbs + "/uverbs0");
    w.file("ibdev", "mlx5_0");
    w.file("dev", "%u:%u", device_major, device_minor);
    w.file("abi_version", "1");
    w.link("device", "../../../0000:11:00.0");
    w.directory("class/infiniband");
    w.link("mlx5_0", "../../" + device);
    w.directory("class/infiniband_verbs");
    w.file("abi_version", "6");
    w.link("uverbs0", "../../" + verbs + "/uverbs0");
    w.directory("bus/pci/devices");
    w.link("0000:11:00.0", "../../../" + pci);
    return w.ok();
}

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

Path resolve(const char* path, char (&moved)[path_bytes]) {
    if (!path || path[0] != '/') return Path::foreign;
    if (!strcmp(path, "/dev/infiniband/uverbs0")) return Path::device;
    if (!starts_with(path, "/sys/")) return Path::foreign;
    const char* below = path + strlen("/sys");  // keeps the slash
    const bool ours = is_or_is_below(below, "/class/infiniband") || is_or_is_below(below, "/class/infiniband_verbs") ||
                      is_or_is_below(below, (std::string("/") + pci_directory).c_str()) ||
                      is_or_is_below(below, "/bus/pci/devices/0000:11:00.0");
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

dev_t device_number() { return makedev(device_major, device_minor); }

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
